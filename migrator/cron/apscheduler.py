"""APScheduler 3's ``CronTrigger``: a crontab line, or its keyword arguments as a JSON object.

Weekdays count from 0 = Monday, also in a crontab line. All fields must match; keywords left out are ``*`` above the
least given one and their minimum below it. A time the clock skips fires as late after it, and what the clock repeats
fires twice. Source: APScheduler 3.11, ``triggers/cron``, compared in the tests.

APScheduler's own search stands here too, for the case in which wall-clock sets do not describe it: across a change of
the clock. It advances a field by adding the naive distance in UTC. When that crosses a gap it lands later than meant -
a midnight becomes 01:00 - and what was due in between is passed over: after a March with a gap, New York's ``0 0 1 *
*`` skips the first of April. ``next_fire`` shows what APScheduler 3 would do, so it does the same.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from migrator.cron import timeline, zones
from migrator.cron.expression import (
    ALL_MONTHS,
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    SECOND,
    CronError,
    Days,
    Expression,
    Field,
    Fold,
    Gap,
    Last,
    Rule,
    Term,
    Weekday,
    ordered,
    split,
)

_NAMED = {name: number for number, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))}
_YEAR = Field("year", 1970, 9999)
_WEEK = Field("week", 1, 53)
_WEEKDAY = Field("day of week", 0, 6, _NAMED)
_FIELDS = {
    "year": _YEAR,
    "month": MONTH,
    "day": MONTH_DAY,
    "week": _WEEK,
    "day_of_week": _WEEKDAY,
    "hour": HOUR,
    "minute": MINUTE,
    "second": SECOND,
}
_DEFAULTS = {"month": "1", "day": "1", "hour": "0", "minute": "0", "second": "0"}
_CRONTAB = ("minute", "hour", "day", "month", "day_of_week")
_ALL = re.compile(r"\*(?:/(\d+))?", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?", re.ASCII)
# the library looks at the start of an item only: "mon/2" is Monday, without a step
_NAMES = re.compile(r"([a-z]+)(?:-([a-z]+))?", re.ASCII | re.IGNORECASE)
_POSITION = re.compile(r"(1st|2nd|3rd|4th|5th|last) +([a-z]+)", re.ASCII | re.IGNORECASE)
_POSITIONS = {"1st": 1, "2nd": 2, "3rd": 3, "4th": 4, "5th": 5, "last": -1}


def keywords(given: dict[str, str | int]) -> str:
    """Return the text of this dialect for keyword arguments (``{"hour": 2, "minute": "*/5"}``)."""
    return json.dumps(given, sort_keys=True)


def parse(text: str) -> Expression:
    """Parse a crontab line of five fields or a JSON object of keywords; raises ``CronError``."""
    given = _given(text)
    least = max(place for place, name in enumerate(_FIELDS) if name in given)
    line = {
        name: given.get(name, "*" if place < least else _DEFAULTS.get(name, "*")) for place, name in enumerate(_FIELDS)
    }
    months, years, weeks, weekdays = line["month"], line["year"], line["week"], line["day_of_week"]
    return Expression(
        seconds=_time(line, "second"),
        minutes=_time(line, "minute"),
        hours=_time(line, "hour"),
        days=Days(
            month_days=None if line["day"] == "*" else frozenset(_month_days(line["day"])),
            week_days=None if weekdays == "*" else frozenset(_weekdays(weekdays)),
            months=ALL_MONTHS if months == "*" else frozenset(_values(months, MONTH)),
            rule=Rule.AND,
            years=None if years == "*" else frozenset(_values(years, _YEAR)),
            weeks=None if weeks == "*" else frozenset(_values(weeks, _WEEK)),
        ),
        gap=Gap.SHIFT,
        fold=Fold.TWICE,
        searched_by_field=True,
    )


def _given(text: str) -> dict[str, str]:
    if not text.lstrip().startswith("{"):
        return dict(zip(_CRONTAB, split(text, (5,)), strict=True))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise CronError("cron line: expected a JSON object of keywords") from None
    if not isinstance(found, dict) or not found.keys() <= _FIELDS.keys():
        raise CronError("cron line: expected only the keywords " + ", ".join(_FIELDS))
    given = {name: str(value).strip() for name, value in found.items() if value is not None}
    if not given:
        raise CronError("cron line: expected at least one keyword")
    return given


def _time(line: dict[str, str], name: str) -> tuple[int, ...]:
    return ordered(_values(line[name], _FIELDS[name]))


def _weekdays(text: str) -> set[Weekday]:
    return {Weekday((day + 1) % 7) for day in _values(text, _WEEKDAY)}


def _month_days(text: str) -> set[Term]:
    found: set[Term] = set()
    for item in re.split(" *, *", text):
        position = _POSITION.match(item)
        if position:
            weekday = _NAMED.get(position.group(2).lower())
            if weekday is None:
                raise MONTH_DAY.error("the name of a weekday after the position")
            found.add(Weekday((weekday + 1) % 7, _POSITIONS[position.group(1).lower()]))
        elif item[:4].lower() == "last":
            found.add(Last())
        else:
            found.update(_item(item, MONTH_DAY))
    return found


def _values(text: str, field: Field) -> set[int]:
    found: set[int] = set()
    for item in re.split(" *, *", text):
        found.update(_item(item, field))
    return found


def _item(item: str, field: Field) -> range:
    every = _ALL.fullmatch(item)
    if every:
        step = field.step(every.group(1), field.high - field.low) if every.group(1) else 1
        return range(field.low, field.high + 1, step)
    numbers = _RANGE.fullmatch(item)
    if numbers:
        first = field.value(numbers.group(1))
        last = field.value(numbers.group(2)) if numbers.group(2) else field.high if numbers.group(3) else first
        # a range to 0 has no end for the library when it measures the step
        step = field.step(numbers.group(3), (last or field.high) - first) if numbers.group(3) else 1
        return _ascending(first, last, step, field)
    named = _NAMES.match(item) if field.names else None
    if named is None:
        raise field.error("a value, a range, a step, or a list of them")
    first = field.value(named.group(1))
    return _ascending(first, field.value(named.group(2)) if named.group(2) else first, 1, field)


def _ascending(first: int, last: int, step: int, field: Field) -> range:
    if first > last:
        raise field.error("a range that ascends")
    return range(first, last + 1, step)


_PLACES: Final = ("year", "month", "day", "week", "weekday", "hour", "minute", "second")
_REAL: Final = ("year", "month", "day", "hour", "minute", "second")
_LONGEST_GAP: Final = 86400
_LEAST: Final = {"year": 1, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0}


def fire_after(expression: Expression, zone: str, instant: int, last_year: int) -> int | None:
    """Return the first fire later than ``instant`` (seconds since 1970), or None up to the end of ``last_year``."""
    # The sets name at least every fire; they are exact when the clock does not change between, nor shortly before
    found = next(timeline.fires_after(expression, zone, instant, last_year), None)
    if found is None or not _changes(zone, instant - _LONGEST_GAP, found):
        return found
    place, _ = zones.zone(zone)
    moment = _search(expression, datetime.fromtimestamp(instant + 1, place), last_year)
    return None if moment is None else int(moment.timestamp())


def fire_before(expression: Expression, zone: str, instant: int, first_year: int) -> int | None:
    """Return the last fire earlier than ``instant`` that the search would reach from the one before it, or None."""
    candidates = timeline.fires_before(expression, zone, instant, first_year)
    later = next(candidates, None)
    for earlier in candidates:
        if later is None or not _changes(zone, earlier - _LONGEST_GAP, later):
            return later
        last_year = datetime.fromtimestamp(later, UTC).year + 1
        if fire_after(expression, zone, earlier, last_year) == later:
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
