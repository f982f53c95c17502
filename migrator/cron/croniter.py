"""croniter 7 (Python): the library itself evaluates the line, with its own gaps, folds and searches.

Seconds come sixth, years seventh. Fields
with ``H`` and ``R`` are refused: they need a seed that is not in the line.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from croniter import CroniterBadDateError, croniter

from migrator.cron.expression import SEED, CronError
from migrator.cron.zones import zone as zone_of

_SEEDED = re.compile(r"(?:^|[\s,])[hr](?:[(/]|[\s,]|$)", re.IGNORECASE)
_ANY_INSTANT = datetime(2000, 1, 1, tzinfo=UTC)


class Line:
    """A line that the library has taken; it finds the fires itself."""

    zone: None = None
    """A line of this dialect has no zone."""

    def __init__(self, text: str) -> None:
        """Take a line; raises ``CronError`` if the library does not."""
        if not text.isascii():
            raise CronError("cron line: expected ASCII characters")
        if _SEEDED.search(text):
            raise CronError(f"cron line: {SEED}")
        self._text = text
        self._steps(_ANY_INSTANT)

    def after(self, zone: str, instant: int) -> Iterator[int]:
        """Yield the fires later than ``instant`` (seconds since 1970), ascending, until the library finds none."""
        try:
            start = datetime.fromtimestamp(instant, zone_of(zone)[0])
        except (ValueError, OverflowError):
            return  # it is after the last date of the zone
        steps = self._steps(start)
        while (found := _found(steps.get_next)) is not None:
            yield found

    def _steps(self, start: datetime) -> Any:  # noqa: ANN401 - the library has no types
        try:
            return croniter(self._text, start)
        except Exception:  # noqa: BLE001 - whatever the library raises for a line is that it does not take it
            raise CronError("cron line: expected what croniter accepts") from None


def _found(step: Any) -> int | None:  # noqa: ANN401 - get_next or get_prev of the library
    try:
        return int(step(float))
    except CroniterBadDateError:  # its search is over
        return None
    except (ValueError, OverflowError):  # it left the years that a date can have
        return None
