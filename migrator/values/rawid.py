"""The ``_id`` of a raw document, also of one that cannot be decoded as a whole."""

from typing import Any

from bson.binary import Binary
from bson.errors import InvalidBSON

from migrator.values import document

_NAME = b"_id\0"
_HEADER = 5
"""Length prefix of the document and type byte of its first element."""
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
_STRINGS = (0x02, 0x0D, 0x0E)
_DOCUMENTS = (0x03, 0x04, 0x0F)
_BINARY = 0x05
_DB_POINTER_TAIL = 12
UNREADABLE_SUBTYPE = 0x80
"""User-defined binary: what stands for an ``_id`` whose bytes cannot be read as a value."""


def raw_id(raw: bytes) -> Any:  # noqa: ANN401 - any BSON value
    """Return the ``_id`` of a stored document; MongoDB keeps it as the first element.

    An ``_id`` that cannot be decoded (a string that is not UTF-8) is returned as binary of a user-defined subtype
    holding its bytes, so that two such documents stay apart.
    """
    try:
        return document.decode(raw)["_id"]
    except (document.Undecodable, KeyError):
        element = _first_element(raw)
    try:
        return document.decode((len(element) + _HEADER).to_bytes(4, "little") + element + b"\0")["_id"]
    except (document.Undecodable, InvalidBSON, KeyError):
        return Binary(element, UNREADABLE_SUBTYPE)


def _first_element(raw: bytes) -> bytes:
    kind = raw[4]
    start = 5 + len(_NAME)
    if raw[5:start] != _NAME:
        return raw[4:]
    if kind in _FIXED:
        size = _FIXED[kind]
    else:
        length = int.from_bytes(raw[start : start + 4], "little")
        if kind in _STRINGS:
            size = 4 + length
        elif kind in _DOCUMENTS:
            size = length
        elif kind == _BINARY:
            size = 5 + length
        else:
            size = 4 + length + _DB_POINTER_TAIL
    return raw[4 : start + size]
