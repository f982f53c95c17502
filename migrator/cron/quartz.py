"""Quartz (Java): six fields with seconds first, and a seventh for years.

One of the two day fields must be ``?``. Weekdays are 1-7 and Sunday is 1; ``L`` alone there is Saturday. A range wraps
over its end. What the clock skips does not fire; what it repeats fires once, the second time, because Java's calendar
takes a local time that occurs twice for the later one. Source: Quartz 2.3, ``CronExpression.java``, its search replayed
with Java's calendar; the library itself was not run.
"""

from migrator.cron.expression import (
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    SECOND,
    WEEKDAY,
    Days,
    Expression,
    Field,
    Fold,
    Gap,
    Nearest,
    Term,
    Weekday,
    last_of_month,
    ordered,
    split,
)

_SUNDAY_IS_ONE = Field(WEEKDAY.name, 1, 7, {name: number + 1 for name, number in WEEKDAY.names.items()})
_YEAR = Field("year", 1970, 2099)
_MOST_NTH = 5
_YEARS = 100


def parse(text: str) -> Expression:
    """Parse a line; raises ``CronError``."""
    second, minute, hour, month_day, month, weekday, *year = split(text.lower(), (6, 7))
    if (month_day == "?") == (weekday == "?"):
        raise WEEKDAY.error("? in one of the two day fields, and not in both")
    return Expression(
        seconds=ordered(_values(second, SECOND)),
        minutes=ordered(_values(minute, MINUTE)),
        hours=ordered(_values(hour, HOUR)),
        days=Days(
            month_days=None if month_day in ("?", "*") else frozenset(_month_days(month_day)),
            week_days=None if weekday in ("?", "*") else frozenset(_weekdays(weekday)),
            months=frozenset(_values(month, MONTH)),
            years=None if year in ([], ["*"]) else frozenset(_values(year[0], _YEAR)),
        ),
        gap=Gap.SKIP,
        fold=Fold.SECOND,
        years_searched=_YEARS,
    )


def _month_days(text: str) -> list[Term]:
    last = last_of_month(text)
    if last is not None:
        return [last]
    if text.endswith("w"):
        return [Nearest(MONTH_DAY.value(text[:-1]))]
    return list(_values(text, MONTH_DAY))


def _weekdays(text: str) -> list[Weekday]:
    if text == "l":
        return [_weekday(_SUNDAY_IS_ONE.high)]
    if text.endswith("l"):
        return [_weekday(_SUNDAY_IS_ONE.value(text[:-1]), -1)]
    weekday, sign, nth = text.partition("#")
    if sign:
        return [_weekday(_SUNDAY_IS_ONE.value(weekday), _SUNDAY_IS_ONE.step(nth, _MOST_NTH))]
    return [_weekday(value) for value in _values(text, _SUNDAY_IS_ONE)]


def _weekday(value: int, nth: int = 0) -> Weekday:
    return Weekday(value - 1, nth)


def _values(text: str, field: Field) -> set[int]:
    values: set[int] = set()
    for item in text.split(","):
        base, slash, step = item.partition("/")
        by = field.step(step, field.high) if slash else 1
        if base == "*" or (slash and not base):
            values.update(field.all[::by])
        elif "-" in base:
            first, last = map(field.value, field.span(base))
            around = last if first <= last else last + len(field.all)
            values.update((value - field.low) % len(field.all) + field.low for value in range(first, around + 1, by))
        else:
            value = field.value(base)
            values.update(range(value, field.high + 1, by) if slash else (value,))
    return values
