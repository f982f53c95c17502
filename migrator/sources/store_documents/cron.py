"""Whether a schedule's cron text and time zone can be evaluated, and whether they say what a trigger does."""

from functools import lru_cache

import msgspec

from migrator import cron
from migrator.cron import dialects
from migrator.cron.expression import CronError, ZoneError
from migrator.cron.zones import resolve
from migrator.sources.store_documents import names

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
    """Return the columns of a trigger for this cron text; cached, since schedules repeat a few lines."""
    try:
        key = None if zone_name is None or not zone_name.strip() else resolve(zone_name)
    except ZoneError:
        return Evaluable(fault=UNKNOWN_ZONE)
    try:
        cron.validate(names.CRON_DIALECT, line, key)
    except CronError:
        return Evaluable(fault=UNEVALUABLE)
    return Evaluable(zone=key, mapped=key is not None and key != zone_name)


def fires_alike(dialect: str, line: str, zone: str | None) -> bool:
    """Whether a line fires in the source's dialect when it fires in this one."""
    return evaluate(line, zone).fault is None and dialects.fires_alike(dialect, names.CRON_DIALECT, line, zone)
