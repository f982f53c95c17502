"""Schedules: got, written, deleted, and changed in status by compare-and-set."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator import states
from migrator.errors import ConflictError, TransitionError, UsageError
from migrator.records import Schedule
from migrator.store.postgres.store import PostgresStore
from migrator.store.protocols import ScheduleQuery, SessionStore
from tests.contract.rows import NOW, SECOND, bare, changed, fresh, ids, run, schedule, trigger

LATER = NOW + SECOND


@pytest.mark.proves("0-T2.3.1")
def test_an_insert_fills_the_times_that_are_absent(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        written = session.schedules.upsert(one)
        assert bare(written) == changed(one, created_at=NOW, updated_at=NOW)
        given = schedule(tenant, created_at=NOW - SECOND, updated_at=NOW - SECOND)
        assert bare(session.schedules.upsert(given)) == given


@pytest.mark.proves("0-T2.3.1")
def test_an_update_replaces_every_column_but_the_birth(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, description="old", priority=10, tags=("a",), enabled=True)
    other = schedule(tenant, id=one.id, name="new", enabled=False, created_at=LATER, updated_at=LATER)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        written = session.schedules.upsert(other)
        assert bare(written) == changed(other, created_at=NOW)
        found = session.schedules.get(one.id)
        assert found is not None
        assert bare(found) == bare(written)
        assert session.schedules.count(ScheduleQuery()) == 1


@pytest.mark.proves("0-T2.3.1")
def test_what_is_not_there_is_not_found(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        assert session.schedules.get(uuid4()) is None
        assert session.schedules.by_name("no such") is None
        assert session.schedules.soft_delete(uuid4(), "me") is False
        assert session.schedules.change_status(uuid4(), "scheduled", "paused") is None
        assert session.schedules.list(ScheduleQuery()) == []
        assert session.schedules.due(5) == []


@pytest.mark.proves("0-T2.3.1")
def test_a_schedule_is_found_by_its_exact_name(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, name="Näch tlich.*$")
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        found = session.schedules.by_name("Näch tlich.*$")
        assert found is not None
        assert found.id == one.id
        assert session.schedules.by_name("näch tlich.*$") is None
        assert session.schedules.by_name("Näch") is None


@pytest.mark.proves("0-T2.3.1")
def test_a_name_is_taken_once_per_tenant(store: SessionStore, tenant: str) -> None:
    one, other = schedule(tenant, name="n"), schedule(tenant, name="m")
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.schedules.upsert(other)
        with pytest.raises(ConflictError):
            session.schedules.upsert(schedule(tenant, name="n"))
        with pytest.raises(ConflictError):
            session.schedules.upsert(changed(other, name="n"))
        with pytest.raises(ConflictError):
            session.schedules.change_status(other.id, "scheduled", "paused", name="n")
        session.schedules.upsert(changed(one, description="keeps its own name"))
        stored = session.schedules.get(other.id)
        assert stored is not None
        assert (stored.name, stored.status) == ("m", "scheduled")
    elsewhere = fresh()
    with store.session(elsewhere, now=NOW) as session:
        session.schedules.upsert(schedule(elsewhere, name="n"))


@pytest.mark.proves("0-T2.3.2")
def test_a_deleted_schedule_is_seen_by_nobody(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, name="n")
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.triggers.upsert(trigger(one))
        assert session.schedules.soft_delete(one.id, "me") is True
        assert session.schedules.get(one.id) is None
        assert session.schedules.by_name("n") is None
        assert session.schedules.list(ScheduleQuery()) == []
        assert session.schedules.list(ScheduleQuery(name_contains="n")) == []
        assert session.schedules.count(ScheduleQuery()) == 0
        assert session.schedules.due(5) == []
        assert session.schedules.change_status(one.id, "scheduled", "paused") is None


@pytest.mark.proves("0-T2.3.2")
def test_a_deletion_writes_when_and_by_whom_and_nothing_else(
    store: SessionStore, tenant: str, look: Callable[[type[Schedule], UUID], Schedule]
) -> None:
    with store.session(tenant, now=NOW) as session:
        one = session.schedules.upsert(schedule(tenant, description="d", tags=("a",)))
    for by, instant in (("me", LATER), ("you", LATER + SECOND)):
        with store.session(tenant, now=instant) as session:
            session.schedules.soft_delete(one.id, by)
        assert bare(look(Schedule, one.id)) == changed(bare(one), deleted_at=LATER, deleted_by="me")


@pytest.mark.proves("0-T2.3.2")
def test_a_second_delete_is_false(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        assert session.schedules.soft_delete(one.id, "me") is True
        assert session.schedules.soft_delete(one.id, "you") is False
    with store.session(tenant, now=NOW) as session:
        assert session.schedules.soft_delete(one.id, "me") is False


@pytest.mark.proves("0-T2.3.2", "5-A2")
def test_schedules_are_called_by_their_exact_name_or_source_id(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    one, other, gone = schedule(tenant, name="n"), schedule(tenant, name="nn"), schedule(tenant, name="gone")
    copied = schedule(tenant, name="copied", source="x/schedules", source_id=f"key of {tenant}")
    plant(copied)
    with store.session(tenant, now=NOW) as session:
        for each in (one, other, gone):
            session.schedules.upsert(each)
        session.schedules.soft_delete(gone.id, "me")
    with store.session(tenant, now=NOW) as session:
        assert ids(session.schedules.called("n")) == [one.id]
        stored = session.schedules.get(copied.id)
        assert stored is not None
        assert stored.source_id is not None
        assert ids(session.schedules.called(stored.source_id)) == [copied.id]
        for text in ("gone", "N", "no such", "", "{", '{"_id": 1', f"key of {tenant}x"):
            assert session.schedules.called(text) == [], text
        with pytest.raises(UsageError):
            session.schedules.called("n\0")


@pytest.mark.proves("0-T2.3.2")
def test_a_deleted_schedule_s_name_is_free_and_its_id_is_not(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, name="n")
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.schedules.soft_delete(one.id, "me")
        heir = session.schedules.upsert(schedule(tenant, name="n"))
        with pytest.raises(ConflictError):
            session.schedules.upsert(changed(one, name="m"))
        found = session.schedules.by_name("n")
        assert found is not None
        assert found.id == heir.id
        assert session.schedules.soft_delete(heir.id, "me") is True
        session.schedules.upsert(schedule(tenant, name="n"))


@pytest.mark.proves("0-T2.3.2")
def test_a_delete_disables_the_triggers_and_leaves_runs_and_others_alone(store: SessionStore, tenant: str) -> None:
    one, other = schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for each in (one, other):
            session.schedules.upsert(each)
            session.triggers.upsert(trigger(each))
        session.triggers.upsert(trigger(one, enabled=False))
        made = session.runs.create(run(tenant, schedule_id=one.id))
    with store.session(tenant, now=LATER) as session:
        session.schedules.soft_delete(one.id, "me")
    with store.session(tenant, now=LATER) as session:
        assert [each.enabled for each in session.triggers.of_schedule(one.id)] == [False, False]
        assert [each.enabled for each in session.triggers.of_schedule(other.id)] == [True]
        found = session.runs.get(made.id)
        assert found is not None
        assert bare(found) == bare(made)
        assert [each.id for each in session.schedules.due(5)] == [other.id]


@pytest.mark.proves("0-T2.3.2")
def test_deletion_is_not_written_by_upsert(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        for columns in ({"deleted_at": NOW}, {"deleted_by": "me"}):
            with pytest.raises(UsageError):
                session.schedules.upsert(schedule(tenant, **columns))
        assert session.schedules.count(ScheduleQuery()) == 0


ALLOWED = {
    "pending": {"scheduled", "running", "cancelled"},
    "scheduled": {"running", "paused", "cancelled", "pending"},
    "paused": {"scheduled", "cancelled", "pending"},
    "running": {"completed", "failed", "scheduled", "cancelled"},
    "completed": {"scheduled"},
    "failed": {"pending"},
    "cancelled": set(),
}
"""The transitions that the crawler's documents allow, and the forced run: stated here, not read from the code."""
PAIRS = [(status, follower) for status in ALLOWED for follower in ALLOWED]


@pytest.mark.proves("1-G3")
@pytest.mark.parametrize(
    ("status", "follower"),
    [pytest.param(*pair, marks=pytest.mark.proves(f"3-S{place}")) for place, pair in enumerate(PAIRS, 1)],
)
def test_every_pair_of_statuses_is_as_the_machine_says(
    status: str, follower: str, store: SessionStore, tenant: str
) -> None:
    allowed = follower in ALLOWED[status]
    assert states.may_follow(states.SCHEDULE, status, follower) == allowed
    one = schedule(tenant, status=status)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
    with store.session(tenant, now=LATER) as session:
        if allowed:
            written = session.schedules.change_status(one.id, status, follower)
            assert written is not None
            assert bare(written) == changed(one, status=follower, created_at=NOW, updated_at=LATER)
        else:
            with pytest.raises(TransitionError):
                session.schedules.change_status(one.id, status, follower)
        found = session.schedules.get(one.id)
        assert found is not None
        assert found.status == (follower if allowed else status)


@pytest.mark.proves("0-T2.3.1", "1-G3")
def test_a_change_of_status_writes_its_changes_only_where_the_status_is_expected(
    store: SessionStore, tenant: str
) -> None:
    one = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        assert session.schedules.change_status(one.id, "running", "scheduled", description="x") is None
        written = session.schedules.change_status(one.id, "scheduled", "paused", paused_at=NOW, updated_at=LATER)
        assert written is not None
        assert (written.status, written.paused_at, written.updated_at) == ("paused", NOW, LATER)
        assert written.description is None
        assert session.schedules.change_status(one.id, "scheduled", "paused") is None


@pytest.mark.parametrize(
    "column", ["id", "tenant_id", "source", "extra", "created_at", "created_by", "deleted_at", "no_such"]
)
def test_a_change_of_status_takes_only_columns_that_may_change(column: str, store: SessionStore, tenant: str) -> None:
    one = schedule(tenant)
    changes = {column: None}
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        with pytest.raises(UsageError):
            session.schedules.change_status(one.id, "scheduled", "paused", **changes)
        found = session.schedules.get(one.id)
        assert found is not None
        assert found.status == "scheduled"


@pytest.mark.parametrize(("expected", "status"), [("scheduled", "no such"), ("no such", "paused")])
def test_a_status_that_is_none_is_refused(expected: str, status: str, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.schedules.change_status(uuid4(), expected, status)


@pytest.mark.proves("0-X2")
def test_a_global_schedule_is_seen_and_not_written(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    shared = schedule("*", name=fresh(), created_at=NOW, updated_at=NOW)
    plant(shared)
    everywhere = ScheduleQuery(include_global=True, name_contains=shared.name)
    with store.session(tenant, now=NOW) as session:
        found = session.schedules.get(shared.id)
        assert found is not None
        assert bare(found) == shared
        assert session.schedules.count(ScheduleQuery(name_contains=shared.name)) == 0
        assert [each.id for each in session.schedules.list(everywhere)] == [shared.id]
        assert session.schedules.count(everywhere) == 1
        assert session.schedules.soft_delete(shared.id, "me") is False
        assert session.schedules.change_status(shared.id, "scheduled", "paused") is None
        with pytest.raises(UsageError):
            session.schedules.upsert(shared)
        assert session.schedules.get(shared.id) == found


@pytest.mark.proves("0-X2")
def test_an_own_schedule_with_the_id_of_a_global_one_leaves_that_one_alone(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    """PostgreSQL's keys carry the tenant, and the own row comes first; a collection of MongoDB has one ``_id``."""
    shared = schedule("*", name=fresh(), created_at=NOW, updated_at=NOW)
    own = schedule(tenant, id=shared.id, name=fresh(), created_at=NOW, updated_at=NOW)
    plant(shared)
    if isinstance(store, PostgresStore):
        with store.session(tenant, now=NOW) as session:
            session.schedules.upsert(own)
            found = session.schedules.get(shared.id)
            assert found is not None
            assert bare(found) == own
    else:
        other: Any
        with store.session(tenant, now=NOW) as other, pytest.raises(ConflictError):
            other.schedules.upsert(own)
    with store.session(fresh(), now=NOW) as session_of_another:
        seen = session_of_another.schedules.get(shared.id)
        assert seen is not None
        assert bare(seen) == shared


@pytest.mark.proves("0-X2")
def test_a_tenant_s_own_schedule_goes_before_the_global_one_of_its_name(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    shared = schedule("*", name=fresh(), created_at=NOW, updated_at=NOW)
    plant(shared)
    with store.session(tenant, now=NOW) as session:
        found = session.schedules.by_name(shared.name)
        assert found is not None
        assert found.id == shared.id
        own = session.schedules.upsert(schedule(tenant, name=shared.name))
        found = session.schedules.by_name(shared.name)
        assert found is not None
        assert found.id == own.id
