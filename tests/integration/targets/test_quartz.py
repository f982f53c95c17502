"""Quartz itself reads the tables that were copied: it lists, computes and executes what the documents say."""

import secrets
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from bson.int64 import Int64
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.cron import next_fires
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.targets import catalogue, load_target
from migrator.targets.library import LibraryError, LibraryRequest, Line, PostgresStore, answer
from tests.conftest import NEWEST
from tests.copying import settings_for
from tests.quartz_documents import OPTIONS, quartz, trigger
from tests.quartz_tables import make, rows
from tests.real_libraries import compile_probe, require_java

NOW = datetime(2027, 11, 22, 12, tzinfo=UTC)
"""When the triggers of the documents are due."""
MORE = range(100, 120)
"""Triggers that fire once."""
WINDOW = (datetime(2028, 1, 1, tzinfo=UTC), datetime(2029, 1, 1, tzinfo=UTC))


@pytest.fixture(autouse=True)
def java() -> None:
    """Say that a test was not run where Debian's packages are not installed."""
    require_java()


def ask(dsn: str, do: Any, **members: Any) -> list[Line]:  # noqa: ANN401 - see LibraryRequest
    """Return the lines of the library's answer.

    The passwords of the tests' servers are hashed in fewer rounds than Java's driver takes: it gets a login of its own.
    """
    name, address = f"java_{secrets.token_hex(4)}", urlsplit(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET scram_iterations = 4096")
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'java'")
    own = urlunsplit(address._replace(netloc=f"{name}:java@{address.hostname}:{address.port}"))
    try:
        return answer("quartz", LibraryRequest(do=do, store=PostgresStore(own), options=OPTIONS, **members))
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"REASSIGN OWNED BY {name} TO CURRENT_USER")
            connection.execute(f"DROP ROLE {name}")


@pytest.fixture
def copied(mongo_database: Database[Any], postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings of a copy into tables that Quartz has made."""
    compile_probe(monkeypatch)
    for name, documents in quartz().items():
        mongo_database[name].insert_many(documents)
    once = {"repeatCount": 0, "repeatInterval": Int64(0), "timesTriggered": 0}
    mongo_database["quartz_triggers"].insert_many([trigger(number, "Simple", **once) for number in MORE])
    ask(postgres_dsn, "prepare", scratch=True)
    target = TargetSettings(name="quartz", options=OPTIONS)
    made = settings_for(mongo_database, postgres_dsn, profile="quartz", target=target)
    revisions.upgrade(postgres_dsn, branches=(revisions.TOOL,))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target("quartz"), made.target)
    assert backfill(made, Scope()).quarantined == 0
    return made


def fields(lines: list[Line]) -> dict[str, Any]:
    assert not [line for line in lines if line["kind"] == "failed"], lines
    return {line["id"]: (line["due"], line["fields"]) for line in lines if line["kind"] == "entry"}


def test_the_tables_of_the_other_tests_are_those_that_the_library_makes(clusters: object) -> None:
    """And those of the recorded catalogue. The probe is started as the product starts it, from its source."""
    cluster = clusters.get(NEWEST)  # type: ignore[attr-defined]  # a Clusters, whose module imports this one's fixtures
    ours, theirs = cluster.empty(), cluster.empty()
    make(ours)
    ask(theirs, "prepare", scratch=True)
    (shape,) = catalogue.shapes("quartz")
    for dsn in (ours, theirs):
        with psycopg.connect(dsn) as connection:
            live = catalogue.read(connection, "public", {name: name for name in shape.catalogue.tables})
            assert catalogue.differences(shape.catalogue, live) == []
        cluster.drop(dsn)


@pytest.mark.proves("6-T8")
def test_the_library_lists_every_job_trigger_calendar_and_paused_group(copied: Settings, postgres_dsn: str) -> None:
    del copied
    listed = fields(ask(postgres_dsn, "entries"))
    assert set(listed) == {
        "job:DEFAULT.report", "job:odd, group.alone", "calendar:no mondays", "paused:paused",
        "trigger:paused.trigger-17",
        *(f"trigger:DEFAULT.trigger-{number}" for number in (10, 11, 12, 13, 14, 15, 16, 18, *MORE)),
    }  # fmt: skip
    assert listed["job:DEFAULT.report"][1]["data"] == {"to": "a@example.com", "n": 1}
    assert (listed["job:odd, group.alone"][1]["durable"], listed["job:DEFAULT.report"][1]["durable"]) == (False, True)
    due, cron = listed["trigger:paused.trigger-17"]
    assert (due, cron["line"], cron["zone"]) == ("2027-11-22T12:00:00Z", "0 0 9 ? * MON-FRI", "UTC")
    assert (cron["previous"], cron["end"]) == ("2026-11-22T12:00:00Z", "2029-11-22T12:00:00Z")
    assert (cron["calendar"], cron["data"]["n"], cron["job"]) == ("no mondays", 1, "DEFAULT.report")
    daily = listed["trigger:DEFAULT.trigger-16"][1]
    assert (daily["days"], daily["from"], daily["to"]) == ("[2, 3, 4, 5, 6]", "8:0:0", "17:30:0")
    assert (daily["interval"], daily["unit"]) == (90, "MINUTE")
    simple = listed["trigger:DEFAULT.trigger-12"][1]
    assert (simple["count"], simple["interval"], simple["times"], simple["priority"]) == (-1, 90_000, 7, 9)
    interval = listed["trigger:DEFAULT.trigger-15"][1]
    assert (interval["interval"], interval["unit"], interval["times"]) == (3, "MONTH", 2)
    states = {name: listed[f"trigger:DEFAULT.trigger-{name}"][1]["state"] for name in (10, 11, 13, 18)}
    assert states == {10: "NORMAL", 11: "PAUSED", 13: "NORMAL", 18: "ERROR"}


@pytest.mark.proves("6-T8")
def test_the_library_computes_the_fires_that_the_rules_say(copied: Settings, postgres_dsn: str) -> None:
    """The window is a year with both changes of the clock in Vienna."""
    del copied
    lines = ask(postgres_dsn, "fires", windows=[WINDOW], limit=2_000)
    found = {
        line["id"]: [datetime.fromisoformat(fire) for fire in line["fires"]]
        for line in lines
        if line["kind"] == "fires"
    }
    start = WINDOW[0] - timedelta(seconds=1)
    line = "0 30 2 ? * 2-6"
    expected = [fire for fire in next_fires("quartz", line, "Europe/Vienna", start, 400) if fire < WINDOW[1]]
    assert (found["trigger:DEFAULT.trigger-10"], len(expected)) == (expected, 260)
    hours = {fire.weekday() for fire in found["trigger:paused.trigger-17"]}
    assert hours == {1, 2, 3, 4}, "the calendar excludes Mondays"
    assert found["trigger:DEFAULT.trigger-15"] == [datetime(2028, month, 22, 12, tzinfo=UTC) for month in (2, 5, 8, 11)]
    assert len({fire.date() for fire in found["trigger:DEFAULT.trigger-16"]}) == 260


@pytest.mark.proves("6-T8")
def test_two_schedulers_of_a_cluster_execute_what_is_due_once(copied: Settings, postgres_dsn: str) -> None:
    """Enabled ones each once, those that are paused or in error not at all."""
    del copied
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:  # so that it does not fire again meanwhile
        connection.execute("UPDATE qrtz_simple_triggers SET repeat_interval = 86400000 WHERE repeat_count = -1")
    lines = ask(postgres_dsn, "work", now=NOW + timedelta(minutes=1), scratch=True)
    executed = Counter(line["id"] for line in lines if line["kind"] == "execution")
    due = {f"trigger:DEFAULT.trigger-{number}" for number in (10, 12, 13, 14, 15, 16, *MORE)}
    assert executed == Counter(due | {"trigger:paused.trigger-17"})
    left = dict(rows(postgres_dsn, "qrtz_triggers", "trigger_name", "trigger_state"))
    assert (left["trigger-11"], left["trigger-18"], "trigger-14" in left) == ("PAUSED", "ERROR", False)


def test_the_library_tells_what_it_cannot_read(copied: Settings, postgres_dsn: str) -> None:
    del copied
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            "UPDATE qrtz_cron_triggers SET cron_expression = 'no line' WHERE trigger_name = 'trigger-10'"
        )
        connection.execute("DELETE FROM qrtz_simple_triggers WHERE trigger_name = 'trigger-12'")
        connection.execute("UPDATE qrtz_job_details SET job_data = '\\x00' WHERE job_name = 'report'")
        connection.execute("UPDATE qrtz_job_details SET job_class_name = 'com.example.Unsaid' WHERE job_name = 'alone'")
    failed = {line["id"] for line in ask(postgres_dsn, "entries") if line["kind"] == "failed"}
    assert failed == {
        "job:DEFAULT.report",
        "job:odd, group.alone",
        "trigger:DEFAULT.trigger-10",
        "trigger:DEFAULT.trigger-12",
    }


def test_what_only_reads_writes_nothing_and_what_writes_needs_scratch(copied: Settings, postgres_dsn: str) -> None:
    del copied
    ask(postgres_dsn, "entries")
    for table in ("qrtz_locks", "qrtz_scheduler_state", "qrtz_fired_triggers"):
        assert rows(postgres_dsn, table, "sched_name", "1") == []
    with pytest.raises(LibraryError, match="work writes, and the request does not say that the tables are scratch"):
        ask(postgres_dsn, "work")
    before = rows(postgres_dsn, "qrtz_triggers", "trigger_name", "next_fire_time")
    with pytest.raises(LibraryError, match="failed with PSQLException"):
        ask(postgres_dsn, "prepare", scratch=True)  # the script would drop the tables
    assert rows(postgres_dsn, "qrtz_triggers", "trigger_name", "next_fire_time") == before
