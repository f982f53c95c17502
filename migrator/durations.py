"""Durations as text: ``500ms``, ``30s``, ``5m``, ``2h``, ``7d``, and several together, as in ``1h30m``."""

import re
from datetime import timedelta
from typing import Final

UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
"""The largest first: in a duration of several units they are in this order."""
NONE: Final = timedelta(0)
LEAST: Final = UNITS["ms"]
MOST: Final = timedelta(days=36_500)

EXPECTED: Final = 'expected a duration with its unit, such as "500ms", "30s", "5m", "2h" or "7d"'


def parse_duration(text: str, *, least: timedelta = LEAST, most: timedelta = MOST) -> timedelta:
    """Return the duration that ``text`` means; raise ``ValueError``, whose text says what was expected."""
    parts = re.findall(r"([0-9]+)([A-Za-z]+)", text)
    if not parts or "".join(map("".join, parts)) != text:
        raise ValueError(EXPECTED + _reason(text))
    units = [unit for _, unit in parts]
    for unit in units:
        if unit not in UNITS:
            raise ValueError(f'{EXPECTED}, not "{unit}"')
    if units != [unit for unit in UNITS if unit in units]:
        raise ValueError(f'{EXPECTED}; of several units the largest is first, and each is there once: "1h30m"')
    try:
        length = sum((int(count) * UNITS[unit] for count, unit in parts), NONE)
    except (OverflowError, ValueError):  # more days, or more digits, than Python calculates with
        length = timedelta.max
    check_range(length, least=least, most=most)
    return length


def check_range(length: timedelta, *, least: timedelta = LEAST, most: timedelta = MOST) -> None:
    """Raise ``ValueError`` for a duration that is out of its range, or no whole number of milliseconds."""
    if length < least:
        raise ValueError(f'expected a duration of at least "{format_duration(least)}"')
    if length > most:
        raise ValueError(f'expected a duration of at most "{format_duration(most)}"')
    if length % LEAST:
        raise ValueError("expected a whole number of milliseconds")


def format_duration(length: timedelta) -> str:
    """Return the shortest text that means the duration, a whole number of milliseconds that is not negative."""
    names = list(UNITS)
    texts = (_in_units(length, names[first:]) for first in range(len(names)))
    return min((text for text in texts if text), key=len, default="0s")


def length_of(milliseconds: float | None) -> timedelta | None:
    """Return a length of time; None if there is none, or for one that is longer than time is."""
    try:
        return None if milliseconds is None else timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def _in_units(length: timedelta, names: list[str]) -> str:
    text = ""
    for name in names:
        count, length = divmod(length, UNITS[name])
        text += f"{count}{name}" if count else ""
    return text


def _reason(text: str) -> str:
    """Return the fault of a text that is no sequence of numbers with units."""
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text):
        return "; a number alone is in no unit"
    if re.fullmatch(r"-\s*[0-9].*", text):
        return ", not a negative one"
    if re.search(r"[0-9]\.[0-9]", text):
        return '; a fraction is written in a smaller unit: "1500ms"'
    return ""
