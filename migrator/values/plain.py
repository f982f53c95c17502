"""What an application would write into JSON for a BSON value.

Lossy on purpose: the column holds what a reader expects to find, and the residue keeps the type. Text
throughout, because a JSON reader knows nothing of BSON.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.regex import Regex
from bson.timestamp import Timestamp

from migrator.values.document import Value
from migrator.values.times import format_iso, from_bson

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Stands for NUL, which PostgreSQL's text and jsonb refuse."""

_UUID_BYTES = 16
_FLAGS = ((2, "i"), (4, "l"), (8, "m"), (16, "s"), (32, "u"), (64, "x"))


def _uuid_or_base64(value: Binary) -> str:
    if value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
        return str(UUID(bytes=bytes(value)))
    return b64encode(value).decode()


def _regex(value: Regex[str]) -> str:
    return f"/{value.pattern}/" + "".join(letter for bit, letter in _FLAGS if value.flags & bit)


_PLAIN: Final[dict[type, Callable[[Any], object]]] = {
    Int64: int,
    Binary: _uuid_or_base64,
    bytes: lambda value: b64encode(value).decode(),
    datetime: lambda value: format_iso(value if value.tzinfo else from_bson(value)),
    DatetimeMS: lambda value: str(int(value)),
    Regex: _regex,
    Timestamp: lambda value: f"{value.time}:{value.inc}",
    DBRef: DBRef.as_doc,
    MinKey: lambda _: "MinKey",
    MaxKey: lambda _: "MaxKey",
}
"""The rest (ObjectId, Decimal128, Code) is its text."""


def plain(value: object) -> object:
    """Return the plain form of one BSON value that JSON lacks.

    ObjectId: hexadecimal. Int64: the number. Decimal128: its digits. Binary: UUID text for a 16 byte subtype 4,
    else base64. Date outside years 1-9999: milliseconds since 1970, as text. Regex: ``/pattern/flags``.
    Timestamp: ``seconds:increment``. Code: its text. DBRef: a document. MinKey and MaxKey: their names.
    """
    return _PLAIN.get(type(value), str)(value)


def plain_tree(value: Value) -> Value:
    """Return the value in plain form at every level: dates as text, NUL replaced in text and keys."""
    if isinstance(value, str):
        return str(value).replace("\0", REPLACEMENT)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {key.replace("\0", REPLACEMENT): plain_tree(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain_tree(item) for item in value]
    return plain_tree(plain(value))
