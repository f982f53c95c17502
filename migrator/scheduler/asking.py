"""Asking for runs: now, for an event, again."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec

from migrator.errors import ConflictError, NotFoundError, TransitionError, UsageError
from migrator.records import Run, Schedule, Trigger
from migrator.scheduler import checks, retry
from migrator.scheduler.answers import Delivery
from migrator.scheduler.change import Change, overtaken
from migrator.scheduler.changing import woken
from migrator.scheduler.lifecycle import EXECUTION_RETRY, JOB_UPDATED
from migrator.states import RUN_FAILED
from migrator.store.protocols import RunQuery

QUEUED = "scheduler:run.queued"
"""Action of the audit entry of a run that was asked for; it is told as dispatched when a process hands it over."""


def now(change: Change, schedule_id: UUID, payload: Any) -> Run:  # noqa: ANN401 - any JSON value
    """Queue a run beside the regular ones: neither the phase nor the status of the schedule changes."""
    schedule = checks.own(change.session, schedule_id)
    checks.may_run(schedule)
    metadata = None if payload is None else checks.encoded({"payload": payload})
    run = change.session.runs.create(_run(change, schedule, cause="manual", metadata=metadata))
    _still(change, schedule)
    change.note(QUEUED, run=run, cause="manual")
    return run


def for_event(change: Change, event: str, data: Any, event_id: str | None) -> Delivery:  # noqa: ANN401 - any JSON value
    """Queue a run per handler of the event that has not heard of this delivery, highest priority first."""
    checks.text("event", event)
    if event_id is not None:
        checks.text("event_id", event_id)
    delivery = str(change.new_id()) if event_id is None else event_id
    metadata = checks.encoded({"event": event, "eventId": delivery, "payload": data})
    made: list[Run] = []
    repeated = 0
    for trigger in change.session.triggers.of_event(event):
        schedule = change.session.schedules.get(trigger.schedule_id)
        if schedule is None or not _open(trigger, change.now):
            continue
        # A trigger of all tenants is one row, on which the deliveries of several tenants meet.
        key = f"{change.session.tenant}/{delivery}"
        run = _run(change, schedule, cause="event", metadata=metadata, trigger_id=trigger.id, dedupe_key=key)
        try:
            run = change.session.runs.create(run)
        except ConflictError:
            repeated += 1
            continue
        if schedule.tenant_id == change.session.tenant:
            _still(change, schedule)
        made.append(run)
        change.note(QUEUED, run=run, cause="event", event=event)
    return Delivery(event_id=delivery, runs=tuple(made), repeated=repeated)


def again(change: Change, run_id: UUID) -> Run:
    """Queue a run that repeats one that failed, at once; its schedule begins anew where that had failed too.

    Raises ``NotFoundError``, ``TransitionError`` for a run that did not fail, ``ConflictError`` for one that was
    repeated before, ``RefusedError`` where the schedule is paused or disabled.
    """
    run = change.session.runs.get(run_id)
    if run is None or run.tenant_id != change.session.tenant:
        raise NotFoundError(f"no run {run_id}")
    if run.state not in RUN_FAILED:
        raise TransitionError(f"a run that is {run.state} is not retried")
    if run.schedule_id is None:
        raise UsageError(f"run {run_id} belongs to no schedule: nothing says what to repeat")
    schedule = checks.own(change.session, run.schedule_id)
    if change.session.runs.repeats(run_id):
        raise ConflictError(f"run {run_id} was retried before: retry the newest attempt")
    if schedule.status in {"failed", "completed"}:  # a run that failed before the last one completed
        _may_begin(schedule)
    else:
        checks.may_run(schedule)
    begun = _begin(change, schedule) if schedule.status == "failed" else schedule
    repeat = msgspec.structs.replace(
        retry.retry_of(schedule, run, change.now), available_at=change.now, triggered_by=change.by
    )
    repeat = change.session.runs.create(repeat)
    if begun is schedule:
        _still(change, schedule)
    change.tell(EXECUTION_RETRY, run=repeat, retryOf=str(run_id), attempt=str(repeat.attempt))
    return repeat


def schedule_again(change: Change, schedule_id: UUID) -> Run:
    """Begin a failed schedule anew, and repeat its newest failed run; with none, queue a run of its own."""
    schedule = checks.own(change.session, schedule_id)
    checks.asked(schedule, "retry")
    _may_begin(schedule)
    newest = change.session.runs.list(RunQuery(schedule_id=schedule_id, states=RUN_FAILED, limit=1)).runs
    if newest and not change.session.runs.repeats(newest[0].id):
        return again(change, newest[0].id)
    begun = _begin(change, schedule)
    run = change.session.runs.create(_run(change, begun, cause="retry", metadata=None))
    change.tell(EXECUTION_RETRY, run=run)
    return run


def _may_begin(schedule: Schedule) -> None:
    checks.may_run(msgspec.structs.replace(schedule, status="pending"))


def _begin(change: Change, schedule: Schedule) -> Schedule:
    """Bring a failed schedule back: pending, and running where nothing but its repeated run is left."""
    left = woken(change, schedule.id)
    begun = change.move(schedule, "pending", retry_count=0, completed_at=None)
    change.tell(JOB_UPDATED, schedule_id=schedule.id, changed="status", status="pending")
    return begun if left else change.move(begun, "running")


def _still(change: Change, schedule: Schedule) -> None:
    """Hold the schedule as it was judged until the run is committed."""
    if (
        change.touch(schedule, updated_by=schedule.updated_by, updated_at=schedule.updated_at).enabled
        != schedule.enabled
    ):
        raise overtaken()


def _open(trigger: Trigger, at: datetime) -> bool:
    return (trigger.start_at is None or trigger.start_at <= at) and (trigger.end_at is None or at <= trigger.end_at)


def _run(
    change: Change,
    schedule: Schedule,
    *,
    cause: str,
    metadata: bytes | None,
    trigger_id: UUID | None = None,
    dedupe_key: str | None = None,
) -> Run:
    identity = change.new_id()
    return Run(
        id=identity,
        tenant_id=change.session.tenant,
        schedule_id=schedule.id,
        trigger_id=trigger_id,
        attempt=1,
        cause=cause,
        state="queued",
        available_at=change.now,
        created_at=change.now,
        trace_id=identity.hex,
        span_id=uuid5(identity, "span").hex[:16],
        triggered_by=change.by,
        dedupe_key=dedupe_key,
        metadata=metadata,
        updated_at=change.now,
    )
