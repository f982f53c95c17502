"""A worker on a backend of the suite, with a clock that the test moves and a executor that does what the test says."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from migrator.records import AuditEntry, ExecutionLog, Run
from migrator.scheduler.executor import Executor
from migrator.scheduler.lifecycle import Event
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.store.protocols import RunQuery, Store
from tests.contract.memory.clock import Clock
from tests.contract.rows import NOW

LEASE = timedelta(minutes=2)


class Stage:
    """One process's worker, bound to one tenant."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        executor: Executor,
        *,
        clock: Clock | None = None,
        **options: Any,  # noqa: ANN401 - of a options
    ) -> None:
        self.store, self.tenant = store, tenant
        self.clock = Clock() if clock is None else clock
        self.told: list[Event] = []
        self.options = WorkerOptions(worker_id=uuid4(), lease=LEASE, tenants=(tenant,), **options)
        self.worker = WorkerCore(
            store,
            executor,
            self.options,
            sink=self.told.append,
            clock=self.clock,
            monotonic=self._seconds,
        )

    def _seconds(self) -> float:
        return (self.clock.now - NOW).total_seconds()

    def turn(self) -> None:
        """Do what a process does in a turn, heartbeat included."""
        self.worker.renew()
        self.worker.collect()
        self.worker.time_out()
        self.worker.fire()
        self.worker.claim()

    def after(self, by: timedelta) -> None:
        """Let time pass, then do a turn."""
        self.clock.advance(by)
        self.turn()

    def runs(self) -> list[Run]:
        """Return the tenant's runs, oldest first."""
        with self.store.session(self.tenant, now=self.clock.now) as session:
            found = session.runs.list(RunQuery(limit=1000)).runs
        return sorted(found, key=lambda run: (run.created_at, run.attempt or 0, run.scheduled_at or run.created_at))

    def states(self) -> list[str]:
        return [run.state for run in self.runs()]

    def logs(self, run_id: UUID) -> Sequence[ExecutionLog]:
        with self.store.session(self.tenant, now=self.clock.now) as session:
            return session.execution_logs.of_run(run_id)

    def trail(self) -> list[AuditEntry]:
        """Return the audit trail, oldest first."""
        with self.store.session(self.tenant, now=self.clock.now) as session:
            return list(reversed(session.audit.list(1000)))

    def names(self) -> list[str]:
        """Return the events that were told, without their prefix."""
        return [event.name.removeprefix("scheduler:job.") for event in self.told]


def moment(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
