"""Sources in tables of PostgreSQL: a whole verify, rows written back into tables, and the indexes of the copy."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from migrator.cli import cli
from migrator.config import Settings
from migrator.pipeline.backfill import backfill
from migrator.pipeline.load import fetch
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.transform import rebuild
from migrator.records import Record
from migrator.sources import profile_of
from migrator.sources.profile import Collection, Profile
from migrator.values import table_row
from migrator.values.copy_format import codec
from migrator.verify.checks.semantics import NOTHING_TO_CHECK
from tests.copying import contents, write_config
from tests.integration.test_other_systems import (
    CLEAN,
    EXECUTION,
    Connection,
    insert,
    make,
    settings_for,
    source,
)
from tests.other_systems import KEYS, MINUTE, NOON_UTC, ORCHESTRATOR_ROWS, PLATFORM, SUPPORT_CENTER_ROWS
from tests.table_shapes import Row

__all__ = ["source"]  # a fixture
Filling: TypeAlias = Callable[[Connection], None]
STATUSES = ("pending", "scheduled", "running", "paused", "cancelled", "completed", "failed")


def fill_crawler(source: Connection) -> None:
    """Insert jobs of every status, with and without an interval, and executions of every status."""
    make(source, "crawler")
    source.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    for number, status in enumerate(STATUSES):
        changes = {"id": KEYS[number], "status": status, "is_paused": status == "paused"}
        insert(source, "jobs", CLEAN | changes)
    once: Row = {"schedule_time": None, "schedule_enabled": False, "interval_minutes": None, "next_run_at": None}
    once |= {"error_message": "a\\b", "metadata": None}
    insert(
        source, "jobs", CLEAN | once | {"id": KEYS[10], "status": "pending", "error_message": "a\\b", "metadata": None}
    )
    for number, status in enumerate(("running", "completed", "failed", "cancelled"), 11):
        insert(source, "job_executions", EXECUTION | {"id": KEYS[number], "status": status, "execution_number": number})


def fill_support_center(source: Connection) -> None:
    make(source, "support-center")
    insert(source, "users", {"id": KEYS[9]}, {"id": KEYS[10]})
    insert(source, "task_functions", SUPPORT_CENTER_ROWS["task_functions"])
    insert(source, "scheduled_jobs", SUPPORT_CENTER_ROWS["scheduled_jobs"])
    source.execute("UPDATE scheduled_jobs SET next_run_time = '2027-01-01'")  # else the first fire follows the copy
    insert(source, "scheduler_instances", SUPPORT_CENTER_ROWS["scheduler_instances"])
    insert(source, "scheduled_job_executions", SUPPORT_CENTER_ROWS["scheduled_job_executions"])


def verified(settings: Settings, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Run ``migrator verify``; return its exit status and the checks of its result by id."""
    config = write_config(folder, settings)
    command = ["verify", "--no-behaviour", "--config", str(config), "--report-dir", str(folder / "reports"), *more]
    called = CliRunner().invoke(cli, command)
    (result,) = (folder / "reports").glob("*/result.json")
    text = result.read_text()
    assert "p%40ss" not in text
    return called.exit_code, {one["id"]: one for one in json.loads(text)["evidence"]["checks"]}


@pytest.mark.proves("4-D8")
def test_verify_of_a_source_in_tables(
    source: Connection, postgres_dsn: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    fill_support_center(source)
    settings = settings_for(postgres_dsn, scheduler_dsn, "support-center")
    backfill(settings, Scope())
    close_cached()
    (tmp_path / "sound").mkdir()
    status, checks = verified(settings, tmp_path / "sound")
    states = {name: one["outcome"]["status"] for name, one in checks.items()}
    odd = {name: checks[name]["outcome"] for name, state in states.items() if state in ("failed", "unverified")}
    assert (odd, status) == ({}, 4)  # what --no-behaviour leaves out
    with psycopg.connect(scheduler_dsn) as target:
        target.execute("UPDATE scheduler.schedules SET timeout_ms = timeout_ms + 1 WHERE id = %s", (KEYS[8],))
    (tmp_path / "changed").mkdir()
    status, checks = verified(settings, tmp_path / "changed")
    assert status & 1
    assert checks["parity.rows"]["outcome"]["status"] == "failed"


@pytest.mark.proves("2-X11")
def test_a_counter_that_executions_do_not_bear_out_is_reported(
    source: Connection, postgres_dsn: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    """The source's own counter is copied and said to be odd there too. Another one, made in the target, is a fault."""

    def counted(name: str) -> dict[str, Any]:
        close_cached()
        (tmp_path / name).mkdir()
        _, checks = verified(settings, tmp_path / name)
        found: dict[str, Any] = checks["semantics.counters"]
        return found

    def tallies(found: dict[str, Any]) -> list[tuple[str, str, str, int]]:
        return [(one["severity"], one["cause"], one["table"], one["count"]) for one in found["tallies"]]

    make(source, "orchestrator")
    insert(source, "Platform", {"id": PLATFORM})
    job = ORCHESTRATOR_ROWS["ScheduledJob"] | {"executions_count": 0, "success_count": 0, "failure_count": 0}
    insert(source, "ScheduledJob", job)
    settings = settings_for(postgres_dsn, scheduler_dsn, "orchestrator", default_tenant=None)
    backfill(settings, Scope())
    nothing = counted("nothing")["outcome"]
    assert (nothing["status"], nothing["reason"]) == ("not-applicable", NOTHING_TO_CHECK)

    source.execute('UPDATE "ScheduledJob" SET executions_count = 20')
    backfill(settings, Scope())
    found = counted("twenty")
    assert found["outcome"]["status"] == "passed"
    assert tallies(found) == [("explained", "counted-without-rows", "triggers", 1)]
    assert [(cell["table"], cell["count"]) for cell in found["cells"]] == [("schedules", 0), ("triggers", 1)]

    with psycopg.connect(scheduler_dsn) as target:
        target.execute("UPDATE scheduler.triggers SET fire_count = 19")
    found = counted("nineteen")
    assert found["outcome"]["status"] == "failed"
    assert tallies(found) == [("difference", "counted-without-rows", "triggers", 1)]


def stored_by_document(target: Connection, profile: Profile, collection: Collection) -> list[tuple[Record, ...]]:
    """Return the stored rows of a collection, document by document, the first table's row first."""
    found: dict[str, list[Record]] = {}
    for record in collection.tables:
        query = sql.SQL("SELECT id FROM scheduler.{} WHERE source = %s ORDER BY id").format(
            sql.Identifier(record.table)
        )
        ids = [one for (one,) in target.execute(query, (profile.source_of(collection.name),))]
        for raw in fetch(target, record, ids).values():
            row: Any = record(**codec(record).read(raw))
            found.setdefault(row.source_id, []).append(row)
    return [tuple(rows) for rows in found.values()]


def restored(dsn: str, source: Connection, settings: Settings, system: str) -> None:
    """Make the system's tables once more, in the schema ``restored``, and fill them from the target alone."""
    profile = profile_of(settings.source, settings.target)
    source.execute("CREATE SCHEMA restored")
    source.execute("SET search_path = restored")
    make(source, system)
    for (table,) in source.execute(
        "SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'restored'::regnamespace AND relkind = 'r'"
    ).fetchall():
        source.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER ALL").format(sql.SQL(table)))
    with psycopg.connect(dsn) as target:
        for collection in profile.collections:
            source.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(collection.name)))
            for rows in stored_by_document(target, profile, collection):
                document = rebuild(collection, rows)
                key = table_row.from_bson(document.pop("_id"))
                insert(source, collection.name, {"id": key, **table_row.from_bson(document)})
    source.execute("SET search_path = public")


def digest(source: Connection, schema: str, table: str) -> Any:  # noqa: ANN401 - count and digest
    query = sql.SQL("SELECT count(*), md5(string_agg(to_jsonb(t)::text, ',' ORDER BY id)) FROM {} AS t")
    return source.execute(query.format(sql.Identifier(schema, table))).fetchone()


@pytest.mark.parametrize(
    ("system", "fill"),
    [
        pytest.param("crawler", fill_crawler, marks=pytest.mark.proves("3-A20")),
        ("support-center", fill_support_center),
    ],
)
def test_the_tables_can_be_restored_from_the_target_and_copied_again(
    source: Connection, postgres_dsn: str, new_scheduler_dsn: Callable[[], str], system: str, fill: Filling
) -> None:
    """The copy is an export: the source is as it was, and tables that are filled from the target alone are equal to it.

    Equal by count and digest. A copy of those tables is the same again.
    """
    fill(source)
    first, second = new_scheduler_dsn(), new_scheduler_dsn()
    settings = settings_for(postgres_dsn, first, system)
    names = [one.name for one in profile_of(settings.source, settings.target).collections]
    before = [digest(source, "public", name) for name in names]
    backfill(settings, Scope())
    restored(first, source, settings, system)
    assert [digest(source, "public", name) for name in names] == before
    assert [digest(source, "restored", name) for name in names] == before
    again = settings_for(postgres_dsn, second, system, collections={name: f"restored.{name}" for name in names})
    assert backfill(again, Scope()).quarantined == 0
    assert contents(first) == contents(second)


@pytest.mark.proves("3-A16")
def test_copied_rows_are_found_by_the_indexes_that_stand_for_those_of_the_source(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    """Due jobs, the executions of a job, and those that wait or run: partial indexes among them."""
    make(source, "crawler")
    source.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    insert(source, "jobs", *(CLEAN | {"id": UUID(int=n), "next_run_at": NOON_UTC + n * MINUTE} for n in range(1, 201)))
    insert(
        source,
        "job_executions",
        *(
            EXECUTION | {"id": UUID(int=n), "job_id": UUID(int=n % 50 + 1), "execution_number": n}
            for n in range(1, 201)
        ),
    )
    backfill(settings_for(postgres_dsn, scheduler_dsn, "crawler"), Scope())
    questions = {
        "ix_triggers_next": "SELECT id FROM scheduler.triggers WHERE enabled AND next_fire_at IS NOT NULL"
        " AND tenant_id = 'acme' AND next_fire_at <= '2026-02-03 12:05+00' ORDER BY next_fire_at, id",
        "ix_runs_schedule": "SELECT id FROM scheduler.runs WHERE schedule_id = '00000000-0000-0000-0000-000000000007'"
        " ORDER BY created_at DESC, id",
        "ix_runs_open": "SELECT id FROM scheduler.runs WHERE state = 'running'",
    }
    with psycopg.connect(scheduler_dsn) as target:
        target.execute("SET enable_seqscan = off")
        for index, question in questions.items():
            plan = "\n".join(line for (line,) in target.execute(f"EXPLAIN {question}".encode()))
            assert index in plan, plan
