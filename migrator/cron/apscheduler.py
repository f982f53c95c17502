"""APScheduler 3's ``CronTrigger``: a crontab line, or its keyword arguments as a JSON object (source 004 stores those).

Weekdays count from 0 = Monday, also in a crontab line. All fields must match; keywords left out are ``*`` above the
least given one and their minimum below it. A time the clock skips fires as late after it, and what the clock repeats
fires twice; how a gap spoils the search besides is told in ``apscheduler_search``. Source: APScheduler 3.11,
``triggers/cron``, compared in the tests.
"""

import json
import re

from migrator.cron.days import Days, Last, Rule, Term, Weekday
from migrator.cron.errors import CronError
from migrator.cron.expression import Expression, Fold, Gap
from migrator.cron.fields import ALL_MONTHS, HOUR, MINUTE, MONTH, MONTH_DAY, SECOND, Field, ordered, split

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
