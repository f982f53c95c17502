"""Hypothesis strategies for BSON: every type, and the spellings that trip a migration.

``values()``, ``documents()`` and ``identifiers()`` give what ``values.document.decode`` gives back: naive UTC datetimes
with milliseconds, ``bytes`` for subtype 0, plain dictionaries. Deprecated types have no Python value; ``DEPRECATED``
has them as raw documents.
"""

import math
import struct
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import strategies as st

Value: TypeAlias = Any
Document = dict[str, Any]


class Late(NamedTuple):
    """A value to be made at the end: shrinking trips over subclasses of str, bytes and int."""

    make: Any
    arguments: tuple[Any, ...]


def late(make: Value, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(Late, st.just(make), st.tuples(*arguments))


def made(value: Value) -> Value:
    if isinstance(value, Late):
        return value.make(*made(list(value.arguments)))
    if isinstance(value, dict):
        return {key: made(item) for key, item in value.items()}
    return [made(item) for item in value] if isinstance(value, list) else value


_characters = st.characters(codec="utf-8")
_key_characters = st.characters(codec="utf-8", exclude_characters="\0")


def texts() -> st.SearchStrategy[str]:
    return st.text(_characters, max_size=12) | st.sampled_from(
        ["", "\0", "a\0b", "{", '{"_id": null}', "null", "\\u0000", "\x7f\u2028", "\U0001f600", *TIMES]
    )


TIMES = [
    "2025-11-02T08:00:00+00:00",
    "2025-11-02T08:00:00Z",
    "2025-11-02T08:00:00.1234567Z",
    "2025-11-02T08:00:00",
    "2025-11-02T08:00:00+01:00",
]

KEYS = [
    "_id",
    "a",
    "b",
    "",
    "$",
    "$oid",
    "$ref",
    "$id",
    "$date",
    "$absent",
    "$object",
    "a.b",
    "~",
    "~3",
    "+a",
    "[0]",
    "0",
]


def keys() -> st.SearchStrategy[str]:
    return st.sampled_from(KEYS) | st.text(_key_characters, max_size=6)


def doubles() -> st.SearchStrategy[float]:
    odd = [-0.0, 1e15, 1e16, 1e22, 1e23, 2.0**63, 1e-5, 5e-324, 1.7976931348623157e308, 1.0, 1.5, math.nan, math.inf]
    unusual_nan: float = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    return st.floats() | st.sampled_from([*odd, -math.inf, unusual_nan])


FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""Milliseconds since 1970 of the first and last instant within years 1-9999."""


def datetimes_within() -> st.SearchStrategy[datetime]:
    epoch = datetime(1970, 1, 1)  # noqa: DTZ001 - decoded BSON dates are naive
    return st.integers(FIRST, LAST).map(lambda ms: epoch + timedelta(milliseconds=ms))


def datetimes() -> st.SearchStrategy[datetime | DatetimeMS]:
    outside = st.integers(-(2**63), FIRST - 1) | st.integers(LAST + 1, 2**63 - 1)
    return datetimes_within() | outside.map(DatetimeMS)


def decimals() -> st.SearchStrategy[Decimal128]:
    odd = ["0", "-0", "0E+3", "1.10", "1E+6111", "9E-6176", "NaN", "sNaN", "-Infinity", "Infinity"]
    numbers = st.decimals(places=3, max_value=10**28, min_value=-(10**28)).filter(
        lambda d: len(d.as_tuple().digits) < 34
    )
    encodings = st.binary(min_size=16, max_size=16).map(Decimal128.from_bid)
    return st.sampled_from(odd).map(Decimal128) | numbers.map(Decimal128) | encodings


def binaries() -> st.SearchStrategy[Any]:
    uuids = st.binary(min_size=16, max_size=16)
    return (
        st.binary(max_size=20)
        | late(Binary, st.binary(max_size=20), st.integers(1, 255).filter(lambda subtype: subtype not in {2, 9}))
        | late(Binary, uuids, st.sampled_from([3, 4]))
        | late(Binary, st.binary(max_size=9), st.just(2))
    )


def scalars() -> st.SearchStrategy[Any]:
    patterns = st.text(_key_characters, max_size=6)
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**31), 2**31 - 1),
        late(Int64, st.integers(-(2**63), 2**63 - 1)),
        late(Int64, st.integers(-5, 5)),
        doubles(),
        texts(),
        decimals(),
        binaries(),
        st.binary(min_size=12, max_size=12).map(ObjectId),
        datetimes(),
        late(Regex, patterns, st.integers(0, 63).map(lambda bits: bits << 1)),
        late(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
        late(Code, texts()),
        st.sampled_from([MinKey(), MaxKey()]),
    )


def values() -> st.SearchStrategy[Any]:
    """Return any BSON value, nested."""

    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        members = st.dictionaries(keys(), inner, max_size=4)
        return st.lists(inner, max_size=4) | members | late(Code, texts(), members)

    return st.recursive(scalars(), containers, max_leaves=8).map(made)


def documents() -> st.SearchStrategy[Document]:
    """Return any document; one in a few has an ``_id``."""
    return st.dictionaries(keys(), values(), max_size=5)


def identifiers() -> st.SearchStrategy[Any]:
    """Return any ``_id`` that MongoDB takes, and documents with ``$`` keys, which only other writers store."""
    looks = st.sampled_from(["1", "null", "true", "{", '{"_id": {"$numberInt": "1"}}', "6b00806e2c09809457accb5b"])
    flat = scalars().map(made).filter(lambda value: not isinstance(value, Regex))
    return (
        flat | looks | st.sampled_from([1, 1.0, Int64(1), None, True]) | st.dictionaries(keys(), values(), max_size=4)
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Document, Document]:
    """Return a document and another one near it: what a codec with faults would rebuild."""
    document = draw(documents())
    rebuilt = dict(document)
    for key in draw(st.lists(st.sampled_from(sorted({*document, *KEYS})), max_size=4)):
        if draw(st.booleans()):
            rebuilt.pop(key, None)
        elif isinstance(rebuilt.get(key), list) and draw(st.booleans()):
            rebuilt[key] = [draw(values()), *rebuilt[key][1:]]
        elif isinstance(rebuilt.get(key), dict) and draw(st.booleans()):
            rebuilt[key] = {**rebuilt[key], draw(keys()): draw(values())}
        else:
            rebuilt[key] = draw(values())
    return document, rebuilt


def element(kind: int, name: str, payload: bytes = b"") -> bytes:
    """Return the BSON of one member."""
    return bytes([kind]) + name.encode() + b"\0" + payload


def raw_document(*elements: bytes) -> bytes:
    """Return the BSON of a document made of raw members."""
    body = b"".join(elements) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def raw_text(text: bytes) -> bytes:
    """Return the payload of a text."""
    return struct.pack("<i", len(text) + 1) + text + b"\0"


DEPRECATED = {
    "undefined": raw_document(element(0x06, "a")),
    "symbol": raw_document(element(0x0E, "a", raw_text(b"x"))),
    "dbpointer": raw_document(element(0x0C, "a", raw_text(b"c") + bytes(12))),
}
"""Raw documents with types that Python reads as something else."""

FOLDED = {
    "duplicate key": raw_document(element(0x0A, "a"), element(0x08, "a", b"\1")),
    "array keys": raw_document(element(0x04, "a", raw_document(element(0x0A, "7")))),
    "regex flag g": raw_document(element(0x0B, "a", b"x\0g\0")),
}
"""Raw documents that Python reads without an error and writes differently."""
