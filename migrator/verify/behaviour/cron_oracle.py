"""An independent oracle of when a cron line fires: it looks at each minute on the wall clock of a zone.

It knows no engine and shares no code with ``migrator.cron``: a line is matched text by text, and the rules around a
change of the clock are written as a person with a clock on the wall would say them. ``fires`` takes the rules of any
dialect; ``expected_fires`` has those of Debian's cron, crontab(5), which the scheduler follows.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, Literal
from zoneinfo import ZoneInfo

_MINUTE: Final = timedelta(minutes=1)

Matches = Callable[[datetime], bool]
"""Tells whether a line names a minute of the wall clock."""


def matcher(line: str, joined: str, monday: int = 1) -> Matches:
    """Return whether a wall-clock minute matches a line of five fields of numbers.

    ``joined`` says how the day fields go together: ``and``, ``or``, or ``star`` (and, if one of them starts with a
    star). ``monday`` is the number of Monday.
    """
    minute, hour, day, month, weekday = line.split()
    either = joined == "or" or (joined == "star" and not day.startswith("*") and not weekday.startswith("*"))

    def matches(wall: datetime) -> bool:
        if not _named(minute, wall.minute, 0, 59):
            return False
        by_day = _named(day, wall.day, 1, 31)
        by_weekday = _named(weekday, (wall.weekday() + monday) % 7, 0, 6)
        any_of_two = either and day != "*" and weekday != "*"
        on_day = by_day or by_weekday if any_of_two else by_day and by_weekday
        return on_day and _named(hour, wall.hour, 0, 23) and _named(month, wall.month, 1, 12)

    return matches


@lru_cache(maxsize=4096)
def _named(field: str, value: int, low: int, high: int) -> bool:
    return any(_item_names(item, value, low, high) for item in field.split(","))


def _item_names(item: str, value: int, low: int, high: int) -> bool:
    base, _, step = item.partition("/")
    if base == "*":
        first, last = low, high
    elif "-" in base:
        first, last = map(int, base.split("-"))
    else:
        first = int(base)
        last = high if step else first
    return first <= value <= last and (value - first) % int(step or 1) == 0


Gap = Literal["skip", "end", "shift", "first"]
"""What becomes of times that the clock skips: they do not fire; they fire at the end of the gap; each fires later by
the length of the gap; the first of them does, and then nothing until it has fired."""

Fold = Literal["once", "twice", "second", "offset"]
"""When times fire that the clock shows twice; ``offset``: at the second passing if its offset is not negative."""


def fires(matches: Matches, zone: ZoneInfo, start: datetime, end: datetime, gap: Gap, fold: Fold) -> Iterator[datetime]:
    """Yield the fires in [start, end), both aware UTC and at whole minutes, in any order, some perhaps twice."""
    instant = start
    silent_until = start
    while instant < end:
        wall = instant.astimezone(zone)
        before = (instant - _MINUTE).astimezone(zone)
        skipped = _offset(wall) - _offset(before)
        if skipped > timedelta(0):
            moved = _out_of_gap(matches, instant, before.replace(tzinfo=None) + _MINUTE, skipped, gap)
            yield from moved
            if gap == "first" and moved:
                silent_until = moved[0] + _MINUTE
        if instant >= silent_until and matches(wall.replace(tzinfo=None)) and _passing_counts(wall, zone, fold):
            yield instant
        instant += _MINUTE


def expected_fires(line: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Return the fires in [start, end), both aware UTC and at whole minutes, in order, by the rules of Debian's cron.

    Both day fields must match where one of them begins with a star, else either. A line whose minute or hour begins
    with a star follows the clock; any other fires at the end of the gap that it fell into, and once in the fold.
    """
    minute, hour, *_ = line.split()
    follows = minute.startswith("*") or hour.startswith("*")
    gap: Gap = "skip" if follows else "end"
    found = fires(matcher(line, "star"), ZoneInfo(zone), start, end, gap, "twice" if follows else "once")
    return sorted(set(found))


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta(0)


def _passing_counts(wall: datetime, zone: ZoneInfo, fold: Fold) -> bool:
    if fold == "twice":
        return True
    first = _offset(wall.replace(fold=0, tzinfo=zone))
    second = _offset(wall.replace(fold=1, tzinfo=zone))
    if first <= second:  # not a repeated time
        return True
    if fold == "second" or (fold == "offset" and second >= timedelta(0)):
        return wall.fold == 1
    return wall.fold == 0


def _out_of_gap(matches: Matches, end: datetime, wall: datetime, skipped: timedelta, gap: Gap) -> list[datetime]:
    """Return where the times of a gap fire; ``end`` is the first instant after it, ``wall`` the first time skipped."""
    skipped_minutes = [at for at in range(int(skipped / _MINUTE)) if matches(wall + at * _MINUTE)]
    if gap == "skip" or not skipped_minutes:
        return []
    if gap == "end":
        return [end]
    moved = [end + at * _MINUTE for at in skipped_minutes]
    return moved[:1] if gap == "first" else moved


def next_clock_change(zone: str, after: datetime, *, forward: bool) -> datetime:
    """Return the first instant after ``after`` from which on a zone's clock is ahead (or back), to the minute."""
    place, hour = ZoneInfo(zone), timedelta(hours=1)

    def offset(instant: datetime) -> timedelta:
        return _offset(instant.astimezone(place))

    instant = after
    for _ in range(24 * 800):
        moved = offset(instant + hour) - offset(instant)
        if moved and (moved > timedelta(0)) == forward:
            while offset(instant + _MINUTE) == offset(instant):
                instant += _MINUTE
            return instant + _MINUTE
        instant += hour
    raise LookupError(zone)  # pragma: no cover - the zones that are asked for change twice a year
