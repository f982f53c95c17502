"""Two at the same moment: a person and a worker, or two persons. Whoever comes second is judged by what is there."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from migrator.errors import MigratorError, OvertakenError
from migrator.scheduler.commands import Change
from migrator.verify.behaviour.harness import DONE, FAILED, HOUR, MINUTE, Harness
from tests.contract.facade.stored import status_of, stored
from tests.contract.rows import NOW


def together(*calls: Callable[[], Any]) -> list[str]:
    """Make the calls at the same moment; return what became of each."""
    gate = Barrier(len(calls))

    def make(call: Callable[[], Any]) -> str:
        gate.wait()
        try:
            call()
        except MigratorError as error:
            return type(error).__name__
        return "done"

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(make, calls))


@pytest.mark.proves("2-F12", "3-B7")
@pytest.mark.parametrize("round_", range(2))
def test_a_cancel_that_meets_a_worker_leaves_nothing_alive(harness: Harness, round_: int) -> None:
    job = harness.recurring(max_concurrency=None, max_retries=5, retry_delay=timedelta(0))
    harness.executor.outcome = lambda claim: FAILED if (claim.run.attempt or 1) % 2 else DONE
    harness.advance(MINUTE * (round_ + 1))

    def work() -> None:
        for _ in range(6):
            harness.run_once()

    answers = together(work, lambda: harness.facade.cancel(job.id, now=harness.now))
    assert answers == ["done", "done"]
    harness.run_until(harness.now + 3 * MINUTE, MINUTE)
    assert status_of(harness, job) == "cancelled"
    assert {run.state for run in harness.runs(job)} <= {"completed", "error", "cancelled", "skipped"}


def test_of_several_who_pause_one_does(harness: Harness) -> None:
    job = harness.recurring()
    answers = together(*[lambda: harness.facade.pause(job.id, now=NOW)] * 5)
    assert Counter(answers) == {"done": 1, "TransitionError": 4}
    assert status_of(harness, job) == "paused"
    assert [event.name for event in harness.events].count("scheduler:job.paused") == 1


def test_of_pause_and_cancel_the_cancel_stands(harness: Harness) -> None:
    for _ in range(4):
        job = harness.recurring()
        answers = together(
            lambda: harness.facade.pause(job.id, now=NOW),  # noqa: B023 - called before the next round
            lambda: harness.facade.cancel(job.id, now=NOW),  # noqa: B023 - as above
        )
        assert answers[1] == "done"
        assert status_of(harness, job) == "cancelled"


def test_an_edit_that_meets_a_tick_loses_neither(harness: Harness) -> None:
    job = harness.recurring(max_concurrency=None, max_retries=0)
    for step in range(1, 7):
        harness.advance(MINUTE)
        together(
            harness.run_once,
            lambda: harness.facade.update(job.id, priority=step, now=harness.now),  # noqa: B023 - called in this round
        )
        harness.run_once()  # a poll passes over a trigger that the edit holds at that moment; the next poll fires it
    found = stored(harness, job)
    assert found.schedule.priority == 6
    assert (found.triggers[0].fire_count, len(harness.runs(job))) == (6, 6)
    assert found.next_fire_at == NOW + 7 * MINUTE


def test_another_timing_that_meets_a_tick_counts_every_fire(harness: Harness) -> None:
    job = harness.recurring(max_concurrency=None, max_retries=0)
    for step in range(4):
        harness.advance(MINUTE)
        every = MINUTE if step % 2 else 2 * MINUTE
        together(
            harness.worker.fire,
            lambda: harness.facade.reschedule(job.id, interval=every, now=harness.now),  # noqa: B023 - as above
        )
    found = stored(harness, job)
    assert found.triggers[0].fire_count == len(harness.runs(job))
    assert found.next_fire_at is not None
    assert found.next_fire_at > harness.now


def test_disabling_meets_a_tick_and_nothing_fires_after(harness: Harness) -> None:
    job = harness.recurring(max_concurrency=None)
    harness.advance(MINUTE)
    together(harness.worker.fire, lambda: harness.facade.toggle(job.id, enabled=False, now=harness.now))
    before = len(harness.runs(job))
    harness.run_until(harness.now + 3 * MINUTE, MINUTE)
    assert len(harness.runs(job)) == before <= 1
    assert (
        harness.facade.toggle(job.id, enabled=True, now=harness.now + HOUR).next_fire_at == harness.now + HOUR + MINUTE
    )


def test_what_was_judged_by_a_state_that_is_gone_is_not_written(harness: Harness) -> None:
    job = harness.recurring()
    with harness.store.session(harness.tenant, now=NOW) as session:
        change = Change(session, "ann", uuid4)
        session.schedules.change_status(job.id, "scheduled", "paused")
        with pytest.raises(OvertakenError):
            change.touch(job.schedule, priority=1)
        with pytest.raises(OvertakenError):
            change.move(job.schedule, "cancelled")
    with pytest.raises(OvertakenError):  # and so it is all undone, tried again, and at last told
        harness.facade._change("ann", NOW, lambda change: change.move(job.schedule, "cancelled"))
    assert status_of(harness, job) == "paused"
