"""Days of the week and a time of day, in two fields of a document, as one cron line of the dialect ``debian``."""

import re
from collections.abc import Mapping
from typing import Any, Final

from bson.int64 import Int64

from migrator.sources.mapping import tables
from migrator.sources.mapping.converters.base import (
    UNEVALUABLE,
    Reader,
    Target,
    Uncounted,
    Writer,
    always,
    no_operation,
    value_at,
    written_words,
)
from migrator.sources.mapping.converters.numbers import NUMBERS
from migrator.sources.mapping.converters.texts import TEXT, spelled_number
from migrator.sources.mapping.language import WEEKDAYS, Field, Reading, TimeFormat
from migrator.sources.profile import Note, Rejected
from migrator.sources.shapes import unknown_value

DIALECT: Final = "debian"
_TIMES: Final[Mapping[TimeFormat, tuple[str, str]]] = {
    "HH:MM": (r"([01][0-9]|2[0-3]):([0-5][0-9])", "{:02}:{:02}"),
    "HH:MM:SS": (r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])", "{:02}:{:02}:00"),
    "HH:MM:SS.mmmZ": (r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])\.([0-9]{3})Z", "{:02}:{:02}:00.000Z"),
}
"""To the expression of a text, and how one is written."""
_line = re.compile(r"([0-9]|[1-5][0-9]) ([0-9]|1[0-9]|2[0-3]) \* \* (\*|[a-z]{3}(?:,[a-z]{3})*)").fullmatch


class Weekdays(Uncounted):
    """The days; a document without one makes no trigger."""

    name = "weekdays"
    column_types = TEXT
    options = ("time", "time_format", "first", "holds", "words", "type", "local")
    needed = ("time",)
    place = "fields"
    may_unmake = True
    shape = always(list[Any] | None)
    operation = no_operation

    def reader(self, target: Target, /) -> Reader | None:
        field, table = target.field, tables.split(target.column)[0]
        time, matches = field.time.split("."), re.compile(_TIMES[field.time_format][0]).fullmatch

        def read(value: list[Any], reading: Reading) -> str | None:
            days = _flagged(field, value) if field.first else _named(field, value)
            if not days:
                return None
            text = value_at(reading.document, time)
            if text is None:
                raise Rejected("missing-field", field.time, f"a time of day as {field.time_format}")
            match = matches(text) if type(text) is str else None
            if match is None:
                raise Rejected("bad-date", field.time, f"a time of day as {field.time_format}")
            hour, minute, *seconds = map(int, match.groups())
            if any(seconds):
                reading.unusable[table] = Note(UNEVALUABLE, field.time)
                return None
            listed = "*" if len(days) == len(WEEKDAYS) else ",".join(day for day in WEEKDAYS if day in days)
            return f"{minute} {hour} * * {listed}"

        return read

    def writer(self, field: Field, /) -> Writer | None:
        spellings = written_words(field.words)
        number = str if field.type is None else lambda word: NUMBERS[field.type or "int"](int(word))
        flags: Mapping[bool, Any] = _FLAGS[field.holds]

        def write(line: str) -> list[Any] | None:
            match = _line(line)
            if match is None:
                return None
            days = {*WEEKDAYS} if match[3] == "*" else {*match[3].split(",")}
            if field.first:
                return [flags[day in days] for day in _from(field.first)] if days <= {*WEEKDAYS} else None
            return [number(spellings[day]) for day in WEEKDAYS if day in days] if days <= spellings.keys() else None

        return write


class WeekdayTime(Uncounted):
    """The time of day, which is read with the days; ``file`` adds it to each field of ``weekdays``."""

    name = "weekday-time"
    column_types = TEXT
    options: tuple[str, ...] = ()
    in_files = False
    shape = always(Any)
    operation = no_operation

    def reader(self, _target: Target, /) -> Reader | None:
        return lambda _value, _reading: None

    def writer(self, field: Field, /) -> Writer | None:
        def write(line: str) -> str | None:
            match = _line(line)
            return None if match is None else _TIMES[field.time_format][1].format(int(match[2]), int(match[1]))

        return write


_FLAGS: Final[Mapping[str | None, Mapping[bool, Any]]] = {
    "text": {True: "1", False: "0"},
    "flag": {True: True, False: False},
    None: {True: 1, False: 0},
}
"""``Field.holds`` to what stands for a day that is meant, and for one that is not."""


def _from(first: str) -> tuple[str, ...]:
    """Return the days of a week that begins with this one."""
    start = WEEKDAYS.index(first)
    return WEEKDAYS[start:] + WEEKDAYS[:start]


def _flagged(field: Field, value: list[Any]) -> set[str]:
    """Return the days whose flags are set."""
    yes, no = _FLAGS[field.holds].values()
    kinds = (int, float) if field.holds is None else (type(yes),)
    is_flag = [isinstance(one, kinds) and isinstance(one, bool) == isinstance(yes, bool) for one in value]
    if len(value) != len(WEEKDAYS) or not all(is_flag) or not all(one in (yes, no) for one in value):
        raise Rejected("wrong-type", field.path, f"seven times {no!r} or {yes!r}")
    return {day for day, one in zip(_from(field.first), value, strict=True) if one == yes}


def _named(field: Field, value: list[Any]) -> set[str]:
    """Return the days that are listed."""
    days = set()
    for one in value:
        word = one if field.type is None else spelled_number(one) if type(one) in (int, Int64, float) else None
        if type(word) is not str:
            raise Rejected("wrong-type", f"{field.path}[]", "string" if field.type is None else "int")
        if word not in field.words:
            raise unknown_value(f"{field.path}[]", tuple(field.words))
        days.add(field.words[word])
    return days
