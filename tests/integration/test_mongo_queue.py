"""The queue on MongoDB where it is not as every queue: other applications' documents, failing servers, indexes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from itertools import chain
from threading import Event, Thread
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator.errors import OvertakenError, UnreachableError
from migrator.records import WorkerRecord
from migrator.scheduler.client import Scheduler
from migrator.sources.store_documents.ids import schedule_id
from migrator.store.mongo import candidates, repository
from migrator.store.mongo.places import document_of
from migrator.store.mongo.store import MongoStore
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.store.queue import Claim, Finish
from tests.contract.working import each_slot, end_of
from tests.stellaops_documents import fresh
from tests.store_mongo import opened
from tests.store_postgres import NOW, run, schedule, trigger

Base = Database[dict[str, Any]]

LEASE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
TENANT = "tenant-a"
WEEKLY = schedule_id(TENANT, "weekly scan")


def weekly(database: Base, **changes: Any) -> None:  # noqa: ANN401 - any BSON value
    """Insert a schedule of another application, whose id is no UUID, and two of its runs, spelled in both ways."""
    document = fresh("schedules", _id="weekly scan", id="weekly scan", deletedAt=..., deletedBy=..., **changes)
    database["schedules"].insert_one(document)
    least: dict[str, Any] = {"state": "queued", "startedAt": ..., "finishedAt": ..., "error": ...}
    for key, text in (("run one", "weekly scan"), ("run two", f"sch_{WEEKLY.hex}")):
        database["runs"].insert_one(fresh("runs", _id=key, id=key, scheduleId=text, **least))


def ended(claims: Any) -> list[Finish]:  # noqa: ANN401 - claims
    return [end_of(one) for one in claims]


def test_runs_of_another_application_are_claimed_ended_and_left_as_it_spelled_them(mongo_database: Base) -> None:
    weekly(mongo_database)
    before = {one["_id"]: one for one in mongo_database["runs"].find()}
    with opened(mongo_database) as store:
        claims = store.queue.claim("w", 9, LEASE)
        assert {one.run.source_id for one in claims} == {"run one", "run two"}
        assert {one.schedule.id if one.schedule else None for one in claims} == {WEEKLY}
        assert len(store.queue.heartbeat(claims, 2 * LEASE)) == 2
        assert len(store.queue.release(claims)) == 2
        for one in mongo_database["runs"].find():
            kept = {name: value for name, value in one.items() if name not in {"fence", "updatedAt"}}
            assert kept == before[one["_id"]]
        assert len(store.queue.finish(ended(store.queue.claim("w", 9, LEASE)))) == 2
        assert {one["state"] for one in mongo_database["runs"].find()} == {"completed"}


def test_a_limit_and_a_pause_hold_for_a_schedule_of_another_application_however_it_is_spelled(
    mongo_database: Base,
) -> None:
    weekly(mongo_database, maxConcurrency=1, priority=75)
    with opened(mongo_database) as store:
        (one,) = store.queue.claim("w", 9, LEASE)
        assert store.queue.claim("w", 9, LEASE) == []
        store.queue.finish(ended([one]))
        with store.session(TENANT) as session:
            assert session.schedules.change_status(WEEKLY, "scheduled", "paused") is not None
        assert store.queue.claim("w", 9, LEASE) == []


def test_a_document_that_nobody_can_read_hides_nothing_behind_it(mongo_database: Base) -> None:
    runs = [run(available_at=NOW + SECOND) for _ in range(3)]
    with opened(mongo_database) as store:
        for number in range(40):
            wrong = {"_id": f"a {number}", "tenantId": "a", "state": "queued", "availableAt": NOW}
            mongo_database["runs"].insert_one(wrong | ({} if number % 2 else {"createdAt": NOW, "stats": "none"}))
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        claims = [store.queue.claim("w", 1, LEASE) for _ in range(3)]
        assert {one.run.id for one in chain(*claims)} == {one.id for one in runs}
        assert store.queue.claim("w", 1, LEASE) == []
        mongo_database["runs"].update_many({}, {"$set": {"state": "running", "leaseExpiresAt": NOW}})
        assert {one.run.id for one in store.queue.expired(3)} == {one.id for one in runs}


def test_a_due_trigger_that_nobody_can_read_hides_nothing_behind_it(mongo_database: Base) -> None:
    of = schedule()
    due = [trigger(of, next_fire_at=NOW + SECOND) for _ in range(2)]
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_one(document_of(of))
        wrong = {"tenantId": "a", "scheduleId": f"sch_{of.id.hex}", "kind": "moon", "nextFireAt": NOW}
        mongo_database["triggers"].insert_many([wrong | {"_id": f"a {number}"} for number in range(3)])
        mongo_database["triggers"].insert_many([document_of(one) for one in due])
        fired = [store.queue.fire_due(each_slot, 1, NOW + SECOND) for _ in range(2)]
        assert {one.trigger_id for one in chain(*fired)} == {one.id for one in due}


@pytest.mark.parametrize("prepared", [True, False])
@pytest.mark.parametrize("smallest", [1, 5, 100])
def test_the_order_is_the_same_whether_little_waits_or_much(
    smallest: int, *, prepared: bool, mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documents are another application's: the priority of their schedules is written into them first."""
    monkeypatch.setattr(candidates, "_SMALLEST_PAGE", smallest)
    priorities = [None, 75, 25, 75, 100, 50, 10, 100, None]
    schedules = [schedule(priority=priority) for priority in priorities]
    times = [NOW + SECOND * (number % 5) for number in range(36)]
    runs = [run(schedule_id=schedules[number % 9].id, available_at=at) for number, at in enumerate(times)]
    runs += [run(available_at=NOW + SECOND * 2), run(created_at=NOW + SECOND * 3)]
    order = {of.id: of.priority or 50 for of in schedules}
    expected = sorted(
        runs, key=lambda one: (-order.get(one.schedule_id or uuid4(), 50), one.available_at or one.created_at, one.id)
    )
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_many([document_of(one) for one in schedules])
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        if prepared:
            store.prepare()
        assert store.copy_priorities(lambda _: True) == 24
        assert store.copy_priorities(lambda _: True) == 0
        claimed = list[UUID]()
        for size in (1, 2, 7, 50):
            claimed += [one.run.id for one in store.queue.claim("w", size, LEASE)]
    assert claimed == [one.id for one in expected]


@pytest.mark.proves("2-X7", "4-C6")
def test_who_claims_while_another_one_counts_the_runs_of_a_schedule_takes_none_of_them(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, free = schedule(max_concurrency=1), run(available_at=NOW + SECOND)
    runs = [run(schedule_id=of.id, available_at=NOW) for _ in range(2)]
    meanwhile: list[Claim] = []
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_one(document_of(of))
        mongo_database["runs"].insert_many([document_of(one) for one in [*runs, free]])
        place = "migrator.store.mongo.queue.counted"

        def counted(*arguments: Any) -> dict[UUID, int]:  # noqa: ANN401 - as counted
            monkeypatch.setattr(place, repository.counted)
            found = repository.counted(*arguments)
            meanwhile.extend(store.queue.claim("other", 1, LEASE))
            return found

        monkeypatch.setattr(place, counted)
        claims = store.queue.claim("w", 1, LEASE)
        assert len(claims) == 1
        assert [one.run.id for one in meanwhile] == [free.id]
        assert mongo_database["runs"].count_documents({"state": "running", "scheduleId": f"sch_{of.id.hex}"}) == 1


@contextmanager
def failing(client: MongoClient[Any], *commands: str, times: int = 1, **how: Any) -> Iterator[None]:  # noqa: ANN401 - of the fail point
    """Let the store's next commands of these kinds fail."""
    data = {"failCommands": [*commands], "appName": "migrator", **how}
    client.admin.command("configureFailPoint", "failCommand", mode={"times": times}, data=data)
    try:
        yield
    finally:
        client.admin.command("configureFailPoint", "failCommand", mode="off")


TRANSIENT = {"errorLabels": ["TransientTransactionError"]}
FAULTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "a write conflict": (("update",), {"errorCode": 112, **TRANSIENT}),
    "a write conflict at the commit": (("commitTransaction",), {"errorCode": 112, **TRANSIENT}),
    "a primary that stepped down": (("update",), {"errorCode": 10107, **TRANSIENT}),
    "a connection that broke in the middle": (("update",), {"closeConnection": True}),
    "a connection that broke at the commit": (("commitTransaction",), {"closeConnection": True}),
    "a commit that may not have reached the others": (
        ("commitTransaction",),
        {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}},
    ),
}


@pytest.fixture
def transactions_that_end(mongo_client: MongoClient[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """End a transaction whose commit is refused, as a server does that refuses it.

    The fail point leaves it open, and what it holds is in the way of the next attempt for up to a minute.
    """
    commit = ClientSession.commit_transaction

    def commit_or_end(session: ClientSession) -> None:
        try:
            commit(session)
        except OperationFailure as error:
            if error.has_error_label("TransientTransactionError"):
                mongo_client.admin.command("killAllSessions", [])
            raise

    monkeypatch.setattr(ClientSession, "commit_transaction", commit_or_end)


@pytest.mark.usefixtures("transactions_that_end")
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_and_nothing_done_twice_where_the_server_fails_once(
    fault: str, mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    commands, how = FAULTS[fault]
    of = schedule(max_concurrency=9)
    cause = trigger(of)
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_one(document_of(of))
        mongo_database["triggers"].insert_one(document_of(cause))
        with failing(mongo_client, *commands, times=2 if "update" in commands else 1, **how):  # the mark, too
            (made,) = store.queue.fire_due(each_slot, 9, NOW)
        assert mongo_database["triggers"].count_documents({"firing": {"$exists": True}}) == 0
        assert made.run_number == 1
        with failing(mongo_client, *commands, **how):
            claims = store.queue.claim("w", 9, LEASE, NOW + SECOND)
        assert [(one.run.id, one.fence) for one in claims] == [(made.id, 1)]
        with failing(mongo_client, *commands, **how):
            assert store.queue.heartbeat(claims, 2 * LEASE, NOW + SECOND) == [made.id]
        with failing(mongo_client, *commands, **how):
            assert store.queue.finish(ended(claims), NOW + SECOND) == [made.id]
        (document,) = mongo_database["runs"].find()
        assert (document["state"], document["fence"], document["runNumber"]) == ("completed", 1, 1)


ALONE: dict[str, dict[str, Any]] = {
    "a primary that stepped down": {"errorCode": 10107, "errorLabels": ["RetryableWriteError"]},
    "a connection that broke": {"closeConnection": True},
}


@pytest.mark.parametrize("fault", ALONE)
def test_a_claim_of_a_schedule_without_a_limit_is_made_once_where_the_server_fails_once(
    fault: str, mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    """The fail point does not wake the driver's monitor, as a server does that steps down: it looks twice a second."""
    with opened(mongo_database, options="&heartbeatFrequencyMS=500") as store:
        mongo_database["runs"].insert_many([document_of(run(available_at=NOW)) for _ in range(2)])
        with failing(mongo_client, "findAndModify", **ALONE[fault]):
            claims = store.queue.claim("w", 9, LEASE)
        assert [one.fence for one in claims] == [1, 1]
        assert {one["fence"] for one in mongo_database["runs"].find({"state": "running"})} == {1}


def test_what_was_claimed_before_the_server_failed_is_given_to_the_caller(
    mongo_client: MongoClient[Any], mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(mongo_database) as store:
        mongo_database["runs"].insert_many([document_of(run(available_at=NOW)) for _ in range(3)])
        take = repository.CrossTenantRepository.take
        done = list[object]()

        def second_fails(*arguments: Any) -> Any:  # noqa: ANN401 - as take
            if done:
                with failing(mongo_client, "findAndModify", errorCode=8000):
                    return take(*arguments)
            done.append(take(*arguments))
            return done[0]

        monkeypatch.setattr(repository.CrossTenantRepository, "take", second_fails)
        (claim,) = store.queue.claim("w", 9, LEASE)
        monkeypatch.undo()
        assert mongo_database["runs"].count_documents({"state": "running"}) == 1
        assert store.queue.finish(ended([claim])) == [claim.run.id]


SNAPSHOT: dict[str, Any] = {"errorCode": 246, **TRANSIENT}
"""SnapshotUnavailable: a collection was created after the transaction took its snapshot."""


def test_a_session_whose_first_read_is_refused_for_the_moment_begins_again(
    mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    of, new = schedule(), run(available_at=NOW)
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_one(document_of(of))
        with failing(mongo_client, "find", times=3, **SNAPSHOT), store.session(of.tenant_id) as session:
            assert [one.id for one in session.schedules.list(ScheduleQuery())] == [of.id]
            session.runs.create(new)
        with store.session(of.tenant_id) as session:
            assert [one.id for one in session.runs.list(RunQuery()).runs] == [new.id]


@pytest.mark.parametrize("code", [24, 246])
def test_a_call_waits_for_a_collection_that_is_created_or_gets_an_index(
    code: int, mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    """It is not told that another one was first: nobody was, and a single poll would find nothing."""
    of = schedule()
    busy: dict[str, Any] = {"errorCode": code, **TRANSIENT}
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_one(document_of(of))
        mongo_database["triggers"].insert_one(document_of(trigger(of)))
        with failing(mongo_client, "update", times=10, **busy):
            assert len(store.queue.fire_due(each_slot, 9, NOW)) == 1
        with failing(mongo_client, "findAndModify", times=6, **busy):
            assert store.locks.acquire("a", "planner", ttl=LEASE) is not None


def test_a_session_that_has_read_something_is_not_begun_again_unseen(
    mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    of = schedule()
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_one(document_of(of))
        with pytest.raises(OvertakenError), store.session(of.tenant_id) as session:  # noqa: PT012 - it is the session that fails
            assert session.schedules.get(of.id) is not None
            with failing(mongo_client, "find", **SNAPSHOT):
                session.runs.list(RunQuery())


def test_a_query_of_the_client_that_is_refused_in_the_middle_is_made_again(
    mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    """As happens while another process starts, and creates the indexes."""
    of, made = schedule(), run()
    with opened(mongo_database) as store:
        with store.session(of.tenant_id) as session:
            session.schedules.upsert(of)
            session.runs.create(msgspec.structs.replace(made, schedule_id=of.id))
        with failing(mongo_client, "aggregate", times=2, **SNAPSHOT):  # not its first read
            assert Scheduler(store, of.tenant_id).stats(of.id).total == 1


def test_a_server_that_does_not_mend_is_named_and_nothing_is_kept(
    mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    with opened(mongo_database) as store:
        mongo_database["runs"].insert_one(document_of(run(available_at=NOW)))
        with (
            failing(mongo_client, "findAndModify", times=1, errorCode=8000),
            pytest.raises(UnreachableError, match="8000"),
        ):
            store.queue.claim("w", 9, LEASE)
        assert [one.fence for one in store.queue.claim("w", 9, LEASE)] == [1]


@pytest.mark.parametrize("labels", [["RetryableWriteError"], []], ids=["the driver repeats it", "nobody repeats it"])
def test_a_claim_of_which_a_primary_cannot_say_whether_it_lasts(
    labels: list[str], mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    """A primary that steps down has claimed the run, and reports beside it that a majority may not have it."""
    mends = bool(labels)
    with opened(mongo_database) as store:
        mongo_database["runs"].insert_one(document_of(run(available_at=NOW)))
        error = {"code": 11602, "codeName": "InterruptedDueToReplStateChange", "errmsg": "operation was interrupted"}
        named = nullcontext() if mends else pytest.raises(UnreachableError, match="11602")
        with failing(mongo_client, "findAndModify", times=1, writeConcernError=error, errorLabels=labels), named:
            assert [one.fence for one in store.queue.claim("w", 9, LEASE)] == [1]
    assert [one["fence"] for one in mongo_database["runs"].find()] == [1]


def test_a_primary_that_steps_down_in_the_middle_loses_no_run_and_runs_none_twice(
    mongo_client: MongoClient[Any], mongo_database: Base
) -> None:
    runs = [run(available_at=NOW) for _ in range(120)]
    done, said, halfway = list[UUID](), list[str](), Event()

    def work(store: MongoStore) -> None:
        while mongo_database["runs"].find_one({"state": {"$ne": "completed"}}) is not None:
            try:
                claims: list[Claim] = [*store.queue.claim("w", 4, LEASE), *store.queue.expired(9, store.now() + LEASE)]
                done.extend(store.queue.finish(ended(claims)))
            except UnreachableError as error:  # named, and the work goes on
                said.append(str(error))
            if len(done) >= 40:
                halfway.set()

    with opened(mongo_database) as store:
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        thread = Thread(target=work, args=(store,))
        thread.start()
        halfway.wait()
        mongo_client.admin.command("replSetStepDown", 1, force=True)
        thread.join()
    assert sorted(done) == sorted(one.id for one in runs)
    assert {one["fence"] for one in mongo_database["runs"].find()} == {1}


def profiled(database: Base, act: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the server's notes about each of the store's commands meanwhile."""
    database.command("profile", 2)
    act()
    database.command("profile", 0)
    noted = [*database["system.profile"].find({"appName": "migrator", "planSummary": {"$exists": True}})]
    database["system.profile"].drop()
    assert noted
    return noted


@pytest.mark.proves("2-X6")
def test_every_step_of_the_queue_has_its_index_and_reads_what_it_needs(mongo_database: Base) -> None:
    """3 000 runs that ended, 400 that wait: nobody reads more than a page of them."""
    schedules = [schedule(priority=75 if number % 10 == 0 else None, max_concurrency=50) for number in range(100)]
    old = [run(schedule_id=schedules[number % 100].id, state="completed") for number in range(3_000)]
    new = [run(schedule_id=schedules[number % 100].id, available_at=NOW) for number in range(400)]
    triggers = [trigger(schedules[number % 100], next_fire_at=NOW + SECOND * number) for number in range(1_000)]
    with opened(mongo_database) as store:
        for name, rows in (("schedules", schedules), ("runs", old + new), ("triggers", triggers)):
            mongo_database[name].insert_many([document_of(one) for one in rows])
        store.workers.register(WorkerRecord(id=uuid4(), tenant_id="*", kind="worker", status="active"), NOW - 2 * LEASE)
        claims, said = list[Claim](), list[str]()
        steps: dict[str, Callable[[], object]] = {
            "claim": lambda: claims.extend(store.queue.claim("w", 10, LEASE, NOW)),
            "heartbeat": lambda: store.queue.heartbeat(claims, LEASE, NOW),
            "expired": lambda: store.queue.expired(10, NOW + 2 * LEASE),
            "finish": lambda: store.queue.finish(ended(claims), NOW),
            "tenants": lambda: said.extend(store.queue.tenants()),
            "dead": lambda: store.workers.declare_dead(LEASE, NOW),
            "fire": lambda: store.queue.fire_due(each_slot, 10, NOW + SECOND * 9),
        }
        for step, act in steps.items():
            for one in profiled(mongo_database, act):
                where = (step, one["ns"], one["planSummary"], one.get("docsExamined"))
                assert "COLLSCAN" not in one["planSummary"], where
                assert one.get("docsExamined", 0) <= 100, where
                assert one.get("keysExamined", 0) <= 210, where
        assert len(claims) == 10
        assert said == ["a"]
