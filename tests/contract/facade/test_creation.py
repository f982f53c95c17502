"""Making schedules: when they fire first, how often, and when they are through."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from migrator.scheduler.models import Timing
from migrator.store.protocols import ScheduleQuery
from migrator.values import jsonb
from migrator.verify.behaviour.cron_oracle import fires, matcher
from migrator.verify.behaviour.harness import DAY, FAILED_FOR_GOOD, HOUR, MINUTE, Clock, Harness
from tests.contract.facade.stored import status_of, stored
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
def test_a_cron_schedule_fires_first_when_the_oracle_says(harness: Harness, line: str, zone: str) -> None:
    job = harness.cron(cron=line, timezone=zone)
    walked = fires(matcher(line, "star"), ZoneInfo(zone), FROM, FROM + 60 * DAY, "first", "once")
    assert job.next_fire_at == next(walked)
    assert (job.schedule.status, job.schedule.enabled, job.triggers[0].kind) == ("scheduled", True, "cron")
    assert stored(harness, job) == job


@pytest.mark.proves("2-F1")
def test_what_is_asked_for_is_stored(harness: Harness) -> None:
    job = harness.cron(
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
        created_by="me",
    )
    row = stored(harness, job).schedule
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


def test_queue_and_timeout_are_the_handlers_where_none_is_asked_for(harness: Harness) -> None:
    harness.facade.seed_handlers([handler(harness.tenant, name="work", queue="ad", default_timeout_ms=60_000)], now=NOW)
    assert (harness.cron().schedule.queue, harness.cron().schedule.timeout_ms) == ("ad", 60_000)
    assert (harness.cron(queue="b").schedule.queue, harness.cron(timeout_ms=5).schedule.timeout_ms) == ("b", 5)
    assert harness.cron(handler_name="other").schedule.timeout_ms == 300_000


@pytest.mark.proves("2-F1")
def test_a_disabled_one_is_paused_and_fires_only_when_resumed(harness: Harness) -> None:
    job = harness.cron(enabled=False)
    assert (job.schedule.status, job.schedule.enabled) == ("paused", False)
    harness.advance(HOUR)
    assert harness.run_once() == 0
    resumed = harness.facade.resume(job.id, now=harness.now)
    assert (resumed.schedule.status, resumed.schedule.enabled) == ("scheduled", True)
    harness.advance(5 * MINUTE)
    assert harness.run_once() == 1


@pytest.mark.proves("2-F2")
def test_a_one_time_schedule_without_a_time_runs_at_once(harness: Harness) -> None:
    job = harness.once()
    assert harness.run_once() == 1
    assert status_of(harness, job) == "completed"


@pytest.mark.proves("2-F3")
def test_nothing_fires_before_the_start(harness: Harness) -> None:
    job = harness.recurring(start_at=NOW + HOUR)
    assert job.next_fire_at == NOW + HOUR
    harness.run_until(NOW + HOUR - MINUTE, MINUTE)
    assert harness.runs(job) == []
    harness.run_until(NOW + HOUR + 2 * MINUTE, MINUTE)
    assert [run.scheduled_at for run in harness.runs(job)] == [NOW + HOUR + MINUTE * n for n in range(3)]


@pytest.mark.proves("2-F3")
def test_a_start_that_is_past_gives_the_phase(harness: Harness) -> None:
    job = harness.recurring(Timing(interval=HOUR), start_at=NOW - 90 * MINUTE)
    assert job.next_fire_at == NOW + 30 * MINUTE


@pytest.mark.proves("2-F3c")
@pytest.mark.parametrize("fires", [1, 2, 5])
def test_exactly_so_many_executions_also_with_ticks_that_overlap(harness: Harness, fires: int) -> None:
    job = harness.recurring(max_fires=fires, max_concurrency=None)
    beside = Harness(harness.store, (harness.tenant, harness.other), "beside", clock=Clock(harness.now))
    for _ in range(fires + 3):
        beside.now = harness.advance(MINUTE)
        harness.worker.fire()
        beside.worker.fire()
        beside.worker.claim()
        harness.worker.claim()
        beside.worker.collect()
        harness.worker.collect()
    assert len(harness.runs(job)) == fires
    assert status_of(harness, job) == "completed"


@pytest.mark.proves("2-F3d")
@pytest.mark.parametrize("skips", [True, False])
def test_an_overdue_slot_is_skipped_or_fires_once(harness: Harness, skips: bool) -> None:  # noqa: FBT001 - a parameter
    job = harness.recurring(Timing(interval=HOUR), skip_if_overdue=skips)
    harness.advance(3 * HOUR + 30 * MINUTE)  # the clock jumps over three slots
    harness.run_once()
    assert [run.state for run in harness.runs(job)] == (["skipped"] if skips else ["completed"])
    assert stored(harness, job).next_fire_at == NOW + 4 * HOUR
    harness.advance(30 * MINUTE)
    harness.run_once()
    assert [run.state for run in harness.runs(job)][1:] == ["completed"]


def test_a_recurring_cron_keeps_its_zone_over_the_change_of_the_clock(harness: Harness) -> None:
    harness.now = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    job = harness.recurring(Timing(cron="0 9 * * *", timezone="Europe/Berlin"))
    harness.run_until(datetime(2026, 3, 30, 12, 0, tzinfo=UTC), HOUR)
    hours = [run.scheduled_at.hour for run in harness.runs(job) if run.scheduled_at is not None]
    assert hours == [7, 7]  # nine in summer time; the day before it was eight in UTC


def test_a_recurring_one_goes_on_after_its_last_retry_unless_it_is_to_stop(harness: Harness) -> None:
    keeps = harness.recurring(max_retries=0)
    stops = harness.recurring(max_retries=0, on_exhausted="stop")
    harness.executor.outcome = lambda _: FAILED_FOR_GOOD
    harness.run_until(NOW + 3 * MINUTE, MINUTE)
    assert (len(harness.runs(keeps)), status_of(harness, keeps)) == (3, "scheduled")
    assert (len(harness.runs(stops)), status_of(harness, stops)) == (1, "failed")


@pytest.mark.proves("4-J7", "4-S1", "0-T2.11.1")
def test_a_schedule_from_its_making_to_its_removal(harness: Harness) -> None:
    job = harness.cron(name="life")
    assert harness.facade.list(ScheduleQuery(name_contains="lif"), now=NOW).total == 1
    harness.advance(DAY)
    harness.run_once()
    assert harness.facade.stats(job.id, now=harness.now).successful == 1
    harness.facade.unschedule(job.id, now=harness.now)
    assert harness.facade.get(job.id, now=harness.now) is None
    assert harness.facade.list(now=harness.now).total == 0
    assert len(harness.facade.history(job.id, now=harness.now).executions) == 1
    assert harness.cron(name="life").id != job.id
