"""croniter 7 (Python), compared with it in the tests.

Five fields, six with seconds last, seven with years after them; macros. Restricted day fields are joined by "or",
with ``#``, ``L`` and ``W`` kept as they are; an equal range (``5-5``) is the whole field and a descending one wraps.
A time the clock skips fires at the end of the gap unless the hour is a star; what the clock repeats fires twice. Its
hashed fields (``H``, ``R``) need data that is not in the line: refused.
"""

import re

from migrator.cron.days import Days, Last, Nearest, Rule, Term, Weekday
from migrator.cron.expression import Expression, Fold, Gap
from migrator.cron.fields import HOUR, MINUTE, MONTH, MONTH_DAY, SECOND, WEEKDAY, Field, digits, ordered, split

_MACROS = {
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_YEAR = Field("year", 1970, 2099)
_WEEK = Field(WEEKDAY.name, 0, 6, WEEKDAY.names)
_EVERY_DAY: frozenset[Term] = frozenset(MONTH_DAY.all)
_EVERY_WEEKDAY = frozenset(map(Weekday, _WEEK.all))
_NTH = re.compile(r"(.+)#([1-5])", re.ASCII)
_LAST_WEEKDAY = re.compile(r"l(\d+)", re.ASCII)
_NEAREST = re.compile(r"(?:(\d+)w|w(\d+))", re.ASCII)
_WHITESPACE = re.compile(r"\S+", re.ASCII)


def parse(text: str) -> Expression:
    """Parse a line; raises ``CronError``."""
    lowered = text.lower()
    line = " ".join(_WHITESPACE.findall(_MACROS.get(lowered, lowered)))
    minute, hour, month_day, month, weekday, *more = split(line, (5, 6, 7), " ")
    second, year = (more + ["0", "*"][len(more) :])[:2]
    hours = _values(hour, HOUR)
    years = _values(year, _YEAR)
    every_hour = len(hours) == len(HOUR.all)
    by_month, by_week, rule = _days(month_day, weekday)
    return Expression(
        seconds=ordered(_values(second, SECOND)),
        minutes=ordered(_values(minute, MINUTE)),
        hours=ordered(hours),
        days=Days(
            month_days=by_month,
            week_days=by_week,
            months=frozenset(_values(month, MONTH)),
            rule=rule,
            years=None if len(years) == len(_YEAR.all) else frozenset(years),
        ),
        gap=Gap.SKIP if every_hour else Gap.END_KEEPING_SECONDS,
        fold=Fold.TWICE,
    )


def _days(month_day: str, weekday: str) -> tuple[frozenset[Term] | None, frozenset[Weekday] | None, Rule]:
    by_month = None if month_day == "?" else _month_days(month_day)
    by_week = None if weekday == "?" else _weekdays(weekday)
    # a field that names everything is a star, if the other one has a star in it somewhere
    if by_week is not None and "*" in month_day and by_week == _EVERY_WEEKDAY:
        by_week = None
    if by_month is not None and "*" in weekday and by_month == _EVERY_DAY:
        by_month = None
    nth = by_week is not None and any(day.nth for day in by_week)
    nearest = by_month is not None and any(isinstance(day, Nearest) for day in by_month)
    if nth and not nearest and by_month is not None:
        # either the day and the nth weekday, or the nth weekday: the latter alone
        by_month = None
    if nearest and not nth:
        by_week = None
    return by_month, by_week, Rule.AND if nth or nearest else Rule.OR


def _month_days(text: str) -> frozenset[Term] | None:
    nearest = _NEAREST.fullmatch(text)
    if nearest:
        return frozenset({Nearest(MONTH_DAY.value(nearest.group(1) or nearest.group(2)), clip=True)})
    found: set[Term] = set()
    for item in text.split(","):
        if item == "*":
            return None
        if item == "l":
            found.add(Last())
        else:
            # "20-l" is a range to the 31st
            found.update(_item(re.sub("-l(?=/|$)", "-31", item), MONTH_DAY))
    return frozenset(found)


def _weekdays(text: str) -> frozenset[Weekday] | None:
    plain: set[Weekday] = set()
    marked: set[Weekday] = set()
    star = False
    for item in text.split(","):
        star = star or item == "*"
        nth, last = _NTH.fullmatch(item), _LAST_WEEKDAY.fullmatch(item)
        if nth:
            marked.update(Weekday(day, int(nth.group(2))) for day in _item(nth.group(1), _WEEK))
        elif last:
            marked.update(Weekday(day, -1) for day in _item(last.group(1), _WEEK))
        else:
            plain.update(Weekday(day) for day in _item(item, _WEEK))
    if marked:
        if plain and not star and len(plain) != len(_WEEK.all):
            raise WEEKDAY.error("either plain weekdays or numbered ones")
        return frozenset(marked)
    return None if star else frozenset(plain)


def _values(text: str, field: Field) -> set[int]:
    found: set[int] = set()
    for item in text.split(","):
        found.update(_item(item, field))
    return found


def _item(item: str, field: Field) -> list[int]:
    base, slash, step_text = item.partition("/")
    step = field.step(step_text) if slash else 1
    if base == "*":
        return list(range(field.low, field.high + 1, step))
    if "-" not in base:
        first = _value(base, field)
        return list(range(first, field.high + 1, step)) if slash else [first]
    low_text, high_text = field.span(base)
    low, high = _value(low_text, field), _value(high_text, field)
    if low == high:
        low, high = field.low, field.high
    if low < high:
        return list(range(low, high + 1, step))
    rising = list(range(low, field.high + 1, step))
    over = field.high - rising[-1]
    size = field.high - field.low + 1
    skipped = step - over if rising[-1] - field.low + step > size and over < step else 0
    return rising + list(range(field.low + skipped, high + 1, step))


def _value(text: str, field: Field) -> int:
    return 0 if field is _WEEK and digits(text) == 7 else field.value(text)  # noqa: PLR2004 - 7 is Sunday too
