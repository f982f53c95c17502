"""A job document from its rows: what they hold, written the way the library that made it writes."""

from typing import Any, Final

from migrator.records import Run, Schedule, Trigger
from migrator.sources.agenda import names, variants
from migrator.sources.agenda.moments import LOCK_LIFETIME
from migrator.sources.profile import Document, Rows
from migrator.values import identity, jsonb
from migrator.values.times import parse_iso, to_bson

_DATES: Final = ("debounceStartedAt", "failedAt", "lastRunAt", "lastFinishedAt")
"""Facts that are text in jsonb and dates in the document."""
_PLAIN: Final = ("type", "fork", "runCount", "finishedCount", "failCount", "failReason", "progress")
_SPEC: Final = ("repeatInterval", "repeatAt", "skipDays")


def encode(rows: Rows) -> Document:
    """Return the job document as far as the rows carry it."""
    schedule = next(row for row in rows if isinstance(row, Schedule))
    trigger = next((row for row in rows if isinstance(row, Trigger)), None)
    run = next((row for row in rows if isinstance(row, Run)), None)
    facts: dict[str, Any] = {} if schedule.metadata is None else jsonb.decode(schedule.metadata)
    fields = _definition(schedule)
    fields.update(_remembered(facts))
    if trigger is not None:
        fields.update(_firing(trigger))
    if run is not None:
        fields.update(_running(run, facts))
    fields = {name: value for name, value in fields.items() if value is not None}
    variant = variants.BY_NAME[schedule.schema_version or variants.HOKIFY]
    _complete(fields, variant, facts, repeats=trigger is not None and _repeats(trigger))
    _add_nullable(fields, schedule, run, facts)
    order = variants.order(variant.name, _form(facts), _set_first(fields, variant), never_run="skipImmediate" in facts)
    document: Document = {"_id": identity.parse_source_id(str(schedule.source_id))}
    document.update((name, fields[name]) for name in order if name in fields)
    return document


def _definition(schedule: Schedule) -> Document:
    """Return what the schedule's own columns carry."""
    return {
        "name": schedule.handler_name,
        "priority": None if schedule.priority is None else (schedule.priority - 50) // 2,
        "lastModifiedBy": schedule.updated_by,
        "disabled": None if schedule.enabled else True,
        "attempts": schedule.max_retries,
        "backoff": None
        if schedule.retry_strategy is None
        else {"type": schedule.retry_strategy, "delay": schedule.retry_delay_ms},
    }


def _remembered(facts: dict[str, Any]) -> Document:
    """Return what the schedule's metadata carries."""
    fields: Document = {name: facts[name] for name in _PLAIN if name in facts}
    fields.update((name, to_bson(parse_iso(facts[name]))) for name in _DATES if name in facts)
    return fields


def _firing(trigger: Trigger) -> Document:
    """Return what the trigger carries."""
    spec = {} if trigger.source_spec is None else jsonb.decode(trigger.source_spec)
    due = trigger.run_at if trigger.kind == "one_time" else trigger.next_fire_at
    return {
        **{name: spec.get(name) for name in _SPEC},
        "nextRunAt": None if due is None else to_bson(due),
        "repeatTimezone": trigger.timezone,
        "startDate": None if trigger.start_at is None else to_bson(trigger.start_at),
        "endDate": None if trigger.end_at is None else to_bson(trigger.end_at),
    }


def _running(run: Run, facts: dict[str, Any]) -> Document:
    """Return what the run carries; an instance that has only taken the lock has not begun it."""
    fields: Document = {}
    claimed = run.metadata is not None and "claimed" in jsonb.decode(run.metadata)
    if run.started_at is not None and not claimed:
        fields["lastRunAt"] = to_bson(run.started_at)
    if run.lease_expires_at is not None:
        fields["lockedAt"] = to_bson(run.lease_expires_at - LOCK_LIFETIME)
    if run.finished_at is not None:
        fields["lastFinishedAt"] = to_bson(run.finished_at)
        if run.state == "error":
            fields["failReason"] = run.error
            if "failedAt" not in facts:
                fields["failedAt"] = fields["lastFinishedAt"]
    if run.stats is not None:
        fields["progress"] = jsonb.decode(run.stats).get("progress")
    return fields


def _complete(fields: Document, variant: variants.Variant, facts: dict[str, Any], *, repeats: bool) -> None:
    """Add the fields that the library writes even where there is nothing to say."""
    if variant.saves_result:
        fields["shouldSaveResult"] = facts.get("shouldSaveResult", False)
    for name in variant.always:
        fields.setdefault(name, None)
    if repeats:
        for name in variant.repeating:
            fields.setdefault(name, None)
    if "lastRunAt" in fields and fields["lastRunAt"] is not None:
        for name in variant.started:
            fields.setdefault(name, None)
    if "skipImmediate" in facts:
        fields.setdefault("lastRunAt", None)


def _add_nullable(fields: Document, schedule: Schedule, run: Run | None, facts: dict[str, Any]) -> None:
    """Add what may hold anything, null included: what the program gave and what it returned."""
    if schedule.payload is not None:
        fields["data"] = jsonb.decode(schedule.payload)
    if run is not None and run.result is not None:
        fields["result"] = jsonb.decode(run.result)
    elif "result" in facts:
        fields["result"] = facts["result"]


def _repeats(trigger: Trigger) -> bool:
    return trigger.kind != "one_time" and trigger.cron_dialect != names.AT_DIALECT


def _form(facts: dict[str, Any]) -> variants.Form:
    if facts.get("type") == "single":
        return "single"
    return "unique" if "unique" in facts else "created"


def _set_first(fields: Document, variant: variants.Variant) -> tuple[str, ...]:
    """Return what a program sets on a job before it saves it, where that decides the order."""
    if not variant.completes:
        return ()
    repeat = ("repeatInterval", "repeatTimezone") if fields.get("repeatInterval") is not None else ()
    single = tuple(name for name in ("repeatAt", "disabled") if fields.get(name) is not None)
    return (*repeat, *single)
