"""Whether a schedule's cron text and time zone can be evaluated, and whether they say what a trigger does."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from migrator import cron
from migrator.cron import timeline
from migrator.cron.expression import CronError, ZoneError
from migrator.cron.zones import resolve
from migrator.sources.stellaops import names

UNEVALUABLE = "unevaluable-cron"
UNKNOWN_ZONE = "unknown-zone"


class Evaluable(msgspec.Struct, frozen=True):
    """The zone to evaluate in (IANA; None where the source names none), or the finding that speaks against it."""

    zone: str | None = None
    mapped: bool = False
    """The source spelled the zone otherwise (a Windows name, another case)."""
    fault: str | None = None


@lru_cache(maxsize=4_096)
def evaluate(line: str, zone_name: str | None) -> Evaluable:
    """Return what a trigger would hold for this cron text; cached, since schedules repeat a few lines."""
    try:
        key = None if zone_name is None or not zone_name.strip() else resolve(zone_name)
    except ZoneError:
        return Evaluable(fault=UNKNOWN_ZONE)
    try:
        cron.validate(names.CRON_DIALECT, line, key)
    except CronError:
        return Evaluable(fault=UNEVALUABLE)
    return Evaluable(zone=key, mapped=key is not None and key != zone_name)


_SINCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
_UNTIL: Final = datetime(2028, 1, 1, tzinfo=UTC)
_FIRES: Final = 24
_BEFORE_A_CHANGE: Final = timedelta(hours=30)


@lru_cache(maxsize=4_096)
def fires_alike(dialect: str, line: str, zone: str | None) -> bool:
    """Tell whether a line fires in the source's dialect when it fires in this one.

    Compared are the fires of two fixed years at their beginning and around each change of the zone's clock: not the
    clock, so that the answer never depends on the day.
    """
    if evaluate(line, zone).fault is not None:
        return False
    if dialect == names.CRON_DIALECT:
        return True
    try:
        return all(
            cron.next_fires(dialect, line, zone, start, _FIRES)
            == cron.next_fires(names.CRON_DIALECT, line, zone, start, _FIRES)
            for start in (_SINCE, *_before_changes(zone))
        )
    except CronError:
        return False


def _before_changes(zone: str | None) -> Iterator[datetime]:
    for stretch in timeline.forward(zone or "UTC", int(_SINCE.timestamp()), _UNTIL.year - 1):
        if stretch.before != stretch.offset:
            yield datetime.fromtimestamp(stretch.start, UTC) - _BEFORE_A_CHANGE
