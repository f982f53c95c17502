"""The remainder: the fields of a document that no column holds, typed, by path.

A remainder is a JSON object from field paths to typed values, and survives jsonb. The law, for every document and every
rebuilt one: ``same(apply(rebuilt, difference(document, rebuilt)), document)``. A path that begins with ``+`` adds a
member that the rebuilt document lacks; any other replaces the value at that path; ``{"$absent": true}`` removes it.
Documents are compared member by member, arrays element by element when they have the same length and else replaced as
a whole.

Field paths are texts: ``stats.queued``, ``images[3].digest``; the empty text is the whole value. Keys may hold
anything, so a character that has a meaning in a path is escaped: ``~0`` for ``~``, ``~1`` for ``.``, ``~2`` for NUL,
``~3`` for an empty key, ``~4`` for ``[``, ``~5`` for ``+``.

Typed values: text, booleans, null, arrays, documents, integers and everyday doubles stand for themselves: 5 is an
int32, 5000000000 an int64, 5.0 a double. Everything else is an object with one member whose key begins with ``$``:

- ``$absent``: true; the document has no such member (only as a whole entry of a remainder)
- ``$bid``: a decimal's encoding in hexadecimal, where its digits would not give it back
- ``$binary``: base64, or [base64, subtype]
- ``$code``: text, or [text, scope]
- ``$date``: ISO-8601 text, or milliseconds since 1970 outside years 1-9999
- ``$decimal``: digits
- ``$double``: text of a double that jsonb would change: NaN, infinities, -0.0, and what needs an exponent
- ``$long``: an int64 that would fit int32
- ``$maxKey``, ``$minKey``: true
- ``$nan``: the 16 hexadecimal digits of an unusual NaN
- ``$object``: [[key, value], ...]; a document with keys that begin with ``$`` or hold NUL, or whose order counts
- ``$oid``: hexadecimal ObjectId
- ``$regex``: [pattern, flags as a number]
- ``$text``: the parts of a text between its NULs
- ``$timestamp``: [seconds, increment]
"""

import math
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import msgspec
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from migrator.values import jsonb, times
from migrator.values.canonical import EXACT, same
from migrator.values.document import Value, double_of

Step: TypeAlias = str | int
"""A key of a document, or an index of an array."""

_ESCAPES = (("~", "~0"), (".", "~1"), ("\0", "~2"), ("[", "~4"), ("+", "~5"))
_special_character = re.compile(r"[~.\0\[+]").search
_array_index = re.compile(r"\[\d+\]")


def member_path(path: str, key: str) -> str:
    """Return the path of a document's member."""
    if not key or _special_character(key):
        for character, escape in _ESCAPES:
            key = key.replace(character, escape)
        key = key or "~3"
    return f"{path}.{key}" if path else key


def parse_path(path: str) -> list[Step]:
    """Return the steps of a path."""
    if not path:
        return []
    parts = path.replace("[", ".[").split(".")
    if path.startswith("["):
        del parts[0]
    return [int(part[1:-1]) if part.startswith("[") else _unescaped_key(part) for part in parts]


def general_path(path: str) -> str:
    """Return the path with every index left out (``images[].digest``), for counting."""
    return _array_index.sub("[]", path) if "[" in path else path


def _unescaped_key(part: str) -> str:
    if part == "~3":
        return ""
    if "~" in part:
        for character, escape in reversed(_ESCAPES):
            part = part.replace(escape, character)
    return part


ABSENT: Final = {"$absent": True}

_INT32: Final = 2**31
_INT64: Final = 2**63
_SMALL: Final = 1e-4
_LARGE: Final = 1e15
_NAN: Final = struct.pack(">d", math.nan)


def write_typed(value: Value, *, ordered: bool = False) -> Value:
    """Return the typed form; ``ordered`` keeps key order. Raises ``TypeError`` for what BSON lacks."""
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, DBRef):
        value = value.as_doc()
    if isinstance(value, Mapping):
        return _write_document(value, ordered=ordered)
    if isinstance(value, list | tuple):
        return [write_typed(item, ordered=ordered) for item in value]
    if isinstance(value, bytes):
        return _write_binary(value)
    raise TypeError(f"not a BSON type: {type(value).__name__}")


def read_typed(form: Value) -> Value:
    """Return the value of a typed form; raises ``ValueError`` for one that ``write`` does not make."""
    if isinstance(form, dict):
        if len(form) == 1:
            [(key, content)] = form.items()
            if key.startswith("$"):
                reader = _READERS.get(key)
                if reader is None:
                    raise ValueError("unknown type in a remainder")
                return reader(content)
        return {key: read_typed(member) for key, member in form.items()}
    if isinstance(form, list):
        return [read_typed(item) for item in form]
    if type(form) is int and not -_INT32 <= form < _INT32:
        return Int64(form)
    return form


def _unchanged(value: Value) -> Value:
    return value


def _write_text(value: str) -> Value:
    return {"$text": value.split("\0")} if "\0" in value else value


def _write_document(value: Mapping[str, Value], *, ordered: bool) -> Value:
    if ordered or any(key.startswith("$") or "\0" in key for key in value):
        return {"$object": [[_write_text(key), write_typed(item, ordered=ordered)] for key, item in value.items()]}
    return {key: write_typed(item) for key, item in value.items()}


def _write_int(value: int) -> Value:
    return value if -_INT64 <= value < _INT64 else _write_double(double_of(value))


def _write_long(value: Int64) -> Value:
    return {"$long": int(value)} if -_INT32 <= value < _INT32 else int(value)


def _write_double(value: float) -> Value:
    if _SMALL <= abs(value) < _LARGE or (value == 0 and math.copysign(1, value) > 0):
        return value
    if math.isnan(value) and struct.pack(">d", value) != _NAN:
        return {"$nan": struct.pack(">d", value).hex()}
    return {"$double": repr(value)}


def _read_nan(digits: str) -> Value:
    return struct.unpack(">d", bytes.fromhex(digits))[0]


def _write_date(value: datetime) -> Value:
    return {"$date": times.format_iso(value if value.tzinfo else times.from_bson(value))}


def _read_date(content: str | int) -> datetime | DatetimeMS:
    return DatetimeMS(content) if isinstance(content, int) else times.to_bson(times.parse_iso(content))


def _write_decimal(value: Decimal128) -> Value:
    digits = str(value)
    return {"$decimal": digits} if Decimal128(digits).bid == value.bid else {"$bid": value.bid.hex()}


def _write_binary(value: bytes) -> Value:
    text = b64encode(value).decode()
    subtype = value.subtype if isinstance(value, Binary) else 0
    return {"$binary": [text, subtype] if subtype else text}


def _read_binary(content: Value) -> bytes:
    return b64decode(content) if isinstance(content, str) else Binary(b64decode(content[0]), content[1])


def _write_code(value: Code) -> Value:
    text = _write_text(str(value))
    return {"$code": text if value.scope is None else [text, write_typed(value.scope, ordered=True)]}


def _read_code(content: Value) -> Code:
    return (
        Code(read_typed(content[0]), read_typed(content[1])) if isinstance(content, list) else Code(read_typed(content))
    )


_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    str: _write_text,
    bool: _unchanged,
    type(None): _unchanged,
    int: _write_int,
    float: _write_double,
    Int64: _write_long,
    datetime: _write_date,
    DatetimeMS: lambda value: {"$date": int(value)},
    ObjectId: lambda value: {"$oid": str(value)},
    Decimal128: _write_decimal,
    Code: _write_code,
    Regex: lambda value: {"$regex": [value.pattern, value.flags]},
    Timestamp: lambda value: {"$timestamp": [value.time, value.inc]},
    MinKey: lambda _: {"$minKey": True},
    MaxKey: lambda _: {"$maxKey": True},
}

_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$bid": lambda digits: Decimal128.from_bid(bytes.fromhex(digits)),
    "$binary": _read_binary,
    "$code": _read_code,
    "$date": _read_date,
    "$decimal": Decimal128,
    "$double": float,
    "$long": Int64,
    "$maxKey": lambda _: MaxKey(),
    "$minKey": lambda _: MinKey(),
    "$nan": _read_nan,
    "$object": lambda pairs: {read_typed(key): read_typed(item) for key, item in pairs},
    "$oid": ObjectId,
    "$regex": lambda content: Regex(*content),
    "$text": "\0".join,
    "$timestamp": lambda content: Timestamp(*content),
}


EMPTY: Final = b"{}"

Kind: TypeAlias = Literal["added", "absent", "null", "nul", "nan", "type", "precision", "spelling", "value"]
"""Why the columns do not carry it.

``added``: no column for this member. ``absent``: the column gives a member that the document lacks. ``null``:
an explicit null. ``nul``: a text with NUL. ``nan``: NaN or an infinity. ``type``: the same or another value
of a type that JSON lacks. ``precision``: a time finer than microseconds. ``spelling``: another text for what
the column holds. ``value``: any other replacement.
"""

LOSSES: Final[frozenset[Kind]] = frozenset({"nul", "nan", "type", "precision"})
"""Kinds where the column holds less than the document did: the loss ledger counts them."""


class Entry(msgspec.Struct, frozen=True):
    """One entry of a remainder: its exact path, the path without indexes (for counting), and why it is there."""

    path: str
    field: str
    kind: Kind


_write_json = msgspec.json.Encoder(order="sorted").encode
_path_of = attrgetter("path")
_MISSING: Final = object()
_KIND_OF_MARKER: Final[dict[str, Kind]] = {"$absent": "absent", "$text": "nul", "$nan": "nan", "$object": "value"}
"""Of a typed form, by its marker; the rest is of another type."""

_finer_time = re.compile(r"[0-9-]{10}T[0-9:]{8}\.[0-9]{6}[0-9]*[1-9]").match


def difference(document: Value, rebuilt: Value) -> bytes:
    """Return the remainder that turns ``rebuilt`` into ``document``; ``b"{}"`` when they are the same."""
    entries: dict[str, Any] = {}
    if type(document) is dict and type(rebuilt) is dict:
        _compare_members(document, rebuilt, "", entries)
    elif not same(document, rebuilt):
        entries[""] = write_typed(document, ordered=isinstance(document, Mapping))
    return _write_json(entries) if entries else EMPTY


def apply(rebuilt: Value, remainder: bytes) -> Value:
    """Return the document; ``rebuilt`` stays as it is. Raises ``ValueError`` when the remainder does not fit it."""
    if remainder == EMPTY:
        return rebuilt
    holder = {"": rebuilt}
    own: set[int] = {id(holder)}
    for text, form in jsonb.decode(remainder).items():
        node: Any = holder
        step: Step = ""
        for following in parse_path(text.removeprefix("+")):
            node, step = _own_child(node, step, own), following
        try:
            if form == ABSENT:
                del node[step]
            else:
                node[step] = read_typed(form)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"a remainder does not fit its rows at {text}") from error
    return holder[""]


def entries(remainder: bytes) -> list[Entry]:
    """Return the entries of a remainder, in the order of their paths; no values."""
    if remainder == EMPTY:
        return []
    listed: list[Entry] = []
    for text, form in jsonb.decode(remainder).items():
        path = text.removeprefix("+")
        listed.append(Entry(path, general_path(path), _kind(form, added=path != text)))
    return sorted(listed, key=_path_of)


def _own_child(node: Value, step: Step, own: set[int]) -> Value:
    """Return the container at ``step`` as a copy that may be changed; it is copied once."""
    try:
        child = node[step]
        if id(child) not in own:
            child = node[step] = child.copy()
            own.add(id(child))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("a remainder does not fit its rows") from error
    return child


def _compare_members(document: dict[str, Any], rebuilt: dict[str, Any], path: str, actual: dict[str, Any]) -> None:
    for key, value in document.items():
        other = rebuilt.get(key, _MISSING)
        if type(value) is type(other) and type(value) in EXACT and value == other:
            continue
        is_id = not path and key == "_id"
        if other is _MISSING:
            actual["+" + member_path(path, key)] = write_typed(value, ordered=is_id)
        elif is_id and isinstance(value, dict):
            if not same({"_id": value}, {"_id": other}):
                actual[key] = write_typed(value, ordered=True)
        else:
            _compare(value, other, member_path(path, key), actual)
    for key in rebuilt:
        if key not in document:
            actual[member_path(path, key)] = ABSENT


def _compare(value: Value, other: Value, path: str, members: dict[str, Value]) -> None:
    if type(value) is dict and type(other) is dict:
        _compare_members(value, other, path, members)
    elif type(value) is list and type(other) is list and len(value) == len(other):
        for index, item in enumerate(value):
            if type(item) not in EXACT or type(item) is not type(other[index]) or item != other[index]:
                _compare(item, other[index], f"{path}[{index}]", members)
    elif not same(value, other):
        members[path] = write_typed(value)


def _kind(form: Value, *, added: bool) -> Kind:
    if form is None:
        return "null"
    if added:
        return "added"
    if isinstance(form, str):
        return "precision" if _finer_time(form) else "spelling"
    if isinstance(form, dict) and len(form) == 1:
        [(key, content)] = form.items()
        if key == "$double" and content in {"nan", "inf", "-inf"}:
            return "nan"
        if key.startswith("$"):
            return _KIND_OF_MARKER.get(key, "type")
    return "value" if isinstance(form, bool | dict | list) else "type"
