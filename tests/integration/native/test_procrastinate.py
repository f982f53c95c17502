"""Messages of mongodb-queue, and documents of mongodb-cron, moved into procrastinate's jobs, and executed by it."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from bson import Int64, ObjectId
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.cutover import library_cutover, library_documents
from migrator.cutover.gates import GateOptions
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import NAMED_LOSS
from migrator.schema import native_target, revisions
from migrator.sources import profile_of
from migrator.targets import load_target
from migrator.targets.library import Line, PostgresStore
from tests.copying import quarantine, settings_for, write_config
from tests.native_tables import BY_NAME, ask, prepare
from tests.real_documents import real_documents
from tests.tailing import caught_up, compared

Document = dict[str, Any]
PROCRASTINATE = BY_NAME["procrastinate-3.10"]
NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
NUMBER = 100
TASK, QUEUE = "app.tasks.work", "orders"
COLUMNS = "task_name, queue_name, status::text, attempts, scheduled_at, args"


def text(time: datetime) -> str:
    """Return a time as JavaScript's ``toISOString`` writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03}Z"


def message(payload: object, visible: datetime = NOW - DAY, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as ``add`` of mongodb-queue writes one."""
    return {"_id": ObjectId(), "visible": text(visible), "payload": payload, **changes}


Prepared = Callable[[str], Settings]


@pytest.fixture
def prepared(mongo_database: Database[Document], postgres_dsn: str) -> Prepared:
    """Return a function that lets the library make its tables, and the tool its schema, for a source."""

    def of(profile: str) -> Settings:
        prepare(PROCRASTINATE, postgres_dsn)
        target = TargetSettings(name="procrastinate", options={"task": TASK, "queue": QUEUE})
        settings = settings_for(mongo_database, postgres_dsn, profile=profile, target=target)
        revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            native_target.prepare(connection, load_target("procrastinate"), settings.target)
        return settings

    return of


def rows(settings: Settings) -> Sequence[Any]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM procrastinate_jobs ORDER BY id".encode()).fetchall()


def changed(settings: Settings, statement: str) -> None:
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute(statement.encode())


def asked(settings: Settings, do: str) -> list[Line]:
    """Return the answers of the library about its jobs."""
    lines = ask(PROCRASTINATE, PostgresStore(settings.postgres.dsn or ""), do, scratch=do == "work")[:-1]
    assert [line for line in lines if line["kind"] == "failed"] == []
    return lines


def by_text(job: object) -> str:
    return json.dumps(job, sort_keys=True)


def payloads(lines: Sequence[Line]) -> Counter[str]:
    return Counter(json.dumps(dict(line["args"]["dict"]), sort_keys=True) for line in lines)


def expected(*documents: Document) -> Counter[str]:
    return Counter(json.dumps({"payload": {"dict": [*map(list, one["payload"].items())]}}) for one in documents)


def losses(settings: Settings) -> dict[str, int]:
    """Return how many documents have each loss by name."""
    outcome = check_parity(settings, Scope())
    return {note.path: note.count for one in outcome.collections for note in one.notes if note.cause == NAMED_LOSS}


@pytest.mark.proves("6-T9")
def test_every_pending_message_is_executed_once_by_two_workers_and_no_other(
    prepared: Prepared, mongo_database: Database[Document]
) -> None:
    settings = prepared("mongodb-queue")
    due = [message({"n": number}, tries=3) if number % 2 else message({"n": number}) for number in range(NUMBER)]
    held = message({"held": 1}, NOW + DAY, ack="1" * 32, tries=2)
    later = message({"later": 1}, NOW + 2 * DAY)
    done = [message({"done": number}, ack=str(number), tries=1, deleted=text(NOW - DAY)) for number in range(5)]
    letter = message({"id": "1", "payload": {"poison": 1}, "tries": 6, "ack": "a"})
    mongo_database["queue"].insert_many([*done, held, *due, later])
    mongo_database["dead_queue"].insert_one(letter)
    result = backfill(settings, Scope())
    assert (result.quarantined, result.skipped) == (0, len(done))
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0
    assert len(asked(settings, "entries")) == len(due) + 3
    executed = asked(settings, "work")
    assert payloads(executed) == expected(*due)
    assert {line["worker"] for line in executed} == {"0", "1"}, "both workers executed some"
    attempts = {line["args"]["dict"][0][1]["dict"][0][1]: line["attempts"] for line in executed}
    assert attempts == {number: 3 if number % 2 else 0 for number in range(NUMBER)}
    waiting = [row for row in rows(settings) if row[2] != "succeeded"]
    assert sorted(waiting, key=lambda row: row[3]) == [
        (TASK, QUEUE, "todo", 0, NOW + 2 * DAY, {"payload": {"later": 1}}),
        (TASK, QUEUE, "todo", 2, NOW + DAY, {"payload": {"held": 1}}),
        (TASK, QUEUE, "failed", 6, NOW - DAY, {"payload": {"poison": 1}}),
    ], "a dead letter is a failed job, with the tries of its message"
    assert asked(settings, "work") == [], "nothing is executed twice, and nothing before its time"
    changed(settings, "UPDATE procrastinate_jobs SET scheduled_at = now() - interval '1 s' WHERE status = 'todo'")
    assert payloads(asked(settings, "work")) == expected(held, later)


def test_messages_that_the_library_wrote_arrive_as_the_documents_say(
    prepared: Prepared, mongo_database: Database[Document]
) -> None:
    settings = prepared("mongodb-queue")
    mongo_database["queue"].insert_many(real_documents("mongodb-queue/queue"))
    mongo_database["dead_queue"].insert_many(real_documents("mongodb-queue/dead"))
    result = backfill(settings, Scope())
    assert (quarantine(settings.postgres.dsn or ""), result.skipped) == ([], 3)
    first = {"at": "1970-01-01T00:00:00+00:00", "list": [1, 2.5, None, "\u00fc\ufffd"], "to": "b@example.org"}
    plain = ["text", True, [], {"later": True}]
    jobs = [("todo", 1, {"payload": first}), ("todo", 1, {"payload": 42}), ("todo", 0, {})]
    jobs += [("todo", 0, {"payload": one}) for one in plain]
    jobs.append(("failed", 2, {"payload": {"poison": True}}))
    assert sorted(((row[2], row[3], row[5]) for row in rows(settings)), key=by_text) == sorted(jobs, key=by_text)
    assert compared(settings) == []
    assert losses(settings) == {"ack": 2, "payload": 1, "payload.id": 1, "payload.ack": 1}


@pytest.mark.proves("6-T9")
def test_documents_of_mongodb_cron_that_are_worked_on_once(
    prepared: Prepared, mongo_database: Database[Document]
) -> None:
    settings = prepared("mongodb-cron")
    once = [{"_id": ObjectId(), "sleepUntil": NOW - DAY, "data": number} for number in range(20)]
    later = {"_id": ObjectId(), "sleepUntil": NOW + DAY, "autoRemove": True, "repeatUntil": NOW + 2 * DAY}
    real = real_documents("mongodb-cron/jobs")
    mongo_database["jobs"].insert_many([*real, *once, later])
    result = backfill(settings, Scope())
    repeated = [one for one in real if one.get("sleepUntil") is not None]
    assert {(reason, path) for _, _, reason, path, _ in quarantine(settings.postgres.dsn or "")} == {
        ("unknown-value", "interval")
    }
    assert (result.quarantined, result.skipped) == (len(repeated), len(real) - len(repeated))
    assert {(row[5]["id"], row[4], *row[:4]) for row in rows(settings)} == {
        (str(one["_id"]), one["sleepUntil"], TASK, QUEUE, "todo", 0) for one in [*once, later]
    }
    assert losses(settings) == {"autoRemove": 1, "repeatUntil": 1}
    executed = asked(settings, "work")
    assert Counter(line["args"]["dict"][0][1] for line in executed) == Counter(str(one["_id"]) for one in once)
    assert asked(settings, "work") == []


def test_what_a_job_cannot_hold_is_quarantined_alone(prepared: Prepared, mongo_database: Database[Document]) -> None:
    settings = prepared("mongodb-queue")
    wrong = {
        ("out-of-range", "tries"): message(1, tries=Int64(2**31)),
        ("wrong-type", "tries"): message(1, tries="3"),
        ("bad-date", "visible"): message(1) | {"visible": "soon"},
    }
    mongo_database["queue"].insert_many([*wrong.values(), message({"nul": "x\0y", "big": Int64(2**60)})])
    backfill(settings, Scope())
    assert {(reason, path) for _, _, reason, path, _ in quarantine(settings.postgres.dsn or "")} == {*wrong}
    assert [row[5] for row in rows(settings)] == [{"payload": {"nul": "x\ufffdy", "big": 2**60}}]
    assert compared(settings) == []
    assert losses(settings) == {"payload": 1}


def test_the_tail_follows_and_repair_repairs(prepared: Prepared, mongo_database: Database[Document]) -> None:
    settings, queue = prepared("mongodb-queue"), mongo_database["queue"]
    messages = [message({"n": number}) for number in range(4)]
    queue.insert_many(messages)
    backfill(settings, Scope())
    keys = [one["_id"] for one in messages]
    queue.update_one({"_id": keys[0]}, {"$set": {"ack": "0" * 32, "visible": text(NOW + DAY)}, "$inc": {"tries": 1}})
    queue.update_one({"_id": keys[1]}, {"$set": {"ack": "1" * 32, "tries": 1, "deleted": text(NOW)}})
    queue.delete_one({"_id": keys[2]})
    queue.insert_one(message({"n": 4}))
    caught_up(settings)
    assert [(row[3], row[4], row[5]["payload"]["n"]) for row in rows(settings)] == [
        (1, NOW + DAY, 0),
        (0, NOW - DAY, 3),
        (0, NOW - DAY, 4),
    ]
    changed(settings, "UPDATE procrastinate_jobs SET attempts = 9 WHERE args->'payload'->>'n' = '0'")
    changed(settings, "DELETE FROM procrastinate_jobs WHERE args->'payload'->>'n' = '3'")
    assert len([one for one in compared(settings) if one[2] != "aggregate"]) == 2
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []


def test_a_cutover_is_refused_in_words(prepared: Prepared, mongo_database: Database[Document], tmp_path: Path) -> None:
    settings = prepared("mongodb-queue")
    mongo_database["queue"].insert_one(message({"n": 1}))
    backfill(settings, Scope())
    [reason] = library_documents.faults(profile_of(settings.source, settings.target))
    assert "executed again after a rollback" in reason
    # no section of the file is read here but that of the hooks
    plain = msgspec.structs.replace(settings, target=TargetSettings(name="procrastinate"))
    planned = library_cutover.plan(settings, GateOptions(config=write_config(tmp_path, plain)))
    [gate] = [gate for gate in planned.gates if gate.name == "reverse sync"]
    assert (gate.passed, reason in gate.words, planned.ready) == (False, True, False)
