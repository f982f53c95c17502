"""``ScheduledJob``: a schedule and its trigger."""

from typing import Any, Final

from migrator import cron
from migrator.records import Trigger
from migrator.sources import table_columns
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.orchestrator import names, platforms
from migrator.sources.profile import Context, Document, Note, Rows
from migrator.sources.shapes import Int32, choice
from migrator.sources.table_columns import (
    Count,
    Positive,
    column,
    counted,
    given,
    json,
    number,
    respelled,
    row_of,
    spanned,
    summed,
    text,
    utc,
    words,
)
from migrator.values import jsonb


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Fill the trigger. A job without a time or an event that starts it gets no trigger, and a finding says why."""
    if not document.get("allow_overlap", False):
        reading.fill("schedules", max_concurrency=int(document.get("concurrency", 1)))
    zone = document.get("timezone", names.DEFAULT_ZONE)
    kind, line = choice(document["type"], names.JOB_TYPES, "type"), document.get("schedule")
    if not _is_caused(kind, line, zone, reading):
        return
    trigger, metadata = reading.columns["triggers"], document.get("metadata")
    # The source stores it in the metadata, and reads it nowhere.
    trigger["skip_if_overdue"] = isinstance(metadata, dict) and metadata.get("skip_if_overdue") is True
    trigger["source_spec"] = jsonb.encode({"type": document["type"], "schedule": line, "timezone": zone})
    start, end = trigger.get("start_at"), trigger.get("end_at")
    if start is not None and end is not None and end <= start:
        # A job whose window is empty never runs; without its dates the trigger would.
        reading.notes.append(Note("empty-window", "end_date"))
        trigger |= {"start_at": None, "end_at": None, "enabled": False}
    most = trigger.get("max_fires")
    if most is not None and trigger.get("fire_count", 0) > most:
        reading.notes.append(Note("more-fires-than-allowed", "executions_count"))


def _is_caused(kind: str, line: str | None, zone_name: str, reading: Reading) -> bool:
    """Fill the columns of the trigger's kind; return False where there is nothing that makes it fire."""
    trigger, notes = reading.columns["triggers"], reading.notes
    if kind == "event":
        # The source's port has this type of job, its code never makes one, and no column holds the event's name.
        notes.append(Note("event-without-name", "type"))
        return False
    if kind == "one_time":
        trigger["run_at"] = trigger.get("next_fire_at") or trigger.get("last_fire_at")
        if trigger["run_at"] is None:
            del trigger["run_at"]
            notes.append(Note("no-run-time", "next_run"))
        return "run_at" in trigger
    try:
        zone, is_mapped = cron.zone(zone_name)
    except cron.ZoneError:
        notes.append(Note("unknown-zone", "timezone"))
        return False
    if is_mapped:
        notes.append(Note("mapped-zone", "timezone"))
    try:
        cron.validate(names.CRON_DIALECT, line or "", zone.key)
    except cron.CronError:
        notes.append(Note("unevaluable-cron", "schedule"))
        return False
    trigger |= {"cron_expression": line, "cron_dialect": names.CRON_DIALECT, "timezone": zone.key}
    return True


def _written(name: str) -> Any:  # noqa: ANN401 - a function of rows
    """Return the function that writes a member of the trigger's specification, unless a column of it says otherwise."""

    def write(rows: Rows) -> Any:  # noqa: ANN401 - a text, or null
        trigger = row_of(rows, Trigger)
        if trigger is None:
            return None
        spec: dict[str, Any] = {} if trigger.source_spec is None else jsonb.decode(trigger.source_spec)
        held = {
            "type": spec.get("type", trigger.kind),
            "schedule": spec.get("schedule") if trigger.cron_expression is None else trigger.cron_expression,
            "timezone": trigger.timezone or names.DEFAULT_ZONE,
        }[name]
        return NULL if held is None else held

    return write


def _concurrency(rows: Rows) -> int:
    schedule: Any = rows[0]
    return schedule.max_concurrency or 1


def _allows_overlap(rows: Rows) -> bool:
    schedule: Any = rows[0]
    return schedule.max_concurrency is None


JOBS: Final = Mapped(
    name=names.JOBS,
    tables=("schedules", "triggers"),
    fields=(
        text("name", "schedules.name", required=True),
        text("description", "schedules.description"),
        words("status", "schedules.status", names.JOB_STATUSES, names.JOB_STATUSES_BACK),
        text("type", required=True, write=_written("type")),
        text("schedule", write=_written("schedule")),
        text("timezone", write=_written("timezone"), **given(str, default=names.DEFAULT_ZONE)),
        utc("next_run", "triggers.next_fire_at"),
        utc("last_run", "triggers.last_fire_at"),
        utc("start_date", "triggers.start_at"),
        utc("end_date", "triggers.end_at"),
        number("max_executions", "triggers.max_fires", shape=Positive),
        number("executions_count", "triggers.fire_count", **given(Count, default=0)),
        text("handler_name", "schedules.handler_name", required=True),
        words("handler_type", "schedules.handler_type", names.JOB_HANDLER_TYPES, default="function"),
        json("payload", "schedules.payload"),
        number("max_retries", "schedules.max_retries", **given(Count, default=3)),
        number("retry_delay_ms", "schedules.retry_delay_ms", **given(Count, default=60_000)),
        number("timeout_ms", "schedules.timeout_ms", **given(Positive, default=300_000)),
        words("priority", "schedules.priority", names.PRIORITIES, default=names.PRIORITIES["medium"]),
        number("concurrency", write=_concurrency, **given(Positive, default=1)),
        column("allow_overlap", converter="flag", write=_allows_overlap, **given(bool, default=False)),
        column("tags", "schedules.tags", converter="texts"),
        json("metadata", "schedules.metadata"),
        platforms.FIELD,
        text("created_by", "schedules.created_by", required=True),
        utc("created_at", "schedules.created_at", required=True),
        utc("updated_at", "schedules.updated_at", required=True),
        utc("completed_at", "schedules.completed_at"),
        utc("cancelled_at", "schedules.cancelled_at"),
        # Counts without a column are remainder.
        number("success_count", **given(Count, default=0)),
        number("failure_count", **given(Count, default=0)),
        number("avg_duration_ms", shape=Int32),
    ),
    constants={"schedules.retry_strategy": "exponential", "schedules.retry_cap_ms": names.RETRY_CAP_MS},
    admit=table_columns.key(table_columns.Key),
    derive=_derive,
    tenant=platforms.tenant_of,
    tenant_sql=platforms.TENANT_SQL,
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
