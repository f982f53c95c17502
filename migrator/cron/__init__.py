"""Cron dialects: the next fires of a line, each dialect as its own engine fires, daylight saving time included.

``docs/cron.md`` sets the dialects side by side. The package is pure: no clock is read, zones come from the pinned
``tzdata`` package.
"""

from migrator.cron.dialects import DIALECTS, fires_after, next_fire, next_fires, parse, validate
from migrator.cron.expression import CronError, UnavailableError, ZoneError
from migrator.cron.zones import database_version, zone, zone_names

__all__ = [
    "DIALECTS",
    "CronError",
    "UnavailableError",
    "ZoneError",
    "database_version",
    "fires_after",
    "next_fire",
    "next_fires",
    "parse",
    "validate",
    "zone",
    "zone_names",
]
