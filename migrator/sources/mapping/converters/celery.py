"""Converters of what Celery's result backends keep.

In MongoDB a result is a text, or bytes, as the serializer of the application made them, and what else is kept of a
task are values of BSON. The database backend keeps the bytes of the serializer for all of them, and up to Celery 5.6 a
pickle of each result. Nothing of the application and nothing of Celery is imported, and no pickle is read but those
that hold plain data.
"""

import base64
import io
import json
import pickle
import pickletools
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Any, Final, NoReturn
from uuid import UUID

from migrator.sources.mapping.converters.base import (
    Reader,
    Target,
    Uncounted,
    Writer,
    always,
    no_operation,
)
from migrator.sources.mapping.converters.binaries import BytesConverter
from migrator.sources.mapping.converters.documents import HELD, are_keywords
from migrator.sources.mapping.language import Field, Reading
from migrator.sources.profile import Rejected
from migrator.values.times import to_bson

_PICKLE: Final = b"\x80"
"""The first byte of a pickle of protocol 2 or later; Celery writes no other."""
_PROTOCOL: Final = 4
_BYTEA: Final = frozenset({"bytea"})
_MARK, _VALUE = "__type__", "__value__"
_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda value: datetime.fromisoformat(value).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda value: UUID(**value),
    "bytes": str.encode,
    "base64": lambda value: base64.b64decode(value.encode()),
}
"""As Kombu reads JSON."""
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, InvalidOperation, RecursionError)
_IDS: Final = "a list of ids, as JSON or as a pickle"


def _from_json(text: str | bytes) -> Any:
    """Return the value of a text as Kombu decodes it; raises one of ``_UNREADABLE``."""
    return json.loads(text, object_hook=_decoded)


def _decoded(held: dict[str, Any]) -> Any:
    if held.keys() != {_MARK, _VALUE}:
        return held
    if held[_MARK] not in _DECODERS:
        raise ValueError
    return _DECODERS[held[_MARK]](held[_VALUE])


def _to_json(value: Any) -> str:
    """Return the text that Kombu makes of a value; raises one of ``_UNREADABLE``."""
    return json.dumps(value, default=_encoded)


def _encoded(value: object) -> Any:  # noqa: PLR0911 - what JSON holds, one for each type
    match value:
        case datetime():
            return {_MARK: "datetime", _VALUE: value.isoformat()}
        case date():
            return {_MARK: "date", _VALUE: value.isoformat()}
        case time():
            return {_MARK: "time", _VALUE: value.isoformat()}
        case Decimal():
            return {_MARK: "decimal", _VALUE: str(value)}
        case UUID():
            return {_MARK: "uuid", _VALUE: {"hex": value.hex}}
        case bytes():
            try:
                return {_MARK: "bytes", _VALUE: value.decode()}
            except UnicodeDecodeError:
                return {_MARK: "base64", _VALUE: base64.b64encode(value).decode()}
    raise TypeError


def _pickled(value: Any) -> bytes:
    """Return the pickle of plain data, which is the same for equal values."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, _PROTOCOL)
    pickler.fast = True  # without a memo, which tells equal texts from the same text
    pickler.dump(value)
    return buffer.getvalue()


_PLAIN: Final = frozenset({("datetime", name) for name in ("datetime", "date", "time", "timezone", "timedelta")}) | {
    ("decimal", "Decimal"),
    ("uuid", "UUID"),
}


class _PlainUnpickler(pickle.Unpickler):
    """Reads pickles of plain data alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Return one of the classes of plain data; raises ``UnpicklingError`` for any other."""
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError
        return super().find_class(module, name)


_MEMO: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET"})


def _unpickled(data: bytes) -> Any:
    """Return the value of a pickle that ``_pickled`` made; raises ``ValueError`` for any other.

    An opcode of the memo alone could make Python ask for all memory.
    """
    try:
        if not any(operation.name in _MEMO for operation, *_ in pickletools.genops(data)):
            value = _PlainUnpickler(io.BytesIO(data)).load()
            if _pickled(value) == data:
                return value
    except Exception:  # noqa: BLE001 - a pickle raises whatever it likes
        raise ValueError from None
    raise ValueError


def _reject(field: Field, expected: str) -> NoReturn:
    raise Rejected("wrong-type", field.path, expected)


class Serialized(BytesConverter):
    """A text, of which the column holds the bytes in UTF-8, or a binary value as it is."""

    name = "serialized"
    shape = always(Any)

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

        def write(value: bytes) -> str | bytes:
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value

        return write


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


def _is_pickle(value: object) -> bool:
    return isinstance(value, bytes) and value.startswith(_PICKLE)


def _encode(value: Any, reading: Reading) -> bytes | None:
    """Return a value in the serializer of the document's result; None if that is neither JSON nor pickle.

    Raises one of ``_UNREADABLE``.
    """
    result = reading.document.get("result")
    if _is_pickle(result):
        return _pickled(value)
    return None if isinstance(result, bytes) else _to_json(value).encode()


class CeleryEncoded(_Bytes):
    """Any value that JSON has, of which the column holds the bytes that the serializer of the document's result makes.

    It is JSON, or pickle; with another serializer the column is empty.
    """

    name = "celery-encoded"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes | None:
            try:
                _to_json(value)
                return _encode(value, reading)
            except _UNREADABLE:
                _reject(field, "values that JSON has, times, UUIDs and bytes")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return _plain_value


def _plain_value(value: bytes) -> Any:
    """Return the value of JSON or of a pickle; None for what is neither, or holds what BSON does not."""
    try:
        return _in_bson(_unpickled(value) if _is_pickle(value) else _from_json(value))
    except _UNREADABLE:
        return None


def _in_bson(value: Any) -> Any:
    match value:
        case dict():
            return {name: _in_bson(inner) for name, inner in value.items()}
        case list():
            return [_in_bson(inner) for inner in value]
        case datetime():
            return value if value.tzinfo is None else to_bson(value)
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            raise ValueError
        case None | bool() | int() | float() | str() | bytes():
            return value
    raise TypeError


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
                text = "" if _has_bytes(value) else _to_json(value)
                _from_json(text)
            except _UNREADABLE:
                _reject(field, "values that JSON has, and times")
            return checked(text, field.path)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: str) -> Any:
            try:
                return _in_bson(_from_json(value))
            except _UNREADABLE:
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
                _to_json(stamps)
                return _encode({"stamped_headers": value, "stamps": stamps}, reading)
            except _UNREADABLE:
                _reject(field, "stamps that JSON has")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: bytes) -> Any:
            held = _plain_value(value)
            return held.get("stamped_headers") if isinstance(held, dict) else None

        return write


class CeleryPickle(_Bytes):
    """A text of JSON, of which the column holds a pickle of the value; a binary value that is a pickle, as it is."""

    name = "celery-pickle"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, _reading: Reading) -> bytes:
            if isinstance(value, bytes) and _is_pickle(value):
                return bytes(value)
            if type(value) is not str:
                _reject(field, "a text that holds JSON, or a pickle")
            try:
                return _pickled(_from_json(value))
            except _UNREADABLE:
                _reject(field, "a text that Celery can read as JSON")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        """Write JSON for a pickle that a reader made; any other is a binary value."""

        def write(value: bytes) -> str | bytes:
            try:
                return _to_json(_unpickled(value))
            except _UNREADABLE:
                return value

        return write


_OF_TEXTS: Final = frozenset(
    {"PROTO", "FRAME", "EMPTY_LIST", "MEMOIZE", "BINPUT", "MARK", "SHORT_BINUNICODE", "BINUNICODE", "APPEND", "APPENDS"}
) | {"STOP"}
"""The opcodes of a pickle of a list of texts."""


def _ids_of(value: object, field: Field) -> list[str]:
    """Return the ids of the tasks of a saved group: JSON, or a pickle, which is not executed."""
    ids: Any = None
    try:
        if isinstance(value, bytes) and _is_pickle(value):
            operations = [(operation.name, argument) for operation, argument, _ in pickletools.genops(value)]
            if _OF_TEXTS.issuperset(name for name, _ in operations):
                ids = [argument for name, argument in operations if name.endswith("UNICODE")]
        elif type(value) is str:
            ids = json.loads(value)
    except (ValueError, RecursionError):
        pass
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        _reject(field, _IDS)
    return ids


class CeleryGroup(_Bytes):
    """The ids of a group's tasks, of which the column holds the group as ``GroupResult.as_tuple`` gives it."""

    name = "celery-group"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes | None:
            children = [[[one, None], None] for one in _ids_of(value, field)]
            return _encode([[reading.document["_id"], None], children], reading)

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: bytes) -> str | None:
            try:
                _, children = json.loads(value)
                return json.dumps([one for (one, _), _ in children])
            except _UNREADABLE:
                return None

        return write


_GLOBAL: Final = b"ccelery.app.base\n_unpickle_appattr\n"
"""What Celery's own pickles of results call: it takes a class from the current application by name."""


class CeleryGroupPickle(_Bytes):
    """The ids of a group's tasks, of which the column holds a pickle of the ``GroupResult``.

    It names what Celery's own pickle names, and nothing of the application; the results take the application's backend.
    """

    name = "celery-group-pickle"

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: object, reading: Reading) -> bytes:
            children = b"".join(_call("AsyncResult", _text(one) + b"\x85") for one in _ids_of(value, field))
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
            ids = [one for name, one in pairwise(texts) if name == "AsyncResult"]
            return json.dumps(ids)

        return write


def _call(name: str, arguments: bytes) -> bytes:
    return _GLOBAL + _text(name) + arguments + b"\x86R"


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8", "surrogatepass")
    return b"X" + len(encoded).to_bytes(4, "little") + encoded
