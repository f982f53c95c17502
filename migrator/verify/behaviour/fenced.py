"""A store that serves scratch tenants only: whatever a script gets wrong, no real tenant is touched by it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from migrator.errors import RefusedError
from migrator.records.run import Run
from migrator.records.worker import Worker
from migrator.store.ports import SchedulerStore, Session
from migrator.store.work import Claim, Finish, FirePlan, LockHandle
from migrator.verify.behaviour.craft import Delegate


class Fence:
    """The tenants of one verification, and the workers that it registered."""

    def __init__(self, base: str, tenants: Sequence[str]) -> None:
        self.base, self.tenants = base, tuple(tenants)
        self.workers: set[UUID] = set()

    def require(self, *tenants: str) -> None:
        """Raise ``RefusedError`` for a tenant that is not this verification's."""
        for tenant in tenants:
            if tenant not in self.tenants:
                raise RefusedError("a verification touches no other tenant than its own")

    def named(self, tenants: Sequence[str] | None) -> Sequence[str]:
        """Return tenants that must have been named."""
        if tenants is None:
            raise RefusedError("a verification names its tenants")
        self.require(*tenants)
        return tenants


class FencedStore(Delegate):
    """``ports.SchedulerStore`` within a fence."""

    def __init__(self, inner: SchedulerStore, fence: Fence) -> None:
        super().__init__(inner)
        self._fence = fence
        self.queue = FencedQueue(inner.queue, fence)
        self.workers = FencedWorkers(inner.workers, fence)
        self.locks = FencedLocks(inner.locks, fence)

    def session(self, tenant: str, *, now: datetime | None = None) -> AbstractContextManager[Session]:
        """Open a transaction of a scratch tenant."""
        self._fence.require(tenant)
        opened: AbstractContextManager[Session] = self.inner.session(tenant, now=now)
        return opened

    def purge(self, tenant: str) -> Mapping[str, int]:
        """Remove a scratch tenant."""
        self._fence.require(tenant)
        removed: Mapping[str, int] = self.inner.purge(tenant)
        return removed


class FencedQueue(Delegate):
    """``work.Queue`` of the tenants within."""

    def __init__(self, inner: Any, fence: Fence) -> None:  # noqa: ANN401 - a queue
        super().__init__(inner)
        self._fence = fence

    def tenants(self) -> Sequence[str]:
        """Return the tenants within."""
        return self._fence.tenants

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        **which: Any,  # noqa: ANN401 - queues and handlers, as the queue takes them
    ) -> Sequence[Run]:
        """Fire what is due within."""
        runs: Sequence[Run] = self.inner.fire_due(plan, limit, now, self._fence.named(tenants), **which)
        return runs

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        tenants: Sequence[str] | None = None,
        **which: Any,  # noqa: ANN401 - as above
    ) -> Sequence[Claim]:
        """Claim runs within."""
        named = self._fence.named(tenants)
        claims: Sequence[Claim] = self.inner.claim(worker_id, limit, lease, now, tenants=named, **which)
        return claims

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        **which: Any,  # noqa: ANN401 - whose runs, as the queue takes them
    ) -> Sequence[Claim]:
        """Return runs within whose time is over."""
        claims: Sequence[Claim] = self.inner.expired(limit, now, self._fence.named(tenants), **which)
        return claims

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End runs within."""
        self._fence.require(*(end.tenant_id for end in ends))
        ended: Sequence[UUID] = self.inner.finish(ends, now)
        return ended

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        """End runs within whose time is over."""
        self._fence.require(*(end.tenant_id for end in ends))
        ended: Sequence[UUID] = self.inner.expire(ends, now)
        return ended


class FencedWorkers(Delegate):
    """``work.Workers`` that sees, and judges, those registered here only."""

    def __init__(self, inner: Any, fence: Fence) -> None:  # noqa: ANN401 - the workers of a store
        super().__init__(inner)
        self._fence = fence

    def register(self, worker: Worker, now: datetime | None = None) -> Worker:
        """Register one of this verification; its host name says whose it is."""
        self._fence.workers.add(worker.id)
        named = msgspec.structs.replace(worker, hostname=self._fence.base)
        registered: Worker = self.inner.register(named, now)
        return registered

    def list(self) -> Sequence[Worker]:
        """Return those registered here."""
        return [one for one in self.inner.list() if one.id in self._fence.workers]

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        """Judge those registered here."""
        own = self._fence.workers if among is None else self._fence.workers & {*among}
        dead: Sequence[UUID] = self.inner.declare_dead(silent_for, now, sorted(own))
        return dead


class FencedLocks(Delegate):
    """``work.Locks`` of the tenants within."""

    def __init__(self, inner: Any, fence: Fence) -> None:  # noqa: ANN401 - the locks of a store
        super().__init__(inner)
        self._fence = fence

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
        """Acquire a lock within."""
        self._fence.require(tenant)
        handle: LockHandle | None = self.inner.acquire(
            tenant, resource, ttl=ttl, timeout=timeout, holder=holder, now=now
        )
        return handle
