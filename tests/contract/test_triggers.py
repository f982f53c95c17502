"""Triggers: written with exactly the columns of their kind, found by schedule and by event."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from migrator.errors import NotFoundError, UsageError
from migrator.store.protocols import SessionStore
from tests.contract.rows import NOW, SECOND, bare, changed, event_trigger, fresh, ids, run, schedule, trigger

KINDS: list[dict[str, Any]] = [
    {"kind": "cron", "cron_expression": "*/5 * * * *", "cron_dialect": "debian", "timezone": "Europe/Vienna"},
    {"kind": "interval", "interval_ms": 60_000, "anchor": "completion"},
    {"kind": "one_time", "run_at": NOW},
    {"kind": "event", "event_name": "push", "next_fire_at": None},
]


@pytest.mark.proves("0-T2.3.1")
@pytest.mark.parametrize("columns", KINDS, ids=lambda columns: columns["kind"])
def test_a_trigger_of_every_kind_is_written_and_got(columns: dict[str, Any], store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    one = trigger(of, **columns)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        assert bare(session.triggers.upsert(one)) == one
        found = session.triggers.get(one.id)
        assert found is not None
        assert bare(found) == one
        assert session.triggers.get(uuid4()) is None


@pytest.mark.parametrize("given", KINDS, ids=lambda columns: columns["kind"])
@pytest.mark.parametrize("kind", ["cron", "interval", "one_time", "event"])
def test_a_trigger_sets_exactly_the_columns_of_its_kind(
    kind: str, given: dict[str, Any], store: SessionStore, tenant: str
) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        if kind == given["kind"]:
            session.triggers.upsert(trigger(of, **given))
            return
        with pytest.raises(UsageError):
            session.triggers.upsert(trigger(of, **given | {"kind": kind}))
        assert session.triggers.of_schedule(of.id) == []


@pytest.mark.parametrize(
    "columns",
    [
        {"interval_ms": 0},
        {"interval_ms": -1},
        {"start_at": NOW, "end_at": NOW},
        {"start_at": NOW, "end_at": NOW - SECOND},
        {"kind": "no such"},
        {"misfire_policy": "no such"},
        {"anchor": "no such"},
        {"kind": "event", "event_name": "push"},  # it has a next fire
        {"kind": "event", "event_name": "push", "next_fire_at": None, "timezone": "UTC"},
        {"next_fire_at": NOW.replace(tzinfo=None)},
    ],
)
def test_what_the_table_refuses_is_refused_everywhere(
    columns: dict[str, Any], store: SessionStore, tenant: str
) -> None:
    of = schedule(tenant)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        with pytest.raises(UsageError):
            session.triggers.upsert(trigger(of, **columns))


def test_an_update_replaces_all_and_may_change_the_kind(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    one = trigger(of, misfire_policy="skip", fire_count=4, last_fire_at=NOW)
    other = event_trigger(of, "push", id=one.id)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(one)
        session.triggers.upsert(other)
        assert [bare(each) for each in session.triggers.of_schedule(of.id)] == [other]


def test_a_trigger_stays_with_its_schedule_which_must_exist(store: SessionStore, tenant: str) -> None:
    one, other, gone = schedule(tenant), schedule(tenant), schedule(tenant)
    moved = trigger(one)
    with store.session(tenant, now=NOW) as session:
        for each in (one, other, gone):
            session.schedules.upsert(each)
        session.triggers.upsert(moved)
        with pytest.raises(UsageError):
            session.triggers.upsert(changed(moved, schedule_id=other.id))
        session.schedules.soft_delete(gone.id, "me")
        for nowhere in (gone, schedule(tenant)):
            with pytest.raises(NotFoundError):
                session.triggers.upsert(trigger(nowhere))
        assert ids(session.triggers.of_schedule(one.id)) == [moved.id]


def test_a_schedule_s_triggers_come_by_id(store: SessionStore, tenant: str) -> None:
    of, other = schedule(tenant), schedule(tenant)
    rows = [trigger(of, next_fire_at=NOW - SECOND * place) for place in range(6)]
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.schedules.upsert(other)
        for row in rows:
            session.triggers.upsert(row)
        session.triggers.upsert(trigger(other))
        assert ids(session.triggers.of_schedule(of.id)) == sorted(ids(rows))


def test_a_next_fire_is_moved_by_compare_and_set_and_nothing_else_changes(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    one = trigger(of, fire_count=3, last_fire_at=NOW - SECOND)
    event = event_trigger(of, "push")
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        session.triggers.upsert(one)
        session.triggers.upsert(event)
        assert not session.triggers.move(one.id, NOW + SECOND, NOW + SECOND * 9)
        assert not session.triggers.move(one.id, None, NOW + SECOND * 9)
        assert not session.triggers.move(uuid4(), NOW, NOW)
        assert [bare(each) for each in session.triggers.of_schedule(of.id) if each.id == one.id] == [one]
        assert session.triggers.move(one.id, NOW, NOW + SECOND)
        assert not session.triggers.move(one.id, NOW, NOW + SECOND)
        assert session.triggers.move(one.id, NOW + SECOND, None)
        assert session.triggers.move(one.id, None, NOW + SECOND * 2)
        found = session.triggers.get(one.id)
        assert found is not None
        assert bare(found) == changed(one, next_fire_at=NOW + SECOND * 2)
        with pytest.raises(UsageError):
            session.triggers.move(event.id, None, NOW)
    with store.session(fresh(), now=NOW) as session:
        assert not session.triggers.move(one.id, NOW + SECOND * 2, NOW)


def test_triggers_of_a_schedule_are_removed_and_runs_stay(store: SessionStore, tenant: str) -> None:
    of, other = schedule(tenant), schedule(tenant)
    cause = trigger(of)
    with store.session(tenant, now=NOW) as session:
        for each in (of, other):
            session.schedules.upsert(each)
            session.triggers.upsert(trigger(each))
        session.triggers.upsert(cause)
        made = session.runs.create(run(tenant, schedule_id=of.id, trigger_id=cause.id, scheduled_at=NOW))
        assert session.triggers.delete_of_schedule(of.id) == 2
        assert session.triggers.delete_of_schedule(of.id) == 0
        assert session.triggers.get(cause.id) is None
        assert len(session.triggers.of_schedule(other.id)) == 1
        found = session.runs.get(made.id)
        assert found is not None
        assert bare(found) == changed(bare(made), trigger_id=None)


def test_of_an_event_those_answer_that_may_run_by_priority(store: SessionStore, tenant: str) -> None:
    may = [
        schedule(tenant, priority=priority, status=status)
        for priority, status in ((10, "pending"), (None, "scheduled"), (90, "running"), (50, "scheduled"))
    ]
    may_not = [schedule(tenant, status=status) for status in ("paused", "completed", "failed", "cancelled")]
    may_not += [schedule(tenant, enabled=False), schedule(tenant)]
    with store.session(tenant, now=NOW) as session:
        rows = []
        for each in (*may, *may_not):
            session.schedules.upsert(each)
            rows.append(session.triggers.upsert(event_trigger(each, "push")))
        session.triggers.upsert(event_trigger(may[0], "pull"))
        session.triggers.upsert(event_trigger(may[0], "push", enabled=False))
        session.schedules.soft_delete(may_not[-1].id, "me")
        ties = sorted((rows[1].id, rows[3].id))
        assert ids(session.triggers.of_event("push")) == [rows[2].id, *ties, rows[0].id]
        assert session.triggers.of_event("no such") == []


@pytest.mark.proves("0-X2")
def test_a_global_trigger_answers_every_tenant_and_is_not_written(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    event = fresh()
    of = schedule("*", name=fresh(), priority=60, created_at=NOW, updated_at=NOW)
    cause = event_trigger(of, event)
    plant(of, cause)
    own = schedule(tenant, priority=70)
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(own)
        mine = session.triggers.upsert(event_trigger(own, event))
        assert ids(session.triggers.of_event(event)) == [mine.id, cause.id]
        assert ids(session.triggers.of_schedule(of.id)) == [cause.id]
        assert session.triggers.get(cause.id) is not None
        assert session.triggers.delete_of_schedule(of.id) == 0
        with pytest.raises(NotFoundError):
            session.triggers.upsert(trigger(changed(of, tenant_id=tenant)))
        with pytest.raises(UsageError):
            session.triggers.upsert(cause)
        session.runs.create(run(tenant, schedule_id=of.id, trigger_id=cause.id, dedupe_key="x"))
    with store.session(fresh(), now=NOW) as session:
        assert ids(session.triggers.of_event(event)) == [cause.id]
