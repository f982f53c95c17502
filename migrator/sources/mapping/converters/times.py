"""Converters of times."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId

from migrator import cron
from migrator.sources import aggregates
from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    Aggregate,
    Converter,
    OfAnyId,
    Operation,
    Reader,
    Target,
    Uncounted,
    Unplannable,
    Writer,
    always,
    column_name,
    no_operation,
    value_at,
)
from migrator.sources.mapping.converters.numbers import NUMBER, NUMBER_TYPES, NUMBERS
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Rejected
from migrator.sources.shapes import Moment, plain
from migrator.sources.table_columns import Timestamp, Timestamptz
from migrator.values import table_row
from migrator.values.times import format_iso, format_javascript, instant_of, parse_iso, to_bson, wall_clock

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS: Final = ("date", "iso", "iso-z")
"""Each of them is read where one of them is the encoding."""
_PER_SECOND: Final[Mapping[str, int]] = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000}
_TYPES: Final[Mapping[str, Any]] = dict.fromkeys(_TEXTS, Moment) | {
    "timestamptz": Timestamptz | None,
    "timestamp": Timestamp | None,
    "milliseconds-text": str | None,
}
_READ_BY_SHAPE: Final = (*_TEXTS, "timestamptz", "timestamp")
_TIMESTAMPTZ: Final = frozenset({"timestamptz"})
_ID_SECONDS: Final = 4
"""Bytes of an ObjectId that hold its time."""
_digits = re.compile(r"-?[0-9]{1,16}").fullmatch
_OUTSIDE: Final = "a time in the years 1 to 9999"


class Time(Converter):
    """An instant, in one of the encodings of ``Encoding``."""

    name = "time"
    column_types = _TIMESTAMPTZ
    options = ("also", "encoding", "type", "local", "zone", "write_null")

    def shape(self, field: Field, /) -> Any:
        return _TYPES.get(field.encoding, NUMBER)

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field
        if field.zone:
            return _local_reader(field)
        if field.encoding in _READ_BY_SHAPE:
            return None
        unit, path = field.encoding.removesuffix("-text"), field.path
        is_text = unit != field.encoding

        def read(value: Any, _reading: Reading) -> datetime | None:
            if value == "":
                return None  # how Hangfire writes a time that is not set
            if is_text and not _digits(value):
                return _instant(value, path)
            try:
                return _EPOCH + timedelta(**{unit: int(value) if is_text else value})
            except (OverflowError, ValueError):
                raise Rejected("bad-date", path, _OUTSIDE) from None

        return read

    def writer(self, field: Field, /) -> Writer | None:
        if field.zone:
            zone = cron.zone(field.zone)[0]
            return lambda value: to_bson(wall_clock(value, zone))
        if field.encoding in _WRITERS:
            return _WRITERS[field.encoding]
        microseconds = 1_000_000 // _PER_SECOND[field.encoding]
        number = NUMBERS[field.type or ("double" if field.encoding == "seconds" else "long")]
        microsecond = timedelta(microseconds=1)
        return lambda value: number((value - _EPOCH) / microsecond / microseconds)

    def aggregate(self, field: Field, value: Any, sql: str, _default: Any, /) -> Aggregate | None:
        if field.zone:
            return None  # no server computes it as the codec does
        if field.encoding == "milliseconds-text":
            other = aggregates.milliseconds(value)
            expression: Any = {"$convert": {"input": value, "to": "long", "onError": other, "onNull": None}}
            parsed = f"trunc(extract(epoch from nullif({sql}, '')::timestamptz) * 1000)::bigint"
            source_sql = f"CASE WHEN ({sql}) ~ '^-?[0-9]+$' THEN ({sql})::bigint ELSE {parsed} END"
        elif field.encoding in _PER_SECOND:
            factor = 1_000_000 // _PER_SECOND[field.encoding]
            micros = {"$round": [{"$multiply": [aggregates.number(value), factor]}, 0]}
            expression = {"$toLong": {"$trunc": [{"$divide": [micros, 1_000]}, 0]}}
            source_sql = f"trunc(round(({sql})::numeric * {factor}) / 1000)::bigint"
        else:
            expression = aggregates.milliseconds(value)
            zone = " AT TIME ZONE 'UTC'" if field.encoding == "timestamp" else "::timestamptz"
            source_sql = f"trunc(extract(epoch from ({sql}){zone}) * 1000)::bigint"
        return _aggregate(field, expression, source_sql)

    def operation(self, field: Field, /) -> Operation:
        if field.encoding in _TEXTS:
            return Operation(name=field.encoding, options=frozenset({"encoding", "type"}))
        if field.encoding not in _PER_SECOND:
            raise Unplannable("a time in a text, or in a column")
        number = NUMBER_TYPES[field.type or ("double" if field.encoding == "seconds" else "long")]
        step = {"per_second": _PER_SECOND[field.encoding], "number": number}
        return Operation(name="epoch", options=frozenset({"encoding", "type"}), step=step)


def _local_reader(field: Field) -> Reader:
    """Return the function that reads a BSON date as the local time of the field's zone; a text says what it means."""
    zone, paths = cron.zone(field.zone)[0], [path.split(".") for path in (field.path, *field.also)]

    def read(value: datetime, reading: Reading) -> datetime:
        stored = next((held for path in paths if (held := value_at(reading.document, path)) is not None), None)
        if isinstance(stored, str):
            return value
        try:
            return instant_of(value, zone)
        except OverflowError:
            raise Rejected("bad-date", field.path, _OUTSIDE) from None

    return read


class Milliseconds(Uncounted):
    """A BSON date, of which the column holds the milliseconds since 1970."""

    name = "milliseconds"
    column_types = frozenset({"int8"})
    options = ("also", "default", "write_null")
    place = "fields"
    shape = always(Any)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path

        def read(value: object, _reading: Reading) -> int:
            if isinstance(value, DatetimeMS):
                return int(value)
            if not isinstance(value, datetime):
                raise Rejected("wrong-type", path, "date")
            return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: int) -> datetime | DatetimeMS:
            try:
                return (_EPOCH + timedelta(milliseconds=value)).replace(tzinfo=None)
            except OverflowError:
                return DatetimeMS(value)

        return write


class ClockSpan(Uncounted):
    """Two times of day, each a document of hour, minute and second, as six numbers with commas between them."""

    name = "clock-span"
    column_types = frozenset({"text"})
    options = ("time",)
    needed = ("time",)
    place = "fields"
    shape = always(Any)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        path, until = target.field.path, target.field.time

        def read(value: object, reading: Reading) -> str:
            end = value_at(reading.document, until.split("."))
            return f"{_clock(value, path)},{',,,' if end is None else _clock(end, until)}"

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return lambda value: _clock_document(value.split(",")[:3])


class ClockEnd(Uncounted):
    """The second time of day of a ``ClockSpan``."""

    name = "clock-end"
    column_types = frozenset({"text"})
    options: tuple[str, ...] = ()
    in_files = False
    shape = always(Any)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        begin, table_column = target.field.time, tables.split(target.column)

        def read(_value: object, reading: Reading) -> None:
            if (
                table_column[1] not in reading.columns[table_column[0]]
                and value_at(reading.document, begin.split(".")) is None
            ):
                raise Rejected("missing-field", begin, "the time of day with which the span begins")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return lambda value: _clock_document(value.split(",")[3:6])


_CLOCK: Final[Mapping[str, int]] = {"hour": 24, "minute": 60, "second": 60}


def _clock(value: object, path: str) -> str:
    held = [value.get(name) if isinstance(value, dict) else None for name in _CLOCK]
    numbers = [
        number
        for number, end in zip(held, _CLOCK.values(), strict=True)
        if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < end
    ]
    if len(numbers) != len(_CLOCK):
        raise Rejected("wrong-type", path, "a time of day: hour, minute and second, as whole numbers")
    return ",".join(str(int(number)) for number in numbers)


def _clock_document(numbers: Sequence[str]) -> dict[str, int] | None:
    try:
        return {name: int(number) for name, number in zip(_CLOCK, numbers, strict=True)}
    except ValueError:
        return None  # the library has written no such time


class IdTime(OfAnyId):
    """The time in an ``_id`` that is an ObjectId."""

    name = "id-time"
    column_types = _TIMESTAMPTZ

    def reader(self, target: Target, /) -> Reader | None:
        table, name = tables.split(target.column)
        path, needed = target.field.path, name in tables.needed_columns(table)

        def read(value: object, _reading: Reading) -> datetime | None:
            if isinstance(value, ObjectId):
                return datetime.fromtimestamp(int.from_bytes(value.binary[:_ID_SECONDS], "big"), UTC)
            if needed:
                raise Rejected("wrong-type", path, "an ObjectId, which holds a time")
            return None

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return None

    def aggregate(self, field: Field, value: Any, _sql: str, _default: Any, /) -> Aggregate | None:
        is_id = {"$eq": [{"$type": value}, "objectId"]}
        return _aggregate(field, {"$cond": [is_id, {"$toLong": {"$toDate": value}}, None]}, "")

    def operation(self, field: Field, /) -> Operation:
        return Operation(name=field.converter)


_WRITERS: Final[Mapping[str, Writer]] = {
    "date": to_bson,
    "iso": format_iso,
    "iso-z": format_javascript,
    "milliseconds-text": lambda value: str((value - _EPOCH) // timedelta(milliseconds=1)),
    "timestamptz": table_row.time,
    "timestamp": lambda value: table_row.time(value.astimezone(UTC).replace(tzinfo=None)),
}
"""Encodings of which no option changes what is written."""


def _aggregate(field: Field, expression: Any, source_sql: str) -> Aggregate:
    """Return the aggregate of a time in whole milliseconds since 1970."""
    column, reading = column_name(field), aggregates.READING
    return Aggregate(kind="time", expression=expression, sql=column, source_sql=source_sql, reading=reading)


def _instant(value: str, path: str) -> datetime:
    """Read the other spelling of ``milliseconds-text``, which older releases of a scheduler may have written."""
    try:
        return parse_iso(plain(value, path))
    except ValueError:
        expected = "milliseconds since 1970 as a text of digits, or an ISO 8601 text with an offset"
        raise Rejected("bad-date", path, expected) from None
