"""The converter of columns as our own store writes them into documents."""

from collections.abc import Mapping
from typing import Any, Final

from migrator.constraints import LONGEST_KEY
from migrator.sources.mapping import tables
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.converters.base import Operation, Reader, Target, Uncounted, Writer
from migrator.sources.mapping.converters.documents import json_operation
from migrator.sources.mapping.converters.numbers import number_step
from migrator.sources.mapping.converters.texts import longest_of
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Rejected
from migrator.sources.shapes import choice, indexed, instant
from migrator.values import jsonb
from migrator.values.times import to_bson

_JSON_NULL: Final = b"null"
_OPERATIONS: Final[Mapping[str, tuple[str, Any]]] = {
    "text": ("text", str),
    "text[]": ("texts", list[str]),
    "bool": ("flag", bool),
    "timestamptz": ("date", Any),
}
"""Type of a column to the operation of the native codec, and the shape that the field may have."""


class Column(Uncounted):
    """A value of the type of its column, read strictly: nobody else writes such fields. For mappings in Python."""

    name = "column"
    column_types: frozenset[str] = frozenset()
    options: tuple[str, ...] = ()

    def shape(self, _field: Field, /) -> Any:
        return Any

    def reader(self, target: Target, /) -> Reader | None:
        path, kind, checked = target.field.path, tables.type_of(target.column), target.checked
        items, words = f"{path}[]", target.field.words
        readers: Mapping[str, Reader] = {
            "jsonb": lambda value, _reading: jsonb.encode(value),
            "timestamptz": lambda value, _reading: instant(value, path),
            "bool": lambda value, _reading: _typed(value, bool, path, "bool"),
            "text[]": lambda value, _reading: tuple(
                indexed(_typed(item, str, items, "string"), items) for item in _typed(value, list, path, "array")
            ),
            "text": lambda value, _reading: checked(_typed(value, str, path, "string"), path),
        }
        if words:
            return lambda value, _reading: choice(_typed(value, str, path, "string"), words, path)
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
                return Operation(name="number", options=frozenset({"type", "none"}), step=step)
        longest = {"text": longest_of(field), "text[]": LONGEST_KEY}.get(kind, 0)
        name, shape = _OPERATIONS[kind]
        return Operation(name=name, shapes=(shape,), step={"longest": longest})


def _typed(value: Any, kind: type, path: str, expected: str) -> Any:
    if type(value) is not kind:
        raise Rejected("wrong-type", path, expected)
    return value
