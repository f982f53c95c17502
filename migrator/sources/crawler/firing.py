"""When a job of source 003 fires: an interval, a cron line, or once.

The source's migration turned cron lines into intervals and got most of them wrong. A job that still has its line beside
exactly what the migration made of it is given its line back, unless both fire at the same distance. Any other interval
was set by somebody, and wins over the line, as in the source.
"""

from datetime import datetime
from typing import Any, Final

from migrator import cron
from migrator.cron.dialects import parse
from migrator.cron.interval import constant_interval
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.crawler import names
from migrator.sources.crawler.shapes import Job
from migrator.sources.profile import Note, Rejected
from migrator.sources.rows import Origin, RowContext, utc
from migrator.sources.shapes import choice
from migrator.values import jsonb

_SPEC: Final = ("schedule_time", "interval_minutes", "interval_type")
_LIVE: Final = ("pending", "scheduled")
_HOUR, _DAY = 60, 1440  # minutes


def trigger_of(job: Job, origin: Origin, status: str, context: RowContext, notes: list[Note]) -> Trigger | None:
    """Return the trigger, or None for a cron line that the source could not have evaluated.

    Raises ``Rejected`` for an interval without a unit and for a cron line whose zone nobody states; ``ZoneError`` (the
    operator's mistake) for a stated zone that there is not.
    """
    cause = _cause(job, status, context, notes)
    if cause is None:
        return None
    spec = {name: value for name in _SPEC if (value := getattr(job, name)) is not None}
    return Trigger(
        **origin.columns(Trigger),
        schedule_id=origin.key(Schedule),
        last_fire_at=utc(job.started_at, "started_at"),
        source_spec=jsonb.encode(spec) if spec else None,
        **cause,
    )


def _cause(job: Job, status: str, context: RowContext, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of the trigger's kind."""
    line = job.schedule_time if job.schedule_time and job.schedule_time.strip() else None
    if job.interval_minutes is not None:
        if job.interval_type is None:
            raise Rejected("missing-field", "interval_type", "minutes, hours or days")
        milliseconds = job.interval_minutes * choice(job.interval_type, names.UNITS, "interval_type")
        if line is None or not _spoiled(job, line, milliseconds, context, notes):
            if line is None and _looks_doubled(job):
                notes.append(Note("interval-maybe-counted-twice", "interval_minutes"))
            return {
                "kind": "interval",
                "interval_ms": milliseconds,
                "anchor": "completion",
                "enabled": job.schedule_enabled is True,
                "next_fire_at": utc(job.next_run_at, "next_run_at"),
            }
    if line is not None:
        return _cron(job, line, status, context, notes)
    due = utc(job.next_run_at, "next_run_at")
    made = utc(job.created_at, "created_at")
    # A job that is scheduled for once and pending is taken at the source's next poll; a retry has its time.
    return {"kind": "one_time", "run_at": due or made, "next_fire_at": due or (made if status == "pending" else None)}


def _cron(job: Job, line: str, status: str, context: RowContext, notes: list[Note]) -> dict[str, Any] | None:
    try:
        parsed = parse(names.CRON_DIALECT, line)
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule_time"))
        return None
    zone = parsed.zone
    if zone is None:
        if context.cron_zone is None:
            raise Rejected(
                "no-zone", "schedule_time", "the setting cron_zone, since the line was evaluated in local time"
            )
        zone = cron.zone(context.cron_zone)[0].key
    enabled = job.schedule_enabled is True
    columns: dict[str, Any] = {"enabled": enabled, "next_fire_at": _first_fire(job, line, zone, status, context)}
    gap = constant_interval(names.CRON_DIALECT, line, zone) if context.constant_cron_as_interval else None
    if gap is not None:
        notes.append(Note("cron-as-interval", "schedule_time"))
        return columns | {"kind": "interval", "interval_ms": round(gap.total_seconds() * 1000), "anchor": "fixed_rate"}
    return columns | {
        "kind": "cron",
        "cron_expression": line,
        "cron_dialect": names.CRON_DIALECT,
        "timezone": zone,
    }


def _first_fire(job: Job, line: str, zone: str, status: str, context: RowContext) -> datetime | None:
    """Return when a cron job fires first; its ``next_run_at``, if any, was reckoned from a wrong interval."""
    if context.as_of is None or status not in _LIVE or job.schedule_enabled is not True:
        return None
    return cron.next_fire(names.CRON_DIALECT, line, zone, context.as_of)


def _spoiled(job: Job, line: str, milliseconds: int, context: RowContext, notes: list[Note]) -> bool:
    """Tell whether the interval is what the source's migration made of the line, and wrong."""
    if (job.interval_minutes, job.interval_type) != names.converted(line):
        return False
    try:
        gap = constant_interval(names.CRON_DIALECT, line, context.cron_zone)
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule_time"))
        return False
    if gap is not None and gap.total_seconds() * 1000 == milliseconds:
        return False
    kind = "interval-counted-twice" if line in names.LISTED else "cron-made-60-minutes"
    notes.append(Note(kind, "interval_minutes"))
    return True


def _looks_doubled(job: Job) -> bool:
    """Tell whether a number of hours or days may be minutes: there is no line to ask, so it fires as in the source."""
    minutes = job.interval_minutes or 0
    return (job.interval_type == "hours" and minutes % _HOUR == 0) or (
        job.interval_type == "days" and minutes % _DAY == 0
    )
