"""Who may see and write what: group roles, row-level security, grants.

Tenant isolation rests on the session setting ``app.tenant_id``: read one's own rows and those of ``*``, write one's
own. Without the setting (or with an empty one, which a pooled session shows after a local one ended) nothing is seen.
``*`` is written by the dispatcher and the owner only, also when a session sets its tenant to ``*``.
"""

from collections.abc import Iterator

import msgspec
from psycopg import sql
from sqlalchemy import Table

CURRENT = "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)"
VISIBLE = f"tenant_id = ANY (ARRAY[{CURRENT}, CASE WHEN {CURRENT} IS NULL THEN NULL::text ELSE '*'::text END])"
OWN = f"tenant_id = {CURRENT} AND tenant_id <> '*'::text"

APPEND_ONLY = frozenset({"audit"})
"""Tables that service and dispatcher may add to, but neither change nor empty."""

DELETED_BY_SERVICE = frozenset({"handlers", "runs", "triggers"})
"""Tables that the store deletes rows of as the service: only these may it lock against everybody (``LOCK TABLE``)."""

DELETED_BY_DISPATCHER = frozenset({"workers"})
"""The same for the dispatcher."""

KEY = frozenset({"id", "tenant_id"})
"""Columns that nobody but the owner changes."""

SEQUENCES = {"graph_job_events": "graph_job_events_id_seq"}
"""Table to the sequence that numbers its new rows."""

TAGGED = {"any_tag": "&&", "every_tag": "@>"}
"""Last part of a function's name to the operator by which it compares ``schedules.tags``."""

_TAGGED = """
CREATE FUNCTION {schema}.{name}(wanted text[]) RETURNS SETOF uuid
    LANGUAGE sql STABLE STRICT SECURITY DEFINER ROWS 100 SET search_path = pg_catalog, pg_temp
AS $function$
SELECT id FROM scheduler.schedules WHERE tags {operator} wanted AND {visible}
$function$
"""


class Roles(msgspec.Struct, frozen=True):
    """Names of the three NOLOGIN group roles; every session does ``SET ROLE`` to one of them."""

    migration: str = "scheduler_migration"
    """Owns the tables; row-level security is enabled, not forced, since COPY FROM is refused under it."""
    service: str = "scheduler_service"
    """Owns nothing, bound to one tenant."""
    dispatcher: str = "scheduler_dispatcher"
    """Claims across tenants."""

    def names(self) -> tuple[str, str, str]:
        """Return the three names."""
        return self.migration, self.service, self.dispatcher


def writes(schema: str, table: Table, roles: Roles) -> Iterator[sql.Composed]:
    """Yield the statements that grant the right to write into one table.

    UPDATE is granted by column: whoever has it on the table, or DELETE, may ``LOCK TABLE`` in every mode.
    """
    place = sql.Identifier(schema, table.name)
    service, dispatcher = sql.Identifier(roles.service), sql.Identifier(roles.dispatcher)
    yield sql.SQL("GRANT INSERT ON TABLE {} TO {}, {}").format(place, service, dispatcher)
    if table.name not in APPEND_ONLY:
        changeable = [column.name for column in table.columns if column.name not in KEY and column.computed is None]
        yield sql.SQL("GRANT UPDATE ({}) ON TABLE {} TO {}, {}").format(
            sql.SQL(", ").join(map(sql.Identifier, changeable)), place, service, dispatcher
        )
    for deleted, role in ((DELETED_BY_SERVICE, service), (DELETED_BY_DISPATCHER, dispatcher)):
        if table.name in deleted:
            yield sql.SQL("GRANT DELETE ON TABLE {} TO {}").format(place, role)


def isolation(schema: str, table: Table, roles: Roles) -> Iterator[sql.Composed]:
    """Yield the statements that isolate the tenants of one table."""
    place, service, dispatcher = (
        sql.Identifier(schema, table.name),
        sql.Identifier(roles.service),
        sql.Identifier(roles.dispatcher),
    )
    own, visible = sql.SQL(OWN), sql.SQL(VISIBLE)
    yield sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(place)
    yield sql.SQL("CREATE POLICY tenant_read ON {} FOR SELECT TO {} USING ({})").format(place, service, visible)
    yield sql.SQL("CREATE POLICY tenant_insert ON {} FOR INSERT TO {} WITH CHECK ({})").format(place, service, own)
    if table.name not in APPEND_ONLY:
        yield sql.SQL("CREATE POLICY tenant_update ON {} FOR UPDATE TO {} USING ({}) WITH CHECK ({})").format(
            place, service, own, own
        )
        yield sql.SQL("CREATE POLICY tenant_delete ON {} FOR DELETE TO {} USING ({})").format(place, service, own)
    yield sql.SQL("CREATE POLICY dispatcher_all ON {} TO {} USING (true) WITH CHECK (true)").format(place, dispatcher)
    yield sql.SQL("GRANT SELECT ON TABLE {} TO {}, {}").format(place, service, dispatcher)
    yield from writes(schema, table, roles)
    if table.name in SEQUENCES:
        yield sql.SQL("GRANT USAGE ON SEQUENCE {} TO {}, {}").format(
            sql.Identifier(schema, SEQUENCES[table.name]), service, dispatcher
        )


def functions(schema: str, roles: Roles) -> Iterator[sql.Composed]:
    """Yield the statements that make the functions which find schedules by their tags.

    The server evaluates operators of arrays only on rows that row-level security has let through, hence without an
    index. These functions run as the owner, whom it does not bind, and return the ids that the session may see: they
    take no tenant, and read the session's.
    """
    for which, operator in TAGGED.items():
        name = sql.Identifier(f"schedules_with_{which}")
        yield sql.SQL(_TAGGED).format(
            schema=sql.Identifier(schema), name=name, operator=sql.SQL(operator), visible=sql.SQL(VISIBLE)
        )
        called = sql.SQL("{}.{}(text[])").format(sql.Identifier(schema), name)
        yield sql.SQL("REVOKE ALL ON FUNCTION {} FROM PUBLIC").format(called)
        yield sql.SQL("GRANT EXECUTE ON FUNCTION {} TO {}").format(called, sql.Identifier(roles.service))
