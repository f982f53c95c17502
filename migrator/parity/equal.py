"""The predicate "equal": whether a document is as it should be in the target.

The parity check, its recheck while the tail runs, the repair and the last check under the fence of the cutover all ask
here: the first by ``document_difference``, the others by ``is_equal``. A document is equal if its rows are stored as
decoded, and if they encode back to the document.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

from migrator.connections.postgres import Connection
from migrator.parity.causes import CauseCode
from migrator.pipeline import ledger
from migrator.pipeline.load import DUPLICATE_ID, DUPLICATE_KEY, EXPECTED_ID, fetch, origin, row_key
from migrator.pipeline.transform import DocumentOutcome, LoadableDocument, SerializedRow, rebuild
from migrator.records import EMPTY
from migrator.sources.profile import Collection
from migrator.values.canonical import same
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
    return {record: fetch(target, record, keys) for record, keys in ids.items()}  # type: ignore[arg-type] # records


def quarantine_difference(outcome: DocumentOutcome, entry: ledger.QuarantineEntry) -> CauseCode | None:
    """Return how a document's entry in quarantine is not what the document says; None where it is."""
    if sha256(outcome.raw).digest() != entry.digest:
        return "quarantine-changed" if outcome.loadable is None else "quarantine-loadable"
    why = outcome.rejected
    if why is not None:
        said = (why.reason, why.path, why.expected)
        return None if said == (entry.reason, entry.path, entry.expected) else "quarantine-entry"
    if entry.reason not in CONTESTED:
        return "quarantine-loadable"
    lacks_id = entry.expected == EXPECTED_ID
    return None if lacks_id == (entry.reason == DUPLICATE_ID) and not entry.path else "quarantine-entry"


class DocumentDifference(NamedTuple):
    """How a document's rows are not as they should be."""

    rows: tuple[tuple[SerializedRow, bytes | None], ...]
    """Expected rows that are stored differently, or not at all (None), in the document's order."""
    encodes_back: bool
    """The expected rows, with the remainder, encode to the document."""


def document_difference(
    collection: Collection,
    outcome: DocumentOutcome,
    loadable: LoadableDocument,
    stored: Mapping[type, Mapping[bytes, bytes]],
) -> DocumentDifference | None:
    """Return how a document's rows are not as they should be; None where they are."""
    rows: list[tuple[SerializedRow, bytes | None]] = []
    for row in loadable.rows:
        found = _stored_row(row, stored[type(row.record)])
        if found is None or not codec(type(row.record)).equal((row.head, row.tail), found):
            rows.append((row, found))
    # A document without a remainder was shown to encode to its own bytes (transform.attach_remainder).
    encodes_back = loadable.remainder == EMPTY or _encodes_back(collection, outcome, loadable)
    return None if encodes_back and not rows else DocumentDifference(tuple(rows), encodes_back)


def _stored_row(row: SerializedRow, stored: Mapping[bytes, bytes]) -> bytes | None:
    """Return the stored row of a document's row: the one with its key, else the document's own under another tenant."""
    kind = codec(type(row.record))
    found = stored.get(row_key(kind, row.head))
    if found is not None:
        return found
    end_of_id = 6 + int.from_bytes(row.head[2:6], "big")
    document = origin(kind, row.head + row.tail)
    same_id = (one for one in stored.values() if one[:end_of_id] == row.head[:end_of_id])
    return next((one for one in same_id if origin(kind, one) == document), None)


def _encodes_back(collection: Collection, outcome: DocumentOutcome, loadable: LoadableDocument) -> bool:
    assert outcome.decoded is not None  # noqa: S101 - a loadable document was decoded
    try:
        rebuilt = rebuild(collection, tuple(row.record for row in loadable.rows))
    except ValueError:
        return False
    return same(rebuilt, collection.without_derived(outcome.decoded.document))


def is_equal(
    collection: Collection,
    outcome: DocumentOutcome,
    stored: Mapping[type, Mapping[bytes, bytes]],
    quarantine: Mapping[str, ledger.QuarantineEntry],
) -> bool:
    """Tell whether a document is as it should be: its rows equal, or in quarantine for its reason, or skipped.

    The parity check counts these three apart; the other callers need one answer.
    """
    if outcome.skipped:
        return True
    entry = quarantine.get(source_id_of(outcome.raw)) if quarantine else None
    if entry is not None:
        return quarantine_difference(outcome, entry) is None
    if outcome.loadable is None:
        return False
    return document_difference(collection, outcome, outcome.loadable, stored) is None
