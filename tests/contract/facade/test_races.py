"""Two at the same moment: a person and a worker, or two persons. Whoever comes second is judged by what is there."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

from migrator.errors import ConflictError, MigratorError
from migrator.scheduler.commands import Change, ConcurrentChangeError
from migrator.scheduler.models import Patch, Timing
from tests.contract.facade.yard import DONE, FAILS, HOUR, MINUTE, Yard
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
def test_a_cancel_that_meets_a_worker_leaves_nothing_alive(yard: Yard, round_: int) -> None:
    job = yard.recurring(max_concurrency=None, max_retries=5, retry_delay_ms=0)
    yard.hand.outcome = lambda claim: FAILS if (claim.run.attempt or 1) % 2 else DONE
    yard.later(MINUTE * (round_ + 1))

    def work() -> None:
        for _ in range(6):
            yard.turn()

    answers = together(work, lambda: yard.facade.cancel(job.id, now=yard.now))
    assert answers == ["done", "done"]
    yard.run_until(yard.now + 3 * MINUTE, MINUTE)
    assert yard.status(job) == "cancelled"
    assert {run.state for run in yard.runs(job)} <= {"completed", "error", "cancelled", "skipped"}


def test_of_several_who_pause_one_does(yard: Yard) -> None:
    job = yard.recurring()
    answers = together(*[lambda: yard.facade.pause(job.id, now=NOW)] * 5)
    assert Counter(answers) == {"done": 1, "TransitionError": 4}
    assert yard.status(job) == "paused"
    assert [event.name for event in yard.heard].count("scheduler:job.paused") == 1


def test_of_pause_and_cancel_the_cancel_stands(yard: Yard) -> None:
    for _ in range(4):
        job = yard.recurring()
        answers = together(
            lambda: yard.facade.pause(job.id, now=NOW),  # noqa: B023 - called before the next round
            lambda: yard.facade.cancel(job.id, now=NOW),  # noqa: B023 - as above
        )
        assert answers[1] == "done"
        assert yard.status(job) == "cancelled"


def test_an_edit_that_meets_a_tick_loses_neither(yard: Yard) -> None:
    job = yard.recurring(max_concurrency=None, max_retries=0)
    for step in range(1, 7):
        yard.later(MINUTE)
        together(
            yard.turn,
            lambda: yard.facade.update(job.id, Patch(priority=step), now=yard.now),  # noqa: B023 - called in this round
        )
    found = yard.job(job)
    assert found.schedule.priority == 6
    assert (found.triggers[0].fire_count, len(yard.runs(job))) == (6, 6)
    assert found.next_fire_at == NOW + 7 * MINUTE


def test_another_timing_that_meets_a_tick_counts_every_fire(yard: Yard) -> None:
    job = yard.recurring(max_concurrency=None, max_retries=0)
    for step in range(4):
        yard.later(MINUTE)
        every = MINUTE if step % 2 else 2 * MINUTE
        together(
            yard.worker.fire,
            lambda: yard.facade.reschedule(job.id, Timing(interval=every), now=yard.now),  # noqa: B023 - as above
        )
    found = yard.job(job)
    assert found.triggers[0].fire_count == len(yard.runs(job))
    assert found.next_fire_at is not None
    assert found.next_fire_at > yard.now


def test_disabling_meets_a_tick_and_nothing_fires_after(yard: Yard) -> None:
    job = yard.recurring(max_concurrency=None)
    yard.later(MINUTE)
    together(yard.worker.fire, lambda: yard.facade.toggle(job.id, enabled=False, now=yard.now))
    before = len(yard.runs(job))
    yard.run_until(yard.now + 3 * MINUTE, MINUTE)
    assert len(yard.runs(job)) == before <= 1
    assert yard.facade.toggle(job.id, enabled=True, now=yard.now + HOUR).next_fire_at == yard.now + HOUR + MINUTE


def test_what_was_judged_by_a_state_that_is_gone_is_not_written(yard: Yard) -> None:
    job = yard.recurring()
    with yard.store.session(yard.tenant, now=NOW) as session:
        change = Change(session, "ann", uuid4)
        session.schedules.change_status(job.id, "scheduled", "paused")
        with pytest.raises(ConcurrentChangeError):
            change.touch(job.schedule, priority=1)
        with pytest.raises(ConcurrentChangeError):
            change.move(job.schedule, "cancelled")
    with pytest.raises(ConflictError):  # and so it is all undone, tried again, and at last told
        yard.facade._change("ann", NOW, lambda change: change.move(job.schedule, "cancelled"))
    assert yard.status(job) == "paused"
