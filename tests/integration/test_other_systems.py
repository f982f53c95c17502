"""The other systems on real tables, made from their DDL: copied and compared, their known bad rows among them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Json

from migrator.config import CopySettings, PostgresSettings, Settings, SourceSettings
from migrator.cutover import server_gates
from migrator.cutover.doctor import examine
from migrator.errors import DeniedError, RefusedError, UsageError
from migrator.parity.check import check_parity
from migrator.parity.model import NeverFiringSchedule
from migrator.pipeline import backfill as copying
from migrator.pipeline.backfill import backfill
from migrator.pipeline.census import census
from migrator.pipeline.plan import Scope, plan_backfill
from migrator.pipeline.quarantine import entries
from migrator.pipeline.tail.loop import Tail
from migrator.sources import profile_of
from tests.other_systems import CRAWLER_ROWS, KEYS, MINUTE, NOON_UTC, ORCHESTRATOR_ROWS, PLATFORM, SUPPORT_CENTER_ROWS
from tests.table_shapes import Row

Connection = psycopg.Connection[tuple[Any, ...]]
DDL = Path(__file__).parents[1] / "fixtures_data" / "tables"
JOB, EXECUTION = CRAWLER_ROWS["jobs"], CRAWLER_ROWS["job_executions"]
CLEAN = JOB | {"lock_token": None, "lock_acquired_at": None, "error_message": None}
BASE_COLUMNS = tuple(JOB)[:12]


@pytest.fixture
def source(postgres_dsn: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def make(source: Connection, system: str) -> None:
    source.execute((DDL / f"{system}.sql").read_bytes())


def insert(source: Connection, table: str, *rows: Row) -> None:
    for row in rows:
        given = [Json(value) if isinstance(value, dict) else value for value in row.values()]
        source.execute(
            sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                sql.Identifier(table),
                sql.SQL(", ").join(map(sql.Identifier, row)),
                sql.SQL(", ").join([sql.Placeholder()] * len(row)),
            ),
            given,
        )


def settings_for(uri: str, target: str, profile: str, **changes: Any) -> Settings:  # noqa: ANN401 - of the source
    given = {"default_tenant": "acme", "zone": "Africa/Cairo"} | changes
    return Settings(
        source=SourceSettings(profile=profile, uri=uri, **given),
        postgres=PostgresSettings(dsn=target),
        copy=CopySettings(workers=1, chunk_documents=3),
    )


def copied(settings: Settings, again: int = 0) -> dict[str, tuple[int, int, int]]:
    """Copy and compare; return documents, equal, and quarantined by table. Nothing may differ, and nothing be left.

    ``again``: rows that a second copy writes, since their first fire is counted from the copy.
    """
    assert backfill(settings, Scope()).complete
    found = check_parity(settings, Scope())
    assert (found.differs, found.unverified, found.unverified_because) == (False, False, ""), found
    counted = {one.collection for one in found.aggregates if one.measure == "documents" and one.compared}
    assert counted == {one.collection for one in found.collections if one.matched}
    assert backfill(settings, Scope()).written == again
    return {one.collection: (one.documents, one.matched, one.quarantined) for one in found.collections}


def rows(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(query.encode()).fetchall()


def reasons(settings: Settings) -> list[tuple[str, str, str]]:
    return [(one.collection, one.reason, one.path) for one in entries(settings)]


@pytest.mark.proves(*(f"3-A{number}" for number in range(1, 14)))
def test_every_column_of_the_crawler(source: Connection, postgres_dsn: str, scheduler_dsn: str) -> None:
    make(source, "crawler")
    source.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    nothing = {
        name: None for name in JOB if name not in ("id", "source_id", "url", "status", "created_at", "updated_at")
    }
    insert(source, "jobs", JOB, JOB | nothing | {"id": KEYS[1], "schedule_enabled": False})
    late = [name for name in EXECUTION if name not in ("id", "job_id", "execution_number", "status", "started_at")]
    insert(
        source, "job_executions", EXECUTION, EXECUTION | dict.fromkeys(late) | {"id": KEYS[2], "execution_number": 13}
    )
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    assert copied(settings) == {"jobs": (2, 2, 0), "job_executions": (2, 2, 0)}
    assert [one.without_remainder for one in check_parity(settings, Scope()).collections] == [0, 2]
    [first, _] = rows(
        scheduler_dsn,
        "SELECT to_jsonb(s), to_jsonb(t) FROM scheduler.schedules s JOIN scheduler.triggers t"
        " ON t.schedule_id = s.id ORDER BY t.kind",
    )
    schedule, trigger = first
    assert (trigger["kind"], trigger["interval_ms"], trigger["anchor"]) == ("interval", 90 * 60_000, "completion")
    assert (schedule["max_retries"], schedule["retry_delay_ms"], schedule["retry_count"]) == (4, 30_000, 1)
    assert schedule["metadata"] == {"depth": 2}
    assert schedule["extra"] is not None
    assert rows(
        scheduler_dsn, "SELECT schedule_id, run_number, stats->>'items_crawled' FROM scheduler.runs ORDER BY 2"
    ) == [
        (KEYS[5], 12, "40"),
        (KEYS[5], 13, None),
    ]


@pytest.mark.proves("3-A19")
def test_what_the_triggers_of_the_crawlers_database_made_is_copied_as_it_is(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    """The database computes the next run, and a duration on update alone; a later edit is a difference."""
    make(source, "crawler")
    for number, unit in enumerate(("minutes", "hours", "days"), 1):
        changes = {"id": KEYS[number], "interval_minutes": 7, "interval_type": unit, "schedule_time": None}
        insert(source, "jobs", CLEAN | changes | {"next_run_at": None})
    running = {"job_id": KEYS[1], "status": "running", "completed_at": None, "duration_ms": None}
    insert(source, "job_executions", EXECUTION | running | {"id": KEYS[10], "execution_number": 1})
    done = EXECUTION | {"job_id": KEYS[1], "duration_ms": None}
    insert(source, "job_executions", done | {"id": KEYS[11], "execution_number": 2})
    source.execute(
        "UPDATE job_executions SET status = 'completed', completed_at = started_at + interval '2.5 s'"
        " WHERE execution_number = 1"
    )
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    assert copied(settings) == {"jobs": (3, 3, 0), "job_executions": (2, 2, 0)}
    expected = source.execute("SELECT id, next_run_at FROM jobs ORDER BY id").fetchall()
    assert rows(scheduler_dsn, "SELECT schedule_id, next_fire_at FROM scheduler.triggers ORDER BY 1") == expected
    assert all(moment is not None for _, moment in expected)
    assert rows(scheduler_dsn, "SELECT interval_ms FROM scheduler.triggers ORDER BY 1") == [
        (7 * 60_000,),
        (7 * 3_600_000,),
        (7 * 86_400_000,),
    ]
    assert rows(scheduler_dsn, "SELECT duration_ms FROM scheduler.runs ORDER BY run_number") == [(2500,), (60_000,)]
    source.execute("UPDATE jobs SET metadata = '{\"edited\": true}' WHERE id = %s", (KEYS[1],))
    (jobs, _) = check_parity(settings, Scope()).collections
    assert (jobs.matched, jobs.differing) == (2, 1)
    assert backfill(settings, Scope()).written == 1
    assert not check_parity(settings, Scope()).differs


@pytest.mark.proves("3-A17", "3-A18", "3-A22")
def test_lines_that_the_crawlers_migration_spoiled_are_lines_again(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    make(source, "crawler")
    source.execute("ALTER TABLE jobs DISABLE TRIGGER USER")
    lines = [
        ("0 * * * *", 60, "hours", "cron"),
        ("0 0 * * *", 1440, "days", "cron"),
        ("0 9,17 * * 1-5", 60, "minutes", "cron"),
        ("5 * * * *", 60, "minutes", "interval"),
        ("0 9 * * *", 30, "minutes", "interval"),
    ]
    for number, (line, minutes, unit, _) in enumerate(lines):
        spoiled = {"schedule_time": line, "interval_minutes": minutes, "interval_type": unit}
        insert(source, "jobs", CLEAN | {"id": KEYS[number]} | spoiled)
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    assert copied(settings) == {"jobs": (5, 5, 0), "job_executions": (0, 0, 0)}
    found = rows(
        scheduler_dsn,
        "SELECT kind, coalesce(cron_expression, source_spec->>'schedule_time'), interval_ms"
        " FROM scheduler.triggers ORDER BY schedule_id",
    )
    assert [(kind, line) for kind, line, _ in found] == [(kind, line) for line, _, _, kind in lines]
    assert [interval for _, _, interval in found] == [None, None, None, 3_600_000, 1_800_000]


@pytest.mark.proves("3-A19")
def test_rows_of_the_base_table_that_break_the_crawlers_migration(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    """Enabled rows and processing rows, in a table of twelve columns, with the history of the next version missing."""
    make(source, "crawler")
    source.execute("DROP TABLE job_executions")
    source.execute("DROP TRIGGER calculate_next_run_at ON jobs")
    for column in tuple(JOB)[12:]:
        source.execute(sql.SQL("ALTER TABLE jobs DROP COLUMN {} CASCADE").format(sql.Identifier(column)))
    source.execute("ALTER TABLE jobs DROP CONSTRAINT valid_status")
    base = {name: JOB[name] for name in BASE_COLUMNS}
    for number, status in enumerate(("pending", "processing", "completed", "failed", "unheard-of")):
        insert(source, "jobs", base | {"id": KEYS[number], "status": status})
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    assert copied(settings) == {"jobs": (5, 4, 1)}
    assert reasons(settings) == [("jobs", "unknown-value", "status")]
    assert rows(
        scheduler_dsn,
        "SELECT s.status, t.kind, t.cron_expression, t.timezone FROM scheduler.schedules s"
        " JOIN scheduler.triggers t ON t.schedule_id = s.id ORDER BY s.id",
    ) == [(status, "cron", "15 */3 * * *", "Africa/Cairo") for status in ("pending", "running", "completed", "failed")]


@pytest.mark.proves("3-R3")
def test_a_number_that_repeats_stays_with_the_first_to_start(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    make(source, "crawler")
    insert(source, "jobs", CLEAN)
    insert(
        source,
        "job_executions",
        EXECUTION | {"id": KEYS[1], "started_at": NOON_UTC + MINUTE},
        EXECUTION,
        EXECUTION | {"id": KEYS[14]},
    )
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    assert copied(settings)["job_executions"] == (3, 3, 0)
    found = rows(scheduler_dsn, "SELECT id, run_number FROM scheduler.runs ORDER BY id")
    assert found == [(KEYS[1], None), (KEYS[7], 12), (KEYS[14], None)]


@pytest.mark.proves("2-M1", "2-M2", "2-M3", "2-M4")
def test_every_column_of_the_orchestrator(source: Connection, postgres_dsn: str, scheduler_dsn: str) -> None:
    """Executions and logs are of the platform of their job; references lead to rows; bad rows are quarantined."""
    make(source, "orchestrator")
    job, execution = ORCHESTRATOR_ROWS["ScheduledJob"], ORCHESTRATOR_ROWS["JobExecution"]
    log, event = ORCHESTRATOR_ROWS["JobExecutionLog"], ORCHESTRATOR_ROWS["EventHandler"]
    insert(source, "Platform", {"id": PLATFORM})
    nullable = [
        "description",
        "schedule",
        "next_run",
        "last_run",
        "start_date",
        "end_date",
        "max_executions",
        "payload",
    ]
    nullable += ["avg_duration_ms", "tags", "metadata", "platform_id", "completed_at", "cancelled_at"]
    bare = job | dict.fromkeys(nullable) | {"id": "global", "type": "one_time"}
    insert(
        source, "ScheduledJob", job, bare, job | {"id": "twice", "concurrency": 0}, job | {"id": "odd", "schedule": "x"}
    )
    first = execution | {"id": str(KEYS[3]), "metadata": None}
    insert(source, "JobExecution", execution, first, execution | {"id": "of all", "job_id": "global", "metadata": None})
    insert(source, "JobExecution", execution | {"id": "lost", "job_id": "twice", "metadata": None, "worker_id": "z"})
    insert(
        source,
        "JobExecutionLog",
        log,
        log | {"id": "l2", "level": "LOUD"},
        log | {"id": "l3", "execution_id": "of all"},
    )
    insert(source, "EventHandler", event, event | {"id": job["id"], "priority": 500})
    settings = settings_for(postgres_dsn, scheduler_dsn, "orchestrator", default_tenant=None)
    assert copied(settings) == {
        "ScheduledJob": (4, 3, 1),
        "EventHandler": (2, 2, 0),
        "JobExecution": (4, 4, 0),
        "JobExecutionLog": (3, 2, 1),
    }
    assert reasons(settings) == [
        ("JobExecutionLog", "unknown-value", "level"),
        ("ScheduledJob", "out-of-range", "concurrency"),
    ]
    runs = {
        source_id: (tenant, schedule, retried)
        for source_id, tenant, schedule, retried in rows(
            scheduler_dsn,
            "SELECT r.source_id, r.tenant_id, s.source_id, o.source_id FROM scheduler.runs r"
            " LEFT JOIN scheduler.schedules s ON s.id = r.schedule_id LEFT JOIN scheduler.runs o ON o.id = r.retry_of",
        )
    }
    assert runs == {
        str(KEYS[2]): (PLATFORM, job["id"], str(KEYS[3])),
        str(KEYS[3]): (PLATFORM, job["id"], None),
        "of all": ("*", "global", None),
        "lost": (PLATFORM, None, None),
    }
    assert rows(
        scheduler_dsn,
        "SELECT l.tenant_id, r.source_id FROM scheduler.execution_logs l JOIN scheduler.runs r"
        " ON r.id = l.run_id ORDER BY l.tenant_id",
    ) == [("*", "of all"), (PLATFORM, str(KEYS[2]))]


DEFAULT_JOBS = (
    ("Domain User Sync (Hourly)", "sync_domain_users", "ad_queue", 3_600_000, 300_000, None),
    ("Token Cleanup (Daily)", "cleanup_expired_tokens", None, 86_400_000, 60_000, {"retention_days": 7}),
    ("Desktop Session Cleanup (Every Minute)", "cleanup_stale_desktop_sessions", None, 60_000, 60_000, {"timeout": 2}),
    ("Deployment Job Cleanup (30s)", "cleanup_stale_deployment_jobs", None, 30_000, 60_000, None),
)
"""Name, function, queue, interval and timeout in milliseconds, and arguments of the four that its seeder makes."""


@pytest.mark.proves("4-D4")
def test_the_four_default_jobs_of_the_support_center_keep_arguments_queue_and_state(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    make(source, "support-center")
    source.execute("DELETE FROM scheduled_jobs")
    source.execute("DELETE FROM task_functions")
    for number, (name, function, queue, interval, timeout, arguments) in enumerate(DEFAULT_JOBS, 1):
        changes = {"id": number, "name": function, "queue": queue, "handler_path": f"tasks.{function}"}
        insert(source, "task_functions", SUPPORT_CENTER_ROWS["task_functions"] | changes)
        hours, seconds = divmod(interval // 1_000, 3_600)
        insert(
            source,
            "scheduled_jobs",
            SUPPORT_CENTER_ROWS["scheduled_jobs"]
            | {
                "id": UUID(int=number),
                "name": name,
                "task_function_id": number,
                "schedule_config": {"hours": hours, "minutes": 0, "seconds": seconds},
                "task_args": arguments,
                "timeout_seconds": timeout // 1_000,
                "is_enabled": number != 2,
                "created_by": None,
                "updated_by": None,
            },
        )
    settings = settings_for(postgres_dsn, scheduler_dsn, "support-center")
    assert copied(settings)["scheduled_jobs"] == (4, 4, 0)
    stored = rows(
        scheduler_dsn,
        "SELECT s.name, s.handler_name, s.queue, t.interval_ms, s.timeout_ms, s.payload, s.enabled, s.max_retries,"
        " s.retry_delay_ms FROM scheduler.schedules s JOIN scheduler.triggers t ON t.schedule_id = s.id ORDER BY s.id",
    )
    assert stored == [(*job, number != 2, 3, 60_000) for number, job in enumerate(DEFAULT_JOBS, 1)]


@pytest.mark.proves("4-D2")
def test_job_types_are_the_kinds_of_triggers_and_their_texts_are_said_to_be_left_out(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    """A job type is a kind of trigger. A job of another type is in quarantine; a CHECK refuses any other kind."""
    make(source, "support-center")
    source.execute("DELETE FROM scheduled_jobs")
    source.execute("INSERT INTO scheduler_job_types VALUES (3, 'webhook', 'Webhook', 'when somebody calls', true)")
    insert(source, "task_functions", SUPPORT_CENTER_ROWS["task_functions"])
    job = SUPPORT_CENTER_ROWS["scheduled_jobs"] | {"created_by": None, "updated_by": None}
    configs: tuple[dict[str, Any], ...] = ({"hours": 1, "minutes": 0, "seconds": 0}, {"hour": "9"}, {"hours": 1})
    for number, config in enumerate(configs, 1):
        insert(
            source,
            "scheduled_jobs",
            job | {"id": UUID(int=number), "job_type_id": number, "schedule_config": config},
        )
    settings = settings_for(postgres_dsn, scheduler_dsn, "support-center")
    assert copied(settings)["scheduled_jobs"] == (3, 2, 1)
    assert reasons(settings) == [("scheduled_jobs", "unknown-value", "job_type_id")]
    assert rows(scheduler_dsn, "SELECT kind FROM scheduler.triggers ORDER BY schedule_id") == [
        ("interval",),
        ("cron",),
    ]
    with psycopg.connect(scheduler_dsn) as target, pytest.raises(psycopg.errors.CheckViolation):
        target.execute("UPDATE scheduler.triggers SET kind = 'webhook'")
    outcome = check_parity(settings, Scope())
    assert "scheduler_job_types" not in outcome.unknown_collections
    assert outcome.left_out == {
        "scheduler_job_types": "its names are the kinds of triggers; the titles and descriptions of the types have no"
        " column"
    }


@pytest.mark.proves("4-D1", "4-D5", "4-D7")
def test_every_column_of_the_support_center(source: Connection, postgres_dsn: str, scheduler_dsn: str) -> None:
    """With the rows that its migrations seed, the short form of an interval, and limits that no table checks."""
    make(source, "support-center")
    insert(source, "users", {"id": KEYS[9]}, {"id": KEYS[10]})
    insert(source, "task_functions", SUPPORT_CENTER_ROWS["task_functions"])
    job, execution = SUPPORT_CENTER_ROWS["scheduled_jobs"], SUPPORT_CENTER_ROWS["scheduled_job_executions"]
    cron = {"job_type_id": 2, "schedule_config": {"hour": "9", "day_of_week": "0"}}
    insert(
        source,
        "scheduled_jobs",
        job,
        job | {"id": KEYS[1], "schedule_config": {"hours": 1}},
        job | {"id": KEYS[2]} | cron,
        job | {"id": KEYS[3], "schedule_config": {"hours": 0, "minutes": 0, "seconds": 0}},
        job | {"id": KEYS[4], "max_instances": 11},
        job | {"id": KEYS[5], "timeout_seconds": 29},
    )
    insert(source, "scheduler_instances", SUPPORT_CENTER_ROWS["scheduler_instances"])
    insert(
        source,
        "scheduled_job_executions",
        execution,
        execution | {"id": KEYS[13], "triggered_by": "scheduler", "job_id": KEYS[2]},
    )
    settings = settings_for(postgres_dsn, scheduler_dsn, "support-center")
    assert copied(settings, again=2) == {
        "task_functions": (3, 3, 0),
        "scheduled_jobs": (8, 5, 3),
        "scheduled_job_executions": (2, 2, 0),
        "scheduler_instances": (1, 1, 0),
    }
    assert sorted(reasons(settings)) == [
        ("scheduled_jobs", "out-of-range", "max_instances"),
        ("scheduled_jobs", "out-of-range", "schedule_config"),
        ("scheduled_jobs", "out-of-range", "timeout_seconds"),
    ]
    assert rows(
        scheduler_dsn,
        "SELECT s.name, s.handler_name, s.queue, t.kind, t.interval_ms, t.cron_dialect"
        " FROM scheduler.schedules s JOIN scheduler.triggers t ON t.schedule_id = s.id ORDER BY s.id",
    ) == [
        ("Domain User Sync (Hourly)", "sync_domain_users", "ad_queue", "interval", 3_600_000, None),
        ("Deployment Job Cleanup (30s)", "cleanup_stale_deployment_jobs", None, "interval", 30_000, None),
        ("Token Cleanup (Daily)", "cleanup_expired_tokens", "ad_queue", "interval", 3_600_000, None),
        ("Token Cleanup (Daily)", "cleanup_expired_tokens", "ad_queue", "cron", None, "apscheduler"),
        ("Token Cleanup (Daily)", "cleanup_expired_tokens", "ad_queue", "interval", 86_400_000, None),
    ]
    assert rows(scheduler_dsn, "SELECT cause FROM scheduler.runs ORDER BY id") == [("manual",), ("cron",)]
    assert rows(scheduler_dsn, "SELECT tenant_id, status FROM scheduler.workers WHERE source LIKE 'support%'") == [
        ("*", "stopped")
    ]


READER = "reader_of_tables"


@pytest.fixture
def reader(source: Connection) -> Iterator[str]:
    """A URI of a user without any right but to connect."""
    name = f"{READER}_{source.info.dbname}"
    source.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'p@ss/word'").format(sql.Identifier(name)))
    info = source.info
    try:
        yield f"postgresql://{name}:p%40ss%2Fword@{info.host}:{info.port}/{info.dbname}"
    finally:
        source.execute(sql.SQL("DROP OWNED BY {0}").format(sql.Identifier(name)))
        source.execute(sql.SQL("DROP ROLE {0}").format(sql.Identifier(name)))


def grant(source: Connection, rights: str) -> None:
    name = sql.Identifier(f"{READER}_{source.info.dbname}")
    source.execute(sql.SQL("GRANT {} ON ALL TABLES IN SCHEMA public TO {}").format(sql.SQL(rights), name))


def test_a_user_that_may_only_select_is_enough_and_what_it_lacks_is_named(
    source: Connection, reader: str, scheduler_dsn: str
) -> None:
    make(source, "crawler")
    insert(source, "jobs", CLEAN)
    settings = settings_for(reader, scheduler_dsn, "crawler")
    with pytest.raises(
        DeniedError, match=r'may not read jobs; as an administrator run: GRANT SELECT ON "public"."jobs" TO'
    ):
        backfill(settings, Scope())
    findings = {one.name: one for one in examine(settings).findings}
    assert findings["source"].words.startswith("PostgreSQL 18")
    assert (findings["read"].passed, "GRANT SELECT ON" in findings["read"].words) == (False, True)
    grant(source, "SELECT")
    findings = {one.name: one for one in examine(settings).findings}
    assert (findings["read"].passed, findings["read"].words) == (True, "2 tables may be read")
    assert (findings["reverse sync"].passed, findings["writers of the source"].passed) == (False, True)
    assert plan_backfill(settings, Scope()).risks[0].startswith("the source is tables of PostgreSQL")
    assert [one.documents for one in census(settings, Scope()).collections] == [1, 0]
    assert copied(settings)["jobs"] == (1, 1, 0)
    with pytest.raises(
        DeniedError, match=r"--lock-source: the source's user may not lock its tables.*GRANT UPDATE ON"
    ) as caught:
        check_parity(settings, Scope(), lock_source=True)
    assert "p@ss" not in str(caught.value)


@pytest.mark.usefixtures("reader")
def test_a_check_is_unverified_unless_the_writers_were_stopped(
    source: Connection, postgres_dsn: str, scheduler_dsn: str
) -> None:
    make(source, "crawler")
    insert(source, "jobs", CLEAN)
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    assert copied(settings)["jobs"] == (1, 1, 0)
    grant(source, "SELECT, UPDATE")
    found = check_parity(settings, Scope())
    assert (found.differs, found.unverified) == (False, True)
    assert f"{READER}_{source.info.dbname} may write its tables" in found.unverified_because
    locked = check_parity(settings, Scope(), lock_source=True)
    assert (locked.differs, locked.unverified, locked.unverified_because) == (False, False, "")
    source.execute(
        sql.SQL("REVOKE UPDATE ON ALL TABLES IN SCHEMA public FROM {}").format(
            sql.Identifier(f"{READER}_{source.info.dbname}")
        )
    )
    with psycopg.connect(postgres_dsn) as writer:
        writer.execute("UPDATE jobs SET url = 'elsewhere'")
        assert "1 open transactions have written them" in check_parity(settings, Scope()).unverified_because
        writer.rollback()
    assert check_parity(settings, Scope()).unverified_because == ""


def test_the_locks_keep_writers_out_during_the_check(
    source: Connection, postgres_dsn: str, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(source, "crawler")
    insert(source, "jobs", CLEAN)
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    backfill(settings, Scope())
    refused: list[str] = []

    def at_the_end(*_: object) -> list[NeverFiringSchedule]:
        source.execute("SET lock_timeout = '1ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            source.execute("DELETE FROM jobs")
        refused.append("DELETE")
        return []

    monkeypatch.setattr("migrator.parity.check.find_never_firing_schedules", at_the_end)
    assert not check_parity(settings, Scope(), lock_source=True).differs
    assert refused == ["DELETE"]
    source.execute("DELETE FROM jobs")


def test_a_policy_that_hides_rows_is_an_error_and_not_fewer_rows(
    source: Connection, reader: str, scheduler_dsn: str
) -> None:
    make(source, "crawler")
    insert(source, "jobs", CLEAN)
    grant(source, "SELECT")
    source.execute("ALTER TABLE jobs ENABLE ROW LEVEL SECURITY")
    with pytest.raises(DeniedError, match=r"row-level security policy"):
        backfill(settings_for(reader, scheduler_dsn, "crawler"), Scope())


def test_a_copy_is_of_one_moment(
    source: Connection, postgres_dsn: str, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that is inserted after the plan, and one that is deleted, are as they were when the copy began."""
    make(source, "crawler")
    insert(source, "jobs", CLEAN, CLEAN | {"id": KEYS[1]})
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")

    run_chunks = copying.run_chunks

    def after_a_write(*arguments: Any) -> Any:  # noqa: ANN401 - those of run_chunks
        source.execute("DELETE FROM jobs WHERE id = %s", (KEYS[1],))
        insert(source, "jobs", CLEAN | {"id": KEYS[2]})
        return run_chunks(*arguments)

    monkeypatch.setattr(copying, "run_chunks", after_a_write)
    assert backfill(settings, Scope()).documents == 2
    assert {one for (one,) in rows(scheduler_dsn, "SELECT id FROM scheduler.schedules")} == {KEYS[5], KEYS[1]}
    assert check_parity(settings, Scope()).differs


def test_a_tail_and_a_cutover_are_refused_in_words(source: Connection, postgres_dsn: str, scheduler_dsn: str) -> None:
    make(source, "crawler")
    insert(source, "jobs", CLEAN)
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    backfill(settings, Scope())
    with pytest.raises(RefusedError, match="there is no change stream that a tail could follow"):
        Tail(settings).run()
    may, why = server_gates.reverse_sync(profile_of(settings.source, settings.target))
    assert (may, "nothing is written back into tables" in why) == (False, True)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE jobs DROP CONSTRAINT jobs_pkey CASCADE", "jobs of the source has no primary key"),
        ("ALTER TABLE jobs RENAME TO old; CREATE VIEW jobs AS SELECT * FROM old", "jobs of the source is a view"),
        ('ALTER TABLE jobs ADD "(inherited)" int', "jobs of the source has a column (inherited), a name that the tool"),
        ("DROP TABLE jobs CASCADE; DROP TABLE job_executions", "has no collection of profile crawler"),
    ],
)
def test_a_table_that_cannot_be_read_by_its_key_is_refused(
    source: Connection, postgres_dsn: str, scheduler_dsn: str, statement: str, expected: str
) -> None:
    make(source, "crawler")
    source.execute(statement.encode())
    with pytest.raises(UsageError) as caught:
        backfill(settings_for(postgres_dsn, scheduler_dsn, "crawler"), Scope())
    assert expected in str(caught.value)
    assert rows(scheduler_dsn, "SELECT count(*) FROM migration.plans") == [(0,)]


def test_an_interrupted_copy_is_continued(source: Connection, postgres_dsn: str, scheduler_dsn: str) -> None:
    make(source, "crawler")
    insert(source, "jobs", *(CLEAN | {"id": UUID(int=number)} for number in range(1, 11)))
    settings = settings_for(postgres_dsn, scheduler_dsn, "crawler")
    backfill(settings, Scope())
    with psycopg.connect(scheduler_dsn) as target:
        target.execute("DELETE FROM scheduler.schedules WHERE id = %s", (UUID(int=5),))
        target.execute("UPDATE migration.plans SET state = 'open'")
        target.execute("UPDATE migration.chunks SET state = 'pending' WHERE collection = 'jobs' AND ordinal = 1")
    done = backfill(settings, Scope())
    assert (done.resumed, done.chunks, done.written) == (True, 1, 2)
    assert not check_parity(settings, Scope()).differs
