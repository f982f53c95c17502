"""What crosses tenants: firing, claiming, workers, locks. The other half of ``store.ports``.

Each call is a transaction of its own. ``now`` none is the database's clock; tests pass another one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import UUID

import msgspec

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.records.worker import Worker

if TYPE_CHECKING:
    from migrator.store.ports import Session


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """What firing a trigger leads to, decided by a pure function (``scheduler.firing.plan``)."""

    runs: tuple[Run, ...]
    """To be inserted as they are; a slot that is taken already is passed over."""
    trigger: Trigger
    """The trigger afterwards."""
    schedule_status: str | None = None
    """A status for the schedule (completed, when nothing will fire any more); none leaves it."""


class FirePlan(Protocol):
    """Decides what a due trigger leads to; called inside the transaction that holds its row."""

    def __call__(self, schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        """Return the decision; ``live_runs`` are the schedule's queued and running ones."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a worker holds; ``fence`` and ``worker_id`` must match for anything it writes."""

    run: Run
    schedule: Schedule | None

    @property
    def fence(self) -> int:
        """The run's fence at the time it was claimed."""
        return self.run.fence or 0


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """How a claimed run ends."""

    run_id: UUID
    tenant_id: str
    worker_id: str
    fence: int
    state: Literal["completed", "error", "cancelled", "timeout"]
    result: bytes | None = None
    error: str | None = None
    error_detail: str | None = None
    retry: Run | None = None
    """The queued run that repeats it, inserted in the same transaction if the write succeeds."""
    schedule_status: str | None = None
    """A status for a schedule that is running now; none leaves it."""


class Queue(Protocol):
    """Firing and claiming, across tenants.

    Tenants named in ``excluded`` (scratch tenants of a verification) are passed over.
    """

    def fire_due(
        self, plan: FirePlan, limit: int, now: datetime | None = None, excluded: Sequence[str] = ()
    ) -> Sequence[Run]:
        """Fire due triggers: lock them (skipping locked ones), insert runs, advance; return the runs inserted."""

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        excluded: Sequence[str] = (),
    ) -> Sequence[Claim]:
        """Take queued runs that are available, by the schedule's priority, then by when they became available, then id.

        They are running, with the worker's id, a fence one higher than before and a lease. Never more of a schedule
        than its ``max_concurrency``, whoever claims; a disabled, paused or deleted schedule's runs stay queued.
        """

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        """Extend the leases; return the ids of the runs that are still this worker's and running."""

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End runs that are still running under the same worker and fence; return their ids, leave the others."""

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        """Give runs back unfinished (shutdown): queued again, attempt unchanged; return the ids given back."""

    def expired(self, limit: int, now: datetime | None = None, excluded: Sequence[str] = ()) -> Sequence[Claim]:
        """Return running runs whose lease is over, or whose schedule's timeout is over; changes nothing."""

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End such runs as ``finish`` does, only where the lease or timeout is still over: a renewed one survives."""


class Workers(Protocol):
    """Worker and scheduler processes; they live under the tenant ``*``. The database's clock judges."""

    def register(self, worker: Worker, now: datetime | None = None) -> Worker:
        """Insert, or bring up to date the one with this id: active, heartbeat now."""

    def heartbeat(self, worker_id: UUID, now: datetime | None = None) -> bool:
        """Stamp, never backwards; false when it was declared dead or stopped: the process must stop working."""

    def stop(self, worker_id: UUID, now: datetime | None = None) -> bool:
        """Mark stopped."""

    def list(self) -> Sequence[Worker]:
        """Return all, by registration time."""

    def declare_dead(self, silent_for: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        """Mark dead whoever was silent for longer; each is returned to one caller only."""


class LockHandle(Protocol):
    """A lock that was acquired."""

    key: str
    fence: int
    """Higher than that of every holder before."""

    def renew(self, ttl: timedelta | None = None) -> bool:
        """Extend; false when it was lost (expired and taken, or the session behind it ended): it stays lost."""

    def release(self) -> bool:
        """Give it back; false when it was not this handle's any more. A second call returns false."""

    @property
    def trusted(self) -> bool:
        """Whether the holder may act without asking: local time since the winning attempt is well inside the ttl."""


class Locks(Protocol):
    """Mutual exclusion between processes, with a fence."""

    def acquire(
        self,
        tenant: str,
        resource: str,
        *,
        ttl: timedelta,
        timeout: timedelta | None = timedelta(0),
        holder: str = "",
    ) -> LockHandle | None:
        """Return the lock, or none when it was not had within ``timeout`` (0: one try; none: wait for ever).

        Nothing is left held after a timeout. Raises ``UsageError`` for a negative timeout or a ttl not above zero.
        """

    def holder(self, tenant: str, resource: str) -> tuple[str, int] | None:
        """Return who holds it now (text, fence)."""

    def guard(self, session: "Session", tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and it is live; raises ``LostLockError``."""
