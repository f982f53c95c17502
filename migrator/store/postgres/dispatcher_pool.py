"""The dispatcher's connections, for calls across tenants, with as few round trips as possible.

They are in autocommit and stay in the dispatcher role, so that a claim is one statement: begin, role and commit cost no
round trip. That needs sessions of the server. Behind a pooler, each call is a transaction that sets its role, and
prepares nothing. Plans are made once per connection. They use the queue's indexes whatever the statistics say, because
the statistics describe a queue of a minute ago.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolTimeout

from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import (
    TOO_LARGE,
    connect_arguments,
    first_line,
    is_alive,
    not_a_member,
    translate_errors,
)
from migrator.connections.table_locks import holders_named
from migrator.errors import DeniedError, OvertakenError, RefusedError, UnreachableError, UsageError
from migrator.store import validation
from migrator.store.conflicts import repeat
from migrator.store.epoch import Standing, require
from migrator.store.postgres import epoch
from migrator.store.postgres.epoch import OWN_BACKEND
from migrator.store.postgres.pool import LIMIT_WAITS
from migrator.store.postgres.repository import refusal
from migrator.store.postgres.rows import RowKey, readable_rows, register_json_loaders

T = TypeVar("T")

WHAT = "the target"

ATTEMPTS = 10
"""How often a call is made that met other sessions (a deadlock, a key that they took); the pauses take 0.1 s."""

PLANNED_S = 10.0
"""Seconds for which a connection keeps its plans."""

_SETTINGS = {
    "timezone": "UTC",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
_SESSION = ", ".join(f"set_config('{name}', '{value}', %(local)s)" for name, value in _SETTINGS.items())
_ENTER = f"SELECT set_config('role', %(role)s, %(local)s), {_SESSION}, {LIMIT_WAITS.format(local='%(local)s')}"


_OVERTAKEN = (OvertakenError, errors.DeadlockDetected, errors.SerializationFailure)


class DispatcherConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of the dispatcher."""

    direct: bool | None = None
    """Whether the server's session is ours until we close it; None: not known yet."""
    planned_at: float = 0.0
    """When the connection's plans were last dropped, by ``time.monotonic``."""


class DispatcherPool:
    """At most ``postgres.pool_size`` connections in the dispatcher role."""

    def __init__(self, settings: Settings) -> None:
        self._role, self._size = settings.postgres.dispatcher_role, settings.postgres.pool_size
        self._chosen = settings.persistence.scheduler == OWN_BACKEND
        """False for a store that answers shadow reads, or is a tool's: the epoch does not apply to it."""
        self._timeout = settings.postgres.timeout.total_seconds()
        self._pool = ConnectionPool(
            postgres_dsn(settings),
            connection_class=DispatcherConnection,
            kwargs={
                **connect_arguments(settings.postgres.timeout, "migrator dispatcher"),
                "autocommit": True,
                "prepare_threshold": 0,
                "cursor_factory": psycopg.RawCursor,
            },
            min_size=0,
            max_size=self._size,
            timeout=self._timeout,
            reconnect_timeout=self._timeout,
            configure=register_json_loaders,
            open=True,
        )

    def rows(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute one statement, a transaction of its own, and return its rows."""

        def once() -> list[tuple[Any, ...]]:
            with self._borrowed() as connection:
                return fetch_rows(connection, statement, parameters)

        return self._retrying(once)

    def readable(self, statement: str, parameters: Sequence[Any]) -> tuple[list[tuple[Any, ...]], list[RowKey]]:
        """Do as ``rows`` does, and leave out rows that cannot be read (``fetch_readable``)."""

        def once() -> tuple[list[tuple[Any, ...]], list[RowKey]]:
            with self._borrowed() as connection:
                return fetch_readable(connection, statement, parameters)

        return self._retrying(once)

    def transact(self, body: Callable[[psycopg.Connection[tuple[Any, ...]]], T]) -> T:
        """Return what ``body`` does in one transaction; repeat it if the server ended it because of others."""

        def once() -> T:
            with self._borrowed() as connection, connection.transaction():
                return body(connection)

        return self._retrying(once)

    @staticmethod
    def clock(connection: psycopg.Connection[tuple[Any, ...]]) -> datetime:
        """Return the database's clock at this moment, in whole milliseconds."""
        ((at,),) = fetch_rows(connection, "SELECT date_trunc('milliseconds', clock_timestamp())", ())
        read: datetime = at
        return read

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def _retrying(self, once: Callable[[], T]) -> T:
        def refused() -> T:
            with refusing():
                return once()

        try:
            return repeat(refused, lambda error: isinstance(error, _OVERTAKEN), attempts=ATTEMPTS)
        except (errors.DeadlockDetected, errors.SerializationFailure) as error:
            raise OvertakenError("another session wrote the same at the same moment") from error
        except DeniedError:
            # The fence of a rollback takes the right to write; a claim itself does not read the epoch, to be quick.
            self.require_here()
            raise

    def require_here(self) -> None:
        """Raise ``BackendMovedError`` if the data is elsewhere, ``CopyError`` on a copy; not for the tool."""
        if not self._chosen:
            return
        with self._borrowed() as connection:
            row = connection.execute(epoch.ASKED).fetchone()
        require(Standing(*row or ()), OWN_BACKEND)

    @contextmanager
    def _borrowed(self) -> Iterator[DispatcherConnection]:
        connection = self._live_connection()
        try:
            with holders_named(connection):
                if connection.direct:
                    yield connection
                else:
                    with connection.transaction():
                        self._enter(connection, local=True)
                        yield connection
        finally:
            self._pool.putconn(connection)

    def _live_connection(self) -> DispatcherConnection:
        """Return a connection that is alive, as far as is known without a query."""
        for _ in range(self._size + 1):
            try:
                connection = self._pool.getconn()
            except PoolTimeout as error:
                raise UnreachableError(
                    f"{WHAT}: no connection within {self._timeout:g} s: all {self._size} of the dispatcher are in use, "
                    "or the server does not answer"
                ) from error
            try:
                if is_alive(connection):
                    if connection.direct is None:
                        self._begin(connection)
                    elif connection.direct and time.monotonic() - connection.planned_at > PLANNED_S:
                        _drop_plans(connection)
                    return connection
                connection.close()  # the server ended it while it was idle in the pool
            except BaseException as error:
                ended = isinstance(error, psycopg.OperationalError) and connection.broken
                with suppress(psycopg.Error):
                    connection.close()
                if not ended:  # otherwise nothing was done yet, and another connection may be tried
                    self._pool.putconn(connection)
                    raise
            self._pool.putconn(connection)
        raise UnreachableError(f"{WHAT} ends every connection as it is used")

    def _begin(self, connection: DispatcherConnection) -> None:
        """Find out what a new connection leads to, before anything is set on it."""
        connection.direct = _backend_pid(connection) == connection.info.backend_pid
        if connection.direct:
            self._enter(connection, local=False)
            connection.planned_at = time.monotonic()
        else:
            connection.prepare_threshold = None

    def _enter(self, connection: DispatcherConnection, *, local: bool) -> None:
        """Set the role and the settings, for the session or for the transaction."""
        try:
            with psycopg.ClientCursor(connection) as cursor:
                cursor.execute(_ENTER.encode(), {"role": self._role, "local": local})
        except (errors.InvalidParameterValue, errors.UndefinedObject):
            raise RefusedError(f"{WHAT} has no role {self._role}: call migrator schema upgrade first") from None
        except errors.InsufficientPrivilege:
            raise not_a_member(connection, self._role) from None


def checked_time(now: datetime | None) -> datetime | None:
    """Return the time that a test passed; None: the statement's own."""
    return None if now is None else validation.checked_time(now)


@contextmanager
def refusing() -> Iterator[None]:
    """Translate the database's errors into the store's; let those pass that another attempt may remove."""
    try:
        yield
    except (errors.DeadlockDetected, errors.SerializationFailure):
        raise
    except psycopg.IntegrityError as error:
        raise refusal(error) from error
    except (psycopg.DataError, *TOO_LARGE) as error:
        raise UsageError(f"a value does not fit its column: {first_line(error)}") from error
    except psycopg.Error as error:
        with translate_errors(WHAT):
            raise error from error.__cause__


def fetch_rows(
    connection: psycopg.Connection[tuple[Any, ...]], statement: str, parameters: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Execute a statement with numbered parameters, and return its rows."""
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(statement.encode(), parameters, binary=True)
        return cursor.fetchall() if cursor.description else []


def fetch_readable(
    connection: psycopg.Connection[tuple[Any, ...]], statement: str, parameters: Sequence[Any]
) -> tuple[list[tuple[Any, ...]], list[RowKey]]:
    """Return the rows of a statement, and the keys of those that hold a value that Python has no value for.

    The statement has been executed, and its changes stand, whether its rows can be read or not.
    """
    with psycopg.RawCursor(connection) as cursor:
        cursor.execute(statement.encode(), parameters, binary=True)
        try:
            return cursor.fetchall(), []
        except psycopg.DataError:
            return readable_rows(cursor)


def as_json(documents: Iterable[object]) -> str:
    """Return the text of a parameter of type json: a list."""
    return msgspec.json.encode(list(documents)).decode()


def _drop_plans(connection: DispatcherConnection) -> None:
    """Let the server plan the prepared statements again when they are next executed."""
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute("DISCARD PLANS")
    connection.planned_at = time.monotonic()


def _backend_pid(connection: DispatcherConnection) -> int:
    """Return the process of the server that answers; a pooler names another one."""
    with psycopg.ClientCursor(connection) as cursor:
        row = cursor.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return int(row[0])
