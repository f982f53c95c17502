"""The native codec's questions about pickled jobs: what the columns of many jobs hold, answered by the Python codec.

Jobs with the same function, trigger and options have pickles of one skeleton: they differ in their holes, which are the
id, the name, values among the arguments, and the next run (``migrator_speedups.pickled_jobs``). For each skeleton that
comes again, the Python codec reads the pickle twice: as it is, and with a mark in each hole. Where a column holds a
mark, it holds the value. The answer is kept only if the columns of the pickle as it is follow from it, byte for byte.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid5

import bson
from bson.binary import Binary

from migrator import constraints
from migrator.records import Record, Schedule, Trigger
from migrator.sources import pickles
from migrator.sources.apscheduler import jobs
from migrator.sources.mapping import native_plan
from migrator.sources.mapping.native_plan import NULL, NativeJobs, NativePlan, NativeReader, NativeStep, NativeTable
from migrator.sources.pickled_values import Zone, instant_of
from migrator.sources.pickles import Made, PickledDict
from migrator.sources.profile import Context, Document, Rejected
from migrator.values import copy_format, identity, jsonb
from migrator.values.times import format_iso

_TABLES: Final[tuple[type[Record], ...]] = (Schedule, Trigger)
_RECORDS: Final = {record.table: record for record in _TABLES}
_COLUMNS: Final = tuple(f"{record.table}.{name}" for record in _TABLES for name in copy_format.codec(record).columns)
_BY_DOCUMENT: Final = frozenset(
    {
        *(f"{record.table}.{name}" for record in _TABLES for name in ("id", "tenant_id", "source_id")),
        *("triggers.schedule_id", "triggers.next_fire_at", "schedules.metadata"),
    }
)
"""Columns that the native codec fills of each document, and that none of its answers holds."""
_NAME: Final = "schedules.name"
_PAYLOAD: Final = "schedules.payload"
_SPECIFICATION: Final = "triggers.source_spec"
_TIMES: Final = {"start_date": "start_at", "end_date": "end_at", "run_date": "run_at"}
"""Times of a trigger as the library names them, and their columns."""

_ID, _, _TEXT, _WHOLE, _DUE, _, _MOMENT = range(1, 8)
"""What a hole is (``Role`` in ``pickled_jobs.pyx``)."""
_OTHER_TIMES: Final = (b"\x07\xef\x07\x0f\x0a\x0b\x0c\x02\x01\x57", b"\x07\xf0\x02\x0d\x05\x06\x07\x00\x00\x00")
"""Packed times of 2031 and 2032, of which one is a mark."""
_FIRST_MARK: Final = 4_611_000_000_000_000_001
"""A whole number that nobody writes, and those after it."""
_BEFORE: Final = (b" ", b"[")
_AFTER: Final = (b",", b"}", b"]")
"""What stands around a value in JSON as the server spells it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SAMPLES: Final = (
    *(bytes((minute, 0, 0, 0, 0)) for minute in range(0, 60, 5)),
    bytes((59, 59)) + (999_999).to_bytes(3, "big"),
)
"""Times within an hour, packed: a zone that changes within it shows two offsets, since none changes for minutes."""

Payload: TypeAlias = bytes | tuple[bytes | int, ...]
"""The cell, or pieces of it with the positions of holes between them."""
ZoneKey: TypeAlias = int | str
"""Microseconds east of UTC, or the name of a zone."""


class Moment(NamedTuple):
    """A time of a trigger that differs from job to job."""

    hole: int
    zone: ZoneKey
    column: int
    specification: tuple[bytes, bytes]
    """What stands before it and after it in the cell of the trigger's specification."""


class Answer(NamedTuple):
    """What jobs of one skeleton have in common; a hole is its position."""

    cells: tuple[bytes | None, ...]
    """Of all columns."""
    name: int
    """The hole that is the name; -1: it is among the cells."""
    payload: Payload
    due: tuple[int, ZoneKey] | None
    """Hole and zone of the next run."""
    moment: Moment | None


class Hole(NamedTuple):
    """A value of a pickle that differs from job to job."""

    start: int
    """Of its opcode."""
    stop: int
    role: int


@lru_cache(maxsize=2)
def reader(context: Context) -> NativeReader | None:
    """Return the native codec of jobs; None where the Python codec takes all of them."""
    return native_plan.reader_for_tenant(context, lambda tenant: _plan(tenant, context))


def _plan(tenant: str, context: Context) -> NativePlan:
    place = {name: index for index, name in enumerate(_COLUMNS)}
    skeletons = _Skeletons(context)
    return NativePlan(
        tables=tuple(
            NativeTable(
                record=record,
                cells=(None,) * len(copy_format.codec(record).columns),
                needed=(),
                keeps_uuid=True,
                namespace=uuid5(identity.ROOT, record.table).bytes,
                made_by=(place["triggers.kind"],) if record is Trigger else (),
                parents=((place["triggers.schedule_id"], 0),) if record is Trigger else (),
            )
            for record in _TABLES
        ),
        steps=(
            NativeStep(key=b"next_run_time", operation="due", column=place["triggers.next_fire_at"], null_as=NULL),
            NativeStep(
                key=b"job_state",
                operation="pickled-job",
                column=place["schedules.metadata"],
                required=True,
                longest=constraints.LONGEST_KEY,
            ),
        ),
        collection=f"\0{jobs.JOBS}\0".encode(),
        tenant=tenant.encode(),
        expected=_TABLES.index(Trigger),
        jobs=NativeJobs(
            steps=(1, 0),
            columns=(
                place[_NAME],
                place[_PAYLOAD],
                place["schedules.metadata"],
                place["triggers.next_fire_at"],
                place[_SPECIFICATION],
            ),
            learn=skeletons.learn,
            offset=skeletons.offset,
        ),
    )


class _Skeletons:
    """Answers the native codec's questions."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._zones: dict[str, Made] = {}
        """Zones by their name, as a pickle holds them."""

    def learn(
        self, pickle: bytes, holes: Sequence[tuple[int, int, int]], key: bytes, due: int | None
    ) -> tuple[Any, ...] | None:
        """Return an ``Answer`` about a skeleton as plain tuples; None: its pickles are for the Python codec.

        ``due``: the next run of the document, in microseconds since 1970.
        """
        try:
            answer = self._answer(pickle, [Hole(*one) for one in holes], key.decode(), due)
        except (Rejected, UnicodeError, OverflowError, copy_format.NulInTextError, bson.errors.BSONError):
            return None
        return None if answer is None else tuple(tuple(part) if isinstance(part, tuple) else part for part in answer)

    def _answer(self, pickle: bytes, holes: Sequence[Hole], key: str, due: int | None) -> Answer | None:
        times = self._times_in(pickle, holes, due) if pickles.is_common(pickle) else None
        if times is None:
            return None
        marks = [_mark_of(pickle, index, hole) for index, hole in enumerate(holes)]
        [marked_key] = [str(mark) for mark, hole in zip(marks, holes, strict=True) if hole.role == _ID]
        marked = self._cells(_with(pickle, holes, marks), marked_key, times.marked_due(marks, due))
        plain = self._cells(pickle, key, due)
        if marked is None or plain is None:
            return None
        moment = times.taken(marks, pickle, holes, marked, plain)
        values = [_value_in(pickle, hole) for hole in holes]
        payload = _pieces(marked.pop(_PAYLOAD) or b"", marks, holes)
        if payload is None or _filled(payload, values) != plain.pop(_PAYLOAD):
            return None
        name = next((index for index, mark in enumerate(marks) if str(mark).encode() == marked[_NAME]), -1)
        if name >= 0:
            marked[_NAME] = str(values[name]).encode()
        if marked != plain or (moment is None) != (times.moment is None):
            return None
        cells = tuple(None if column == _NAME and name >= 0 else plain.get(column) for column in _COLUMNS)
        return Answer(cells, name, payload, times.due, moment)

    def _cells(self, pickle: bytes, key: str, due: int | None) -> dict[str, bytes | None] | None:
        """Return the cells of a job's rows; None for one that has a finding, or no trigger."""
        moment = None if due is None else jobs.seconds_of(_EPOCH + timedelta(microseconds=due))
        document: Document = {"_id": key, "next_run_time": moment, "job_state": Binary(pickle, 0)}
        decoded = jobs.decode(document, self._context)
        if decoded.notes or [type(row) for row in decoded.rows] != [*_TABLES]:
            return None
        cells: dict[str, bytes | None] = {}
        for row in decoded.rows:
            for column in copy_format.codec(type(row)).columns:
                name, value = f"{row.table}.{column}", getattr(row, column)
                if name in _BY_DOCUMENT:
                    continue
                cells[name] = None if value is None else _cell_of(name, value)
                if value is not None and cells[name] is None:
                    return None
        return cells

    def _times_in(self, pickle: bytes, holes: Sequence[Hole], due: int | None) -> "_Times | None":
        """Return the times of a job that are in holes; None if it is not certain what they say."""
        state = pickles.read(pickle)
        members = state.named() if isinstance(state, PickledDict) else {}
        positions = {hole.role: index for index, hole in enumerate(holes)}
        moment = positions.get(_MOMENT)
        next_run = None
        if due is not None:
            hole = positions.get(_DUE, moment)
            zone = None if hole is None else self._zone_of(members["next_run_time"], _packed_in(pickle, holes[hole]))
            if hole is None or zone is None:
                return None
            next_run = (hole, zone)
        if moment is None:
            return _Times(next_run, None, None, None, "")
        trigger = members["trigger"]
        held = trigger.state.named() if isinstance(trigger, Made) and isinstance(trigger.state, PickledDict) else {}
        for name, column in _TIMES.items():
            zone = self._zone_of(held.get(name), _packed_in(pickle, holes[moment]))
            if zone is not None:
                return _Times(next_run, moment, zone, held[name].arguments[1], f"triggers.{column}")
        return None

    def _zone_of(self, moment: object, packed: bytes) -> ZoneKey | None:
        """Return the zone of a time with these packed bytes; None for something else."""
        match moment:
            case Made(name="datetime.datetime", arguments=(bytes() as found, Made() as place)) if found == packed:
                instant_of(moment, "")
                zone = place.meaning
                if not isinstance(zone, Zone):
                    return None
                if zone.offset is not None:
                    return zone.offset // _MICROSECOND
                if zone.name is not None:
                    self._zones.setdefault(zone.name, place)
                return zone.name
        return None

    def offset(self, zone: str, hour: bytes) -> int | None:
        """Return how far east of UTC a zone is in an hour of its clock, in microseconds; None if that changes in it.

        ``hour``: the first bytes of a packed time, which say whether the hour is the second one of its name.
        """
        place = self._zones[zone]
        offsets: set[timedelta] = set()
        try:
            for rest in _SAMPLES:
                moment = Made("datetime.datetime", (hour + rest, place))
                local = datetime(
                    hour[0] << 8 | hour[1],
                    hour[2] & 0x7F,
                    hour[3],
                    hour[4],
                    rest[0],
                    rest[1],
                    int.from_bytes(rest[2:], "big"),
                    tzinfo=UTC,
                )
                offsets.add(local - instant_of(moment, ""))
        except (Rejected, ValueError, OverflowError):
            return None
        return offsets.pop() // _MICROSECOND if len(offsets) == 1 else None


class _Times(NamedTuple):
    """The times of a job that are in holes."""

    due: tuple[int, ZoneKey] | None
    moment: int | None
    zone: ZoneKey | None
    place: Made | None
    """Of the moment: its zone as the pickle holds it."""
    column: str

    def _instant(self, packed: bytes) -> datetime:
        return instant_of(Made("datetime.datetime", (packed, self.place)), "")

    def marked_due(self, marks: Sequence[Any], due: int | None) -> int | None:
        """Return the next run of a job with marks in its holes: a trigger that fires once may hold it."""
        if self.due is None or self.due[0] != self.moment:
            return due
        return (self._instant(marks[self.moment]) - _EPOCH) // _MICROSECOND

    def taken(
        self,
        marks: Sequence[Any],
        pickle: bytes,
        holes: Sequence[Hole],
        marked: dict[str, bytes | None],
        plain: dict[str, bytes | None],
    ) -> Moment | None:
        """Take the cells that say the moment; None if they do not say it alone."""
        if self.moment is None or self.zone is None:
            return None
        mark, value = self._instant(marks[self.moment]), self._instant(_packed_in(pickle, holes[self.moment]))
        if (marked.pop(self.column), plain.pop(self.column)) != (
            copy_format.cell("timestamptz", mark),
            copy_format.cell("timestamptz", value),
        ):
            return None
        before, found, after = (marked.pop(_SPECIFICATION) or b"").partition(format_iso(mark).encode())
        if not found or format_iso(mark).encode() in after:
            return None
        if plain.pop(_SPECIFICATION) != before + format_iso(value).encode() + after:
            return None
        return Moment(self.moment, self.zone, _COLUMNS.index(self.column), (before, after))


def _cell_of(column: str, value: Any) -> bytes | None:  # noqa: ANN401 - the value of a column
    """Return the cell of a value, JSON as the server spells it; None: it is for the Python codec."""
    if column.partition(".")[2] not in copy_format.codec(_RECORDS[column.partition(".")[0]]).json:
        return native_plan.cell_of(column, value)
    text = _json_of(jsonb.decode(value))
    return None if text is None else b"\x01" + text


def _json_of(value: Any) -> bytes | None:  # noqa: ANN401 - any JSON
    """Return a value as the server spells it in JSON: of an object the shortest keys first."""
    match value:
        case None:
            return b"null"
        case dict():
            members = sorted((len(name.encode()), _json_of(name) or b"", _json_of(value[name])) for name in value)
            return _joined(b"{", [None if text is None else name + b": " + text for _, name, text in members], b"}")
        case list():
            return _joined(b"[", [_json_of(item) for item in value], b"]")
    held = native_plan.value_of(value)
    text: bytes | None = import_module("migrator_speedups.json_text").json_of(held[0], held[1:])
    return text


def _joined(begin: bytes, parts: Sequence[bytes | None], end: bytes) -> bytes | None:
    texts = [part for part in parts if part is not None]
    return begin + b", ".join(texts) + end if len(texts) == len(parts) else None


def _packed_in(pickle: bytes, hole: Hole) -> bytes:
    return pickle[hole.start + 2 : hole.stop]


def _mark_of(pickle: bytes, index: int, hole: Hole) -> str | int | bytes:
    if hole.role == _MOMENT:
        return next(packed for packed in _OTHER_TIMES if packed != _packed_in(pickle, hole))
    return _FIRST_MARK + index if hole.role == _WHOLE else f"\ue000{index}\ue001"


def _with(pickle: bytes, holes: Sequence[Hole], marks: Sequence[str | int | bytes]) -> bytes:
    """Return the pickle with a mark in each hole but the next run."""
    parts, at = [], 0
    for hole, mark in zip(holes, marks, strict=True):
        if hole.role == _DUE:
            continue
        parts.append(pickle[at : hole.start])
        match mark:
            case bytes():
                parts.append(b"C" + bytes([len(mark)]) + mark)  # SHORT_BINBYTES
            case int():
                parts.append(b"\x8a\x08" + mark.to_bytes(8, "little"))  # LONG1
            case str():
                text = mark.encode()
                parts.append(b"\x8c" + bytes([len(text)]) + text)  # SHORT_BINUNICODE
        at = hole.stop
    return b"".join((*parts, pickle[at:]))


def _value_in(pickle: bytes, hole: Hole) -> str | int | None:
    """Return the text or the number in a hole; None for a time."""
    if hole.role in (_DUE, _MOMENT):
        return None
    code, held = pickle[hole.start : hole.start + 1], pickle[hole.start + 1 : hole.stop]
    if hole.role == _WHOLE:
        return int.from_bytes(held, "little", signed=code == b"J")
    return held[1 if code == b"\x8c" else 4 :].decode()


def _pieces(payload: bytes, marks: Sequence[str | int | bytes], holes: Sequence[Hole]) -> Payload | None:
    """Return the payload with the position of a hole wherever its mark is; None if a mark is no value, or nowhere."""
    places: list[tuple[int, int, int]] = []
    for index, (mark, hole) in enumerate(zip(marks, holes, strict=True)):
        if hole.role in (_DUE, _MOMENT):
            continue
        text = _json_of(mark)
        if text is None:
            return None
        start = payload.find(text)
        if start < 0 and hole.role in (_TEXT, _WHOLE):
            return None
        while start >= 0:
            stop = start + len(text)
            if payload[stop : stop + 1] not in _AFTER or payload[start - 1 : start] not in _BEFORE:
                return None
            places.append((start, stop, index))
            start = payload.find(text, stop)
    pieces: list[bytes | int] = []
    at = 0
    for start, stop, index in sorted(places):
        pieces += [payload[at:start], index]
        at = stop
    return (*pieces, payload[at:]) if pieces else payload


def _filled(payload: Payload, values: Sequence[str | int | None]) -> bytes | None:
    """Return the payload with values in its holes."""
    if isinstance(payload, bytes):
        return payload
    parts = [piece if isinstance(piece, bytes) else _json_of(values[piece]) for piece in payload]
    return None if None in parts else b"".join(part for part in parts if part is not None)
