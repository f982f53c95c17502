"""Ids: how a row is found again from the document it came from.

All of it is computed from the document alone, so a second load meets the rows of the first. Golden values are
tested: a change here separates every migrated database from its source.
"""

import re
from functools import lru_cache
from hashlib import sha1, sha256
from typing import Final
from uuid import NAMESPACE_URL, UUID, SafeUUID, uuid5

from bson.binary import UUID_SUBTYPE, Binary
from bson.objectid import ObjectId

from migrator.values import extended
from migrator.values.document import Value

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
        return f'{{"_id": {{"$oid": "{_id}"}}}}'
    return f"{_HEAD}{extended.dumps(_id)}}}"


def parse_source_id(text: str) -> Value:
    """Return the ``_id`` of a ``source_id``; raises ``ValueError`` for a text that cannot be one."""
    if not text.startswith("{"):
        return text
    found = _object_id(text)
    if found:
        return ObjectId(found[1])
    if not text.startswith(_HEAD):
        raise ValueError("not a source id")
    return extended.loads(text[len(_HEAD) : -1])


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
    """Tell whether a source id holds the UUID that a row keeps as its id."""
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
