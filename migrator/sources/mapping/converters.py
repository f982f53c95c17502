"""The converters of the mapping language: for each, what is read, what is written, and what is counted apart.

``reader`` gives the function from the value of a field to that of a column, ``writer`` the inverse. A reader
raises ``Rejected`` for a value that the column cannot hold. What a writer does not give back exactly is remainder.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias, cast, get_args, get_origin
from uuid import UUID

import msgspec
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator import constraints
from migrator.cron import ZoneError
from migrator.cron.zones import resolve
from migrator.sources.mapping import tables
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.language import MILLISECONDS, Field, Reading
from migrator.sources.profile import Document, Note, Rejected
from migrator.sources.shapes import (
    Moment,
    Shape,
    choice,
    indexed,
    instant,
    ordered_reader,
    plain,
    text,
    unknown_value,
)
from migrator.values import identity, jsonb, table_row
from migrator.values.times import format_iso, format_javascript, parse_iso, to_bson

Reader: TypeAlias = Callable[[Any, Reading], Any]
"""From the value of a field, and what was read of the document so far, to which it may add findings."""
Writer: TypeAlias = Callable[[Any], Any]

UNKNOWN_ZONE: Final = "unknown-zone"
_JSON_NULL: Final = b"null"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = int | float | None
_PER_SECOND: Final = {"seconds": 1, "milliseconds": 1_000, "milliseconds-text": 1_000, "microseconds": 1_000_000}
TABLE_ENCODINGS: Final = ("timestamptz", "timestamp")
_TIMES: Final[Mapping[str, Any]] = (
    dict.fromkeys(("date", "iso", "iso-z"), Moment)
    | dict.fromkeys(TABLE_ENCODINGS, Any)
    | {"milliseconds-text": str | None}
)
_UUID_BYTES: Final = 16
_ID_SECONDS: Final = 4
"""Bytes of an ObjectId that hold its time."""
_digits = re.compile(r"-?[0-9]{1,16}").fullmatch
_LARGEST_DOUBLE: Final = 2.0**63

SHAPES: Final[Mapping[str, Any]] = {
    "text": str | None,
    "words": str | None,
    "cron": str | None,
    "zone": str | None,
    "tenant": str | None,
    "number": _NUMBER,
    "duration": _NUMBER,
    "flag": bool | None,
    "texts": list[str] | None,
    "json": Any,
    "json-text": Any,
    "version": str | None,
    "reference": Any,
    "id-time": Any,
    "id-text": Any,
    "own-id": Any,
    "uuid": Any,
    "column": Any,
}
"""Converter to the type of a field, as ``shapes.read`` checks it; the others depend on more of the field."""

_HELD: Final[Mapping[str, Any]] = {
    "list": list[Any],
    "object": dict[str, Any],
    "keywords": dict[str, Any],
    "text": str,
    "flag": bool,
}
"""What a JSON value must be to its type."""

COLUMN_TYPES: Final[Mapping[str, frozenset[str]]] = {
    "text": frozenset({"text"}),
    "cron": frozenset({"text"}),
    "cron-fields": frozenset({"text"}),
    "version": frozenset({"text"}),
    "uuid": frozenset({"text"}),
    "zone": frozenset({"text"}),
    "tenant": frozenset(),
    "own-id": frozenset(),
    "number": frozenset({"int2", "int4", "int8"}),
    "words": frozenset({"text", "int2", "int4", "int8"}),
    "duration": frozenset({"int8"}),
    "flag": frozenset({"bool"}),
    "texts": frozenset({"text[]"}),
    "period": frozenset({"int8"}),
    "json": frozenset({"jsonb"}),
    "json-text": frozenset({"jsonb"}),
    "reference": frozenset({"uuid"}),
    "time": frozenset({"timestamptz"}),
    "id-time": frozenset({"timestamptz"}),
    "id-text": frozenset({"text"}),
}
"""Converter to the types of columns that it fills."""


def shape_of(field: Field) -> Any:  # noqa: ANN401 - an annotation
    """Return the type of a field, as ``shapes.read`` checks it."""
    match field.converter:
        case _ if field.shape is not None:
            found = field.shape if field.required or field.shape is Any else field.shape | None
        case "words" if field.type is not None:
            found = _NUMBER
        case "json" if field.holds is not None:
            found = _HELD[field.holds] | None
        case "time":
            found = _TIMES.get(field.encoding, _NUMBER)
        case "period":
            found = _members({field.number: _NUMBER, field.unit_from: str | None}) | None
        case "cron-fields":
            found = _members(dict.fromkeys(field.members, str | int | None)) | None
        case _:
            found = SHAPES[field.converter]
    return str if field.required and found == str | None else found


def _members(kinds: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a type made at run time
    """Return the type of a document with these members, whose attributes have their order."""
    names = {f"m{index}": name for index, name in enumerate(kinds)}
    fields = [(f"m{index}", kind, None) for index, kind in enumerate(kinds.values())]
    return msgspec.defstruct("Members", cast("Any", fields), bases=(Shape,), rename=names, kw_only=True, gc=False)


def inner_paths(field: Field) -> tuple[str, ...]:
    """Return the members of a field that a converter reads."""
    if field.converter == "period":
        return (field.number, field.unit_from, *field.fixed)
    return (*field.members, *field.fixed)


def reader(field: Field, column: str) -> Reader | None:
    """Return the function that reads a field for this column (``table.column``); None: the value as it is.

    It returns None for a value that stands for none. The type of a number with a shape has its bounds, but for a
    counter's.
    """
    if field.converter == "number" and field.shape is not None and column not in constraints.COUNTERS:
        return None
    return _READERS[field.converter](field, column)


def none_of(field: Field) -> Any:  # noqa: ANN401 - a number of some BSON type
    """Return what is written for a column that holds nothing; None if nothing is."""
    return None if field.none is None else _NUMBERS[field.type or "int"](field.none)


def writer(field: Field) -> Writer | None:
    """Return the function that writes a field from its first column; None: the value as it is.

    It returns None for what is not written.
    """
    return _WRITERS[field.converter](field)


def _text_reader(field: Field, column: str) -> Reader:
    checked, path = indexed if column in tables.INDEXED else plain, field.path
    if not field.trim:
        return lambda value, _reading: checked(value, path)

    def read(value: str, _reading: Reading) -> str | None:
        trimmed = text(value, path)
        return trimmed if trimmed is None or checked is plain else checked(trimmed, path)

    return read


def _texts_reader(field: Field, column: str) -> Reader:
    checked, path = indexed if column in tables.INDEXED else plain, f"{field.path}[]"
    return lambda value, _reading: tuple(checked(item, path) for item in value)


def _zone_reader(field: Field, column: str) -> Reader:
    table, path = tables.split(column)[0], field.path

    def read(value: str, reading: Reading) -> str | None:
        try:
            zone = resolve(plain(value, path))
        except ZoneError:
            reading.unusable[table] = Note(UNKNOWN_ZONE, path)
            return None
        if zone != value:
            reading.notes.append(Note("mapped-zone", path))
        return zone

    return read


def _own_id_reader(field: Field, _column: str) -> Reader:
    def read(value: object, reading: Reading) -> None:
        if value != reading.document["_id"]:
            reading.notes.append(Note("id-mismatch", field.path))

    return read


def _own_id_writer(_field: Field) -> Writer:
    """Write the ``_id`` from the source id if it is a text."""

    def write(source_id: str) -> str | None:
        if not source_id.startswith("{"):
            return source_id
        value = identity.parse_source_id(source_id)
        return value if type(value) is str else None

    return write


def _version_reader(field: Field, _column: str) -> Reader:
    def read(value: str, reading: Reading) -> str | None:
        if value == field.expected:
            return value
        version = value.strip() or None
        if version is not None and version != field.expected:
            reading.notes.append(Note("unknown-schema-version", field.path))
        return version

    return read


def _words_reader(field: Field, column: str) -> Reader:
    words, path, keep = field.words, field.path, field.keep
    checked = indexed if column in tables.INDEXED else plain
    word_of = _spelled if field.type is not None else _word
    written = set(written_words(words).values())
    unknown = "unknown-word" if field.finding is None else field.finding

    def read(value: Any, reading: Reading) -> Any:  # noqa: ANN401 - a word, or a number
        word = word_of(value)
        found = words.get(word)
        if found is None:
            if not keep:
                raise unknown_value(path, tuple(words))
            reading.notes.append(Note(unknown, path))
            return checked(value, path)
        if word not in written and unknown:
            reading.notes.append(Note("alias", path))
        return found

    return read


def written_words(words: Mapping[str, Any]) -> dict[Any, str]:
    """Return each value of a column with the word that it is written as: the first that stands for it."""
    written: dict[Any, str] = {}
    for source, target in words.items():
        written.setdefault(target, source)
    return written


def _words_writer(field: Field) -> Writer | None:
    written: dict[Any, Any] = {**field.write_as, **written_words(field.words)}
    if field.type is not None:
        number = _NUMBERS[field.type]
        written = {value: number(int(word)) for value, word in written.items()}
    listed = constraints.WORDS.get(field.columns[0], ())
    writes_all = field.keep or (bool(listed) and written.keys() >= {*listed})
    if writes_all and all(value == word for value, word in written.items()):
        return None
    return (lambda value: written.get(value, value)) if field.keep else written.get


def _time_reader(field: Field, _column: str) -> Reader | None:
    if field.encoding in ("date", "iso", "iso-z"):
        return None
    if field.encoding in TABLE_ENCODINGS:
        return partial(_read_table_time, field)
    unit, path = field.encoding.removesuffix("-text"), field.path
    is_text = unit != field.encoding

    def read(value: Any, _reading: Reading) -> datetime | None:  # noqa: ANN401 - a number, or a text of one
        if value == "":
            return None  # how Hangfire writes a time that is not set
        if is_text and not _digits(value):
            return _instant(value, path)
        try:
            return _EPOCH + timedelta(**{unit: int(value) if is_text else value})
        except (OverflowError, ValueError):
            raise Rejected("bad-date", path, "a time in the years 1 to 9999") from None

    return read


def _instant(value: str, path: str) -> datetime:
    """Read the other spelling of ``milliseconds-text``, which older releases of a scheduler may have written."""
    try:
        return parse_iso(plain(value, path))
    except ValueError:
        expected = "milliseconds since 1970 as a text of digits, or an ISO 8601 text with an offset"
        raise Rejected("bad-date", path, expected) from None


def _read_table_time(field: Field, value: object, _reading: Reading) -> datetime:
    if not isinstance(value, Binary) or value.subtype != table_row.TIME:
        raise Rejected("wrong-type", field.path, f"a {field.encoding}")
    try:
        found: Any = table_row.from_bson(value)
        naive = found.tzinfo is None
        moment: datetime = found.replace(tzinfo=UTC) if naive else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise Rejected("bad-date", field.path, "a time in the years 1 to 9999") from None
    if naive != (field.encoding == "timestamp"):
        raise Rejected("wrong-type", field.path, f"a {field.encoding}")
    return moment


def _uuid_reader(field: Field, _column: str) -> Reader:
    def read(value: object, _reading: Reading) -> str:
        if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
            return str(UUID(bytes=bytes(value)))
        raise Rejected("wrong-type", field.path, "a UUID")

    return read


def _time_writer(field: Field) -> Writer:
    if field.encoding == "timestamptz":
        return table_row.time
    if field.encoding == "timestamp":
        return lambda value: table_row.time(value.astimezone(UTC).replace(tzinfo=None))
    if field.encoding == "date":
        return to_bson
    if field.encoding in ("iso", "iso-z"):
        return format_iso if field.encoding == "iso" else format_javascript
    per_second = _PER_SECOND[field.encoding]
    microsecond = timedelta(microseconds=1)
    if field.encoding == "milliseconds-text":
        return lambda value: str((value - _EPOCH) // timedelta(milliseconds=1))
    number = _NUMBERS[field.type or ("double" if field.encoding == "seconds" else "long")]
    return lambda value: number((value - _EPOCH) / microsecond / (1_000_000 // per_second))


def _id_time_reader(field: Field, column: str) -> Reader:
    table, name = tables.split(column)
    needed = name in tables.needed_columns(table)

    def read(value: object, _reading: Reading) -> datetime | None:
        if isinstance(value, ObjectId):
            return datetime.fromtimestamp(int.from_bytes(value.binary[:_ID_SECONDS], "big"), UTC)
        if needed:
            raise Rejected("wrong-type", field.path, "an ObjectId, which holds a time")
        return None

    return read


def _id_text_reader(field: Field, column: str) -> Reader:
    checked, path = indexed if column in tables.INDEXED else plain, field.path
    return lambda value, _reading: checked(
        str(value) if isinstance(value, ObjectId) else identity.source_id(value), path
    )


def _number_reader(field: Field, column: str) -> Reader:
    """Read a whole number; a duration in some unit is rounded to milliseconds."""
    least, most = tables.bounds_of(column)
    is_duration, path, clamp, add = field.converter == "duration", field.path, field.clamp, field.add
    factor = MILLISECONDS[field.unit] if is_duration else field.factor
    rounds, none = is_duration or factor != 1, field.none

    def read(value: float, reading: Reading) -> int | None:
        if value == none:
            return None
        scaled = value * factor + add
        if not least <= scaled <= most or scaled >= _LARGEST_DOUBLE:
            if not clamp or scaled != scaled:  # noqa: PLR0124 - only NaN is not itself
                raise Rejected("out-of-range", path, f"a number from {least} to {most}")
            reading.notes.append(Note("clamped", path))
            return least if scaled < least else most
        whole = round(scaled)
        if whole != scaled and not rounds:
            raise Rejected("wrong-type", path, "a whole number")
        return whole

    return read


def _word(value: str) -> str:
    """Return a text; JavaScript code, a ``str`` to Python, is no word."""
    return value if type(value) is str else ""


def _spelled(value: float) -> str:
    """Return a number as ``words`` spells it; what is no whole number is no word."""
    return str(int(value)) if value == value // 1 and abs(value) < _LARGEST_DOUBLE else ""


def _number_writer(field: Field) -> Writer:
    number = _NUMBERS[field.type or "int"]
    if field.converter == "number":
        factor, add = field.factor, field.add
        return number if (factor, add) == (1, 0) else lambda value: number((value - add) / factor)
    milliseconds = MILLISECONDS[field.unit]
    return lambda value: number(value / milliseconds)


def _period_reader(field: Field, column: str) -> Reader:
    least, most = tables.bounds_of(column)
    factors = {word: MILLISECONDS[unit] for word, unit in field.words.items()}
    path, of_number, of_unit = field.path, f"{field.path}.{field.number}", f"{field.path}.{field.unit_from}"

    def read(value: Any, _reading: Reading) -> int | None:  # noqa: ANN401 - the struct of ``shape_of``
        number: float | None = value.m0
        unit: str | None = value.m1
        if number is None and unit is None:
            return None
        if number is None or unit is None:
            raise Rejected("missing-field", of_number if number is None else of_unit, "a value")
        factor = factors.get(plain(unit, of_unit))
        if factor is None:
            raise unknown_value(of_unit, tuple(factors))
        scaled = number * factor
        if not least <= scaled <= most or scaled >= _LARGEST_DOUBLE:
            raise Rejected("out-of-range", path, f"a period from {least} to {most} milliseconds")
        return round(scaled)

    return read


def _period_writer(field: Field) -> Writer:
    """Write a period in the largest unit of which it is a multiple."""
    number = _NUMBERS[field.type or "int"]
    units = sorted(
        ((MILLISECONDS[unit], word) for unit, word in written_words(field.words).items()), key=lambda one: -one[0]
    )

    def write(value: int) -> dict[str, Any]:
        factor, word = next((one for one in units if value % one[0] == 0), units[-1])
        return {**field.fixed, field.number: number(value / factor), field.unit_from: word}

    return write


def _cron_fields_reader(_field: Field, _column: str) -> Reader:
    def read(value: Any, _reading: Reading) -> str | None:  # noqa: ANN401 - the struct of ``shape_of``
        held = msgspec.structs.astuple(value)
        if all(one is None for one in held):
            return None
        parts = ("*" if one is None else "".join(str(one).split()) for one in held)
        return " ".join(part or "*" for part in parts)

    return read


def _cron_fields_writer(field: Field) -> Writer:
    def write(value: str) -> dict[str, str] | None:
        parts = value.split()
        if len(parts) != len(field.members):
            return None
        return {**field.fixed, **dict(zip(field.members, parts, strict=True))}

    return write


def _json_reader(field: Field, column: str) -> Reader | None:
    path = field.path.split(".")
    if field.holds == "keywords":
        return _keywords_reader(field, column)
    if tables.member_of(column):
        return None  # encoded with the other members
    if field.respelled:
        return _respelling_reader(field)
    if field.shape is None:
        return lambda value, _reading: jsonb.encode(value)
    if len(path) == 1:
        [name] = path
        return lambda _value, reading: jsonb.encode(reading.document[name])
    return lambda _value, reading: jsonb.encode(value_at(reading.document, path))


def _keywords_reader(field: Field, column: str) -> Reader:
    is_member = bool(tables.member_of(column))

    def read(value: object, _reading: Reading) -> object:
        if not _are_keywords(value):
            raise Rejected("wrong-type", field.path, "an object without names that begin with $")
        return value if is_member else jsonb.encode(value)

    return read


def _are_keywords(value: object) -> bool:
    """Tell whether no object in a value has a name that begins with ``$``."""
    if isinstance(value, dict):
        return not any(name.startswith("$") for name in value) and all(map(_are_keywords, value.values()))
    return not isinstance(value, list) or all(map(_are_keywords, value))


def _respelling_reader(field: Field) -> Reader:
    path = field.path.split(".")

    def read(_value: object, reading: Reading) -> bytes:
        value = value_at(reading.document, path)
        if isinstance(value, dict) and _respelled(value, field.respelled) is value:
            return jsonb.encode(value)
        items = value if isinstance(value, list) else [value]
        spelled = [_respelled(item, field.respelled) for item in items]
        if field.finding != "":
            inner = f"{field.path}[]" if isinstance(value, list) else field.path
            changed = {
                name
                for name in field.respelled
                for item, other in zip(items, spelled, strict=True)
                if other is not item
            }
            reading.notes.extend(Note("alias", f"{inner}.{name}") for name in sorted(changed))
        return jsonb.encode(spelled if isinstance(value, list) else spelled[0])

    return read


def _respelled(item: Any, words: Mapping[str, Mapping[str, str]]) -> Any:  # noqa: ANN401 - whatever the document held
    """Return a document whose words are spelled as the table says, where it has them; itself if it has none."""
    if not isinstance(item, dict):
        return item
    spelled = item
    for name, spellings in words.items():
        word = item.get(name)
        if isinstance(word, str) and word in spellings:
            spelled = {**spelled, name: spellings[word]}
    return spelled


def value_at(document: Document, names: Sequence[str]) -> Any:  # noqa: ANN401 - any value of a document
    """Return what a document holds at a path; None if nothing is there."""
    value: Any = document
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _json_writer(field: Field) -> Writer:
    shape = field.shape
    is_list = get_origin(shape) is list
    inner = get_args(shape)[0] if is_list else shape
    if isinstance(inner, type) and issubclass(inner, Shape):
        return ordered_reader(inner, many=is_list)
    return jsonb.decode


def _json_text_reader(_field: Field, _column: str) -> Reader:
    def read(value: object, _reading: Reading) -> bytes | None:
        if type(value) is not str:
            return None
        try:
            return jsonb.encode(msgspec.json.decode(value))
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return None

    return read


def _json_text_writer(field: Field) -> Writer:
    """Write keys in their order: jsonb has another one, and each storage must give the same text."""
    separators = (", ", ": ") if field.spaced else (",", ":")
    return lambda value: json.dumps(
        jsonb.decode(value), ensure_ascii=field.spaced, separators=separators, sort_keys=True
    )


def _column_reader(field: Field, column: str) -> Reader:
    """Read a value of the column's own type: strictly, as nobody else writes such fields."""
    path, kind = field.path, tables.type_of(column)
    checked = indexed if column in tables.INDEXED else plain
    items = f"{path}[]"
    readers: Mapping[str, Reader] = {
        "jsonb": lambda value, _reading: jsonb.encode(value),
        "timestamptz": lambda value, _reading: instant(value, path),
        "bool": lambda value, _reading: _typed(value, bool, path, "bool"),
        "text[]": lambda value, _reading: tuple(
            indexed(_typed(item, str, items, "string"), items) for item in _typed(value, list, path, "array")
        ),
        "text": lambda value, _reading: checked(_typed(value, str, path, "string"), path),
    }
    if field.words:
        return lambda value, _reading: choice(_typed(value, str, path, "string"), field.words, path)
    if kind in readers:
        return readers[kind]
    least, most = tables.bounds_of(column)

    def read(value: object, _reading: Reading) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise Rejected("wrong-type", path, "int")
        if not least <= value <= most:
            raise Rejected("out-of-range", path, f"int from {least} to {most}")
        return int(value)

    return read


def _typed(value: Any, kind: type, path: str, expected: str) -> Any:  # noqa: ANN401 - a value of that type
    if type(value) is not kind:
        raise Rejected("wrong-type", path, expected)
    return value


def _column_writer(field: Field) -> Writer | None:
    match tables.type_of(field.columns[0]):
        case "jsonb":
            return lambda value: NULL if value == _JSON_NULL else jsonb.decode(value)
        case "timestamptz":
            return to_bson
        case "text[]":
            return list
    return None


_NUMBERS: Final[Mapping[str, Callable[[float], Any]]] = {
    "int": lambda value: round(value) if value == round(value) else value,
    "long": lambda value: Int64(round(value)) if value == round(value) else value,
    "double": float,
}
"""BSON type to the function that writes a number; one with a fraction is a double."""

_READERS: Final[Mapping[str, Callable[[Field, str], Reader | None]]] = {
    "text": _text_reader,
    "cron": _text_reader,
    "words": _words_reader,
    "time": _time_reader,
    "id-time": _id_time_reader,
    "id-text": _id_text_reader,
    "number": _number_reader,
    "duration": _number_reader,
    "period": _period_reader,
    "cron-fields": _cron_fields_reader,
    "texts": _texts_reader,
    "zone": _zone_reader,
    "version": _version_reader,
    "uuid": _uuid_reader,
    "json": _json_reader,
    "json-text": _json_text_reader,
    "own-id": _own_id_reader,
    "column": _column_reader,
    "flag": lambda _field, _column: None,
}

_WRITERS: Final[Mapping[str, Callable[[Field], Writer | None]]] = {
    "words": _words_writer,
    "time": _time_writer,
    "number": _number_writer,
    "duration": _number_writer,
    "period": _period_writer,
    "cron-fields": _cron_fields_writer,
    "texts": lambda _field: list,
    "uuid": lambda _field: lambda value: Binary(UUID(value).bytes, UUID_SUBTYPE),
    "json": _json_writer,
    "json-text": _json_text_writer,
    "reference": lambda field: lambda value: field.prefix + identity.hex_of(value),
    "own-id": _own_id_writer,
    "column": _column_writer,
} | dict.fromkeys(("text", "cron", "zone", "version", "flag", "tenant", "id-time"), lambda _field: None)
