"""Jobs written back: what the scheduler did in PostgreSQL, as the fields of a job state it.

A job holds its last run, the counts of its runs and its next run, and no more. ``adapt`` makes the rows that such a
document stands for out of the rows that are stored; ``jobs.encode`` then writes them in the spelling of the library
that made the document. Rows that nobody changed stay as they are.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from migrator.records import Run, Schedule, Trigger
from migrator.sources.agenda import jobs, variants
from migrator.sources.profile import Rows, RunHistory
from migrator.values import jsonb
from migrator.values.times import format_iso

_COUNTS: Final = ("failCount", "runCount", "finishedCount")
_FACTS: Final = (
    *("type", "unique", "skipImmediate", "shouldSaveResult", "fork", "debounceStartedAt", *_COUNTS),
    *("failReason", "failedAt", "lastRunAt", "lastFinishedAt", "progress", "result"),
)
"""The members of a schedule's metadata that a job has fields for."""
_OF_LAST_RUN: Final = ("lastRunAt", "progress", "result")
_FAILED: Final = ("error", "timeout")
_NORMAL_PRIORITY: Final = 50


def adapt(rows: Rows, before: Rows, history: RunHistory) -> Rows:
    """Return the schedule, the trigger and the run that the document of a job stands for (`Collection.adapt`)."""
    schedule, was = _of(rows, Schedule), _of(before, Schedule)
    assert schedule is not None  # noqa: S101 - the first row
    trigger, was_trigger = _of(rows, Trigger), _of(before, Trigger)
    run, was_run = _of(rows, Run), _of(before, Run)
    facts = _facts(schedule, was)
    if history.begun and run is not None:
        facts = _facts_of_runs(facts, schedule, was_run, run, history)
        run = _last_run(run, facts)
    elif was is not None:
        run = run if was_run is None else was_run
    trigger = _due(_spelled(_heeded(trigger, was_trigger, schedule), was_trigger), schedule, was_trigger, history)
    schedule = _definition(schedule, was, trigger, was_trigger, facts)
    return tuple(row for row in (schedule, trigger, run) if row is not None)


def _of(rows: Rows, record: type[Any]) -> Any:  # noqa: ANN401 - a row of this type
    return next((row for row in rows if type(row) is record), None)


def _facts(schedule: Schedule, was: Schedule | None) -> dict[str, Any]:
    """Return the facts of a job: as the document states them, with the counts of the stored row."""
    stored = _members(schedule)
    facts = {name: value for name, value in (stored if was is None else _members(was)).items() if name in _FACTS}
    for name in _COUNTS:
        if isinstance(stored.get(name), int | float):
            facts[name] = stored[name]
    return facts


def _members(schedule: Schedule) -> dict[str, Any]:
    found = {} if schedule.metadata is None else jsonb.decode(schedule.metadata)
    return found if isinstance(found, dict) else {}


def _facts_of_runs(
    facts: dict[str, Any], schedule: Schedule, was_run: Run | None, run: Run, history: RunHistory
) -> dict[str, Any]:
    """Return the facts of a job after runs in PostgreSQL: counts, and the failure and the end before the last run."""
    facts = {name: value for name, value in facts.items() if name not in _OF_LAST_RUN}
    if was_run is not None and was_run.finished_at is not None and run.state == "running":
        facts["lastFinishedAt"] = format_iso(was_run.finished_at)
    elif run.state in ("completed", *_FAILED):
        facts.pop("lastFinishedAt", None)
    if run.state in _FAILED:
        facts.pop("failReason", None)
        facts.pop("failedAt", None)
    elif isinstance(history.last_failed, Run) and history.last_failed.finished_at is not None:
        facts["failReason"] = history.last_failed.error
        facts["failedAt"] = format_iso(history.last_failed.finished_at)
    counted = {"failCount": history.failed}
    if _variant(schedule) == variants.PULSE:
        counted |= {"runCount": history.begun, "finishedCount": history.finished}
    stored = _members(schedule)
    if _variant(schedule) == variants.AGENDA_6 and history.finished:
        # Agenda 6 writes 0 when a run succeeds, and its retries go by this count.
        del counted["failCount"]
        if stored.get("failCount") or history.failed:
            facts["failCount"] = history.failed_since
    for name, more in counted.items():
        base = stored.get(name)
        total = (base if isinstance(base, int | float) else 0) + more
        if total or name in facts:
            facts[name] = max(total, facts.get(name, 0)) if base is None else total
    return {name: value for name, value in facts.items() if value is not None}


def _variant(schedule: Schedule) -> str:
    """Return which library's document a schedule becomes."""
    named = schedule.schema_version
    return variants.AGENDA_6 if named is None or named not in variants.BY_NAME else named


def _last_run(run: Run, facts: dict[str, Any]) -> Run:
    """Return the last run as far as a job has fields for it: a result only where the job asks for it."""
    ended = run.state in ("completed", *_FAILED)
    progress = None if run.stats is None else jsonb.decode(run.stats)
    kept = isinstance(progress, dict) and isinstance(progress.get("progress"), int | float)
    return msgspec.structs.replace(
        run,
        state="error" if run.state in _FAILED else run.state,
        finished_at=run.finished_at if ended else None,
        lease_expires_at=run.lease_expires_at if run.state == "running" else None,
        stats=jsonb.encode({"progress": progress["progress"]}) if kept and isinstance(progress, dict) else None,
        result=run.result if facts.get("shouldSaveResult") and run.state != "running" else None,
        metadata=None,
    )


def _heeded(trigger: Trigger | None, was: Trigger | None, schedule: Schedule) -> Trigger | None:
    """Return a trigger without an end that the library would not heed: written, it would pass for kept.

    Agenda 4 and 5 and Pulse end what repeats by a cron line alone, hokify nothing.
    """
    if trigger is None or trigger.end_at is None or (was is not None and was.end_at == trigger.end_at):
        return trigger
    variant = _variant(schedule)
    if variant == variants.AGENDA_6 or (variant != variants.HOKIFY and trigger.kind == "cron"):
        return trigger
    return msgspec.structs.replace(trigger, end_at=None)


def _spelled(trigger: Trigger | None, was: Trigger | None) -> Trigger | None:
    """Return a trigger with its rule as a job spells it; a rule that nobody changed keeps its spelling."""
    if trigger is None:
        return None
    rule = ("kind", "cron_expression", "cron_dialect", "interval_ms")
    if was is not None and all(getattr(was, name) == getattr(trigger, name) for name in rule):
        return msgspec.structs.replace(trigger, source_spec=was.source_spec)
    spec = {} if was is None or was.source_spec is None else jsonb.decode(was.source_spec)
    spec = {name: value for name, value in spec.items() if name == "skipDays"}
    if trigger.kind == "interval":
        spec["repeatInterval"] = trigger.interval_ms
    elif trigger.kind == "cron":
        spec["repeatAt" if trigger.cron_dialect == jobs.AT_DIALECT else "repeatInterval"] = trigger.cron_expression
    return msgspec.structs.replace(trigger, source_spec=jsonb.encode(spec) if spec else None)


def _due(trigger: Trigger | None, schedule: Schedule, was: Trigger | None, history: RunHistory) -> Trigger | None:
    """Return a trigger that is due when the scheduler would run the job next; None for a job that fires no more.

    A run that waits and has not begun is lost unless the job is due for it.
    """
    waiting = history.waiting
    if trigger is None:
        return None if waiting is None else _one_time(schedule, waiting)
    if trigger.kind == "one_time":
        unchanged = was is not None and (was.run_at, was.next_fire_at) == (trigger.run_at, trigger.next_fire_at)
        due = trigger.next_fire_at
        if due is None and unchanged and not history.begun:
            return trigger
        times = [time for time in (due, waiting) if time is not None]
        return msgspec.structs.replace(trigger, run_at=min(times), next_fire_at=min(times)) if times else None
    if waiting is not None and (trigger.next_fire_at is None or waiting < trigger.next_fire_at):
        return msgspec.structs.replace(trigger, next_fire_at=waiting)
    return trigger


def _one_time(schedule: Schedule, at: datetime) -> Trigger:
    return Trigger(
        id=schedule.id,
        tenant_id=schedule.tenant_id,
        schedule_id=schedule.id,
        kind="one_time",
        run_at=at,
        next_fire_at=at,
    )


def _definition(
    schedule: Schedule,
    was: Schedule | None,
    trigger: Trigger | None,
    was_trigger: Trigger | None,
    facts: dict[str, Any],
) -> Schedule:
    """Return the schedule as far as a job has fields for it."""
    variant = _variant(schedule)
    retries = variant == variants.PULSE
    if was is None:
        facts = {"type": "normal"} | facts
    stopped = trigger is not None and not trigger.enabled and (was_trigger is None or was_trigger.enabled)
    return msgspec.structs.replace(
        schedule,
        schema_version=variant,
        handler_name=schedule.handler_name or schedule.name,
        enabled=schedule.enabled and not stopped,
        priority=_NORMAL_PRIORITY if schedule.priority is None else schedule.priority,
        max_retries=schedule.max_retries if retries else None,
        retry_strategy=schedule.retry_strategy if retries else None,
        retry_delay_ms=(schedule.retry_delay_ms or 0) if retries and schedule.retry_strategy else None,
        metadata=jsonb.encode(facts) if facts else None,
    )
