"""``scheduled_jobs``: a schedule and its trigger, whose kind is the type of the job.

``schedule_config`` of a job is an interval in hours, minutes and seconds, or APScheduler's cron keywords. The source's
own loader fails on an interval with a key left out, and never schedules the job without saying so; zero becomes every
second there. Here a key that is left out is nothing, and nothing at all is refused.
"""

import json
from typing import Any, Final
from uuid import UUID

from migrator import cron
from migrator.records import Schedule, Trigger
from migrator.sources.profile import Context, Decoded, Note, Rejected, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    counted,
    find,
    inherits,
    key_text,
    naive,
    next_fire_of,
    read_row,
    spanned,
    summed,
    tenant_of,
    text_id,
    the,
    utc,
    uuid_of_key,
)
from migrator.sources.shapes import choice, indexed, unknown_value
from migrator.sources.support_center import names
from migrator.sources.support_center.shapes import ScheduledJob
from migrator.values import jsonb

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


def cron_of(config: dict[str, Any], path: str, zone: str | None, notes: list[Note]) -> dict[str, Any] | None:
    """Return the columns of a cron trigger, or None where APScheduler refuses the keywords.

    The keywords stay as they are: in the dialect ``apscheduler`` 0 is Monday, and both day fields must match. Raises
    ``Rejected`` for a keyword that the source does not pass on, none at all, and where nobody states the zone.
    """
    given = {key: value for key, value in config.items() if value is not None}
    if not given:
        raise Rejected("missing-field", path, "at least one keyword")
    for key, value in given.items():
        if key not in _CRON:
            raise unknown_value(path, _CRON)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise Rejected("wrong-type", f"{path}.{key}", "int or str")
    if zone is None:
        raise Rejected("no-zone", path, "the setting zone, since the keywords were evaluated in local time")
    expression = json.dumps(_CRON | given, sort_keys=True)
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


def decode(row: Row, context: Context) -> Decoded:
    """Return the schedule and, where one can be formed, its trigger. Its task function gives handler and queue."""
    job = read_row(row, ScheduledJob)
    handler = inherits(row, "handler", "task_function_id", names.TASK_FUNCTIONS)
    origin = Origin(names.NAME, names.JOBS, tenant_of(context), key_text(row))
    notes: list[Note] = []
    trigger = _trigger(job, origin, job_type(row), context, notes)
    schedule = Schedule(
        **origin.columns(Schedule),
        name=indexed(job.name, "name"),
        description=job.description,
        enabled=job.is_enabled,
        status=status_of(job),
        handler_name=handler["name"],
        handler_type=choice(str(handler["handler_type"]), names.HANDLER_TYPES, "task_function_id"),
        queue=handler["queue"],
        payload=None if job.task_args is None else jsonb.encode(job.task_args),
        max_retries=job.retry_count,
        retry_delay_ms=job.retry_delay_seconds * names.MILLISECONDS,
        retry_strategy="fixed",
        timeout_ms=job.timeout_seconds * names.MILLISECONDS,
        max_concurrency=job.max_instances,
        created_at=utc(job.created_at, "created_at"),
        created_by=text_id(job.created_by),
        updated_at=utc(job.updated_at, "updated_at"),
        updated_by=text_id(job.updated_by),
    )
    return Decoded((schedule,) if trigger is None else (schedule, trigger), tuple(notes))


def status_of(job: ScheduledJob) -> str:
    """Return the status of the schedule: paused, else by its last execution, else scheduled."""
    last = "success" if job.last_status is None else job.last_status
    status = choice(last, names.LAST_STATUSES, "last_status")
    return "paused" if job.is_paused else status


def job_type(row: Row) -> str:
    """Return interval or cron, which a row inherits from its type."""
    name = inherits(row, "job_type", "job_type_id", names.JOB_TYPES)
    if name not in (names.INTERVAL, names.CRON):
        raise unknown_value("job_type_id", (names.INTERVAL, names.CRON))
    return str(name)


def _trigger(job: ScheduledJob, origin: Origin, kind: str, context: Context, notes: list[Note]) -> Trigger | None:
    if kind == names.INTERVAL:
        cause: dict[str, Any] | None = interval_of(job.schedule_config, "schedule_config", notes)
    else:
        cause = cron_of(job.schedule_config, "schedule_config", context.zone, notes)
    if cause is None:
        return None
    return Trigger(
        **origin.columns(Trigger),
        schedule_id=origin.key(Schedule),
        misfire_grace_ms=names.MISFIRE_GRACE_MS,
        enabled=job.is_enabled,
        next_fire_at=next_fire_of(
            cause,
            utc(job.next_run_time, "next_run_time"),
            fires=job.is_enabled,
            as_of=context.as_of,
            column="next_run_time",
            notes=notes,
        ),
        last_fire_at=utc(job.last_run_time, "last_run_time"),
        source_spec=jsonb.encode(job.schedule_config),
        **cause,
    )


def encode(rows: Rows) -> Row:
    """Return the row as far as the records carry it; keys of function and type, and ``last_status``, are remainder."""
    schedule = the(rows, Schedule)
    return {
        "id": uuid_of_key(schedule),
        "name": schedule.name,
        "description": schedule.description,
        **_firing(find(rows, Trigger)),
        "task_args": None if schedule.payload is None else jsonb.decode(schedule.payload),
        "max_instances": schedule.max_concurrency,
        "timeout_seconds": _seconds(schedule.timeout_ms),
        "retry_count": schedule.max_retries,
        "retry_delay_seconds": _seconds(schedule.retry_delay_ms),
        "is_enabled": schedule.enabled,
        "is_paused": schedule.status == "paused",
        **({"last_status": "running"} if schedule.status == "running" else {}),
        "created_by": None if schedule.created_by is None else UUID(schedule.created_by),
        "updated_by": None if schedule.updated_by is None else UUID(schedule.updated_by),
        "created_at": naive(schedule.created_at),
        "updated_at": naive(schedule.updated_at),
    }


def _firing(trigger: Trigger | None) -> Row:
    """Return the columns that the trigger carries."""
    if trigger is None:
        return {}
    return {
        "schedule_config": None if trigger.source_spec is None else jsonb.decode(trigger.source_spec),
        "next_run_time": naive(trigger.next_fire_at),
        "last_run_time": naive(trigger.last_fire_at),
    }


def _seconds(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds // names.MILLISECONDS


_TYPE: Final = "(SELECT kind.name FROM {scheduler_job_types} AS kind WHERE kind.id = this.job_type_id)"
_HANDLER: Final = (
    "(SELECT jsonb_build_object('name', f.name, 'handler_type', f.handler_type, 'queue', f.queue)"
    " FROM {task_functions} AS f WHERE f.id = this.task_function_id)"
)
_STATUS: Final = (
    "CASE WHEN this.is_paused THEN 'paused' WHEN this.last_status = 'running' THEN 'running' ELSE 'scheduled' END"
)

COLLECTION: Final = collection_of(
    names.JOBS,
    ScheduledJob,
    (Schedule, Trigger),
    decode,
    encode,
    after=(names.TASK_FUNCTIONS,),
    inherited={"handler": _HANDLER, "job_type": _TYPE},
    measures=(
        counted("status", _STATUS),
        counted("enabled", "this.is_enabled"),
        summed("max_retries", "this.retry_count"),
        summed("timeout_ms", "this.timeout_seconds * 1000"),
        summed("max_concurrency", "this.max_instances"),
        spanned("created_at", "this.created_at AT TIME ZONE 'UTC'"),
        spanned("updated_at", "this.updated_at AT TIME ZONE 'UTC'"),
    ),
)
