"""Cronos (.NET), which StellaOps and Hangfire use.

Five fields, or six with seconds first; macros. Both day fields must match. What a gap skips runs once at its end; in
a fold a line with a star, a range or a step in seconds, minutes or hours runs both times, any other once. Source:
HangfireIO/Cronos, ``CronParser.cs``, ``CronExpression.cs``, ``README.md``.
"""

import re

from migrator.cron.expression import (
    HOUR,
    MACROS,
    MINUTE,
    MONTH,
    MONTH_DAY,
    SECOND,
    SEED,
    WEEKDAY,
    CronError,
    Days,
    Expression,
    Field,
    Fold,
    Gap,
    Nearest,
    Rule,
    Term,
    Weekday,
    last_of_month,
    ordered,
)

_MACROS = {
    **MACROS,
    "@every_minute": "* * * * *",
    "@every_second": "* * * * * *",
}
_SEEDED = re.compile(r"[Hh](?:[(/,-]|$)", re.ASCII)
_INTERVAL = re.compile(r"[*?/-]")
_DIGITS = 2
_MOST_NTH = 5


def parse(text: str) -> Expression:
    """Parse a line; raises ``CronError``."""
    line = text.strip(" \t")
    line = _MACROS.get(line.lower(), line)
    parts = re.split(r"[ \t]+", line)
    if len(parts) == 5:  # noqa: PLR2004 - the fields of a crontab
        parts.insert(0, "0")
    if len(parts) != 6:  # noqa: PLR2004 - with seconds
        raise CronError("cron line: expected 5 or 6 fields")
    for field, part in zip((SECOND, MINUTE, HOUR, MONTH_DAY, MONTH, WEEKDAY), parts, strict=True):
        if _SEEDED.match(part):
            raise CronError(f"{field.name}: {SEED}")
    second, minute, hour, month_day, month, weekday = parts
    interval = any(_INTERVAL.search(part) for part in (second, minute, hour))
    return Expression(
        seconds=ordered(_values(second, SECOND)),
        minutes=ordered(_values(minute, MINUTE)),
        hours=ordered(_values(hour, HOUR)),
        days=Days(
            month_days=None if month_day in ("*", "?") else frozenset(_month_days(month_day)),
            week_days=None if weekday in ("*", "?") else frozenset(_weekdays(weekday)),
            months=frozenset(_values(month, MONTH)),
            rule=Rule.AND,
        ),
        gap=Gap.END,
        fold=Fold.TWICE if interval else Fold.ONCE,
    )


def _month_days(text: str) -> list[Term]:
    last = last_of_month(text)
    if last is not None:
        return [last]
    if text[-1:] in ("W", "w"):
        return [Nearest(_value(text[:-1], MONTH_DAY))]
    return list(_values(text, MONTH_DAY))


def _weekdays(text: str) -> list[Weekday]:
    if text[-1:] in ("L", "l"):
        return [Weekday(_value(text[:-1], WEEKDAY) % 7, -1)]
    weekday, hash_sign, nth = text.partition("#")
    if hash_sign:
        return [Weekday(_value(weekday, WEEKDAY) % 7, WEEKDAY.step(nth, _MOST_NTH))]
    return [Weekday(value % 7) for value in _values(text, WEEKDAY)]


def _values(text: str, field: Field) -> set[int]:
    if text in ("*", "?"):
        return set(field.all)
    if text[:2] in ("*/", "?/"):
        return set(field.all[:: field.step(text[2:], field.high)])
    values: set[int] = set()
    for item in text.split(","):
        base, slash, step = item.partition("/")
        by = field.step(step, field.high) if slash else 1
        if "-" in base:
            low, high = field.span(base)
            values.update(_range(_value(low, field), _value(high, field), by, field))
        else:
            low_value = _value(base, field)
            values.update(range(low_value, field.high + 1, by) if slash else (low_value,))
    return values


def _range(low: int, high: int, step: int, field: Field) -> list[int]:
    if low <= high:
        return list(range(low, high + 1, step))
    end = 6 if field is WEEKDAY else field.high  # a range over the end of the week counts Sunday once
    first = field.low + step - (end - low) % step - 1
    return [*range(low, end + 1, step), *range(first, high + 1, step)]


def _value(text: str, field: Field) -> int:
    if text.isdigit() and len(text) > _DIGITS:
        raise field.error("a number of at most two digits")
    return field.value(text)
