"""Whether documents are as they should be in the target."""

from collections.abc import Iterable, Mapping

from migrator.pipeline.decoding import Outcome, source_id_of
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.rows import fetch, row_id
from migrator.values.rowbytes import codec

Stored = dict[type, dict[bytes, bytes]]
"""Rows by the bytes of their id, by table."""


def stored_rows(target: Connection, found: Iterable[Outcome]) -> Stored:
    """Return the stored rows with the ids that these documents' rows have."""
    ids: dict[type, list[object]] = {}
    for outcome in found:
        for row in outcome.loadable.rows if outcome.loadable is not None else ():
            ids.setdefault(type(row.record), []).append(row.record.id)  # type: ignore[attr-defined] # every loaded record has an id
    return {record: fetch(target, record.table, codec(record), keys) for record, keys in ids.items()}  # type: ignore[attr-defined,arg-type] # records


def is_equal(outcome: Outcome, stored: Mapping[type, Mapping[bytes, bytes]], aside: set[str]) -> bool:
    """Tell whether a document is as it should be: all of its rows equal, or set aside, or skipped."""
    if outcome.skipped:
        return True
    if outcome.loadable is None:
        return source_id_of(outcome.raw) in aside
    if aside and source_id_of(outcome.raw) in aside:
        return False  # loadable, and set aside: a contested key, or an entry that is out of date
    return all(
        (found := stored[type(row.record)].get(row_id(row.head))) is not None
        and codec(type(row.record)).equal((row.head, row.tail), found)
        for row in outcome.loadable.rows
    )
