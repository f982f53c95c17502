"""PostgreSQL databases to load into, and the finished rows of the floor."""

import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from bson import json_util
from pymongo.database import Database

from benchmarks.harness.source import Dataset
from benchmarks.harness.tools import PROGRAMS, settings_of
from migrator.schema.revisions import upgrade
from migrator.testing.servers.postgres import PostgresServer
from migrator.values.identity import source_id

TEMPLATE = "benchmark_template"
EMPTY = "benchmark_empty"
RANGE = 20_000
"""Documents that the floor reads and writes at a time."""
_numbers = count(1)


def make_templates(server: PostgresServer) -> None:
    """Make the database that every load starts from, with the schemas at head, and one without any."""
    upgrade(server.create_database(TEMPLATE))
    server.create_database(EMPTY)


def make_native(server: PostgresServer, uri: str, source: Database[Any], dataset: Dataset) -> str:
    """Make a template with the tables of a library, prepared; return its name.

    The statements are the library's own. ``target prepare`` compares what they made with the known catalogue.
    """
    name = f"benchmark_{dataset.target}_{next(_numbers)}"
    dsn = server.create_database(name)
    with psycopg.connect(dsn) as connection:
        connection.execute((PROGRAMS / f"{dataset.target}.sql").read_bytes())
    environment = os.environ | settings_of(uri, source.name, dsn, dataset.profile, dataset.target)
    program = [sys.executable, "-m", "migrator", "target", "prepare"]
    subprocess.run(program, check=True, env=environment, stdout=subprocess.DEVNULL)
    return name


def make_prepared(server: PostgresServer, source: Database[Any]) -> str:
    """Make a template with the schedules that runs refer to, if there are any; return its name."""
    name = f"benchmark_prepared_{next(_numbers)}"
    dsn = server.create_database(name, template=TEMPLATE)
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
    return name


def fresh(server: PostgresServer, template: str) -> str:
    """Return the connection string of a new database; the disk is at rest when this returns."""
    dsn = server.create_database(f"benchmark_{next(_numbers)}", template=template)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
    return dsn


def prepare_floor(
    server: PostgresServer, uri: str, source: Database[Any], dataset: Dataset, prepared: str, folder: Path
) -> None:
    """Render the rows that the floor writes, by loading them once and copying them out by range.

    The script loads what it knows, the tool the rest. ``retry_of`` is left out: a range may name a run of a later one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    by_script = dataset.profile == "stellaops"
    dsn = fresh(server, prepared)
    program = [sys.executable, str(PROGRAMS / "script.py"), uri, source.name, dataset.collection, dsn]
    if not by_script:
        program = [sys.executable, "-m", "migrator", "backfill"]
    environment = os.environ | settings_of(uri, source.name, dsn, dataset.profile, dataset.target)
    subprocess.run(program, check=True, env=environment, stdout=subprocess.DEVNULL)
    bounds = _bounds(source, dataset.collection)
    ranges = list(zip(bounds, [*bounds[1:], None], strict=True))
    with psycopg.connect(dsn) as connection:
        columns = {
            dataset.qualified(table): [
                row[0] for row in connection.execute(_COLUMNS, [dataset.qualified(table)]) if row[0] != "retry_of"
            ]
            for table in dataset.tables
        }
        plan = {"tables": columns, "ranges": ranges}
        (folder / "ranges.json").write_text(json_util.dumps(plan, json_options=json_util.CANONICAL_JSON_OPTIONS))
        for number, (low, high) in enumerate(ranges):
            for table, names in columns.items():
                file = folder / f"{table}-{number}.rows"
                if dataset.is_native:
                    _render(connection, table, names, "ORDER BY id OFFSET %s LIMIT %s", [number * RANGE, RANGE], file)
                else:
                    given = [None if bound is None else source_id(bound) for bound in (low, high, high)]
                    _render(connection, table, names, _OF_SOURCE_IDS, given, file)
    drop(server, dsn)


_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum
"""


_OF_SOURCE_IDS = """
WHERE source_id COLLATE "C" >= %s AND (%s::text IS NULL OR source_id COLLATE "C" < %s) ORDER BY source_id COLLATE "C"
"""


def _render(
    connection: psycopg.Connection[Any], table: str, columns: list[str], which: str, given: list[Any], file: Path
) -> None:
    statement = f"COPY (SELECT {', '.join(columns)} FROM {table} {which}) TO STDOUT (FORMAT BINARY)"
    with file.open("wb") as sink, connection.cursor() as cursor, cursor.copy(statement.encode(), given) as copy:
        for piece in copy:
            sink.write(piece)


def _bounds(source: Database[Any], collection: str) -> list[Any]:
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
