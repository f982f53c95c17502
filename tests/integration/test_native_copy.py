"""The copy with either codec: the same rows, the same ledger, and nothing to write where the other one copied."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator import native
from migrator.pipeline import chunk, executors
from migrator.pipeline.backfill import BackfillResult, backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.transform import ReadBatch
from tests import native_codec
from tests.copying import contents, quarantine, run_of, settings_for
from tests.demo_data import seed_quarter

_LEDGER = (
    "SELECT collection, documents, rows, written, skipped, quarantined, digest FROM migration.chunks ORDER BY 1, 7",
    "SELECT collection, class, kind, path, sum(documents) FROM migration.notes GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4",
    "SELECT collection, source_id, target_table, target_id FROM migration.dangling_references ORDER BY 1, 2, 3, 4",
)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Copy in this process, with the codec that ``MIGRATOR_CODEC`` names now."""
    native_codec.needed()
    monkeypatch.setattr(executors, "SMALL_DOCUMENTS", 100_000)
    native.module.cache_clear()
    yield
    native.module.cache_clear()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of plain documents of each batch that was stored."""
    found: list[int] = []
    counted = chunk._ChunkTotals.plain

    def plain(self: chunk._ChunkTotals, batch: ReadBatch) -> None:
        found.append(batch.plain)
        counted(self, batch)

    monkeypatch.setattr(chunk._ChunkTotals, "plain", plain)
    return found


def copied(monkeypatch: pytest.MonkeyPatch, codec: str, source: Database[Any], dsn: str) -> BackfillResult:
    """Copy with one codec."""
    monkeypatch.setenv(native.VARIABLE, codec)
    native.module.cache_clear()
    return backfill(settings_for(source, dsn, chunk=50_000), Scope())


def ledger_of(dsn: str) -> list[list[tuple[Any, ...]]]:
    with psycopg.connect(dsn) as connection:
        return [connection.execute(statement).fetchall() for statement in _LEDGER]


def test_both_codecs_copy_the_same(
    mongo_client: MongoClient[Any],
    new_scheduler_dsn: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    taken: list[int],
) -> None:
    source = mongo_client["native_copy"]
    seed_quarter(source)
    one, other = new_scheduler_dsn(), new_scheduler_dsn()
    by_python = copied(monkeypatch, native.PYTHON, source, one)
    assert sum(taken) == 0
    natively = copied(monkeypatch, native.NATIVE, source, other)
    assert sum(taken) > 500  # where documents share an id, the chunk is merged, and the Python codec reads what is new
    assert contents(other) == contents(one)
    assert ledger_of(other) == ledger_of(one)
    assert quarantine(other) == quarantine(one)
    assert (natively.documents, natively.written) == (by_python.documents, by_python.written)
    before = ledger_of(one)
    taken.clear()
    assert copied(monkeypatch, native.NATIVE, source, one).written == 0
    assert sum(taken) > 3_000
    assert copied(monkeypatch, native.PYTHON, source, other).written == 0
    assert ledger_of(one)[2:] == before[2:]
    mongo_client.drop_database(source)


def test_both_codecs_keep_and_count_the_same_remainders(
    mongo_database: Database[Any],
    new_scheduler_dsn: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    taken: list[int],
) -> None:
    noted: list[dict[str, Any]] = [{}, {"note": 5}, {"error": None}, {"note": {"a": [1]}, "error": None}]
    runs = [run_of(_id=f"r{number}", id=f"r{number}") | noted[number % 4] for number in range(40)]
    mongo_database["runs"].insert_many(runs)
    one, other = new_scheduler_dsn(), new_scheduler_dsn()
    copied(monkeypatch, native.PYTHON, mongo_database, one)
    assert sum(taken) == 0
    copied(monkeypatch, native.NATIVE, mongo_database, other)
    assert sum(taken) == 40
    assert contents(other) == contents(one)
    assert ledger_of(other) == ledger_of(one)
    kept = [("runs", "remainder", "added", "note", 20), ("runs", "remainder", "null", "error", 20)]
    assert ledger_of(other)[1] == kept
    assert copied(monkeypatch, native.NATIVE, mongo_database, one).written == 0
    assert copied(monkeypatch, native.PYTHON, mongo_database, other).written == 0


def test_plain_documents_that_share_an_id_or_were_changed_are_merged_in_order(
    mongo_database: Database[Any], new_scheduler_dsn: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two documents with one id the first keeps it, whichever of them is stored as it is."""
    digits = "0e5d7c1a9b3f4e6d8c2b1a0f9e8d7c6b"
    runs = mongo_database["runs"]
    runs.insert_many([run_of(_id=f"run_{digits}", id=f"run_{digits}"), run_of(_id="run_z", id="run_z")])
    targets = {codec: new_scheduler_dsn() for codec in (native.PYTHON, native.NATIVE)}
    for codec, dsn in targets.items():
        assert copied(monkeypatch, codec, mongo_database, dsn).written == 2
    runs.insert_many([run_of(_id=f"rux_{digits}", id=f"rux_{digits}"), run_of(_id="run_y", id="run_y")])
    runs.update_one({"_id": "run_z"}, {"$set": {"error": "changed"}})
    for codec, dsn in targets.items():
        done = copied(monkeypatch, codec, mongo_database, dsn)
        assert (done.written, done.quarantined) == (2, 1)
        [entry] = quarantine(dsn)
        assert entry[:3] == ("runs", f"rux_{digits}", "duplicate-id")
    assert contents(targets[native.NATIVE]) == contents(targets[native.PYTHON])
    assert ledger_of(targets[native.NATIVE]) == ledger_of(targets[native.PYTHON])


def test_both_codecs_store_the_same_of_references_into_the_own_table(
    mongo_database: Database[Any],
    new_scheduler_dsn: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
    taken: list[int],
) -> None:
    """The native codec takes those that are left pending; a document with anything else is for the Python codec."""
    ids = [f"run_{number:032x}" for number in range(40)]
    runs = [run_of(_id=one, id=one) for one in ids]
    for number, run in enumerate(runs[:20]):
        run["retryOf"] = ids[(number * 7 + 3) % 40] if number % 2 else f"run_{'a' * 30}{number:02}"
    runs[20] |= {"retryOf": ids[3], "note": 5}
    runs[21] |= {"retryOf": f"run_{'b' * 32}", "scheduleId": "sch_" + "6" * 32}
    runs[22] |= {"retryOf": f"run_{'B' * 32}"}
    runs[23] |= {"retryOf": "another"}
    runs[24] |= {"retryOf": None}
    runs[25] |= {"retryOf": ids[1], "tenantId": "other"}
    runs[26] |= {"retryOf": ids[26]}
    runs[27] |= {"retryOf": f"rux_{'c' * 32}"}
    mongo_database["runs"].insert_many(runs)
    one, other = new_scheduler_dsn(), new_scheduler_dsn()
    copied(monkeypatch, native.PYTHON, mongo_database, one)
    assert sum(taken) == 0
    copied(monkeypatch, native.NATIVE, mongo_database, other)
    assert sum(taken) == 40 - 5  # note, scheduleId, the two other spellings and the other prefix
    assert contents(other) == contents(one)
    assert ledger_of(other) == ledger_of(one)
    with psycopg.connect(other) as connection:
        [filled] = connection.execute("SELECT count(retry_of) FROM scheduler.runs").fetchall()
        [waiting] = connection.execute("SELECT count(*) FROM migration.dangling_references").fetchall()
    assert (filled, waiting) == ((12,), (16,))
    stored = contents(one)
    taken.clear()
    assert copied(monkeypatch, native.NATIVE, mongo_database, one).written == 0
    assert sum(taken) == 40 - 4  # the reference of the one with a note leads to a row now
    assert copied(monkeypatch, native.PYTHON, mongo_database, other).written == 0
    assert ledger_of(other) == ledger_of(one)
    assert contents(other) == contents(one) == stored
