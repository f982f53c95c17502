"""Changes of documents arrive in the rows, whatever they are and whoever else they concern."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from bson import Binary
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator.config import Settings
from migrator.pipeline.completion import reassign_contested_keys
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import applier
from tests.agenda_documents import created_4
from tests.copying import EVERY_ID, contents, number, quarantine, run_of
from tests.stellaops_documents import fresh
from tests.tailing import assert_as_a_fresh_copy, caught_up, compared, copied

Source = Database[Any]
NewDsn = Callable[[], str]


@pytest.fixture
def source(mongo_database: Source) -> Source:
    """A schedule, two runs of it, and one of everything else."""
    for name in (
        "schedules",
        "triggers",
        "runs",
        "graph_jobs",
        "graph_job_events",
        "locks",
        "run_summaries",
        "execution_logs",
    ):
        mongo_database[name].insert_one(fresh(name))
    return mongo_database


@pytest.fixture
def settings(source: Source, scheduler_dsn: str) -> Settings:
    """The settings of a complete copy."""
    return copied(source, scheduler_dsn)


def stored(dsn: str, table: str, column: str = "source_id") -> list[Any]:
    copied = "WHERE key <> '*/persistence'" if table == "locks" else ""  # that row says what the database is
    with psycopg.connect(dsn) as connection:
        return [row[0] for row in connection.execute(f"SELECT {column} FROM scheduler.{table} {copied} ORDER BY 1")]


def test_every_kind_of_change(
    source: Source, settings: Settings, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    runs = source["runs"]
    runs.insert_many([run_of(_id=name) for name in ("inserted", "updated", "replaced", "deleted", "back again")])
    caught_up(settings)
    runs.update_one({"_id": "updated"}, {"$set": {"state": "error", "note": 1}, "$unset": {"trigger": ""}})
    runs.replace_one({"_id": "replaced"}, run_of(_id="replaced", tenantId="another"))
    runs.delete_many({"_id": {"$in": ["deleted", "back again"]}})
    runs.insert_one(run_of(_id="back again", state="cancelled"))
    done = caught_up(settings)
    assert (done.reached, done.applied, done.owed) == (True, True, 0)
    assert (done.events, done.documents) == (5, 4)
    assert "deleted" not in stored(scheduler_dsn, "runs")
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)
    again = caught_up(settings)
    assert (again.events, again.documents, again.written, again.removed) == (0, 0, 0, 0)


def test_ids_of_every_type(source: Source, settings: Settings, new_scheduler_dsn: NewDsn) -> None:
    source["audit"].insert_many([{**fresh("audit"), "_id": value} for value in EVERY_ID])
    caught_up(settings)
    assert compared(settings) == []
    source["audit"].update_many({}, {"$set": {"note": 1}})
    source["audit"].delete_many({"_id": {"$type": ["string", "object", "minKey", "maxKey"]}})
    caught_up(settings)
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_an_id_that_cannot_be_read_is_followed_too(source: Source, settings: Settings, scheduler_dsn: str) -> None:
    broken = RawBSONDocument(b"\x13\x00\x00\x00\x02_id\0\x05\x00\x00\x00ab\xffd\0\0")
    source["audit"].insert_one(broken)
    caught_up(settings)
    assert [one[2] for one in quarantine(scheduler_dsn)] == ["undecodable"]
    source["audit"].delete_one(broken)
    caught_up(settings)
    assert quarantine(scheduler_dsn) == []


def test_an_orphan_gets_its_parent_and_loses_it(
    source: Source, settings: Settings, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    source["runs"].insert_one(run_of(_id="child", scheduleId="sch_later", retryOf="parent"))
    source["triggers"].insert_one(fresh("triggers", _id="waits", scheduleId="sch_later"))
    caught_up(settings)
    assert [one[:3] for one in quarantine(scheduler_dsn)] == [("triggers", "waits", "orphan")]
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs WHERE retry_of IS NOT NULL") == 0
    source["schedules"].insert_one(fresh("schedules", _id="sch_later", name="later"))
    source["runs"].insert_one(run_of(_id="parent"))
    caught_up(settings)
    assert quarantine(scheduler_dsn) == []
    child = "SELECT schedule_id IS NOT NULL AND retry_of IS NOT NULL FROM scheduler.runs WHERE source_id = 'child'"
    assert number(scheduler_dsn, child)
    assert compared(settings) == []
    source["schedules"].delete_one({"_id": "sch_later"})
    source["runs"].delete_one({"_id": "parent"})
    caught_up(settings)
    assert not number(scheduler_dsn, child)
    assert [one[:3] for one in quarantine(scheduler_dsn)] == [("triggers", "waits", "orphan")]
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_an_orphan_of_the_copy_gets_its_parent(source: Source, scheduler_dsn: str) -> None:
    source["runs"].insert_one(run_of(_id="child", scheduleId="sch_later", retryOf="parent"))
    settings = copied(source, scheduler_dsn)
    source["schedules"].insert_one(fresh("schedules", _id="sch_later", name="later"))
    source["runs"].insert_one(run_of(_id="parent"))
    done = caught_up(settings)
    assert done.events < done.documents
    assert compared(settings) == []


def test_quarantine_comes_and_goes_with_its_document(source: Source, settings: Settings, scheduler_dsn: str) -> None:
    key = source["runs"].find_one({}, {"_id": 1})
    assert key is not None
    before = contents(scheduler_dsn)["runs"]
    state = (source["runs"].find_one(key) or {})["state"]
    source["runs"].update_one(key, {"$set": {"state": "elsewhere"}})
    assert caught_up(settings).quarantined == 1
    assert contents(scheduler_dsn)["runs"][0] == 0  # the row of a document that is set aside is no copy of it
    assert compared(settings) == []
    source["runs"].update_one(key, {"$set": {"state": state}})
    assert caught_up(settings).quarantined == 0
    assert contents(scheduler_dsn)["runs"] == before
    source["runs"].update_one(key, {"$set": {"state": "elsewhere"}})
    caught_up(settings)
    source["runs"].delete_one(key)
    assert caught_up(settings).quarantined == 0
    assert compared(settings) == []


def test_a_contested_key_goes_to_the_first_and_on_when_it_is_gone(
    source: Source, settings: Settings, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    held = fresh("locks")
    source["locks"].insert_many([{**held, "_id": f"{name}"} for name in ("b", "c", "a")])
    source["locks"].delete_one({"_id": held["_id"]})
    caught_up(settings)
    assert stored(scheduler_dsn, "locks") == ["a"]
    assert {one[1] for one in quarantine(scheduler_dsn)} == {"b", "c"}
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)
    source["locks"].delete_one({"_id": "a"})
    caught_up(settings)
    assert stored(scheduler_dsn, "locks") == ["b"]
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_a_document_that_comes_before_two_holders_takes_its_id_from_one_and_its_key_from_the_other(
    source: Source, settings: Settings, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    held = fresh("locks")
    source["locks"].delete_many({})
    by_id, by_key = Binary(bytes(range(16)), 4), "z"
    source["locks"].insert_many([{**held, "_id": by_id, "resource": "another"}, {**held, "_id": by_key}])
    caught_up(settings)
    assert len(stored(scheduler_dsn, "locks")) == 2
    first = f"lck_{bytes(range(16)).hex()}"
    source["locks"].insert_one({**held, "_id": first})
    caught_up(settings)
    assert stored(scheduler_dsn, "locks") == [first]
    assert len(quarantine(scheduler_dsn)) == 2
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_rows_that_do_not_say_their_document(
    source: Source, settings: Settings, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    source["graph_jobs"].insert_one(fresh("graph_jobs", _id="another"))
    source["graph_jobs"].update_many({}, {"$set": {"tenantId": "moved"}})  # another row: the id holds the tenant
    caught_up(settings)
    assert set(stored(scheduler_dsn, "graph_jobs", "tenant_id")) == {"moved"}
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)
    source["graph_jobs"].delete_many({})
    caught_up(settings)
    assert stored(scheduler_dsn, "graph_jobs", "id") == []
    assert compared(settings) == []


@pytest.mark.parametrize("name", ["runs", "graph_job_events"])
def test_a_dropped_collection(name: str, source: Source, settings: Settings, scheduler_dsn: str) -> None:
    source[name].drop()
    source[name].insert_one(fresh(name, _id="after") if name == "runs" else fresh(name))
    caught_up(settings)
    assert number(scheduler_dsn, f"SELECT count(*) FROM scheduler.{name}") == 1
    assert compared(settings) == []


def test_renamed_collections(source: Source, settings: Settings, new_scheduler_dsn: NewDsn) -> None:
    source["runs"].rename("elsewhere")
    source["restored"].insert_many([run_of(_id="one"), run_of(_id="two")])
    source["restored"].rename("runs")
    source["aside"].insert_one(fresh("schedules", _id="only"))
    source["aside"].rename("schedules", dropTarget=True)
    caught_up(settings)
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_a_dropped_database_and_what_comes_after_it(
    source: Source, settings: Settings, mongo_client: MongoClient[Any], scheduler_dsn: str
) -> None:
    mongo_client.drop_database(source.name)
    caught_up(settings)
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 0
    source["runs"].insert_one(run_of(_id="after"))
    caught_up(settings)
    assert stored(scheduler_dsn, "runs") == ["after"]


def test_a_document_whose_events_would_pass_the_limit(source: Source, settings: Settings, scheduler_dsn: str) -> None:
    """An event with the document and its change is larger than 16 MB; the server refuses to send it."""
    caught_up(settings)
    name = source["runs"].insert_one(run_of(_id="large", one="x" * 8_000_000)).inserted_id
    with source.watch(full_document="updateLookup") as stream:
        source["runs"].update_one({"_id": name}, {"$set": {"two": "y" * 8_500_000, "note": Binary(b"z" * 100)}})
        with pytest.raises(OperationFailure, match="BSONObj size"):
            stream.next()
    done = caught_up(settings)
    assert done.events == 2
    assert (
        number(scheduler_dsn, "SELECT length(extra::text) FROM scheduler.runs WHERE source_id = 'large'") > 16_500_000
    )
    assert compared(settings) == []


def test_rows_that_many_documents_make_together(
    mongo_database: Source, scheduler_dsn: str, new_scheduler_dsn: NewDsn
) -> None:
    jobs = mongo_database["agendaJobs"]
    jobs.insert_many([created_4(_id=number, lastModifiedBy=f"worker-{number}") for number in range(3)])
    settings = copied(mongo_database, scheduler_dsn, profile="agenda")
    jobs.insert_one(created_4(_id=7, lastModifiedBy="worker-7"))
    jobs.delete_one({"_id": 1})
    caught_up(settings)
    assert len(stored(scheduler_dsn, "workers")) == 3
    assert compared(settings) == []
    assert_as_a_fresh_copy(settings, mongo_database, new_scheduler_dsn)


def reassigned(settings: Settings) -> dict[str, set[UUID]]:
    """Give each contested key to its first document, in a session of its own; return the ids of changed rows."""
    sessions = Sessions(settings)
    plan = latest_plan(sessions.target)
    assert plan is not None
    try:
        return reassign_contested_keys(sessions, plan, plan_context(plan))
    finally:
        sessions.close()


def test_a_document_that_lost_its_key_and_cannot_be_read_any_more_does_not_end_the_tail(
    source: Source, scheduler_dsn: str
) -> None:
    """The pass that gives the keys out goes on without it."""
    numbered = {"runNumber": 7, "scheduleId": fresh("schedules")["_id"]}
    source["runs"].insert_many([run_of(_id=f"run_{one}", **numbered) for one in ("a", "b")])
    settings = copied(source, scheduler_dsn)
    assert [one[1:3] for one in quarantine(scheduler_dsn)] == [("run_b", "duplicate-key")]
    source["runs"].update_one({"_id": "run_b"}, {"$set": {"state": "no state at all"}})
    assert not reassigned(settings)
    caught_up(settings)
    assert [one[1:3] for one in quarantine(scheduler_dsn)] == [("run_b", "unknown-value")]


def test_a_holder_of_a_contested_key_that_moved_to_another_tenant_does_not_end_the_tail(
    source: Source, scheduler_dsn: str, new_scheduler_dsn: NewDsn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stored row still has the key; the row that its document makes now is another one."""
    locks = source["locks"]
    locks.delete_many({})
    locks.insert_one(fresh("locks", _id="second"))
    settings = copied(source, scheduler_dsn)
    locks.insert_one(fresh("locks", _id="first"))
    with monkeypatch.context() as patch:
        patch.setattr(applier, "reassign_contested_keys", lambda *_: {})
        caught_up(settings)
    assert [one[1:3] for one in quarantine(scheduler_dsn)] == [("first", "duplicate-key")]
    locks.update_one({"_id": "second"}, {"$set": {"tenantId": "another"}})
    assert not reassigned(settings)
    caught_up(settings)
    assert quarantine(scheduler_dsn) == []
    assert stored(scheduler_dsn, "locks") == ["first", "second"]
    assert_as_a_fresh_copy(settings, source, new_scheduler_dsn)


def test_a_contested_key_with_nul_in_it_is_looked_up_as_it_is_stored(source: Source, scheduler_dsn: str) -> None:
    source["handlers"].insert_many([fresh("handlers", _id=f"hdl_{one}", name="a\0b") for one in "ab"])
    copied(source, scheduler_dsn)
    assert [one[1:3] for one in quarantine(scheduler_dsn)] == [("hdl_b", "duplicate-key")]
