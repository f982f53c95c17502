"""``verify --load``, with a small load: what is executed once passes, and each fault turns the check red."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec
import psycopg
import pytest
from pymongo.database import Database

from migrator.config import MongoSettings, PostgresSettings, Settings
from migrator.errors import UsageError
from migrator.records import ALL
from migrator.scratch import Components, unchanged
from migrator.store.protocols import Store
from migrator.testing.servers.mongo import MongoServer
from migrator.verify.check import CheckContext, CheckResult
from migrator.verify.checks import load
from migrator.verify.checks.load import SMALL, processes_under_load
from migrator.verify.load_processes import run_load
from migrator.verify.request import CEILINGS, LOAD, Request
from migrator.verify.runner import verify
from tests.conftest import NEWEST, Clusters
from tests.faulty_queue import claims_twice, dies_at_claim, loses_ends

JOBS, PROCESSES = 30, 2


@pytest.fixture(scope="module")
def settings(clusters: Clusters) -> Iterator[Settings]:
    cluster = clusters.get(NEWEST)
    dsn = cluster.scheduler()
    yield Settings(postgres=PostgresSettings(dsn=dsn))
    cluster.drop(dsn)


def under_load(
    settings: Settings,
    *,
    store: Callable[[Store], Store] = unchanged,
    backend: Literal["postgres", "mongo"] = "postgres",
) -> CheckResult:
    request = Request(backend=backend, load=True, load_jobs=JOBS, load_processes=PROCESSES, scratch_on_source=True)
    return processes_under_load(CheckContext(settings, request, components=Components(store=store)))


def words(found: CheckResult) -> list[str]:
    return [line for one in found.findings for line in one.details]


def test_every_run_is_executed_once_and_a_ceiling_that_is_crossed_fails(settings: Settings) -> None:
    request = Request(
        run_name="r",
        only=("performance",),
        load=True,
        load_jobs=JOBS,
        load_processes=PROCESSES,
        load_ceiling=("claim-p99-ms=0.001",),
    )
    result = verify(settings, request, checks=load.CHECKS)
    (check,) = result.evidence.checks
    assert result.exit_status() & 1
    assert check.outcome.status == "failed"
    assert check.counts == {
        "jobs": JOBS, "processes": PROCESSES, "batch": load.BATCH, "executions": JOBS,
        "differences": 0, "above their ceiling": 1,
    }  # fmt: skip
    assert [line for one in check.findings for line in one.details] == [
        "load on postgres, claim, 99th percentile: above 0.001 ms"
    ]
    measured = {one.name: one for one in result.run.measurements}
    for name, one in CEILINGS.items():
        found = measured[f"load on postgres, {one.words}"]
        assert found.value > 0
        assert found.ceiling == (0.001 if name == "claim-p99-ms" else one.most)
    ended = measured["load on postgres, runs ended a second"]
    assert sum(count for _, count in ended.points) == JOBS
    values, processes = result.run.panels[LOAD]
    assert values.title == "Load on postgres: 30 jobs due at once, 2 processes, batches of 100"
    stated = {str(row[0]): row[3:] for row in values.rows}
    assert stated["claim, 99th percentile"] == ("0.001", "--load-ceiling claim-p99-ms")
    assert sum(int(row[3] or 0) for row in processes.rows) == JOBS
    with psycopg.connect(str(settings.postgres.dsn)) as connection:
        for record in ALL:
            assert connection.execute(f"SELECT count(*) FROM scheduler.{record.table}".encode()).fetchone() == (0,)


def test_a_run_that_is_executed_twice_is_seen(settings: Settings) -> None:
    found = under_load(settings, store=claims_twice)
    assert found.outcome.status == "failed"
    (twice,) = (line for line in words(found) if line.endswith(" runs were executed more than once"))
    executed = found.counts["executions"]
    assert twice == f"postgres: {executed - JOBS} runs were executed more than once"


def test_an_outcome_that_is_refused_and_a_run_without_an_end_are_seen(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "run_load", lambda processes, _: run_load(processes, 2))  # then they end what they hold
    found = under_load(settings, store=loses_ends)
    assert found.outcome.status == "failed"
    ends = {line.partition(" ")[2].partition(" ")[2] for line in words(found)}
    assert {"runs did not complete", "outcomes were refused, because the process had lost its run"} <= ends


def test_a_process_that_dies_fails_the_check(settings: Settings) -> None:
    found = under_load(settings, store=dies_at_claim)
    assert found.outcome.status == "failed"
    assert "postgres: a process of the verification ended before it answered" in words(found)


def test_mongodb_is_measured_without_a_ceiling(
    settings: Settings, mongo_server: MongoServer, mongo_database: Database[Any]
) -> None:
    mongo = MongoSettings(uri=mongo_server.uri, database=mongo_database.name)
    found = under_load(msgspec.structs.replace(settings, mongo=mongo), backend="mongo")
    assert (found.outcome.status, found.outcome.reason) == ("unverified", SMALL)
    assert found.counts["executions"] == JOBS
    assert {one.ceiling for one in found.measurements} == {None}


def test_nothing_is_loaded_unless_it_is_asked_for() -> None:
    found = processes_under_load(CheckContext(Settings()))
    assert (found.outcome.status, found.outcome.reason) == ("not-asked-for", load.NOT_ASKED_FOR)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"load_jobs": 5}, "belong to --load"),
        ({"load": True, "no_behaviour": True}, "leave out"),
        ({"load": True, "skip": ("performance",)}, "leave out"),
        ({"load": True, "load_ceiling": ("claim=5",)}, "known: end-s, "),
        ({"load": True, "load_ceiling": ("end-s=0",)}, "a number above 0"),
        ({"load": True, "load_ceiling": ("end-s=soon",)}, "a number above 0"),
        ({"load": True, "load_ceiling": ("end-s=nan",)}, "a number above 0"),
    ],
)
def test_a_request_that_makes_no_sense_cannot_be_made(asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Request(**asked)
