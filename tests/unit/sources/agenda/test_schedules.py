"""The schedule of a job: name, handler, priority, state, payload, and what is refused."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from bson.code import Code
from bson.int64 import Int64
from bson.objectid import ObjectId

from migrator.sources.profile import Context, Rejected
from tests.agenda_documents import (
    CONTEXT,
    KEY,
    NOON,
    SECOND,
    created_4,
    every_4,
    is_clean,
    pulse_run,
    travel,
)


def test_a_job_becomes_a_schedule() -> None:
    schedule = travel(created_4(data={"a": [1]}, priority=10)).schedule
    assert schedule is not None
    assert schedule.name == "mail:6b005affa4375445fe12232e"
    assert (schedule.handler_name, schedule.handler_type) == ("mail", "function")
    assert schedule.priority == 70
    assert schedule.payload == b'{"a":[1]}'
    assert schedule.created_at == datetime(2026, 11, 20, 14, 36, 47, tzinfo=UTC)
    assert schedule.updated_by == "worker-1"


@pytest.mark.parametrize(
    ("given", "stored", "clean"),
    [
        *[(-20, 10, True), (-10, 30, True), (0, 50, True), (10, 70, True), (20, 90, True), (25, 100, True)],
        *[(-25, 0, True), (26, 100, False), (-26, 0, False), (9_007_199_254_740_992.0, 100, False)],
        *[(0.5, 51, False), (0.0, 50, False), (Int64(5), 60, False), (None, 50, False), (-1e300, 0, False)],
    ],
)
def test_priority_is_clamped_and_its_original_stays(given: Any, stored: int, clean: bool) -> None:  # noqa: ANN401, FBT001 - parameters of pytest
    trip = travel(created_4(priority=given))
    assert trip.schedule is not None
    assert trip.schedule.priority == stored
    assert is_clean(trip) == clean
    assert ("clamped-priority" in trip.kinds) == (given is not None and abs(given) > 25)


@pytest.mark.parametrize("data", [None, "text", 7, 2.5, True, [1, "two"], [], {}, {"": {"a.b": 1, "$set": None}}])
def test_data_may_be_anything(data: Any) -> None:  # noqa: ANN401 - any BSON value
    assert is_clean(travel(created_4(data=data)))


@pytest.mark.parametrize("data", [math.nan, Code("x"), "a\0b", {"a\u2028": NOON}, ObjectId(), Int64(1), {"$oid": KEY}])
def test_data_that_json_lacks_stays_typed(data: Any) -> None:  # noqa: ANN401 - any BSON value
    trip = travel(created_4(data=data))
    assert not is_clean(trip)


def test_absent_data_is_not_null_data() -> None:
    document = created_4()
    del document["data"]
    absent, null = travel(document).schedule, travel(created_4(data=None)).schedule
    assert absent is not None
    assert null is not None
    assert (absent.payload, null.payload) == (None, b"null")


STATES = [
    ("running", created_4(lockedAt=NOON)),
    ("running", created_4(lockedAt=NOON, disabled=True)),
    ("paused", created_4(disabled=True)),
    ("paused", created_4(nextRunAt=None, disabled=True)),
    ("scheduled", created_4()),
    ("scheduled", created_4(nextRunAt=datetime(1999, 1, 1))),  # noqa: DTZ001 - overdue or not is the clock's matter
    ("scheduled", created_4(failedAt=NOON, lastFinishedAt=NOON)),
    ("pending", every_4("no interval")),
    ("failed", created_4(nextRunAt=None, lastRunAt=NOON, failedAt=NOON, lastFinishedAt=NOON)),
    ("failed", created_4(nextRunAt=None, failedAt=NOON)),
    ("completed", created_4(nextRunAt=None, lastRunAt=NOON, failedAt=NOON, lastFinishedAt=NOON + SECOND)),
    ("completed", every_4(nextRunAt=None)),
]


@pytest.mark.parametrize(("status", "document"), STATES)
def test_the_state_follows_from_the_document_alone(status: str, document: dict[str, Any]) -> None:
    later = msgspec.structs.replace(CONTEXT, as_of=datetime(2050, 1, 1, tzinfo=UTC))
    for context in (CONTEXT, later):
        schedule = travel(document, context=context).schedule
        assert schedule is not None
        assert schedule.status == status


def test_a_finished_one_shot_says_when() -> None:
    schedule = travel(created_4(nextRunAt=None, lastRunAt=NOON, lastFinishedAt=NOON + SECOND)).schedule
    assert schedule is not None
    assert schedule.completed_at == (NOON + SECOND).replace(tzinfo=UTC)


def test_retries_of_pulse_have_columns() -> None:
    schedule = travel(pulse_run(), "pulseJobs").schedule
    assert schedule is not None
    assert (schedule.max_retries, schedule.retry_strategy, schedule.retry_delay_ms) == (2, "exponential", 1000)
    assert schedule.retry_cap_ms is None


def test_ids_of_two_collections_never_meet() -> None:
    document = created_4(_id="8fb2a6e2-3a1e-4a86-9d5b-0c9e6f5d4a11")
    first, second = travel(document).schedule, travel(document, "pulseJobs").schedule
    assert first is not None
    assert second is not None
    assert str(first.id) == document["_id"], "the first collection keeps a UUID"
    assert first.id != second.id
    assert first.name == "mail:8fb2a6e2-3a1e-4a86-9d5b-0c9e6f5d4a11"


@pytest.mark.parametrize("key", ["a", "{", "a\0b", 1, 1.5, None, True, NOON, {"a": 1}, b"x"])
def test_an_id_may_be_of_any_type(key: Any) -> None:  # noqa: ANN401 - any BSON value
    trip = travel(created_4(_id=key))
    assert trip.schedule is not None
    assert trip.schedule.created_at is None


def test_a_name_is_short_enough_to_be_indexed() -> None:
    schedule = travel(created_4(_id="x" * 5_000)).schedule
    assert schedule is not None
    assert schedule.name == f"mail:{schedule.id}"


def test_without_a_tenant_there_are_no_rows() -> None:
    with pytest.raises(Rejected) as caught:
        travel(created_4(), context=Context(as_of=CONTEXT.as_of))
    assert caught.value.reason == "no-tenant"


def test_a_number_of_node_may_be_a_double() -> None:
    trip = travel(created_4(nextRunAt=None, lockedAt=None, lastRunAt=NOON, failCount=5_000_000_000.0))
    assert is_clean(trip)
    assert type(trip.encoded["failCount"]) is float


def test_dates_may_be_text() -> None:
    trip = travel(created_4(nextRunAt="2026-11-20T12:00:00.1234567Z"))
    assert trip.trigger is not None
    assert trip.trigger.run_at == datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
    assert trip.remainder == b'{"nextRunAt":"2026-11-20T12:00:00.1234567Z"}'


def test_times_keep_their_milliseconds() -> None:
    trip = travel(created_4(nextRunAt=NOON + timedelta(milliseconds=123)))
    assert is_clean(trip)
