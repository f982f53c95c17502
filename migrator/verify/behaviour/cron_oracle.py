"""An independent oracle of when a cron line fires: it looks at each minute on the wall clock of a zone.

Shares no code with ``migrator.cron``. Day fields as Debian's cron joins them: both must match where one of them begins
with a star, else either. Around a change of the clock (crontab(5), Debian): a line whose minute or hour begins with a
star follows the clock; any other fires at the end of the gap that it fell into, and once in the fold.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

_MINUTE = timedelta(minutes=1)


def expected_fires(line: str, zone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the fires in [start, end), both aware UTC and at whole minutes, in order."""
    minute, hour, day, month, weekday = line.split()
    follows = minute.startswith("*") or hour.startswith("*")
    place, instant = ZoneInfo(zone), start
    while instant < end:
        wall = instant.astimezone(place)
        before = (instant - _MINUTE).astimezone(place)
        passed = wall.replace(tzinfo=None) - before.replace(tzinfo=None)
        walls = [wall.replace(tzinfo=None)]
        if passed > _MINUTE and not follows:  # the clock went forward: what lay in the gap fires now
            steps = int(passed / _MINUTE)
            walls = [before.replace(tzinfo=None) + _MINUTE * step for step in range(1, steps + 1)]
        counts = follows or not wall.fold
        if counts and any(_named(one, minute, hour, day, month, weekday) for one in walls):
            yield instant
        instant += _MINUTE


def _named(wall: datetime, minute: str, hour: str, day: str, month: str, weekday: str) -> bool:
    by_day, by_weekday = _in(day, wall.day, 1, 31), _in(weekday, wall.isoweekday() % 7, 0, 6)
    both = day.startswith("*") or weekday.startswith("*")
    on_day = by_day and by_weekday if both else by_day or by_weekday
    return on_day and _in(minute, wall.minute, 0, 59) and _in(hour, wall.hour, 0, 23) and _in(month, wall.month, 1, 12)


def _in(field: str, value: int, low: int, high: int) -> bool:
    for item in field.split(","):
        base, _, step = item.partition("/")
        first, _, last = base.partition("-")
        if base == "*":
            begin, end = low, high
        else:
            begin = int(first)
            end = int(last) if last else high if step else begin
        if begin <= value <= end and (value - begin) % int(step or 1) == 0:
            return True
    return False


def next_clock_change(zone: str, after: datetime, *, forward: bool) -> datetime:
    """Return the first instant after ``after`` from which on a zone's clock is ahead (or behind), to the minute."""
    place, hour = ZoneInfo(zone), timedelta(hours=1)

    def offset(instant: datetime) -> timedelta:
        return instant.astimezone(place).utcoffset() or timedelta(0)

    instant = after
    for _ in range(24 * 800):
        moved = offset(instant + hour) - offset(instant)
        if moved and (moved > timedelta(0)) == forward:
            while offset(instant + _MINUTE) == offset(instant):
                instant += _MINUTE
            return instant + _MINUTE
        instant += hour
    raise LookupError(zone)  # pragma: no cover - the zones that are asked for change twice a year
