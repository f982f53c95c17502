"""Whether a line fires alike in two dialects."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from migrator.cron import timeline
from migrator.cron.dialects import next_fires
from migrator.cron.expression import CronError

_SINCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(2028, 1, 1, tzinfo=UTC)
_FIRES: Final = 24
_BEFORE_A_CHANGE: Final = timedelta(hours=30)


@lru_cache(maxsize=4_096)
def fires_alike(dialect: str, other: str, line: str, zone: str | None) -> bool:
    """Tell whether a line fires in one dialect when it fires in another.

    Compared are the fires of two fixed years at their beginning and around each change of the zone's clock: not the
    clock, so that the answer never depends on the day.
    """
    if dialect == other:
        return True
    try:
        return all(
            next_fires(dialect, line, zone, start, _FIRES) == next_fires(other, line, zone, start, _FIRES)
            for start in (_SINCE, *_before_changes(zone))
        )
    except CronError:
        return False


def _before_changes(zone: str | None) -> Iterator[datetime]:
    for stretch in timeline.forward(zone or "UTC", int(_SINCE.timestamp()), _UNTIL.year - 1):
        if stretch.before != stretch.offset:
            yield datetime.fromtimestamp(stretch.start, UTC) - _BEFORE_A_CHANGE
