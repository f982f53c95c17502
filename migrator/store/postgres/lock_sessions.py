"""Sessions of the server that hold advisory locks: one for each lock that is held or waited for, and a few idle ones.

These facts decide the code (``docs/locks.md``). A wait that ``lock_timeout`` ends may still have got the lock, so
``pg_locks`` is read afterwards. A lock taken twice needs two unlocks, so a session that has it never takes it again. An
unlock that finds no lock only returns false. The server notices late that a client died, unless it is told to check.

Behind a pooler in transaction mode, two clients can take the same advisory lock, because they share a session of the
server, in which it may be taken twice. It also stays when both are gone. Such a pooler is therefore refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import psycopg
from psycopg import errors, sql

from migrator.config import Settings, postgres_dsn
from migrator.connections import postgres
from migrator.connections.postgres import is_alive, not_a_dsn, not_a_member, not_migrated, translate_errors
from migrator.errors import OvertakenError, RefusedError, UnreachableError

WHAT = "the target"

_CLIENT: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Seconds (milliseconds for the last) after which a server that does not answer is noticed."""

_SERVER = {
    "client_connection_check_interval": "500ms",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
    "lock_timeout": "0",
    **postgres.PINNED,
}
"""Settings of the connection for the server; not every system knows each of them."""

# pg_locks shows a bigint as its two halves, and objsubid 1.
_OF_KEY = (
    "locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND classid = (($1::bigint >> 32) & 4294967295)::oid AND objid = ($1::bigint & 4294967295)::oid"
)
_HOLDS = f"SELECT EXISTS (SELECT FROM pg_locks WHERE {_OF_KEY} AND pid = pg_backend_pid())"  # noqa: S608 - our own text
_HOLDER = f"SELECT pid FROM pg_locks WHERE {_OF_KEY}"  # noqa: S608 - as above

_TERMINATION_MS = 1_000
"""How long to wait for a session to end."""


class LockSession:
    """A session of the server that holds at most one advisory lock."""

    def __init__(self, settings: Settings) -> None:
        """Connect as the user of the DSN; raises as ``open_target`` does. Call ``prepare`` next."""
        self._role = settings.postgres.dispatcher_role
        with translate_errors(WHAT):
            try:
                dsn = postgres_dsn(settings)
                self._connection = psycopg.connect(
                    dsn,
                    autocommit=True,
                    prepare_threshold=0,
                    cursor_factory=psycopg.RawCursor,
                    **postgres.connect_arguments(settings.postgres.timeout, "migrator lock"),
                    **_CLIENT,
                )
            except psycopg.ProgrammingError as error:
                raise not_a_dsn(error) from None
            postgres.require_version(self._connection)
        self.pid = self.backend()
        """The server's process, as long as the session is our own."""

    def prepare(self) -> None:
        """Take the dispatcher role, and have the server check whether the client is alive; raises ``RefusedError``."""
        with translate_errors(WHAT):
            for name, value in _SERVER.items():
                with suppress(errors.UndefinedObject, errors.InvalidParameterValue):
                    self._connection.execute("SELECT set_config($1, $2, false)", (name, value))
            try:
                self._act_as(self._role)
            except (errors.InvalidParameterValue, errors.UndefinedObject):
                raise not_migrated(f"it has no role {self._role}") from None
            except errors.InsufficientPrivilege:
                raise not_a_member(self._connection, self._role) from None

    def _act_as(self, role: str) -> None:
        self._connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))

    @property
    def alive(self) -> bool:
        """Whether the session is open, as far as is known without a query."""
        return is_alive(self._connection)

    @property
    def announced(self) -> int:
        """The process that the server, or a pooler, named when we connected."""
        return self._connection.info.backend_pid

    def backend(self) -> int:
        """Return the process of the server that answers now."""
        with translate_errors(WHAT):
            row = self._connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return int(row[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep a transaction open."""
        with translate_errors(WHAT), self._connection.transaction():
            yield

    def rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows; raises ``UnreachableError`` where the session ended."""
        with translate_errors(WHAT):
            cursor = self._connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def holds(self, key: int) -> bool:
        """Return whether this session has the lock."""
        return bool(self.rows(_HOLDS, (key,))[0][0])

    def holder(self, key: int) -> int | None:
        """Return the process of the server that has the lock."""
        found = self.rows(_HOLDER, (key,))
        return found[0][0] if found else None

    def attempt(self, key: int) -> bool:
        """Take the lock if no session has it."""
        return bool(self.rows("SELECT pg_try_advisory_lock($1)", (key,))[0][0])

    def wait(self, key: int, seconds: float | None) -> bool:
        """Wait in turn for the lock, for so long (None: no limit); return whether it was obtained.

        Raises ``OvertakenError`` if the server ends the wait because of a deadlock.
        """
        length = 0 if seconds is None else max(int(seconds * 1000), 1)
        with translate_errors(WHAT):
            self._connection.execute("SELECT set_config('lock_timeout', $1, false)", (f"{length}ms",))
            try:
                self._connection.execute("SELECT pg_advisory_lock($1)", (key,))
            except errors.LockNotAvailable:
                return self.holds(key)  # the lock may have been obtained at the end of the wait
            except errors.DeadlockDetected as error:
                raise OvertakenError("holders of locks wait for each other") from error
            finally:
                with suppress(psycopg.Error):
                    self._connection.execute("SELECT set_config('lock_timeout', '0', false)")
        return True

    def unlock(self, key: int) -> bool:
        """Release the lock; false if this session did not have it."""
        return bool(self.rows("SELECT pg_advisory_unlock($1)", (key,))[0][0])

    def free(self) -> None:
        """Release whatever is held, so that the session may serve another lock."""
        self.rows("SELECT pg_advisory_unlock_all()", ())

    def terminate(self, pid: int) -> bool:
        """End another session of our user; false if that is not permitted, or takes too long."""
        with translate_errors(WHAT), self._as_user():
            try:
                cursor = self._connection.execute("SELECT pg_terminate_backend($1, $2)", (pid, _TERMINATION_MS))
            except errors.InsufficientPrivilege:
                return False
            row = cursor.fetchone()
        return row == (True,)

    def close(self) -> None:
        """End the session, and with it whatever it holds."""
        with suppress(psycopg.Error):
            self._connection.close()

    @contextmanager
    def _as_user(self) -> Iterator[None]:
        self._connection.execute("RESET ROLE")
        try:
            yield
        finally:
            with suppress(psycopg.Error):
                self._act_as(self._role)


ROUNDS = 5

REASON = (
    "postgres.dsn leads through a pooler in transaction mode: a lock belongs to a session of the server, and there each"
    " transaction may have another one, so two holders would not exclude each other; let postgres.dsn reach the server"
    " itself, or a pool in session mode"
)


def require_session(one: LockSession, other: LockSession) -> None:
    """Refuse sessions that are shared: raises ``RefusedError`` with the reason.

    Both are of the same pooler. While the other one has a transaction open, a session of one's own keeps its process. A
    shared session is either the one that the other uses, or that of another client now.
    """
    for _ in range(ROUNDS):
        before = one.backend()
        with other.transaction():
            used = other.backend()
            after = one.backend()
        if before == used or before != after:
            raise RefusedError(REASON)


def is_pooled(session: LockSession, settings: Settings) -> bool:
    """Return whether a pool in session mode lies between us and the server: it names a process of its own.

    Raises ``RefusedError`` for a pooler in transaction mode. Nothing may have been set on the session: such a pooler
    would set it for others.
    """
    if session.announced == session.pid:
        return False
    other = LockSession(settings)
    try:
        require_session(session, other)
    finally:
        other.close()
    return True


def describe_pooling(settings: Settings) -> str:
    """Describe what is between us and the server; raises ``RefusedError`` for a pooler in transaction mode."""
    session = LockSession(settings)
    try:
        between = "a pool in session mode" if is_pooled(session, settings) else "nothing"
    finally:
        session.close()
    return f"{between} lies between the tool and the server"


SPARE = 4
"""How many idle sessions are kept. They hold no lock."""


class LockSessions:
    """Lends sessions, each to one borrower at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._spare: list[LockSession] = []
        self._checked = False
        self._closed = False

    def take(self) -> LockSession:
        """Return a session that is lent to nobody else and holds no lock.

        Raises ``RefusedError`` behind a pooler in transaction mode, ``UnreachableError`` if no session can be opened.
        """
        while (session := self._pop()) is not None:
            if session.alive:
                return session
            session.close()
        session = LockSession(self._settings)
        try:
            if not self._checked:
                is_pooled(session, self._settings)
                self._checked = True
            session.prepare()
        except BaseException:
            session.close()
            raise
        return session

    def release_session(self, session: LockSession) -> None:
        """Take a session back; close one whose state is not known."""
        try:
            if session.alive:
                session.free()
        except UnreachableError:
            session.close()
        with self._lock:
            if session.alive and len(self._spare) < SPARE and not self._closed:
                self._spare.append(session)
                return
        session.close()

    def close(self) -> None:
        """Close the idle sessions; others are closed when they are returned."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, []
        for session in spare:
            session.close()

    def _pop(self) -> LockSession | None:
        with self._lock:
            return self._spare.pop() if self._spare else None
