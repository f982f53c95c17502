"""Celery's ``crontab``: minute, hour, day of month, month and day of week, in this order.

All fields must match. Weekdays are 0-6 and Sunday is 0; 7 is refused. A range wraps over its end (``fri-mon``,
``22-2``); a step belongs to a star or to a range. Names are told by their first three letters, and any field takes
those of months and of weekdays, months first: ``mar`` as a weekday is Wednesday, as Celery reads it. What the clock
skips fires as late after the gap, the first of several only; what it repeats fires once, the first time. Source:
celery 5.7.0, ``celery/schedules.py`` and ``celery/utils/time.py``.
"""

import re

from migrator.cron.expression import (
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    WEEKDAY,
    CronError,
    Days,
    Expression,
    Field,
    Fold,
    Gap,
    Rule,
    Weekday,
    digits,
    ordered,
    split,
)

_SUNDAY_FIRST = Field(WEEKDAY.name, 0, 6)
_NAMES = WEEKDAY.names | MONTH.names
_LETTERS = 3

# Celery matches the beginning of an item: what follows, as in 1-5/2/3 and in */2-4, is not read.
_RANGE = re.compile(r"(\w+?)-(\w+)(?:/(\w*))?")
_STAR = re.compile(r"\*(?:/(\w*)|$)")

_DAYS_IN_MONTH = dict(zip(MONTH.all, (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), strict=True))


def parse(text: str) -> Expression:
    """Parse a line; raises ``CronError``."""
    if not text.isascii():
        raise CronError("cron line: expected ASCII characters")
    minute, hour, month_day, month, weekday = split(text, (5,))
    month_days, months = _values(month_day, MONTH_DAY), _values(month, MONTH)
    if all(day > _DAYS_IN_MONTH[one] for one in months for day in month_days):
        raise MONTH_DAY.error("a day that one of the months has")
    return Expression(
        minutes=ordered(_values(minute, MINUTE)),
        hours=ordered(_values(hour, HOUR)),
        days=Days(
            month_days=frozenset(month_days),
            week_days=frozenset(map(Weekday, _values(weekday, _SUNDAY_FIRST))),
            months=frozenset(months),
            rule=Rule.AND,
        ),
        gap=Gap.FIRST,
        fold=Fold.ONCE,
    )


def _values(text: str, field: Field) -> set[int]:
    return {value for item in text.split(",") for value in _item(item, field)}


def _item(text: str, field: Field) -> list[int]:
    spanned = _RANGE.match(text)
    if spanned:
        first, last = _value(spanned[1], field), _value(spanned[2], field)
        wrapped = [*range(first, field.high + 1), *range(field.low, last + 1)]
        values = wrapped if last < first else list(range(first, last + 1))
        return values if spanned[3] is None else values[:: field.step(spanned[3])]
    starred = _STAR.match(text)
    if starred:
        return list(field.all)[:: 1 if starred[1] is None else field.step(starred[1])]
    return [_value(text, field)]


def _value(text: str, field: Field) -> int:
    number = digits(text)
    if number is None:
        number = _NAMES.get(text[:_LETTERS].lower())
    if number is None or not field.low <= number <= field.high:
        raise field.error(f"a value from {field.low} to {field.high}")
    return number
