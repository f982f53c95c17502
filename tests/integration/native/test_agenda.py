"""Agenda's jobs and log, moved into the tables of Agenda 6 in PostgreSQL; the library itself is asked on both sides."""

import json
import subprocess
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import bson
import msgspec
import psycopg
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
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
from migrator.values import document as documents
from migrator.values.identity import parse_source_id
from tests import agenda_tables
from tests.agenda_documents import NOON, job_6, log_6, real
from tests.agenda_tables import entries, of_kind, uuid_of
from tests.copying import quarantine, settings_for, uri_of
from tests.native_tables import BY_NAME, prepare
from tests.real_libraries import packages
from tests.tailing import caught_up, compared

Document = dict[str, Any]

REAL = {
    "agenda-4": ("agendaJobs", {"nul": 1, "duplicate-key": 1, "wrong-type": 1}),
    "agenda-5": ("agendaJobs", {"nul": 1, "wrong-type": 1}),
    "agenda-6": ("agendaJobs", {}),
    "hokify-6": ("agendaJobs", {"nul": 1}),
    "pulse-1": ("pulseJobs", {"nul": 1, "wrong-type": 1}),
}
"""Folder of documents that a library wrote → collection, and why some of them are quarantined."""


def made_settings(database: Database[Any], dsn: str, target: TargetSettings) -> Settings:
    """Return settings for a copy into tables that the library has made."""
    made = settings_for(database, dsn, profile="agenda", target=target)
    revisions.upgrade(dsn, branches=("migration",))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("agenda"), made.target)
    return made


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    prepare(BY_NAME["agenda-3.0"], postgres_dsn)
    return made_settings(mongo_database, postgres_dsn, TargetSettings(name="agenda"))


def rows(settings: Settings, table: str = "agenda_jobs") -> dict[UUID, Document]:
    return {row["id"]: row for row in agenda_tables.rows(settings.postgres.dsn or "", table)}


def reasons(settings: Settings) -> dict[str, int]:
    counted: dict[str, int] = {}
    for _, _, reason, _, _ in quarantine(settings.postgres.dsn or ""):
        counted[reason] = counted.get(reason, 0) + 1
    return counted


@pytest.mark.proves("6-T4")
@pytest.mark.parametrize("variant", REAL)
def test_real_documents_arrive_and_the_library_lists_the_same_jobs(
    variant: str, settings: Settings, mongo_database: Database[Any]
) -> None:
    collection, expected = REAL[variant]
    raws = real(variant, collection)
    mongo_database[collection].insert_many([documents.decode(raw) for raw in raws])
    result = backfill(settings, Scope())
    assert result.complete
    assert reasons(settings) == expected
    outcome = check_parity(settings, Scope())
    assert (outcome.differs, outcome.unverified) == (False, False), outcome
    assert sum(one.matched for one in outcome.collections) == len(raws) - sum(expected.values())
    assert backfill(settings, Scope()).written == 0
    left = {parse_source_id(key) for _, key, *_ in quarantine(settings.postgres.dsn or "")}
    jobs = {document["_id"]: document for document in map(documents.decode, raws) if document["_id"] not in left}
    assert rows(settings).keys() == set(map(uuid_of, jobs))
    store = {"kind": "mongodb", "uri": uri_of(mongo_database), "database": mongo_database.name}
    there = entries(store | {"collections": {"agendaJobs": collection}})
    here = entries({"kind": "postgresql", "dsn": settings.postgres.dsn})
    for key in jobs:
        before, after = there[str(key)], here[str(uuid_of(key))]
        interval = before.get("repeatInterval")
        before = dict[str, Any]({"disabled": False, "fork": False}) | before
        before |= {"repeatInterval": str(interval)} if isinstance(interval, int) else {}
        if "odd" in before["name"]:
            assert after.pop("data") == as_json(before.pop("data"))
        assert after == before


def as_json(value: Any) -> Any:  # noqa: ANN401, PLR0911 - what the probe prints of ``data`` on both stores
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$date": text} | {"$ObjectId": text} | {"$Binary": text}:
            return text
        case {"$number": "-0"}:
            return 0
        case {"$number": _}:
            return None
        case {"$Decimal128": text}:
            return {"$numberDecimal": text}
        case {"$regex": _}:
            return {}
        case {"$Long": text}:
            number = int(text)
            low = number % 2**32
            return {"high": number // 2**32, "low": low - 2**32 if low >= 2**31 else low, "unsigned": False}
    return {name: as_json(inner) for name, inner in value.items()}


ODD: dict[str, tuple[str, Document]] = {
    "name of 256": ("too-long", {"name": "m" * 256}),
    "zone of 101": ("too-long", {"repeatTimezone": "z" * 101}),
    "interval of 256": ("too-long", {"repeatInterval": "1" * 256}),
    "at of 256": ("too-long", {"repeatAt": "1" * 256}),
    "worker of 256": ("too-long", {"lastModifiedBy": "w" * 256}),
    "nul in the name": ("nul", {"name": "a\0b"}),
    "nul in data": ("nul", {"data": {"inner": ["a\0b"]}}),
    "nul in the interval": ("nul", {"repeatInterval": "1 day\0"}),
    "priority with a fraction": ("wrong-type", {"priority": 1.5}),
    "priority beyond 32 bits": ("out-of-range", {"priority": 2**31}),
    "priority in words": ("wrong-type", {"priority": "high"}),
    "failures beyond 32 bits": ("out-of-range", {"failCount": Int64(2**40)}),
    "progress beyond a real": ("out-of-range", {"progress": 1e300}),
    "unknown type": ("unknown-value", {"type": "twice"}),
    "interval with an exponent": ("out-of-range", {"repeatInterval": 1e300}),
    "skip days in words": ("wrong-type", {"skipDays": "2 days"}),
    "time without an offset": ("bad-date", {"startDate": "2026-01-01T00:00:00"}),
    "time beyond the years": ("bad-date", {"data": {"at": bson.DatetimeMS(2**50)}}),
    "no name": ("missing-field", {"name": None}),
    "no object id": ("wrong-type", {"_id": "a text"}),
}
"""Job → why it is quarantined, and what is odd in it."""


@pytest.mark.proves("6-T4")
def test_what_the_tables_cannot_hold_is_quarantined_alone(settings: Settings, mongo_database: Database[Any]) -> None:
    odd = [job_6(_id=ObjectId(), lastModifiedBy=name) | change for name, (_, change) in ODD.items()]
    good = [job_6(_id=ObjectId(), name=f"good {number}") for number in range(3)]
    singles = [job_6(_id=ObjectId(), name="single", type="single", data={"n": n}) for n in range(3)]
    mongo_database["agendaJobs"].insert_many([*odd, *good, *singles])
    assert backfill(settings, Scope()).complete
    left = {parse_source_id(key): reason for _, key, reason, _, _ in quarantine(settings.postgres.dsn or "")}
    expected = {document["_id"]: reason for document, (reason, _) in zip(odd, ODD.values(), strict=True)}
    assert left == expected | {singles[1]["_id"]: "duplicate-key", singles[2]["_id"]: "duplicate-key"}
    assert sorted(row["name"] for row in rows(settings).values()) == ["good 0", "good 1", "good 2", "single"]
    assert compared(settings) == []


def test_what_has_a_rule_arrives(settings: Settings, mongo_database: Database[Any]) -> None:
    older: Document = {
        "_id": ObjectId(),
        "name": "older",
        "type": "once",
        "nextRunAt": NOON,
        "repeatInterval": 90_000.5,
    }
    newer = job_6(
        _id=ObjectId(),
        name="newer",
        priority=None,
        type=None,
        disabled=True,
        repeatInterval=60_000,
        progress=33.3,
        failReason="a\0b",
        skipDays=[0, 6],
        lockedAt=NOON - timedelta(days=9),
        data={"at": NOON, "id": older["_id"], "long": Int64(2**60), "decimal": Decimal128("1.10")},
    )
    mongo_database["agendaJobs"].insert_many([older, newer])
    assert backfill(settings, Scope()).quarantined == 0
    stored = {row["name"]: row for row in rows(settings).values()}
    assert {name: stored["older"][name] for name in ("id", "type", "priority", "disabled", "fork", "data")} == {
        "id": uuid_of(older["_id"]), "type": "normal", "priority": 0, "disabled": False, "fork": False, "data": None,
    }  # fmt: skip
    assert stored["older"]["created_at"] == older["_id"].generation_time
    assert stored["older"]["repeat_interval"] == "90000.5"
    assert (stored["newer"]["type"], stored["newer"]["priority"], stored["newer"]["repeat_interval"]) == (
        "normal", 0, "60000",
    )  # fmt: skip
    assert stored["newer"]["disabled"] is True
    assert stored["newer"]["skip_days"] == [0, 6]
    assert stored["newer"]["fail_reason"] == "a\ufffdb"
    assert stored["newer"]["locked_at"].replace(tzinfo=None) == newer["lockedAt"], "an expired lock is kept"
    assert stored["newer"]["data"] == {
        "at": "2026-11-20T12:00:00.000Z",
        "id": str(older["_id"]),
        "long": {"low": 0, "high": 2**28, "unsigned": False},
        "decimal": {"$numberDecimal": "1.10"},
    }
    assert compared(settings) == []
    outcome = check_parity(settings, Scope())
    lost = {note.path: note.count for one in outcome.collections for note in one.notes if note.cause == NAMED_LOSS}
    assert lost == {"data": 1, "failReason": 1, "progress": 1}


def test_fields_without_a_column_are_losses_by_name(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["agendaJobs"].insert_many([documents.decode(raw) for raw in real("agenda-4", "agendaJobs")])
    mongo_database["pulseJobs"].insert_many([documents.decode(raw) for raw in real("pulse-1", "pulseJobs")])
    backfill(settings, Scope())
    outcome = check_parity(settings, Scope())
    lost = {
        (one.collection, note.path): note.count
        for one in outcome.collections
        for note in one.notes
        if note.cause == NAMED_LOSS
    }
    left = {parse_source_id(key) for _, key, *_ in quarantine(settings.postgres.dsn or "")}
    expected: dict[tuple[str, str], int] = {}
    for collection in ("agendaJobs", "pulseJobs"):
        for job in mongo_database[collection].find({"_id": {"$nin": list(left)}}):
            for path in agenda_tables.NO_COLUMN & job.keys():
                if job[path] is not None and (path, job[path]) not in (("shouldSaveResult", False), ("attempts", 0)):
                    expected[collection, path] = expected.get((collection, path), 0) + 1
    assert len(expected) == 8
    assert lost == expected


def test_the_log_names_the_rows_of_its_jobs(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["agendaJobs"].insert_many([documents.decode(raw) for raw in real("agenda-6", "agendaJobs")])
    lines = [documents.decode(raw) for raw in real("agenda-6", "agenda_logs")]
    foreign = log_6(_id=ObjectId(), jobId="no object id", meta={"at": NOON})
    wrong = log_6(_id=ObjectId(), duration=2**31)
    mongo_database["agenda_logs"].insert_many([*lines, foreign, wrong])
    assert backfill(settings, Scope()).quarantined == 1
    logs = rows(settings, "agenda_logs")
    assert logs.keys() == {uuid_of(line["_id"]) for line in [*lines, foreign]}
    jobs = set(map(str, rows(settings)))
    named = {line["jobId"] for line in lines}
    assert {str(uuid_of(ObjectId(key))) for key in named} == {row["job_id"] for row in logs.values()} - {"no object id"}
    assert {row["job_id"] for row in logs.values()} & jobs, "the library finds the log of a job"
    assert compared(settings) == []
    store = {"kind": "mongodb", "uri": uri_of(mongo_database), "database": mongo_database.name}
    there, here = (
        {
            line["id"]: line["fields"]
            for line in of_kind(agenda_tables.ask(side, "entries", options={"logs": True}), "log")
        }
        for side in (store, {"kind": "postgresql", "dsn": settings.postgres.dsn})
    )
    for line in lines:
        before, after = there[str(line["_id"])], here[str(uuid_of(line["_id"]))]
        assert after == before | {"jobId": str(uuid_of(ObjectId(before["jobId"])))}


@pytest.mark.proves("6-T4")
def test_the_tail_follows_and_repair_repairs(settings: Settings, mongo_database: Database[Any]) -> None:
    jobs = mongo_database["agendaJobs"]
    keys = sorted(ObjectId() for _ in range(5))
    jobs.insert_many([job_6(_id=key, name=f"job {number}") for number, key in enumerate(keys[1:4])])
    backfill(settings, Scope())
    later = NOON + timedelta(days=1)
    jobs.update_one({"_id": keys[1]}, {"$set": {"nextRunAt": later, "lockedAt": NOON, "data": {"n": NOON}}})
    jobs.delete_one({"_id": keys[2]})
    jobs.insert_one(job_6(_id=keys[4], name="one", type="single"))
    caught_up(settings)
    jobs.insert_one(job_6(_id=keys[0], name="one", type="single"))  # before the other in the order of ids
    caught_up(settings)
    assert compared(settings) == []
    assert rows(settings).keys() == set(map(uuid_of, (keys[0], keys[1], keys[3])))
    assert rows(settings)[uuid_of(keys[1])]["next_run_at"].replace(tzinfo=None) == later
    assert reasons(settings) == {"duplicate-key": 1}
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("UPDATE agenda_jobs SET priority = 8, skip_days = '[1]' WHERE name = 'job 0'")
        connection.execute("DELETE FROM agenda_jobs WHERE name = 'job 2'")
    wrong = {(side, path) for _, _, side, path in compared(settings) if side != "aggregate"}
    assert wrong == {("row", "priority"), ("row", "skip_days"), ("missing", "")}
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []


def test_tables_and_collections_of_the_application_s_own_names(
    mongo_database: Database[Any], postgres_dsn: str
) -> None:
    names = {"agenda_jobs": "tasks", "agenda_logs": "task_logs"}
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA app")
    store = {"kind": "postgresql", "dsn": postgres_dsn, "schema": "app", "tables": names}
    of_kind(agenda_tables.ask(store, "prepare", scratch=True), "prepared")
    made = made_settings(mongo_database, postgres_dsn, TargetSettings(name="agenda", schema="app", tables=names))
    source = msgspec.structs.replace(made.source, collections={"agendaJobs": "tasks"})
    made = msgspec.structs.replace(made, source=source)
    mongo_database["tasks"].insert_one(job_6())
    backfill(made, Scope())
    assert compared(made) == []
    assert [fields["name"] for fields in entries(store).values()] == ["mail"]


def test_tables_of_another_version_are_refused(settings: Settings, mongo_database: Database[Any]) -> None:
    mongo_database["agendaJobs"].insert_one(job_6())
    with psycopg.connect(settings.postgres.dsn or "", autocommit=True) as connection:
        connection.execute("ALTER TABLE agenda_jobs DROP COLUMN debounce_started_at CASCADE")
    with pytest.raises(RefusedError, match="debounce_started_at"):
        backfill(settings, Scope())


def test_binary_data_is_what_the_driver_s_values_become(settings: Settings, mongo_database: Database[Any]) -> None:
    """The driver for Node writes what it has read of MongoDB into PostgreSQL: the copy writes the same."""
    values: Document = {
        "uuid": Binary(bytes(range(16)), 4), "old uuid": Binary(bytes(range(16)), 3), "bytes": b"\x00\xff",
        "user": Binary(b"ab", 128), "not a uuid": Binary(b"ab", 4), "date": NOON, "early": datetime(1, 1, 1),  # noqa: DTZ001 - as BSON has it
        "late": datetime(9999, 12, 31, 23, 59, 59, 999_000), "id": ObjectId(), "code": bson.Code("f()"),  # noqa: DTZ001 - as BSON has it
        "scoped": bson.Code("f()", {"a": NOON}), "regex": bson.Regex("a", "ix"), "stamp": bson.Timestamp(2**32 - 1, 7),
        "min": bson.MinKey(), "max": bson.MaxKey(), "ref": bson.DBRef("jobs", ObjectId(), "other"),
        "longs": [Int64(n) for n in (0, -1, 2**53, -(2**53), 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**33)],
        "doubles": [0.0, -0.0, 1.5, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, float("nan"), float("-inf"), 3.0],
        "decimals": [Decimal128(text) for text in ("1.10", "1E+3", "-0", "NaN", "-Infinity", "0.000000000001")],
        "deep": {"$a": {"b.c": [{"": NOON}]}}, "text": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    mongo_database["agendaJobs"].insert_many(
        [job_6(_id=ObjectId(), name=name, data=value) for name, value in values.items()]
    )
    assert backfill(settings, Scope()).quarantined == 0
    assert compared(settings) == []
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        stored: Document = dict(connection.execute("SELECT name, data::text FROM agenda_jobs").fetchall())
        driven = written_by_the_driver(mongo_database)
        assert driven.keys() == stored.keys()
        for name, text in driven.items():
            [same] = connection.execute("SELECT %s::jsonb = %s::jsonb", (stored[name], text)).fetchone() or [False]
            assert same, (name, stored[name], text)


SCRIPT = """
const { createRequire } = require('node:module')
const backend = createRequire(process.argv[1] + '/package.json').resolve('@agendajs/mongo-backend')
const { MongoClient } = createRequire(backend)('mongodb')
MongoClient.connect(process.argv[2]).then(async (client) => {
  const found = await client.db(process.argv[3]).collection('agendaJobs').find().toArray()
  console.log(JSON.stringify(found.map(({ name, data }) => [name, JSON.stringify(data)])))
  await client.close()
})
"""


def written_by_the_driver(database: Database[Any]) -> dict[str, str]:
    """Return the name of each job and the text that the library would write of its data."""
    command = ["node", "-e", SCRIPT, str(packages("agenda-6")), uri_of(database), database.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return dict(json.loads(done.stdout))
