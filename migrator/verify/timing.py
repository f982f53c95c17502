"""How long the scheduler's operations take: rows inserted in bulk, operations repeated, percentiles.

The server itself makes the rows, a million in a minute or so: schedules with a trigger each, of which the first are
due; runs that wait; runs whose lease is over; the history of the first schedule. Times count from the server's clock,
so that what is due is due at once.
"""

import math
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.scheduler.client import Scheduler
from migrator.scheduler.firing import plan
from migrator.store.protocols import ScheduleQuery, Store
from migrator.store.queue import Claim, Finish

WARM: Final = 2
"""Calls that are not measured, before those that are."""


def percentile(values: Sequence[float], of: float) -> float:
    """Return the smallest value that ``of`` (0 to 1) of all are not above: a value that was measured."""
    ordered = sorted(values)
    return ordered[max(math.ceil(of * len(ordered)) - 1, 0)]


def durations_ms(times: int, work: Callable[[], object]) -> list[float]:
    """Call ``work`` ``WARM`` times, then ``times`` times; return the milliseconds of the latter."""
    for _ in range(WARM):
        work()
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return took


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many."""

    schedules: int
    """And as many triggers."""
    explicit: int = 0
    """The first so many schedules state a priority of their own, from 0 to 100 in turn."""
    due: int = 0
    waiting: int = 0
    stale: int = 0
    """Runs whose worker is gone: running, and their lease is over."""
    history: int = 0
    """Runs of the first schedule that are done."""

    @property
    def rows(self) -> int:
        """Return how many rows that makes."""
        return 2 * self.schedules + self.waiting + self.stale + self.history


_STATEMENTS: Final = (
    # schedules
    """INSERT INTO scheduler.schedules (id, tenant_id, name, status, enabled, priority, created_at, updated_at)
    SELECT md5({tenant} || ' schedule ' || n)::uuid, {tenant}, 'job ' || n, 'scheduled', true,
        CASE WHEN n <= {explicit} THEN n % 101 END,
        statement_timestamp() - n * interval '1 millisecond', statement_timestamp()
    FROM generate_series(1, {schedules}) AS n""",
    # triggers: the first are due, a millisecond apart
    """INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, interval_ms, anchor, enabled, next_fire_at)
    SELECT md5({tenant} || ' trigger ' || n)::uuid, {tenant}, md5({tenant} || ' schedule ' || n)::uuid, 'interval',
        3600000, 'fixed_rate', true, date_trunc('milliseconds', statement_timestamp())
        + CASE WHEN n <= {due} THEN (n - {due}) ELSE 3600000 + n END * interval '1 millisecond'
    FROM generate_series(1, {schedules}) AS n""",
    # runs that wait, with the priority that the database would write after them
    """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, cause, priority, available_at, created_at)
    SELECT md5({tenant} || ' waiting ' || n)::uuid, {tenant},
        md5({tenant} || ' schedule ' || 1 + n % {schedules})::uuid, 'queued', 'schedule',
        CASE WHEN 1 + n % {schedules} <= {explicit} THEN (1 + n % {schedules}) % 101 ELSE 50 END,
        date_trunc('milliseconds', statement_timestamp()) + (n - {waiting}) * interval '1 millisecond',
        date_trunc('milliseconds', statement_timestamp())
    FROM generate_series(1, {waiting}) AS n""",
    # runs whose worker is gone
    """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, cause, worker_id, fence, lease_expires_at,
        started_at, created_at)
    SELECT md5({tenant} || ' stale ' || n)::uuid, {tenant},
        md5({tenant} || ' schedule ' || 1 + n % {schedules})::uuid, 'running', 'schedule', 'gone', 1,
        date_trunc('milliseconds', statement_timestamp()) - n * interval '1 millisecond',
        date_trunc('milliseconds', statement_timestamp()) - interval '1 minute',
        date_trunc('milliseconds', statement_timestamp()) - interval '1 minute'
    FROM generate_series(1, {stale}) AS n""",
    # the history of the first schedule
    """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, cause, run_number, started_at, finished_at,
        duration_ms, created_at)
    SELECT md5({tenant} || ' done ' || n)::uuid, {tenant}, md5({tenant} || ' schedule 1')::uuid, 'completed',
        'schedule', n, at, at + interval '1 second', 1000, at
    FROM (SELECT n, date_trunc('milliseconds', statement_timestamp()) - n * interval '1 minute' AS at
        FROM generate_series(1, {history}) AS n) AS done""",
)


def insert_rows(connection: Connection, tenant: str, amount: RowCounts) -> None:
    """Insert the rows of a tenant in one transaction, as the owner of the tables."""
    literals = {name: sql.Literal(value) for name, value in msgspec.structs.asdict(amount).items()}
    with connection.transaction():
        for statement in _STATEMENTS:
            connection.execute(sql.SQL(statement).format(tenant=sql.Literal(tenant), **literals))


def first_schedule(connection: Connection, tenant: str) -> UUID:
    """Return the id of the schedule that has a history."""
    row = connection.execute("SELECT md5(%s || ' schedule 1')::uuid", (tenant,)).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    identifier: UUID = row[0]
    return identifier


LEASE: Final = timedelta(minutes=5)
BATCH: Final = 10
"""Due triggers of one poll, and runs of one claim."""
PAGE: Final = 50
CLEANUPS: Final = 12


class TimedOperation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with its ceiling in milliseconds (for the 95th percentile)."""

    name: str
    work: Callable[[], object]
    ceiling: float
    source: str
    """The row of the list of capabilities that states the ceiling."""
    times: int = 40


def queue_operations(store: Store, tenant: str, *, stale: int) -> list[TimedOperation]:
    """Return the calls of a scheduler's process; ``stale`` runs are there to be ended, a part each time."""
    worker = str(uuid4())
    each = max(stale // (CLEANUPS + 2), 1)

    def poll() -> object:
        return store.queue.fire_due(plan, BATCH, tenants=[tenant])

    def claim(limit: int = BATCH) -> list[Claim]:
        return list(store.queue.claim(worker, limit, LEASE, tenants=[tenant]))

    def dispatch() -> object:
        return poll(), claim(1)

    def work() -> object:
        return store.queue.finish([finish_of(one, worker) for one in claim(1)])

    def lock() -> object:
        handle = store.locks.acquire(tenant, "timing", ttl=LEASE)
        return handle is not None and handle.release()

    def clean() -> object:
        gone = store.queue.expired(each, tenants=[tenant])
        return store.queue.expire([finish_of(one, one.run.worker_id or "", state="timeout") for one in gone])

    return [
        TimedOperation(name=f"poll, {BATCH} due", work=poll, ceiling=100, source="3-P2"),
        TimedOperation(name=f"claim, {BATCH} runs", work=claim, ceiling=100, source="3-P2"),
        TimedOperation(name="dispatch: poll, then claim", work=dispatch, ceiling=100, source="2-X15"),
        TimedOperation(name="overhead: claim and finish one", work=work, ceiling=50, source="2-X15"),
        TimedOperation(name="lock, acquire and release", work=lock, ceiling=10, source="3-P3"),
        TimedOperation(name=f"stale cleanup, {each} runs", work=clean, ceiling=1000, source="3-P4", times=CLEANUPS),
    ]


def facade_operations(facade: Scheduler, schedule: UUID) -> list[TimedOperation]:
    """Return the calls that an application makes; ``schedule`` is one with a history."""
    return [
        TimedOperation(name="get", work=lambda: facade.get(schedule), ceiling=20, source="2-X15"),
        TimedOperation(
            name=f"list, {PAGE} of all",
            work=lambda: facade.list(ScheduleQuery(limit=PAGE)),
            ceiling=20,
            source="2-X15",
        ),
        TimedOperation(
            name=f"history, {PAGE} of one",
            work=lambda: facade.history(schedule, limit=PAGE),
            ceiling=20,
            source="2-X15",
        ),
    ]


def finish_of(claim: Claim, worker: str, *, state: str = "completed") -> Finish:
    """Return the end of a run."""
    return Finish(
        run_id=claim.run.id,
        tenant_id=claim.run.tenant_id,
        worker_id=worker,
        fence=claim.fence,
        state=state,  # type: ignore[arg-type] # one of its words
    )
