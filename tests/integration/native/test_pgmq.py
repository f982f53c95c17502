"""Messages of mongodb-queue, moved into queues of pgmq, and taken by its clients: pending work arrives once."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.errors import RefusedError
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import NAMED_LOSS
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import Line, PostgresStore
from tests.copying import quarantine, settings_for
from tests.native_tables import BY_NAME, ask
from tests.real_documents import real_documents
from tests.tailing import caught_up, compared

Document = dict[str, Any]
PGMQ = BY_NAME["pgmq-1.13"]
QUEUE, DEAD = "orders", "orders_dead"
TABLES = {"q_queue": "q_orders", "q_dead_queue": "q_orders_dead"}
NOW = datetime.now(UTC).replace(microsecond=0)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NUMBER = 200


def text(time: datetime) -> str:
    """Return a time as JavaScript's ``toISOString`` writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03}Z"


def message(payload: object, visible: datetime = NOW - HOUR, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as ``add`` of mongodb-queue writes one."""
    return {"_id": ObjectId(), "visible": text(visible), "payload": payload, **changes}


def taken(payload: object, visible: datetime, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as ``get`` leaves one."""
    return message(payload, visible, ack=f"{abs(hash(repr(payload))):032x}", tries=1) | changes


@pytest.fixture
def settings(mongo_database: Database[Document], postgres_dsn: str) -> Settings:
    ask(PGMQ, PostgresStore(postgres_dsn, "pgmq", TABLES), "prepare", scratch=True)
    made = settings_for(
        mongo_database,
        postgres_dsn,
        profile="mongodb-queue",
        target=TargetSettings(name="pgmq", tables=TABLES),
    )
    source = msgspec.structs.replace(made.source, collections={"queue": QUEUE, "dead_queue": DEAD})
    made = msgspec.structs.replace(made, source=source)
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("pgmq"), made.target)
    return made


def rows(settings: Settings, queue: str = QUEUE) -> Sequence[Any]:
    """Return the messages of a queue: tries, time of sending, time of being visible, payload."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        columns = "read_ct, enqueued_at, vt, message, headers, last_read_at"
        return connection.execute(f"SELECT {columns} FROM pgmq.q_{queue} ORDER BY msg_id".encode()).fetchall()


def changed(settings: Settings, statement: str) -> None:
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute(statement.encode())


def asked(settings: Settings, do: str) -> list[Line]:
    """Return the answers of the clients about the queues."""
    store = PostgresStore(settings.postgres.dsn or "", "pgmq", TABLES)
    return ask(PGMQ, store, do, scratch=do == "work")[:-1]


def losses(settings: Settings) -> dict[str, int]:
    """Return how many documents have each loss by name."""
    outcome = check_parity(settings, Scope())
    return {note.path: note.count for one in outcome.collections for note in one.notes if note.cause == NAMED_LOSS}


@pytest.mark.proves("6-T9")
def test_every_pending_message_is_taken_once_by_two_clients_and_no_other(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    due = [message({"n": number}, tries=3) if number % 2 else message({"n": number}) for number in range(NUMBER)]
    expired = [taken({"expired": number}, NOW - HOUR) for number in range(5)]
    held = taken({"held": 1}, NOW + DAY, tries=2)
    later = message({"later": 1}, NOW + 2 * DAY)
    done = [taken({"done": number}, NOW - HOUR, deleted=text(NOW - 2 * HOUR)) for number in range(5)]
    letter = message({"id": "1", "payload": {"poison": 1}, "tries": 6, "ack": "a"})
    mongo_database[QUEUE].insert_many([*done, held, *due, later, *expired])
    mongo_database[DEAD].insert_one(letter)
    result = backfill(settings, Scope())
    assert (result.quarantined, result.skipped) == (0, len(done))
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0
    listed = asked(settings, "entries")
    assert len(listed) == len(due) + len(expired) + 3
    # a time in the future is that of the document, and the tries are kept
    waiting = {line["fields"]["read_ct"]: line for line in listed if line["due"] > NOW.isoformat()}
    assert {tries: datetime.fromisoformat(line["due"]) for tries, line in waiting.items()} == {
        2: NOW + DAY,
        0: NOW + 2 * DAY,
    }
    executed = asked(settings, "work")
    assert {line["kind"] for line in executed} == {"execution"}
    times = Counter(json.dumps(line["fields"]["message"], sort_keys=True) for line in executed)
    assert times == Counter(json.dumps(one["payload"], sort_keys=True) for one in [*due, *expired, letter])
    assert {line["worker"] for line in executed} == {0, 1}, "both clients took some"
    tries = {line["fields"]["message"].get("n"): line["fields"]["read_ct"] for line in executed}
    assert all(tries[number] == (4 if number % 2 else 1) for number in range(NUMBER)), "this reading counts as one"
    [dead] = [line for line in executed if line["queue_table"] == "q_dead_queue"]
    assert dead["fields"]["message"] == letter["payload"]
    # what is not visible is left, and taken when its time has come
    assert [row[3] for row in rows(settings)] == [held["payload"], later["payload"]]
    assert asked(settings, "work") == []
    changed(settings, "UPDATE pgmq.q_orders SET vt = now() - interval '1 s'")
    left = [line["fields"]["message"] for line in asked(settings, "work")]
    assert sorted(left, key=json.dumps) == [held["payload"], later["payload"]]


def test_messages_that_the_library_wrote_arrive_as_the_documents_say(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    messages = real_documents("mongodb-queue/queue")
    mongo_database[QUEUE].insert_many(messages)
    mongo_database[DEAD].insert_many(real_documents("mongodb-queue/dead"))
    result = backfill(settings, Scope())
    assert result.skipped == 3
    assert [(reason, path) for _, _, reason, path, _ in quarantine(settings.postgres.dsn or "")] == [("nul", "payload")]
    pending = [one for one in messages if "deleted" not in one and r"\x00" not in repr(one["payload"])]
    assert [row[:4] for row in rows(settings)] == [
        (one.get("tries", 0), one["_id"].generation_time, datetime.fromisoformat(one["visible"]), one["payload"])
        for one in pending
    ]
    assert [row[3]["payload"] for row in rows(settings, DEAD)] == [{"poison": True}]
    assert compared(settings) == []
    assert losses(settings) == {"ack": 1}


def test_what_a_message_cannot_hold_is_quarantined_alone(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    wrong = {
        ("nul", "payload"): message({"a": ["x\0y"]}),
        ("out-of-range", "tries"): message(1, tries=Int64(2**31)),
        ("wrong-type", "tries"): message(1, tries="3"),
        ("missing-field", "visible"): {"_id": ObjectId(), "payload": 1},
        ("bad-date", "visible"): message(1) | {"visible": "soon"},
        ("wrong-type", "_id"): message(1) | {"_id": "an id without a time"},
    }
    odd = message({"at": NOW.replace(tzinfo=None), "id": ObjectId("6b0373e0dddaa162845535f6"), "big": Int64(2**60)})
    odd |= {"_id": ObjectId(), "more": Decimal128("1.10"), "ack": None}
    mongo_database[QUEUE].insert_many([*wrong.values(), odd])
    backfill(settings, Scope())
    assert {(reason, path) for _, _, reason, path, _ in quarantine(settings.postgres.dsn or "")} == {*wrong}
    assert [row[3] for row in rows(settings)] == [
        {
            "at": text(NOW),
            "id": "6b0373e0dddaa162845535f6",
            "big": {"low": 0, "high": 2**28, "unsigned": False},  # as JSON.stringify does it of a Long
        }
    ]
    assert compared(settings) == []
    assert losses(settings) == {"payload": 1}


def test_the_tail_follows_and_a_message_that_is_acknowledged_is_no_longer_pending(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    queue = mongo_database[QUEUE]
    messages = [message({"n": number}) for number in range(4)]
    queue.insert_many(messages)
    backfill(settings, Scope())
    keys = [one["_id"] for one in messages]
    queue.update_one({"_id": keys[0]}, {"$set": {"ack": "0" * 32, "visible": text(NOW + DAY)}, "$inc": {"tries": 1}})
    queue.update_one({"_id": keys[1]}, {"$set": {"ack": "1" * 32, "tries": 1, "deleted": text(NOW)}})
    queue.delete_one({"_id": keys[2]})
    queue.insert_one(message({"n": 4}))
    caught_up(settings)
    assert [(row[0], row[2], row[3]["n"]) for row in rows(settings)] == [
        (1, NOW + DAY, 0),
        (0, NOW - HOUR, 3),
        (0, NOW - HOUR, 4),
    ]
    assert compared(settings) == []
    assert [line["fields"]["message"]["n"] for line in asked(settings, "work")] in ([3, 4], [4, 3])


def test_repair_puts_right_what_somebody_changed(settings: Settings, mongo_database: Database[Document]) -> None:
    mongo_database[QUEUE].insert_many([message({"n": number}) for number in range(3)])
    backfill(settings, Scope())
    changed(settings, "UPDATE pgmq.q_orders SET read_ct = 9 WHERE message->>'n' = '0'")
    changed(settings, "DELETE FROM pgmq.q_orders WHERE message->>'n' = '1'")
    assert len([one for one in compared(settings) if one[2] != "aggregate"]) == 2
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []
    assert sorted((row[0], row[3]["n"]) for row in rows(settings)) == [(0, 0), (0, 1), (0, 2)]


def test_a_queue_that_pgmq_makes_otherwise_is_refused(settings: Settings) -> None:
    changed(settings, "ALTER TABLE pgmq.q_orders ALTER COLUMN msg_id SET GENERATED BY DEFAULT")
    with (
        psycopg.connect(settings.postgres.dsn or "") as connection,
        pytest.raises(RefusedError, match=r"q_queue\.msg_id: identity is by default, expected always"),
    ):
        native_target.prepare(connection, load_target("pgmq"), settings.target)
