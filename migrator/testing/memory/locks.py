"""Locks in the model: ``locks.Locks`` read literally."""

from datetime import datetime, timedelta
from time import monotonic, sleep
from uuid import UUID, uuid4

import msgspec

from migrator.errors import LostLockError, UsageError
from migrator.records import Lock
from migrator.store import validation
from migrator.store.protocols import Session
from migrator.testing.memory.queue import Transaction
from migrator.testing.memory.table import Tables
from migrator.values.identity import lock_id

MARGIN = 0.75
"""The share of a ttl in which its holder acts without asking."""

POLL = 0.002

replace = msgspec.structs.replace


class MemoryLocks:
    """``locks.Locks``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def acquire(
        self,
        tenant: str,
        resource: str,
        *,
        ttl: timedelta,
        timeout: timedelta | None = timedelta(0),
        holder: str = "",
        now: datetime | None = None,
    ) -> "MemoryLock | None":
        key = key_of(tenant, resource)
        validation.check_above_zero("the ttl of a lock", ttl)
        if timeout is not None and timeout < timedelta(0):
            raise UsageError("the timeout of a lock must not be negative")
        if now is not None and timeout != timedelta(0):
            raise UsageError("a time is passed to a single try only")
        began = monotonic()
        while True:
            tried = monotonic()
            fence, owner = self._take(key, tenant, ttl, holder, now)
            if fence:
                return MemoryLock(self._transaction, key, fence, owner, ttl, tried)
            if timeout is not None and monotonic() - began >= timeout.total_seconds():
                return None
            sleep(POLL)

    def _take(self, key: str, tenant: str, ttl: timedelta, holder: str, now: datetime | None) -> tuple[int, UUID]:
        owner = uuid4()
        with self._transaction(now) as (tables, moment):
            row = find(tables, key)
            if row is not None and live(row, moment):
                return 0, owner
            if row is None:
                row = Lock(id=uuid4(), tenant_id=tenant, key=key, lock_id=lock_id(key))
            fence = row.fence + 1
            tables[Lock][row.id] = replace(
                row,
                owner=owner,
                holder=holder,
                fence=fence,
                acquired_at=moment,
                expires_at=validation.milliseconds(moment + ttl),
            )
            return fence, owner

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        key = key_of(tenant, resource)
        with self._transaction(now) as (tables, moment):
            row = find(tables, key)
            return (row.holder or "", row.fence) if row is not None and live(row, moment) else None

    def guard(self, session: Session, tenant: str, resource: str, fence: int) -> None:
        row = find(session.tables, key_of(tenant, resource))  # type: ignore[attr-defined] # the model's own session
        if row is None or not live(row, session.now) or row.fence != fence:
            raise LostLockError("the lock is not held any more under this fence")


class MemoryLock:
    """``locks.LockHandle``."""

    def __init__(
        self, transaction: Transaction, key: str, fence: int, owner: UUID, ttl: timedelta, tried: float
    ) -> None:
        self.key, self.fence = key, fence
        self._transaction, self._owner, self._ttl = transaction, owner, ttl
        self._lost = False
        self._trusted_until = tried + ttl.total_seconds() * MARGIN

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        length = self._ttl if ttl is None else ttl
        validation.check_above_zero("the ttl of a lock", length)
        tried = monotonic()
        with self._transaction(now) as (tables, moment):
            row = self._mine(tables, moment)
            if row is not None:
                tables[Lock][row.id] = replace(row, expires_at=validation.milliseconds(moment + length))
                self._trusted_until = tried + length.total_seconds() * MARGIN
            return row is not None

    def release(self, *, now: datetime | None = None) -> bool:
        with self._transaction(now) as (tables, moment):
            row = self._mine(tables, moment)
            if row is not None:
                tables[Lock][row.id] = replace(row, owner=None, holder=None, expires_at=None)
            self._lost = True
            return row is not None

    @property
    def trusted(self) -> bool:
        return not self._lost and monotonic() < self._trusted_until

    def _mine(self, tables: Tables, now: datetime) -> Lock | None:
        row = find(tables, self.key)
        held = row is not None and live(row, now) and (row.owner, row.fence) == (self._owner, self.fence)
        self._lost = self._lost or not held
        return None if self._lost else row


def key_of(tenant: str, resource: str) -> str:
    if not tenant or not resource or "/" in tenant:
        raise UsageError("a lock needs a tenant, without a slash, and a resource")
    validation.check_text("locks.key", f"{tenant}/{resource}")
    return f"{tenant}/{resource}"


def find(tables: Tables, key: str) -> Lock | None:
    return next((row for row in tables[Lock].values() if row.key == key), None)


def live(row: Lock, now: datetime) -> bool:
    """Whether somebody holds it: an owner, or a migrated holder, and no end before now."""
    held = row.owner is not None or row.holder is not None
    return held and (row.expires_at is None or row.expires_at > now)
