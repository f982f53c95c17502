"""The ``_id`` of a raw document, also of one that cannot be decoded as a whole; and filters that find it again.

An ``_id`` may hold bytes that no Python value stands for (a text that is not UTF-8, a name twice). Its source id holds
those bytes, so whoever asks MongoDB for documents by source id builds the filter with ``among``.
"""

from collections.abc import Iterable
from typing import Any, Literal

import bson
from bson.binary import Binary
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument

from migrator.values import document, identity

_NAME = b"_id\0"
_HEADER = 5
"""Length prefix of a document, and the zero byte at its end."""
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
_STRINGS = (0x02, 0x0D, 0x0E)
_DOCUMENTS = (0x03, 0x04, 0x0F)
_BINARY = 0x05
_ARRAY = 0x04
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
        found = document.decode(raw)["_id"]
    except (document.Undecodable, KeyError):
        element = _first_element(raw)
        return _value_of(element)
    if raw[4] in _FOLDING and raw[5:9] == _NAME:
        return _value_of(_first_element(raw))
    return found


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


def among(source_ids: Iterable[str], operator: Literal["$in", "$nin"] = "$in") -> RawBSONDocument:
    """Return what stands beside ``_id`` in a filter for documents (not) of these source ids.

    Raises ``ValueError`` for a text that is no source id.
    """
    values: list[bytes] = []
    for text in source_ids:
        value = identity.parse_source_id(text)
        values.append(_element_of(value))
        if _is_unreadable(value):
            values.append(bytes(value))
    start = 1 + len(_NAME)
    array = b"".join(
        element[:1] + str(index).encode() + b"\0" + element[start:] for index, element in enumerate(values)
    )
    return RawBSONDocument(_document(bytes([_ARRAY]) + operator.encode() + b"\0" + _document(array)))


def _is_unreadable(value: object) -> bool:
    return isinstance(value, Binary) and value.subtype == UNREADABLE_SUBTYPE and value[1:5] == _NAME


def _element_of(value: object) -> bytes:
    return bson.encode({"_id": value}, codec_options=document.OPTIONS)[4:-1]


def _document(elements: bytes) -> bytes:
    return (len(elements) + _HEADER).to_bytes(4, "little") + elements + b"\0"


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


def source_id_of(raw: bytes) -> str:
    """Return the source id of a raw document, also of one that cannot be decoded as a whole."""
    return identity.source_id(raw_id(raw))
