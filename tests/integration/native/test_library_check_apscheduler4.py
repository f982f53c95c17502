"""The area ``library`` of ``verify`` for APScheduler 4: the library on MongoDB, and on a scratch copy of its tables."""

from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from bson import Binary
from msgspec.structs import replace
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library_rules import Apscheduler4Rules
from tests.copying import settings_for
from tests.forked_probes import altered
from tests.integration.native.test_apscheduler4 import MADE, documents, job
from tests.library_checks import checked, execute, told
from tests.native_tables import BY_NAME, prepare, python

Document = dict[str, Any]
BASE = 1795391739.75
"""When the jobs of the documents were made."""


def task(name: str, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a task as the library writes one."""
    plain: Document = {
        "func": "app:do",
        "id": name,
        "job_executor": "threadpool",
        "max_running_jobs": 1,
        "metadata": {},
    }
    return {"_id": name, **plain, "misfire_grace_time": None, "running_jobs": 0} | changes


def key(number: int) -> Binary:
    return Binary.from_uuid(UUID(int=number))


LEASE = {"acquired_by": "killed", "acquired_until": BASE + 30}
TASKS = (task("t"), task("full", running_jobs=1), task("cut off", running_jobs=1), task("many", max_running_jobs=None))
JOBS = (
    job(key(1)),
    job(key(2)),
    job(key(3), task_id="full"),
    job(key(4), task_id="cut off", **LEASE),
    job(key(5), task_id="cut off", created_at=BASE + 1),
    job(key(6), task_id="many", start_deadline=BASE - 5),
    job(key(7), task_id="many", acquired_by="alive", acquired_until=BASE + 10**9),
    job(key(8), task_id="many", executor="processpool"),
    job(key(9), task_id="t" * 501),
)


@pytest.fixture
def settings(mongo_database: Database[Document], postgres_dsn: str) -> Settings:
    """Settings for a copy, which name the interpreter that has the library."""
    prepare(MADE, postgres_dsn)
    target = TargetSettings(name="apscheduler4", interpreter=str(python(MADE)))
    made = settings_for(mongo_database, postgres_dsn, profile="apscheduler4", target=target)
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("apscheduler4"), made.target)
    return made


def copied(settings: Settings, database: Database[Document], serializer: str = "json") -> Settings:
    """Copy what the library wrote with a serializer, and jobs of every kind."""
    for name, found in documents(serializer).items():
        # of 1.5 ms: the library computes each fire that it has missed, for hours
        database[name].insert_many([one for one in found if one["_id"] != "interval-micros"])
    database["tasks"].insert_many(TASKS)
    times = ("created_at", "acquired_until", "start_deadline")
    offsets = [{f"{name}_utcoffset": 0.0 for name in times if one.get(name) is not None} for one in JOBS]
    database["jobs"].insert_many([one | more for one, more in zip(JOBS, offsets, strict=True)])
    assert backfill(settings, Scope()).quarantined == 1
    return settings


def everything(settings: Settings, database: Database[Document]) -> tuple[Any, ...]:
    """Return the rows and documents that the examination must leave as they are."""
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        tables = [
            sorted(connection.execute(f"SELECT xmin::text, t::text FROM apscheduler.{name} AS t".encode()).fetchall())
            for name in ("tasks", "schedules", "jobs", "job_results", "metadata")
        ]
        databases = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE '%migrator_%'").fetchall()
    names = sorted(database.list_collection_names())
    indexes = [database[name].index_information() for name in names]
    return tables, databases, names, indexes, [[*database[name].find().sort("_id")] for name in names]


@pytest.mark.proves("6-T6")
@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_the_library_says_of_a_copy_what_it_says_of_the_source(
    serializer: str, settings: Settings, mongo_database: Database[Document]
) -> None:
    copied(settings, mongo_database, serializer)
    before = everything(settings, mongo_database)
    checks = checked(settings)
    assert {name: (check.outcome.status, told(check)) for name, check in checks.items()} == {
        name: ("passed", []) for name in ("entries", "fires", "work", "locks")
    }, [check.outcome for check in checks.values()]
    counts = checks["entries"].counts
    assert counts["listed in the copy"] == counts["listed in the source"] - 1
    assert counts["in quarantine"] == 1
    assert checks["fires"].counts["entries whose fires the tool computes too"] == 10
    assert checks["fires"].counts["entries whose fires the library alone computes"] == 0
    assert checks["work"].counts["executions"] > 0
    assert checks["work"].counts["given up as too late"] > 0
    assert checks["locks"].counts["held by another process"] > 0
    assert everything(settings, mongo_database) == before


@pytest.mark.proves("6-T6")
def test_rows_that_differ_are_found_in_the_list_of_the_library(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    copied(settings, mongo_database)
    eighth = UUID(int=8)
    for statement in (
        "UPDATE apscheduler.schedules SET next_fire_time = next_fire_time + interval '1 ms' WHERE id = 'cron'",
        "UPDATE apscheduler.tasks SET max_running_jobs = 2 WHERE id = 'full'",
        "UPDATE apscheduler.jobs SET acquired_by = NULL, args = '[1]' WHERE acquired_by = 'alive'",
        f"DELETE FROM apscheduler.jobs WHERE id = '{eighth}'",
        "UPDATE apscheduler.tasks SET id = 'other' WHERE id = 'many'",
    ):
        execute(settings, statement)
    check = checked(settings, "entries")["entries"]
    says = "the library says something else of {} in PostgreSQL"
    assert told(check) == [
        (f"job {UUID(int=7)}", "library-differs", says.format("acquired_by, args")),
        (f"job {eighth}", "library-missing", "the library does not list it in PostgreSQL"),
        ("schedule cron", "library-differs", says.format("next_fire_time")),
        ("task full", "library-differs", says.format("max_running_jobs")),
        ("task many", "library-missing", "the library does not list it in PostgreSQL"),
        ("task other", "library-extra", "the library lists it in PostgreSQL alone"),
    ]
    assert check.outcome.status == "failed"


@pytest.mark.proves("6-T6")
def test_another_rule_is_found_in_the_fires(
    settings: Settings, mongo_database: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entries are told to be the same, as of a library that lists a rule and computes another."""
    copied(settings, mongo_database)
    monkeypatch.setattr(Apscheduler4Rules, "fields", lambda _self, line, **_: {"id": line["id"]})
    execute(
        settings,
        "UPDATE apscheduler.schedules SET trigger = (SELECT trigger FROM apscheduler.schedules WHERE id = 'calendar')"
        " WHERE id = 'cron'",
    )
    checks = checked(settings, "entries", "fires")
    assert [checks[part].outcome.status for part in ("entries", "fires")] == ["passed", "failed"]
    assert [(found, cause) for found, cause, _ in told(checks["fires"])] == [("schedule cron", "library-fires")]


FAULTY = """
import importlib
from datetime import timedelta
cron = importlib.import_module("apscheduler.triggers.cron").CronTrigger
interval = importlib.import_module("apscheduler.triggers.interval").IntervalTrigger
of_line, of_interval, left_out = cron.next, interval.next, []

def shifted(self):
    fire = of_line(self)
    return fire + timedelta(hours=1) if fire is not None and str(self._fields[5]) == "2" and fire.dst() else fire

def without_one(self):
    fire = of_interval(self)
    if self.seconds != 90 or left_out:
        return fire
    left_out.append(fire)
    return of_interval(self)

cron.next, interval.next = shifted, without_one
calendar = importlib.import_module("apscheduler.triggers.calendarinterval").CalendarIntervalTrigger
either = importlib.import_module("apscheduler.triggers.combining").OrTrigger
read_calendar, read_either = calendar.__setstate__, either.__setstate__

def doubled(self, state):
    read_calendar(self, state)
    self.months *= 2

def dropped(self, state):
    read_either(self, state)
    self.triggers, self._next_fire_times = self.triggers[:1], self._next_fire_times[:1]

calendar.__setstate__, either.__setstate__ = doubled, dropped
"""
"""A cron line fires an hour late in summer, an interval leaves out one fire, a calendar interval is twice as long, and
either of two triggers is the first alone."""


@pytest.mark.proves("6-T6")
def test_a_library_that_computes_wrongly_on_both_sides_is_found(
    settings: Settings, mongo_database: Database[Document], tmp_path: Path
) -> None:
    copied(settings, mongo_database)
    check = checked(altered(settings, FAULTY, tmp_path), "fires")["fires"]
    assert [(found, cause) for found, cause, _ in told(check)] == [
        ("schedule calendar", "library-rule"),
        ("schedule cron", "library-rule"),
        ("schedule interval", "library-rule"),
        ("schedule or", "library-rule"),
    ]
    assert check.outcome.status == "failed"


ALTERED = """
import importlib
from probes import apscheduler4
store = importlib.import_module("apscheduler.datastores.sqlalchemy").SQLAlchemyDataStore
acquire = store.acquire_jobs
{change}
"""
CHANGES: dict[str, tuple[str, str, str]] = {
    "it takes what another scheduler has": (
        """
async def acquire_jobs(self, *given):
    async with self._begin_transaction() as connection:
        await self._execute(connection, self._t_jobs.update().values(acquired_by=None, acquired_until=None)
            .where(self._t_jobs.c.acquired_by.in_(["alive", "another"])))
    return await acquire(self, *given)
store.acquire_jobs = acquire_jobs
""",
        "library-unasked",
        "library-lock",
    ),
    "it executes no jobs": (
        """
async def acquire_jobs(self, *given):
    async with self._begin_transaction() as connection:
        await self._execute(connection, self._t_jobs.delete())
    return []
store.acquire_jobs = acquire_jobs
""",
        "library-idle",
        "library-lock",
    ),
}
"""What is changed → a cause that is found in the work, and in the locks."""


@pytest.mark.proves("6-T6")
@pytest.mark.parametrize("name", CHANGES)
def test_a_library_that_works_wrongly_is_found(
    name: str, settings: Settings, mongo_database: Database[Document], tmp_path: Path
) -> None:
    change, in_work, in_locks = CHANGES[name]
    copied(settings, mongo_database)
    checks = checked(altered(settings, ALTERED.format(change=change), tmp_path), "work", "locks")
    assert in_work in {cause for _, cause, _ in told(checks["work"])}, checks["work"].outcome
    assert in_locks in {cause for _, cause, _ in told(checks["locks"])}, checks["locks"].outcome


def test_a_python_with_apscheduler_3_leaves_the_area_unverified(
    settings: Settings, mongo_database: Database[Document]
) -> None:
    copied(settings, mongo_database)
    other = str(python(BY_NAME["apscheduler-3.11"]))
    check = checked(replace(settings, target=replace(settings.target, interpreter=other)), "entries")["entries"]
    assert check.outcome.status == "unverified"
    assert f"call {other} -m pip install 'apscheduler==4.0.0a6'" in check.outcome.reason
