"""Load: rows are compared with the stored rows and merged; ``bulk_load`` appends those of an empty range.

Rows travel as the bytes of binary COPY in both directions. The parity check and the tail fetch stored rows here, too.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.adapt import Buffer

from migrator.connections.postgres import Connection, copied_out
from migrator.pipeline.transform import PlainRows, SerializedRow, SourceDocument
from migrator.records import ALL, Record
from migrator.sources.profile import Rejected
from migrator.store.postgres.rows import global_schedule, table_name
from migrator.targets import load_target, native_table
from migrator.targets.model import Table
from migrator.values.copy_format import HEADER, TRAILER, RowCodec, codec

DUPLICATE_ID = "duplicate-id"
DUPLICATE_KEY = "duplicate-key"
KEY_IN_USE = "key-in-use"
EXPECTED_ID = "an id of its own"


def duplicate_id() -> Rejected:
    """Return why a document with the id of another one is quarantined."""
    return Rejected(DUPLICATE_ID, "", EXPECTED_ID)


def duplicate_key(constraint: str) -> Rejected:
    """Return why a document that violates a unique constraint is quarantined."""
    return Rejected(DUPLICATE_KEY, "", f"a key of its own ({constraint})")


def key_in_use(constraint: str) -> Rejected:
    """Return why a document is quarantined whose rows would change a key that rows of a library's table hold."""
    return Rejected(KEY_IN_USE, "", f"the key that it had, which other rows hold ({constraint})")


def parents_first(tables: Iterable[type[Record]]) -> list[type[Record]]:
    """Return tables in the order in which rows are written: each after those that its foreign keys refer to.

    What a document makes says nothing about it: one makes a run without a trigger, the next one has both.
    """
    return sorted(tables, key=_place)


def _place(record: type[Record]) -> tuple[int, str]:
    native = native_table(record.table)
    return ALL.index(record) if native is None else _level(native), record.table


def _level(table: Table) -> int:
    """Return how many tables of a native target must be written before a table: those whose keys its rows hold."""
    tables = load_target(table.target).by_name
    return 1 + max((_level(tables[referred]) for referred in table.written_after), default=-1)


def different_documents(connection: Connection, plain: Iterable[PlainRows]) -> set[int]:
    """Return the positions of the plain documents of which a row is not stored byte for byte."""
    different: set[int] = set()
    for one in plain:
        comparison = one.comparison()
        comparison.read(copy_out(connection, one.record, *comparison.ids()))
        different.update(comparison.unequal())
    return different


def merge_rows(connection: Connection, batch: Sequence[SourceDocument], owned: Container[int] = ()) -> Counter[str]:
    """Write what is new or different, in order of ``_id``; return the number of rows written, by table.

    A document that loses a key to another one is rejected. ``owned`` has the ``id()`` of rows that are known to be
    stored and to belong to their document: they are not fetched, and the server compares them.
    """
    changed: list[tuple[SourceDocument, list[SerializedRow]]] = []
    stored = {
        record: fetch(connection, record, [_key(row) for row in _rows(batch, record) if id(row) not in owned])
        for record in _tables(batch)
    }
    new: set[tuple[type[Any], bytes]] = set()
    for document in batch:
        different: list[SerializedRow] = []
        keys: list[tuple[type[Any], bytes]] = []
        for row in document.serialized:
            record, kind = type(row.record), codec(type(row.record))
            key = kind.key(row.head)
            present = stored[record].get(key)
            if present is not None and kind.equal((row.head, row.tail), present):
                continue
            if (record, key) in new or (present is not None and _of_another(row, present)):
                document.reject(duplicate_id())
                break
            different.append(row)
            keys.append((record, key))
        else:
            new.update(keys)
            if different:
                changed.append((document, different))
    return _write(connection, changed, owned)


def _write(
    connection: Connection, changed: list[tuple[SourceDocument, list[SerializedRow]]], owned: Container[int]
) -> Counter[str]:
    """Write the changed rows; if they violate a key, halve the batch until one document is left that violates it."""
    if not changed:
        return Counter()
    try:
        with connection.transaction():
            return _upsert_all(connection, changed, owned)
    except (psycopg.errors.UniqueViolation, psycopg.errors.ForeignKeyViolation) as error:
        if len(changed) == 1:
            changed[0][0].reject(_lost_key(error))
            return Counter()
        middle = len(changed) // 2
        written = _write(connection, changed[:middle], owned)
        return written + _write(connection, changed[middle:], owned)


def _lost_key(error: psycopg.errors.IntegrityError) -> Rejected:
    """Return why the document is quarantined whose rows violate a key; an id of ``_upsert_all`` has no constraint."""
    constraint = error.diag.constraint_name
    if constraint is None:
        return duplicate_id()
    return (duplicate_key if isinstance(error, psycopg.errors.UniqueViolation) else key_in_use)(constraint)


def _upsert_all(
    connection: Connection, changed: list[tuple[SourceDocument, list[SerializedRow]]], owned: Container[int]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in parents_first({type(row.record) for _, rows in changed for row in rows}):
        known: list[bytes] = []
        others: list[bytes] = []
        for _, rows in changed:
            for row in rows:
                if type(row.record) is record:
                    (known if id(row) in owned else others).append(row.head + row.tail)
        if known:
            counts[record.table] += upsert(connection, record, known, different=True)
        if others:
            if upsert(connection, record, others) != len(others):
                # another worker stored another document under one of these ids meanwhile: treat it as a violated key
                raise psycopg.errors.UniqueViolation("an id was taken by another document")
            counts[record.table] += len(others)
    return counts


def _tables(batch: Sequence[SourceDocument]) -> list[type[Any]]:
    """Return the record types of a batch, in the order of its rows."""
    return list(dict.fromkeys(type(row.record) for document in batch for row in document.serialized))


def _rows(batch: Sequence[SourceDocument], record: type) -> list[SerializedRow]:
    return [row for document in batch for row in document.serialized if type(row.record) is record]


def _key(row: SerializedRow) -> Any:  # noqa: ANN401 - a UUID, or the number of an event
    return row.record.id  # type: ignore[attr-defined] # every record that is loaded has an id


def _of_another(row: SerializedRow, stored: bytes) -> bool:
    """Return whether the stored row with a row's id came from another document."""
    kind = codec(type(row.record))
    return kind.origin(stored) != kind.origin(row.head + row.tail)


def columns(kind: RowCodec) -> sql.Composed:
    """Return the column list of a codec's rows."""
    return sql.SQL(", ").join(map(sql.Identifier, kind.columns))


def copy_in(connection: Connection, table: sql.Composable, record: type[Record], rows: Iterable[bytes]) -> None:
    """Append serialized rows to ``table``, a quoted name."""
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(table, columns(codec(record)))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.write(b"".join((HEADER, *rows, TRAILER)))


def fetch(connection: Connection, record: type[Record], ids: Sequence[UUID | int]) -> dict[bytes, bytes]:
    """Return the stored rows with these ids, of any tenant, as the server serializes them, by ``RowCodec.key``."""
    if not ids:
        return {}
    kind = codec(record)
    id_type: LiteralString = "uuid" if isinstance(ids[0], UUID) else "bigint"
    stored = map(bytes, copy_out(connection, record, "{" + ",".join(map(str, ids)) + "}", id_type))
    return {kind.key(row): row for row in stored}


def copy_out(
    connection: Connection, record: type[Record], ids: str | None = None, id_type: LiteralString = "uuid"
) -> Iterator[Buffer]:
    """Yield the stored rows with these ids, of any tenant, as the server serializes them.

    ``ids``: the text of an array, ``id_type``: the type of its elements; None: all rows.
    """
    chosen = (
        sql.SQL("") if ids is None else sql.SQL(" WHERE id = ANY({}::{}[])").format(sql.Literal(ids), sql.SQL(id_type))
    )
    statement = sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT (FORMAT BINARY)").format(
        columns(codec(record)), table_name(record.table), chosen
    )
    messages = copied_out(connection, statement)
    first = memoryview(next(messages))[len(HEADER) :]
    for data in chain((first,), messages):
        if len(data) > len(TRAILER):  # which no row is as short as
            yield data


def upsert(
    connection: Connection,
    record: type[Record],
    rows: Sequence[bytes],
    *,
    whoever: bool = False,
    different: bool = False,
) -> int:
    """Insert the rows, or update the stored ones with the same id and tenant; return how many were written.

    A stored row of another document is overwritten only if ``whoever`` allows it; otherwise it is not counted.
    ``different``: a row that is stored already as it must be is not counted either.
    """
    kind, table = codec(record), record.table
    stage = new_stage(connection, record)
    copy_in(connection, stage, record, rows)
    if native_table(table) is not None:
        return _upsert_through_view(connection, kind, table_name(table), stage, whoever=whoever, different=different)
    computed = {"global_schedule": global_schedule("new")} if table == "runs" else {}
    return connection.execute(
        sql.SQL(
            "INSERT INTO {table} AS stored ({names}) SELECT {values} FROM {stage} AS new "
            "ON CONFLICT (id, tenant_id) DO UPDATE SET {changes} WHERE {same} AND {different}"
        ).format(
            table=table_name(table),
            names=sql.SQL(", ").join(map(sql.Identifier, (*kind.columns, *computed))),
            values=sql.SQL(", ").join([columns(kind), *map(sql.SQL, computed.values())]),
            stage=stage,
            changes=sql.SQL(", ").join(
                sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name))
                for name in (*kind.columns, *computed)
                if name not in ("id", "tenant_id")
            ),
            same=sql.SQL("true") if whoever else _same_origin(kind),
            different=_different(kind) if different else sql.SQL("true"),
        )
    ).rowcount


def new_stage(connection: Connection, record: type[Record]) -> sql.Identifier:
    """Return the quoted name of an empty temporary table with the columns of a record."""
    name = f"stage_{record.table}"
    stage = sql.Identifier("pg_temp", name)
    connection.execute(
        sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA").format(
            sql.Identifier(name), columns(codec(record)), table_name(record.table)
        )
    )
    connection.execute(sql.SQL("TRUNCATE {}").format(stage))
    return stage


def _upsert_through_view(
    connection: Connection,
    kind: RowCodec,
    view: sql.Identifier,
    stage: sql.Identifier,
    *,
    whoever: bool,
    different: bool,
) -> int:
    """Write the rows of ``stage`` through the view of a native target, which takes no ON CONFLICT; as ``upsert``."""
    same_row = sql.SQL("stored.id = excluded.id AND stored.tenant_id = excluded.tenant_id")
    columns_of = sql.SQL(", ").join(sql.Identifier("excluded", name) for name in kind.columns)
    updated = connection.execute(
        sql.SQL(
            "UPDATE {view} AS stored SET ({names}) = ROW({values}) FROM {stage} AS excluded"
            " WHERE {same_row} AND {same} AND {different}"
        ).format(
            view=view,
            names=columns(kind),
            values=columns_of,
            stage=stage,
            same_row=same_row,
            same=sql.SQL("true") if whoever else _same_origin(kind),
            different=_different(kind) if different else sql.SQL("true"),
        )
    ).rowcount
    inserted = connection.execute(
        sql.SQL(
            "INSERT INTO {view} ({names}) SELECT {values} FROM {stage} AS excluded"
            " WHERE NOT EXISTS (SELECT FROM {view} AS stored WHERE {same_row})"
        ).format(view=view, names=columns(kind), values=columns_of, stage=stage, same_row=same_row)
    ).rowcount
    return updated + inserted


def _same_origin(kind: RowCodec) -> sql.SQL:
    if "source" in kind.plain:
        return sql.SQL(
            "stored.source IS NOT DISTINCT FROM excluded.source "
            "AND stored.source_id IS NOT DISTINCT FROM excluded.source_id"
        )
    return sql.SQL("stored.payload -> '_id' IS NOT DISTINCT FROM excluded.payload -> '_id'")


def _different(kind: RowCodec) -> sql.Composed:
    """Compare rows by their bytes: two equal numbers in jsonb may be spelled differently (5 and 5.0)."""
    stored, new = (
        sql.SQL(", ").join(sql.SQL("{}.{}").format(sql.SQL(side), sql.Identifier(name)) for name in kind.columns)
        for side in ("stored", "excluded")
    )
    return sql.SQL("ROW({})::record *<> ROW({})::record").format(stored, new)
