"""A store whose time is a clock that a test moves: calls that name no time get that of the clock."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

from migrator.argument_types import checked
from migrator.errors import UsageError
from migrator.store import protocols
from migrator.store.locks import Locks
from migrator.store.protocols import Transactional
from migrator.store.queue import Queue
from migrator.store.wakeups import Wakeups
from migrator.store.workers import Workers

NOW = "now"


class MovedClock:
    """A clock that stands still until a test moves it. It begins at the time of day, in whole milliseconds."""

    def __init__(self) -> None:
        now = datetime.now(UTC)
        self._now = now - timedelta(microseconds=now.microsecond % 1000)

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    @property
    def now(self) -> datetime:
        """The time."""
        return self._now

    @checked
    def advance(self, by: timedelta) -> datetime:
        """Move the clock by so much; return the time then. ``UsageError`` for a step back."""
        return self.move_to(self._now + by)

    @checked
    def move_to(self, moment: datetime) -> datetime:
        """Move the clock to a time, and return it. ``UsageError`` for one before the present one, or without a zone."""
        if moment.tzinfo is None:
            raise UsageError("the clock is moved to a time with a zone")
        if moment < self._now:
            raise UsageError("the clock is moved forward only")
        self._now = moment.astimezone(UTC)
        return self._now


class _Clocked:
    """An object of a store whose methods get the time of the clock if a call names none."""

    def __init__(self, inner: object, clock: Callable[[], datetime]) -> None:
        self._inner, self._clock = inner, clock

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any method of the object
        method = getattr(self._inner, name)
        signature = inspect.signature(method)
        if NOW not in signature.parameters:
            return method

        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method takes
            bound = signature.bind(*arguments, **named)
            if bound.arguments.get(NOW) is None:
                bound.arguments[NOW] = self._clock()
            return method(*bound.args, **bound.kwargs)

        return call


class ClockedStore:
    """A store (``protocols.Store``) whose time is that of a clock; locks alone go by the database's."""

    def __init__(self, inner: protocols.Store, clock: Callable[[], datetime]) -> None:
        self.inner, self._clock = inner, clock
        self.queue = cast("Queue", _Clocked(inner.queue, clock))
        self.workers = cast("Workers", _Clocked(inner.workers, clock))

    @property
    def backend(self) -> protocols.Backend:
        """The backend of the store."""
        return self.inner.backend

    @property
    def locks(self) -> Locks:
        """The locks of the store."""
        return self.inner.locks

    @property
    def wakeups(self) -> Wakeups:
        """The wake-ups of the store."""
        return self.inner.wakeups

    def session(self, tenant: str, *, now: datetime | None = None) -> AbstractContextManager[protocols.Session]:
        """Open a transaction of one tenant at the time of the clock, unless another one is named."""
        return self.inner.session(tenant, now=self._clock() if now is None else now)

    def using(self, connection: protocols.PsycopgConnection) -> protocols.Store:
        """Return the store in the transaction of an application's connection; its sessions have the clock's time too.

        ``UsageError`` where the store cannot do that.
        """
        if not isinstance(self.inner, Transactional):
            raise UsageError(f"the store in {self.backend} takes no part in an application's transaction")
        return cast("protocols.Store", _ClockedSessions(self.inner.using(connection), self._clock))

    def now(self) -> datetime:
        """Return the time of the clock."""
        return self._clock()

    def ping(self) -> timedelta:
        """Return how long the backend takes to answer."""
        return self.inner.ping()

    def connections(self) -> int | None:
        """Return how many connections are open."""
        return self.inner.connections()

    def purge(self, tenant: str) -> Mapping[str, int]:
        """Delete every row of a tenant; return table to rows deleted."""
        return self.inner.purge(tenant)

    def close(self) -> None:
        """Close the store."""
        self.inner.close()

    def __enter__(self) -> Self:
        """Return the store."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the store."""
        self.close()


class _ClockedSessions:
    """The store in an application's transaction, whose sessions have the time of the clock."""

    def __init__(self, inner: protocols.Store, clock: Callable[[], datetime]) -> None:
        self._inner, self._clock = inner, clock

    def session(self, tenant: str, *, now: datetime | None = None) -> AbstractContextManager[protocols.Session]:
        """Open a session at the time of the clock, unless another one is named."""
        return self._inner.session(tenant, now=self._clock() if now is None else now)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever it has, or refuses
        return getattr(self._inner, name)
