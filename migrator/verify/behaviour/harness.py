"""What a scenario works with: client, worker and sweeper of a scratch tenant, and a clock that it alone moves."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

from migrator.records import Run, Schedule
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import Executor, RunListener
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.models import HistoryQuery, Job, OnceRequest, RecurringRequest, ScheduleRequest, Timing
from migrator.scheduler.sweeper import Sweeper
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.store.protocols import Session, Store
from migrator.store.queue import Claim
from migrator.verify.behaviour.scratch_tenants import ScratchTenants

START: Final = datetime(2061, 3, 7, 8, tzinfo=UTC)
"""When scenarios begin: a Monday so far ahead that no living process takes what is here for silent or overdue."""

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LEASE: Final = timedelta(hours=2)

DONE: Final = Outcome(state="completed", result=b'{"rows":3}')
FAILED: Final = Outcome(state="error", error="refused: no such host")


class ScriptedExecutor:
    """An executor whose runs end with the result of ``outcome``, or stay open if it returns None."""

    def __init__(self) -> None:
        """Begin with runs that are done at once."""
        self.outcome: Callable[[Claim], Outcome | None] = lambda _claim: DONE
        self.taken: list[Claim] = []
        self.cancelled: list[UUID] = []
        self._reports: RunListener | None = None

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        """Take a run, and end it at once unless it is to stay open."""
        self.taken.append(claim)
        self._reports = reports
        outcome = self.outcome(claim)
        if outcome is not None:
            reports.ended(claim, outcome)
        return None

    def end(self, claim: Claim, outcome: Outcome) -> None:
        """End a run that stayed open."""
        if self._reports is not None:
            self._reports.ended(claim, outcome)

    def cancel(self, run_id: UUID) -> None:
        """Note which runs were to stop."""
        self.cancelled.append(run_id)

    def close(self) -> None:
        """Do nothing: no thread is here."""


class _UncontestedLeadership:
    """A leadership that always holds."""

    term = 1

    def guard(self, session: Session) -> None:
        """Let every session commit."""
        del session


class Harness:
    """A scratch tenant with its facade, worker, sweeper and clock."""

    def __init__(self, scratch: ScratchTenants, scenario: str) -> None:
        """``scenario`` names the ids: the same on every backend."""
        self.scratch, self.components = scratch, scratch.components
        self.store: Store = scratch.store
        self.backend = scratch.backend
        self.tenant, self.other = scratch.tenants
        self.now = START
        self._scenario, self._made = scenario, 0
        self.facade = self.facade_of(self.tenant)
        self.executor = ScriptedExecutor()
        self.worker = self.worker_for(self.executor)

    def new_id(self) -> UUID:
        """Return the next id."""
        self._made += 1
        return uuid5(NAMESPACE_URL, f"{self.tenant}/{self._scenario}/{self._made}")

    def facade_of(self, tenant: str) -> Scheduler:
        """Return the facade of one of the two tenants."""
        return self.components.service(self.store, tenant, new_id=self.new_id)

    def worker_for(self, dispatcher: Executor, *, worker_id: UUID | None = None, **more: Any) -> WorkerCore:  # noqa: ANN401 - as Desk takes
        """Return a worker that serves the tenant."""
        share = WorkerOptions(
            worker_id=self.new_id() if worker_id is None else worker_id,
            tenants=(self.tenant,),
            capacity=100,
            lease=LEASE,
        )
        more.setdefault("clock", lambda: self.now)
        return self.components.worker(self.store, dispatcher, share, **more)

    def sweeper(self, leadership: Leadership | None = None) -> Sweeper:
        """Return a leader's sweeper for the tenant."""
        leads: Any = _UncontestedLeadership() if leadership is None else leadership
        return self.components.sweeper(
            self.store, leads, dead_after=MINUTE, scope=None, tenants=(self.tenant,), clock=lambda: self.now
        )

    def session(self, tenant: str | None = None) -> Any:  # noqa: ANN401 - a context manager of a session
        """Open a transaction at the present moment."""
        return self.store.session(self.tenant if tenant is None else tenant, now=self.now)

    def advance(self, by: timedelta) -> datetime:
        """Move the clock."""
        self.now += by
        return self.now

    def run_once(self) -> int:
        """Fire, claim and collect once; return how many runs ended."""
        self.worker.fire()
        self.worker.claim()
        return self.worker.collect()

    def run_until(self, end: datetime, step: timedelta = MINUTE) -> None:
        """Take turns every ``step``, up to and at ``end``."""
        while self.now + step <= end:
            self.advance(step)
            self.run_once()

    # -- schedules

    def cron(self, line: str = "*/5 * * * *", **more: Any) -> Job:  # noqa: ANN401 - whatever the request takes
        """Make a schedule with a cron line."""
        return self.facade.schedule(ScheduleRequest(cron=line, **self._work() | more), now=self.now)

    def every(self, length: timedelta, *, anchor: str = "fixed_rate", **more: Any) -> Job:  # noqa: ANN401 - as above
        """Make a schedule with an interval."""
        timing = Timing(interval=length, anchor=anchor)  # type: ignore[arg-type] # one of its words
        return self.facade.schedule_recurring(RecurringRequest(timing=timing, **self._work() | more), now=self.now)

    def once(self, at: datetime | None, **more: Any) -> Job:  # noqa: ANN401 - as above
        """Make a schedule that fires once."""
        return self.facade.schedule_once(OnceRequest(run_at=at, **self._work() | more), now=self.now)

    def _work(self) -> dict[str, Any]:
        return {"name": f"job {self._made + 1}", "handler_name": "work", "created_by": "verify"}

    # -- what is stored

    def job(self, job: Job) -> Job:
        """Return a schedule as it stands now."""
        found = self.facade.get(job.id, now=self.now)
        return job if found is None else found

    def status(self, job: Job) -> str:
        """Return a schedule's status."""
        return self.job(job).schedule.status

    def runs(self, job: Job, *states: str) -> Sequence[Run]:
        """Return a schedule's runs, oldest first, as the history has them."""
        query = HistoryQuery(limit=1000, states=states, descending=False)
        runs = [one.run for one in self.facade.history(job.id, query, now=self.now).executions]
        return sorted(runs, key=lambda run: (run.created_at, run.run_number or 0))  # of one instant, as they were made

    def fired(self, job: Job) -> list[datetime | None]:
        """Return the slots of the runs that were made to run, oldest first."""
        return sorted((run.scheduled_at for run in self.runs(job) if run.state != "skipped"), key=str)

    def row(self, name: str, **columns: Any) -> Schedule:  # noqa: ANN401 - columns have all types
        """Return a bare schedule of the tenant, to be inserted."""
        least: dict[str, Any] = {"id": self.new_id(), "tenant_id": self.tenant, "name": name, "status": "scheduled"}
        return Schedule(**least | columns)
