"""``ScheduledJob``: a schedule and its trigger."""

from typing import Any, Final

from migrator import cron
from migrator.records import Schedule, Trigger
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.origin import PLATFORM, origin_of, platform_of
from migrator.sources.orchestrator.shapes import ScheduledJob
from migrator.sources.profile import Context, Decoded, Note, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    counted,
    find,
    naive,
    read_row,
    respelled,
    spanned,
    summed,
    text_of_key,
    the,
    utc,
)
from migrator.sources.shapes import choice, indexed
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


def decode(row: Row, _context: Context) -> Decoded:
    """Return the schedule and, where one can be formed, its trigger."""
    job = read_row(row, ScheduledJob)
    choice(job.type, names.JOB_TYPES, "type")
    origin = origin_of(job.id, job.platform_id, names.JOBS)
    notes: list[Note] = []
    trigger = trigger_of(job, origin, notes)
    schedule = Schedule(
        **origin.columns(Schedule),
        name=indexed(job.name, "name"),
        description=job.description,
        status=choice(job.status, names.JOB_STATUSES, "status"),
        handler_name=job.handler_name,
        handler_type=choice(job.handler_type, names.JOB_HANDLER_TYPES, "handler_type"),
        payload=None if job.payload is None else jsonb.encode(job.payload),
        priority=choice(job.priority, names.PRIORITIES, "priority"),
        max_retries=job.max_retries,
        retry_delay_ms=job.retry_delay_ms,
        retry_strategy="exponential",
        retry_cap_ms=names.RETRY_CAP_MS,
        timeout_ms=job.timeout_ms,
        max_concurrency=None if job.allow_overlap else job.concurrency,
        tags=None if job.tags is None else tuple(indexed(tag, "tags[]") for tag in job.tags),
        metadata=None if job.metadata is None else jsonb.encode(job.metadata),
        created_at=utc(job.created_at, "created_at"),
        created_by=job.created_by,
        updated_at=utc(job.updated_at, "updated_at"),
        completed_at=utc(job.completed_at, "completed_at"),
        cancelled_at=utc(job.cancelled_at, "cancelled_at"),
    )
    return Decoded((schedule,) if trigger is None else (schedule, trigger), tuple(notes))


def encode(rows: Rows) -> Row:
    """Return the row as far as the records carry it; counts without a column are remainder."""
    schedule = the(rows, Schedule)
    return {
        "id": text_of_key(schedule),
        "name": schedule.name,
        "description": schedule.description,
        "status": names.JOB_STATUSES_BACK[schedule.status],
        **_firing(find(rows, Trigger)),
        "handler_name": schedule.handler_name,
        "handler_type": schedule.handler_type,
        "payload": None if schedule.payload is None else jsonb.decode(schedule.payload),
        "max_retries": schedule.max_retries,
        "retry_delay_ms": schedule.retry_delay_ms,
        "timeout_ms": schedule.timeout_ms,
        "priority": None if schedule.priority is None else names.PRIORITIES_BACK.get(schedule.priority),
        "concurrency": schedule.max_concurrency or 1,
        "allow_overlap": schedule.max_concurrency is None,
        "tags": None if schedule.tags is None else list(schedule.tags),
        "metadata": None if schedule.metadata is None else jsonb.decode(schedule.metadata),
        "platform_id": platform_of(schedule.tenant_id),
        "created_by": schedule.created_by,
        "created_at": naive(schedule.created_at),
        "updated_at": naive(schedule.updated_at),
        "completed_at": naive(schedule.completed_at),
        "cancelled_at": naive(schedule.cancelled_at),
    }


def _firing(trigger: Trigger | None) -> Row:
    """Return the columns that the trigger carries."""
    if trigger is None:
        return {}
    spec: dict[str, Any] = {} if trigger.source_spec is None else jsonb.decode(trigger.source_spec)
    return {
        "type": spec.get("type", trigger.kind),
        "schedule": spec.get("schedule") if trigger.cron_expression is None else trigger.cron_expression,
        "timezone": trigger.timezone or names.DEFAULT_ZONE,
        "next_run": naive(trigger.next_fire_at),
        "last_run": naive(trigger.last_fire_at),
        "start_date": naive(trigger.start_at),
        "end_date": naive(trigger.end_at),
        "max_executions": trigger.max_fires,
        "executions_count": trigger.fire_count,
    }


COLLECTION: Final = collection_of(
    names.JOBS,
    ScheduledJob,
    (Schedule, Trigger),
    decode,
    encode,
    tenant_sql=PLATFORM,
    measures=(
        counted("status", respelled("status", names.JOB_STATUSES)),
        counted("handler_type", "this.handler_type::text"),
        summed("priority", respelled("priority", {word: str(value) for word, value in names.PRIORITIES.items()})),
        summed("max_retries", "this.max_retries"),
        summed("retry_delay_ms", "this.retry_delay_ms"),
        summed("timeout_ms", "this.timeout_ms"),
        spanned("created_at", "this.created_at AT TIME ZONE 'UTC'"),
        spanned("updated_at", "this.updated_at AT TIME ZONE 'UTC'"),
    ),
)
