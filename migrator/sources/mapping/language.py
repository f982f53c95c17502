"""The mapping language: what one collection's documents mean, as data.

A mapping names, for each collection, the tables that its documents feed and, for each field, the columns that the
field fills and the converter between the two. Reading and writing, the known fields, the references and the aggregates
all follow from it (``codec``). A mapping is written in TOML (``file``) or built from these classes.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.sources.profile import Context, DeclaredLoss, Document, History, Measure, Note, Reference, Rows
from migrator.targets.model import SCHEDULER

Encoding: TypeAlias = Literal[
    "date", "iso", "iso-z", "seconds", "milliseconds", "microseconds", "milliseconds-text", "timestamptz", "timestamp"
]
"""How a time is written: a BSON date, an ISO 8601 text with an offset (``iso-z``: as JavaScript writes it), a number
since 1970 in UTC (of which one may be a text), or a column of a table of PostgreSQL with or without a zone; without one
the time is UTC."""

Holds: TypeAlias = Literal["list", "object", "keywords", "text", "flag"]
IdType: TypeAlias = Literal["uuid", "text"]
TimeFormat: TypeAlias = Literal["HH:MM", "HH:MM:SS", "HH:MM:SS.mmmZ"]
Unit: TypeAlias = Literal["microseconds", "milliseconds", "seconds", "minutes", "hours", "days"]

NumberType: TypeAlias = Literal["int", "long", "double"]
BsonType: TypeAlias = Literal["int", "long", "double", "decimal", "date", "objectId"]

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""As a cron line names them."""

CRON_PARTS: Final = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
"""The fields of a cron line, in their order."""

MILLISECONDS: Mapping[str, float] = MappingProxyType(
    {"microseconds": 0.001, "milliseconds": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}
    | {"days": 86_400_000}
)
"""Unit to its milliseconds."""


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One field of a document, and what it fills.

    A mapping in Python may leave out the columns: then the field is read for ``Mapped.derive`` alone. Of the options,
    those from ``finding`` on are for mappings in Python.
    """

    path: str
    """Names of the members down to the field, with dots between them: ``options.retries``. Arrays are not entered."""
    columns: tuple[str, ...] = ()
    """``table.column``, one or more; the first is the one that the field is written from. ``table.column.member``: a
    member of the object that a jsonb column holds; several fields share it."""
    converter: str
    """The name of one of ``converters.CONVERTERS``."""
    also: tuple[str, ...] = ()
    """Paths that are read, in this order, if the field is absent or null; never written (finding ``alias``)."""
    time: str = ""
    """``weekdays``: path of the time of day. ``clock-span``: path of the end; ``clock-end``: of the beginning."""
    time_format: TimeFormat = "HH:MM"
    """``weekdays``: how the time of day is written; no other one is read."""
    first: str = ""
    """``weekdays``: the documents hold seven flags, as ``holds`` says (omitted: 0 or 1), the first for this day;
    omitted: they list days, as ``words`` says."""
    words: Mapping[str, Any] = {}
    """``words``: the source's word to the target's, or to a number. Of several for one, the first is written, and
    another one is counted (finding ``alias``). ``period``: the source's word to a unit."""
    write_as: Mapping[str, str] = {}
    """``words``: a value of the column that no word stands for, to the word that is written for it. Never read."""
    allow_unknown: bool = False
    """``words``: another word stays as it is (finding ``unknown-word``)."""
    encoding: Encoding = "date"
    """``time`` alone."""
    unit: Unit = "milliseconds"
    """``duration`` alone."""
    type: BsonType | None = None
    """The BSON type in which a number is written; each is accepted. ``text``, ``words``: the documents hold numbers,
    written as texts in ``words``; omitted: they hold texts. ``json``: the type in which a value is written that is no
    document and no array; omitted: what JSON says. Else, omitted: double for seconds, long for smaller units of a time,
    int for all else."""
    factor: float = 1
    """``number``: the column holds factor * value + add, rounded."""
    add: float = 0
    clamp: bool = False
    """``number``: one outside the bounds of the column becomes the nearest bound (finding ``clamped``)."""
    default: Any = None
    """What the column holds if the field is absent or null; of the column's own type. Omitted: null. A column that
    holds the default is not written."""
    trim: bool = False
    """``text``, ``reference``: without white space at both ends; a blank text is none."""
    exact: bool = False
    """``text``: a text with U+0000, which PostgreSQL cannot hold, is quarantined, and not changed."""
    write_default: bool = False
    """A column that holds the default is written too; a document without the field is then not clean."""
    write_null: bool = False
    """The source writes null where the column holds nothing; a document without the field is then not clean."""
    null_value: int | None = None
    """``number``, ``duration``: the value that stands for none, and is written for it."""
    local: bool = False
    """``time``: a BSON date that holds the local time of the source's zone. ``cron``, ``cron-fields``: the line is
    evaluated in that zone. It becomes the zone of the trigger; without a setting the document is quarantined."""
    zone: str = ""
    """``time``: the zone of which a BSON date holds the local time. No trigger keeps it, so the mapping says it."""
    below: tuple[str, ...] = ()
    """``flag``: paths of two numbers. Where the first has reached the second, which is not 0, the column is false."""
    part: str = ""
    """``cron-field``: which of ``CRON_PARTS`` the field is."""
    dialect: str = ""
    """``cron``, ``cron-fields``: the dialect in which the line is evaluated. ``cron-field``: that takes the field."""
    members: tuple[str, ...] = ()
    """``cron-fields``: the members of the document in the order of the line."""
    number: str = ""
    """``period``: the member that holds the number."""
    unit_from: str = ""
    """``period``: the member that holds the unit."""
    fixed: Mapping[str, str] = {}
    """``period``, ``cron-fields``: texts that the source writes into the document beside what is read."""
    holds: Holds | None = None
    """``json``: what the value must be; a document with another is quarantined, and none is written with another.
    ``keywords``: an object of which no name, at any depth, begins with ``$``."""
    spaced: bool = False
    """``json-text``: written as Python writes JSON, with a space after ``,`` and ``:`` and with escapes for what is not
    ASCII."""
    expected: str = ""
    """``version``: the version that is known; another one is counted (finding ``unknown-schema-version``). With
    ``taken``, and ``refused``: what is expected of the document where the field is not taken."""
    taken: bool = True
    """``base64``, ``java-properties``: false: the target does not take the field, and a document in which it holds
    something is quarantined (converter ``refused``)."""
    begins: str = ""
    """``base64``: the first bytes, as hexadecimal digits; a document with others is quarantined."""
    collection: str = ""
    """``reference`` alone: the collection whose document is named."""
    by: str = ""
    """``reference``: the field of the other document that holds the same value; omitted: its ``_id``. The ids of that
    collection's rows follow from the field then."""
    finding: str | None = None
    """Counted in place of ``unknown-word``, or of ``alias`` for a further path; empty: neither is counted."""
    required: bool = False
    """A document in which it is absent or null is rejected; with a default, one in which it is null."""
    prefix: str = ""
    """``reference``: the ``_id`` is a text, and is written as this and the 32 digits of the row's id. Omitted: it is
    not written, and so remainder."""
    id_type: IdType | None = None
    """``reference``: the ``_id`` is a UUID, or the text of one, and is written from the row's id."""
    loose: bool = False
    """``reference``: the column holds the computed id, whether or not such a row is stored."""
    shared: bool = False
    """``reference``: may lead to a row of the tenant ``*``."""
    shape: Any = None
    """The type that the field must have, as ``shapes.read`` checks it. ``json``: a ``Shape`` (or a list of one), whose
    members are written in the order of its declaration. Omitted: what the converter reads."""
    respelled: Mapping[str, Mapping[str, str]] = {}
    """``json``: member to the spellings of its words that are replaced (finding ``alias``)."""
    write: Callable[[Rows], Any] | None = None
    """What is written, from the rows; None is not written. Omitted: what the converter makes of the first column."""

    @property
    def inner_paths(self) -> tuple[str, ...]:
        """The members of the field that its converter reads or writes."""
        return (*filter(None, (self.number, self.unit_from)), *self.members, *self.fixed)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One case of a choice: the value that a column has if a field holds something, or holds ``equals``."""

    field: str = ""
    """Path of the field; empty: always."""
    equals: Any = None
    value: Any
    option: str = ""
    """The option of the target that says the cases: a document whose field it does not name is quarantined."""


class Reading(msgspec.Struct):
    """What was read of one document so far: a ``Mapped.derive`` adds to it."""

    document: Document
    tenant: str
    context: Context
    columns: dict[str, dict[str, Any]]
    """Table to column to value; constants and defaults are not in it. A table after the first gets a row if a column
    was read or derived."""
    notes: list[Note]
    unusable: dict[str, Note] = {}
    """Tables that cannot have the row that the document describes, and why."""

    def fill(self, table: str, **columns: Any) -> None:  # noqa: ANN401 - values of columns
        """Fill columns of a table, which makes the document's row of it."""
        self.columns[table].update(columns)


class When(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the documents of one kind: what holds of the field at a path."""

    path: str
    present: bool | None = None
    """True: it holds something (it is there and not null); False: it does not."""
    equals: Any = None
    """The value that it holds."""
    begins: str = ""
    """The beginning of the text that it holds."""


class Derivation(msgspec.Struct, frozen=True, kw_only=True):
    """When ``Mapped.derive`` does anything, as data: of a document that fulfils none of this it changes nothing.

    A field of ``Mapped.rare_fields``, and a word that is respelled, may always be what it looks at.
    """

    below_zero: tuple[str, ...] = ()
    """Paths of documents with a shape; a number in one of them is below zero."""


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a document and of its rows that ``derive`` and ``respell`` of a mapping are about.

    They are given nothing else, so that what they answer follows from it alone: the native codec asks once for each
    combination of values, and remembers the answer only if the fields come back from the columns, byte for byte.
    """

    fields: frozenset[str]
    """Names of members of a document; ``respell`` says what each of them holds."""
    columns: tuple[str, ...]
    """``table.column``; no field of ``Mapped.fields`` fills one of them. ``respell_held`` is given None for the
    ``id`` of a row that the tool computes."""


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """One collection of a mapping, or one kind of its documents."""

    name: str
    """Of the collection."""
    tables: tuple[str, ...] = ()
    """The tables that its documents feed. The first holds one row for each document, and the remainder."""
    fields: tuple[Field, ...] = ()
    """In the order in which the source writes them."""
    constants: Mapping[str, Any] = {}
    """``table.column`` to a value that every row has."""
    choices: Mapping[str, tuple[Case, ...]] = {}
    """``table.column`` to its cases, of which the first that applies gives the value. Never written."""
    rows: Mapping[str, tuple[str, ...]] = {}
    """Further table to the fields of which one must hold something, or there is no row. Omitted: any of its fields."""
    kinds: Mapping[str, "Mapped"] = {}
    """Name to each kind of documents, of which the first that applies describes a document; all have the same first
    table. Then the collection itself has no tables, fields, constants and choices."""
    when: When | None = None
    """Of a kind: which documents it describes; None: all that are left."""
    applies: Callable[[Document], bool] | None = None
    """Of a kind: tells the documents that it describes, besides ``when``."""
    skipped: bool = False
    """Of a kind: its documents make no rows; they are counted as skipped."""
    fixed: Mapping[str, str] = {}
    """Field to the text that the source writes into each document; one that a field fills holds that instead. A path
    with dots: into the document there, if it is written."""
    object_ids: bool = False
    """The ``_id`` of a document for a row created in PostgreSQL is an ObjectId; else the text of the row's UUID."""
    expects_trigger: bool = False
    """A document that makes no trigger is counted (finding ``no-trigger``)."""
    lost: Mapping[str, DeclaredLoss] = {}
    """As ``Collection.lost``."""
    history: History | None = None
    """As ``Collection.history``."""
    rare_fields: tuple[Field, ...] = ()
    """Fields that few documents have; read only if one of them is there, and written after all others."""
    admit: Callable[[Document, Context], None] | None = None
    """Raises ``Skipped`` or ``Rejected`` for documents that make no rows, before anything else is read."""
    derive: Callable[[Document, Reading, Context], None] | None = None
    """Fills columns that no rule says, after all fields were read; may raise ``Rejected`` and ``Skipped``."""
    derive_if: Derivation | None = None
    """The documents of which ``derive`` does anything; None: it may be any."""
    respell: Callable[[Rows, Document], None] | None = None
    """Writes into the document what ``derive`` read, after all fields were written."""
    excerpt: Excerpt | None = None
    """What ``derive`` reads and fills: the document and the columns that it is given have nothing else."""
    respell_held: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """With ``excerpt``, in place of ``respell``: from table to ``excerpts.Held``, of the tables that have a row, to the
    fields of the excerpt. One that is None is not written; one that is left out stays as its own rule writes it."""
    key: tuple[str, ...] = ()
    """Of a table of PostgreSQL: as ``Collection.key``."""
    references: tuple[Reference, ...] = ()
    """References whose columns ``derive`` fills."""
    inherited: Mapping[str, str] = {}
    """Of a table of PostgreSQL: as ``Collection.inherited``; a field's path to one begins with ``INHERITED``."""
    tenant: Callable[[Document, Context], str] | None = None
    """The tenant of a document, if no field names it; may raise ``Rejected``."""
    tenant_sql: str = ""
    """With ``tenant``, of a table of PostgreSQL: as ``Collection.tenant_sql``."""
    derived_paths: tuple[str, ...] = ()
    """Paths of fields that ``derive`` reads: the census knows them."""
    ignored_fields: Mapping[str, type] = {}
    """As ``Collection.derived``."""
    measures: tuple[Measure, ...] | None = None
    """The aggregates; None: those that follow from the fields."""
    keeps_uuids: bool | None = None
    """Whether the ids of rows keep the UUIDs of their documents' ``_id``; None: if the collection is the first with
    this first table."""

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """All fields."""
        return (*self.fields, *self.rare_fields)

    def shapes(self) -> "tuple[Mapped, ...]":
        """Return the kinds that make rows, or the collection itself if it has none."""
        return tuple(kind for kind in self.kinds.values() if not kind.skipped) if self.kinds else (self,)


class SourceMapping(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one scheduler's collections."""

    name: str
    collections: tuple[Mapped, ...]
    documents: str = ""
    """As ``Profile.documents``."""
    left_out: Mapping[str, str] = {}
    """As ``Profile.left_out``."""
    signs: Mapping[str, tuple[str, ...]] = {}
    """As ``Profile.signs``."""
    target: str = SCHEDULER
    """The target whose tables it feeds."""

    def named_by(self, collection: str) -> str:
        """Return the field by which references name the documents of a collection; empty: the ``_id``."""
        fields = (field for one in self.collections for shape in one.shapes() for field in shape.all_fields)
        return next((field.by for field in fields if field.collection == collection and field.by), "")
