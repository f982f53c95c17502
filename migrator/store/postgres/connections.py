"""The store's connections to PostgreSQL: transactions of a tenant, calls across tenants, and sessions that hold locks.

A connection is lent to one caller at a time. One that ended while nobody used it is replaced, because nothing was done
on it yet. A role that is missing, or that the user is no member of, is told at once, to the caller.

What differs:

- ``SessionPool``: a transaction sets its role and its tenant with ``set_config(…, true)``, which end with it. So
  nothing of it is left on the connection, also behind a pooler in transaction mode. The first statement of a
  transaction also tells whether the connection is alive, and what the database is (``epoch``).
- ``DispatcherPool``: connections in autocommit, which stay in the dispatcher role, so that a claim is one statement:
  begin, role and commit cost no round trip. That needs sessions of the server. Behind a pooler, each call is a
  transaction that sets its role, and prepares nothing. Plans are made once per connection. They use the queue's indexes
  whatever the statistics say, because the statistics describe a queue of a minute ago.
- ``LockSessions``: one session for each advisory lock that is held or waited for, and a few idle ones. There is no
  bound, because holders would wait for each other. A session in doubt is closed and not repaired: it may hold a lock.

These facts decide the code of the sessions that hold locks (``docs/locks.md``). A wait that ``lock_timeout`` ends may
still have got the lock, so ``pg_locks`` is read afterwards. A lock taken twice needs two unlocks, so a session that has
it never takes it again. An unlock that finds no lock only returns false. The server notices late that a client died,
unless it is told to check. Behind a pooler in transaction mode, two clients can take the same advisory lock, because
they share a session of the server, in which it may be taken twice. It also stays when both are gone. Such a pooler is
therefore refused.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import errors, sql
from psycopg_pool import ConnectionPool, PoolTimeout

from migrator import records
from migrator.config import Settings, postgres_dsn
from migrator.connections import postgres
from migrator.connections.postgres import (
    TOO_LARGE,
    Connection,
    entering_role,
    first_line,
    is_alive,
    not_a_dsn,
    not_a_member,
    not_migrated,
    open_target,
    translate_errors,
)
from migrator.connections.table_locks import holders_named
from migrator.errors import DeniedError, OvertakenError, RefusedError, UnreachableError, UsageError
from migrator.store import validation
from migrator.store.conflicts import repeat
from migrator.store.epoch import EpochState, require
from migrator.store.postgres import epoch
from migrator.store.postgres.epoch import OWN_BACKEND
from migrator.store.postgres.repository import refusal
from migrator.store.postgres.rows import SCHEMA, RowKey, fetch_readable, fetch_rows, register_json_loaders
from migrator.store.validation import GLOBAL
from migrator.telemetry import say

T = TypeVar("T")
Lent = TypeVar("Lent", bound=Connection)

WHAT = "the target"

LIMIT_WAITS = (
    "set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), {limit}), {{local}})"
).format(limit=f"'{postgres.LOCK_TIMEOUT}'")
"""A wait for a lock ends, unless the user or the DSN has set for how long: a caller is told who holds it."""


class _Pool(Generic[Lent]):
    """At most ``postgres.pool_size`` connections. A caller waits for a free one as long as for a connection."""

    def __init__(
        self,
        settings: Settings,
        kind: type[Lent],
        configure: Callable[[Lent], None],
        users: str,
        application: str = "migrator",
        **arguments: object,
    ) -> None:
        self._size, self._timeout = settings.postgres.pool_size, settings.postgres.timeout.total_seconds()
        self._users = users
        self._chosen = _is_chosen(settings)
        self._pool = ConnectionPool(
            postgres_dsn(settings),
            connection_class=kind,
            kwargs={**postgres.connect_arguments(settings.postgres.timeout, application), **arguments},
            min_size=0,
            max_size=self._size,
            timeout=self._timeout,
            # With a longer wait, a caller would wait for the growing pauses of an attempt that began before the server
            # came back.
            reconnect_timeout=self._timeout,
            configure=configure,
            open=True,
        )

    def close(self) -> None:
        """Close every connection; what is open on them ends with an error."""
        self._pool.close()

    def _borrow(self) -> Lent:
        try:
            return self._pool.getconn()
        except PoolTimeout as error:
            raise UnreachableError(
                f"{WHAT}: no connection within {self._timeout:g} s: all {self._size} of {self._users} are in use, or "
                "the server does not answer"
            ) from error

    def _begin(self, first: Callable[[Lent], T]) -> tuple[Lent, T]:
        """Borrow a connection, and do on it what comes first; on another one if it turns out to be broken."""
        for _ in range(self._size + 1):
            connection = self._borrow()
            try:
                return connection, first(connection)
            except psycopg.OperationalError:
                # It broke while it was idle in the pool (the server was restarted, for example): nothing was done yet,
                # so another connection may be tried.
                if not connection.closed:
                    self._undo(connection)
                    raise
                self._pool.putconn(connection)
            except BaseException:
                self._undo(connection)
                raise
        raise UnreachableError(f"{WHAT} ends every connection as it is used")

    def _undo(self, connection: Lent) -> None:
        """Give a connection back without what was done on it: one in autocommit is closed, as it may keep a setting."""
        with suppress(psycopg.Error):
            if connection.autocommit:
                connection.close()
            else:
                connection.rollback()
        self._pool.putconn(connection)

    def _require_here(self, state: EpochState) -> None:
        """Raise ``BackendMovedError`` if the data is elsewhere, ``CopyError`` on a copy; not for the tool."""
        if self._chosen:
            require(state, OWN_BACKEND)


@contextmanager
def overtaken() -> Iterator[None]:
    """Turn the server's end of a transaction because of another one into ``OvertakenError``."""
    try:
        yield
    except (errors.DeadlockDetected, errors.SerializationFailure) as error:
        raise OvertakenError("another session wrote the same at the same moment") from error


def _is_chosen(settings: Settings) -> bool:
    """Whether the epoch applies: not to a store that answers shadow reads, or is a tool's."""
    return settings.persistence.scheduler == OWN_BACKEND


def backend_pid(connection: Connection) -> int:
    """Return the process of the server that answers; a pooler has named another one when we connected."""
    with psycopg.ClientCursor(connection) as cursor:
        row = cursor.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return int(row[0])


# -- Transactions of a tenant ----------------------------------------------------------------------------------------

_PINS = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in postgres.PINNED.items())
_BEGIN = (
    "SELECT set_config('role', %s, true), set_config('app.tenant_id', %s, true),"
    f" date_trunc('milliseconds', clock_timestamp()), {_PINS}, {LIMIT_WAITS.format(local='true')}; {epoch.ASKED}"
).encode()
"""Two statements in one message: the second is planned in the role, and for the tenant, that the first one sets."""
_POWERS = "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
_CONNECTIONS = "SELECT numbackends FROM pg_stat_database WHERE datname = current_database()"
_UNGUARDED = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relname = ANY(%s)"
    " AND relkind = 'r' AND NOT row_security_active(oid) ORDER BY relname"
)


class SessionConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection of the pool."""

    bound_to: str = ""
    """The role that was found to be bound by row-level security."""


class SessionPool(_Pool[SessionConnection]):
    """Transactions in one role, bound to one tenant."""

    def __init__(self, settings: Settings) -> None:
        """Connect to the target once, so that a wrong setting is reported at once; raises as ``open_target`` does."""
        self.service, self.dispatcher = settings.postgres.service_role, settings.postgres.dispatcher_role
        with open_target(settings, role=self.service) as first, translate_errors(WHAT), holders_named(first):
            state = _epoch_state(first)
        first.close()
        if _is_chosen(settings) and state.copy is not None and settings.persistence.copy == "may be changed":
            _declare_rehearsal(settings, state.copy)
        elif _is_chosen(settings):
            require(state, OWN_BACKEND)
        super().__init__(settings, SessionConnection, _prepare, "this process")

    @contextmanager
    def transaction(
        self, *, tenant: str | None, now: datetime | None = None
    ) -> Iterator[tuple[psycopg.Connection[tuple[Any, ...]], datetime]]:
        """Open a transaction of a tenant in the service role; without a tenant, across tenants in the dispatcher role.

        Yields the connection and the time of the transaction: ``now`` or the database's clock, in whole milliseconds.
        Commits at the end; rolls back after an error. Errors of the driver become errors of the tool.
        """
        if tenant is not None:
            validation.check_tenant(tenant)
        named = validation.checked_time(now)
        with translate_errors(WHAT):
            connection, clock = self._begin(lambda free: self.enter(free, tenant))
            try:
                with holders_named(connection), overtaken():
                    yield connection, named or clock
                    connection.commit()
            except BaseException:
                # A broken connection is closed already, and the pool discards it.
                with suppress(psycopg.Error):
                    connection.rollback()
                raise
            finally:
                self._pool.putconn(connection)

    def now(self) -> datetime:
        """Return the database's clock in whole milliseconds."""
        with self.transaction(tenant=None) as (_, clock):
            return clock

    def ping(self) -> timedelta:
        """Return how long the server takes to answer; raises ``UnreachableError``."""
        with self._borrowed() as connection:
            begun = time.monotonic()
            connection.execute("SELECT 1")
            connection.rollback()
            return timedelta(seconds=time.monotonic() - begun)

    def connections(self) -> int:
        """Return how many connections are open to the database, including those of others."""
        with self.transaction(tenant=None) as (connection, _):
            row = connection.execute(_CONNECTIONS).fetchone()
        return 0 if row is None else int(row[0])

    def enter(self, connection: SessionConnection, tenant: str | None) -> datetime:
        """Set role and tenant until the end of the connection's transaction; return the database's clock.

        Raises ``RefusedError`` for a role that the user does not have, ``BackendMovedError``, ``CopyError``.
        """
        role = self.dispatcher if tenant is None else self.service
        try:
            with holders_named(connection):
                row, state = _begun(connection, role, tenant or "")
        except (errors.InvalidParameterValue, errors.UndefinedObject):
            raise not_migrated(f"it has no role {role}") from None
        except errors.InsufficientPrivilege as error:  # to the role, or to what is asked in it
            connection.rollback()
            if connection.execute("SELECT pg_has_role(%s, 'MEMBER')", (role,)).fetchone() != (True,):
                raise not_a_member(connection, role, (self.service, self.dispatcher)) from None
            connection.execute("SELECT set_config('role', %s, true)", (role,))
            _require_bound(connection, role)  # that is worse than a missing right
            raise error from None
        if tenant is not None and connection.bound_to != role:
            _require_bound(connection, role)
            connection.bound_to = role
        self._require_here(state)
        clock: datetime = row[2]
        return clock

    def epoch_backend(self) -> str | None:
        """Return the backend that the persistence epoch names; None: there was no cutover."""
        with self._borrowed() as connection:
            return _begun(connection, self.service, GLOBAL)[1].backend

    @contextmanager
    def _borrowed(self) -> Iterator[SessionConnection]:
        with translate_errors(WHAT):
            connection = self._borrow()
            try:
                with holders_named(connection):
                    yield connection
            finally:
                self._undo(connection)


def _prepare(connection: SessionConnection) -> None:
    """Configure a new connection; its transactions set their isolation, because the server's default may differ."""
    register_json_loaders(connection)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED


def _begun(connection: Connection, role: str, tenant: str) -> tuple[tuple[Any, ...], EpochState]:
    """Set a role and a tenant; return the first statement's row, and what the database is."""
    with psycopg.ClientCursor(connection) as cursor:
        row = cursor.execute(_BEGIN, (role, tenant)).fetchone()
        cursor.nextset()
        stated = cursor.fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return row, EpochState(*stated or ())


def _epoch_state(connection: Connection) -> EpochState:
    """Return the state of the database; raises ``RefusedError`` for one without the schema."""
    connection.execute("SELECT set_config('app.tenant_id', %s, false)", (GLOBAL,))
    try:
        return EpochState(*connection.execute(epoch.ASKED).fetchone() or ())
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        raise RefusedError(f"{WHAT} has no schema {SCHEMA}: call migrator schema upgrade first") from None
    except errors.InsufficientPrivilege:
        return EpochState()  # the first session says which right is missing


def _declare_rehearsal(settings: Settings, source: str) -> None:
    """Record that rows of the copy may be changed: every store of the database may do so from now on."""
    with open_target(settings, role=settings.postgres.dispatcher_role, autocommit=True) as connection:
        connection.execute("SELECT set_config('app.tenant_id', %s, false)", (GLOBAL,))
        connection.execute(epoch.DECLARE_REHEARSAL)
    connection.close()
    say(
        f"this PostgreSQL database is a copy of {source}, and is changed from now on (persistence.copy): it allows no"
        " cutover until migrator cutover clean-copy has removed the rows that are made here",
        level="warning",
    )


def _require_bound(connection: SessionConnection, role: str) -> None:
    """Refuse a role that row-level security does not bind: it would see all tenants."""
    powers = connection.execute(_POWERS).fetchone() or (True, True)
    for has, power in zip(powers, ("is a superuser", "has BYPASSRLS"), strict=True):
        if has:
            raise RefusedError(f"the role {role} {power}, so nothing keeps the tenants apart; use one that is bound")
    tables = [record.table for record in records.ALL]
    unguarded = [name for (name,) in connection.execute(_UNGUARDED, (SCHEMA, tables))]
    if unguarded:
        raise RefusedError(
            f"row-level security does not bind the role {role} on {', '.join(unguarded)}: it owns them (or is a member "
            "of their owner), or it is disabled there; call migrator schema upgrade, and use another role"
        )


# -- Calls across tenants --------------------------------------------------------------------------------------------

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


class DispatcherPool(_Pool[DispatcherConnection]):
    """Calls in the dispatcher role, with as few round trips as possible."""

    def __init__(self, settings: Settings) -> None:
        self._role = settings.postgres.dispatcher_role
        super().__init__(
            settings,
            DispatcherConnection,
            register_json_loaders,
            "the dispatcher",
            "migrator dispatcher",
            autocommit=True,
            prepare_threshold=0,
            cursor_factory=psycopg.RawCursor,
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
        """Return the answer of ``body`` in one transaction; repeat it if the server ended it because of others."""

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

    def _retrying(self, once: Callable[[], T]) -> T:
        def refused() -> T:
            with refusing():
                return once()

        try:
            with overtaken():
                return repeat(refused, lambda error: isinstance(error, _OVERTAKEN), attempts=ATTEMPTS)
        except DeniedError:
            # The fence of a rollback takes the right to write; a claim itself does not read the epoch, to be quick.
            self.require_here()
            raise

    def require_here(self) -> None:
        """Raise ``BackendMovedError`` if the data is elsewhere, ``CopyError`` on a copy; not for the tool."""
        with self._borrowed() as connection:
            row = connection.execute(epoch.ASKED).fetchone()
        self._require_here(EpochState(*row or ()))

    @contextmanager
    def _borrowed(self) -> Iterator[DispatcherConnection]:
        connection, _ = self._begin(self._ready)
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

    def _ready(self, connection: DispatcherConnection) -> None:
        """Look, without a query, whether a connection is alive; find out what a new one leads to."""
        if not is_alive(connection):
            connection.close()
            raise psycopg.OperationalError("the server ended the connection while it was idle")
        if connection.direct is None:  # before anything is set on it
            connection.direct = backend_pid(connection) == connection.info.backend_pid
            if connection.direct:
                self._enter(connection, local=False)
                connection.planned_at = time.monotonic()
            else:
                connection.prepare_threshold = None
        elif connection.direct and time.monotonic() - connection.planned_at > PLANNED_S:
            _drop_plans(connection)

    def _enter(self, connection: DispatcherConnection, *, local: bool) -> None:
        """Set the role and the settings, for the session or for the transaction."""
        with entering_role(connection, self._role), psycopg.ClientCursor(connection) as cursor:
            cursor.execute(_ENTER.encode(), {"role": self._role, "local": local})


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


def _drop_plans(connection: DispatcherConnection) -> None:
    """Let the server plan the prepared statements again when they are next executed."""
    with psycopg.ClientCursor(connection) as cursor:
        cursor.execute("DISCARD PLANS")
    connection.planned_at = time.monotonic()


# -- Sessions that hold locks ----------------------------------------------------------------------------------------

KEEPALIVES: dict[str, Any] = {
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


def _of_key(key: str) -> str:
    """Return the condition on ``pg_locks``, which shows a bigint as its two halves, and objsubid 1."""
    of_database = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    halves = f"classid = (({key}::bigint >> 32) & 4294967295)::oid AND objid = ({key}::bigint & 4294967295)::oid"
    return f"locktype = 'advisory' AND granted AND objsubid = 1 AND {of_database} AND {halves}"


def session_holds(key: str) -> str:
    """Return the condition that the session has the advisory lock; ``key`` is a parameter of the statement."""
    return f"EXISTS (SELECT FROM pg_locks WHERE {_of_key(key)} AND pid = pg_backend_pid())"


_HOLDS = f"SELECT {session_holds('$1')}"
_HOLDER = f"SELECT pid FROM pg_locks WHERE {_of_key('$1')}"  # noqa: S608 - as above

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
                    **KEEPALIVES,
                )
            except psycopg.ProgrammingError as error:
                raise not_a_dsn(error) from None
            postgres.require_version(self._connection)
        self.pid = self.backend()
        """The server's process, as long as the session is our own."""
        self._may_hold = False
        """Whether an advisory lock may have been taken since the last one was released."""

    def prepare(self) -> None:
        """Take the dispatcher role, and have the server check whether the client is alive; raises ``RefusedError``."""
        with translate_errors(WHAT):
            for name, value in _SERVER.items():
                with suppress(errors.UndefinedObject, errors.InvalidParameterValue):
                    self._connection.execute("SELECT set_config($1, $2, false)", (name, value))
            with entering_role(self._connection, self._role):
                self._act_as(self._role)

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
            return backend_pid(self._connection)

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
        self._may_hold = True
        return bool(self.rows("SELECT pg_try_advisory_lock($1)", (key,))[0][0])

    def wait(self, key: int, seconds: float | None) -> bool:
        """Wait in turn for the lock, for so long (None: no limit); return whether it was obtained.

        Raises ``OvertakenError`` if the server ends the wait because of a deadlock.
        """
        length = 0 if seconds is None else max(int(seconds * 1000), 1)
        self._may_hold = True
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
        """Release the lock, and any other; false if this session did not have it."""
        had, _ = self.rows("SELECT pg_advisory_unlock($1), pg_advisory_unlock_all()", (key,))[0]
        self._may_hold = False
        return bool(had)

    def free(self) -> None:
        """Release whatever is held, so that the session may serve another lock."""
        if self._may_hold:
            self.rows("SELECT pg_advisory_unlock_all()", ())
            self._may_hold = False

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


def require_session(session: LockSession, other: LockSession) -> None:
    """Refuse sessions that are shared: raises ``RefusedError`` with the reason.

    Both are of the same pooler. While the other one has a transaction open, a session of one's own keeps its process. A
    shared session is either the one that the other uses, or that of another client now.
    """
    for _ in range(ROUNDS):
        before = session.backend()
        with other.transaction():
            used = other.backend()
            after = session.backend()
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
