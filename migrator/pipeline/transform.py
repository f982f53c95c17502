"""One document to its rows, with the proof that they carry it.

The rule (design, equality and values): the document must survive BSON decoding unchanged, and what the columns give
back, together with the residue, must be the document. The quick way proves both at once: if the rows encode to the very
bytes that were read, there is no residue.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from migrator.records import EMPTY, Record
from migrator.sources.profile import (
    Collection,
    Context,
    Decoded,
    Document,
    Note,
    Reference,
    ReferenceKey,
    Rejected,
    Rows,
)
from migrator.values import document as documents
from migrator.values import residue
from migrator.values.rowbytes import NulInTextError, codec

NOT_ROUND_TRIP = "not-round-trip"
UNDECODABLE = "undecodable"


class Prepared(msgspec.Struct):
    """A decoded document whose references are still to be looked up."""

    raw: bytes
    document: Document
    rows: Rows
    notes: tuple[Note, ...]


class Row(msgspec.Struct):
    """A rendered row of one table."""

    record: Record
    head: bytes
    tail: bytes


class PendingLink(msgspec.Struct):
    """A reference into its own table that the closing pass fills when the row it names is stored."""

    row: int
    """Position of the row among the document's rows."""
    reference: Reference
    target: UUID
    named: str | None
    """Source id of the document that is referred to."""


class Resolved(msgspec.Struct):
    """A document's rows with their references as they can be stored now."""

    rows: Rows
    notes: tuple[Note, ...]
    links: tuple[PendingLink, ...]
    orphans: tuple[ReferenceKey, ...] = ()
    """References into other tables that lead nowhere."""
    refers_to_global: bool = False
    """A row refers to one of the tenant ``*``, not being of it."""


class Lookup(Protocol):
    """What resolves the references of documents."""

    def learn(self, collection: Collection, prepared: Iterable[Prepared]) -> None:
        """Prepare for these documents."""

    def resolve(self, collection: Collection, prepared: Prepared) -> Resolved:
        """Return a document's rows with their references as they can be stored now."""


class Link(NamedTuple):
    """A reference that the closing pass fills."""

    table: str
    row_id: UUID
    tenant: str
    """Of the row, and of the one referred to."""
    column: str
    target_table: str
    target_id: UUID
    target_source: str | None
    target_source_id: str | None
    """The document that is named, as ``source`` and ``source_id`` of its row; none: the id alone decides."""
    extra: bytes
    """The residue that the row has once the column is filled."""


class Loadable(msgspec.Struct):
    """The rendered rows of one document, and what is to be said about it when they are stored."""

    raw: bytes
    rows: list[Row]
    residue: bytes = EMPTY
    clean: bool = True
    """The columns carry all of it; the kept text of a reference does not count against it."""
    notes: tuple[tuple[str, str, str], ...] = ()
    """(class, kind, path) of everything to count."""
    links: tuple[Link, ...] = ()
    orphans: tuple[ReferenceKey, ...] = ()
    """References into other tables that lead nowhere."""
    refers_to_global: bool = False
    """A row refers to one of the tenant ``*``, which only an upsert says of a run (``global_schedule``)."""


class SetAside(msgspec.Struct, frozen=True, kw_only=True):
    """A document on its way into quarantine."""

    source_id: str
    reason: str
    path: str
    expected: str
    raw: bytes
    tenant: str | None = None


def prepare(
    collection: Collection, context: Context, raw: bytes, document: Document | documents.Undecodable | None = None
) -> Prepared:
    """Make the rows of one document; ``document``: what ``documents.decode_all`` gave for it, where that was called.

    Raises ``Rejected`` or ``Skipped`` where it has none.
    """
    if document is None:
        [document] = documents.decode_all([raw])
    if isinstance(document, documents.Undecodable):
        raise Rejected(UNDECODABLE, "", f"a readable document ({document})")
    decoded: Decoded = collection.decode(document, context)
    return Prepared(raw, document, decoded.rows, decoded.notes)


def settle(collection: Collection, prepared: Prepared, rows: Rows) -> tuple[Rows, bytes]:
    """Return the rows with the residue attached, and the residue (``b"{}"`` for a clean document).

    Raises ``Rejected`` when the document does not survive BSON decoding (duplicate key, deprecated type).
    """
    rebuilt = collection.encode(rows)
    raw, document = [prepared.raw], prepared.document
    if documents.encode_to([rebuilt], raw)[0]:
        return rows, EMPTY
    if not documents.encode_to([document], raw)[0]:
        raise Rejected(NOT_ROUND_TRIP, "", "a document that BSON decoding gives back byte for byte")
    left = residue.difference(document, rebuilt)
    return (rows, EMPTY) if left == EMPTY else (collection.attach(rows, left), left)


def render(collection: Collection, prepared: Prepared, rows: Rows, *, proved: bool = False) -> tuple[list[Row], bytes]:
    """Return the rendered rows of a document and its residue; ``proved``: the rows encode to its bytes.

    A text with U+0000 is stored with U+FFFD in its place; the residue keeps the original.
    """
    settled, left = (rows, EMPTY) if proved else settle(collection, prepared, rows)
    try:
        return [_rendered(row) for row in settled], left
    except NulInTextError:
        storable = tuple(_without_nul(row) for row in rows)
        settled, left = settle(collection, prepared, storable)
        return [_rendered(row) for row in settled], left


def rendered(rows: Rows) -> list[Row]:
    """Return rendered rows that belong to no document, U+FFFD in place of U+0000."""
    return [_rendered(_without_nul(row)) for row in rows]


def rebuild(collection: Collection, rows: Rows) -> Document:
    """Return the document that the rows stand for, residue included."""
    rebuilt: Document = residue.apply(collection.encode(rows), collection.residue(rows))
    return rebuilt


def _rendered(row: Record) -> Row:
    head, tail = codec(type(row)).render(row)
    return Row(row, head, tail)


def _without_nul(row: Record) -> Record:
    changes: dict[str, Any] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, str) and "\0" in value:
            changes[name] = value.replace("\0", "\ufffd")
        elif isinstance(value, Sequence) and not isinstance(value, bytes | str) and any("\0" in item for item in value):
            changes[name] = tuple(item.replace("\0", "\ufffd") for item in value)
    return msgspec.structs.replace(row, **changes) if changes else row
