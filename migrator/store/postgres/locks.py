"""Locks in PostgreSQL: the row decides; a session's advisory lock waits, wakes, and ends with its holder.

The rows of ``locks`` decide which lock is held by whom, by the database's clock. ``metadata.migratorSession`` of a held
lock is the process of the server whose session holds the advisory lock, 0 if there is none. A lock whose session ended
is free at once. One without a session, and a migrated one, ends by its row alone.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast
from uuid import uuid4

import msgspec

from migrator.config import Settings
from migrator.errors import LostLockError, UnreachableError, UsageError
from migrator.store.locks import Deadline, Trust, check_wait, key_of, whole_milliseconds
from migrator.store.postgres.connections import DispatcherPool, LockSession, LockSessions, session_holds
from migrator.store.postgres.queue_statements import NOW
from migrator.store.protocols import Session
from migrator.store.validation import checked_time
from migrator.values.identity import lock_id

if TYPE_CHECKING:
    from migrator.store.postgres.store import PostgresSession


Rows: TypeAlias = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Executes one statement with numbered parameters as the dispatcher, and returns its rows."""

_SESSION = "migratorSession"
_PLAIN = f"(CASE WHEN jsonb_typeof(metadata) = 'object' THEN metadata - '{_SESSION}' ELSE '{{}}'::jsonb END)"
_HELD = "(owner IS NOT NULL OR holder IS NOT NULL)"
_MINE = f"key = $2 AND owner = $3 AND fence = $4 AND expires_at > {NOW}"
_TTL = f"date_trunc('milliseconds', {NOW} + $5::interval)"

_READ = f"""
SELECT {_HELD}, coalesce(expires_at <= {NOW}, false), extract(epoch FROM expires_at - {NOW})::float8,
    CASE WHEN jsonb_typeof(metadata -> '{_SESSION}') = 'number' THEN (metadata ->> '{_SESSION}')::int END,
    coalesce(holder, ''), fence
FROM scheduler.locks WHERE key = $2
"""  # noqa: S608 - our own text

# FOR UPDATE waits for guarded sessions (FOR KEY SHARE). Renewing and releasing do not wait for them.
_TAKE = f"""
WITH found AS MATERIALIZED (
    SELECT id AS found_id, tenant_id AS found_tenant FROM scheduler.locks WHERE key = $2
        AND (NOT {_HELD} OR expires_at <= {NOW} OR $7 AND (metadata -> '{_SESSION}') > '0'::jsonb)
    FOR UPDATE SKIP LOCKED
)
UPDATE scheduler.locks SET owner = $3, holder = $4, fence = fence + 1, acquired_at = {NOW}, expires_at = {_TTL},
    metadata = {_PLAIN} || jsonb_build_object('{_SESSION}', $6::int), lock_id = $8
FROM found WHERE id = found_id AND tenant_id = found_tenant RETURNING fence
"""  # noqa: S608 - as above

_MAKE = f"""
INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, owner, holder, fence, acquired_at, expires_at, metadata)
VALUES ($7, split_part($2, '/', 1), $2, $8, $3, $4, 1, {NOW}, {_TTL}, jsonb_build_object('{_SESSION}', $6::int))
ON CONFLICT (key) DO NOTHING RETURNING fence
"""  # noqa: S608 - as above

_RENEW = f"UPDATE scheduler.locks SET expires_at = {_TTL} WHERE {_MINE}"  # noqa: S608 - as above

_RELEASE = f"""
UPDATE scheduler.locks SET owner = NULL, holder = NULL, expires_at = NULL, metadata = NULLIF(
    {_PLAIN} || CASE WHEN metadata -> '{_SESSION}' = '0' THEN jsonb_build_object('{_SESSION}', 0) ELSE '{{}}' END,
    '{{}}'
) WHERE {_MINE}
"""  # noqa: S608 - as above


class LockState(msgspec.Struct, frozen=True):
    """The content of a lock's row."""

    held: bool
    over: bool
    """Whether it is past its end."""
    left: float | None
    """Seconds until its end, negative past it; None: it has none."""
    session: int | None
    """The process whose session holds the advisory lock; 0: the row alone decides; None: the row does not say."""
    holder: str
    fence: int

    @property
    def live(self) -> bool:
        """Whether the lock is held."""
        return self.held and not self.over


class LockRow:
    """One lock's row, for a process that acquires and then holds it."""

    def __init__(self, key: str, holder: str = "") -> None:
        self.key, self.holder, self.owner, self.lock_id = key, holder, uuid4(), lock_id(key)

    def read(self, rows: Rows, now: datetime | None) -> LockState | None:
        """Return the content of the row; None: there is no row yet."""
        found = rows(_READ, (now, self.key))
        return LockState(*found[0]) if found else None

    def take(self, rows: Rows, now: datetime | None, ttl: timedelta, session: int | None) -> int | None:
        """Take the lock if it is free, and return its fence.

        ``session``: the process whose session has the advisory lock for it, so that another session that had it has
        ended; None: no session has it.
        """
        given = (now, self.key, self.owner, self.holder, ttl, session or 0)
        found = rows(_TAKE, (*given, session is not None, self.lock_id)) or rows(_MAKE, (*given, uuid4(), self.lock_id))
        return int(found[0][0]) if found else None

    def renew(self, rows: Rows, now: datetime | None, ttl: timedelta, fence: int, *, by_session: bool) -> bool:
        """Extend the lock; false if it is not held any more, or not ``by_session``, which then executes this."""
        return self._change(rows, _RENEW, (now, self.key, self.owner, fence, ttl), by_session=by_session)

    def release(self, rows: Rows, now: datetime | None, fence: int, *, by_session: bool) -> bool:
        """Free the lock; false as above."""
        return self._change(rows, _RELEASE, (now, self.key, self.owner, fence), by_session=by_session)

    def _change(self, rows: Rows, statement: str, parameters: Sequence[Any], *, by_session: bool) -> bool:
        if not by_session:
            return bool(rows(f"{statement} RETURNING true", parameters))
        held = session_holds(f"${len(parameters) + 1}")
        return bool(rows(f"{statement} AND {held} RETURNING true", (*parameters, self.lock_id)))


STEP = 1.0
"""Seconds to wait for a process that is between two steps of acquiring or releasing."""

POLL = 0.05
"""Seconds between two reads of a lock that is decided by its row alone, because nothing wakes a waiting process."""

TRIES = 10
"""How often a single attempt reads again when the lock it met was free a moment later."""


class Acquired(NamedTuple):
    """The outcome of a successful attempt."""

    fence: int
    since: float
    """Local time at which the winning attempt began."""
    by_session: bool
    """Whether the session has the advisory lock; otherwise the row alone decides."""


class Acquisition:
    """A process that wants a lock. The session holds nothing afterwards, unless it won the lock."""

    def __init__(
        self, row: LockRow, session: LockSession, deadline: Deadline, *, ttl: timedelta, now: datetime | None
    ) -> None:
        self._row, self._session, self._deadline, self._ttl, self._now = row, session, deadline, ttl, now
        self._since = monotonic()
        self._unclear = 0.0
        """Seconds spent waiting for a process that is between two steps."""

    def run(self) -> Acquired | None:
        """Return the outcome, or None when the deadline has passed."""
        tries = 0
        while True:
            self._since = monotonic()
            if self._session.attempt(self._row.lock_id):
                won = self._decide()
                if won is not None:
                    return won
                pause = POLL  # the row alone decides about its holder, or a guarded session keeps it
            else:
                outcome = self._inspect_holder()
                if isinstance(outcome, Acquired):
                    return outcome
                pause = outcome
            tries += 1
            if self._deadline.over() and (pause > 0 or tries >= TRIES):
                return None
            if pause > 0:
                won = self._wait(pause)
                if won is not None:
                    return won

    def _decide(self) -> Acquired | None:
        """Take the row while holding the advisory lock; release that if the row belongs to another holder."""
        fence = self._row.take(self._session.rows, self._now, self._ttl, self._session.pid)
        if fence is not None:
            return Acquired(fence, self._since, by_session=True)
        self._session.unlock(self._row.lock_id)
        return None

    def _inspect_holder(self) -> Acquired | float:
        """Find the holder of the advisory lock; return the outcome, or how long to wait (0: look again at once)."""
        state = self._row.read(self._session.rows, self._now)
        if state is not None and state.live:
            self._unclear = 0.0
            longest = POLL if state.session == 0 else float("inf")
            return min(longest, state.left if state.left is not None and self._now is None else longest)
        if state is None or not state.held:
            by_row = (state is not None and state.session == 0) or self._unclear >= STEP
            return (self._take_by_row() if by_row else None) or STEP
        return self._overdue(state)

    def _overdue(self, state: LockState) -> Acquired | float:
        """End the session of a holder that is past its end, and still makes others wait (stopped, or cut off)."""
        has = self._session.holder(self._row.lock_id)
        if has is None:
            return 0
        if has == state.session and self._session.terminate(has):
            return 0
        if has == state.session or not state.session or self._unclear >= STEP:
            return self._take_by_row() or POLL
        return STEP

    def _take_by_row(self) -> Acquired | None:
        fence = self._row.take(self._session.rows, self._now, self._ttl, None)
        return None if fence is None else Acquired(fence, self._since, by_session=False)

    def _wait(self, longest: float) -> Acquired | None:
        """Wait in turn, for so long or until the deadline; return the outcome if the lock was obtained."""
        left = self._deadline.left()
        seconds = longest if left is None else min(longest, left)
        began = monotonic()
        had = self._session.wait(self._row.lock_id, None if seconds == float("inf") else max(seconds, 0.001))
        if not had:
            self._unclear += monotonic() - began if longest == STEP else 0.0
            return None
        self._since = monotonic()
        won = self._decide()
        if won is None:
            Event().wait(min(POLL, self._deadline.left() or POLL))
        return won


GRACE_S = 1.0
"""How long after its end, by the local clock, the session of a forgotten handle is taken back."""

# Neither conflicts with a holder that renews or releases, but an acquisition waits for it (FOR UPDATE).
_GUARD = """
SELECT true FROM scheduler.locks WHERE key = %s AND fence = %s AND (owner IS NOT NULL OR holder IS NOT NULL)
    AND (expires_at IS NULL OR expires_at > %s) FOR KEY SHARE
"""


class PostgresLocks:
    """``locks.Locks``. Each lock that is held, or waited for, has a connection of its own."""

    def __init__(self, settings: Settings, pool: DispatcherPool) -> None:
        self._pool, self._sessions = pool, LockSessions(settings)
        self._service, self._dispatcher = settings.postgres.service_role, settings.postgres.dispatcher_role
        self._held: set[PostgresLock] = set()
        """Keeps the sessions of handles that the caller has dropped: their locks are held until they end."""
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
        """Return the lock, or None if it was not obtained within ``timeout`` (0: one attempt; None: no limit).

        Raises ``RefusedError`` behind a pooler in transaction mode, where an advisory lock belongs to no client.
        """
        key, length = key_of(tenant, resource), whole_milliseconds(ttl)
        check_wait(timeout, now)
        if "\0" in holder:
            raise UsageError("the holder of a lock holds the character NUL")
        named, deadline = checked_time(now), Deadline(timeout)
        self._sweep()
        session, row = self._sessions.take(), LockRow(key, holder)
        try:
            won = Acquisition(row, session, deadline, ttl=length, now=named).run()
        except BaseException:
            session.close()  # whether it holds a lock is not known
            raise
        if won is None or not won.by_session:
            self._sessions.release_session(session)
        if won is None:
            return None
        handle = PostgresLock(self, row, won, length, session if won.by_session else None)
        with self._lock:
            self._held.add(handle)
        return handle

    def holder(self, tenant: str, resource: str, now: datetime | None = None) -> tuple[str, int] | None:
        state = LockRow(key_of(tenant, resource)).read(self._pool.rows, checked_time(now))
        return (state.holder, state.fence) if state is not None and state.live else None

    def guard(self, session: Session, tenant: str, resource: str, fence: int) -> None:
        key, connection = key_of(tenant, resource), cast("PostgresSession", session).connection
        # A service may see a lock of *, and may not lock its row.
        connection.execute("SELECT set_config('role', %s, true)", (self._dispatcher,))
        found = connection.execute(_GUARD, (key, fence, session.now)).fetchone()
        connection.execute("SELECT set_config('role', %s, true)", (self._service,))
        if found is None:
            raise LostLockError("the lock is not held any more under this fence")

    def close(self) -> None:
        """End the sessions: what they hold becomes free."""
        with self._lock:
            held, self._held = self._held, set()
        for handle in held:
            handle.abandon()
        self._sessions.close()

    def rows(self) -> Rows:
        """Return the function that executes statements for a lock without a session."""
        return self._pool.rows

    def forget(self, handle: "PostgresLock", session: LockSession | None) -> None:
        """Take back the session of a handle that is lost or released."""
        with self._lock:
            self._held.discard(handle)
        if session is not None:
            self._sessions.release_session(session)

    def _sweep(self) -> None:
        with self._lock:
            forgotten = [handle for handle in self._held if handle.ends < monotonic() - GRACE_S]
        for handle in forgotten:
            handle.abandon()


class PostgresLock:
    """``locks.LockHandle``."""

    def __init__(
        self, locks: PostgresLocks, row: LockRow, won: Acquired, ttl: timedelta, session: LockSession | None
    ) -> None:
        self.key, self.fence = row.key, won.fence
        self._locks, self._row, self._ttl, self._session = locks, row, ttl, session
        self._trust = Trust(won.since, ttl)
        self.ends = won.since + ttl.total_seconds()
        """Local time at which it ends, unless renewed."""
        self._lost = False
        self._using = Lock()

    def renew(self, ttl: timedelta | None = None, *, now: datetime | None = None) -> bool:
        length, named, since = self._ttl if ttl is None else whole_milliseconds(ttl), checked_time(now), monotonic()
        with self._using:
            if not self._still(partial(self._row.renew, now=named, ttl=length, fence=self.fence)):
                self._lose()
                return False
            self._trust.extend(since, length)
            self.ends = since + length.total_seconds()
        return True

    def release(self, *, now: datetime | None = None) -> bool:
        named = checked_time(now)
        with self._using:
            held = self._still(partial(self._row.release, now=named, fence=self.fence)) and self._unlocked()
            self._lose()
        return held

    @property
    def trusted(self) -> bool:
        """Whether the holder may act without a query.

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
        """Return the session without reading the row."""
        with self._using:
            self._lose()

    def _still(self, change: Callable[..., bool]) -> bool:
        """Change the row, if the session still has the lock."""
        if self._lost or self._session is None:
            return not self._lost and change(self._locks.rows(), by_session=False)
        try:
            return change(self._session.rows, by_session=True)
        except UnreachableError:
            return False  # the session ended, and another one may hold the lock by now

    def _unlocked(self) -> bool:
        """Release the advisory lock after the row; false if that was done already."""
        try:
            return self._session is None or self._session.unlock(self._row.lock_id)
        except UnreachableError:
            return True  # it ended with the session

    def _lose(self) -> None:
        if not self._lost:
            self._lost = True
            session, self._session = self._session, None
            self._locks.forget(self, session)
