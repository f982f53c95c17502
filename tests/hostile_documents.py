"""Documents that a codec, a driver or an aggregation may stumble over, as bytes: no driver writes most of them.

Each stands beside sound documents of its collection. What becomes of one (a row, the quarantine, left behind by rule)
is the profile's matter; that both databases are told the same of it is what the tests look at.
"""

import struct
from collections.abc import Iterator
from typing import Any

import bson
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.objectid import ObjectId

from migrator.sources.profile import Document
from tests.stellaops_documents import fresh

BROKEN = (b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80", b"\xc0\x80", b"ok\xf0\x28\x8c\x28")
"""Bytes of a text that are no UTF-8: a byte order mark, Latin-1, a lone surrogate, an overlong NUL, a cut sequence."""

_DOUBLE, _TEXT, _EMBEDDED, _UNDEFINED, _SYMBOL, _POINTER = 0x01, 0x02, 0x03, 0x06, 0x0E, 0x0C


def element(kind: int, name: bytes, value: bytes) -> bytes:
    """Return the bytes of one element."""
    return bytes([kind]) + name + b"\0" + value


def text(value: bytes) -> bytes:
    """Return the bytes of a text's value, whatever they are."""
    return struct.pack("<i", len(value) + 1) + value + b"\0"


def whole(elements: bytes) -> bytes:
    """Return the document of some elements."""
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def with_elements(document: Document, *more: bytes, key: bytes | None = None) -> bytes:
    """Return a document's bytes with more elements at its end; ``key`` in place of the element ``_id``."""
    raw = bson.encode(document)
    if key is not None:
        without = {name: value for name, value in document.items() if name != "_id"}
        return whole(key + bson.encode(without)[4:-1] + b"".join(more))
    return whole(raw[4:-1] + b"".join(more))


def unreadable_ids(collection: str) -> Iterator[bytes]:
    """Yield documents whose ``_id`` no value stands for: not in UTF-8, in a deprecated type, with a name twice."""
    base = fresh(collection)
    twice = element(_TEXT, b"a", text(b"b")) + element(_TEXT, b"a", text(b"c"))
    yield with_elements(base, key=element(_EMBEDDED, b"_id", whole(twice)))
    yield with_elements(base, key=element(_EMBEDDED, b"_id", whole(element(_SYMBOL, b"a", text(b"b")))))
    yield with_elements(base, key=element(_SYMBOL, b"_id", text(b"a symbol")))
    yield with_elements(base, key=element(_POINTER, b"_id", text(b"a.b") + bytes(12)))
    for bad in BROKEN:
        yield with_elements(base, key=element(_TEXT, b"_id", text(bad)))
        yield with_elements(base, key=element(_EMBEDDED, b"_id", whole(element(_TEXT, b"a", text(bad)))))
        yield with_elements(base, key=element(_EMBEDDED, b"_id", whole(element(_TEXT, b"a" + bad, text(b"b")))))


def broken_texts(collection: str, fields: tuple[str, ...]) -> Iterator[bytes]:
    """Yield documents one field of which holds bytes that are no UTF-8."""
    for number, field in enumerate(fields):
        yield from broken(fresh(collection, _id=f"text-{field}"), field, number)
        inside = {name: value for name, value in fresh(collection, _id=f"inside-{field}").items() if name != field}
        member = whole(element(_TEXT, b"x", text(BROKEN[number % len(BROKEN)])))
        yield with_elements(inside, element(_EMBEDDED, field.encode(), member))


def broken(document: Document, field: str, number: int = 0) -> Iterator[bytes]:
    """Yield a document one field of which holds bytes that are no UTF-8."""
    base = {name: value for name, value in document.items() if name != field}
    yield with_elements(base, element(_TEXT, field.encode(), text(BROKEN[number % len(BROKEN)])))


def odd_elements(collection: str) -> Iterator[bytes]:
    """Yield documents with an element that few drivers write: deprecated types, a name twice or not in UTF-8."""
    base = fresh(collection)
    elements = {
        "a-symbol": element(_SYMBOL, b"message", text(b"symbol")),
        "undefined": element(_UNDEFINED, b"message", b""),
        "pointer": element(_POINTER, b"message", text(b"a.b") + bytes(12)),
        "twice": element(_TEXT, b"tenantId", text(b"another")),
        "broken-name": element(_TEXT, b"na\xffme", text(b"x")),
        "no-name": element(_TEXT, b"", text(b"x")),
        "dollar": element(_TEXT, b"$where", text(b"x")),
        "dotted": element(_TEXT, b"a.b", text(b"x")),
        "double": element(_DOUBLE, b"unknown", struct.pack("<d", float("nan"))),
        "a-nan": element(_DOUBLE, b"unknown", b"\x01\x00\x00\x00\x00\x00\xf8\x7f"),
    }
    for name, one in elements.items():
        yield with_elements(base | {"_id": name}, one)


VALUES: tuple[Any, ...] = (
    None,
    "",
    " ",
    " \t\r\n ",
    "\u00a0",
    "\u2003text\u2003",
    " text ",
    "\0",
    "a\0b",
    "\u202eevil",
    "e\u0301",
    "x" * 3_000,
    0,
    -1,
    2**31,
    Int64(2**62),
    1.5,
    float("nan"),
    float("inf"),
    -0.0,
    Decimal128("NaN"),
    Decimal128("1E+6144"),
    True,
    False,
    [],
    ["", " a ", "a\0b"],
    [None],
    {},
    {"": ""},
    {"$oid": "65a000000000000000000001"},
    ObjectId("65a000000000000000000001"),
    Binary(b"\0", 0x80),
    Regex("a", "i"),
    Code("1"),
    Code("1", {"a": 1}),
    Timestamp(1, 1),
    MinKey(),
    MaxKey(),
    DatetimeMS(-(2**62)),
    DatetimeMS(253_402_300_800_000),
    DatetimeMS(0),
    "2019-11-01T10:00:00+00:00",
    "2019-11-01",
    "noon",
    "65a000000000000000000001",
)
"""A value of every kind that may stand in a field where none was foreseen."""


UNIQUE: dict[str, tuple[str, ...]] = {
    "handlers": ("name",),
    "run_summaries": ("scheduleId",),
    "runs": ("dedupeKey",),
    "policy_runs": ("runId",),
    "policy_jobs": ("runId",),
}
"""Fields that the target keeps unique: two documents with the same text would be one row and one in quarantine."""


def odd_values(collection: str, field: str) -> Iterator[bytes]:
    """Yield documents of a collection, one field of which (``a.b``: of a member) has each of the values."""
    for number, value in enumerate(VALUES):
        document = fresh(collection, _id=f"{field}-{number}")
        for name in UNIQUE.get(collection, ()):
            document[name] = f"{name}-{field}-{number}"
        *steps, last = field.split(".")
        place = document
        for step in steps:
            place = place.setdefault(step, {})
        place[last] = value
        yield bson.encode(document)
