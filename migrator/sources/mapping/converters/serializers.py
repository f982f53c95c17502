"""The serializers of Celery's results: JSON, pickle, MessagePack and YAML, each as Kombu calls it.

No class of the application is imported, and no pickle is executed: pickles are read opcode by opcode
(``sources.pickles``), YAML with PyYAML's safe loader and without merge keys. Values are plain data: what JSON has, with
bytes, times, decimals and UUIDs where the serializer has them. A tuple is a list.
"""

import base64
import io
import json
import pickle
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeGuard
from uuid import UUID

import msgspec

from migrator.cron import ZoneError
from migrator.cron import zone as zone_by_name
from migrator.errors import ConfigurationError, install_extra
from migrator.sources import pickles
from migrator.sources.pickled_values import local_of, zone_of
from migrator.sources.pickles import Made, PickledDict
from migrator.sources.profile import Rejected
from migrator.values.times import to_bson

_PICKLE: Final = b"\x80"
"""The first byte of a pickle of protocol 2 or later; Celery writes no other. Alone it is MessagePack's empty map."""
_PROTOCOL: Final = 4
_YAML_END: Final = b"\n"
"""PyYAML ends each document with it, and nothing that writes JSON for Celery does."""
_MOST_VALUES: Final = 500_000
"""Of a value, counted as a tree: a YAML text may name one list many times."""
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
UNREADABLE: Final = (ValueError, TypeError, AttributeError, InvalidOperation, RecursionError, OverflowError)
"""What reading and writing raise for what a serializer cannot read or write."""


class Serializer(msgspec.Struct, frozen=True):
    """How an application writes what it stores; both functions raise one of ``UNREADABLE``.

    Those of YAML raise ``ConfigurationError`` where PyYAML is not installed.
    """

    dump: Callable[[Any], bytes]
    """From plain data."""
    load: Callable[[bytes], Any]
    is_text: bool
    """MongoDB holds a text, else a binary value."""


def from_json(text: str | bytes) -> Any:
    """Return the value of a text as Kombu decodes it; raises one of ``UNREADABLE``."""
    return json.loads(text.decode() if isinstance(text, bytes) else text, object_hook=_decoded)


def _decoded(held: dict[str, Any]) -> Any:
    if held.keys() != {_MARK, _VALUE}:
        return held
    if held[_MARK] not in _DECODERS:
        raise ValueError
    return _DECODERS[held[_MARK]](held[_VALUE])


def to_json(value: Any) -> str:
    """Return the text that Kombu makes of a value; raises one of ``UNREADABLE``."""
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


def in_order(value: Any) -> str:
    """Return a text that is the same for values that are equal, whatever the order of keys; raises as ``to_json``."""
    return json.dumps(value, default=_encoded, sort_keys=True)


def is_pickle(value: object) -> TypeGuard[bytes]:
    """Whether a value is a pickle: Kombu writes none of a protocol below 2."""
    return isinstance(value, bytes) and value.startswith(_PICKLE) and value != _PICKLE


def to_pickle(value: Any) -> bytes:
    """Return the pickle of plain data, which is the same for equal values."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, _PROTOCOL)
    pickler.fast = True  # without a memo, which tells equal texts from the same text
    pickler.dump(value)
    return buffer.getvalue()


def from_pickle(data: bytes) -> Any:
    """Return the plain data of a pickle; raises ``ValueError`` for any other pickle."""
    try:
        return _plain(pickles.read(data))
    except (Rejected, ZoneError):
        raise ValueError from None


def _plain(value: object) -> Any:  # noqa: PLR0911 - one for each type
    match value:
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case PickledDict():
            if not all(isinstance(key, str) for key, _ in value.pairs):
                raise ValueError
            return {key: _plain(inner) for key, inner in value.pairs}
        case Made(name="datetime.datetime"):
            moment, place = local_of(value, "")
            return moment if place is None else moment.replace(tzinfo=_zone(place))
        case Made(name="datetime.date", arguments=(bytes() as packed,), state=None):
            return date(packed)  # type: ignore[call-arg, arg-type] # the form in which it is pickled
        case Made(name="datetime.time", arguments=(bytes() as packed,), state=None):
            return time(packed)  # type: ignore[arg-type] # as above
        case Made(name="decimal.Decimal", arguments=(str() as text,), state=None):
            return Decimal(text)
        case Made(name="uuid.UUID", arguments=(), state=PickledDict() as state):
            return UUID(int=state.named().get("int"))
        case None | bool() | int() | float() | str() | bytes():
            return value
    raise ValueError


def _zone(place: Made) -> Any:
    found = zone_of(place, "")
    return zone_by_name(found.name)[0] if found.name is not None else timezone(found.offset or timedelta())


def _to_messagepack(value: Any) -> bytes:
    _require_packable(value)
    return msgspec.msgpack.encode(value)


def _from_messagepack(data: bytes) -> Any:
    try:
        value = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        raise ValueError from None
    _require_packable(value)
    return value


def _require_packable(value: Any) -> None:
    """Raise ``TypeError`` for what Kombu's MessagePack does not write, or what is no plain data."""
    match value:
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise TypeError
            for inner in value.values():
                _require_packable(inner)
        case list():
            for inner in value:
                _require_packable(inner)
        case None | bool() | int() | float() | str() | bytes():
            pass
        case _:
            raise TypeError


@cache
def _yaml() -> tuple[Any, Any]:
    """Return PyYAML, and its safe loader without merge keys, which a small text could make large with.

    Raises ``ConfigurationError`` if it is not installed.
    """
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise ConfigurationError(f"what Celery wrote in YAML is read by PyYAML: {install_extra('yaml')}") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined] # no types
        def flatten_mapping(self, node: Any) -> None:
            """Refuse merge keys, which PyYAML never writes."""
            if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
                raise yaml.YAMLError

    return yaml, Loader


def _to_yaml(value: Any) -> bytes:
    yaml, _ = _yaml()
    try:
        return yaml.safe_dump(value).encode()  # type: ignore[no-any-return] # no types
    except yaml.YAMLError:
        raise ValueError from None


def _from_yaml(data: bytes) -> Any:
    text = data.decode()
    yaml, loader = _yaml()
    try:
        value = yaml.load(text, loader)
    except yaml.YAMLError:
        raise ValueError from None
    _count(value, 0)
    return value


def _count(value: Any, counted: int) -> int:
    """Return the number of values; raises ``ValueError`` for more than there may be."""
    if counted > _MOST_VALUES:
        raise ValueError
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, list):
        for inner in value:
            counted = _count(inner, counted)
    return counted + 1


JSON: Final = Serializer(lambda value: to_json(value).encode(), from_json, is_text=True)
PICKLE: Final = Serializer(to_pickle, from_pickle, is_text=False)
MESSAGEPACK: Final = Serializer(_to_messagepack, _from_messagepack, is_text=False)
YAML: Final = Serializer(_to_yaml, _from_yaml, is_text=True)


def of_document(result: object) -> Serializer | None:
    """Return the serializer that made the result of a document; None: one that is not known."""
    if not isinstance(result, bytes):
        return YAML if isinstance(result, str) and result.endswith(_YAML_END.decode()) else JSON
    if is_pickle(result):
        return PICKLE
    return MESSAGEPACK if _reads(MESSAGEPACK, result) else None


def of_bytes(data: bytes) -> Serializer:
    """Return the serializer that made the bytes of a list or of an object; raises ``ValueError`` for another one.

    No two of them read the same bytes but YAML and JSON, which then read the same value.
    """
    if is_pickle(data):
        return PICKLE
    known = (JSON, MESSAGEPACK, YAML) if data.endswith(_YAML_END) else (JSON, MESSAGEPACK)
    for serializer in known:
        if _reads(serializer, data):
            return serializer
    raise ValueError


def _reads(serializer: Serializer, data: bytes) -> bool:
    try:
        serializer.load(data)
    except UNREADABLE:
        return False
    return True


def is_text(data: bytes) -> bool:
    """Whether the bytes of a result are a text: of JSON or YAML, or of what is not known.

    Some results in MessagePack are UTF-8 too: they begin with no ASCII character, or are a small number, which is one
    byte. That of 48 to 57 is a digit, which is taken for JSON.
    """
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    if data[:1].isascii() and (len(data) != 1 or data.isdigit()):
        return True
    return not _reads(MESSAGEPACK, data)


def in_bson(value: Any) -> Any:
    """Return plain data as Celery's MongoDB backend stores it; raises one of ``UNREADABLE`` for what BSON lacks."""
    match value:
        case dict():
            if not all(isinstance(name, str) and "\0" not in name for name in value):
                raise TypeError
            return {in_bson(name): in_bson(inner) for name, inner in value.items()}
        case list():
            return [in_bson(inner) for inner in value]
        case str():
            value.encode()
            return value
        case datetime():
            return value if value.tzinfo is None else to_bson(value)
        case int() if not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            raise ValueError
        case None | bool() | int() | float() | bytes():
            return value
    raise TypeError
