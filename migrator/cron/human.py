"""Agenda's interval texts, as the library human-interval 2 reads them with its number words from numbered 1.

The library takes the first letters it understands and ignores the rest; so "one and a half hours" is one hour. Its
answers are kept, odd ones too.
"""

import math
import re

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
        found = _parsed(text) if isinstance(text, str) else float(text)
    except OverflowError:
        return None
    if not math.isfinite(found) or abs(found) > _LARGEST:
        return None
    return math.trunc(found)


def _parsed(text: str) -> float:
    rest = _NOISE.sub(" ", text)
    found = math.nan
    while match := _UNIT.search(rest):
        number = _quantity(rest[: match.start()].strip())
        found = (0.0 if math.isnan(found) else found) + number * _UNITS[match.group(1)]
        rest = rest[match.end() :]
    return found


def _quantity(text: str) -> float:
    if not text:
        return 1.0
    number = _NUMBER.match(text)
    return float(number.group()) if number else _spelled(text)


def _spelled(text: str) -> float:
    """Read number words the way the library does, from the right, with its results for odd orders."""
    words = [_WORDS.get(word) for word in re.split(r"[^A-Za-z0-9_]+", text)]
    sign = -1 if "-" in words else 1
    total: float = 0
    largest = 0
    zeros = 0
    pending: list[int] = []
    for word in reversed([word for word in words if word is not None and word != "-"]):
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
