"""When a job of source 002 fires."""

from typing import Any

from migrator import cron
from migrator.records import Schedule, Trigger
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.shapes import ScheduledJob
from migrator.sources.profile import Note
from migrator.sources.rows import Origin, utc
from migrator.values import jsonb


def trigger_of(job: ScheduledJob, origin: Origin, notes: list[Note]) -> Trigger | None:
    """Return the trigger, or None for a job that nothing makes fire; a finding says why."""
    cause = _cause(job, notes)
    if cause is None:
        return None
    start, end = utc(job.start_date, "start_date"), utc(job.end_date, "end_date")
    empty = start is not None and end is not None and end <= start
    if empty:
        notes.append(Note("empty-window", "end_date"))
        start = end = None
    if job.max_executions is not None and job.executions_count > job.max_executions:
        notes.append(Note("more-fires-than-allowed", "executions_count"))
    return Trigger(
        **origin.columns(Trigger),
        schedule_id=origin.key(Schedule),
        start_at=start,
        end_at=end,
        max_fires=job.max_executions,
        fire_count=job.executions_count,
        skip_if_overdue=skips(job.metadata),
        # A job whose window is empty never runs; without its dates the trigger would.
        enabled=not empty,
        next_fire_at=utc(job.next_run, "next_run"),
        last_fire_at=utc(job.last_run, "last_run"),
        source_spec=jsonb.encode({"type": job.type, "schedule": job.schedule, "timezone": job.timezone}),
        **cause,
    )


def skips(metadata: object) -> bool:
    """Tell whether a late fire is skipped: the source stores it in the metadata, and reads it nowhere."""
    return isinstance(metadata, dict) and metadata.get("skip_if_overdue") is True


def _cause(job: ScheduledJob, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of the trigger's kind."""
    kind = names.JOB_TYPES[job.type]
    if kind == "event":
        # The source's port has this type of job, its code never makes one, and no column holds the event's name.
        notes.append(Note("event-without-name", "type"))
        return None
    if kind == "one_time":
        due = utc(job.next_run, "next_run") or utc(job.last_run, "last_run")
        if due is None:
            notes.append(Note("no-run-time", "next_run"))
            return None
        return {"kind": kind, "run_at": due}
    try:
        zone, mapped = cron.zone(job.timezone)
    except cron.ZoneError:
        notes.append(Note("unknown-zone", "timezone"))
        return None
    if mapped:
        notes.append(Note("mapped-zone", "timezone"))
    try:
        cron.validate(names.CRON_DIALECT, job.schedule or "", zone.key)
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule"))
        return None
    return {
        "kind": kind,
        "cron_expression": job.schedule,
        "cron_dialect": names.CRON_DIALECT,
        "timezone": zone.key,
    }
