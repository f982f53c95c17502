"""Converters of JSON: any value, texts that hold it, and columns of any type as our own store writes them."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, get_args, get_origin

import msgspec
from bson.decimal128 import Decimal128
from bson.errors import InvalidId
from bson.objectid import ObjectId

from migrator.constraints import LONGEST_KEY
from migrator.sources import table_columns
from migrator.sources.mapping import tables
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.converters.base import (
    Operation,
    Reader,
    Target,
    Uncounted,
    Unplannable,
    Writer,
    always,
    no_operation,
    value_at,
)
from migrator.sources.mapping.converters.numbers import NUMBERS, number_step
from migrator.sources.mapping.converters.texts import longest_of
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Note, Rejected
from migrator.sources.shape_description import describe
from migrator.sources.shapes import Shape, choice, indexed, instant, ordered_reader
from migrator.values import jsonb, table_row
from migrator.values.times import parse_iso, to_bson

_JSON_NULL: Final = b"null"
_OPERATIONS: Final[Mapping[str, tuple[str, Any]]] = {
    "text": ("text", str),
    "text[]": ("texts", list[str]),
    "bool": ("flag", bool),
    "timestamptz": ("date", Any),
}
"""Type of a column to the operation of the native codec, and the shape that the field may have."""
_JSONB: Final = frozenset({"jsonb"})
_AS_TYPE: Final[Mapping[str, tuple[tuple[type, ...], Callable[[Any], Any]]]] = {
    "int": ((int, float), lambda value: NUMBERS["int"](_within_64_bits(value))),
    "long": ((int, float), lambda value: NUMBERS["long"](_within_64_bits(value))),
    "double": ((int, float), float),
    "decimal": ((str,), Decimal128),
    "date": ((str,), lambda value: to_bson(parse_iso(value))),
    "objectId": ((str,), ObjectId),
}
"""BSON type to the types of its plain forms in JSON, and what makes a value of it."""
HELD: Final[Mapping[str, Any]] = {
    "list": list[Any],
    "object": dict[str, Any],
    "keywords": dict[str, Any],
    "text": str,
    "flag": bool,
}
"""What the value must be to its type."""


class Json(Uncounted):
    """Any value, as it is."""

    name = "json"
    column_types = _JSONB
    options = ("also", "holds", "type", "write_null")

    def shape(self, field: Field, /) -> Any:
        return Any if field.holds is None else HELD[field.holds] | None

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field
        path = field.path.split(".")
        if field.holds == "keywords":
            return _keywords_reader(target)
        if tables.member_of(target.column):
            return None  # encoded with the other members
        if field.respelled:
            return _respelling_reader(field)
        if field.shape is None or _is_of_table(field):
            return lambda value, _reading: jsonb.encode(value)
        if len(path) == 1:
            [name] = path
            return lambda _value, reading: jsonb.encode(reading.document[name])
        return lambda _value, reading: jsonb.encode(value_at(reading.document, path))

    def writer(self, field: Field, /) -> Writer | None:
        typed = None if field.type is None else partial(_typed_as, _AS_TYPE[field.type])
        if tables.member_of(field.columns[0]):
            return table_row.to_bson if _is_of_table(field) else typed  # decoded with the other members
        if typed is not None:
            return lambda value: typed(jsonb.decode(value))
        is_list = get_origin(field.shape) is list
        inner = get_args(field.shape)[0] if is_list else field.shape
        if isinstance(inner, type) and issubclass(inner, Shape):
            return ordered_reader(inner, many=is_list)
        if _is_of_table(field):
            return lambda value: table_row.to_bson(jsonb.decode(value))
        return jsonb.decode

    def operation(self, field: Field, /) -> Operation:
        if field.respelled and field.shape is None:
            raise Unplannable("words of a document without a shape")
        if field.holds is not None:
            return self._holding(field)
        shape = None if field.shape is None else describe(field.shape, field.respelled)
        return json_operation(field, shape)

    def _holding(self, field: Field) -> Operation:
        if field.holds != "list" or field.shape is not None or field.respelled:
            raise Unplannable("a value that must be of a type")
        operation = json_operation(field, describe(list[Any]))
        return msgspec.structs.replace(operation, options=frozenset({"holds"}))


class JsonText(Uncounted):
    """A text that holds JSON."""

    name = "json-text"
    column_types = _JSONB
    options = ("also", "spaced", "write_null")
    shape = always(Any)
    operation = no_operation

    def reader(self, _target: Target, /) -> Reader | None:
        def read(value: object, _reading: Reading) -> bytes | None:
            if type(value) is not str:
                return None
            try:
                return jsonb.encode(msgspec.json.decode(value))
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                return None

        return read

    def writer(self, field: Field, /) -> Writer | None:
        """Write keys in their order: jsonb has another one, and each storage must give the same text."""
        separators = (", ", ": ") if field.spaced else (",", ":")
        return lambda value: json.dumps(
            jsonb.decode(value), ensure_ascii=field.spaced, separators=separators, sort_keys=True
        )


def _is_of_table(field: Field) -> bool:
    """Return whether a field is a column of a table, whose numbers may be longer than those of BSON."""
    return isinstance(field.shape, type) and issubclass(field.shape, table_columns.Json)


def json_operation(field: Field, shape: Any = None) -> Operation:
    """Return the operation of a field whose value is written as JSON."""
    if field.default is not None or len(field.columns) > 1:
        raise Unplannable("a default of JSON")
    options = frozenset({"respelled"} if shape is None else {"respelled", "shape"})
    return Operation(name="json", options=options, step={"shape": shape})


def _within_64_bits(value: float) -> float:
    if not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def _typed_as(kind: tuple[tuple[type, ...], Callable[[Any], Any]], value: Any) -> Any:
    """Return a value as one of a BSON type; as it is if it is no plain form of one."""
    try:
        return kind[1](value) if type(value) in kind[0] else value
    except (ValueError, ArithmeticError, InvalidId):
        return value


def _keywords_reader(target: Target) -> Reader:
    is_member, path = bool(tables.member_of(target.column)), target.field.path

    def read(value: object, _reading: Reading) -> object:
        if not are_keywords(value):
            raise Rejected("wrong-type", path, "an object without names that begin with $")
        return value if is_member else jsonb.encode(value)

    return read


def are_keywords(value: object) -> bool:
    """Whether no object in a value has a name that begins with ``$``."""
    if isinstance(value, dict):
        return not any(name.startswith("$") for name in value) and all(map(are_keywords, value.values()))
    return not isinstance(value, list) or all(map(are_keywords, value))


def _respelling_reader(field: Field) -> Reader:
    path = field.path.split(".")

    def read(_value: object, reading: Reading) -> bytes:
        value = value_at(reading.document, path)
        if isinstance(value, dict) and _respelled(value, field.respelled) is value:
            return jsonb.encode(value)
        items = value if isinstance(value, list) else [value]
        spelled = [_respelled(item, field.respelled) for item in items]
        if field.finding != "":
            inner = f"{field.path}[]" if isinstance(value, list) else field.path
            changed = {
                name
                for name in field.respelled
                for item, other in zip(items, spelled, strict=True)
                if other is not item
            }
            reading.notes.extend(Note("alias", f"{inner}.{name}") for name in sorted(changed))
        return jsonb.encode(spelled if isinstance(value, list) else spelled[0])

    return read


def _respelled(item: Any, by_member: Mapping[str, Mapping[str, str]]) -> Any:
    """Return a document whose words are spelled as the table says, where it has them; itself if it has none."""
    if not isinstance(item, dict):
        return item
    spelled = item
    for name, spellings in by_member.items():
        word = item.get(name)
        if isinstance(word, str) and word in spellings:
            spelled = {**spelled, name: spellings[word]}
    return spelled


class Column(Uncounted):
    """A value of the type of its column, read strictly: nobody else writes such fields. For mappings in Python."""

    name = "column"
    in_files = False
    column_types: frozenset[str] = frozenset()
    options: tuple[str, ...] = ()
    shape = always(Any)

    def reader(self, target: Target, /) -> Reader | None:
        path, kind, checked = target.field.path, tables.type_of(target.column), target.checked
        items, spellings = f"{path}[]", target.field.words
        readers: Mapping[str, Reader] = {
            "jsonb": lambda value, _reading: jsonb.encode(value),
            "timestamptz": lambda value, _reading: instant(value, path),
            "bool": lambda value, _reading: _typed(value, bool, path, "bool"),
            "text[]": lambda value, _reading: tuple(
                indexed(_typed(item, str, items, "string"), items) for item in _typed(value, list, path, "array")
            ),
            "text": lambda value, _reading: checked(_typed(value, str, path, "string"), path),
        }
        if spellings:
            return lambda value, _reading: choice(_typed(value, str, path, "string"), spellings, path)
        if kind in readers:
            return readers[kind]
        least, most = tables.bounds_of(target.column)

        def read(value: object, _reading: Reading) -> int:
            if not isinstance(value, int) or isinstance(value, bool):
                raise Rejected("wrong-type", path, "int")
            if not least <= value <= most:
                raise Rejected("out-of-range", path, f"int from {least} to {most}")
            return int(value)

        return read

    def writer(self, field: Field, /) -> Writer | None:
        match tables.type_of(field.columns[0]):
            case "jsonb":
                return lambda value: NULL if value == _JSON_NULL else jsonb.decode(value)
            case "timestamptz":
                return to_bson
            case "text[]":
                return list
        return None

    def operation(self, field: Field, /) -> Operation:
        if field.words:
            return Operation(name="memo", options=frozenset({"words", "shape"}))
        kind = tables.type_of(field.columns[0])
        match kind:
            case "jsonb":
                return json_operation(field)
            case "int2" | "int4" | "int8":
                step = number_step(field, *tables.bounds_of(field.columns[0]), sized=True)
                return Operation(name="number", options=frozenset({"type", "null_value"}), step=step)
        longest = {"text": longest_of(field), "text[]": LONGEST_KEY}.get(kind, 0)
        name, shape = _OPERATIONS[kind]
        return Operation(name=name, shapes=(shape,), step={"longest": longest})


def _typed(value: Any, kind: type, path: str, expected: str) -> Any:
    if type(value) is not kind:
        raise Rejected("wrong-type", path, expected)
    return value
