"""Whether documents are as they should be in the target."""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from migrator.connections.postgres import Connection
from migrator.parity.causes import CauseCode
from migrator.pipeline import ledger
from migrator.pipeline.load import DUPLICATE_ID, DUPLICATE_KEY, EXPECTED_ID
from migrator.pipeline.transform import DocumentOutcome
from migrator.store.postgres.rows import fetch, row_key
from migrator.values.copy_format import codec
from migrator.values.identity import source_id_of

CONTESTED = (DUPLICATE_ID, DUPLICATE_KEY)
"""Reasons for which a document is in quarantine that could be decoded: another one has its key."""

StoredRows = dict[type, dict[bytes, bytes]]
"""Rows by their ``row_key``, by table."""


def stored_rows(target: Connection, found: Iterable[DocumentOutcome]) -> StoredRows:
    """Return the stored rows with the ids that these documents' rows have."""
    ids: dict[type, list[object]] = {}
    for outcome in found:
        for row in outcome.loadable.rows if outcome.loadable is not None else ():
            ids.setdefault(type(row.record), []).append(row.record.id)  # type: ignore[attr-defined] # every loaded record has an id
    return {record: fetch(target, record.table, codec(record), keys) for record, keys in ids.items()}  # type: ignore[attr-defined,arg-type] # records


def quarantine_difference(outcome: DocumentOutcome, entry: ledger.QuarantineEntry) -> CauseCode | None:
    """Return how a document's entry in quarantine is not what the document says; None where it is."""
    if sha256(outcome.raw).digest() != entry.digest:
        return "quarantine-changed" if outcome.loadable is None else "quarantine-mended"
    why = outcome.rejected
    if why is not None:
        said = (why.reason, why.path, why.expected)
        return None if said == (entry.reason, entry.path, entry.expected) else "quarantine-entry"
    if entry.reason not in CONTESTED:
        return "quarantine-mended"
    lacks_id = entry.expected == EXPECTED_ID
    return None if lacks_id == (entry.reason == DUPLICATE_ID) and not entry.path else "quarantine-entry"


def is_equal(
    outcome: DocumentOutcome,
    stored: Mapping[type, Mapping[bytes, bytes]],
    quarantine: Mapping[str, ledger.QuarantineEntry],
) -> bool:
    """Tell whether a document is as it should be: its rows equal, or in quarantine for its reason, or skipped."""
    if outcome.skipped:
        return True
    entry = quarantine.get(source_id_of(outcome.raw)) if quarantine else None
    if entry is not None:
        return quarantine_difference(outcome, entry) is None
    if outcome.loadable is None:
        return False
    for row in outcome.loadable.rows:
        kind = codec(type(row.record))
        found = stored[type(row.record)].get(row_key(kind, row.head))
        if found is None or not kind.equal((row.head, row.tail), found):
            return False
    return True
