"""Load: rows are appended to an empty range, or compared with the stored rows and merged."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import psycopg

from migrator.connections.postgres import Connection
from migrator.pipeline.transform import (
    LoadableDocument,
    PlainRows,
    QuarantinedDocument,
    SerializedRow,
    quarantined_document,
)
from migrator.records import Record
from migrator.sources.profile import Rejected
from migrator.store.postgres.rows import copy_in, copy_out, fetch, origin, row_key, table_name, upsert
from migrator.values.copy_format import codec

DUPLICATE_ID = "duplicate-id"
DUPLICATE_KEY = "duplicate-key"
EXPECTED_ID = "an id of its own"


Conflicts: TypeAlias = dict[int, QuarantinedDocument]
"""``id()`` of each document of a batch that lost a key to another one → its quarantine entry."""


def duplicate_id() -> Rejected:
    """Return why a document with the id of another one is quarantined."""
    return Rejected(DUPLICATE_ID, "", EXPECTED_ID)


def duplicate_key(constraint: str) -> Rejected:
    """Return why a document that violates a unique constraint is quarantined."""
    return Rejected(DUPLICATE_KEY, "", f"a key of its own ({constraint})")


def append_rows(
    connection: Connection, batch: Iterable[LoadableDocument], plain: Iterable[PlainRows] = ()
) -> Counter[str]:
    """Copy the rows of these documents into their tables, those of plain ones first; return the number by table.

    It keeps bytes only, so that decoded documents can be freed at once. Raises ``psycopg.errors.UniqueViolation`` if a
    row is stored already.
    """
    by_table: dict[type[Record], list[bytes]] = {}
    counts: Counter[str] = Counter()
    for one in plain:
        by_table[one.record] = [one.rows]
        counts[one.record.table] = len(one.positions)
    for document in batch:
        for row in document.rows:  # a document lists its owner before what depends on it
            record = type(row.record)
            parts = by_table.get(record)
            if parts is None:
                parts = by_table[record] = []
            parts.append(row.head)
            parts.append(row.tail)
            counts[record.table] += 1
    for record, parts in by_table.items():
        copy_in(connection, table_name(record.table), codec(record), parts)
    return counts


def different_documents(connection: Connection, plain: Iterable[PlainRows]) -> set[int]:
    """Return the positions of the plain documents of which a row is not stored byte for byte."""
    found: set[int] = set()
    for one in plain:
        comparison: Any = import_module("migrator_speedups.comparison").Comparison(one.rows, one.positions)
        comparison.read(copy_out(connection, one.record.table, codec(one.record), *comparison.ids()))
        found.update(comparison.unequal())
    return found


def merge_rows(
    connection: Connection, batch: Sequence[LoadableDocument], owned: Container[int] = ()
) -> tuple[Counter[str], Conflicts]:
    """Write what is new or different, in order of ``_id``.

    ``owned`` has the ``id()`` of rows that are known to be stored and to belong to their document: they are not
    fetched, and the server compares them. Returns the rows written by table, and the documents that lost a key to
    another one.
    """
    conflicts: Conflicts = {}
    changed: list[tuple[LoadableDocument, list[SerializedRow]]] = []
    stored = {
        record: fetch(
            connection,
            record.table,
            codec(record),
            [_key(row) for row in _rows(batch, record) if id(row) not in owned],
        )
        for record in _tables(batch)
    }
    new: set[tuple[type[Any], bytes]] = set()
    for document in batch:
        different: list[SerializedRow] = []
        keys: list[tuple[type[Any], bytes]] = []
        for row in document.rows:
            record, kind = type(row.record), codec(type(row.record))
            key = row_key(kind, row.head)
            found = stored[record].get(key)
            if found is not None and kind.equal((row.head, row.tail), found):
                continue
            if (record, key) in new or (found is not None and _of_another(row, found)):
                conflicts[id(document)] = _quarantined(document, duplicate_id())
                break
            different.append(row)
            keys.append((record, key))
        else:
            new.update(keys)
            if different:
                changed.append((document, different))
    counts: Counter[str] = Counter()
    _write(connection, changed, owned, counts, conflicts)
    return counts, conflicts


def _write(
    connection: Connection,
    changed: list[tuple[LoadableDocument, list[SerializedRow]]],
    owned: Container[int],
    counts: Counter[str],
    conflicts: Conflicts,
) -> None:
    """Write the changed rows; if they violate a key, halve the batch until one document is left that violates it."""
    if not changed:
        return
    try:
        with connection.transaction():
            written = _upsert_all(connection, changed, owned)
    except psycopg.errors.UniqueViolation as error:
        if len(changed) == 1:
            document = changed[0][0]
            conflicts[id(document)] = _quarantined(document, duplicate_key(error.diag.constraint_name or ""))
            return
        middle = len(changed) // 2
        _write(connection, changed[:middle], owned, counts, conflicts)
        _write(connection, changed[middle:], owned, counts, conflicts)
        return
    counts.update(written)


def _upsert_all(
    connection: Connection, changed: list[tuple[LoadableDocument, list[SerializedRow]]], owned: Container[int]
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in dict.fromkeys(type(row.record) for _, rows in changed for row in rows):
        known: list[bytes] = []
        others: list[bytes] = []
        for _, rows in changed:
            for row in rows:
                if type(row.record) is record:
                    (known if id(row) in owned else others).append(row.head + row.tail)
        if known:
            counts[record.table] += upsert(connection, record.table, codec(record), known, different=True)
        if others:
            if upsert(connection, record.table, codec(record), others) != len(others):
                # another worker stored another document under one of these ids meanwhile: treat it as a violated key
                raise psycopg.errors.UniqueViolation("an id was taken by another document")
            counts[record.table] += len(others)
    return counts


def _tables(batch: Sequence[LoadableDocument]) -> list[type[Any]]:
    """Return the record types of a batch, parents first: a document lists its owner before what depends on it."""
    return list(dict.fromkeys(type(row.record) for document in batch for row in document.rows))


def _rows(batch: Sequence[LoadableDocument], record: type) -> list[SerializedRow]:
    return [row for document in batch for row in document.rows if type(row.record) is record]


def _key(row: SerializedRow) -> Any:  # noqa: ANN401 - a UUID, or the number of an event
    return row.record.id  # type: ignore[attr-defined] # every record that is loaded has an id


def _of_another(row: SerializedRow, stored: bytes) -> bool:
    """Return whether the stored row with a row's id came from another document."""
    kind = codec(type(row.record))
    return origin(kind, stored) != origin(kind, row.head + row.tail)


def _quarantined(document: LoadableDocument, why: Rejected) -> QuarantinedDocument:
    tenant = document.rows[0].record.tenant_id  # type: ignore[attr-defined] # as above
    return quarantined_document(document.raw, why, tenant)
