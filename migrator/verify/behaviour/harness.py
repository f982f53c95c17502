"""What a scenario works with: client, worker and sweeper of a scratch tenant, and a clock that it alone moves."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import Any, Final, Self
from uuid import NAMESPACE_URL, UUID, uuid5

from migrator.records import Run, Schedule
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import Executor, RunListener
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.lifecycle import Event
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.scheduler.sweeper import Sweeper
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.scratch import Components, ScratchTenants
from migrator.store.protocols import Session, Store
from migrator.store.queue import Claim

START: Final = datetime(2061, 3, 7, 8, tzinfo=UTC)
"""When scenarios begin: a Monday so far ahead that no living process takes what is here for silent or overdue."""

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LEASE: Final = timedelta(hours=2)

DONE: Final = Outcome(state="completed", result=b'{"rows":3}')
FAILED: Final = Outcome(state="error", error="refused: no such host")
FAILED_FOR_GOOD: Final = Outcome(state="error", error="refused: for good", final=True)


class Clock:
    """A clock that is moved by hand: called, it tells the time where it was set."""

    def __init__(self, now: datetime) -> None:
        """Begin at this time."""
        self.now = now

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def advance(self, by: timedelta) -> datetime:
        """Move by so much (back, too), and return the time then."""
        self.now += by
        return self.now


class ScriptedExecutor:
    """An executor whose runs end with the result of ``outcome``, or stay open if it returns None."""

    def __init__(self, outcome: Callable[[Claim], Outcome | None] = lambda _claim: DONE) -> None:
        """Begin with no run taken."""
        self.outcome = outcome
        self.taken: list[Claim] = []
        self.open: list[Claim] = []
        """Taken and not ended."""
        self.cancelled: list[UUID] = []
        self._listeners: list[RunListener] = []

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        """Take a run, and end it at once unless it is to stay open."""
        self.taken.append(claim)
        self._listeners.append(reports)
        outcome = self.outcome(claim)
        if outcome is None:
            self.open.append(claim)
        else:
            reports.ended(claim, outcome)
        return None

    def listener(self, claim: Claim) -> RunListener:
        """Return the listener for a run that was taken."""
        return next(
            listener
            for taken, listener in zip(reversed(self.taken), reversed(self._listeners), strict=True)
            if taken is claim
        )

    def end(self, outcome: Outcome = DONE, claim: Claim | None = None) -> None:
        """End a run that stayed open, also when it has ended before; the last one that was taken if none is named."""
        ended = self.taken[-1] if claim is None else claim
        self.open = [one for one in self.open if one is not ended]
        self.listener(ended).ended(ended, outcome)

    def cancel(self, run_id: UUID) -> None:
        """Note which runs were to stop."""
        self.cancelled.append(run_id)

    def forget(self, run_id: UUID) -> None:
        """Do nothing: no other system is here."""

    def collect(self) -> None:
        """Do nothing: as above."""

    def close(self) -> None:
        """Do nothing: no thread is here."""


class _UncontestedLeadership:
    """A leadership that always holds."""

    term = 1

    def guard(self, session: Session) -> None:
        """Let every session commit."""
        del session


class Harness:
    """A tenant with its facade, worker, sweeper and clock: the world of the scenarios and of the tests."""

    def __init__(
        self,
        store: Store,
        tenants: tuple[str, str],
        scenario: str = "",
        *,
        components: Components | None = None,
        scratch: ScratchTenants | None = None,
        clock: Clock | None = None,
        new_id: Callable[[], UUID] | None = None,
    ) -> None:
        """``tenants``: the one that is driven, and another one. ``scenario`` names the ids: the same on every backend.

        ``new_id`` names them otherwise. ``clock`` begins at ``START`` if omitted; several harnesses may share one.
        ``scratch`` is what the tenants are of, where they are scratch tenants.
        """
        self.store, self.scratch = store, scratch
        self.components = components or Components()
        self.backend = store.backend
        self.tenant, self.other = tenants
        self.clock = Clock(START) if clock is None else clock
        self.events: list[Event] = []
        """What the facade told its listeners."""
        self._scenario, self._made, self._naming = scenario, 0, Lock()
        self.new_id = self._next_id if new_id is None else new_id
        self.facade = self.facade_of(self.tenant)
        self.executor = ScriptedExecutor()
        self.worker = self.worker_for(self.executor)

    @classmethod
    def of(cls, scratch: ScratchTenants, scenario: str = "") -> Self:
        """Return the harness of scratch tenants."""
        return cls(scratch.store, scratch.tenants, scenario, components=scratch.components, scratch=scratch)

    def _next_id(self) -> UUID:
        with self._naming:  # tests call one harness from several threads
            self._made += 1
            number = self._made
        return uuid5(NAMESPACE_URL, f"{self.tenant}/{self._scenario}/{number}")

    def facade_of(self, tenant: str) -> Scheduler:
        """Return the facade of one of the two tenants."""
        return self.components.service(self.store, tenant, sink=self.events.append, new_id=self.new_id)

    def worker_for(
        self,
        executor: Executor,
        *,
        worker_id: UUID | None = None,
        capacity: int = 100,
        batch: int = 100,
        lease: timedelta = LEASE,
        **more: Any,  # noqa: ANN401 - as Worker takes
    ) -> WorkerCore:
        """Return a worker that serves the tenant."""
        options = WorkerOptions(
            worker_id=self.new_id() if worker_id is None else worker_id,
            tenants=(self.tenant,),
            capacity=capacity,
            batch=batch,
            lease=lease,
        )
        more.setdefault("clock", self.clock)
        return WorkerCore(self.store, executor, options, **more)

    def sweeper(self, leadership: Leadership | None = None, *, dead_after: timedelta = MINUTE) -> Sweeper:
        """Return a leader's sweeper for the tenant."""
        leads: Any = _UncontestedLeadership() if leadership is None else leadership
        return self.components.sweeper(
            self.store, leads, dead_after=dead_after, scope=None, tenants=(self.tenant,), clock=self.clock
        )

    def session(self, tenant: str | None = None) -> Any:  # noqa: ANN401 - a context manager of a session
        """Open a transaction at the present moment."""
        return self.store.session(self.tenant if tenant is None else tenant, now=self.now)

    @property
    def now(self) -> datetime:
        """The present moment of the clock."""
        return self.clock.now

    @now.setter
    def now(self, moment: datetime) -> None:
        self.clock.now = moment

    def advance(self, by: timedelta) -> datetime:
        """Move the clock."""
        return self.clock.advance(by)

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
        return self.recurring(**{"cron": line} | more)

    def every(self, length: timedelta, *, anchor: str = "fixed_rate", **more: Any) -> Job:  # noqa: ANN401 - as above
        """Make a schedule with an interval."""
        return self.recurring(interval=length, anchor=anchor, **more)

    def recurring(self, **more: Any) -> Job:  # noqa: ANN401 - as above
        """Make a schedule that recurs; every minute if no timing is given."""
        every = {} if more.keys() & {"cron", "interval"} else {"interval": MINUTE}
        return self.facade.schedule(ScheduleRequest(**self._work() | every | more), now=self.now)

    def once(self, run_at: datetime | None = None, **more: Any) -> Job:  # noqa: ANN401 - as above
        """Make a schedule that fires once."""
        return self.facade.schedule_once(ScheduleRequest(**self._work() | more), run_at, now=self.now)

    def _work(self) -> dict[str, Any]:
        return {"name": f"job {self._made + 1}", "handler_name": "work", "created_by": "verify"}

    # -- what is stored

    def job(self, job: Job) -> Job:
        """Return the present state of a schedule."""
        found = self.facade.get(job.id, now=self.now)
        return job if found is None else found

    def status(self, job: Job) -> str:
        """Return a schedule's status."""
        return self.job(job).schedule.status

    def runs(self, job: Job, *states: str) -> Sequence[Run]:
        """Return a schedule's runs, oldest first, as the history has them."""
        page = self.facade.history(job.id, limit=1000, states=states, descending=False, now=self.now)
        runs = [one.run for one in page.executions]
        return sorted(runs, key=lambda run: (run.created_at, run.run_number or 0))  # of one instant, as they were made

    def run_states(self, job: Job, *states: str) -> list[str]:
        """Return the states of a schedule's runs, oldest first."""
        return [run.state for run in self.runs(job, *states)]

    def fired(self, job: Job) -> list[datetime]:
        """Return the slots of the runs that were made to run, oldest first."""
        return sorted(run.scheduled_at for run in self.runs(job) if run.scheduled_at and run.state != "skipped")

    def row(self, name: str, **columns: Any) -> Schedule:  # noqa: ANN401 - columns have all types
        """Return a bare schedule of the tenant, to be inserted."""
        least: dict[str, Any] = {"id": self.new_id(), "tenant_id": self.tenant, "name": name, "status": "scheduled"}
        return Schedule(**least | columns)
