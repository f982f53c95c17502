"""The store's connections: a bounded pool, and transactions in one role, bound to one tenant.

A transaction sets its role and tenant with ``set_config(…, true)``, which end with it. So nothing of it is left on the
connection, also behind a pooler in transaction mode.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool, PoolTimeout

from migrator import records
from migrator.config import Settings, postgres_dsn
from migrator.connections import postgres
from migrator.connections.postgres import Connection, not_a_member, open_target, translate_errors
from migrator.connections.table_locks import holders_named
from migrator.errors import OvertakenError, RefusedError, UnreachableError, UsageError
from migrator.store import validation
from migrator.store.epoch import Standing, require
from migrator.store.postgres import epoch
from migrator.store.postgres.epoch import OWN_BACKEND
from migrator.store.postgres.rows import SCHEMA, register_json_loaders
from migrator.store.validation import GLOBAL, milliseconds
from migrator.telemetry import say

WHAT = "the target"

LIMIT_WAITS = (
    "set_config('lock_timeout', coalesce(nullif(current_setting('lock_timeout'), '0'), {limit}), {{local}})"
).format(limit=f"'{postgres.LOCK_TIMEOUT}'")
"""A wait for a lock ends, unless the user or the DSN has set for how long: a caller is told who holds it."""
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


class SessionPool:
    """At most ``postgres.pool_size`` connections.

    A caller waits for a free one as long as for a connection; then it is an error.
    """

    def __init__(self, settings: Settings) -> None:
        """Connect to the target once, so that a wrong setting is reported at once; raises as ``open_target`` does."""
        self.service, self.dispatcher = settings.postgres.service_role, settings.postgres.dispatcher_role
        self._size, self._timeout = settings.postgres.pool_size, settings.postgres.timeout.total_seconds()
        self._chosen = settings.persistence.scheduler == OWN_BACKEND
        """False for a store that answers shadow reads, or is a tool's: the epoch does not apply to it."""
        with open_target(settings, role=self.service) as first, translate_errors(WHAT), holders_named(first):
            standing = _standing(first)
        first.close()
        if self._chosen:
            if standing.copy is not None and settings.persistence.copy == "may be changed":
                _declare_rehearsal(settings, standing.copy)
            else:
                require(standing, OWN_BACKEND)
        self._pool = ConnectionPool(
            postgres_dsn(settings),
            connection_class=SessionConnection,
            kwargs=postgres.connect_arguments(settings.postgres.timeout),
            min_size=0,
            max_size=self._size,
            timeout=self._timeout,
            # With a longer wait, a caller would wait for the growing pauses of an attempt that began before the server
            # came back.
            reconnect_timeout=self._timeout,
            configure=_prepare,
            open=True,
        )

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
        if now is not None and now.tzinfo is None:
            raise UsageError("the time of a session names no time zone")
        with translate_errors(WHAT):
            connection, clock = self._begin(tenant)
            try:
                with holders_named(connection):
                    yield connection, clock if now is None else milliseconds(now)
                    connection.commit()
            except (errors.DeadlockDetected, errors.SerializationFailure) as error:
                with suppress(psycopg.Error):
                    connection.rollback()
                raise OvertakenError("another session wrote the same at the same moment") from error
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
            begun = monotonic()
            connection.execute("SELECT 1")
            connection.rollback()
            return timedelta(seconds=monotonic() - begun)

    def connections(self) -> int:
        """Return how many connections are open to the database, including those of others."""
        with self.transaction(tenant=None) as (connection, _):
            row = connection.execute(_CONNECTIONS).fetchone()
        return 0 if row is None else int(row[0])

    def close(self) -> None:
        """Close every connection; sessions that are open end with an error."""
        self._pool.close()

    def _borrow(self) -> SessionConnection:
        try:
            return self._pool.getconn()
        except PoolTimeout as error:
            raise UnreachableError(
                f"{WHAT}: no connection within {self._timeout:g} s: all {self._size} of this process are in use, or "
                "the server does not answer"
            ) from error

    def _begin(self, tenant: str | None) -> tuple[SessionConnection, datetime]:
        for _ in range(self._size + 1):
            connection = self._borrow()
            try:
                return connection, self.enter(connection, tenant)
            except psycopg.OperationalError:
                # It broke while it was idle in the pool (the server was restarted, for example): nothing was done yet,
                # so another connection may be tried.
                if not connection.broken:
                    self._return(connection)
                    raise
                self._pool.putconn(connection)
            except BaseException:
                self._return(connection)
                raise
        raise UnreachableError(f"{WHAT} ends every connection as it is used")

    def enter(self, connection: SessionConnection, tenant: str | None) -> datetime:
        """Set role and tenant until the end of the connection's transaction; return the database's clock.

        Raises ``RefusedError`` for a role that the user does not have, ``BackendMovedError``, ``CopyError``.
        """
        role = self.dispatcher if tenant is None else self.service
        try:
            with holders_named(connection):
                row, standing = _begun(connection, role, tenant or "")
        except (errors.InvalidParameterValue, errors.UndefinedObject):
            raise RefusedError(f"{WHAT} has no role {role}: call migrator schema upgrade first") from None
        except errors.InsufficientPrivilege as error:
            connection.rollback()
            if connection.execute("SELECT pg_has_role(%s, 'MEMBER')", (role,)).fetchone() != (True,):
                raise not_a_member(connection, role, (self.service, self.dispatcher)) from None
            connection.execute("SELECT set_config('role', %s, true)", (role,))
            _require_bound(connection, role)  # that is worse than a missing right
            raise error from None
        if tenant is not None and connection.bound_to != role:
            _require_bound(connection, role)
            connection.bound_to = role
        if self._chosen:
            require(standing, OWN_BACKEND)
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
                self._return(connection)

    def _return(self, connection: SessionConnection) -> None:
        with suppress(psycopg.Error):
            connection.rollback()
        self._pool.putconn(connection)


def _prepare(connection: SessionConnection) -> None:
    """Configure a new connection; its transactions set their isolation, because the server's default may differ."""
    register_json_loaders(connection)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED


def _begun(connection: Connection, role: str, tenant: str) -> tuple[tuple[Any, ...], Standing]:
    """Set a role and a tenant; return the first statement's row, and what the database is."""
    with psycopg.ClientCursor(connection) as cursor:
        row = cursor.execute(_BEGIN, (role, tenant)).fetchone()
        cursor.nextset()
        stated = cursor.fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    return row, Standing(*stated or ())


def _standing(connection: Connection) -> Standing:
    """Return what the database is; raises ``RefusedError`` for one without the schema."""
    connection.execute("SELECT set_config('app.tenant_id', %s, false)", (GLOBAL,))
    try:
        return Standing(*connection.execute(epoch.ASKED).fetchone() or ())
    except (errors.UndefinedTable, errors.InvalidSchemaName):
        raise RefusedError(f"{WHAT} has no schema {SCHEMA}: call migrator schema upgrade first") from None
    except errors.InsufficientPrivilege:
        return Standing()  # the first session says which right is missing


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
