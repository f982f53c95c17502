"""Lists on MongoDB: how many commands they need, and how many documents the server reads for them."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator.records import Schedule
from migrator.scheduler.operations import JobFilter, Jobs
from migrator.sources.store_documents.ids import schedule_id
from migrator.store.mongo import repository
from migrator.store.mongo.places import PLACES, document_of
from migrator.store.mongo.repository import ForeignIds
from migrator.store.mongo.schedule_lists import ORDERS
from migrator.store.mongo.transaction import Transaction
from migrator.store.protocols import ScheduleQuery
from tests.conftest import fresh_name
from tests.contract.test_schedule_lists import Walk
from tests.integration.test_mongo_claims import listening
from tests.marks import proving
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


OF_TENANT, OF_OTHERS = 1_200, 300
BEGIN = NOW - SECOND * OF_TENANT


def fill_many(database: Base) -> None:
    """Insert schedules of a tenant, and of others, each with a trigger; the indexes are there."""
    with opened(database):
        pass
    documents: list[dict[str, Any]] = []
    triggers: list[dict[str, Any]] = []
    for number in range(OF_TENANT + OF_OTHERS):
        of = schedule(
            TENANT if number < OF_TENANT else f"tenant {number % 3}",
            name=f"job {number}",
            status="paused" if number % 50 == 7 else "scheduled",
            enabled=number % 40 != 9,
            handler_name=f"handler {number % 60}",
            tags=(f"tag {number % 60}", f"tag {number % 7}"),
            created_at=BEGIN + SECOND * number,
            created_by=f"user {number % 60}",
            priority=None if number % 2 else number % 101,
        )
        documents.append(document_of(of))
        of_trigger = trigger(of, next_fire_at=NOW + SECOND * number)
        if number % 60 == 5:
            of_trigger = trigger(of, kind="one_time", run_at=NOW, interval_ms=None, anchor=None, next_fire_at=None)
        triggers.append(document_of(of_trigger))
    database["schedules"].insert_many(documents)
    database["triggers"].insert_many(triggers)


# What is asked → (query, most index keys read by the list, most by the count of all that pass). To choose an index, the
# server reads 101 documents in its order. A list by next fire also reads the schedules and their other triggers.
PLANS: dict[str, tuple[ScheduleQuery, int, int]] = {
    "2-I1 first page": (ScheduleQuery(), 110, 1_210),
    "2-I1 second page": (ScheduleQuery(offset=50), 110, 1_210),
    "2-I1 in a status": (ScheduleQuery(statuses=("paused", "failed")), 60, 40),
    "2-I1 in the usual status": (ScheduleQuery(statuses=("scheduled",)), 110, 1_210),
    "2-I1 with a kind of trigger": (ScheduleQuery(kinds=("one_time",)), 120, 120),
    "2-I1 by next fire": (ScheduleQuery(sort_by="next_fire_at", descending=False), 420, 1_210),
    "2-I1 by last next fire": (ScheduleQuery(sort_by="next_fire_at"), 420, 1_210),
    "2-I1 by next fire in a period": (
        ScheduleQuery(sort_by="next_fire_at", descending=False, next_fire_after=NOW + SECOND * 600),
        420,
        4_000,
    ),
    "2-I1 that fire in a period": (
        ScheduleQuery(next_fire_after=NOW + SECOND * 100, next_fire_before=NOW + SECOND * 130),
        250,
        250,
    ),
    "2-I1 with a handler": (ScheduleQuery(handlers=("handler 7",)), 30, 30),
    "2-I1 with one of two handlers": (ScheduleQuery(handlers=("handler 7", "handler 8")), 60, 60),
    "2-I1 made in a period": (
        ScheduleQuery(created_after=BEGIN + SECOND * 100, created_before=BEGIN + SECOND * 130),
        40,
        40,
    ),
    "2-I1 with a tag": (ScheduleQuery(tags_any=("tag 50",)), 40, 40),
    "2-I1 with two tags": (ScheduleQuery(tags_all=("tag 50", "tag 1")), 40, 40),
    "2-I1 made by someone": (ScheduleQuery(created_by="user 7"), 40, 40),
    "that are enabled, by name": (ScheduleQuery(enabled=True, sort_by="name", descending=False), 110, 1_210),
    "by name, backwards": (ScheduleQuery(sort_by="name"), 110, 1_210),
    "by priority": (ScheduleQuery(sort_by="priority"), 110, 1_210),
}


@pytest.fixture(scope="module")
def many(mongo_client: MongoClient[dict[str, Any]]) -> Iterator[Base]:
    database = mongo_client[fresh_name()]
    fill_many(database)
    yield database
    mongo_client.drop_database(database.name)


def reads(database: Base, call: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the reads of schedules and triggers by a call, as the server profiled them.

    Without the look for ids that another application made, which a process repeats after a pause.
    """
    database["system.profile"].drop()
    database.command("profile", 2)
    try:
        call()
    finally:
        database.command("profile", 0)
    ours = {"ns": {"$in": [f"{database.name}.schedules", f"{database.name}.triggers"]}}
    return [*database["system.profile"].find({**ours, "command.projection": {"$exists": False}})]


@pytest.mark.parametrize("what", proving(PLANS))
def test_a_list_of_schedules_reads_no_more_of_an_index_than_passes(what: str, many: Base) -> None:
    query, of_list, of_count = PLANS[what]
    with opened(many) as store, store.session(TENANT, now=NOW) as session:
        listed = reads(many, lambda: session.schedules.list(query))
        assert session.schedules.list(query)
        counted = reads(many, lambda: session.schedules.count(query))
    for commands, most in ((listed, of_list), (counted, of_count)):
        assert commands
        assert not [one for one in commands if "COLLSCAN" in one.get("planSummary", "")]
        assert sum(one.get("keysExamined", 0) for one in commands) <= most
        assert sum(one.get("docsExamined", 0) for one in commands) <= most


@pytest.mark.parametrize(
    ("index", "what"),
    [
        (("triggers", "tenantId_1_kind_1"), "2-I1 with a kind of trigger"),
        (("triggers", "tenantId_1_nextFireAt_1_scheduleId_1"), "2-I1 by next fire"),
        (("schedules", "tenantId_1_createdAt_-1__id_1"), "2-I1 first page"),
        (("schedules", "tags_1_tenantId_1"), "2-I1 with a tag"),
    ],
)
def test_a_missing_index_would_be_seen(index: tuple[str, str], what: str, mongo_database: Base) -> None:
    fill_many(mongo_database)
    query, most, _ = PLANS[what]
    with opened(mongo_database) as store:
        mongo_database[index[0]].drop_index(index[1])
        with store.session(TENANT, now=NOW) as session:
            commands = reads(mongo_database, lambda: session.schedules.list(query))
    assert sum(one.get("keysExamined", 0) + one.get("docsExamined", 0) for one in commands) > 2 * most


SPELLINGS: dict[str, Sequence[Any]] = {
    "tenantId": [TENANT, TENANT, TENANT, ..., "", "another"],
    "createdAt": [
        *("2025-11-02T08:00:00Z", "2025-11-02T08:00:00+00:00", "2025-11-02T08:00:00.5+00:00"),
        *("2025-11-02T08:00:00.50+00:00", "2025-11-02T08:00:00.5000001+00:00", "2025-11-02T08:00:00.9Z"),
        *("2025-11-02T08:00:01.1234567+00:00", "2025-11-02T08:00:01Z", datetime(2025, 11, 2, 8), None, ...),  # noqa: DTZ001 - BSON
    ],
    "createdBy": ["me", " me", "me\t", "me\xa0", "\u3000me", "me too", "Zoë", "", ...],
    "status": ["scheduled", "running", "paused", "canceled", None, ...],
    "enabled": [True, False, ...],
    "toolEnabled": [True, ..., ...],
    "priority": [1, 50, 99, None, ...],
    "tags": [["a"], ["b", "a"], [], ...],
    "handlerName": ["mail", "ma\0il", "sync", ...],
    "deletedAt": [..., ..., ..., None, datetime(2025, 11, 2, 8)],  # noqa: DTZ001 - BSON
    "nextFireAt": [datetime(2025, 11, 2, 9), datetime(2025, 11, 2, 10), None],  # noqa: DTZ001 - BSON
}
ASKED: Sequence[dict[str, Any]] = [
    *({}, {"statuses": ("scheduled",)}, {"statuses": ("paused", "cancelled")}, {"statuses": ("running",)}),
    *({"enabled": True}, {"enabled": False}, {"handlers": ("mail",)}, {"handlers": ("ma\ufffdil", "sync")}),
    *({"tags_any": ("a",)}, {"tags_all": ("a", "b")}, {"created_by": "me"}, {"created_by": "Zoë"}),
    *({"created_after": NOW}, {"created_before": NOW + SECOND}, {"name_contains": "1"}, {"kinds": ("interval",)}),
    *({"next_fire_after": NOW + SECOND}, {"next_fire_before": NOW + timedelta(hours=2)}),
]


@pytest.mark.parametrize("whose", ["own", "foreign", "both"])
def test_documents_that_are_spelled_otherwise_are_listed_as_a_walk_over_all_would(
    whose: str, mongo_database: Base
) -> None:
    random = Random(whose)
    with opened(mongo_database) as store:
        documents, triggers = [], []
        for number in range(60):
            chosen = {name: random.choice(values) for name, values in SPELLINGS.items()}
            own = whose == "own" or (whose == "both" and number % 2 == 0)
            key = f"sch_{random.getrandbits(128):032x}" if own else f"job {random.random()}"
            fire = chosen.pop("nextFireAt")
            base = fresh("schedules", _id=key, id=key, name=f"job {number}", deletedBy=...)
            fields = {name: value for name, value in (base | chosen).items() if value is not ...}
            documents.append(fields)
            of_it = document_of(trigger(schedule(TENANT)))
            triggers.append(of_it | {"scheduleId": key, "nextFireAt": fire})
        mongo_database["schedules"].insert_many(documents)
        mongo_database["triggers"].insert_many(triggers)
        with store.session(TENANT, now=NOW) as session:
            every = [one.row for one in session.schedules._each({"deletedAt": None})]
            walk = Walk(every, [one.row for one in session.triggers._each({})])
            for asked, order, descending in product(ASKED, ORDERS, (True, False)):
                query = ScheduleQuery(
                    **asked, sort_by=order, descending=descending, limit=4, offset=random.randrange(9)
                )
                passing = [row for row in every if walk.passes(row, query)]
                expected = [row.id for row in walk.order(passing, order, descending=descending)]
                page = [row.id for row in session.schedules.list(query)]
                assert page == expected[query.offset : query.offset + 4], query
                assert session.schedules.count(query) == len(expected), query
    assert len(every) > 20
