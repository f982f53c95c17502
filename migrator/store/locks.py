"""Locks: mutual exclusion between processes, with a fence; and what is the same on every backend: keys and times.

Each call is a transaction of its own. ``now`` is for tests; if omitted, it is the database's clock. A lock whose time
is over is over from that very instant on.
"""

from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from migrator.errors import UsageError
from migrator.store import validation

if TYPE_CHECKING:
    from migrator.store.protocols import Session

MARGIN = 0.75
"""The share of a ttl in which its holder acts without asking."""

_ONE_MILLISECOND = timedelta(milliseconds=1)


class LockHandle(Protocol):
    """A lock that was acquired."""

    key: str
    fence: int
    """Higher than that of every holder before."""

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        """Extend from now, by the first ttl where none is given; false when it was lost: it stays lost.

        Lost is what expired, taken by another or not, and where the session behind it ended. A ttl not above zero:
        ``UsageError``.
        """

    def release(self, *, now: datetime | None = None) -> bool:
        """Give it back; false when it was not this handle's any more (as for renew). A second call returns false."""

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
        """Return who holds it now (text, fence); a migrated lock has a holder without being acquired here."""

    def guard(self, session: "Session", tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and it is live; raises ``LostLockError``.

        Live by the session's now. After it nobody else acquires the lock before the session ends.
        """


def key_of(tenant: str, resource: str) -> str:
    """Return the key of a lock; raises ``UsageError`` for what is none."""
    if not tenant or not resource or "/" in tenant:
        raise UsageError("a lock needs a tenant, without a slash, and a resource")
    if "\0" in tenant or "\0" in resource:
        raise UsageError("the key of a lock holds the character NUL")
    return f"{tenant}/{resource}"


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
    """How long somebody is still willing to wait."""

    def __init__(self, timeout: timedelta | None) -> None:
        self._until = None if timeout is None else monotonic() + timeout.total_seconds()

    def left(self) -> float | None:
        """Return the seconds that are left, at least 0; none: for ever."""
        return None if self._until is None else max(self._until - monotonic(), 0.0)

    def over(self) -> bool:
        """Tell whether nothing is left."""
        return self.left() == 0


class Trust:
    """The local window in which a holder may act without asking; it counts from the start of the winning attempt."""

    def __init__(self, since: float, ttl: timedelta) -> None:
        self._until = 0.0
        self.extend(since, ttl)

    def extend(self, since: float, ttl: timedelta) -> None:
        """Trust from an attempt that began at ``since`` (``time.monotonic``)."""
        self._until = since + ttl.total_seconds() * MARGIN

    def lasts(self) -> bool:
        """Tell whether the window is open."""
        return monotonic() < self._until
