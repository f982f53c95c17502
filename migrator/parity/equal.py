"""The predicate "equal": whether a document is as it should be in the target.

The parity check, its recheck while the tail runs, the repair and the last check under the fence of the cutover all ask
the document (``SourceDocument.difference``): the first directly, the others by ``is_equal``. A document is equal if its
rows are stored as decoded, and if they encode back to the document.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from migrator.connections.postgres import Connection
from migrator.parity.causes import CauseCode
from migrator.pipeline import ledger
from migrator.pipeline.load import DUPLICATE_ID, DUPLICATE_KEY, EXPECTED_ID, fetch
from migrator.pipeline.transform import SourceDocument
from migrator.values.identity import source_id_of

CONTESTED = (DUPLICATE_ID, DUPLICATE_KEY)
"""Reasons for which a document is in quarantine that could be decoded: another one has its key."""

StoredRows = dict[type, dict[bytes, bytes]]
"""Record → ``RowCodec.key`` → row."""


def stored_rows(target: Connection, expected: Iterable[SourceDocument]) -> StoredRows:
    """Return the stored rows with the ids that these documents' rows have."""
    ids: dict[type, list[object]] = {}
    for document in expected:
        for row in document.serialized:
            ids.setdefault(type(row.record), []).append(row.record.id)  # type: ignore[attr-defined] # every loaded record has an id
    return {record: fetch(target, record, keys) for record, keys in ids.items()}  # type: ignore[arg-type] # records


def quarantine_difference(document: SourceDocument, entry: ledger.QuarantineEntry) -> CauseCode | None:
    """Return how a document's entry in quarantine is not what the document says; None where it is."""
    if sha256(document.raw).digest() != entry.digest:
        return "quarantine-loadable" if document.serialized else "quarantine-changed"
    why = document.rejected
    if why is not None:
        said = (why.reason, why.path, why.expected)
        return None if said == (entry.reason, entry.path, entry.expected) else "quarantine-entry"
    if entry.reason not in CONTESTED:
        return "quarantine-loadable"
    lacks_id = entry.expected == EXPECTED_ID
    return None if lacks_id == (entry.reason == DUPLICATE_ID) and not entry.path else "quarantine-entry"


def is_equal(
    document: SourceDocument,
    stored: Mapping[type, Mapping[bytes, bytes]],
    quarantine: Mapping[str, ledger.QuarantineEntry],
) -> bool:
    """Whether a document is as it should be: its rows equal, or in quarantine for its reason, or skipped.

    The parity check counts these three apart; the other callers need one answer.
    """
    if document.skipped:
        return True
    entry = quarantine.get(source_id_of(document.raw)) if quarantine else None
    if entry is not None:
        return quarantine_difference(document, entry) is None
    return bool(document.serialized) and document.difference(stored) is None
