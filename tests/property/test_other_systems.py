"""However a row of the other systems is changed: it is set aside, or it comes back and its records fit their tables."""

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.records import Run, Schedule, Trigger
from migrator.sources.profile import Collection, Rejected
from migrator.sources.table_columns import row_of as find
from migrator.values import remainder
from migrator.values.canonical import same
from migrator.values.table_row import from_bson, to_bson
from tests.other_systems import KEYS, MINUTE, NOON, NOON_UTC, TABLES, exactly, shape_of, travel
from tests.table_shapes import Row, columns_of

SOME = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.sampled_from(["$date", "$oid", "a.b", "skip_if_overdue"]), inner, max_size=3)
    ),
    max_leaves=6,
)
offsets = st.integers(-3, 3).map(lambda minutes: minutes * MINUTE)
times = st.one_of(offsets.map(lambda offset: NOON + offset), offsets.map(lambda offset: NOON_UTC + offset))
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
naive_times = st.datetimes().map(lambda moment: moment.replace(fold=0))
aware_times = st.builds(lambda moment, zone: moment.replace(tzinfo=zone), naive_times, zones)
any_times = naive_times | aware_times
words = st.sampled_from(
    [
        *["active", "running", "paused", "pending", "processing", "failed", "success", "cancelled", "timeout"],
        *["cron", "one_time", "recurring", "event", "interval", "minutes", "hours", "days", "high", "low"],
        *["*/15 * * * *", "0 * * * *", "0 9 * * 1-5", "TZ=UTC 0 0 * * *", "@daily", "L", "0 0 31 2 *", "", " "],
        *["UTC", "Europe/Vienna", "Mars", "*", "manual", "scheduler", "celery_task", "a.B.c", str(KEYS[3])],
    ]
)
configs = st.dictionaries(
    st.sampled_from(["hours", "minutes", "seconds", "hour", "minute", "second", "day", "day_of_week", "month", "week"]),
    st.none() | st.integers(-1, 70) | st.sampled_from(["*", "*/5", "0", "mon-fri", "last", "x", True, 1.5]),
    max_size=4,
)
numbers = st.integers(-2, 1500) | st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63])
values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    words,
    texts,
    times,
    any_times,
    json_values,
    configs,
    st.sampled_from(KEYS),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.lists(texts, max_size=2),
)


NULLABLE = {
    table.name: {field.encode_name for field in msgspec.structs.fields(shape_of(table)) if field.default is None}
    for table, _ in TABLES
}


@st.composite
def changed(draw: st.DrawFn) -> tuple[Collection, Row]:
    """Draw a row with some of its columns replaced, most often by what such a column might hold."""
    table, full = draw(st.sampled_from(TABLES))
    row = dict(full)
    for _ in range(draw(st.integers(1, 4))):
        column = draw(st.sampled_from([name for name in columns_of(shape_of(table)) if name != "id"]))
        current = full[column]
        match current:
            case bool():
                likely: st.SearchStrategy[Any] = st.booleans()
            case int():
                likely = numbers
            case str():
                likely = words | texts
            case datetime():
                likely = times
            case dict():
                likely = configs
            case _:
                likely = st.just(current)
        if column in NULLABLE[table.name]:
            likely |= st.none()
        row[column] = draw(values if draw(st.integers(0, 9)) == 0 else likely)
    return table, row


@SOME
@given(changed())
def test_a_row_comes_back_or_is_set_aside(case: tuple[Collection, Row]) -> None:
    table, row = case
    try:
        trip = travel(table, row)
    except Rejected as rejected:
        event(f"set aside: {rejected.reason}")
        check_rejection(rejected, row)
        return
    event("came back")
    schedule, trigger, run = (find(trip.rows, kind) for kind in (Schedule, Trigger, Run))
    if isinstance(schedule, Schedule):
        assert schedule.status in states.SCHEDULE
        assert schedule.handler_type in states.HANDLER_TYPES
        assert schedule.priority is None or 0 <= schedule.priority <= 100
    if isinstance(trigger, Trigger):
        check_trigger(trigger)
    if isinstance(run, Run):
        assert run.state in states.RUN
        assert run.duration_ms is None or run.duration_ms >= 0
        assert run.trigger_id is None or run.scheduled_at is None or run.attempt is not None


def check_rejection(rejected: Rejected, row: Row) -> None:
    """Hold a rejection to naming a column."""
    assert rejected.path.split(".")[0].split("[")[0] in row


def check_trigger(trigger: Trigger) -> None:
    """Hold a trigger to the CHECKs of its table."""
    assert (trigger.kind == "cron") == (trigger.cron_expression is not None) == (trigger.cron_dialect is not None)
    assert (trigger.kind == "interval") == (trigger.interval_ms is not None) == (trigger.anchor is not None)
    assert (trigger.kind == "one_time") == (trigger.run_at is not None)
    assert (trigger.kind == "event") == (trigger.event_name is not None)
    assert trigger.kind != "event" or (trigger.timezone is None and trigger.next_fire_at is None)
    assert trigger.interval_ms is None or trigger.interval_ms > 0
    assert trigger.start_at is None or trigger.end_at is None or trigger.end_at > trigger.start_at


plain_values: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    texts,
    st.uuids(),
    st.decimals(allow_nan=False),
    naive_times,
    st.binary(max_size=8),
    json_values,
)
rows = st.dictionaries(st.sampled_from(["a", "b", "c", "$d", "e.f"]), plain_values, max_size=5)


@SOME
@given(rows, rows)
def test_a_remainder_of_one_row_over_another_gives_the_first(row: Row, other: Row) -> None:
    """The law of the remainder holds for SQL rows: to the type, to the microsecond, to the last digit."""
    left = remainder.difference(to_bson(row), to_bson(other))
    assert exactly(from_bson(remainder.apply(to_bson(other), left))) == exactly(row)


@SOME
@given(plain_values, plain_values)
def test_two_values_are_the_same_document_only_if_they_are_the_same(one: Any, two: Any) -> None:  # noqa: ANN401 - any
    assert same(to_bson({"x": one}), to_bson({"x": two})) == (exactly(one) == exactly(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (1, 1.0),
        (1, True),
        ("2026-01-01T00:00:00", datetime(2026, 1, 1)),  # noqa: DTZ001 - a TIMESTAMP
        (NOON, NOON_UTC),
        (Decimal("1.0"), Decimal("1.00")),
        (UUID(int=1), str(UUID(int=1))),
        (NOON, NOON + timedelta(microseconds=1)),
        (0.0, -0.0),
    ],
)
def test_values_that_look_alike_are_told_apart(one: object, two: object) -> None:
    assert not same(to_bson({"x": one}), to_bson({"x": two}))
