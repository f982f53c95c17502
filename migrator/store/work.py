"""What crosses tenants: firing, claiming, workers, locks. The other half of ``store.ports``.

Each call is a transaction of its own. ``now`` none is the database's clock; tests pass another one.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, Protocol
from uuid import UUID

import msgspec

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.records.worker import Worker

if TYPE_CHECKING:
    from migrator.store.ports import Session


SCRATCH: Final = "~verify-"
"""How the tenants of a verification begin. They are served only where they are named: no live scheduler meets them."""


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

    ``tenants`` none: all tenants but those that begin with ``SCRATCH``; else exactly these. A limit below 1, or a lease
    not above zero, raises ``UsageError``.
    """

    def fire_due(
        self, plan: FirePlan, limit: int, now: datetime | None = None, tenants: Sequence[str] | None = None
    ) -> Sequence[Run]:
        """Fire due triggers: lock them (skipping locked ones), insert runs, advance; return the runs inserted.

        Due are enabled triggers whose next fire is not after now, of enabled, not deleted schedules in status pending,
        scheduled or running; by the schedule's priority, highest first (null is 50), then by that fire, then by id. A
        slot that has its run already (same trigger, slot and attempt) is passed over, and the trigger advances.
        """

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        tenants: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        """Take queued runs that are available, by the schedule's priority, then by when they became available, then id.

        ``queues``: only runs whose schedule names one of these; none: all. A run without a schedule has priority 50.

        They are running, with the worker's id, a fence one higher than before and a lease. Never more of a schedule
        than its ``max_concurrency``, whoever claims; a disabled, paused or deleted schedule's runs stay queued.
        """

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        """Extend the leases; return the ids of the runs that are still this worker's and running."""

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End runs that are still running under the same worker and fence; return their ids, leave the others."""

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        """Give runs back unfinished (shutdown): queued again, attempt unchanged; return the ids given back."""

    def expired(self, limit: int, now: datetime | None = None, tenants: Sequence[str] | None = None) -> Sequence[Claim]:
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

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        """Mark dead whoever was silent for longer; each is returned to one caller only.

        The leases of the runs that it holds (``worker_id`` is the id's text) end now, in the same transaction, so that
        ``Queue.expired`` finds them. ``among``: only these; none: all.
        """

    def remove(self, worker_id: UUID) -> bool:
        """Forget one that is stopped or dead; false when there is none such."""


class LockHandle(Protocol):
    """A lock that was acquired."""

    key: str
    fence: int
    """Higher than that of every holder before."""

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        """Extend from now; false when it was lost (expired, or the session behind it ended): it stays lost."""

    def release(self, *, now: datetime | None = None) -> bool:
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
        now: datetime | None = None,
    ) -> LockHandle | None:
        """Return the lock, or none when it was not had within ``timeout`` (0: one try; none: wait for ever).

        Nothing is left held after a timeout. Not re-entrant: the same process asking again waits like another. ``now``
        is for tests, and needs timeout 0. Raises ``UsageError`` for a negative timeout, a ttl not above zero, a tenant
        or a resource that is empty, a tenant with a slash (the key is ``<tenant>/<resource>``).
        """

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        """Return who holds it now (text, fence)."""

    def guard(self, session: "Session", tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and it is live; raises ``LostLockError``."""
