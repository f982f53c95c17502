"""support-center: its handlers, and its default jobs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from migrator.records import Handler
from migrator.sources.support_center import PROFILE
from migrator.sources.table_columns import row_of
from tests.other_systems import CONTEXT, KEYS, SUPPORT_CENTER_ROWS, Trip, travel

TABLES = PROFILE.by_name()
JOB, FUNCTION = SUPPORT_CENTER_ROWS["scheduled_jobs"], SUPPORT_CENTER_ROWS["task_functions"]
CAIRO = ZoneInfo("Africa/Cairo")


def job(context: Any = CONTEXT, **changes: Any) -> Trip:  # noqa: ANN401 - columns of all types
    return travel(TABLES["scheduled_jobs"], JOB | changes, context)


def handler(**changes: Any) -> Handler:  # noqa: ANN401 - as above
    handler = row_of(travel(TABLES["task_functions"], FUNCTION | changes).rows, Handler)
    assert handler is not None
    return handler


def test_a_task_function_is_a_handler() -> None:
    found = handler()
    assert (found.name, found.handler_type, found.queue) == ("cleanup_expired_tokens", "celery_task", "ad_queue")
    assert (found.default_timeout_ms, found.is_active, found.is_system) == (60_000, True, True)
    assert found.handler_path == "tasks.maintenance.cleanup_expired_tokens_task"


def test_a_path_to_a_method_is_reported() -> None:
    kinds = travel(TABLES["task_functions"], FUNCTION | {"handler_path": "services.Cleaner.run"}).kinds
    assert kinds == ["method-path"]


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


def test_the_default_jobs() -> None:
    trips = seeded()
    assert [trip.trigger.interval_ms for trip in trips] == [3_600_000, 86_400_000, 60_000, 30_000]
    assert [trip.schedule.queue for trip in trips] == ["ad_queue", None, None, None]
    assert [trip.schedule.timeout_ms for trip in trips] == [300_000, 60_000, 60_000, 60_000]
    assert all(trip.schedule.enabled and trip.kinds == [] for trip in trips)


def test_a_job_that_was_never_scheduled_gets_its_first_fire() -> None:
    """A job silently not scheduled: seeded rows have no next run, and would never be due."""
    as_of = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert job(next_run_time=None).trigger.next_fire_at == as_of + timedelta(hours=24)
    nine = job(next_run_time=None, job_type_id=2, schedule_config={"minute": 0, "hour": 9}).trigger
    assert nine.next_fire_at == datetime(2026, 11, 21, 9, tzinfo=CAIRO).astimezone(UTC)
    assert job(next_run_time=None, is_enabled=False).trigger.next_fire_at is None
    silent = job(next_run_time=None, job_type_id=2, schedule_config={"month": 2, "day": 31})
    assert silent.trigger.next_fire_at is None
    assert [(note.kind, note.path) for note in silent.notes] == [("no-next-fire", "next_run_time")]
