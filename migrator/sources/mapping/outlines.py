"""Documents that differ in a few values: the native codec asks once for all that have one outline.

A mapping whose function decides about whole documents may declare fields whose values say nothing but themselves: texts
and free JSON that are copied, and times that are copied and compared with each other. Those are the holes of a
document; everything else of it, byte for byte, and the order of the times is its outline
(``migrator_speedups.outlines``).

The Python codec reads and writes one document of each outline, which needs no trust in the declaration, and two more
with marks in place of what is in the holes, the times in the same order. Of each column follows which hole is in it, or
that none is. The answer is kept only if it gives the cells of all three byte for byte, and if all three come back, with
the same remainder.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from importlib import import_module
from itertools import permutations
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid5

import bson
import msgspec
from bson.objectid import ObjectId

from migrator.records import EMPTY, Record
from migrator.sources.mapping import native_plan, tables
from migrator.sources.mapping.native_plan import NativeOutline, NativePlan, NativeReader, NativeTable
from migrator.sources.profile import Collection, Context, Document, Rejected, Skipped
from migrator.values import copy_format, identity, jsonb, remainder
from migrator.values import document as documents
from migrator.values.times import format_iso, from_bson

TEXT: Final = "text"
TIME: Final = "time"
JSON: Final = "json"
_LONGEST: Final = 1_000
"""Bytes of a text in a hole: fewer than any index takes."""
_EXTRA: Final = "extra"
_OWN: Final = ("id", "tenant_id", "source_id")
"""Columns of each row that the native codec fills of each document, beside ids of other rows."""
_JSON_NULL: Final = b"null"
"""A field that is null and not absent, in a column of its own."""
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_AT_MARKS: Final = (0, 1, 4, 9, 15, 22, 32, 34)
"""Places of the marks of times: the distance of any two is another one (a Golomb ruler)."""

Filling: TypeAlias = tuple[str, int, int, tuple[bytes | int, ...]]
"""What is in a column (``FILLINGS`` in ``rows.pyx``), its hole, a number or a second hole, and pieces of JSON."""


class Outline(msgspec.Struct, frozen=True, kw_only=True):
    """The holes of the documents of a collection, and what else of each row follows from the document itself."""

    texts: tuple[str, ...]
    times: tuple[str, ...]
    json: tuple[str, ...]
    created: str
    """``table.column`` that holds the time in the ``_id``."""
    parents: Mapping[str, str]
    """``table.column`` to the table whose row's id it holds."""
    shifts: tuple[timedelta, ...] = ()
    """What is added to a time in a column."""

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """Name and role of each hole."""
        roles = ((self.texts, TEXT), (self.times, TIME), (self.json, JSON))
        return tuple((name, role) for names, role in roles for name in names)


class OutlineRows(NamedTuple):
    """The rows of documents of one outline, but for the holes."""

    tables: int
    """Those with a row, as bits."""
    cells: tuple[bytes | None, ...]
    """Of all columns."""
    fillings: tuple[tuple[int, int, int, int, tuple[bytes | int, ...]], ...]
    """Column, number of ``FILLINGS``, hole, a number or a second hole, and pieces."""
    remainder: tuple[bytes, bytes, bytes] | None
    """Nothing, its cell, and itself; None: there is none."""


def native_of(collection: Collection, outline: Outline) -> Callable[[Context], NativeReader | None]:
    """Return ``Collection.native`` of a collection whose documents have outlines."""
    return lru_cache(maxsize=2)(partial(_reader, collection, outline))


def _reader(collection: Collection, outline: Outline, context: Context) -> NativeReader | None:
    return native_plan.reader_for_tenant(context, lambda tenant: _Outlines(collection, outline, context, tenant).plan())


class _Sample(NamedTuple):
    """A document as the Python codec reads and writes it."""

    key: ObjectId
    holes: Mapping[int, Any]
    rows: tuple[type[Record], ...]
    cells: Mapping[str, bytes | None]
    """Of the columns that say something of the document."""
    remainder: bytes


class _Outlines:
    """Answers the native codec's questions about a collection."""

    def __init__(self, collection: Collection, outline: Outline, context: Context, tenant: str) -> None:
        if collection.references or collection.lost or collection.derived or collection.inherited:
            raise ValueError(f"{collection.name}: documents with an outline refer to none, and lose nothing by name")
        self._collection, self._outline, self._context, self._tenant = collection, outline, context, tenant
        self._columns = tuple(
            f"{record.table}.{name}" for record in collection.tables for name in copy_format.codec(record).columns
        )
        self._extra = f"{collection.tables[0].table}.{_EXTRA}"

    def plan(self) -> NativePlan:
        """Return the plan of the collection."""
        outline, records = self._outline, self._collection.tables
        names = [record.table for record in records]
        place = {name: index for index, name in enumerate(self._columns)}
        return NativePlan(
            tables=tuple(
                NativeTable(
                    record=record,
                    cells=(None,) * len(copy_format.codec(record).columns),
                    needed=(),
                    keeps_uuid=False,  # an ObjectId is none
                    namespace=uuid5(identity.ROOT, record.table).bytes,
                    parents=tuple(
                        (place[column], names.index(parent))
                        for column, parent in outline.parents.items()
                        if tables.split(column)[0] == record.table
                    ),
                )
                for record in records
            ),
            steps=(),
            collection=f"\0{self._collection.name}\0".encode(),
            tenant=self._tenant.encode(),
            id_time=place[outline.created],
            outline=NativeOutline(
                fields=tuple((name.encode(), role) for name, role in outline.fields),
                longest=_LONGEST,
                extra=place[self._extra],
                learn=self.learn,
            ),
        )

    def learn(self, raw: bytes, present: Sequence[int]) -> OutlineRows | None:
        """Return the rows of all documents with the outline of one; None: they are for the Python codec."""
        try:
            return self._answer(raw, present)
        except (documents.Undecodable, Rejected, Skipped, copy_format.NulInTextError, bson.errors.BSONError):
            return None
        except (UnicodeEncodeError, OverflowError):
            return None

    def _answer(self, raw: bytes, present: Sequence[int]) -> OutlineRows | None:
        document = documents.decode(raw)
        if documents.encode(document) != raw or not isinstance(document["_id"], ObjectId):
            return None
        samples: list[_Sample] = []
        for holes in self._values(document, present):
            filled = document | {self._outline.fields[index][0]: value for index, value in holes.items()}
            if samples:
                filled["_id"] = ObjectId(f"{0x5F0F_0E0D + 7 * len(samples):08x}{'0f1e2d3c4b5a6978':>016}")
            sample = self._sample(filled, holes)
            if sample is None:
                return None
            samples.append(sample)
        if len({(sample.rows, sample.remainder) for sample in samples}) != 1:
            return None
        return self._common(samples)

    def _values(self, document: Document, present: Sequence[int]) -> Iterator[dict[int, Any]]:
        """Yield the values in the holes of a document, and twice marks for them."""
        held = {index: document[self._outline.fields[index][0]] for index in present}
        kinds = {TEXT: (str,), TIME: (datetime,), JSON: (dict, list)}
        if any(type(value) not in kinds[self._outline.fields[index][1]] for index, value in held.items()):
            raise documents.Undecodable("a value that decoding changes")
        yield held
        ordered = sorted({value for value in held.values() if type(value) is datetime})
        for first, unit in (
            (datetime(2031, 7, 15, 10, 11, 12, 2_000), timedelta(hours=27, minutes=7, seconds=13, milliseconds=17)),  # noqa: DTZ001 - as BSON is decoded
            (datetime(1987, 2, 3, 4, 5, 6), timedelta(minutes=41, seconds=11)),  # noqa: DTZ001 - as above
        ):
            marks: dict[int, Any] = {}
            for index, value in held.items():
                text = f"\ue000{index} {first.year}\ue001"
                match value:
                    case datetime():
                        marks[index] = first + unit * _AT_MARKS[ordered.index(value)]
                    case dict():
                        marks[index] = {text: index}
                    case list():
                        marks[index] = [text]
                    case _:
                        marks[index] = text
            yield marks

    def _sample(self, document: Document, holes: Mapping[int, Any]) -> _Sample | None:
        """Return a document as the Python codec reads it; None if it has a finding, or rows with other ids."""
        collection, key = self._collection, document["_id"]
        decoded = collection.decode(document, self._context)
        if decoded.notes:
            return None
        cells: dict[str, bytes | None] = {}
        ids = {row.table: self._row_id(row.table, key) for row in decoded.rows}
        for row in decoded.rows:
            own = {"id": ids[row.table], "tenant_id": self._tenant, "source_id": identity.source_id(key)}
            for column in copy_format.codec(type(row)).columns:
                name, value = f"{row.table}.{column}", getattr(row, column)
                if column in own or name in self._outline.parents or name == self._outline.created:
                    parent = self._outline.parents.get(name)
                    expected = own.get(column, key.generation_time if parent is None else ids.get(parent))
                    if value != expected:
                        return None
                    continue
                cells[name] = None if value is None else _cell_of(name, value)
                if value is not None and cells[name] is None:
                    return None
        left = self._left(document, collection.encode(decoded.rows))
        return _Sample(key, holes, tuple(map(type, decoded.rows)), cells, left)

    def _row_id(self, table: str, key: ObjectId) -> Any:  # noqa: ANN401 - a UUID
        source_id = identity.source_id(key)
        return identity.row_id(table, self._tenant, self._collection.name, source_id, keep_uuid=False)

    def _left(self, document: Document, rebuilt: Document) -> bytes:
        """Return the remainder of a document."""
        raw = documents.encode(document)
        if any(documents.encode_to([rebuilt, documents.in_order(rebuilt, document)], [raw, raw])):
            return EMPTY
        return remainder.difference(document, rebuilt)

    def _common(self, samples: Sequence[_Sample]) -> OutlineRows | None:
        """Return the answer of which the cells of all samples follow."""
        cells: list[bytes | None] = []
        fillings: list[tuple[int, int, int, int, tuple[bytes | int, ...]]] = []
        numbers = import_module("migrator_speedups.rows").FILLINGS
        for position, column in enumerate(self._columns):
            held = [sample.cells.get(column) for sample in samples]
            cells.append(held[0] if held.count(held[0]) == len(held) else None)
            if cells[-1] != held[0]:
                filling = self._filling(column, samples)
                if filling is None:
                    return None
                operation, *rest = filling
                fillings.append((position, numbers[operation], *rest))
        left = samples[0].remainder
        return OutlineRows(
            tables=sum(1 << index for index, one in enumerate(self._collection.tables) if one in samples[0].rows),
            cells=tuple(cells),
            fillings=tuple(fillings),
            remainder=None
            if left == EMPTY
            else (b"", copy_format.cell(tables.type_of(self._extra), jsonb.as_sent(left)), left),
        )

    def _filling(self, column: str, samples: Sequence[_Sample]) -> Filling | None:
        """Return the filling of a column that differs from document to document; None if it is not certain."""
        marked = samples[1].cells[column]
        if any(sample.cells[column] is None for sample in samples) or marked is None:
            return None
        for filling in self._candidates(column, marked, samples[1].holes):
            if all(_filled(column, filling, sample) == sample.cells[column] for sample in samples):
                return filling
        return None

    def _candidates(self, column: str, cell: bytes, marks: Mapping[int, Any]) -> Iterator[Filling]:
        texts, moments, free = (
            [index for index in marks if self._outline.fields[index][1] == role] for role in (TEXT, TIME, JSON)
        )
        match tables.type_of(column):
            case "text":
                yield from ((operation, index, 0, ()) for operation in ("hole", "labelled") for index in texts)
            case "timestamptz":
                for shift in (timedelta(), *self._outline.shifts):
                    yield from (("moment", index, shift // _MICROSECOND, ()) for index in moments)
            case "int8":
                yield from (("lasted", first, last, ()) for first, last in permutations(moments, 2))
            case "jsonb":
                yield from (("json", index, 0, ()) for index in free)
                spelled = {format_iso(from_bson(marks[index])).encode(): index for index in moments}
                if spelled:
                    parts = re.split(b"(" + b"|".join(map(re.escape, spelled)) + b")", cell)
                    yield ("with-times", 0, 0, tuple(spelled.get(part, part) for part in parts))


def _cell_of(column: str, value: Any) -> bytes | None:  # noqa: ANN401 - the value of a column
    """Return the cell of a value, JSON as the server spells it; None: it is for the Python codec."""
    if value == _JSON_NULL and tables.type_of(column) == "jsonb":
        return b"\x01" + _JSON_NULL
    return native_plan.cell_of(column, value)


def _filled(column: str, filling: Filling, sample: _Sample) -> bytes | None:
    """Return the cell that the native codec makes."""
    operation, hole, second, pieces = filling
    value = sample.holes.get(hole)
    match operation:
        case "hole":
            return str(value).encode()
        case "labelled":
            return f"{value}:{sample.key}".encode()
        case "moment":
            return copy_format.cell("timestamptz", from_bson(sample.holes[hole]) + second * _MICROSECOND)
        case "lasted":
            return copy_format.cell("int8", (sample.holes[second] - sample.holes[hole]) // _MILLISECOND)
        case "json":
            return _cell_of(column, jsonb.encode(value))
        case _:
            times = {index: held for index, held in sample.holes.items() if type(held) is datetime}
            return b"".join(
                part if isinstance(part, bytes) else format_iso(from_bson(times[part])).encode() for part in pieces
            )
