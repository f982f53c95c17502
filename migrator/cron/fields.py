"""The fields of a cron line, and how their errors read.

Each dialect has its own grammar; numbers, names and ranges are common.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from migrator.cron.errors import CronError

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Field:
    """One field: its name in messages, its bounds, and the names it takes (lower case)."""

    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)

    @property
    def all(self) -> range:
        """Return every value of the field."""
        return range(self.low, self.high + 1)

    def error(self, expected: str) -> CronError:
        """Return the error of this field; what stood there is not told."""
        return CronError(f"{self.name}: expected {expected}")

    def value(self, text: str) -> int:
        """Read one value, by number or by name in any case."""
        named = self.names.get(text.lower())
        number = digits(text) if named is None else named
        if number is None or not self.low <= number <= self.high:
            raise self.error(f"a value from {self.low} to {self.high}")
        return number

    def step(self, text: str, high: int | None = None) -> int:
        """Read the step after a slash: 1 to ``high``, or any positive number."""
        number = digits(text)
        if not number or (high is not None and number > high):
            raise self.error("a positive step" if high is None else f"a step from 1 to {high}")
        return number

    def span(self, text: str) -> tuple[str, str]:
        """Split ``low-high`` into its two sides."""
        low, dash, high = text.partition("-")
        if not dash or not low or not high or "-" in high:
            raise self.error("a range of two values")
        return low, high


SECOND: Final = Field("second", 0, 59)
MINUTE: Final = Field("minute", 0, 59)
HOUR: Final = Field("hour", 0, 23)
MONTH_DAY: Final = Field("day of month", 1, 31)
MONTH: Final = Field("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)})
WEEKDAY: Final = Field("day of week", 0, 7, {name: number for number, name in enumerate(_WEEKDAYS)})
ALL_MONTHS: Final = frozenset(MONTH.all)

_LONGEST_NUMBER = 9


def digits(text: str) -> int | None:
    """Return the number of an ASCII digit text, or None; very long ones are no numbers here."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else None


def ordered(values: Iterable[int]) -> tuple[int, ...]:
    """Return values sorted, each once."""
    return tuple(sorted(set(values)))


def split(text: str, counts: Iterable[int], separators: str | None = None) -> list[str]:
    """Split a line into its fields; ``CronError`` unless their number is one of ``counts``."""
    parts = text.split(separators)
    if len(parts) not in counts:
        raise CronError("cron line: expected " + " or ".join(str(count) for count in counts) + " fields")
    return parts
