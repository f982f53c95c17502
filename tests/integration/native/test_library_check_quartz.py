"""The area ``library`` of ``verify`` for Quartz: the library on a scratch copy, held against the documents."""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from bson.int64 import Int64
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import not_applicable
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import Interpreter, PostgresStore, make_tables
from migrator.targets.library_rules import DueEntry, QuartzRules
from tests.copying import settings_for
from tests.library_checks import checked, execute, told
from tests.modelled_documents import NEXT_YEAR, NOON, object_id
from tests.quartz_documents import OPTIONS, Documents, clock, job, quartz, trigger
from tests.real_libraries import compile_probe

Document = dict[str, Any]


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that a test was not run where Debian's packages are not installed."""
    compile_probe(monkeypatch)


def documents() -> Documents:
    """Return documents of every kind, and rules that are near a change of the clock, a month's end or an end."""
    made = quartz()
    interval = {"repeatInterval": 1, "timesTriggered": 0}
    soon = NOON + timedelta(days=9)
    made["quartz_triggers"] += [
        trigger(40, "CalendarInterval", repeatIntervalUnit="MONTH", **interval)
        | {"startTime": NOON.replace(day=30) + timedelta(days=62), "endTime": NEXT_YEAR.replace(day=30)},
        trigger(41, "CalendarInterval", repeatIntervalUnit="WEEK", **interval) | {"startTime": soon},
        trigger(42, "Cron", cronExpression="0 15 2 * * ?", timezone="America/New_York", endTime=NEXT_YEAR),
        trigger(43, "Simple", repeatCount=5, repeatInterval=Int64(86_400_500), timesTriggered=1, startTime=soon),
        trigger(44, "Simple", repeatCount=-1, repeatInterval=Int64(1_000), timesTriggered=1),
        trigger(45, "DailyTimeInterval", repeatIntervalUnit="HOUR", repeatInterval=1, timesTriggered=0)
        | {"startTimeOfDay": clock(9, 30), "endTimeOfDay": clock(12, 30), "daysOfWeek": [1, 7]},
        trigger(46, "Cron", cronExpression="0 0 1 * * ?", timezone="UTC"),
        trigger(47, "Cron", cronExpression="0 0 1 * * ?", timezone="UTC") | {"class": "com.example.Own"},
    ]
    for early in made["quartz_triggers"][-8:]:
        early["nextFireTime"] = soon
    made["quartz_jobs"].append(job(object_id(50), "unsaid", "com.example.Unsaid"))
    return made


@pytest.fixture
def dsn(postgres_dsn: str) -> Iterator[str]:
    """An address with a login of its own: the passwords of the servers are hashed in fewer rounds than Java takes."""
    name, address = f"java_{secrets.token_hex(4)}", urlsplit(postgres_dsn)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("SET scram_iterations = 4096")
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'java'".encode())
    yield urlunsplit(address._replace(netloc=f"{name}:java@{address.hostname}:{address.port}"))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"REASSIGN OWNED BY {name} TO CURRENT_USER".encode())
        connection.execute(f"DROP ROLE {name}".encode())


@pytest.fixture
def settings(mongo_database: Database[Any], dsn: str) -> Settings:
    for name, made in documents().items():
        mongo_database[name].insert_many(made)
    make_tables("quartz", PostgresStore(dsn), Interpreter())
    target = TargetSettings(name="quartz", options=OPTIONS)
    settings = settings_for(mongo_database, dsn, profile="quartz", target=target)
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("quartz"), settings.target)
    assert backfill(settings, Scope()).quarantined == 2
    return settings


def everything(settings: Settings) -> list[Any]:
    """Return the rows and documents that the examination must leave as they are."""
    tables = ("triggers", "job_details", "fired_triggers", "scheduler_state", "locks", "cron_triggers")
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        found = [
            sorted(connection.execute(f"SELECT xmin::text, t::text FROM qrtz_{table} AS t".encode()).fetchall())
            for table in tables
        ]
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    return [found, databases]


@pytest.mark.proves("6-T8")
def test_the_library_says_of_a_copy_what_the_documents_say(settings: Settings) -> None:
    before = everything(settings)
    checks = checked(settings)
    assert {name: told(check) for name, check in checks.items()} == {name: [] for name in checks}
    fires = checks["fires"].counts
    assert fires["entries whose fires the tool computes too"] == fires["entries"] == 15
    assert [tally.keys for tally in checks["fires"].tallies] == [("trigger:paused.trigger-17",)], "it has a calendar"
    assert {name: check.outcome.status for name, check in checks.items()} == {
        "entries": "passed",
        "fires": "passed",
        "work": "passed",
        "locks": "not-applicable",
    }
    assert checks["locks"].outcome == not_applicable("no lock of a scheduler of Quartz is copied")
    counts = checks["entries"].counts
    assert (counts["listed in the source"], counts["listed in the copy"]) == (20, 20)
    fires = checks["fires"].counts
    assert (fires["entries"], fires["windows"]) == (15, 5), "all but the one with a calendar; a year, Vienna, New York"
    work = checks["work"].counts
    assert (work["entries that were due"], work["entries that were not"]) == (14, 6)
    assert everything(settings) == before


ENTRIES: dict[str, tuple[str, str, str]] = {
    "UPDATE qrtz_cron_triggers SET cron_expression = '0 31 2 ? * 2-6' WHERE trigger_name = 'trigger-10'": (
        "trigger:DEFAULT.trigger-10", "library-differs", "line",
    ),
    "UPDATE qrtz_triggers SET next_fire_time = next_fire_time + 1 WHERE trigger_name = 'trigger-11'": (
        "trigger:DEFAULT.trigger-11", "library-differs", "due",
    ),
    "UPDATE qrtz_triggers SET trigger_state = 'PAUSED', priority = 1 WHERE trigger_name = 'trigger-12'": (
        "trigger:DEFAULT.trigger-12", "library-differs", "priority, state",
    ),
    "UPDATE qrtz_simple_triggers SET repeat_count = 5 WHERE trigger_name = 'trigger-13'": (
        "trigger:DEFAULT.trigger-13", "library-differs", "count",
    ),
    "UPDATE qrtz_simprop_triggers SET str_prop_3 = '8,0,0,17,31,0' WHERE trigger_name = 'trigger-16'": (
        "trigger:DEFAULT.trigger-16", "library-differs", "to",
    ),
    "UPDATE qrtz_job_details SET is_durable = false WHERE job_name = 'report'": (
        "job:DEFAULT.report", "library-differs", "durable",
    ),
    "DELETE FROM qrtz_paused_trigger_grps": ("paused:paused", "library-missing", ""),
    "DELETE FROM qrtz_simple_triggers WHERE trigger_name = 'trigger-43'": (
        "trigger:DEFAULT.trigger-43", "library-differs", "the error of the library",
    ),
    "UPDATE qrtz_calendars SET calendar_name = 'other'": ("calendar:other", "library-extra", ""),
}  # fmt: skip
"""Fault in the rows → the entry, the cause, and the last of the fields of which the library says something else."""


@pytest.mark.proves("6-T8")
def test_rows_that_differ_are_found_in_the_list_of_the_library(settings: Settings) -> None:
    for statement in ENTRIES:
        execute(settings, statement)
    check = checked(settings, "entries")["entries"]
    found = {key: (cause, words) for key, cause, words in told(check)}
    assert found.pop("calendar:no mondays")[0] == "library-missing"
    assert found.keys() == {key for key, _, _ in ENTRIES.values()}
    for key, cause, fields in ENTRIES.values():
        assert found[key][0] == cause
        assert fields in found[key][1]
    assert check.outcome.status == "failed"


RULES = {
    "trigger-10": "UPDATE qrtz_cron_triggers SET time_zone_id = 'Europe/London' WHERE trigger_name = 'trigger-10'",
    "trigger-12": "UPDATE qrtz_triggers SET start_time = start_time + 1 WHERE trigger_name = 'trigger-12'",
    "trigger-15": "UPDATE qrtz_simprop_triggers SET int_prop_1 = 2 WHERE trigger_name = 'trigger-15'",
    "trigger-16": "UPDATE qrtz_simprop_triggers SET str_prop_2 = '2,3,4' WHERE trigger_name = 'trigger-16'",
}
"""Trigger → what gives it another rule."""


@pytest.mark.proves("6-T8")
def test_another_rule_is_found_in_the_fires(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries are told to be the same, as of a library that lists a rule and computes another."""
    monkeypatch.setattr(QuartzRules, "fields", lambda _self, line, **_: {"id": line["id"]})
    for statement in RULES.values():
        execute(settings, statement)
    checks = checked(settings, "entries", "fires")
    assert [checks[part].outcome.status for part in ("entries", "fires")] == ["passed", "failed"]
    assert sorted((key, cause) for key, cause, _ in told(checks["fires"])) == [
        (f"trigger:DEFAULT.{key}", "library-fires") for key in RULES
    ]


@pytest.mark.proves("6-T8")
def test_what_the_library_does_not_execute_is_found(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A paused trigger is told to be due, as one that the library leaves; it works twice."""
    listed = QuartzRules.entry

    def entry(rules: QuartzRules, line: Document) -> DueEntry:
        found = listed(rules, line)
        return replace(found, due=0.0) if found.key.endswith("-11") else found

    monkeypatch.setattr(QuartzRules, "entry", entry)
    check = checked(settings, "work")["work"]
    assert [(key, cause) for key, cause, _ in told(check)] == [("trigger:DEFAULT.trigger-11", "library-idle")] * 2
