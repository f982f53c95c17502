"""The converters of the mapping language: for each, what is read, what is written, and what is counted apart.

``reader`` gives the function from the value of a field to that of a column, ``writer`` the inverse. A reader
raises ``Rejected`` for a value that the column cannot hold. What a writer does not give back exactly is remainder.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

from bson.int64 import Int64

from migrator.cron.zones import resolve
from migrator.sources.mapping import tables
from migrator.sources.mapping.language import MILLISECONDS, Field
from migrator.sources.profile import Rejected
from migrator.sources.shapes import Moment, indexed, plain, unknown_value
from migrator.values import jsonb
from migrator.values.times import format_iso, to_bson

Reader: TypeAlias = Callable[[Any], Any]
Writer: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = int | float | None
_PER_SECOND: Final = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000}
_LARGEST_DOUBLE: Final = 2.0**63

SHAPES: Final[Mapping[str, Any]] = {
    "text": str | None,
    "words": str | None,
    "cron": str | None,
    "zone": str | None,
    "tenant": str | None,
    "number": _NUMBER,
    "duration": _NUMBER,
    "flag": bool | None,
    "texts": list[str] | None,
    "json": Any,
    "reference": Any,
}
"""Converter to the type of a field, as ``shapes.read`` checks it; that of a time depends on its encoding."""

COLUMN_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text"}),
    "cron": frozenset({"text"}),
    "zone": frozenset({"text"}),
    "tenant": frozenset(),
    "number": frozenset({"int2", "int4", "int8"}),
    "words": frozenset({"text", "int2", "int4", "int8"}),
    "duration": frozenset({"int8"}),
    "flag": frozenset({"bool"}),
    "texts": frozenset({"text[]"}),
    "json": frozenset({"jsonb"}),
    "reference": frozenset({"uuid"}),
    "time": frozenset({"timestamptz"}),
}
"""Converter to the types of columns that it fills."""


def shape_of(field: Field) -> Any:  # noqa: ANN401 - an annotation
    """Return the type of a field, as ``shapes.read`` checks it."""
    if field.converter == "words" and field.type is not None:
        return _NUMBER
    if field.converter == "time":
        return Moment if field.encoding in ("date", "iso") else _NUMBER
    return SHAPES[field.converter]


def reader(field: Field, column: str) -> Reader:
    """Return the function that reads a field for this column (``table.column``)."""
    return _READERS[field.converter](field, column)


def writer(field: Field) -> Writer:
    """Return the function that writes a field from its first column."""
    return _WRITERS[field.converter](field)


def _unchanged(value: Any) -> Any:  # noqa: ANN401 - any value
    return value


def _text_reader(field: Field, column: str) -> Reader:
    checked, path = indexed if column in tables.INDEXED else plain, field.path
    return lambda value: checked(value, path)


def _texts_reader(field: Field, column: str) -> Reader:
    checked, path = indexed if column in tables.INDEXED else plain, f"{field.path}[]"
    return lambda value: tuple(checked(item, path) for item in value)


def _zone_reader(field: Field, _column: str) -> Reader:
    return lambda value: resolve(plain(value, field.path))


def _words_reader(field: Field, _column: str) -> Reader:
    words, path = field.words, field.path
    word_of = _spelled if field.type is not None else partial(plain, path=path)

    def read(value: Any) -> Any:  # noqa: ANN401 - a word, or a number
        found = words.get(word_of(value))
        if found is None:
            raise unknown_value(path, tuple(words))
        return found

    return read


def _time_reader(field: Field, _column: str) -> Reader:
    if field.encoding in ("date", "iso"):
        return _unchanged
    unit, path = field.encoding, field.path

    def read(value: float) -> datetime:
        try:
            return _EPOCH + timedelta(**{unit: value})
        except (OverflowError, ValueError):
            raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None

    return read


def _time_writer(field: Field) -> Writer:
    if field.encoding == "date":
        return to_bson
    if field.encoding == "iso":
        return format_iso
    per_second = _PER_SECOND[field.encoding]
    number = _NUMBERS[field.type or ("double" if field.encoding == "seconds" else "long")]
    microsecond = timedelta(microseconds=1)
    return lambda value: number((value - _EPOCH) / microsecond / (1_000_000 // per_second))


def _number_reader(field: Field, column: str) -> Reader:
    """Read a whole number; a duration in some unit is rounded to milliseconds."""
    least, most = tables.bounds_of(column)
    is_duration, path = field.converter == "duration", field.path
    factor = MILLISECONDS[field.unit] if is_duration else 1

    def read(value: float) -> int:
        scaled = value * factor
        if not least <= scaled <= most or scaled >= _LARGEST_DOUBLE:
            raise Rejected("out-of-range", path, f"a number from {least} to {most}")
        whole = round(scaled)
        if whole != scaled and not is_duration:
            raise Rejected("wrong-type", path, "a whole number")
        return whole

    return read


def _spelled(value: float) -> str:
    """Return a number as ``words`` spells it; what is no whole number is no word."""
    return str(int(value)) if value == value // 1 and abs(value) < _LARGEST_DOUBLE else ""


def _words_writer(field: Field) -> Writer:
    number = _NUMBERS[field.type] if field.type is not None else None
    written: dict[Any, Any] = {}
    for source, target in field.words.items():
        written.setdefault(target, source if number is None else number(int(source)))
    return written.get


def _number_writer(field: Field) -> Writer:
    number = _NUMBERS[field.type or "int"]
    if field.converter == "number":
        return number
    factor = MILLISECONDS[field.unit]
    return lambda value: number(value / factor)


_NUMBERS: Final[Mapping[str, Callable[[float], Any]]] = {
    "int": lambda value: round(value) if value == round(value) else value,
    "long": lambda value: Int64(round(value)) if value == round(value) else value,
    "double": float,
}
"""BSON type to the function that writes a number; one with a fraction is a double."""

_READERS: Final[Mapping[str, Callable[[Field, str], Reader]]] = {
    "text": _text_reader,
    "cron": _text_reader,
    "words": _words_reader,
    "time": _time_reader,
    "number": _number_reader,
    "duration": _number_reader,
    "texts": _texts_reader,
    "zone": _zone_reader,
    "json": lambda _field, _column: jsonb.encode,
    "flag": lambda _field, _column: _unchanged,
    "reference": lambda _field, _column: _unchanged,
}

_WRITERS: Final[Mapping[str, Callable[[Field], Writer]]] = {
    "words": _words_writer,
    "time": _time_writer,
    "number": _number_writer,
    "duration": _number_writer,
    "texts": lambda _field: list,
    "json": lambda _field: jsonb.decode,
} | dict.fromkeys(("text", "cron", "zone", "flag", "reference", "tenant"), lambda _field: _unchanged)
