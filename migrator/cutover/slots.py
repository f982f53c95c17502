"""Slots that both sides of a parallel run fired: inferred where the old side keeps none, and compared. Pure.

A slot is a schedule, and a time at which one of its triggers is due. Where the old side says only when it acted, the
slot is the due time nearest to that, within a tolerance; of two that are equally near, the earlier, because a scheduler
acts after the time at which it should.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from migrator.cron import CronError
from migrator.records import Trigger
from migrator.scheduler import firing

ScheduleKey = tuple[str, UUID]
"""Tenant and id of a schedule."""
Slot = tuple[ScheduleKey, datetime]
"""A schedule, and the time for which it fired."""

MOST: Final = 10_000
"""Due times that one move of a next fire may pass over; of more, the rest is left out."""
_INSTANT: Final = timedelta(microseconds=1)
_FIRST_WINDOW: Final = timedelta(seconds=1)
"""The first distance at which due times are looked for; it is doubled up to the tolerance."""


class OldSlots(msgspec.Struct, frozen=True, kw_only=True):
    """What the old side fired."""

    slots: tuple[Slot, ...] = ()
    """Slots that its runs name."""
    inferred: tuple[Slot, ...] = ()
    """Slots that nothing names."""
    unmatched: tuple[Slot, ...] = ()
    """When the old side acted, where no due time is near enough."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What both sides fired in a period."""

    matched: int
    inferred: int = 0
    """Matched slots that are inferred on the old side."""
    missing: tuple[Slot, ...]
    """The old side fired, the new one did not."""
    extra: tuple[Slot, ...]
    """The new side fired, the old one did not."""
    duplicate: tuple[Slot, ...]
    """One side fired it more than once."""
    unmatched: tuple[Slot, ...] = ()
    """When the old side acted, where no due time is near enough."""

    @property
    def clean(self) -> bool:
        """Whether both sides fired the same slots, each once."""
        return not (self.missing or self.extra or self.duplicate or self.unmatched)


def compare(
    old: Iterable[Slot], new: Iterable[Slot], *, inferred: Iterable[Slot] = (), unmatched: Iterable[Slot] = ()
) -> Comparison:
    """Compare the slots of first attempts of both sides; ``inferred``: more of the old side, which no run names."""
    guessed = Counter(inferred)
    before, after = Counter(old) + guessed, Counter(new)
    matched = {slot for slot in before if before[slot] == after[slot] == 1}
    return Comparison(
        matched=len(matched),
        inferred=sum(slot in guessed for slot in matched),
        missing=tuple(sorted(slot for slot in before if slot not in after)),
        extra=tuple(sorted(slot for slot in after if slot not in before)),
        duplicate=tuple(sorted({slot for side in (before, after) for slot in side if side[slot] > 1})),
        unmatched=tuple(sorted(unmatched)),
    )


def infer(
    acted: Iterable[Slot], triggers: Mapping[ScheduleKey, Sequence[Trigger]], tolerance: timedelta
) -> tuple[list[Slot], list[Slot]]:
    """Return the slots for which the old side acted, and when it acted without one.

    ``acted``: schedules, and the times at which the old side acted for them; ``triggers``: those of each schedule.
    """
    slots: list[Slot] = []
    unmatched: list[Slot] = []
    for schedule, at in acted:
        due = [slot for one in triggers.get(schedule, ()) if (slot := nearest_slot(one, at, tolerance)) is not None]
        if due:
            slots.append((schedule, min(due, key=lambda slot: (abs(slot - at), slot))))
        else:
            unmatched.append((schedule, at))
    return slots, unmatched


def following_slots(trigger: Trigger, after: datetime, until: datetime) -> list[datetime]:
    """Return the due times of a trigger after one instant and before another, at most ``MOST``; none if it has none."""
    if trigger.kind not in ("cron", "interval") or firing.counted_from_completion(trigger):
        return []
    base = msgspec.structs.replace(trigger, max_fires=None, next_fire_at=after)
    slots: list[datetime] = []
    try:
        slot = firing.next_fire(base, after)
        while slot is not None and slot < until and len(slots) < MOST:
            slots.append(slot)
            slot = firing.next_fire(base, slot)
    except CronError:
        return []
    return slots


def nearest_slot(trigger: Trigger, at: datetime, tolerance: timedelta) -> datetime | None:
    """Return the due time of a trigger that is nearest to an instant; None if none is within the tolerance.

    How often the trigger has fired does not count. None for an event, for an interval that is counted from completion,
    and for a line that no dialect takes: they have no due times of their own.
    """
    if trigger.kind == "one_time":
        near = [] if trigger.run_at is None else [trigger.run_at]
    elif trigger.kind == "interval":
        near = _multiples(trigger, at)
    elif trigger.kind == "cron":
        near = _cron_slots(trigger, at, tolerance)
    else:
        near = []
    bound = [slot for slot in near if abs(slot - at) <= tolerance and _within(trigger, slot)]
    return min(bound, key=lambda slot: (abs(slot - at), slot), default=None)


def _multiples(trigger: Trigger, at: datetime) -> list[datetime]:
    """Return the due times of an interval at a fixed rate that are next to an instant."""
    base = trigger.next_fire_at or trigger.last_fire_at or trigger.start_at
    step = trigger.interval
    if base is None or not step or firing.counted_from_completion(trigger):
        return []
    before = (at - base) // step
    try:
        return [base + (before + number) * step for number in range(2)]
    except OverflowError:
        return []


def _cron_slots(trigger: Trigger, at: datetime, tolerance: timedelta) -> list[datetime]:
    """Return the due times of a cron line around an instant: those of the smallest distance that has any."""
    free = msgspec.structs.replace(trigger, max_fires=None)
    distance = min(_FIRST_WINDOW, tolerance)
    while True:
        slots: list[datetime] = []
        try:
            slot = firing.next_fire(free, at - distance - _INSTANT)
            while slot is not None and slot <= at + distance:
                slots.append(slot)
                slot = firing.next_fire(free, slot)
        except (CronError, OverflowError):
            return []
        if slots or distance >= tolerance:
            return slots
        distance = min(2 * distance, tolerance)


def _within(trigger: Trigger, slot: datetime) -> bool:
    return (trigger.start_at is None or slot >= trigger.start_at) and (trigger.end_at is None or slot <= trigger.end_at)
