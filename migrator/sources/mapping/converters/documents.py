"""Converters of jsonb columns: any value, and texts that hold JSON."""

import json
from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin

import msgspec

from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    Operation,
    Reader,
    Target,
    Uncounted,
    Unplannable,
    Writer,
    value_at,
)
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Note, Rejected
from migrator.sources.shape_description import describe
from migrator.sources.shapes import Shape, ordered_reader
from migrator.values import jsonb

_JSONB: Final = frozenset({"jsonb"})
_HELD: Final[Mapping[str, Any]] = {
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
    options = ("also", "holds", "nulls")

    def shape(self, field: Field, /) -> Any:
        return Any if field.holds is None else _HELD[field.holds] | None

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field
        path = field.path.split(".")
        if field.holds == "keywords":
            return _keywords_reader(target)
        if tables.member_of(target.column):
            return None  # encoded with the other members
        if field.respelled:
            return _respelling_reader(field)
        if field.shape is None:
            return lambda value, _reading: jsonb.encode(value)
        if len(path) == 1:
            [name] = path
            return lambda _value, reading: jsonb.encode(reading.document[name])
        return lambda _value, reading: jsonb.encode(value_at(reading.document, path))

    def writer(self, field: Field, /) -> Writer | None:
        is_list = get_origin(field.shape) is list
        inner = get_args(field.shape)[0] if is_list else field.shape
        if isinstance(inner, type) and issubclass(inner, Shape):
            return ordered_reader(inner, many=is_list)
        return jsonb.decode

    def operation(self, field: Field, /) -> Operation:
        if field.respelled and field.shape is None:
            raise Unplannable("words of a document without a shape")
        shape = None if field.shape is None else describe(field.shape, field.respelled)
        return json_operation(field, shape)


class JsonText(Uncounted):
    """A text that holds JSON."""

    name = "json-text"
    column_types = _JSONB
    options = ("also", "spaced", "nulls")

    def shape(self, _field: Field, /) -> Any:
        return Any

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

    def operation(self, field: Field, /) -> Operation:
        raise Unplannable(f"no operation for {field.converter}")


def json_operation(field: Field, shape: Any = None) -> Operation:
    """Return the operation of a field whose value is written as JSON."""
    if field.default is not None or len(field.columns) > 1:
        raise Unplannable("a default of JSON")
    options = frozenset({"respelled"} if shape is None else {"respelled", "shape"})
    return Operation(name="json", options=options, step={"shape": shape})


def _keywords_reader(target: Target) -> Reader:
    is_member, path = bool(tables.member_of(target.column)), target.field.path

    def read(value: object, _reading: Reading) -> object:
        if not _are_keywords(value):
            raise Rejected("wrong-type", path, "an object without names that begin with $")
        return value if is_member else jsonb.encode(value)

    return read


def _are_keywords(value: object) -> bool:
    """Tell whether no object in a value has a name that begins with ``$``."""
    if isinstance(value, dict):
        return not any(name.startswith("$") for name in value) and all(map(_are_keywords, value.values()))
    return not isinstance(value, list) or all(map(_are_keywords, value))


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


def _respelled(item: Any, words: Mapping[str, Mapping[str, str]]) -> Any:
    """Return a document whose words are spelled as the table says, where it has them; itself if it has none."""
    if not isinstance(item, dict):
        return item
    spelled = item
    for name, spellings in words.items():
        word = item.get(name)
        if isinstance(word, str) and word in spellings:
            spelled = {**spelled, name: spellings[word]}
    return spelled
