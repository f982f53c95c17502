"""orchestrator: its enumerations, its triggers, its bad rows."""

from datetime import UTC, timedelta
from typing import Any

import msgspec
import pytest

from migrator import states
from migrator.cron import next_fire
from migrator.records import ExecutionLog, Schedule
from migrator.sources.orchestrator import PROFILE, names
from migrator.sources.profile import Rejected
from migrator.values import jsonb
from tests.other_systems import (
    CONTEXT,
    KEYS,
    MINUTE,
    NOON,
    ORCHESTRATOR_ROWS,
    PLATFORM,
    Given,
    Trip,
    load,
    restore,
    travel,
)

TABLES = PROFILE.by_name()
JOB, EXECUTION = ORCHESTRATOR_ROWS["ScheduledJob"], ORCHESTRATOR_ROWS["JobExecution"]
EVENT, LOG = ORCHESTRATOR_ROWS["EventHandler"], ORCHESTRATOR_ROWS["JobExecutionLog"]


def job(**changes: Any) -> Trip:  # noqa: ANN401 - columns of all types
    return travel(TABLES["ScheduledJob"], JOB | changes)


def execution(**changes: Any) -> Trip:  # noqa: ANN401 - as above
    return travel(TABLES["JobExecution"], EXECUTION | changes)


def refused(table: str, **changes: Any) -> str:  # noqa: ANN401 - as above
    with pytest.raises(Rejected) as caught:
        load(TABLES[table], ORCHESTRATOR_ROWS[table] | changes, CONTEXT)
    return f"{caught.value.reason} {caught.value.path}"


JOB_TYPES = {"cron": "cron", "one_time": "one_time", "recurring": "cron", "event": "event"}
JOB_STATUSES = {
    "pending": "pending",
    "active": "scheduled",
    "paused": "paused",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}
EXECUTION_STATUSES = {
    "pending": "queued",
    "running": "running",
    "success": "completed",
    "failed": "error",
    "timeout": "timeout",
    "cancelled": "cancelled",
    "skipped": "skipped",
}
"""The enumerations of the source's schema, written out here a second time, and what each word becomes."""


@pytest.mark.proves("2-E1", "2-E2", "2-E3")
def test_the_maps_are_total_both_ways() -> None:
    assert dict(names.JOB_TYPES) == JOB_TYPES
    assert dict(names.JOB_STATUSES) == JOB_STATUSES
    assert dict(names.EXECUTION_STATUSES) == EXECUTION_STATUSES
    assert set(names.JOB_STATUSES.values()) <= set(states.SCHEDULE) == set(names.JOB_STATUSES_BACK)
    assert set(names.EXECUTION_STATUSES.values()) <= set(states.RUN) == set(names.EXECUTION_STATUSES_BACK)
    assert all(names.JOB_STATUSES_BACK[names.JOB_STATUSES[word]] == word for word in names.JOB_STATUSES)
    back = names.EXECUTION_STATUSES_BACK
    assert all(back[names.EXECUTION_STATUSES[word]] == word for word in names.EXECUTION_STATUSES)
    assert set(names.JOB_TYPES) == set(names.CAUSES)
    assert set(names.JOB_TYPES.values()) <= set(states.TRIGGER_KINDS)
    assert set(names.CAUSES.values()) <= set(states.RUN_CAUSES)


@pytest.mark.proves("2-E1")
@pytest.mark.parametrize(("word", "kind"), JOB_TYPES.items())
def test_job_types(word: str, kind: str) -> None:
    trip = job(type=word)  # which comes back as it was, whatever becomes of it
    if word == "event":  # no column holds the name of the event: the schedule stays without a trigger
        assert ([type(row) for row in trip.rows], trip.kinds) == ([Schedule], ["event-without-name"])
    else:
        assert trip.trigger.kind == kind
        assert "type" not in trip.left


@pytest.mark.proves("2-E2")
@pytest.mark.parametrize(("word", "status"), JOB_STATUSES.items())
def test_job_statuses(word: str, status: str) -> None:
    trip = job(status=word)
    assert trip.schedule.status == status
    assert "status" not in trip.left


def test_a_schedule_that_runs_just_now_is_written_back_as_active() -> None:
    schedule, trigger = job().rows
    running = msgspec.structs.replace(schedule, status="running")
    assert restore(TABLES["ScheduledJob"], (running, trigger))["status"] == "active"


@pytest.mark.proves("2-E3")
@pytest.mark.parametrize(("word", "state"), EXECUTION_STATUSES.items())
def test_execution_statuses(word: str, state: str) -> None:
    trip = execution(status=word)
    assert trip.run.state == state
    assert "status" not in trip.left


@pytest.mark.parametrize(
    ("table", "column"),
    [
        pytest.param("ScheduledJob", "type", marks=pytest.mark.proves("2-E1")),
        pytest.param("ScheduledJob", "status", marks=pytest.mark.proves("2-E2")),
        ("ScheduledJob", "priority"),
        ("ScheduledJob", "handler_type"),
        pytest.param("JobExecution", "status", marks=pytest.mark.proves("2-E3")),
        ("JobExecutionLog", "level"),
        ("EventHandler", "handler_type"),
        ("EventHandler", "action_type"),
    ],
)
def test_a_word_that_its_enumeration_lacks_is_set_aside(table: str, column: str) -> None:
    assert refused(table, **{column: "ACTIVE"}) == f"unknown-value {column}"


@pytest.mark.proves("2-E4")
def test_the_order_of_priorities_stays() -> None:
    words = ["low", "medium", "high", "critical"]
    trips = [job(priority=word) for word in words]
    assert all("priority" not in trip.left for trip in trips)
    found = [trip.schedule.priority for trip in trips]
    assert found == sorted({value for value in found if value is not None})
    assert len(found) == len(words)


def test_a_recurring_job_is_a_cron_line_within_bounds() -> None:
    trip = job()
    trigger, schedule = trip.trigger, trip.schedule
    assert trip.kinds == []
    assert (trigger.kind, trigger.cron_expression, trigger.cron_dialect) == ("cron", "30 2 * * 1-5", "croner")
    assert (trigger.timezone, trigger.max_fires, trigger.fire_count) == ("Europe/Vienna", 50, 20)
    assert trigger.start_at == (NOON - timedelta(days=30)).replace(tzinfo=UTC)
    assert trigger.next_fire_at == (NOON + MINUTE).replace(tzinfo=UTC)
    assert trigger.skip_if_overdue
    assert (schedule.max_retries, schedule.retry_delay_ms, schedule.retry_strategy) == (5, 1500, "exponential")
    assert (schedule.retry_cap_ms, schedule.timeout_ms, schedule.max_concurrency) == (3_600_000, 90_000, 3)
    assert schedule.tags == ("kb", "night")
    assert schedule.handler_name == "kb:reindex"
    assert schedule.id == KEYS[0]


def test_the_line_fires_as_croner_fires_it() -> None:
    """0 and 7 are Sunday, and either day field may match."""
    trigger = job(schedule="0 0 13 * 7").trigger
    fire = next_fire(str(trigger.cron_dialect), str(trigger.cron_expression), "UTC", NOON.replace(tzinfo=UTC))
    assert fire is not None
    assert fire.isoformat() == "2026-02-08T00:00:00+00:00"


@pytest.mark.parametrize("schedule", ["not a cron", "99 * * * *", "", None])
def test_a_line_that_cannot_be_evaluated_makes_no_trigger(schedule: str | None) -> None:
    trip = job(schedule=schedule)
    assert [type(row) for row in trip.rows] == [Schedule]
    assert trip.kinds == ["unevaluable-cron"]


def test_a_zone_that_there_is_not_makes_no_trigger() -> None:
    trip = job(timezone="Middle/Earth")
    assert len(trip.rows) == 1
    assert trip.kinds == ["unknown-zone"]
    assert job(timezone="Pacific Standard Time").trigger.timezone == "America/Los_Angeles"


def test_a_job_for_once_runs_at_its_next_run() -> None:
    one = {"type": "one_time", "schedule": None, "timezone": "UTC", "start_date": None, "end_date": None}
    trip = job(**one)
    assert (trip.trigger.kind, trip.trigger.run_at) == ("one_time", (NOON + MINUTE).replace(tzinfo=UTC))
    done = job(**one, next_run=None, status="completed")
    assert (done.trigger.run_at, done.trigger.next_fire_at) == (NOON.replace(tzinfo=UTC), None)
    never = job(**one, next_run=None, last_run=None)
    assert never.kinds == ["no-run-time"]


def test_a_job_of_type_event_names_no_event() -> None:
    assert job(type="event").kinds == ["event-without-name"]


def test_an_empty_window_never_fires() -> None:
    trip = job(end_date=JOB["start_date"])
    assert trip.kinds == ["empty-window"]
    assert (trip.trigger.enabled, trip.trigger.start_at, trip.trigger.end_at) == (False, None, None)


def test_one_run_too_many_is_reported() -> None:
    """The source tests max_executions after it has published, and runs one more."""
    assert job(executions_count=51).kinds == ["more-fires-than-allowed"]


def test_overlap_allowed_means_no_limit() -> None:
    assert job(allow_overlap=True).schedule.max_concurrency is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("concurrency", 0),
        ("max_executions", 0),
        ("max_retries", -1),
        ("retry_delay_ms", -1),
        ("timeout_ms", 0),
        ("executions_count", -1),
        ("max_retries", 2**31),
    ],
)
def test_a_number_that_means_nothing_is_set_aside(column: str, value: int) -> None:
    assert refused("ScheduledJob", **{column: value}) == f"out-of-range {column}"


@pytest.mark.proves("2-P1")
def test_a_platform_is_a_tenant_and_none_is_the_global_one() -> None:
    assert job().schedule.tenant_id == PLATFORM
    assert job(platform_id=None).schedule.tenant_id == "*"
    for name in ("*", " ", ""):
        assert refused("ScheduledJob", platform_id=name) == "no-tenant platform_id"


def test_an_execution_is_of_the_platform_of_its_job() -> None:
    """2-P1."""
    assert execution().run.tenant_id == PLATFORM
    parents = {"ScheduledJob": {str(KEYS[0]): JOB | {"platform_id": None}}}
    assert travel(TABLES["JobExecution"], EXECUTION, Given(parents=parents)).run.tenant_id == "*"


def test_an_execution_is_a_run() -> None:
    run = execution().run
    assert (run.schedule_id, run.attempt, run.retry_of, run.cause) == (KEYS[0], 3, KEYS[3], "retry")
    assert (run.state, run.duration_ms, run.trigger_id) == ("error", 60_000, None)
    assert run.scheduled_at == NOON.replace(tzinfo=UTC)
    assert (run.trace_id, run.span_id, run.parent_span_id) == ("trace", "span", "parent")
    assert execution(metadata={}).run.cause == "cron"
    assert execution(metadata={}).run.retry_of is None


def test_a_slot_dispatched_twice_is_two_runs() -> None:
    """Two dispatchers of the source may take one slot: both runs are loaded, and no unique index refuses the second."""
    first, second = execution(metadata=None).run, execution(metadata=None, id=str(KEYS[13])).run
    assert (first.schedule_id, first.scheduled_at, first.attempt) == (
        second.schedule_id,
        second.scheduled_at,
        second.attempt,
    )
    assert first.id != second.id
    assert first.trigger_id is None


def test_what_the_source_left_undone_is_reported() -> None:
    """A retry that was announced and never made; a run that was never taken up."""
    assert execution().kinds == ["retry-never-made"]
    assert execution(status="pending", next_retry_at=None).kinds == ["live-run"]


@pytest.mark.parametrize(
    ("changes", "kinds", "duration"),
    [
        ({"duration_ms": 61_000}, [], 61_000),
        ({"duration_ms": 61_001}, ["duration-mismatch"], 61_001),
        ({"duration_ms": -1}, ["negative-duration"], None),
        ({"duration_ms": None}, ["duration-computed"], 60_000),
        ({"completed_at": NOON - MINUTE}, ["finished-before-started"], None),
        ({"started_at": None}, [], 60_000),
    ],
)
def test_durations(changes: dict[str, Any], kinds: list[str], duration: int | None) -> None:
    trip = execution(next_retry_at=None, **changes)
    assert trip.kinds == kinds
    assert trip.run.duration_ms == duration


def test_logs_keep_their_order() -> None:
    rows = [LOG | {"id": str(KEYS[number]), "timestamp": NOON + (number % 3) * MINUTE} for number in range(12)]
    logs = [travel(TABLES["JobExecutionLog"], row).rows[0] for row in rows]
    assert all(isinstance(log, ExecutionLog) and log.run_id == KEYS[2] for log in logs)
    by_record = sorted(logs, key=lambda log: (log.logged_at, log.id))  # type: ignore[attr-defined]
    by_row = sorted(rows, key=lambda row: (row["timestamp"], row["id"]))
    assert [str(log.id) for log in by_record] == [row["id"] for row in by_row]  # type: ignore[attr-defined]


def test_an_event_handler_is_a_schedule_with_an_event() -> None:
    trip = travel(TABLES["EventHandler"], EVENT)
    schedule, trigger = trip.schedule, trip.trigger
    assert (trigger.kind, trigger.event_name, trigger.fire_count) == ("event", "ticket:created", 9)
    assert (trigger.next_fire_at, trigger.timezone) == (None, None)
    assert (schedule.handler_name, schedule.handler_type, schedule.priority) == ("notify", "job_creator", 7)
    assert jsonb.decode(schedule.payload or b"") == {"action_type": "create_job", "action_config": {"name": "x"}}


def test_an_event_handler_with_the_id_of_a_job_is_another_schedule() -> None:
    twin = travel(TABLES["EventHandler"], EVENT | {"id": JOB["id"]})
    assert twin.schedule.id != job().schedule.id


def test_a_disabled_event_handler_is_not_called() -> None:
    trip = travel(TABLES["EventHandler"], EVENT | {"enabled": False})
    assert (trip.schedule.enabled, trip.trigger.enabled) == (False, False)


@pytest.mark.parametrize(("given", "kept"), [(-5, 0), (101, 100)])
def test_a_priority_off_the_scale_is_clamped(given: int, kept: int) -> None:
    trip = travel(TABLES["EventHandler"], EVENT | {"priority": given})
    assert (trip.schedule.priority, trip.kinds) == (kept, ["clamped-priority"])
