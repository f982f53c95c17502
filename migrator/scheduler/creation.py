"""Creation of schedules: from a cron line, for one fire, recurring within bounds, for an event."""

from typing import Any
from uuid import UUID

import msgspec

from migrator.errors import ConflictError, UsageError
from migrator.records import Schedule, Trigger
from migrator.scheduler import firing, validation
from migrator.scheduler.commands import Change
from migrator.scheduler.lifecycle import JOB_CREATED
from migrator.scheduler.models import EventRequest, Job, OnceRequest, RecurringRequest, ScheduleRequest, Timing, Work

DEFAULT_TIMEOUT_MS = 300_000
"""Longest duration of a run where neither the request nor its handler says."""

ACTION_HANDLER_TYPES = {"create_job": "job_creator", "trigger_workflow": "workflow", "dispatch_agent": "agent"}
"""What an event leads to, and the type of handler that a run of it is handed to."""


def create_cron(change: Change, request: ScheduleRequest) -> Job:
    """Make a schedule that a cron line makes fire; raises ``CronError``, ``ZoneError``."""
    timing = Timing(cron=request.cron, dialect=request.dialect, timezone=request.timezone)
    bounds = {"misfire_policy": request.misfire_policy, "misfire_grace_ms": request.misfire_grace_ms}
    return _create(change, request, validation.trigger_columns(timing) | _checked(bounds))


def create_once(change: Change, request: OnceRequest) -> Job:
    """Make a schedule that fires once, at once where no time is given; raises ``UsageError`` for a time past."""
    run_at = validation.instant("run_at", request.run_at)
    if run_at is not None and run_at <= change.now:
        raise UsageError("run_at must lie ahead; leave it out to run at once")
    return _create(change, request, {"kind": "one_time", "run_at": run_at or change.now})


def create_recurring(change: Change, request: RecurringRequest) -> Job:
    """Make a schedule that recurs within bounds; raises ``UsageError`` where it would never fire."""
    bounds: dict[str, Any] = {
        "start_at": validation.instant("start_at", request.start_at),
        "end_at": validation.instant("end_at", request.end_at),
        "max_fires": request.max_fires,
        "skip_if_overdue": request.skip_if_overdue,
        "misfire_policy": request.misfire_policy,
        "misfire_grace_ms": request.misfire_grace_ms,
    }
    start, end = bounds["start_at"], bounds["end_at"]
    if end is not None and end <= (start or change.now):
        raise UsageError("end_at must come after start_at")
    return _create(change, request, validation.trigger_columns(request.timing) | _checked(bounds))


def create_event_handler(change: Change, event: str, handler_name: str, request: EventRequest) -> Job:
    """Make a schedule that an event makes fire."""
    validation.check_text("event", event)
    action = request.action
    if action is not None and action.type not in ACTION_HANDLER_TYPES:
        raise UsageError(f"action names none of {', '.join(ACTION_HANDLER_TYPES)}")
    work = Work(
        id=request.id,
        name=f"{event}:{handler_name}" if request.name is None else request.name,
        handler_name=handler_name,
        handler_type="function" if action is None else ACTION_HANDLER_TYPES[action.type],
        payload=None if action is None else {"action_type": action.type, "action_config": action.config},
        enabled=request.enabled,
        priority=request.priority,
        created_by=request.created_by,
        max_retries=request.max_retries,
        timeout_ms=request.timeout_ms,
        max_concurrency=request.max_concurrency,
    )
    return _create(change, work, {"kind": "event", "event_name": event})


def _checked(bounds: dict[str, Any]) -> dict[str, Any]:
    for name, value in bounds.items():
        validation.check_field(name, value)
    return bounds


def _create(change: Change, work: Work, cause: dict[str, Any]) -> Job:
    identity = change.new_id() if work.id is None else work.id
    schedule = _schedule(change, work, identity)
    trigger = Trigger(id=change.new_id(), tenant_id=change.session.tenant, schedule_id=identity, **cause)
    if trigger.kind != "event":
        first = firing.first_fire(trigger, change.now)
        if first is None:
            raise UsageError("it would never fire: no time matches within its bounds")
        trigger = msgspec.structs.replace(trigger, next_fire_at=first)
    stored = change.session.schedules.upsert(schedule)
    change.session.triggers.upsert(trigger)
    change.tell(JOB_CREATED, schedule_id=identity, kind=trigger.kind)
    return change.job(stored)


def _schedule(change: Change, work: Work, identity: UUID) -> Schedule:
    if work.id is not None and change.session.schedules.get(work.id) is not None:
        raise ConflictError("the id of a new schedule is taken")
    columns = {name: getattr(work, name) for name in _COLUMNS}
    for name, value in columns.items():
        validation.check_field(name, value)
    handler = change.session.handlers.get(work.handler_name)
    if handler is not None:
        columns["queue"] = columns["queue"] or handler.queue
        columns["timeout_ms"] = columns["timeout_ms"] or handler.default_timeout_ms
    return Schedule(
        **columns | {"timeout_ms": columns["timeout_ms"] or DEFAULT_TIMEOUT_MS, "tags": work.tags or None},
        id=identity,
        tenant_id=change.session.tenant,
        # As the copy reads a schedule that is not enabled: paused too.
        status="scheduled" if work.enabled else "paused",
        paused_at=None if work.enabled else change.now,
        priority=validation.priority_number(work.priority),
        payload=validation.encode_json(work.payload),
        metadata=validation.encode_json(work.metadata),
        retry_count=0,
        updated_by=work.created_by,
    )


_COLUMNS = (
    "name",
    "description",
    "handler_name",
    "handler_type",
    "queue",
    "enabled",
    "max_retries",
    "retry_delay_ms",
    "retry_strategy",
    "retry_cap_ms",
    "on_exhausted",
    "timeout_ms",
    "max_concurrency",
    "tags",
    "created_by",
)
