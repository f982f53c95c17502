"""PostgreSQL databases to load into, and the finished rows of the floor."""

import json
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from pymongo.database import Database

from benchmarks.harness.tools import PROGRAMS
from migrator.embedded.postgres import PostgresServer
from migrator.schema.revisions import upgrade

TEMPLATE = "benchmark_template"
PREPARED = "benchmark_prepared"
RANGE = 20_000
"""Documents that the floor reads and writes at a time."""
_numbers = count(1)


def make_template(server: PostgresServer, source: Database[Any]) -> None:
    """Make the database that every load starts from: both schemas, and a second one with the schedules in place."""
    upgrade(server.create_database(TEMPLATE))
    dsn = server.create_database(PREPARED, template=TEMPLATE)
    rows = [
        (
            document["_id"].partition("_")[2],
            document["tenantId"],
            "stellaops/schedules",
            document["_id"],
            document["name"],
        )
        for document in source["schedules"].find()
    ]
    statement = (
        "INSERT INTO scheduler.schedules (id, tenant_id, source, source_id, name, status)"
        " VALUES (%s, %s, %s, %s, %s, 'scheduled')"
    )
    with psycopg.connect(dsn) as connection:
        connection.cursor().executemany(statement, rows)


def fresh(server: PostgresServer, *, with_schedules: bool) -> str:
    """Return the connection string of a new database; the disk is at rest when this returns."""
    dsn = server.create_database(f"benchmark_{next(_numbers)}", template=PREPARED if with_schedules else TEMPLATE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    return dsn


def prepare_floor(server: PostgresServer, uri: str, source: Database[Any], collection: str, folder: Path) -> None:
    """Render the rows that the floor writes, by loading them once with the script and copying them out by range.

    ``retry_of`` is left out: a range may name a run of a later one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dsn = fresh(server, with_schedules=True)
    program = [sys.executable, str(PROGRAMS / "script.py"), uri, source.name, collection, dsn]
    subprocess.run(program, check=True)
    bounds = _bounds(source, collection)
    ranges = list(zip(bounds, [*bounds[1:], None], strict=True))
    with psycopg.connect(dsn) as connection:
        columns = [row[0] for row in connection.execute(_COLUMNS, [collection])]
        (folder / "ranges.json").write_text(json.dumps({"columns": columns, "ranges": ranges}))
        for number, (low, high) in enumerate(ranges):
            _render(connection, collection, columns, (low, high), folder / f"{number}.rows")
    drop(server, dsn)


_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = ('scheduler.' || %s)::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    AND attname <> 'retry_of'
ORDER BY attnum
"""


def _render(
    connection: psycopg.Connection[Any],
    table: str,
    columns: list[str],
    bounds: tuple[str, str | None],
    file: Path,
) -> None:
    chosen = ", ".join(columns)
    statement = (
        f'COPY (SELECT {chosen} FROM scheduler.{table} WHERE source_id COLLATE "C" >= %s'
        ' AND (%s::text IS NULL OR source_id COLLATE "C" < %s) ORDER BY source_id COLLATE "C")'
        " TO STDOUT (FORMAT BINARY)"
    )
    low, high = bounds
    with (
        file.open("wb") as sink,
        connection.cursor() as cursor,
        cursor.copy(statement.encode(), [low, high, high]) as copy,
    ):
        for piece in copy:
            sink.write(piece)


def _bounds(source: Database[Any], collection: str) -> list[str]:
    """Return the first ``_id`` of each range."""
    ids = source[collection].find({}, {"_id": 1}).sort("_id").hint("_id_")
    return [row["_id"] for place, row in enumerate(ids) if place % RANGE == 0]


def count_rows(dsn: str, table: str) -> int:
    """Return the number of rows."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    return int(found[0]) if found else 0


def size_of(dsn: str, schema: str) -> int:
    """Return the bytes of a schema's tables with their indexes and large values."""
    statement = (
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'"
    )
    with psycopg.connect(dsn) as connection:
        found = connection.execute(statement, [schema]).fetchone()
    return int(found[0]) if found else 0


def drop(server: PostgresServer, dsn: str) -> None:
    """Drop a database that `fresh` made."""
    server.drop_database(dsn.rpartition("/")[2])
