"""Agenda 6 on its tables in PostgreSQL and on its collections in MongoDB: what it lists, computes and executes.

The same library is asked on both sides, so that no rule of it is written down here a second time.
"""

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from bson import ObjectId
from psycopg import sql
from pymongo.database import Database

from migrator.testing.servers.mongo import MongoServer
from tests import agenda_tables
from tests.agenda_tables import COLUMNS, LIBRARY, LOG_COLUMNS, NO_COLUMN, ask, entries, fires, of_kind, row_of, uuid_of
from tests.real_documents import real_documents
from tests.real_libraries import LOCKS, SECONDS, packages

Document = dict[str, Any]
Store = dict[str, Any]

WINDOWS = [
    ("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"),
    ("2027-03-27T00:00:00Z", "2027-03-30T00:00:00Z"),
    ("2027-10-30T00:00:00Z", "2027-11-02T00:00:00Z"),
]
"""A year, and the days on which clocks are set forward and back in Vienna."""
DUE = datetime(2026, 11, 2, 8, 30, 0, 123000, tzinfo=UTC)

REFUSED = {
    "priority with a fraction",
    "priority beyond 32 bits",
    "name too long",
    "zone too long",
    "interval too long",
    "nul",
    "lone surrogate",
    "big integer",
}
"""Jobs that the library saves in MongoDB and not in PostgreSQL."""
DATA: dict[str, tuple[Document, Document]] = {
    "undefined inside": ({"a": None, "b": [None], "c": {"d": None}}, {"b": [None], "c": {}}),
    "date inside": (
        {"at": {"$date": "2027-01-01T00:00:00.005Z"}, "in": [{"$date": "1970-01-01T00:00:00.000Z"}]},
        {"at": "2027-01-01T00:00:00.005Z", "in": ["1970-01-01T00:00:00.000Z"]},
    ),
    "object id inside": ({"id": {"$ObjectId": "65a0000000000000000000aa"}}, {"id": "65a0000000000000000000aa"}),
    "bytes inside": (
        {key: {"$Binary": "aGk=", "subtype": 0} for key in ("buffer", "binary")},
        {"buffer": {"type": "Buffer", "data": [104, 105]}, "binary": "aGk="},
    ),
    "not a number": (
        {
            "nan": {"$number": "NaN"},
            "inf": {"$number": "Infinity"},
            "minus": {"$number": "-Infinity"},
            "zero": {"$number": "-0"},
        },
        {"nan": None, "inf": None, "minus": None, "zero": 0},
    ),
    "numbers": (
        {"long": {"$Long": "9007199254740993"}, "decimal": {"$Decimal128": "1.10"}},
        {"long": {"low": 1, "high": 2097152, "unsigned": False}, "decimal": {"$numberDecimal": "1.10"}},
    ),
    "regular expression": ({"re": {"$regex": "/a/i"}}, {"re": {}}),
    "map": ({"map": {"a": 1}}, {"map": {}}),
}
"""Job → the ``data`` that its handler gets from MongoDB, and from PostgreSQL; members that are equal are left out."""


@pytest.fixture
def mongo(mongo_server: MongoServer, mongo_database: Database[Document]) -> Store:
    return {"kind": "mongodb", "uri": mongo_server.uri, "database": mongo_database.name}


@pytest.fixture
def postgres(postgres_dsn: str) -> Store:
    store = {"kind": "postgresql", "dsn": postgres_dsn}
    [prepared] = of_kind(ask(store, "prepare", scratch=True), "prepared")
    assert prepared["tables"] == ["agenda_jobs", "agenda_logs"]
    return store


@pytest.fixture
def written(mongo: Store, postgres: Store) -> dict[str, dict[str, str]]:
    """Let the library write the same jobs into both; return the jobs that each refuses."""
    request = {"mongodb": mongo, "postgresql": {"uri": postgres["dsn"]}}
    done = subprocess.run(
        ["node", str(LOCKS / "write-agenda.mjs"), str(packages(LIBRARY))],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    refused: dict[str, dict[str, str]] = json.loads(done.stdout)
    return refused


def by_name(listed: dict[str, Document]) -> dict[str, Document]:
    named = {fields["name"]: fields for fields in listed.values()}
    assert len(named) == len(listed)
    return named


def as_in_postgres(fields: Document) -> Document:
    """Return the job that the library lists from PostgreSQL for one that it lists from MongoDB, but for ``data``."""
    interval = fields.get("repeatInterval")
    return (
        {"disabled": False, "fork": False}
        | fields
        | ({"repeatInterval": str(interval)} if isinstance(interval, int) else {})
    )


def test_jobs_that_the_library_writes_into_both_are_listed_alike(
    mongo: Store, postgres: Store, written: dict[str, dict[str, str]]
) -> None:
    assert written["MongoDB"].keys() == {"nul in a name"}
    assert written["PostgreSQL"].keys() == REFUSED | {"nul in a name"}
    left, right = by_name(entries(mongo)), by_name(entries(postgres))
    assert left.keys() - right.keys() == {name if name != "name too long" else "m" * 256 for name in REFUSED}
    assert right.keys() <= left.keys()
    different = {}
    for name, fields in right.items():
        expected = as_in_postgres(left[name])
        if name == "blanks beyond the length":
            assert (len(expected.pop("repeatInterval")), len(fields.pop("repeatInterval"))) == (300, 255)
        if fields != expected:
            different[name] = (expected.pop("data"), fields.pop("data"))
            assert fields == expected
    assert different.keys() == DATA.keys()
    for name, (from_mongo, from_postgres) in different.items():
        assert {key: (from_mongo[key], from_postgres.get(key, "absent")) for key in DATA[name][0]} == {
            key: (value, DATA[name][1].get(key, "absent")) for key, value in DATA[name][0].items()
        }
        alike = from_mongo.keys() - DATA[name][0].keys()
        assert {key: from_mongo[key] for key in alike} == {key: from_postgres[key] for key in alike}


def test_each_field_is_in_the_column_of_its_name(
    mongo: Store, mongo_database: Database[Document], postgres: Store, written: dict[str, dict[str, str]]
) -> None:
    del mongo, written
    rows = {row["name"]: row for row in agenda_tables.rows(postgres["dsn"])}
    documents = {document["name"]: document for document in mongo_database["agendaJobs"].find()}
    assert all(row.keys() == {"id", "created_at", "updated_at", *COLUMNS.values()} for row in rows.values())
    for name, row in rows.items():
        document = documents[name]
        assert document.keys() == {"_id", *COLUMNS}
        if name == "blanks beyond the length":
            document["repeatInterval"] = document["repeatInterval"][:255]
        expected = row_of(document)
        for column in set(COLUMNS.values()) - {"data"}:
            value = expected[column].obj if column == "skip_days" and expected[column] else expected[column]
            stored = row[column]
            assert (stored if not isinstance(stored, datetime) else stored.replace(tzinfo=None)) == value, (
                name,
                column,
            )
    with psycopg.connect(postgres["dsn"]) as connection:
        kinds: Document = dict(
            connection.execute("SELECT name, coalesce(jsonb_typeof(data), 'no value') FROM agenda_jobs").fetchall()
        )
    assert (kinds["no data"], kinds["null"], documents["no data"]["data"]) == ("no value", "null", None)


def test_the_log_is_read_alike(mongo: Store, postgres: Store, written: dict[str, dict[str, str]]) -> None:
    del written
    left, right = (
        sorted((line["fields"] for line in of_kind(ask(side, "entries", options={"logs": True}), "log")), key=repr)
        for side in (mongo, postgres)
    )
    assert len(left) == 3
    assert left[2]["meta"].pop("at") == {"$date": right[2]["meta"].pop("at")}
    assert left == right
    [row] = [row for row in agenda_tables.rows(postgres["dsn"], "agenda_logs") if row["event"] == "retry"]
    assert row.keys() == {"id", *LOG_COLUMNS.values()}
    assert row["meta"] == {"b": 1, "at": "2026-11-02T08:30:00.123Z"}


def test_jobs_that_the_library_writes_into_both_fire_alike(
    mongo: Store, postgres: Store, written: dict[str, dict[str, str]]
) -> None:
    del written
    names = [{key: fields["name"] for key, fields in entries(side).items()} for side in (mongo, postgres)]
    left, right = (
        {(named[key], window): times for (key, window), times in fires(side, WINDOWS, 400).items()}
        for named, side in zip(names, (mongo, postgres), strict=True)
    )
    assert {key: times for key, times in left.items() if key in right} == right
    assert [time[11:16] for time in right["every cron", 1]] == ["01:30", "01:30", "00:30"], "half past two is skipped"
    assert right["window", 0][0] == "2027-02-01T00:00:00.000Z"
    assert right["window", 0][-1] == "2027-11-01T00:00:00.000Z"
    assert len(right["skipped days", 0]) == 261, "the weekdays of 2027"
    assert right["once later", 0] == []


COPIED = {"agenda-4": "agendaJobs", "agenda-5": "agendaJobs", "agenda-6": "agendaJobs"}
COPIED |= {"hokify-6": "agendaJobs", "pulse-1": "pulseJobs"}


def copied(documents: list[Document]) -> tuple[list[Document], list[Document]]:
    """Return the documents that the table can hold, and the others: NUL in ``data``, a second single job of a name."""
    held, others, single = [], [], set()
    for document in documents:
        is_second = document.get("type") == "single" and document["name"] in single
        if is_second or "\\u0000" in json.dumps(document.get("data"), default=str):
            others.append(document)
            continue
        if document.get("type") == "single":
            single.add(document["name"])
        held.append(document)
    return held, others


@pytest.mark.parametrize("variant", COPIED)
def test_copied_documents_of_each_variant_are_the_same_jobs(
    variant: str, mongo: Store, mongo_database: Database[Document], postgres: Store
) -> None:
    documents, others = copied(real_documents(f"{variant}/{COPIED[variant]}"))
    assert len(others) == {"agenda-4": 2, "agenda-6": 0}.get(variant, 1)
    mongo_database["agendaJobs"].insert_many(documents)
    agenda_tables.insert(postgres["dsn"], [row_of(document) for document in documents])
    unknown = {field for document in documents for field in document} - {"_id", *COLUMNS}
    assert unknown <= NO_COLUMN
    left, right = entries(mongo), entries(postgres)
    assert {str(uuid_of(ObjectId(key))) for key in left} == right.keys()
    for key, fields in left.items():
        listed, expected = right[str(uuid_of(ObjectId(key)))], as_in_postgres(fields)
        if "odd" in fields["name"] or listed["data"] is None:
            expected["data"] = listed["data"]
        assert listed == expected, fields["name"]
    computed = {
        (str(uuid_of(ObjectId(key))), window): times for (key, window), times in fires(mongo, WINDOWS, 50).items()
    }
    assert computed == fires(postgres, WINDOWS, 50)


def jobs_to_work_on() -> list[Document]:
    """Return jobs of four names of which one of three is due; the others are disabled, locked, or not due yet."""
    later, earlier = DUE + timedelta(days=1), DUE - timedelta(hours=1)
    documents: list[Document] = []
    for number in range(60):
        document: Document = {"_id": ObjectId(), "name": f"kind {number % 4}", "type": "normal", "priority": number % 5}
        document |= {"data": {"number": number}, "nextRunAt": earlier + timedelta(seconds=number)}
        match number % 6:
            case 1:
                document["disabled"] = True
            case 2:
                document["nextRunAt"] = later
            case 3:
                document |= {"lockedAt": DUE - timedelta(minutes=1)}
            case 4:
                document |= {"lockedAt": DUE - timedelta(minutes=11), "lastRunAt": earlier}
            case 5 if number % 4 == 1:
                document |= {"repeatInterval": "1 day"}
            case 5:
                document["nextRunAt"] = None
        documents.append(document)
    documents.append({"_id": ObjectId(), "name": "forked", "fork": True, "nextRunAt": earlier, "priority": 0})
    documents.append(
        {"_id": ObjectId(), "name": "single", "type": "single", "nextRunAt": earlier, "repeatInterval": "0 9 * * *"}
    )
    return documents


def is_due(document: Document, now: datetime) -> bool:
    """Tell what docs/targets-agenda.md says: Agenda's rule, with its lock lifetime of ten minutes."""
    locked, time = document.get("lockedAt"), document.get("nextRunAt")
    if document.get("disabled") is True:
        return False
    return (time is not None and time <= now) if locked is None else locked <= now - timedelta(minutes=10)


def test_what_is_due_is_executed_once_by_two_workers_and_nothing_else(
    mongo: Store, mongo_database: Database[Document], postgres: Store
) -> None:
    documents = jobs_to_work_on()
    due = {document["_id"] for document in documents if is_due(document, DUE)}
    assert len(due) == 27
    mongo_database["agendaJobs"].insert_many(documents)
    agenda_tables.insert(postgres["dsn"], [row_of(document) for document in documents])
    answers = []
    for side, key_of in ((mongo, str), (postgres, lambda key: str(uuid_of(key)))):
        runs = of_kind(ask(side, "work", now=DUE.isoformat(), scratch=True), "execution")
        assert Counter(run["id"] for run in runs) == Counter(map(key_of, due))
        assert {run["worker"] for run in runs} <= {"worker-1", "worker-2"}
        answers.append(sorted((run["id"][-24:].replace("-", "")[-12:], run["handler"], run["at"]) for run in runs))
        assert of_kind(ask(side, "work", now=DUE.isoformat(), scratch=True), "execution") == []
    assert answers[0] == answers[1]
    stored = {row["id"]: row for row in agenda_tables.rows(postgres["dsn"])}
    for document in mongo_database["agendaJobs"].find():
        row = stored[uuid_of(document["_id"])]
        ran = document["_id"] in due
        assert (row["last_finished_at"] is not None) == ran == (document.get("lastFinishedAt") is not None)
        next_run = row["next_run_at"] and row["next_run_at"].replace(tzinfo=None)
        if document.get("repeatInterval") != "1 day":  # counted from the time of the run
            assert next_run == document["nextRunAt"]


def state_of(postgres: Store, database: Database[Document]) -> list[Any]:
    """Return everything that a reader might change: rows with their transactions, objects, documents and indexes."""
    with psycopg.connect(postgres["dsn"]) as connection:
        rows = connection.execute("SELECT xmin::text, agenda_jobs::text FROM agenda_jobs ORDER BY 2").fetchall()
        objects = connection.execute(
            "SELECT oid FROM pg_class UNION ALL SELECT oid FROM pg_trigger ORDER BY 1"
        ).fetchall()
    names = sorted(database.list_collection_names())
    return [
        rows,
        objects,
        names,
        [database[name].index_information() for name in names],
        [*database["agendaJobs"].find()],
    ]


def test_reading_changes_nothing(mongo: Store, mongo_database: Database[Document], postgres: Store) -> None:
    documents = jobs_to_work_on()
    mongo_database["agendaJobs"].insert_many(documents)
    agenda_tables.insert(postgres["dsn"], [row_of(document) for document in documents])
    before = state_of(postgres, mongo_database)
    for side in (mongo, postgres):
        assert len(entries(side)) == len(documents)
        of_kind(ask(side, "entries", options={"logs": True}), "log")
        fires(side, WINDOWS[:1], 3)
    assert state_of(postgres, mongo_database) == before


def test_starting_the_library_makes_its_trigger_anew_and_leaves_the_rows(postgres: Store) -> None:
    agenda_tables.insert(postgres["dsn"], [row_of(document) for document in jobs_to_work_on()])
    with psycopg.connect(postgres["dsn"], autocommit=True) as connection:
        rows = "SELECT xmin::text, agenda_jobs::text FROM agenda_jobs ORDER BY 2"
        triggers = "SELECT oid FROM pg_trigger WHERE NOT tgisinternal"
        before = connection.execute(rows).fetchall()
        [trigger] = connection.execute(triggers).fetchall()
        of_kind(ask(postgres, "prepare", scratch=True), "prepared")
        assert connection.execute(rows).fetchall() == before
        assert connection.execute(triggers).fetchall() != [trigger]


PLANTED = {
    "UPDATE agenda_jobs SET repeat_timezone = 'Europe/London' WHERE name = 'every cron'": "fires",
    "UPDATE agenda_jobs SET skip_days = '[1]' WHERE name = 'skipped days'": "fires",
    "UPDATE agenda_jobs SET data = data - 'z' WHERE name = 'nested'": "entries",
    "UPDATE agenda_jobs SET next_run_at = next_run_at + interval '1 millisecond' WHERE name = 'once later'": "entries",
    "UPDATE agenda_jobs SET disabled = NULL WHERE name = 'once due'": "entries",
    "DELETE FROM agenda_jobs WHERE name = 'once due'": "entries",
}


def test_a_fault_in_a_row_is_seen_by_the_library(postgres: Store, mongo: Store, written: object) -> None:
    del mongo, written

    def answer(do: str) -> list[Document]:
        return ask(postgres, do, **({"windows": WINDOWS, "limit": 50} if do == "fires" else {}))

    before = {do: answer(do) for do in ("entries", "fires")}
    with psycopg.connect(postgres["dsn"], autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT * FROM agenda_jobs")
        for fault, do in PLANTED.items():
            assert connection.execute(fault.encode()).rowcount == 1
            assert answer(do) != before[do], fault
            connection.execute("DELETE FROM agenda_jobs")
            connection.execute("INSERT INTO agenda_jobs SELECT * FROM kept")
    assert {do: answer(do) for do in before} == before


def test_a_job_whose_disabled_is_null_never_runs(postgres: Store) -> None:
    documents = [document for document in jobs_to_work_on() if is_due(document, DUE)]
    agenda_tables.insert(postgres["dsn"], [row_of(document) | {"disabled": None} for document in documents])
    assert of_kind(ask(postgres, "work", now=DUE.isoformat(), scratch=True), "execution") == []


def test_rules_of_older_versions_mean_what_the_page_says(
    mongo: Store, mongo_database: Database[Document], postgres: Store
) -> None:
    rule = {"repeatInterval": "0 6 * * *", "nextRunAt": DUE, "priority": 0, "type": "normal"}
    kinds: dict[str, Document] = {
        "every day": rule,
        "2 days": rule | {"skipDays": "2 days"},
        "10 days": rule | {"skipDays": "10 days"},
        "at": {"repeatAt": "3:30pm", "nextRunAt": DUE, "priority": 0},
    }
    documents = [{"_id": ObjectId(), "name": name, "data": {}} | members for name, members in kinds.items()]
    mongo_database["agendaJobs"].insert_many(documents)
    agenda_tables.insert(postgres["dsn"], [row_of(document) for document in documents])
    for side, key_of in ((mongo, str), (postgres, lambda key: str(uuid_of(key)))):
        found = fires(side, WINDOWS[:1], 14)
        computed = {document["name"]: found[key_of(document["_id"]), 0] for document in documents}
        weekdays = {
            name: {datetime.fromisoformat(time).isoweekday() for time in times} for name, times in computed.items()
        }
        assert weekdays == {
            "every day": {1, 2, 3, 4, 5, 6, 7},
            "2 days": {1, 3, 4, 5, 6, 7},
            "10 days": set(),
            "at": {5},
        }
        assert computed["at"] == ["2027-01-01T15:30:00.000Z"]


def test_tables_of_other_names_in_another_schema_are_found(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier('an "odd" one')))
    url = urlsplit(postgres_dsn)
    plain = f"host={url.hostname} port={url.port} user={url.username} password='{url.password}' dbname={url.path[1:]}"
    names = {"agenda_jobs": "tasks", "agenda_logs": "task_logs"}
    store = {"kind": "postgresql", "dsn": plain, "schema": 'an "odd" one', "tables": names}
    assert of_kind(ask(store, "prepare", scratch=True), "prepared") == [
        {"kind": "prepared", "tables": ["tasks", "task_logs"]}
    ]
    agenda_tables.insert(postgres_dsn, [row_of(jobs_to_work_on()[0])], '"an ""odd"" one".tasks')
    assert len(entries(store)) == 1
    assert entries(store | {"dsn": postgres_dsn}) == entries(store)
    assert ask(store | {"schema": "public"}, "entries")[-1]["kind"] == "broken"


def test_a_document_that_the_library_cannot_list_is_told_and_the_others_are_listed(
    mongo: Store, mongo_database: Database[Document]
) -> None:
    documents = jobs_to_work_on()[:3]
    mongo_database["agendaJobs"].insert_many([*documents, {"_id": "text", "name": "a"}])
    lines = ask(mongo, "entries")
    assert [line["id"] for line in of_kind(lines, "failed")] == ["text"]
    assert [line["id"] for line in of_kind(lines, "entry")] == [str(document["_id"]) for document in documents]


def test_a_request_that_cannot_be_carried_out_is_refused_in_words(postgres: Store, tmp_path: Path) -> None:
    for do in ("work", "prepare"):
        assert ask(postgres, do) == [
            {"kind": "no", "words": f"{do} writes, and the request does not say that the tables are scratch"}
        ]
    assert ask(postgres, "other") == [{"kind": "no", "words": "the probe has no other"}]
    assert ask({"kind": "redis"}, "entries") == [{"kind": "no", "words": "the library has no store in redis"}]
    assert ask(postgres, "fires", windows=[["2027-01-01", "2028-01-01"]], limit=1) == [
        {"kind": "no", "words": "a time without offset: 2027-01-01"}
    ]
    assert ask(postgres, "entries", options={"packages": str(tmp_path)}) == [{"kind": "missing", "module": "agenda"}]
