"""What is written to PostgreSQL after the switch comes back into MongoDB, and nothing else of MongoDB changes.

The judge is the copy: the documents as the reverse stream has left them, copied into another database, must give the
rows that PostgreSQL holds.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import bson
import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from migrator.config import Settings
from migrator.connections.postgres import open_target
from migrator.cutover import outbox, reverse_sync
from migrator.errors import LostLockError, RefusedError
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, close_cached, run_with_sessions
from migrator.records import ALL, Lock, WorkerRecord
from migrator.store.protocols import RunQuery
from migrator.values.identity import source_id_of
from tests import store_mongo, store_postgres
from tests.copying import settings_for
from tests.cutting_over import opened_outbox
from tests.demo_data import seed_quarter
from tests.stellaops_documents import CANONICAL, fresh
from tests.store_postgres import NOW, run, schedule, trigger

ASIDE = ("source", "source_id", "extra")
ENDED = "'2026-01-02T03:04:05.1Z'::timestamptz"
LASTED = f"floor(extract(epoch FROM {ENDED} - started_at) * 1000)"
LASTED = f"CASE WHEN {LASTED} >= 0 THEN {LASTED} END"
DONE = """jsonb_set(jsonb_set(payload, '{status}', '"completed"'), '{completedAt}', '"2026-01-02T03:04:05+00:00"')"""
CHANGES = {
    "schedules": [
        "description = 'written after the switch'",
        "timeout_ms = coalesce(timeout_ms, 0) + 1",
        "enabled = NOT enabled, updated_by = 'user:x', updated_at = '2026-01-02T03:04:05.678Z'",
        "selection = jsonb_set(selection, '{scope}', '\"all-images\"')",
        "name = name || ' (renamed)'",
        "deleted_at = '2026-01-02T03:04:05Z', deleted_by = 'user:y'",
    ],
    "runs": [
        f"error = 'it failed', state = 'error', finished_at = {ENDED}, duration_ms = {LASTED}",
        "stats = jsonb_set(coalesce(stats, '{}'), '{queued}', '77')",
        "worker_id = 'w-1', fence = 3, lease_expires_at = '2026-01-02T03:04:05Z'",
        "retry_of = NULL",
    ],
    "policy_jobs": ["attempt_count = coalesce(attempt_count, 0) + 1", "last_error = 'no route'"],
    "impact_snapshots": ["total = 4096", "usage_only = NOT coalesce(usage_only, false)"],
    "run_summaries": ["updated_at = '2026-01-02T03:04:05.5Z'"],
    "execution_logs": ["message = message || '!'", "level = 'warn'"],
    "graph_jobs": [f"status = 2, payload = {DONE}, updated_at = '2026-01-02T03:04:05Z'"],
    "triggers": ["enabled = NOT enabled", "fire_count = coalesce(fire_count, 0) + 1"],
}


@pytest.fixture
def source(mongo_database: Database[Any]) -> Database[Any]:
    """A handful of documents, the way the source writes them."""
    for name in CANONICAL:
        mongo_database[name].insert_one(fresh(name))
    mongo_database.schedules.insert_one(
        fresh("schedules", _id="the nightly one", id="the nightly one", name="x", deletedAt=..., deletedBy=...)
    )
    return mongo_database


@pytest.fixture
def demo(mongo_database: Database[Any]) -> Database[Any]:
    """The demo's documents: every trouble that an old source has."""
    seed_quarter(mongo_database)
    return mongo_database


@pytest.fixture
def long_transactions(mongo_client: MongoClient[Any]) -> Iterator[None]:
    """Let the server keep open transactions for longer than any test lasts."""
    name = "transactionLifetimeLimitSeconds"
    before = mongo_client.admin.command({"setParameter": 1, name: 3_600})["was"]
    yield
    mongo_client.admin.command({"setParameter": 1, name: before})


@pytest.fixture
def switched(source: Database[Any], scheduler_dsn: str) -> Iterator[Settings]:
    """A copy that is complete, with the outbox open."""
    with opened_outbox(settings_for(source, scheduler_dsn)) as settings:
        yield settings


def raw(database: Database[Any]) -> dict[tuple[str, str], bytes]:
    """Return the bytes of every document."""
    options = bson.codec_options.CodecOptions(document_class=bson.raw_bson.RawBSONDocument)
    return {
        (name, source_id_of(bytes(document.raw))): bytes(document.raw)
        for name in database.list_collection_names()
        if name != reverse_sync.FENCE_COLLECTION
        for document in database.get_collection(name, codec_options=options).find()
    }


def rows(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row without what says where it came from."""
    with psycopg.connect(dsn) as connection:
        connection.execute("SET timezone TO UTC")
        return {
            record.table: connection.execute(
                "SELECT {} FROM scheduler.{} ORDER BY id".format(
                    ", ".join(name for name in record.__struct_fields__ if name not in ASIDE), record.table
                )
            ).fetchall()
            for record in ALL
            if record not in (Lock, WorkerRecord)
        }


def differences(one: dict[str, list[tuple[Any, ...]]], other: dict[str, list[tuple[Any, ...]]]) -> dict[str, Any]:
    return {
        table: [pair for pair in zip(found, other[table], strict=False) if pair[0] != pair[1]][:3]
        or (len(found), len(other[table]))
        for table, found in one.items()
        if found != other[table]
    }


def change_everything(dsn: str) -> int:
    """Change some rows of every table in every way of the list, and remove some; return how many."""
    changed = 0
    with psycopg.connect(dsn) as connection:
        for table, ways in CHANGES.items():
            for number, way in enumerate(ways):
                changed += connection.execute(
                    f"UPDATE scheduler.{table} SET {way} WHERE id IN (SELECT id FROM scheduler.{table}"
                    f" WHERE abs(hashtext(id::text)) %% {len(ways)} = %s ORDER BY id LIMIT 20)",
                    (number,),
                ).rowcount
        for table in ("execution_logs", "graph_job_events", "audit", "policy_jobs", "impact_snapshots"):
            changed += connection.execute(
                f"DELETE FROM scheduler.{table} WHERE id IN (SELECT id FROM scheduler.{table} ORDER BY id DESC LIMIT 7)"
            ).rowcount
    return changed


@pytest.mark.proves("4-B1", "1-B1")
def test_every_kind_of_change_comes_back_and_the_copy_agrees(
    demo: Database[Any], scheduler_dsn: str, new_scheduler_dsn: Callable[[], str]
) -> None:
    with opened_outbox(settings_for(demo, scheduler_dsn)) as settings:
        _changed_and_copied_again(settings, demo, scheduler_dsn, new_scheduler_dsn())


def _changed_and_copied_again(settings: Settings, source: Database[Any], scheduler_dsn: str, other_dsn: str) -> None:
    _no_change_leaves_every_document_as_it_is(settings, source, scheduler_dsn)
    before = raw(source)
    changed = change_everything(scheduler_dsn)
    with store_postgres.opened(scheduler_dsn) as store, store.session("a", now=NOW) as session:
        born = session.schedules.upsert(schedule(name="born in postgres"))
        fires = session.triggers.upsert(trigger(born))
        session.runs.create(run(schedule_id=born.id, trigger_id=fires.id, scheduled_at=NOW, cause="interval"))
    done = reverse_sync.run(settings, noted_by_now=True)
    after = raw(source)

    # the old application's documents of policy runs know neither attempts nor a last error: said, not passed over
    assert done.lost.keys() == {("policy_jobs", "attempt_count"), ("policy_jobs", "last_error")}
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(
            "UPDATE scheduler.policy_jobs SET attempt_count = NULL, last_error = NULL"
            " WHERE source = 'stellaops/policy_runs'"
        )
    reverse_sync.run(settings, noted_by_now=True)
    assert done.notes >= changed + 3
    touched = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert done.documents + done.removed >= len(touched) >= changed / 2
    other = settings_for(source, other_dsn)
    close_cached()
    assert backfill(other, Scope()).complete
    assert differences(rows(scheduler_dsn), rows(other_dsn)) == {}


def test_nothing_written_nothing_touched(switched: Settings, source: Database[Any]) -> None:
    reverse_sync.run(switched, noted_by_now=True)
    before = raw(source)
    assert reverse_sync.run(switched, noted_by_now=True) == reverse_sync.ReverseSyncResult()
    assert raw(source) == before


def _no_change_leaves_every_document_as_it_is(settings: Settings, source: Database[Any], dsn: str) -> None:
    """A write that changes nothing, to every row: unknown fields, old spellings, orphaned references, all stay."""
    reverse_sync.run(settings, noted_by_now=True)
    before = raw(source)
    with psycopg.connect(dsn) as connection:
        for record in outbox.TRACKED_RECORDS:
            share = "" if record.table != "runs" else " WHERE abs(hashtext(id::text)) % 8 = 0"
            connection.execute(f"UPDATE scheduler.{record.table} SET tenant_id = tenant_id{share}")
    assert reverse_sync.run(settings, noted_by_now=True).documents > len(before) / 4
    after = raw(source)
    assert {key: (before.get(key), after.get(key)) for key in before if before[key] != after.get(key)} == {}
    assert after.keys() == before.keys()


def test_references_are_spelled_as_the_old_application_spells_them(
    switched: Settings, source: Database[Any], scheduler_dsn: str
) -> None:
    with psycopg.connect(scheduler_dsn) as connection:
        found = connection.execute(
            "SELECT id, tenant_id, source_id FROM scheduler.schedules WHERE source_id = 'the nightly one'"
        ).fetchone()
    assert found is not None
    with store_postgres.opened(scheduler_dsn) as store, store.session(found[1], now=NOW) as session:
        made = session.runs.create(run(found[1], schedule_id=found[0]))
    reverse_sync.run(switched, noted_by_now=True)
    document = source.runs.find_one({"_id": f"run_{made.id.hex}"})
    assert document is not None
    assert document["scheduleId"] == found[2]


def test_our_own_store_reads_there_what_was_written_here(switched: Settings, source: Database[Any]) -> None:
    dsn = switched.postgres.dsn or ""
    with store_postgres.opened(dsn) as store, store.session("a", now=NOW) as session:
        one = session.schedules.upsert(schedule(name="n"))
        made = session.runs.create(run(schedule_id=one.id))
        session.runs.cancel(made.id, "no longer wanted")
        expected = (session.schedules.get(one.id), session.runs.list(RunQuery(schedule_id=one.id)).runs)
    reverse_sync.run(switched, noted_by_now=True)
    with store_mongo.opened(source) as mongo, mongo.session("a", now=NOW) as session:
        found = (session.schedules.get(one.id), session.runs.list(RunQuery(schedule_id=one.id)).runs)
    plain = [
        bson.json_util.dumps({name: str(getattr(row, name)) for name in row.__struct_fields__ if name not in ASIDE})
        for answer in (expected, found)
        for row in (answer[0], *answer[1])
        if row is not None
    ]
    assert plain[:2] == plain[2:]


def test_the_order_of_claims_follows_priorities_that_changed_on_postgresql(
    mongo_database: Database[Any], scheduler_dsn: str, new_scheduler_dsn: Callable[[], str]
) -> None:
    """The documents hold the schedule's priority; reverse sync does not write it, the next start of a store does."""
    first, second = schedule(name="first", priority=10), schedule(name="second", priority=20)
    with store_mongo.opened(mongo_database) as mongo, mongo.session("a", now=NOW) as session:
        for one in (first, second):
            session.schedules.upsert(one)
            session.triggers.upsert(trigger(one))
            session.runs.create(run(schedule_id=one.id, available_at=NOW))
    with opened_outbox(settings_for(mongo_database, scheduler_dsn)) as settings:
        with store_postgres.opened(scheduler_dsn) as store, store.session("a", now=NOW) as session:
            session.schedules.change(first.id, priority=90)
            born = session.schedules.upsert(schedule(name="born in postgres", priority=5))
            session.triggers.upsert(trigger(born))
            session.runs.create(run(schedule_id=born.id, available_at=NOW))
        reverse_sync.run(settings, noted_by_now=True)
        expected = {"first": 90, "second": 20, "born in postgres": 5}
        names = {one.id: one.name for one in (first, second, born)}
        with store_mongo.opened(mongo_database) as mongo:
            for collection in ("triggers", "runs"):
                found = {
                    names[UUID(document["scheduleId"].removeprefix("sch_"))]: document["schedulePriority"]
                    for document in mongo_database[collection].find()
                }
                assert found == expected, collection
            other_dsn = new_scheduler_dsn()
            close_cached()
            assert backfill(settings_for(mongo_database, other_dsn), Scope()).complete
            assert differences(rows(scheduler_dsn), rows(other_dsn)) == {}
            claims = mongo.queue.claim("w", 5, timedelta(minutes=1), NOW, tenants=["a"])
        claimed = [names[claim.run.schedule_id] for claim in claims if claim.run.schedule_id]
        assert claimed == ["first", "second", "born in postgres"], "the highest priority first"


def test_one_stream_at_a_time_and_an_older_one_cannot_write(
    switched: Settings, source: Database[Any], scheduler_dsn: str
) -> None:
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute(
            "UPDATE scheduler.runs SET error = 'x' WHERE id = (SELECT min(id::text)::uuid FROM scheduler.runs)"
        )
    asleep = reverse_sync._ReverseSync()
    run_with_sessions(switched, asleep.begin)
    source[reverse_sync.FENCE_COLLECTION].update_one({"_id": reverse_sync.FENCE_ID}, {"$inc": {"fence": 1}})
    with pytest.raises(LostLockError, match="another process has taken over the reverse sync"):
        run_with_sessions(switched, asleep.write_all)
    with psycopg.connect(scheduler_dsn) as connection:
        assert outbox.backlog(connection)[0] > 0


@pytest.mark.usefixtures("long_transactions")
def test_what_a_killed_stream_left_open_does_not_hold_up_the_next(
    switched: Settings, source: Database[Any], scheduler_dsn: str
) -> None:
    change_everything(scheduler_dsn)
    killed, sessions = reverse_sync._ReverseSync(), Sessions(switched)
    try:
        killed.begin(sessions)
        assert killed._session is not None
        killed._session.start_transaction()
        sessions.source[reverse_sync.FENCE_COLLECTION].update_one(
            {"_id": reverse_sync.FENCE_ID}, {"$currentDate": {"at": True}}, session=killed._session
        )
        sessions.target.close()  # the kernel does so for a process that is killed; MongoDB keeps its transaction
        with ThreadPoolExecutor() as pool:
            carrying = pool.submit(reverse_sync.run, switched, noted_by_now=True)
            try:
                assert carrying.result(timeout=120).documents
            except TimeoutError:
                killed._session.abort_transaction()
                raise
        with pytest.raises(OperationFailure):
            killed._session.commit_transaction()
        assert reverse_sync.SESSION_FIELD not in (source[reverse_sync.FENCE_COLLECTION].find_one() or {})
    finally:
        sessions.close()


def test_what_is_noted_by_now_comes_to_an_end_however_much_is_written_meanwhile(
    switched: Settings, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop, dropped = outbox.delete, []

    def write() -> None:
        with psycopg.connect(scheduler_dsn) as connection:
            connection.execute("UPDATE scheduler.runs SET error = coalesce(error, '') || 'x'")

    def dropping(connection: Any, ids: Sequence[int]) -> None:  # noqa: ANN401 - a connection of the pipeline's
        drop(connection, ids)
        dropped.append(ids)
        if len(dropped) < 5:
            write()

    reverse_sync.run(switched, noted_by_now=True)
    monkeypatch.setattr(outbox, "delete", dropping)
    write()
    reverse_sync.run(switched, noted_by_now=True)
    assert len(dropped) == 1


def test_without_an_outbox_there_is_nothing_to_carry(switched: Settings) -> None:
    with open_target(switched, autocommit=True) as target:
        outbox.close_outbox(target)
        outbox.close_outbox(target)
        assert not outbox.is_open(target)
    with pytest.raises(RefusedError, match="the outbox is not open"):
        reverse_sync.run(switched, noted_by_now=True)


def test_it_goes_on_until_it_is_stopped(switched: Settings, source: Database[Any], scheduler_dsn: str) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor() as pool:
        worker = pool.submit(reverse_sync.run, switched, stop=stop)
        try:
            with psycopg.connect(scheduler_dsn) as connection:
                connection.execute("UPDATE scheduler.schedules SET description = 'seen'")
                count = connection.execute("SELECT count(*) FROM scheduler.schedules").fetchone()
            with source.watch(max_await_time_ms=50) as changes:
                while (
                    not worker.done() and source.schedules.count_documents({"description": "seen"}) < (count or (0,))[0]
                ):
                    changes.try_next()
        finally:
            stop.set()
        assert worker.result().documents >= (count or (0,))[0]


WEEKLY: Final = "the nightly one"
TOOL_ENABLED: Final = {"enabled": False, "toolEnabled": True}
FIELDS: Final = ("enabled", "cronExpression", "timezone", "toolEnabled", "toolTrigger")
STATED: Final = (
    "(SELECT id FROM scheduler.schedules WHERE source_id = 'the nightly one')",
    "(SELECT id FROM scheduler.triggers WHERE source_id = 'the nightly one')",
)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE scheduler.triggers SET cron_expression = '1 2 * * *' WHERE id = {1}", {"cronExpression": "1 2 * * *"}),
        ("UPDATE scheduler.triggers SET timezone = 'Asia/Tokyo' WHERE id = {1}", {"timezone": "Asia/Tokyo"}),
        ("UPDATE scheduler.triggers SET max_fires = 3 WHERE id = {1}", {"cronExpression": ..., "timezone": ...}),
        ("DELETE FROM scheduler.triggers WHERE id = {1}", {"cronExpression": ..., "timezone": ...}),
        (
            (
                "UPDATE scheduler.triggers SET kind = 'interval', cron_expression = NULL, cron_dialect = NULL,"
                " timezone = NULL, interval_ms = 60000, anchor = 'fixed_rate' WHERE id = {1}"
            ),
            {"cronExpression": ..., "timezone": ...},
        ),
        (
            "UPDATE scheduler.triggers SET enabled = false WHERE id = {1}",
            TOOL_ENABLED | {"toolTrigger": {"enabled": False}},
        ),
        ("UPDATE scheduler.schedules SET status = 'paused' WHERE id = {0}", TOOL_ENABLED),
        ("UPDATE scheduler.schedules SET status = 'cancelled' WHERE id = {0}", TOOL_ENABLED),
        ("UPDATE scheduler.schedules SET status = 'running' WHERE id = {0}", {}),
        (
            "UPDATE scheduler.schedules SET enabled = false, status = 'paused' WHERE id = {0}",
            {"enabled": False, "toolTrigger": {"enabled": True}},
        ),
    ],
)
def test_a_schedule_is_written_in_the_fields_of_the_old_application(
    switched: Settings,
    source: Database[Any],
    scheduler_dsn: str,
    new_scheduler_dsn: Callable[[], str],
    statement: str,
    said: dict[str, Any],
) -> None:
    before = source.schedules.find_one({"_id": WEEKLY}) or {}
    with psycopg.connect(scheduler_dsn) as connection:
        assert connection.execute(statement.format(*STATED)).rowcount == 1
    reverse_sync.run(switched, noted_by_now=True)
    after = source.schedules.find_one({"_id": WEEKLY}) or {}
    wanted = {name: before[name] for name in FIELDS if name in before} | said
    assert {name: after[name] for name in FIELDS if name in after} == {
        name: value for name, value in wanted.items() if value is not ...
    }
    _copied_equal(source, scheduler_dsn, new_scheduler_dsn())


def test_of_several_triggers_the_schedule_states_one_and_keeps_to_it(
    switched: Settings, source: Database[Any], scheduler_dsn: str, new_scheduler_dsn: Callable[[], str]
) -> None:
    with store_postgres.opened(scheduler_dsn) as store, store.session("a", now=NOW) as session:
        one = session.schedules.upsert(schedule(name="of two"))
        line = {"kind": "cron", "cron_dialect": "debian", "timezone": "UTC", "interval_ms": None, "anchor": None}
        made = [session.triggers.upsert(trigger(one, cron_expression=f"{n} 4 * * *", **line)) for n in (1, 2)]
    reverse_sync.run(switched, noted_by_now=True)
    key = {"_id": f"sch_{one.id.hex}"}
    found = source.schedules.find_one(key) or {}
    first = min(made, key=lambda row: row.id)
    assert (found["cronExpression"], found["timezone"]) == (first.cron_expression, "UTC")
    assert found["toolTrigger"] == {"id": f"trg_{first.id.hex}", "cronDialect": "debian"}
    marked = {row["_id"]: row.get("copyOf") for row in source.triggers.find({"scheduleId": key["_id"]})}
    assert sorted(filter(None, marked.values())) in ([], ["schedules"])
    _copied_equal(source, scheduler_dsn, new_scheduler_dsn())
    with psycopg.connect(scheduler_dsn) as connection:
        connection.execute("DELETE FROM scheduler.triggers WHERE id = %s", (first.id,))
    reverse_sync.run(switched, noted_by_now=True)
    other = next(row for row in made if row.id != first.id)
    assert (source.schedules.find_one(key) or {})["cronExpression"] == other.cron_expression
    _copied_equal(source, scheduler_dsn, new_scheduler_dsn())


def _copied_equal(source: Database[Any], dsn: str, other_dsn: str) -> None:
    """A fresh copy of what was written back makes the same rows, but for the next fires of stated rules."""
    close_cached()
    assert backfill(settings_for(source, other_dsn), Scope()).complete
    for one in (dsn, other_dsn):
        with psycopg.connect(one) as connection:  # each side computes them for itself
            connection.execute("UPDATE scheduler.triggers SET next_fire_at = NULL, source_spec = NULL")
    assert differences(rows(dsn), rows(other_dsn)) == {}
