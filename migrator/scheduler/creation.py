"""Creation of schedules: recurring by a cron line or an interval, for one fire, or for an event."""

from datetime import datetime, timedelta
from typing import Any, get_type_hints
from uuid import UUID

import msgspec

from migrator.errors import ConflictError, OvertakenError, UsageError
from migrator.records import Schedule, Trigger
from migrator.scheduler import commands, firing, validation
from migrator.scheduler.commands import Change
from migrator.scheduler.lifecycle import JOB_CREATED, JOB_UPDATED
from migrator.scheduler.models import Changes, Job, ScheduleRequest, Timing

DEFAULT_TIMEOUT_MS = 300_000
"""Longest duration of a run where neither the request nor its handler says."""


def create_recurring(change: Change, request: ScheduleRequest) -> Job:
    """Make a schedule that recurs; raises ``CronError``, ``ZoneError``, ``UsageError`` where it would never fire."""
    return _create(change, request, _recurring(request, change.now))


def ensure(change: Change, request: ScheduleRequest) -> Job:
    """Make a schedule that recurs, or change the one of this name into it; what is equal is not written."""
    if request.name is None:
        raise UsageError("name is missing")
    stored = change.session.schedules.by_name(request.name)
    if stored is None or stored.tenant_id != change.session.tenant or change.is_ended(stored):
        try:
            return create_recurring(change, request)
        except OvertakenError:
            raise
        except ConflictError as error:
            if change.session.schedules.by_name(request.name) in (None, stored):
                raise
            raise commands.concurrent_change() from error  # another session has just created it
    if request.id not in (None, stored.id):
        raise ConflictError(f"the name {request.name!r} is taken by schedule {stored.id}")
    cause = _recurring(request, None)
    wanted = _schedule(change, request, stored.id)
    changed = {name: value for name in _COMPARED if (value := getattr(wanted, name)) != getattr(stored, name)}
    held = commands.recurring_trigger(change, stored)
    trigger = msgspec.structs.replace(held, **_NO_TIMING | cause)
    if any(getattr(trigger, name) != getattr(held, name) for name in _MOVING):
        stored = commands.write_timing(change, stored, commands.with_timing(trigger, cause))
    elif trigger != held:
        change.session.triggers.upsert(trigger)
        change.tell(JOB_UPDATED, schedule_id=stored.id, changed="bounds", kind=trigger.kind)
    return change.job(commands.write_columns(change, stored, changed) if changed else stored)


def _recurring(request: ScheduleRequest, now: datetime | None) -> dict[str, Any]:
    """Return the columns of the trigger of a schedule that recurs; ``now``: its end must come after it."""
    start, end = validation.instant("start_at", request.start_at), validation.instant("end_at", request.end_at)
    earliest = start or now
    if end is not None and earliest is not None and end <= earliest:
        raise UsageError("end_at must come after start_at")
    bounds = {name: getattr(request, name) for name in _BOUNDS} | {"start_at": start, "end_at": end}
    cause = validation.trigger_columns(request)
    return cause | validation.columns_of(bounds)


def create_once(change: Change, request: ScheduleRequest, run_at: datetime | None) -> Job:
    """Make a schedule that fires once, at once where no time is given; raises ``UsageError`` for a time past."""
    recurs = [name for name in (*Timing.__struct_fields__, *_BOUNDS) if getattr(request, name) != _DEFAULTS[name]]
    if recurs:
        raise UsageError(f"a schedule that fires once has no {recurs[0]}")
    run_at = validation.instant("run_at", run_at)
    if run_at is not None and run_at <= change.now:
        raise UsageError("run_at must lie ahead; leave it out to run at once")
    if request.name is None:
        identity = change.new_id() if request.id is None else request.id
        request = msgspec.structs.replace(request, id=identity, name=f"{request.handler_name}:{identity}")
    return _create(change, request, {"kind": "one_time", "run_at": run_at or change.now})


def create_event_handler(change: Change, event: str, request: ScheduleRequest) -> Job:
    """Make a schedule that an event makes fire."""
    validation.check_text("event", event)
    return _create(change, request, {"kind": "event", "event_name": event})


def _create(change: Change, request: ScheduleRequest, cause: dict[str, Any]) -> Job:
    identity = change.new_id() if request.id is None else request.id
    if request.id is not None:
        validation.check_id("id", request.id)
    if request.id is not None and change.session.schedules.get(request.id) is not None:
        raise ConflictError("the id of a new schedule is taken")
    schedule = _schedule(change, request, identity)
    trigger = Trigger(id=change.new_id(), tenant_id=change.session.tenant, schedule_id=identity, **cause)
    if trigger.kind != "event":
        first = firing.first_fire(trigger, change.now)
        if first is None:
            raise UsageError("it would never fire: no time matches within its bounds")
        trigger = msgspec.structs.replace(trigger, next_fire_at=first)
    stored = change.named(schedule.name, lambda: change.session.schedules.upsert(schedule))
    if request.id is not None and change.session.triggers.held(identity):
        raise commands.concurrent_change()  # another session has just created it, and its row was replaced here
    change.session.triggers.upsert(trigger)
    change.tell(JOB_CREATED, schedule_id=identity, kind=trigger.kind)
    return change.job(stored)


def _schedule(change: Change, request: ScheduleRequest, identity: UUID) -> Schedule:
    columns = validation.columns_of({name: getattr(request, name) for name in _COLUMNS})
    handler = change.session.handlers.get(request.handler_name)
    if handler is not None:
        columns["queue"] = columns["queue"] or handler.queue
        columns["timeout_ms"] = columns["timeout_ms"] or handler.default_timeout_ms
    return Schedule(
        **columns | {"timeout_ms": columns["timeout_ms"] or DEFAULT_TIMEOUT_MS, "tags": tuple(request.tags) or None},
        id=identity,
        tenant_id=change.session.tenant,
        # As the copy reads a schedule that is not enabled: paused too.
        status="scheduled" if request.enabled else "paused",
        paused_at=None if request.enabled else change.now,
        priority=validation.priority_number(request.priority),
        payload=validation.encode_json("payload", request.payload),
        metadata=validation.encode_json("metadata", request.metadata),
        retry_count=0,
        updated_by=request.created_by,
    )


_BOUNDS = ("start_at", "end_at", "max_fires", "skip_if_overdue", "misfire_policy", "misfire_grace")
_MOVING = ("kind", "cron_expression", "cron_dialect", "timezone", "interval_ms", "anchor", "start_at", "end_at")
"""Columns of a trigger that say when it fires next."""
_NO_TIMING = dict.fromkeys(_MOVING)
_COMPARED = tuple(f"{name}_ms" if kind is timedelta else name for name, kind in get_type_hints(Changes).items())
"""Columns of a schedule that ``ensure`` makes what the request says; whether it is enabled is not among them."""
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(ScheduleRequest)}
_COLUMNS = (
    "name",
    "description",
    "handler_name",
    "handler_type",
    "queue",
    "enabled",
    "max_retries",
    "retry_delay",
    "retry_strategy",
    "retry_cap",
    "on_exhausted",
    "timeout",
    "max_concurrency",
    "tags",
    "created_by",
)
