"""Converters of texts: as they are, as lists, words that stand for others, names of known things, and cron lines."""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final
from uuid import UUID

import msgspec
from bson.binary import UUID_SUBTYPE, Binary

from migrator import cron
from migrator.cron import ZoneError
from migrator.cron.zones import resolve
from migrator.sources import aggregates
from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    Aggregate,
    Converter,
    Operation,
    Reader,
    Same,
    Target,
    Uncounted,
    Writer,
    always,
    column_name,
    memo,
    no_operation,
    written_words,
)
from migrator.sources.mapping.converters.numbers import LARGEST_DOUBLE, NUMBER, NUMBERS, members
from migrator.sources.mapping.language import CRON_PARTS, Field, Reading
from migrator.sources.mapping.sql import literal
from migrator.sources.profile import Note, Rejected
from migrator.sources.shapes import plain, text, unknown_value

TEXT: Final = frozenset({"text"})
UNKNOWN_ZONE: Final = "unknown-zone"
_UUID_BYTES: Final = 16
_whole = re.compile(r"0|-?[1-9][0-9]{0,18}").fullmatch


def longest_of(field: Field) -> int:
    """Return the bytes that a text may have in the columns of a field; 0: any number."""
    return min(filter(None, map(tables.longest_of, field.columns)), default=0)


class Text(Uncounted):
    """A text, as it is; of documents that hold numbers, the digits."""

    name = "text"
    column_types = TEXT
    options: tuple[str, ...] = ("also", "trim", "exact", "type", "default", "write_default", "write_null")

    def shape(self, field: Field, /) -> Any:
        return str | None if field.type is None else NUMBER

    def reader(self, target: Target, /) -> Reader | None:
        checked, path = target.checked, target.field.path
        if target.field.type is not None:
            return partial(_digits, path)
        if target.field.exact:
            checked = _without_nul(checked)
        if not target.field.trim:
            return lambda value, _reading: checked(value, path)

        def read(value: str, _reading: Reading) -> str | None:
            trimmed = text(value, path)
            return trimmed if trimmed is None or checked is plain else checked(trimmed, path)

        return read

    def writer(self, field: Field, /) -> Writer | None:
        if field.type is None:
            return None
        number = NUMBERS[field.type]
        return lambda value: number(int(value)) if _is_long(value) else None

    def operation(self, field: Field, /) -> Operation:
        if field.type is not None:
            return Operation(name="memo", options=frozenset({"type"}))
        return Operation(
            name="trimmed" if field.trim else "text",
            options=frozenset({"trim", "exact"}),
            shapes=(str,),
            step={"longest": longest_of(field)},
        )


def _without_nul(checked: Callable[[str, str], str]) -> Callable[[str, str], str]:
    def whole(value: str, path: str) -> str:
        if "\0" in value:
            raise Rejected("nul", path, "a text without U+0000")
        return checked(value, path)

    return whole


def _digits(path: str, value: float, _reading: Reading) -> str:
    digits = spelled_number(value)
    if not _is_long(digits):
        raise Rejected("wrong-type", path, "a whole number of 64 bits")
    return digits


def _is_long(text: str) -> bool:
    """Whether a text is a number of 64 bits as Python writes it."""
    return _whole(text) is not None and -(2**63) <= int(text) < 2**63


class Texts(Uncounted):
    """A list of texts."""

    name = "texts"
    column_types = frozenset({"text[]"})
    options = ("also", "write_null")
    shape = always(list[str] | None)

    def reader(self, target: Target, /) -> Reader | None:
        checked, path = target.checked, f"{target.field.path}[]"
        return lambda value, _reading: tuple(checked(item, path) for item in value)

    def writer(self, _field: Field, /) -> Writer | None:
        return list

    def operation(self, field: Field, /) -> Operation:
        return Operation(name="texts", shapes=(list[str],), step={"longest": longest_of(field)})


class NumberList(Uncounted):
    """An array of whole numbers, of which the column holds the digits with commas between them."""

    name = "number-list"
    column_types = TEXT
    options = ("also", "write_null")
    place = "fields"
    shape = always(list[Any] | None)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        checked, path = target.checked, target.field.path

        def read(value: list[Any], _reading: Reading) -> str | None:
            if any(not isinstance(number, int) or isinstance(number, bool) for number in value):
                raise Rejected("wrong-type", f"{path}[]", "int")
            return checked(",".join(str(int(number)) for number in value), path) if value else None

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        def write(value: str) -> list[int] | None:
            numbers = value.split(",")
            return [int(number) for number in numbers] if all(map(_whole, numbers)) else None

        return write


class Words(Converter):
    """A word that stands for another, or for a number."""

    name = "words"
    column_types = frozenset({"text", "int2", "int4", "int8"})
    options = ("also", "words", "write_as", "type", "allow_unknown", "default", "write_default", "write_null")
    operation = memo("words", "write_as", "type", "allow_unknown")

    def shape(self, field: Field, /) -> Any:
        return str | None if field.type is None else NUMBER

    def reader(self, target: Target, /) -> Reader | None:
        field, checked = target.field, target.checked
        spellings, path, keep = field.words, field.path, field.allow_unknown
        word_of = _word if field.type is None else spelled_number
        written = set(written_words(spellings).values())
        unknown = "unknown-word" if field.finding is None else field.finding

        def read(value: Any, reading: Reading) -> Any:
            word = word_of(value)
            stored = spellings.get(word)
            if stored is None:
                if not keep:
                    raise unknown_value(path, tuple(spellings))
                reading.notes.append(Note(unknown, path))
                return checked(value, path)
            if word not in written and unknown:
                reading.notes.append(Note("alias", path))
            return stored

        return read

    def writer(self, field: Field, /) -> Writer | None:
        written: dict[Any, Any] = {**field.write_as, **written_words(field.words)}
        if field.type is not None:
            number = NUMBERS[field.type]
            written = {value: number(int(word)) for value, word in written.items()}
        listed = tables.words_of(field.columns[0])
        writes_all = field.allow_unknown or (bool(listed) and written.keys() >= {*listed})
        if writes_all and all(value == word for value, word in written.items()):
            return None
        return (lambda value: written.get(value, value)) if field.allow_unknown else written.get

    def aggregate(self, field: Field, value: Any, sql: str, _default: Any, /) -> Aggregate | None:
        column = column_name(field)
        given: dict[Any, Any] = dict(field.words)
        if field.type is not None:
            given = {int(old): new for old, new in given.items()}
        renamed = {old: new for old, new in given.items() if old != new}
        spelled = aggregates.words(value, renamed)
        is_text = tables.type_of(field.columns[0]) == "text"
        branches = "".join(f" WHEN {literal(old)} THEN {literal(new)}" for old, new in field.words.items())
        otherwise = f" ELSE ({sql})::text" if is_text else ""
        source_sql = f"CASE ({sql})::text{branches}{otherwise} END" if branches else f"({sql})::text"
        if not is_text:
            number = aggregates.number(spelled)
            return Aggregate(kind="sum", expression=number, sql=f"{column}::numeric", source_sql=source_sql)
        expression = aggregates.free_words(column, value, renamed).expression if field.allow_unknown else spelled
        return Aggregate(kind="group", expression=expression, sql=column, source_sql=source_sql)


def _word(value: str) -> str:
    """Return a text; JavaScript code, a ``str`` to Python, is no word."""
    return value if type(value) is str else ""


def spelled_number(value: float) -> str:
    """Return a number as ``words`` spells it; what is no whole number is no word."""
    return str(int(value)) if value == value // 1 and abs(value) < LARGEST_DOUBLE else ""


class Zone(Same):
    """The name of a time zone."""

    name = "zone"
    column_types = TEXT
    options = ("also", "default", "write_default", "write_null")
    may_unmake = True
    shape = always(str | None)
    operation = memo()

    def reader(self, target: Target, /) -> Reader | None:
        table, path = tables.split(target.column)[0], target.field.path

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


class Version(Same):
    """The version of the document's form; another one than the expected is counted."""

    name = "version"
    column_types = TEXT
    options = ("expected", "write_null")
    needed = ("expected",)
    place = "fields"
    shape = always(str | None)
    operation = memo("expected")

    def reader(self, target: Target, /) -> Reader | None:
        field = target.field

        def read(value: str, reading: Reading) -> str | None:
            if value == field.expected:
                return value
            version = value.strip() or None
            if version is not None and version != field.expected:
                reading.notes.append(Note("unknown-schema-version", field.path))
            return version

        return read


class Uuid(Uncounted):
    """A UUID, stored as a text."""

    name = "uuid"
    column_types = TEXT
    options = ("also", "write_null")
    shape = always(Any)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        path = target.field.path

        def read(value: object, _reading: Reading) -> str:
            if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE and len(value) == _UUID_BYTES:
                return str(UUID(bytes=bytes(value)))
            raise Rejected("wrong-type", path, "a UUID")

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return lambda value: Binary(UUID(value).bytes, UUID_SUBTYPE)


class Cron(Text):
    """A cron line, which makes a trigger if its dialect can evaluate it."""

    name = "cron"
    options = ("also", "dialect", "local", "write_null")
    may_unmake = True

    def reader(self, target: Target, /) -> Reader | None:
        read, field = super().reader(target), target.field
        if tables.native_column(target.column) is None or read is None:
            return read

        def read_evaluable(value: str, reading: Reading) -> Any:
            """Return the line; a library's table has no rows of lines that the library cannot evaluate."""
            try:
                cron.validate(field.dialect, value, None)
            except cron.CronError:
                raise Rejected("unknown-value", field.path, f"a cron line of the dialect {field.dialect}") from None
            return read(value, reading)

        return read_evaluable

    def operation(self, field: Field, /) -> Operation:
        operation = super().operation(field)
        return msgspec.structs.replace(operation, options=operation.options | {"dialect"})


class CronField(Uncounted):
    """One field of a cron line, as a text or a number."""

    name = "cron-field"
    column_types = TEXT
    options = ("part", "dialect", "default", "write_default")
    needed = ("part",)
    place = "fields"
    shape = always(str | int | None)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        field, checked = target.field, target.checked
        place, path = CRON_PARTS.index(field.part), field.path

        @lru_cache(maxsize=1_024)
        def takes(text: str) -> bool:
            line = ["*"] * len(CRON_PARTS)
            # as Celery reads it: spaces around a number alone, and nothing else with spaces
            parts = [part.strip() if part.strip().isdecimal() else part for part in text.split(",")]
            line[place] = ",".join(parts)
            if len(" ".join(line).split(" ")) != len(line):
                return False
            try:
                cron.validate(field.dialect, " ".join(line), None)
            except cron.CronError:
                return False
            return True

        def read(value: str | int, _reading: Reading) -> str:
            text = checked(str(value), path)
            if not takes(text):
                raise Rejected("unknown-value", path, f"a field of a cron line that the dialect {field.dialect} takes")
            return text

        return read

    def writer(self, _field: Field, /) -> Writer | None:
        return None


class CronFields(Uncounted):
    """A document that holds the fields of a cron line."""

    name = "cron-fields"
    column_types = TEXT
    options = ("members", "dialect", "local", "fixed")
    needed = ("members",)
    place = "fields"
    may_unmake = True
    operation = memo("members", "fixed", "dialect")

    def shape(self, field: Field, /) -> Any:
        return members(dict.fromkeys(field.members, str | int | None)) | None

    def reader(self, _target: Target, /) -> Reader | None:
        def read(value: Any, _reading: Reading) -> str | None:
            held = msgspec.structs.astuple(value)
            if all(one is None for one in held):
                return None
            parts = ("*" if one is None else "".join(str(one).split()) for one in held)
            return " ".join(part or "*" for part in parts)

        return read

    def writer(self, field: Field, /) -> Writer | None:
        def write(value: str) -> dict[str, str] | None:
            parts = value.split()
            if len(parts) != len(field.members):
                return None
            return {**field.fixed, **dict(zip(field.members, parts, strict=True))}

        return write
