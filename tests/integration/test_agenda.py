"""Agenda's documents through the copy and the comparison, on real servers."""

import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from psycopg.rows import TupleRow
from pymongo.database import Database

from migrator.config import MongoSettings, PostgresSettings, Settings, SourceSettings
from migrator.parity.check import check_parity
from migrator.parity.model import ParityOutcome
from migrator.pipeline.backfill import BackfillResult, backfill
from migrator.pipeline.plan import Scope
from migrator.testing.servers.mongo import MongoServer
from migrator.values import document as documents
from tests.agenda_documents import (
    NOON,
    REAL,
    SECOND,
    Document,
    created_4,
    every_4,
    hokify,
    hokify_run,
    job_6,
    log_6,
    pulse,
    pulse_run,
    real,
)

Target = psycopg.Connection[TupleRow]

CALLED = {"agendaJobs": "jobs", "agenda_logs": "joblog"}
"""What this deployment calls its collections; the third keeps its name."""


@pytest.fixture
def source(mongo_database: Database[Document]) -> Database[Document]:
    for folder, collection in REAL:
        mongo_database[CALLED.get(collection, collection)].insert_many(
            [documents.decode(raw) for raw in real(folder, collection)]
        )
    waiting, done = every_4(lastRunAt=NOON, lockedAt=None, lastFinishedAt=NOON), hokify_run(lastModifiedBy="worker-9")
    for one in (created_4(), waiting, hokify(), done, job_6(lockedAt=NOON), created_4(priority=99)):
        mongo_database["jobs"].insert_one(one | {"_id": ObjectId()})
    for one in (pulse(), pulse_run(lastModifiedBy="pulse-1")):
        mongo_database["pulseJobs"].insert_one(one | {"_id": ObjectId()})
    mongo_database["joblog"].insert_one(log_6(_id=ObjectId(), jobId=str(ObjectId()), agendaName="worker-7"))
    return mongo_database


@pytest.fixture
def settings(source: Database[Document], mongo_server: MongoServer, scheduler_dsn: str) -> Settings:
    return Settings(
        source=SourceSettings(profile="agenda", default_tenant="acme", collections=CALLED),
        mongo=MongoSettings(uri=mongo_server.uri, database=source.name),
        postgres=PostgresSettings(dsn=scheduler_dsn),
    )


@pytest.fixture
def target(settings: Settings) -> Iterator[Target]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        yield connection


def number(target: Target, query: str) -> int:
    row = target.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def assert_equal(outcome: ParityOutcome) -> None:
    for one in outcome.collections:
        assert (one.collection, one.differing, one.missing, one.extra, one.unverified) == (one.collection, 0, 0, 0, "")
    for figure in outcome.aggregates:
        assert (figure.measure, figure.differing_total, figure.unverified) == (figure.measure, 0, "")


def test_all_of_it_is_copied_and_found_equal(settings: Settings, target: Target) -> None:
    done = backfill(settings, Scope())
    assert (done.complete, done.quarantined, done.skipped) == (True, 0, 0)
    assert number(target, "SELECT count(*) FROM scheduler.schedules") == 92 + 6 + 33 + 2
    assert number(target, "SELECT count(*) FROM scheduler.execution_logs") == 27
    outcome = check_parity(settings, Scope())
    assert {one.measure for one in outcome.aggregates} >= {
        "job",
        "enabled",
        "locked",
        "lastRunAt",
        "failCount",
        "event",
    }
    assert_equal(outcome)
    unclean = target.execute(
        "SELECT DISTINCT handler_name FROM scheduler.schedules WHERE extra <> '{}' ORDER BY 1"
    ).fetchall()
    assert unclean == [("bad-cron",), ("mail",), ("odd-data",)], "one priority was clamped"


@pytest.mark.parametrize("documents_before", [0, 1])
def test_rows_are_written_parents_first_whatever_the_first_document_makes(
    mongo_database: Database[Document], settings: Settings, target: Target, documents_before: int
) -> None:
    """The first document makes a run and no trigger; a later one makes a run that names its trigger.

    ``documents_before``: how many are stored already when the others are copied, which are then merged, not appended.
    """
    for name in ("jobs", "joblog", "pulseJobs"):
        mongo_database[name].delete_many({})
    done = created_4(nextRunAt=None, lastRunAt=NOON, lastFinishedAt=NOON)
    ids = [ObjectId(digit * 24) for digit in "1234"]
    jobs: list[Document] = [done | {"_id": one} for one in ids[:3]]
    jobs.append(every_4(lastRunAt=NOON, lastFinishedAt=NOON, _id=ids[3]))
    if documents_before:
        mongo_database["jobs"].insert_many(jobs[:documents_before])
        backfill(settings, Scope())
    mongo_database["jobs"].insert_many(jobs[documents_before:])
    result = backfill(settings, Scope())
    assert result.quarantined == 0
    assert number(target, "SELECT count(*) FROM scheduler.runs WHERE trigger_id IS NOT NULL") == 1
    assert number(target, "SELECT count(*) FROM scheduler.runs") == 4
    assert_equal(check_parity(settings, Scope()))


def test_a_second_call_writes_nothing(settings: Settings, target: Target) -> None:
    backfill(settings, Scope())
    again: BackfillResult = backfill(settings, Scope())
    assert again.written == 0
    assert number(target, "SELECT count(*) FROM scheduler.workers") == 4


def test_lines_of_the_log_find_their_rows(settings: Settings, target: Target) -> None:
    backfill(settings, Scope())
    assert number(target, "SELECT count(*) FROM scheduler.execution_logs WHERE run_id IS NULL") == 1
    assert (
        number(
            target,
            "SELECT count(*) FROM scheduler.execution_logs l JOIN scheduler.runs r ON r.id = l.run_id"
            " JOIN scheduler.schedules s ON s.id = l.schedule_id AND s.id = r.schedule_id"
            " WHERE s.handler_name = l.context ->> 'jobName'",
        )
        == 26
    )


def test_the_instances_become_workers(settings: Settings, target: Target) -> None:
    backfill(settings, Scope())
    rows = target.execute("SELECT hostname, tenant_id, metadata FROM scheduler.workers ORDER BY 1").fetchall()
    names = ["pulse-1", "worker-1", "worker-7", "worker-9"]
    assert rows == [(name, "*", {"derived": True}) for name in names]


TIMES: list[Any] = [None, NOON, NOON + SECOND, NOON - SECOND, "2026-11-20T12:00:00.1234567Z", "noon"]
NUMBERS: list[Any] = [None, 0, 7, -40, 2.5, 5e9, float("nan"), Int64(3), "many"]
TEXTS: list[Any] = [None, "", "a\0b", "5 minutes", "30 2 * * 1-5", "noon", "Europe/Vienna", 7]
FLAGS: list[Any] = [None, True, False, 1]
POOLS = {
    **dict.fromkeys(("nextRunAt", "lockedAt", "lastRunAt", "lastFinishedAt", "failedAt", "debounceStartedAt"), TIMES),
    **dict.fromkeys(("startDate", "endDate", "timestamp"), TIMES),
    **dict.fromkeys(("priority", "failCount", "progress", "runCount", "finishedCount", "duration"), NUMBERS),
    **dict.fromkeys(("name", "repeatInterval", "repeatAt", "repeatTimezone", "failReason", "lastModifiedBy"), TEXTS),
    **dict.fromkeys(("message", "event", "jobName", "agendaName", "skipDays"), TEXTS),
    **dict.fromkeys(("disabled", "fork", "shouldSaveResult"), FLAGS),
}
ANYTHING: list[Any] = [*TIMES, *NUMBERS, *TEXTS, *FLAGS, {"a": [1]}, [0, 6]]


def test_whatever_the_documents_hold_the_sides_agree(
    settings: Settings, source: Database[Document], target: Target
) -> None:
    draw = random.Random(7)
    bases = [created_4(), every_4(), hokify_run(), job_6(), pulse_run(), log_6()]
    for number_of_changes in range(1, 5):
        for base in bases * 20:
            changed = dict(base) | {"_id": ObjectId()}
            for name in draw.sample([one for one in base if one != "_id"], number_of_changes):
                changed[name] = draw.choice(POOLS.get(name, ANYTHING))
            collection = "joblog" if "level" in base else "pulseJobs" if "attempts" in base else "jobs"
            source[collection].insert_one(changed)
    done = backfill(settings, Scope())
    assert done.quarantined > 0
    stored = sum(number(target, f"SELECT count(*) FROM scheduler.{one}") for one in ("schedules", "execution_logs"))
    assert stored + done.quarantined == sum(source[one].count_documents({}) for one in ("jobs", "pulseJobs", "joblog"))
    assert stored > done.quarantined, "else the sides agree on little"
    assert_equal(check_parity(settings, Scope()))


@pytest.mark.proves("3-T3")
def test_an_interval_whose_unit_was_counted_twice_is_told(settings: Settings, target: Target) -> None:
    """As the crawler's migration did: minutes that are read as hours."""
    assert backfill(settings, Scope()).complete
    assert not check_parity(settings, Scope()).differs
    several = "kind = 'interval' AND interval_ms > 0"
    changed = target.execute(f"UPDATE scheduler.triggers SET interval_ms = interval_ms * 60 WHERE {several}").rowcount
    target.commit()
    assert changed > 0
    found = [one for part in check_parity(settings, Scope()).collections for one in part.findings]
    assert {(one.table, one.path) for one in found if one.side == "row"} == {("triggers", "interval_ms")}
    assert len({one.key for one in found}) == changed
