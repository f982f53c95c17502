"""When a job of source 003 fires: an interval, a cron line, or once.

The source's migration turned cron lines into intervals and got most of them wrong. A job that still has its line beside
exactly what the migration made of it is given its line back, unless both fire at the same distance. Any other interval
was set by somebody, and wins over the line, as in the source.
"""

from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

from migrator import cron
from migrator.cron.dialects import parse
from migrator.cron.interval import constant_interval
from migrator.records import Schedule, Trigger
from migrator.sources.crawler import names
from migrator.sources.crawler.shapes import Job
from migrator.sources.firstfire import next_fire_of
from migrator.sources.profile import Note, Rejected
from migrator.sources.rows import Origin, RowContext, utc
from migrator.sources.shapes import choice
from migrator.values import jsonb

_SPEC: Final = ("schedule_time", "interval_minutes", "interval_type")
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
    enabled = job.schedule_enabled is True
    stated = utc(job.next_run_at, "next_run_at")
    if job.interval_minutes is not None and not _spoiled(job, line, context, notes):
        cause: dict[str, Any] | None = _interval(job, line, notes)
    elif line is not None:
        # A next run beside a line was reckoned from a wrong interval.
        stated, cause = None, _cron(line, context, notes)
    else:
        made = utc(job.created_at, "created_at")
        # A job that is scheduled for once and pending is taken at the source's next poll; a retry has its time.
        due = stated or (made if status == "pending" else None)
        return {"kind": "one_time", "run_at": stated or made, "next_fire_at": due}
    if cause is None:
        return None
    fires = enabled and status != "cancelled"
    due = next_fire_of(cause, stated, fires=fires, as_of=context.as_of, column="next_run_at", notes=notes)
    if context.constant_cron_as_interval and cause["kind"] == "cron":
        cause = _even(cause, notes)
    return {**cause, "enabled": enabled, "next_fire_at": due}


def _interval(job: Job, line: str | None, notes: list[Note]) -> dict[str, Any]:
    if line is None and _looks_doubled(job):
        notes.append(Note("interval-maybe-counted-twice", "interval_minutes"))
    return {"kind": "interval", "interval_ms": _milliseconds(job), "anchor": "completion"}


def _milliseconds(job: Job) -> int:
    """Return the interval as the source's database counts it: so many of the unit."""
    if job.interval_type is None:
        raise Rejected("missing-field", "interval_type", "minutes, hours or days")
    return (job.interval_minutes or 0) * choice(job.interval_type, names.UNITS, "interval_type")


def _cron(line: str, context: RowContext, notes: list[Note]) -> dict[str, Any] | None:
    try:
        zone = parse(names.CRON_DIALECT, line).zone
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule_time"))
        return None
    if zone is None:
        if context.cron_zone is None:
            raise Rejected(
                "no-zone", "schedule_time", "the setting cron_zone, since the line was evaluated in local time"
            )
        zone = cron.zone(context.cron_zone)[0].key
    return {"kind": "cron", "cron_expression": line, "cron_dialect": names.CRON_DIALECT, "timezone": zone}


def _even(cause: dict[str, Any], notes: list[Note]) -> dict[str, Any]:
    """Return the columns of an interval for a line that is nothing else; its phase is left to the next fire alone."""
    gap = _gap(cause["cron_expression"], cause["timezone"])
    if gap is None:
        return cause
    notes.append(Note("cron-as-interval", "schedule_time"))
    return {"kind": "interval", "interval_ms": round(gap.total_seconds() * 1000), "anchor": "fixed_rate"}


def _spoiled(job: Job, line: str | None, context: RowContext, notes: list[Note]) -> bool:
    """Tell whether the interval is what the source's migration made of the line, and wrong."""
    milliseconds = _milliseconds(job)
    if line is None or (job.interval_minutes, job.interval_type) != names.converted(line):
        return False
    try:
        gap = _gap(line, context.cron_zone)
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule_time"))
        return False
    if gap is not None and gap.total_seconds() * 1000 == milliseconds:
        return False
    kind = "interval-counted-twice" if line in names.LISTED else "cron-made-60-minutes"
    notes.append(Note(kind, "interval_minutes"))
    return True


@lru_cache(maxsize=4_096)
def _gap(line: str, zone: str | None) -> timedelta | None:
    """Return the even distance of a line's fires; cached, since it looks at years of them and jobs repeat few lines."""
    return constant_interval(names.CRON_DIALECT, line, zone)


def _looks_doubled(job: Job) -> bool:
    """Tell whether a number of hours or days may be minutes: there is no line to ask, so it fires as in the source."""
    minutes = job.interval_minutes or 0
    return (job.interval_type == "hours" and minutes % _HOUR == 0) or (
        job.interval_type == "days" and minutes % _DAY == 0
    )
