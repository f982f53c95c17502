"""The seam between one scheduler's documents and the records: what a source profile is.

A profile is data and plain functions. For each collection it gives a pure ``decode(document, context)`` and a pure
``encode(rows)``. ``decode`` is strict: it raises ``Rejected`` for a document that must be quarantined. It never
computes the remainder: ``pipeline.transform`` compares, finds what ``encode`` cannot give back, and stores it through
``attach``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from migrator.records import Record, attach_extra, attach_payload, remainder_of, remainder_of_payload
from migrator.targets.model import SCHEDULER, UniqueAmong
from migrator.values import identity

Document: TypeAlias = dict[str, Any]
"""A decoded BSON document: naive UTC datetimes, ``DatetimeMS`` outside years 1-9999, ``Int64`` kept."""

Rows: TypeAlias = tuple[Record, ...]
"""The rows of one document; the first one carries its remainder."""


class Rejected(Exception):  # noqa: N818 - an outcome of one document, not a failure of the tool
    """The document cannot become rows; it goes to quarantine with its bytes.

    ``reason`` is a short stable code (``wrong-type``, ``unknown-value``, ``no-tenant``, ``bad-date``, ...), ``path``
    the field path (``stats.queued``; empty for the whole document), ``expected`` what would have been accepted. No
    document values.
    """

    def __init__(self, reason: str, path: str, expected: str) -> None:
        super().__init__(f"{reason} at {path or 'the document'}: expected {expected}")
        self.reason = reason
        self.path = path
        self.expected = expected


class Skipped(Exception):  # noqa: N818 - as Rejected
    """The document is left behind by a stated rule (an expired lock); it is counted under ``reason``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Note(msgspec.Struct, frozen=True):
    """Something to count about a loaded document: a finding (``kind`` such as ``id-mismatch``), at a field path."""

    kind: str
    path: str


ROUNDED = "rounded"
"""The kind of a note about a number with more digits than its column keeps."""


class Decoded(msgspec.Struct, frozen=True):
    """What one document became: its rows, and findings about it."""

    rows: Rows
    notes: tuple[Note, ...] = ()


class Context(msgspec.Struct, frozen=True):
    """What decode may know besides the document; fixed in the plan, so that no result depends on the clock."""

    as_of: datetime
    """The instant (aware, UTC) at which liveness of locks is judged."""
    default_tenant: str | None = None
    zone: str | None = None
    """IANA name of the zone in which the source wrote times without an offset, and evaluated cron lines that name
    none; None: nobody stated one."""
    of_store: bool = False
    """As our own store reads: each document is the one row of its collection. A rule in a schedule makes no trigger;
    the store's own copy of the rule, which the migration leaves out, is one."""
    carry_expired_locks: bool = False
    history_before: datetime | None = None
    """The instant (aware, UTC) before which finished documents are left out (``sources.history``); None: none are."""

    def skip_expired_lock(self, expires: datetime | None) -> None:
        """Raise ``Skipped`` for a lock that had expired, unless such locks are carried; one without expiry is live."""
        if expires is not None and expires <= self.as_of and not self.carry_expired_locks:
            raise Skipped("expired lock")


INHERITED = "(inherited)"
"""Member of a row's document that holds what the row takes from others."""


class Reference(msgspec.Struct, frozen=True):
    """A column that points to a row of another document.

    ``decode`` fills it with the computed id, which several documents may share. The loader keeps it only if the stored
    row is that of the very document that is named, in the same tenant; else it is a dangling reference: the column is
    set to null, and the text stays in the remainder.
    """

    record: type[Record]
    column: str
    target: type[Record]
    required: bool = False
    """The column cannot be null: a document whose target is not stored is quarantined."""
    collection: str = ""
    """Collection of the document that is referred to."""
    named: Callable[[Document], str | None] | None = None
    """Document → source id of the document that it refers to; if omitted, the computed id alone decides."""
    shared: bool = False
    """May lead to a row of the tenant ``*``, where the own tenant has no such row."""
    path: str = ""
    """Field path at which a document holds the ``_id`` that it refers to: the reverse sync writes it there. Empty:
    ``encode`` writes the reference, or nothing does."""
    by: str = ""
    """The field of the other document that stands at ``path`` in place of its ``_id``."""
    prefix: str = ""
    """With it and the digits of its id ``encode`` spells a row whose id does not follow from a UUID in its ``_id``."""

    def id_in(self, tenant: str, source_id: str) -> UUID:
        """Return the id that the row of the document ``source_id`` has if that document is of ``tenant``."""
        return identity.row_id(self.target.table, tenant, self.collection, source_id)


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored about the runs of one schedule, for documents that hold the last run alone."""

    last: Record | None = None
    """The run that began last."""
    last_failed: Record | None = None
    """The run that failed last."""
    waiting: datetime | None = None
    """The earliest time at which a run that no worker has begun may begin."""
    begun: int = 0
    """Runs that began in PostgreSQL."""
    finished: int = 0
    """Runs that completed in PostgreSQL."""
    failed: int = 0
    """Runs that failed in PostgreSQL."""
    failed_since: int = 0
    """Those of them that ended after the last one that completed there; 0 if none completed."""


class Measure(msgspec.Struct, frozen=True):
    """One independent aggregate, computed by MongoDB's pipeline and by SQL without any code of the transform.

    ``group`` counts documents by (tenant, value); ``sum`` adds numbers; ``time`` gives minimum and maximum in
    milliseconds. ``expression`` is a MongoDB aggregation expression, ``sql`` a PostgreSQL expression over the owner
    table.
    """

    name: str
    kind: Literal["group", "sum", "time"]
    expression: Any
    sql: str
    source_sql: str = ""
    """The same over a row ``this`` of a source in PostgreSQL; empty: it is not computed there."""
    reading: str = "{}"
    """SQL of the milliseconds of a ``time``; ``{}`` stands for the first or the last value of ``sql``."""
    field: str = ""
    """The field of MongoDB from which the value comes; empty: not said.

    Without the field, a ``sum`` adds 0. The words of a ``group`` are those of the field, or fewer. A ``time`` is the
    field's, a date or a text.
    """


class DeclaredLoss(msgspec.Struct, frozen=True):
    """What the tables cannot hold, by the words of the mapping."""

    reason: str
    unless: Any = None
    """A value of the field that says nothing, so that nothing is lost with it."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """By which fields a document is finished, and since when. Every condition must hold."""

    at: str
    """Path of the time at which it finished: a date, or a text of one."""
    words: Mapping[str, tuple[str, ...]] = {}
    """Path of a field to the texts, one of which it holds in a finished document."""
    empty: tuple[str, ...] = ()
    """Paths at which a finished document holds nothing."""
    begun: str = ""
    """Path of the time at which it last began: there is one, and it is not later than ``at``. Empty: no condition."""


class NextFire(msgspec.Struct, frozen=True, kw_only=True):
    """Where a document holds the next fire of its trigger, which moves when the old scheduler takes a slot."""

    field: str
    seconds: bool = False
    """A number of seconds since 1970; otherwise a date."""


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """One MongoDB collection of a profile."""

    name: str
    tables: tuple[type[Record], ...]
    """Tables its documents feed; the first holds exactly one row per loaded document and the remainder."""
    decode: Callable[[Document, Context], Decoded]
    encode: Callable[[Rows], Document]
    """The document as far as the columns carry it, its keys in the order the source writes them."""
    references: tuple[Reference, ...] = ()
    after: tuple[str, ...] = ()
    """Collections that must be loaded before this one."""
    tenant_expression: Any = None
    """MongoDB aggregation expression of the tenant text; null where the document has none."""
    tenant_sql: str = ""
    """The same as SQL over a row ``this`` of a source in PostgreSQL; empty: no row names one."""
    table: str = ""
    """Of a source in PostgreSQL: the name of the table unless the settings say another; empty: the collection's."""
    key: tuple[str, ...] = ()
    """Of a source in PostgreSQL: the unique columns, not null, by which rows are told apart; empty: the primary key."""
    inherited: Mapping[str, str] = MappingProxyType({})
    """Of a source in PostgreSQL: name → SQL over a row ``this``, for what a row takes from others. A collection's name
    in braces stands for its table. The document has the values in the member ``INHERITED``, which is not encoded."""
    measures: tuple[Measure, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    """Column tuples of the owner table, besides its primary key, that the target keeps unique."""
    unique_among: tuple[UniqueAmong, ...] = ()
    """The same of some rows of the owner table."""
    reference_paths: frozenset[str] = frozenset()
    """Field paths of references: a text kept there in the remainder does not make a document unclean."""
    new_documents: bool = True
    """Rows that were created in PostgreSQL become documents here. False: the library alone writes such documents."""
    object_ids: bool = False
    """The ``_id`` of a new document is an ObjectId, made from the row's id and the time of its creation. Else it is the
    text of the row's UUID, which the row keeps when the document is read again."""
    adapt: Callable[[Rows, Rows, RunHistory], Rows] | None = None
    """(stored rows of a document, rows that the document makes now, runs of its schedule) → the rows as a document of
    this source makes them, before they are encoded by the reverse sync. Rows that nobody changed stay as they are."""
    meanings: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
    """Column of the first table → from its value to what it says (``Converter.meaning``), where a library writes the
    same in several ways."""
    next_fire: NextFire | None = None
    """For a parallel run: if the documents say no runs, their next fires say what was fired."""
    known: frozenset[str] = frozenset()
    """Field paths that the profile knows (``sources.shapes.known_paths``); the census lists the others."""
    native: Callable[[Context], Any] | None = None
    """The native codec of its documents (``mapping.native_plan.NativeReader``), or None where the Python codec takes
    all of them. If omitted, it has none."""
    lost: Mapping[str, DeclaredLoss] = MappingProxyType({})
    """Path of a field of which the tables do not hold what the document says, to the loss by name. It is counted
    (finding ``result.NAMED_LOSS``) for each document that has such a value; the remainder keeps it."""
    history: History | None = None
    """Which documents are finished, so that old ones may be left out; None: none of them are ever left out."""
    derived: Mapping[str, type] = MappingProxyType({})
    """Fields of our own store, with the type of their values, that say nothing of their own: they follow from another
    document, or are gone with a transaction. No row and no remainder keeps them."""

    def attach(self, rows: Rows, remainder: bytes) -> Rows:
        """Return the rows with a remainder stored in the first."""
        return attach_extra(rows, remainder) if hasattr(rows[0], "extra") else attach_payload(rows, remainder)

    def remainder(self, rows: Rows) -> bytes:
        """Return the remainder stored with the rows."""
        return remainder_of(rows) if hasattr(rows[0], "extra") else remainder_of_payload(rows)

    def without_derived(self, document: Document) -> Document:
        """Return the document without its derived fields."""
        names = {name for name, kind in self.derived.items() if type(document.get(name)) is kind}
        if self.inherited:
            names.add(INHERITED)
        return {name: value for name, value in document.items() if name not in names} if names else document


class DerivedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that many documents make together, written when all collections are loaded.

    They are marked, belong to no document, and are not encoded back. The same values give the same rows, so that a
    second pass writes nothing.
    """

    record: type[Record]
    pipelines: tuple[tuple[str, Sequence[Mapping[str, Any]]], ...]
    """(collection, aggregation pipeline that yields each value once, as ``_id``)."""
    make: Callable[[Iterable[Any]], Rows]
    """The rows of the values of all pipelines together; values may repeat."""


MONGODB, POSTGRESQL = "mongodb", "postgresql"

SlotEvidence: TypeAlias = Literal["", "runs", "moves"]
"""``runs``: a run names its slot, or starts near it. ``moves``: the next fire of a trigger moves past the slot.

Empty: nothing says what was fired, or changes of the source cannot be followed. A parallel run is refused then.
"""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How one scheduler spells its documents."""

    name: str
    version: int
    collections: tuple[Collection, ...]
    """In load order: parents first."""
    servers: tuple[str, ...] = (MONGODB,)
    """Where its data may be: ``mongodb``, ``postgresql``, or both."""
    closing: tuple[DerivedRows, ...] = ()
    documents: str = ""
    """What its documents were seen in: versions of the scheduler with real documents, or "modelled on public
    documents"."""
    left_out: Mapping[str, str] = MappingProxyType({})
    """Collection of the database that is not copied, on purpose, to the reason."""
    target: str = SCHEDULER
    """The target whose tables its collections feed."""
    kept_by_store: bool = False
    """Our own store for MongoDB keeps its rows in these collections, so that each row has a document there
    (``store.mongo.places``). Documents of all other sources are written by ``cutover.reverse_documents``."""
    read_only: str = ""
    """Why nothing is written into its documents, in words; empty: what ``write_back`` finds out decides."""
    signs: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Collection to fields that its documents have and those of other applications lack: by these the source is
    recognised (`sources.recognition`)."""
    slots: SlotEvidence = ""
    """From what the slots are known that the old scheduler fired, so that a parallel run can be compared."""

    def source_of(self, collection: str) -> str:
        """Return the text of the ``source`` column, ``<profile>/<collection>``."""
        return f"{self.name}/{collection}"

    def by_name(self) -> Mapping[str, Collection]:
        """Return the collections by MongoDB name."""
        return {collection.name: collection for collection in self.collections}


ReferenceKey: TypeAlias = tuple[str, UUID]
"""(target table, row id) of a reference to look up."""
