"""Typed canonical bytes: the one place that decides whether two BSON values are the same.

The bytes are BSON itself, with the keys of every document sorted by their UTF-8 bytes. Arrays keep their
order and all types stay apart: int32, int64, double, bool; -0.0 and 0.0; a NaN equals a NaN of the same bits.
Key order is not compared, except within a document-valued ``_id`` of the outermost document, where MongoDB
itself tells orders apart. Dates count in milliseconds, as in BSON.
"""

from collections.abc import Mapping
from datetime import datetime

import bson
from bson.code import Code
from bson.dbref import DBRef
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.values.document import OPTIONS, Value, with_doubles

_PLAIN = frozenset({str, int, float, bool, type(None), datetime, ObjectId, Int64})
EXACT = _PLAIN - {float}
"""Types of which two equal values are the same; a double is not (0.0 and -0.0)."""


def canonical(value: Value) -> bytes:
    """Return bytes that are equal exactly for the same values; raises what ``bson`` raises for others."""
    ordered = _sorted(value)
    if isinstance(value, Mapping) and isinstance(value.get("_id"), Mapping):
        ordered["_id"] = value["_id"]
    try:
        return bson.encode({"": ordered}, codec_options=OPTIONS)
    except OverflowError:
        return bson.encode({"": with_doubles(ordered)}, codec_options=OPTIONS)


def same(left: Value, right: Value) -> bool:
    """Whether two values are the same in type and content."""
    if type(left) is type(right) and type(left) in EXACT and left == right:
        return True
    return canonical(left) == canonical(right)


def _sorted(value: Value) -> Value:
    kind = type(value)
    if kind is dict:
        # Python orders text by code point, which is the order of its UTF-8 bytes.
        return {key: item if type(item := value[key]) in _PLAIN else _sorted(item) for key in sorted(value)}
    if kind is DBRef:
        value = value.as_doc()
    if isinstance(value, Mapping):
        return _sorted({key: value[key] for key in value})
    if isinstance(value, list | tuple):
        return [item if type(item) in _PLAIN else _sorted(item) for item in value]
    if kind is Code and value.scope is not None:
        return Code(str(value), _sorted(value.scope))
    return value
