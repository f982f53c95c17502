"""APScheduler 3's ``CronTrigger``: a crontab line, or its keyword arguments as a JSON object; the library searches.

Weekdays count from 0 = Monday, also in a crontab line. All fields must match; keywords left out are ``*`` above the
least given one and their minimum below it. A time the clock skips fires as late after it, and what the clock repeats
fires twice. After a gap its search may pass over fires: a midnight becomes 01:00, and New York's ``0 0 1 * *`` skips
the first of April. ``next_fire`` shows what APScheduler would do.
"""

import json
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from apscheduler.triggers.cron import CronTrigger

from migrator.cron.expression import CronError, split
from migrator.cron.zones import zone as zone_of

_KEYWORDS: Final = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_CRONTAB: Final = ("minute", "hour", "day", "month", "day_of_week")
_SEARCHED: Final = timedelta(days=50 * 366)
"""How far it searches; the library itself would go on to the year 9999, which takes a second."""


class Line:
    """A line that the library has taken; it finds the fires itself."""

    zone: None = None
    """No zone stands in a line of this dialect."""

    def __init__(self, text: str) -> None:
        """Take a line; raises ``CronError`` if the library does not."""
        self._keywords = _keywords(text)
        for name, value in self._keywords.items():
            try:
                CronTrigger(**{name: value}, timezone=UTC)
            except Exception:  # noqa: BLE001 - whatever the library raises for a field is that it does not take it
                raise CronError(f"{name}: expected what APScheduler accepts") from None
        self._triggers: dict[str, Any] = {}

    def after(self, zone: str, instant: int) -> Iterator[int]:
        """Yield the fires later than ``instant`` (seconds since 1970), ascending, until its search ends."""
        while (found := self._next(zone, instant)) is not None:
            yield found
            instant = found

    def _next(self, zone: str, instant: int) -> int | None:
        place, _ = zone_of(zone)
        known = self._triggers.get(zone)
        if known is None:
            known = self._triggers[zone] = CronTrigger(**self._keywords, timezone=place)
        trigger = copy(known)  # several threads ask
        try:
            start = datetime.fromtimestamp(instant + 1, place)
            trigger.end_date = start + _SEARCHED
        except (ValueError, OverflowError):
            return None  # outside of the years that a date can have
        found = trigger.get_next_fire_time(None, start)
        return None if found is None else int(found.timestamp())


def _keywords(text: str) -> dict[str, str]:
    if not text.isascii():
        raise CronError("cron line: expected ASCII characters")
    if not text.lstrip().startswith("{"):
        return dict(zip(_CRONTAB, split(text, (5,)), strict=True))
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise CronError("cron line: expected a JSON object of keywords") from None
    if not isinstance(found, dict) or not found.keys() <= set(_KEYWORDS):
        raise CronError("cron line: expected only the keywords " + ", ".join(_KEYWORDS))
    given = {name: str(value).strip() for name, value in found.items() if value is not None}
    if not given:
        raise CronError("cron line: expected at least one keyword")
    return given
