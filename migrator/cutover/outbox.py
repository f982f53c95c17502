"""The outbox: triggers that note each row written to PostgreSQL since the cutover, and their notes.

A note holds no values. The reverse sync reads the row as it is at that time, so that notes may be carried in any order,
together, and twice. The triggers exist from the cutover to ``cutover finish``. They change no row of the scheduler.
``locks`` and ``workers`` have no triggers: they belong to processes, which register again on the other side.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection, fetch_value
from migrator.records import ALL, Lock, SourcedRecord, WorkerRecord
from migrator.store.postgres.store import OUTBOX_TRIGGER
from migrator.store.queue import SCRATCH

TRACKED_RECORDS: Final = tuple(record for record in ALL if record not in (Lock, WorkerRecord))
"""Records whose rows are carried to MongoDB."""
POLL_S: Final = 0.1
TRIGGER: Final = OUTBOX_TRIGGER
FUNCTION: Final = sql.Identifier("migration", "note_in_outbox")

# SECURITY DEFINER: the application's roles have no rights in the tool's schema, and need none. Rows of scratch tenants
# are tests of the tool, and have no documents.
_FUNCTION_DDL = """
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    seen jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
BEGIN
    IF starts_with(seen ->> 'tenant_id', {scratch}) THEN
        RETURN NULL;
    END IF;
    INSERT INTO migration.outbox (table_name, row_id, tenant_id, source, source_id)
        VALUES (TG_TABLE_NAME, seen ->> 'id', seen ->> 'tenant_id', seen ->> 'source',
            coalesce(seen ->> 'source_id', seen #>> '{{payload,_id}}', seen ->> 'schedule_id'));
    RETURN NULL;
END
$body$
"""


RowKey: TypeAlias = tuple[str, str]
"""The key of a row: its id as text, and its tenant."""


class ChangedRow(msgspec.Struct, frozen=True):
    """A row that was written, once even if it has several notes."""

    table: str
    row_id: str
    tenant_id: str
    source: str | None
    source_id: str | None
    """Of a table without the column ``source``: the ``_id`` in the payload, as text. Of a row that was created on
    PostgreSQL: the id of its schedule, if it has one."""

    @property
    def key(self) -> RowKey:
        """Return the key of the row in its table."""
        return self.row_id, self.tenant_id


def open_outbox(connection: Connection) -> None:
    """Create the triggers, in one transaction, and note the rows that were created here before: in a parallel run.

    Called again, it loses no note.
    """
    with connection.transaction():
        connection.execute(sql.SQL(_FUNCTION_DDL).format(function=FUNCTION, scratch=sql.Literal(SCRATCH)))
        connection.execute(sql.SQL("REVOKE ALL ON FUNCTION {}() FROM PUBLIC").format(FUNCTION))
        for record in TRACKED_RECORDS:
            connection.execute(
                sql.SQL(
                    "CREATE OR REPLACE TRIGGER {} AFTER INSERT OR UPDATE OR DELETE ON {}"
                    " FOR EACH ROW EXECUTE FUNCTION {}()"
                ).format(sql.Identifier(TRIGGER), sql.Identifier("scheduler", record.table), FUNCTION)
            )
        for record in TRACKED_RECORDS:
            if issubclass(record, SourcedRecord):
                connection.execute(_note_created(record))


def _note_created(record: type[SourcedRecord]) -> sql.Composed:
    """Return the statement that notes the rows of a table that were created here, as the trigger notes a change."""
    named = "coalesce(source_id, schedule_id::text)" if "schedule_id" in record.__struct_fields__ else "source_id"
    return sql.SQL(
        "INSERT INTO migration.outbox (table_name, row_id, tenant_id, source_id)"
        " SELECT {}, id::text, tenant_id, {} FROM {} WHERE source IS NULL AND NOT starts_with(tenant_id, {})"
    ).format(
        sql.Literal(record.table),
        sql.SQL(named),
        sql.Identifier("scheduler", record.table),
        sql.Literal(SCRATCH),
    )


def close_outbox(connection: Connection) -> None:
    """Remove the triggers and the notes. Called again, it changes nothing, and waits for no lock on a table.

    Not in one transaction, unless the caller has begun one: the application's transactions lock several tables, and a
    deadlock would follow if this one held some of them.
    """
    noted = connection.execute(
        "SELECT relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE tgname = %s AND relnamespace = 'scheduler'::regnamespace ORDER BY relname",
        (TRIGGER,),
    ).fetchall()
    for (table,) in noted:
        connection.execute(
            sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
                sql.Identifier(TRIGGER), sql.Identifier("scheduler", table)
            )
        )
    connection.execute(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(FUNCTION))
    connection.execute("TRUNCATE migration.outbox")


def is_open(connection: Connection) -> bool:
    """Return whether every tracked table has its trigger, and the trigger is enabled."""
    enabled = fetch_value(
        connection,
        "SELECT count(*) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE tgname = %s AND relnamespace = 'scheduler'::regnamespace AND tgenabled = 'O'",
        (TRIGGER,),
    )
    return bool(enabled == len(TRACKED_RECORDS))


def backlog(connection: Connection) -> tuple[int, float]:
    """Return the number of notes, and the age of the oldest in seconds."""
    row = connection.execute(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8 FROM migration.outbox"
    ).fetchone()
    return (0, 0.0) if row is None else (row[0], max(row[1], 0.0))


def wait_until_empty(connection: Connection, seconds: float) -> bool:
    """Wait until another process has carried every note; return whether it has."""
    until = time.monotonic() + seconds
    while backlog(connection)[0]:
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def newest_id(connection: Connection) -> int:
    """Return the id of the newest note; 0 if there is none."""
    return int(fetch_value(connection, "SELECT coalesce(max(id), 0) FROM migration.outbox"))


def oldest(connection: Connection, limit: int, until: int | None = None) -> tuple[list[ChangedRow], list[int]]:
    """Return the oldest notes, each row once, and the ids of all of them, for `delete` after they are carried.

    ``until`` is the last id that is returned; if omitted, all are. A note of a transaction that is still open is not
    visible, and is found later: notes are deleted one by one, never up to a position.
    """
    rows = connection.execute(
        "SELECT id, table_name, row_id, tenant_id, source, source_id FROM migration.outbox WHERE id <= coalesce(%s, id)"
        " ORDER BY id LIMIT %s",
        (until, limit),
    ).fetchall()
    noted = {row[1:4]: ChangedRow(*row[1:]) for row in rows}
    return list(noted.values()), [row[0] for row in rows]


def waiting(connection: Connection, size: int) -> Iterator[list[ChangedRow]]:
    """Yield the rows of all notes that there are now, oldest first, ``size`` notes at a time."""
    last, newest = 0, newest_id(connection)
    while True:
        rows = connection.execute(
            "SELECT id, table_name, row_id, tenant_id, source, source_id FROM migration.outbox WHERE id > %s"
            " AND id <= %s ORDER BY id LIMIT %s",
            (last, newest, size),
        ).fetchall()
        if not rows:
            return
        last = rows[-1][0]
        yield list({row[1:4]: ChangedRow(*row[1:]) for row in rows}.values())


def delete(connection: Connection, ids: Sequence[int]) -> None:
    """Delete notes whose rows were carried."""
    connection.execute("DELETE FROM migration.outbox WHERE id = ANY(%s)", (list(ids),))
