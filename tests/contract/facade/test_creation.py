"""Making schedules: when they fire first, how often, and when they are through."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from migrator.verify.behaviour.cron_oracle import fires, matcher
from migrator.verify.behaviour.harness import DAY, HOUR, MINUTE, Harness
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


def test_queue_and_timeout_are_the_handlers_where_none_is_asked_for(harness: Harness) -> None:
    harness.facade.seed_handlers([handler(harness.tenant, name="work", queue="ad", default_timeout_ms=60_000)], now=NOW)
    assert (harness.cron().schedule.queue, harness.cron().schedule.timeout_ms) == ("ad", 60_000)
    assert (
        harness.cron(queue="b").schedule.queue,
        harness.cron(timeout=timedelta(milliseconds=5)).schedule.timeout_ms,
    ) == ("b", 5)
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
def test_a_start_that_is_past_gives_the_phase(harness: Harness) -> None:
    job = harness.recurring(interval=HOUR, start_at=NOW - 90 * MINUTE)
    assert job.next_fire_at == NOW + 30 * MINUTE


def test_a_recurring_cron_keeps_its_zone_over_the_change_of_the_clock(harness: Harness) -> None:
    harness.now = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    job = harness.recurring(cron="0 9 * * *", timezone="Europe/Berlin")
    harness.run_until(datetime(2026, 3, 30, 12, 0, tzinfo=UTC), HOUR)
    hours = [run.scheduled_at.hour for run in harness.runs(job) if run.scheduled_at is not None]
    assert hours == [7, 7]  # nine in summer time; the day before it was eight in UTC
