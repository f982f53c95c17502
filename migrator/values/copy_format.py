"""Rows as PostgreSQL's binary COPY format, from the declaration of a record alone.

The columns stand in the order *all but jsonb, then jsonb*: the bytes of the first part are what the server would send
for the same row, so a stored row is compared with an expected one as bytes, and only jsonb, whose text the server
spells its own way, is compared by canonical text.

Layout (https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format"): int16 number of fields; per field
int32 length (-1 for null) and the bytes that the type's ``send`` function gives.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import Struct
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec

from migrator.values import jsonb

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"
TEXT_OID = 25
_LENGTH_BYTES = 4
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_length = Struct("!i").pack
_unpack_length = Struct("!i").unpack_from
_small = Struct("!ih").pack
_int = Struct("!ii").pack
_big = Struct("!iq").pack
_double = Struct("!id").pack
_unpack_double = Struct("!d").unpack
_fields = Struct("!h").pack
_array = Struct("!iiiii").pack


class NulInTextError(ValueError):
    """A text holds U+0000, which PostgreSQL cannot store."""


_short_texts: dict[str, bytes] = {}
"""Short texts that were serialized before: tenants, states and the like come again with every row."""
_MAX_SHORT_TEXTS = 4096
_SHORT_LENGTH = 24


def _text(value: str) -> bytes:
    if "\0" in value:
        raise NulInTextError
    encoded = value.encode()
    cell = _length(len(encoded)) + encoded
    if len(value) <= _SHORT_LENGTH and len(_short_texts) < _MAX_SHORT_TEXTS:
        _short_texts[value] = cell
    return cell


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


def _flag(value: bool) -> bytes:  # noqa: FBT001 - the packer of one value
    return b"\0\0\0\x01\x01" if value else b"\0\0\0\x01\0"


def _time(value: datetime) -> bytes:
    delta = value - EPOCH
    return _big(8, (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds)


def _texts(values: Iterable[str]) -> bytes:
    items = [_short_texts.get(value) or _text(value) for value in values]
    if not items:
        return _length(12) + bytes(8) + _length(TEXT_OID)
    body = b"".join(items)
    return _length(20 + len(body)) + _array(1, 0, TEXT_OID, len(items), 1) + body


_PACKED = {
    "uuid": "UUID_HEAD + {0}.int.to_bytes(16, 'big')",
    "text": "(FEW.get({0}) or TEXT({0}))",
    "text[]": "TEXTS({0})",
    "bool": "FLAG({0})",
    "int2": "SMALL(2, {0})",
    "int4": "INT(4, {0})",
    "int8": "BIG(8, {0})",
    "float8": "DOUBLE(8, {0})",
    "bytea": "BYTES({0})",
    "timestamptz": "TIME({0})",
    "jsonb": "JSON_HEAD(len({0}) + 1, 1) + {0}",
}
"""Column type to the expression that packs a value, written into a record's renderer: a call less for each column."""

_NAMESPACE = {
    "NULL": NULL,
    "UUID_HEAD": b"\0\0\0\x10",
    "FEW": _short_texts,
    "TEXT": _text,
    "TEXTS": _texts,
    "FLAG": _flag,
    "SMALL": _small,
    "INT": _int,
    "BIG": _big,
    "DOUBLE": _double,
    "BYTES": _bytes,
    "TIME": _time,
    "JSON_HEAD": Struct("!ib").pack,
    "JOIN": b"".join,
}
"""What those expressions name; in capitals, since the columns' names are in the same scope."""


_pack = {
    kind: eval(f"lambda value: {packed.format('value')}", _NAMESPACE)  # noqa: S307 - made of the literals above
    for kind, packed in _PACKED.items()
}


def cell(kind: str, value: Any) -> bytes:  # noqa: ANN401 - a value of any column
    """Return the bytes of a value that is not null, without their length; ``kind``: the PostgreSQL type.

    Raises ``NulInTextError`` for a text with U+0000.
    """
    packed: bytes = _pack[kind](value)
    return packed[_LENGTH_BYTES:]


def _read_texts(cell: bytes) -> tuple[str, ...]:
    if _unpack_length(cell, 0)[0] == 0:
        return ()
    texts, position = [], 20
    for _ in range(_unpack_length(cell, 12)[0]):
        length: int = _unpack_length(cell, position)[0]
        texts.append(cell[position + 4 : position + 4 + length].decode())
        position += 4 + length
    return tuple(texts)


READERS: dict[str, Callable[[bytes], Any]] = {
    "uuid": lambda cell: UUID(bytes=cell),
    "text": lambda cell: cell.decode(),
    "text[]": _read_texts,
    "bool": lambda cell: cell == b"\x01",
    "int2": lambda cell: int.from_bytes(cell, "big", signed=True),
    "int4": lambda cell: int.from_bytes(cell, "big", signed=True),
    "int8": lambda cell: int.from_bytes(cell, "big", signed=True),
    "float8": lambda cell: _unpack_double(cell)[0],
    "bytea": bytes,
    "timestamptz": lambda cell: EPOCH + timedelta(microseconds=int.from_bytes(cell, "big", signed=True)),
    "jsonb": lambda cell: jsonb.encode(jsonb.decode(cell[1:])),
}
"""Column type to what reads a cell back; slow, for explanations and tests. jsonb comes back as the text of a record."""


@cache
def column_types(record: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return column → PostgreSQL type, in the record's order, read from its annotations, which is slow."""
    hints = get_type_hints(record, include_extras=True)
    return MappingProxyType({name: _type_name(hints[name]) for name in record.__struct_fields__})


def _type_name(annotation: Any) -> str:  # noqa: ANN401 - an annotation may be anything
    if get_origin(annotation) is Annotated:
        return str(get_args(annotation)[1])
    named = [_type_name(part) for part in get_args(annotation) if part is not type(None)]
    if len(named) != 1:
        raise TypeError(f"no column type in {annotation}")
    return named[0]


def _serializer(
    types: Mapping[str, str], plain: Sequence[str], json: Sequence[str]
) -> Callable[[msgspec.Struct], tuple[bytes, bytes]]:
    """Return a function that serializes a row: one expression over its columns, half the time of a loop over them."""

    def cell(name: str) -> str:
        return f"NULL if {name} is None else {_PACKED[types[name]].format(name)}, "

    source = (
        f"lambda {', '.join(types)}: (JOIN((COUNT, {''.join(map(cell, plain))})), JOIN(({''.join(map(cell, json))})))"
    )
    made: Callable[..., tuple[bytes, bytes]] = eval(source, {**_NAMESPACE, "COUNT": _fields(len(types))})  # noqa: S307 - made of column names alone
    return lambda row: made(*msgspec.structs.astuple(row))


class RowCodec:
    """Serializes the rows of one record type and compares them with stored ones."""

    def __init__(self, record: type[msgspec.Struct]) -> None:
        types = self.types = column_types(record)
        self.plain = tuple(name for name, kind in types.items() if kind != "jsonb")
        self.json = tuple(name for name, kind in types.items() if kind == "jsonb")
        self.columns = self.plain + self.json
        """Column names in the order of the serialized row."""
        self.serialize = _serializer(types, self.plain, self.json)
        """Row → its bytes as (field count and plain columns, jsonb columns).

        Raises ``NulInTextError`` where a text column holds U+0000.
        """

    def equal(self, expected: tuple[bytes, bytes], stored: bytes) -> bool:
        """Whether a stored row, as binary COPY gives it, is the expected one; jsonb by its canonical text."""
        head, tail = expected
        if not stored.startswith(head):
            return False
        here, offset = 0, len(head)
        for _ in self.json:
            wanted: int = _unpack_length(tail, here)[0]
            length: int = _unpack_length(stored, offset)[0]
            here += 4
            offset += 4
            if wanted < 0 or length < 0:
                if wanted != length:
                    return False
                continue
            if not _same_json(tail[here + 1 : here + wanted], stored[offset + 1 : offset + length]):
                return False
            here += wanted
            offset += length
        return True

    def key(self, row: bytes) -> bytes:
        """Return the bytes of a row's primary key: its id, which is its first column, and its tenant."""
        after_id = start = 6 + int.from_bytes(row[2:6], "big")
        for _ in range(self.plain.index("tenant_id") - 1):
            start += 4 + int.from_bytes(row[start : start + 4], "big")
        return row[2:after_id] + row[start : start + 4 + int.from_bytes(row[start : start + 4], "big")]

    def origin(self, row: bytes) -> bytes:
        """Return the document of a row: its source and source id, or the ``_id`` in a job's payload."""
        if "source" in self.plain:
            end = position = 2
            for index in range(4):  # id, tenant_id, source, source_id
                if index == 2:  # noqa: PLR2004 - source begins here
                    position = end
                length = row[end : end + 4]
                end += 4 + (0 if length == NULL else int.from_bytes(length, "big"))
            return row[position:end]
        payload = self.cells(row)["payload"]
        assert payload is not None  # noqa: S101 - NOT NULL in both tables
        members: dict[str, msgspec.Raw] = msgspec.json.decode(payload[1:], type=dict[str, msgspec.Raw])
        return bytes(members.get("_id", b""))

    def cells(self, row: bytes) -> dict[str, bytes | None]:
        """Return column → bytes of a serialized or stored row (jsonb with its version byte)."""
        cells: dict[str, bytes | None] = {}
        position = 2
        for name in self.columns:
            length: int = _unpack_length(row, position)[0]
            position += 4
            cells[name] = None if length < 0 else row[position : position + length]
            position += max(length, 0)
        return cells

    def read(self, row: bytes) -> dict[str, Any]:
        """Return column → value of a serialized or stored row, as a record would hold it."""
        return {name: self.value(name, cell) for name, cell in self.cells(row).items()}

    def differing(self, expected: tuple[bytes, bytes], stored: bytes) -> tuple[str, ...]:
        """Return the names of the columns that differ between an expected and a stored row."""
        wanted, actual = self.cells(expected[0] + expected[1]), self.cells(stored)
        return tuple(name for name in self.columns if not self.same(name, wanted[name], actual[name]))

    def same(self, column: str, expected: bytes | None, stored: bytes | None) -> bool:
        """Whether two values of a column are equal, as ``cells`` gives them; jsonb by its canonical text."""
        if expected == stored:
            return True
        return column in self.json and _same_json(_unversioned(expected), _unversioned(stored))

    def value(self, column: str, cell: bytes | None) -> Any:  # noqa: ANN401 - a value of any column
        """Return a value of a column as a record would hold it, from what ``cells`` gives."""
        return None if cell is None else READERS[self.types[column]](cell)


def _unversioned(cell: bytes | None) -> bytes | None:
    return None if cell is None else cell[1:]


def _same_json(expected: bytes | None, stored: bytes | None) -> bool:
    if expected is None or stored is None:
        return expected is stored
    if expected == stored:
        return True
    canonical = jsonb.canonicalise(stored)
    # What ``jsonb.encode`` wrote is canonical unless it holds a number with an exponent, which is rare.
    return canonical == expected or canonical == jsonb.canonicalise(expected)


def starts(row: bytes) -> list[int]:
    """Return where each field of a serialized row begins, with its length, and where the last one ends."""
    places, position = [], 2
    for _ in range(int.from_bytes(row[:2], "big")):
        places.append(position)
        (length,) = _unpack_length(row, position)
        position += 4 if length < 0 else 4 + length
    places.append(position)
    return places


_codecs: dict[type[msgspec.Struct], RowCodec] = {}


def codec(record: type[msgspec.Struct]) -> RowCodec:
    """Return the codec of a record type; made once per process."""
    known = _codecs.get(record)
    if known is None:
        known = _codecs[record] = RowCodec(record)
    return known
