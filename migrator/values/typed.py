"""BSON values as plain JSON that PostgreSQL's jsonb keeps, and back without loss.

Text, booleans, null, arrays, documents, integers and everyday doubles stand for themselves: 5 is an int32,
5000000000 an int64, 5.0 a double. Everything else is an object with one member whose key begins with ``$``:

==========
==========================================================================================================
$absent    true: the document has no such member (only as a whole entry of a residue)
$bid       a decimal's encoding in hexadecimal, where its digits would not give it back
$binary    base64, or [base64, subtype]
$code      text, or [text, scope] $date      ISO-8601 text, or milliseconds since 1970
outside years 1-9999 $decimal   digits
$double    text of a double that jsonb would change: NaN, infinities, -0.0, and what needs an exponent $long
an int64 that would fit int32 $maxKey    true, as $minKey $nan       the 16 hexadecimal digits of an unusual
NaN $object    [[key, value], ...]: a document with keys that begin with ``$`` or hold NUL, or whose order
counts $oid       hexadecimal ObjectId $regex     [pattern, flags as a number] $text      the pieces of a text
between its NULs $timestamp [seconds, increment] ==========
==========================================================================================================
"""

import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from bson.binary import Binary
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

from migrator.values import times
from migrator.values.document import Value, double_of

ABSENT: Final = {"$absent": True}

_INT32: Final = 2**31
_INT64: Final = 2**63
_SMALL: Final = 1e-4
_LARGE: Final = 1e15
_NAN: Final = struct.pack(">d", math.nan)


def write(value: Value, *, ordered: bool = False) -> Value:
    """Return the typed form; ``ordered`` keeps key order. Raises ``TypeError`` for what BSON lacks."""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return _write_document(value, ordered=ordered)
    if isinstance(value, list | tuple):
        return [write(item, ordered=ordered) for item in value]
    if isinstance(value, bytes):
        return _write_binary(value)
    raise TypeError(f"not a BSON type: {type(value).__name__}")


def read(form: Value) -> Value:
    """Return the value of a typed form; raises ``ValueError`` for one that ``write`` does not make."""
    if isinstance(form, dict):
        if len(form) == 1:
            [(key, content)] = form.items()
            if key.startswith("$"):
                reader = _READERS.get(key)
                if reader is None:
                    raise ValueError("unknown type in a residue")
                return reader(content)
        return {key: read(member) for key, member in form.items()}
    if isinstance(form, list):
        return [read(item) for item in form]
    if type(form) is int and not -_INT32 <= form < _INT32:
        return Int64(form)
    return form


def _same(value: Value) -> Value:
    return value


def _write_text(value: str) -> Value:
    return {"$text": value.split("\0")} if "\0" in value else value


def _write_document(value: Mapping[str, Value], *, ordered: bool) -> Value:
    if ordered or any(key.startswith("$") or "\0" in key for key in value):
        return {"$object": [[_write_text(key), write(item, ordered=ordered)] for key, item in value.items()]}
    return {key: write(item) for key, item in value.items()}


def _write_int(value: int) -> Value:
    return value if -_INT64 <= value < _INT64 else _write_double(double_of(value))


def _write_long(value: Int64) -> Value:
    return {"$long": int(value)} if -_INT32 <= value < _INT32 else int(value)


def _write_double(value: float) -> Value:
    if _SMALL <= abs(value) < _LARGE or (value == 0 and math.copysign(1, value) > 0):
        return value
    if math.isnan(value) and struct.pack(">d", value) != _NAN:
        return {"$nan": struct.pack(">d", value).hex()}
    return {"$double": repr(value)}


def _read_nan(digits: str) -> Value:
    return struct.unpack(">d", bytes.fromhex(digits))[0]


def _write_date(value: datetime) -> Value:
    return {"$date": times.format_iso(value if value.tzinfo else times.from_bson(value))}


def _read_date(content: str | int) -> datetime | DatetimeMS:
    return DatetimeMS(content) if isinstance(content, int) else times.to_bson(times.parse_iso(content))


def _write_decimal(value: Decimal128) -> Value:
    digits = str(value)
    return {"$decimal": digits} if Decimal128(digits).bid == value.bid else {"$bid": value.bid.hex()}


def _write_binary(value: bytes) -> Value:
    text = b64encode(value).decode()
    subtype = value.subtype if isinstance(value, Binary) else 0
    return {"$binary": [text, subtype] if subtype else text}


def _read_binary(content: Value) -> bytes:
    return b64decode(content) if isinstance(content, str) else Binary(b64decode(content[0]), content[1])


def _write_code(value: Code) -> Value:
    text = _write_text(str(value))
    return {"$code": text if value.scope is None else [text, write(value.scope, ordered=True)]}


def _read_code(content: Value) -> Code:
    return Code(read(content[0]), read(content[1])) if isinstance(content, list) else Code(read(content))


_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    str: _write_text,
    bool: _same,
    type(None): _same,
    int: _write_int,
    float: _write_double,
    Int64: _write_long,
    datetime: _write_date,
    DatetimeMS: lambda value: {"$date": int(value)},
    ObjectId: lambda value: {"$oid": str(value)},
    Decimal128: _write_decimal,
    Code: _write_code,
    Regex: lambda value: {"$regex": [value.pattern, value.flags]},
    Timestamp: lambda value: {"$timestamp": [value.time, value.inc]},
    MinKey: lambda _: {"$minKey": True},
    MaxKey: lambda _: {"$maxKey": True},
}

_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$bid": lambda digits: Decimal128.from_bid(bytes.fromhex(digits)),
    "$binary": _read_binary,
    "$code": _read_code,
    "$date": _read_date,
    "$decimal": Decimal128,
    "$double": float,
    "$long": Int64,
    "$maxKey": lambda _: MaxKey(),
    "$minKey": lambda _: MinKey(),
    "$nan": _read_nan,
    "$object": lambda pairs: {read(key): read(item) for key, item in pairs},
    "$oid": ObjectId,
    "$regex": lambda content: Regex(*content),
    "$text": "\0".join,
    "$timestamp": lambda content: Timestamp(*content),
}
