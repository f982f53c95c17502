"""Agenda's ``repeatInterval``, a cron line (as cron-parser reads it) or an interval in words, and its ``repeatAt``.

Five fields, six with seconds first, fewer are taken as the last ones; macros. Weekdays 0-7; day fields that are not a
plain star are joined by "or". Unless all hours are named, what the clock skips fires as late after the gap (03:30 for
02:30) and what it repeats fires once; with all hours the line follows the clock. Source: cron-parser 3.5, 4.9 and 5.10
as used by Agenda 4, 5 and 6; where they differ, 5.10.

An interval in words is read as the library human-interval 2 reads it with its number words from numbered 1. The
library takes the first letters it understands and ignores the rest; so "one and a half hours" is one hour. Its answers
are kept, odd ones too.
"""

import math
import re
from functools import lru_cache

from migrator.cron.expression import (
    ALL_MONTHS,
    HOUR,
    MINUTE,
    MONTH,
    MONTH_DAY,
    SECOND,
    WEEKDAY,
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
    digits,
    ordered,
)

_SECOND = 1000
_UNITS = {
    "second": _SECOND,
    "minute": 60 * _SECOND,
    "hour": 3600 * _SECOND,
    "day": 86400 * _SECOND,
    "week": 7 * 86400 * _SECOND,
    "month": 30 * 86400 * _SECOND,
    "year": 365 * 86400 * _SECOND,
}
_UNIT = re.compile(r"(second|minute|hour|day|week|month|year)s?")
_NOISE = re.compile(r"([^a-z0-9.-]|and)+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?", re.ASCII)
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_WORDS: dict[str, int | str] = {
    **{word: number for number, word in enumerate(_ONES.split())},
    **{word: 10 * number for number, word in enumerate(_TENS.split(), 2)},
    **{word: 10**power for word, power in _POWERS.items()},
    "nil": 0,
    "naught": 0,
    "period": ".",
    "decimal": ".",
    "point": ".",
    "negative": "-",
}
_TEN = 10
_LARGEST = 8_640_000_000_000_000
"""Milliseconds a JavaScript date can hold."""


def interval_ms(text: str | float) -> int | None:
    """Return an interval in whole milliseconds, or None where the library has no number for it.

    A number is already milliseconds; its fraction is cut off, as JavaScript dates do. Zero and negative intervals are
    returned as they are.
    """
    if isinstance(text, bool):
        return None
    try:
        seconds = _parsed(text) if isinstance(text, str) else float(text)
    except OverflowError:
        return None
    if not math.isfinite(seconds) or abs(seconds) > _LARGEST:
        return None
    return math.trunc(seconds)


@lru_cache(maxsize=4_096)
def _parsed(text: str) -> float:
    rest = _NOISE.sub(" ", text)
    parsed = math.nan
    while match := _UNIT.search(rest):
        number = _quantity(rest[: match.start()].strip())
        parsed = (0.0 if math.isnan(parsed) else parsed) + number * _UNITS[match.group(1)]
        rest = rest[match.end() :]
    return parsed


def _quantity(text: str) -> float:
    if not text:
        return 1.0
    number = _NUMBER.match(text)
    return float(number.group()) if number else _spelled(text)


def _spelled(text: str) -> float:
    """Read number words the way the library does, from the right, with its results for odd orders."""
    numbers = [_WORDS.get(word) for word in re.split(r"[^A-Za-z0-9_]+", text)]
    sign = -1 if "-" in numbers else 1
    total: float = 0
    largest = 0
    zeros = 0
    pending: list[int] = []
    for word in reversed([word for word in numbers if word is not None and word != "-"]):
        if not isinstance(word, str) and _digits(word) < _digits(largest):
            pending.append(word)
            if len(pending) == 1:
                total -= largest
            continue
        total += _multiplied(pending, largest)
        pending = []
        if isinstance(word, str):
            places = zeros + len(_written(total))
            zeros, largest = 0, 0
            total *= float(_TEN**-places)
        elif word == 0:
            zeros += 1
        elif total >= 1 and _digits(word) == _digits(largest):
            total = float(f"{word}{'0' * zeros}{_written(total)}")
            zeros = 0
        else:
            largest = word
            total = (total + word) * _TEN**zeros
    return sign * (total + _multiplied(pending, largest))


def _digits(number: int) -> int:
    return len(str(number)) - 1


def _written(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def _multiplied(values: list[int], largest: int) -> int:
    total = 0
    for place in range(len(values) - 1, -1, -1):
        multiplies = place + 1 < len(values) and values[place] > values[place + 1]
        total = total * values[place] if multiplies else total + values[place]
    return total * largest


_MACROS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
    "@minutely": "0 * * * * *",
    "@secondly": "* * * * * *",
    "@weekdays": "0 0 0 * * 1-5",
    "@weekends": "0 0 0 * * 0,6",
}
_DEFAULTS = ["0", "*", "*", "*", "*", "*"]
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_AT = re.compile(r"(?:at +)?(\d{1,2})(?::(\d{2}))? *(am|pm)?", re.ASCII | re.IGNORECASE)
_NAMED_TIMES = {"noon": 12, "midnight": 0}
_HALF_DAY = 12
_AT_ERROR = CronError("repeatAt: expected a time of day such as 3:30pm")
_MOST_NTH = 5


def parse(text: str) -> Expression:
    """Parse a cron line.

    Raises ``CronError``. A text of digits alone is no line but milliseconds: see ``migrator.cron.agenda``.
    """
    given = _MACROS.get(text, text).split()
    if not given or len(given) > len(_DEFAULTS) or (len(given) == 1 and digits(given[0]) is not None):
        raise CronError("cron line: expected 5 or 6 fields")
    second, minute, hour, month_day, month, weekday = _DEFAULTS[: len(_DEFAULTS) - len(given)] + given
    hours = _values(hour, HOUR)
    months = _values(month, MONTH)
    by_month, by_week = _month_days(month_day), _weekdays(weekday)
    if by_month is not None and by_week is None and not any(_exists(day, months) for day in by_month):
        raise MONTH_DAY.error("a day that one of the months has")
    every_hour = len(hours) == len(HOUR.all)
    return Expression(
        seconds=ordered(_values(second, SECOND)),
        minutes=ordered(_values(minute, MINUTE)),
        hours=ordered(hours),
        days=Days(by_month, by_week, frozenset(months), Rule.OR),
        gap=Gap.SKIP if every_hour else Gap.SHIFT,
        fold=Fold.TWICE if every_hour else Fold.ONCE,
    )


def parse_at(text: str) -> Expression:
    """Parse ``repeatAt``: a time of day such as ``3:30pm``, ``15:30`` or ``noon``, every day; raises ``CronError``.

    Other texts that date.js understands (``tomorrow at 5pm``) name no time of every day and are refused. What the clock
    skips fires as late after the gap, what it repeats once, the first time.
    """
    hour, minute = _clock(text.strip())
    if hour not in HOUR.all or minute not in MINUTE.all:
        raise _AT_ERROR
    return Expression(
        minutes=(minute,),
        hours=(hour,),
        days=Days(None, None, ALL_MONTHS),
        gap=Gap.SHIFT,
        fold=Fold.ONCE,
    )


def _clock(text: str) -> tuple[int, int]:
    named = _NAMED_TIMES.get(text.lower().removeprefix("at "))
    if named is not None:
        return named, 0
    match = _AT.fullmatch(text)
    if match is None:
        raise _AT_ERROR
    hour, minute = int(match.group(1)), int(match.group(2) or 0)
    half = match.group(3)
    if half is None and match.group(2) is not None:
        return hour, minute
    if half is None or not 1 <= hour <= _HALF_DAY:
        raise _AT_ERROR
    return hour % _HALF_DAY + (_HALF_DAY if half.lower() == "pm" else 0), minute


def _exists(day: Term, months: set[int]) -> bool:
    return not isinstance(day, int) or any(day <= _LONGEST[month - 1] for month in months)


def _month_days(text: str) -> frozenset[Term] | None:
    if text in ("*", "?"):
        return None
    terms: set[Term] = set()
    for item in text.split(","):
        if item == "L":
            terms.add(Last())
        else:
            terms.update(_item(item, MONTH_DAY))
    return frozenset(terms)


def _weekdays(text: str) -> frozenset[Weekday] | None:
    if text in ("*", "?"):
        return None
    base, hash_sign, nth = text.partition("#")
    if hash_sign:
        number = digits(nth)
        if re.search("[,/L-]", base) or number is None or not 1 <= number <= _MOST_NTH:
            raise WEEKDAY.error("one weekday and an occurrence from 1 to 5")
        return frozenset(Weekday(day % 7, number) for day in _item(base, WEEKDAY))
    weekdays: set[Weekday] = set()
    for item in text.split(","):
        if item.endswith("L"):
            weekdays.add(Weekday(WEEKDAY.value(item[:-1]) % 7, -1))
        else:
            weekdays.update(Weekday(day % 7) for day in _item(item, WEEKDAY))
    return frozenset(weekdays)


def _values(text: str, field: Field) -> set[int]:
    return {value for item in text.split(",") for value in _item(item, field)}


def _item(text: str, field: Field) -> set[int]:
    if text.partition("/")[0] == "?" and field not in (MONTH_DAY, WEEKDAY):
        raise field.error("a value, a range, a step, or a list of them")
    found = set(field.item(text, ("*", "?"), field.high))
    return {value % 7 for value in found} if field is WEEKDAY else found
