"""The area ``library`` of ``verify`` for Agenda: the library itself, on MongoDB and on a scratch copy of its tables."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import psycopg
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from bson.raw_bson import RawBSONDocument
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import PASSED, unverified
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library_rules import AgendaRules
from migrator.values import document as documents
from tests.agenda_documents import job_6, real
from tests.agenda_tables import uuid_of
from tests.copying import settings_for
from tests.library_checks import checked, execute, told
from tests.native_tables import BY_NAME, prepare
from tests.real_libraries import packages

Document = dict[str, Any]
NOW = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
"""As BSON gives it."""
HOUR = timedelta(hours=1)
KEYS = {name: ObjectId() for name in (
    "every night", "each hour", "once", "overdue", "past", "disabled", "locked", "cut off", "cut off for ever", "ended",
    "bounded", "milliseconds", "odd", "of older versions", "with NUL", "skip days in words", "of Pulse", "in words",
    "at noon",
)}  # fmt: skip
MORE = "6b000000-0000-4000-8000-000000000001"
"""The id of a job that nobody copied."""
ODD: Document = {
    "at": NOW,
    "id": ObjectId(),
    "bytes": Binary(b"hi", 0),
    "long": Int64(2**60),
    "decimal": Decimal128("1.10"),
    "nan": [float("nan"), -0.0],
    "undefined": None,
}


def jobs() -> dict[str, list[Document]]:
    """Return collection → jobs of every kind."""
    night = {"repeatInterval": "30 2 * * *", "repeatTimezone": "Europe/Vienna"}
    kinds: dict[str, Document] = {
        "every night": night | {"nextRunAt": NOW + 9 * HOUR, "lastRunAt": NOW - HOUR},
        "each hour": {"repeatInterval": "1 hour", "nextRunAt": NOW + HOUR / 2},
        "once": {"nextRunAt": NOW + 300 * HOUR, "priority": 10},
        "overdue": {"repeatInterval": "1 day", "nextRunAt": NOW - 2 * HOUR},
        "past": {"nextRunAt": NOW - 200 * HOUR, "fork": True},
        "disabled": {"nextRunAt": NOW - HOUR, "disabled": True},
        "locked": {"nextRunAt": NOW - HOUR, "lockedAt": NOW},
        "cut off": {"nextRunAt": NOW - HOUR, "lockedAt": NOW - HOUR},
        "cut off for ever": {"nextRunAt": None, "lockedAt": NOW - HOUR, "lastRunAt": NOW - HOUR},
        "ended": {"nextRunAt": None, "failReason": "a\0b", "failedAt": NOW, "failCount": 3, "progress": 33.333333333},
        "bounded": night | {
            "nextRunAt": NOW + 50 * HOUR, "startDate": NOW + 48 * HOUR, "endDate": NOW + 900 * HOUR, "skipDays": [0, 6],
        },
        "milliseconds": {"repeatInterval": 90_000, "nextRunAt": NOW + HOUR},
        "odd": {"nextRunAt": NOW + 2 * HOUR, "data": ODD},
        "with NUL": {"nextRunAt": NOW + 2 * HOUR, "data": {"text": "a\0b"}},
        "in words": {"repeatAt": "tomorrow at noon", "nextRunAt": NOW + 2 * HOUR},
        "at noon": {"repeatAt": "12pm", "nextRunAt": NOW + 2 * HOUR},
        "skip days in words": night | {"nextRunAt": NOW + 2 * HOUR, "skipDays": "2 days"},
    }  # fmt: skip
    made = [job_6(_id=KEYS[name], name=name, lastModifiedBy="application") | members for name, members in kinds.items()]
    older = {"_id": KEYS["of older versions"], "name": "older", "type": "once", "nextRunAt": NOW + HOUR}
    pulse = {
        "_id": KEYS["of Pulse"],
        "name": "pulse",
        "nextRunAt": NOW + HOUR,
        "attempts": 0,
        "runCount": 3,
        "lastModifiedBy": "application",
    }
    return {"agendaJobs": [*made, older], "pulseJobs": [pulse]}


def copied(settings: Settings, dsn: str) -> Settings:
    """Let the library make its tables, and copy."""
    prepare(BY_NAME["agenda-3.0"], dsn)
    revisions.upgrade(dsn, branches=("migration",))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("agenda"), settings.target)
    assert backfill(settings, Scope()).complete
    return settings


@pytest.fixture
def unprepared(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    """Settings for a copy, which name the folder that has the library."""
    target = TargetSettings(name="agenda", packages=str(packages("agenda-6")))
    return settings_for(mongo_database, postgres_dsn, profile="agenda", target=target)


@pytest.fixture
def settings(unprepared: Settings, mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    for name, kinds in jobs().items():
        mongo_database[name].insert_many(kinds)
    return copied(unprepared, postgres_dsn)


def everything(settings: Settings, database: Database[Any]) -> tuple[Any, ...]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        rows = connection.execute("SELECT xmin::text, agenda_jobs::text FROM agenda_jobs ORDER BY id").fetchall()
        triggers = connection.execute("SELECT oid FROM pg_trigger ORDER BY 1").fetchall()
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    names = sorted(database.list_collection_names())
    indexes = [database[name].index_information() for name in names]
    stored = [bson.encode({"all": [*database[name].find().sort("_id")]}) for name in names]  # NaN is unlike itself
    return rows, triggers, databases, names, indexes, stored


@pytest.mark.proves("6-T4")
def test_the_library_says_of_a_copy_what_it_says_of_the_source(
    settings: Settings, mongo_database: Database[Any]
) -> None:
    before = everything(settings, mongo_database)
    checks = checked(settings)
    parts = ("entries", "fires", "work", "locks")
    assert {name: (check.outcome.status, told(check)) for name, check in checks.items()} == {
        name: ("passed", []) for name in parts
    }
    counts = checks["entries"].counts
    assert (counts["listed in the source"], counts["listed in the copy"], counts["in quarantine"]) == (19, 17, 2)
    assert checks["fires"].counts["windows"] == 3, "the year, and two changes of the clock in Vienna"
    fires = checks["fires"]
    assert fires.counts["entries whose fires the tool computes too"] == 15
    assert fires.counts["entries whose fires the library alone computes"] == 1
    assert fires.counts["entries whose fires the library fails to compute"] == 1
    assert [(tally.severity, tally.cause, tally.count, tally.keys) for tally in fires.tallies] == [
        ("explained", "library-alone", 1, (str(uuid_of(KEYS["in words"])),)),
        ("explained", "library-fails", 1, (str(uuid_of(KEYS["at noon"])),)),
    ]
    work = checks["work"].counts
    assert (work["entries that were due"], work["entries that were not"]) == (15, 2), "disabled; ended"
    assert checks["locks"].counts["held by another process"] == 5
    assert everything(settings, mongo_database) == before


@pytest.mark.proves("6-T4")
def test_the_library_says_the_same_of_real_documents(
    unprepared: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    """Those of all its predecessors in one copy. Names say which: the library allows one job of type single a name."""
    keys: dict[str, set[str]] = {}
    for variant in ("agenda-4", "agenda-5", "agenda-6", "hokify-6", "pulse-1"):
        name = "pulseJobs" if variant == "pulse-1" else "agendaJobs"
        made = [documents.decode(raw) for raw in real(variant, name)]
        mongo_database[name].insert_many([job | {"name": f"{variant} {job['name']}"} for job in made])
        keys[variant] = {str(uuid_of(job["_id"])) for job in made}
    settings = copied(unprepared, postgres_dsn)
    with psycopg.connect(postgres_dsn) as connection:
        due = "next_run_at <= now() AND locked_at IS NULL AND disabled IS NOT TRUE"
        rows = {key for (key,) in connection.execute(f"SELECT id::text FROM agenda_jobs WHERE {due}".encode())}
    assert [variant for variant in keys if not keys[variant] & rows] == [], "else nothing of it is executed"
    checks = checked(settings)
    assert {name: told(check) for name, check in checks.items()} == {name: [] for name in checks}
    assert {name: check.outcome for name, check in checks.items() if check.outcome.status != "passed"} == {}
    assert checks["work"].counts["entries that were due"] >= len(rows)


ENTRIES: dict[str, tuple[str, str]] = {
    "DELETE FROM agenda_jobs WHERE name = 'once'": ("once", ""),
    "DELETE FROM agenda_jobs WHERE name = 'pulse'": ("of Pulse", ""),
    "UPDATE agenda_jobs SET next_run_at = next_run_at + interval '1 ms' WHERE name = 'each hour'": (
        "each hour", "nextRunAt",
    ),
    "UPDATE agenda_jobs SET data = data - 'long', priority = 1 WHERE name = 'odd'": ("odd", "data, priority"),
    "UPDATE agenda_jobs SET disabled = NULL WHERE name = 'past'": ("past", "disabled"),
    "UPDATE agenda_jobs SET locked_at = NULL WHERE name = 'cut off'": ("cut off", "lockedAt"),
    "UPDATE agenda_jobs SET progress = 33.3334, fail_reason = 'ab' WHERE name = 'ended'": (
        "ended", "failReason, progress",
    ),
    "UPDATE agenda_jobs SET repeat_interval = '90001' WHERE name = 'milliseconds'": ("milliseconds", "repeatInterval"),
    "UPDATE agenda_jobs SET skip_days = '[0]' WHERE name = 'bounded'": ("bounded", "skipDays"),
    "UPDATE agenda_jobs SET type = 'single' WHERE name = 'older'": ("of older versions", "type"),
}  # fmt: skip
"""Fault in the rows → the job, and the fields of which the library says something else; none: it is missing."""


@pytest.mark.proves("6-T4")
def test_rows_that_differ_are_found_in_the_list_of_the_library(settings: Settings) -> None:
    for statement in ENTRIES:
        execute(settings, statement)
    execute(settings, "INSERT INTO agenda_jobs (id, name) VALUES (%s, 'more')", MORE)
    check = checked(settings, "entries")["entries"]
    expected = {
        str(uuid_of(KEYS[name])): (
            ("library-differs", f"the library says something else of {fields} in PostgreSQL")
            if fields
            else ("library-missing", "the library does not list it in PostgreSQL")
        )
        for name, fields in ENTRIES.values()
    }
    expected[MORE] = ("library-extra", "the library lists it in PostgreSQL alone")
    assert {key: (cause, words) for key, cause, words in told(check)} == expected
    assert (check.outcome.status, check.findings_total) == ("failed", len(expected))


def test_a_job_that_the_library_executes_for_ever_is_left_out(
    unprepared: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    """Its next run has always passed when it is computed; the others are executed all the same."""
    kinds: dict[str, Document] = {
        "ended": {"repeatAt": "yesterday at 3:30pm", "nextRunAt": NOW},
        "once": {"nextRunAt": NOW},
    }
    mongo_database["agendaJobs"].insert_many(
        [job_6(_id=KEYS[name], name=name) | members for name, members in kinds.items()]
    )
    checks = checked(copied(unprepared, postgres_dsn), "work", "locks")
    words = f"the library computes without end for {uuid_of(KEYS['ended'])}"
    assert [(check.outcome, told(check)) for check in checks.values()] == [(unverified(words), [])] * 2
    counts = checks["work"].counts
    assert (counts["entries that were due"], counts["executions"], counts["computed without end"]) == (1, 1, 1)


def test_another_rule_is_found_in_the_fires(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries are told to be the same, as of a library that lists a rule and computes another."""
    monkeypatch.setattr(AgendaRules, "fields", lambda _self, line, **_: {"name": line["fields"]["name"]})
    execute(settings, "UPDATE agenda_jobs SET repeat_timezone = 'Europe/London' WHERE name = 'every night'")
    checks = checked(settings, "entries", "fires")
    assert [checks[part].outcome.status for part in ("entries", "fires")] == ["passed", "failed"]
    assert [(key, cause) for key, cause, _ in told(checks["fires"])] == [
        (str(uuid_of(KEYS["every night"])), "library-fires")
    ]


CLAUSE = "(locked_at IS NULL AND next_run_at <= $3)"
FAULTY: dict[str, tuple[str, str, str, set[tuple[str, str]]]] = {
    "runs what is disabled": ("work", "AND disabled = FALSE", "", {("disabled", "library-unasked")}),
    "runs one name alone": (
        "work", "WHERE name = $2", "WHERE name = $2 AND name <> 'overdue'", {("overdue", "library-idle")},
    ),
    "takes the locks of others": (
        "locks", CLAUSE, "((locked_at IS NULL OR last_modified_by = 'application') AND next_run_at <= $3)",
        {(name, "library-lock") for name in ("each hour", "past", "cut off", "milliseconds", "of Pulse")},
    ),
}  # fmt: skip
"""What is wrong with the library → the check, the change of its statement, and what is found."""


def faulty(folder: Path, package: str, file: str, function: str, old: str, new: str) -> Path:
    """Return a folder with the library, of which a function in a file of one package does something else."""
    real_modules, modules = packages("agenda-6") / "node_modules", folder / "node_modules"
    (modules / "@agendajs").mkdir(parents=True)
    for path in (*real_modules.iterdir(), *(real_modules / "@agendajs").iterdir()):
        name = path.relative_to(real_modules)
        if str(name) == package:
            shutil.copytree(path, modules / name)
        elif str(name) != "@agendajs":
            (modules / name).symlink_to(path)
    changed = modules / package / file
    head, begin, rest = changed.read_text(encoding="utf-8").partition(function)
    assert old in rest
    changed.write_text(head + begin + rest.replace(old, new, 1), encoding="utf-8")
    return folder


@pytest.mark.proves("6-T4")
@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("tz: attrs.repeatTimezone", "tz: 'UTC'", {("every night", "library-rule"), ("bounded", "library-rule")}),
        ("endDate: attrs.endDate,", "", {("bounded", "library-rule")}),
        ("skipDays: attrs.skipDays,", "skipDays: [6],", {("bounded", "library-rule")}),
        # a number, as MongoDB has it, goes the way of words, and its text in PostgreSQL that of numbers
        (
            "lastRun.valueOf() + numericInterval)",
            "lastRun.valueOf() + numericInterval + 1)",
            {("milliseconds", "library-fires")},
        ),
        (
            "lastRun.valueOf() + intervalValue)",
            "lastRun.valueOf() + 2 * intervalValue)",
            {("each hour", "library-rule"), ("overdue", "library-rule"), ("milliseconds", "library-fires")},
        ),
    ],
)
def test_a_library_that_computes_wrongly_on_both_sides_is_found(
    old: str, new: str, wrong: set[tuple[str, str]], settings: Settings, tmp_path: Path
) -> None:
    folder = faulty(tmp_path, "agenda", "dist/utils/nextRunAt.js", "computeFromInterval", old, new)
    check = checked(replace(settings, target=replace(settings.target, packages=str(folder))), "fires")["fires"]
    assert check.outcome.status == "failed"
    by_key = {str(uuid_of(key)): name for name, key in KEYS.items()}
    assert {(by_key[key], cause) for key, cause, _ in told(check)} == wrong


@pytest.mark.proves("6-T4")
@pytest.mark.parametrize("name", FAULTY)
def test_a_library_that_executes_wrongly_is_found(name: str, settings: Settings, tmp_path: Path) -> None:
    part, old, new, expected = FAULTY[name]
    folder = faulty(
        tmp_path, "@agendajs/postgres-backend", "dist/PostgresJobRepository.js", "async getNextJobToRun", old, new
    )
    check = checked(replace(settings, target=replace(settings.target, packages=str(folder))), part)[part]
    assert check.outcome.status == "failed"
    by_key = {str(uuid_of(key)): name for name, key in KEYS.items()}
    assert {(by_key[key], cause) for key, cause, _ in told(check)} == expected


def test_a_collection_that_does_not_exist_is_not_asked_for(
    unprepared: Settings, mongo_database: Database[Any], postgres_dsn: str, tmp_path: Path
) -> None:
    mongo_database["agendaJobs"].insert_many(jobs()["agendaJobs"])
    settings = copied(unprepared, postgres_dsn)
    node, started = tmp_path / "node", tmp_path / "started"
    node.write_text(f'#!/bin/sh\necho >>{started}\nexec {shutil.which("node")} "$@"\n', encoding="utf-8")
    node.chmod(0o700)
    checks = checked(replace(settings, target=replace(settings.target, interpreter=str(node))), "entries")
    assert checks["entries"].outcome.status == "passed"
    assert checks["entries"].counts["listed in the source"] == 18
    assert len(started.read_text()) == 3, "for the tables, for the scratch copy, and for the one collection"


def test_a_document_that_nobody_can_read_leaves_the_others_to_be_compared(
    unprepared: Settings, mongo_database: Database[Any], postgres_dsn: str
) -> None:
    """Its text is not UTF-8: it is in quarantine."""
    unreadable = bson.encode(job_6(_id=KEYS["odd"], name="odd")).replace(b"odd\0", b"o\xffd\0")
    mongo_database["agendaJobs"].insert_many(
        [
            RawBSONDocument(unreadable),
            job_6(_id=KEYS["each hour"], name="each hour", repeatInterval="1 hour", nextRunAt=NOW),
        ]
    )
    check = checked(copied(unprepared, postgres_dsn), "fires")["fires"]
    assert (check.outcome, told(check)) == (PASSED, [])
    assert check.counts["entries whose fires the tool computes too"] == 1
