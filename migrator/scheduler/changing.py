"""Changing schedules: pausing, resuming, cancelling, enabling, another timing, another task, removal.

Each first asks the state machine (``states.SCHEDULE``); what it refuses changes nothing.
"""

from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from migrator.errors import RefusedError, TransitionError, UsageError
from migrator.records import Schedule, Trigger
from migrator.scheduler import checks, firing
from migrator.scheduler.answers import Job
from migrator.scheduler.change import Change
from migrator.scheduler.lifecycle import JOB_CANCELLED, JOB_DELETED, JOB_PAUSED, JOB_RESUMED, JOB_UPDATED
from migrator.scheduler.requests import Patch, Timing
from migrator.scheduler.settling import may_fire, settle
from migrator.states import RUN_WAITING
from migrator.store.protocols import RunQuery


def pause(change: Change, schedule_id: UUID) -> Job:
    """Let it fire no more until it is resumed; its next fire stays planned, its queued runs wait."""
    schedule = checks.own(change.session, schedule_id)
    paused = change.move(schedule, checks.asked(schedule, "pause"), paused_at=change.now)
    change.tell(JOB_PAUSED, schedule_id=schedule_id)
    return change.job(paused)


def resume(change: Change, schedule_id: UUID) -> Job:
    """Let a paused schedule fire again, enabled, in its old phase; what fell into the pause goes by its policy."""
    schedule = checks.own(change.session, schedule_id)
    follower = checks.asked(schedule, "resume")
    left = woken(change, schedule_id)
    resumed = change.move(schedule, follower, enabled=True, paused_at=None)
    change.tell(JOB_RESUMED, schedule_id=schedule_id)
    return change.job(resumed if left else _through(change, resumed))


def cancel(change: Change, schedule_id: UUID, reason: str) -> Job:
    """End it for good, its live runs too: whoever still works on one of them cannot bring it back."""
    schedule = checks.own(change.session, schedule_id)
    follower = checks.asked(schedule, "cancel")
    for trigger in change.session.triggers.held(schedule_id):
        if trigger.enabled:
            change.session.triggers.upsert(msgspec.structs.replace(trigger, enabled=False))
    count = 0
    while ended := change.session.runs.cancel_of_schedule(schedule_id, reason):
        count += ended  # again: a run that ended meanwhile may have left its retry
    cancelled = change.move(schedule, follower, cancelled_at=change.now)
    change.tell(JOB_CANCELLED, schedule_id=schedule_id, message=reason, runs=str(count))
    return change.job(cancelled)


def unschedule(change: Change, schedule_id: UUID) -> None:
    """Remove it softly: nothing fires, waiting runs are cancelled, a running one may end, and the runs stay."""
    schedule = checks.own(change.session, schedule_id)
    handler = None if schedule.handler_name is None else change.session.handlers.get(schedule.handler_name)
    if handler is not None and handler.is_system:
        raise RefusedError(f"schedule {schedule_id} calls a system handler: disable it instead")
    change.session.triggers.held(schedule_id)
    waiting = RunQuery(schedule_id=schedule_id, states=RUN_WAITING, limit=100)
    count = 0
    while page := change.session.runs.list(waiting).runs:
        count += sum(change.session.runs.cancel(run.id, "unscheduled") is not None for run in page)
    change.session.schedules.soft_delete(schedule_id, change.by)
    change.tell(JOB_DELETED, schedule_id=schedule_id, runs=str(count))


def reschedule(change: Change, schedule_id: UUID, timing: Timing) -> Job:
    """Give a recurring schedule another timing: the same trigger, its bounds and counts, its runs; a new next fire.

    One that is completed is scheduled again. Raises ``UsageError`` for one that recurs not, and where it would never
    fire again.
    """
    schedule = checks.own(change.session, schedule_id)
    follower = None if schedule.status in {"pending", "scheduled", "paused"} else "scheduled"
    cause = checks.cause_of(timing)
    held = change.session.triggers.held(schedule_id)
    recurring = [trigger for trigger in held if trigger.kind in {"cron", "interval"}]
    if len(recurring) != 1:
        kinds = ", ".join(sorted({trigger.kind for trigger in held})) or "none"
        raise UsageError(f"only a schedule with one recurring trigger is rescheduled; its triggers: {kinds}")
    trigger = _retimed(recurring[0], cause)
    following = firing.first_fire(trigger, change.now)
    if following is None:
        raise UsageError("it would never fire again: no time matches within its bounds")
    change.session.triggers.upsert(msgspec.structs.replace(trigger, next_fire_at=following))
    changed = change.touch(schedule) if follower is None else change.move(schedule, follower, completed_at=None)
    change.tell(JOB_UPDATED, schedule_id=schedule_id, changed="timing", kind=trigger.kind)
    return change.job(changed)


def toggle(change: Change, schedule_id: UUID, *, enabled: bool) -> Job:
    """Enable or disable it at once; paused stays paused. What fell into the time between goes by its policy."""
    schedule = checks.own(change.session, schedule_id)
    if schedule.status == "cancelled":
        raise TransitionError("a schedule that is cancelled is not enabled or disabled any more")
    if schedule.enabled == enabled:
        return change.job(schedule)
    left = woken(change, schedule_id) if enabled and schedule.status != "paused" else True
    toggled = change.touch(schedule, enabled=enabled)
    change.tell(JOB_UPDATED, schedule_id=schedule_id, changed="enabled", enabled=str(enabled).lower())
    return change.job(toggled if left or toggled.status != "scheduled" else _through(change, toggled))


def update(change: Change, schedule_id: UUID, patch: Patch) -> Job:
    """Change what it does, not when; the next tick and the next claim go by it."""
    schedule = checks.own(change.session, schedule_id)
    if schedule.status == "cancelled":
        raise TransitionError("a schedule that is cancelled does not change any more")
    given = {name: value for name in patch.__struct_fields__ if (value := getattr(patch, name)) is not UNSET}
    columns: dict[str, Any] = {}
    for name, value in given.items():
        checks.field(name, value)
        columns[name] = value
    if "priority" in columns:
        columns["priority"] = checks.priority(columns["priority"])
    if "tags" in columns:
        columns["tags"] = tuple(columns["tags"]) or None
    columns |= {name: checks.encoded(columns[name]) for name in ("payload", "metadata") if name in columns}
    if not columns:
        return change.job(schedule)
    changed = change.touch(schedule, **columns)
    change.tell(JOB_UPDATED, schedule_id=schedule_id, changed=",".join(sorted(columns)))
    return change.job(changed)


def woken(change: Change, schedule_id: UUID) -> bool:
    """Enable the triggers, and move those whose fire was missed as their policy says; tell whether any is left.

    Left is one that may still fire.
    """
    left = False
    for trigger in change.session.triggers.held(schedule_id):
        moved = firing.resumed(msgspec.structs.replace(trigger, enabled=True), change.now)
        if moved != trigger:
            change.session.triggers.upsert(moved)
        left = left or may_fire(moved)
    return left


def _retimed(trigger: Trigger, cause: dict[str, Any]) -> Trigger:
    timing = dict.fromkeys(("cron_expression", "cron_dialect", "timezone", "interval_ms", "anchor"))
    return msgspec.structs.replace(trigger, **timing | {"source_spec": None, "enabled": True} | cause)


def _through(change: Change, schedule: Schedule) -> Schedule:
    """End a schedule whose last fire is over: completed, or running while it has a live run."""
    running = change.move(schedule, "running")
    settle(change.session, schedule.id)
    return change.session.schedules.get(schedule.id) or running
