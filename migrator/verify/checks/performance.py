"""Area performance: the 95th percentile of each operation and its ceiling, on the live target, in a scratch tenant.

Measured values vary and are not part of the evidence; one above its ceiling is a warning. The checks assert only
that each operation was made, and that a scheduler uses no more connections than its pool has.
"""

import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, cast

import msgspec

from migrator.result import Measurement, table_panel
from migrator.scheduler.client import Scheduler
from migrator.scratch import ScratchTenants, new_scratch_tenant, scratch_tenants
from migrator.store.postgres.connections import SessionPool
from migrator.store.queue import SCRATCH
from migrator.verify import timing
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of, result_of_faults
from migrator.verify.timing import durations_ms, percentile

ROW_COUNTS: Final = timing.RowCounts(schedules=2_000, due=1_000, waiting=2_000, stale=840, history=500)
POOL: Final = 5
THREADS: Final = 20
CALLS: Final = 100


@contextmanager
def _tenant_with_rows(context: CheckContext, amount: timing.RowCounts) -> Iterator[ScratchTenants]:
    with scratch_tenants(context.settings, "postgres", context.components, new_scratch_tenant()) as place:
        with context.target() as target:
            timing.insert_rows(target, place.tenants[0], amount)
        yield place


def queue_in_time(context: CheckContext) -> CheckResult:
    """Measure the operations of a scheduler process."""
    with _tenant_with_rows(context, ROW_COUNTS) as place:
        timed = timing.queue_operations(place.store, place.tenants[0], stale=ROW_COUNTS.stale)
        return _timed("performance.queue", timed)


def facade_in_time(context: CheckContext) -> CheckResult:
    """Measure the calls of an application."""
    with _tenant_with_rows(context, ROW_COUNTS) as place:
        tenant = place.tenants[0]
        with context.target() as target:
            schedule = timing.first_schedule(target, tenant)
        timed = timing.facade_operations(Scheduler(place.store, tenant), schedule)
        return _timed("performance.facade", timed)


def _timed(check: str, timed: list[timing.TimedOperation]) -> CheckResult:
    took = {one.name: durations_ms(one.times, one.work) for one in timed}
    rows: list[tuple[str | int | None, ...]] = [
        (
            one.name,
            one.times,
            *(f"{percentile(took[one.name], of):.2f}" for of in (0.5, 0.95, 0.99)),
            f"{one.ceiling:.0f}",
            one.source,
        )
        for one in timed
    ]
    return CheckResult(
        outcome=outcome_of(wrong=False),
        counts={"operations": len(timed), "calls": sum(one.times for one in timed), "rows": ROW_COUNTS.rows},
        measurements=tuple(
            Measurement(
                check=check,
                name=f"{one.name} (95th percentile of {one.times})",
                unit="ms",
                value=round(percentile(took[one.name], 0.95), 3),
                ceiling=one.ceiling,
            )
            for one in timed
        ),
        varying=(
            table_panel(
                f"Milliseconds, among {ROW_COUNTS.schedules:,} schedules and {ROW_COUNTS.waiting:,} waiting runs",
                ("operation", "calls", "median", "95th", "99th", "ceiling of the 95th", "stated by"),
                rows,
            ),
        ),
    )


def connections_bounded(context: CheckContext) -> CheckResult:
    """Query from many threads at once, and count the connections that the server sees."""
    seen: set[int] = set()
    begin = threading.Barrier(THREADS)
    tenant = new_scratch_tenant() + ".a"
    replace = msgspec.structs.replace
    persistence = replace(context.settings.persistence, scheduler="mongo", shadow="off")  # a tool's
    postgres = replace(context.settings.postgres, pool_size=POOL)
    pool = SessionPool(replace(context.settings, persistence=persistence, postgres=postgres))
    try:

        def ask(_: int) -> None:
            begin.wait()
            for _ in range(CALLS // THREADS):
                with pool.transaction(tenant=tenant) as (connection, _clock):
                    # Held for a moment, so that the others do want connections of their own.
                    row = connection.execute("SELECT pg_backend_pid() FROM pg_sleep(0.05)").fetchone()
                    seen.add(cast("tuple[int]", row)[0])

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(ask, range(THREADS)))
    finally:
        pool.close()
    return result_of_faults(
        [f"{len(seen)} against {POOL}"] if len(seen) > POOL else [],
        cause="connections",
        title="more connections than the pool may have",
        fix="this is a fault of the pool (migrator/store/postgres/connections.py): report it",
        counts={"threads": THREADS, "calls": CALLS, "connections allowed": POOL},
        measurements=(
            Measurement(
                check="performance.connections", name="connections used", unit="", value=len(seen), ceiling=POOL
            ),
            Measurement(check="performance.connections", name="waiting runs", unit="", value=_waiting(context)),
            Measurement(
                check="performance.connections",
                name="peak memory of the verification",
                unit="MB",
                value=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            ),
        ),
    )


def _waiting(context: CheckContext) -> int:
    """Return the depth of the live queue."""
    with context.target() as target:
        row = target.execute(
            "SELECT count(*) FROM scheduler.runs WHERE state = 'queued' AND NOT starts_with(tenant_id, %s)", (SCRATCH,)
        ).fetchone()
    return 0 if row is None else int(row[0])


_NO_LOAD: Final = (
    "One process makes one call after the other. This is no load test; benchmarks/scheduler.py measures under load."
)
_LOADED: Final = "Other work of the servers and of this machine at the time is part of every measurement."

CHECKS = (
    CheckSpec(
        id="performance.queue",
        title="The times of triggers, claims, locks and cleanup are recorded",
        fails_if="never: it measures polls, claims, locks and cleanup, and warns above a limit",
        can_fail=False,
        limits=(_NO_LOAD, _LOADED),
        run=queue_in_time,
    ),
    CheckSpec(
        id="performance.facade",
        title="The times of an application's calls are recorded",
        fails_if="never: it measures the calls of an application, and warns above a limit",
        can_fail=False,
        limits=(_NO_LOAD, _LOADED),
        run=facade_in_time,
    ),
    CheckSpec(
        id="performance.connections",
        title="A scheduler uses no more connections than its pool may have",
        fails_if="more connections are used than the pool may have",
        requirements=("4-V9",),
        limits=("Queue depth and memory are recorded without a ceiling.",),
        run=connections_bounded,
    ),
)
