"""Values of BSON as JavaScript's ``JSON.stringify`` writes what the driver for Node makes of them."""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from bson.binary import UUID_SUBTYPE, Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from migrator.values.times import format_javascript, from_bson

EXACT: Final = 2**53
"""The driver makes a number of an int64 up to here, and an object of a larger one."""
_WORD: Final = 2**32
_UUID_BYTES: Final = 16


def _of_binary(value: Binary) -> str:
    if value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
        return str(UUID(bytes=bytes(value)))
    return b64encode(value).decode()


def _of_code(value: Code) -> dict[str, Any]:
    return {"code": str(value)} if value.scope is None else {"code": str(value), "scope": dict(value.scope)}


def _of_long(value: int) -> dict[str, Any]:
    low, high = value % _WORD, value // _WORD
    return {"low": low - _WORD if low >= _WORD // 2 else low, "high": high, "unsigned": False}


FORMS: Final[Mapping[type, Callable[[Any], Any]]] = {
    datetime: lambda value: format_javascript(from_bson(value)),
    ObjectId: str,
    Binary: _of_binary,
    bytes: lambda value: b64encode(value).decode(),
    Int64: _of_long,
    Decimal128: lambda value: {"$numberDecimal": str(value)},
    Regex: lambda _: {},
    Code: _of_code,
    Timestamp: lambda value: {"$timestamp": str(value.time * _WORD + value.inc)},
    DBRef: lambda value: dict(value.as_doc()),
    MinKey: lambda _: {},
    MaxKey: lambda _: {},
}
"""Types of BSON that JSON does not have: the ``toJSON`` of what the driver for Node makes of them. ``DatetimeMS``, a
time outside the years 1 to 9999, has none."""
assert DatetimeMS not in FORMS  # noqa: S101 - as the sentence above says


def stringified(value: Any) -> Any:  # noqa: ANN401 - a value of BSON, and its JSON
    """Return the JSON of a value, as objects of Python; of a time that has none, null."""
    kind = type(value)
    if kind is dict:
        return {name: stringified(inner) for name, inner in value.items()}
    if kind is list:
        return [stringified(inner) for inner in value]
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is Int64 and abs(value) <= EXACT:
        return int(value)
    form = FORMS.get(kind)
    if form is not None:
        return stringified(form(value))
    return None if kind is DatetimeMS else value
