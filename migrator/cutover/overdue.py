"""Triggers that are late at the cutover: how many there are, and what is done about them, as the operator decides."""

from contextlib import closing
from datetime import datetime, timedelta
from typing import Final

import msgspec
from psycopg import sql

from migrator.config import Settings
from migrator.connections.postgres import Connection, fetch_value
from migrator.errors import MigratorError
from migrator.records import Schedule, Trigger
from migrator.scheduler import firing
from migrator.states import SCHEDULE_FIRING
from migrator.store import open_side
from migrator.store.postgres.rows import interval, literals, table
from migrator.store.queue import SCRATCH, Fire, FirePlan

BATCH: Final = 10_000

_OF_LATE: Final = sql.SQL(
    " FROM scheduler.triggers JOIN scheduler.schedules ON schedules.id = triggers.schedule_id"
    " AND schedules.tenant_id = triggers.tenant_id"
    " WHERE triggers.enabled AND schedules.enabled AND schedules.deleted_at IS NULL"
    " AND schedules.status IN ({}) AND NOT starts_with(triggers.tenant_id, {})"
    " AND triggers.next_fire_at + {} < clock_timestamp()"
).format(
    sql.SQL(literals(SCHEDULE_FIRING)),
    sql.Literal(SCRATCH),
    sql.SQL(interval(f"coalesce(misfire_grace_ms, {firing.GRACE // timedelta(milliseconds=1)})")),
)


_OVERDUE: Final = sql.SQL("SELECT count(*)") + _OF_LATE
_LATE_TRIGGERS: Final = (
    sql.SQL("SELECT clock_timestamp(), ") + table(Trigger).qualified("triggers") + _OF_LATE + sql.SQL(" ORDER BY 2, 3")
)


def count_late(target: Connection) -> int:
    """Return the number of triggers that are late beyond their grace, by the target's clock."""
    return int(fetch_value(target, _OVERDUE))


def unplannable(target: Connection, policy: str) -> list[str]:
    """Return the late triggers whose fire under a policy cannot be computed, as ids with tenants; changes nothing."""
    if policy == "keep":
        return []
    plan, refused = fire_plan(policy), list[str]()
    with target.cursor(name="late_triggers") as rows, target.transaction():
        rows.execute(_LATE_TRIGGERS)
        for now, *columns in rows:
            trigger = table(Trigger).read(columns)
            schedule = Schedule(id=trigger.schedule_id, tenant_id=trigger.tenant_id, name="", status="scheduled")
            try:
                plan(schedule, trigger, 0, now)
            except (ValueError, ArithmeticError, MigratorError):
                refused.append(f"{trigger.id} of tenant {trigger.tenant_id}")
    return refused


def describe(count: int, policy: str) -> str:
    """Describe what will be done about them."""
    ends = {
        "fire_once": "each makes one run for all missed slots",
        "skip": "each continues with its next slot, and a skipped run records it",
        "keep": "each applies its own misfire policy",
    }
    return f"{count:,} triggers are overdue; {ends[policy]}" if count else "no trigger is overdue"


def fire_late(settings: Settings, target: Connection, policy: str) -> int:
    """Fire late triggers once, or skip them; return how many there were. Called again, it finds none.

    It runs before PostgreSQL is open to others. The scheduler fires triggers that are due and not late.
    """
    count = count_late(target)
    if policy == "keep" or not count:
        return count
    with closing(open_side(settings, "postgres")) as store:  # the epoch is still closed
        while (before := count_late(target)) > 0:
            store.queue.fire_due(fire_plan(policy), BATCH)
            if count_late(target) >= before:
                break  # the rest cannot be moved: their line cannot be evaluated, and they are disabled by now
    return count


def fire_plan(policy: str) -> FirePlan:
    """Return the plan that treats late triggers alike, whatever their own policy is, and leaves others alone."""

    def plan(schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        grace = firing.GRACE.total_seconds() * 1000 if trigger.misfire_grace_ms is None else trigger.misfire_grace_ms
        due = trigger.next_fire_at
        if due is None or (now - due).total_seconds() * 1000 <= grace:
            return Fire(runs=(), trigger=trigger)
        alike = msgspec.structs.replace(trigger, misfire_policy=policy, skip_if_overdue=policy == "skip")
        made = firing.plan(schedule, alike, live_runs, now)
        kept = msgspec.structs.replace(
            made.trigger, misfire_policy=trigger.misfire_policy, skip_if_overdue=trigger.skip_if_overdue
        )
        return msgspec.structs.replace(made, trigger=kept)

    return plan
