"""The harness as one process of several: its worker has options of its own, and its turns renew and time out too."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from migrator.records import AuditEntry, ExecutionLog, Run
from migrator.scheduler.executor import Executor
from migrator.store.protocols import RunQuery, Store
from migrator.verify.behaviour.harness import Clock, Harness
from tests.contract.rows import NOW

LEASE = timedelta(minutes=2)


class Process(Harness):
    """One process's worker, bound to one tenant."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        executor: Executor,
        *,
        clock: Clock | None = None,
        capacity: int = 10,
    ) -> None:
        super().__init__(store, (tenant, tenant), clock=Clock(NOW) if clock is None else clock, new_id=uuid4)
        self.worker_id = uuid4()
        self.worker = self.worker_for(
            executor,
            worker_id=self.worker_id,
            lease=LEASE,
            capacity=capacity,
            sink=self.events.append,
            monotonic=self._seconds,
        )

    def _seconds(self) -> float:
        return (self.now - NOW).total_seconds()

    def turn(self) -> None:
        """Do what a process does in a turn, heartbeat included."""
        self.worker.renew()
        self.worker.collect()
        self.worker.time_out()
        self.worker.fire()
        self.worker.claim()

    def after(self, by: timedelta) -> None:
        """Let time pass, then do a turn."""
        self.advance(by)
        self.turn()

    def all_runs(self) -> list[Run]:
        """Return the tenant's runs, oldest first."""
        with self.session() as session:
            found = session.runs.list(RunQuery(limit=1000)).runs
        return sorted(found, key=lambda run: (run.created_at, run.attempt or 0, run.scheduled_at or run.created_at))

    def states(self) -> list[str]:
        return [run.state for run in self.all_runs()]

    def logs(self, run_id: UUID) -> Sequence[ExecutionLog]:
        with self.session() as session:
            lines: Sequence[ExecutionLog] = session.execution_logs.of_run(run_id)
        return lines

    def trail(self) -> list[AuditEntry]:
        """Return the audit trail, oldest first."""
        with self.session() as session:
            return list(reversed(session.audit.list(1000)))

    def names(self) -> list[str]:
        """Return the events that were told, without their prefix."""
        return [event.name.removeprefix("scheduler:job.") for event in self.events]


def moment(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)
