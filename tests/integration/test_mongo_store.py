"""The store on MongoDB where it is not as every store: documents of other applications, transactions, indexes."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from bson import encode
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database

from migrator.config import MongoSettings, PersistenceSettings
from migrator.errors import ArchiveError, ConflictError, RefusedError, UnreachableError, UsageError
from migrator.records import AuditEntry
from migrator.scheduler.archive import read_archive
from migrator.scheduler.retention import RetentionRule, apply
from migrator.sources.store_documents.ids import schedule_id
from migrator.store.mongo import store as mongo_store
from migrator.store.mongo.indexes import PLAIN, UNIQUE, ensure_indexes
from migrator.store.mongo.places import document_of
from migrator.store.mongo.store import MongoStore
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.values.identity import row_id
from tests.stellaops_documents import fresh
from tests.store_mongo import opened, settings
from tests.store_postgres import NOW, graph_job, policy_job, run, schedule, trigger

Base = Database[dict[str, Any]]
TENANT = "tenant-a"
WEEKLY = schedule_id(TENANT, "weekly scan")


def weekly(database: Base, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any BSON value
    """Insert a schedule of another application: its id is no UUID, and it has what no column holds."""
    document = fresh("schedules", _id="weekly scan", id="weekly scan", deletedAt=..., deletedBy=..., **changes)
    document["limits"] = {"maxJobs": Int64(5)}
    document["strange"] = {"kept": True}
    document["createdAt"] = "2025-11-01T09:00:00.1234567+01:00"
    database["schedules"].insert_one(document)
    return document


def test_a_document_of_another_application_is_found_by_the_id_of_its_row(mongo_database: Base) -> None:
    weekly(mongo_database)
    mongo_database["runs"].insert_one(fresh("runs", scheduleId="weekly scan"))
    with opened(mongo_database) as store, store.session(TENANT, now=NOW) as session:
        found = session.schedules.get(WEEKLY)
        assert found is not None
        assert found.source_id == "weekly scan"
        assert [one.id for one in session.schedules.list(ScheduleQuery())] == [WEEKLY]
        assert [one.schedule_id for one in session.runs.of_schedule(WEEKLY, 10)] == [WEEKLY]
        assert len(session.runs.list(RunQuery(schedule_id=WEEKLY)).runs) == 1
        assert session.runs.create(run(TENANT, schedule_id=WEEKLY)).run_number == 1
        assert session.schedules.get(uuid4()) is None
    with opened(mongo_database) as store, store.session("b") as session:
        assert session.schedules.get(WEEKLY) is None


def test_a_write_leaves_what_it_does_not_change_as_the_other_application_spelled_it(mongo_database: Base) -> None:
    before = weekly(mongo_database)
    with opened(mongo_database) as store, store.session(TENANT, now=NOW) as session:
        changed = session.schedules.change_status(WEEKLY, "scheduled", "paused", description="d")
        assert changed is not None
    after = mongo_database["schedules"].find_one({})
    held = {"enabled": False, "toolEnabled": True}  # the other application knows no status: it is not to fire it
    assert after == before | held | {"description": "d", "updatedAt": "2025-11-02T08:00:00+00:00"}
    assert isinstance(after["limits"]["maxJobs"], Int64)
    assert changed.created_at == datetime.fromisoformat("2025-11-01T08:00:00.123456+00:00")


def test_a_document_that_the_copy_would_set_aside_is_seen_by_nobody(mongo_database: Base) -> None:
    mongo_database["runs"].insert_one(fresh("runs", state="moonstruck"))
    with opened(mongo_database) as store, store.session(TENANT) as session:
        assert session.runs.list(RunQuery()).runs == ()


def test_what_would_not_be_read_back_is_refused_and_the_session_goes_on(mongo_database: Base) -> None:
    entry = AuditEntry(id=uuid4(), tenant_id="a", category="c", action="x", occurred_at=NOW)
    one = run(created_at=NOW)
    with opened(mongo_database) as store:
        with store.session("a", now=NOW) as session:
            for given, at in (
                (b'{"deltas":1.5}', "stats.deltas"),
                (b"[1]", "stats"),
                (b'{"\\u0000":1}', "the character NUL"),
            ):
                with pytest.raises(UsageError, match=at):
                    session.runs.create(msgspec.structs.replace(one, stats=given))
            with pytest.raises(UsageError, match=r"audit\.message would not be read back"):
                session.audit.append(msgspec.structs.replace(entry, message="  padded "))
            with pytest.raises(UsageError, match="smaller than 16 MiB"):
                session.runs.create(msgspec.structs.replace(one, result=b'"' + b"x" * (16 << 20) + b'"'))
            session.runs.create(one)
        with store.session("a", now=NOW) as session:
            assert session.runs.get(one.id) is not None
            assert session.audit.list(1) == []


def test_of_two_sessions_that_take_one_key_the_later_one_is_told_and_keeps_nothing(mongo_database: Base) -> None:
    mine, theirs, other = schedule(name="n"), schedule(name="n"), schedule()
    with opened(mongo_database) as store:
        with store.session("a") as first:
            first.schedules.list(ScheduleQuery())
            with pytest.raises(ConflictError, match="another session"), store.session("a") as second:  # noqa: PT012 - the end of the session is the point
                second.schedules.upsert(other)
                first.schedules.upsert(mine)
                with pytest.raises(ConflictError):
                    second.schedules.upsert(theirs)
                with pytest.raises(ConflictError):
                    second.schedules.get(other.id)
        with store.session("a") as session:
            assert [one.id for one in session.schedules.list(ScheduleQuery())] == [mine.id]


def test_of_two_sessions_that_number_a_run_one_wins(mongo_database: Base) -> None:
    one = schedule()
    with opened(mongo_database) as store:
        with store.session("a") as session:
            session.schedules.upsert(one)
        with store.session("a") as first:
            assert first.runs.create(run(schedule_id=one.id)).run_number == 1
            with pytest.raises(ConflictError), store.session("a") as second:
                second.runs.create(run(schedule_id=one.id))
        with store.session("a") as session:
            assert session.runs.create(run(schedule_id=one.id)).run_number == 2


def test_a_session_is_all_or_nothing_and_has_the_server_s_time(mongo_database: Base) -> None:
    one = schedule()
    with opened(mongo_database) as store:
        with pytest.raises(KeyError), store.session("a") as session:  # noqa: PT012 - the session's end is the point
            session.schedules.upsert(one)
            raise KeyError
        before = store.now()
        with store.session("a") as session:
            assert session.schedules.get(one.id) is None
            assert before <= session.now <= store.now()
            assert session.now.microsecond % 1000 == 0
        for tenant, now in (("", None), ("a\0b", None), ("a", NOW.replace(tzinfo=None))):
            with pytest.raises(UsageError), store.session(tenant, now=now):
                pass
        assert store.ping() > timedelta(0)


def test_the_server_s_own_keys_guard_what_a_look_up_cannot_see(mongo_database: Base) -> None:
    """Every unique key of the tables has its index, on exactly the documents it is meant for."""
    with opened(mongo_database):
        found = {
            index["name"]
            for name in UNIQUE
            for index in mongo_database[name].list_indexes()
            if index.get("unique") and "partialFilterExpression" in index
        }
    assert found == {index for indexes in UNIQUE.values() for index in indexes}


def test_indexes_are_made_once_and_refuse_nothing_that_another_application_writes(mongo_database: Base) -> None:
    """A name that is repeated already, or may be, is guarded by the look-up alone."""
    for number in (1, 2):
        mongo_database["schedules"].insert_one(fresh("schedules", _id=f"s{number}", name="twice", deletedAt=...))
    mongo_database["policy_jobs"].insert_one(fresh("policy_jobs"))
    for number in (1, 2):
        mongo_database["handlers"].insert_one(fresh("handlers", _id=f"h{number}", name="twice"))
    assert {"schedules", "runs", "triggers"} <= ensure_indexes(mongo_database).keys()
    made = {index["name"]: index.get("unique", False) for index in mongo_database["schedules"].list_indexes()}
    assert made["uq_schedules_name_repeated"] is False
    assert "uq_schedules_name" not in made
    assert "uq_handlers_name_repeated" in mongo_database["handlers"].index_information()
    assert {name for name in PLAIN if mongo_database[name].index_information().keys() == {"_id_"}} == set()
    with opened(mongo_database) as store, store.session(TENANT) as session, pytest.raises(ConflictError, match="name"):
        session.schedules.upsert(schedule(TENANT, name="twice"))
    for name, more in (("schedules", {"deletedAt": ...}), ("policy_jobs", {})):
        mongo_database[name].insert_one(fresh(name, _id="again", **more))
        mongo_database[name].insert_one(fresh(name, _id="and again", **more))
    assert ensure_indexes(mongo_database) == {}


def test_the_rule_of_a_schedule_has_a_trigger_whatever_other_triggers_there_are(mongo_database: Base) -> None:
    other = schedule(TENANT, name="other")
    with opened(mongo_database) as store, store.session(TENANT) as session:
        session.schedules.upsert(other)
        session.triggers.upsert(trigger(other))
    weekly(mongo_database, cronExpression="*/5 * * * *", timezone="Europe/Berlin")
    with opened(mongo_database) as store, store.session(TENANT) as session:
        (made,) = session.triggers.of_schedule(WEEKLY)
        assert (made.cron_expression, made.timezone, made.schedule_id) == ("*/5 * * * *", "Europe/Berlin", WEEKLY)
        assert made.id == row_id("triggers", TENANT, "schedules", "weekly scan", keep_uuid=False)
        session.triggers.delete_of_schedule(WEEKLY)
    assert "cronExpression" not in (mongo_database["schedules"].find_one({"_id": "weekly scan"}) or {})
    with opened(mongo_database) as store, store.session(TENANT) as session:
        assert session.triggers.of_schedule(WEEKLY) == []


def test_a_changed_trigger_is_said_in_the_schedule_s_own_fields(mongo_database: Base) -> None:
    before = weekly(mongo_database, cronExpression="*/5 * * * *", timezone="Europe/Berlin")
    key = {"_id": before["_id"]}
    with opened(mongo_database) as store, store.session(TENANT, now=NOW) as session:
        (made,) = session.triggers.of_schedule(WEEKLY)
        again = {"cron_expression": "7 7 * * *", "timezone": "UTC", "misfire_policy": "skip", "source_spec": None}
        session.triggers.upsert(msgspec.structs.replace(made, **again))
    rule = {"cronExpression": "7 7 * * *", "timezone": "UTC", "toolTrigger": {"misfirePolicy": "skip"}}
    assert mongo_database["schedules"].find_one(key) == before | rule
    (copy,) = mongo_database["triggers"].find({})
    assert (copy["copyOf"], copy["cronExpression"]) == ("schedules", "7 7 * * *")
    with opened(mongo_database) as store, store.session(TENANT, now=NOW) as session:
        (made,) = session.triggers.of_schedule(WEEKLY)
        interval = {"kind": "interval", "interval_ms": 60_000, "anchor": "fixed_rate"}
        none = dict.fromkeys(("cron_expression", "cron_dialect", "timezone"))
        session.triggers.upsert(msgspec.structs.replace(made, **interval, **none))
    found = mongo_database["schedules"].find_one(key) or {}
    assert not {"cronExpression", "timezone", "toolTrigger"} & found.keys()
    with opened(mongo_database) as store, store.session(TENANT) as session:
        assert [one.kind for one in session.triggers.of_schedule(WEEKLY)] == ["interval"]
    assert "copyOf" not in (mongo_database["triggers"].find_one({}) or {"copyOf": 1})


def test_the_triggers_of_served_schedules_are_written_out(mongo_database: Base) -> None:
    weekly(mongo_database, cronExpression="*/5 * * * *", timezone="Europe/Berlin")
    mongo_database["schedules"].insert_one(fresh("schedules", _id="another", name="another", deletedAt=...))
    with opened(mongo_database, covers=lambda _: False) as store:
        assert store.create_missing_triggers(lambda _: False) == 0
        assert mongo_database["triggers"].count_documents({}) == 0
        assert store.create_missing_triggers(lambda schedule: schedule.id == WEEKLY) == 1
        assert store.create_missing_triggers(lambda schedule: schedule.id == WEEKLY) == 0
        with store.session(TENANT) as session:
            (made,) = session.triggers.of_schedule(WEEKLY)
    assert mongo_database["triggers"].count_documents({}) == 1
    mongo_database["schedules"].update_many({}, {"$set": {"cronExpression": "7 7 * * *"}})
    with opened(mongo_database, covers=lambda _: False) as store:
        assert store.create_missing_triggers(lambda schedule: schedule.id != WEEKLY) == 1
    assert {one["cronExpression"] for one in mongo_database["triggers"].find()} == {"*/5 * * * *", "7 7 * * *"}
    assert (made.cron_expression, made.timezone, made.schedule_id) == ("*/5 * * * *", "Europe/Berlin", WEEKLY)
    assert made.id == row_id("triggers", TENANT, "schedules", "weekly scan", keep_uuid=False)


@pytest.mark.parametrize("backend", ["mongo", "postgres"])
def test_opening_a_store_and_reading_creates_nothing(backend: Any, mongo_database: Base) -> None:  # noqa: ANN401 - its word
    """Neither as the chosen backend, nor as the one that answers shadow reads."""
    base = msgspec.structs.replace(settings(mongo_database), persistence=PersistenceSettings(scheduler=backend))
    store = MongoStore(base)
    with store.session("a") as session:
        assert session.schedules.list(ScheduleQuery()) == []
        assert session.statistics.backlog().ready == 0
    assert store.queue.expired(9) == []
    store.close()
    assert mongo_database.list_collection_names() == []


def test_a_graph_job_of_the_source_stays_one(mongo_database: Base) -> None:
    document = fresh("graph_jobs", status="queued", startedAt=..., completedAt=...)
    mongo_database["graph_jobs"].insert_one(document)
    identity = UUID(document["_id"].partition("_")[2])
    with opened(mongo_database) as store:
        with store.session(TENANT, now=NOW) as session:
            job = session.graph_jobs.get("build", identity)
            assert job is not None
            assert session.graph_jobs.try_replace(msgspec.structs.replace(job, status=1, updated_at=NOW), "queued")
        after = mongo_database["graph_jobs"].find_one({})
        assert after == document | {"status": "running", "startedAt": "2025-11-02T08:00:00+00:00"}
        with store.session(TENANT) as session:
            changed = session.graph_jobs.get("build", identity)
            assert changed is not None
            assert changed.updated_at == NOW
            assert [one.status for one in session.graph_jobs.events(identity)] == [1]


def test_a_status_document_is_no_work_item(mongo_database: Base) -> None:
    mongo_database["policy_runs"].insert_one(fresh("policy_runs", runId="r", status="queued"))
    with opened(mongo_database) as store, store.session(TENANT, now=NOW) as session:
        session.policy_jobs.insert(policy_job(TENANT, run_id="r"))
        found = session.policy_jobs.by_run_id("r")
        assert found is not None
        assert found.status == "pending"
        assert [one.status for one in session.policy_jobs.lease("w", 10, timedelta(seconds=1))] == ["dispatching"]
        assert sorted(one.status for one in session.policy_jobs.list(None, 10)) == ["dispatching", "queued"]


def test_removing_a_run_takes_its_references_along(mongo_database: Base) -> None:
    one, other = run(state="completed"), run()
    with opened(mongo_database) as store:
        with store.session("a", now=NOW) as session:
            session.runs.create(one)
            session.runs.create(msgspec.structs.replace(other, retry_of=one.id))
            assert session.runs.remove([one.id, other.id, uuid4()]) == 1
        assert "retryOf" not in (mongo_database["runs"].find_one({}) or {"retryOf": 1})


def test_documents_born_here_have_the_id_of_their_row_and_the_source_s_fields(mongo_database: Base) -> None:
    one = schedule()
    fires = trigger(one)
    with opened(mongo_database) as store, store.session("a", now=NOW) as session:
        session.schedules.upsert(one)
        session.triggers.upsert(fires)
    found = mongo_database["schedules"].find_one({"_id": f"sch_{one.id.hex}"})
    assert found is not None
    assert (found["id"], found["tenantId"], found["createdAt"]) == (found["_id"], "a", "2025-11-02T08:00:00+00:00")
    stored = mongo_database["triggers"].find_one({"_id": f"trg_{fires.id.hex}"})
    assert stored == document_of(fires) | {"schedulePriority": 50}


def test_graph_jobs_refuse_a_payload_that_only_looks_like_the_source_s(mongo_database: Base) -> None:
    with opened(mongo_database) as store, store.session("a") as session:
        for payload in (b"[]", b'{"attempts":"many"}', b'{"_id":"gbj_x"}'):
            with pytest.raises(UsageError):
                session.graph_jobs.insert(graph_job(payload=payload))
        assert session.graph_jobs.list("build", None, 1) == []


def test_a_server_without_transactions_or_none_at_all_is_told(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(_source: object) -> str:
        raise RefusedError("the source is not a replica set")

    monkeypatch.setattr(mongo_store, "require_replica_set", alone)
    with pytest.raises(RefusedError, match="no transactions"):
        MongoStore(settings(mongo_database))
    nowhere = MongoSettings(
        uri="mongodb://127.0.0.1:1/?directConnection=true", database="x", timeout=timedelta(milliseconds=50)
    )
    with pytest.raises(UnreachableError):
        MongoStore(msgspec.structs.replace(settings(mongo_database), mongo=nowhere))


@pytest.mark.proves("0-T2.6.1")
def test_policy_jobs_that_another_session_takes_are_passed_over(mongo_database: Base) -> None:
    jobs = [policy_job(priority_rank=rank) for rank in (4, 3, 2, 1)]
    lease = timedelta(seconds=1)
    with opened(mongo_database) as store:
        with store.session("a", now=NOW) as session:
            for job in jobs:
                session.policy_jobs.insert(job)
            assert len(session.policy_jobs.lease("w", 1, lease)) == 1  # its own are not another's
        with store.session("a", now=NOW) as early:
            assert len(early.policy_jobs.list("pending", 9)) == 3
            with store.session("a", now=NOW) as first, store.session("a", now=NOW) as second:
                assert [one.id for one in first.policy_jobs.lease("one", 1, lease)] == [jobs[1].id]
                assert [one.id for one in second.policy_jobs.lease("two", 1, lease)] == [jobs[2].id]
            assert [one.id for one in early.policy_jobs.lease("three", 9, lease)] == [jobs[3].id]
        with store.session("a", now=NOW) as session:
            owners = {one.id: one.lease_owner for one in session.policy_jobs.list("dispatching", 9)}
    assert [owners[job.id] for job in jobs] == ["w", "one", "two", "three"]


def test_what_another_application_wrote_is_archived_and_what_cannot_be_read_stays(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The runs of another application have texts as ids; one line of a log is none that a row could be made of."""
    ended: dict[str, Any] = {"state": "completed", "scheduleId": ..., "retryOf": ..., "strange": {"kept": Int64(1)}}
    mongo_database["runs"].insert_many([fresh("runs", _id=name, id=name, **ended) for name in ("one", "two")])
    lines = mongo_database["execution_logs"]
    lines.insert_many(
        [fresh("execution_logs", _id=f"line {name}", runId=name, level="info", odd=name) for name in ("one", "two")]
    )
    lines.insert_one(fresh("execution_logs", _id="odd", runId="two", level=7))
    before = {name: [*mongo_database[name].find(sort=[("_id", 1)])] for name in ("runs", "execution_logs")}
    rule = RetentionRule(keep=0, young=timedelta(0))
    with opened(mongo_database) as store:
        with pytest.raises(ArchiveError, match="1 of the lines of these runs cannot be read as rows"):
            apply(store, TENANT, rule, archive=tmp_path)
        assert {name: [*mongo_database[name].find(sort=[("_id", 1)])] for name in before} == before
        assert [*tmp_path.iterdir()] == []
        lines.delete_one({"_id": "odd"})
        doubled = encode(fresh("execution_logs", _id="doubled", runId="one", level="info", xdd=1, xde=2))
        lines.insert_one(RawBSONDocument(doubled.replace(b"\x10xde\x00", b"\x10xdd\x00")))
        with pytest.raises(ArchiveError, match="a document with a duplicate key or a deprecated type"):
            apply(store, TENANT, rule, archive=tmp_path)
        assert mongo_database["runs"].count_documents({}) == 2
        lines.delete_one({"_id": "doubled"})
        late = fresh("execution_logs", _id="late", runId="one", level="info")
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(os, "fsync", lambda _: lines.replace_one({"_id": "late"}, late, upsert=True))
            assert apply(store, TENANT, rule, archive=tmp_path).total == 2
    (file,) = tmp_path.iterdir()
    found = [*read_archive(file)]
    assert sorted((one.run.source_id, *(line.source_id for line in one.logs)) for one in found) == [
        ("one", "line one"),
        ("two", "line two"),
    ]
    assert [one.run.extra for one in found] == [b'{"+strange":{"kept":{"$long":1}}}'] * 2
    left = {f'{{"+odd":"{name}","runId":"{name}"}}'.encode() for name in ("one", "two")}
    assert {line.extra for one in found for line in one.logs} == left
    assert mongo_database["runs"].count_documents({}) == 0
    assert [one["_id"] for one in lines.find()] == ["late"]  # it came too late to be archived, and is not lost
