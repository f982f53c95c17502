"""The copy on real servers: what it writes, what it refuses, and that a second call writes nothing."""

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import bson
import psycopg
import pytest
from msgspec.structs import replace
from pymongo import MongoClient
from pymongo.database import Database

from migrator.errors import RefusedError, UsageError
from migrator.parity.check import check_parity
from migrator.pipeline import backfill as flow
from migrator.pipeline import completion, deferred_ddl, ledger, load, locks, plan, references, sessions
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.quarantine import entries, retry
from migrator.pipeline.transform import PendingLink
from migrator.schema.catalogue import differences
from migrator.testing.demo import SEED, Size, faulty_documents
from migrator.testing.demo.seed import seed
from tests.copying import EVERY_ID, contents, number, quarantine, run_of, settings_for
from tests.demo_data import seed_quarter
from tests.stellaops_documents import fresh

EVERYTHING = Scope()


@pytest.fixture(scope="module")
def small(mongo_client: MongoClient[Any]) -> Iterator[Database[Any]]:
    """The demo's data, to be read only."""
    database = mongo_client["backfill_small"]
    seed(database, Size.SMALL)
    yield database
    mongo_client.drop_database(database)


@pytest.fixture(scope="module")
def kept_quarter(mongo_client: MongoClient[Any]) -> Iterator[Database[Any]]:
    database = mongo_client["backfill_quarter"]
    seed_quarter(database)
    yield database
    mongo_client.drop_database(database)


@pytest.fixture
def quarter(kept_quarter: Database[Any], monkeypatch: pytest.MonkeyPatch) -> Database[Any]:
    """A quarter of it, to be read only, too; a copy drops the indexes of its runs, as of those of the whole."""
    monkeypatch.setattr(deferred_ddl, "MIN_DOCUMENTS", deferred_ddl.MIN_DOCUMENTS // 4)
    return kept_quarter


@pytest.mark.proves("0-O6")
def test_a_second_copy_writes_nothing(small: Database[Any], scheduler_dsn: str) -> None:
    """0-O6: re-run writes 0 rows, also in tables with serial ids."""
    settings = settings_for(small, scheduler_dsn, workers=2, chunk=3_000)
    first = backfill(settings, EVERYTHING)
    before = contents(scheduler_dsn)
    assert first.written == sum(rows for rows, _ in before.values()) - 1 > 20_000  # one row says that it is a copy
    second = backfill(settings, EVERYTHING)
    assert (second.written, second.documents) == (0, first.documents)
    assert contents(scheduler_dsn) == before
    assert (second.quarantined, second.dangling) == (first.quarantined, first.dangling)
    faulty = faulty_documents(SEED)
    assert first.dangling >= sum((item.outcome, item.reason) == ("loaded", "orphan") for item in faulty) > 0


def test_a_chunk_that_is_done_is_not_taken_again(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    mongo_database["runs"].insert_one(run_of(_id="a"))
    assert backfill(settings_for(mongo_database, scheduler_dsn), EVERYTHING).complete
    with psycopg.connect(scheduler_dsn) as connection:
        made = ledger.latest_plan(connection)
        assert made is not None
        (chunk,) = ledger.chunks_of(connection, made.id)
        assert chunk.done
        assert not ledger.take_chunk(connection, made.id, chunk.collection, chunk.ordinal)


@pytest.mark.proves("0-X3")
def test_two_copies_are_identical_whatever_the_workers(
    quarter: Database[Any], new_scheduler_dsn: Callable[[], str]
) -> None:
    """0-X3: the result does not depend on worker order."""
    one, other = new_scheduler_dsn(), new_scheduler_dsn()
    backfill(settings_for(quarter, one, workers=1, chunk=50_000), EVERYTHING)
    backfill(settings_for(quarter, other, workers=3, chunk=35), EVERYTHING)
    assert contents(one) == contents(other)
    assert quarantine(one) == quarantine(other)
    assert differences(one) == differences(other) == []  # what was dropped for the load is back


def test_every_postgres(quarter: Database[Any], any_scheduler_dsn: str) -> None:
    settings = settings_for(quarter, any_scheduler_dsn)
    done = backfill(settings, EVERYTHING)
    outcome = check_parity(settings, EVERYTHING)
    assert all(one.balanced and not (one.differing or one.missing or one.extra) for one in outcome.collections)
    assert sum(one.documents for one in outcome.collections) == done.documents
    assert not any(figure.differing_total for figure in outcome.aggregates)


@pytest.mark.proves("0-O6")
def test_a_dry_run_writes_nothing(small: Database[Any], scheduler_dsn: str) -> None:
    before = contents(scheduler_dsn)
    done = backfill(settings_for(small, scheduler_dsn), EVERYTHING, dry_run=True)
    assert done.rows > 20_000
    assert (done.written, done.quarantined > 0) == (0, True)
    assert contents(scheduler_dsn) == before
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.plans") == 0
    assert number(scheduler_dsn, "SELECT count(*) FROM migration.quarantine") == 0


def test_changed_documents_are_brought_up_to_date(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(mongo_database, scheduler_dsn)
    mongo_database["runs"].insert_many([run_of(_id=f"run_{n:032x}", id=f"run_{n:032x}") for n in range(50)])
    backfill(settings, EVERYTHING)
    # 1 and 1.0 are equal to jsonb's own comparison; the copy must see the difference all the same
    mongo_database["runs"].update_one({"_id": f"run_{7:032x}"}, {"$set": {"deltas": [], "note": 1}})
    backfill(settings, EVERYTHING)
    mongo_database["runs"].update_one({"_id": f"run_{7:032x}"}, {"$set": {"note": 1.0}})
    again = backfill(settings, EVERYTHING)
    assert again.written == 1
    outcome = check_parity(settings, EVERYTHING)
    assert [one.matched for one in outcome.collections] == [50]


@pytest.mark.parametrize(("chunk", "chunks_here"), [(100, 1), (25, 0)])
def test_few_documents_in_one_chunk_start_no_worker_process(
    chunk: int, chunks_here: int, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(50)])
    done = backfill(settings_for(mongo_database, scheduler_dsn, chunk=chunk), EVERYTHING)
    assert done.written == 50
    own = number(scheduler_dsn, f"SELECT count(*) FROM migration.chunks WHERE worker LIKE '%:{os.getpid()}'")
    assert own == chunks_here
    assert not sessions._cached


def test_statistics_after_a_copy_are_there_from_a_small_sample(
    mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(50)])
    backfill(settings_for(mongo_database, scheduler_dsn), EVERYTHING)
    bounds = (
        "SELECT array_length(histogram_bounds::text::text[], 1) FROM pg_stats"
        " WHERE schemaname = 'scheduler' AND tablename = 'runs' AND attname = '{}'"
    )
    assert number(scheduler_dsn, bounds.format("id")) == completion.STATISTICS_ENTRIES + 1 < 50
    with psycopg.connect(scheduler_dsn) as target:
        assert target.execute(bounds.format("stats")).fetchone() is None


def test_of_two_pending_references_of_one_column_the_last_counts(scheduler_dsn: str) -> None:
    def link(to: int, extra: bytes) -> PendingLink:
        return PendingLink("runs", UUID(int=1), "acme", "retry_of", "runs", UUID(int=to), None, f"r{to}", extra)

    with psycopg.connect(scheduler_dsn) as target:
        ledger.store_links(target, "runs", [])
        ledger.store_links(target, "runs", [link(2, b"{}"), link(3, b'{"/a": 1}')])
        stored = "SELECT target_id, target_source, target_source_id, resolved_extra FROM migration.pending_links"
        assert target.execute(stored).fetchall() == [(UUID(int=3), None, "r3", {"/a": 1})]
        ledger.store_links(target, "runs", [link(4, b"{}")])
        assert target.execute(stored).fetchall() == [(UUID(int=4), None, "r4", {})]


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_ids_of_every_type_are_read(chunk: int, mongo_database: Database[Any], scheduler_dsn: str) -> None:
    """Paging by ``$gt`` would read 2 of them."""
    settings = settings_for(mongo_database, scheduler_dsn, chunk=chunk)
    mongo_database["runs"].insert_many([run_of(_id=key) for key in EVERY_ID])
    done = backfill(settings, EVERYTHING)
    assert (done.documents, done.written, done.quarantined) == (len(EVERY_ID), len(EVERY_ID), 0)
    outcome = check_parity(settings, EVERYTHING)
    assert [one.matched for one in outcome.collections] == [len(EVERY_ID)]


def test_a_document_of_sixteen_megabytes(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(mongo_database, scheduler_dsn)
    limit = 16 * 1024 * 1024
    document = run_of(_id="run_" + "0" * 32, id="run_" + "0" * 32)
    document["blob"] = "x" * (limit - len(bson.encode(document)) - 20)
    mongo_database["runs"].insert_one(document)
    assert backfill(settings, EVERYTHING).written == 1
    outcome = check_parity(settings, EVERYTHING)
    assert outcome.collections[0].matched == 1


def test_two_ids_that_meet_the_first_in_id_order_wins(
    mongo_database: Database[Any], new_scheduler_dsn: Callable[[], str]
) -> None:
    """Whatever the load order: here the later chunk is loaded first in one of the copies."""
    shared = "0123456789abcdef0123456789abcdef"
    first, second, third = f"aaa_{shared}", f"run_{shared}", f"zzz_{shared}"
    mongo_database["runs"].insert_many([run_of(_id=key, id=key) for key in (third, first, second)])
    found = []
    for backwards in (False, True):
        dsn = new_scheduler_dsn()
        settings = settings_for(mongo_database, dsn, chunk=1)
        if backwards:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(plan, "cut", _backwards(plan.cut))
                backfill(settings, EVERYTHING)
        else:
            backfill(settings, EVERYTHING)
        found.append((number(dsn, "SELECT source_id FROM scheduler.runs"), [row[1] for row in quarantine(dsn)]))
        assert backfill(settings, EVERYTHING).written == 0
        assert sum(one.quarantined for one in check_parity(settings, EVERYTHING).collections) == 2
    assert found[0][0] == found[1][0] == first
    assert sorted(found[0][1]) == sorted(found[1][1]) == [second, third]


def test_an_id_that_another_worker_stores_meanwhile_is_told_as_one_that_is_stored(
    mongo_database: Database[Any], scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = "0123456789abcdef0123456789abcdef"
    first, second = f"aaa_{shared}", f"run_{shared}"
    settings = settings_for(mongo_database, scheduler_dsn)
    mongo_database["runs"].insert_one(run_of(_id=first, id=first))
    backfill(settings, EVERYTHING)
    mongo_database["runs"].insert_one(run_of(_id=second, id=second))
    monkeypatch.setattr(load, "fetch", lambda *_: {})
    backfill(settings, EVERYTHING)
    [entry] = entries(settings)
    assert (entry.source_id, entry.reason, entry.expected) == (second, "duplicate-id", "an id of its own")


def _backwards(cut: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: list(cut(*arguments))[::-1]


def test_retry_of_points_forward_and_to_nothing(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(mongo_database, scheduler_dsn, chunk=1)
    early, late, lost = "run_" + "1" * 32, "run_" + "2" * 32, "run_" + "3" * 32
    mongo_database["runs"].insert_many(
        [run_of(_id=early, id=early, retryOf=late), run_of(_id=late, id=late, retryOf=lost)]
    )
    done = backfill(settings, EVERYTHING)
    assert done.dangling == 1
    with psycopg.connect(scheduler_dsn) as connection:
        rows = connection.execute("SELECT source_id, retry_of, extra FROM scheduler.runs ORDER BY source_id").fetchall()
    assert rows[0][1].hex == "2" * 32
    assert rows[0][2] == {}
    assert rows[1][1:] == (None, {"+retryOf": lost})
    assert check_parity(settings, EVERYTHING).collections[0].matched == 2
    # the missing run turns up: the next copy fills the reference and empties the remainder
    mongo_database["runs"].insert_one(run_of(_id=lost, id=lost))
    backfill(settings, EVERYTHING)
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs WHERE retry_of IS NOT NULL AND extra = '{}'") == 2
    assert check_parity(settings, EVERYTHING).collections[0].matched == 3


def test_more_references_than_are_remembered(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    """What is forgotten to bound the memory is asked again, also what the documents at hand refer to."""
    dice = random.Random(7)
    schedules = [f"sch_{n:032x}" for n in range(120)]
    mongo_database["schedules"].insert_many([fresh("schedules", _id=key, id=key) for key in schedules])
    mongo_database["runs"].insert_many(
        [run_of(_id=f"run_{n:032x}", id=f"run_{n:032x}", scheduleId=dice.choice(schedules)) for n in range(400)]
    )
    settings = settings_for(mongo_database, scheduler_dsn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "executor", lambda _: ThreadPoolExecutor(1))  # a process of its own would not be patched
        patch.setattr(references, "CACHED_IDS", 30)
        done = backfill(settings, EVERYTHING)
        sessions.close_cached()
    assert done.dangling == 0
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs WHERE schedule_id IS NULL") == 0


def test_quarantine_is_retried_after_the_source_was_mended(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(mongo_database, scheduler_dsn)
    mongo_database["runs"].insert_many(
        [run_of(_id="bad", state="exploded"), run_of(_id="gone", state="exploded"), run_of(_id="still", state="odd")]
    )
    assert backfill(settings, EVERYTHING).quarantined == 3
    assert {(one.source_id, one.reason, one.path) for one in entries(settings)} == {
        (key, "unknown-value", "state") for key in ("bad", "gone", "still")
    }
    mongo_database["runs"].update_one({"_id": "bad"}, {"$set": {"state": "completed"}})
    mongo_database["runs"].delete_one({"_id": "gone"})
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as target:
        target.execute("UPDATE migration.plans SET state = 'open'")
        with pytest.raises(RefusedError, match="the copy is not complete; call migrator backfill"):
            retry(settings)
        target.execute("UPDATE migration.plans SET state = 'complete'")
    done = retry(settings)
    assert (done.loaded, done.gone, done.rejected) == (1, 1, 1)
    assert [one.source_id for one in entries(settings)] == ["still"]
    outcome = check_parity(settings, EVERYTHING).collections[0]
    assert (outcome.matched, outcome.quarantined, outcome.missing) == (1, 1, 0)


def test_a_copy_after_the_source_was_mended_releases_the_document(
    mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    settings = settings_for(mongo_database, scheduler_dsn)
    mongo_database["runs"].insert_one(run_of(_id="bad", state="exploded"))
    backfill(settings, EVERYTHING)
    mongo_database["runs"].update_one({"_id": "bad"}, {"$set": {"state": "completed"}})
    again = backfill(settings, EVERYTHING)
    assert (again.written, again.quarantined) == (1, 0)


FOREIGN = {
    "runs": "INSERT INTO scheduler.runs (id, tenant_id, state, created_at)"
    " VALUES (gen_random_uuid(), 't', 'queued', now())",
    "graph_jobs": "INSERT INTO scheduler.graph_jobs (id, tenant_id, type, status, payload, created_at, updated_at)"
    " VALUES (gen_random_uuid(), 't', 0, 0, '{}', now(), now())",
}


@pytest.mark.parametrize("table", FOREIGN)
def test_foreign_rows_are_refused(table: str, mongo_database: Database[Any], scheduler_dsn: str) -> None:
    mongo_database["graph_jobs"].insert_one(fresh("graph_jobs"))
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(FOREIGN[table])
    settings = settings_for(mongo_database, scheduler_dsn)
    with pytest.raises(RefusedError, match=rf"scheduler\.{table} holds rows that did not come from profile stellaops"):
        backfill(settings, EVERYTHING)
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(f"DELETE FROM scheduler.{table}")
    assert backfill(settings, EVERYTHING).written == 1
    assert backfill(settings, EVERYTHING).written == 0


def test_an_unfinished_copy_is_not_resumed_under_other_settings(
    mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    settings = settings_for(mongo_database, scheduler_dsn, chunk=1)
    mongo_database["runs"].insert_many([run_of(_id=f"r{n}") for n in range(3)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_run_level", lambda *_: False)
        assert not backfill(settings, EVERYTHING).complete
    other = replace(settings, source=replace(settings.source, default_tenant="other"))
    with pytest.raises(RefusedError, match="configuration digest"):
        backfill(other, EVERYTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("migrator.pipeline.plan.__version__", "99")
        with pytest.raises(RefusedError, match="tool version"):
            backfill(settings, EVERYTHING)
    resumed = backfill(settings, EVERYTHING)
    assert (resumed.resumed, resumed.written) == (True, 3)


def test_restart_forgets_the_ledger_and_keeps_the_rows(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(mongo_database, scheduler_dsn)
    mongo_database["runs"].insert_many([run_of(_id=f"r{n}") for n in range(3)])
    backfill(settings, EVERYTHING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_run_level", lambda *_: False)
        backfill(settings, EVERYTHING)
    other = replace(settings, source=replace(settings.source, carry_expired_locks=True))
    again = backfill(other, EVERYTHING, restart=True)
    assert (again.resumed, again.written) == (False, 0)


def test_one_backfill_at_a_time(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    mongo_database["runs"].insert_one(run_of())
    with psycopg.connect(scheduler_dsn, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (locks.BACKFILL_KEY,))
        with pytest.raises(RefusedError, match="another backfill"):
            backfill(settings_for(mongo_database, scheduler_dsn), EVERYTHING)
    assert backfill(settings_for(mongo_database, scheduler_dsn), EVERYTHING).written == 1


def test_only_needs_its_parents(quarter: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(quarter, scheduler_dsn)
    with pytest.raises(RefusedError, match="--only runs needs schedules loaded first"):
        backfill(settings, Scope(only=("runs",)))
    with pytest.raises(UsageError, match="unknown collection nonsense"):
        backfill(settings, Scope(only=("nonsense",)))
    backfill(settings, Scope(only=("schedules",)))
    assert backfill(settings, Scope(only=("runs",))).written > 2_500
    outcome = check_parity(settings, EVERYTHING)
    compared = {one.collection for one in outcome.collections if not one.unverified}
    assert compared == {"schedules", "runs"}


def test_one_tenant_alone(quarter: Database[Any], scheduler_dsn: str) -> None:
    settings = settings_for(quarter, scheduler_dsn)
    tenant = quarter["runs"].find_one({"tenantId": {"$type": "string"}})["tenantId"]  # type: ignore[index]
    backfill(settings, Scope(tenants=(tenant,)))
    with psycopg.connect(scheduler_dsn) as connection:
        tenants = connection.execute("SELECT DISTINCT tenant_id FROM scheduler.runs").fetchall()
    assert tenants == [(tenant,)]


def test_a_database_without_the_profiles_collections(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    mongo_database["something"].insert_one({})
    with pytest.raises(RefusedError, match="no collection of profile stellaops; it has: something"):
        backfill(settings_for(mongo_database, scheduler_dsn), EVERYTHING)
