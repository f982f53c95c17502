"""The audit trail, which only grows; and handlers, of which the system's own do not change."""

from collections.abc import Callable

import pytest

from migrator.errors import ConflictError, UsageError
from migrator.records import Handler
from migrator.store.protocols import Audit, SessionStore
from tests.contract.rows import NOW, SECOND, bare, changed, entry, fresh, handler, ids, schedule


def named(rows: object, *names: str) -> list[Handler]:
    """Return the handlers with these names; other tests' global ones are seen too."""
    return [row for row in rows if row.name in names]  # type: ignore[attr-defined] # a sequence of handlers


def test_entries_come_newest_first_ties_by_id(store: SessionStore, tenant: str) -> None:
    rows = [entry(tenant, occurred_at=NOW + SECOND * (place % 2), message=f"m{place}") for place in range(6)]
    with store.session(tenant, now=NOW) as session:
        for row in rows:
            session.audit.append(row)
    expected = sorted(sorted(rows, key=lambda row: row.id), key=lambda row: row.occurred_at, reverse=True)
    with store.session(tenant, now=NOW) as session:
        assert [bare(found) for found in session.audit.list(10)] == expected
        assert ids(session.audit.list(2)) == ids(expected)[:2]
        for limit in (0, -1):
            with pytest.raises(UsageError):
                session.audit.list(limit)
    with store.session(fresh(), now=NOW) as session:
        assert session.audit.list(10) == []


def test_entries_are_found_by_schedule_and_by_action(store: SessionStore, tenant: str) -> None:
    of = schedule(tenant)
    rows = [entry(tenant, action=action, schedule_id=of.id) for action in ("pause", "resume")]
    rows.append(entry(tenant, action="pause"))
    with store.session(tenant, now=NOW) as session:
        session.schedules.upsert(of)
        for row in rows:
            session.audit.append(row)
        assert set(ids(session.audit.list(9, schedule_id=of.id))) == {rows[0].id, rows[1].id}
        assert set(ids(session.audit.list(9, action="pause"))) == {rows[0].id, rows[2].id}
        assert ids(session.audit.list(9, schedule_id=of.id, action="pause")) == [rows[0].id]
        assert session.audit.list(9, action="no such") == []
        session.schedules.soft_delete(of.id, "me")
        assert len(session.audit.list(9, schedule_id=of.id)) == 2  # it outlives what it tells of


def test_the_trail_is_append_only(store: SessionStore, tenant: str) -> None:
    one = entry(tenant, message="first")
    with store.session(tenant, now=NOW) as session:
        session.audit.append(one)
        with pytest.raises(ConflictError):
            session.audit.append(changed(one, message="second"))
        assert [bare(found) for found in session.audit.list(9)] == [one]
    assert {name for name in vars(Audit) if not name.startswith("_")} == {"append", "list"}


def test_a_handler_is_written_got_and_replaced_by_name(store: SessionStore, tenant: str) -> None:
    one = handler(tenant, handler_path="a.b", queue="q", default_timeout_ms=5, is_active=False, idempotent=True)
    with store.session(tenant, now=NOW) as session:
        assert bare(session.handlers.upsert(one)) == one
        other = handler(tenant, handler_type="agent")
        written = session.handlers.upsert(other)
        assert bare(written) == changed(other, id=one.id)  # the id of the first stays
        assert session.handlers.get("mail") == written
        assert named(session.handlers.list(), "mail") == [written]
        assert session.handlers.get("no such") is None
        with pytest.raises(UsageError):
            session.handlers.upsert(changed(one, handler_type="no such"))


def test_a_handler_s_id_is_taken_once(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        one = session.handlers.upsert(handler(tenant))
        with pytest.raises(ConflictError):
            session.handlers.upsert(handler(tenant, id=one.id, name="other"))
        assert session.handlers.get("other") is None


def test_a_handler_is_removed_once(store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        session.handlers.upsert(handler(tenant))
        assert session.handlers.delete("mail") is True
        assert session.handlers.get("mail") is None
        assert session.handlers.delete("mail") is False
        session.handlers.upsert(handler(tenant))


def test_a_system_handler_neither_changes_nor_goes(store: SessionStore, tenant: str) -> None:
    one = handler(tenant, is_system=True, handler_path="a.b")
    with store.session(tenant, now=NOW) as session:
        session.handlers.upsert(one)
        assert bare(session.handlers.upsert(changed(one, id=handler(tenant).id))) == one  # no change
        for other in (changed(one, handler_path="c.d"), changed(one, is_system=False), changed(one, is_active=False)):
            with pytest.raises(ConflictError):
                session.handlers.upsert(other)
        with pytest.raises(ConflictError):
            session.handlers.delete("mail")
        found = session.handlers.get("mail")
        assert found is not None
        assert bare(found) == one


@pytest.mark.proves("0-X2")
def test_a_tenant_s_handler_hides_the_global_one_of_its_name(
    store: SessionStore, tenant: str, plant: Callable[..., None]
) -> None:
    shared, other = handler("*", name=fresh()), handler("*", name=fresh(), is_system=True)
    plant(shared, other)
    with store.session(tenant, now=NOW) as session:
        own = session.handlers.upsert(handler(tenant, name=shared.name, handler_type="agent"))
        assert session.handlers.get(shared.name) == own
        found = session.handlers.list()
        assert [row.name for row in found] == sorted({row.name for row in found})
        assert ids(named(found, shared.name, other.name)) == [
            {shared.name: own.id, other.name: other.id}[name] for name in sorted((shared.name, other.name))
        ]
        assert session.handlers.delete(other.name) is False
        with pytest.raises(UsageError):
            session.handlers.upsert(shared)
        assert session.handlers.delete(shared.name) is True
        seen = session.handlers.get(shared.name)
        assert seen is not None
        assert bare(seen) == shared
    with store.session(fresh(), now=NOW) as session:
        assert ids(named(session.handlers.list(), shared.name)) == [shared.id]


def test_handlers_come_in_the_order_of_code_points(store: SessionStore, tenant: str) -> None:
    names = ["b", "B", "a", "ä", "_"]
    with store.session(tenant, now=NOW) as session:
        for name in names:
            session.handlers.upsert(handler(tenant, name=name))
        assert [row.name for row in named(session.handlers.list(), *names)] == sorted(names)
