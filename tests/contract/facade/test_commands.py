"""Changing schedules: pausing, resuming, cancelling, another timing, enabling, another task, removal."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.errors import ConflictError, NotFoundError, RefusedError, TransitionError, UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import HistoryQuery, Patch, Timing
from migrator.values import jsonb
from tests.contract.facade.yard import DAY, DONE, FAILS, HOUR, MINUTE, Yard
from tests.contract.rows import NOW, SECOND, handler

# -- pausing and resuming


@pytest.mark.proves("2-F10", "3-B5")
def test_a_paused_schedule_does_not_fire_and_its_plan_stays(yard: Yard) -> None:
    job = yard.recurring()
    paused = yard.facade.pause(job.id, by="ann", now=NOW)
    assert (paused.schedule.status, paused.schedule.paused_at, paused.schedule.updated_by) == ("paused", NOW, "ann")
    assert paused.next_fire_at == job.next_fire_at
    yard.run_until(NOW + 5 * MINUTE, MINUTE)
    assert yard.runs(job) == []


@pytest.mark.proves("2-F10")
def test_runs_that_were_queued_before_the_pause_wait(yard: Yard) -> None:
    job = yard.recurring()
    yard.later(MINUTE)
    yard.worker.fire()
    yard.facade.pause(job.id, now=yard.now)
    assert yard.worker.claim() == 0
    yard.facade.resume(job.id, now=yard.now)
    assert yard.worker.claim() == 1


@pytest.mark.proves("2-F11", "3-B6")
@pytest.mark.parametrize("policy", [None, "skip"])
def test_resuming_makes_nothing_fire_at_once_and_keeps_the_phase(yard: Yard, policy: str | None) -> None:
    job = yard.recurring(Timing(interval=HOUR), start_at=NOW + 10 * MINUTE, misfire_policy=policy)
    yard.facade.pause(job.id, now=NOW)
    yard.later(3 * HOUR)
    resumed = yard.facade.resume(job.id, now=yard.now)
    assert resumed.next_fire_at == NOW + 3 * HOUR + 10 * MINUTE
    assert (resumed.schedule.status, resumed.schedule.paused_at) == ("scheduled", None)
    assert yard.turn() == 0
    yard.later(10 * MINUTE)
    assert yard.turn() == 1


@pytest.mark.proves("2-F11")
@pytest.mark.parametrize(("policy", "runs"), [("fire_once", 1), ("fire_all", 3)])
def test_resuming_fires_what_was_missed_where_that_is_the_policy_that_was_stated(
    yard: Yard, policy: str, runs: int
) -> None:
    job = yard.recurring(Timing(interval=HOUR), misfire_policy=policy, max_concurrency=None)
    yard.facade.pause(job.id, now=NOW)
    yard.later(3 * HOUR + 30 * MINUTE)
    yard.facade.resume(job.id, now=yard.now)
    assert yard.turn() == runs
    assert yard.job(job).next_fire_at == NOW + 4 * HOUR


def test_resuming_before_the_next_fire_leaves_it_where_it_is(yard: Yard) -> None:
    job = yard.recurring(Timing(interval=HOUR))
    yard.facade.pause(job.id, now=NOW)
    assert yard.facade.resume(job.id, now=yard.later(30 * MINUTE)).next_fire_at == NOW + HOUR


def test_resuming_after_the_end_completes_it(yard: Yard) -> None:
    job = yard.recurring(end_at=NOW + 5 * MINUTE)
    yard.facade.pause(job.id, now=NOW)
    resumed = yard.facade.resume(job.id, now=yard.later(HOUR))
    assert (resumed.schedule.status, resumed.next_fire_at) == ("completed", None)


def test_a_one_time_schedule_that_was_due_in_the_pause_is_not_lost(yard: Yard) -> None:
    job = yard.once(run_at=NOW + MINUTE)
    yard.facade.pause(job.id, now=NOW)
    yard.facade.resume(job.id, now=yard.later(HOUR))
    assert yard.turn() == 1
    assert yard.status(job) == "completed"


# -- cancelling


@pytest.mark.proves("2-F12", "3-B7")
def test_a_cancelled_schedule_is_at_its_end_and_its_live_runs_too(yard: Yard) -> None:
    job = yard.recurring(max_concurrency=None)
    yard.hand.outcome = lambda _: None
    yard.later(MINUTE)
    yard.turn()
    yard.later(MINUTE)
    yard.worker.fire()
    cancelled = yard.facade.cancel(job.id, by="ann", reason="no longer wanted", now=yard.now)
    assert (cancelled.schedule.status, cancelled.schedule.cancelled_at) == ("cancelled", yard.now)
    assert cancelled.next_fire_at is None
    runs = yard.runs(job)
    assert [(run.state, run.error) for run in runs] == [("cancelled", "no longer wanted")] * 2
    yard.run_until(yard.now + 5 * MINUTE, MINUTE)
    assert yard.runs(job) == runs


@pytest.mark.proves("2-F12", "3-B7")
@pytest.mark.parametrize("outcome", [DONE, FAILS], ids=["success", "failure"])
def test_a_run_in_flight_cannot_bring_a_cancelled_schedule_back(yard: Yard, outcome: object) -> None:
    job = yard.recurring(max_retries=3)
    yard.hand.outcome = lambda _: None
    yard.later(MINUTE)
    yard.turn()
    yard.facade.cancel(job.id, now=yard.now)
    assert yard.hand.reports is not None
    yard.hand.reports.ended(yard.hand.taken[0], outcome)  # type: ignore[arg-type] # an outcome
    yard.later(MINUTE)
    assert yard.turn() == 0
    assert [run.state for run in yard.runs(job)] == ["cancelled"]  # and no retry
    assert yard.status(job) == "cancelled"


@pytest.mark.proves("3-C6")
def test_the_worker_hears_that_its_run_was_cancelled(yard: Yard) -> None:
    job = yard.recurring()
    yard.hand.outcome = lambda _: None
    yard.later(MINUTE)
    yard.turn()
    yard.facade.cancel(job.id, now=yard.now)
    yard.worker.renew()
    assert yard.hand.cancelled == [yard.runs(job)[0].id]


# -- another timing


@pytest.mark.proves("2-F4")
def test_another_timing_moves_the_next_fire_and_keeps_the_history(yard: Yard) -> None:
    job = yard.cron(cron="0 * * * *", max_concurrency=None)
    yard.run_until(NOW + 3 * HOUR, HOUR)
    before = yard.runs(job)
    changed = yard.facade.reschedule(job.id, Timing(cron="30 * * * *"), now=yard.now)
    assert changed.next_fire_at == NOW.replace(hour=11, minute=30, microsecond=0)
    assert changed.triggers[0].id == job.triggers[0].id
    assert changed.triggers[0].fire_count == 3
    assert yard.runs(job) == before
    assert len(yard.facade.history(job.id, now=yard.now).executions) == 3
    yard.run_until(NOW + 5 * HOUR, 30 * MINUTE)
    assert [run.scheduled_at for run in yard.runs(job)[3:]] == [
        NOW.replace(hour=hour, minute=30, microsecond=0) for hour in (11, 12)
    ]


@pytest.mark.proves("2-F4")
def test_a_cron_line_may_become_an_interval_within_the_same_bounds(yard: Yard) -> None:
    job = yard.recurring(Timing(cron="0 * * * *"), end_at=NOW + DAY, max_fires=9)
    changed = yard.facade.reschedule(job.id, Timing(interval=10 * MINUTE), now=NOW)
    cause = changed.triggers[0]
    assert (cause.kind, cause.interval_ms, cause.cron_expression, cause.timezone) == ("interval", 600_000, None, None)
    assert (cause.end_at, cause.max_fires, changed.next_fire_at) == (NOW + DAY, 9, NOW + 10 * MINUTE)
    back = yard.facade.reschedule(job.id, Timing(cron="0 9 * * *", timezone="Europe/Berlin"), now=NOW).triggers[0]
    assert (back.kind, back.interval_ms, back.anchor, back.timezone) == ("cron", None, None, "Europe/Berlin")


@pytest.mark.proves("2-F4")
@pytest.mark.parametrize("kind", ["one_time", "event"])
def test_only_what_recurs_is_rescheduled(yard: Yard, kind: str) -> None:
    job = yard.once(run_at=NOW + HOUR) if kind == "one_time" else yard.facade.on_event("push", "work", now=NOW)
    before = yard.everything()
    with pytest.raises(UsageError, match=f"its triggers: {kind}"):
        yard.facade.reschedule(job.id, Timing(interval=HOUR), now=NOW)
    assert yard.everything() == before


def test_a_paused_one_stays_paused_with_its_new_timing(yard: Yard) -> None:
    job = yard.recurring()
    yard.facade.pause(job.id, now=NOW)
    changed = yard.facade.reschedule(job.id, Timing(interval=HOUR), now=NOW)
    assert (changed.schedule.status, changed.next_fire_at) == ("paused", NOW + HOUR)


def test_a_completed_one_is_scheduled_again_unless_its_bounds_are_over(yard: Yard) -> None:
    job = yard.recurring(end_at=NOW + 2 * MINUTE)
    yard.run_until(NOW + 4 * MINUTE, MINUTE)
    assert yard.status(job) == "completed"
    with pytest.raises(UsageError, match="never fire again"):
        yard.facade.reschedule(job.id, Timing(interval=HOUR), now=yard.now)
    open_ended = yard.recurring()
    yard.put(open_ended, "completed")
    assert yard.facade.reschedule(open_ended.id, Timing(interval=HOUR), now=yard.now).schedule.status == "scheduled"


# -- removal


@pytest.mark.proves("2-F5")
def test_a_removed_schedule_fires_no_more_and_its_runs_stay(yard: Yard) -> None:
    job = yard.recurring(max_concurrency=None)
    yard.later(MINUTE)
    yard.turn()
    yard.later(MINUTE)
    yard.worker.fire()
    yard.facade.unschedule(job.id, by="ann", now=yard.now)
    assert yard.facade.get(job.id, now=yard.now) is None
    yard.run_until(yard.now + 5 * MINUTE, MINUTE)
    history = yard.facade.history(job.id, now=yard.now)
    assert [one.run.state for one in history.executions] == ["cancelled", "completed"]
    assert history.executions[0].run.error == "unscheduled"
    with pytest.raises(NotFoundError):
        yard.facade.unschedule(job.id, now=yard.now)


def test_a_run_in_flight_may_end_after_its_schedule_was_removed(yard: Yard) -> None:
    job = yard.recurring()
    yard.hand.outcome = lambda _: None
    yard.later(MINUTE)
    yard.turn()
    yard.facade.unschedule(job.id, now=yard.now)
    assert yard.hand.reports is not None
    yard.hand.reports.ended(yard.hand.taken[0], DONE)
    assert yard.turn() == 1
    assert [run.state for run in yard.runs(job)] == ["completed"]


@pytest.mark.proves("4-S6")
def test_a_schedule_of_a_system_handler_is_not_removed(yard: Yard) -> None:
    yard.facade.seed_handlers([handler(yard.tenant, name="work", is_system=True)], now=NOW)
    job = yard.recurring()
    before = yard.everything()
    with pytest.raises(RefusedError, match="system handler"):
        yard.facade.unschedule(job.id, now=NOW)
    assert yard.everything() == before
    assert yard.facade.toggle(job.id, enabled=False, now=NOW).schedule.enabled is False


# -- enabling and disabling


@pytest.mark.proves("4-S2")
def test_a_schedule_disabled_between_two_ticks_does_not_fire_at_the_next(yard: Yard) -> None:
    job = yard.recurring()
    yard.later(MINUTE)
    assert yard.turn() == 1
    disabled = yard.facade.toggle(job.id, enabled=False, by="ann", now=yard.now)
    assert (disabled.schedule.enabled, disabled.schedule.status) == (False, "scheduled")
    yard.run_until(yard.now + 5 * MINUTE, MINUTE)
    assert len(yard.runs(job)) == 1
    enabled = yard.facade.toggle(job.id, enabled=True, now=yard.now + SECOND)
    assert enabled.next_fire_at == yard.now + MINUTE  # in its phase, and nothing at once
    assert yard.turn() == 0
    yard.later(MINUTE)
    assert yard.turn() == 1


@pytest.mark.proves("4-S2")
def test_toggling_twice_is_no_second_change_and_pausing_is_another_matter(yard: Yard) -> None:
    job = yard.recurring()
    yard.facade.pause(job.id, now=NOW)
    assert yard.facade.toggle(job.id, enabled=False, now=NOW).schedule.status == "paused"
    before = yard.everything()
    yard.facade.toggle(job.id, enabled=False, now=NOW + SECOND)
    assert yard.everything() == before
    assert yard.facade.toggle(job.id, enabled=True, now=NOW).schedule.status == "paused"


# -- another task


@pytest.mark.proves("3-E1", "4-J7", "4-S1")
def test_an_edit_is_seen_at_the_next_tick_and_moves_no_fire(yard: Yard) -> None:
    job = yard.recurring()
    patch = Patch(payload={"n": 2}, priority="critical", handler_name="other", tags=(), description=None, timeout_ms=9)
    changed = yard.facade.update(job.id, patch, by="ann", now=NOW + SECOND)
    row = changed.schedule
    assert (row.priority, row.handler_name, row.tags, row.timeout_ms, row.updated_by) == (100, "other", None, 9, "ann")
    assert (changed.triggers, row.name, row.status, row.max_retries) == (
        job.triggers,
        job.schedule.name,
        "scheduled",
        3,
    )
    yard.later(MINUTE)
    yard.turn()
    seen = yard.hand.taken[0].schedule
    assert seen is not None
    assert (seen.handler_name, jsonb.decode(seen.payload or b"")) == ("other", {"n": 2})


def test_an_empty_edit_changes_nothing(yard: Yard) -> None:
    job = yard.recurring()
    before = yard.everything()
    assert yard.facade.update(job.id, Patch(), now=NOW + SECOND) == job
    assert yard.everything() == before


def test_a_name_that_is_taken_is_refused(yard: Yard) -> None:
    yard.cron(name="a")
    other = yard.cron(name="b")
    before = yard.everything()
    with pytest.raises(ConflictError, match="name"):
        yard.facade.update(other.id, Patch(name="a"), now=NOW)
    with pytest.raises(ConflictError, match="name"):
        yard.cron(name="a")
    with pytest.raises(ConflictError, match="id"):
        yard.cron(id=other.id)
    assert yard.everything() == before


CHANGES: dict[str, Callable[[Scheduler, UUID], Any]] = {
    "toggle": lambda facade, job: facade.toggle(job, enabled=False, now=NOW),
    "update": lambda facade, job: facade.update(job, Patch(priority=1), now=NOW),
    "reschedule": lambda facade, job: facade.reschedule(job, Timing(interval=HOUR), now=NOW),
}


@pytest.mark.parametrize("call", CHANGES)
def test_a_cancelled_schedule_does_not_change_any_more(yard: Yard, call: str) -> None:
    job = yard.recurring()
    yard.facade.cancel(job.id, now=NOW)
    before = yard.everything()
    with pytest.raises(TransitionError):
        CHANGES[call](yard.facade, job.id)
    assert yard.everything() == before


# -- asking for a run


@pytest.mark.proves("4-S3")
def test_a_run_by_hand_names_who_asked_and_leaves_the_schedule_alone(yard: Yard) -> None:
    job = yard.recurring()
    run = yard.facade.trigger_now(job.id, by="ann", payload={"only": 7}, now=NOW)
    assert (run.cause, run.triggered_by, run.state, run.attempt, run.available_at) == (
        "manual",
        "ann",
        "queued",
        1,
        NOW,
    )
    assert (run.trigger_id, run.scheduled_at, run.trace_id) == (None, None, run.id.hex)
    assert jsonb.decode(run.metadata or b"") == {"payload": {"only": 7}}
    assert yard.job(job) == job
    assert yard.turn() == 1
    assert [one.state for one in yard.runs(job)] == ["completed"]
    assert yard.facade.pause(job.id, now=NOW).schedule.status == "paused"


@pytest.mark.proves("4-S3")
def test_a_run_by_hand_of_what_does_not_run_is_refused(yard: Yard) -> None:
    disabled, paused, done = yard.recurring(), yard.recurring(), yard.recurring()
    yard.facade.toggle(disabled.id, enabled=False, now=NOW)
    yard.facade.pause(paused.id, now=NOW)
    yard.put(done, "completed")
    before = yard.everything()
    with pytest.raises(RefusedError, match="disabled"):
        yard.facade.trigger_now(disabled.id, now=NOW)
    with pytest.raises(RefusedError, match="paused"):
        yard.facade.trigger_now(paused.id, now=NOW)
    with pytest.raises(TransitionError, match="completed"):
        yard.facade.trigger_now(done.id, now=NOW)
    with pytest.raises(NotFoundError):
        yard.facade.trigger_now(uuid4(), now=NOW)
    assert yard.everything() == before


def test_the_history_says_who_asked(yard: Yard) -> None:
    job = yard.recurring()
    yard.facade.trigger_now(job.id, by="ann", now=NOW)
    yard.later(timedelta(minutes=1))
    yard.turn()
    found = yard.facade.history(job.id, HistoryQuery(descending=False), now=yard.now)
    assert [one.run.triggered_by for one in found.executions] == ["ann", "scheduler"]
