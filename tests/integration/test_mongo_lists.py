"""Lists on MongoDB: how many commands they need, and how many documents the server reads for them."""

from datetime import timedelta
from typing import Any

import pytest
from pymongo.database import Database

from migrator.records import Schedule
from migrator.scheduler.operations import JobFilter, Jobs
from migrator.sources.store_documents.ids import schedule_id
from migrator.store.mongo import repository
from migrator.store.mongo.places import PLACES, document_of
from migrator.store.mongo.repository import ForeignIds
from migrator.store.mongo.transaction import Transaction
from migrator.store.protocols import ScheduleQuery
from tests.integration.test_mongo_claims import listening
from tests.stellaops_documents import fresh
from tests.store_mongo import opened, settings
from tests.store_postgres import NOW, run, schedule, trigger

Base = Database[dict[str, Any]]
TENANT = "tenant-a"
SECOND = timedelta(seconds=1)
HISTORY = 20


def fill(database: Base, first: int, count: int) -> None:
    """Insert schedules of our own and of another application by turns, each with a trigger and a history."""
    for number in range(first, first + count):
        key, identity = f"job {number}", schedule_id(TENANT, f"job {number}")
        if number % 2:
            of = schedule(TENANT, name=key)
            key, identity = f"sch_{of.id.hex}", of.id
            database["schedules"].insert_one(document_of(of))
        else:
            foreign = fresh("schedules", _id=key, id=key, name=key, tenantId=TENANT, deletedAt=..., deletedBy=...)
            database["schedules"].insert_one(foreign)
        due = document_of(trigger(schedule(TENANT, id=identity)))
        ended = [
            document_of(run(TENANT, schedule_id=identity, state="completed", created_at=NOW - SECOND * age))
            for age in range(HISTORY)
        ]
        database["triggers"].insert_one(due | {"scheduleId": key})
        # By turns in both spellings: that of the other application, and our own.
        database["runs"].insert_many([one | ({"scheduleId": key} if age % 2 else {}) for age, one in enumerate(ended)])


@pytest.mark.proves("5-A2")
def test_a_list_of_jobs_asks_as_often_for_many_jobs_as_for_few(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    for first, count in ((0, 4), (4, 36)):
        fill(mongo_database, first, count)
        with listening(monkeypatch) as commands, opened(mongo_database) as store:
            jobs = Jobs(store, settings(mongo_database))
            commands.noting = True
            page = jobs.page(JobFilter(tenants=(TENANT,)), limit=100, offset=0)
            commands.noting = False
            sent.append(len(commands.sent))
            assert page.total == len(page.jobs) == first + count
            assert {one.last_run and one.last_run.created_at for one in page.jobs} == {NOW}
            assert None not in {one.job.next_fire_at for one in page.jobs}
    assert sent[0] == sent[1] < 30


def test_the_newest_runs_are_found_by_an_index_however_long_the_history(mongo_database: Base) -> None:
    fill(mongo_database, 0, 10)
    with opened(mongo_database) as store, store.session(TENANT) as session:
        every = [schedule_id(TENANT, f"job {number}") for number in range(0, 10, 2)]
        mongo_database.command("profile", 2)
        found = session.runs.newest_of(every, ["completed"])
        mongo_database.command("profile", 0)
    assert len(found) == len(every)
    (read,) = mongo_database["system.profile"].find({"command.aggregate": "runs"})
    assert read["docsExamined"] <= 1 + 2 * len(every)


def test_of_a_schedule_whose_newest_run_cannot_be_read_the_next_one_counts(mongo_database: Base) -> None:
    fill(mongo_database, 0, 3)
    newest = {"createdAt": document_of(run(TENANT, created_at=NOW))["createdAt"]}
    changed = mongo_database["runs"].update_many(newest, {"$set": {"startedAt": "no time"}})
    assert changed.modified_count == 3
    with opened(mongo_database) as store, store.session(TENANT) as session:
        every = [one.id for one in session.schedules.list(ScheduleQuery())]
        found = session.runs.newest_of(every, ["completed"])
    assert [one.schedule_id for one in found] == every
    assert {one.created_at for one in found} == {NOW - SECOND}


@pytest.mark.proves("5-A2")
def test_a_job_is_found_by_its_name_without_the_other_jobs(mongo_database: Base) -> None:
    fill(mongo_database, 0, 20)
    with opened(mongo_database) as store:
        jobs = Jobs(store, settings(mongo_database))
        mongo_database.command("profile", 2)
        found = [jobs.find(f"job {number}").schedule.name for number in (6, 7)]
        mongo_database.command("profile", 0)
    assert found == ["job 6", "job 7"]
    whole = {"command.find": "schedules", "command.projection": {"$exists": False}}
    assert sum(one["nreturned"] for one in mongo_database["system.profile"].find(whole)) <= 2 * 4


def add_foreign(database: Base, *keys: str) -> None:
    database["schedules"].insert_many(
        [fresh("schedules", _id=key, id=key, name=key, tenantId=TENANT, deletedAt=..., deletedBy=...) for key in keys]
    )


def test_a_document_that_another_application_adds_later_is_found(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(repository, "monotonic", lambda: now[0])
    add_foreign(mongo_database, "first")
    with opened(mongo_database) as store:
        with store.session(TENANT) as session:
            assert session.schedules.get(schedule_id(TENANT, "first")) is not None
            assert session.schedules.get(schedule_id(TENANT, "second")) is None
        add_foreign(mongo_database, "second")
        now[0] += 2
        with store.session(TENANT) as session:
            assert session.schedules.get(schedule_id(TENANT, "second")) is not None


def test_the_ids_of_another_application_are_not_read_again_for_each_id_that_does_not_exist(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(repository, "monotonic", lambda: now[0])
    add_foreign(mongo_database, "first")
    with opened(mongo_database) as store, store.session(TENANT) as session:
        mongo_database.command("profile", 2)
        for number in range(5):
            assert session.schedules.get(schedule_id(TENANT, f"no such {number}")) is None
        mongo_database.command("profile", 0)
    projected = {"command.find": "schedules", "command.projection": {"$exists": True}}
    assert mongo_database["system.profile"].count_documents(projected) == 2  # of the tenant, and of *


def test_of_the_ids_of_another_application_so_many_are_kept_and_every_document_is_found(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "MOST_KEPT", 5)
    names = [f"job {number}" for number in range(12)]
    add_foreign(mongo_database, *names)
    kept = ForeignIds()
    with mongo_database.client.start_session() as session:
        transaction = Transaction(mongo_database, session)
        for tenant in (TENANT, "another", TENANT):
            for name in names:
                wanted = [schedule_id(tenant, name)]
                found = kept.keys(transaction, PLACES[Schedule][0], tenant, wanted)
                assert found == ([name] if tenant == TENANT else [])
                assert sum(len(one.keys) for one in kept._known.values()) <= 5
