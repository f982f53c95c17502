"""Plain JSON text for jsonb columns, and what PostgreSQL makes of it.

The plain form of a BSON value is what an application would write into JSON. It is lossy on purpose: the column holds
what a reader expects to find, and the remainder keeps the type.

``encode`` writes sorted keys and no white space. jsonb keeps numbers as decimals: ``1.0`` and ``1`` stay apart in the
text, but ``-0.0`` comes back as ``0.0``, and a double written with an exponent comes back with all its digits, so as an
integer when it has no fraction (``1e22``). ``decode`` gives what comes back, whether it reads what was written or what
PostgreSQL returned.

Texts are compared with ``same``, or by bytes after ``canonicalise`` on both sides. ``encode`` already writes the
canonical text of every value without a negative zero and without a double from 1e16 on, which jsonb turns into an
integer.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec
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
_REGEX_FLAGS = ((2, "i"), (4, "l"), (8, "m"), (16, "s"), (32, "u"), (64, "x"))


def _uuid_or_base64(value: Binary) -> str:
    if value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
        return str(UUID(bytes=bytes(value)))
    return b64encode(value).decode()


def _regex(value: Regex[str]) -> str:
    return f"/{value.pattern}/" + "".join(letter for bit, letter in _REGEX_FLAGS if value.flags & bit)


_PLAIN_FORMS: Final[dict[type, Callable[[Any], object]]] = {
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


def plain_value(value: object) -> object:
    """Return the plain form of one BSON value that JSON lacks.

    ObjectId: hexadecimal. Int64: the number. Decimal128: its digits. Binary: UUID text for a 16 byte subtype 4,
    else base64. Date outside years 1-9999: milliseconds since 1970, as text. Regex: ``/pattern/flags``.
    Timestamp: ``seconds:increment``. Code: its text. DBRef: a document. MinKey and MaxKey: their names.
    """
    return _PLAIN_FORMS.get(type(value), str)(value)


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
    return plain_tree(plain_value(value))


_write = msgspec.json.Encoder(order="sorted", enc_hook=plain_value).encode

# msgspec writes dates itself, in a spelling that is not ours, so its output is searched for one. A text of
# the same shape merely takes the slower way to the same result; the canonical spelling (+00:00) does not
# match.
_maybe_date = re.compile(rb'T\d\d:\d\d:\d\d(?:\.\d{6})?(?:Z|[+-](?!00:00)\d\d:\d\d)?"').search
_NUL = b"\\u0000"
_BACKSLASH = ord("\\")
_T = ord("T")
_DOUBLE_DIGITS = 15


def encode(value: Value) -> bytes:
    """Return the JSON text of a BSON value, as an application would write it.

    Lossy, deterministic and accepted by PostgreSQL: NaN and infinities become null, NUL becomes U+FFFD, for
    the other types see ``plain.plain``.
    """
    text = _write(value)
    # Looking for one byte first is ten times as fast as for several.
    if (_BACKSLASH in text and _NUL in text) or (_T in text and _maybe_date(text)):
        return _write(plain_tree(value))
    return text


def decode(text: bytes | str) -> Value:
    """Return the value that a jsonb column has after the text was stored; raises ``msgspec.DecodeError``."""
    return _read(text)


def as_sent(text: bytes | str) -> bytes:
    """Return the text in which PostgreSQL sends a jsonb value back, of everyday numbers at least."""
    return json.dumps(_in_sent_order(_read(text)), ensure_ascii=False).encode()


def _in_sent_order(value: Value) -> Value:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return {key: _in_sent_order(value[key]) for key in keys}
    return [_in_sent_order(item) for item in value] if isinstance(value, list) else value


def canonicalise(text: bytes | str) -> bytes:
    """Return the one text for all spellings of what is the same value in jsonb (1 and 1.0 differ)."""
    return _write(_read_exactly(text))


def same(left: bytes | str, right: bytes | str) -> bool:
    """Whether two JSON texts are the same value in jsonb, 1 and 1.0 told apart."""
    return left == right or canonicalise(left) == canonicalise(right)


def _number(text: str) -> float | int:
    """Read a number with a fraction or an exponent as jsonb would return it."""
    mantissa, _, exponent = text.lower().partition("e")
    if not exponent:
        return float(text) + 0.0  # jsonb has no negative zero
    fraction = mantissa.partition(".")[2]
    return float(text) + 0.0 if len(fraction) > int(exponent) else int(Decimal(text))


def _exact_number(text: str) -> Value:
    number = _number(text)
    if len(text) > _DOUBLE_DIGITS and Decimal(text) != Decimal(repr(number)):
        # Never from BSON: someone else wrote it. Kept, so that it cannot pass for the double next to it.
        return msgspec.Raw(text.encode())
    return number


_read = msgspec.json.Decoder(float_hook=_number).decode
_read_exactly = msgspec.json.Decoder(float_hook=_exact_number).decode
