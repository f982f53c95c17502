"""Converters of what Celery's result backends keep.

In MongoDB a result is a text, or bytes, as the serializer of the application made them, and what else is kept of a
task are values of BSON. The database backend keeps the bytes of the serializer for all of them, and up to Celery 5.6 a
pickle of each result. Nothing of the application and nothing of Celery is imported, and no pickle is read but those
that hold plain data.
"""

import json
import pickletools
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NoReturn
from uuid import UUID

from migrator.sources import pickles
from migrator.sources.mapping.converters import serializers
from migrator.sources.mapping.converters.base import (
    Operation,
    Reader,
    Target,
    Uncounted,
    Writer,
    always,
    no_operation,
)
from migrator.sources.mapping.converters.binaries import BytesConverter, one_column
from migrator.sources.mapping.converters.documents import HELD, are_keywords
from migrator.sources.mapping.converters.serializers import (
    UNREADABLE,
    from_json,
    in_bson,
    is_pickle,
    to_json,
    to_pickle,
)
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.pickles import Made
from migrator.sources.profile import Rejected

RESULT: Final = "result"
"""The field whose serializer is that of the others."""
_BYTEA: Final = frozenset({"bytea"})
_IDS: Final = "a list of ids, as the serializer of the application writes it"


def _reject(field: Field, expected: str) -> NoReturn:
    raise Rejected("wrong-type", field.path, expected)


class Serialized(BytesConverter):
    """A text, of which the column holds the bytes in UTF-8, or a binary value as it is."""

    name = "serialized"
    shape = always(Any)

    def operation(self, field: Field, /) -> Operation:
        return one_column(field, "serialized")

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, _reading: Reading) -> bytes:
            if type(value) is str:
                return _utf_8(value, field)
            if isinstance(value, bytes):
                return bytes(value)
            _reject(field, "a text or a binary value")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        """Write a text if the bytes are one; a binary value that looks like one is remainder."""
        return lambda value: value.decode() if serializers.is_text(value) else value


def _utf_8(value: str, field: Field) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError:
        _reject(field, "a text of UTF-8")


class _Bytes(Uncounted):
    """Bytes that are made of a value, of another size than the value's."""

    column_types = _BYTEA
    options: tuple[str, ...] = ("write_null",)
    shape = always(Any)
    operation = no_operation


def _encode(value: Any, reading: Reading) -> bytes | None:
    """Return a value in the serializer of the document's result; None if that is unknown, or cannot write the value."""
    serializer = serializers.of_document(reading.document.get(RESULT))
    try:
        return None if serializer is None else serializer.dump(value)
    except UNREADABLE:
        return None


def _meaning(value: bytes) -> str:
    """Return the meaning of bytes of any serializer as JSON; raises one of ``UNREADABLE``."""
    return serializers.in_order(serializers.of_bytes(value).load(value))


class CeleryEncoded(_Bytes):
    """Any value that JSON has, of which the column holds the bytes that the serializer of the document's result makes.

    With a serializer that is not known, or that cannot write the value, the column is empty.
    """

    name = "celery-encoded"

    def operation(self, field: Field, /) -> Operation:
        """Take a field of a document whose result is in JSON."""
        return one_column(field, "kombu-json")

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes | None:
            try:
                to_json(value)
            except UNREADABLE:
                _reject(field, "values that JSON has, times, UUIDs and bytes")
            return _encode(value, reading)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return _plain_value

    def meaning(self, _field: Field, /) -> Callable[[Any], Any] | None:
        return _meaning


def _plain_value(value: bytes) -> Any:
    """Return the value of bytes; None for those of an unknown serializer, or of what BSON does not hold."""
    try:
        return in_bson(serializers.of_bytes(value).load(value))
    except UNREADABLE:
        return None


class CeleryJson(Uncounted):
    """Any value that JSON has, and times, of which the column holds the JSON that Celery makes.

    Bytes are quarantined: MongoEngine gives Celery a list of numbers in their place.
    """

    name = "celery-json"
    column_types = frozenset({"text"})
    options = ("also", "holds", "default", "write_default", "write_null")
    place = "fields"
    operation = no_operation

    def shape(self, field: Field, /) -> Any:
        return Any if field.holds is None else HELD[field.holds] | None

    def reader(self, target: Target, /) -> Reader | None:
        field, checked = target.field, target.checked

        def read(value: object, _reading: Reading) -> str:
            if field.holds == "keywords" and not are_keywords(value):
                _reject(field, "an object without names that begin with $")
            try:
                text = "" if _has_bytes(value) else to_json(value)
                from_json(text)
            except UNREADABLE:
                _reject(field, "values that JSON has, and times")
            return checked(text, field.path)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: str) -> Any:
            try:
                return in_bson(from_json(value))
            except UNREADABLE:
                return None

        return write


def _has_bytes(value: object) -> bool:
    """Whether there are bytes, or a UUID, in a value."""
    if isinstance(value, dict):
        return any(map(_has_bytes, value.values()))
    return any(map(_has_bytes, value)) if isinstance(value, list) else isinstance(value, bytes | UUID)


class CeleryStamps(_Bytes):
    """The names of a task's stamps, each of which is a field of the document; the column holds names and values.

    Written are the names; the fields stay in the remainder.
    """

    name = "celery-stamps"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes | None:
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                _reject(field, "a list of texts")
            if not value:
                return None
            stamps = {name: reading.document[name] for name in value if name in reading.document}
            try:
                to_json(stamps)
            except UNREADABLE:
                _reject(field, "stamps that JSON has")
            return _encode({"stamped_headers": value, "stamps": stamps}, reading)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: bytes) -> Any:
            held = _plain_value(value)
            return held.get("stamped_headers") if isinstance(held, dict) else None

        return write

    def meaning(self, _field: Field, /) -> Callable[[Any], Any] | None:
        return _meaning


class CeleryPickle(_Bytes):
    """A text of JSON, of which the column holds a pickle of the value; a binary value that is a pickle, as it is."""

    name = "celery-pickle"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, _reading: Reading) -> bytes:
            if is_pickle(value):
                return bytes(value)
            if type(value) is not str:
                _reject(field, "a text that holds JSON, or a pickle")
            try:
                return to_pickle(from_json(value))
            except UNREADABLE:
                _reject(field, "a text that Celery can read as JSON")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        """Write JSON for a pickle that a reader made; any other is a binary value."""

        def write(value: bytes) -> str | bytes:
            try:
                held = serializers.from_pickle(value)
                return to_json(held) if to_pickle(held) == value else value
            except UNREADABLE:
                return value

        return write


def _ids_of(value: object, field: Field) -> list[str]:
    """Return the ids of the tasks of a saved group; a pickle is not executed."""
    ids: Any = None
    serializer = serializers.of_document(value)
    if serializer is not None and isinstance(value, str | bytes):
        with suppress(*UNREADABLE):
            ids = serializer.load(value.encode() if isinstance(value, str) else bytes(value))
    if not isinstance(ids, list) or not all(isinstance(key, str) for key in ids):
        _reject(field, _IDS)
    return ids


_RESULTS: Final = "celery.app.base._unpickle_appattr"
"""What Celery's own pickles of results call: it takes a class from the current application by name."""


def _group_of(value: bytes) -> tuple[serializers.Serializer, Any]:
    """Return the serializer of a group, and the group as ``GroupResult.as_tuple`` gives it.

    With pickle Celery stores the ``GroupResult`` itself, with the backend of its results: of that the names of classes
    and functions are read, and nothing is loaded. Raises one of ``UNREADABLE``.
    """
    if not is_pickle(value):
        serializer = serializers.of_bytes(value)
        return serializer, serializer.load(value)
    held = pickles.read_opcodes(value, any_name=True)
    return serializers.PICKLE, _as_tuple(held) if isinstance(held, Made) else serializers.from_pickle(value)


def _as_tuple(held: object) -> Any:
    """Return a pickled result as ``as_tuple`` gives it, as a list."""
    match held:
        case Made(name=name, arguments=("GroupResult", (str() as key, list() as results))) if name == _RESULTS:
            return [[key, None], [_as_tuple(result) for result in results]]
        case Made(name=name, arguments=("AsyncResult", (str() as key, _, _, _, parent))) if name == _RESULTS:
            return [[key, None if parent is None else _as_tuple(parent)], None]
    raise ValueError


class CeleryGroup(_Bytes):
    """The ids of a group's tasks, of which the column holds the group as ``GroupResult.as_tuple`` gives it."""

    name = "celery-group"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes | None:
            children = [[[key, None], None] for key in _ids_of(value, field)]
            return _encode([[reading.document["_id"], None], children], reading)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        """Write the ids of the results in the serializer of the group, as Celery's MongoDB backend does."""

        def write(value: bytes) -> str | bytes | None:
            try:
                serializer, (_, children) = _group_of(value)
                ids = serializer.dump([key for (key, _), _ in children])
            except UNREADABLE:
                return None
            return ids.decode() if serializer.is_text else ids

        return write

    def meaning(self, _field: Field, /) -> Callable[[Any], Any] | None:
        return lambda value: serializers.in_order(_group_of(value)[1])


_GLOBAL: Final = "c{}\n{}\n".format(*_RESULTS.rsplit(".", 1)).encode()


class CeleryGroupPickle(_Bytes):
    """The ids of a group's tasks, of which the column holds a pickle of the ``GroupResult``.

    It names what Celery's own pickle names, and nothing of the application; the results take the application's backend.
    """

    name = "celery-group-pickle"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes:
            children = b"".join(_call("AsyncResult", _text(key) + b"\x85") for key in _ids_of(value, field))
            results = b"](" + children + b"e"
            group = _call("GroupResult", _text(reading.document["_id"]) + results + b"\x86")
            return b"\x80\x02" + group + b"."

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        """Write the ids of a pickle that a reader made; None for any other, which is not executed."""

        def write(value: bytes) -> str | None:
            try:
                texts = [argument for _, argument, _ in pickletools.genops(value) if isinstance(argument, str)]
            except Exception:  # noqa: BLE001 - what is no pickle raises whatever it likes
                return None
            ids = [key for name, key in pairwise(texts) if name == "AsyncResult"]
            return json.dumps(ids)

        return write


def _call(name: str, arguments: bytes) -> bytes:
    return _GLOBAL + _text(name) + arguments + b"\x86R"


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8", "surrogatepass")
    return b"X" + len(encoded).to_bytes(4, "little") + encoded
