"""A scheduler's data in PostgreSQL: sessions, and what crosses tenants."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import Literal

from migrator.config import Settings
from migrator.store.postgres import beside
from migrator.store.postgres.audit import PostgresAudit
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.dispatch import Dispatch
from migrator.store.postgres.execution_logs import PostgresExecutionLogs
from migrator.store.postgres.figures import PostgresFigures
from migrator.store.postgres.graph_jobs import PostgresGraphJobs
from migrator.store.postgres.handlers import PostgresHandlers
from migrator.store.postgres.impact_snapshots import PostgresImpactSnapshots
from migrator.store.postgres.locks import PostgresLocks
from migrator.store.postgres.policy_jobs import PostgresPolicyJobs
from migrator.store.postgres.pool import Pool
from migrator.store.postgres.purge import purge
from migrator.store.postgres.queue import PostgresQueue
from migrator.store.postgres.run_summaries import PostgresRunSummaries
from migrator.store.postgres.runs import PostgresRuns
from migrator.store.postgres.schedules import PostgresSchedules
from migrator.store.postgres.triggers import PostgresTriggers
from migrator.store.postgres.workers import PostgresWorkers


class PostgresSession:
    """One transaction of one tenant (``ports.Session``)."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        self.connection, self.tenant, self.now = connection, tenant, now
        self.schedules = PostgresSchedules(connection, tenant, now)
        self.triggers = PostgresTriggers(connection, tenant, now)
        self.runs = PostgresRuns(connection, tenant, now)
        self.graph_jobs = PostgresGraphJobs(connection, tenant, now)
        self.policy_jobs = PostgresPolicyJobs(connection, tenant, now)
        self.impact_snapshots = PostgresImpactSnapshots(connection, tenant, now)
        self.execution_logs = PostgresExecutionLogs(connection, tenant, now)
        self.run_summaries = PostgresRunSummaries(connection, tenant, now)
        self.audit = PostgresAudit(connection, tenant, now)
        self.handlers = PostgresHandlers(connection, tenant, now)
        self.figures = PostgresFigures(connection, tenant, now)


class PostgresStore:
    """``ports.SchedulerStore``.

    Sessions share at most ``pool_size`` connections, what crosses tenants at most as many others, made when they are
    first needed; each lock that is held, or waited for, has its own besides.
    """

    backend: Literal["postgres"] = "postgres"

    def __init__(self, settings: Settings, *, pool_size: int = 10) -> None:
        """Connect once, to fail early; raises as ``connection.open_target`` does."""
        self.settings = settings
        self.pool = Pool(settings, size=pool_size)
        self._size = pool_size
        self._making = Lock()
        self._dispatch: Dispatch | None = None

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[PostgresSession]:
        """Open a transaction of one tenant; raises ``UsageError`` for an empty tenant."""
        with self.pool.transaction(tenant=tenant, now=now) as (connection, clock):
            yield PostgresSession(connection, tenant, clock)

    @cached_property
    def queue(self) -> PostgresQueue:
        """Firing and claiming."""
        return PostgresQueue(self._dispatcher())

    @cached_property
    def workers(self) -> PostgresWorkers:
        """Worker and scheduler processes."""
        return PostgresWorkers(self._dispatcher())

    @cached_property
    def locks(self) -> PostgresLocks:
        """Mutual exclusion between processes."""
        return PostgresLocks(self.settings, self._dispatcher())

    def now(self) -> datetime:
        """Return the database's clock (aware, UTC, whole milliseconds)."""
        return self.pool.now()

    def switched_to(self) -> str | None:
        """Return the backend that the persistence epoch names; none: there was never a switch."""
        return self.pool.switched_to()

    def runs_beside(self) -> bool:
        """Tell whether another scheduler runs the same jobs beside this one (``store.beside``)."""
        return bool(self._dispatcher().rows(beside.ASKED, ()))

    def ping(self) -> timedelta:
        """Return how long the server takes to answer; raises ``UnreachableError``."""
        return self.pool.ping()

    def connections(self) -> int:
        """Return how many connections are open to the database."""
        return self.pool.connections()

    def purge(self, tenant: str) -> Mapping[str, int]:
        """Remove every row of a tenant; return table to rows removed."""
        return purge(self.pool, self.settings.postgres.migration_role, tenant)

    def close(self) -> None:
        """Close every connection; locks that are held are free then."""
        if "locks" in self.__dict__:
            self.locks.close()
        if self._dispatch is not None:
            self._dispatch.close()
        self.pool.close()

    def _dispatcher(self) -> Dispatch:
        with self._making:
            if self._dispatch is None:
                self._dispatch = Dispatch(self.settings, size=self._size)
            return self._dispatch
