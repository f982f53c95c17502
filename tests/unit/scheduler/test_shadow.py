"""What may not run twice is recorded, not run, while another scheduler runs beside this one."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.scheduler.handing import Reports
from migrator.scheduler.handlers import Outcome
from migrator.scheduler.shadow import SHADOWED, ShadowDispatcher
from migrator.store.work import Claim

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Inner:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def submit(self, claim: Claim, reports: Reports) -> str | None:  # noqa: ARG002 - the protocol's
        self.calls.append(claim.run.id)
        return "elsewhere-1"

    def cancel(self, run_id: UUID) -> None:
        self.calls.append(("cancel", run_id))

    def close(self) -> None:
        self.calls.append("close")


class Told:
    """Notes what is reported."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.lines: list[str] = []

    def ended(self, claim: Claim, outcome: Outcome) -> None:  # noqa: ARG002 - the protocol's
        self.outcomes.append(outcome)

    def said(self, claim: Claim, level: str, message: str) -> None:  # noqa: ARG002 - the protocol's
        self.lines.append(message)


def claim(handler: str) -> Claim:
    schedule = Schedule(id=uuid4(), tenant_id="a", name=handler, status="scheduled", handler_name=handler)
    return Claim(
        run=Run(id=uuid4(), tenant_id="a", state="running", schedule_id=schedule.id, created_at=NOW), schedule=schedule
    )


@pytest.mark.proves("4-P2")
def test_only_handlers_that_may_run_twice_are_called() -> None:
    inner, told = Inner(), Told()
    shadow = ShadowDispatcher(inner, lambda one: one.schedule is not None and one.schedule.handler_name == "cleanup")
    twice, once = claim("cleanup"), claim("sync")
    assert shadow.submit(twice, told) == "elsewhere-1"
    assert shadow.submit(once, told) is None
    assert inner.calls == [twice.run.id]
    assert told.outcomes == [Outcome(state="completed", result=SHADOWED)]
    assert told.lines == ["shadowed: the other scheduler runs it"]
    shadow.cancel(twice.run.id)
    shadow.close()
    assert inner.calls[1:] == [("cancel", twice.run.id), "close"]
