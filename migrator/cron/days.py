"""Which days of a month a cron line names: the terms of its two day fields, and the rule that joins them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import NamedTuple

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

    ``day`` None is the last day of the month less ``before``. A day the month does not have names nothing, or with
    ``clip`` the last one.
    """

    day: int | None
    before: int = 0
    clip: bool = False

    def days(self, month: Month) -> Iterable[int]:
        """Return the days of this month."""
        day = month.length - self.before if self.day is None else self.day
        if self.clip:
            day = min(day, month.length)
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
    weeks: frozenset[int] | None = None
    """ISO week numbers."""
    spills: bool = False
    """The engine takes 29 to 31 February for days in March: it goes on there, past earlier days that are due."""

    def by_month(self, year: int, month: int) -> tuple[int, ...]:
        """Return the days that the day-of-month field names in one month, ascending."""
        shape = _shape(year, month)
        named = range(1, shape.length + 1) if self.month_days is None else _union(self.month_days, shape)
        return tuple(sorted(day for day in named if 1 <= day <= shape.length))

    def of(self, year: int, month: int) -> tuple[int, ...]:
        """Return the days of one month, ascending."""
        if month not in self.months or (self.years is not None and year not in self.years):
            return ()
        shape = _shape(year, month)
        found = self._joined(shape)
        if self.spills and month == _MARCH and _FEBRUARY in self.months:
            start = self._spilt(_shape(year, _FEBRUARY))
            found = {day for day in found if day >= start}
        if self.weeks is not None:
            found = {day for day in found if date(year, month, day).isocalendar().week in self.weeks}
        return tuple(sorted(day for day in found if 1 <= day <= shape.length))

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
    found: set[int] = set()
    for term in terms:
        if isinstance(term, int):
            found.add(term)
        else:
            found.update(term.days(shape))
    return found
