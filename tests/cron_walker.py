"""An independent judge of fires: walks a zone minute by minute and asks each minute whether the line names it.

It knows no engine and shares no code with ``migrator.cron``: the line is matched text by text, and the policies are
written as what a person with a clock on the wall would say.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)

Matches = Callable[[datetime], bool]


def matcher(line: str, joined: str, monday: int = 1) -> Matches:
    """Return whether a wall-clock minute matches a plain line.

    ``joined`` says how the day fields go together: ``and``, ``or``, or ``star`` (and, if one of them starts with a
    star). ``monday`` is the number of Monday.
    """
    minute, hour, day, month, weekday = line.split()
    either = joined == "or" or (joined == "star" and not day.startswith("*") and not weekday.startswith("*"))

    def matches(wall: datetime) -> bool:
        by_day = _named(day, wall.day, 1, 31)
        by_weekday = _named(weekday, (wall.weekday() + monday) % 7, 0, 6)
        any_of_two = either and day != "*" and weekday != "*"
        on_day = by_day or by_weekday if any_of_two else by_day and by_weekday
        return (
            on_day
            and _named(minute, wall.minute, 0, 59)
            and _named(hour, wall.hour, 0, 23)
            and _named(month, wall.month, 1, 12)
        )

    return matches


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


def fires(matches: Matches, zone: ZoneInfo, start: datetime, end: datetime, gap: str, fold: str) -> Iterator[datetime]:
    """Yield the fires in [start, end), both aware UTC and at whole minutes, in any order, some perhaps twice.

    ``gap``: skip, end, shift, first. ``fold``: once, twice, second, or offset (the second passing if its offset is
    not negative).
    """
    instant = start
    silent_until = start
    while instant < end:
        wall = instant.astimezone(zone)
        before = (instant - MINUTE).astimezone(zone)
        skipped = _offset(wall) - _offset(before)
        if skipped > timedelta(0):
            moved = _out_of_gap(matches, instant, before.replace(tzinfo=None) + MINUTE, skipped, gap)
            yield from moved
            if gap == "first" and moved:
                silent_until = moved[0] + MINUTE
        if instant >= silent_until and matches(wall.replace(tzinfo=None)) and _passing_counts(wall, zone, fold):
            yield instant
        instant += MINUTE


def _offset(moment: datetime) -> timedelta:
    offset = moment.utcoffset()
    assert offset is not None
    return offset


def _passing_counts(wall: datetime, zone: ZoneInfo, fold: str) -> bool:
    if fold == "twice":
        return True
    first = _offset(wall.replace(fold=0, tzinfo=zone))
    second = _offset(wall.replace(fold=1, tzinfo=zone))
    if first <= second:  # not a repeated time
        return True
    if fold == "second" or (fold == "offset" and second >= timedelta(0)):
        return wall.fold == 1
    return wall.fold == 0


def _out_of_gap(matches: Matches, end: datetime, wall: datetime, skipped: timedelta, gap: str) -> list[datetime]:
    """Return where the times of a gap fire; ``end`` is the first instant after it, ``wall`` the first time skipped."""
    late = [at for at in range(int(skipped / MINUTE)) if matches(wall + at * MINUTE)]
    if gap == "skip" or not late:
        return []
    if gap == "end":
        return [end]
    moved = [end + at * MINUTE for at in late]
    return moved[:1] if gap == "first" else moved
