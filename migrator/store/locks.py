"""Locks: mutual exclusion between processes, with a fencing token; and what is equal on every backend: keys and times.

Each call is a transaction of its own. ``now`` is for tests; if omitted, it is the database's clock. A lock expires at
the very instant of its end.
"""

from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from migrator.errors import UsageError
from migrator.store import validation

if TYPE_CHECKING:
    from migrator.store.protocols import Session

MARGIN = 0.75
"""The share of a ttl in which its holder may act without a query."""

_ONE_MILLISECOND = timedelta(milliseconds=1)


class LockHandle(Protocol):
    """A lock that was acquired."""

    key: str
    fence: int
    """Greater than the fence of every holder before."""

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        """Extend from now, by the first ttl if none is given; false if the lock was lost. It stays lost.

        A lock is lost if it expired, whether another process took it or not, and if its session ended. Raises
        ``UsageError`` for a ttl not above zero.
        """

    def release(self, *, now: datetime | None = None) -> bool:
        """Release the lock; false if it was not this handle's any more (as for renew). A second call returns false."""

    @property
    def trusted(self) -> bool:
        """Whether the holder may act without a query: local time since the winning attempt is well inside the ttl."""


class Locks(Protocol):
    """Mutual exclusion between processes, with a fencing token."""

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
        """Return the lock, or None if it was not obtained within ``timeout`` seconds (0: one attempt; None: no limit).

        After a timeout nothing is held. Not re-entrant: a second request of the same process waits like that of
        another. ``now`` is for tests, and needs timeout 0. Raises ``UsageError`` for a negative timeout, a ttl not
        above zero, a tenant or a resource that is empty, a tenant with a slash (the key is ``<tenant>/<resource>``).
        """

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        """Return the holder (text, fence); a migrated lock has a holder without being acquired here."""

    def guard(self, session: "Session", tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and the lock is live; raises ``LostLockError``.

        Live by the session's now. After the call no other process acquires the lock before the session ends.
        """


def key_of(tenant: str, resource: str) -> str:
    """Return the key of a lock; raises ``UsageError`` for an invalid tenant or resource."""
    if not tenant or not resource or "/" in tenant:
        raise UsageError("a lock needs a tenant, without a slash, and a resource")
    key = f"{tenant}/{resource}"
    validation.check_text("locks.key", key)
    return key


def whole_milliseconds(ttl: timedelta) -> timedelta:
    """Return a ttl in whole milliseconds, at least one; raises ``UsageError`` for one that is not above zero."""
    validation.check_above_zero("the ttl of a lock", ttl)
    return max(ttl // _ONE_MILLISECOND, 1) * _ONE_MILLISECOND


def check_wait(timeout: timedelta | None, now: datetime | None) -> None:
    """Raise ``UsageError`` for a negative timeout, and for a time that is passed to more than a single try."""
    if timeout is not None and timeout < timedelta(0):
        raise UsageError("the timeout of a lock must not be negative")
    if now is not None and timeout != timedelta(0):
        raise UsageError("a time is passed to a single try only")


class Deadline:
    """How much time is left of a timeout."""

    def __init__(self, timeout: timedelta | None) -> None:
        self._until = None if timeout is None else monotonic() + timeout.total_seconds()

    def left(self) -> float | None:
        """Return the seconds that are left, at least 0; None: no limit."""
        return None if self._until is None else max(self._until - monotonic(), 0.0)

    def over(self) -> bool:
        """Return whether no time is left."""
        return self.left() == 0


class Trust:
    """The local period in which a holder may act without a query; it counts from the start of the winning attempt."""

    def __init__(self, since: float, ttl: timedelta) -> None:
        self._until = 0.0
        self.extend(since, ttl)

    def extend(self, since: float, ttl: timedelta) -> None:
        """Start the period at an attempt that began at ``since`` (``time.monotonic``)."""
        self._until = since + ttl.total_seconds() * MARGIN

    def lasts(self) -> bool:
        """Return whether the period lasts."""
        return monotonic() < self._until
