"""Locks in PostgreSQL: the row decides, a session's advisory lock waits, wakes, and ends with its holder."""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, cast

from migrator.config import Settings
from migrator.errors import LostLockError, UnreachableError, UsageError
from migrator.store.locking import Patience, Trust, check_wait, key_of, whole
from migrator.store.ports import Session
from migrator.store.postgres.contest import Contest, Won
from migrator.store.postgres.dispatch import Dispatch, moment
from migrator.store.postgres.lock_rows import LockRow, Rows
from migrator.store.postgres.lock_session import LockSession
from migrator.store.postgres.lock_sessions import LockSessions

if TYPE_CHECKING:
    from migrator.store.postgres.store import PostgresSession

GRACE_S = 1.0
"""How long after its end, by the local clock, the session of a handle that was forgotten is taken back."""

# Neither meets a holder that renews or gives back, but whoever acquires waits for it (FOR UPDATE).
_GUARD = """
SELECT true FROM scheduler.locks WHERE key = %s AND fence = %s AND (owner IS NOT NULL OR holder IS NOT NULL)
    AND (expires_at IS NULL OR expires_at > %s) FOR KEY SHARE
"""


class PostgresLocks:
    """``work.Locks``. Each lock that is held, or waited for, has a connection of its own."""

    def __init__(self, settings: Settings, dispatch: Dispatch) -> None:
        self._dispatch, self._sessions = dispatch, LockSessions(settings)
        self._service, self._dispatcher = settings.postgres.service_role, settings.postgres.dispatcher_role
        self._held: set[PostgresLock] = set()
        """Keeps the sessions of handles that the caller forgot: their locks are held until they end."""
        self._lock = Lock()

    def acquire(
        self,
        tenant: str,
        resource: str,
        *,
        ttl: timedelta,
        timeout: timedelta | None = timedelta(0),
        holder: str = "",
        now: datetime | None = None,
    ) -> "PostgresLock | None":
        """Return the lock, or none when it was not had within ``timeout`` (0: one try; none: wait for ever).

        Raises ``RefusedError`` behind a pooler in transaction mode, where a session's lock is nobody's.
        """
        key, length = key_of(tenant, resource), whole(ttl)
        check_wait(timeout, now)
        if "\0" in holder:
            raise UsageError("the holder of a lock holds the character NUL")
        named, patience = moment(now), Patience(timeout)
        self._sweep()
        session, row = self._sessions.take(), LockRow(key, holder)
        try:
            won = Contest(row, session, patience, ttl=length, now=named).run()
        except BaseException:
            session.close()  # in doubt what it holds
            raise
        if won is None or not won.by_session:
            self._sessions.give_back(session)
        if won is None:
            return None
        handle = PostgresLock(self, row, won, length, session if won.by_session else None)
        with self._lock:
            self._held.add(handle)
        return handle

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        """Return who holds it now (text, fence); a migrated lock has a holder without being acquired here."""
        state = LockRow(key_of(tenant, resource)).read(self._dispatch.rows, moment(now))
        return (state.holder, state.fence) if state is not None and state.live else None

    def guard(self, session: Session, tenant: str, resource: str, fence: int) -> None:
        """Let the session commit only if ``fence`` is the lock's and it is live; raises ``LostLockError``."""
        key, connection = key_of(tenant, resource), cast("PostgresSession", session).connection
        # A service may see a lock of *, and may not lock its row.
        connection.execute("SELECT set_config('role', %s, true)", (self._dispatcher,))
        found = connection.execute(_GUARD, (key, fence, session.now)).fetchone()
        connection.execute("SELECT set_config('role', %s, true)", (self._service,))
        if found is None:
            raise LostLockError("the lock is not held any more under this fence")

    def close(self) -> None:
        """End the sessions: what is held is free."""
        with self._lock:
            held, self._held = self._held, set()
        for handle in held:
            handle.abandon()
        self._sessions.close()

    def rows(self) -> Rows:
        """Return what executes statements for a lock without a session."""
        return self._dispatch.rows

    def forget(self, handle: "PostgresLock", session: LockSession | None) -> None:
        """Take back the session of a handle that is lost or given back."""
        with self._lock:
            self._held.discard(handle)
        if session is not None:
            self._sessions.give_back(session)

    def _sweep(self) -> None:
        with self._lock:
            forgotten = [handle for handle in self._held if handle.ends < monotonic() - GRACE_S]
        for handle in forgotten:
            handle.abandon()


class PostgresLock:
    """``work.LockHandle``."""

    def __init__(
        self, locks: PostgresLocks, row: LockRow, won: Won, ttl: timedelta, session: LockSession | None
    ) -> None:
        self.key, self.fence = row.key, won.fence
        self._locks, self._row, self._ttl, self._session = locks, row, ttl, session
        self._trust = Trust(won.since, ttl)
        self.ends = won.since + ttl.total_seconds()
        """Local time from which on it is over, unless renewed."""
        self._lost = False
        self._using = Lock()

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        """Extend from now, by the first ttl where none is given; false when it was lost: it stays lost."""
        length, named, since = self._ttl if ttl is None else whole(ttl), moment(now), monotonic()
        with self._using:
            if not self._still(lambda rows: self._row.renew(rows, named, length, self.fence)):
                self._lose()
                return False
            self._trust.extend(since, length)
            self.ends = since + length.total_seconds()
        return True

    def release(self, *, now: datetime | None = None) -> bool:
        """Give it back; false when it was not this handle's any more. A second call returns false."""
        named = moment(now)
        with self._using:
            held = self._still(lambda rows: self._row.release(rows, named, self.fence)) and self._unlocked()
            self._lose()
        return held

    @property
    def trusted(self) -> bool:
        """Whether the holder may act without asking.

        Local time since the winning attempt is well inside the ttl, and the session has not been ended.
        """
        if self._lost or not self._trust.lasts():
            return False
        if self._session is None or not self._using.acquire(blocking=False):
            return True
        try:
            return self._session is None or self._session.alive
        finally:
            self._using.release()

    def abandon(self) -> None:
        """Let go of the session without asking the row."""
        with self._using:
            self._lose()

    def _still(self, change: Callable[[Rows], bool]) -> bool:
        """Make a change to the row, if the session still stands for it."""
        if self._lost or self._session is None:
            return not self._lost and change(self._locks.rows())
        try:
            return self._session.holds(self._row.lock_id) and change(self._session.rows)
        except UnreachableError:
            return False  # the session ended, and another one may hold the lock by now

    def _unlocked(self) -> bool:
        """Give back the advisory lock after the row; false where somebody else had done so."""
        try:
            return self._session is None or self._session.unlock(self._row.lock_id)
        except UnreachableError:
            return True  # it ended with the session

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            session, self._session = self._session, None
            self._locks.forget(self, session)
