"""The other systems' rows through PostgreSQL: out of tables like theirs, into the target's, and back."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec
import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from migrator.connections.postgres import Connection
from migrator.records import ALL, Record, Run
from migrator.sources.rows import Row, TableSource, load, restore
from migrator.store.postgres.rows import copy_in, fetch, table_name
from migrator.values.copy_format import codec
from tests.other_systems import CONTEXT, CRAWLER_ROWS, TABLES, exactly

IN_SQL = [(table, row) for table, row in TABLES if table.name != "in_process_jobs"]
TYPES: dict[type, LiteralString] = {
    bool: "boolean",
    int: "bigint",
    str: "text",
    UUID: "uuid",
    dict: "jsonb",
    list: "text[]",
}
NAMED = pytest.mark.parametrize(("table", "row"), IN_SQL, ids=[table.name for table, _ in IN_SQL])


@pytest.fixture
def connection(scheduler_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(scheduler_dsn) as found:
        yield found


def type_of(value: object) -> LiteralString:
    """Return the column type of the source's table, told by a value."""
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo is None else "timestamptz"
    return TYPES[type(value)]


def through_the_source(connection: Connection, table: TableSource, full: Row, rows: list[Row]) -> list[Row]:
    """Return the rows as psycopg reads them from a table of the source's column types."""
    name = sql.Identifier("source", table.name)
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_of(value))) for column, value in full.items()
    )
    connection.execute("CREATE SCHEMA source")
    connection.execute(sql.SQL("CREATE TABLE {} (place serial, {})").format(name, columns))
    for row in rows:
        given = [Jsonb(row[column]) if isinstance(row[column], dict) else row[column] for column in full]
        values = sql.SQL(", ").join([sql.Placeholder()] * len(given))
        names = sql.SQL(", ").join(map(sql.Identifier, full))
        connection.execute(sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(name, names, values), given)
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(sql.SQL("SELECT * FROM {} ORDER BY place").format(name)).fetchall()
    return [{column: row[column] for column in full} for row in found]


def stored(connection: Connection, rows: tuple[Record, ...]) -> tuple[Record, ...]:
    """Write the records by COPY and return them as they are read again."""
    found: dict[type[Record], Record] = {}
    for record in sorted(rows, key=lambda row: ALL.index(type(row))):
        kind = type(record)
        head, tail = codec(kind).serialize(record)
        copy_in(connection, table_name(kind.table), codec(kind), [head + tail])
        (read,) = fetch(connection, kind.table, codec(kind), [getattr(record, "id")]).values()  # noqa: B009 - every one has it
        found[kind] = kind(**codec(kind).read(read))
    return tuple(found[type(row)] for row in rows)


def with_parents_only(rows: tuple[Record, ...]) -> tuple[Record, ...]:
    """Return the records without references to rows that this test does not store."""
    none: dict[str, Any] = {"schedule_id": None, "retry_of": None, "run_id": None}
    return tuple(
        msgspec.structs.replace(row, **{name: None for name in none if name in row.__struct_fields__})
        if len(rows) == 1
        else row
        for row in rows
    )


@NAMED
def test_rows_as_the_driver_gives_them_come_back_from_the_target(
    connection: Connection, table: TableSource, row: Row
) -> None:
    nothing = {field.encode_name: None for field in msgspec.structs.fields(table.shape) if field.default is None}
    for given, one in zip(
        [row, row | nothing], through_the_source(connection, table, row, [row, row | nothing]), strict=True
    ):
        assert exactly(one) == exactly(given)
        decoded = load(table, one, CONTEXT)
        read = stored(connection, with_parents_only(decoded.rows))
        back = restore(table, read)
        orphaned = {"job_id", "execution_id"} & set(row) if len(read) == 1 else set()
        assert exactly({**back, **{name: one[name] for name in orphaned}}) == exactly(one)
        for kind in {type(record).table for record in read}:
            connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(table_name(kind)))


@pytest.mark.parametrize("status", ["pending", "processing", "completed", "failed"])
def test_rows_that_break_the_sources_migration_are_loaded(connection: Connection, status: str) -> None:
    """Enabled rows, and rows that are processing, with a line that the migration could not convert."""
    base = {name: CRAWLER_ROWS["jobs"][name] for name in tuple(CRAWLER_ROWS["jobs"])[:12]} | {"status": status}
    jobs = next(table for table, _ in TABLES if table.name == "jobs")
    (row,) = through_the_source(connection, jobs, base, [base])
    rows = stored(connection, load(jobs, row, CONTEXT).rows)
    assert exactly(restore(jobs, rows)) == exactly(row)
    found = connection.execute(
        "SELECT s.status, t.kind, t.cron_expression FROM scheduler.schedules s"
        " JOIN scheduler.triggers t ON t.schedule_id = s.id"
    ).fetchall()
    assert found == [({"processing": "running"}.get(status, status), "cron", "15 */3 * * *")]


def test_a_number_used_twice_would_be_refused_by_the_target(connection: Connection) -> None:
    """3-R3: which is why the second execution comes without it."""
    executions = next(table for table, _ in TABLES if table.name == "job_executions")
    jobs = next(table for table, _ in TABLES if table.name == "jobs")
    stored(connection, load(jobs, CRAWLER_ROWS["jobs"], CONTEXT).rows)
    first, second = CRAWLER_ROWS["job_executions"], CRAWLER_ROWS["job_executions"] | {"id": UUID(int=7)}
    (run,) = stored(connection, load(executions, first, CONTEXT).rows)
    assert isinstance(run, Run)
    with pytest.raises(psycopg.errors.UniqueViolation), connection.transaction():
        stored(connection, load(executions, second, CONTEXT).rows)
    told = msgspec.structs.replace(CONTEXT, repeated=frozenset({UUID(int=7)}))
    again = stored(connection, load(executions, second, told).rows)
    assert restore(executions, again) == second
