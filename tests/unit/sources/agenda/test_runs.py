"""The run that a job tells of."""

from datetime import UTC, datetime, timedelta

import pytest

from migrator.values import jsonb
from tests.agenda_documents import (
    NOON,
    SECOND,
    Document,
    created_4,
    every_4,
    hokify_run,
    is_clean,
    job_6,
    pulse_run,
    travel,
)

AWARE = NOON.replace(tzinfo=UTC)
DONE: Document = {"nextRunAt": None, "lockedAt": None, "lastRunAt": NOON, "lastFinishedAt": NOON + SECOND}


@pytest.mark.parametrize("document", [created_4(), every_4(), job_6(), created_4(failedAt=NOON, lastFinishedAt=NOON)])
def test_a_job_that_neither_ran_nor_is_locked_has_no_run(document: Document) -> None:
    assert travel(document).run is None


STATES = [
    ("completed", created_4(**DONE)),
    ("completed", created_4(**DONE, failedAt=NOON)),
    ("error", created_4(**DONE | {"failedAt": NOON + SECOND})),
    ("error", created_4(**DONE | {"failedAt": NOON + 2 * SECOND})),
    ("cancelled", created_4(nextRunAt=None, lastRunAt=NOON)),
    ("cancelled", every_4(lastRunAt=NOON, lastFinishedAt=NOON - SECOND)),
    ("running", created_4(lockedAt=NOON)),
    ("running", created_4(nextRunAt=None, lockedAt=NOON, lastRunAt=NOON)),
    ("running", every_4(lockedAt=NOON + 5 * SECOND, lastRunAt=NOON, lastFinishedAt=NOON + SECOND)),
]


@pytest.mark.parametrize(("state", "document"), STATES)
def test_the_state_of_the_run(state: str, document: Document) -> None:
    run = travel(document).run
    assert run is not None
    assert run.state == state


def test_a_finished_run() -> None:
    trip = travel(created_4(**DONE, result={"rows": 3}) | {"shouldSaveResult": True})
    run, schedule = trip.run, trip.schedule
    assert run is not None
    assert schedule is not None
    assert (run.schedule_id, run.trigger_id) == (schedule.id, None)
    assert (run.created_at, run.started_at) == (AWARE, AWARE)
    assert (run.finished_at, run.duration_ms) == (AWARE + SECOND, 1000)
    assert (run.worker_id, run.cause, run.attempt) == ("worker-1", "api", 1)
    assert run.result == b'{"rows":3}'
    assert run.lease_expires_at is None
    assert is_clean(trip)


def test_a_failed_run_says_why() -> None:
    trip = travel(pulse_run(), "pulseJobs")
    assert trip.run is not None
    assert (trip.run.error, trip.run.attempt, trip.run.state) == ("down", 3, "error")
    assert jsonb.decode(trip.run.stats or b"") == {"progress": 40}
    assert is_clean(trip)


def test_a_failure_before_the_first_run_stays_with_the_schedule() -> None:
    failure: Document = {"failCount": 1, "failReason": "no", "failedAt": NOON, "lastFinishedAt": NOON}
    trip = travel(created_4(nextRunAt=None, **failure))
    assert trip.schedule is not None
    assert jsonb.decode(trip.schedule.metadata or b"") == {
        "type": "normal",
        "failCount": 1,
        "failReason": "no",
        "failedAt": "2026-11-20T12:00:00+00:00",
        "lastFinishedAt": "2026-11-20T12:00:00+00:00",
    }
    assert is_clean(trip)


def test_an_older_failure_is_not_the_error_of_a_good_run() -> None:
    older: Document = {"failCount": 1, "failReason": "no", "failedAt": NOON - SECOND}
    trip = travel(created_4(**DONE, **older))
    assert trip.run is not None
    assert (trip.run.state, trip.run.error) == ("completed", None)
    assert is_clean(trip)


def test_a_failure_after_the_end_keeps_its_own_time() -> None:
    trip = travel(created_4(**DONE | {"failedAt": NOON + 2 * SECOND, "failReason": "late"}))
    assert trip.run is not None
    assert trip.run.error == "late"
    assert is_clean(trip)
    assert trip.encoded["failedAt"] == NOON + 2 * SECOND


def test_a_lock_is_a_lease_of_the_default_lifetime() -> None:
    run = travel(created_4(nextRunAt=None, lockedAt=NOON, lastRunAt=NOON + SECOND)).run
    assert run is not None
    assert run.lease_expires_at == AWARE + timedelta(minutes=10)
    assert (run.started_at, run.finished_at, run.scheduled_at) == (AWARE + SECOND, None, None)


def test_a_job_that_is_only_locked_takes_its_slot() -> None:
    trip = travel(every_4(lockedAt=NOON + 5 * SECOND, lastRunAt=NOON - SECOND, lastFinishedAt=NOON - SECOND))
    run, trigger = trip.run, trip.trigger
    assert run is not None
    assert trigger is not None
    assert (run.trigger_id, run.scheduled_at, run.attempt) == (trigger.id, trigger.next_fire_at, 1)
    assert (run.started_at, run.finished_at) == (AWARE + 5 * SECOND, None)
    assert jsonb.decode(run.metadata or b"") == {"claimed": True}
    assert is_clean(trip)


def test_what_an_older_run_left_is_not_the_locked_one() -> None:
    trip = travel(every_4(lockedAt=NOON, lastRunAt=NOON - SECOND, lastFinishedAt=NOON - SECOND, result=[1]))
    assert trip.run is not None
    assert trip.run.result is None
    assert trip.schedule is not None
    assert jsonb.decode(trip.schedule.metadata or b"")["result"] == [1]
    assert is_clean(trip)


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        (every_4("30 2 * * *", lastRunAt=NOON), "cron"),
        (created_4(repeatAt="3:30pm", lastRunAt=NOON), "cron"),
        (every_4(lastRunAt=NOON), "interval"),
        (every_4("nothing", lastRunAt=NOON), "interval"),
        (created_4(lastRunAt=NOON), "api"),
    ],
)
def test_the_cause_of_the_run(document: Document, cause: str) -> None:
    run = travel(document).run
    assert run is not None
    assert run.cause == cause


@pytest.mark.parametrize(
    ("document", "attempt"),
    [
        (created_4(**DONE), 1),
        (created_4(**DONE, failCount=2), 3),
        (created_4(**DONE | {"failedAt": NOON + SECOND, "failCount": 2}), 2),
        (created_4(**DONE, failCount=-3), None),
        (created_4(**DONE, failCount=2.5), None),
        (created_4(**DONE, failCount=2**31 - 1), None),
        (every_4(lastRunAt=NOON, failCount=2), None),
    ],
)
def test_a_one_shot_numbers_its_attempts_by_its_failures(document: Document, attempt: int | None) -> None:
    run = travel(document).run
    assert run is not None
    assert run.attempt == attempt


@pytest.mark.parametrize("progress", [0, 100, 12.5, None])
def test_progress_is_a_figure_of_the_run(progress: float | None) -> None:
    trip = travel(hokify_run(progress=progress))
    assert trip.run is not None
    assert is_clean(trip)
    assert (trip.run.stats is None) == (progress is None)


def test_the_instant_of_the_lock_may_be_that_of_the_start() -> None:
    begun = travel(created_4(nextRunAt=None, lockedAt=NOON, lastRunAt=NOON))
    claimed = travel(created_4(nextRunAt=None, lockedAt=NOON))
    assert begun.run is not None
    assert claimed.run is not None
    assert begun.run.started_at == claimed.run.started_at
    assert is_clean(begun)
    assert is_clean(claimed)


def test_the_last_moment_a_lock_may_have() -> None:
    last = datetime(9999, 12, 31, 23, 49, 59)  # noqa: DTZ001 - as decoding BSON gives it
    assert is_clean(travel(created_4(lockedAt=last)))
