"""``scheduled_jobs``: a schedule and its trigger, whose kind is the type of the job.

``schedule_config`` of a job is an interval in hours, minutes and seconds, or APScheduler's cron keywords. The source's
own loader fails on an interval with a key left out, and never schedules the job without saying so; zero becomes every
second there. Here a key that is left out is nothing, and nothing at all is refused.
"""

import json
from typing import Annotated, Any, Final

import msgspec

from migrator import cron
from migrator.records import Schedule
from migrator.sources import table_columns
from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.profile import Context, Document, Note, Rejected, Rows
from migrator.sources.shapes import Int32, choice, unknown_value
from migrator.sources.support_center import names
from migrator.sources.table_columns import counted, flag, inherits, number, seconds, spanned, summed, text, utc, uuid
from migrator.values import table_row

_SECONDS: Final = {"hours": 3600, "minutes": 60, "seconds": 1}
_CRON: Final = {"second": "0", "minute": "*", "hour": "*", "day": "*", "day_of_week": "*", "month": "*"}
"""Keywords that the source passes on, and what stands for one that is left out."""
_LONGEST_SECONDS: Final = 10**12

_INSTANCES: Final = Annotated[int, msgspec.Meta(ge=1, le=10)]
_TIMEOUT: Final = Annotated[int, msgspec.Meta(ge=30, le=3600)]
_RETRIES: Final = Annotated[int, msgspec.Meta(ge=0, le=10)]
_DELAY: Final = Annotated[int, msgspec.Meta(ge=0, le=3600)]
"""The limits of the source's model; its tables have no CHECK."""


def interval_of(config: dict[str, Any], path: str, notes: list[Note]) -> dict[str, Any]:
    """Return the columns of an interval trigger; raises ``Rejected`` for one that is not positive."""
    total = 0
    for key, factor in _SECONDS.items():
        value = config.get(key)
        if value is None:
            notes.append(Note("short-schedule-config", f"{path}.{key}"))
        elif not isinstance(value, int) or isinstance(value, bool):
            raise Rejected("wrong-type", f"{path}.{key}", "int")
        elif not 0 <= value <= _LONGEST_SECONDS:
            raise Rejected("out-of-range", f"{path}.{key}", f"int from 0 to {_LONGEST_SECONDS}")
        else:
            total += value * factor
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


def job_type(document: Document) -> str:
    """Return interval or cron, which a row inherits from its type."""
    name = inherits(document, "job_type", "job_type_id", names.JOB_TYPES)
    if name not in (names.INTERVAL, names.CRON):
        raise unknown_value("job_type_id", (names.INTERVAL, names.CRON))
    return str(name)


def _derive(document: Document, reading: Reading, context: Context) -> None:
    """Take handler and queue from the task function, the status from the last execution; form the trigger."""
    handler = inherits(document, "handler", "task_function_id", names.TASK_FUNCTIONS)
    last = document.get("last_status")
    status = choice("success" if last is None else last, names.LAST_STATUSES, "last_status")
    reading.fill(
        "schedules",
        status="paused" if document["is_paused"] else status,
        handler_name=handler["name"],
        handler_type=choice(str(handler["handler_type"]), names.HANDLER_TYPES, "task_function_id"),
        queue=handler["queue"],
    )
    config = table_row.from_bson(document["schedule_config"])
    if job_type(document) == names.INTERVAL:
        cause: dict[str, Any] | None = interval_of(config, "schedule_config", reading.notes)
    else:
        cause = cron_of(config, "schedule_config", context.zone, reading.notes)
    if cause is not None:
        reading.fill("triggers", **cause)
        table_columns.state_next_fire(reading, "next_run_time", fires=document["is_enabled"])


def _is_paused(rows: Rows) -> bool:
    [schedule, *_] = rows
    return isinstance(schedule, Schedule) and schedule.status == "paused"


def _last_status(rows: Rows) -> str | None:
    [schedule, *_] = rows
    return "running" if isinstance(schedule, Schedule) and schedule.status == "running" else None


_TYPE: Final = "(SELECT kind.name FROM {scheduler_job_types} AS kind WHERE kind.id = this.job_type_id)"
_HANDLER: Final = (
    "(SELECT jsonb_build_object('name', f.name, 'handler_type', f.handler_type, 'queue', f.queue)"
    " FROM {task_functions} AS f WHERE f.id = this.task_function_id)"
)
_STATUS: Final = (
    "CASE WHEN this.is_paused THEN 'paused' WHEN this.last_status = 'running' THEN 'running' ELSE 'scheduled' END"
)

JOBS: Final = Mapped(
    name=names.JOBS,
    tables=("schedules", "triggers"),
    fields=(
        text("name", "schedules.name", required=True),
        text("description", "schedules.description"),
        table_columns.json("schedule_config", "triggers.source_spec", shape=table_columns.JsonObject, required=True),
        utc("next_run_time", "triggers.next_fire_at"),
        utc("last_run_time", "triggers.last_fire_at"),
        table_columns.json("task_args", "schedules.payload"),
        number("max_instances", "schedules.max_concurrency", shape=_INSTANCES, required=True),
        seconds("timeout_seconds", "schedules.timeout_ms", _TIMEOUT, required=True),
        number("retry_count", "schedules.max_retries", shape=_RETRIES, required=True),
        seconds("retry_delay_seconds", "schedules.retry_delay_ms", _DELAY, required=True),
        flag("is_enabled", "schedules.enabled", "triggers.enabled"),
        flag("is_paused", write=_is_paused),
        text("last_status", write=_last_status),
        uuid("created_by", "schedules.created_by"),
        uuid("updated_by", "schedules.updated_by"),
        utc("created_at", "schedules.created_at", required=True),
        utc("updated_at", "schedules.updated_at", required=True),
        # The keys of function and type are remainder.
        number("task_function_id", shape=Int32, required=True),
        number("job_type_id", shape=Int32, required=True),
    ),
    constants={"schedules.retry_strategy": "fixed", "triggers.misfire_grace_ms": names.MISFIRE_GRACE_MS},
    admit=table_columns.key(table_columns.Uuid),
    derive=_derive,
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
