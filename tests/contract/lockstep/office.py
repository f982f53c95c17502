"""The facade of one tenant on one side, with a worker process and a leader's broom beside it, all by a given clock."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import RunListener
from migrator.scheduler.lifecycle import Event
from migrator.scheduler.sweeper import Sweeper
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.store.protocols import RunQuery, Store
from migrator.store.queue import Claim

OUTCOMES: dict[str, Outcome | None] = {
    "done": Outcome(state="completed", result=b'{"rows":3}'),
    "failed": Outcome(state="error", error="refused: no such host", error_detail="line 7"),
    "failed for good": Outcome(state="error", error="refused: for good", final=True),
    "timeout": Outcome(state="timeout", error="timeout: of its own"),
    "open": None,
}
LEASE = timedelta(minutes=10)


class Hand:
    """A executor whose runs end as ``mood`` says; half of them, by their ids, where it says mixed."""

    def __init__(self) -> None:
        self.mood = "done"
        self.open: list[Claim] = []
        self.reports: RunListener | None = None
        self.cancelled: list[UUID] = []

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        self.reports = reports
        mood = self.mood if self.mood != "mixed" else [*OUTCOMES][claim.run.id.int % len(OUTCOMES)]
        outcome = OUTCOMES[mood]
        if outcome is None:
            self.open.append(claim)
        else:
            reports.ended(claim, outcome)
        return None

    def end(self, mood: str) -> None:
        """End the oldest that is open, whoever may have it by now."""
        outcome = OUTCOMES[mood]
        if self.open and outcome is not None and self.reports is not None:
            self.reports.ended(self.open.pop(0), outcome)

    def cancel(self, run_id: UUID) -> None:
        self.cancelled.append(run_id)

    def close(self) -> None:
        pass


class Leads:
    """A leadership that is not in question."""

    term = 1

    def guard(self, session: Any) -> None:  # noqa: ANN401 - as Leadership
        del session


class Office:
    """All of it. Ids follow from the step and how many were asked for in it, so they are the same on every side."""

    def __init__(self, store: Store, tenant: str, clock: Callable[[], datetime]) -> None:
        self.store, self.tenant, self._clock = store, tenant, clock
        self.step, self._asked, self._desks = 0, 0, 0
        self.heard: list[Event] = []
        self.facade = Scheduler(store, tenant, sink=self.heard.append, new_id=self._new_id)
        self.hand = Hand()
        self.worker = self.sit_down()
        leads: Any = Leads()
        self.broom = Sweeper(store, leads, dead_after=LEASE, scope=None, tenants=(tenant,), clock=clock)

    def begin(self, step: int) -> None:
        self.step, self._asked = step, 0

    def _new_id(self) -> UUID:
        self._asked += 1
        return uuid5(NAMESPACE_URL, f"{self.tenant}/{self.step}/{self._asked}")

    def sit_down(self) -> WorkerCore:
        """Begin as another process; one that was there is left as a killed one leaves it."""
        self._desks += 1
        options = WorkerOptions(
            worker_id=uuid5(NAMESPACE_URL, f"worker {self._desks}"),
            tenants=(self.tenant,),
            batch=4,
            capacity=6,
            lease=LEASE,
        )
        self.worker = WorkerCore(self.store, self.hand, options, clock=self._clock, monotonic=lambda: 0.0)
        return self.worker

    def turn(self) -> tuple[int, int, int]:
        return self.worker.fire(), self.worker.claim(), self.worker.collect()

    def listened(self) -> list[Any]:
        """Return the events heard since the last time."""
        heard, self.heard[:] = list(self.heard), []
        return heard

    def audited(self, now: datetime) -> list[str]:
        """Return the audit trail without its ids, which nobody chose."""
        with self.store.session(self.tenant, now=now) as session:
            entries = session.audit.list(1000)
        aside = {"id": UUID(int=0), "source": None, "source_id": None, "extra": b"{}"}
        return sorted(repr(msgspec.structs.replace(entry, **aside)) for entry in entries)

    def said(self, now: datetime) -> list[tuple[UUID, list[str]]]:
        """Return what the newest runs' logs say."""
        with self.store.session(self.tenant, now=now) as session:
            runs = session.runs.list(RunQuery(limit=5)).runs
            logs = [(run.id, session.execution_logs.of_run(run.id)) for run in runs]
        return [
            (run_id, sorted(f"{line.logged_at} {line.level} {line.message}" for line in lines))
            for run_id, lines in logs
        ]
