"""The end of a parallel run: the new side goes on where the old side stopped, so that no slot is lost or fired twice.

While both sides ran, runs of handlers that are not idempotent ended here without their handler. Of the slots that the
old side has taken, none may call its handler here afterwards. A slot that it has not taken must still do so: the run
that stands in its way is removed, and its trigger fires again. A handler that is idempotent was called: its runs stay.
"""

from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

import msgspec

from migrator import states
from migrator.connections.postgres import Connection
from migrator.cron import CronError
from migrator.cutover.fired_slots import TIMING, old_slots, stored_slot
from migrator.cutover.journal import database_time
from migrator.cutover.slots import ScheduleKey
from migrator.records import Trigger
from migrator.scheduler import firing
from migrator.scheduler.executor import DRY_RUN
from migrator.sources.profile import Profile
from migrator.store.postgres import parallel_run

_HANDLER: LiteralString = """
SELECT h.idempotent FROM scheduler.handlers AS h
WHERE h.name = coalesce(nullif(s.handler_name, ''), s.mode) AND h.tenant_id IN (r.tenant_id, '*')
ORDER BY h.tenant_id = '*' LIMIT 1
"""
_UNDECIDED: LiteralString = f"""
SELECT r.id, r.tenant_id, r.trigger_id, r.scheduled_at, r.state FROM scheduler.runs AS r
JOIN scheduler.schedules AS s ON s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id
WHERE r.source IS NULL AND s.source IS NOT NULL AND r.created_at >= %(began)s AND r.scheduled_at IS NOT NULL
    AND r.trigger_id IS NOT NULL
    AND (r.state IN ('queued', 'running') OR r.state = 'completed' AND r.result = %(dry)s::jsonb)
    AND NOT coalesce(({_HANDLER}), false)
FOR UPDATE OF r
"""  # noqa: S608 - our own text
"""Runs whose handler is not idempotent, and was not called."""
_SKIP: LiteralString = """
UPDATE scheduler.runs SET state = CASE WHEN state = 'queued' THEN 'skipped' ELSE 'completed' END,
    result = CASE WHEN state = 'queued' THEN result ELSE %(dry)s::jsonb END,
    reason = CASE WHEN state = 'queued' THEN '{"skipped": "parallel run"}'::jsonb ELSE reason END,
    fence = coalesce(fence, 0) + 1, lease_expires_at = NULL, finished_at = clock_timestamp(),
    updated_at = clock_timestamp()
WHERE (id, tenant_id) IN (SELECT * FROM unnest(%(ids)s::uuid[], %(tenants)s::text[]))
"""
_FREE: LiteralString = """
DELETE FROM scheduler.runs WHERE (id, tenant_id) IN (SELECT * FROM unnest(%(ids)s::uuid[], %(tenants)s::text[]))
"""
_FOLLOWED: LiteralString = (
    f"SELECT {TIMING}, p.began_at FROM scheduler.parallel_triggers AS p"  # noqa: S608 - our own text
    " JOIN scheduler.triggers AS t ON t.id = p.id AND t.tenant_id = p.tenant_id"
)
_PLAN = "UPDATE scheduler.triggers SET next_fire_at = %s WHERE id = %s AND tenant_id = %s"


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """What was done with runs of the new side."""

    skipped: int
    """Runs that were waiting, of slots that the old side has taken."""
    freed: int
    """Runs that were removed, because the old side has not taken their slots: these fire again."""


def take_over(target: Connection, profile: Profile, tolerance: timedelta) -> Takeover | None:
    """End the parallel run, in one transaction; None if there was none."""
    with target.transaction():
        began = parallel_run.end(target)
        if began is None:
            return None
        done = _take_over(target, profile, began, tolerance)
        parallel_run.forget(target)
    return done


def _take_over(target: Connection, profile: Profile, began: datetime, tolerance: timedelta) -> Takeover:
    reached = _reached(target, profile, began, tolerance)
    rows: list[tuple[UUID, str, UUID, datetime, str]] = target.execute(
        _UNDECIDED, {"began": began, "dry": DRY_RUN.decode()}
    ).fetchall()
    skipped, freed = [], []
    for identity, tenant, trigger, slot, state in rows:
        following = reached.get((trigger, tenant))
        if following is not None and slot >= following:
            freed.append((identity, tenant))
        elif state in states.RUN_OPEN:
            skipped.append((identity, tenant))
    for statement, keys in ((_SKIP, skipped), (_FREE, freed)):
        ids, tenants = [identity for identity, _ in keys], [tenant for _, tenant in keys]
        target.execute(statement, {"ids": ids, "tenants": tenants, "dry": DRY_RUN.decode()})
    return Takeover(skipped=len(skipped), freed=len(freed))


def _reached(
    target: Connection, profile: Profile, began: datetime, tolerance: timedelta
) -> dict[tuple[UUID, str], datetime]:
    """Return the first slot that the old side has not taken, by id and tenant of the trigger; none: it took all.

    Where the source says the next fire, that is it. Else it follows the last slot that is known of the old side, and is
    planned now.
    """
    old = old_slots(target, profile, began, database_time(target) + tolerance, tolerance)
    last: dict[ScheduleKey, datetime] = {}
    for schedule, slot in (*old.slots, *old.inferred):
        last[schedule] = max(slot, last.get(schedule, slot))
    reached: dict[tuple[UUID, str], datetime] = {}
    for *columns, began_at in target.execute(_FOLLOWED).fetchall():
        names = (column.strip().removeprefix("t.") for column in TIMING.split(","))
        trigger = Trigger(**dict(zip(names, columns, strict=True)))
        following = trigger.next_fire_at
        if following is None and trigger.enabled and began_at is not None:
            following = began_at
            key = (trigger.tenant_id, trigger.schedule_id)
            if key in last:
                in_phase = msgspec.structs.replace(trigger, next_fire_at=began_at)
                try:
                    following = firing.next_fire(in_phase, last[key])
                except CronError:  # it fires nothing here: what the old side has taken must not fire again
                    continue
            target.execute(_PLAN, (following, trigger.id, trigger.tenant_id))
        if following is not None:
            reached[trigger.id, trigger.tenant_id] = stored_slot(following)
    return reached
