"""Snapshots, summaries, audit, locks, and the collections in our own shape."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from bson import ObjectId

from migrator.sources.profile import Note, Rejected, Skipped
from migrator.values import identity, jsonb
from tests.stellaops_documents import CONTEXT, fresh, travel

RUN = UUID("5a1c9e3b7d2f4a6c8e0b1d3f5a7c9e1b")
SCHEDULE = UUID("0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b")
LONG_AGO = datetime(2025, 1, 1)  # noqa: DTZ001 - as BSON gives it


def test_a_snapshot_takes_its_tenant_from_the_selector_and_says_so() -> None:
    trip = travel("impact_snapshots", fresh("impact_snapshots", tenantId=...))
    assert (trip.row.tenant_id, trip.row.run_id, trip.row.total) == ("tenant-a", RUN, 1)
    assert trip.notes == (Note("tenant-from-selector", "tenantId"),)
    assert trip.fields == {"tenantId"}


def test_a_snapshot_of_an_old_scope_has_one_spelling() -> None:
    trip = travel("impact_snapshots", fresh("impact_snapshots", selector__scope="by-repo"))
    assert jsonb.decode(trip.row.selector)["scope"] == "by-repository"
    assert trip.notes == (Note("alias", "selector.scope"),)


@pytest.mark.parametrize("text", ["run:2025:a", "7", "{}"])
def test_a_snapshot_refers_to_the_run_of_that_id_in_its_tenant(text: str) -> None:
    run = travel("runs", fresh("runs", _id=text)).row
    trip = travel("impact_snapshots", fresh("impact_snapshots", runId=text))
    assert trip.row.run_id == run.id
    assert trip.fields == {"runId"}
    other = travel("impact_snapshots", fresh("impact_snapshots", runId=text, tenantId="tenant-b"))
    assert other.row.run_id != run.id


def test_images_keep_unknown_members() -> None:
    trip = travel("impact_snapshots", fresh("impact_snapshots", images__0__layers=[1, 2]))
    assert jsonb.decode(trip.row.images)[0]["layers"] == [1, 2]
    assert trip.remainder == b"{}"


def test_what_an_audit_entry_tells_of_needs_not_be_there() -> None:
    row = travel("audit", fresh("audit")).row
    assert (row.entity_id, row.schedule_id, row.run_id) == ("sch_1", SCHEDULE, RUN)
    trip = travel("audit", fresh("audit", scheduleId="sch_1"))
    assert trip.row.schedule_id == identity.row_id("schedules", "tenant-a", "schedules", "sch_1")
    assert trip.fields == {"scheduleId"}


def test_blank_texts_of_an_audit_entry_are_none() -> None:
    trip = travel("audit", fresh("audit", entityId=" ", message="", correlationId=" c "))
    assert (trip.row.entity_id, trip.row.message, trip.row.correlation_id) == (None, None, "c")
    assert trip.fields == {"entityId", "message", "correlationId"}


def test_a_summary_spells_its_states_in_one_way() -> None:
    trip = travel("run_summaries", fresh("run_summaries", recent__0__state="canceled", lastRun__state="canceled"))
    assert jsonb.decode(trip.row.recent)[0]["state"] == "cancelled"
    assert jsonb.decode(trip.row.last_run)["state"] == "cancelled"
    assert trip.notes == (Note("alias", "recent[].state"),)
    assert trip.fields == {"lastRun.state", "recent[].state"}


def test_a_summary_without_its_schedule_is_loaded() -> None:
    assert travel("run_summaries", fresh("run_summaries", scheduleId=...)).row.schedule_id is None


def test_a_lock_has_a_key_of_its_tenant_and_its_resource() -> None:
    row = travel("locks", fresh("locks")).row
    assert (row.key, row.holder, row.owner, row.fence) == ("tenant-a/planner", "planner-1@host-2", None, 0)
    assert row.lock_id == identity.lock_id("tenant-a/planner")
    named_by_id = travel("locks", fresh("locks", _id="a/b", resource=...))
    assert named_by_id.row.key == "tenant-a/a/b"
    assert named_by_id.fields == {"resource"}


def test_an_expired_lock_is_left_behind_unless_asked_for() -> None:
    with pytest.raises(Skipped) as caught:
        travel("locks", fresh("locks", expiresAt=LONG_AGO))
    assert caught.value.reason == "expired lock"
    carried = travel(
        "locks", fresh("locks", expiresAt=LONG_AGO), msgspec.structs.replace(CONTEXT, carry_expired_locks=True)
    )
    assert carried.row.expires_at == LONG_AGO.replace(tzinfo=UTC)


def test_a_lock_expires_at_its_instant_and_without_one_never() -> None:
    at = CONTEXT.as_of.replace(tzinfo=None)
    with pytest.raises(Skipped):
        travel("locks", fresh("locks", expiresAt=at))
    assert travel("locks", fresh("locks", expiresAt=at.replace(microsecond=1000))).remainder == b"{}"
    assert travel("locks", fresh("locks", expiresAt=...)).row.expires_at is None


def test_another_name_for_the_end_of_a_lease_is_read() -> None:
    made = fresh("locks", expiresAt=...) | {"ttlAt": LONG_AGO}
    with pytest.raises(Skipped):
        travel("locks", made)
    trip = travel("locks", made | {"ttlAt": LONG_AGO.replace(year=2126)})
    assert trip.notes == (Note("alias", "ttlAt"),)
    assert trip.fields == {"ttlAt", "expiresAt"}


def test_a_lock_of_nothing_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        travel("locks", fresh("locks", _id=ObjectId(), resource=...))
    assert (caught.value.reason, caught.value.path) == ("missing-field", "resource")


def test_a_trigger_in_our_own_shape() -> None:
    row = travel("triggers", fresh("triggers")).row
    assert (row.id, row.schedule_id) == (UUID("8e0b2d4f6a8c4e0b8d4f6a8c0e2b4d6f"), SCHEDULE)
    assert (row.cron_dialect, row.fire_count, row.skip_if_overdue, row.derived) == ("cronos", 3, False, False)
    assert row.next_fire_at == datetime(2025, 11, 1, 10, 15, tzinfo=UTC)


def test_what_a_column_holds_by_default_goes_unsaid() -> None:
    said: dict[str, Any] = {"cronDialect": "cronos", "skipIfOverdue": False, "derived": False}
    assert travel("triggers", fresh("triggers") | said).fields == set(said)
    other = {"cronDialect": "croniter", "skipIfOverdue": True, "derived": True}
    assert travel("triggers", fresh("triggers") | other).remainder == b"{}"


def _of_kind(kind: str, **fields: object) -> dict[str, object]:
    return {"_id": "1", "tenantId": "t", "scheduleId": "s", "kind": kind, "enabled": True, **fields}


@pytest.mark.parametrize(
    "made",
    [
        _of_kind("interval", intervalMs=1, anchor="completion"),
        _of_kind("one_time", runAt=LONG_AGO),
        _of_kind("event", eventName="e"),
        _of_kind("cron", cronExpression="* * * * *"),
    ],
    ids=lambda made: made["kind"],
)
def test_the_kinds_of_triggers(made: dict[str, object]) -> None:
    assert travel("triggers", made).fields == {"scheduleId"}


@pytest.mark.parametrize(
    "made",
    [
        _of_kind("interval", intervalMs=1),
        _of_kind("interval", intervalMs=1, anchor="completion", runAt=LONG_AGO),
        _of_kind("cron"),
        _of_kind("event", eventName="e", timezone="UTC"),
        _of_kind("event", eventName="e", nextFireAt=LONG_AGO),
        _of_kind("one_time", runAt=LONG_AGO, cronDialect="cronos"),
        _of_kind("interval", anchor="completion"),
    ],
    ids=range(7),
)
def test_a_trigger_has_exactly_the_fields_of_its_kind(made: dict[str, object]) -> None:
    with pytest.raises(Rejected) as caught:
        travel("triggers", made)
    assert (caught.value.reason, caught.value.path) == ("wrong-kind", "kind")


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        travel("triggers", _of_kind("interval", intervalMs=0, anchor="completion"))
    assert (caught.value.reason, caught.value.path) == ("out-of-range", "intervalMs")
