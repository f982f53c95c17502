"""Metrics and statistics against their recomputation from the rows, with a fixed clock."""

import resource
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import cron, states
from migrator.errors import NotFoundError, UsageError
from migrator.records import Run, WorkerRecord
from migrator.scheduler.client import Scheduler
from migrator.scheduler.health import Limits
from migrator.store.protocols import Store
from migrator.verify.behaviour.harness import DAY, HOUR, MINUTE, Clock, Harness
from tests.contract.rows import MILLISECOND, NOW, SECOND, fresh, run

FEW = settings(max_examples=5, deadline=None)
ENDS = st.tuples(
    st.sampled_from([*states.RUN]),
    st.integers(0, 40),
    st.integers(0, 9_000),
    st.sampled_from(["refused: no host", "refused: late", "broken", None]),
)


def made(harness: Harness, drawn: list[Any], job_id: Any) -> list[Run]:  # noqa: ANN401 - an id or none
    """Write runs made so many hours ago that took so many milliseconds."""
    rows = []
    with harness.store.session(harness.tenant, now=NOW) as session:
        for state, hours, lasted, error in drawn:
            created = NOW - HOUR * hours
            started = None if state in {"planning", "queued", "skipped"} else created
            over = states.is_terminal(states.RUN, state)
            rows.append(
                session.runs.create(
                    run(
                        harness.tenant,
                        schedule_id=job_id,
                        state=state,
                        created_at=created,
                        started_at=started,
                        finished_at=(started or created) + MILLISECOND * lasted if over else None,
                        error=error if state in {"error", "timeout"} else None,
                    )
                )
            )
    return rows


def percent(part: int, whole: int) -> float | None:
    return None if whole == 0 else round(100 * part / whole, 2)


def ms(number: float) -> timedelta:
    return timedelta(milliseconds=number)


def nearest(durations: list[int], percentile: int) -> int:
    """Return the smallest duration that at least so many per cent do not exceed."""
    ordered = sorted(durations)
    return next(one for n, one in enumerate(ordered, 1) if 100 * n >= percentile * len(ordered))


@pytest.mark.proves("2-F16", "3-D8", "3-B9", "3-B10", "3-T5")
@FEW
@given(drawn=st.lists(ENDS, max_size=25), window=st.sampled_from([None, (30, 5), (12, 0), (40, 20)]))
def test_every_group_of_metrics_is_what_the_rows_say(
    at_work: Store, drawn: list[Any], window: tuple[int, int] | None
) -> None:
    harness = Harness(at_work, (fresh(), fresh()), clock=Clock(NOW))
    jobs = [harness.recurring() for _ in range(3)]
    harness.facade.pause(jobs[0].id, now=NOW)
    harness.facade.toggle(jobs[1].id, enabled=False, now=NOW)
    rows = made(harness, drawn, jobs[2].id)
    start, end = (NOW - DAY, None) if window is None else (NOW - HOUR * window[0], NOW - HOUR * window[1])
    found = harness.facade.metrics(None if window is None else start, end, now=NOW)
    inside = [row for row in rows if row.created_at >= start and (end is None or row.created_at < end)]
    states_inside, states_all = Counter(row.state for row in inside), Counter(row.state for row in rows)
    assert (found.jobs.total, found.jobs.enabled, found.jobs.active) == (3, 2, 2)
    assert (found.jobs.paused, found.jobs.scheduled, found.jobs.cancelled) == (1, 2, 0)
    executions = found.executions
    assert (executions.total, executions.successful, executions.failed, executions.timeout) == (
        len(inside),
        states_inside["completed"],
        states_inside["error"],
        states_inside["timeout"],
    )
    assert (executions.cancelled, executions.skipped) == (states_inside["cancelled"], states_inside["skipped"])
    assert executions.pending == states_all["queued"] + states_all["planning"]
    assert executions.running == found.queue.processing == states_all["running"]
    assert (found.queue.size, found.queue.delayed) == (states_all["queued"], 0)
    bad = states_inside["error"] + states_inside["timeout"]
    assert found.queue.failed == bad
    performance = found.performance
    assert performance.success_rate == percent(states_inside["completed"], states_inside["completed"] + bad)
    assert performance.failure_rate == percent(bad, states_inside["completed"] + bad)
    assert performance.completed_share == percent(states_inside["completed"], len(inside))
    lasted = [row.duration_ms for row in inside if row.state == "completed" and row.duration_ms is not None]
    if lasted:
        assert performance.avg_duration == ms(round(sum(lasted) / len(lasted), 2))
        assert performance.p50_duration == ms(nearest(lasted, 50))
        assert performance.p95_duration == ms(nearest(lasted, 95))
        assert performance.p99_duration == ms(nearest(lasted, 99))
    else:
        assert performance.avg_duration is performance.p50_duration is performance.p99_duration is None
    waiting = [row.created_at for row in rows if row.state == "queued"]
    assert found.queue.oldest_wait == (max(NOW - at for at in waiting) if waiting else ms(0))
    assert (found.start, found.end, found.generated_at) == (start, end or NOW, NOW)


@pytest.mark.proves("2-F16")
def test_the_group_of_the_system_is_this_process_and_the_workers_that_are_alive(harness: Harness) -> None:
    before = harness.facade.metrics(now=NOW).system
    process = WorkerRecord(id=uuid4(), tenant_id="*", kind="worker", status="active")
    harness.store.workers.register(process, NOW)
    limited = Scheduler(harness.store, harness.tenant, limits=Limits(silent_for=SECOND))
    found = harness.facade.metrics(now=NOW).system
    assert found.workers == before.workers + 1
    harness.store.workers.stop(process.id, NOW)
    assert harness.facade.metrics(now=NOW).system.workers == before.workers
    assert limited.metrics(now=NOW + DAY * 9).system.workers == 0
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 0 < found.memory_usage_mb <= used  # kilobytes, or bytes: more than the megabytes
    assert ms(0) < before.uptime <= found.uptime
    assert found.cpu_usage_percent > 0


@pytest.mark.proves("2-F16")
def test_percentiles_are_the_nearest_ranks_of_completed_runs(harness: Harness) -> None:
    made(harness, [("completed", 1, n, None) for n in range(1, 101)] + [("error", 1, 9_000, None)], None)
    found = harness.facade.metrics(now=NOW).performance
    assert (found.p50_duration, found.p95_duration, found.p99_duration) == (ms(50), ms(95), ms(99))
    assert found.avg_duration == ms(50.5)


@pytest.mark.proves("3-B9")
def test_there_is_one_success_rate_and_the_other_ones_have_names_of_their_own(harness: Harness) -> None:
    job = harness.recurring()
    made(
        harness,
        [("completed", 1, 1, None)] * 2
        + [("error", 1, 1, None), ("timeout", 1, 1, None), ("cancelled", 1, 1, None), ("running", 1, 1, None)]
        + [("skipped", 1, 1, None)] * 2,
        job.id,
    )
    metrics, stats = harness.facade.metrics(now=NOW).performance, harness.facade.stats(job.id, now=NOW)
    assert metrics.success_rate == stats.success_rate == 50.0
    assert metrics.failure_rate == stats.failure_rate == 50.0
    assert metrics.completed_share == stats.completed_share == 25.0


@pytest.mark.proves("3-B10")
def test_today_begins_at_midnight_of_the_zone_that_is_asked_for(harness: Harness) -> None:
    # It is 08:00 UTC on 2 November 2025: half past 13 in Kolkata, and 22:00 of the day before in Honolulu.
    made(
        harness,
        [("completed", 1, 1, None), ("error", 9, 1, None), ("completed", 12, 1, None), ("error", 21, 1, None)],
        None,
    )
    for zone, completed, failed, since in (
        ("UTC", 1, 0, datetime(2025, 11, 2, tzinfo=UTC)),
        ("Asia/Kolkata", 2, 1, datetime(2025, 11, 1, 18, 30, tzinfo=UTC)),
        ("Pacific/Honolulu", 2, 2, datetime(2025, 11, 1, 10, tzinfo=UTC)),
    ):
        today = harness.facade.metrics(zone=zone, now=NOW).today
        assert (today.zone, today.completed, today.failed, today.since) == (zone, completed, failed, since)
    with pytest.raises(cron.ZoneError):
        harness.facade.metrics(zone="Mars/Olympus", now=NOW)


def test_today_of_the_day_on_which_the_clock_changes(harness: Harness) -> None:
    today = harness.facade.metrics(zone="America/New_York", now=datetime(2025, 11, 2, 20, tzinfo=UTC)).today
    assert today.since == datetime(2025, 11, 2, 4, tzinfo=UTC)  # midnight, still in summer time


@pytest.mark.parametrize(("start", "end"), [(0, 1), (5, 5), (-1, None)])
def test_a_window_that_ends_before_it_begins_is_refused(harness: Harness, start: int, end: int | None) -> None:
    with pytest.raises(UsageError, match="end must come after start"):
        harness.facade.metrics(NOW - HOUR * start, None if end is None else NOW - HOUR * end, now=NOW)


@pytest.mark.proves("2-F18", "3-D6", "3-B9", "3-T5")
@FEW
@given(drawn=st.lists(ENDS, max_size=25))
def test_statistics_of_a_schedule_are_what_its_rows_say(at_work: Store, drawn: list[Any]) -> None:
    harness = Harness(at_work, (fresh(), fresh()), clock=Clock(NOW))
    job, other = harness.recurring(), harness.recurring()
    rows = made(harness, drawn, job.id)
    made(harness, [("error", 1, 1, "another's"), ("completed", 1, 1, None)], other.id)
    found, counts = harness.facade.stats(job.id, now=NOW), Counter(row.state for row in rows)
    assert (found.total, found.successful, found.failed, found.timeout) == (
        len(rows),
        counts["completed"],
        counts["error"],
        counts["timeout"],
    )
    lasted = [row.duration_ms for row in rows if row.state == "completed" and row.duration_ms is not None]
    assert found.min_duration == (ms(min(lasted)) if lasted else None)
    assert found.max_duration == (ms(max(lasted)) if lasted else None)
    assert found.avg_duration == (ms(round(sum(lasted) / len(lasted), 2)) if lasted else None)
    assert found.last_started_at == max((row.started_at for row in rows if row.started_at), default=None)
    assert found.next_execution is not None
    assert found.next_execution.scheduled_at == job.next_fire_at
    assert found.next_execution.estimated_duration == found.avg_duration
    failed = [row for row in rows if row.state in {"error", "timeout"}]
    patterns = Counter(row.state if row.error is None else row.error.split(":")[0] for row in failed)
    assert {one.pattern: one.count for one in found.failure_patterns} == dict(patterns)
    assert [one.count for one in found.failure_patterns] == sorted(patterns.values(), reverse=True)
    hours = Counter((row.started_at or row.created_at).hour for row in rows)
    busiest = sorted(hours.items(), key=lambda one: (-one[1], one[0]))[:5]
    assert [(one.hour, one.runs) for one in found.busiest_hours] == busiest


@pytest.mark.proves("3-B10")
def test_statistics_of_a_window_hold_what_was_made_in_it(harness: Harness) -> None:
    job = harness.recurring()
    made(harness, [("completed", hours, 1, None) for hours in (1, 2, 3)] + [("error", 2, 1, None)], job.id)
    found = harness.facade.stats(job.id, since=NOW - HOUR * 2, until=NOW - HOUR, now=NOW)
    assert (found.total, found.failure_rate) == (2, 50.0)
    with pytest.raises(UsageError, match="until must come after since"):
        harness.facade.stats(job.id, since=NOW, until=NOW, now=NOW)


def test_statistics_outlive_the_schedule_but_not_its_unknown_id(harness: Harness) -> None:
    job = harness.recurring()
    harness.advance(MINUTE)
    harness.run_once()
    harness.facade.unschedule(job.id, now=harness.now)
    found = harness.facade.stats(job.id, now=harness.now)
    assert (found.total, found.next_execution) == (1, None)
    with pytest.raises(NotFoundError, match="no schedule"):
        Scheduler(harness.store, fresh()).stats(job.id, now=NOW)


def test_a_schedule_without_runs_has_no_rates(harness: Harness) -> None:
    found = harness.facade.stats(harness.recurring().id, now=NOW)
    assert (found.total, found.success_rate, found.completed_share, found.avg_duration) == (0, None, None, None)
    assert (found.failure_patterns, found.busiest_hours) == ((), ())


def test_the_mean_does_not_drift(harness: Harness) -> None:
    """A running mean that is rounded at each step goes astray; this one is computed from the durations."""
    job = harness.recurring()
    made(harness, [("completed", 1, lasted, None) for lasted in (1, 2, 1, 2, 1, 2, 2)], job.id)
    assert harness.facade.stats(job.id, now=NOW).avg_duration == ms(1.57)
