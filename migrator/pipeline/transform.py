"""Transform: raw documents become serialized rows, with the proof that the rows carry the documents.

A document must survive BSON decoding unchanged. What its columns give back, together with the remainder, must be the
document. In the common case one comparison proves both: if the rows encode to the bytes that were read, there is no
remainder. The copy, the tail and the parity check all read documents here, so that what is written and what is expected
cannot diverge.

Two codecs do the work, and here is where they meet. ``ReadBatch`` gives a batch to the native codec, which makes the
rows of the plain documents. They have no finding and no reference that is left pending. A remainder of theirs consists
of fields that the mapping does not name, that are null, or that are absent; the Python codec computes it once for each.
A reference into the own table that is left pending, or dangles, makes a document not plain; where it is all that does,
``ReadBatch.pending`` has its row for those who take it. Everything else, and everything where there is no native codec,
goes through the Python codec, document by document and in order: ``ReadBatch.documents``. A caller that compares the
plain rows with stored ones gives the documents that differ to ``ReadBatch.read_in_python``, so that one path decides
about them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import msgspec

from migrator import native
from migrator.records import EMPTY, Record
from migrator.result import NAMED_LOSS
from migrator.sources.profile import (
    ROUNDED,
    Collection,
    Context,
    DeclaredLoss,
    Decoded,
    Document,
    Note,
    Reference,
    ReferenceKey,
    Rejected,
    Rows,
    Skipped,
)
from migrator.values import copy_format, jsonb, remainder
from migrator.values import document as documents
from migrator.values.canonical import same
from migrator.values.copy_format import NULL, NulInTextError, codec
from migrator.values.identity import source_id_of
from migrator.values.remainder import Entry

NOT_ROUND_TRIP = "not-round-trip"
UNDECODABLE = "undecodable"

_LOST_KINDS = frozenset({"added", "nul", "nan", "precision"})
"""Why the remainder keeps a value: of these, the columns hold nothing of it, or less than the document says."""
_STATED_LOSSES = frozenset({NAMED_LOSS, ROUNDED})
_NO_REMAINDER = b"\0\0\0\3\1{}"
"""The cell of a remainder that is empty."""
_WITHIN = re.compile(r"[.\[]")
"""What stands after the path of a value in the path of a part of it."""


Counted: TypeAlias = tuple[str, str, str]
"""Class, kind and path of something that is counted."""


class SerializedRow(msgspec.Struct):
    """A row of one table, and its bytes as binary COPY: all columns but jsonb, then jsonb."""

    record: Record
    head: bytes
    tail: bytes


class PendingLink(NamedTuple):
    """A reference into its own table, which the closing pass resolves."""

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
    extra: bytes = EMPTY
    """The remainder of the row after the column is filled."""


class DocumentDifference(NamedTuple):
    """How a document's rows are not as they should be."""

    rows: tuple[tuple[SerializedRow, bytes | None], ...]
    """Expected rows that are stored differently, or not at all (None), in the document's order."""
    encodes_back: bool
    """The expected rows, with the remainder, encode to the document."""


class SourceDocument(msgspec.Struct, eq=False):
    """One document of a source, which each step fills: decode, resolve, serialize.

    In the end it has ``serialized``, or the reason why it has not: ``rejected`` or ``skipped``.
    """

    collection: Collection
    raw: bytes
    content: Document = msgspec.field(default_factory=dict)
    """The decoded BSON; empty: it is not decoded yet, or cannot be."""
    rows: Rows = ()
    """Its rows as decoded; empty: it has none."""
    resolved: Rows = ()
    """The rows with their references as they can be stored now."""
    serialized: Sequence[SerializedRow] = ()
    """The rows as they are stored, with the remainder."""
    remainder: bytes = EMPTY
    clean: bool = True
    """The columns carry all of it; the stored text of a reference does not count against it."""
    notes: tuple[Note, ...] = ()
    counted: tuple[Counted, ...] = ()
    """Everything to count when the rows are stored: notes, and what the remainder keeps."""
    links: tuple[PendingLink, ...] = ()
    """References into the own table that are left pending, without ``extra``: ``links_to_store`` fills it."""
    dangling: tuple[ReferenceKey, ...] = ()
    """Dangling references into other tables."""
    refers_to_global: bool = False
    """Whether a row refers to one of the tenant ``*``, which only an upsert records for a run (``global_schedule``)."""
    rejected: Rejected | None = None
    skipped: str = ""
    tenant: str | None = None
    """Tenant of a document that is quarantined although it makes rows."""

    def decode(self, context: Context, content: Document | documents.Undecodable) -> None:
        """Fill the rows from the decoded BSON; raise ``Rejected`` or ``Skipped`` if it has none."""
        if isinstance(content, documents.Undecodable):
            raise Rejected(UNDECODABLE, "", f"a readable document ({content})")
        self.content = content
        decoded: Decoded = self.collection.decode(content, context)
        self.rows = self.resolved = decoded.rows
        self.notes = decoded.notes

    def serialize(self, rebuilt: Document | None = None, *, proved: bool = False) -> None:
        """Fill the serialized rows and the remainder.

        ``proved``: the resolved rows encode to the bytes of the document. ``rebuilt``: what they encode to, if it is
        known and known to have other bytes. A text with U+0000 is stored with U+FFFD in its place; the remainder keeps
        the original. Raises ``Rejected`` if the document does not survive BSON decoding (duplicate key, deprecated
        type).
        """
        self.serialized, self.remainder = self._serialize(self.resolved, rebuilt, proved=proved)
        if self.notes:
            self.counted = tuple(("finding", note.kind, note.path) for note in self.notes)
        if self.remainder != EMPTY:
            listed = remainder.entries(self.remainder)
            kept, self.clean = _kept(self.collection, listed)
            self.counted += kept
            if self.collection.lost:
                self._count_losses(listed)

    def _count_losses(self, kept: Sequence[Entry]) -> None:
        """Count each declared loss once: what the remainder alone keeps, and a number that was rounded."""
        declared = self.collection.lost
        stated = [one for one in self.counted if one[1] in _STATED_LOSSES and one[2] in declared]
        lost = dict.fromkeys(path for _, _, path in stated)
        held = {path for entry in kept if entry.kind in _LOST_KINDS for path in _paths_to(entry.field)}
        lost |= dict.fromkeys(
            path for path, loss in declared.items() if path in held and not _says_nothing(self.content, path, loss)
        )
        others = [one for one in self.counted if one not in stated] if stated else self.counted
        self.counted = (*others, *(("finding", NAMED_LOSS, path) for path in lost))

    def _serialize(
        self, rows: Rows, rebuilt: Document | None = None, *, proved: bool = False
    ) -> tuple[list[SerializedRow], bytes]:
        settled, left = (rows, EMPTY) if proved else self._with_remainder(rows, rebuilt)
        try:
            return [_serialized(row) for row in settled], left
        except NulInTextError:
            settled, left = self._with_remainder(tuple(_without_nul(row) for row in rows))
            return [_serialized(row) for row in settled], left

    def _with_remainder(self, rows: Rows, rebuilt: Document | None = None) -> tuple[Rows, bytes]:
        """Attach the remainder to the rows; it is ``b"{}"`` for a clean document."""
        if rebuilt is None:
            rebuilt = self.collection.encode(rows)
            if documents.encode_to([rebuilt], [self.raw])[0]:
                return rows, EMPTY
        if not documents.encode_to([self.content], [self.raw])[0]:
            raise Rejected(NOT_ROUND_TRIP, "", "a document that BSON decoding gives back byte for byte")
        left = remainder.difference(self.collection.without_derived(self.content), rebuilt)
        return (rows, EMPTY) if left == EMPTY else (self.collection.attach(rows, left), left)

    def links_to_store(self) -> tuple[PendingLink, ...]:
        """Return the links, each with the remainder of its row after the column is filled.

        The copy stores them; the parity check, which reads the same documents, does without.
        """
        return tuple(link._replace(extra=self._serialize(self._filled(link))[1]) for link in self.links)

    def _filled(self, link: PendingLink) -> Rows:
        place = (link.table, link.row_id)
        return tuple(
            msgspec.structs.replace(row, **{link.column: link.target_id})
            if (row.table, row.id) == place  # type: ignore[attr-defined] # every loaded record has an id
            else row
            for row in self.resolved
        )

    def difference(self, stored: Mapping[type, Mapping[bytes, bytes]]) -> DocumentDifference | None:
        """Return how the rows are not stored as they should be; None: they are.

        ``stored``: record → ``RowCodec.key`` → row. The rows must also encode back to the document.
        """
        rows: list[tuple[SerializedRow, bytes | None]] = []
        for row in self.serialized:
            stored_row = _stored_row(row, stored[type(row.record)])
            if stored_row is None or not codec(type(row.record)).equal((row.head, row.tail), stored_row):
                rows.append((row, stored_row))
        # A document without a remainder was shown to encode to its own bytes.
        encodes_back = self.remainder == EMPTY or self._encodes_back()
        return None if encodes_back and not rows else DocumentDifference(tuple(rows), encodes_back)

    def _encodes_back(self) -> bool:
        try:
            rebuilt = rebuild(self.collection, tuple(row.record for row in self.serialized))
        except ValueError:
            return False
        wanted = self.collection.without_derived(self.content)
        # the bytes that were read are compared first: it takes a fifth of the time, and only inequality is in doubt
        return (wanted is self.content and _encode_to([rebuilt], [self])[0]) or same(rebuilt, wanted)

    def reject(self, reason: Rejected) -> None:
        """Take back the rows of a document that cannot be stored, because another one has its key."""
        self.tenant = self.serialized[0].record.tenant_id  # type: ignore[attr-defined] # every loaded record has a tenant
        self.rejected, self.serialized = reason, ()

    def release(self) -> None:
        """Free all but what the quarantine takes: a chunk may reject every document."""
        self.content = {}
        self.rows = self.resolved = self.serialized = ()


KnownReferences: TypeAlias = bool | dict[bytes, bool]
"""What the native codec knows of the rows that a reference can name. True: it writes the computed id, without asking
whether the row exists. False: it leaves each document that has such a reference to the Python codec. A mapping: the key
is an id and a tenant (16 bytes, then the tenant's text); the value says whether the row of that id and tenant is stored
and was made from the document that the reference names."""


class ReferenceResolver(Protocol):
    """Resolves the references of documents."""

    def look_up(self, collection: Collection, decoded: Sequence[SourceDocument]) -> None:
        """Prepare for these documents."""

    def resolve(self, document: SourceDocument) -> None:
        """Set ``resolved``, and what follows from it; raise ``Rejected`` if a row requires a dangling reference."""

    def known_references(self, collection: Collection) -> Sequence[KnownReferences]:
        """Return for each reference of the collection what is known of it; nothing: each is taken as it is."""

    def look_up_unknown(
        self, collection: Collection, known: Sequence[KnownReferences], unknown: Sequence[tuple[int, bytes]]
    ) -> None:
        """Add to ``known`` what it lacks: (position of the reference, key of the mapping)."""


def decode_document(collection: Collection, context: Context, raw: bytes) -> SourceDocument:
    """Return a document with its rows, references not resolved; raise ``Rejected`` or ``Skipped`` if it has none."""
    document = SourceDocument(collection, raw)
    [content] = documents.decode_all([raw])
    document.decode(context, content)
    return document


def serialize_rows(rows: Rows) -> list[SerializedRow]:
    """Return serialized rows that belong to no document, U+FFFD in place of U+0000."""
    return [_serialized(_without_nul(row)) for row in rows]


def _kept(collection: Collection, listed: Iterable[Entry]) -> tuple[tuple[Counted, ...], bool]:
    """Return the counts of the entries of a remainder, and whether the columns carry all of the document."""
    kept = {("remainder", entry.kind, entry.field): None for entry in listed}
    return tuple(kept), all(path in collection.reference_paths for _, _, path in kept)


def _paths_to(field: str) -> Iterator[str]:
    """Yield the path of a field of a remainder, and those of the values that it is within."""
    yield field
    for match in _WITHIN.finditer(field):
        yield field[: match.start()]


def _says_nothing(content: Document, path: str, loss: DeclaredLoss) -> bool:
    """Whether a field holds the value with which nothing is lost."""
    if loss.unless is None:
        return False
    value: Any = content
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return type(value) is not dict and value == loss.unless and isinstance(value, bool) == isinstance(loss.unless, bool)


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


def _stored_row(row: SerializedRow, stored: Mapping[bytes, bytes]) -> bytes | None:
    """Return the stored row of a document's row: the one with its key, else the document's own under another tenant."""
    kind = codec(type(row.record))
    same_key = stored.get(kind.key(row.head))
    if same_key is not None:
        return same_key
    end_of_id = 6 + int.from_bytes(row.head[2:6], "big")
    origin = kind.origin(row.head + row.tail)
    same_id = (other for other in stored.values() if other[:end_of_id] == row.head[:end_of_id])
    return next((other for other in same_id if kind.origin(other) == origin), None)


SMALL_BATCH_DOCUMENTS = 50
"""Documents decoded together: few enough to stay in the processor's cache."""


def transform_batch(
    collection: Collection,
    context: Context,
    resolver: ReferenceResolver,
    batch: bytes,
    at_a_time: int = SMALL_BATCH_DOCUMENTS,
) -> Iterator[list[SourceDocument]]:
    """Yield the documents of a batch, one small batch at a time and in its order.

    ``at_a_time`` is the number of documents in a small batch: the target is asked about references once for each.
    """
    return _transform(collection, context, resolver, documents.split(batch), at_a_time)


def transform_documents(
    collection: Collection, context: Context, resolver: ReferenceResolver, batch: bytes
) -> Iterator[SourceDocument]:
    """Yield the documents of a batch one by one."""
    return chain.from_iterable(transform_batch(collection, context, resolver, batch))


def _transform(
    collection: Collection, context: Context, resolver: ReferenceResolver, raws: Sequence[bytes], at_a_time: int
) -> Iterator[list[SourceDocument]]:
    for begin in range(0, len(raws), at_a_time):
        small = [SourceDocument(collection, raw) for raw in raws[begin : begin + at_a_time]]
        decoded: list[SourceDocument] = []
        contents = documents.decode_all([document.raw for document in small])
        for document, content in zip(small, contents, strict=True):
            try:
                document.decode(context, content)
                decoded.append(document)
            except Rejected as reason:
                document.rejected = reason
            except Skipped as reason:
                document.skipped = reason.reason
        _resolve_and_serialize(collection, resolver, decoded)
        yield small


def _resolve_and_serialize(
    collection: Collection, resolver: ReferenceResolver, decoded: Sequence[SourceDocument]
) -> None:
    """Look up the references of these documents, prove that their rows carry them, and serialize the rows."""
    resolver.look_up(collection, decoded)
    resolved: list[SourceDocument] = []
    for document in decoded:
        try:
            resolver.resolve(document)
            resolved.append(document)
        except Rejected as reason:
            document.rejected = reason
    rebuilt = [collection.encode(document.resolved) for document in resolved]
    proved = _encode_to(rebuilt, resolved)
    for document, content, is_proved in zip(resolved, rebuilt, proved, strict=True):
        try:
            document.serialize(content, proved=is_proved)
        except Rejected as reason:
            document.rejected = reason


def _encode_to(rebuilt: Sequence[Document], resolved: Sequence[SourceDocument]) -> list[bool]:
    """Return for each document whether what was rebuilt has its bytes, keys in its order."""
    equal = documents.encode_to(rebuilt, [document.raw for document in resolved])
    left = [index for index, is_equal in enumerate(equal) if not is_equal]
    if left:
        # jsonb keeps no order of keys, so this is what most documents with free JSON need.
        ordered = [documents.in_order(rebuilt[index], resolved[index].content) for index in left]
        again = documents.encode_to(ordered, [resolved[index].raw for index in left])
        for index, is_equal in zip(left, again, strict=True):
            equal[index] = is_equal
    return equal


class PlainRows:
    """Rows of plain documents in one table."""

    def __init__(self, record: type[Record], table: Any, pending: Sequence["PendingRow"]) -> None:  # noqa: ANN401 - of an extension
        """``table``: rows of the native codec; the ``pending`` ones stand after them."""
        self.record = record
        self.positions: list[int] = [*table.positions(), *(one.position for one in pending)]
        """Of each row: position of its document in the batch."""
        self._table, self._pending = table, [one.row for one in pending]

    def copied(self) -> bytes:
        """Return the rows one after the other, as COPY takes them."""
        return bytes(self._table.copy_bytes(b"".join(self._pending)))

    def comparison(self) -> Any:  # noqa: ANN401 - of an extension
        """Return their comparison with stored rows (``migrator_speedups.comparison``), which copies none."""
        return import_module("migrator_speedups.comparison").Comparison(self._table, self._pending, self.positions)


class PlainCounts(NamedTuple):
    """What is counted of the plain documents of a batch."""

    documents: int = 0
    clean: int = 0
    """Those of which the columns carry all."""
    notes: Mapping[Counted, int] = MappingProxyType({})
    """Of the others: what their remainders keep."""


class PendingRow(NamedTuple):
    """The row of a document that would be plain if the reference into its own table led to a stored row."""

    position: int
    """Of its document in the batch."""
    row: bytes
    """As COPY takes it: the reference is null, and its text is the remainder."""
    link: PendingLink


class PendingRows(NamedTuple):
    """Rows of one table whose reference into that table is left pending."""

    record: type[Record]
    rows: Sequence[PendingRow]


class ReadBatch:
    """A batch as both codecs read it: rows of the plain documents, and all others as documents."""

    def __init__(
        self,
        collection: Collection,
        context: Context,
        resolver: ReferenceResolver,
        batch: bytes,
        excluded: frozenset[bytes] = frozenset(),
    ) -> None:
        self._collection, self._context, self._resolver, self._batch = collection, context, resolver, batch
        self._excluded = excluded
        self._rows: Any = None
        self._reader = None if collection.native is None or native.module() is None else collection.native(context)
        if self._reader is not None:
            self._rows = _read_natively(self._reader, collection, resolver, batch, excluded)
            self._tables = tuple(table.record for table in self._reader.plan.tables)
        self._for_python: set[int] = set()
        self._pending: set[int] = set()
        """Positions of the documents whose pending row was taken."""

    @cached_property
    def _place(self) -> "_PendingPlace | None":
        return _pending_place(self._reader, self._collection)

    @property
    def plain(self) -> int:
        """Number of documents that the Python codec need not read."""
        return 0 if self._rows is None else self._rows.plain - len(self._for_python) + len(self._pending)

    def counts(self) -> PlainCounts:
        """Return the counts of the documents that the Python codec does not read."""
        plain = self.plain
        if self._rows is None or not (self._rows.remainders or self._pending):
            return PlainCounts(plain, plain)
        alike = Counter(left for position, left in self._rows.remainders if position not in self._for_python)
        if self._pending and self._place is not None:
            alike[self._place.remainder] += len(self._pending)
        unclean, notes = 0, Counter[Counted]()
        for left, count in alike.items():
            kept, is_clean = _kept(self._collection, remainder.entries(left))
            unclean += 0 if is_clean else count
            notes.update(dict.fromkeys(kept, count))
        return PlainCounts(plain, plain - unclean, notes)

    def rows(self, pending: PendingRows | None = None) -> Iterator[PlainRows]:
        """Yield the rows of the plain documents by table, parents first; also of documents that were handed over.

        The ``pending`` rows stand after the others of their table.
        """
        if self._rows is not None:
            for record, table in zip(self._tables, self._rows.tables, strict=True):
                more = pending.rows if pending is not None and pending.record is record else ()
                if table.count or more:
                    yield PlainRows(record, table, more)

    def each_row(self) -> Iterator[tuple[type[Record], int, bytes]]:
        """Yield the rows of the plain documents one by one: table, position of the document, bytes."""
        if self._rows is not None:
            for record, table in zip(self._tables, self._rows.tables, strict=True):
                for index, position in enumerate(table.positions()):
                    yield record, position, table.row_bytes(index)

    def read_in_python(self, positions: set[int]) -> None:
        """Let the Python codec read these documents too, of which it does not read all that are not plain anyway."""
        if positions:
            self._for_python.update(positions.difference(self._rows.handed))

    def pending(self) -> PendingRows | None:
        """Return the rows of the documents that are not plain for their reference into their own table alone.

        The Python codec reads these documents unless the caller takes their rows (``take_pending``).
        """
        place = None if self._rows is None else self._place
        if place is None or not self._rows.handed:
            return None
        rows = _read_pending(self._reader, self._collection, self._resolver, self._rows, self._excluded, place)
        return PendingRows(place.reference.record, rows) if rows else None

    def source_id(self, row: PendingRow) -> str:
        """Return the source id of the document of a pending row."""
        return source_id_of(self._rows.raw(row.position))

    def take_pending(self, rows: Iterable[PendingRow]) -> None:
        """Count the documents of these rows as read: the caller has stored the rows, or seen that they are stored."""
        self._pending.update(row.position for row in rows)

    def documents(self, at_a_time: int = SMALL_BATCH_DOCUMENTS) -> Iterator[list[SourceDocument]]:
        """Yield all documents that are not plain, in their order, as ``transform_batch`` does."""
        if self._rows is None:
            raws = documents.split(self._batch)
        else:
            raws = self._rows.raws(sorted({*self._rows.handed, *self._for_python}.difference(self._pending)))
        return _transform(self._collection, self._context, self._resolver, raws, at_a_time)


def _read_natively(
    reader: Any,  # noqa: ANN401 - of an extension
    collection: Collection,
    resolver: ReferenceResolver,
    batch: bytes,
    excluded: frozenset[bytes],
) -> Any:  # noqa: ANN401 - as above
    """Return the rows of a batch, whose references are known; None for bytes that are not whole documents."""
    return _read_with(reader, collection, resolver, batch, excluded, resolver.known_references(collection))


def _read_with(
    reader: Any,  # noqa: ANN401 - of an extension
    collection: Collection,
    resolver: ReferenceResolver,
    batch: bytes,
    excluded: frozenset[bytes],
    known: Sequence[KnownReferences],
) -> Any:  # noqa: ANN401 - as above
    """Return the rows of a batch, if this is known of its references; it is added what is looked up."""
    try:
        rows = reader.codec.read(batch, excluded, known)
    except ValueError:
        return None
    if rows.unknown:
        resolver.look_up_unknown(collection, known, rows.unknown)
        rows.apply_answers(known)
    return rows


_ANY: Final = UUID("0123456789abcdef0123456789abcdef")
"""Stands for the row of a reference, in what is the same for each of them."""


class _PendingPlace(NamedTuple):
    """Where the documents of a collection say the reference into their own table."""

    among: int
    """Position among the references of the collection."""
    reference: Reference
    column: int
    """Position of its cell in the row."""
    extra: int
    """That of the remainder."""
    remainder: bytes
    """That of a document whose other fields are in columns, with ``_ANY`` as the reference."""
    cell: tuple[bytes, bytes]
    """What COPY takes as the remainder, before and behind the digits of the reference."""


def _pending_place(reader: Any, collection: Collection) -> _PendingPlace | None:  # noqa: ANN401 - a NativeReader
    """Return the place; None where the row of a pending reference differs in more than the reference and the remainder.

    The only table keeps the remainder, one field alone spells the reference, a null of it writes nothing, and nothing
    else follows from it.
    """
    own = [at for at, one in enumerate(collection.references) if one.target is one.record]
    if len(own) != 1 or len(collection.tables) != 1 or collection.lost or reader.plan.excerpt is not None:
        return None
    reference = collection.references[own[0]]
    columns, types = codec(reference.record).columns, codec(reference.record).types
    if columns[:4] != ("id", "tenant_id", "source", "source_id") or types["id"] != "uuid":
        return None
    steps = [(at, one) for at, one in enumerate(reader.plan.steps) if one.reference == own[0]]
    is_plain = len(steps) == 1 and not any(at < steps[0][0] < one.stop for at, one in enumerate(reader.plan.steps))
    if not is_plain or "extra" not in columns:
        return None
    step = steps[0][1]
    says_more = step.others or step.default is not None or step.null_as is not None or step.required
    if says_more or reference.required or reference.shared or reference.by or reference.named is None:
        return None
    left = remainder.difference({step.key.decode(): f"{reference.prefix}{_ANY.hex}"}, {})
    before, digits, behind = (b"\1" + jsonb.as_sent(left)).partition(_ANY.hex.encode())
    if not digits:
        return None
    return _PendingPlace(own[0], reference, step.column, columns.index("extra"), left, (before, behind))


def _read_pending(
    reader: Any,  # noqa: ANN401 - a NativeReader
    collection: Collection,
    resolver: ReferenceResolver,
    read: Any,  # noqa: ANN401 - of an extension
    excluded: frozenset[bytes],
    place: _PendingPlace,
) -> list[PendingRow]:
    """Read the documents that are not plain again, as if their reference led to a row; return those that are plain now.

    If it leads to a row after all, or there is none, the Python codec shall say why it was not plain before.
    """
    known = list(resolver.known_references(collection))
    if not known or known[place.among] is True:
        return []
    of_reference, known[place.among] = known[place.among], True
    again = _read_with(reader, collection, resolver, b"".join(read.raws(read.handed)), excluded, known)
    if again is None:
        return []
    [table] = again.tables
    rows: list[PendingRow] = []
    for index, position in enumerate(table.positions()):
        row, link = _left_pending(table.row_bytes(index), place)
        if link is not None and (
            isinstance(of_reference, bool) or of_reference.get(link.target_id.bytes + link.tenant.encode()) is False
        ):
            rows.append(PendingRow(read.handed[position], row, link))
    return rows


def _left_pending(row: bytes, place: _PendingPlace) -> tuple[bytes, PendingLink | None]:
    """Return the row with null in place of its reference, and the link; None: it has none, or has a remainder."""
    starts = copy_format.starts(row)
    begin, end = starts[place.column], starts[place.column + 1]
    extra, after = starts[place.extra], starts[place.extra + 1]
    if row[begin : begin + 4] == NULL or row[extra:after] != _NO_REMAINDER:
        return row, None
    row_id, tenant, source = (row[starts[at] + 4 : starts[at + 1]] for at in range(3))
    target = UUID(bytes=row[begin + 4 : end])
    link = PendingLink(
        table=place.reference.record.table,
        row_id=UUID(bytes=row_id),
        tenant=tenant.decode(),
        column=place.reference.column,
        target_table=place.reference.target.table,
        target_id=target,
        target_source=f"{source.decode().partition('/')[0]}/{place.reference.collection}",
        target_source_id=f"{place.reference.prefix}{target.hex}",
    )
    cell = target.hex.encode().join(place.cell)
    size = len(cell).to_bytes(4, "big")
    return b"".join((row[:begin], NULL, row[end:extra], size, cell, row[after:])), link
