"""Scratch tenants, in which the tool tests a store, and a store that serves these tenants only.

The lock is that of ``~verify-<hex>``; ``.a`` and ``.b`` have the rows. The lock is written first and deleted last, and
only the living process of the test holds it. If the lock is free or expired, that process was killed, and the next test
deletes what it left. On PostgreSQL the lock ends with the process, on MongoDB an hour later. Whatever a scenario gets
wrong, it touches no real tenant.

``Components`` are the parts of the scheduler that a scenario drives: a mutation replaces one by a faulty one
(``migrator.testing.mutations.behaviour``); in a verification all are the tool's own.
"""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

import msgspec
from structlog.contextvars import bound_contextvars

from migrator.config import Settings
from migrator.errors import ConfigurationError, DeniedError, RefusedError
from migrator.log import logger
from migrator.records import Run, WorkerRecord
from migrator.scheduler.client import Scheduler
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.sweeper import Sweeper
from migrator.sources.store_documents import names
from migrator.store import backend_module, open_side
from migrator.store.locks import LockHandle, Locks
from migrator.store.protocols import Session, Store
from migrator.store.queue import SCRATCH, Claim, Finish, FirePlan, Queue
from migrator.store.workers import Workers

RESOURCE: Final = "verification"
HELD: Final = timedelta(hours=1)
PARTS: Final = (".a", ".b")
_KEY: Final = re.compile(rf"({SCRATCH}[0-9a-f]{{12}})(?:\.[ab])?/")


def new_scratch_tenant() -> str:
    """Return the name of a scratch tenant that does not exist."""
    return SCRATCH + secrets.token_hex(6)


@contextmanager
def scratch_tenant(store: Store, base: str, holder: str) -> Iterator[None]:
    """Yield the tenants of ``base`` (``new_scratch_tenant``), and empty them afterwards.

    What killed processes left is deleted first. Raises ``RefusedError`` before anything is written
    if it could not be deleted again.
    """
    with ExitStack() as closing:
        remove(store, base)  # there is nothing to delete; a user without the right is refused here
        remove_leftovers(store)
        handle = store.locks.acquire(base, RESOURCE, ttl=HELD, holder=holder)
        if handle is None:
            raise ConfigurationError(f"the scratch tenant {base} is another's")  # pragma: no cover - 48 random bits
        closing.callback(handle.release)
        closing.callback(remove, store, base)
        yield


def remove_leftovers(store: Store) -> list[str]:
    """Delete what killed processes left; return their tenants."""
    removed = []
    for name in leftover_tenants(store):
        handle = store.locks.acquire(name, RESOURCE, ttl=HELD, holder="migrator: removal")
        if handle is None:
            continue  # its process is alive
        try:
            remove(store, name)
        finally:
            handle.release()
        removed.append(name)
        logger().warning("removed scratch data of a killed process", tenant=name, backend=store.backend)
    return removed


def leftover_tenants(store: Store) -> list[str]:
    """Return the base tenants with a lock row, or a worker, whether their process is alive or not."""
    found = {match[1] for key in _lock_keys(store) if (match := _KEY.match(key))}
    named = {one.hostname for one in store.workers.list() if one.hostname is not None}
    return sorted(found | {name for name in named if _KEY.match(name + "/")})


def remove(store: Store, base: str, *, keep: bool = False) -> None:
    """Delete everything of one base tenant; ``keep``: except its lock."""
    for worker in store.workers.list():
        if worker.hostname == base:
            store.workers.stop(worker.id)
            store.workers.remove(worker.id)
    for part in PARTS:
        store.purge(base + part)
    if not keep:
        store.purge(base)


def _lock_keys(store: Store) -> list[str]:
    inner: Any = store
    if store.backend == "mongo":
        found = inner.database[names.LOCKS].find({"_id": {"$regex": f"^{re.escape(SCRATCH)}"}}, {"_id": 1})
        return [str(one["_id"]) for one in found]
    with inner.pool.transaction(tenant=None) as (connection, _):
        rows = connection.execute("SELECT key FROM scheduler.locks WHERE starts_with(key, %s)", (SCRATCH,)).fetchall()
    return [row[0] for row in rows]


def unchanged(store: Store) -> Store:
    """Return the store."""
    return store


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """The parts. All are named at the top level of a module, so that other processes find them."""

    store: Callable[[Store], Store] = unchanged
    """Wraps the store that is driven; cleaning up goes around it."""
    service: type[Scheduler] = Scheduler
    sweeper: type[Sweeper] = Sweeper
    leadership: type[Leadership] = Leadership


Part = TypeVar("Part")


class Delegate(Generic[Part]):
    """Forwards every attribute that it does not define itself to another object: a store, or a part of one."""

    def __init__(self, inner: Part) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - attributes of all types
        """Return the attribute of the other object."""
        return getattr(self.inner, name)


class TenantScope:
    """The tenants of one verification, and the workers that it registered."""

    def __init__(self, base: str, tenants: Sequence[str]) -> None:
        self.base, self.tenants = base, tuple(tenants)
        self.workers: set[UUID] = set()

    def require(self, *tenants: str) -> None:
        """Raise ``RefusedError`` for a tenant that is not this verification's."""
        for tenant in tenants:
            if tenant not in self.tenants:
                raise RefusedError("a verification touches no other tenant than its own")

    def require_named(self, tenants: Sequence[str] | None) -> Sequence[str]:
        """Return tenants that must have been named."""
        if tenants is None:
            raise RefusedError("a verification names its tenants")
        self.require(*tenants)
        return tenants


class _Scoped(Delegate[Part]):
    """A part of a store that serves the tenants of a scope only."""

    def __init__(self, inner: Part, scope: TenantScope) -> None:
        super().__init__(inner)
        self._scope = scope


class ScopedStore(_Scoped[Store]):
    """A store of the tenants within."""

    def __init__(self, inner: Store, scope: TenantScope) -> None:
        super().__init__(inner, scope)
        self.queue = _ScopedQueue(inner.queue, scope)
        self.workers = _ScopedWorkers(inner.workers, scope)
        self.locks = _ScopedLocks(inner.locks, scope)

    def session(self, tenant: str, *, now: datetime | None = None) -> AbstractContextManager[Session]:
        """Open a transaction of a scratch tenant."""
        self._scope.require(tenant)
        return self.inner.session(tenant, now=now)

    def purge(self, tenant: str) -> Mapping[str, int]:
        """Remove a scratch tenant."""
        self._scope.require(tenant)
        return self.inner.purge(tenant)


class _ScopedQueue(_Scoped[Queue]):
    """The queue of the tenants within."""

    def tenants(self) -> Sequence[str]:
        return self._scope.tenants

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        **which: Any,  # noqa: ANN401 - queues and handlers, as the queue takes them
    ) -> Sequence[Run]:
        return self.inner.fire_due(plan, limit, now, self._scope.require_named(tenants), **which)

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
        named = self._scope.require_named(tenants)
        return self.inner.claim(worker_id, limit, lease, now, tenants=named, **which)

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        **which: Any,  # noqa: ANN401 - whose runs, as the queue takes them
    ) -> Sequence[Claim]:
        return self.inner.expired(limit, now, self._scope.require_named(tenants), **which)

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        self._scope.require(*(end.tenant_id for end in ends))
        return self.inner.finish(ends, now)

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        self._scope.require(*(end.tenant_id for end in ends))
        return self.inner.expire(ends, now)


class _ScopedWorkers(_Scoped[Workers]):
    """The workers that were registered here; others are neither seen nor judged."""

    def register(self, worker: WorkerRecord, now: datetime | None = None) -> WorkerRecord:
        """Register one of this verification; its host name says whose it is."""
        self._scope.workers.add(worker.id)
        return self.inner.register(msgspec.structs.replace(worker, hostname=self._scope.base), now)

    def list(self) -> Sequence[WorkerRecord]:
        return [one for one in self.inner.list() if one.id in self._scope.workers]

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        own = self._scope.workers if among is None else self._scope.workers & {*among}
        return self.inner.declare_dead(silent_for, now, sorted(own))


class _ScopedLocks(_Scoped[Locks]):
    """The locks of the tenants within."""

    def acquire(self, tenant: str, resource: str, **more: Any) -> LockHandle | None:  # noqa: ANN401 - as the locks take
        self._scope.require(tenant)
        return self.inner.acquire(tenant, resource, **more)


class ScratchTenants(msgspec.Struct, frozen=True):
    """Two scratch tenants, and the store that serves them only."""

    settings: Settings
    backend: str
    base: str
    store: Store
    components: Components

    @property
    def tenants(self) -> tuple[str, str]:
        """Return the two tenants that rows may be in."""
        return self.base + PARTS[0], self.base + PARTS[1]

    def clear(self) -> None:
        """Remove every row, for the next scenario."""
        remove(inner_store(self.store), self.base, keep=True)


@contextmanager
def scratch_tenants(settings: Settings, backend: str, components: Components, name: str) -> Iterator[ScratchTenants]:
    """Lend scratch tenants of one backend, removed afterwards in every case; first remove what killed ones left.

    ``name`` is the base tenant (``new_scratch_tenant``). Raises ``RefusedError`` before anything is written where it
    could not be removed again.
    """
    with ExitStack() as closing:
        closing.enter_context(bound_contextvars(verification=name))  # nobody takes its lines for a live scheduler's
        try:
            store = open_side(settings, backend)
            closing.callback(store.close)
            closing.enter_context(scratch_tenant(store, name, "migrator verify"))
        except DeniedError as error:
            if backend != "mongo":
                raise
            raise _may_not_write(settings) from error
        within = cast("Store", ScopedStore(store, TenantScope(name, [name + part for part in PARTS])))
        yield ScratchTenants(settings, backend, name, components.store(within), components)


def _may_not_write(settings: Settings) -> RefusedError:
    name, grant = backend_module("mongo").write_grant(settings)
    return RefusedError(
        f"the source's user may not write scratch tenants into {name}; as an administrator run", grant=grant
    )


def inner_store(store: Store) -> Store:
    """Return the store itself, out of whatever wraps it."""
    while isinstance(store, Delegate):
        store = store.inner
    return store
