"""support-center: schedule_config, limits, seeds, the job list of the old side."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from apscheduler.triggers.cron import CronTrigger

from migrator import states
from migrator.cron import next_fires
from migrator.records import Schedule, WorkerRecord
from migrator.sources.profile import Rejected
from migrator.sources.support_center import PROFILE, names
from migrator.sources.table_columns import row_of
from migrator.values import jsonb
from tests.other_systems import CONTEXT, KEYS, MINUTE, NOON, SUPPORT_CENTER_ROWS, Given, Trip, load, travel
from tests.table_shapes import Row

TABLES = PROFILE.by_name()
JOB, EXECUTION = SUPPORT_CENTER_ROWS["scheduled_jobs"], SUPPORT_CENTER_ROWS["scheduled_job_executions"]
FUNCTION, INSTANCE = SUPPORT_CENTER_ROWS["task_functions"], SUPPORT_CENTER_ROWS["scheduler_instances"]
CAIRO = ZoneInfo("Africa/Cairo")


def job(context: Any = CONTEXT, **changes: Any) -> Trip:  # noqa: ANN401 - columns of all types
    return travel(TABLES["scheduled_jobs"], JOB | changes, context)


def cron_job(context: Given = CONTEXT, **config: Any) -> Trip:  # noqa: ANN401 - as above
    return job(context, job_type_id=2, schedule_config=config)


def execution(**changes: Any) -> Trip:  # noqa: ANN401 - as above
    return travel(TABLES["scheduled_job_executions"], EXECUTION | changes)


def refused(table: str, **changes: Any) -> str:  # noqa: ANN401 - as above
    with pytest.raises(Rejected) as caught:
        load(TABLES[table], SUPPORT_CENTER_ROWS[table] | changes, CONTEXT)
    return f"{caught.value.reason} {caught.value.path}"


def test_a_job_is_a_schedule_with_the_handler_of_its_function() -> None:
    trip = job()
    schedule, trigger = trip.schedule, trip.trigger
    assert trip.kinds == []
    assert (schedule.handler_name, schedule.handler_type, schedule.queue) == (
        "cleanup_expired_tokens",
        "celery_task",
        "ad_queue",
    )
    assert (schedule.max_retries, schedule.retry_delay_ms, schedule.retry_strategy) == (3, 60_000, "fixed")
    assert (schedule.timeout_ms, schedule.max_concurrency, schedule.enabled) == (60_000, 1, True)
    assert (trigger.kind, trigger.interval_ms, trigger.anchor) == ("interval", 86_400_000, "fixed_rate")
    assert trigger.misfire_grace_ms == 300_000
    assert trigger.next_fire_at == (NOON + MINUTE).replace(tzinfo=UTC)
    assert jsonb.decode(schedule.payload or b"") == {"retention_days": 7}


@pytest.mark.parametrize(
    ("config", "milliseconds", "kinds"),
    [
        ({"hours": 1, "minutes": 0, "seconds": 0}, 3_600_000, []),
        ({"hours": 0, "minutes": 0, "seconds": 30}, 30_000, []),
        ({"hours": 1, "minutes": 2, "seconds": 3}, 3_723_000, []),
        ({"hours": 1}, 3_600_000, ["short-schedule-config"] * 2),
        ({"hours": 1, "minutes": None, "seconds": 0}, 3_600_000, ["short-schedule-config"]),
        ({"hours": 1, "minutes": 0, "seconds": 0, "weeks": 1}, 3_600_000, ["unread-schedule-key"]),
    ],
)
def test_intervals(config: dict[str, Any], milliseconds: int, kinds: list[str]) -> None:
    """The short form fires here; the source swallows a TypeError and never schedules it."""
    trip = job(schedule_config=config)
    assert (trip.trigger.interval_ms, trip.kinds) == (milliseconds, kinds)
    assert jsonb.decode(trip.trigger.source_spec or b"") == config


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"hours": 0, "minutes": 0, "seconds": 0}, "out-of-range schedule_config"),
        ({}, "out-of-range schedule_config"),
        ({"weeks": 1}, "out-of-range schedule_config"),
        ({"hours": -1, "minutes": 0, "seconds": 0}, "out-of-range schedule_config.hours"),
        ({"hours": 10**15, "minutes": 0, "seconds": 0}, "out-of-range schedule_config.hours"),
        ({"hours": "1", "minutes": 0, "seconds": 0}, "wrong-type schedule_config.hours"),
        ({"hours": True, "minutes": 0, "seconds": 0}, "wrong-type schedule_config.hours"),
        ({"hours": 0, "minutes": 0.5, "seconds": 0}, "wrong-type schedule_config.minutes"),
    ],
)
def test_an_interval_that_is_none_is_set_aside(config: dict[str, Any], fault: str) -> None:
    """Zero is refused; in the source it is every second."""
    assert refused("scheduled_jobs", schedule_config=config) == fault


@pytest.mark.proves("4-D6")
@pytest.mark.parametrize(
    "config",
    [
        {"second": "0", "minute": "0", "hour": "9", "day": "*", "day_of_week": "0", "month": "*"},
        {"second": "0", "minute": "0", "hour": "9", "day": "13", "day_of_week": "4", "month": "*"},
        {"second": "*/20", "minute": "5,35", "hour": "8-10", "day": "*", "day_of_week": "mon-fri", "month": "1-6"},
        {"second": "0", "minute": "30", "hour": "*", "day": "last", "day_of_week": "*", "month": "*"},
        {"second": 0, "minute": 15, "hour": 3, "day": 1, "day_of_week": "*", "month": 2},
    ],
)
def test_cron_keywords_fire_as_apscheduler_fires_them(config: dict[str, Any]) -> None:
    """0 is Monday, both day fields must match; compared with APScheduler itself."""
    trigger = cron_job(**config).trigger
    assert (trigger.cron_dialect, trigger.timezone) == ("apscheduler", "Africa/Cairo")
    after = datetime(2026, 2, 3, 12, tzinfo=UTC)
    assert next_fires("apscheduler", str(trigger.cron_expression), trigger.timezone, after, 12) == [
        fire.astimezone(UTC) for fire in islice(apscheduler(config, after), 12)
    ]


def apscheduler(config: dict[str, Any], after: datetime) -> Any:  # noqa: ANN401 - an iterator of datetimes
    library = CronTrigger(timezone=CAIRO, **config)
    fire = None
    start = after.astimezone(CAIRO) + timedelta(microseconds=1)
    while True:
        fire = library.get_next_fire_time(fire, start)
        if fire is None:
            return
        yield fire
        start = fire + timedelta(microseconds=1)


def test_a_keyword_left_out_is_what_the_source_means_by_it() -> None:
    """`*`, and 0 for the second."""
    full = cron_job(second="0", minute="0", hour="9", day="*", day_of_week="*", month="*").trigger
    short = cron_job(minute="0", hour="9", day=None).trigger
    assert short.cron_expression == full.cron_expression
    assert jsonb.decode(short.source_spec or b"") == {"minute": "0", "hour": "9", "day": None}


def test_a_weekday_in_digits_is_reported() -> None:
    """A weekday shifted by one cannot be seen in a row; that it may be, can."""
    assert cron_job(hour="9", day_of_week="0").kinds == ["numeric-weekday"]
    assert cron_job(hour="9", day_of_week="mon").kinds == []


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({}, "missing-field schedule_config"),
        ({"hour": None}, "missing-field schedule_config"),
        ({"hour": 9, "year": 2027}, "unknown-value schedule_config"),
        ({"hour": 9.5}, "wrong-type schedule_config.hour"),
        ({"hour": True}, "wrong-type schedule_config.hour"),
        ({"hour": [9]}, "wrong-type schedule_config.hour"),
    ],
)
def test_keywords_that_the_source_does_not_pass_on_are_set_aside(config: dict[str, Any], fault: str) -> None:
    assert refused("scheduled_jobs", job_type_id=2, schedule_config=config) == fault


def test_keywords_that_apscheduler_refuses_make_no_trigger() -> None:
    trip = cron_job(hour="25")
    assert [type(row) for row in trip.rows] == [Schedule]
    assert trip.kinds == ["unevaluable-cron"]


def test_keywords_without_a_zone_are_nobodys_guess() -> None:
    nowhere = msgspec.structs.replace(CONTEXT, zone=None)
    with pytest.raises(Rejected, match="no-zone at schedule_config"):
        cron_job(nowhere, hour="9")
    assert job(nowhere).trigger.kind == "interval"


@pytest.mark.parametrize(
    ("column", "least", "most"),
    [
        ("max_instances", 1, 10),
        ("timeout_seconds", 30, 3600),
        ("retry_count", 0, 10),
        ("retry_delay_seconds", 0, 3600),
    ],
)
def test_limits(column: str, least: int, most: int) -> None:
    """The tables check nothing; the model's limits hold here."""
    for value in (least, most):
        job(**{column: value})
    for value in (least - 1, most + 1):
        assert refused("scheduled_jobs", **{column: value}) == f"out-of-range {column}"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"is_paused": True, "last_status": "running"}, "paused"),
        ({"last_status": "running"}, "running"),
        ({"last_status": "pending"}, "scheduled"),
        ({"last_status": "timeout"}, "scheduled"),
        ({"last_status": None}, "scheduled"),
        ({"is_enabled": False}, "scheduled"),
    ],
)
def test_statuses(changes: Row, status: str) -> None:
    trip = job(**changes)
    assert trip.schedule.status == status
    assert trip.schedule.enabled == trip.trigger.enabled == changes.get("is_enabled", True)


@pytest.mark.parametrize(
    ("table", "changes", "fault"),
    [
        ("scheduled_jobs", {"last_status": "done"}, "unknown-value last_status"),
        ("scheduled_jobs", {"task_function_id": 99}, "orphan task_function_id"),
        ("scheduled_jobs", {"job_type_id": 3}, "orphan job_type_id"),
        ("scheduled_jobs", {"schedule_config": [1]}, "wrong-type schedule_config"),
        ("scheduled_jobs", {"created_at": NOON.replace(tzinfo=UTC)}, "bad-date created_at"),
        ("scheduled_job_executions", {"status": "cancelled"}, "unknown-value status"),
        ("scheduled_job_executions", {"triggered_by": "cat"}, "unknown-value triggered_by"),
        ("scheduled_job_executions", {"duration_seconds": 10**13}, "out-of-range duration_seconds"),
        ("scheduled_job_executions", {"duration_seconds": float("nan")}, "out-of-range duration_seconds"),
        ("task_functions", {"handler_type": "thread"}, "unknown-value handler_type"),
        ("task_functions", {"default_timeout_seconds": 0}, "out-of-range default_timeout_seconds"),
        ("scheduled_jobs", {"schedule_config": {}}, "out-of-range schedule_config"),
    ],
)
def test_what_is_set_aside(table: str, changes: Row, fault: str) -> None:
    assert refused(table, **changes) == fault


def test_types_are_read_from_their_table_where_it_is_given() -> None:
    types = {7: {"name": "interval"}, 8: {"name": "date"}}
    given = msgspec.structs.replace(CONTEXT, parents={**CONTEXT.parents, "scheduler_job_types": types})
    assert job(given, job_type_id=7).trigger.kind == "interval"
    for key in (1, 8):
        with pytest.raises(Rejected, match="job_type_id"):
            job(given, job_type_id=key)
    assert set(names.SEEDED_JOB_TYPES.values()) <= set(states.TRIGGER_KINDS)


def test_the_maps_are_total() -> None:
    assert set(names.EXECUTION_STATUSES_BACK) == set(states.RUN)
    assert set(names.LAST_STATUSES) == set(names.EXECUTION_STATUSES)
    assert set(names.LAST_STATUSES.values()) <= set(states.SCHEDULE)
    for word, state in names.EXECUTION_STATUSES.items():
        assert names.EXECUTION_STATUSES_BACK[state] == word


def test_an_execution_is_a_run() -> None:
    run = execution().run
    assert (run.schedule_id, run.state, run.cause) == (KEYS[8], "completed", "manual")
    assert (run.external_task_id, run.worker_id, run.triggered_by) == ("celery-1", str(KEYS[12]), str(KEYS[9]))
    assert execution(triggered_by="scheduler").run.cause == "interval"
    assert execution(triggered_by="scheduler", job_id=KEYS[13]).run.cause is None


@pytest.mark.parametrize("who", names.TRIGGERED_BY)
@pytest.mark.parametrize("status", names.EXECUTION_STATUSES)
def test_words_of_an_execution_are_carried(who: str, status: str) -> None:
    assert execution(triggered_by=who, status=status).left == []


def test_an_execution_that_waits_has_not_started() -> None:
    trip = execution(status="pending", completed_at=None, duration_seconds=None)
    assert (trip.run.state, trip.run.started_at, trip.kinds) == ("queued", None, ["live-run"])
    assert trip.run.created_at == NOON.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "milliseconds", "kinds"),
    [
        (60, 60_000, []),
        (59, 59_000, []),
        (61, 61_000, []),
        (62, 62_000, ["duration-mismatch"]),
        (60.25, 60_250, []),
        (Decimal("59.5"), 59_500, []),
        (None, 60_000, ["duration-computed"]),
        (-1, None, ["negative-duration"]),
    ],
)
def test_durations(seconds: float | Decimal | None, milliseconds: int | None, kinds: list[str]) -> None:
    """A duration that was cut to whole seconds is within a second of the times; more is a finding."""
    trip = execution(duration_seconds=seconds)
    assert (trip.run.duration_ms, trip.kinds) == (milliseconds, kinds)


def test_an_instance_is_a_worker_that_has_stopped_and_leads_nothing() -> None:
    """Two leaders: as many findings."""
    trip = travel(TABLES["scheduler_instances"], INSTANCE)
    worker = row_of(trip.rows, WorkerRecord)
    assert worker is not None
    assert (worker.tenant_id, worker.kind, worker.status, worker.pid) == ("*", "scheduler", "stopped", 4711)
    assert worker.last_heartbeat_at == (NOON + MINUTE).replace(tzinfo=UTC)
    assert trip.kinds == ["leader-not-carried"]
    assert travel(TABLES["scheduler_instances"], INSTANCE | {"is_leader": False}).kinds == []


def test_a_nul_in_a_json_column_comes_back() -> None:
    """The source's columns are JSON, which keeps the escape; jsonb refuses it."""
    trip = job(task_args={"text": "a\0b"})
    assert b"\\u0000" not in (trip.schedule.payload or b"")
