"""``jobs``: a schedule and its trigger, which is an interval, a cron line, or one fire.

The source's migration turned cron lines into intervals and got most of them wrong. A job that still has its line
beside exactly what the migration made of it is given its line back, unless both fire at the same distance. Any other
interval was set by somebody, and wins over the line, as in the source.
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
from migrator.sources.profile import Context, Decoded, Note, Rejected, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    counted,
    find,
    key_text,
    next_fire_of,
    read_row,
    respelled,
    spanned,
    summed,
    tenant_of,
    the,
    utc,
    uuid_of_key,
)
from migrator.sources.shapes import choice, indexed
from migrator.values import jsonb

_SPEC: Final = ("schedule_time", "interval_minutes", "interval_type")
_HOUR, _DAY = 60, 1440  # minutes


def trigger_of(job: Job, origin: Origin, status: str, context: Context, notes: list[Note]) -> Trigger | None:
    """Return the trigger, or None for a cron line that the source could not have evaluated.

    Raises ``Rejected`` for an interval without a unit and for a cron line whose zone nobody states.
    """
    cause = _trigger_columns(job, status, context, notes)
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


def _trigger_columns(job: Job, status: str, context: Context, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of the trigger's kind."""
    line = job.schedule_time if job.schedule_time and job.schedule_time.strip() else None
    enabled = job.schedule_enabled is True
    stated = utc(job.next_run_at, "next_run_at")
    if job.interval_minutes is not None and not _spoiled(job, line, context, notes):
        cause: dict[str, Any] | None = _interval_columns(job, line, notes)
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
    return {**cause, "enabled": enabled, "next_fire_at": due}


def _interval_columns(job: Job, line: str | None, notes: list[Note]) -> dict[str, Any]:
    if line is None and _looks_doubled(job):
        notes.append(Note("interval-maybe-counted-twice", "interval_minutes"))
    return {"kind": "interval", "interval_ms": _milliseconds(job), "anchor": "completion"}


def _milliseconds(job: Job) -> int:
    """Return the interval as the source's database counts it: so many of the unit."""
    if job.interval_type is None:
        raise Rejected("missing-field", "interval_type", "minutes, hours or days")
    return (job.interval_minutes or 0) * choice(job.interval_type, names.UNITS, "interval_type")


def _cron(line: str, context: Context, notes: list[Note]) -> dict[str, Any] | None:
    try:
        zone = parse(names.CRON_DIALECT, line).zone
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule_time"))
        return None
    if zone is None:
        if context.zone is None:
            raise Rejected("no-zone", "schedule_time", "the setting zone, since the line was evaluated in local time")
        zone = context.zone
    return {"kind": "cron", "cron_expression": line, "cron_dialect": names.CRON_DIALECT, "timezone": zone}


def _spoiled(job: Job, line: str | None, context: Context, notes: list[Note]) -> bool:
    """Tell whether the interval is what the source's migration made of the line, and wrong."""
    milliseconds = _milliseconds(job)
    if line is None or (job.interval_minutes, job.interval_type) != names.converted(line):
        return False
    try:
        gap = _gap(line, context.zone)
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


_PAYLOAD: Final = ("source_id", "source_name", "url")
_MINUTE: Final = names.UNITS["minutes"]


def decode(row: Row, context: Context) -> Decoded:
    """Return the schedule and, where one can be formed, its trigger."""
    job = read_row(row, Job)
    notes: list[Note] = []
    status = choice(job.status, names.STATUSES, "status")
    if bool(job.is_paused) != (status == "paused") and "is_paused" in row:
        notes.append(Note("paused-contradiction", "is_paused"))
    if job.lock_token is not None:
        # The source keeps no end of a lock. Claims are leases of runs here, so the token stays in the remainder.
        notes.append(Note("lock-held", "lock_token"))
    origin = Origin(names.NAME, names.JOBS, tenant_of(context), key_text(row))
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
    """Return the row as far as the records carry it: lock and error message are remainder."""
    schedule = the(rows, Schedule)
    payload: dict[str, Any] = {} if schedule.payload is None else jsonb.decode(schedule.payload)
    delay = schedule.retry_delay_ms
    return {
        "id": uuid_of_key(schedule),
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


COLLECTION: Final = collection_of(
    names.JOBS,
    Job,
    (Schedule, Trigger),
    decode,
    encode,
    measures=(
        counted("status", respelled("status", names.STATUSES)),
        spanned("created_at", "this.created_at"),
        spanned("updated_at", "this.updated_at"),
        spanned("completed_at", "this.completed_at"),
        # the base table has not got these columns yet
        summed("max_retries", "(to_jsonb(this) ->> 'max_retries')::numeric"),
        summed("retry_delay_ms", "(to_jsonb(this) ->> 'retry_backoff_seconds')::numeric * 1000"),
        summed("retry_count", "(to_jsonb(this) ->> 'current_retry_count')::numeric"),
    ),
)
