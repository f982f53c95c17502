"""Commands of the client: each changes a schedule, queues runs, or registers handlers, in one transaction.

Each command first asks the state machine (``states.SCHEDULE``); what it refuses changes nothing. Rows are written in
the order triggers, runs, schedule, which is the worker's own, so that two transactions that change the same rows do
not deadlock. If another transaction came first, the command is repeated (``OvertakenError``).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar
from uuid import UUID, uuid5

import msgspec

from migrator import states
from migrator.errors import ConflictError, NotFoundError, OvertakenError, RefusedError, TransitionError, UsageError
from migrator.records import EMPTY, Handler, Run, Schedule, Trigger
from migrator.scheduler import completion, firing, queries, validation
from migrator.scheduler.completion import end_schedule, may_fire
from migrator.scheduler.lifecycle import (
    EXECUTION_RETRY,
    JOB_CANCELLED,
    JOB_DELETED,
    JOB_PAUSED,
    JOB_RESUMED,
    JOB_UPDATED,
    Event,
    audit_entry,
)
from migrator.scheduler.models import Changes, Delivery, Job, Seeding, Timing
from migrator.states import RUN_FAILED, RUN_WAITING
from migrator.store.protocols import RunQuery, Session
from migrator.store.queue import ARGUMENTS
from migrator.store.validation import check_own_tenant

T = TypeVar("T")


class Change:
    """What a change works with."""

    def __init__(self, session: Session, by: str, new_id: Callable[[], UUID], reason: str | None = None) -> None:
        """``reason``: why, the message of every entry of the audit trail that has none of its own."""
        self.session, self.by, self.new_id, self.reason = session, by, new_id, reason
        self.events: list[Event] = []
        """In order. Listeners are called after the commit."""

    @property
    def now(self) -> datetime:
        """Return the time of the transaction."""
        return self.session.now

    def tell(self, name: str, **what: Any) -> None:  # noqa: ANN401 - as ``note``
        """Write an event into the audit trail and for the listeners; ``name`` is one of ``lifecycle.NAMES``."""
        self.events.append(self.note(name, **what))

    def note(
        self,
        name: str,
        *,
        schedule_id: UUID | None = None,
        run: Run | None = None,
        message: str | None = None,
        **details: str,
    ) -> Event:
        """Write what happened into the audit trail."""
        event = Event(
            name=name,
            tenant_id=self.session.tenant,
            at=self.now,
            schedule_id=schedule_id if run is None else run.schedule_id,
            run_id=None if run is None else run.id,
            trace_id=None if run is None else run.trace_id,
            actor=self.by,
            message=self.reason if message is None else message,
            details=details,
        )
        self.session.audit.append(audit_entry(event))
        return event

    def move(self, schedule: Schedule, status: str, **changes: Any) -> Schedule:  # noqa: ANN401 - columns have all types
        """Write a status that was decided by what ``schedule`` held; raises ``TransitionError``, ``OvertakenError``."""
        moved = self.session.schedules.change_status(
            schedule.id, schedule.status, status, **{"updated_by": self.by} | changes
        )
        if moved is None:
            raise concurrent_change()
        return moved

    def touch(self, schedule: Schedule, **changes: Any) -> Schedule:  # noqa: ANN401 - as above
        """Write columns of a schedule whose status must still be what ``schedule`` held."""
        touched = self.session.schedules.change(schedule.id, **{"updated_by": self.by} | changes)
        if touched is None or touched.status != schedule.status:
            raise concurrent_change()
        return touched

    def named(self, name: str, write: Callable[[], T]) -> T:
        """Return the answer of ``write``, which writes a schedule of this name.

        The name of one that has ended is given to it: the old one counts as deleted. Raises ``ConflictError`` for the
        name of one that has not.
        """
        try:
            return write()
        except OvertakenError:
            raise
        except ConflictError:
            taken = self.session.schedules.by_name(name)
            if taken is None or taken.tenant_id != self.session.tenant:
                raise
            if not self.is_ended(taken):
                raise ConflictError(f"the name {name!r} is taken by schedule {taken.id}") from None
            self.session.schedules.soft_delete(taken.id, self.by)
            self.tell(JOB_DELETED, schedule_id=taken.id, message="its name was given to another schedule")
            return write()

    def is_ended(self, schedule: Schedule) -> bool:
        """Whether a schedule will do nothing any more: it is cancelled, or fired once, and that run has ended."""
        if schedule.status in {"completed", "failed"}:
            triggers = self.session.triggers.of_schedule(schedule.id)
            return bool(triggers) and all(trigger.kind == "one_time" for trigger in triggers)
        return schedule.status == "cancelled"

    def job(self, schedule: Schedule) -> Job:
        """Return the present state of the schedule, with its triggers."""
        (job,) = queries.jobs_of(self.session, [schedule])
        return job


def concurrent_change() -> OvertakenError:
    """Return the error for a row that another one changed in between."""
    return OvertakenError("the schedule was changed at the same moment: call again")


def pause(change: Change, schedule_id: UUID) -> Job:
    """Let it fire no more until it is resumed; its next fire stays planned, its queued runs wait."""
    schedule, follower = _pausable(change.session, schedule_id)
    if schedule.status == "running":
        schedule = change.move(schedule, "scheduled")
    paused = change.move(schedule, follower, paused_at=change.now)
    change.tell(JOB_PAUSED, schedule_id=schedule_id)
    return change.job(paused)


def _pausable(session: Session, schedule_id: UUID) -> tuple[Schedule, str]:
    """Return a schedule that may be paused now, and the status that it gets; raises ``TransitionError``.

    One whose slots are over is running until its last run has ended; while that run waits, it may be paused too.
    """
    schedule = validation.own_schedule(session, schedule_id)
    if queries.waiting_schedules(session, [schedule]):
        return schedule, states.SCHEDULE_ACTIONS["pause"][1]
    return schedule, validation.next_status(schedule, "pause")


def resume(change: Change, schedule_id: UUID) -> Job:
    """Let a paused schedule fire again, enabled, in its old phase; what fell into the pause goes by its policy."""
    schedule = validation.own_schedule(change.session, schedule_id)
    follower = validation.next_status(schedule, "resume")
    left = resume_triggers(change, schedule_id)
    resumed = change.move(schedule, follower, enabled=True, paused_at=None)
    change.tell(JOB_RESUMED, schedule_id=schedule_id)
    return change.job(resumed if left else _complete(change, resumed))


def cancel(change: Change, schedule_id: UUID, reason: str) -> Job:
    """End it for good, its live runs too. A worker that still executes one of them cannot change that."""
    schedule = validation.own_schedule(change.session, schedule_id)
    follower = validation.next_status(schedule, "cancel")
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
    check_unschedule(change.session, schedule_id)
    change.session.triggers.held(schedule_id)
    waiting = RunQuery(schedule_id=schedule_id, states=RUN_WAITING, limit=100)
    count = 0
    while page := change.session.runs.list(waiting).runs:
        count += sum(change.session.runs.cancel(run.id, "unscheduled") is not None for run in page)
    change.session.schedules.soft_delete(schedule_id, change.by)
    change.tell(JOB_DELETED, schedule_id=schedule_id, runs=str(count))


def check_unschedule(session: Session, schedule_id: UUID) -> None:
    """Raise what ``unschedule`` would raise now."""
    schedule = validation.own_schedule(session, schedule_id)
    handler = None if schedule.handler_name is None else session.handlers.get(schedule.handler_name)
    if handler is not None and handler.is_system:
        raise RefusedError(f"schedule {schedule_id} calls a system handler: disable it instead")


def check_transition(session: Session, schedule_id: UUID, action: Literal["pause", "resume", "cancel"]) -> None:
    """Raise what ``pause``, ``resume`` or ``cancel`` would raise now."""
    if action == "pause":
        _pausable(session, schedule_id)
        return
    validation.next_status(validation.own_schedule(session, schedule_id), action)


def reschedule(change: Change, schedule_id: UUID, timing: Timing) -> Job:
    """Give a recurring schedule another timing: the same trigger, its bounds and counts, its runs; a new next fire.

    One that is completed is scheduled again. Raises ``UsageError`` for one that recurs not, and where it would never
    fire again.
    """
    schedule = validation.own_schedule(change.session, schedule_id)
    cause = validation.trigger_columns(timing)
    return change.job(write_timing(change, schedule, with_timing(recurring_trigger(change, schedule), cause)))


def recurring_trigger(change: Change, schedule: Schedule) -> Trigger:
    """Return the trigger of a schedule that recurs; raises ``UsageError`` unless it has exactly one."""
    held = change.session.triggers.held(schedule.id)
    recurring = [trigger for trigger in held if trigger.kind in {"cron", "interval"}]
    if len(recurring) != 1:
        kinds = ", ".join(sorted({trigger.kind for trigger in held})) or "none"
        raise UsageError(f"only a schedule with one recurring trigger is rescheduled; its triggers: {kinds}")
    return recurring[0]


def write_timing(change: Change, schedule: Schedule, trigger: Trigger) -> Schedule:
    """Write a trigger whose timing has changed, with its next fire; return the schedule as it is then."""
    follower = None if schedule.status in {"pending", "scheduled", "paused"} else "scheduled"
    following = firing.first_fire(trigger, change.now)
    if following is None:
        raise UsageError("it would never fire again: no time matches within its bounds")
    change.session.triggers.upsert(msgspec.structs.replace(trigger, next_fire_at=following))
    changed = change.touch(schedule) if follower is None else change.move(schedule, follower, completed_at=None)
    change.tell(JOB_UPDATED, schedule_id=schedule.id, changed="timing", kind=trigger.kind)
    return changed


def toggle(change: Change, schedule_id: UUID, *, enabled: bool) -> Job:
    """Enable or disable it at once; paused stays paused. What fell into the time between goes by its policy."""
    schedule = validation.own_schedule(change.session, schedule_id)
    if schedule.status == "cancelled":
        raise TransitionError("a schedule that is cancelled is not enabled or disabled any more")
    if schedule.enabled == enabled:
        return change.job(schedule)
    left = resume_triggers(change, schedule_id) if enabled and schedule.status != "paused" else True
    toggled = change.touch(schedule, enabled=enabled)
    change.tell(JOB_UPDATED, schedule_id=schedule_id, changed="enabled", enabled=str(enabled).lower())
    return change.job(toggled if left or toggled.status != "scheduled" else _complete(change, toggled))


def update(change: Change, schedule_id: UUID, changes: Changes) -> Job:
    """Change what it does, not when; the next tick and the next claim go by it."""
    unknown = changes.keys() - Changes.__annotations__.keys()
    if unknown:
        raise UsageError(f"{min(unknown)} is nothing that is updated; known: {', '.join(Changes.__annotations__)}")
    schedule = validation.own_schedule(change.session, schedule_id)
    if schedule.status == "cancelled":
        raise TransitionError("a schedule that is cancelled does not change any more")
    columns = validation.columns_of(changes)
    if "priority" in columns:
        columns["priority"] = validation.priority_number(columns["priority"])
    if "tags" in columns:
        columns["tags"] = tuple(columns["tags"]) or None
    for name in columns.keys() & {"payload", "metadata"}:
        columns[name] = validation.encode_json(name, columns[name])
    if not columns:
        return change.job(schedule)
    return change.job(write_columns(change, schedule, columns))


def write_columns(change: Change, schedule: Schedule, columns: dict[str, Any]) -> Schedule:
    """Write columns of a schedule that say what it does; return it as it is then."""
    changed = change.named(columns.get("name", schedule.name), lambda: change.touch(schedule, **columns))
    change.tell(JOB_UPDATED, schedule_id=schedule.id, changed=",".join(sorted(columns)))
    return changed


def resume_triggers(change: Change, schedule_id: UUID) -> bool:
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


def with_timing(trigger: Trigger, cause: dict[str, Any]) -> Trigger:
    """Return a recurring trigger with another timing (``validation.trigger_columns``)."""
    timing = dict.fromkeys(("cron_expression", "cron_dialect", "timezone", "interval_ms", "anchor"))
    return msgspec.structs.replace(trigger, **timing | {"source_spec": None, "enabled": True} | cause)


def _complete(change: Change, schedule: Schedule) -> Schedule:
    """End a schedule whose last fire is over: completed, or running while it has a live run."""
    running = change.move(schedule, "running")
    end_schedule(change.session, schedule.id)
    return change.session.schedules.get(schedule.id) or running


RUN_QUEUED = "scheduler:run.queued"
"""Action of the audit entry of a run that was queued by a call; its dispatch is an entry and an event of its own."""


def trigger_now(change: Change, schedule_id: UUID, arguments: Mapping[str, Any] | None) -> Run:
    """Queue a run in addition to the regular ones: neither the phase nor the status of the schedule changes."""
    if arguments is not None and "context" in arguments:
        raise UsageError("arguments.context: the worker gives the context to a handler")
    schedule = check_trigger_now(change.session, schedule_id)
    metadata = None if arguments is None else validation.encode_json("", {ARGUMENTS: dict(arguments)})
    run = change.session.runs.create(_queued_run(change, schedule, cause="manual", metadata=metadata))
    _check_unchanged(change, schedule)
    change.note(RUN_QUEUED, run=run, cause="manual")
    return run


def check_trigger_now(session: Session, schedule_id: UUID) -> Schedule:
    """Return the schedule of which a run may be queued now; raises what ``trigger_now`` would raise."""
    schedule = validation.own_schedule(session, schedule_id)
    validation.check_may_run(schedule)
    return schedule


def trigger_event(change: Change, event: str, data: Any, event_id: str | None) -> Delivery:  # noqa: ANN401 - any JSON value
    """Queue a run for each handler of the event that has no run of this delivery yet, highest priority first."""
    validation.check_text("event", event)
    if event_id is not None:
        validation.check_text("event_id", event_id)
    delivery = str(change.new_id()) if event_id is None else event_id
    metadata = validation.encode_json("", {"event": event, "eventId": delivery, "payload": data})
    made: list[Run] = []
    repeated = 0
    for trigger in change.session.triggers.of_event(event):
        schedule = change.session.schedules.get(trigger.schedule_id)
        if schedule is None or not _is_open(trigger, change.now):
            continue
        # A trigger of all tenants is one row, on which the deliveries of several tenants meet.
        key = f"{change.session.tenant}/{delivery}"
        run = _queued_run(change, schedule, cause="event", metadata=metadata, trigger_id=trigger.id, dedupe_key=key)
        try:
            run = change.session.runs.create(run)
        except OvertakenError:
            raise
        except ConflictError:
            repeated += 1
            continue
        if schedule.tenant_id == change.session.tenant:
            _check_unchanged(change, schedule)
        made.append(run)
        change.note(RUN_QUEUED, run=run, cause="event", event=event)
    return Delivery(event_id=delivery, runs=tuple(made), repeated=repeated)


def retry_run(change: Change, run_id: UUID) -> Run:
    """Queue a run that repeats one that failed, at once; its schedule begins anew where that had failed too."""
    run, schedule = check_retry_run(change.session, run_id)
    begun = _restart(change, schedule) if schedule.status == "failed" else schedule
    repeat = msgspec.structs.replace(
        completion.retry_of(schedule, run, change.now), available_at=change.now, triggered_by=change.by
    )
    repeat = change.session.runs.create(repeat)
    if begun is schedule:
        _check_unchanged(change, schedule)
    change.tell(EXECUTION_RETRY, run=repeat, retryOf=str(run_id), attempt=str(repeat.attempt))
    return repeat


def check_retry_run(session: Session, run_id: UUID) -> tuple[Run, Schedule]:
    """Return a run that may be retried now, and its schedule.

    Raises ``NotFoundError``, ``TransitionError`` for a run that did not fail, ``ConflictError`` for one that was
    repeated before, ``RefusedError`` where the schedule is paused or disabled.
    """
    validation.check_id("run_id", run_id)
    run = session.runs.get(run_id)
    if run is None or run.tenant_id != session.tenant:
        raise NotFoundError(f"no run {run_id}")
    if run.state not in RUN_FAILED:
        raise TransitionError(f"a run that is {run.state} is not retried")
    if run.schedule_id is None:
        raise UsageError(f"run {run_id} belongs to no schedule: nothing says what to repeat")
    schedule = validation.own_schedule(session, run.schedule_id)
    if session.runs.repeats(run_id):
        raise ConflictError(f"run {run_id} was retried before: retry the newest attempt")
    if schedule.status in {"failed", "completed"}:  # a run that failed before the last one completed
        _check_may_restart(schedule)
    else:
        validation.check_may_run(schedule)
    return run, schedule


def retry_schedule(change: Change, schedule_id: UUID) -> Run:
    """Begin a failed schedule anew, and repeat its newest failed run; with none, queue a run of its own."""
    schedule = check_retry_schedule(change.session, schedule_id)
    newest = change.session.runs.list(RunQuery(schedule_id=schedule_id, states=RUN_FAILED, limit=1)).runs
    if newest and not change.session.runs.repeats(newest[0].id):
        return retry_run(change, newest[0].id)
    begun = _restart(change, schedule)
    run = change.session.runs.create(_queued_run(change, begun, cause="retry", metadata=None))
    change.tell(EXECUTION_RETRY, run=run)
    return run


def check_retry_schedule(session: Session, schedule_id: UUID) -> Schedule:
    """Return a failed schedule that may begin anew now; raises ``TransitionError``, ``RefusedError``."""
    schedule = validation.own_schedule(session, schedule_id)
    validation.next_status(schedule, "retry")
    _check_may_restart(schedule)
    return schedule


def _check_may_restart(schedule: Schedule) -> None:
    validation.check_may_run(msgspec.structs.replace(schedule, status="pending"))


def _restart(change: Change, schedule: Schedule) -> Schedule:
    """Bring a failed schedule back: pending, and running where nothing but its repeated run is left."""
    left = resume_triggers(change, schedule.id)
    begun = change.move(schedule, "pending", retry_count=0, completed_at=None)
    change.tell(JOB_UPDATED, schedule_id=schedule.id, changed="status", status="pending")
    return begun if left else change.move(begun, "running")


def _check_unchanged(change: Change, schedule: Schedule) -> None:
    """Lock the schedule until the commit; raises ``OvertakenError`` if it is not as it was when it was checked."""
    touched = change.touch(schedule, updated_by=schedule.updated_by, updated_at=schedule.updated_at)
    if touched.enabled != schedule.enabled:
        raise concurrent_change()


def _is_open(trigger: Trigger, at: datetime) -> bool:
    return (trigger.start_at is None or trigger.start_at <= at) and (trigger.end_at is None or at <= trigger.end_at)


def _queued_run(
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


def seed_handlers(session: Session, handlers: Sequence[Handler]) -> Seeding:
    """Add the handlers whose name is not known yet; report those that are stored otherwise.

    Conflicting too is one whose code (``handler_path``) is stored under another name: the other seeder's name for it.
    """
    validation.check_distinct(f"handler {handler.name}" for handler in handlers)
    for handler in handlers:
        check_own_tenant(handler.tenant_id, session.tenant)
        validation.check_text("name", handler.name)
    stored = {handler.name: handler for handler in session.handlers.list()}
    names = {handler.handler_path: handler.name for handler in stored.values() if handler.handler_path is not None}
    added: list[str] = []
    unchanged: list[str] = []
    conflicting: list[str] = []
    for handler in handlers:
        known = stored.get(handler.name)
        if known is not None:
            (unchanged if _same_handler(known, handler) else conflicting).append(handler.name)
        elif names.get(handler.handler_path or "", handler.name) != handler.name:
            conflicting.append(handler.name)
        else:
            session.handlers.upsert(handler)
            added.append(handler.name)
    return Seeding(added=tuple(added), unchanged=tuple(unchanged), conflicting=tuple(conflicting))


def _same_handler(stored: Handler, seeded: Handler) -> bool:
    ignored = {"id": seeded.id, "tenant_id": seeded.tenant_id, "source": None, "source_id": None, "extra": EMPTY}
    return msgspec.structs.replace(stored, **ignored) == msgspec.structs.replace(seeded, **ignored)
