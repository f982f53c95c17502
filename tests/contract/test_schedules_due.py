"""Due schedules: against a walk over all, and at the boundaries."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import states
from migrator.errors import UsageError
from migrator.store.protocols import SessionStore
from tests.contract.rows import MILLISECOND, NOW, SECOND, event_trigger, fresh, ids, schedule, trigger

STEPS = st.integers(-3, 3).map(lambda steps: NOW + MILLISECOND * steps)
MOSTLY = st.sampled_from([True, True, True, False])
FIRES = st.lists(st.tuples(STEPS | STEPS | st.none(), MOSTLY), min_size=1, max_size=3)
STATUSES = st.sampled_from(["scheduled"] * len(states.SCHEDULE) + [*states.SCHEDULE])
ROWS = st.lists(st.tuples(STATUSES, MOSTLY, MOSTLY, FIRES), min_size=3, max_size=8)


@pytest.mark.proves("0-T2.3.3", "1-G3")
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, now=STEPS, limit=st.integers(1, 8))
def test_due_schedules_are_those_that_a_walk_over_all_finds(
    store: SessionStore, rows: list[Any], now: datetime, limit: int
) -> None:
    tenant, expected = fresh(), []
    with store.session(tenant, now=NOW) as session:
        for status, enabled, kept, fires in rows:
            row = session.schedules.upsert(schedule(tenant, status=status, enabled=enabled))
            for fire, active in fires:
                session.triggers.upsert(trigger(row, next_fire_at=fire, enabled=active))
            if not kept:
                session.schedules.soft_delete(row.id, "me")
            due = [fire for fire, active in fires if active and fire is not None and fire <= now]
            if due and status == "scheduled" and enabled and kept:
                expected.append((min(due), row.id))
    with store.session(tenant, now=now) as session:
        assert ids(session.schedules.due(limit)) == [identity for _, identity in sorted(expected)][:limit]


@pytest.mark.proves("0-T2.3.3")
def test_a_schedule_is_due_from_the_very_instant_on(store: SessionStore, tenant: str) -> None:
    one = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.triggers.upsert(trigger(one, next_fire_at=NOW))
    for instant, due in ((NOW - MILLISECOND, []), (NOW, [one.id]), (NOW + SECOND, [one.id])):
        with store.session(tenant, now=instant) as session:
            assert ids(session.schedules.due(5)) == due


@pytest.mark.proves("0-T2.3.3")
@pytest.mark.parametrize("status", [status for status in states.SCHEDULE if status != "scheduled"])
def test_only_a_scheduled_one_is_due(status: str, store: SessionStore, tenant: str) -> None:
    one = schedule(tenant, status=status)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.triggers.upsert(trigger(one))
        assert session.schedules.due(5) == []


@pytest.mark.proves("0-T2.3.3")
def test_disabled_deleted_and_paused_ones_are_not_due(store: SessionStore, tenant: str) -> None:
    disabled, deleted, paused, silent, on_event = rows = [schedule(tenant) for _ in range(5)]
    with store.session(tenant, now=NOW) as session:
        for row in rows:
            session.schedules.upsert(row)
        for row in (disabled, deleted, paused):
            session.triggers.upsert(trigger(row))
        session.triggers.upsert(trigger(silent, enabled=False))
        session.triggers.upsert(trigger(silent, next_fire_at=None))
        session.triggers.upsert(event_trigger(on_event, "push"))
        assert set(ids(session.schedules.due(9))) == {disabled.id, deleted.id, paused.id}
        session.schedules.upsert(schedule(tenant, id=disabled.id, name=disabled.name, enabled=False))
        session.schedules.soft_delete(deleted.id, "me")
        session.schedules.change_status(paused.id, "scheduled", "paused")
        assert session.schedules.due(9) == []
        session.schedules.change_status(paused.id, "paused", "scheduled")
        assert ids(session.schedules.due(9)) == [paused.id]


@pytest.mark.proves("0-T2.3.3")
def test_each_is_due_once_by_its_earliest_trigger_ties_by_id(store: SessionStore, tenant: str) -> None:
    rows = [schedule(tenant) for _ in range(4)]
    early, *ties = rows
    with store.session(tenant, now=NOW) as session:
        for row in rows:
            session.schedules.upsert(row)
        for fire in (NOW, NOW - SECOND, NOW - SECOND):
            session.triggers.upsert(trigger(early, next_fire_at=fire))
        session.triggers.upsert(trigger(early, next_fire_at=NOW - 2 * SECOND, enabled=False))
        for row in ties:
            session.triggers.upsert(trigger(row, next_fire_at=NOW))
        assert ids(session.schedules.due(9)) == [early.id, *sorted(ids(ties))]
        assert ids(session.schedules.due(2)) == [early.id, min(ids(ties))]


@pytest.mark.proves("0-T2.3.3")
def test_many_that_may_not_run_do_not_hide_one_that_may(store: SessionStore, tenant: str) -> None:
    disabled, often, last = schedule(tenant, enabled=False), schedule(tenant), schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        for row in (disabled, often, last):
            session.schedules.upsert(row)
        for place in range(210):
            session.triggers.upsert(trigger(often if place % 2 else disabled, next_fire_at=NOW - SECOND))
        session.triggers.upsert(trigger(last, next_fire_at=NOW))
        assert ids(session.schedules.due(2)) == [often.id, last.id]


@pytest.mark.proves("0-T2.3.3")
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session, pytest.raises(UsageError):
        session.schedules.due(limit)


@pytest.mark.proves("0-T2.3.3", "0-X2")
def test_another_tenant_s_and_the_global_tenant_s_are_not_due(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    one, shared = schedule(tenant), schedule("*", name=fresh(), created_at=NOW, updated_at=NOW)
    plant(shared, trigger(shared))
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(one)
        session.triggers.upsert(trigger(one))
        assert ids(session.schedules.due(9)) == [one.id]
    with store.session(fresh(), now=NOW) as session:
        assert session.schedules.due(9) == []
