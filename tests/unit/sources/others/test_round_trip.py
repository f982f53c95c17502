"""2-M1, 2-M2, 2-M3, 2-M4, 3-A1..12, 3-A13, 4-D1: every table there and back, every column set and every column null."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from migrator.records import remainder_of
from migrator.sources.profile import Collection, Rejected
from migrator.values import remainder
from migrator.values.table_row import from_bson, to_bson
from tests.other_systems import (
    CONTEXT,
    CRAWLER_ROWS,
    KEYS,
    NOON,
    ORCHESTRATOR_ROWS,
    SYSTEMS,
    TABLES,
    Given,
    load,
    shape_of,
    travel,
)
from tests.table_shapes import Row, columns_of

COUNTS = {
    "ScheduledJob": 33,
    "JobExecution": 19,
    "JobExecutionLog": 6,
    "EventHandler": 14,
    "jobs": 24,
    "job_executions": 18,
    "task_functions": 12,
    "scheduled_jobs": 20,
    "scheduled_job_executions": 13,
    "scheduler_instances": 8,
}
NAMED = pytest.mark.parametrize(("table", "row"), TABLES, ids=[table.name for table, _ in TABLES])


def nullable(table: Collection) -> list[str]:
    return [
        field.encode_name
        for field in msgspec.structs.fields(shape_of(table))
        if field.default is None or field.name == "tags"
    ]


@pytest.mark.parametrize("name", COUNTS)
def test_each_table_has_the_columns_that_its_system_gave_it(name: str) -> None:
    assert len(columns_of(shape_of(_table(name)))) == COUNTS[name]


@NAMED
def test_the_full_row_sets_every_column(table: Collection, row: Row) -> None:
    assert tuple(row) == columns_of(shape_of(table))
    assert None not in row.values()


@NAMED
def test_every_column_set(table: Collection, row: Row) -> None:
    travel(table, row)


@NAMED
def test_every_column_null(table: Collection, row: Row) -> None:
    travel(table, row | dict.fromkeys(nullable(table)))


@NAMED
def test_each_column_null_alone_or_missing(table: Collection, row: Row) -> None:
    for column in nullable(table):
        if (table.name, column) != ("jobs", "interval_type"):  # an interval without its unit, see test_crawler
            travel(table, row | {column: None})
            travel(table, {name: value for name, value in row.items() if name != column})


@NAMED
def test_a_column_of_a_later_migration_is_kept(table: Collection, row: Row) -> None:
    later: Row = {
        "added_uuid": KEYS[1],
        "added_numeric": Decimal("1.10"),
        "added_timestamp": NOON,
        "added_timestamptz": datetime(2026, 1, 1, 12, 0, 0, 7, tzinfo=UTC),
        "added_json": {"$date": 1, "a.b": [1, 2.5, None, {"big": 2**70}]},
        "added_bytes": b"\0\1",
        "added_null": None,
    }
    travel(table, row | later)


@NAMED
def test_a_column_of_another_type_is_set_aside(table: Collection, row: Row) -> None:
    for column in (name for name in row if name not in ANY_VALUE):
        with pytest.raises(Rejected) as caught:
            load(table, row | {column: b"\1"}, CONTEXT)
        assert caught.value.path.startswith(column)


ANY_VALUE = {"payload", "metadata", "result", "context", "action_config", "task_args"}


@NAMED
def test_a_column_that_must_hold_something_is_set_aside_without_it(table: Collection, row: Row) -> None:
    for column in set(row) - set(nullable(table)):
        with pytest.raises(Rejected) as caught:
            load(table, row | {column: None}, CONTEXT)
        assert caught.value.path == column


@NAMED
def test_loading_twice_gives_the_same_records(table: Collection, row: Row) -> None:
    assert load(table, row, CONTEXT) == load(table, dict(reversed(row.items())), CONTEXT)


@NAMED
def test_every_record_names_its_table_and_its_row(table: Collection, row: Row) -> None:
    system = next(system for system, rows in SYSTEMS if table.name in rows)
    for record in load(table, row, CONTEXT).rows:
        assert getattr(record, "source") == f"{system.name}/{table.name}"  # noqa: B009 - not on every record's type
        assert getattr(record, "source_id")  # noqa: B009 - as above


@pytest.mark.parametrize("tenant", [None, ""])
def test_systems_without_tenants_need_the_operators(tenant: str | None) -> None:
    table, row = next((table, row) for table, row in TABLES if table.name == "jobs")
    with pytest.raises(Rejected, match="no-tenant"):
        load(table, row, Given(tenant=tenant))


LEFT = {
    "ScheduledJob": ["added avg_duration_ms", "added failure_count", "added success_count"],
    "EventHandler": ["added failure_count", "added success_count"],
    "JobExecution": ["added max_retries", "added next_retry_at"],
    "JobExecutionLog": [],
    "jobs": ["added error_message", "added lock_acquired_at", "added lock_token"],
    "job_executions": [],
    "task_functions": ["added created_at", "added description", "added display_name", "added updated_at"],
    "scheduled_jobs": ["added job_type_id", "added last_status", "added task_function_id"],
    "scheduled_job_executions": [],
    "scheduler_instances": ["added is_leader", "added leader_since"],
}
"""What no record carries of a full row: exactly the columns that ``docs/sources-other.md`` calls remainder."""


@NAMED
def test_all_but_the_columns_without_a_home_are_carried_by_the_records(table: Collection, row: Row) -> None:
    """A fault of encode would hide behind a remainder that is larger than this."""
    left = remainder.entries(remainder_of(load(table, row, CONTEXT).rows))
    assert [f"{entry.kind} {entry.path}" for entry in left] == LEFT[table.name]


def test_counters_without_a_column_are_remainder() -> None:
    """Counters in extra."""
    table, row = next((table, row) for table, row in TABLES if table.name == "EventHandler")
    left = remainder.entries(remainder_of(load(table, row, CONTEXT).rows))
    assert [entry.path for entry in left] == ["failure_count", "success_count"]


def test_values_that_bson_lacks_come_back_as_they_were() -> None:
    row: Row = {
        "uuid": UUID(int=5),
        "numeric": Decimal("-12345678901234567890123456789012345678901234567890.5"),
        "naive": datetime(1, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001 - a TIMESTAMP
        "aware": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "integer": -(2**63) - 1,
        "json": [{"a": True, "b": 1, "c": 1.0, "d": "2026-01-01T00:00:00"}],
        "bytes": b"x",
    }
    back = from_bson(to_bson(row))
    assert back == row
    assert {key: type(value) for key, value in back.items()} == {key: type(value) for key, value in row.items()}


def test_a_time_in_another_zone_is_the_same_instant() -> None:
    there = datetime(2026, 7, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    assert from_bson(to_bson({"at": there})) == {"at": there}


@pytest.mark.parametrize("value", [timedelta(1), {1, 2}, object()])
def test_a_type_that_no_column_has_is_refused(value: Any) -> None:  # noqa: ANN401 - any type at all
    with pytest.raises(TypeError, match="no column holds"):
        to_bson({"column": value})


def test_an_instant_outside_the_calendar_is_set_aside() -> None:
    """A timestamptz at the end of year 9999 in a zone behind UTC has no UTC time."""
    late = datetime.max.replace(tzinfo=timezone(-timedelta(hours=1)))
    table, row = next((table, row) for table, row in TABLES if table.name == "jobs")
    with pytest.raises(Rejected, match="bad-date at updated_at"):
        load(table, row | {"updated_at": late}, CONTEXT)
    with pytest.raises(OverflowError):
        to_bson({"column": late})


def test_a_row_whose_parent_is_not_given_is_set_aside() -> None:
    """2-P1: executions and logs are of the platform of their job, which only the job's row tells."""
    for table, row in TABLES[2:4]:
        with pytest.raises(Rejected, match="orphan"):
            load(table, row, Given())


def test_naive_times_are_utc_only_where_the_column_has_no_zone() -> None:
    """A naive local time read as UTC: a TIMESTAMPTZ that comes naive is nobody's guess, nor the other way round."""
    with pytest.raises(Rejected, match="bad-date at created_at"):
        load(_table("jobs"), CRAWLER_ROWS["jobs"] | {"created_at": NOON}, CONTEXT)
    with pytest.raises(Rejected, match="bad-date at created_at"):
        load(
            _table("ScheduledJob"),
            ORCHESTRATOR_ROWS["ScheduledJob"] | {"created_at": NOON.replace(tzinfo=UTC)},
            CONTEXT,
        )
    assert travel(_table("ScheduledJob"), ORCHESTRATOR_ROWS["ScheduledJob"]).schedule.updated_at == NOON.replace(
        tzinfo=UTC
    )


def _table(name: str) -> Collection:
    return next(table for table, _ in TABLES if table.name == name)
