"""The area ``library`` of ``verify``: the library itself reads, computes and executes a scratch copy of its table."""

import math
import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from bson import Binary
from pymongo.database import Database

from migrator.config import MongoSettings, Settings, SourceSettings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.report import renderer
from migrator.report.view import arrange
from migrator.report.wording import applicable, gates_unmet
from migrator.result import unverified
from migrator.schema import native_target, revisions
from migrator.targets import library_rules, load_target
from migrator.verify import library_examination
from migrator.verify.check import CheckContext
from migrator.verify.checks import library
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.copying import settings_for
from tests.forked_probes import altered
from tests.library_checks import checked, execute
from tests.native_tables import BY_NAME, prepare

Document = dict[str, Any]
NOW = datetime.now(UTC).replace(microsecond=0)
SOON = NOW + timedelta(days=1)
"""When the first job is due: later than the last test of a session that began an hour ago."""
VIENNA = "Europe/Vienna"


def document(key: str, trigger: Any, due: datetime | None, **members: Any) -> Document:  # noqa: ANN401 - the library's
    """Return the document that ``MongoDBJobStore`` writes for a job."""
    given = {"name": key, "executor": "default", "misfire_grace_time": 30, "coalesce": True, "max_instances": 1}
    state = {
        "version": 1,
        "id": key,
        "func": "app.jobs:run",
        "trigger": trigger,
        "args": (1, {"a": "b"}),
        "kwargs": {"c": 2.5},
        "next_run_time": due,
        **given,
        **members,
    }
    due_seconds = None if due is None else due.timestamp()
    return {"_id": key, "next_run_time": due_seconds, "job_state": Binary(pickle.dumps(state, 4))}


LATER = (SOON + timedelta(days=10)).date()
NOON: dict[str, Any] = {"hour": 12, "minute": 30, "timezone": VIENNA}


def combined(*, hours: int = 31, start: datetime = SOON) -> list[Any]:
    """Return an interval, a date and a calendar interval."""
    return [
        IntervalTrigger(hours=hours, start_date=start, timezone="UTC"),
        DateTrigger(SOON + timedelta(days=3, minutes=7), "UTC"),
        CalendarIntervalTrigger(days=1, start_date=LATER, **NOON),
    ]


def documents() -> list[Document]:
    nightly = CronTrigger(hour=2, minute=30, timezone=VIENNA)
    calendar = CalendarIntervalTrigger(days=3, start_date=LATER, **NOON)
    noon = AndTrigger([CalendarIntervalTrigger(days=1, start_date=LATER, **NOON), CronTrigger(**NOON)])
    return [
        document("calendar", calendar, calendar.get_next_fire_time(None, SOON)),
        document("either", OrTrigger(combined()), SOON),
        document("both", noon, noon.get_next_fire_time(None, SOON)),
        document("nightly", nightly, nightly.get_next_fire_time(None, SOON)),
        document("soon", IntervalTrigger(seconds=45, start_date=SOON, timezone="UTC"), SOON),
        document("each", IntervalTrigger(seconds=45, start_date=SOON, timezone="UTC"), SOON, coalesce=False),
        document("once", DateTrigger(SOON + timedelta(days=3), "UTC"), SOON + timedelta(days=3)),
        document("paused", CronTrigger(minute=0, timezone="UTC"), None),
        document(
            "overdue", IntervalTrigger(hours=1, timezone="UTC"), NOW - timedelta(hours=5), misfire_grace_time=None
        ),
        document("too late", DateTrigger(NOW - timedelta(days=9), "UTC"), NOW - timedelta(days=9)),
    ]


@pytest.fixture
def settings(mongo_database: Database[Any], postgres_dsn: str) -> Settings:
    """A copy of jobs of every kind, in the table that the library has made."""
    mongo_database["jobs"].insert_many(documents())
    prepare(BY_NAME["apscheduler-3.11"], postgres_dsn)
    made = settings_for(mongo_database, postgres_dsn, profile="apscheduler", target=TargetSettings(name="apscheduler"))
    revisions.upgrade(postgres_dsn, branches=("migration",))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("apscheduler"), made.target)
    assert backfill(made, Scope()).complete
    return made


def everything(settings: Settings, database: Database[Any]) -> tuple[Any, ...]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        rows = connection.execute("SELECT * FROM apscheduler_jobs ORDER BY id").fetchall()
        databases = connection.execute("SELECT datname FROM pg_database ORDER BY 1").fetchall()
    names = [row for row in databases if "migrator_" in row[0]]
    return rows, names, [*database["jobs"].find().sort("_id")], database["jobs"].index_information()


@pytest.mark.proves("6-T2")
def test_the_library_says_of_a_copy_what_it_says_of_the_source(
    settings: Settings, mongo_database: Database[Any]
) -> None:
    before = everything(settings, mongo_database)
    checks = checked(settings)
    assert {name: (check.outcome.status, check.findings) for name, check in checks.items()} == {
        "entries": ("passed", ()),
        "fires": ("passed", ()),
        "work": ("passed", ()),
        "locks": ("not-applicable", ()),
    }
    assert checks["entries"].counts["listed in the copy"] == 10
    assert checks["fires"].counts["windows"] == 3, "the year, and two changes of the clock in Vienna"
    assert checks["fires"].counts["entries whose fires the tool computes too"] == 10
    assert checks["fires"].counts["entries whose fires the library alone computes"] == 0
    assert checks["fires"].tallies == ()
    work = checks["work"].counts
    assert (work["entries that were due"], work["entries that were not"]) == (9, 1)
    assert (work["executions"], work["given up as too late"]) == (8, 1)
    assert everything(settings, mongo_database) == before


@pytest.mark.proves("6-T2")
def test_the_report_names_what_was_moved_to_where_once_and_nothing_of_the_scheduler(settings: Settings) -> None:
    result = verify(settings, Request(only=("parity", "cutover", "schema", "library.entries")))
    evidence = result.evidence
    assert evidence.tables == ("apscheduler/apscheduler_jobs",)
    assert [row.table for row in arrange(result).rows] == ["apscheduler/apscheduler_jobs"]
    assert result.run.installation["moved"] == "jobs to public.apscheduler_jobs"
    assert evidence.basis["schema revision"].startswith("migration ")
    assert {check for one in evidence.requirements for check in one.checks} <= {one.id for one in evidence.checks}
    assert {one.area for one in applicable(result)} == {"parity", "cutover", "library"}
    assert [one.id for one in applicable(result) if one.area == "cutover"] == ["cutover.gates"]
    unmet = gates_unmet(result)
    assert unmet is not None, "the gates are evaluated for a library's tables too"
    assert "tail" in unmet[2]
    page = renderer.markdown(result).decode()
    for of_scheduler in ("graph\\_jobs", "scheduler none", "Corruptions", "--sensitivity", "built-in handlers"):
        assert of_scheduler not in page


def test_it_says_what_the_library_is_asked_for_and_how_far_it_is(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_examination, "EVERY_S", 0.0)
    said: list[str] = []
    verify(settings, Request(only=("library.entries", "library.work")), say=said.append)
    in_source, in_copy = (
        "verify: library: listing entries in MongoDB",
        "verify: library: listing entries in the scratch copy",
    )
    ended = next(number for number, line in enumerate(said) if line.startswith("verify: 1/2 library.entries: passed"))
    before = said[:ended]
    assert before[0] == "verify: library: making a scratch copy of the tables"
    for asked in (in_source, in_copy):
        assert [line for line in before if line.startswith(asked)][:2] == [asked, f"{asked}: 1 so far"]
        assert f"{asked}: 10 so far" in before
    assert "verify: library: executing what is due in the scratch copy" in before


STATE = "UPDATE apscheduler_jobs SET job_state = %s WHERE id = %s"


def changed(key: str, **members: Any) -> bytes:  # noqa: ANN401 - of a job
    (found,) = [one for one in documents() if one["_id"] == key]
    return pickle.dumps(pickle.loads(found["job_state"]) | members, 4)


ENTRIES: dict[str, tuple[str, tuple[object, ...], str, str]] = {
    "soon": (
        "DELETE FROM apscheduler_jobs WHERE id = %s",
        ("soon",),
        "library-missing",
        "the library does not list it in PostgreSQL",
    ),
    "more": (
        "INSERT INTO apscheduler_jobs SELECT 'more', next_run_time, %s FROM apscheduler_jobs LIMIT 1",
        (changed("soon", id="more"),),
        "library-extra",
        "the library lists it in PostgreSQL alone",
    ),
    "each": (
        "UPDATE apscheduler_jobs SET next_run_time = next_run_time + 1 WHERE id = %s",
        ("each",),
        "library-differs",
        "the library says something else of due in PostgreSQL",
    ),
    "once": (
        STATE,
        (changed("once", max_instances=2, kwargs={}), "once"),
        "library-differs",
        "the library says something else of kwargs, max_instances in PostgreSQL",
    ),
    "overdue": (
        STATE,
        (changed("overdue")[:-40], "overdue"),
        "library-differs",
        "the library says something else of",
    ),
}
"""Job → what is done to its row, and what is found: it is deleted, nobody copied it, the column has another time, a
field another value, the pickle is cut."""


@pytest.mark.proves("6-T2")
def test_a_row_that_differs_is_found_in_the_list_of_the_library(settings: Settings) -> None:
    for statement, parameters, _, _ in ENTRIES.values():
        execute(settings, statement, *parameters)
    check = checked(settings, "entries")["entries"]
    assert check.outcome.status == "failed"
    causes = Counter(cause for _, _, cause, _ in ENTRIES.values())
    assert {tally.cause: tally.count for tally in check.tallies} == causes
    details = {finding.key: (finding.cause, finding.details[0]) for finding in check.findings}
    assert details.keys() == ENTRIES.keys()
    for key, (_, _, cause, words) in ENTRIES.items():
        assert details[key][0] == cause
        assert words in details[key][1]


RULES: dict[str, tuple[str, Any]] = {
    "another minute": ("nightly", CronTrigger(hour=2, minute=31, timezone=VIENNA)),
    "a changed interval of a combination": ("either", OrTrigger(combined(hours=5))),
    "a member of a combination that is dropped": ("either", OrTrigger(combined()[:2])),
    "a changed calendar interval": ("calendar", CalendarIntervalTrigger(days=4, start_date=LATER, **NOON)),
    "a time of day that is shifted": (
        "calendar",
        CalendarIntervalTrigger(days=3, start_date=LATER, hour=12, minute=31, timezone=VIENNA),
    ),
    "a start date that is shifted": ("either", OrTrigger(combined(start=SOON + timedelta(hours=1)))),
    "a start date of an interval that is shifted": (
        "soon",
        IntervalTrigger(seconds=45, start_date=SOON + timedelta(seconds=1), timezone="UTC"),
    ),
}
"""What is changed in the table → the job, and its trigger."""


@pytest.mark.parametrize("name", RULES)
def test_another_rule_is_found_in_the_fires(name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries are told to be the same, as of a library that lists a rule and computes another."""
    monkeypatch.setattr(library_rules.ApschedulerRules, "fields", lambda _self, line, **_: {"due": line["due"]})
    key, rule = RULES[name]
    execute(settings, STATE, changed(key, trigger=rule), key)
    checks = checked(settings, "entries", "fires")
    assert [checks[part].outcome.status for part in ("entries", "fires")] == ["passed", "failed"]
    assert [(one.key, one.cause) for one in checks["fires"].findings] == [(key, "library-fires")]


FAULTY = """
import importlib
from datetime import timedelta
cron = importlib.import_module("apscheduler.triggers.cron").CronTrigger
interval = importlib.import_module("apscheduler.triggers.interval").IntervalTrigger
of_line, of_interval, left_out = cron.get_next_fire_time, interval.get_next_fire_time, []

def shifted(self, previous, now):
    fire = of_line(self, previous, now)
    return fire + timedelta(hours=1) if fire is not None and fire.dst() else fire

def without_one(self, previous, now):
    fire = of_interval(self, previous, now)
    if self.interval_length != 3600 or previous is None or left_out:
        return fire
    left_out.append(fire)
    return of_interval(self, fire, fire)

cron.get_next_fire_time, interval.get_next_fire_time = shifted, without_one
"""
"""Cron lines fire an hour late in summer, and an hourly job leaves out one fire."""
READ: dict[str, tuple[str, str]] = {
    "a changed interval": ("calendarinterval.CalendarIntervalTrigger", "self.days += (self.days == 3)"),
    "a shifted start date": (
        "interval.IntervalTrigger",
        "self.start_date += (self.interval_length == 31 * 3600) * timedelta(hours=1)",
    ),
    "a dropped member": ("combining.OrTrigger", "self.triggers = self.triggers[:2]"),
}
"""What the library reads of a trigger, on both sides → the class, and how its state is read."""
ALTERED = """
import importlib
from datetime import timedelta
module, _, name = "apscheduler.triggers.{kind}".rpartition(".")
trigger = getattr(importlib.import_module(module), name)
read = trigger.__setstate__

def altered(self, state):
    read(self, state)
    {change}

trigger.__setstate__ = altered
"""


@pytest.mark.proves("6-T2")
@pytest.mark.parametrize("name", READ)
def test_a_library_that_reads_a_trigger_wrongly_on_both_sides_is_found(
    name: str, settings: Settings, tmp_path: Path
) -> None:
    kind, change = READ[name]
    check = checked(altered(settings, ALTERED.format(kind=kind, change=change), tmp_path), "fires")["fires"]
    assert check.outcome.status == "failed"
    expected = "calendar" if name == "a changed interval" else "either"
    assert [(one.key, one.cause) for one in check.findings] == [(expected, "library-rule")]


@pytest.mark.proves("6-T2")
def test_a_library_that_computes_wrongly_on_both_sides_is_found(settings: Settings, tmp_path: Path) -> None:
    check = checked(altered(settings, FAULTY, tmp_path), "fires")["fires"]
    assert check.outcome.status == "failed"
    assert check.counts["computed without end"] == 1, "of two triggers that do not agree in summer"
    assert [(one.key, one.cause) for one in check.findings] == [
        ("nightly", "library-rule"),
        ("overdue", "library-rule"),
    ]


def told(kind: str, key: str, at: str = "2027-01-01T00:00:00+00:00", **members: Any) -> dict[str, Any]:  # noqa: ANN401 - of a line
    return {"kind": kind, "id": key, "at": at, **members}


SOUND = [told("execution", "a"), told("missed", "late"), told("tick", "")]
WORK: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "sound": (SOUND, []),
    "none": (SOUND[1:], [("a", "library-idle")]),
    "twice": ([*SOUND, told("execution", "a")], [("a", "library-twice")]),
    "again": ([*SOUND, told("execution", "a", "2027-01-02", again=True)], [("a", "library-twice")]),
    "paused": ([*SOUND, told("execution", "paused")], [("paused", "library-unasked")]),
    "later": ([*SOUND, told("missed", "later")], [("later", "library-unasked")]),
    "none of what became due meanwhile": (SOUND, []),
    "unlisted": ([*SOUND, told("execution", "other")], [("other", "library-unasked")]),
    "raised": ([told("raised", "a"), *SOUND[1:]], [("a", "library-raised")]),
}


@pytest.mark.parametrize("name", WORK)
def test_what_the_library_executes_wrongly_is_found(name: str) -> None:
    entries = [
        library_rules.DueEntry("a", 1.0),
        library_rules.DueEntry("late", -math.inf),
        library_rules.DueEntry("paused", None),
        library_rules.DueEntry("later", 9.0),
    ]
    lines, expected = WORK[name]
    assert [(one.key, one.cause) for one in library_examination._work_faults(entries, lines, 5.0)] == expected


def test_what_became_due_while_the_clock_ran_on_was_due_if_it_was_executed() -> None:
    entries = [
        library_rules.DueEntry(key, at) for key, at in (("at once", 4.0), ("soon", 6.0), ("left", 6.0), ("later", 9.0))
    ]
    lines = [
        {"kind": kind, "id": key} for kind, key in (("execution", "soon"), ("execution", "later"), ("tick", "left"))
    ]
    assert library_examination._were_due(entries, lines, 5.0, 7.0) == {"at once", "soon"}


def test_a_library_that_is_not_asked_leaves_the_area_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a target for which there are no rules yet."""
    rules = {name: rule for name, rule in library_rules.RULES.items() if name != "shedlock"}
    monkeypatch.setattr(library, "RULES", rules)
    settings = Settings(
        source=SourceSettings(profile="shedlock"),
        target=TargetSettings(name="shedlock"),
        mongo=MongoSettings(uri="mongodb://x"),
    )
    for check in library.CHECKS:
        outcome = check.run(CheckContext(settings)).outcome
        assert outcome == unverified("the library of the target shedlock is not asked by this version")
