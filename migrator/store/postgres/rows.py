"""Whole rows in and out of PostgreSQL, as binary COPY."""

from collections.abc import Iterable, Sequence
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.store.postgres.connection import Connection
from migrator.values.rowbytes import HEADER, NULL, TRAILER, RowCodec

SCHEMA = "scheduler"


def columns(codec: RowCodec) -> sql.Composed:
    """Return the column list of a codec's rows."""
    return sql.SQL(", ").join(map(sql.Identifier, codec.columns))


def copy_in(connection: Connection, table: sql.Composable, codec: RowCodec, rows: Iterable[bytes]) -> None:
    """Append rendered rows to ``table``, a quoted name."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table, columns(codec))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"".join((HEADER, *rows, TRAILER)))


def table_name(table: str) -> sql.Identifier:
    """Return the quoted name of a table of the target."""
    return sql.Identifier(SCHEMA, table)


def fetch(connection: Connection, table: str, codec: RowCodec, ids: Sequence[UUID | int]) -> dict[bytes, bytes]:
    """Return the stored rows with these ids, as rendered by the server, by the bytes of their id."""
    if not ids:
        return {}
    kind = "uuid" if isinstance(ids[0], UUID) else "bigint"
    statement = sql.SQL("COPY (SELECT {} FROM {} WHERE id = ANY({}::{}[])) TO STDOUT (FORMAT BINARY)").format(
        columns(codec),
        table_name(table),
        sql.Literal("{" + ",".join(map(str, ids)) + "}"),
        sql.SQL(kind),
    )
    found: dict[bytes, bytes] = {}
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        first = True
        while data := copy.read():
            row = bytes(data)
            if first:
                row, first = row[len(HEADER) :], False
            if row and row != TRAILER:
                found[row_id(row)] = row
    return found


def row_id(row: bytes) -> bytes:
    """Return the bytes of a row's id, its first column."""
    return row[6 : 6 + int.from_bytes(row[2:6], "big")]


def origin(codec: RowCodec, row: bytes) -> bytes:
    """Return what tells whose document a row is: its source and source id, or the ``_id`` in a job's payload."""
    if "source" in codec.plain:
        end = position = 2
        for index in range(4):  # id, tenant_id, source, source_id
            if index == 2:  # noqa: PLR2004 - source begins here
                position = end
            length = row[end : end + 4]
            end += 4 + (0 if length == NULL else int.from_bytes(length, "big"))
        return row[position:end]
    payload = codec.cells(row)["payload"]
    assert payload is not None  # noqa: S101 - NOT NULL in both tables
    found: dict[str, msgspec.Raw] = msgspec.json.decode(payload[1:], type=dict[str, msgspec.Raw])
    return bytes(found.get("_id", b""))


def upsert(
    connection: Connection,
    table: str,
    codec: RowCodec,
    rows: Sequence[bytes],
    *,
    whoever: bool = False,
    different: bool = False,
) -> set[bytes]:
    """Insert the rows, or bring the stored ones with the same id up to date; return the ids written.

    A stored row of another document is overwritten only where ``whoever`` says so; else its id is not among those
    returned. ``different``: nor is one that is stored already as it is to be.
    """
    stage = sql.Identifier("pg_temp", f"stage_{table}")
    connection.execute(
        sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} (LIKE {}) ON COMMIT DELETE ROWS").format(
            sql.Identifier(f"stage_{table}"), table_name(table)
        )
    )
    connection.execute(sql.SQL("TRUNCATE {}").format(stage))
    copy_in(connection, stage, codec, rows)
    written = connection.execute(
        sql.SQL(
            "INSERT INTO {table} AS stored ({columns}) SELECT {columns} FROM {stage} "
            "ON CONFLICT (id) DO UPDATE SET {changes} WHERE {same} AND {different} RETURNING id"
        ).format(
            table=table_name(table),
            columns=columns(codec),
            stage=stage,
            changes=sql.SQL(", ").join(
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in codec.columns if name != "id"
            ),
            same=sql.SQL("true") if whoever else _same_origin(codec),
            different=_different(codec) if different else sql.SQL("true"),
        )
    )
    return {
        key.bytes if isinstance(key, UUID) else key.to_bytes(8, "big", signed=True) for (key,) in written.fetchall()
    }


def _same_origin(codec: RowCodec) -> sql.SQL:
    if "source" in codec.plain:
        return sql.SQL(
            "stored.source IS NOT DISTINCT FROM EXCLUDED.source "
            "AND stored.source_id IS NOT DISTINCT FROM EXCLUDED.source_id"
        )
    return sql.SQL("stored.payload -> '_id' IS NOT DISTINCT FROM EXCLUDED.payload -> '_id'")


def _different(codec: RowCodec) -> sql.Composed:
    """Compare rows by their bytes: two numbers in jsonb that are equal may be spelt differently (5 and 5.0)."""
    stored, new = (
        sql.SQL(", ").join(sql.SQL("{}.{}").format(sql.SQL(side), sql.Identifier(name)) for name in codec.columns)
        for side in ("stored", "EXCLUDED")
    )
    return sql.SQL("ROW({})::record *<> ROW({})::record").format(stored, new)
