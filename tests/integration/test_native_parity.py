"""The parity check with either codec: the same report of every planted difference."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from bson import Int64, ObjectId
from msgspec.structs import replace
from pymongo import MongoClient
from pymongo.database import Database

from migrator import native
from migrator.parity import compare
from migrator.parity.check import check_parity
from migrator.parity.model import CollectionComparison, ParityOutcome
from migrator.pipeline import sessions
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.transform import ReadBatch
from tests import native_codec
from tests.agenda_documents import pulse
from tests.conftest import Clusters
from tests.copying import run_of, settings_for
from tests.demo_data import seed_quarter
from tests.stellaops_documents import fresh

SCHEDULE = "sch_" + "5" * 32
SHARED = "7" * 32
"""An id of documents of two tenants, and of a document that is quarantined for it."""

PLANTED = (
    "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', '987654') WHERE source_id = 'r02'",
    """UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', ((stats ->> 'queued') || '.0')::jsonb)
       WHERE source_id = 'r03'""",
    "UPDATE scheduler.runs SET created_at = created_at + interval '1 us' WHERE source_id = 'r04'",
    "DELETE FROM scheduler.runs WHERE source_id = 'r05'",
    """INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at)
       SELECT gen_random_uuid(), tenant_id, source, 'ghost', state, created_at FROM scheduler.runs LIMIT 1""",
    "UPDATE scheduler.runs SET tenant_id = 'somebody', schedule_id = NULL WHERE source_id = 'r06'",
    "UPDATE scheduler.runs SET source_id = 'another' WHERE source_id = 'r07'",
    "UPDATE scheduler.runs SET schedule_id = NULL WHERE source_id = 'r08'",
    "UPDATE scheduler.runs SET extra = '{\"a\": 1}' WHERE source_id = 'r09'",
    "UPDATE scheduler.runs SET extra = '{}' WHERE source_id = 'remains'",
    """UPDATE scheduler.runs SET extra = '{"+note": 5.0, "+error": null}' WHERE source_id = 'l01'""",
    """UPDATE scheduler.runs SET extra = '{"+error": null}' WHERE source_id = 'l02'""",
    "UPDATE scheduler.runs SET id = gen_random_uuid() WHERE source_id = 'r10'",
    "UPDATE scheduler.runs SET source = NULL, cause = 'other' WHERE source_id = 'r11'",
    """INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at)
       SELECT gen_random_uuid(), tenant_id, source, 'odd', state, created_at FROM scheduler.runs LIMIT 1""",
    "UPDATE migration.quarantine SET reason = 'harmless' WHERE source_id = 'odd'",
    "DELETE FROM migration.quarantine WHERE source_id = 'odder'",
    "UPDATE migration.quarantine SET raw = raw || '\\x00' WHERE source_id = 'oddest'",
    "DELETE FROM migration.dangling_references",
    "UPDATE scheduler.schedules SET name = 'another' WHERE source_id LIKE 'sch%'",
    "DELETE FROM scheduler.triggers",
    "UPDATE scheduler.graph_jobs SET status = (status + 1) % 6",
)
"""Statements that each leave something that is not as the documents say; the last digits of a name are its run's."""


def documents() -> dict[str, list[dict[str, Any]]]:
    runs = [run_of(_id=f"r{number:02}", id=f"r{number:02}", scheduleId=SCHEDULE) for number in range(40)]
    remains = run_of(_id="remains", id="remains", note={"count": Int64(1), "at": datetime(2026, 1, 2, tzinfo=UTC)})
    left = [run_of(_id=f"l{number:02}", id=f"l{number:02}", note=5) | {"error": None} for number in range(9)]
    odd = [run_of(_id=name, id=name, state="exploded") for name in ("odd", "odder", "oddest")]
    shared = [
        run_of(_id=f"run_{SHARED}", id=f"run_{SHARED}"),
        run_of(_id=f"ruo_{SHARED}", id=f"ruo_{SHARED}", tenantId="other"),
        run_of(_id=f"rux_{SHARED}", id=f"rux_{SHARED}"),
    ]
    dangling = [run_of(_id="dangles", id="dangles", scheduleId="sch_" + "6" * 32)]
    expired = fresh("locks", _id="gone", expiresAt=datetime.now(UTC) - timedelta(days=1))
    return {
        "schedules": [fresh("schedules", _id=SCHEDULE, id=SCHEDULE)],
        "runs": [*runs, remains, *left, *odd, *shared, *dangling],
        "graph_jobs": [fresh("graph_jobs", _id="g1", id="g1")],
        "locks": [fresh("locks", _id="live", expiresAt=datetime.now(UTC) + timedelta(days=9)), expired],
    }


@pytest.fixture(autouse=True)
def _codec_of_the_moment() -> Iterator[None]:
    native_codec.needed()
    yield
    native.module.cache_clear()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of documents in each batch that the native codec compared and found equal."""
    found: list[int] = []
    original = compare._compare_plain

    def counted(target: Any, batch: ReadBatch, totals: Any) -> None:  # noqa: ANN401 - passed on
        original(target, batch, totals)
        found.append(batch.plain)

    monkeypatch.setattr(compare, "_compare_plain", counted)
    return found


def checked(
    monkeypatch: pytest.MonkeyPatch,
    codec: str,
    source: Database[Any],
    dsn: str,
    chunk: int,
    listed: int = 100,
    profile: str = "stellaops",
) -> ParityOutcome:
    """Compare in this process, with one codec."""
    monkeypatch.setenv(native.VARIABLE, codec)
    native.module.cache_clear()
    settings = settings_for(source, dsn, chunk=chunk, profile=profile)
    settings = replace(settings, report=replace(settings.report, max_differences=listed))
    try:
        with ThreadPoolExecutor(1) as pool:
            return check_parity(settings, Scope(), pool=pool)
    finally:
        sessions.close_cached()


def by_name(outcome: ParityOutcome) -> dict[str, CollectionComparison]:
    return {one.collection: one for one in outcome.collections}


@pytest.fixture(scope="module")
def source(mongo_client: MongoClient[Any]) -> Iterator[Database[Any]]:
    database = mongo_client["native_parity"]
    for name, some in documents().items():
        database[name].insert_many(some)
    yield database
    mongo_client.drop_database(database)


def test_both_codecs_count_the_losses_that_remainders_keep(
    mongo_database: Database[Any], scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch, plain: list[int]
) -> None:
    """Of documents that have a remainder in common, which the native codec reads from the second or third one on."""
    delayed = {"type": "exponential", "delay": Int64(1000)}
    mongo_database["pulseJobs"].insert_many(pulse(_id=ObjectId(), backoff=delayed) for _ in range(9))
    settings = settings_for(mongo_database, scheduler_dsn, profile="agenda")
    assert backfill(settings, Scope()).rows == 18
    natively, in_python = (
        by_name(checked(monkeypatch, codec, mongo_database, scheduler_dsn, 100, profile="agenda"))["pulseJobs"]
        for codec in (native.NATIVE, native.PYTHON)
    )
    assert plain[0] > 5
    assert natively == in_python
    assert [(one.path, one.kind, one.kept, one.count) for one in natively.losses] == [
        ("backoff.delay", "type", True, 9)
    ]


def test_both_codecs_report_every_planted_difference(
    source: Database[Any], clusters: Clusters, monkeypatch: pytest.MonkeyPatch, plain: list[int]
) -> None:
    cluster = clusters.get(18)
    dsn = cluster.scheduler()
    assert backfill(settings_for(source, dsn), Scope()).quarantined == 4
    sound = {
        codec: checked(monkeypatch, codec, source, dsn, chunk)
        for codec, chunk in ((native.NATIVE, 7), (native.PYTHON, 100))
    }
    assert sound[native.NATIVE] == sound[native.PYTHON]
    assert not sound[native.NATIVE].differs
    assert sum(plain) >= 50
    runs = by_name(sound[native.NATIVE])["runs"]
    assert (runs.with_remainder, runs.without_remainder) == (10, 43)
    with psycopg.connect(dsn) as connection:
        for statement in PLANTED:
            done = connection.execute(statement.encode())
            assert done.rowcount >= 1, statement
    for chunk in (7, 100):
        plain.clear()
        natively = checked(monkeypatch, native.NATIVE, source, dsn, chunk)
        assert 27 <= sum(plain) < 50
        assert natively == checked(monkeypatch, native.PYTHON, source, dsn, chunk)
    causes = {tally.cause for each in natively.collections for _, tally in each.tallied()}
    assert causes >= {
        "number",
        "number-type",
        "time-precision",
        "missing-row",
        "extra-row",
        "text",
        "reference",
        "keys",
        "foreign-writer",
        "quarantine-entry",
        "quarantine-changed",
        "unquarantined",
        "reference-unrecorded",
    }
    assert checked(monkeypatch, native.NATIVE, source, dsn, 7, 3) == checked(
        monkeypatch, native.PYTHON, source, dsn, 7, 3
    )
    cluster.drop(dsn)


def test_both_codecs_report_the_same_of_the_demo(
    mongo_client: MongoClient[Any], clusters: Clusters, monkeypatch: pytest.MonkeyPatch, plain: list[int]
) -> None:
    source = mongo_client["native_parity_demo"]
    seed_quarter(source)
    cluster = clusters.get(18)
    dsn = cluster.scheduler()
    backfill(settings_for(source, dsn), Scope())
    with psycopg.connect(dsn) as connection:
        for table in ("runs", "execution_logs", "audit", "impact_snapshots"):
            connection.execute(
                f"DELETE FROM scheduler.{table} WHERE ctid IN (SELECT ctid FROM scheduler.{table} LIMIT 3)".encode()
            )
    natively = checked(monkeypatch, native.NATIVE, source, dsn, 500)
    assert sum(plain) > 500
    assert natively == checked(monkeypatch, native.PYTHON, source, dsn, 500)
    assert natively.differs
    cluster.drop(dsn)
    mongo_client.drop_database(source)


@pytest.mark.parametrize("chunk", [7, 100])
def test_both_codecs_judge_dangling_references_into_the_own_table_alike(
    mongo_database: Database[Any], clusters: Clusters, monkeypatch: pytest.MonkeyPatch, plain: list[int], chunk: int
) -> None:
    """The native codec takes those that are stored and on record; the Python codec judges all others."""
    ids = [f"run_{number:032x}" for number in range(30)]
    runs = [run_of(_id=one, id=one, retryOf=f"run_{'a' * 30}{number:02}") for number, one in enumerate(ids)]
    runs[28]["retryOf"] = ids[27]
    runs[29]["note"] = 5
    mongo_database["runs"].insert_many(runs)
    cluster = clusters.get(18)
    dsn = cluster.scheduler()
    assert not backfill(settings_for(mongo_database, dsn), Scope()).quarantined
    sound = checked(monkeypatch, native.NATIVE, mongo_database, dsn, chunk)
    assert sum(plain) == 29
    assert sound == checked(monkeypatch, native.PYTHON, mongo_database, dsn, chunk)
    assert not sound.differs
    assert (by_name(sound)["runs"].with_remainder, by_name(sound)["runs"].without_remainder) == (1, 29)
    faults = (
        (0, "UPDATE scheduler.runs SET extra = '{}' WHERE source_id = %s"),
        (1, """UPDATE scheduler.runs SET extra = '{"+retryOf": "run_0"}' WHERE source_id = %s"""),
        (2, "UPDATE scheduler.runs SET retry_of = id WHERE source_id = %s"),
        (3, "DELETE FROM scheduler.runs WHERE source_id = %s"),
        (4, "UPDATE scheduler.runs SET created_at = created_at + interval '1 us' WHERE source_id = %s"),
        (5, "DELETE FROM migration.dangling_references WHERE source_id = %s"),
        (6, "UPDATE migration.dangling_references SET target_id = gen_random_uuid() WHERE source_id = %s"),
        (7, "UPDATE scheduler.runs SET source_id = source_id || 'x' WHERE source_id = %s"),
    )
    with psycopg.connect(dsn) as connection:
        for number, statement in faults:
            assert connection.execute(statement.encode(), [ids[number]]).rowcount == 1, statement
    plain.clear()
    natively = checked(monkeypatch, native.NATIVE, mongo_database, dsn, chunk)
    assert sum(plain) == 29 - len(faults)
    assert natively == checked(monkeypatch, native.PYTHON, mongo_database, dsn, chunk)
    found = by_name(natively)["runs"]
    assert {one.key for one in found.findings} >= {ids[number] for number, _ in faults}
    assert natively.differs
    cluster.drop(dsn)
