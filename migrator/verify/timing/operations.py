"""The operations that are timed: each a call, as a scheduler's process or an application makes it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final
from uuid import UUID, uuid4

import msgspec

from migrator.scheduler.firing import plan
from migrator.scheduler.requests import HistoryQuery
from migrator.scheduler.service import SchedulerService
from migrator.store.ports import ScheduleQuery, SchedulerStore
from migrator.store.work import Claim, Finish

LEASE: Final = timedelta(minutes=5)
BATCH: Final = 10
"""Due triggers of one poll, and runs of one claim."""
PAGE: Final = 50
CLEANINGS: Final = 12


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """An operation with its ceiling in milliseconds (for the 95th percentile)."""

    name: str
    work: Callable[[], object]
    ceiling: float
    source: str
    """The row of the list of capabilities that states the ceiling."""
    times: int = 40


def of_the_queue(store: SchedulerStore, tenant: str, *, stale: int, times: int = 40) -> list[Timed]:
    """Return what a scheduler's process does all the time; ``stale`` runs are there to be ended, a part each time."""
    worker = str(uuid4())
    each = max(stale // (CLEANINGS + 2), 1)

    def poll() -> object:
        return store.queue.fire_due(plan, BATCH, tenants=[tenant])

    def claim(limit: int = BATCH) -> list[Claim]:
        return list(store.queue.claim(worker, limit, LEASE, tenants=[tenant]))

    def dispatch() -> object:
        return poll(), claim(1)

    def work() -> object:
        return store.queue.finish([done(one, worker) for one in claim(1)])

    def lock() -> object:
        handle = store.locks.acquire(tenant, "timing", ttl=LEASE)
        return handle is not None and handle.release()

    def clean() -> object:
        gone = store.queue.expired(each, tenants=[tenant])
        return store.queue.expire([done(one, one.run.worker_id or "", state="timeout") for one in gone])

    return [
        Timed(name=f"poll, {BATCH} due", work=poll, ceiling=100, source="3-P2", times=times),
        Timed(name=f"claim, {BATCH} runs", work=claim, ceiling=100, source="3-P2", times=times),
        Timed(name="dispatch: poll, then claim", work=dispatch, ceiling=100, source="2-X15", times=times),
        Timed(name="overhead: claim and finish one", work=work, ceiling=50, source="2-X15", times=times),
        Timed(name="lock, acquire and release", work=lock, ceiling=10, source="3-P3", times=times),
        Timed(name=f"stale cleanup, {each} runs", work=clean, ceiling=1000, source="3-P4", times=CLEANINGS),
    ]


def of_the_facade(facade: SchedulerService, schedule: UUID, *, times: int = 40) -> list[Timed]:
    """Return what an application asks; ``schedule`` is one with a history."""
    return [
        Timed(name="get", work=lambda: facade.get(schedule), ceiling=20, source="2-X15", times=times),
        Timed(
            name=f"list, {PAGE} of all",
            work=lambda: facade.list(ScheduleQuery(limit=PAGE)),
            ceiling=20,
            source="2-X15",
            times=times,
        ),
        Timed(
            name=f"history, {PAGE} of one",
            work=lambda: facade.history(schedule, HistoryQuery(limit=PAGE)),
            ceiling=20,
            source="2-X15",
            times=times,
        ),
    ]


def done(claim: Claim, worker: str, *, state: str = "completed") -> Finish:
    """Return the end of a run."""
    return Finish(
        run_id=claim.run.id,
        tenant_id=claim.run.tenant_id,
        worker_id=worker,
        fence=claim.fence,
        state=state,  # type: ignore[arg-type] # one of its words
    )
