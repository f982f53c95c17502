"""What was written to PostgreSQL since the cutover: triggers that note each row, and the notes.

A note holds no values: the reverse sync reads the row as it is by then, so that notes may be worked off in any order,
together, and twice. The triggers exist from the cutover to ``cutover finish``; they compute nothing that the product
keeps. ``locks`` and ``workers`` are left out: they belong to processes, and those begin anew on the other side.
"""

import time
from collections.abc import Sequence
from typing import Final

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.records import ALL, Lock, WorkerRecord
from migrator.store.queue import SCRATCH

TRACKED_RECORDS: Final = tuple(record for record in ALL if record not in (Lock, WorkerRecord))
"""Records whose rows are carried back."""
POLL_S: Final = 0.1
TRIGGER: Final = "migrator_outbox"
FUNCTION: Final = sql.Identifier("migration", "note_in_outbox")

# SECURITY DEFINER: the application's roles have no rights in the tool's schema, and need none. Rows of scratch tenants
# are the tool's own trials: no document stands for them.
_FUNCTION_DDL = """
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
    seen jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
BEGIN
    IF starts_with(seen ->> 'tenant_id', {scratch}) THEN
        RETURN NULL;
    END IF;
    INSERT INTO migration.outbox (table_name, row_id, source, source_id)
        VALUES (TG_TABLE_NAME, seen ->> 'id', seen ->> 'source',
            coalesce(seen ->> 'source_id', seen #>> '{{payload,_id}}'));
    RETURN NULL;
END
$body$
"""


class ChangedRow(msgspec.Struct, frozen=True):
    """A row that was written, once however often it was."""

    table: str
    row_id: str
    source: str | None
    source_id: str | None
    """Of a table that names no source: the ``_id`` that the payload holds, as text."""


def open_outbox(connection: Connection) -> None:
    """Note every write from now on; in one transaction. Called again, it loses nothing."""
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


def close_outbox(connection: Connection) -> None:
    """Take the triggers away, and the notes. Called again, it changes nothing."""
    with connection.transaction():
        for record in TRACKED_RECORDS:
            connection.execute(
                sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
                    sql.Identifier(TRIGGER), sql.Identifier("scheduler", record.table)
                )
            )
        connection.execute(sql.SQL("DROP FUNCTION IF EXISTS {}()").format(FUNCTION))
        connection.execute("TRUNCATE migration.outbox")


def is_open(connection: Connection) -> bool:
    """Tell whether every followed table has its trigger, and the trigger is enabled."""
    row = connection.execute(
        "SELECT count(*) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid"
        " WHERE tgname = %s AND relnamespace = 'scheduler'::regnamespace AND tgenabled = 'O'",
        (TRIGGER,),
    ).fetchone()
    return row == (len(TRACKED_RECORDS),)


def backlog(connection: Connection) -> tuple[int, float]:
    """Return how many notes there are, and how old the oldest is, in seconds."""
    row = connection.execute(
        "SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8 FROM migration.outbox"
    ).fetchone()
    return (0, 0.0) if row is None else (row[0], max(row[1], 0.0))


def wait_until_empty(connection: Connection, seconds: float) -> bool:
    """Wait until another process has carried every note; tell whether it has."""
    until = time.monotonic() + seconds
    while backlog(connection)[0]:
        if time.monotonic() > until:
            return False
        time.sleep(POLL_S)
    return True


def newest_id(connection: Connection) -> int:
    """Return the id of the newest note; 0 where there is none."""
    row = connection.execute("SELECT coalesce(max(id), 0) FROM migration.outbox").fetchone()
    return 0 if row is None else int(row[0])


def oldest(connection: Connection, limit: int, until: int | None = None) -> tuple[list[ChangedRow], list[int]]:
    """Return the oldest notes, each row once, and the ids of all of them, to be given to `drop` when carried.

    ``until`` is the last id asked for; none: all. A note of a transaction that is still open is not seen, and is
    found later: notes are removed one by one, never up to a position.
    """
    rows = connection.execute(
        "SELECT id, table_name, row_id, source, source_id FROM migration.outbox WHERE id <= coalesce(%s, id)"
        " ORDER BY id LIMIT %s",
        (until, limit),
    ).fetchall()
    noted = {(row[1], row[2]): ChangedRow(*row[1:]) for row in rows}
    return list(noted.values()), [row[0] for row in rows]


def delete(connection: Connection, ids: Sequence[int]) -> None:
    """Remove notes whose rows were carried."""
    connection.execute("DELETE FROM migration.outbox WHERE id = ANY(%s)", (list(ids),))
