"""Schedules that fire nothing when PostgreSQL opens: those without a next fire, and those without a known process.

A source may not say when a schedule fires next. The cutover does not compute it either: a schedule whose handler no
process has would only become overdue. The leader computes it for the schedules that a process works for, from then on,
and misses no slot by that which MongoDB had planned. So the cutover says how many these are.
"""

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import msgspec

from migrator.connections.postgres import Connection
from migrator.records import Schedule, WorkerRecord
from migrator.scheduler.worker import is_own_worker, worker_scope
from migrator.states import SCHEDULE_FIRING, WORKER_LIVE
from migrator.store.postgres.rows import literals
from migrator.store.queue import SCRATCH, handler_of

# ruff: noqa: S608 - statements are put together from our own names

_MAY_FIRE: Final = (
    f"s.enabled AND s.deleted_at IS NULL AND s.status IN ({literals(SCHEDULE_FIRING)})"
    f" AND NOT starts_with(s.tenant_id, '{SCRATCH}')"
)
_KINDS: Final = f"""
SELECT s.handler_name, s.mode, s.handler_type, s.queue, count(*) FROM scheduler.schedules AS s
WHERE {_MAY_FIRE} GROUP BY 1, 2, 3, 4
"""
_WORKERS: Final = f"""
SELECT id, tenant_id, kind, status, queues, metadata::text FROM scheduler.workers
WHERE status IN ({literals(WORKER_LIVE)})
"""
_UNPLANNED: Final = f"""
SELECT count(*) FROM scheduler.schedules AS s WHERE {_MAY_FIRE} AND EXISTS (
    SELECT FROM scheduler.triggers AS t WHERE t.schedule_id = s.id AND t.tenant_id = s.tenant_id
        AND t.enabled AND t.next_fire_at IS NULL AND t.kind <> 'event'
        AND (t.kind <> 'one_time' OR coalesce(t.fire_count, 0) = 0 AND t.last_fire_at IS NULL))
"""


class FirstFires(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of schedules that may fire."""

    schedules: int
    unplanned: int
    """Without a next fire, which the first leader computes that works for them."""
    unserved: int
    """For which no known process of ``migrator scheduler run`` works: their runs are claimed by nobody."""
    unnamed: int
    """Of these, those that name no handler: no process ever works for them."""


def first_fires(target: Connection) -> FirstFires:
    """Return the counts, as the rows are now."""
    scopes = [worker_scope(one) for one in map(_worker, target.execute(_WORKERS.encode())) if is_own_worker(one)]
    schedules = unserved = unnamed = 0
    for name, mode, kind, queue, count in target.execute(_KINDS.encode()):
        stated = {"handler_name": name, "mode": mode, "handler_type": kind, "queue": queue}
        example = Schedule(id=UUID(int=0), tenant_id="", name="", status="", **stated)
        schedules += count
        if not any(scope.covers(example) for scope in scopes):
            unserved += count
            unnamed += count if handler_of(example) is None else 0
    (unplanned,) = target.execute(_UNPLANNED.encode()).fetchone() or (0,)
    return FirstFires(schedules=schedules, unplanned=unplanned, unserved=unserved, unnamed=unnamed)


def lines(fires: FirstFires) -> Iterator[str]:
    """Yield lines for the operator; nothing if every schedule has its next fire and its process."""
    if fires.unplanned:
        yield (
            f"{fires.unplanned:,} of {fires.schedules:,} schedules have no next fire: the first leader of migrator"
            " scheduler run that has their handlers computes it, from then on"
        )
    if fires.unserved:
        unnamed = f", {fires.unnamed:,} of them name no handler" if fires.unnamed else ""
        yield (
            f"no known process of migrator scheduler run works for {fires.unserved:,} of {fires.schedules:,} schedules"
            f"{unnamed}: they do not fire until one does"
        )


def _worker(row: tuple[Any, ...]) -> WorkerRecord:
    identifier, tenant, kind, status, queues, metadata = row
    return WorkerRecord(
        id=identifier,
        tenant_id=tenant,
        kind=kind,
        status=status,
        queues=None if queues is None else tuple(queues),
        metadata=None if metadata is None else metadata.encode(),
    )
