"""APScheduler's own search, for the case in which wall-clock sets do not describe it: across a change of the clock.

It advances a field by adding the naive distance in UTC. When that crosses a gap it lands later than meant - a midnight
becomes 01:00 - and what was due in between is passed over: after a March with a gap, New York's ``0 0 1 * *`` skips the
first of April. ``next_fire`` shows what APScheduler 3 would do, so it does the same.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from migrator.cron import timeline, walk, zones
from migrator.cron.expression import Expression

_PLACES: Final = ("year", "month", "day", "week", "weekday", "hour", "minute", "second")
_REAL: Final = ("year", "month", "day", "hour", "minute", "second")
_LONGEST_GAP: Final = 86400
_LEAST: Final = {"year": 1, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}


def after(expression: Expression, zone: str, instant: int, last_year: int) -> int | None:
    """Return the first fire later than ``instant`` (seconds since 1970), or None up to the end of ``last_year``."""
    # The sets name at least every fire; they are exact when the clock does not change between, nor shortly before
    found = next(walk.after(expression, zone, instant, last_year), None)
    if found is None or not _changes(zone, instant - _LONGEST_GAP, found):
        return found
    place, _ = zones.zone(zone)
    moment = _search(expression, datetime.fromtimestamp(instant + 1, place), last_year)
    return None if moment is None else int(moment.timestamp())


def before(expression: Expression, zone: str, instant: int, first_year: int) -> int | None:
    """Return the last fire earlier than ``instant`` that the search would reach from the one before it, or None."""
    candidates = walk.before(expression, zone, instant, first_year)
    later = next(candidates, None)
    for earlier in candidates:
        if later is None or not _changes(zone, earlier - _LONGEST_GAP, later):
            return later
        last_year = datetime.fromtimestamp(later, UTC).year + 1
        if after(expression, zone, earlier, last_year) == later:
            return later
        later = earlier
    return later


def _changes(zone: str, start: int, end: int) -> bool:
    last_year = datetime.fromtimestamp(end, UTC).year
    for stretch in timeline.forward(zone, start, last_year):
        if stretch.start > end:
            return False
        if stretch.start > start and stretch.offset != stretch.before:
            return True
    return False


def _search(expression: Expression, moment: datetime, last_year: int) -> datetime | None:
    place = 0
    while 0 <= place < len(_PLACES):
        if moment.year > last_year:
            return None
        name = _PLACES[place]
        value = _value(moment, name)
        wanted = _wanted(expression, moment, name, value)
        if wanted is None:
            moment, place = _advance(moment, place - 1)
        elif wanted > value and name not in _REAL:
            moment, place = _advance(moment, place)
        else:
            if wanted > value:
                moment = _set(moment, name, wanted)
            place += 1
    return moment if place > 0 else None


def _value(moment: datetime, name: str) -> int:
    if name == "week":
        return moment.isocalendar().week
    if name == "weekday":
        return moment.weekday()
    value: int = getattr(moment, name)
    return value


def _wanted(expression: Expression, moment: datetime, name: str, value: int) -> int | None:
    """Return the least allowed value of a field from its present one on."""
    days = expression.days
    allowed: Sequence[int]
    if name == "year":
        if days.years is None:
            return value
        allowed = sorted(days.years)
    elif name == "month":
        allowed = sorted(days.months)
    elif name == "day":
        allowed = days.by_month(moment.year, moment.month)
    elif name == "week":
        if days.weeks is None:
            return value
        allowed = sorted(days.weeks)
    elif name == "weekday":
        if days.week_days is None:
            return value
        allowed = sorted((day.weekday - 1) % 7 for day in days.week_days)
    else:
        allowed = {"hour": expression.hours, "minute": expression.minutes, "second": expression.seconds}[name]
    at = bisect_left(allowed, value)
    return allowed[at] if at < len(allowed) else None


def _set(moment: datetime, name: str, value: int) -> datetime:
    fields = _kept(moment, name)
    fields[name] = value
    return datetime(**fields, tzinfo=moment.tzinfo, fold=moment.fold)


def _advance(moment: datetime, place: int) -> tuple[datetime, int]:
    """Advance the field at ``place``, or the next higher one that can be; the distance is added in UTC."""
    while place >= 0 and (_PLACES[place] not in _REAL or _value(moment, _PLACES[place]) == _most(moment, place)):
        place -= 1
    if place < 0:
        return moment, place
    name = _PLACES[place]
    fields = _kept(moment, name)
    fields[name] = _value(moment, name) + 1
    distance = datetime(**fields, tzinfo=UTC) - moment.replace(tzinfo=UTC)  # wall clocks
    zone = moment.tzinfo
    assert isinstance(zone, ZoneInfo)  # noqa: S101 - told to the type checker
    return (moment.astimezone(UTC) + distance).astimezone(zone), place


def _most(moment: datetime, place: int) -> int:
    name = _PLACES[place]
    if name == "day":
        following = datetime(moment.year + moment.month // 12, moment.month % 12 + 1, 1, tzinfo=UTC)
        return (following - datetime(moment.year, moment.month, 1, tzinfo=UTC)).days
    return {"year": 9998, "month": 12, "hour": 23, "minute": 59, "second": 59}[name]


def _kept(moment: datetime, name: str) -> dict[str, int]:
    """Return the fields of a moment with all below ``name`` at their least."""
    cut = _REAL.index(name)
    return {field: _value(moment, field) if at <= cut else _LEAST[field] for at, field in enumerate(_REAL)}
