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
from migrator.verify.behaviour.harness import DONE, FAILED_FOR_GOOD, HOUR, MINUTE, Harness
from tests.contract.facade.stored import everything, force_status, status_of, stored
from tests.contract.rows import NOW, SECOND, run


def failed(harness: Harness, **named: Any) -> tuple[Job, Run]:  # noqa: ANN401 - whatever the request takes
    """Return a schedule with one run that failed."""
    job = harness.recurring(**named)
    harness.executor.outcome = lambda _: FAILED_FOR_GOOD
    harness.advance(MINUTE)
    harness.run_once()
    harness.executor.outcome = lambda _: DONE
    return job, harness.runs(job)[0]


@pytest.mark.proves("2-F15", "2-X10")
def test_a_failed_run_is_repeated_by_one_new_run_which_is_executed(harness: Harness) -> None:
    job, first = failed(harness)
    again = harness.facade.retry(first.id, by="ann", now=harness.now)
    assert (again.retry_of, again.cause, again.state, again.triggered_by) == (first.id, "retry", "queued", "ann")
    assert (again.attempt, again.scheduled_at, again.trigger_id) == (2, first.scheduled_at, first.trigger_id)
    assert (again.trace_id, again.parent_span_id, again.available_at) == (first.trace_id, first.span_id, harness.now)
    assert harness.run_once() == 1
    assert [(one.state, one.attempt) for one in harness.runs(job)] == [("error", 1), ("completed", 2)]


@pytest.mark.proves("2-F15")
@pytest.mark.parametrize("state", states.RUN)
def test_only_failed_and_timed_out_runs_are_retried(harness: Harness, state: str) -> None:
    job = harness.recurring()
    with harness.store.session(harness.tenant, now=NOW) as session:
        row = session.runs.create(run(harness.tenant, schedule_id=job.id, state=state))
    before = everything(harness)
    if state in {"error", "timeout"}:
        assert harness.facade.retry(row.id, now=NOW).retry_of == row.id
    else:
        with pytest.raises(TransitionError, match=f"a run that is {state} is not retried"):
            harness.facade.retry(row.id, now=NOW)
        assert everything(harness) == before


@pytest.mark.proves("2-F15")
def test_a_run_is_retried_once_and_its_retry_may_be_retried(harness: Harness) -> None:
    _, first = failed(harness)
    second = harness.facade.retry(first.id, now=harness.now)
    before = everything(harness)
    with pytest.raises(ConflictError, match="retried before"):
        harness.facade.retry(first.id, now=harness.now)
    assert everything(harness) == before
    harness.executor.outcome = lambda _: FAILED_FOR_GOOD
    harness.run_once()
    assert harness.facade.retry(second.id, now=harness.now).attempt == 3


@pytest.mark.proves("2-F15")
def test_two_who_retry_at_the_same_moment_make_one_run(harness: Harness) -> None:
    job, first = failed(harness)

    def ask(_: int) -> str:
        try:
            harness.facade.retry(first.id, now=harness.now)
        except MigratorError as error:
            return type(error).__name__
        return "made"

    with ThreadPoolExecutor(4) as pool:
        answers = sorted(pool.map(ask, range(6)))
    assert answers == ["ConflictError"] * 5 + ["made"]
    assert len(harness.runs(job)) == 2


def test_the_run_of_an_event_is_repeated_with_what_came_with_it(harness: Harness) -> None:
    harness.facade.on_event("push", "work", now=NOW)
    (first,) = harness.facade.trigger_event("push", {"a": 1}, event_id="e", now=NOW).runs
    harness.executor.outcome = lambda _: FAILED_FOR_GOOD
    harness.run_once()
    again = harness.facade.retry(first.id, now=NOW)
    assert (again.metadata, again.dedupe_key, again.trigger_id) == (first.metadata, None, first.trigger_id)
    assert harness.facade.trigger_event("push", {"a": 1}, event_id="e", now=NOW).repeated == 1


def test_a_timed_out_run_is_retried_too(harness: Harness) -> None:
    job = harness.recurring(max_retries=0)
    harness.executor.outcome = lambda _: Outcome(state="timeout", error="timeout: too long", final=True)
    harness.advance(MINUTE)
    harness.run_once()
    assert harness.facade.retry(harness.runs(job)[0].id, now=harness.now).attempt == 2


def test_what_would_not_be_executed_is_refused(harness: Harness) -> None:
    job, first = failed(harness)
    harness.facade.pause(job.id, now=harness.now)
    before = everything(harness)
    with pytest.raises(RefusedError, match="paused"):
        harness.facade.retry(first.id, now=harness.now)
    harness.facade.resume(job.id, now=harness.now)
    harness.facade.toggle(job.id, enabled=False, now=harness.now)
    with pytest.raises(RefusedError, match="disabled"):
        harness.facade.retry(first.id, now=harness.now)
    assert everything(harness)[2] == before[2]
    harness.facade.cancel(job.id, now=harness.now)
    with pytest.raises((TransitionError, RefusedError)):
        harness.facade.retry(first.id, now=harness.now)


def test_a_run_that_belongs_to_nothing_any_more(harness: Harness) -> None:
    job, first = failed(harness)
    harness.facade.unschedule(job.id, now=harness.now)
    with harness.store.session(harness.tenant, now=NOW) as session:
        alone = session.runs.create(run(harness.tenant, state="error"))
    before = everything(harness)
    with pytest.raises(NotFoundError, match="no schedule"):
        harness.facade.retry(first.id, now=harness.now)
    with pytest.raises(UsageError, match="belongs to no schedule"):
        harness.facade.retry(alone.id, now=harness.now)
    with pytest.raises(NotFoundError, match="no run"):
        harness.facade.retry(uuid4(), now=harness.now)
    assert everything(harness) == before


@pytest.mark.proves("3-B8")
def test_a_failed_one_time_schedule_begins_anew_and_is_completed(harness: Harness) -> None:
    job = harness.once(max_retries=0)
    harness.executor.outcome = lambda _: FAILED_FOR_GOOD
    harness.run_once()
    assert status_of(harness, job) == "failed"
    harness.executor.outcome = lambda _: DONE
    again = harness.facade.retry_schedule(job.id, by="ann", now=harness.advance(SECOND))
    assert (again.retry_of, again.cause) == (harness.runs(job)[0].id, "retry")
    found = stored(harness, job).schedule
    assert (found.status, found.retry_count, found.completed_at) == ("running", 0, None)
    assert harness.run_once() == 1
    assert status_of(harness, job) == "completed"


@pytest.mark.proves("3-B8")
def test_a_recurring_one_that_stopped_goes_on_in_its_phase(harness: Harness) -> None:
    job, _ = failed(harness, max_retries=0, on_exhausted="stop")
    assert status_of(harness, job) == "failed"
    harness.advance(HOUR + timedelta(seconds=20))
    harness.facade.retry_schedule(job.id, now=harness.now)
    found = stored(harness, job)
    assert (found.schedule.status, found.next_fire_at) == ("pending", NOW + HOUR + 2 * MINUTE)
    assert harness.run_once() == 1
    harness.run_until(NOW + HOUR + 3 * MINUTE + timedelta(seconds=20), MINUTE)
    assert status_of(harness, job) == "scheduled"
    assert [one.state for one in harness.runs(job)] == ["error", "completed", "completed", "completed"]


def test_retrying_the_run_of_a_failed_schedule_begins_it_anew_too(harness: Harness) -> None:
    job = harness.once(max_retries=0)
    harness.executor.outcome = lambda _: FAILED_FOR_GOOD
    harness.run_once()
    harness.executor.outcome = lambda _: DONE
    harness.facade.retry(harness.runs(job)[0].id, now=harness.advance(SECOND))
    harness.run_once()
    assert status_of(harness, job) == "completed"


def test_a_failed_schedule_without_a_run_gets_one(harness: Harness) -> None:
    job = harness.recurring()
    force_status(harness, job, "failed")
    made = harness.facade.retry_schedule(job.id, now=NOW)
    assert (made.cause, made.retry_of, made.attempt) == ("retry", None, 1)
    assert harness.run_once() == 1


# -- an application that executes runs itself


def test_a_run_that_is_claimed_is_finished_once_and_by_its_holder(harness: Harness) -> None:
    job = harness.recurring(queue="own")
    mine = harness.facade.trigger_now(job.id, now=NOW)
    assert harness.facade.claim("me", queues=["other"], now=NOW) == []
    (claim,) = harness.facade.claim("me", 5, timedelta(minutes=1), queues=["own"], now=NOW)
    assert (claim.run.id, claim.run.worker_id, claim.run.state) == (mine.id, "me", "running")
    assert claim.run.lease_expires_at == NOW + MINUTE
    with pytest.raises(UsageError, match="no JSON value"):
        harness.facade.finish(claim, result=object(), now=NOW)
    assert harness.facade.finish(claim, result={"rows": 3}, now=NOW + SECOND)
    assert not harness.facade.finish(claim, "error", error="late", now=NOW + SECOND)
    (ended,) = harness.runs(job)
    assert (ended.state, ended.result, ended.error, ended.finished_at) == (
        "completed",
        b'{"rows":3}',
        None,
        NOW + SECOND,
    )


@pytest.mark.parametrize(("final", "retries"), [(False, 1), (True, 0)])
def test_a_claimed_run_that_fails_is_repeated_unless_that_is_final(harness: Harness, final: bool, retries: int) -> None:  # noqa: FBT001 - a parameter of the test
    job = harness.recurring()
    harness.facade.trigger_now(job.id, now=NOW)
    (claim,) = harness.facade.claim("me", now=NOW)
    assert harness.facade.finish(claim, "error", error="broken", error_detail="line 1", final=final, now=NOW)
    ended, *others = sorted(harness.runs(job), key=lambda one: one.attempt or 0)
    assert (ended.state, ended.error, ended.error_detail) == ("error", "broken", "line 1")
    assert [(one.retry_of, one.state, one.attempt) for one in others] == [(ended.id, "queued", 2)] * retries
