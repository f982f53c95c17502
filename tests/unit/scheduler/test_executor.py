"""What may not run twice is recorded, not run, while another scheduler runs beside this one."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.records import Handler, Run, Schedule
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import (
    DRY_RUN,
    ParallelRunExecutor,
    RunListener,
    RunReleasedError,
    completed_outcome,
)
from migrator.scheduler.handlers import Registry
from migrator.scheduler.parallel_run import ParallelRunStore
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.store.queue import Claim
from migrator.testing.memory.store import MemoryStore
from tests.contract.rows import NOW


class Inner:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def submit(self, claim: Claim, reports: RunListener) -> str | None:  # noqa: ARG002 - the protocol's
        self.calls.append(claim.run.id)
        return "elsewhere-1"

    def cancel(self, run_id: UUID) -> None:
        self.calls.append(("cancel", run_id))

    def forget(self, run_id: UUID) -> None:
        self.calls.append(("forget", run_id))

    def collect(self) -> None:
        self.calls.append("collect")

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


class Shared(MemoryStore):
    """A store of a side that may be in a parallel run."""

    parallel = True

    def is_parallel_run(self) -> bool:
        return self.parallel


def claim(handler: str | None) -> Claim:
    schedule = Schedule(id=uuid4(), tenant_id="a", name="n", status="scheduled", handler_name=handler)
    return Claim(
        run=Run(id=uuid4(), tenant_id="a", state="running", schedule_id=schedule.id, created_at=NOW), schedule=schedule
    )


@pytest.mark.proves("4-P2")
def test_only_handlers_that_may_run_twice_are_called_while_another_scheduler_runs() -> None:
    store, inner, told = Shared(), Inner(), Told()
    with store.session("a") as session:
        for name, may in (("cleanup", True), ("sync", False)):
            session.handlers.upsert(
                Handler(id=uuid4(), tenant_id="a", name=name, handler_type="function", idempotent=may)
            )
    shadow = ParallelRunExecutor(inner)
    twice, once, unknown, none = (claim(name) for name in ("cleanup", "sync", "nobody knows it", None))
    shadow.look(store)
    assert shadow.submit(twice, told) == "elsewhere-1"
    assert [shadow.submit(one, told) for one in (once, unknown, none)] == [None] * 3
    assert inner.calls == [twice.run.id]
    assert told.outcomes == [Outcome(state="completed", result=DRY_RUN)] * 3
    assert told.lines == ["dry run: the other scheduler runs it"] * 3
    shadow.collect()
    shadow.forget(twice.run.id)
    shadow.cancel(twice.run.id)
    shadow.close()
    assert inner.calls[1:] == ["collect", ("forget", twice.run.id), ("cancel", twice.run.id), "close"]


@pytest.mark.proves("4-P2")
def test_a_handler_that_was_registered_as_idempotent_is_called_while_another_scheduler_runs() -> None:
    registry = Registry()
    registry.register("first", lambda: 1, idempotent=True)
    registry.handler("second")(lambda: 2)
    store, inner, told = Shared(), Inner(), Told()
    executor = ParallelRunExecutor(inner, registry.idempotent)
    registry.handler("third", idempotent=True)(lambda: 3)
    executor.look(store)
    called = [claim("first"), claim("third")]
    for one in (*called, claim("second"), claim(None)):
        executor.submit(one, told)
    assert inner.calls == [one.run.id for one in called]
    assert told.outcomes == [Outcome(state="completed", result=DRY_RUN)] * 2


@pytest.mark.proves("4-P2")
def test_everything_is_called_before_after_and_on_the_old_side() -> None:
    store, inner, told = Shared(), Inner(), Told()
    shadow, one = ParallelRunExecutor(inner), claim("sync")
    shadow.submit(one, told)
    shadow.look(store)
    shadow.submit(one, told)
    store.parallel = False
    shadow.look(store)
    shadow.submit(one, told)
    store.parallel = True
    assert not isinstance(MemoryStore(), ParallelRunStore)
    shadow.look(store)
    shadow.look(MemoryStore())  # the data was moved back to the other side
    shadow.submit(one, told)
    assert (len(inner.calls), len(told.outcomes)) == (3, 1)


@pytest.mark.proves("4-P2")
def test_a_run_is_released_if_the_parallel_run_has_ended_since_the_store_was_asked() -> None:
    store, inner, told = Shared(), Inner(), Told()
    shadow = ParallelRunExecutor(inner)
    shadow.look(store)
    store.parallel = False
    with pytest.raises(RunReleasedError, match="the parallel run has ended"):
        shadow.submit(claim("sync"), told)
    assert (inner.calls, told.outcomes) == ([], [])


def test_a_worker_gives_back_a_run_that_its_executor_does_not_take_now() -> None:
    store, inner = Shared(), Inner()
    with store.session("a", now=NOW) as session:
        schedule = session.schedules.upsert(Schedule(id=uuid4(), tenant_id="a", name="n", status="scheduled"))
        run = Run(id=uuid4(), tenant_id="a", state="queued", schedule_id=schedule.id, created_at=NOW)
        session.runs.create(run)
    executor = ParallelRunExecutor(inner)
    executor.look(store)
    store.parallel = False
    worker = WorkerCore(store, executor, WorkerOptions(worker_id=uuid4()), clock=lambda: NOW)
    worker.claim()
    assert worker.active == ()
    with store.session("a", now=NOW) as session:
        given = session.runs.get(run.id)
    assert given is not None
    assert (given.state, given.worker_id) == ("queued", None)


def deep(levels: int) -> object:
    value: object = None
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [10**30, -(2**64), {"a": [10**25]}, deep(100_000), float("nan"), {1: object()}])
def test_a_result_of_any_kind_is_an_outcome(value: object) -> None:
    """A thread that ends without an outcome would leave its run running, since its lease is renewed."""
    outcome = completed_outcome(value)
    assert outcome.state in ("completed", "error")
    assert (outcome.error is None) == (outcome.state == "completed")
