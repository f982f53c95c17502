"""``jobs``: a schedule and its trigger."""

from typing import Any, Final
from uuid import UUID

from migrator.records import Schedule, Trigger
from migrator.sources.crawler import names
from migrator.sources.crawler.firing import trigger_of
from migrator.sources.crawler.shapes import Job
from migrator.sources.profile import Decoded, Note, Rows
from migrator.sources.rows import Origin, Row, RowContext, find, read_row, tenant_of, the, utc
from migrator.sources.shapes import choice, indexed
from migrator.values import jsonb

_PAYLOAD: Final = ("source_id", "source_name", "url")
_MINUTE: Final = names.UNITS["minutes"]


def decode(row: Row, context: RowContext) -> Decoded:
    """Return the schedule and, where one can be formed, its trigger."""
    job = read_row(row, Job)
    notes: list[Note] = []
    status = choice(job.status, names.STATUSES, "status")
    if bool(job.is_paused) != (status == "paused") and "is_paused" in row:
        notes.append(Note("paused-contradiction", "is_paused"))
    if job.lock_token is not None:
        # The source keeps no end of a lock. Claims are leases of runs here, so the token stays in the residue.
        notes.append(Note("lock-held", "lock_token"))
    origin = Origin(names.NAME, names.JOBS, tenant_of(context), str(job.id))
    trigger = trigger_of(job, origin, status, context, notes)
    payload = {name: value for name in _PAYLOAD if (value := getattr(job, name)) is not None}
    backoff = job.retry_backoff_seconds
    schedule = Schedule(
        **origin.columns(Schedule),
        name=indexed(job.source_name or job.source_id, "source_name" if job.source_name else "source_id"),
        status=status,
        handler_name=names.HANDLER,
        handler_type="function",
        payload=jsonb.encode(payload),
        max_retries=job.max_retries,
        retry_delay_ms=None if backoff is None else backoff * names.MILLISECONDS,
        retry_strategy=None if backoff is None else "exponential",
        retry_cap_ms=None if backoff is None else names.RETRY_CAP_MS,
        retry_count=job.current_retry_count,
        max_concurrency=1,
        metadata=None if job.metadata is None else jsonb.encode(job.metadata),
        created_at=utc(job.created_at, "created_at"),
        updated_at=utc(job.updated_at, "updated_at"),
        paused_at=utc(job.paused_at, "paused_at"),
        cancelled_at=utc(job.cancelled_at, "cancelled_at"),
        completed_at=utc(job.completed_at, "completed_at"),
    )
    return Decoded((schedule,) if trigger is None else (schedule, trigger), tuple(notes))


def encode(rows: Rows) -> Row:
    """Return the row as far as the records carry it: lock and error message are residue."""
    schedule = the(rows, Schedule)
    payload: dict[str, Any] = {} if schedule.payload is None else jsonb.decode(schedule.payload)
    delay = schedule.retry_delay_ms
    return {
        "id": UUID(str(schedule.source_id)),
        **{name: payload.get(name) for name in _PAYLOAD},
        "status": schedule.status,
        **_firing(find(rows, Trigger), schedule),
        "created_at": schedule.created_at,
        "updated_at": schedule.updated_at,
        "completed_at": schedule.completed_at,
        "is_paused": schedule.status == "paused",
        "max_retries": schedule.max_retries,
        "retry_backoff_seconds": None if delay is None else delay // names.MILLISECONDS,
        "current_retry_count": schedule.retry_count,
        "paused_at": schedule.paused_at,
        "cancelled_at": schedule.cancelled_at,
        "metadata": None if schedule.metadata is None else jsonb.decode(schedule.metadata),
    }


def _firing(trigger: Trigger | None, schedule: Schedule) -> Row:
    """Return the columns that the trigger carries."""
    if trigger is None:
        return {}
    spec: dict[str, Any] = {} if trigger.source_spec is None else jsonb.decode(trigger.source_spec)
    once = trigger.kind == "one_time"
    immediate = once and trigger.next_fire_at == schedule.created_at
    minutes, unit = _interval(trigger, spec)
    return {
        "schedule_time": spec.get("schedule_time") if trigger.cron_expression is None else trigger.cron_expression,
        "schedule_enabled": False if once else trigger.enabled,
        "interval_minutes": minutes,
        "interval_type": unit,
        "next_run_at": None if immediate else trigger.next_fire_at,
        "started_at": trigger.last_fire_at,
    }


def _interval(trigger: Trigger, spec: dict[str, Any]) -> tuple[int | None, str | None]:
    """Return the interval as the source spelled it, or in minutes where it was changed since."""
    minutes: int | None = spec.get("interval_minutes")
    unit: str | None = spec.get("interval_type")
    if trigger.kind != "interval" or trigger.anchor == "fixed_rate" or trigger.interval_ms is None:
        return minutes, unit
    if minutes is not None and unit is not None and minutes * names.UNITS[unit] == trigger.interval_ms:
        return minutes, unit
    return max(1, trigger.interval_ms // _MINUTE), "minutes"
