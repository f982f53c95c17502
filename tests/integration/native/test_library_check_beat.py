"""The area ``library`` of ``verify`` for periodic tasks: celerybeat-mongo, and beat on a scratch copy of its tables."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import not_applicable
from migrator.targets.library_rules import BeatRules
from tests.cron_lines import DEEP
from tests.forked_probes import altered
from tests.integration.native.test_celery_beat import (
    DJANGO,
    EVERY_KIND,
    HOUR,
    PREFIX,
    SCHEDULES,
    SQLALCHEMY,
    both,
    naive,
    prepared,
    task,
    wrong,
)
from tests.library_checks import checked, execute, told
from tests.native_tables import BY_NAME, Made, python
from tests.real_documents import real_documents

Document = dict[str, Any]
one_of_them = both if DEEP else pytest.mark.parametrize("made", [pytest.param(SQLALCHEMY, id=SQLALCHEMY.target)])
"""What finds a difference is the same code for both libraries, whose own lists are compared above all by
``test_the_library_says_of_a_copy_what_celerybeat_mongo_says``, each day for both."""
NOW = datetime.now(UTC).replace(microsecond=0)
RECENT = {"last_run_at": naive(NOW - 3 * HOUR)}
TASKS = (
    task("two hours", 2, **RECENT, args=[1], kwargs={"b": 2}, queue="slow"),
    task("not yet", 40_000, **RECENT),
    task("night", {"minute": "30", "hour": "2"}, **RECENT),
    task("noon", {"minute": "0", "hour": "12"}, last_run_at=naive(NOW - 50 * HOUR)),
    task("four", {"minute": "0", "hour": "05"}, last_run_at=naive(NOW - 50 * HOUR)),
    task("range", {"minute": "*/7", "hour": "8-18"}, last_run_at=naive(NOW - 50 * HOUR)),
    task("never run", 1),
    task("never run, begins", 1, start_after=naive(NOW + HOUR)),
    task("begins", 1, **RECENT, start_after=naive(NOW + HOUR)),
    task("gone", 1, **RECENT, expires=naive(NOW - 2 * HOUR)),
    task("goes", 1, **RECENT, expires=naive(NOW + 24 * HOUR)),
    task("for one time", 1, **RECENT, max_run_count=1),
    task("disabled now", 1, **RECENT, enabled=False),
    task("over", 1, **RECENT, total_run_count=1, max_run_count=1),
)


def copied(made: Made, database: Database[Document], dsn: str, *documents: Document) -> Settings:
    """Let the library make its tables, and copy; return the settings, which name its interpreter."""
    settings = prepared(made, database, dsn, [*TASKS, *documents])
    settings = replace(settings, target=replace(settings.target, interpreter=str(python(made))))
    backfill(settings, Scope())
    return settings


def everything(settings: Settings, made: Made, database: Database[Document]) -> tuple[Any, ...]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        tables = [
            sorted(connection.execute(f"SELECT xmin::text, t::text FROM {PREFIX[made.target]}{name} AS t".encode()))
            for name in ("periodictask", "crontabschedule", "intervalschedule")
        ]
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    names = sorted(database.list_collection_names())
    indexes = [database[name].index_information() for name in names]
    return tables, databases, names, indexes, [*database[SCHEDULES].find().sort("_id")]


@pytest.mark.proves("6-T5")
@both
def test_the_library_says_of_a_copy_what_celerybeat_mongo_says(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    real = [*real_documents("celerybeat-mongo/ticked"), *EVERY_KIND]
    sound = [*{one["name"]: one for one in real}.values()]
    unfit = [one for documents in wrong(made).values() for one in documents if one["name"] != "good"]
    twice = [task("twice", 1), task("twice", 2)]
    settings = copied(made, mongo_database, postgres_dsn, *sound, *unfit, *twice)
    before = everything(settings, made, mongo_database)
    checks = checked(settings)
    assert {name: told(check) for name, check in checks.items()} == {name: [] for name in checks}
    assert {name: check.outcome for name, check in checks.items() if check.outcome.status != "passed"} == {
        "locks": not_applicable("beat has no lock: one beat may serve a table")
    }
    counts = checks["entries"].counts
    assert counts["listed in the copy"] == counts["listed in the source"] == len([*TASKS, *sound]) + 1
    assert counts["in quarantine"] == len(unfit) + 1, "and the second of two with one name"
    assert checks["fires"].counts["windows"] == 3, "the year, and two changes of the clock in Vienna"
    assert checks["fires"].counts["entries whose fires the tool computes too"] == checks["fires"].counts["entries"] - 1
    assert checks["work"].counts["entries that were due"] > 20
    assert everything(settings, made, mongo_database) == before


@pytest.mark.proves("6-T5")
@one_of_them
def test_rows_that_differ_are_found_in_the_list_of_the_library(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    settings = copied(made, mongo_database, postgres_dsn)
    tasks, crontabs, intervals = (
        f"{PREFIX[made.target]}{name}" for name in ("periodictask", "crontabschedule", "intervalschedule")
    )
    schedule = "schedule_id" if made is SQLALCHEMY else "crontab_id"
    of_night = f"id = (SELECT {schedule} FROM {tasks} WHERE name = 'night')"
    faults = {
        "two hours": ("args, queue", f"UPDATE {tasks} SET args = '[2]', queue = NULL WHERE name = 'two hours'"),
        "night": ("schedule", f"UPDATE {crontabs} SET minute = '31' WHERE {of_night}"),
        "begins": ("start", f"UPDATE {tasks} SET start_time = start_time + interval '1 s' WHERE name = 'begins'"),
        "goes": ("expires", f"UPDATE {tasks} SET expires = expires - interval '1 ms' WHERE name = 'goes'"),
        "for one time": ("once", f"UPDATE {tasks} SET one_off = false WHERE name = 'for one time'"),
        "disabled now": ("enabled", f"UPDATE {tasks} SET enabled = true WHERE name = 'disabled now'"),
        "over": ("total_run_count", f"UPDATE {tasks} SET total_run_count = 0 WHERE name = 'over'"),
        "range": (
            "headers, priority",
            f"UPDATE {tasks} SET headers = '{{\"a\": 1}}', priority = 3 WHERE name = 'range'",
        ),
        "noon": ("the error of the library", f"UPDATE {tasks} SET args = 'no JSON' WHERE name = 'noon'"),
    }
    for _, statement in faults.values():
        execute(settings, statement)
    execute(settings, f"UPDATE {intervals} SET every = 3 WHERE every = 40000")
    execute(settings, f"DELETE FROM {tasks} WHERE name = 'four'")
    execute(settings, f"UPDATE {tasks} SET name = 'renamed' WHERE name = 'gone'")
    check = checked(settings, "entries")["entries"]
    found = {key: (cause, words) for key, cause, words in told(check)}
    assert {key: cause for key, (cause, _) in found.items() if cause != "library-differs"} == {
        "four": "library-missing",
        "gone": "library-missing",
        "renamed": "library-extra",
    }
    differing = {key: words for key, (cause, words) in found.items() if cause == "library-differs"}
    assert differing.keys() == {*faults, "not yet"}
    for key, (fields, _) in faults.items():
        assert fields in differing[key]
    assert check.outcome.status == "failed"


@one_of_them
def test_another_rule_is_found_in_the_fires(
    made: Made, mongo_database: Database[Document], postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries are told to be the same, as of a library that lists a rule and computes another."""
    settings = copied(made, mongo_database, postgres_dsn)
    monkeypatch.setattr(BeatRules, "fields", lambda _self, line, **_: {"id": line["id"]})
    execute(settings, f"UPDATE {PREFIX[made.target]}crontabschedule SET timezone = 'Europe/Vilnius' WHERE hour = '2'")
    execute(settings, f"UPDATE {PREFIX[made.target]}intervalschedule SET every = 3 WHERE every = 2")
    checks = checked(settings, "entries", "fires")
    assert [checks[part].outcome.status for part in ("entries", "fires")] == ["passed", "failed"]
    assert [(key, cause) for key, cause, _ in told(checks["fires"])] == [
        ("night", "library-fires"),
        ("two hours", "library-fires"),
    ]


FAULTY = """
from datetime import timedelta
from zoneinfo import ZoneInfo
from probes import beats
following = beats._next

def wrong(schedule, last):
    fire = following(schedule, last)
    if getattr(schedule, "_orig_hour", None) == "2":
        return fire + timedelta(hours=1) if fire.astimezone(ZoneInfo("Europe/Vienna")).dst() else fire
    is_left_out = not hasattr(schedule, "_orig_hour") and schedule.run_every == timedelta(hours=2) and fire.hour == 4
    return following(schedule, fire) if is_left_out else fire

beats._next = wrong
"""
"""A crontab fires an hour late in summer, and a task of two hours leaves out one fire of a day."""


@pytest.mark.proves("6-T5")
@one_of_them
def test_a_library_that_computes_wrongly_on_both_sides_is_found(
    made: Made, mongo_database: Database[Document], postgres_dsn: str, tmp_path: Path
) -> None:
    settings = copied(made, mongo_database, postgres_dsn)
    check = checked(altered(settings, FAULTY, tmp_path), "fires")["fires"]
    assert [(key, cause) for key, cause, _ in told(check)] == [
        ("night", "library-rule"),
        ("two hours", "library-rule"),
    ]
    assert check.outcome.status == "failed"


ALTERED = """
from probes import beats
work = beats.work
def altered(scheduler, *rest):
    entry, due = scheduler.Entry, scheduler.Entry.is_due
    {change}
    work(scheduler, *rest)
beats.work = altered
"""
IS_DUE = "entry.is_due = lambda self: ({}, 60.0) if self.name == {!r} else due(self)"
CHANGES: dict[str, tuple[str, str | None, set[str]]] = {
    "it forgets what it has sent": ("entry.save = lambda self, fields=(): None", None, {"library-twice"}),
    "it sends what is not due": (IS_DUE.format("True", "not yet"), "not yet", {"library-unasked", "library-twice"}),
    "it does not send what is due": (IS_DUE.format("False", "two hours"), "two hours", {"library-idle"}),
}


@pytest.mark.proves("6-T5")
@pytest.mark.parametrize(
    ("name", "made"),
    [*((name, SQLALCHEMY) for name in CHANGES), *([("it forgets what it has sent", DJANGO)] if DEEP else [])],
)
def test_a_library_that_works_wrongly_is_found(
    name: str, made: Made, mongo_database: Database[Document], postgres_dsn: str, tmp_path: Path
) -> None:
    change, key, causes = CHANGES[name]
    settings = copied(made, mongo_database, postgres_dsn)
    check = checked(altered(settings, ALTERED.format(change=change), tmp_path), "work")["work"]
    assert {cause for _, cause, _ in told(check)} == causes
    assert key is None or {found for found, _, _ in told(check)} == {key}


@one_of_them
def test_a_python_without_the_library_leaves_the_area_unverified(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    settings = copied(made, mongo_database, postgres_dsn)
    other = str(python(BY_NAME["celery-results-5.7"]))
    checks = checked(replace(settings, target=replace(settings.target, interpreter=other)), "entries")
    assert checks["entries"].outcome.status == "unverified"
    reason = checks["entries"].outcome.reason
    assert f"call {other} -m pip install '{made.target}>=" in reason
    assert reason.endswith("'celerybeat-mongo>=0.2,<0.3'")
