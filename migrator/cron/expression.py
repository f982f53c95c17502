"""One parsed cron line: field sets and the policy of its dialect; finds matching wall-clock seconds.

Wall-clock seconds count from 1970-01-01 00:00 of the zone's own clock, as if it had no zone.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from migrator.cron.days import Days

_DAY = 86400
_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9998, 12, 31).toordinal() - _EPOCH
_FIRST_DAY = 1 - _EPOCH


class Gap(Enum):
    """What becomes of times that the clock skips."""

    SKIP = "skipped"
    END = "at the first instant after the gap, once"
    END_KEEPING_SECONDS = "in the first minute after the gap, once, at its second"
    SHIFT = "as late after the gap as the time lies after its start"
    FIRST = "only the first of them, as late after the gap as it lies after its start"


class Fold(Enum):
    """What becomes of times that the clock repeats."""

    ONCE = "once, the first time"
    TWICE = "both times"
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
    searched_by_field: bool = False
    """The engine does not find fires by sets alone; see ``apscheduler_search``."""
    zone: str | None = None
    """A zone named in the text itself; it wins over the one given with it."""
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
        moment: int | None = None
        if self._matches(day):
            moment = self._time_from(second)
        if moment is None:
            following = self._day_from(day + 1, (end - 1) // _DAY)
            if following is None:
                return None
            day, moment = following, self.hours[0] * 3600 + self.minutes[0] * 60 + self.seconds[0]
        found = day * _DAY + moment
        return found if found < end else None

    def at_or_before(self, wall: int, start: int) -> int | None:
        """Return the last matching wall-clock second up to ``wall`` and not before ``start``."""
        if wall < start:
            return None
        day, second = divmod(wall, _DAY)
        moment: int | None = None
        if self._matches(day):
            moment = self._time_until(second)
        if moment is None:
            preceding = self._day_until(day - 1, start // _DAY)
            if preceding is None:
                return None
            day, moment = preceding, self.hours[-1] * 3600 + self.minutes[-1] * 60 + self.seconds[-1]
        found = day * _DAY + moment
        return found if found >= start else None

    def _time_from(self, second: int) -> int | None:
        hour, minute, rest = second // 3600, second // 60 % 60, second % 60
        at = bisect_left(self.hours, hour)
        if at < len(self.hours) and self.hours[at] == hour:
            near = bisect_left(self.minutes, minute)
            if near < len(self.minutes) and self.minutes[near] == minute:
                last = bisect_left(self.seconds, rest)
                if last < len(self.seconds):
                    return hour * 3600 + minute * 60 + self.seconds[last]
                near += 1
            if near < len(self.minutes):
                return hour * 3600 + self.minutes[near] * 60 + self.seconds[0]
            at += 1
        if at < len(self.hours):
            return self.hours[at] * 3600 + self.minutes[0] * 60 + self.seconds[0]
        return None

    def _time_until(self, second: int) -> int | None:
        hour, minute, rest = second // 3600, second // 60 % 60, second % 60
        at = bisect_right(self.hours, hour) - 1
        if at >= 0 and self.hours[at] == hour:
            near = bisect_right(self.minutes, minute) - 1
            if near >= 0 and self.minutes[near] == minute:
                last = bisect_right(self.seconds, rest) - 1
                if last >= 0:
                    return hour * 3600 + minute * 60 + self.seconds[last]
                near -= 1
            if near >= 0:
                return hour * 3600 + self.minutes[near] * 60 + self.seconds[-1]
            at -= 1
        if at >= 0:
            return self.hours[at] * 3600 + self.minutes[-1] * 60 + self.seconds[-1]
        return None

    def _matches(self, day: int) -> bool:
        if not _FIRST_DAY <= day <= _LAST_DAY:
            return False
        when = date.fromordinal(day + _EPOCH)
        return when.day in self._days_of(when.year, when.month)

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

    def _day_until(self, day: int, first: int) -> int | None:
        first = max(first, _FIRST_DAY)
        while day >= first:
            when = date.fromordinal(day + _EPOCH)
            known = self._days_of(when.year, when.month)
            at = bisect_right(known, when.day) - 1
            if at >= 0:
                found = day + known[at] - when.day
                return found if found >= first else None
            day -= when.day
        return None

    def _days_of(self, year: int, month: int) -> tuple[int, ...]:
        known = self._known_days.get((year, month))
        if known is None:
            known = self._known_days[year, month] = self.days.of(year, month)
        return known
