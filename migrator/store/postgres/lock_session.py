"""A connection for one lock at a time: session advisory locks, waited for and given back without doubt.

Pitfalls that shape it (``docs/locks.md``): a wait that ``lock_timeout`` ends may still have got the lock, so
``pg_locks`` is asked afterwards; a lock taken twice needs two unlocks, so it is never taken by who has it; an unlock
that finds nothing only says false; a session that dies is noticed by the server late unless it is told to look.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors, sql

from migrator.config import Settings, postgres_dsn
from migrator.errors import ConflictError
from migrator.store.postgres import session
from migrator.store.postgres.connection import not_a_dsn, not_migrated, speaking_of
from migrator.store.postgres.liveness import stands
from migrator.store.postgres.membership import not_a_member

WHAT = "the target"

_CLIENT: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Seconds (milliseconds for the last) after which a server that is gone is noticed."""

_SERVER = {
    "client_connection_check_interval": "500ms",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30s",
    "idle_session_timeout": "0",
    "statement_timeout": "0",
    "lock_timeout": "0",
    **session.PINNED,
}
"""What the server is told; not every system knows each of them."""

# pg_locks shows a bigint as its two halves, and objsubid 1.
_OF_KEY = (
    "locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND classid = (($1::bigint >> 32) & 4294967295)::oid AND objid = ($1::bigint & 4294967295)::oid"
)
_HOLDS = f"SELECT EXISTS (SELECT FROM pg_locks WHERE {_OF_KEY} AND pid = pg_backend_pid())"  # noqa: S608 - our own text
_HOLDER = f"SELECT pid FROM pg_locks WHERE {_OF_KEY}"  # noqa: S608 - as above

_TERMINATION_MS = 1_000
"""How long a session that is ended is waited for."""


class LockSession:
    """A session of the server's that holds at most one advisory lock."""

    def __init__(self, settings: Settings) -> None:
        """Connect as the user of the DSN; raises as ``connection.open_target`` does. Call ``prepare`` next."""
        self._role = settings.postgres.dispatcher_role
        with speaking_of(WHAT):
            try:
                dsn = postgres_dsn(settings)
                self._connection = psycopg.connect(
                    dsn,
                    autocommit=True,
                    prepare_threshold=0,
                    cursor_factory=psycopg.RawCursor,
                    **session.arguments(settings.postgres.timeout_s, "migrator lock"),
                    **_CLIENT,
                )
            except psycopg.ProgrammingError as error:
                raise not_a_dsn(error) from None
        self.pid = self.backend()
        """The server's process, as long as the session is our own."""

    def prepare(self) -> None:
        """Take the dispatcher role, and have the server look whether we are there; raises ``RefusedError``."""
        with speaking_of(WHAT):
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
        """Whether the session stands, as far as can be told without asking."""
        return stands(self._connection)

    @property
    def announced(self) -> int:
        """The process that the server, or a pooler before it, gave when we connected."""
        return self._connection.info.backend_pid

    def backend(self) -> int:
        """Return the process of the server that answers now."""
        with speaking_of(WHAT):
            row = self._connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
        assert row is not None  # noqa: S101 - a SELECT without FROM has one row
        return int(row[0])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep a transaction open."""
        with speaking_of(WHAT), self._connection.transaction():
            yield

    def rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows; raises ``UnreachableError`` where the session ended."""
        with speaking_of(WHAT):
            cursor = self._connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def holds(self, key: int) -> bool:
        """Tell whether this session has the lock."""
        return bool(self.rows(_HOLDS, (key,))[0][0])

    def holder(self, key: int) -> int | None:
        """Return the process of the server that has the lock."""
        found = self.rows(_HOLDER, (key,))
        return found[0][0] if found else None

    def attempt(self, key: int) -> bool:
        """Take the lock if nobody has it."""
        return bool(self.rows("SELECT pg_try_advisory_lock($1)", (key,))[0][0])

    def wait(self, key: int, seconds: float | None) -> bool:
        """Wait in turn for the lock, for so long (none: for ever); tell whether it was had.

        Raises ``ConflictError`` where the server finds that those who wait wait for each other.
        """
        length = 0 if seconds is None else max(int(seconds * 1000), 1)
        with speaking_of(WHAT):
            self._connection.execute("SELECT set_config('lock_timeout', $1, false)", (f"{length}ms",))
            try:
                self._connection.execute("SELECT pg_advisory_lock($1)", (key,))
            except errors.LockNotAvailable:
                return self.holds(key)  # the lock may have come together with the end of the wait
            except errors.DeadlockDetected as error:
                raise ConflictError("holders of locks wait for each other") from error
            finally:
                with suppress(psycopg.Error):
                    self._connection.execute("SELECT set_config('lock_timeout', '0', false)")
        return True

    def unlock(self, key: int) -> bool:
        """Give the lock back; false where this session did not have it."""
        return bool(self.rows("SELECT pg_advisory_unlock($1)", (key,))[0][0])

    def free(self) -> None:
        """Give back whatever is held, so that the session may serve another lock."""
        self.rows("SELECT pg_advisory_unlock_all()", ())

    def terminate(self, pid: int) -> bool:
        """End another session of our user; false where that is not permitted, or takes too long."""
        with speaking_of(WHAT), self._as_user():
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
