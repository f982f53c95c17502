"""Locks on MongoDB where they are not as all locks: documents of other applications, guarded sessions, waiting."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from bson.int64 import Int64
from pymongo import MongoClient
from pymongo.database import Database

from migrator.errors import ConflictError, LostLockError
from migrator.records import AuditEntry
from migrator.store import locks
from migrator.store.mongo import locks as module
from migrator.store.mongo.locks import MongoLock, MongoLocks
from migrator.store.mongo.store import MongoSession, MongoStore
from tests.contract.rows import entry
from tests.integration.test_mongo_queue import FAULTS, failing
from tests.store_mongo import opened
from tests.store_postgres import NOW

Base = Database[dict[str, Any]]

TTL = timedelta(seconds=30)
SECOND = timedelta(seconds=1)
OVER = NOW + TTL


def taken(store: MongoStore, now: datetime = NOW) -> MongoLock:
    handle = store.locks.acquire("a", "planner", ttl=TTL, holder="me", now=now)
    assert handle is not None
    return handle


FOREIGN: dict[str, dict[str, Any]] = {
    "named by its id": {"_id": "planner", "expiresAt": OVER},
    "named by its field": {"_id": 7, "resource": "planner", "expiresAt": OVER},
    "with another name for its end": {"_id": "planner", "ttlAt": OVER},
    "with its end as a text": {"_id": "planner", "expiresAt": "2025-11-02T09:00:30.000+01:00"},
    "with a long fence": {"_id": "planner", "expiresAt": OVER, "fence": Int64(41)},
    "twice": {"_id": "a/planner", "resource": "planner", "expiresAt": OVER},
}


@pytest.mark.proves("0-T2.8.2")
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_lock_of_another_application_is_respected_until_it_is_over(kind: str, mongo_database: Base) -> None:
    theirs = {"tenantId": "a", "owner": "worker-3"} | FOREIGN[kind]
    with opened(mongo_database) as store:
        mongo_database["locks"].insert_one(theirs)
        if kind == "twice":
            mongo_database["locks"].insert_one({"_id": "planner", "tenantId": "a", "owner": "late", "expiresAt": NOW})
        fence = int(theirs.get("fence") or 0)
        assert store.locks.holder("a", "planner", OVER - SECOND) == ("worker-3", fence)
        assert store.locks.acquire("a", "planner", ttl=TTL, now=OVER - SECOND) is None
        mine = taken(store, OVER)
        assert mine.fence == fence + 1
        assert store.locks.holder("a", "planner", OVER) == ("me", mine.fence)
        assert mine.release(now=OVER)
        assert taken(store, OVER).fence == fence + 2
        found = mongo_database["locks"].find_one({"_id": theirs["_id"]})
        assert found is not None
        assert "ttlAt" not in found


@pytest.mark.parametrize("end", [{}, {"expiresAt": None}, {"expiresAt": "some day"}])
def test_a_lock_whose_end_is_not_said_or_cannot_be_read_is_never_over(
    end: dict[str, Any], mongo_database: Base
) -> None:
    with opened(mongo_database) as store:
        mongo_database["locks"].insert_one({"_id": "planner", "tenantId": "a", "owner": "worker-3"} | end)
        assert store.locks.acquire("a", "planner", ttl=TTL, now=NOW + timedelta(days=9000)) is None


def test_the_fence_rises_also_where_an_index_of_another_application_deletes_what_is_over(
    mongo_database: Base,
) -> None:
    with opened(mongo_database) as store:
        first = taken(store)
        mongo_database["locks"].create_index("expiresAt", expireAfterSeconds=3600)
        mongo_database["locks"].delete_many({})  # as the server does, some time after
        second = taken(store, OVER)
        assert second.fence > first.fence
        assert not first.renew(now=NOW)
        mongo_database["locks"].delete_many({})
        assert store.now() > NOW
        third = taken(store, OVER + TTL)
        assert third.fence > second.fence


def guarded(store: MongoStore, handle: MongoLock, now: datetime = NOW) -> Callable[[MongoSession], AuditEntry]:
    def write(session: MongoSession) -> AuditEntry:
        line = entry("a", occurred_at=now)
        session.audit.append(line)
        store.locks.guard(session, "a", "planner", handle.fence)
        return line

    return write


@pytest.mark.proves("4-L6")
def test_nobody_acquires_a_lock_before_a_guarded_session_has_ended(mongo_database: Base) -> None:
    with opened(mongo_database) as store:
        mine = taken(store)
        with store.session("a", now=NOW) as session:
            line = guarded(store, mine)(session)
            assert store.locks.acquire("a", "planner", ttl=TTL, now=OVER) is None
            assert mine.renew(now=NOW)  # nor does the session keep its holder from renewing
        assert taken(store, OVER).fence == mine.fence + 1
        assert [one["_id"] for one in mongo_database["audit"].find()] == [f"aud_{line.id.hex}"]
        assert {one["_id"] for one in mongo_database["locks"].find()} == {"a/planner"}  # no gate is left behind


@pytest.mark.proves("4-L6")
def test_a_session_that_began_before_another_one_took_the_lock_cannot_be_guarded_any_more(mongo_database: Base) -> None:
    with opened(mongo_database) as store:
        mine = taken(store)
        with pytest.raises(LostLockError), store.session("a", now=NOW) as session:  # noqa: PT012 - the session itself raises
            session.audit.list(1)  # from here on it sees the lock as it was
            theirs = taken(store, OVER)
            guarded(store, mine)(session)
        assert mongo_database["audit"].count_documents({}) == 0
        assert theirs.renew(now=OVER)


def test_guarded_sessions_go_through_different_gates_at_the_same_time(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = iter([3, 4, 4])
    monkeypatch.setattr(module, "randrange", lambda _: next(gates))
    with opened(mongo_database) as store:
        mine = taken(store)
        with store.session("a", now=NOW) as first, store.session("a", now=NOW) as second:
            guarded(store, mine)(first)
            guarded(store, mine)(second)
            with pytest.raises(ConflictError), store.session("a", now=NOW) as third:
                guarded(store, mine)(third)
        assert mongo_database["audit"].count_documents({}) == 2


@pytest.mark.proves("0-T2.8.3")
def test_who_waits_tries_again_and_again_until_its_time_is_over(mongo_database: Base) -> None:
    with opened(mongo_database) as store:
        mine, waits = store.locks.acquire("a", "planner", ttl=timedelta(hours=1)), list[float]()
        assert mine is not None

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 5:
                assert mine.release()

        patient = MongoLocks(store.database, wait)
        second = patient.acquire("a", "planner", ttl=TTL, timeout=timedelta(hours=1))
        assert second is not None
        assert second.fence == mine.fence + 1
        assert len(waits) == 5
        assert all(0.005 <= one <= 0.05 for one in waits)
        assert len(set(waits)) > 1
        waits.clear()
        assert patient.acquire("a", "planner", ttl=TTL, timeout=timedelta(microseconds=1)) is None
        assert waits == []
        assert second.renew()


@pytest.mark.proves("0-T2.8.3")
def test_the_waits_for_a_lock_together_last_as_long_as_the_timeout(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waits = [1_000.0], list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    with opened(mongo_database) as store:
        mine = store.locks.acquire("a", "planner", ttl=timedelta(hours=1))
        assert mine is not None
        monkeypatch.setattr(locks, "monotonic", lambda: clock[0])
        patient = MongoLocks(store.database, wait)
        assert patient.acquire("a", "planner", ttl=TTL, timeout=timedelta(seconds=2)) is None
        assert sum(waits) == pytest.approx(2)
        assert mine.release()


@pytest.mark.parametrize("fault", [name for name in FAULTS if "commit" in name or "conflict" not in name])
def test_a_server_that_fails_once_leaves_a_lock_that_its_handle_holds(
    fault: str, mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    commands, how = FAULTS[fault]
    commands = tuple("findAndModify" if one == "update" else one for one in commands)
    with opened(mongo_database) as store:
        for fence in (1, 2):
            with failing(mongo_client, *commands, **how):
                handle = store.locks.acquire("a", "planner", ttl=TTL, timeout=TTL)
            assert handle is not None
            assert handle.fence == fence
            assert store.locks.acquire("a", "planner", ttl=TTL) is None
            assert handle.renew()
            assert handle.release()
