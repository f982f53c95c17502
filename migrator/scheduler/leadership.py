"""The leader: the one process that sweeps, declares other processes dead, and removes old runs.

The leader holds the lock ``*/scheduler-leader``; the lock's fence is its term, issued by the database and higher than
that of every leader before. Nothing depends on there being one leader only (every write of the sweep is a
compare-and-set), but a second one would do the work twice, and what is written in a session is guarded by the term.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from migrator.errors import MigratorError
from migrator.log import logger
from migrator.store.locks import LockHandle
from migrator.store.protocols import Session, Store
from migrator.store.validation import GLOBAL

RESOURCE: Final = "scheduler-leader"


class Leadership:
    """This process's candidacy, and its term while it leads."""

    def __init__(
        self,
        store: Store,
        *,
        ttl: timedelta,
        holder: str,
        resource: str = RESOURCE,
        tenant: str = GLOBAL,
        clock: Callable[[], datetime] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``resource`` and ``tenant`` differ in a verification, which must never hold the real leader's lock."""
        self._store, self._ttl, self._holder = store, ttl, holder
        self._resource, self._tenant = resource, tenant
        self._clock, self._monotonic = clock, monotonic
        self._handle: LockHandle | None = None
        self._renewed = 0.0

    @property
    def term(self) -> int | None:
        """The term; none while this process does not lead, or may not be sure that it does."""
        handle = self._handle
        return handle.fence if handle is not None and handle.trusted else None

    def acquire(self) -> int | None:
        """Lead if nobody does, go on leading, or learn that it is over; return the term.

        Call it at least three times within the ttl. A renewal that fails ends the term at once; one that cannot be
        tried (the database does not answer) ends it when the local window is over: a leader without the database steps
        down before anybody can take its place.
        """
        try:
            if self._handle is None:
                self._elect()
            elif self._monotonic() - self._renewed >= self._ttl.total_seconds() / 3:
                self._renew(self._handle)
        except MigratorError as error:
            logger().warning("the leader's lock cannot be reached", reason=str(error))
        if self._handle is not None and not self._handle.trusted:
            self._lost(self._handle)
        return self.term

    def move(self, store: Store) -> None:
        """Stand in another store from now on: a term in the old one counts for nothing there."""
        self._store, self._handle = store, None

    def guard(self, session: Session) -> None:
        """Let a session commit only in this term; raises ``LostLockError``, also where this process does not lead."""
        self._store.locks.guard(session, self._tenant, self._resource, self.term or 0)

    def release(self) -> bool:
        """Give the lock back, so that another one leads at once; false when it was lost already."""
        handle, self._handle = self._handle, None
        if handle is None:
            return False
        logger().info("resigned as leader", term=handle.fence)
        return handle.release(now=self._now())

    def _elect(self) -> None:
        began = self._monotonic()
        self._handle = self._store.locks.acquire(
            self._tenant, self._resource, ttl=self._ttl, holder=self._holder, now=self._now()
        )
        self._renewed = began
        if self._handle is not None:
            logger().info("leads", term=self._handle.fence)

    def _renew(self, handle: LockHandle) -> None:
        began = self._monotonic()
        if handle.renew(now=self._now()):
            self._renewed = began
        else:
            self._lost(handle)

    def _lost(self, handle: LockHandle) -> None:
        logger().warning("does not lead any more", term=handle.fence)
        self._handle = None

    def _now(self) -> datetime | None:
        return None if self._clock is None else self._clock()
