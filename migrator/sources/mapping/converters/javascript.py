"""Converters of what a library in JavaScript writes into PostgreSQL where it writes BSON into MongoDB."""

import math
from typing import Any, Final
from uuid import UUID

import msgspec
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.result import NAMED_LOSS
from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    Operation,
    Reader,
    Same,
    Target,
    Uncounted,
    Writer,
    always,
)
from migrator.sources.mapping.converters.documents import json_operation
from migrator.sources.mapping.converters.texts import TEXT, longest_of
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Note, Rejected
from migrator.values import jsonb
from migrator.values.javascript import EXACT, FORMS

_PADDING: Final = "00000000"
"""Before the 24 digits of an ObjectId: together they are a UUID."""
_ID_SECONDS: Final = 4
"""Bytes of an ObjectId that hold its time."""


class JavaScriptJson(Uncounted):
    """Any value; the column holds what JavaScript's ``JSON.stringify`` makes of it."""

    name = "javascript-json"
    column_types = frozenset({"jsonb"})
    options = ("also", "write_null")
    shape = always(Any)

    def operation(self, field: Field, /) -> Operation:
        """Take what JSON holds itself; a number that may be larger than 2^53 is for the Python codec."""
        return msgspec.structs.replace(json_operation(field), name="javascript-json")

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path

        def read(value: object, reading: Reading) -> bytes:
            stringified = _Stringified(path)
            text = jsonb.encode(stringified.value(value))
            if stringified.is_changed:
                reading.notes.append(Note(NAMED_LOSS, path))
            return text

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return jsonb.decode


class _Stringified:
    """A value of BSON as ``JSON.stringify`` writes it, and whether a reader gets another type."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.is_changed = False

    def value(self, value: Any) -> Any:  # noqa: PLR0911 - a value of BSON, and its JSON
        """Return the JSON of a value; raise ``Rejected`` for what JSON in PostgreSQL cannot hold."""
        kind = type(value)
        if kind is str:
            return self._text(value)
        if value is None or kind in (bool, int):
            return value
        if kind is dict:
            return {self._text(name): self.value(inner) for name, inner in value.items()}
        if kind is list:
            return [self.value(inner) for inner in value]
        if kind is float:
            return self._number(value)
        if kind is Int64 and abs(value) <= EXACT:
            return int(value)
        self.is_changed = True
        form = FORMS.get(kind)
        if form is None:
            raise Rejected("bad-date", self._path, "times in the years 1 to 9999")
        return self.value(form(value))

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise Rejected("nul", self._path, "texts without U+0000")
        return text

    def _number(self, number: float) -> float | int | None:
        if math.isfinite(number) and (number or math.copysign(1, number) > 0):
            return number
        self.is_changed = True
        return 0 if number == 0 else None


class TextOrNumber(Uncounted):
    """A text, as it is; a number as JavaScript spells it."""

    name = "text-or-number"
    column_types = TEXT
    options = ("also", "write_null")
    shape = always(str | int | float | None)

    def operation(self, field: Field, /) -> Operation:
        """Take a text; a number is for the Python codec, because none comes back."""
        return Operation(name="text", step={"longest": longest_of(field)})

    def reader(self, target: Target, /) -> Reader | None:
        checked, path = target.checked, target.field.path

        def read(value: str | float, _reading: Reading) -> str:
            if isinstance(value, str) and "\0" in value:
                raise Rejected("nul", path, "a text without U+0000")
            return checked(value if isinstance(value, str) else _spelled(value, path), path)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return None


def _spelled(number: float, path: str) -> str:
    """Return a number as JavaScript spells it, without an exponent."""
    if math.isfinite(number):
        text = str(int(number)) if number == int(number) else repr(number)
        if "e" not in text and abs(number) < EXACT:
            return text
    raise Rejected("out-of-range", path, "a number that is spelled without an exponent")


class ObjectIdUuid(Same):
    """An ObjectId, or its 24 digits as a text, as the UUID that has eight zeros before them."""

    name = "object-id-uuid"
    column_types = frozenset({"uuid", "text", "timestamptz"})
    options = ("also", "write_null")
    shape = always(Any)

    def operation(self, field: Field, /) -> Operation:
        """Take an ``_id``, and a text in a text column; else ask once for each value."""
        if field.path == "_id":
            return Operation(name="object-id-uuid")
        if [tables.type_of(column) for column in field.columns] == ["text"]:
            return Operation(name="object-id-digits", step={"longest": longest_of(field)})
        return Operation(name="memo")

    def reader(self, target: Target, /) -> Reader | None:
        path, checked = target.field.path, target.checked
        match tables.type_of(target.column):
            case "uuid":
                return lambda value, _reading: _uuid(_object_id(value, path))
            case "timestamptz":
                return lambda value, _reading: _object_id(value, path).generation_time
        return lambda value, _reading: checked(_uuid_text(value, path), path)

    def writer(self, _field: Field, /) -> Writer | None:
        """Write the digits that a text column holds; the ``_id`` is never written."""

        def write(value: object) -> str:
            digits = str(value).replace("-", "")
            padded = digits.removeprefix(_PADDING)
            return padded if len(digits) - len(padded) == len(_PADDING) and ObjectId.is_valid(padded) else str(value)

        return write


def _object_id(value: object, path: str) -> ObjectId:
    if not isinstance(value, ObjectId):
        raise Rejected("wrong-type", path, "an ObjectId")
    return value


def _uuid(value: ObjectId) -> UUID:
    return UUID(f"{_PADDING}{value}")


def _uuid_text(value: object, path: str) -> str:
    if isinstance(value, ObjectId):
        return str(_uuid(value))
    if type(value) is not str:
        raise Rejected("wrong-type", path, "an ObjectId, or a text")
    return str(_uuid(ObjectId(value))) if ObjectId.is_valid(value) else value
