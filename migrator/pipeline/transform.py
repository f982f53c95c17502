"""Transform: raw documents become serialized rows, with the proof that the rows carry the documents.

A document must survive BSON decoding unchanged. What its columns give back, together with the remainder, must be the
document. In the common case one comparison proves both: if the rows encode to the bytes that were read, there is no
remainder. The copy, the tail and the parity check all read documents here, so that what is written and what is expected
cannot diverge.

Two codecs do the work, and here is where they meet. ``ReadBatch`` gives a batch to the native codec, which makes the
rows of the plain documents: those that have no finding, no remainder and no reference that is left pending. Everything
else, and everything where there is no native codec, goes through the Python codec, document by document and in order:
``ReadBatch.outcomes``. A caller that compares the plain rows with stored ones gives the documents that differ to
``ReadBatch.hand``, so that one path decides about them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import msgspec

from migrator import native
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
    Skipped,
)
from migrator.values import document as documents
from migrator.values import remainder
from migrator.values.copy_format import NulInTextError, codec
from migrator.values.identity import source_id_of

NOT_ROUND_TRIP = "not-round-trip"
UNDECODABLE = "undecodable"


class DecodedDocument(msgspec.Struct):
    """A decoded document whose references are not looked up yet."""

    raw: bytes
    document: Document
    rows: Rows
    notes: tuple[Note, ...]


class SerializedRow(msgspec.Struct):
    """A serialized row of one table."""

    record: Record
    head: bytes
    tail: bytes


class ForwardReference(msgspec.Struct):
    """A reference into its own table that the closing pass resolves when the row that it names is stored."""

    row: int
    """Position of the row among the document's rows."""
    reference: Reference
    target: UUID
    named: str | None
    """Source id of the referenced document."""


class ResolvedDocument(msgspec.Struct):
    """A document's rows with their references as they can be stored now."""

    rows: Rows
    notes: tuple[Note, ...]
    links: tuple[ForwardReference, ...]
    dangling: tuple[ReferenceKey, ...] = ()
    """Dangling references into other tables."""
    refers_to_global: bool = False
    """Whether a row that is not of the tenant ``*`` refers to a row of it."""


Answers: TypeAlias = bool | dict[bytes, bool]
"""What the native codec is told of a reference. True: the computed id is taken; False: a document that has one is for
the Python codec; a mapping from id and tenant (16 bytes, then the tenant's text) to whether the row of that id and that
tenant is stored and is that of the named document."""


class ReferenceResolver(Protocol):
    """Resolves the references of documents."""

    def look_up(self, collection: Collection, decoded: Iterable[DecodedDocument]) -> None:
        """Prepare for these documents."""

    def resolve(self, collection: Collection, decoded: DecodedDocument) -> ResolvedDocument:
        """Return a document's rows with their references as they can be stored now."""

    def answers(self, collection: Collection) -> Sequence[Answers]:
        """Return for each reference of the collection what is known of it; nothing: each is taken as it is."""

    def learn(self, collection: Collection, answers: Sequence[Answers], unknown: Sequence[tuple[int, bytes]]) -> None:
        """Add the answers that are missing: (position of the reference, key of the mapping)."""


class PendingLink(NamedTuple):
    """A reference that the closing pass resolves."""

    table: str
    row_id: UUID
    tenant: str
    """Tenant of the row, and of the referenced row."""
    column: str
    target_table: str
    target_id: UUID
    target_source: str | None
    target_source_id: str | None
    """The named document, as ``source`` and ``source_id`` of its row; None: the id alone decides."""
    extra: bytes
    """The remainder of the row after the column is filled."""


class LoadableDocument(msgspec.Struct):
    """The serialized rows of one document, and the notes to be counted when they are stored."""

    raw: bytes
    rows: list[SerializedRow]
    remainder: bytes = EMPTY
    clean: bool = True
    """The columns carry all of it; the stored text of a reference does not count against it."""
    notes: tuple[tuple[str, str, str], ...] = ()
    """(class, kind, path) of everything to count."""
    links: tuple[PendingLink, ...] = ()
    dangling: tuple[ReferenceKey, ...] = ()
    """Dangling references into other tables."""
    refers_to_global: bool = False
    """Whether a row refers to one of the tenant ``*``, which only an upsert records for a run (``global_schedule``)."""


class QuarantinedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A document that will be quarantined."""

    source_id: str
    reason: str
    path: str
    expected: str
    raw: bytes
    tenant: str | None = None


def decode_document(
    collection: Collection, context: Context, raw: bytes, document: Document | documents.Undecodable | None = None
) -> DecodedDocument:
    """Return the rows of one document; ``document``: what ``documents.decode_all`` returned for it, if it was called.

    Raises ``Rejected`` or ``Skipped`` if it has none.
    """
    if document is None:
        [document] = documents.decode_all([raw])
    if isinstance(document, documents.Undecodable):
        raise Rejected(UNDECODABLE, "", f"a readable document ({document})")
    decoded: Decoded = collection.decode(document, context)
    return DecodedDocument(raw, document, decoded.rows, decoded.notes)


def attach_remainder(
    collection: Collection, decoded: DecodedDocument, rows: Rows, rebuilt: Document | None = None
) -> tuple[Rows, bytes]:
    """Return the rows with the remainder attached, and the remainder (``b"{}"`` for a clean document).

    ``rebuilt``: what the rows encode to, if it is known and known to have other bytes. Raises ``Rejected`` if the
    document does not survive BSON decoding (duplicate key, deprecated type).
    """
    raw, document = [decoded.raw], decoded.document
    if rebuilt is None:
        rebuilt = collection.encode(rows)
        if documents.encode_to([rebuilt], raw)[0]:
            return rows, EMPTY
    if not documents.encode_to([document], raw)[0]:
        raise Rejected(NOT_ROUND_TRIP, "", "a document that BSON decoding gives back byte for byte")
    left = remainder.difference(collection.without_derived(document), rebuilt)
    return (rows, EMPTY) if left == EMPTY else (collection.attach(rows, left), left)


def serialize(
    collection: Collection,
    decoded: DecodedDocument,
    rows: Rows,
    *,
    proved: bool = False,
    rebuilt: Document | None = None,
) -> tuple[list[SerializedRow], bytes]:
    """Return the serialized rows of a document and its remainder; ``proved``: the rows encode to its bytes.

    ``rebuilt``: as for ``attach_remainder``. A text with U+0000 is stored with U+FFFD in its place; the remainder keeps
    the original.
    """
    settled, left = (rows, EMPTY) if proved else attach_remainder(collection, decoded, rows, rebuilt)
    try:
        return [_serialized(row) for row in settled], left
    except NulInTextError:
        storable = tuple(_without_nul(row) for row in rows)
        settled, left = attach_remainder(collection, decoded, storable)
        return [_serialized(row) for row in settled], left


def serialize_rows(rows: Rows) -> list[SerializedRow]:
    """Return serialized rows that belong to no document, U+FFFD in place of U+0000."""
    return [_serialized(_without_nul(row)) for row in rows]


def rebuild(collection: Collection, rows: Rows) -> Document:
    """Return the document that the rows encode to, with the remainder applied."""
    rebuilt: Document = remainder.apply(collection.encode(rows), collection.remainder(rows))
    return rebuilt


def _serialized(row: Record) -> SerializedRow:
    head, tail = codec(type(row)).serialize(row)
    return SerializedRow(row, head, tail)


def _without_nul(row: Record) -> Record:
    changes: dict[str, Any] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if isinstance(value, str) and "\0" in value:
            changes[name] = value.replace("\0", "\ufffd")
        elif isinstance(value, Sequence) and not isinstance(value, bytes | str) and any("\0" in item for item in value):
            changes[name] = tuple(item.replace("\0", "\ufffd") for item in value)
    return msgspec.structs.replace(row, **changes) if changes else row


SMALL_BATCH_DOCUMENTS = 50
"""Documents decoded together: few enough to stay in the processor's cache."""


class DocumentOutcome(msgspec.Struct):
    """One document of a batch: rows to store, or why there are none."""

    raw: bytes
    decoded: DecodedDocument | None = None
    loadable: LoadableDocument | None = None
    rejected: Rejected | None = None
    skipped: str = ""


def transform_batch(
    collection: Collection,
    context: Context,
    resolver: ReferenceResolver,
    batch: bytes,
    at_a_time: int = SMALL_BATCH_DOCUMENTS,
) -> Iterator[list[DocumentOutcome]]:
    """Yield the outcomes of a batch, one small batch at a time and in its order.

    ``at_a_time`` is the number of documents in a small batch: the target is asked about references once for each.
    """
    return transform_raws(collection, context, resolver, documents.split(batch), at_a_time)


def transform_raws(
    collection: Collection,
    context: Context,
    resolver: ReferenceResolver,
    every: Sequence[bytes],
    at_a_time: int = SMALL_BATCH_DOCUMENTS,
) -> Iterator[list[DocumentOutcome]]:
    """Yield the outcomes of raw documents, as ``transform_batch`` does."""
    for begin in range(0, len(every), at_a_time):
        raws = every[begin : begin + at_a_time]
        found = [DocumentOutcome(raw) for raw in raws]
        decoded: list[tuple[DocumentOutcome, DecodedDocument]] = []
        for outcome, document in zip(found, documents.decode_all(raws), strict=True):
            try:
                outcome.decoded = decode_document(collection, context, outcome.raw, document)
                decoded.append((outcome, outcome.decoded))
            except Rejected as reason:
                outcome.rejected = reason
            except Skipped as reason:
                outcome.skipped = reason.reason
        _resolve_and_serialize(collection, resolver, decoded)
        yield found


def transform_documents(
    collection: Collection, context: Context, resolver: ReferenceResolver, batch: bytes
) -> Iterator[DocumentOutcome]:
    """Yield the outcomes of a batch one by one."""
    return chain.from_iterable(transform_batch(collection, context, resolver, batch))


class PlainRows(NamedTuple):
    """Rows of plain documents in one table."""

    record: type[Record]
    rows: bytes
    """One after the other, as COPY takes them, in the order of their documents."""
    positions: list[int]
    """Of each row: position of its document in the batch."""


class ReadBatch:
    """A batch as both codecs read it: rows of the plain documents, and outcomes of all others."""

    def __init__(
        self,
        collection: Collection,
        context: Context,
        resolver: ReferenceResolver,
        batch: bytes,
        excluded: frozenset[bytes] = frozenset(),
    ) -> None:
        self._collection, self._context, self._resolver, self._batch = collection, context, resolver, batch
        self._rows: Any = None
        reader = None if collection.native is None or native.module() is None else collection.native(context)
        if reader is not None:
            self._rows = _read_natively(reader, collection, resolver, batch, excluded)
            self._tables = tuple(table.record for table in reader.plan.tables)
        self._handed: set[int] = set()

    @property
    def plain(self) -> int:
        """Number of documents that the Python codec need not read."""
        return 0 if self._rows is None else self._rows.plain - len(self._handed)

    def rows(self) -> Iterator[PlainRows]:
        """Yield the rows of the plain documents by table, parents first; also of documents that were handed over."""
        if self._rows is not None:
            for record, table in zip(self._tables, self._rows.tables, strict=True):
                if table.count:
                    yield PlainRows(record, table.copy_bytes(), table.positions())

    def each_row(self) -> Iterator[tuple[type[Record], int, bytes]]:
        """Yield the rows of the plain documents one by one: table, position of the document, bytes."""
        if self._rows is not None:
            for record, table in zip(self._tables, self._rows.tables, strict=True):
                for index, position in enumerate(table.positions()):
                    yield record, position, table.row_bytes(index)

    def hand(self, positions: Iterable[int]) -> None:
        """Let the Python codec read these plain documents too."""
        self._handed.update(positions)

    def outcomes(self, at_a_time: int = SMALL_BATCH_DOCUMENTS) -> Iterator[list[DocumentOutcome]]:
        """Yield the outcomes of all documents that are not plain, in their order, as ``transform_batch`` does."""
        if self._rows is None:
            every = documents.split(self._batch)
        else:
            every = self._rows.raws(sorted({*self._rows.handed, *self._handed}))
        return transform_raws(self._collection, self._context, self._resolver, every, at_a_time)


def _read_natively(
    reader: Any,  # noqa: ANN401 - of an extension
    collection: Collection,
    resolver: ReferenceResolver,
    batch: bytes,
    excluded: frozenset[bytes],
) -> Any:  # noqa: ANN401 - as above
    """Return the rows of a batch, whose references are known; None for bytes that are not whole documents."""
    answers = resolver.answers(collection)
    try:
        rows = reader.codec.read(batch, excluded, answers)
    except ValueError:
        return None
    if rows.unknown:
        resolver.learn(collection, answers, rows.unknown)
        rows.settle(answers)
    return rows


def _resolve_and_serialize(
    collection: Collection, resolver: ReferenceResolver, found: Sequence[tuple[DocumentOutcome, DecodedDocument]]
) -> None:
    """Look up the references of these documents, prove that their rows carry them, and serialize the rows."""
    resolver.look_up(collection, [decoded for _, decoded in found])
    resolved: list[tuple[DocumentOutcome, DecodedDocument, ResolvedDocument]] = []
    for outcome, decoded in found:
        try:
            resolved.append((outcome, decoded, resolver.resolve(collection, decoded)))
        except Rejected as reason:
            outcome.rejected = reason
    rebuilt = [collection.encode(one.rows) for _, _, one in resolved]
    proved = _encode_to(rebuilt, [decoded for _, decoded, _ in resolved])
    for (outcome, decoded, one), document, is_proved in zip(resolved, rebuilt, proved, strict=True):
        try:
            outcome.loadable = _loadable(collection, decoded, one, document, proved=is_proved)
        except Rejected as reason:
            outcome.rejected = reason


def _encode_to(rebuilt: Sequence[Document], found: Sequence[DecodedDocument]) -> list[bool]:
    """Tell of each document whether what was rebuilt has its bytes, keys in its order."""
    equal = documents.encode_to(rebuilt, [decoded.raw for decoded in found])
    left = [index for index, is_equal in enumerate(equal) if not is_equal]
    if left:
        # jsonb keeps no order of keys, so this is what most documents with free JSON need.
        ordered = [documents.in_order(rebuilt[index], found[index].document) for index in left]
        again = documents.encode_to(ordered, [found[index].raw for index in left])
        for index, is_equal in zip(left, again, strict=True):
            equal[index] = is_equal
    return equal


def _loadable(
    collection: Collection, decoded: DecodedDocument, resolved: ResolvedDocument, rebuilt: Document, *, proved: bool
) -> LoadableDocument:
    rows, left = serialize(collection, decoded, resolved.rows, proved=proved, rebuilt=rebuilt)
    loadable = LoadableDocument(
        decoded.raw, rows, left, dangling=resolved.dangling, refers_to_global=resolved.refers_to_global
    )
    if resolved.notes:
        loadable.notes = tuple(("finding", note.kind, note.path) for note in resolved.notes)
    if left != EMPTY:
        kept = {("remainder", entry.kind, entry.field): None for entry in remainder.entries(left)}
        loadable.notes += tuple(kept)
        loadable.clean = all(path in collection.reference_paths for _, _, path in kept)
    if resolved.links:
        loadable.links = tuple(_pending_links(collection, decoded, resolved))
    return loadable


def _pending_links(
    collection: Collection, decoded: DecodedDocument, resolved: ResolvedDocument
) -> Iterator[PendingLink]:
    """Yield what the closing pass needs to resolve the references into the same table."""
    for link in resolved.links:
        row = resolved.rows[link.row]
        filled = msgspec.structs.replace(row, **{link.reference.column: link.target})
        rows = (*resolved.rows[: link.row], filled, *resolved.rows[link.row + 1 :])
        _, left = serialize(collection, decoded, rows)
        source: str | None = getattr(row, "source", None)
        named = link.named is not None and source is not None
        yield PendingLink(
            table=link.reference.record.table,
            row_id=row.id,  # type: ignore[attr-defined] # every loaded record has an id and a tenant
            tenant=row.tenant_id,  # type: ignore[attr-defined] # as above
            column=link.reference.column,
            target_table=link.reference.target.table,
            target_id=link.target,
            target_source=f"{str(source).partition('/')[0]}/{link.reference.collection}" if named else None,
            target_source_id=link.named if named else None,
            extra=left,
        )


def quarantined_document(raw: bytes, why: Rejected, tenant: str | None = None) -> QuarantinedDocument:
    """Return the quarantine entry of a document that cannot become rows, or must not; ``tenant``: if it is known."""
    return QuarantinedDocument(
        source_id=source_id_of(raw), reason=why.reason, path=why.path, expected=why.expected, raw=raw, tenant=tenant
    )
