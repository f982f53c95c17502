"""What both sides of a parallel run fired, as the rows say: read for a period, inferred where necessary, compared."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, LiteralString
from uuid import UUID

from migrator.connections.postgres import Connection, fetch_structs
from migrator.cutover.slots import Comparison, OldSlots, ScheduleKey, Slot, compare, following_slots, infer
from migrator.pipeline.tail import planned_fires
from migrator.records import Trigger
from migrator.sources.profile import Profile

_MILLISECOND: Final = timedelta(milliseconds=1)
_OF_TRIGGERS: Final = ("cron", "interval", "one_time")
"""Causes of runs that have a slot."""

_OLD_RUNS: LiteralString = """
SELECT schedule_tenant_id, schedule_id, scheduled_at, coalesce(started_at, created_at) FROM scheduler.runs
WHERE source IS NOT NULL AND schedule_id IS NOT NULL AND coalesce(attempt, 1) = 1 AND retry_of IS NULL
    AND state <> 'skipped' AND (scheduled_at >= %(began)s AND scheduled_at < %(ended)s
        OR scheduled_at IS NULL AND coalesce(cause, 'cron') = ANY (%(caused)s)
            AND coalesce(started_at, created_at) >= %(began)s::timestamptz - %(tolerance)s::interval
            AND coalesce(started_at, created_at) < %(ended)s::timestamptz + %(tolerance)s::interval)
"""
_NEW_RUNS: LiteralString = """
SELECT schedule_tenant_id, schedule_id, scheduled_at FROM scheduler.runs
WHERE source IS NULL AND scheduled_at >= %(began)s AND scheduled_at < %(ended)s AND coalesce(attempt, 1) = 1
    AND schedule_id IS NOT NULL AND state <> 'skipped'
"""
_SCHEDULES: LiteralString = "SELECT source, source_id, tenant_id, id FROM scheduler.schedules WHERE source = ANY(%s)"
TIMING: LiteralString = (
    "t.id, t.tenant_id, t.schedule_id, t.kind, t.cron_expression, t.cron_dialect, t.timezone, t.interval_ms, t.anchor,"
    " t.run_at, t.start_at, t.end_at, t.enabled, t.next_fire_at, t.last_fire_at"
)
"""The columns of a trigger that say when it fires."""
_TRIGGERS: LiteralString = (
    f"SELECT {TIMING} FROM scheduler.triggers AS t"  # noqa: S608 - our own text
    " WHERE (t.tenant_id, t.schedule_id) IN (SELECT * FROM unnest(%s::text[], %s::uuid[]))"
)
_BEGAN: LiteralString = """
SELECT t.tenant_id, t.schedule_id, min(p.began_at) FROM scheduler.parallel_triggers AS p
JOIN scheduler.triggers AS t ON t.id = p.id AND t.tenant_id = p.tenant_id
WHERE p.began_at IS NOT NULL GROUP BY t.tenant_id, t.schedule_id
"""


def compare_fired(
    target: Connection, profile: Profile, began: datetime, ended: datetime, tolerance: timedelta
) -> Comparison:
    """Compare the slots of a period: what came from the source, and runs that were created on PostgreSQL.

    They are compared in whole milliseconds. A schedule is compared from the first slot that a process on PostgreSQL
    planned for it. ``tolerance``: how far a run
    of the old side may have begun from the slot that is inferred for it.
    """
    began, ended = stored_slot(began) + _MILLISECOND, stored_slot(ended)
    first: dict[ScheduleKey, datetime] = {
        (tenant, schedule): stored_slot(at) for tenant, schedule, at in target.execute(_BEGAN).fetchall()
    }

    def begun(slots: Iterable[Slot]) -> Iterator[Slot]:
        kept = ((schedule, stored_slot(at)) for schedule, at in slots)
        return (one for one in kept if one[1] >= first.get(one[0], began))

    old = old_slots(target, profile, began, ended, tolerance)
    runs = target.execute(_NEW_RUNS, {"began": began, "ended": ended}).fetchall()
    new: list[Slot] = [((tenant, schedule), slot) for tenant, schedule, slot in runs]
    return compare(begun(old.slots), begun(new), inferred=begun(old.inferred), unmatched=begun(old.unmatched))


def stored_slot(at: datetime) -> datetime:
    """Return a slot as a run that is created here stores it: in whole milliseconds."""
    return at.replace(microsecond=at.microsecond // 1_000 * 1_000)


def old_slots(target: Connection, profile: Profile, began: datetime, ended: datetime, tolerance: timedelta) -> OldSlots:
    """Return the slots that the old side fired in a period. Runs that a person or an event caused have no slot."""
    if profile.slots == "moves":
        return _inferred(target, _moves(target, profile), (), began, ended, tolerance)
    period = {"began": began, "ended": ended, "tolerance": tolerance, "caused": [*_OF_TRIGGERS]}
    rows: list[tuple[str, UUID, datetime | None, datetime | None]] = target.execute(_OLD_RUNS, period).fetchall()
    acted: list[Slot] = [((tenant, key), at) for tenant, key, slot, at in rows if slot is None and at is not None]
    named: list[Slot] = [((tenant, key), slot) for tenant, key, slot, _ in rows if slot is not None]
    return _inferred(target, acted, named, began, ended, tolerance)


def _moves(target: Connection, profile: Profile) -> list[Slot]:
    """Return the slots from which the next fires of the source moved on, as far as their schedules are stored."""
    rows = target.execute(_SCHEDULES, ([profile.source_of(one.name) for one in profile.collections],)).fetchall()
    schedules: dict[tuple[str, str], ScheduleKey] = {
        (source, named): (tenant, identity) for source, named, tenant, identity in rows
    }
    triggers = _triggers(target, schedules.values())
    slots: list[Slot] = []
    for move in planned_fires.taken(planned_fires.recorded(target)):
        schedule = schedules.get((profile.source_of(move.collection), move.source_id))
        if schedule is not None:
            passed = {
                slot
                for trigger in triggers.get(schedule, ())
                for slot in following_slots(trigger, move.slot, move.until)
            }
            slots += [(schedule, slot) for slot in (move.slot, *sorted(passed))]
    return slots


def _inferred(
    target: Connection,
    acted: Sequence[Slot],
    named: Sequence[Slot],
    began: datetime,
    ended: datetime,
    tolerance: timedelta,
) -> OldSlots:
    inferred, unmatched = infer(acted, _triggers(target, {schedule for schedule, _ in acted}), tolerance)
    return OldSlots(
        slots=tuple(named),
        inferred=tuple(one for one in inferred if began <= one[1] < ended),
        unmatched=tuple(one for one in unmatched if began <= one[1] < ended),
    )


def _triggers(target: Connection, schedules: Iterable[ScheduleKey]) -> dict[ScheduleKey, list[Trigger]]:
    triggers: dict[ScheduleKey, list[Trigger]] = defaultdict(list)
    asked = [*schedules]
    given = ([tenant for tenant, _ in asked], [identity for _, identity in asked])
    for one in fetch_structs(target, Trigger, _TRIGGERS, given):
        if one.schedule_id is not None:
            triggers[one.tenant_id, one.schedule_id].append(one)
    return triggers
