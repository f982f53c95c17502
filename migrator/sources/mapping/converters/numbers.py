"""Converters of numbers, of lengths of time, and of flags."""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final

import msgspec
from bson.int64 import Int64

from migrator.constraints import COUNTERS
from migrator.sources import aggregates
from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    Aggregate,
    Converter,
    Operation,
    Reader,
    Same,
    Target,
    Uncounted,
    Unplannable,
    Writer,
    always,
    column_name,
    memo,
    value_at,
    written_words,
)
from migrator.sources.mapping.language import MILLISECONDS, Field, Reading
from migrator.sources.profile import ROUNDED, Note, Rejected
from migrator.sources.shapes import Int16, Int32, Shape, plain, unknown_value
from migrator.sources.shapes import Int64 as Long

NUMBER: Final = int | float | None
LARGEST_DOUBLE: Final = 2.0**63
NUMBERS: Final[Mapping[str, Callable[[float], Any]]] = {
    "int": lambda value: round(value) if value % 1 == 0 else value,
    "long": lambda value: Int64(round(value)) if value % 1 == 0 else value,
    "double": float,
}
"""BSON type to the function that writes a number; one with a fraction, or without an end, is a double."""
NUMBER_TYPES: Final = {"int": 0x10, "long": 0x12, "double": 0x01}
"""To the byte that BSON has for the type."""

_WIDTHS: Final = {"int2": 2, "int4": 4, "int8": 8}
_SIZED: Final[tuple[tuple[Any, int], ...]] = ((Int16, 15), (Int32, 31), (Long, 63))
_EXACT: Final = 2**53
_real: Final = Struct("!f")


def none_of(field: Field) -> Any:
    """Return the value that is written for a column that holds nothing; None if nothing is written."""
    return None if field.null_value is None else NUMBERS[field.type or "int"](field.null_value)


def number_step(field: Field, least: int, most: int, *, sized: bool) -> Mapping[str, Any]:
    """Return the parameters of the operation ``number``; ``sized``: a double is for the Python codec."""
    if len(field.columns) > 1:
        raise Unplannable("a number in several columns")
    width = _WIDTHS[tables.type_of(field.columns[0])]
    number = NUMBER_TYPES[field.type or "int"]
    return {"least": least, "most": most, "width": width, "number": number, "sized": sized, "none": field.null_value}


def whole_reader(target: Target, factor: float, *, add: float = 0, rounds: bool = False) -> Reader:
    """Return the function that reads a whole number, factor * value + add; ``rounds``: a fraction is rounded."""
    least, most = tables.bounds_of(target.column)
    path, clamp, none = target.field.path, target.field.clamp, target.field.null_value

    def read(value: float, reading: Reading) -> int | None:
        if value == none:
            return None
        scaled = value * factor + add
        if not least <= scaled <= most or scaled >= LARGEST_DOUBLE:
            if not clamp or scaled != scaled:  # noqa: PLR0124 - only NaN is not itself
                raise Rejected("out-of-range", path, f"a number from {least} to {most}")
            reading.notes.append(Note("clamped", path))
            return least if scaled < least else most
        whole = round(scaled)
        if whole != scaled and not rounds:
            raise Rejected("wrong-type", path, "a whole number")
        return whole

    return read


class Number(Converter):
    """A whole number."""

    name = "number"
    column_types = frozenset({"int2", "int4", "int8"})
    options = ("also", "type", "factor", "add", "clamp", "null_value", "default", "write_default", "write_null")
    shape = always(NUMBER)

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field
        if field.shape is not None and target.column not in COUNTERS:
            return None  # its type has its bounds
        return whole_reader(target, field.factor, add=field.add, rounds=field.factor != 1)

    def writer(self, field: Field, /) -> Writer | None:
        number, factor, add = NUMBERS[field.type or "int"], field.factor, field.add
        return number if (factor, add) == (1, 0) else lambda value: number((value - add) / factor)

    def aggregate(self, field: Field, value: Any, sql: str, _default: Any, /) -> Aggregate | None:
        number, source = aggregates.number(value), f"({sql})::numeric"
        if (field.factor, field.add) != (1, 0):
            number = {"$add": [{"$multiply": [number, field.factor]}, field.add]}
            source = f"({source} * {field.factor} + {field.add})"
            if field.factor != 1:
                number, source = {"$round": [number, 0]}, f"round({source})"
        if field.clamp:
            least, most = tables.bounds_of(field.columns[0])
            number = {"$cond": [{"$isNumber": value}, {"$max": [least, {"$min": [most, number]}]}, None]}
            source = f"greatest({least}, least({most}, {source}))"
        return Aggregate(kind="sum", expression=number, sql=f"{column_name(field)}::numeric", source_sql=source)

    def operation(self, field: Field, /) -> Operation:
        least, most = tables.bounds_of(field.columns[0])
        if field.shape is not None:
            bits = next((bits for kind, bits in _SIZED if field.shape in (kind, kind | None)), None)
            if bits is None:
                raise Unplannable("a number of another shape")
            least, most = max(least, -(2**bits)), min(most, 2**bits - 1)
        elif (field.factor, field.add) != (1, 0):
            return Operation(name="memo", options=frozenset({"type", "factor", "add", "clamp", "null_value"}))
        step = number_step(field, least, most, sized=field.shape is not None)
        options = frozenset({"type", "clamp", "null_value" if field.shape is None else "shape"})
        return Operation(name="number", options=options, step=step)


class Double(Uncounted):
    """A number with a fraction."""

    name = "double"
    column_types = frozenset({"float8"})
    options = ("also", "type", "null_value", "write_null")
    shape = always(NUMBER)

    def operation(self, field: Field, /) -> Operation:
        column = tables.native_column(field.columns[0])
        if field.type not in (None, "double") or (column is not None and column.is_real):
            return Operation(name="memo", options=frozenset({"type"}))
        return Operation(name="double", options=frozenset({"type"}))

    def reader(self, target: Target, /) -> Reader | None:
        path, none = target.field.path, target.field.null_value
        column = tables.native_column(target.column)
        is_real = column is not None and column.is_real

        def read(value: float, reading: Reading) -> float | None:
            if none is not None and value == none:
                return None
            number = float(value)
            if not is_real:
                return number
            try:
                stored: float = _real.unpack(_real.pack(number))[0]
            except OverflowError:
                raise Rejected("out-of-range", path, "a number of 32 bits") from None
            if stored != number and number == number:  # noqa: PLR0124 - only NaN is not itself
                reading.notes.append(Note(ROUNDED, path))
            return stored

        return read

    def writer(self, field: Field, /) -> Writer | None:
        return NUMBERS[field.type or "double"]


class Duration(Converter):
    """A number in some unit, stored in milliseconds."""

    name = "duration"
    column_types = frozenset({"int8"})
    options = ("also", "unit", "type", "null_value", "default", "write_default", "write_null")
    shape = always(NUMBER)

    def reader(self, target: Target, /) -> Reader | None:
        return whole_reader(target, MILLISECONDS[target.field.unit], rounds=True)

    def writer(self, field: Field, /) -> Writer | None:
        number, milliseconds = NUMBERS[field.type or "int"], MILLISECONDS[field.unit]
        return lambda value: number(value / milliseconds)

    def aggregate(self, field: Field, value: Any, sql: str, _default: Any, /) -> Aggregate | None:
        factor = MILLISECONDS[field.unit]
        return Aggregate(
            kind="sum",
            expression={"$round": [{"$multiply": [aggregates.number(value), factor]}, 0]},
            sql=f"{column_name(field)}::numeric",
            source_sql=f"round(({sql})::numeric * {factor})",
        )

    def operation(self, field: Field, /) -> Operation:
        options = frozenset({"unit", "type", "null_value"})
        if MILLISECONDS[field.unit] != 1:
            return Operation(name="memo", options=options | {"shape"})
        least, most = tables.bounds_of(field.columns[0])
        step = number_step(field, max(least, -_EXACT), min(most, _EXACT), sized=False)
        return Operation(name="number", options=options, step=step)


class Period(Converter):
    """A document of a number and a unit, stored in milliseconds."""

    name = "period"
    column_types = frozenset({"int8"})
    options = ("number", "unit_from", "words", "type", "fixed")
    needed = ("number", "unit_from")
    place = "fields"
    operation = memo("number", "unit_from", "words", "type", "fixed")

    def shape(self, field: Field, /) -> Any:
        return members({field.number: NUMBER, field.unit_from: str | None}) | None

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field
        least, most = tables.bounds_of(target.column)
        factors = {word: MILLISECONDS[unit] for word, unit in field.words.items()}
        path, of_number, of_unit = field.path, f"{field.path}.{field.number}", f"{field.path}.{field.unit_from}"

        def read(value: Any, _reading: Reading) -> int | None:
            number: float | None = value.m0
            unit: str | None = value.m1
            if number is None and unit is None:
                return None
            if number is None or unit is None:
                raise Rejected("missing-field", of_number if number is None else of_unit, "a value")
            factor = factors.get(plain(unit, of_unit))
            if factor is None:
                raise unknown_value(of_unit, tuple(factors))
            scaled = number * factor
            if not least <= scaled <= most or scaled >= LARGEST_DOUBLE:
                raise Rejected("out-of-range", path, f"a period from {least} to {most} milliseconds")
            return round(scaled)

        return read

    def writer(self, field: Field, /) -> Writer | None:
        """Write a period in the largest unit of which it is a multiple."""
        number = NUMBERS[field.type or "int"]
        worded = ((MILLISECONDS[unit], word) for unit, word in written_words(field.words).items())
        units = sorted(worded, key=lambda one: -one[0])

        def write(value: int) -> dict[str, Any]:
            factor, word = next((one for one in units if value % one[0] == 0), units[-1])
            return {**field.fixed, field.number: number(value / factor), field.unit_from: word}

        return write

    def aggregate(self, field: Field, _value: Any, _sql: str, _default: Any, /) -> Aggregate | None:
        number, unit = aggregates.number(f"${field.path}.{field.number}"), f"${field.path}.{field.unit_from}"
        branches = [{"case": {"$eq": [unit, word]}, "then": MILLISECONDS[name]} for word, name in field.words.items()]
        milliseconds = {"$multiply": [number, {"$switch": {"branches": branches, "default": None}}]}
        return Aggregate(
            kind="sum",
            expression={"$round": [milliseconds, 0]},
            sql=f"{column_name(field)}::numeric",
            source_sql="",
        )


class Flag(Same):
    """True or false, as it is."""

    name = "flag"
    column_types = frozenset({"bool"})
    options = ("also", "default", "write_default", "write_null", "below")
    shape = always(bool | None)

    def reader(self, target: Target, /) -> Reader | None:
        if not target.field.below:
            return None
        count, limit = (path.split(".") for path in target.field.below)

        def read(value: bool, reading: Reading) -> bool:  # noqa: FBT001 - the value of a field
            return value and not _has_reached(value_at(reading.document, count), value_at(reading.document, limit))

        return read

    def aggregate(self, field: Field, value: Any, sql: str, default: Any, /) -> Aggregate | None:
        if field.below:
            return None
        as_bool = f"({sql})::bool"
        if default is not None:
            value, as_bool = {"$ifNull": [value, default]}, f"coalesce({as_bool}, {default})"
        branches = [{"case": {"$eq": [value, flag]}, "then": str(flag).lower()} for flag in (True, False)]
        return Aggregate(
            kind="group",
            expression={"$switch": {"branches": branches, "default": None}},
            sql=f"{column_name(field)}::text",
            source_sql=f"({as_bool})::text",
            has_default=True,
        )

    def operation(self, _field: Field, /) -> Operation:
        return Operation(name="flag", shapes=(bool,))


def _has_reached(count: object, limit: object) -> bool:
    """Whether a number has reached another one that is a limit; 0, and what is no number, is none."""
    numbers = [value for value in (count, limit) if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == _BOTH and numbers[1] != 0 and numbers[0] >= numbers[1]


_BOTH: Final = 2


def members(kinds: Mapping[str, Any]) -> Any:
    """Return the type of a document with these members, whose attributes have their order."""
    names = {f"m{index}": name for index, name in enumerate(kinds)}
    fields: Any = [(f"m{index}", kind, None) for index, kind in enumerate(kinds.values())]
    return msgspec.defstruct("Members", fields, bases=(Shape,), rename=names, kw_only=True, gc=False)
