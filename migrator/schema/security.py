"""Who may see and write what: group roles, row-level security, grants, owner of the schemas.

Tenant isolation depends on the session setting ``app.tenant_id``. A session reads rows of its tenant and of ``*``, and
writes rows of its tenant. Without the setting (or if it is empty, as in a pooled session after a local setting ended)
it reads nothing. Only the dispatcher and the owner write rows of ``*``, also if a session sets its tenant to ``*``.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from psycopg import errors, sql

from migrator.config import PostgresSettings
from migrator.connections.postgres import Connection
from migrator.errors import ConfigurationError, RefusedError

APPEND_ONLY = frozenset({"audit"})
"""Tables that service and dispatcher may insert into, but neither update nor empty."""

WRITTEN_BY_DISPATCHER = frozenset({"workers", "locks"})
"""Tables that the service may read, and neither insert into nor update: their rows are processes, and exclude them."""

DELETED_BY_SERVICE = frozenset({"handlers", "runs", "triggers"})
"""Tables from which the store deletes rows as the service: only these may it lock exclusively (``LOCK TABLE``)."""

DELETED_BY_DISPATCHER = frozenset({"workers"})
"""The same for the dispatcher."""

KEY = frozenset({"id", "tenant_id"})
"""Columns that only the owner changes."""


class Roles(msgspec.Struct, frozen=True):
    """Names of the three NOLOGIN group roles; every session does ``SET ROLE`` to one of them."""

    migration: str = "scheduler_migration"
    """Owns the tables. Row-level security is enabled, not forced, because COPY FROM is refused under it."""
    service: str = "scheduler_service"
    """Owns nothing, bound to one tenant."""
    dispatcher: str = "scheduler_dispatcher"
    """Claims across tenants."""

    @classmethod
    def of(cls, settings: PostgresSettings) -> "Roles":
        """Return the names that the settings state."""
        return cls(settings.migration_role, settings.service_role, settings.dispatcher_role)

    def names(self) -> tuple[str, str, str]:
        """Return the three names."""
        return self.migration, self.service, self.dispatcher


def write_grants(schema: str, table: str, columns: Iterable[str], roles: Roles) -> Iterator[sql.Composed]:
    """Yield the statements that grant the right to write to one table; ``columns``: those that are written.

    UPDATE is granted by column: a role with UPDATE on the whole table, or DELETE, may ``LOCK TABLE`` in every mode.
    """
    place = sql.Identifier(schema, table)
    service, dispatcher = sql.Identifier(roles.service), sql.Identifier(roles.dispatcher)
    writers = [dispatcher] if table in WRITTEN_BY_DISPATCHER else [service, dispatcher]
    to = sql.SQL(", ").join(writers)
    yield sql.SQL("GRANT INSERT ON TABLE {} TO {}").format(place, to)
    if table not in APPEND_ONLY:
        changeable = [column for column in columns if column not in KEY]
        yield sql.SQL("GRANT UPDATE ({}) ON TABLE {} TO {}").format(
            sql.SQL(", ").join(map(sql.Identifier, changeable)), place, to
        )
    for deleted, role in ((DELETED_BY_SERVICE, service), (DELETED_BY_DISPATCHER, dispatcher)):
        if table in deleted:
            yield sql.SQL("GRANT DELETE ON TABLE {} TO {}").format(place, role)


SHOWN = 3
"""Tables of another owner's schema that a refusal names, at most."""
PREDEFINED = "pg_"
"""Prefix of the names of PostgreSQL's own roles; others may not have it."""
MAY_SET_ROLE_SINCE = 160000
"""Since PostgreSQL 16, membership and the right to SET ROLE are two things."""


class RightsMissingError(RefusedError):
    """The user lacks a right that only an administrator can give; the message holds the SQL for it."""

    def __init__(self, what: str, statements: Iterable[str]) -> None:
        self.what, self.statements = what, tuple(statements)
        super().__init__(
            f"the target's user may not {what}; have an administrator run this, then call again:",
            lines=[f"  {statement};" for statement in self.statements],
        )


class _Role(msgspec.Struct, frozen=True):
    """A role of the server."""

    superuser: bool
    bypasses: bool
    """Whether row-level security does not bind it."""
    memberships: dict[str, bool]
    """The roles of which it is a direct member → whether it has their rights, or may SET ROLE to them.

    Otherwise it may only grant them, also to itself.
    """


def require_group_roles(connection: Connection, roles: Roles) -> None:
    """Refuse roles that would not isolate the tenants; roles that do not exist are not refused.

    Raises ``ConfigurationError`` for a superuser, for a role of PostgreSQL's own, for one name that stands for two of
    the roles, for one of the three that is a member of another, also through other roles, and for a role that serves
    the application and is not bound by row-level security: one with BYPASSRLS, or a member of one with it.
    """
    keys = {"migration_role": roles.migration, "service_role": roles.service, "dispatcher_role": roles.dispatcher}
    server = _roles_of_server(connection)
    for key, name in keys.items():
        own = server.get(name, _Role(superuser=False, bypasses=False, memberships={}))
        serves = key != "migration_role"
        for wrong, why in (
            (name.startswith(PREDEFINED), "belongs to PostgreSQL itself"),
            (own.superuser, "is a superuser"),
            (serves and own.bypasses, "has BYPASSRLS, so row-level security would not isolate the tenants"),
        ):
            if wrong:
                raise ConfigurationError(
                    f"postgres.{key}: the role {name} {why}; name another role, which schema upgrade creates"
                )
        for other, second in keys.items():
            if other != key and second == name:
                raise ConfigurationError(
                    f"postgres.{key} and postgres.{other} are one role, {name}, so nothing would keep the tenants"
                    " apart; name three roles, which schema upgrade creates"
                )
    for key, name in keys.items():
        for path in _paths(server, name, granting=key != "migration_role"):
            if path[-1] in keys.values() or (key != "migration_role" and _is_unbound(server, path[-1])):
                raise ConfigurationError(_overlap(keys, key, path, server))


def _roles_of_server(connection: Connection) -> dict[str, _Role]:
    rows = connection.execute(
        "SELECT rolname, rolsuper, rolbypassrls, (SELECT coalesce(jsonb_object_agg(to_role, used), '{}') FROM ("
        "SELECT of.rolname AS to_role, bool_or(coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true)"  # since 16
        " OR coalesce((to_jsonb(m) ->> 'set_option')::boolean, true)) AS used"
        " FROM pg_auth_members AS m JOIN pg_roles AS of ON of.oid = m.roleid WHERE m.member = pg_roles.oid"
        " GROUP BY of.rolname) AS granted) FROM pg_roles"
    ).fetchall()
    return {
        name: _Role(superuser=superuser, bypasses=bypasses, memberships=memberships)
        for name, superuser, bypasses, memberships in rows
    }


def _paths(server: dict[str, _Role], name: str, *, granting: bool) -> Iterator[tuple[str, ...]]:
    """Yield the chain of memberships to each role that a role may act as, the shortest first.

    ``granting``: also through memberships that give nothing but the right to grant them.
    """
    seen = {name}
    waiting: list[tuple[str, ...]] = [(name,)]
    for path in waiting:
        last = server.get(path[-1])
        for following, used in sorted(last.memberships.items()) if last is not None else ():
            if following not in seen and (used or granting):
                seen.add(following)
                waiting.append((*path, following))
                yield waiting[-1]


def _is_unbound(server: dict[str, _Role], name: str) -> bool:
    return server[name].superuser or server[name].bypasses


def _overlap(keys: dict[str, str], key: str, path: tuple[str, ...], server: dict[str, _Role]) -> str:
    """Describe a role that may act as another one, and what to do."""
    through = f" through {', '.join(path[1:-1])}" if len(path) > 2 else ""  # noqa: PLR2004 - the two ends
    other = next((one for one, name in keys.items() if name == path[-1]), None)
    if other == "migration_role":
        why = f"may act as {path[-1]}, which owns the tables"
    elif other is not None:
        why = f"is a member of {path[-1]} (postgres.{other})"
    else:
        power = "is a superuser" if server[path[-1]].superuser else "has BYPASSRLS"
        why = f"is a member of {path[-1]}, which {power}"
    return (
        f"postgres.{key}: the role {path[0]} {why}{through}, so nothing would keep the tenants apart; REVOKE"
        f" {path[1]} FROM {path[0]}, or name another role, which schema upgrade creates"
    )


def ensure_roles(connection: Connection, roles: Roles) -> None:
    """Create the group roles that are missing and join the owning one; the connection is in autocommit.

    Roles belong to the server, not to the database: another upgrade may create them at the same moment.
    """
    known = {
        row[0] for row in connection.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [[*roles.names()]])
    }
    missing = [name for name in dict.fromkeys(roles.names()) if name not in known]
    membership = _membership(connection, roles)
    for name in missing:
        try:
            with connection.transaction():
                connection.execute(_create(name))
        except (errors.DuplicateObject, errors.UniqueViolation):
            continue  # created by another upgrade meanwhile
        except errors.InsufficientPrivilege:
            wanted = [_create(other).as_string(connection) for other in missing] + [membership.as_string(connection)]
            raise RightsMissingError("create roles", wanted) from None
    right = "SET" if connection.info.server_version >= MAY_SET_ROLE_SINCE else "MEMBER"
    if connection.execute("SELECT pg_has_role(%s, %s)", (roles.migration, right)).fetchone() != (True,):
        try:
            connection.execute(membership)
        except errors.InsufficientPrivilege:
            raise RightsMissingError(f"join {roles.migration}", [membership.as_string(connection)]) from None


class NeededRights(msgspec.Struct, frozen=True, kw_only=True):
    """What the user of the DSN does itself, without one of the group roles; names of relations are quoted."""

    schemas: tuple[str, ...] = ()
    """Creates these, if they are missing."""
    filled: tuple[str, ...] = ()
    """Creates tables in these existing schemas."""
    tables: tuple[str, ...] = ()
    """Reads and writes these existing tables."""
    sequences: tuple[str, ...] = ()
    """Takes numbers from these existing sequences."""


_LACKING: Final = """
SELECT current_user, current_database(),
    EXISTS (SELECT FROM unnest(%(schemas)s::text[]) AS name WHERE to_regnamespace(quote_ident(name)) IS NULL)
        AND NOT has_database_privilege(current_database(), 'CREATE'),
    array(SELECT name FROM unnest(%(filled)s::text[]) AS name
        WHERE NOT (has_schema_privilege(name, 'CREATE') AND has_schema_privilege(name, 'USAGE'))),
    array(SELECT name FROM unnest(%(tables)s::text[]) AS name
        WHERE NOT (has_table_privilege(name, 'SELECT') AND has_table_privilege(name, 'INSERT')
            AND has_table_privilege(name, 'UPDATE') AND has_table_privilege(name, 'DELETE'))),
    array(SELECT name FROM unnest(%(sequences)s::text[]) AS name WHERE NOT has_sequence_privilege(name, 'USAGE'))
"""


def require_rights(connection: Connection, roles: Roles, needed: NeededRights) -> None:
    """Refuse a user who may not do what later steps do; the connection is in autocommit, and nothing is left.

    Later steps create the group roles, too. Raises ``RightsMissingError`` with all that is missing, and
    ``ConfigurationError`` as ``require_group_roles`` does.
    """
    require_group_roles(connection, roles)
    lacking: list[str] = []
    statements: list[str] = []
    try:
        with connection.transaction(force_rollback=True):  # who may create and grant roles differs between versions
            ensure_roles(connection, roles)
    except RightsMissingError as error:
        lacking.append(error.what)
        statements += error.statements
    [row] = connection.execute(
        _LACKING, {name: [*getattr(needed, name)] for name in needed.__struct_fields__}
    ).fetchall()
    user, database, no_schemas, filled, tables, sequences = row
    to = sql.Identifier(user).as_string(connection)
    if no_schemas:
        lacking.append("create schemas in this database")
        statements.append(f"GRANT CREATE ON DATABASE {sql.Identifier(database).as_string(connection)} TO {to}")
    for name in filled:
        lacking.append(f"create tables in the schema {name}")
        statements.append(f"GRANT CREATE, USAGE ON SCHEMA {sql.Identifier(name).as_string(connection)} TO {to}")
    for name in tables:
        lacking.append(f"read and write the table {name}")
        statements.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {name} TO {to}")
    for name in sequences:
        lacking.append(f"take numbers from the sequence {name}")
        statements.append(f"GRANT USAGE ON SEQUENCE {name} TO {to}")
    if statements:
        raise RightsMissingError(", nor ".join(lacking), statements)


def require_own_schema(connection: Connection, name: str, roles: Roles) -> None:
    """Refuse a schema of this name that others have created: one of another owner that is not empty."""
    row = connection.execute(
        "SELECT pg_get_userbyid(nspowner), array(SELECT relname::text FROM pg_class WHERE relnamespace = mine.oid"
        " AND relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY relname)"
        " FROM pg_namespace AS mine WHERE nspname = %s AND to_regclass(%s) IS NULL",
        (name, f"{name}.schema_history"),
    ).fetchone()
    if row is None or row[0] == roles.migration or not row[1]:
        return
    tables = ", ".join(row[1][:SHOWN]) + (" and more" if len(row[1]) > SHOWN else "")
    raise RefusedError(
        f"the target has a schema {name} that is not this tool's: it belongs to {row[0]} and holds {tables}; rename it"
        f" (ALTER SCHEMA {name} RENAME TO ...), or let postgres.dsn name another database"
    )


def ensure_schema(connection: Connection, name: str, roles: Roles) -> None:
    """Create the schema if it is missing, owned by the owning role; raises ``RefusedError`` if another role owns it."""
    require_own_schema(connection, name, roles)
    if connection.execute("SELECT to_regnamespace(quote_ident(%s)) IS NULL", (name,)).fetchone() != (True,):
        return
    create = sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(sql.Identifier(name), sql.Identifier(roles.migration))
    try:
        connection.execute(create)
    except errors.InsufficientPrivilege:
        raise RightsMissingError("create schemas in this database", [create.as_string(connection)]) from None


def _create(name: str) -> sql.Composed:
    return sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name))


def _membership(connection: Connection, roles: Roles) -> sql.Composed:
    user = connection.execute("SELECT current_user").fetchone()
    return sql.SQL("GRANT {} TO {}").format(sql.Identifier(roles.migration), sql.Identifier(user[0] if user else ""))
