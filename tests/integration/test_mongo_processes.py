"""Several processes on one MongoDB: each run, slot and lock has one winner, also when one of them stands still."""

import signal
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from pymongo.database import Database

from migrator.store.mongo.places import document_of
from tests.contract.assignment import once_each
from tests.copying import uri_of
from tests.mongo_process import LEASE, together
from tests.store_mongo import opened
from tests.store_postgres import NOW, run, schedule, trigger

Base = Database[dict[str, Any]]

RUNS = 1_000
PROCESSES = 10


@pytest.mark.slow
@pytest.mark.proves("3-B2", "3-C2", "2-X6")
def test_of_ten_processes_one_claims_each_of_a_thousand_runs(mongo_database: Base) -> None:
    of = schedule()
    runs = [run(schedule_id=of.id, available_at=NOW) for _ in range(RUNS)]
    with opened(mongo_database):
        mongo_database["schedules"].insert_one(document_of(of))
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
    with together(PROCESSES, "claim", uri_of(mongo_database), mongo_database.name, "10") as all_of_them:
        won = [UUID(one) for process in all_of_them for one in process.hear()]
    verdict = once_each([one.id for one in runs], won)
    assert verdict.clean, verdict
    assert mongo_database["runs"].count_documents({"state": "running", "fence": 1}) == RUNS


@pytest.mark.proves("2-X7", "4-C6")
def test_processes_together_never_run_more_of_a_schedule_than_it_allows(mongo_database: Base) -> None:
    of = schedule(max_concurrency=3)
    runs = [run(schedule_id=of.id, available_at=NOW) for _ in range(60)]
    with opened(mongo_database):
        mongo_database["schedules"].insert_one(document_of(of))
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
    with together(5, "limited", uri_of(mongo_database), mongo_database.name) as all_of_them:
        told = [process.hear() for process in all_of_them]
    assert max(most for most, _ in told) <= 3
    verdict = once_each([str(one.id) for one in runs], [one for _, won in told for one in won])
    assert verdict.clean, verdict
    assert mongo_database["locks"].count_documents({}) == 0  # no gate is left behind


@pytest.mark.proves("2-X6", "3-C2", "4-Z6")
def test_processes_together_fire_each_slot_once(mongo_database: Base) -> None:
    schedules = [schedule() for _ in range(20)]
    triggers = [trigger(of, next_fire_at=NOW - timedelta(minutes=late)) for of in schedules for late in (0, 1, 2, 3)]
    with opened(mongo_database):
        mongo_database["schedules"].insert_many([document_of(one) for one in schedules])
        mongo_database["triggers"].insert_many([document_of(one) for one in triggers])
    with together(5, "fire", uri_of(mongo_database), mongo_database.name, "7") as all_of_them:
        fired = [tuple(slot) for process in all_of_them for slot in process.hear()]
    due = [
        (str(one.id), str(NOW - timedelta(minutes=late)))
        for one, late in zip(triggers, [0, 1, 2, 3] * 20, strict=True)
        for late in range(late, -1, -1)
    ]
    verdict = once_each(due, fired)
    assert verdict.clean, verdict
    numbers = Counter((one["scheduleId"], one["runNumber"]) for one in mongo_database["runs"].find())
    assert len(numbers) == len(due)
    assert max(numbers.values()) == 1
    assert sorted(number for _, number in numbers) == sorted([*range(1, 11)] * 20)
    assert {one["counters"]["lastRunNumber"] for one in mongo_database["run_summaries"].find()} == {10}


@pytest.mark.proves("4-L3", "0-T2.8.6", "0-R1")
def test_of_eight_processes_one_is_alone_with_the_lock(mongo_database: Base) -> None:
    with opened(mongo_database):
        mongo_database["room"].drop()
    with together(8, "contend", uri_of(mongo_database), mongo_database.name, "15") as all_of_them:
        fences = [fence for process in all_of_them for fence in process.hear()]
    assert sorted(fences) == [*range(1, 8 * 15 + 1)]


@pytest.mark.proves("4-L6", "0-T2.8.4", "0-T2.8.5")
def test_a_holder_that_stood_still_past_its_lease_can_do_nothing_with_the_lock(mongo_database: Base) -> None:
    with (
        opened(mongo_database) as store,
        together(1, "hold", uri_of(mongo_database), mongo_database.name, "500") as (zombie,),
    ):
        fence = zombie.hear()
        zombie.process.send_signal(signal.SIGSTOP)
        mine = store.locks.acquire("*", "held", ttl=LEASE, timeout=timedelta(minutes=1))
        assert mine is not None
        assert mine.fence == fence + 1
        zombie.process.send_signal(signal.SIGCONT)
        zombie.tell()
        assert zombie.hear() == {"trusted": False, "wrote": False, "renewed": False, "released": False}
        assert mine.renew()
        assert mongo_database["audit"].count_documents({}) == 0


@pytest.mark.proves("3-B12")
def test_a_worker_that_stood_still_past_its_lease_can_do_nothing_with_the_run(mongo_database: Base) -> None:
    one = run(available_at=NOW)
    with opened(mongo_database) as store:
        mongo_database["runs"].insert_one(document_of(one))
        with together(1, "keep", uri_of(mongo_database), mongo_database.name) as (zombie,):
            assert zombie.hear() == str(one.id)
            zombie.process.send_signal(signal.SIGSTOP)
            later = store.now() + LEASE
            (claim,) = store.queue.expired(9, later)
            assert store.queue.release([claim], later) == [one.id]
            assert [mine.run.id for mine in store.queue.claim("another", 9, LEASE)] == [one.id]
            zombie.process.send_signal(signal.SIGCONT)
            zombie.tell()
            assert zombie.hear() == []
        found = mongo_database["runs"].find_one({})
        assert found is not None
        assert (found["state"], found["workerId"], found["fence"]) == ("running", "another", 2)
