"""Which slots of a trigger are due, what a due trigger leads to, and what moves its next fire. Pure: no clock is read.

A slot is an instant at which a trigger is due. It is planned once and stays where it is: a tick that comes late fires
the planned slot, and the next one is counted from it, so that nothing drifts. Bounds hold everywhere: no slot before
``start_at``, none after ``end_at`` (the instant itself counts), none once ``max_fires`` is reached.

Which slots fire (``docs/scheduler.md`` says it with examples):

- A slot is late once it is older than the grace (``misfire_grace_ms``, one minute if omitted). What is not
  late fires, each slot its own run. What is late goes by ``misfire_policy``: ``fire_once`` (also if omitted)
  makes one run for all of them, or none where a slot that is not late fires anyway; ``skip`` makes none
  (``skip_if_overdue`` says the same); ``fire_all`` makes one for each, of the newest ``MAX_SLOTS``. What is
  passed over leaves one run in state skipped, which says from when to when.
- A slot that meets as many live runs as the schedule may have is skipped: a run in state skipped says so, and the
  trigger goes on. Not so a one-time slot, and what ``fire_all`` catches up with: they queue up.
- ``max_fires`` counts runs that were queued, not those skipped.
- A clock that was set back: nothing is due until it reaches the planned fire again, so nothing fires twice.

Nothing else moves a next fire, but the calls at the end of this module.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import msgspec

from migrator import cron
from migrator.constraints import most_of
from migrator.cron import CronError
from migrator.records import Run, Schedule, Trigger
from migrator.store.queue import Fire
from migrator.values import jsonb
from migrator.values.times import format_iso

MAX_SLOTS = 100
"""Of slots that were missed, only so many are looked at, the newest: what was down for years must not loop."""

_INSTANT = timedelta(microseconds=1)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a trigger that are due at some instant, and the one after it."""

    slots: tuple[datetime, ...]
    """Slots up to now, oldest first, at most ``MAX_SLOTS``."""
    passed: datetime | None = None
    """The oldest slot, where it is older than those that are listed."""
    following: datetime | None = None
    """The first slot after now; for one counted from completion, if its run ended at once."""
    broken: str | None = None
    """Why no slot can be found any more: the dialect does not take the line, or the zone is unknown."""


def first_fire(trigger: Trigger, now: datetime) -> datetime | None:
    """Return the first fire of a trigger that is new or was given another timing; none when it never fires.

    cron: the first slot after now, not before ``start_at``. interval: ``start_at`` while it is not past; then the next
    multiple counted from it at a fixed rate, else one interval from now. one_time: ``run_at``, past or not. event:
    none. Raises ``CronError``.
    """
    start = trigger.start_at if trigger.start_at is not None and trigger.start_at >= now else None
    if trigger.kind == "one_time":
        fire = trigger.run_at
    elif trigger.kind == "cron":
        fire = _cron(trigger, now if start is None else _just_before(start))
    elif trigger.kind == "interval":
        base = trigger.start_at if trigger.anchor == "fixed_rate" else None
        fire = start or _multiple(base or now, trigger.interval, now)
    else:
        fire = None
    return bounded(trigger, fire)


def next_fire(trigger: Trigger, after: datetime) -> datetime | None:
    """Return the first slot after ``after``; none when there is none, and for events.

    An interval at a fixed rate keeps its phase: it is counted from the planned fire, else from the last one, else from
    ``start_at``. One counted from completion: ``after`` is the completion. Raises ``CronError``.
    """
    if trigger.kind == "one_time":
        fire = trigger.run_at if trigger.run_at is not None and trigger.run_at > after else None
    elif trigger.kind == "cron":
        fire = _cron(trigger, _not_before(trigger.start_at, after))
    elif trigger.kind == "interval":
        after = _not_before(trigger.start_at, after)
        base = trigger.next_fire_at or trigger.last_fire_at or trigger.start_at
        if counted_from_completion(trigger):
            base = after
        fire = _multiple(base or after, trigger.interval, after)
    else:
        fire = None
    return bounded(trigger, fire)


def upcoming(trigger: Trigger, count: int) -> list[datetime]:
    """Return the next slots of an enabled trigger, at most ``count``, from the planned one on.

    Of an interval that is counted from completion only the planned one: the others depend on when its runs end.
    """
    fires: list[datetime] = []
    left = count if trigger.max_fires is None else min(count, trigger.max_fires - trigger.fire_count)
    at = trigger.next_fire_at if trigger.enabled else None
    while at is not None and len(fires) < left:
        fires.append(at)
        try:
            at = None if counted_from_completion(trigger) else next_fire(trigger, at)
        except CronError:
            at = None
    return fires


def due(trigger: Trigger, now: datetime) -> Due:
    """Return the due slots of a trigger whose planned fire (``next_fire_at``) is not after now.

    ``following`` knows nothing of the fires that this leads to: bound it again when they are counted.
    """
    planned = trigger.next_fire_at
    assert planned is not None  # noqa: S101 - the caller looked
    if trigger.kind == "one_time":
        return Due(slots=(planned,))
    if counted_from_completion(trigger):
        return Due(slots=(planned,), following=next_fire(trigger, now))
    try:
        return _due_series(trigger, planned, now)
    except cron.CronError as error:
        return Due(slots=(planned,), broken=str(error))


def bounded(trigger: Trigger, fire: datetime | None) -> datetime | None:
    """Return the fire unless it lies after ``end_at``, or the trigger has fired ``max_fires`` times."""
    if fire is None or exhausted(trigger) or (trigger.end_at is not None and fire > trigger.end_at):
        return None
    return fire


def exhausted(trigger: Trigger) -> bool:
    """Whether the trigger has fired as often as it may."""
    return trigger.max_fires is not None and trigger.fire_count >= trigger.max_fires


def counted_from_completion(trigger: Trigger) -> bool:
    """Whether the next fire is counted from the end of the last run."""
    return trigger.kind == "interval" and trigger.anchor != "fixed_rate"


def _due_series(trigger: Trigger, planned: datetime, now: datetime) -> Due:
    """Return the due slots of a cron line, or of an interval at a fixed rate."""
    slots = _slots(trigger, planned, now, MAX_SLOTS + 1)
    passed = None
    if len(slots) > MAX_SLOTS:
        passed, slots = planned, _newest_slots(trigger, slots, now)
    return Due(
        slots=tuple(slot for slot in slots if _within(trigger, slot)),
        passed=passed,
        following=next_fire(trigger, now),
    )


def _slots(trigger: Trigger, first: datetime | None, now: datetime, most: int) -> list[datetime]:
    """Return the slots from ``first`` up to now, oldest first, ``most`` of them."""
    slots: list[datetime] = []
    while first is not None and first <= now and len(slots) < most:
        slots.append(first)
        first = next_fire(trigger, first)
    return slots


def _newest_slots(trigger: Trigger, oldest: Sequence[datetime], now: datetime) -> list[datetime]:
    """Return the newest slots up to now, without walking there from the oldest ones.

    The instant from which they are listed is moved until as many follow it as are wanted, and at most twice as many.
    """
    earliest, latest = _just_before(oldest[0]), now if trigger.end_at is None else min(now, trigger.end_at)
    start = latest - min(latest - earliest, 3 * (oldest[-1] - oldest[0]) / 2)
    while True:
        slots = _slots(trigger, next_fire(trigger, start), now, 2 * MAX_SLOTS + 1)
        if len(slots) > 2 * MAX_SLOTS:
            earliest = start
        elif len(slots) < MAX_SLOTS:
            latest = start
        else:
            return slots[-MAX_SLOTS:]
        start = earliest + (latest - earliest) / 2


def _not_before(start: datetime | None, after: datetime) -> datetime:
    """Return the instant that a slot must come after, so that it is not before ``start`` either."""
    return after if start is None else max(after, _just_before(start))


def _just_before(instant: datetime) -> datetime:
    """Return the instant before; the first one that a column holds has none, and is its own."""
    return instant if instant <= _BEGINNING else instant - _INSTANT


def _within(trigger: Trigger, slot: datetime) -> bool:
    return not (
        (trigger.start_at is not None and slot < trigger.start_at)
        or (trigger.end_at is not None and slot > trigger.end_at)
    )


def _cron(trigger: Trigger, after: datetime) -> datetime | None:
    assert trigger.cron_dialect is not None  # noqa: S101 - a CHECK of the table
    assert trigger.cron_expression is not None  # noqa: S101 - as above
    return cron.next_fire(trigger.cron_dialect, trigger.cron_expression, trigger.timezone, after)


def _multiple(base: datetime, step: timedelta | None, after: datetime) -> datetime | None:
    """Return the first of ``base`` and whole steps after it that comes after ``after``."""
    if base > after:
        return base
    if step is None:
        return None
    try:
        return base + ((after - base) // step + 1) * step
    except OverflowError:
        return None


GRACE = timedelta(minutes=1)
"""How old a slot may be before it is late, where the trigger does not say."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def plan(schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
    """Decide what a due trigger leads to (``store.queue.FirePlan``); a trigger that is not due is left as it is.

    One whose line cannot be evaluated any more fires what is due, and is disabled: it must not hold up the others.
    """
    if trigger.next_fire_at is None or trigger.next_fire_at > now or trigger.kind == "event" or not trigger.enabled:
        return Fire(runs=(), trigger=trigger)
    due_slots = due(trigger, now)
    if live_runs and counted_from_completion(trigger):
        return _fired(schedule, trigger, (), due_slots.following)  # it counts from the end of what still runs
    fires, misses = _chosen(trigger, due_slots, now)
    left = None if trigger.max_fires is None else max(trigger.max_fires - trigger.fire_count, 0)
    runs = [_run(trigger, miss, "skipped", now) for miss in misses]
    queued = 0
    for fire in fires:
        if queued == left:
            break
        if fire.waits or schedule.max_concurrency is None or live_runs + queued < schedule.max_concurrency:
            runs.append(_run(trigger, fire, "queued", now))
            queued += 1
        else:
            runs.append(_run(trigger, _Slot(at=fire.at, reason={"skipped": "concurrency"}), "skipped", now))
    if due_slots.broken is not None:
        trigger = msgspec.structs.replace(trigger, enabled=False)
    return _fired(schedule, trigger, runs, due_slots.following)


class _Slot(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    reason: dict[str, Any] | None = None
    waits: bool = False
    """Queues up, however many runs are live."""


def _chosen(trigger: Trigger, due_slots: Due, now: datetime) -> tuple[list[_Slot], list[_Slot]]:
    """Return the slots that are to fire, and those that only say what was passed over; oldest first."""
    grace = GRACE if trigger.misfire_grace_ms is None else trigger.misfire_grace
    overdue = [slot for slot in due_slots.slots if grace is not None and now - slot > grace]
    on_time = [_Slot(at=slot, waits=trigger.kind == "one_time") for slot in due_slots.slots[len(overdue) :]]
    broken = {} if due_slots.broken is None else {"triggerDisabled": due_slots.broken}
    if broken and on_time:
        on_time[-1] = msgspec.structs.replace(on_time[-1], reason=broken)
    if not overdue and due_slots.passed is None:
        return on_time, []
    policy = "skip" if trigger.skip_if_overdue else trigger.misfire_policy or "fire_once"
    missed = overdue if due_slots.passed is None else [due_slots.passed, *overdue]
    span = {"from": format_iso(missed[0]), "to": format_iso(missed[-1])} | broken
    if policy == "skip":
        return on_time, [_Slot(at=missed[-1], reason={"skipped": "misfire"} | span)]
    if policy == "fire_once":
        one = _Slot(at=missed[-1], reason={"misfire": policy} | span, waits=trigger.kind == "one_time")
        return on_time or [one], []
    passed = [] if due_slots.passed is None else [_Slot(at=due_slots.passed, reason={"skipped": "misfire"} | span)]
    return [_Slot(at=slot, waits=True, reason={"misfire": policy} | broken) for slot in overdue] + on_time, passed


def _fired(schedule: Schedule, trigger: Trigger, runs: Sequence[Run], following: datetime | None) -> Fire:
    fired = [run.scheduled_at for run in runs if run.state == "queued" and run.scheduled_at is not None]
    last = max([*fired, *([] if trigger.last_fire_at is None else [trigger.last_fire_at])], default=None)
    trigger = msgspec.structs.replace(
        trigger, fire_count=min(trigger.fire_count + len(fired), most_of("triggers.fire_count")), last_fire_at=last
    )
    trigger = msgspec.structs.replace(trigger, next_fire_at=bounded(trigger, following))
    # A schedule whose trigger is through is running until its last run has ended (``completion.end_schedule``); the
    # ones that go on stay scheduled, so that they can be paused.
    status = "running" if trigger.next_fire_at is None else "scheduled"
    changes = schedule.status == "pending" or (schedule.status == "scheduled" and status == "running")
    return Fire(runs=tuple(runs), trigger=trigger, schedule_status=status if changes else None)


def _run(trigger: Trigger, slot: _Slot, state: str, now: datetime) -> Run:
    identity = slot_run_id(trigger.id, slot.at)
    return Run(
        id=identity,
        tenant_id=trigger.tenant_id,
        schedule_id=trigger.schedule_id,
        trigger_id=trigger.id,
        attempt=1,
        cause=trigger.kind,
        state=state,
        scheduled_at=slot.at,
        available_at=slot.at if state == "queued" else None,
        created_at=now,
        finished_at=now if state == "skipped" else None,
        reason=None if slot.reason is None else jsonb.encode(slot.reason),
        trace_id=identity.hex,
        span_id=uuid5(identity, "span").hex[:16],
        triggered_by="scheduler",
        updated_at=now,
    )


def slot_run_id(trigger_id: UUID, slot: datetime, attempt: int = 1) -> UUID:
    """Return the id of the run of a slot: the same on every backend and in every process."""
    return uuid5(trigger_id, f"{(slot - _EPOCH) // _MILLISECOND}/{attempt}")


def with_next_fire(trigger: Trigger, now: datetime) -> Trigger:
    """Give a trigger that has no next fire the one it should have; else return it as it is.

    For rows that were moved from a source which does not say it. Never now, and nothing that was missed: the first slot
    after now, in the phase of the last fire where there is one. A one-time slot that never fired keeps its time, past
    or not; the misfire policy decides. Left alone: events, disabled ones, those that fired as often as they may or have
    ended, and lines that no dialect takes.
    """
    if trigger.next_fire_at is not None or not trigger.enabled or trigger.kind == "event":
        return trigger
    if trigger.kind == "one_time" and (trigger.fire_count or trigger.last_fire_at is not None):
        return trigger
    fired = trigger.last_fire_at is not None and not counted_from_completion(trigger)
    try:
        fire = next_fire(trigger, now) if fired else first_fire(trigger, now)
    except CronError:
        return trigger
    return msgspec.structs.replace(trigger, next_fire_at=fire)


def resumed(trigger: Trigger, now: datetime) -> Trigger:
    """Return the trigger of a schedule that was paused or disabled, and may fire again.

    What fell into the pause is passed over, unless the trigger itself states ``fire_once`` or ``fire_all``: then it
    stays planned, and the next tick goes by that policy. The phase stays: the next fire is a slot it would have had
    anyway. One that lies ahead is not touched, and a one-time slot is not lost. Raises ``CronError``.
    """
    planned = trigger.next_fire_at
    if planned is None:
        return with_next_fire(trigger, now)
    stated = trigger.misfire_policy in {"fire_once", "fire_all"} and not trigger.skip_if_overdue
    if planned > now or trigger.kind == "one_time" or stated:
        return trigger
    on_a_grid = msgspec.structs.replace(trigger, anchor="fixed_rate") if trigger.kind == "interval" else trigger
    return msgspec.structs.replace(trigger, next_fire_at=next_fire(on_a_grid, now))


def completed(trigger: Trigger, ended: datetime) -> Trigger:
    """Return the trigger after its run ended: an interval counted from completion begins anew; others stay."""
    if not counted_from_completion(trigger) or trigger.next_fire_at is None:
        return trigger
    since = ended if trigger.last_fire_at is None else max(ended, trigger.last_fire_at)
    return msgspec.structs.replace(trigger, next_fire_at=next_fire(trigger, since))
