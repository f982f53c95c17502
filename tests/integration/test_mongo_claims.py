"""Claims on MongoDB: how many commands one needs, and which run it takes if others took the first ones meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pymongo import monitoring
from pymongo.database import Database

from migrator.errors import BackendMovedError
from migrator.records import Run
from migrator.store.epoch import Epoch
from migrator.store.mongo import epoch
from migrator.store.mongo.candidates import Candidate, CandidateReader
from migrator.store.mongo.places import document_of
from migrator.store.queue import HandlerFilter
from tests.store_mongo import opened
from tests.store_postgres import NOW, run, schedule

Base = Database[dict[str, Any]]

LEASE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Commands(monitoring.CommandListener):
    """Notes the commands that clients send while ``noting``."""

    def __init__(self) -> None:
        self.noting = False
        self.sent: list[str] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self.noting:
            self.sent.append(event.command_name)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Needs no note."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Needs no note."""


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    """Give the commands of clients that are opened meanwhile."""
    commands = Commands()
    listeners = monitoring._LISTENERS  # a listener that is registered stays for the whole process
    with monkeypatch.context() as patch:
        patch.setattr(
            monitoring, "_LISTENERS", listeners._replace(command_listeners=[*listeners.command_listeners, commands])
        )
        yield commands


def test_a_claim_of_one_run_is_one_read_and_one_update(mongo_database: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever waits: the runs, their schedules, the epoch and the server's time are read at once."""
    of = [schedule(priority=priority) for priority in (10, None, 90)]
    runs = [run(schedule_id=one.id, available_at=NOW) for one in of for _ in range(9)] + [run(created_at=NOW)]
    with listening(monkeypatch) as commands, opened(mongo_database) as store:
        store.prepare()
        mongo_database["schedules"].insert_many([document_of(one) for one in of])
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        store.copy_priorities(lambda _: True)
        assert store.queue.claim("w", 1, LEASE)  # asks for the names of the indexes, once
        commands.noting = True
        (claim,) = store.queue.claim("w", 1, LEASE)
        commands.noting = False
    assert commands.sent == ["aggregate", "findAndModify"]
    assert claim.schedule is not None
    assert claim.schedule.id == of[2].id


def test_who_is_overtaken_takes_the_next_run_in_the_order_with_the_same_update(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run(available_at=NOW + SECOND * number) for number in range(20)]
    first = CandidateReader.first
    others: list[int] = []

    def overtaken(reader: CandidateReader, limit: int) -> list[Candidate]:
        found = first(reader, limit)
        if others:
            keys = [one.key for one in found[: others.pop()]]
            mongo_database["runs"].update_many({"_id": {"$in": keys}}, {"$set": {"state": "running"}})
        return found

    with listening(monkeypatch) as commands, opened(mongo_database) as store:
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        monkeypatch.setattr(CandidateReader, "first", overtaken)
        claimed = []
        for taken_by_others in (0, 3, 6):
            others.append(taken_by_others)
            commands.noting = True
            claimed += [one.run.id for one in store.queue.claim("w", 1, LEASE)]
            commands.noting = False
    assert claimed == [runs[0].id, runs[4].id, runs[11].id]
    assert commands.sent.count("findAndModify") == 3


def test_who_finds_everything_taken_that_it_read_reads_again(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run(available_at=NOW + SECOND * number) for number in range(20)]
    first = CandidateReader.first
    others = [20]

    def overtaken(reader: CandidateReader, limit: int) -> list[Candidate]:
        found = first(reader, limit)
        if others:
            keys = [one.key for one in found[: others.pop()]]
            mongo_database["runs"].update_many({"_id": {"$in": keys}}, {"$set": {"state": "running"}})
        return found

    with opened(mongo_database) as store:
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        monkeypatch.setattr(CandidateReader, "first", overtaken)
        (claim,) = store.queue.claim("w", 1, LEASE)
    assert claim.run.id not in {one.id for one in runs[:4]}
    assert mongo_database["runs"].count_documents({"workerId": "w"}) == 1


@pytest.mark.parametrize("size", [100_000, 16 * 1024 * 1024 - 2_000])
def test_a_run_with_a_large_document_is_claimed_in_its_turn(size: int, mongo_database: Base) -> None:
    runs = [run(available_at=NOW + SECOND * number) for number in range(3)]
    with opened(mongo_database) as store:
        mongo_database["runs"].insert_many([document_of(one) for one in runs])
        mongo_database["runs"].update_one(
            {"_id": f"run_{runs[1].id.hex}"}, {"$set": {"result": {"text": "x" * (size - 1_000)}}}
        )
        assert [one.run.id for one in store.queue.claim("w", 3, LEASE)] == [one.id for one in runs]


def test_claims_name_the_backend_that_has_the_data(mongo_database: Base) -> None:
    with opened(mongo_database) as store:
        assert store.queue.claim("w", 1, LEASE) == []
        mongo_database["runs"].insert_one(document_of(run(available_at=NOW)))
        epoch.write(mongo_database, Epoch(1, "postgres"))
        with pytest.raises(BackendMovedError):
            store.queue.claim("w", 1, LEASE)
        epoch.write(mongo_database, Epoch(2, "mongo"))
        assert len(store.queue.claim("w", 1, LEASE)) == 1


def test_runs_of_other_handlers_and_runs_without_a_schedule_hide_nothing(mongo_database: Base) -> None:
    """The one run comes after 300 of fifty other schedules and after 300 of none."""
    others = [schedule(handler_name=f"h{number}") for number in range(50)]
    mine = schedule(handler_name="mine")
    runs: list[Run] = [run(schedule_id=others[number % 50].id, available_at=NOW) for number in range(300)]
    runs += [run(available_at=NOW) for _ in range(300)]
    wanted = run(schedule_id=mine.id, available_at=NOW + SECOND)
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_many([document_of(one) for one in [*others, mine]])
        mongo_database["runs"].insert_many([document_of(one) for one in [*runs, wanted]])
        (claim,) = store.queue.claim("w", 1, LEASE, handlers=HandlerFilter(names=("mine",)))
    assert claim.run.id == wanted.id


@pytest.mark.parametrize("mode", ["contentrefresh", "content-refresh"])
def test_a_schedule_s_mode_is_its_handler_however_it_is_spelled_also_after_many_others(
    mode: str, mongo_database: Base
) -> None:
    """After the first page the server reads only runs of schedules that the caller serves."""
    others = [schedule(handler_name=f"h{number}", queue="q") for number in range(20)]
    mine = document_of(schedule(mode="content-refresh")) | {"mode": mode, "queue": "q"}
    runs = [run(schedule_id=one.id, available_at=NOW) for one in others]
    wanted = document_of(run(available_at=NOW + SECOND)) | {"scheduleId": mine["_id"]}
    with opened(mongo_database) as store:
        mongo_database["schedules"].insert_many([*(document_of(one) for one in others), mine])
        mongo_database["runs"].insert_many([*(document_of(one) for one in runs), wanted])
        handlers = HandlerFilter(names=("content-refresh",))
        assert store.queue.claim("w", 1, LEASE, handlers=handlers, queues=["p"]) == []
        (claim,) = store.queue.claim("w", 1, LEASE, handlers=handlers, queues=["q"])
    assert claim.run.source_id == wanted["_id"]


def test_of_runs_of_many_other_schedules_a_claim_reads_the_first_ones(
    mongo_database: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [schedule(handler_name=f"h{number}") for number in range(300)]
    mine = schedule(handler_name="mine")
    runs = [run(schedule_id=one.id, available_at=NOW) for one in others]
    wanted = [run(schedule_id=mine.id, available_at=NOW + SECOND) for _ in range(2)]
    with listening(monkeypatch) as commands, opened(mongo_database) as store:
        store.prepare()
        mongo_database["schedules"].insert_many([document_of(one) for one in [*others, mine]])
        mongo_database["runs"].insert_many([document_of(one) for one in [*runs, *wanted]])
        handlers = HandlerFilter(names=("mine",))
        assert store.queue.claim("w", 1, LEASE, handlers=handlers)
        commands.noting = True
        assert store.queue.claim("w", 1, LEASE, handlers=handlers)
        commands.noting = False
    assert commands.sent == ["aggregate", "find", "aggregate", "findAndModify"]
