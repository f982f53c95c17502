"""Ids: how a row is found again from the document it came from, and a document from its source id.

All of it is computed from the document alone, so a second load meets the rows of the first. Golden values are tested: a
change here separates every migrated database from its source.

A source id is the text of an ``_id``. An ``_id`` that is not a plain text is written as canonical Extended JSON, made
injective: standard Extended JSON turns a member document ``{"$oid": ...}`` into an ObjectId when it is read back, so a
user key that begins with ``$`` is written with one ``$`` more, which is removed on reading. Key order is kept.

An ``_id`` may hold bytes that no Python value stands for (a text that is not UTF-8, a name twice). Its source id holds
those bytes; ``id_filter`` makes the filter that finds such documents again.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from hashlib import sha1, sha256
from typing import Any, Final, Literal
from uuid import NAMESPACE_URL, UUID, SafeUUID, uuid5

import bson
from bson import json_util
from bson.binary import UUID_SUBTYPE, Binary
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.dbref import DBRef
from bson.errors import InvalidBSON
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument

from migrator.values import document
from migrator.values.document import Value

_EXTENDED_JSON = json_util.CANONICAL_JSON_OPTIONS.with_options(
    tz_aware=False, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


def dump_extended_json(value: Value) -> str:
    """Return the text of a BSON value: ASCII only, so without NUL."""
    return json_util.dumps(_escaped(value), json_options=_EXTENDED_JSON)


def load_extended_json(text: str) -> Value:
    """Return the value of a text made by ``dumps``; raises ``ValueError`` or ``TypeError`` for others."""
    return json_util.loads(text, json_options=_EXTENDED_JSON, object_pairs_hook=_member_document)


def _escaped(value: Value) -> Value:
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return {"$" + key if key.startswith("$") else key: _escaped(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if isinstance(value, Code) and value.scope is not None:
        return Code(str(value), _escaped(value.scope))
    return value


def _member_document(pairs: Value) -> Value:
    member = json_util.object_pairs_hook(pairs, _EXTENDED_JSON)
    if isinstance(member, dict):
        return {key.removeprefix("$") if key.startswith("$$") else key: value for key, value in member.items()}
    return member


ROOT: Final = uuid5(NAMESPACE_URL, "urn:migrator:scheduler")
"""The namespace of the namespaces: each target table has ``uuid5(ROOT, table)``."""

_HEAD: Final = '{"_id": '
_BINARY_HEAD: Final = '{"_id": {"$binary": '
_UUID_BYTES: Final = 16

_object_id = re.compile(r'\{"_id": \{"\$oid": "([0-9a-f]{24})"\}\}').fullmatch
_uuid_text = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_prefixed = re.compile(r"[A-Za-z][A-Za-z0-9_-]*_[0-9a-f]{32}").fullmatch

_UUID_LENGTH: Final = 36
_HEX_LENGTH: Final = 32

# UUIDv5: version 5 in bits 76-79, variant 10 in bits 62-63.
_V5_MASK: Final = ~((0xF << 76) | (0x3 << 62)) & ((1 << 128) - 1)
_V5_BITS: Final = (0x5 << 76) | (0x2 << 62)


def source_id(_id: Value) -> str:
    """Return the text of a document's ``_id``, another one for every other value and type.

    A string stands for itself; every other type, and a string that begins with ``{`` or holds NUL, becomes
    ``{"_id": <Extended JSON>}``.
    """
    if type(_id) is str:
        if "\0" not in _id and not _id.startswith("{"):
            return _id
    elif type(_id) is ObjectId:
        return source_id_of_digits(str(_id))
    return f"{_HEAD}{dump_extended_json(_id)}}}"


def source_id_of_digits(digits: str) -> str:
    """Return the source id of an ObjectId by its 24 lower-case digits."""
    return f'{{"_id": {{"$oid": "{digits}"}}}}'


def parse_source_id(text: str) -> Value:
    """Return the ``_id`` of a ``source_id``; raises ``ValueError`` for a text that cannot be one."""
    if not text.startswith("{"):
        return text
    found = _object_id(text)
    if found:
        return ObjectId(bytes.fromhex(found[1]))  # digits are checked once more, and slower
    if not text.startswith(_HEAD):
        raise ValueError("not a source id")
    return load_extended_json(text[len(_HEAD) : -1])


def object_id(row: UUID, at: datetime | None) -> ObjectId:
    """Return the ``_id`` of a document for a row that has none yet: a time (none: 1970), and half of the row's id."""
    seconds = 0 if at is None else max(0, int(at.timestamp()))
    return ObjectId((seconds & 0xFFFFFFFF).to_bytes(4, "big") + row.bytes[8:])


def row_id(table: str, tenant: str, collection: str, source_id: str, *, keep_uuid: bool = True) -> UUID:
    """Return the primary key of the row that ``table`` holds for a document.

    Where ``keep_uuid`` (the first of the collections that feed a table) three kinds of source id keep their
    UUID: its lower-case text, ``prefix_<32 lower-case hex>``, and a BSON UUID of subtype 4. Any other becomes
    UUIDv5 in the table's namespace, of the name tenant NUL collection NUL source id. Other spellings (upper
    case, braces, no hyphens) are not kept, since the text could not be found again.
    """
    if keep_uuid:
        kept = _kept(source_id)
        if kept is not None:
            return kept
    name = _name_prefix(table, tenant, collection) + source_id.encode()
    digest = sha1(name, usedforsecurity=False).digest()
    return uuid_of(int.from_bytes(digest[:_UUID_BYTES], "big") & _V5_MASK | _V5_BITS)


def keeps_uuid(source_id: str) -> bool:
    """Whether a source id holds the UUID that a row keeps as its id."""
    return _kept(source_id) is not None


def event_id(tenant: str, source: str, _id: Value) -> int:
    """Return the serial id of a migrated graph job event: 2^62 + 62 bits of SHA-256."""
    name = f"{tenant}\0{source}\0{source_id(_id)}".encode()
    return (1 << 62) | int.from_bytes(sha256(name).digest()[:8], "big") >> 2


LOCK_NAMESPACE: Final = "scheduler.lock.v1"
"""Keeps the scheduler's advisory locks apart from other applications' in the same database."""


def lock_id(key: str) -> int:
    r"""Return the id of the advisory lock of a lock's key, the same in every process, language and in SQL.

    In SQL (``convert_to`` gives UTF-8, the namespace and the key are parted by a zero byte)::

        ('x' || encode(substring(sha256(convert_to('scheduler.lock.v1', 'UTF8') || '\x00'::bytea
            || convert_to(key, 'UTF8')) from 1 for 8), 'hex'))::bit(64)::bigint

    No normalisation, case matters. A change would let old and new processes hold the same lock.
    """
    return stable_hash64(f"{LOCK_NAMESPACE}\0{key}")


def stable_hash64(text: str) -> int:
    """Return the first 64 bits of SHA-256 of the text, signed."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big", signed=True)


_new = object.__new__
_set_int = UUID.__dict__["int"].__set__
_set_is_safe = UUID.__dict__["is_safe"].__set__
_UNKNOWN: Final = SafeUUID.unknown


def uuid_of(number: int) -> UUID:
    """Return the UUID of a 128 bit number; five times as fast as ``UUID(int=...)``, which checks what is known here."""
    made = _new(UUID)
    _set_int(made, number)
    _set_is_safe(made, _UNKNOWN)
    return made


def hex_of(value: UUID) -> str:
    """Return the 32 digits of a UUID; three times as fast as its attribute ``hex``."""
    return value.int.to_bytes(_UUID_BYTES, "big").hex()


def _kept(text: str) -> UUID | None:
    length = len(text)
    if length == _UUID_LENGTH and text[8] == "-":
        return uuid_of(int(text.replace("-", ""), 16)) if _uuid_text(text) else None
    if length > _HEX_LENGTH and text[-_HEX_LENGTH - 1] == "_":
        return uuid_of(int(text[-_HEX_LENGTH:], 16)) if _prefixed(text) else None
    if text.startswith(_BINARY_HEAD):
        value = parse_source_id(text)
        if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
            return UUID(bytes=bytes(value))
    return None


@lru_cache(maxsize=4096)
def _name_prefix(table: str, tenant: str, collection: str) -> bytes:
    return uuid5(ROOT, table).bytes + f"{tenant}\0{collection}\0".encode()


_ID_NAME = b"_id\0"
_TEXT_ID = b"\x02" + _ID_NAME
_TEXT_START = 4 + len(_TEXT_ID) + 4
"""Where the text of an ``_id`` begins in its document."""
_DOCUMENT_OVERHEAD = 5
"""Length prefix of a document, and the zero byte at its end."""
_FIXED_SIZES = {
    0x01: 8,
    0x06: 0,
    0x07: 12,
    0x08: 1,
    0x09: 8,
    0x0A: 0,
    0x10: 4,
    0x11: 8,
    0x12: 8,
    0x13: 16,
    0x7F: 0,
    0xFF: 0,
}
_STRINGS = (0x02, 0x0D, 0x0E)
_DOCUMENTS = (0x03, 0x04, 0x0F)
_BINARY_TYPE = 0x05
_ARRAY_TYPE = 0x04
_FOLDING = (0x03, 0x0C, 0x0F)
"""Types of which decoding folds several encodings into one value: a document, a pointer, code with its scope."""
_DB_POINTER_TAIL = 12
UNREADABLE_SUBTYPE = 0x80
"""User-defined binary: what stands for an ``_id`` whose bytes cannot be read as a value."""


def raw_id(raw: bytes) -> Any:  # noqa: ANN401 - any BSON value
    """Return the ``_id`` of a stored document; MongoDB keeps it as the first element.

    An ``_id`` that no value stands for (a text that is not UTF-8, a document with a name twice) is returned as binary
    of a user-defined subtype holding its bytes, so that two such documents stay apart.
    """
    try:
        identity = document.decode(raw)["_id"]
    except (document.Undecodable, KeyError):
        element = _first_element(raw)
        return _value_of(element)
    if raw[4] in _FOLDING and raw[5:9] == _ID_NAME:
        return _value_of(_first_element(raw))
    return identity


def _value_of(element: bytes) -> Any:  # noqa: ANN401 - any BSON value
    try:
        found = document.decode(_document(element))["_id"]
        if _element_of(found) == element:
            return found
    except (document.Undecodable, InvalidBSON, KeyError):
        pass
    return Binary(element, UNREADABLE_SUBTYPE)


def bound_of(raw: bytes) -> bytes | None:
    """Return ``{"_id": value}`` as BSON, a bound of a range; None for an ``_id`` that no value stands for."""
    element = _first_element(raw)
    return None if _is_unreadable(_value_of(element)) else _document(element)


def id_filter(source_ids: Iterable[str], operator: Literal["$in", "$nin"] = "$in") -> RawBSONDocument:
    """Return the condition on ``_id`` in a filter for documents (not) of these source ids.

    Raises ``ValueError`` for a text that is no source id.
    """
    values: list[bytes] = []
    for text in source_ids:
        if not text.startswith("{"):
            values.append(_text_element(text))
            continue
        value = parse_source_id(text)
        values.append(_element_of(value))
        if _is_unreadable(value):
            values.append(bytes(value))
    start = 1 + len(_ID_NAME)
    array = b"".join(
        element[:1] + str(index).encode() + b"\0" + element[start:] for index, element in enumerate(values)
    )
    return RawBSONDocument(_document(bytes([_ARRAY_TYPE]) + operator.encode() + b"\0" + _document(array)))


def _is_unreadable(value: object) -> bool:
    return isinstance(value, Binary) and value.subtype == UNREADABLE_SUBTYPE and value[1:5] == _ID_NAME


def _element_of(value: object) -> bytes:
    return bson.encode({"_id": value}, codec_options=document.OPTIONS)[4:-1]


def _text_element(text: str) -> bytes:
    encoded = text.encode()
    return _TEXT_ID + (len(encoded) + 1).to_bytes(4, "little") + encoded + b"\0"


def _document(elements: bytes) -> bytes:
    return (len(elements) + _DOCUMENT_OVERHEAD).to_bytes(4, "little") + elements + b"\0"


def _first_element(raw: bytes) -> bytes:
    kind = raw[4]
    start = 5 + len(_ID_NAME)
    if raw[5:start] != _ID_NAME:
        return raw[4:]
    if kind in _FIXED_SIZES:
        size = _FIXED_SIZES[kind]
    else:
        length = int.from_bytes(raw[start : start + 4], "little")
        if kind in _STRINGS:
            size = 4 + length
        elif kind in _DOCUMENTS:
            size = length
        elif kind == _BINARY_TYPE:
            size = 5 + length
        else:
            size = 4 + length + _DB_POINTER_TAIL
    return raw[4 : start + size]


def source_id_of(raw: bytes) -> str:
    """Return the source id of a raw document, also of one that cannot be decoded as a whole."""
    if raw.startswith(_TEXT_ID, 4):  # most ids: a sixth of the time of decoding the document
        end = _TEXT_START - 1 + int.from_bytes(raw[_TEXT_START - 4 : _TEXT_START], "little")
        with suppress(UnicodeDecodeError):
            if end >= _TEXT_START and raw[end : end + 1] == b"\0":
                return source_id(raw[_TEXT_START:end].decode())
    return source_id(raw_id(raw))
