"""Runs and what is tolerated in them."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from bson import Decimal128, Int64, ObjectId

from migrator.sources.profile import Note, Rejected
from migrator.sources.store_documents import ids
from migrator.values import identity, jsonb
from tests.stellaops_documents import fresh, travel

SCHEDULE = UUID("0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b")


def test_the_columns_of_a_run() -> None:
    row = travel("runs", fresh("runs")).row
    assert row.id == UUID("5a1c9e3b7d2f4a6c8e0b1d3f5a7c9e1b")
    assert row.schedule_id == SCHEDULE
    assert row.retry_of == UUID("1b3d5f7a9c1e4b6d8f0a2c4e6b8d0f1a")
    assert (row.cause, row.state, row.schema_version) == ("conselier", "completed", "scheduler.run@1")
    assert row.started_at == datetime(2025, 11, 1, 10, 0, 1, 250_000, UTC)
    assert row.duration_ms == 29_873
    assert (row.run_number, row.trigger_id, row.scheduled_at) == (None, None, None)
    assert jsonb.decode(row.stats)["queued"] == 100


@pytest.mark.parametrize(
    ("word", "cause"),
    [
        ("feedser", "conselier"),
        ("concelier", "conselier"),
        ("vexer", "excitor"),
        ("excititor", "excitor"),
        ("contentrefresh", "content-refresh"),
    ],
)
def test_renamed_services_are_aliases_in_the_cause_and_stay_in_the_reason(word: str, cause: str) -> None:
    trip = travel("runs", fresh("runs", trigger=word, reason={"manualReason": f"{word} asked"}))
    assert trip.row.cause == cause
    assert jsonb.decode(trip.row.reason) == {"manualReason": f"{word} asked"}
    assert trip.notes == (Note("alias", "trigger"),)
    assert trip.fields == {"trigger"}


def test_another_cause_is_open_text() -> None:
    trip = travel("runs", fresh("runs", trigger="moonphase"))
    assert trip.row.cause == "moonphase"
    assert trip.notes == (Note("unknown-cause", "trigger"),)
    assert trip.remainder == b"{}"


def test_the_american_spelling_of_cancelled_is_an_alias() -> None:
    trip = travel("runs", fresh("runs", state="canceled"))
    assert trip.row.state == "cancelled"
    assert trip.notes == (Note("alias", "state"),)
    assert trip.fields == {"state"}


@pytest.mark.parametrize("missing", ["sch_20251018a", "sch_" + "A" * 32, "läuft", "{x}", "a\0b"])
def test_a_reference_that_cannot_be_spelled_from_its_id_keeps_its_text(missing: str) -> None:
    trip = travel("runs", fresh("runs", scheduleId=missing))
    expected = identity.row_id("schedules", "tenant-a", "schedules", identity.source_id(missing))
    assert trip.row.schedule_id == expected == travel("schedules", fresh("schedules", _id=missing)).row.id
    assert trip.fields == {"scheduleId"}


@pytest.mark.parametrize("blank", ["", "  "])
def test_a_blank_reference_refers_to_nothing(blank: str) -> None:
    trip = travel("runs", fresh("runs", scheduleId=blank))
    assert trip.row.schedule_id is None
    assert trip.fields == {"scheduleId"}


def test_a_run_that_finished_before_it_started_has_no_duration() -> None:
    trip = travel("runs", fresh("runs", finishedAt="2025-11-01T09:59:59+00:00"))
    assert trip.row.duration_ms is None
    assert trip.notes == (Note("finished-before-started", "finishedAt"),)
    assert trip.remainder == b"{}"


def test_negative_stats_are_loaded_and_found() -> None:
    trip = travel("runs", fresh("runs", stats__newHigh=-3, stats__odd="-"))
    assert trip.notes == (Note("negative-stats", "stats.newHigh"),)
    assert trip.remainder == b"{}"
    assert travel("runs", fresh("runs", stats__odd=":-)")).notes == ()


@pytest.mark.parametrize("version", ["", "  ", None, ...])
def test_old_documents_lack_a_schema_version(version: object) -> None:
    trip = travel("runs", fresh("runs", schemaVersion=version))
    assert trip.row.schema_version is None
    assert trip.notes == ()
    assert trip.fields == (set() if version is ... else {"schemaVersion"})


def test_another_schema_version_is_kept_and_found() -> None:
    trip = travel("runs", fresh("runs", schemaVersion="scheduler.run@0"))
    assert trip.row.schema_version == "scheduler.run@0"
    assert trip.notes == (Note("unknown-schema-version", "schemaVersion"),)
    assert trip.remainder == b"{}"


def test_another_id_is_found() -> None:
    trip = travel("runs", fresh("runs", id="run_other"))
    assert trip.notes == (Note("id-mismatch", "id"),)
    assert trip.fields == {"id"}


@pytest.mark.parametrize("key", [1, 1.5, None, True, ObjectId(), {"a": 1}, Decimal128("1.0"), Int64(2), "", "{}"])
def test_an_id_of_any_type_comes_back(key: object) -> None:
    trip = travel("runs", fresh("runs", _id=key, id=...))
    assert trip.fields == ({"id"} if isinstance(key, str) else set())


@pytest.mark.parametrize(
    ("spelled", "micros"),
    [
        ("2025-11-01T10:00:00Z", 0),
        ("2025-11-01T10:00:00.5Z", 500_000),
        ("2025-11-01T10:00:00.500+00:00", 500_000),
        ("2025-11-01T10:00:00.1234567+00:00", 123_456),
        ("2025-11-01T10:00:00.9999999+00:00", 999_999),
        ("2025-11-01T12:00:00+02:00", 0),
        (datetime(2025, 11, 1, 10, 0, 0, 7000), 7000),  # noqa: DTZ001 - as BSON gives it
    ],
)
def test_other_spellings_of_a_time_are_cut_never_rounded_and_kept(spelled: object, micros: int) -> None:
    trip = travel("runs", fresh("runs", createdAt=spelled))
    assert trip.row.created_at == datetime(2025, 11, 1, 10, 0, 0, micros, UTC)
    assert trip.fields == {"createdAt"}


def test_a_slot_needs_its_attempt_as_the_table_demands() -> None:
    slot = {"triggerId": "trg_" + "1" * 32, "scheduledAt": datetime(2025, 11, 1)}  # noqa: DTZ001 - as BSON gives it
    with pytest.raises(Rejected) as caught:
        travel("runs", fresh("runs") | slot)
    assert (caught.value.reason, caught.value.path) == ("missing-field", "attempt")
    trip = travel(
        "runs", fresh("runs") | slot | {"attempt": 2, "runNumber": 9, "result": [1], "metadata": {"B": 1, "b": 2}}
    )
    assert trip.remainder == b"{}"
    assert trip.row.trigger_id == ids.trigger_id("tenant-a", "trg_" + "1" * 32)
    assert (trip.row.attempt, trip.row.run_number) == (2, 9)


def test_empty_absent_and_null_stay_three_things() -> None:
    assert travel("runs", fresh("runs", deltas=[])).row.deltas == b"[]"
    assert travel("runs", fresh("runs", stats={})).row.stats == b"{}"
    assert travel("runs", fresh("runs", deltas=...)).row.deltas is None
    trip = travel("runs", fresh("runs", deltas=None))
    assert (trip.row.deltas, trip.fields) == (None, {"deltas"})
    assert travel("runs", fresh("runs", deltas=[])).remainder == b"{}"


def test_a_blank_error_is_none_and_a_padded_one_is_trimmed() -> None:
    trip = travel("runs", fresh("runs", error="  "))
    assert (trip.row.error, trip.fields) == (None, {"error"})
    trip = travel("runs", fresh("runs", error="boom\n"))
    assert (trip.row.error, trip.fields) == ("boom", {"error"})
