"""Graph jobs and their events: the document is the payload."""

from datetime import UTC, datetime
from uuid import UUID

import bson
import pytest

from migrator.records import REMAINDER_KEY
from migrator.sources.profile import Note, Rejected
from migrator.values import identity, jsonb
from tests.stellaops_documents import fresh, travel

BUILD, OVERLAY = 0, 1
ID = UUID("3f2b8c1e5d6a47f09b1c2d3e4f5a6b7c")


def test_the_columns_are_taken_from_the_payload() -> None:
    row = travel("graph_jobs", fresh("graph_jobs")).row
    assert (row.id, row.type, row.status, row.correlation_id) == (ID, 0, 2, "evt_9")
    assert row.created_at == datetime(2025, 11, 1, 10, tzinfo=UTC)
    assert row.updated_at == datetime(2025, 11, 1, 10, 1, 0, 500_000, UTC)
    assert jsonb.decode(row.payload) == fresh("graph_jobs")
    overlay = travel("graph_jobs", fresh("graph_jobs", OVERLAY)).row
    assert (overlay.type, overlay.status, overlay.updated_at) == (1, 5, overlay.created_at)


def test_the_last_time_known_is_the_time_of_the_last_change() -> None:
    row = travel("graph_jobs", fresh("graph_jobs", completedAt=...)).row
    assert row.updated_at == datetime(2025, 11, 1, 10, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "code"),
    [("queued", 0), ("running", 1), ("completed", 2), ("failed", 3), ("canceled", 4), ("cancelled", 4), ("pending", 5)],
)
def test_every_status_has_its_code_and_the_payload_its_word(word: str, code: int) -> None:
    trip = travel("graph_jobs", fresh("graph_jobs", status=word))
    assert trip.row.status == code
    assert jsonb.decode(trip.row.payload)["status"] == word
    assert trip.remainder == b"{}"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"overlayKind": "vex"}, 1),
        ({"overlayKey": "k"}, 1),
        ({"sbomVersionId": "s"}, 0),
        ({"schemaVersion": "scheduler.graph-overlay-job@2"}, 1),
        ({"schemaVersion": "scheduler.graph-build-job@1"}, 0),
        ({"_id": "goj_1"}, 1),
        ({"_id": "gbj_1"}, 0),
    ],
)
def test_how_a_build_is_told_from_an_overlay(changes: dict[str, str], kind: int) -> None:
    bare = {"_id": "1", "tenantId": "t", "status": "pending", "createdAt": "2025-11-01T10:00:00+00:00"}
    assert travel("graph_jobs", bare | changes).row.type == kind
    with pytest.raises(Rejected) as caught:
        travel("graph_jobs", bare)
    assert (caught.value.reason, caught.value.path) == ("unknown-value", "")


def test_unknown_fields_stay_in_the_payload_and_types_in_its_remainder() -> None:
    trip = travel("graph_jobs", fresh("graph_jobs", extra={"a": 1}, big=bson.Int64(1), at=datetime(2025, 1, 1)))  # noqa: DTZ001 - as BSON gives it
    assert trip.fields == {"big", "at"}
    assert jsonb.decode(trip.row.payload)["extra"] == {"a": 1}
    assert REMAINDER_KEY in jsonb.decode(trip.rows[0].payload)  # type: ignore[attr-defined] # a graph job


def test_a_document_may_use_the_reserved_key() -> None:
    trip = travel("graph_jobs", fresh("graph_jobs") | {REMAINDER_KEY: {"mine": 1}})
    assert trip.fields == {REMAINDER_KEY}


def test_findings_about_a_job() -> None:
    made = fresh(
        "graph_jobs", id="gbj_other", schemaVersion="scheduler.graph-build-job@0", completedAt="2025-11-01T09:00:00Z"
    )
    assert travel("graph_jobs", made).notes == (
        Note("id-mismatch", "id"),
        Note("unknown-schema-version", "schemaVersion"),
        Note("finished-before-started", "completedAt"),
    )


def test_an_event_refers_to_the_job_inside_it() -> None:
    row = travel("graph_job_events", fresh("graph_job_events")).row
    assert row.job_id == ID
    assert row.id == identity.event_id("tenant-a", "stellaops/graph_job_events", fresh("graph_job_events")["_id"])
    assert row.id >> 62 == 1
    assert (row.tenant_id, row.status) == ("tenant-a", 4)
    assert row.created_at == datetime(2025, 11, 1, 10, 1, 1, tzinfo=UTC)
