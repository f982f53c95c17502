"""A parsed cron line: its errors, its fields, the days that it names, and the wall-clock times that match it.

Each dialect has its own grammar; numbers, names, ranges, and the terms of the two day fields are common.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from migrator.errors import ConfigurationError, UsageError


class CronError(UsageError):
    """The cron text cannot be evaluated by its dialect.

    The message names the field and what was expected, never the text.
    """


class ZoneError(CronError):
    """The time zone is neither a name of the IANA database nor a Windows name known to the CLDR table."""


class UnavailableError(ConfigurationError):
    """The dialect is known, and the library that evaluates it is not installed.

    No ``CronError``: nothing is known about the line, so that nobody may take it for one that is wrong.
    """


SEED: Final = (
    "expected a number in place of H, which is filled in from a seed that the line does not hold;"
    " write the number that the seed gives"
)
"""Why such a field is refused."""


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name in messages, its bounds, and the names it takes (lower case)."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)

    @property
    def all(self) -> range:
        """Return every value of the field."""
        return range(self.low, self.high + 1)

    def error(self, expected: str) -> CronError:
        """Return the error of this field, without its value."""
        return CronError(f"{self.name}: expected {expected}")

    def value(self, text: str) -> int:
        """Read one value, by number or by name in any case."""
        named = self.names.get(text.lower())
        number = digits(text) if named is None else named
        if number is None or not self.low <= number <= self.high:
            raise self.error(f"a value from {self.low} to {self.high}")
        return number

    def step(self, text: str, high: int | None = None) -> int:
        """Read the step after a slash: 1 to ``high``, or any positive number."""
        number = digits(text)
        if not number or (high is not None and number > high):
            raise self.error("a positive step" if high is None else f"a step from 1 to {high}")
        return number

    def span(self, text: str) -> tuple[str, str]:
        """Split ``low-high`` into its two sides."""
        low, dash, high = text.partition("-")
        if not dash or not low or not high or "-" in high:
            raise self.error("a range of two values")
        return low, high

    def item(self, text: str, stars: Collection[str], last: int, most: int | None = None) -> range:
        """Read one of ``stars``, a value or a range, with a step if wanted; what has no end goes up to ``last``."""
        base, slash, step_text = text.partition("/")
        step = self.step(step_text, most) if slash else 1
        if base in stars:
            first = self.low
        elif "-" in base:
            first, last = map(self.value, self.span(base))
            if first > last:
                raise self.error("a range that ascends")
        else:
            first = self.value(base)
            last = last if slash else first
        return range(first, last + 1, step)


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
MONTH_DAY: Final = Field("day of month", 1, 31)
MONTH: Final = Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
WEEKDAY: Final = Field("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)})
ALL_MONTHS: Final = frozenset(MONTH.all)

MACROS: Final = MappingProxyType(
    {
        "@yearly": "0 0 1 1 *",
        "@annually": "0 0 1 1 *",
        "@monthly": "0 0 1 * *",
        "@weekly": "0 0 * * 0",
        "@daily": "0 0 * * *",
        "@midnight": "0 0 * * *",
        "@hourly": "0 * * * *",
    }
)
"""Words that stand for a line of five fields, in the dialects that know them."""

_LONGEST_NUMBER = 9


def digits(text: str) -> int | None:
    """Return the number of an ASCII digit text, or None; very long ones are no numbers here."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def ordered(values: Iterable[int]) -> tuple[int, ...]:
    """Return values sorted, each once."""
    return tuple(sorted(set(values)))


def split(text: str, counts: Iterable[int]) -> list[str]:
    """Split a line into its fields; ``CronError`` unless their number is one of ``counts``."""
    parts = text.split()
    if len(parts) not in counts:
        raise CronError("cron line: expected " + " or ".join(str(count) for count in counts) + " fields")
    return parts


_SATURDAY = 6
_FEBRUARY, _MARCH = 2, 3
_WEEK = 7


class Month(NamedTuple):
    """One month: ``first`` is the weekday of its first day (Sunday is 0), ``length`` its number of days."""

    year: int
    month: int
    first: int
    length: int

    def weekday(self, day: int) -> int:
        """Return the weekday of a day (Sunday is 0); ``day`` may lie beyond the month."""
        return (self.first + day - 1) % _WEEK


@dataclass(frozen=True, slots=True)
class Last:
    """``L`` or ``L-3``: the last day of the month, or so many days before it."""

    before: int = 0

    def days(self, month: Month) -> Iterable[int]:
        """Return the days of this month."""
        return (month.length - self.before,)


@dataclass(frozen=True, slots=True)
class Nearest:
    """``15W`` or ``LW``: the day from Monday to Friday nearest to a day, within the month.

    ``day`` None is the last day of the month less ``before``. A day the month does not have names nothing.
    """

    day: int | None
    before: int = 0

    def days(self, month: Month) -> Iterable[int]:
        """Return the days of this month."""
        day = month.length - self.before if self.day is None else self.day
        if not 1 <= day <= month.length:
            return ()
        weekday = month.weekday(day)
        if weekday == 0:
            return (day + 1 if day < month.length else day - 2,)
        if weekday == _SATURDAY:
            return (day - 1 if day > 1 else day + 2,)
        return (day,)


@dataclass(frozen=True, slots=True)
class Weekday:
    """A weekday (Sunday is 0); with ``nth`` 1-5 only that one of the month, with ``nth`` -1 only the last."""

    weekday: int
    nth: int = 0

    def days(self, month: Month) -> Iterable[int]:
        """Return the days of this month."""
        every = range((self.weekday - month.first) % _WEEK + 1, month.length + 1, _WEEK)
        if self.nth == 0:
            return every
        if self.nth > len(every):
            return ()
        return (every[self.nth - 1] if self.nth > 0 else every[-1],)


_LAST_OF_MONTH: Final = re.compile(r"[Ll](?:-(\d{1,2}))?([Ww])?", re.ASCII)
_MOST_BEFORE = 30


def last_of_month(text: str) -> Last | Nearest | None:
    """Return the days of ``L``, ``L-3``, ``LW`` or ``L-3W``, None for any other text.

    Raises ``CronError`` for more than 30 days before the last.
    """
    match = _LAST_OF_MONTH.fullmatch(text)
    if match is None:
        return None
    before = int(match.group(1) or 0)
    if before > _MOST_BEFORE:
        raise MONTH_DAY.error(f"at most {_MOST_BEFORE} days before the last")
    return Nearest(None, before) if match.group(2) else Last(before)


Term = int | Last | Nearest | Weekday


class Rule(Enum):
    """How the day of the month and the day of the week are joined."""

    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True)
class Days:
    """The days a cron line names. A field that restricts nothing is given as None."""

    month_days: frozenset[Term] | None
    week_days: frozenset[Weekday] | None
    months: frozenset[int]
    rule: Rule = Rule.AND
    years: frozenset[int] | None = None
    spills: bool = False
    """The engine takes 29 to 31 February for days in March: it goes on there, past earlier days that are due."""

    def of(self, year: int, month: int) -> tuple[int, ...]:
        """Return the days of one month, ascending."""
        if month not in self.months or (self.years is not None and year not in self.years):
            return ()
        shape = _shape(year, month)
        days = self._joined(shape)
        if self.spills and month == _MARCH and _FEBRUARY in self.months:
            start = self._spilt(_shape(year, _FEBRUARY))
            days = {day for day in days if day >= start}
        return tuple(sorted(day for day in days if 1 <= day <= shape.length))

    def _joined(self, shape: Month) -> set[int]:
        if self.month_days is None or self.week_days is None:
            terms = self.month_days if self.week_days is None else self.week_days
            return set(range(1, shape.length + 1)) if terms is None else _union(terms, shape)
        by_month, by_week = _union(self.month_days, shape), _union(self.week_days, shape)
        return by_month & by_week if self.rule is Rule.AND else by_month | by_week

    def _spilt(self, february: Month) -> int:
        """Return the day of March to which the days that February lacks lead, or 1."""
        for day in range(february.length + 1, 32):
            by_month = self.month_days is None or day in self.month_days
            by_week = self.week_days is None or Weekday(february.weekday(day)) in self.week_days
            either = self.month_days is not None and self.week_days is not None
            if by_month or by_week if either else by_month and by_week:
                return day - february.length
        return 1


def _shape(year: int, month: int) -> Month:
    first = date(year, month, 1)
    following = date(year + month // 12, month % 12 + 1, 1)
    return Month(year, month, first.isoweekday() % _WEEK, (following - first).days)


def _union(terms: Iterable[Term], shape: Month) -> set[int]:
    union: set[int] = set()
    for term in terms:
        if isinstance(term, int):
            union.add(term)
        else:
            union.update(term.days(shape))
    return union


_DAY = 86400
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9998, 12, 31).toordinal() - _EPOCH


class Gap(Enum):
    """What becomes of times that the clock skips."""

    SKIP = "skipped"
    END = "at the first instant after the gap, once"
    SHIFT = "as late after the gap as the time lies after its start"
    FIRST = "only the first of them, as late after the gap as it lies after its start"


class Fold(Enum):
    """What becomes of times that the clock repeats."""

    ONCE = "once, the first time"
    TWICE = "both times"
    SECOND = "once, the second time"
    ONCE_BY_OFFSET = "once, the second time where the later offset is not negative, else the first time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A parsed cron line.

    The fields are sorted and not empty; ``seconds`` is ``(0,)`` where the line has no seconds field.
    """

    seconds: tuple[int, ...] = (0,)
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: Days
    gap: Gap
    fold: Fold
    years_searched: int = 50
    """How long its engine searches before it gives up."""
    zone: str | None = None
    """A zone named in the text itself; it has precedence over the one given with it."""
    _known_days: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    def times(self) -> Iterator[int]:
        """Yield the times of a day, in seconds, ascending."""
        for hour in self.hours:
            for minute in self.minutes:
                for second in self.seconds:
                    yield hour * 3600 + minute * 60 + second

    def at_or_after(self, wall: int, end: int) -> int | None:
        """Return the first matching wall-clock second from ``wall`` on and before ``end``."""
        if wall >= end:
            return None
        day, second = divmod(wall, _DAY)
        moment = None if self._day_from(day, day) is None else self._time_from(second)
        if moment is None:
            following = self._day_from(day + 1, (end - 1) // _DAY)
            if following is None:
                return None
            day, moment = following, next(self.times())
        found = day * _DAY + moment
        return found if found < end else None

    def _time_from(self, second: int) -> int | None:
        """Return the first time of a day from ``second`` on."""
        first = second // 3600, second // 60 % 60, second % 60
        for hour in self.hours[bisect_left(self.hours, first[0]) :]:
            later = hour > first[0]
            for minute in self.minutes[0 if later else bisect_left(self.minutes, first[1]) :]:
                near = 0 if later or minute > first[1] else bisect_left(self.seconds, first[2])
                if near < len(self.seconds):
                    return hour * 3600 + minute * 60 + self.seconds[near]
        return None

    def _day_from(self, day: int, last: int) -> int | None:
        last = min(last, _LAST_DAY)
        while day <= last:
            when = date.fromordinal(day + _EPOCH)
            known = self._days_of(when.year, when.month)
            at = bisect_left(known, when.day)
            if at < len(known):
                found = day + known[at] - when.day
                return found if found <= last else None
            day = date(when.year + when.month // 12, when.month % 12 + 1, 1).toordinal() - _EPOCH
        return None

    def _days_of(self, year: int, month: int) -> tuple[int, ...]:
        known = self._known_days.get((year, month))
        if known is None:
            known = self._known_days[year, month] = self.days.of(year, month)
        return known
