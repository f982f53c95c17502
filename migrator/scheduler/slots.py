"""The slots of a trigger: the instants at which it is due. Pure; a clock is passed in, never read.

A slot is planned once and stays where it is: a tick that comes late fires the planned slot, and the next one is counted
from it, so that nothing drifts. Bounds hold everywhere: no slot before ``start_at``, none after ``end_at`` (the instant
itself counts), none once ``max_fires`` is reached.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, takewhile

import msgspec

from migrator import cron
from migrator.records import Trigger

MOST_SLOTS = 100
"""Of slots that were missed, only so many are looked at, the newest: what was down for years must not loop."""

_INSTANT = timedelta(microseconds=1)


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger owes at some instant."""

    slots: tuple[datetime, ...]
    """Slots up to now, oldest first, at most ``MOST_SLOTS``."""
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
        found = trigger.run_at
    elif trigger.kind == "cron":
        found = _cron(trigger, now if start is None else start - _INSTANT)
    elif trigger.kind == "interval":
        base = trigger.start_at if trigger.anchor == "fixed_rate" else None
        found = start or _multiple(base or now, _step(trigger), now)
    else:
        found = None
    return bounded(trigger, found)


def next_fire(trigger: Trigger, after: datetime) -> datetime | None:
    """Return the first slot after ``after``; none when there is none, and for events.

    An interval at a fixed rate keeps its phase: it is counted from the planned fire, else from the last one, else from
    ``start_at``. One counted from completion: ``after`` is the completion. Raises ``CronError``.
    """
    if trigger.kind == "one_time":
        found = trigger.run_at if trigger.run_at is not None and trigger.run_at > after else None
    elif trigger.kind == "cron":
        found = _cron(trigger, _not_before(trigger.start_at, after))
    elif trigger.kind == "interval":
        after = _not_before(trigger.start_at, after)
        base = trigger.next_fire_at or trigger.last_fire_at or trigger.start_at
        if counted_from_completion(trigger):
            base = after
        found = _multiple(base or after, _step(trigger), after)
    else:
        found = None
    return bounded(trigger, found)


def due(trigger: Trigger, now: datetime) -> Due:
    """Return what a trigger owes whose planned fire (``next_fire_at``) is not after now.

    ``following`` knows nothing of the fires that this leads to: bound it again when they are counted.
    """
    planned = trigger.next_fire_at
    assert planned is not None  # noqa: S101 - the caller looked
    if trigger.kind == "one_time":
        return Due(slots=(planned,))
    if counted_from_completion(trigger):
        return Due(slots=(planned,), following=next_fire(trigger, now))
    try:
        return _series(trigger, planned, now)
    except cron.CronError as error:
        return Due(slots=(planned,), broken=str(error))


def bounded(trigger: Trigger, fire: datetime | None) -> datetime | None:
    """Return the fire unless it lies after ``end_at``, or the trigger has fired ``max_fires`` times."""
    if fire is None or exhausted(trigger) or (trigger.end_at is not None and fire > trigger.end_at):
        return None
    return fire


def exhausted(trigger: Trigger) -> bool:
    """Tell whether the trigger has fired as often as it may."""
    return trigger.max_fires is not None and trigger.fire_count >= trigger.max_fires


def counted_from_completion(trigger: Trigger) -> bool:
    """Tell whether the next fire is counted from the end of the last run."""
    return trigger.kind == "interval" and trigger.anchor != "fixed_rate"


def _series(trigger: Trigger, planned: datetime, now: datetime) -> Due:
    """Return what a cron line, or an interval at a fixed rate, owes."""
    slots = tuple(islice(takewhile(lambda slot: slot <= now, _onwards(trigger, planned)), MOST_SLOTS + 1))
    passed = None
    if len(slots) > MOST_SLOTS:
        passed, slots = planned, _newest(trigger, planned, now)
    return Due(
        slots=tuple(slot for slot in slots if _within(trigger, slot)),
        passed=passed,
        following=next_fire(trigger, now),
    )


def _onwards(trigger: Trigger, slot: datetime) -> Iterator[datetime]:
    following: datetime | None = slot
    while following is not None:
        yield following
        following = next_fire(trigger, following)


def _newest(trigger: Trigger, planned: datetime, now: datetime) -> tuple[datetime, ...]:
    """Return the newest slots up to now, without walking there from the planned one."""
    found: list[datetime] = []
    before: datetime | None = now + _INSTANT if trigger.end_at is None else min(now, trigger.end_at) + _INSTANT
    while before is not None and len(found) < MOST_SLOTS:
        before = _previous(trigger, planned, before)
        if before is None or before < planned:
            break
        found.append(before)
    return tuple(reversed(found))


def _previous(trigger: Trigger, planned: datetime, before: datetime) -> datetime | None:
    if trigger.kind == "interval":
        step = _step(trigger)
        return None if step is None or before <= planned else planned + (before - planned - _INSTANT) // step * step
    assert trigger.cron_dialect is not None  # noqa: S101 - a CHECK of the table
    assert trigger.cron_expression is not None  # noqa: S101 - as above
    return cron.previous_fire(trigger.cron_dialect, trigger.cron_expression, trigger.timezone, before)


def _not_before(start: datetime | None, after: datetime) -> datetime:
    """Return what a slot must come after, so that it is not before ``start`` either."""
    return after if start is None else max(after, start - _INSTANT)


def _within(trigger: Trigger, slot: datetime) -> bool:
    return not (
        (trigger.start_at is not None and slot < trigger.start_at)
        or (trigger.end_at is not None and slot > trigger.end_at)
    )


def _cron(trigger: Trigger, after: datetime) -> datetime | None:
    assert trigger.cron_dialect is not None  # noqa: S101 - a CHECK of the table
    assert trigger.cron_expression is not None  # noqa: S101 - as above
    return cron.next_fire(trigger.cron_dialect, trigger.cron_expression, trigger.timezone, after)


def _step(trigger: Trigger) -> timedelta | None:
    """Return the interval; none for one that is longer than time is."""
    assert trigger.interval_ms is not None  # noqa: S101 - a CHECK of the table
    try:
        return timedelta(milliseconds=trigger.interval_ms)
    except OverflowError:
        return None


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
