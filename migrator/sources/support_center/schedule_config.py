"""``schedule_config`` of a job: an interval in hours, minutes and seconds, or APScheduler's cron keywords.

The source's own loader fails on an interval with a key left out, and never schedules the job without saying so; zero
becomes every second there. Here a key that is left out is nothing, and nothing at all is refused.
"""

from typing import Any, Final

from migrator import cron
from migrator.cron import apscheduler
from migrator.sources.profile import Note, Rejected
from migrator.sources.rows import RowContext
from migrator.sources.shapes import unknown_value
from migrator.sources.support_center import names

_SECONDS: Final = {"hours": 3600, "minutes": 60, "seconds": 1}
_CRON: Final = {"second": "0", "minute": "*", "hour": "*", "day": "*", "day_of_week": "*", "month": "*"}
"""Keywords that the source passes on, and what stands for one that is left out."""
_LONGEST_SECONDS: Final = 10**12


def interval_of(config: dict[str, Any], path: str, notes: list[Note]) -> dict[str, Any]:
    """Return the columns of an interval trigger; raises ``Rejected`` for one that is not positive."""
    total = 0
    for key, seconds in _SECONDS.items():
        value = config.get(key)
        if value is None:
            notes.append(Note("short-schedule-config", f"{path}.{key}"))
        elif not isinstance(value, int) or isinstance(value, bool):
            raise Rejected("wrong-type", f"{path}.{key}", "int")
        elif not 0 <= value <= _LONGEST_SECONDS:
            raise Rejected("out-of-range", f"{path}.{key}", f"int from 0 to {_LONGEST_SECONDS}")
        else:
            total += value * seconds
    if total == 0:
        raise Rejected("out-of-range", path, "an interval above zero")
    notes.extend(Note("unread-schedule-key", path) for key in config if key not in _SECONDS)
    return {"kind": "interval", "interval_ms": total * names.MILLISECONDS, "anchor": "fixed_rate"}


def cron_of(config: dict[str, Any], path: str, context: RowContext, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of a cron trigger, or None where APScheduler refuses the keywords.

    The keywords stay as they are: in the dialect ``apscheduler`` 0 is Monday, and both day fields must match. Raises
    ``Rejected`` for a keyword that the source does not pass on, none at all, and where nobody states the zone;
    ``ZoneError`` (the operator's mistake) for a stated zone that there is not.
    """
    given = {key: value for key, value in config.items() if value is not None}
    if not given:
        raise Rejected("missing-field", path, "at least one keyword")
    for key, value in given.items():
        if key not in _CRON:
            raise unknown_value(path, _CRON)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Rejected("wrong-type", f"{path}.{key}", "int or str")
    if context.cron_zone is None:
        raise Rejected("no-zone", path, "the setting cron_zone, since the keywords were evaluated in local time")
    zone = cron.zone(context.cron_zone)[0].key
    expression = apscheduler.keywords(_CRON | given)
    try:
        cron.validate(names.CRON_DIALECT, expression, zone)
    except cron.CronError:
        notes.append(Note("unevaluable-cron", path))
        return None
    if any(character.isdigit() for character in str(given.get("day_of_week", ""))):
        # 0 is Monday here and Sunday nearly everywhere else: whoever wrote it may have meant the day before.
        notes.append(Note("numeric-weekday", f"{path}.day_of_week"))
    return {
        "kind": "cron",
        "cron_expression": expression,
        "cron_dialect": names.CRON_DIALECT,
        "timezone": zone,
    }
