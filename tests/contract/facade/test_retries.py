"""Retrying by hand: which runs, once each, and it is executed; a failed schedule begins anew."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from migrator import states
from migrator.errors import ConflictError, MigratorError, NotFoundError, RefusedError, TransitionError, UsageError
from migrator.records import Run
from migrator.scheduler.completion import Outcome
from migrator.scheduler.models import Job
from tests.contract.facade.yard import DONE, FAILS_FOR_GOOD, HOUR, MINUTE, Yard
from tests.contract.rows import NOW, SECOND, run


def failed(yard: Yard, **named: Any) -> tuple[Job, Run]:  # noqa: ANN401 - whatever the request takes
    """Return a schedule with one run that failed."""
    job = yard.recurring(**named)
    yard.hand.outcome = lambda _: FAILS_FOR_GOOD
    yard.later(MINUTE)
    yard.turn()
    yard.hand.outcome = lambda _: DONE
    return job, yard.runs(job)[0]


@pytest.mark.proves("2-F15", "2-X10")
def test_a_failed_run_is_repeated_by_one_new_run_which_is_executed(yard: Yard) -> None:
    job, first = failed(yard)
    again = yard.facade.retry(first.id, by="ann", now=yard.now)
    assert (again.retry_of, again.cause, again.state, again.triggered_by) == (first.id, "retry", "queued", "ann")
    assert (again.attempt, again.scheduled_at, again.trigger_id) == (2, first.scheduled_at, first.trigger_id)
    assert (again.trace_id, again.parent_span_id, again.available_at) == (first.trace_id, first.span_id, yard.now)
    assert yard.turn() == 1
    assert [(one.state, one.attempt) for one in yard.runs(job)] == [("error", 1), ("completed", 2)]


@pytest.mark.proves("2-F15")
@pytest.mark.parametrize("state", states.RUN)
def test_only_failed_and_timed_out_runs_are_retried(yard: Yard, state: str) -> None:
    job = yard.recurring()
    with yard.store.session(yard.tenant, now=NOW) as session:
        row = session.runs.create(run(yard.tenant, schedule_id=job.id, state=state))
    before = yard.everything()
    if state in {"error", "timeout"}:
        assert yard.facade.retry(row.id, now=NOW).retry_of == row.id
    else:
        with pytest.raises(TransitionError, match=f"a run that is {state} is not retried"):
            yard.facade.retry(row.id, now=NOW)
        assert yard.everything() == before


@pytest.mark.proves("2-F15")
def test_a_run_is_retried_once_and_its_retry_may_be_retried(yard: Yard) -> None:
    _, first = failed(yard)
    second = yard.facade.retry(first.id, now=yard.now)
    before = yard.everything()
    with pytest.raises(ConflictError, match="retried before"):
        yard.facade.retry(first.id, now=yard.now)
    assert yard.everything() == before
    yard.hand.outcome = lambda _: FAILS_FOR_GOOD
    yard.turn()
    assert yard.facade.retry(second.id, now=yard.now).attempt == 3


@pytest.mark.proves("2-F15")
def test_two_who_retry_at_the_same_moment_make_one_run(yard: Yard) -> None:
    job, first = failed(yard)

    def ask(_: int) -> str:
        try:
            yard.facade.retry(first.id, now=yard.now)
        except MigratorError as error:
            return type(error).__name__
        return "made"

    with ThreadPoolExecutor(4) as pool:
        answers = sorted(pool.map(ask, range(6)))
    assert answers == ["ConflictError"] * 5 + ["made"]
    assert len(yard.runs(job)) == 2


def test_the_run_of_an_event_is_repeated_with_what_came_with_it(yard: Yard) -> None:
    yard.facade.on_event("push", "work", now=NOW)
    (first,) = yard.facade.trigger_event("push", {"a": 1}, event_id="e", now=NOW).runs
    yard.hand.outcome = lambda _: FAILS_FOR_GOOD
    yard.turn()
    again = yard.facade.retry(first.id, now=NOW)
    assert (again.metadata, again.dedupe_key, again.trigger_id) == (first.metadata, None, first.trigger_id)
    assert yard.facade.trigger_event("push", {"a": 1}, event_id="e", now=NOW).repeated == 1


def test_a_timed_out_run_is_retried_too(yard: Yard) -> None:
    job = yard.recurring(max_retries=0)
    yard.hand.outcome = lambda _: Outcome(state="timeout", error="timeout: too long", final=True)
    yard.later(MINUTE)
    yard.turn()
    assert yard.facade.retry(yard.runs(job)[0].id, now=yard.now).attempt == 2


def test_what_would_not_be_executed_is_refused(yard: Yard) -> None:
    job, first = failed(yard)
    yard.facade.pause(job.id, now=yard.now)
    before = yard.everything()
    with pytest.raises(RefusedError, match="paused"):
        yard.facade.retry(first.id, now=yard.now)
    yard.facade.resume(job.id, now=yard.now)
    yard.facade.toggle(job.id, enabled=False, now=yard.now)
    with pytest.raises(RefusedError, match="disabled"):
        yard.facade.retry(first.id, now=yard.now)
    assert yard.everything()[2] == before[2]
    yard.facade.cancel(job.id, now=yard.now)
    with pytest.raises((TransitionError, RefusedError)):
        yard.facade.retry(first.id, now=yard.now)


def test_a_run_that_belongs_to_nothing_any_more(yard: Yard) -> None:
    job, first = failed(yard)
    yard.facade.unschedule(job.id, now=yard.now)
    with yard.store.session(yard.tenant, now=NOW) as session:
        alone = session.runs.create(run(yard.tenant, state="error"))
    before = yard.everything()
    with pytest.raises(NotFoundError, match="no schedule"):
        yard.facade.retry(first.id, now=yard.now)
    with pytest.raises(UsageError, match="belongs to no schedule"):
        yard.facade.retry(alone.id, now=yard.now)
    with pytest.raises(NotFoundError, match="no run"):
        yard.facade.retry(uuid4(), now=yard.now)
    assert yard.everything() == before


@pytest.mark.proves("3-B8")
def test_a_failed_one_time_schedule_begins_anew_and_is_completed(yard: Yard) -> None:
    job = yard.once(max_retries=0)
    yard.hand.outcome = lambda _: FAILS_FOR_GOOD
    yard.turn()
    assert yard.status(job) == "failed"
    yard.hand.outcome = lambda _: DONE
    again = yard.facade.retry_schedule(job.id, by="ann", now=yard.later(SECOND))
    assert (again.retry_of, again.cause) == (yard.runs(job)[0].id, "retry")
    found = yard.job(job).schedule
    assert (found.status, found.retry_count, found.completed_at) == ("running", 0, None)
    assert yard.turn() == 1
    assert yard.status(job) == "completed"


@pytest.mark.proves("3-B8")
def test_a_recurring_one_that_stopped_goes_on_in_its_phase(yard: Yard) -> None:
    job, _ = failed(yard, max_retries=0, on_exhausted="stop")
    assert yard.status(job) == "failed"
    yard.later(HOUR + timedelta(seconds=20))
    yard.facade.retry_schedule(job.id, now=yard.now)
    found = yard.job(job)
    assert (found.schedule.status, found.next_fire_at) == ("pending", NOW + HOUR + 2 * MINUTE)
    assert yard.turn() == 1
    yard.run_until(NOW + HOUR + 3 * MINUTE + timedelta(seconds=20), MINUTE)
    assert yard.status(job) == "scheduled"
    assert [one.state for one in yard.runs(job)] == ["error", "completed", "completed", "completed"]


def test_retrying_the_run_of_a_failed_schedule_begins_it_anew_too(yard: Yard) -> None:
    job = yard.once(max_retries=0)
    yard.hand.outcome = lambda _: FAILS_FOR_GOOD
    yard.turn()
    yard.hand.outcome = lambda _: DONE
    yard.facade.retry(yard.runs(job)[0].id, now=yard.later(SECOND))
    yard.turn()
    assert yard.status(job) == "completed"


def test_a_failed_schedule_without_a_run_gets_one(yard: Yard) -> None:
    job = yard.recurring()
    yard.put(job, "failed")
    made = yard.facade.retry_schedule(job.id, now=NOW)
    assert (made.cause, made.retry_of, made.attempt) == ("retry", None, 1)
    assert yard.turn() == 1
