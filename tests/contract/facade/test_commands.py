"""Changing schedules: pausing, resuming, cancelling, another timing, enabling, another task, removal."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.errors import ConflictError, NotFoundError, RefusedError, TransitionError, UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.commands import check_transition
from migrator.scheduler.models import Changes, Job
from migrator.values import jsonb
from migrator.verify.behaviour.harness import DAY, DONE, FAILED, HOUR, MINUTE, Harness
from tests.contract.facade.stored import everything, force_status, status_of, stored
from tests.contract.rows import NOW, SECOND, handler

# -- pausing and resuming


def test_a_job_that_fires_once_is_paused_while_its_run_waits_and_not_while_it_runs(harness: Harness) -> None:
    harness.executor.outcome = lambda _: None
    job = harness.once()
    harness.worker.fire()
    assert status_of(harness, job) == "running"
    for _ in range(2):
        assert shown_states(harness, job) == {"queued"}
        assert harness.facade.pause(job.id, now=NOW).state == "paused"
        assert shown_states(harness, job) == {"paused"}
        assert harness.worker.claim() == 0
        resumed = harness.facade.resume(job.id, now=NOW)
        assert (resumed.state, resumed.schedule.status) == ("queued", "running")
    assert harness.worker.claim() == 1
    assert shown_states(harness, job) == {"running"}
    before = everything(harness)
    with harness.session() as session, pytest.raises(TransitionError):
        check_transition(session, job.id, "pause")
    with pytest.raises(TransitionError, match="cannot pause a schedule that is running"):
        harness.facade.pause(job.id, now=NOW)
    assert everything(harness) == before
    (claim,) = harness.executor.open
    harness.executor.listener(claim).ended(claim, DONE)
    harness.worker.collect()
    assert status_of(harness, job) == "completed"


def shown_states(harness: Harness, job: Job) -> set[str]:
    """Return the states that the calls of the client say of a job, which is in no list but its own."""
    by_id, by_name = harness.facade.get(job.id), harness.facade.get_by_name(job.schedule.name)
    assert by_id is not None
    assert by_name is not None
    listed = [other for other in harness.facade.list().jobs if other.id == job.id]
    return {shown.state for shown in (by_id, by_name, *listed)}


def test_a_retry_that_waits_is_queued_and_another_job_is_what_it_is(harness: Harness) -> None:
    failing = harness.once(max_retries=1)
    harness.executor.outcome = lambda _: FAILED
    harness.worker.fire()
    assert harness.worker.claim() == 1
    harness.worker.collect()
    other = harness.recurring()
    assert shown_states(harness, failing) == {"queued"}
    assert shown_states(harness, other) == {"scheduled"}
    assert harness.facade.pause(failing.id, now=harness.now).state == "paused"


def test_a_job_is_running_while_one_of_its_runs_is_executed_and_another_waits(harness: Harness) -> None:
    harness.executor.outcome = lambda _: None
    job = harness.once(max_concurrency=1)
    harness.worker.fire()
    assert harness.worker.claim() == 1
    harness.facade.trigger_now(job.id, now=harness.now)
    assert shown_states(harness, job) == {"running"}
    with pytest.raises(TransitionError, match="cannot pause a schedule that is running"):
        harness.facade.pause(job.id, now=harness.now)


def test_a_job_that_was_paused_while_its_run_waited_can_be_cancelled(harness: Harness) -> None:
    job = harness.once()
    harness.worker.fire()
    with harness.session() as session:
        check_transition(session, job.id, "pause")
    harness.facade.pause(job.id, now=NOW)
    assert harness.facade.cancel(job.id, now=NOW).schedule.status == "cancelled"
    assert harness.run_states(job) == ["cancelled"]


@pytest.mark.proves("2-F10")
def test_runs_that_were_queued_before_the_pause_wait(harness: Harness) -> None:
    job = harness.recurring()
    harness.advance(MINUTE)
    harness.worker.fire()
    harness.facade.pause(job.id, now=harness.now)
    assert harness.worker.claim() == 0
    harness.facade.resume(job.id, now=harness.now)
    assert harness.worker.claim() == 1


@pytest.mark.proves("2-F11")
@pytest.mark.parametrize(("policy", "runs"), [("fire_once", 1), ("fire_all", 3)])
def test_resuming_fires_what_was_missed_where_that_is_the_policy_that_was_stated(
    harness: Harness, policy: str, runs: int
) -> None:
    job = harness.recurring(interval=HOUR, misfire_policy=policy, max_concurrency=None)
    harness.facade.pause(job.id, now=NOW)
    harness.advance(3 * HOUR + 30 * MINUTE)
    harness.facade.resume(job.id, now=harness.now)
    assert harness.run_once() == runs
    assert stored(harness, job).next_fire_at == NOW + 4 * HOUR


def test_resuming_before_the_next_fire_leaves_it_where_it_is(harness: Harness) -> None:
    job = harness.recurring(interval=HOUR)
    harness.facade.pause(job.id, now=NOW)
    assert harness.facade.resume(job.id, now=harness.advance(30 * MINUTE)).next_fire_at == NOW + HOUR


def test_resuming_after_the_end_completes_it(harness: Harness) -> None:
    job = harness.recurring(end_at=NOW + 5 * MINUTE)
    harness.facade.pause(job.id, now=NOW)
    resumed = harness.facade.resume(job.id, now=harness.advance(HOUR))
    assert (resumed.schedule.status, resumed.next_fire_at) == ("completed", None)


def test_a_one_time_schedule_that_was_due_in_the_pause_is_not_lost(harness: Harness) -> None:
    job = harness.once(run_at=NOW + MINUTE)
    harness.facade.pause(job.id, now=NOW)
    harness.facade.resume(job.id, now=harness.advance(HOUR))
    assert harness.run_once() == 1
    assert status_of(harness, job) == "completed"


# -- cancelling


@pytest.mark.proves("2-F12", "3-B7")
def test_a_cancelled_schedule_is_at_its_end_and_its_live_runs_too(harness: Harness) -> None:
    job = harness.recurring(max_concurrency=None)
    harness.executor.outcome = lambda _: None
    harness.advance(MINUTE)
    harness.run_once()
    harness.advance(MINUTE)
    harness.worker.fire()
    cancelled = harness.facade.cancel(job.id, by="ann", reason="no longer wanted", now=harness.now)
    assert (cancelled.schedule.status, cancelled.schedule.cancelled_at) == ("cancelled", harness.now)
    assert cancelled.next_fire_at is None
    runs = harness.runs(job)
    assert [(run.state, run.error) for run in runs] == [("cancelled", "no longer wanted")] * 2
    harness.run_until(harness.now + 5 * MINUTE, MINUTE)
    assert harness.runs(job) == runs


# -- another timing


@pytest.mark.proves("2-F4")
def test_another_timing_moves_the_next_fire_and_keeps_the_history(harness: Harness) -> None:
    job = harness.cron(cron="0 * * * *", max_concurrency=None)
    harness.run_until(NOW + 3 * HOUR, HOUR)
    before = harness.runs(job)
    changed = harness.facade.reschedule(job.id, cron="30 * * * *", now=harness.now)
    assert changed.next_fire_at == NOW.replace(hour=11, minute=30, microsecond=0)
    assert changed.triggers[0].id == job.triggers[0].id
    assert changed.triggers[0].fire_count == 3
    assert harness.runs(job) == before
    assert len(harness.facade.history(job.id, now=harness.now).executions) == 3
    harness.run_until(NOW + 5 * HOUR, 30 * MINUTE)
    assert [run.scheduled_at for run in harness.runs(job)[3:]] == [
        NOW.replace(hour=hour, minute=30, microsecond=0) for hour in (11, 12)
    ]


@pytest.mark.proves("2-F4")
def test_a_cron_line_may_become_an_interval_within_the_same_bounds(harness: Harness) -> None:
    job = harness.recurring(cron="0 * * * *", end_at=NOW + DAY, max_fires=9)
    changed = harness.facade.reschedule(job.id, interval=10 * MINUTE, now=NOW)
    cause = changed.triggers[0]
    assert (cause.kind, cause.interval_ms, cause.cron_expression, cause.timezone) == ("interval", 600_000, None, None)
    assert (cause.end_at, cause.max_fires, changed.next_fire_at) == (NOW + DAY, 9, NOW + 10 * MINUTE)
    back = harness.facade.reschedule(job.id, cron="0 9 * * *", timezone="Europe/Berlin", now=NOW).triggers[0]
    assert (back.kind, back.interval_ms, back.anchor, back.timezone) == ("cron", None, None, "Europe/Berlin")


@pytest.mark.proves("2-F4")
@pytest.mark.parametrize("kind", ["one_time", "event"])
def test_only_what_recurs_is_rescheduled(harness: Harness, kind: str) -> None:
    job = harness.once(run_at=NOW + HOUR) if kind == "one_time" else harness.facade.on_event("push", "work", now=NOW)
    before = everything(harness)
    with pytest.raises(UsageError, match=f"its triggers: {kind}"):
        harness.facade.reschedule(job.id, interval=HOUR, now=NOW)
    assert everything(harness) == before


def test_a_paused_one_stays_paused_with_its_new_timing(harness: Harness) -> None:
    job = harness.recurring()
    harness.facade.pause(job.id, now=NOW)
    changed = harness.facade.reschedule(job.id, interval=HOUR, now=NOW)
    assert (changed.schedule.status, changed.next_fire_at) == ("paused", NOW + HOUR)


def test_a_completed_one_is_scheduled_again_unless_its_bounds_are_over(harness: Harness) -> None:
    job = harness.recurring(end_at=NOW + 2 * MINUTE)
    harness.run_until(NOW + 4 * MINUTE, MINUTE)
    assert status_of(harness, job) == "completed"
    with pytest.raises(UsageError, match="never fire again"):
        harness.facade.reschedule(job.id, interval=HOUR, now=harness.now)
    open_ended = harness.recurring()
    force_status(harness, open_ended, "completed")
    assert harness.facade.reschedule(open_ended.id, interval=HOUR, now=harness.now).schedule.status == "scheduled"


# -- removal


@pytest.mark.proves("2-F5")
def test_a_removed_schedule_fires_no_more_and_its_runs_stay(harness: Harness) -> None:
    job = harness.recurring(max_concurrency=None)
    harness.advance(MINUTE)
    harness.run_once()
    harness.advance(MINUTE)
    harness.worker.fire()
    harness.facade.unschedule(job.id, by="ann", now=harness.now)
    assert harness.facade.get(job.id, now=harness.now) is None
    harness.run_until(harness.now + 5 * MINUTE, MINUTE)
    history = harness.facade.history(job.id, now=harness.now)
    assert [one.run.state for one in history.executions] == ["cancelled", "completed"]
    assert history.executions[0].run.error == "unscheduled"
    with pytest.raises(NotFoundError):
        harness.facade.unschedule(job.id, now=harness.now)


def test_a_run_in_flight_may_end_after_its_schedule_was_removed(harness: Harness) -> None:
    job = harness.recurring()
    harness.executor.outcome = lambda _: None
    harness.advance(MINUTE)
    harness.run_once()
    harness.facade.unschedule(job.id, now=harness.now)
    harness.executor.end(DONE, harness.executor.taken[0])
    assert harness.run_once() == 1
    assert [run.state for run in harness.runs(job)] == ["completed"]


@pytest.mark.proves("4-S6")
def test_a_schedule_of_a_system_handler_is_not_removed(harness: Harness) -> None:
    harness.facade.seed_handlers([handler(harness.tenant, name="work", is_system=True)], now=NOW)
    job = harness.recurring()
    before = everything(harness)
    with pytest.raises(RefusedError, match="system handler"):
        harness.facade.unschedule(job.id, now=NOW)
    assert everything(harness) == before
    assert harness.facade.toggle(job.id, enabled=False, now=NOW).schedule.enabled is False


# -- enabling and disabling


@pytest.mark.proves("4-S2")
def test_toggling_twice_is_no_second_change_and_pausing_is_another_matter(harness: Harness) -> None:
    job = harness.recurring()
    harness.facade.pause(job.id, now=NOW)
    assert harness.facade.toggle(job.id, enabled=False, now=NOW).schedule.status == "paused"
    before = everything(harness)
    harness.facade.toggle(job.id, enabled=False, now=NOW + SECOND)
    assert everything(harness) == before
    assert harness.facade.toggle(job.id, enabled=True, now=NOW).schedule.status == "paused"


# -- another task


@pytest.mark.proves("3-E1", "4-J7", "4-S1")
def test_an_edit_is_seen_at_the_next_tick_and_moves_no_fire(harness: Harness) -> None:
    job = harness.recurring()
    changes: Changes = {
        "payload": {"n": 2},
        "priority": "critical",
        "handler_name": "other",
        "tags": (),
        "description": None,
        "timeout": timedelta(milliseconds=9),
    }
    changed = harness.facade.update(job.id, by="ann", now=NOW + SECOND, **changes)
    row = changed.schedule
    assert (row.priority, row.handler_name, row.tags, row.timeout_ms, row.updated_by) == (100, "other", None, 9, "ann")
    assert (changed.triggers, row.name, row.status, row.max_retries) == (
        job.triggers,
        job.schedule.name,
        "scheduled",
        3,
    )
    harness.advance(MINUTE)
    harness.run_once()
    seen = harness.executor.taken[0].schedule
    assert seen is not None
    assert (seen.handler_name, jsonb.decode(seen.payload or b"")) == ("other", {"n": 2})


def test_an_empty_edit_changes_nothing(harness: Harness) -> None:
    job = harness.recurring()
    before = everything(harness)
    assert harness.facade.update(job.id, now=NOW + SECOND) == job
    assert everything(harness) == before


def test_a_name_that_is_taken_is_refused(harness: Harness) -> None:
    harness.cron(name="a")
    other = harness.cron(name="b")
    before = everything(harness)
    with pytest.raises(ConflictError, match="name"):
        harness.facade.update(other.id, name="a", now=NOW)
    with pytest.raises(ConflictError, match="name"):
        harness.cron(name="a")
    with pytest.raises(ConflictError, match="id"):
        harness.cron(id=other.id)
    assert everything(harness) == before


CHANGES: dict[str, Callable[[Scheduler, UUID], Any]] = {
    "toggle": lambda facade, job: facade.toggle(job, enabled=False, now=NOW),
    "update": lambda facade, job: facade.update(job, priority=1, now=NOW),
    "reschedule": lambda facade, job: facade.reschedule(job, interval=HOUR, now=NOW),
}


@pytest.mark.parametrize("call", CHANGES)
def test_a_cancelled_schedule_does_not_change_any_more(harness: Harness, call: str) -> None:
    job = harness.recurring()
    harness.facade.cancel(job.id, now=NOW)
    before = everything(harness)
    with pytest.raises(TransitionError):
        CHANGES[call](harness.facade, job.id)
    assert everything(harness) == before


# -- asking for a run


@pytest.mark.proves("4-S3")
def test_a_run_by_hand_names_who_asked_and_leaves_the_schedule_alone(harness: Harness) -> None:
    job = harness.recurring()
    run = harness.facade.trigger_now(job.id, by="ann", arguments={"only": 7}, now=NOW)
    assert (run.cause, run.triggered_by, run.state, run.attempt, run.available_at) == (
        "manual",
        "ann",
        "queued",
        1,
        NOW,
    )
    assert (run.trigger_id, run.scheduled_at, run.trace_id) == (None, None, run.id.hex)
    assert jsonb.decode(run.metadata or b"") == {"arguments": {"only": 7}}
    assert stored(harness, job) == job
    assert harness.run_once() == 1
    assert [one.state for one in harness.runs(job)] == ["completed"]
    assert harness.facade.pause(job.id, now=NOW).schedule.status == "paused"


def test_arguments_of_one_run_are_added_to_the_payload_for_it_and_its_retries(harness: Harness) -> None:
    payload = {"table": "orders", "days": 1}
    job = harness.recurring(payload=payload, max_retries=1, retry_delay=timedelta(0), max_concurrency=None)
    harness.executor.outcome = lambda _: FAILED
    harness.facade.trigger_now(job.id, arguments={"days": 7, "path": ["a"]}, now=NOW)
    harness.facade.trigger_now(harness.recurring(payload=[1]).id, arguments={"days": 2}, now=NOW)
    harness.facade.trigger_now(job.id, now=NOW)
    for _ in range(2):
        harness.run_once()
    taken = [(one.run.attempt, one.arguments) for one in harness.executor.taken if one.run.schedule_id == job.id]
    assert sorted(taken, key=str) == [
        (1, {"days": 1, "table": "orders"}),
        (1, {"days": 7, "table": "orders", "path": ["a"]}),
        (2, {"days": 1, "table": "orders"}),
        (2, {"days": 7, "table": "orders", "path": ["a"]}),
    ]
    assert {"payload": [1], "days": 2} in [one.arguments for one in harness.executor.taken]
    before = everything(harness)
    refused: dict[str, Any] = {
        r"^arguments\.context: the worker gives": {"context": 1},
        r"^arguments\.at is no JSON value: of the type datetime$": {"at": NOW},
        "^arguments must be a mapping, not list$": [1],
    }
    for words, arguments in refused.items():
        with pytest.raises(UsageError, match=words):
            harness.facade.trigger_now(job.id, arguments=arguments, now=NOW)
    assert everything(harness) == before


def test_payload_and_result_are_given_as_values_and_as_bytes(harness: Harness) -> None:
    job = harness.recurring(payload={"days": [1, 2.5, None]})
    assert (job.payload, job.schedule.payload) == ({"days": [1, 2.5, None]}, b'{"days":[1,2.5,null]}')
    run = harness.facade.trigger_now(job.id, now=NOW)
    queued = harness.facade.get_execution(run.id, now=NOW)
    harness.run_once()
    ended = harness.facade.get_execution(run.id, now=NOW)
    assert queued is not None
    assert ended is not None
    assert (queued.result, ended.result, ended.run.result) == (None, {"rows": 3}, b'{"rows":3}')
    assert harness.recurring().payload is None


@pytest.mark.proves("4-S3")
def test_a_run_by_hand_of_what_does_not_run_is_refused(harness: Harness) -> None:
    disabled, paused, done = harness.recurring(), harness.recurring(), harness.recurring()
    harness.facade.toggle(disabled.id, enabled=False, now=NOW)
    harness.facade.pause(paused.id, now=NOW)
    force_status(harness, done, "completed")
    before = everything(harness)
    with pytest.raises(RefusedError, match="disabled"):
        harness.facade.trigger_now(disabled.id, now=NOW)
    with pytest.raises(RefusedError, match="paused"):
        harness.facade.trigger_now(paused.id, now=NOW)
    with pytest.raises(TransitionError, match="completed"):
        harness.facade.trigger_now(done.id, now=NOW)
    with pytest.raises(NotFoundError):
        harness.facade.trigger_now(uuid4(), now=NOW)
    assert everything(harness) == before


def test_the_history_says_who_asked(harness: Harness) -> None:
    job = harness.recurring()
    harness.facade.trigger_now(job.id, by="ann", now=NOW)
    harness.advance(timedelta(minutes=1))
    harness.run_once()
    found = harness.facade.history(job.id, descending=False, now=harness.now)
    assert [one.run.triggered_by for one in found.executions] == ["ann", "scheduler"]
