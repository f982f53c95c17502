"""Making schedules: when they fire first, how often, and when they are through."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from migrator.scheduler.models import Timing
from migrator.store.protocols import ScheduleQuery
from migrator.values import jsonb
from migrator.verify.behaviour.cron_oracle import fires, matcher
from tests.contract.facade.yard import DAY, DONE, FAILS, FAILS_FOR_GOOD, HOUR, MINUTE, Yard
from tests.contract.rows import NOW, handler

FROM = NOW.replace(microsecond=0) + MINUTE
"""The first whole minute after now."""


@pytest.mark.proves("2-F1", "0-T2.11.1")
@pytest.mark.parametrize(
    ("line", "zone"),
    [
        ("*/5 * * * *", "UTC"),
        ("30 2 * * *", "Europe/Berlin"),
        ("0 9 * * 1-5", "America/New_York"),
        ("0 0 5 * *", "Asia/Kolkata"),
    ],
)
def test_a_cron_schedule_fires_first_when_the_oracle_says(yard: Yard, line: str, zone: str) -> None:
    job = yard.cron(cron=line, timezone=zone)
    walked = fires(matcher(line, "star"), ZoneInfo(zone), FROM, FROM + 60 * DAY, "first", "once")
    assert job.next_fire_at == next(walked)
    assert (job.schedule.status, job.schedule.enabled, job.triggers[0].kind) == ("scheduled", True, "cron")
    assert yard.job(job) == job


@pytest.mark.proves("2-F1")
def test_what_is_asked_for_is_stored(yard: Yard) -> None:
    job = yard.cron(
        name="nightly",
        description="all of it",
        payload={"a": [1, None]},
        priority="high",
        max_retries=7,
        retry_delay_ms=10,
        timeout_ms=99,
        max_concurrency=None,
        tags=("x", "y"),
        metadata={"team": "blue"},
        queue="slow",
    )
    row = yard.job(job).schedule
    assert (row.name, row.description, row.priority, row.max_retries, row.queue) == (
        "nightly",
        "all of it",
        75,
        7,
        "slow",
    )
    assert (row.retry_delay_ms, row.retry_strategy, row.retry_cap_ms, row.timeout_ms) == (
        10,
        "exponential",
        3_600_000,
        99,
    )
    assert (row.max_concurrency, row.tags, row.created_by, row.retry_count) == (None, ("x", "y"), "me", 0)
    assert jsonb.decode(row.payload or b"") == {"a": [1, None]}
    assert jsonb.decode(row.metadata or b"") == {"team": "blue"}


def test_queue_and_timeout_are_the_handlers_where_none_is_asked_for(yard: Yard) -> None:
    yard.facade.seed_handlers([handler(yard.tenant, name="work", queue="ad", default_timeout_ms=60_000)], now=NOW)
    assert (yard.cron().schedule.queue, yard.cron().schedule.timeout_ms) == ("ad", 60_000)
    assert (yard.cron(queue="b").schedule.queue, yard.cron(timeout_ms=5).schedule.timeout_ms) == ("b", 5)
    assert yard.cron(handler_name="other").schedule.timeout_ms == 300_000


@pytest.mark.proves("2-F1")
def test_a_disabled_one_is_paused_and_fires_only_when_resumed(yard: Yard) -> None:
    job = yard.cron(enabled=False)
    assert (job.schedule.status, job.schedule.enabled) == ("paused", False)
    yard.later(HOUR)
    assert yard.turn() == 0
    resumed = yard.facade.resume(job.id, now=yard.now)
    assert (resumed.schedule.status, resumed.schedule.enabled) == ("scheduled", True)
    yard.later(5 * MINUTE)
    assert yard.turn() == 1


@pytest.mark.proves("2-F2")
def test_a_one_time_schedule_fires_once_and_is_completed_when_its_run_has_ended(yard: Yard) -> None:
    job = yard.once(run_at=NOW + HOUR)
    assert job.next_fire_at == NOW + HOUR
    yard.later(HOUR - MINUTE)
    assert yard.turn() == 0
    yard.later(MINUTE)
    yard.hand.outcome = lambda _: None
    yard.turn()
    assert yard.status(job) == "running"  # not completed before it ran
    assert yard.hand.reports is not None
    yard.hand.reports.ended(yard.hand.taken[0], DONE)
    yard.turn()
    assert yard.status(job) == "completed"
    yard.run_until(NOW + 3 * HOUR, HOUR)
    assert [run.state for run in yard.runs(job)] == ["completed"]


@pytest.mark.proves("2-F2")
def test_a_one_time_schedule_without_a_time_runs_at_once(yard: Yard) -> None:
    job = yard.once()
    assert yard.turn() == 1
    assert yard.status(job) == "completed"


@pytest.mark.proves("2-F3")
def test_nothing_fires_before_the_start(yard: Yard) -> None:
    job = yard.recurring(start_at=NOW + HOUR)
    assert job.next_fire_at == NOW + HOUR
    yard.run_until(NOW + HOUR - MINUTE, MINUTE)
    assert yard.runs(job) == []
    yard.run_until(NOW + HOUR + 2 * MINUTE, MINUTE)
    assert [run.scheduled_at for run in yard.runs(job)] == [NOW + HOUR + MINUTE * n for n in range(3)]


@pytest.mark.proves("2-F3")
def test_a_start_that_is_past_gives_the_phase(yard: Yard) -> None:
    job = yard.recurring(Timing(interval=HOUR), start_at=NOW - 90 * MINUTE)
    assert job.next_fire_at == NOW + 30 * MINUTE


@pytest.mark.proves("2-F3b")
def test_the_last_fire_is_not_after_the_end_and_then_it_is_completed(yard: Yard) -> None:
    job = yard.recurring(start_at=NOW + MINUTE, end_at=NOW + 3 * MINUTE)
    yard.run_until(NOW + 6 * MINUTE, MINUTE)
    assert [run.scheduled_at for run in yard.runs(job)] == [NOW + MINUTE * n for n in (1, 2, 3)]
    found = yard.job(job)
    assert (found.schedule.status, found.next_fire_at) == ("completed", None)
    assert found.schedule.completed_at is not None


@pytest.mark.proves("2-F3c")
@pytest.mark.parametrize("fires", [1, 2, 5])
def test_exactly_so_many_executions_also_with_ticks_that_overlap(yard: Yard, fires: int) -> None:
    job = yard.recurring(max_fires=fires, max_concurrency=None)
    beside = Yard(yard.store, yard.tenant)
    for _ in range(fires + 3):
        beside.now = yard.later(MINUTE)
        yard.worker.fire()
        beside.worker.fire()
        beside.worker.claim()
        yard.worker.claim()
        beside.worker.collect()
        yard.worker.collect()
    assert len(yard.runs(job)) == fires
    assert yard.status(job) == "completed"


@pytest.mark.proves("2-F3d")
@pytest.mark.parametrize("skips", [True, False])
def test_an_overdue_slot_is_skipped_or_fires_once(yard: Yard, skips: bool) -> None:  # noqa: FBT001 - a parameter
    job = yard.recurring(Timing(interval=HOUR), skip_if_overdue=skips)
    yard.later(3 * HOUR + 30 * MINUTE)  # the clock jumps over three slots
    yard.turn()
    assert [run.state for run in yard.runs(job)] == (["skipped"] if skips else ["completed"])
    assert yard.job(job).next_fire_at == NOW + 4 * HOUR
    yard.later(30 * MINUTE)
    yard.turn()
    assert [run.state for run in yard.runs(job)][1:] == ["completed"]


def test_a_recurring_cron_keeps_its_zone_over_the_change_of_the_clock(yard: Yard) -> None:
    yard.now = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    job = yard.recurring(Timing(cron="0 9 * * *", timezone="Europe/Berlin"))
    yard.run_until(datetime(2026, 3, 30, 12, 0, tzinfo=UTC), HOUR)
    hours = [run.scheduled_at.hour for run in yard.runs(job) if run.scheduled_at is not None]
    assert hours == [7, 7]  # nine in summer time; the day before it was eight in UTC


@pytest.mark.proves("4-C5", "2-X1")
def test_a_failure_is_retried_as_often_as_asked_for_then_it_stays_failed(yard: Yard) -> None:
    job = yard.once(max_retries=2, retry_delay_ms=60_000)
    yard.hand.outcome = lambda _: FAILS
    yard.run_until(NOW + 10 * MINUTE, MINUTE)
    runs = yard.runs(job)
    assert [(run.state, run.attempt, run.cause) for run in runs] == [
        ("error", 1, "one_time"),
        ("error", 2, "retry"),
        ("error", 3, "retry"),
    ]
    assert [later.retry_of for later in runs[1:]] == [run.id for run in runs[:2]]
    assert yard.status(job) == "failed"


def test_a_recurring_one_goes_on_after_its_last_retry_unless_it_is_to_stop(yard: Yard) -> None:
    keeps = yard.recurring(max_retries=0)
    stops = yard.recurring(max_retries=0, on_exhausted="stop")
    yard.hand.outcome = lambda _: FAILS_FOR_GOOD
    yard.run_until(NOW + 3 * MINUTE, MINUTE)
    assert (len(yard.runs(keeps)), yard.status(keeps)) == (3, "scheduled")
    assert (len(yard.runs(stops)), yard.status(stops)) == (1, "failed")


@pytest.mark.proves("4-J7", "4-S1", "0-T2.11.1")
def test_a_schedule_from_its_making_to_its_removal(yard: Yard) -> None:
    job = yard.cron(name="life")
    assert yard.facade.list(ScheduleQuery(name_contains="lif"), now=NOW).total == 1
    yard.later(DAY)
    yard.turn()
    assert yard.facade.stats(job.id, now=yard.now).successful == 1
    yard.facade.unschedule(job.id, now=yard.now)
    assert yard.facade.get(job.id, now=yard.now) is None
    assert yard.facade.list(now=yard.now).total == 0
    assert len(yard.facade.history(job.id, now=yard.now).executions) == 1
    assert yard.cron(name="life").id != job.id
