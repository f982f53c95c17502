"""A scheduler's data in memory: the ports read literally, over dictionaries, one transaction at a time.

A test of anything that needs a ``Store`` builds one with a clock of its own::

    from migrator.verify.behaviour.harness import Clock
    from migrator.testing.memory.store import MemoryStore

    clock = Clock(NOW)  # at rows.NOW; clock.advance(timedelta(minutes=5))
    store = MemoryStore(clock)

``MemoryStore()`` goes by the time of day. ``store.plant(row, …)`` puts rows there past the sessions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Literal, Self
from uuid import UUID

from migrator import records
from migrator.records import (
    AuditEntry,
    ExecutionLog,
    GraphJob,
    Handler,
    ImpactSnapshot,
    PolicyJob,
    Record,
    Run,
    RunSummary,
    Schedule,
    Trigger,
)
from migrator.store import validation
from migrator.testing.memory.jobs import MemoryGraphJobs, MemoryPolicyJobs
from migrator.testing.memory.locks import MemoryLocks
from migrator.testing.memory.queue import MemoryQueue
from migrator.testing.memory.runs import MemoryRuns, MemoryRunSummaries
from migrator.testing.memory.schedules import MemorySchedules, MemoryTriggers
from migrator.testing.memory.statistics import MemoryStatistics
from migrator.testing.memory.table import Tables
from migrator.testing.memory.trails import MemoryAudit, MemoryExecutionLogs, MemoryHandlers, MemoryImpactSnapshots
from migrator.testing.memory.wakeups import MemoryWakeups
from migrator.testing.memory.workers import MemoryWorkers


class MemorySession:
    """One transaction of one tenant (``protocols.Session``), on tables of its own."""

    def __init__(self, tables: Tables, tenant: str, now: datetime) -> None:
        self.tenant, self.now, self.tables = tenant, now, tables
        self.schedules = MemorySchedules(Schedule, tables, tenant, now)
        self.triggers = MemoryTriggers(Trigger, tables, tenant, now)
        self.runs = MemoryRuns(Run, tables, tenant, now)
        self.graph_jobs = MemoryGraphJobs(GraphJob, tables, tenant, now)
        self.policy_jobs = MemoryPolicyJobs(PolicyJob, tables, tenant, now)
        self.impact_snapshots = MemoryImpactSnapshots(ImpactSnapshot, tables, tenant, now)
        self.execution_logs = MemoryExecutionLogs(ExecutionLog, tables, tenant, now)
        self.run_summaries = MemoryRunSummaries(RunSummary, tables, tenant, now)
        self.audit = MemoryAudit(AuditEntry, tables, tenant, now)
        self.handlers = MemoryHandlers(Handler, tables, tenant, now)
        self.statistics = MemoryStatistics(tables, tenant, now)


class MemoryStore:
    """``protocols.Store`` over dictionaries.

    A second session waits for the first; in one thread it is an error.
    """

    backend: Literal["memory"] = "memory"

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        """Begin empty; ``clock`` is the database's clock, the time of day where none is given."""
        self._clock = clock or (lambda: datetime.now(UTC))
        self._tables: Tables = {record: {} for record in records.ALL}
        self._lock, self._open = RLock(), False
        self.queue = MemoryQueue(self.transaction)
        self.workers = MemoryWorkers(self.transaction)
        self.locks = MemoryLocks(self.transaction)
        self.wakeups = MemoryWakeups()

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[MemorySession]:
        validation.check_tenant(tenant)
        with self.transaction(now) as (tables, moment):
            before = self._tables
            yield MemorySession(tables, tenant, moment)
        self.wakeups.committed(before, tables, moment)

    @contextmanager
    def transaction(self, now: datetime | None = None) -> Iterator[tuple[Tables, datetime]]:
        """Lend the tables and the time; what is written to them is kept, unless it ends with an exception."""
        named = validation.checked_time(now)
        with self._lock:
            assert not self._open, "the model has one session at a time"
            tables: Tables = {record: dict(rows) for record, rows in self._tables.items()}
            self._open = True
            try:
                yield tables, named or self.now()
                self._tables = tables
            finally:
                self._open = False

    def plant(self, *rows: Record) -> None:
        """Put rows there that no session may write: those of ``*``, and migrated ones."""
        with self._lock:
            for row in rows:
                self._tables[type(row)][row.id] = row  # type: ignore[attr-defined] # every table has an id

    def look(self, record: type[Record], identity: UUID) -> Record | None:
        """Return a row, whoever may see it."""
        with self._lock:
            return self._tables[record].get(identity)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._tables = {record: {} for record in records.ALL}

    def now(self) -> datetime:
        return validation.milliseconds(self._clock())

    def ping(self) -> timedelta:
        return timedelta(0)

    def connections(self) -> int | None:
        return None  # there is nothing to connect to

    def purge(self, tenant: str) -> dict[str, int]:
        validation.check_purgeable(tenant)
        removed: dict[str, int] = {}
        with self.transaction() as (tables, _):
            for record, rows in tables.items():
                mine = [key for key, row in rows.items() if row.tenant_id == tenant]
                for key in mine:
                    del rows[key]
                removed[record.table] = len(mine)
        return removed

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
