"""Source 004: schedule_config, limits, seeds, the job list of the old side."""

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
from migrator.records.handler import Handler
from migrator.records.schedule import Schedule
from migrator.records.worker import Worker
from migrator.sources.profile import Rejected
from migrator.sources.rows import Row, RowContext, find, load, the
from migrator.sources.support_center import SYSTEM, names
from migrator.sources.support_center.handlers import Conflict, seed
from migrator.sources.support_center.in_process import JOB_LIST, Difference, compare
from migrator.values import jsonb
from tests.other_systems import CONTEXT, KEYS, MINUTE, NOON, SUPPORT_CENTER_ROWS, Trip, travel

TABLES = SYSTEM.by_name()
JOB, EXECUTION = SUPPORT_CENTER_ROWS["scheduled_jobs"], SUPPORT_CENTER_ROWS["scheduled_job_executions"]
FUNCTION, INSTANCE = SUPPORT_CENTER_ROWS["task_functions"], SUPPORT_CENTER_ROWS["scheduler_instances"]
CAIRO = ZoneInfo("Africa/Cairo")


def job(context: Any = CONTEXT, **changes: Any) -> Trip:  # noqa: ANN401 - columns of all types
    return travel(TABLES["scheduled_jobs"], JOB | changes, context)


def cron_job(context: RowContext = CONTEXT, **config: Any) -> Trip:  # noqa: ANN401 - as above
    return job(context, job_type_id=2, schedule_config=config)


def execution(**changes: Any) -> Trip:  # noqa: ANN401 - as above
    return travel(TABLES["scheduled_job_executions"], EXECUTION | changes)


def refused(table: str, **changes: Any) -> str:  # noqa: ANN401 - as above
    with pytest.raises(Rejected) as caught:
        load(TABLES[table], SUPPORT_CENTER_ROWS[table] | changes, CONTEXT)
    return f"{caught.value.reason} {caught.value.path}"


def test_a_job_is_a_schedule_with_the_handler_of_its_function() -> None:
    """4-D1, 4-D4."""
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
    """4-D5: the short form fires here; the source swallows a TypeError and never schedules it."""
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
    """4-D5: zero is refused; in the source it is every second."""
    assert refused("scheduled_jobs", schedule_config=config) == fault


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
    """4-D6: 0 is Monday, both day fields must match; compared with APScheduler itself."""
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
    """4-D6: `*`, and 0 for the second."""
    full = cron_job(second="0", minute="0", hour="9", day="*", day_of_week="*", month="*").trigger
    short = cron_job(minute="0", hour="9", day=None).trigger
    assert short.cron_expression == full.cron_expression
    assert jsonb.decode(short.source_spec or b"") == {"minute": "0", "hour": "9", "day": None}


def test_a_weekday_in_digits_is_reported() -> None:
    """4-D6: a weekday shifted by one cannot be seen in a row; that it may be, can."""
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
    """4-D6."""
    assert refused("scheduled_jobs", job_type_id=2, schedule_config=config) == fault


def test_keywords_that_apscheduler_refuses_make_no_trigger() -> None:
    trip = cron_job(hour="25")
    assert [type(row) for row in trip.rows] == [Schedule]
    assert trip.kinds == ["unevaluable-cron"]


def test_keywords_without_a_zone_are_nobodys_guess() -> None:
    nowhere = msgspec.structs.replace(CONTEXT, cron_zone=None)
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
    """4-D7: the tables check nothing; the model's limits hold here."""
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
        ("in_process_jobs", {"interval": {}}, "out-of-range interval"),
    ],
)
def test_what_is_set_aside(table: str, changes: Row, fault: str) -> None:
    assert refused(table, **changes) == fault


def test_types_are_read_from_their_table_where_it_is_given() -> None:
    """4-D2."""
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
    """4-D1."""
    run = execution().run
    assert (run.schedule_id, run.state, run.cause) == (KEYS[8], "completed", "manual")
    assert (run.external_task_id, run.worker_id, run.triggered_by) == ("celery-1", str(KEYS[12]), str(KEYS[9]))
    assert execution(triggered_by="scheduler").run.cause == "interval"
    assert execution(triggered_by="scheduler", job_id=KEYS[13]).run.cause is None


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
    worker = the(trip.rows, Worker)
    assert (worker.tenant_id, worker.kind, worker.status, worker.pid) == ("*", "scheduler", "stopped", 4711)
    assert worker.last_heartbeat_at == (NOON + MINUTE).replace(tzinfo=UTC)
    assert trip.kinds == ["leader-not-carried"]
    assert travel(TABLES["scheduler_instances"], INSTANCE | {"is_leader": False}).kinds == []


def handler(**changes: Any) -> Handler:  # noqa: ANN401 - as above
    return the(travel(TABLES["task_functions"], FUNCTION | changes).rows, Handler)


def test_a_task_function_is_a_handler() -> None:
    """4-D3."""
    found = handler()
    assert (found.name, found.handler_type, found.queue) == ("cleanup_expired_tokens", "celery_task", "ad_queue")
    assert (found.default_timeout_ms, found.is_active, found.is_system) == (60_000, True, True)
    assert found.handler_path == "tasks.maintenance.cleanup_expired_tokens_task"


def test_a_path_to_a_method_is_reported() -> None:
    kinds = travel(TABLES["task_functions"], FUNCTION | {"handler_path": "services.Cleaner.run"}).kinds
    assert kinds == ["method-path"]


def test_seeding_twice_inserts_once() -> None:
    """4-D3."""
    wanted = (handler(), handler(id=4, name="sync_domain_users", handler_path="tasks.sync"))
    first = seed((), wanted)
    assert first.insert == wanted
    again = seed(first.insert, wanted)
    assert (again.insert, again.conflicts, again.unseeded) == ((), (), ())
    assert again.unchanged == ("cleanup_expired_tokens", "sync_domain_users")
    assert seed((), (*wanted, *wanted)) == first


def test_a_second_seeder_is_reported() -> None:
    """4-D3: other timeouts under the same name, the same function under another name, names of its own."""
    first = seed((), (handler(), handler(id=4, name="sync_domain_users", handler_path="tasks.sync"))).insert
    second = (
        handler(id=1, name="cleanup_expired_sessions"),
        handler(id=2, name="sync_domain_users", handler_path="tasks.sync", default_timeout_seconds=600, queue=None),
        handler(id=3, name="cleanup_old_executions", handler_path="tasks.old"),
    )
    seeding = seed(first, second)
    assert seeding.conflicts == (
        Conflict("cleanup_expired_sessions", "cleanup_expired_tokens", ("name",)),
        Conflict("sync_domain_users", "sync_domain_users", ("queue", "default_timeout_ms")),
    )
    assert [one.name for one in seeding.insert] == ["cleanup_old_executions"]
    assert seeding.unseeded == ("cleanup_expired_tokens",)


FUNCTIONS = {
    1: {"name": "sync_domain_users", "handler_type": "celery_task", "queue": "ad_queue"},
    2: {"name": "cleanup_expired_tokens", "handler_type": "async_function", "queue": None},
    3: {"name": "cleanup_stale_desktop_sessions", "handler_type": "async_function", "queue": None},
    4: {"name": "cleanup_stale_deployment_jobs", "handler_type": "async_function", "queue": None},
}
SEEDED = [
    ("Domain User Sync (Hourly)", 1, (1, 0, 0), None, 300),
    ("Token Cleanup (Daily)", 2, (24, 0, 0), {"retention_days": 7}, 60),
    ("Desktop Session Cleanup (Every Minute)", 3, (0, 1, 0), {"timeout_minutes": 2}, 60),
    ("Deployment Job Cleanup (30s)", 4, (0, 0, 30), None, 60),
]
WITH_FUNCTIONS = msgspec.structs.replace(CONTEXT, parents={"task_functions": FUNCTIONS})


def seeded() -> list[Trip]:
    return [
        job(
            WITH_FUNCTIONS,
            id=KEYS[number],
            name=name,
            task_function_id=number,
            schedule_config=dict(zip(("hours", "minutes", "seconds"), interval, strict=True)),
            task_args=arguments,
            timeout_seconds=timeout,
        )
        for number, (name, _, interval, arguments, timeout) in enumerate(SEEDED, 1)
    ]


def listed() -> list[Trip]:
    return [travel(TABLES["in_process_jobs"], row) for row in JOB_LIST]


def test_the_default_jobs() -> None:
    """4-D4."""
    trips = seeded()
    assert [trip.trigger.interval_ms for trip in trips] == [3_600_000, 86_400_000, 60_000, 30_000]
    assert [trip.schedule.queue for trip in trips] == ["ad_queue", None, None, None]
    assert [trip.schedule.timeout_ms for trip in trips] == [300_000, 60_000, 60_000, 60_000]
    assert all(trip.schedule.enabled and trip.kinds == [] for trip in trips)


def test_the_three_jobs_of_the_old_side() -> None:
    """4-J1..3: handler, interval, arguments."""
    trips = listed()
    assert [
        (
            trip.schedule.handler_name,
            trip.trigger.interval_ms,
            None if trip.schedule.payload is None else jsonb.decode(trip.schedule.payload),
        )
        for trip in trips
    ] == [
        ("sync_domain_users", 3_600_000, None),
        ("session_cleanup", 86_400_000, {"retention_days": 7}),
        ("desktop_session_cleanup", 60_000, {"timeout_minutes": 2}),
    ]
    assert {trip.schedule.max_concurrency for trip in trips} == {1}
    assert all(trip.kinds == [] for trip in trips)


def test_a_job_that_was_never_scheduled_gets_its_first_fire() -> None:
    """A job silently not scheduled: seeded rows and the job list have no next run, and would never be due."""
    as_of = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert [trip.trigger.next_fire_at for trip in listed()] == [
        as_of + timedelta(hours=1),
        as_of + timedelta(hours=24),
        as_of + timedelta(minutes=1),
    ]
    assert job(next_run_time=None).trigger.next_fire_at == as_of + timedelta(hours=24)
    nine = job(next_run_time=None, job_type_id=2, schedule_config={"minute": 0, "hour": 9}).trigger
    assert nine.next_fire_at == datetime(2026, 11, 21, 9, tzinfo=CAIRO).astimezone(UTC)
    assert job(next_run_time=None, is_enabled=False).trigger.next_fire_at is None
    silent = job(msgspec.structs.replace(CONTEXT, as_of=None), next_run_time=None)
    assert (silent.trigger.next_fire_at, silent.kinds) == (None, ["no-next-fire"])


def test_a_nul_in_a_json_column_comes_back() -> None:
    """The source's columns are JSON, which keeps the escape; jsonb refuses it."""
    trip = job(task_args={"text": "a\0b"})
    assert b"\\u0000" not in (trip.schedule.payload or b"")


def test_three_old_jobs_are_three_of_the_four_new_ones() -> None:
    """4-J1..3, 4-D4: the fourth is new."""
    found = compare((trip.rows for trip in listed()), (trip.rows for trip in seeded()))
    assert found == (Difference("new", "cleanup_stale_deployment_jobs"),)


def test_a_job_that_changed_or_was_left_behind_is_reported() -> None:
    new = seeded()[1:]
    changed = travel(
        TABLES["scheduled_jobs"],
        new[1].back | {"schedule_config": {"hours": 1}, "task_args": None, "max_instances": 2},
        WITH_FUNCTIONS,
    )
    found = compare((trip.rows for trip in listed()), [new[0].rows, changed.rows])
    assert found == (
        Difference("different", "cleanup_stale_desktop_sessions", ("interval_ms", "payload", "max_concurrency")),
        Difference("missing", "sync_domain_users"),
    )
    assert find(new[0].rows, Worker) is None
