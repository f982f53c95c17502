"""A scheduler's data in PostgreSQL: sessions, and calls across tenants."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import Final, Literal, NoReturn, Self, cast

from psycopg import sql

from migrator import records
from migrator.config import Settings
from migrator.connections.postgres import Connection, entering_role
from migrator.errors import UsageError
from migrator.records import Schedule, Trigger
from migrator.store import validation
from migrator.store.postgres import epoch, parallel_run
from migrator.store.postgres.application_connection import ApplicationTransactions
from migrator.store.postgres.audit import PostgresAudit
from migrator.store.postgres.connections import DispatcherPool, SessionPool
from migrator.store.postgres.jobs import PostgresGraphJobs, PostgresPolicyJobs
from migrator.store.postgres.locks import PostgresLocks
from migrator.store.postgres.queue import PostgresQueue
from migrator.store.postgres.rollback_window import RollbackWindow
from migrator.store.postgres.rows import table_name
from migrator.store.postgres.runs import (
    PostgresExecutionLogs,
    PostgresImpactSnapshots,
    PostgresRuns,
    PostgresRunSummaries,
)
from migrator.store.postgres.schedules import PostgresHandlers, PostgresSchedules, PostgresTriggers
from migrator.store.postgres.statistics import PostgresStatistics
from migrator.store.postgres.wakeups import PostgresWakeups, Written
from migrator.store.postgres.workers import PostgresWorkers
from migrator.store.protocols import PsycopgConnection, Store

OUTBOX_TRIGGER: Final = "migrator_outbox"
"""On each table whose changes the reverse sync carries to MongoDB, from the cutover until it is finished."""
_CARRIED: Final = f"SELECT 1 FROM pg_trigger WHERE tgrelid = 'scheduler.runs'::regclass AND tgname = '{OUTBOX_TRIGGER}'"  # noqa: S608 - our own text


def purge(pool: SessionPool, owner: str, tenant: str) -> Mapping[str, int]:
    """Delete every row of a tenant in one transaction; return table to rows deleted.

    Row-level security does not bind the owner: each statement names the tenant. Raises ``UsageError`` for no tenant and
    for ``*``, ``RefusedError`` if the user may not act as ``owner``.
    """
    validation.check_purgeable(tenant)
    removed: dict[str, int] = {}
    with pool.transaction(tenant=None) as (connection, _):
        with entering_role(connection, owner):
            connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(owner)))
        for record in reversed(records.ALL):  # referring rows before the rows to which they refer
            statement = sql.SQL("DELETE FROM {} WHERE tenant_id = %s").format(table_name(record.table))
            removed[record.table] = connection.execute(statement, (tenant,)).rowcount
    return removed


class PostgresSession:
    """One transaction of one tenant (``protocols.Session``)."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        self.connection, self.tenant, self.now = connection, tenant, now
        self.written = Written()
        self.schedules = PostgresSchedules(connection, tenant, now, self.written)
        self.triggers = PostgresTriggers(connection, tenant, now, self.written)
        self.runs = PostgresRuns(connection, tenant, now, self.written)
        self.graph_jobs = PostgresGraphJobs(connection, tenant, now)
        self.policy_jobs = PostgresPolicyJobs(connection, tenant, now)
        self.impact_snapshots = PostgresImpactSnapshots(connection, tenant, now)
        self.execution_logs = PostgresExecutionLogs(connection, tenant, now)
        self.run_summaries = PostgresRunSummaries(connection, tenant, now)
        self.audit = PostgresAudit(connection, tenant, now)
        self.handlers = PostgresHandlers(connection, tenant, now)
        self.statistics = PostgresStatistics(connection, tenant, now)


class PostgresStore:
    """``protocols.Store``.

    Sessions share at most ``postgres.pool_size`` connections, and calls across tenants as many others, opened when they
    are first needed. Each lock that is held, or waited for, has a connection of its own.
    """

    backend: Literal["postgres"] = "postgres"

    def __init__(self, settings: Settings) -> None:
        """Connect once, to fail early; raises as ``connections.postgres.open_target`` does."""
        self.settings = settings
        self.pool = SessionPool(settings)
        self._creating = Lock()
        self._dispatcher_pool: DispatcherPool | None = None
        self._rollback = RollbackWindow(settings)

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[PostgresSession]:
        with self.session_in(self.pool, tenant, now=now) as session:
            yield session

    @contextmanager
    def session_in(
        self, transactions: SessionPool | ApplicationTransactions, tenant: str, *, now: datetime | None = None
    ) -> Iterator[PostgresSession]:
        """Open a session in a transaction of the pool, or of an application."""
        with transactions.transaction(tenant=tenant, now=now) as (connection, clock):
            session = PostgresSession(connection, tenant, clock)
            yield session
            self._rollback.require_stated(connection, tenant, self._definitions(session))
            session.written.notify(connection)

    def using(self, connection: PsycopgConnection) -> Store:
        return cast("Store", ApplicationStore(self, ApplicationTransactions(self.pool, connection)))

    @staticmethod
    def _definitions(session: PostgresSession) -> Iterator[tuple[Schedule, Sequence[Trigger]]]:
        for key in sorted(session.written.stated):
            schedule = session.schedules.get(key)
            if schedule is not None:
                yield schedule, session.triggers.of_schedule(key)

    @cached_property
    def queue(self) -> PostgresQueue:
        return PostgresQueue(self._dispatcher())

    @cached_property
    def workers(self) -> PostgresWorkers:
        return PostgresWorkers(self._dispatcher())

    @cached_property
    def locks(self) -> PostgresLocks:
        return PostgresLocks(self.settings, self._dispatcher())

    @cached_property
    def wakeups(self) -> PostgresWakeups:
        return PostgresWakeups(self.settings, self._dispatcher())

    def now(self) -> datetime:
        return self.pool.now()

    def epoch_backend(self) -> str | None:
        """Return the backend that the persistence epoch names; None: there was no cutover."""
        return self.pool.epoch_backend()

    def is_parallel_run(self) -> bool:
        """Return whether another scheduler runs the same jobs in parallel (``store.postgres.parallel_run``).

        Raises ``CopyError`` if none does and the database is a copy.
        """
        if self._dispatcher().rows(parallel_run.IN_PROGRESS, ()):
            return True
        self._dispatcher().require_here()
        return False

    def is_in_rollback_window(self) -> bool:
        """Return whether what is written here is carried to MongoDB, so that a rollback loses nothing."""
        return bool(self._dispatcher().rows(_CARRIED, ()))

    def copied_from(self) -> str | None:
        """Return the source of a copy that no cutover has made active; None for any other database."""
        return self._copy()[0]

    def is_rehearsal(self) -> bool:
        """Return whether the copy may be changed (``[persistence] copy``)."""
        return self._copy()[1]

    def _copy(self) -> tuple[str | None, bool]:
        found = self._dispatcher().rows(epoch.COPY_AND_REHEARSAL, ())
        return (found[0][0], found[0][1]) if found else (None, False)

    def ping(self) -> timedelta:
        return self.pool.ping()

    def connections(self) -> int:
        return self.pool.connections()

    def purge(self, tenant: str) -> Mapping[str, int]:
        return purge(self.pool, self.settings.postgres.migration_role, tenant)

    def close(self) -> None:
        if "locks" in self.__dict__:
            self.locks.close()
        if self._dispatcher_pool is not None:
            self._dispatcher_pool.close()
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _dispatcher(self) -> DispatcherPool:
        with self._creating:
            if self._dispatcher_pool is None:
                self._dispatcher_pool = DispatcherPool(self.settings)
            return self._dispatcher_pool


class ApplicationStore:
    """The store within the transactions of an application's connection (``Store.using``): sessions alone."""

    backend: Literal["postgres"] = "postgres"

    def __init__(self, store: PostgresStore, transactions: ApplicationTransactions) -> None:
        self._store, self._transactions = store, transactions

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[PostgresSession]:
        with self._store.session_in(self._transactions, tenant, now=now) as session:
            yield session

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse what belongs to no tenant, and needs the rights of the dispatcher."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise UsageError(
            "an application's transaction creates, changes and reads schedules, and queues runs; for the rest call the"
            " client of the store itself"
        )


def open_store(settings: Settings) -> PostgresStore:
    """Open the store; see ``migrator.store.open_store``."""
    return PostgresStore(settings)
