"""A facade with one worker process beside it, whose handlers answer at once, and a clock that the test moves."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from migrator.records import Run, Schedule, Trigger
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import RunListener
from migrator.scheduler.handlers import Request
from migrator.scheduler.lifecycle import Event
from migrator.scheduler.models import Job, OnceRequest, RecurringRequest, ScheduleRequest, Timing
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.store.protocols import Store
from migrator.store.queue import Claim
from tests.contract.rows import NOW

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FAILS = Outcome(state="error", error="refused: no such host")
FAILS_FOR_GOOD = Outcome(state="error", error="refused: for good", final=True)
DONE = Outcome(state="completed", result=b'{"rows":3}')


class Hand:
    """A executor whose runs end at once as ``outcome`` says, or stay open while it says nothing."""

    def __init__(self) -> None:
        self.outcome: Callable[[Claim], Outcome | None] = lambda _: DONE
        self.taken: list[Claim] = []
        self.reports: RunListener | None = None
        self.cancelled: list[UUID] = []

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        self.taken.append(claim)
        self.reports = reports
        outcome = self.outcome(claim)
        if outcome is not None:
            reports.ended(claim, outcome)
        return None

    def cancel(self, run_id: UUID) -> None:
        self.cancelled.append(run_id)

    def close(self) -> None:
        pass


class Yard:
    """The facade of a tenant, its worker, and the time."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store, self.tenant, self.now = store, tenant, NOW
        self.heard: list[Event] = []
        self.facade = Scheduler(store, tenant, sink=self.heard.append)
        self.hand = Hand()
        options = WorkerOptions(worker_id=uuid4(), tenants=(tenant,), capacity=100, lease=timedelta(hours=2))
        self.worker = WorkerCore(store, self.hand, options, clock=lambda: self.now)

    def later(self, by: timedelta) -> datetime:
        self.now += by
        return self.now

    def turn(self) -> int:
        """Fire, claim and collect once; return how many runs ended."""
        self.worker.fire()
        self.worker.claim()
        return self.worker.collect()

    def run_until(self, end: datetime, step: timedelta) -> None:
        """Take turns every ``step`` up to ``end``."""
        while self.now < end:
            self.later(step)
            self.turn()

    def cron(self, **named: Any) -> Job:  # noqa: ANN401 - whatever the request takes
        least: dict[str, Any] = {"name": f"n{uuid4().hex}", "handler_name": "work", "created_by": "me"}
        return self.facade.schedule(ScheduleRequest(**least | {"cron": "*/5 * * * *"} | named), now=self.now)

    def once(self, **named: Any) -> Job:  # noqa: ANN401 - as above
        least: dict[str, Any] = {"name": f"n{uuid4().hex}", "handler_name": "work", "created_by": "me"}
        return self.facade.schedule_once(OnceRequest(**least | named), now=self.now)

    def recurring(self, timing: Timing | None = None, **named: Any) -> Job:  # noqa: ANN401 - as above
        least: dict[str, Any] = {"name": f"n{uuid4().hex}", "handler_name": "work", "created_by": "me"}
        every = Timing(interval=MINUTE) if timing is None else timing
        return self.facade.schedule_recurring(RecurringRequest(timing=every, **least | named), now=self.now)

    def job(self, job: Job) -> Job:
        found = self.facade.get(job.id, now=self.now)
        assert found is not None
        return found

    def status(self, job: Job) -> str:
        return self.job(job).schedule.status

    def runs(self, job: Job) -> list[Run]:
        """Return the runs of a schedule, oldest first."""
        with self.store.session(self.tenant, now=self.now) as session:
            found = session.runs.of_schedule(job.id, 1000)
        return sorted(found, key=lambda run: run.run_number or 0)

    def put(self, job: Job, status: str, *, enabled: bool = True) -> Schedule:
        """Write a status past the machine."""
        with self.store.session(self.tenant, now=self.now) as session:
            found = session.schedules.get(job.id)
            assert found is not None
            columns = {name: getattr(found, name) for name in found.__struct_fields__}
            return session.schedules.upsert(Schedule(**columns | {"status": status, "enabled": enabled}))

    def everything(self) -> tuple[Any, ...]:
        """Return all that a refused call must leave as it is."""
        from migrator.store.protocols import RunQuery, ScheduleQuery  # noqa: PLC0415 - for this alone

        with self.store.session(self.tenant, now=self.now) as session:
            schedules = session.schedules.list(ScheduleQuery(limit=1000))
            triggers: list[Trigger] = [*session.triggers.of_schedules([one.id for one in schedules])]
            runs = session.runs.list(RunQuery(limit=1000)).runs
            audit = session.audit.list(1000)
            handlers = session.handlers.list()
        return tuple(schedules), tuple(triggers), runs, tuple(audit), tuple(handlers)


class Elsewhere:
    """What another system is asked to run; a sender of the registry."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def __call__(self, request: Request) -> str:
        self.asked.append(request)
        return f"task-{len(self.asked)}"
