"""Raw BSON to Python and back, one document at a time; and the names of BSON types.

Decoding folds several encodings into one value (a duplicate key, a deprecated type, an array whose keys are not 0, 1,
...). The caller compares ``encode(decode(raw))`` with ``raw`` before it trusts a decoded document.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

import bson
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.errors import BSONError, InvalidBSON
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument
from bson.regex import Regex
from bson.timestamp import Timestamp

Value: TypeAlias = Any
"""A value of any BSON type, as ``decode`` gives it."""
Document: TypeAlias = dict[str, Any]

OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
"""Naive UTC datetimes, ``DatetimeMS`` outside years 1-9999, every UUID subtype left as ``Binary``."""

_RAW = DEFAULT_RAW_BSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_REFERENCE = b"$ref\0"
_DOLLAR = ord("$")
_SMALLEST = 5
_ARRAY_HEAD = 10
"""Bytes before the first element of an array that is a document's only member: two lengths, a type, an empty name."""
_MEMBER_HEAD = 6
"""Bytes before a document's first member with an empty name: a length, a type, the name."""
_ELEMENT_HEAD = 2
"""Bytes before an element besides its index: its type, and what ends the name."""
_INT64 = 2**63


class Undecodable(Exception):  # noqa: N818 - an outcome of one document, not a failure of the tool
    """The bytes are no BSON document that Python can hold.

    ``reason`` is a short stable code: ``bad-utf8``, ``unknown-type``, ``too-deep`` or ``malformed``.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def decode(raw: bytes) -> Document:
    """Return the document, its types kept; raises ``Undecodable``."""
    try:
        document = bson.decode(raw, OPTIONS)
        if _DOLLAR in raw and _REFERENCE in raw:  # one byte first: ten times as fast
            return _inflate_document(RawBSONDocument(raw, _RAW))
    except InvalidBSON as error:
        raise Undecodable(_reason(error)) from error
    except RecursionError as error:
        raise Undecodable("too-deep") from error
    return document


def decode_all(raws: Sequence[bytes]) -> list[Document | Undecodable]:
    """Return the answer or error of ``decode`` for each; faster, since readable documents are decoded in one call."""
    together = b"".join(raws)
    if _DOLLAR not in together or _REFERENCE not in together:
        with suppress(InvalidBSON, RecursionError):
            return list(bson.decode_all(together, OPTIONS))
    return [_decoded(raw) for raw in raws]


def _decoded(raw: bytes) -> Document | Undecodable:
    try:
        return decode(raw)
    except Undecodable as reason:
        return reason


def encode(document: Document) -> bytes:
    """Return the BSON of a document.

    An integer outside int64, which BSON lacks, is written as the double it must have been. Raises what
    ``bson`` raises for values that are not BSON.
    """
    try:
        return bson.encode(document, codec_options=OPTIONS)
    except OverflowError:
        return bson.encode(with_doubles(document), codec_options=OPTIONS)


def writable(document: Document) -> Document:
    """Return the document as the driver writes it: with doubles in place of integers outside int64 (``encode``)."""
    try:
        bson.encode(document, codec_options=OPTIONS)
    except OverflowError:
        return {key: with_doubles(member) for key, member in document.items()}
    except BSONError:
        pass  # the write says what it is
    return document


def encode_to(documents: Sequence[Document], raws: Sequence[bytes]) -> list[bool]:
    """Return for each document whether its BSON, keys in their order, is its raw bytes; False where it is no BSON.

    All are encoded in one call, as an array, whose elements are found by their lengths. (``encode`` puts the ``_id`` of
    the outermost document first, as the server does.)
    """
    try:
        array = bson.encode({"": documents}, codec_options=OPTIONS)
    except (BSONError, OverflowError):
        return [_encodes_to(document, raw) for document, raw in zip(documents, raws, strict=True)]
    equal: list[bool] = []
    position = _ARRAY_HEAD
    for index, raw in enumerate(raws):
        position += _ELEMENT_HEAD + len(str(index))
        equal.append(array.startswith(raw, position))
        position += int.from_bytes(array[position : position + 4], "little")
    return equal


def in_order(document: Document, like: Document) -> Document:
    """Return a document with the keys of another one in its order, at every level but that of ``_id``.

    A document with other keys stays as it is. (The order of keys within an ``_id`` is part of its value.)
    """
    ordered: Document = _in_order(document, like)
    if "_id" in document and ordered is not document:
        ordered["_id"] = document["_id"]
    return ordered


def _in_order(value: Any, like: Any) -> Any:  # noqa: ANN401 - any BSON value
    if type(value) is dict and type(like) is dict:
        if value.keys() != like.keys():
            return value
        return {
            name: _in_order(value[name], inner) if type(inner) is dict or type(inner) is list else value[name]
            for name, inner in like.items()
        }
    if type(value) is list and type(like) is list and len(value) == len(like):
        return [_in_order(one, inner) for one, inner in zip(value, like, strict=True)]
    return value


def _encodes_to(document: Document, raw: bytes) -> bool:
    try:
        return encode({"": document})[_MEMBER_HEAD:-1] == raw
    except (BSONError, OverflowError):  # what the columns give back is not even BSON: then it is not the document
        return False


def split(batch: bytes) -> list[bytes]:
    """Return the raw documents of a raw batch; raises ``Undecodable`` when the lengths do not add up."""
    documents: list[bytes] = []
    start, end = 0, len(batch)
    while start < end:
        size = int.from_bytes(batch[start : start + 4], "little", signed=True)
        if size < _SMALLEST or start + size > end:
            raise Undecodable("malformed")
        documents.append(batch[start : start + size])
        start += size
    return documents


def readable(batches: Iterable[Any]) -> Iterator[Document]:
    """Yield the documents of raw batches that can be decoded; the others are in quarantine, or about to be."""
    for batch in batches:
        for raw in split(batch):
            with suppress(Undecodable):
                yield decode(raw)


def with_doubles(value: Value) -> Value:
    """Return the value with every integer outside int64 as a double."""
    if isinstance(value, dict):
        return {key: with_doubles(member) for key, member in value.items()}
    if isinstance(value, list):
        return [with_doubles(item) for item in value]
    if type(value) is int and not -_INT64 <= value < _INT64:
        return double_of(value)
    return value


def double_of(value: int) -> float:
    """Return the double of an integer, infinite where the largest is too small."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _inflate_document(document: RawBSONDocument) -> Document:
    return {key: _inflate(value) for key, value in document.items()}


def _inflate(value: Value) -> Value:
    """Return the value with plain dictionaries; ``bson`` itself would make a DBRef of one with ``$ref``."""
    if isinstance(value, RawBSONDocument):
        return _inflate_document(value)
    if isinstance(value, list):
        return [_inflate(item) for item in value]
    if isinstance(value, Code) and value.scope is not None:
        return Code(str(value), {key: _inflate(member) for key, member in value.scope.items()})
    return value


def _reason(error: InvalidBSON) -> str:
    text = str(error)
    if "utf-8" in text or "utf8" in text or isinstance(error.__cause__, UnicodeDecodeError):
        return "bad-utf8"
    if "recursion" in text:
        return "too-deep"
    return "unknown-type" if "unknown BSON type" in text else "malformed"


TYPE_NAMES: Final[dict[type, str]] = {
    str: "string",
    int: "int",
    Int64: "long",
    float: "double",
    bool: "bool",
    type(None): "null",
    datetime: "date",
    DatetimeMS: "date",
    ObjectId: "objectId",
    Decimal128: "decimal",
    Binary: "binData",
    bytes: "binData",
    dict: "object",
    list: "array",
    Regex: "regex",
    Timestamp: "timestamp",
    Code: "javascript",
    DBRef: "dbPointer",
    MinKey: "minKey",
    MaxKey: "maxKey",
}


_COLUMN_TYPE_NAMES: Final[dict[type, str]] = {
    UUID: "uuid",
    tuple: "array",
    Decimal: "numeric",
    date: "date",
    timedelta: "interval",
}
"""Values of columns that BSON has no type for, as PostgreSQL calls them."""


def type_name(value: Any) -> str:  # noqa: ANN401 - any BSON value, or one of a column
    """Return the BSON type of a decoded value, or the PostgreSQL type of a column's value that BSON does not have."""
    for kind in type(value).__mro__:
        name = TYPE_NAMES.get(kind) or _COLUMN_TYPE_NAMES.get(kind)
        if name is not None:
            return name
    return "unknown"
