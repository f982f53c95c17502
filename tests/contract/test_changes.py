"""Changing some columns of a schedule, and holding its triggers, while others write."""

from uuid import uuid4

import pytest

from migrator.errors import ConflictError, UsageError
from migrator.store.protocols import SessionStore
from tests.contract.rows import NOW, SECOND, ids, run, schedule, trigger


def test_only_the_columns_that_are_named_change(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        row = session.schedules.upsert(schedule(tenant, status="paused", priority=3, tags=("a",)))
    with store.session(tenant, now=NOW + SECOND) as session:
        found = session.schedules.change(row.id, priority=7, enabled=False)
        assert found is not None
        assert (found.priority, found.enabled, found.status, found.tags) == (7, False, "paused", ("a",))
        assert found.updated_at == NOW + SECOND
        assert session.schedules.get(row.id) == found


def test_a_schedule_that_is_not_there_is_not_changed(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        row = session.schedules.upsert(schedule(tenant))
        session.schedules.soft_delete(row.id, "me")
        assert session.schedules.change(row.id, priority=1) is None
        assert session.schedules.change(uuid4(), priority=1) is None


@pytest.mark.parametrize("column", ["status", "id", "tenant_id", "created_at", "deleted_at", "nonsense"])
def test_what_has_another_way_is_refused(store: SessionStore, tenant: str, column: str) -> None:
    with store.session(tenant, now=NOW) as session:
        row = session.schedules.upsert(schedule(tenant))
        with pytest.raises(UsageError, match=f"cannot change {column}"):
            session.schedules.change(row.id, **{column: None})


def test_a_name_that_is_taken_stays_with_who_has_it(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        first = session.schedules.upsert(schedule(tenant, name="first"))
        second = session.schedules.upsert(schedule(tenant, name="second"))
        with pytest.raises(ConflictError, match="the name of a schedule is taken"):
            session.schedules.change(second.id, name=first.name)


def test_the_triggers_that_are_held_are_the_tenants_own(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        row, other = session.schedules.upsert(schedule(tenant)), session.schedules.upsert(schedule(tenant))
        mine = sorted(session.triggers.upsert(trigger(row)).id for _ in range(3))
        session.triggers.upsert(trigger(other))
        assert ids(session.triggers.held(row.id)) == mine
        found = session.triggers.of_schedules([row.id, other.id])
        assert [(one.schedule_id, one.id) for one in found] == sorted((one.schedule_id, one.id) for one in found)
        assert len(found) == 4
        assert session.triggers.of_schedules([]) == []
    with store.session(f"{tenant}-b", now=NOW) as session:
        assert session.triggers.held(row.id) == []
        assert session.triggers.of_schedules([row.id]) == []


def test_the_repeats_of_a_run_are_found(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        first = session.runs.create(run(tenant, state="error"))
        late = session.runs.create(run(tenant, retry_of=first.id, created_at=NOW + SECOND))
        early = session.runs.create(run(tenant, retry_of=first.id))
        assert ids(session.runs.repeats(first.id)) == [early.id, late.id]
        assert session.runs.repeats(late.id) == []
    with store.session(f"{tenant}-b", now=NOW) as session:
        assert session.runs.repeats(first.id) == []
