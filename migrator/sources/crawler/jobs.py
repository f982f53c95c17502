"""``jobs``: a schedule and its trigger, which is an interval, a cron line, or one fire.

The source's migration turned cron lines into intervals and got most of them wrong. A job that still has its line
beside exactly what the migration made of it is given its line back, unless both fire at the same distance. Any other
interval was set by somebody, and wins over the line, as in the source.
"""

from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from migrator import cron
from migrator.constraints import most_of
from migrator.cron.dialects import parse
from migrator.cron.interval import constant_interval
from migrator.records import Schedule, Trigger
from migrator.sources import table_columns as columns
from migrator.sources.crawler import names
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.language import Case, Mapped, Reading
from migrator.sources.profile import Context, Document, Note, Rejected, Rows
from migrator.sources.shapes import choice, indexed
from migrator.sources.table_columns import Uuid, column, counted, json, number, respelled, row_of, spanned, summed, text
from migrator.sources.table_columns import time as time_of
from migrator.values import jsonb

_HOUR, _DAY = 60, 1440  # minutes
_MINUTE: Final = names.UNITS["minutes"]
_RETRIES: Final = Annotated[int, msgspec.Meta(ge=0, le=most_of("schedules.retry_count"))]


def _derive(document: Document, reading: Reading, context: Context) -> None:
    """Name the schedule, and form its trigger; a cron line that the source could not have evaluated makes none."""
    schedule, notes = reading.columns["schedules"], reading.notes
    name = "source_name" if document.get("source_name") else "source_id"
    schedule["name"] = indexed(document[name], name)
    if "is_paused" in document and bool(document["is_paused"]) != (schedule["status"] == "paused"):
        notes.append(Note("paused-contradiction", "is_paused"))
    if document.get("lock_token") is not None:
        # The source keeps no end of a lock. Claims are leases of runs here, so the token stays in the remainder.
        notes.append(Note("lock-held", "lock_token"))
    _form_trigger(document, reading, context)


def _form_trigger(job: Document, reading: Reading, context: Context) -> None:
    """Raise ``Rejected`` for an interval without a unit and for a cron line whose zone nobody states."""
    schedule, trigger = reading.columns["schedules"], reading.columns["triggers"]
    line = job["schedule_time"] if (job.get("schedule_time") or "").strip() else None
    if job.get("interval_minutes") is not None and not _is_spoiled(job, line, context, reading.notes):
        if line is None and _looks_doubled(job):
            reading.notes.append(Note("interval-maybe-counted-twice", "interval_minutes"))
        trigger |= {"interval_ms": _milliseconds(job), "anchor": "completion"}
    elif line is not None:
        trigger.pop("next_fire_at", None)  # a next run beside a line was reckoned from a wrong interval
        if not _read_line(line, reading, context):
            return
    else:
        made, stated = schedule["created_at"], trigger.get("next_fire_at")
        # A job that is scheduled for once and pending is taken at the source's next poll; a retry has its time.
        due = stated or (made if schedule["status"] == "pending" else None)
        trigger |= {"run_at": stated or made, "next_fire_at": due}
        return
    trigger["enabled"] = job.get("schedule_enabled") is True
    fires = trigger["enabled"] and schedule["status"] != "cancelled"
    columns.state_next_fire(reading, "next_run_at", fires=fires)


def _milliseconds(job: Document) -> int:
    """Return the interval as the source's database counts it: so many of the unit."""
    if job.get("interval_type") is None:
        raise Rejected("missing-field", "interval_type", "minutes, hours or days")
    return (job["interval_minutes"] or 0) * choice(job["interval_type"], names.UNITS, "interval_type")


def _read_line(line: str, reading: Reading, context: Context) -> bool:
    try:
        zone = parse(names.CRON_DIALECT, line).zone or context.zone
    except cron.CronError:
        reading.unusable["triggers"] = Note("unevaluable-cron", "schedule_time")
        return False
    if zone is None:
        raise Rejected("no-zone", "schedule_time", "the setting zone, since the line was evaluated in local time")
    reading.fill("triggers", cron_expression=line, cron_dialect=names.CRON_DIALECT, timezone=zone)
    return True


def _is_spoiled(job: Document, line: str | None, context: Context, notes: list[Note]) -> bool:
    """Whether the interval is what the source's migration made of the line, and wrong."""
    milliseconds = _milliseconds(job)
    if line is None or (job["interval_minutes"], job["interval_type"]) != names.converted(line):
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


def _looks_doubled(job: Document) -> bool:
    """Whether a number of hours or days may be minutes: there is no line to ask, so it fires as in the source."""
    minutes, unit = job["interval_minutes"], job["interval_type"]
    return bool((unit == "hours" and minutes % _HOUR == 0) or (unit == "days" and minutes % _DAY == 0))


def _respell(rows: Rows, document: Document) -> None:
    """Write what the trigger carries: an interval as the source spelled it, in minutes where it was changed since."""
    trigger, schedule = row_of(rows, Trigger), row_of(rows, Schedule)
    if trigger is None or schedule is None:
        for name in ("schedule_time", "schedule_enabled", "interval_minutes", "interval_type"):
            document.pop(name, None)
        return
    spec: dict[str, Any] = {} if trigger.source_spec is None else jsonb.decode(trigger.source_spec)
    minutes, unit = spec.get("interval_minutes"), spec.get("interval_type")
    if trigger.anchor == "completion" and trigger.interval_ms is not None:
        stated = minutes is not None and unit is not None and minutes * names.UNITS[unit]
        if stated != trigger.interval_ms:
            minutes, unit = max(1, trigger.interval_ms // _MINUTE), "minutes"
    once = trigger.kind == "one_time"
    document |= {
        "schedule_time": spec.get("schedule_time") if trigger.cron_expression is None else trigger.cron_expression,
        "schedule_enabled": False if once else trigger.enabled,
        "interval_minutes": minutes,
        "interval_type": unit,
    }
    if once and trigger.next_fire_at == schedule.created_at:
        document["next_run_at"] = None


def _is_paused(rows: Rows) -> bool:
    [schedule, *_] = rows
    return isinstance(schedule, Schedule) and schedule.status == "paused"


def _null(_rows: Rows) -> object:
    """Write null, for ``_respell`` to replace."""
    return NULL


_BACKOFF: Final = "retry_backoff_seconds"

JOBS: Final = Mapped(
    name=names.JOBS,
    tables=("schedules", "triggers"),
    fields=(
        text("source_id", "schedules.payload.source_id", required=True, write_null=True),
        text("source_name", "schedules.payload.source_name"),
        text("url", "schedules.payload.url", required=True, write_null=True),
        columns.words("status", "schedules.status", names.STATUSES),
        text("schedule_time", "triggers.source_spec.schedule_time", write=_null),
        column("schedule_enabled", converter="flag", write=_null),
        number("interval_minutes", "triggers.source_spec.interval_minutes", shape=columns.Positive, write=_null),
        text("interval_type", "triggers.source_spec.interval_type", write=_null),
        time_of("next_run_at", "triggers.next_fire_at"),
        time_of("started_at", "triggers.last_fire_at"),
        time_of("created_at", "schedules.created_at", required=True, write_null=True),
        time_of("updated_at", "schedules.updated_at", required=True, write_null=True),
        time_of("completed_at", "schedules.completed_at"),
        column("is_paused", converter="flag", write=_is_paused),
        number("max_retries", "schedules.max_retries", shape=columns.Count),
        column(_BACKOFF, "schedules.retry_delay_ms", converter="duration", unit="seconds", shape=columns.Count),
        number("current_retry_count", "schedules.retry_count", shape=_RETRIES),
        time_of("paused_at", "schedules.paused_at"),
        time_of("cancelled_at", "schedules.cancelled_at"),
        json("metadata", "schedules.metadata"),
        text("error_message"),
        column("lock_token", converter="uuid", shape=Uuid),
        time_of("lock_acquired_at"),
    ),
    constants={
        "schedules.handler_name": names.HANDLER,
        "schedules.handler_type": "function",
        "schedules.max_concurrency": 1,
    },
    choices={
        "schedules.retry_strategy": (Case(field=_BACKOFF, value="exponential"),),
        "schedules.retry_cap_ms": (Case(field=_BACKOFF, value=names.RETRY_CAP_MS),),
    },
    admit=columns.key(Uuid),
    derive=_derive,
    respell=_respell,
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
