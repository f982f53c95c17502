"""APScheduler 3 on its table in PostgreSQL and on its collection in MongoDB: what it finds, computes and executes."""

import json
import pickle
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bson.binary import Binary
from pymongo.database import Database

from migrator.sources import pickles
from migrator.targets.library import LIBRARIES, MongoStore, PostgresStore
from migrator.targets.probes import apscheduler3, stand_ins
from migrator.testing.servers.mongo import MongoServer
from tests.apscheduler_documents import FILES, real
from tests.native_tables import BY_NAME, ask, prepare, python
from tests.real_libraries import LOCKS

Document = dict[str, Any]
MADE = BY_NAME["apscheduler-3.11"]
YEAR = (datetime(2027, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC))
CHANGES = [
    (begin, begin + timedelta(days=3))
    for begin in (datetime(2027, 3, 27, tzinfo=UTC), datetime(2027, 10, 30, tzinfo=UTC))
]


@pytest.fixture
def mongo(mongo_server: MongoServer, mongo_database: Database[Document]) -> MongoStore:
    return MongoStore(mongo_server.uri, mongo_database.name)


@pytest.fixture
def postgres(postgres_dsn: str) -> PostgresStore:
    prepare(MADE, postgres_dsn)
    return PostgresStore(postgres_dsn)


def store(postgres: PostgresStore, database: Database[Document], documents: list[Document]) -> None:
    """Write documents into MongoDB, and the row that holds the same bytes into PostgreSQL."""
    database["jobs"].insert_many(documents)
    with psycopg.connect(postgres.dsn) as connection:
        for document in documents:
            connection.execute(
                "INSERT INTO apscheduler_jobs (id, next_run_time, job_state) VALUES (%s, %s, %s)",
                (document["_id"], document["next_run_time"], bytes(document["job_state"])),
            )


def of_kind(lines: list[Document], kind: str) -> list[Document]:
    return [line for line in lines if line["kind"] == kind]


def stored(postgres: PostgresStore) -> list[Any]:
    with psycopg.connect(postgres.dsn) as connection:
        return connection.execute("SELECT * FROM apscheduler_jobs ORDER BY id").fetchall()


def written_by_the_library(mongo: MongoStore, dsn: str) -> None:
    request = json.dumps({"uri": mongo.uri, "database": mongo.database, "dsn": dsn})
    command = [python(MADE), LOCKS / "write-apscheduler.py"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_jobs_that_the_library_writes_into_both_are_the_same(mongo: MongoStore, postgres: PostgresStore) -> None:
    written_by_the_library(mongo, postgres.dsn)
    before = stored(postgres)
    left, right = (ask(MADE, side, "entries") for side in (mongo, postgres))
    assert [line["id"] for line in of_kind(left, "entry")] == sorted(
        (
            "cron",
            "late",
            "last",
            "second",
            "interval",
            "days",
            "date",
            "calendar",
            "and",
            "or",
            "paused",
            "method",
            "odd",
        )
    )
    assert left == right
    asked: Document = {"windows": [YEAR, *CHANGES], "limit": 400, "entry_seconds": 1}
    left, right = (ask(MADE, side, "fires", **asked) for side in (mongo, postgres))
    assert left == right
    assert [(line["id"], line["error"]) for line in of_kind(left, "failed")] == [("and", "TooLongError")]
    assert len(of_kind(left, "fires")) == 12 * 3
    spring = {line["id"]: line["fires"] for line in of_kind(left, "fires") if line["window"][0][:7] == "2027-03"}
    assert [fire[11:16] for fire in spring["days"]] == ["01:30", "01:30", "01:30"], "a day is 24 hours"
    assert [fire[8:16] for fire in spring["cron"]] == ["29T00:30"], "half past two of the clock on the wall"
    assert stored(postgres) == before


@pytest.mark.parametrize("name", FILES)
def test_copied_documents_of_each_version_are_the_same_jobs(
    name: str, mongo: MongoStore, mongo_database: Database[Document], postgres: PostgresStore
) -> None:
    documents = [*real(name).values()]
    store(postgres, mongo_database, documents)
    rows, indexes = stored(postgres), mongo_database["jobs"].index_information()
    left, right = (ask(MADE, side, "entries") for side in (mongo, postgres))
    assert left == right
    assert left[-1]["counts"].keys() <= {"entry", "failed"}
    assert sum(left[-1]["counts"].values()) == len(documents)
    windows: Document = {"windows": [YEAR], "limit": 50, "entry_seconds": 0.2}
    assert ask(MADE, mongo, "fires", **windows) == ask(MADE, postgres, "fires", **windows)
    assert stored(postgres) == rows
    assert [*mongo_database["jobs"].find()] == documents
    assert mongo_database["jobs"].index_information() == indexes


def test_what_is_due_runs_once_and_what_is_paused_does_not(mongo: MongoStore, postgres: PostgresStore) -> None:
    written_by_the_library(mongo, postgres.dsn)
    now = datetime(2027, 1, 4, 7, 45, tzinfo=UTC)
    due = {key for key, time, _ in stored(postgres) if time is not None and time <= now.timestamp()}
    assert due == {"cron", "last", "interval", "days", "calendar", "or", "odd", "method"}
    answers = []
    for side in (mongo, postgres):
        lines = ask(MADE, side, "work", now=now, scratch=True)
        runs = Counter(line["id"] for line in of_kind(lines, "execution"))
        missed = {line["id"] for line in of_kind(lines, "missed")}
        assert missed == {"cron"}, "its grace time has passed"
        assert runs.keys() == due - missed
        assert {key for key, count in runs.items() if count > 1} == {"interval"}, "the only one that does not coalesce"
        answers.append(sorted((line["kind"], line["id"], line.get("at")) for line in lines if "id" in line))
    assert answers[0] == answers[1]
    again = [ask(MADE, side, "work", now=now, scratch=True) for side in (mongo, postgres)]
    assert [of_kind(lines, "execution") for lines in again] == [[], []]
    assert ask(MADE, mongo, "entries") == ask(MADE, postgres, "entries"), "both wrote the same next run times"


class Planted:
    """Leaves a file if its pickle is executed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:  # noqa: ANN401 - as object's
        return __import__("os").system, (f"touch {self.path}",)


def test_a_job_that_cannot_be_restored_is_told_and_stays(
    mongo: MongoStore, mongo_database: Database[Document], postgres: PostgresStore
) -> None:
    good = next(iter(real("3.11.3").values()))
    bad: list[Document] = [
        {"_id": "cut", "next_run_time": 1.5, "job_state": Binary(bytes(good["job_state"])[:50])},
        {"_id": "later", "next_run_time": None, "job_state": Binary(pickle.dumps({"version": 2}))},
        {"_id": "other", "next_run_time": 2.5, "job_state": good["job_state"]},
    ]
    store(postgres, mongo_database, [good, *bad])
    rows = stored(postgres)
    for side in (mongo, postgres):
        lines = ask(MADE, side, "entries")
        assert [line["id"] for line in of_kind(lines, "entry")] == [good["_id"]]
        assert [(line["id"], line["error"]) for line in of_kind(lines, "failed")] == [
            ("cut", "UnpicklingError"),
            ("later", "ValueError"),
            ("other", "Refused"),
        ]
    assert stored(postgres) == rows
    assert mongo_database["jobs"].count_documents({}) == 4


def test_no_code_of_a_pickle_is_executed(
    tmp_path: Path, mongo: MongoStore, mongo_database: Database[Document], postgres: PostgresStore
) -> None:
    job = {
        "version": 1,
        "id": "planted",
        "func": "this:that",
        "trigger": Planted(tmp_path / "executed"),
        "executor": "x",
        "args": (Planted(tmp_path / "executed"), print),
        "kwargs": {},
        "name": "n",
        "misfire_grace_time": None,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": datetime(2027, 1, 1, tzinfo=UTC),
    }
    document = {"_id": "planted", "next_run_time": 1798761600.0, "job_state": Binary(pickle.dumps(job))}
    store(postgres, mongo_database, [document])
    left, right = (ask(MADE, side, "entries") for side in (mongo, postgres))
    assert left == right
    (entry,) = of_kind(left, "entry")
    name = next(iter(entry["fields"]["args"].values()))[0]["object"]
    assert name.endswith(".system")
    assert [line["error"] for line in of_kind(ask(MADE, postgres, "fires", windows=[YEAR]), "failed")] == [
        "AttributeError"
    ]
    assert not (tmp_path / "executed").exists()


def test_the_probe_loads_the_classes_that_the_source_reads() -> None:
    loaded = stand_ins.KNOWN | apscheduler3.LIBRARY | {"builtins.getattr"}
    assert loaded ^ pickles.ALLOWED == {"collections.defaultdict"}, "it calls its first argument"
    assert LIBRARIES["apscheduler"].probe == apscheduler3.__name__.rpartition(".")[2]
