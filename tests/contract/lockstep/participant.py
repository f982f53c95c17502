"""The harness of one tenant on one side, whose runs end as a mood says, and whose ids follow from the step."""

from datetime import datetime, timedelta
from typing import Any, Final
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from migrator.scheduler.completion import Outcome
from migrator.store.protocols import RunQuery, Store
from migrator.store.queue import Claim
from migrator.verify.behaviour.harness import DONE, FAILED_FOR_GOOD, Clock, Harness

OUTCOMES: Final[dict[str, Outcome | None]] = {
    "done": DONE,
    "failed": Outcome(state="error", error="refused: no such host", error_detail="line 7"),
    "failed for good": FAILED_FOR_GOOD,
    "timeout": Outcome(state="timeout", error="timeout: of its own"),
    "open": None,
}
LEASE: Final = timedelta(minutes=10)


class Participant(Harness):
    """Ids follow from the step and how many were asked for in it, so they are the same on every side."""

    def __init__(self, store: Store, tenant: str, now: datetime) -> None:
        self.step, self._asked, self._workers = 0, 0, 0
        self.mood = "done"
        """How runs end; half of them, by their ids, where it says mixed."""
        super().__init__(store, (tenant, tenant), clock=Clock(now), new_id=self._id_of_step)
        self.executor.outcome = self._outcome
        self.restart()
        self.leader = self.sweeper(dead_after=LEASE)

    def begin(self, step: int, now: datetime) -> None:
        self.step, self._asked, self.now = step, 0, now

    def _id_of_step(self) -> UUID:
        self._asked += 1
        return uuid5(NAMESPACE_URL, f"{self.tenant}/{self.step}/{self._asked}")

    def _outcome(self, claim: Claim) -> Outcome | None:
        return OUTCOMES[self.mood if self.mood != "mixed" else [*OUTCOMES][claim.run.id.int % len(OUTCOMES)]]

    def end_oldest(self, mood: str) -> None:
        """End the oldest run that is open, whoever may have it by now."""
        outcome = OUTCOMES[mood]
        if self.executor.open and outcome is not None:
            self.executor.end(outcome, self.executor.open[0])

    def restart(self) -> None:
        """Begin as another process; one that was there is left as a killed one leaves it."""
        self._workers += 1
        self.worker = self.worker_for(
            self.executor,
            worker_id=uuid5(NAMESPACE_URL, f"worker {self._workers}"),
            batch=4,
            capacity=6,
            lease=LEASE,
            monotonic=lambda: 0.0,
        )

    def turn(self) -> tuple[int, int, int]:
        return self.worker.fire(), self.worker.claim(), self.worker.collect()

    def listened(self) -> list[Any]:
        """Return the events heard since the last time."""
        heard, self.events[:] = list(self.events), []
        return heard

    def audited(self) -> list[str]:
        """Return the audit trail without its ids, which nobody chose."""
        with self.session() as session:
            entries = session.audit.list(1000)
        aside = {"id": UUID(int=0), "source": None, "source_id": None, "extra": b"{}"}
        return sorted(repr(msgspec.structs.replace(entry, **aside)) for entry in entries)

    def said(self) -> list[tuple[UUID, list[str]]]:
        """Return what the newest runs' logs say."""
        with self.session() as session:
            runs = session.runs.list(RunQuery(limit=5)).runs
            logs = [(run.id, session.execution_logs.of_run(run.id)) for run in runs]
        return [
            (run_id, sorted(f"{line.logged_at} {line.level} {line.message}" for line in lines))
            for run_id, lines in logs
        ]
