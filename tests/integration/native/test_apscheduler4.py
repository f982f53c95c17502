"""APScheduler 4's tasks, schedules, jobs and results, moved into the tables of its data store for PostgreSQL."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from bson import Binary, json_util
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.cutover import library_cutover
from migrator.cutover.gates import GateOptions
from migrator.errors import RefusedError
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import NAMED_LOSS
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import MongoStore, PostgresStore
from migrator.testing.servers.mongo import MongoServer
from tests.agenda_documents import FOLDER
from tests.copying import quarantine, settings_for, write_config
from tests.cutting_over import gate
from tests.native_tables import BY_NAME, ask, prepare
from tests.tailing import caught_up, compared

Document = dict[str, Any]
MADE = BY_NAME["apscheduler4-4.0.0a6"]
WINDOWS = [(datetime(2026, 11, 22, tzinfo=UTC), datetime(2027, 12, 1, tzinfo=UTC))]
KEY = UUID("3bd68db2-ef04-4d8a-a3b2-140a7f39e281")


def documents(serializer: str) -> dict[str, list[Document]]:
    """Return the documents of each collection that the library wrote with a serializer."""
    found: dict[str, list[Document]] = {}
    for line in (FOLDER / "apscheduler" / f"4.0.0a6-{serializer}.jsonl").read_text(encoding="utf-8").splitlines():
        name, document = json.loads(line)
        read = json_util.loads(json.dumps(document), json_options=json_util.CANONICAL_JSON_OPTIONS)
        found.setdefault(name, []).append(read)
    return found


@pytest.fixture
def settings(mongo_database: Database[Document], postgres_dsn: str) -> Settings:
    prepare(MADE, postgres_dsn)
    made = settings_for(
        mongo_database, postgres_dsn, profile="apscheduler4", target=TargetSettings(name="apscheduler4")
    )
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("apscheduler4"), made.target)
    return made


def insert(database: Database[Document], found: dict[str, list[Document]]) -> None:
    for name, listed in found.items():
        database[name].insert_many(listed)


def rows(settings: Settings, query: str) -> Sequence[Any]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        return connection.execute(query.encode()).fetchall()


UNREADABLE = b"\x80\x04\x8c\x04nope\x94\x8c\x05Class\x94\x93\x94."
"""A pickle of a class that does not exist."""


def job(key: object, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a job as the library writes one."""
    plain: Document = {"task_id": "t", "args": b"[]", "kwargs": b"{}", "schedule_id": None, "executor": "async"}
    times: Document = {"scheduled_fire_time": None, "start_deadline": None, "created_at": 1795391739.7, "metadata": {}}
    return {"_id": key, **plain, **times, "jitter": 0.0, "result_expiration_time": 0.0} | changes


@pytest.mark.proves("6-T6")
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_the_library_finds_the_same_on_both_sides(
    serializer: str, settings: Settings, mongo_server: MongoServer, mongo_database: Database[Document]
) -> None:
    found = documents(serializer)
    insert(mongo_database, found)
    assert backfill(settings, Scope()).quarantined == 0
    outcome = check_parity(settings, Scope())
    assert (outcome.differs, outcome.unverified) == (False, False)
    lost = {
        (one.collection, note.path) for one in outcome.collections for note in one.notes if note.cause == NAMED_LOSS
    }
    assert ("schedules", "next_fire_time_utcoffset") in lost
    assert all(path.endswith("_utcoffset") for _, path in lost)
    assert backfill(settings, Scope()).written == 0
    mongo = MongoStore(mongo_server.uri, mongo_database.name)
    postgres = PostgresStore(settings.postgres.dsn or "", "apscheduler")
    options = {"serializer": serializer}
    before = rows(settings, "SELECT * FROM apscheduler.job_results")
    left, right = (ask(MADE, side, "entries", options=options) for side in (mongo, postgres))
    assert left == right
    assert left[-1]["counts"] == {"entry": sum(map(len, found.values()))}
    left, right = (
        ask(MADE, side, "fires", options=options, windows=WINDOWS, limit=30, entry_seconds=2)
        for side in (mongo, postgres)
    )
    assert left == right
    assert left[-1]["counts"]["fires"] >= 8
    assert rows(settings, "SELECT * FROM apscheduler.job_results") == before, "reading deletes nothing"
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute(
            "UPDATE apscheduler.schedules SET next_fire_time = next_fire_time + interval '1 s' WHERE id = 'cron'"
        )
        connection.execute("UPDATE apscheduler.tasks SET misfire_grace_time = '31 s' WHERE id = 'time:sleep'")
    left, right = (ask(MADE, side, "entries", options=options) for side in (mongo, postgres))
    assert [one["id"] for one, other in zip(left, right, strict=True) if one != other] == [
        "task time:sleep",
        "schedule cron",
    ]


def test_what_a_column_cannot_hold_is_quarantined_alone(settings: Settings, mongo_database: Database[Document]) -> None:
    wrong = {
        ("too-long", "task_id"): job(UUID(int=1), task_id="t" * 501),
        ("wrong-type", "args"): job(UUID(int=2), args="[]"),
        ("missing-field", "created_at"): job(UUID(int=3), created_at=None),
        ("bad-date", "created_at"): job(UUID(int=4), created_at=1e300),
        ("wrong-type", "metadata"): job(UUID(int=5), metadata=[1]),
        ("out-of-range", "jitter"): job(UUID(int=6), jitter=1e300),
    }
    nul = job(KEY, metadata={"nul": "a\0b", "n": float("nan")})
    listed = [nul, *wrong.values(), job("no uuid"), job(UUID(int=7), args=UNREADABLE)]
    mongo_database["jobs"].insert_many(
        [one | {"_id": Binary.from_uuid(one["_id"])} if isinstance(one["_id"], UUID) else one for one in listed]
    )
    mongo_database["job_results"].insert_one(
        {"_id": Binary.from_uuid(KEY), "outcome": "unknown", "finished_at": 1.5, "expires_at": 2.5}
    )
    backfill(settings, Scope())
    reasons = {(reason, path) for _, _, reason, path, _ in quarantine(settings.postgres.dsn or "")}
    assert reasons == {*wrong, ("unknown-value", "outcome")}
    stored = dict(rows(settings, "SELECT id, args FROM apscheduler.jobs"))
    assert len(stored) == 3
    assert KEY in stored
    assert stored[UUID(int=7)] == UNREADABLE, "as it is: no class is loaded"
    assert compared(settings) == []


def test_the_tail_follows_and_repair_repairs(settings: Settings, mongo_database: Database[Document]) -> None:
    insert(mongo_database, documents("json"))
    backfill(settings, Scope())
    schedules = mongo_database["schedules"]
    schedules.update_one({"_id": "cron"}, {"$set": {"paused": True, "next_fire_time": 1803902400.25}})
    schedules.update_one({"_id": "calendar"}, {"$unset": {"acquired_by": 1, "acquired_until": 1}})
    schedules.delete_one({"_id": "and"})
    caught_up(settings)
    query = "SELECT id, paused, acquired_by, extract(epoch FROM next_fire_time) FROM apscheduler.schedules ORDER BY id"
    stored = {key: rest for key, *rest in rows(settings, query)}
    assert "and" not in stored
    assert (stored["cron"][0], float(stored["cron"][2])) == (True, 1803902400.25)
    assert stored["calendar"][1] is None
    assert compared(settings) == []
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("UPDATE apscheduler.schedules SET coalesce = 'all' WHERE id = 'cron'")
        connection.execute("DELETE FROM apscheduler.jobs")
    wrong = {(collection, side) for collection, _, side, _ in compared(settings) if side != "aggregate"}
    assert wrong == {("schedules", "row"), ("jobs", "missing")}
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []


def test_a_cutover_is_refused_because_the_library_could_not_read_what_comes_back(
    settings: Settings, mongo_database: Database[Document], tmp_path: Path
) -> None:
    """A job that is made in PostgreSQL would have an ``_id`` that is no UUID, and times that are numbers."""
    insert(mongo_database, documents("json"))
    backfill(settings, Scope())
    caught_up(settings)
    before = list(mongo_database["jobs"].find().sort("_id"))
    conditions = GateOptions(config=write_config(tmp_path, settings))
    passed, words = gate(settings, conditions, "reverse sync")
    assert passed is False
    assert words.startswith(
        "rows of the library cannot be carried back to MongoDB, so a cutover could not be rolled back: "
        "the tables keep no offset of a time, and a new document has no UUID as its _id"
    )
    with pytest.raises(RefusedError, match=r"the cutover is refused: .*reverse sync: rows of the library cannot"):
        library_cutover.run(settings, conditions)
    assert list(mongo_database["jobs"].find().sort("_id")) == before
