"""The comparison of every document, against each kind of difference: it is named with side, id, column and cause."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from bson import Int64, ObjectId
from msgspec.structs import replace
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import AutoReconnect

from migrator.connections.mongo import translate_errors
from migrator.errors import RefusedError
from migrator.parity import aggregates, check, model, recorded_check
from migrator.parity.causes import CAUSES
from migrator.parity.check import check_parity
from migrator.parity.foreign_copy import check_foreign_copy
from migrator.parity.model import CollectionComparison, ParityOutcome, in_order
from migrator.parity.repair import apply_repair
from migrator.pipeline import backfill as flow
from migrator.pipeline import checksums
from migrator.pipeline import plan as plans
from migrator.pipeline.backfill import backfill
from migrator.pipeline.census import census
from migrator.pipeline.extract import MongoCollection
from migrator.pipeline.plan import Scope
from migrator.pipeline.quarantine import retry
from migrator.result import Finding
from tests.agenda_documents import created_4
from tests.conftest import Clusters
from tests.copying import run_of, settings_for
from tests.stellaops_documents import fresh

Place = tuple[str, str, str, str, str]
"""Side, table, column, source id and cause."""

SCHEDULE = "sch_" + "5" * 32
RUNS = 6


def documents() -> dict[str, list[dict[str, Any]]]:
    """Return clean documents, one with remainder, one for the quarantine, one that a rule leaves behind."""
    runs = [run_of(_id=f"r{number}", id=f"r{number}", scheduleId=SCHEDULE) for number in range(RUNS)]
    runs[1]["note"] = {"count": Int64(1), "at": datetime(2026, 1, 2, tzinfo=UTC)}
    expired = fresh("locks", _id="gone", expiresAt=datetime.now(UTC) - timedelta(days=1))
    return {
        "schedules": [fresh("schedules", _id=SCHEDULE, id=SCHEDULE)],
        "runs": [*runs, run_of(_id="odd", id="odd", state="exploded")],
        "graph_jobs": [fresh("graph_jobs", _id="g1", id="g1")],
        "locks": [fresh("locks", _id="live", expiresAt=datetime.now(UTC) + timedelta(days=9)), expired],
    }


@pytest.fixture(scope="module")
def source(mongo_client: MongoClient[Any]) -> Iterator[Database[Any]]:
    database = mongo_client["parity"]
    for name, some in documents().items():
        database[name].insert_many(some)
    yield database
    mongo_client.drop_database(database)


@pytest.fixture(scope="module")
def copied(source: Database[Any], clusters: Clusters) -> Iterator[str]:
    """A finished copy, to be cloned."""
    cluster = clusters.get(18)
    dsn = cluster.scheduler()
    assert backfill(settings_for(source, dsn), Scope()).quarantined == 1
    yield dsn
    cluster.drop(dsn)


@pytest.fixture
def dsn(copied: str, clusters: Clusters) -> Iterator[str]:
    cluster = clusters.get(18)
    clone = cluster.server.create_database("parity_clone", template=copied.rpartition("/")[2])
    yield clone
    cluster.drop(clone)


@pytest.fixture
def compared(source: Database[Any], dsn: str) -> Callable[..., ParityOutcome]:
    return lambda chunk=3, **scope: check_parity(settings_for(source, dsn, chunk=chunk), Scope(**scope))


def collection(outcome: ParityOutcome, name: str) -> CollectionComparison:
    (found,) = [one for one in outcome.collections if one.collection == name]
    return found


def places(outcome: ParityOutcome) -> set[Place]:
    return {_place(one) for each in outcome.collections for one in each.findings}


def _place(one: Finding) -> Place:
    return one.side, one.table, one.path, one.key, one.cause


def assert_balanced(outcome: ParityOutcome) -> None:
    assert all(one.balanced for one in outcome.collections)


@pytest.mark.proves("0-X1", "1-D3")
def test_a_sound_copy_is_equal_and_its_sum_holds(compared: Callable[..., ParityOutcome]) -> None:
    outcome = compared()
    assert places(outcome) == set()
    assert_balanced(outcome)
    runs, locks = collection(outcome, "runs"), collection(outcome, "locks")
    assert (runs.documents, runs.matched, runs.without_remainder, runs.with_remainder, runs.quarantined) == (
        RUNS + 1,
        RUNS,
        RUNS - 1,
        1,
        1,
    )
    assert runs.excluded == ("odd",)
    assert [(line.reason, line.path, line.count, line.keys) for line in runs.quarantine] == [
        ("unknown-value", "state", 1, ("odd",))
    ]
    assert (locks.documents, locks.matched, locks.skipped) == (2, 1, {"expired lock": 1})
    assert not any(one.differing_total or one.unverified for one in outcome.aggregates)


def test_a_source_that_fails_while_ranges_are_searched_is_asked_again(
    source: Database[Any], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = MongoCollection.next_bound, list[bytes | None]()

    def next_bound(reader: MongoCollection, lower: bytes | None, steps: int) -> bytes | None:
        asked.append(lower)
        with translate_errors("the source"):
            if len(asked) == 2:
                raise AutoReconnect("gone for the moment")
        return real(reader, lower, steps)

    monkeypatch.setattr(MongoCollection, "next_bound", next_bound)
    monkeypatch.setattr(plans, "bounds_of", lambda *_: [])
    settings = settings_for(source, dsn, chunk=3)
    assert not check_parity(settings, Scope()).differs
    assert asked[1] == asked[2]
    asked.clear()
    assert sum(one.documents for one in census(settings, Scope()).collections) == sum(map(len, documents().values()))
    assert asked[1] == asked[2]


@pytest.mark.parametrize(
    ("chunk", "searches"),
    [(3, 1), (4, 1), (2, 4), (7, 2)],
    ids=["alike", "larger by less than twice", "smaller", "larger by more than twice"],
)
def test_documents_between_the_keys_of_the_copy_are_all_compared(
    chunk: int, searches: int, mongo_database: Database[Any], scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has cut between r2 and r3, and between r5 and r6. Three documents came later."""
    source = mongo_database["runs"]
    source.insert_many([run_of(_id=f"r{number}", id=f"r{number}") for number in range(7)])
    assert backfill(settings_for(mongo_database, scheduler_dsn, chunk=3), Scope()).complete
    source.insert_many([run_of(_id=key, id=key) for key in ("a", "r2a", "z")])
    source.delete_many({"_id": {"$in": ["r3", "r6"]}})  # two of the keys
    real, asked = MongoCollection.next_bound, list[bytes | None]()

    def next_bound(reader: MongoCollection, lower: bytes | None, steps: int) -> bytes | None:
        asked.append(lower)
        return real(reader, lower, steps)

    monkeypatch.setattr(MongoCollection, "next_bound", next_bound)
    outcome = check_parity(settings_for(mongo_database, scheduler_dsn, chunk=chunk), Scope())
    assert {(one.side, one.key) for one in collection(outcome, "runs").findings} == {
        *(("missing", key) for key in ("a", "r2a", "z")),
        *(("extra", key) for key in ("r3", "r6")),
    }
    assert collection(outcome, "runs").documents == 8
    assert len(asked) == searches, "only behind the last key, or all are searched"


STORED: dict[str, tuple[str, set[Place]]] = {
    "a nested number": (
        "UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', '987654') WHERE source_id = 'r2'",
        {("row", "runs", "stats", "r2", "number")},
    ),
    "an int became a double": (
        """UPDATE scheduler.runs SET stats = jsonb_set(stats, '{queued}', ((stats ->> 'queued') || '.0')::jsonb)
           WHERE source_id = 'r2'""",
        {("row", "runs", "stats", "r2", "number-type")},
    ),
    "a microsecond": (
        "UPDATE scheduler.runs SET created_at = created_at + interval '1 us' WHERE source_id = 'r3'",
        {("row", "runs", "created_at", "r3", "time-precision")},
    ),
    "a text": (
        "UPDATE scheduler.schedules SET name = 'another'",
        {("row", "schedules", "name", SCHEDULE, "text")},
    ),
    "a row is gone": (
        "DELETE FROM scheduler.runs WHERE source_id = 'r4'",
        {("missing", "runs", "", "r4", "missing-row")},
    ),
    "an extra row": (
        """INSERT INTO scheduler.runs (id, tenant_id, source, source_id, state, created_at)
           SELECT gen_random_uuid(), tenant_id, source, 'ghost', state, created_at FROM scheduler.runs LIMIT 1""",
        {("extra", "runs", "", "ghost", "extra-row")},
    ),
    "one gone and one too many": (
        "UPDATE scheduler.runs SET id = gen_random_uuid() WHERE source_id = 'r4'",
        {("missing", "runs", "", "r4", "missing-row"), ("extra", "runs", "", "r4", "extra-row")},
    ),
    "the remainder": (
        "UPDATE scheduler.runs SET extra = jsonb_set(extra, '{unknown}', '1') WHERE source_id = 'r1'",
        {("row", "runs", "extra", "r1", "keys")},
    ),
    "no remainder": (
        "UPDATE scheduler.runs SET extra = '{}' WHERE source_id = 'r1'",
        {("row", "runs", "extra", "r1", "keys")},
    ),
    "a remainder where none belongs": (
        """UPDATE scheduler.runs SET extra = '{"a": 1}' WHERE source_id = 'r2'""",
        {("row", "runs", "extra", "r2", "keys")},
    ),
    "the tenant": (
        (
            "UPDATE scheduler.locks SET tenant_id = 'somebody', key = 'somebody' || substr(key, strpos(key, '/'))"
            " WHERE source IS NOT NULL"
        ),
        {("row", "locks", "tenant_id", "live", "text"), ("row", "locks", "key", "live", "text")},
    ),
    "a reference": (
        "UPDATE scheduler.runs SET schedule_id = NULL WHERE source_id = 'r5'",
        {("row", "runs", "schedule_id", "r5", "reference")},
    ),
    "a column that contradicts its payload": (
        "UPDATE scheduler.graph_jobs SET status = (status + 1) % 6",
        {("row", "graph_jobs", "status", "g1", "number")},
    ),
    "the trigger beside the schedule": (
        "DELETE FROM scheduler.triggers",
        {("missing", "triggers", "", SCHEDULE, "missing-row")},
    ),
    "a document is no longer accounted for": (
        "DELETE FROM migration.quarantine",
        {("rejected", "", "", "odd", "unquarantined")},
    ),
    "the reason of an entry in quarantine": (
        "UPDATE migration.quarantine SET reason = 'harmless'",
        {("ledger", "", "", "odd", "quarantine-entry")},
    ),
    "the bytes of an entry in quarantine": (
        "UPDATE migration.quarantine SET raw = raw || '\\x00'",
        {("ledger", "", "", "odd", "quarantine-changed")},
    ),
}


@pytest.mark.parametrize("fault", STORED)
@pytest.mark.proves("0-X1")
def test_what_was_changed_in_the_target_is_named(fault: str, dsn: str, compared: Callable[..., ParityOutcome]) -> None:
    statement, expected = STORED[fault]
    with psycopg.connect(dsn) as connection:
        assert connection.execute(statement).rowcount == 1
    outcome = compared()
    assert places(outcome) == expected
    assert_balanced(outcome)
    counted = {
        (side, tally.table, tally.path, tally.cause) for one in outcome.collections for side, tally in one.tallied()
    }
    assert counted == {(side, table, path, cause) for side, table, path, _, cause in expected}


def test_a_document_that_changed_after_the_copy(source: Database[Any], compared: Callable[..., ParityOutcome]) -> None:
    before = source["runs"].find_one_and_update({"_id": "r2"}, {"$set": {"stats.queued": 987_654}})
    assert before is not None
    try:
        outcome = compared()
    finally:
        source["runs"].replace_one({"_id": "r2"}, before)
    assert places(outcome) == {("row", "runs", "stats", "r2", "number")}
    assert_balanced(outcome)


def test_a_document_that_says_it_changed_after_the_copy_is_stale(
    source: Database[Any], compared: Callable[..., ParityOutcome]
) -> None:
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    before = source["schedules"].find_one_and_update({"_id": SCHEDULE}, {"$set": {"updatedAt": later, "name": "new"}})
    assert before is not None
    try:
        outcome = compared()
    finally:
        source["schedules"].replace_one({"_id": SCHEDULE}, before)
    stale = {place for place in places(outcome) if place[4] == "stale"}
    assert {place[2] for place in stale} >= {"name", "updated_at"}
    assert stale == places(outcome)


def test_a_row_that_somebody_else_wrote_over(dsn: str, compared: Callable[..., ParityOutcome]) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE scheduler.runs SET source = NULL, cause = 'other' WHERE source_id = 'r2'")
    found = places(compared())
    assert {("row", "runs", path, "r2", "foreign-writer") for path in ("source", "cause")} <= found


def test_a_document_that_came_after_the_copy(source: Database[Any], compared: Callable[..., ParityOutcome]) -> None:
    source["runs"].insert_one(run_of(_id="new", id="new"))
    try:
        outcome = compared()
    finally:
        source["runs"].delete_one({"_id": "new"})
    assert places(outcome) == {("missing", "runs", "", "new", "missing-row")}
    assert_balanced(outcome)
    assert any(one.differing_total for one in outcome.aggregates if one.collection == "runs")


def test_a_document_that_went_after_the_copy(source: Database[Any], compared: Callable[..., ParityOutcome]) -> None:
    gone = source["runs"].find_one_and_delete({"_id": "r4"})
    try:
        outcome = compared()
    finally:
        source["runs"].insert_one(gone)
    assert places(outcome) == {("extra", "runs", "", "r4", "extra-row")}
    assert_balanced(outcome)


def test_a_document_that_became_unreadable_after_the_copy(
    source: Database[Any], compared: Callable[..., ParityOutcome]
) -> None:
    """Its row is stored, and it is not in quarantine: one difference, with the reason that it would have there."""
    before = source["runs"].find_one_and_update({"_id": "r4"}, {"$set": {"state": "exploded"}})
    assert before is not None
    try:
        outcome = compared()
    finally:
        source["runs"].replace_one({"_id": "r4"}, before)
    assert places(outcome) == {("rejected", "", "", "r4", "unquarantined")}
    runs = collection(outcome, "runs")
    assert (runs.differing, runs.missing, runs.extra) == (1, 0, 0)
    assert runs.findings[0].details[0].startswith("unknown-value at state: expected one of ")
    assert_balanced(outcome)


@pytest.mark.parametrize(
    ("change", "cause"),
    [({"state": "completed"}, "quarantine-loadable"), ({"state": "imploded"}, "quarantine-changed")],
)
def test_a_quarantined_document_that_changed_at_the_source_is_told_and_retry_mends_it(
    change: dict[str, Any], cause: str, source: Database[Any], dsn: str, compared: Callable[..., ParityOutcome]
) -> None:
    before = source["runs"].find_one_and_update({"_id": "odd"}, {"$set": change})
    assert before is not None
    try:
        outcome = compared()
        assert places(outcome) == {("ledger", "", "", "odd", cause)}
        assert outcome.differs
        assert_balanced(outcome)
        assert "call quarantine retry" in CAUSES[cause].fix  # type: ignore[index] # one of its causes
        retry(settings_for(source, dsn))
        again = compared()
    finally:
        source["runs"].replace_one({"_id": "odd"}, before)
    assert places(again) == set()
    assert collection(again, "runs").quarantined == (cause == "quarantine-changed")


def test_an_entry_that_was_rewritten_is_brought_up_to_date_by_retry(
    source: Database[Any], dsn: str, compared: Callable[..., ParityOutcome]
) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE migration.quarantine SET expected = 'nothing'")
    assert places(compared()) == {("ledger", "", "", "odd", "quarantine-entry")}
    retry(settings_for(source, dsn))
    assert places(compared()) == set()


def test_a_dangling_reference_that_is_not_on_record_is_told_and_repair_records_it(
    mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    mongo_database["schedules"].insert_one(fresh("schedules", _id=SCHEDULE, id=SCHEDULE))
    mongo_database["runs"].insert_many(
        [
            run_of(_id="r1", id="r1", scheduleId="sch_" + "6" * 32),
            run_of(_id="r2", id="r2", retryOf="run_" + "7" * 32),
            run_of(_id="r3", id="r3", scheduleId=SCHEDULE),
        ]
    )
    settings = settings_for(mongo_database, scheduler_dsn)
    assert backfill(settings, Scope()).complete
    assert places(check_parity(settings, Scope())) == set()
    with psycopg.connect(scheduler_dsn) as connection:
        assert connection.execute("DELETE FROM migration.dangling_references").rowcount == 2
    found = check_parity(settings, Scope())
    assert places(found) == {("ledger", "", "", key, "reference-unrecorded") for key in ("r1", "r2")}
    assert "parity --repair apply" in CAUSES["reference-unrecorded"].fix
    assert places(apply_repair(settings, Scope()).after) == set()  # type: ignore[arg-type] # it was applied


def test_a_recorded_comparison_or_a_plan_that_was_changed_by_hand_is_told(source: Database[Any], dsn: str) -> None:
    recorded_check.check_and_record(settings_for(source, dsn))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET timezone = 'Asia/Kathmandu'")
        sound = checksums.verify_checksums(connection)
        assert (sound.changed, sound.without) == ((), 0)
        connection.execute("UPDATE migration.parity_checks SET clean = NOT clean")
        assert [table for table, _ in checksums.verify_checksums(connection).changed] == ["parity_checks"]
        connection.execute("UPDATE migration.plans SET as_of = as_of - interval '1 day'")
        assert [table for table, _ in checksums.verify_checksums(connection).changed] == ["plans", "parity_checks"]
        connection.execute("UPDATE migration.chunks SET checksum = NULL")
        assert checksums.verify_checksums(connection).without == sound.rows - 2


def test_the_list_of_differences_is_bounded_and_their_count_is_not(dsn: str, source: Database[Any]) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE scheduler.runs SET created_at = created_at + interval '1 ms', cause = 'other'")
    settings = settings_for(source, dsn, chunk=1)
    settings = replace(settings, report=replace(settings.report, max_differences=3))
    runs = collection(check_parity(settings, Scope()), "runs")
    assert len(runs.findings) == 3
    assert runs.differing == RUNS
    assert {(one.path, one.count) for _, one in runs.tallied()} == {("created_at", RUNS), ("cause", RUNS)}
    assert runs.findings == tuple(in_order(runs.findings))


def test_one_collection_alone_leaves_the_others_unverified(compared: Callable[..., ParityOutcome]) -> None:
    outcome = compared(only=("runs",))
    assert {one.collection: one.unverified for one in outcome.collections if one.unverified} == dict.fromkeys(
        ("schedules", "graph_jobs", "locks"), "left out by --only"
    )
    assert collection(outcome, "runs").matched == RUNS


def test_any_cut_gives_the_same_answer(compared: Callable[..., ParityOutcome], dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE scheduler.runs SET cause = 'other' WHERE source_id IN ('r1', 'r4')")
        connection.execute("DELETE FROM scheduler.runs WHERE source_id = 'r2'")
    assert len(compared(chunk=100).collections) == len(documents())
    assert compared(chunk=1) == compared(chunk=2) == compared(chunk=100)


DERIVED = {
    "UPDATE scheduler.workers SET status = 'active' WHERE source_id = 'one'": {
        ("row", "workers", "status", "one", "foreign-writer")
    },
    "DELETE FROM scheduler.workers WHERE source_id = 'two'": {("missing", "workers", "", "two", "missing-row")},
    "UPDATE scheduler.workers SET id = gen_random_uuid() WHERE source_id = 'one'": {
        ("missing", "workers", "", "one", "missing-row"),
        ("extra", "workers", "", "one", "extra-row"),
    },
}


@pytest.mark.parametrize("statement", DERIVED)
def test_rows_that_many_documents_make_together(
    statement: str, mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    mongo_database["agendaJobs"].insert_many(
        [created_4(_id=ObjectId(), lastModifiedBy=name) for name in ("one", "two", "two")]
    )
    settings = settings_for(mongo_database, scheduler_dsn, profile="agenda")
    backfill(settings, Scope())
    assert places(check_parity(settings, Scope())) == set()
    with psycopg.connect(scheduler_dsn) as connection:
        assert connection.execute(statement).rowcount == 1
    outcome = check_parity(settings, Scope())
    assert places(outcome) == DERIVED[statement]
    assert_balanced(outcome)
    assert backfill(settings, Scope()).complete
    assert places(check_parity(settings, Scope())) == set()


def test_a_copy_that_ended_before_its_closing_passes_is_not_compared(
    mongo_database: Database[Any], scheduler_dsn: str
) -> None:
    """Every chunk is done, and a reference to a later document is still null: unfinished, not different."""
    mongo_database["runs"].insert_many(
        [run_of(_id=f"run_{'1' * 32}", retryOf=f"run_{'2' * 32}"), run_of(_id=f"run_{'2' * 32}")]
    )
    settings = settings_for(mongo_database, scheduler_dsn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "_complete", _killed)
        with pytest.raises(KeyboardInterrupt):
            backfill(settings, Scope())
    (runs,) = check_parity(settings, Scope()).collections
    assert (runs.unverified, runs.documents, runs.findings) == ("its copy is unfinished: call backfill again", 0, ())
    assert backfill(settings, Scope()).resumed
    assert collection(check_parity(settings, Scope()), "runs").matched == 2


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def _groupings(database: Database[Any]) -> list[bool]:
    """Return for each time that MongoDB grouped the runs whether it read each of their times."""
    profiled = database["system.profile"].find({"command.aggregate": "runs"}, sort=[("$natural", 1)])
    pipelines = [one["command"]["pipeline"] for one in profiled]
    return [any("$addFields" in part for part in each) for each in pipelines if any("$group" in part for part in each)]


@pytest.mark.parametrize(
    ("changed", "groupings"),
    [
        ({"finishedAt": "2025-11-01T10:00:32.00Z"}, [False, True]),
        ({"finishedAt": "2025-11-01T10:00:32.00Z", "state": "exploded"}, [False]),
        ({"finishedAt": "2025-11-01T10:00:32.000Z"}, [False]),
    ],
    ids=["of another form", "of another form in quarantine", "of one form"],
)
def test_what_is_supposed_of_the_times_of_all_documents_is_looked_at_in_each(
    changed: dict[str, Any],
    groupings: list[bool],
    mongo_database: Database[Any],
    scheduler_dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MongoDB groups the documents as the first one says; as soon as all were read, once more if one is otherwise."""
    monkeypatch.setattr(aggregates, "_FIRST", 1)
    runs = [run_of(_id=f"r{number}", id=f"r{number}") for number in range(9)]
    mongo_database["runs"].insert_many([*runs[:-1], runs[-1] | changed])
    settings = settings_for(mongo_database, scheduler_dsn)
    backfill(settings, Scope())
    mongo_database.command("profile", 2)
    outcome = check_parity(settings, Scope())
    assert places(outcome) == set()
    assert {one.unverified for one in outcome.both_aggregates} == {""}
    assert sum(one.differing_total for one in outcome.both_aggregates) == 0
    assert _groupings(mongo_database) == groupings


def test_a_collection_with_more_ids_than_are_kept_is_compared_but_for_what_needs_them(
    compared: Callable[..., ParityOutcome], dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "KEPT_CHARACTERS", 2)
    monkeypatch.setattr(check, "KEPT_CHARACTERS", 2)
    outcome = compared()
    runs = collection(outcome, "runs")
    assert (runs.excluded, runs.excluded_total, runs.matched, runs.quarantined) == ((), 1, RUNS, 1)
    reasons = {one.unverified for one in outcome.aggregates if one.collection == "runs"}
    assert reasons == {"1 documents are quarantined, too many to leave out one by one"}
    assert not any(one.unverified for one in outcome.aggregates if one.collection == "schedules")
    with psycopg.connect(dsn) as connection:
        connection.execute("DELETE FROM migration.quarantine WHERE source_id = 'odd'")
        connection.execute("UPDATE scheduler.runs SET source_id = 'odd' WHERE source_id = 'r0'")
    outcome = compared()
    runs = collection(outcome, "runs")
    assert (runs.rejected, runs.rejected_total, runs.extra) == ((), 1, 0)
    assert runs.unverified.startswith("1 documents cannot become rows: too many to tell")
    assert ("rejected", "", "", "odd", "unquarantined") in places(outcome)
    assert_balanced(outcome)


OWN_IDS = """
SET session_replication_role = replica;
CREATE TEMP TABLE new_ids AS SELECT id, gen_random_uuid() AS new_id FROM scheduler.schedules
    UNION ALL SELECT id, gen_random_uuid() FROM scheduler.runs;
UPDATE scheduler.runs AS r SET schedule_id = n.new_id FROM new_ids AS n WHERE n.id = r.schedule_id;
UPDATE scheduler.triggers AS t SET schedule_id = n.new_id FROM new_ids AS n WHERE n.id = t.schedule_id;
UPDATE scheduler.runs AS r SET id = n.new_id FROM new_ids AS n WHERE n.id = r.id;
UPDATE scheduler.schedules AS s SET id = n.new_id FROM new_ids AS n WHERE n.id = s.id;
"""
"""A script gives its rows ids of its own, and keeps the references between them."""


@pytest.fixture
def by_script(dsn: str) -> str:
    """A copy in the schema ``scheduler`` of which the tool has no record."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA migration CASCADE")
    return dsn


@pytest.mark.proves("6-U11")
@pytest.mark.parametrize("own_ids", [False, True], ids=["computed ids", "ids of its own"])
def test_the_schema_filled_by_a_script(source: Database[Any], by_script: str, *, own_ids: bool) -> None:
    if own_ids:
        with psycopg.connect(by_script, autocommit=True) as connection:
            connection.execute(OWN_IDS)
    outcome = check_foreign_copy(settings_for(source, by_script), Scope(), "etl.py")
    assert places(outcome) == set()
    assert_balanced(outcome)
    runs, locks = collection(outcome, "runs"), collection(outcome, "locks")
    assert (runs.matched, runs.quarantined, locks.skipped) == (RUNS, 1, {"expired lock": 1})
    assert {(one.collection, one.path, one.documents) for one in outcome.not_held} >= {("runs", "note", 1)}
    assert (outcome.differs, outcome.unverified) == (False, True)
    states = {link.link: link.state for link in outcome.links}
    assert states["each row has a document"] == "holds"
    assert states["the rows give each document back"] == "partly"
    assert states["remainder"] == states["quarantine"] == states["plan and ledger"] == "not-applicable"


@pytest.mark.proves("6-U11")
@pytest.mark.parametrize("own_ids", [False, True], ids=["computed ids", "ids of its own"])
def test_a_reference_to_another_row_in_a_script_s_copy(source: Database[Any], by_script: str, *, own_ids: bool) -> None:
    with psycopg.connect(by_script, autocommit=True) as connection:
        if own_ids:
            connection.execute(OWN_IDS)
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE scheduler.runs SET schedule_id = gen_random_uuid() WHERE source_id = 'r1';"
            "UPDATE scheduler.runs SET schedule_id = NULL WHERE source_id = 'r2'"
        )
        outcome = check_foreign_copy(settings_for(source, by_script), Scope(), "etl.py")
    expected = {("row", "runs", "schedule_id", "r1", "reference"), ("row", "runs", "schedule_id", "r2", "reference")}
    assert places(outcome) == expected


def test_rows_that_a_policy_hides_are_not_called_missing(source: Database[Any], by_script: str) -> None:
    with psycopg.connect(by_script, autocommit=True) as connection:
        role = f"sees_little_{connection.info.dbname}"
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        connection.execute(f"GRANT USAGE ON SCHEMA scheduler TO {role}")
        connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {role}")
        try:
            hidden = psycopg.conninfo.make_conninfo(by_script, user=role, password="x")
            with pytest.raises(RefusedError, match="row-level security hides rows"):
                check_foreign_copy(settings_for(source, hidden), Scope(), "etl.py")
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")
