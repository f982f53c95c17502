"""What a lock is asked for, the same on every backend: its key, its times, and how far its holder trusts it."""

from datetime import datetime, timedelta
from time import monotonic

from migrator.errors import UsageError
from migrator.store import validation

MARGIN = 0.75
"""The share of a ttl in which its holder acts without asking."""

_ONE_MILLISECOND = timedelta(milliseconds=1)


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


class Patience:
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
