"""Rows of PostgreSQL as JSON lines, one file per table: what a rollback leaves behind, for a person to look at."""

import shutil
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.files import make_folder, open_private
from migrator.records import ALL, Handler, Record, Trigger


def everything(target: Connection, folder: Path) -> dict[str, int]:
    """Export every row of every table of both schemas; return table → rows. Called again, it begins anew."""
    tables = [
        (row[0], row[1])
        for row in target.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
            " AND table_schema IN ('scheduler', 'migration') ORDER BY 1, 2"
        )
    ]
    return _whole(target, folder, [(schema, table, "true") for schema, table in tables])


def since_switch(target: Connection, folder: Path, since: datetime) -> dict[str, int]:
    """Export the rows that were born or changed since an instant, carried or not: what a restore leaves out.

    ``triggers`` and ``handlers`` do not say when a row was changed, and are exported whole.
    """
    return _whole(target, folder, [("scheduler", record.table, _since(record, since)) for record in ALL])


def _since(record: type[Record], since: datetime) -> str:
    """Return the condition for the rows of a table that a restore leaves out."""
    columns = set(record.__struct_fields__)
    if record in (Trigger, Handler):
        return "true"
    conditions = [f"id::text IN (SELECT row_id FROM migration.outbox WHERE table_name = '{record.table}')"]  # noqa: S608 - a record's table name
    if "source" in columns:
        conditions.append("source IS NULL")
    if "updated_at" in columns:
        conditions.append(f"updated_at >= '{since.isoformat()}'")
    elif "created_at" in columns:
        conditions.append(f"created_at >= '{since.isoformat()}'")  # it is only added to
    return " OR ".join(conditions)


def columns(target: Connection, folder: Path, places: Iterable[str]) -> None:
    """Export columns (``table.column``) that documents have no place for, of every row that holds something there."""
    make_folder(folder, exist_ok=True)
    for place in places:
        table, _, column = place.partition(".")
        if column == "*":
            statement = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t").format(sql.Identifier("scheduler", table))
        else:
            statement = sql.SQL(
                "SELECT json_build_object('id', id, 'tenant_id', tenant_id, {name}, {column})::text FROM {table}"
                " WHERE {column} IS NOT NULL"
            ).format(name=sql.Literal(column), column=sql.Identifier(column), table=sql.Identifier("scheduler", table))
        with open_private(folder / f"lost.{place}.jsonl") as file, target.transaction():
            file.writelines(f"{line}\n".encode() for line in _lines(target, statement))


def _whole(target: Connection, folder: Path, parts: list[tuple[str, str, str]]) -> dict[str, int]:
    beside = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    make_folder(beside)
    counts = {f"{schema}.{table}": _table(target, beside, schema, table, where) for schema, table, where in parts}
    shutil.rmtree(folder, ignore_errors=True)
    beside.rename(folder)
    return {name: count for name, count in counts.items() if count}


def _table(target: Connection, folder: Path, schema: str, table: str, where: str) -> int:
    count = 0
    head = sql.SQL("SELECT row_to_json(t)::text FROM {} AS t WHERE ").format(sql.Identifier(schema, table))
    statement = head + sql.SQL(where)
    with open_private(folder / f"{schema}.{table}.jsonl") as file, target.transaction():
        for line in _lines(target, statement):
            file.write(f"{line}\n".encode())
            count += 1
    return count


def _lines(target: Connection, statement: sql.Composed) -> Iterator[str]:
    with target.cursor("export") as cursor:
        for row in cursor.execute(statement):
            yield row[0]
