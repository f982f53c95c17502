"""The queries that the indexes are there for use them: plans are guarded, times are not."""

from collections.abc import Iterator
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier

from migrator.connections.postgres import Connection
from tests.conftest import Cluster
from tests.marks import proving
from tests.schema_rows import connect, keep_statistics

# Eight tenants; schedule 7 has a third of its tenant's runs, run 700 and graph job 7 a third of what belongs to runs
# and graph jobs, so that to sort it all is never the cheaper way, nor is a scan of the whole table.
FILL = """
INSERT INTO scheduler.schedules (id, tenant_id, name, status, enabled, deleted_at, source, tags)
SELECT md5('schedule ' || n)::uuid, 'tenant-' || n % 8, 'schedule ' || n, 'scheduled', n % 5 > 0,
    CASE WHEN n % 7 = 0 THEN timestamptz '2025-11-02' END, 'test/schedules', ARRAY['tag-' || n % 500]
FROM generate_series(1, 10000) AS n;

INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, interval_ms, anchor, enabled, next_fire_at)
SELECT md5('trigger ' || n)::uuid, 'tenant-' || n % 8, md5('schedule ' || n)::uuid, 'interval', 60000, 'fixed_rate',
    n % 5 > 0, CASE WHEN n % 3 > 0 THEN timestamptz '2025-11-02' + n * interval '1 minute' END
FROM generate_series(1, 10000) AS n;

INSERT INTO scheduler.runs (id, tenant_id, schedule_id, trigger_id, run_number, attempt, state, scheduled_at,
    available_at, created_at, trace_id, dedupe_key, retry_of)
SELECT md5('run ' || n)::uuid, 'tenant-' || n % 8,
    md5('schedule ' || CASE WHEN n % 8 = 7 AND n % 3 = 0 THEN 7 ELSE 1 + (n - 1) % 10000 END)::uuid,
    CASE WHEN n % 2 = 0 THEN md5('trigger ' || (1 + (n - 1) % 800))::uuid END, n, 1,
    CASE WHEN n % 200 = 0 THEN 'queued' ELSE 'completed' END, timestamptz '2025-11-02' + n * interval '1 second',
    timestamptz '2025-11-02' + n * interval '1 second', timestamptz '2025-11-02' + n * interval '1 second',
    'trace-' || n / 3, 'event-' || n, CASE WHEN n % 100 = 0 THEN md5('run ' || n - 24)::uuid END
FROM generate_series(1, 100000) AS n;

INSERT INTO scheduler.execution_logs (id, tenant_id, run_id, logged_at, level)
SELECT md5('log ' || n)::uuid, 'tenant-' || CASE WHEN n % 3 = 0 THEN 4 ELSE n % 8 END,
    md5('run ' || CASE WHEN n % 3 = 0 THEN 700 ELSE n END)::uuid,
    timestamptz '2025-11-02' + n * interval '1 second', 'info'
FROM generate_series(1, 20000) AS n;

INSERT INTO scheduler.impact_snapshots (id, tenant_id, run_id, generated_at)
SELECT md5('snapshot ' || n)::uuid, 'tenant-' || CASE WHEN n % 3 = 0 THEN 4 ELSE n % 8 END,
    md5('run ' || CASE WHEN n % 3 = 0 THEN 700 ELSE n END)::uuid,
    timestamptz '2025-11-02' + n * interval '1 second'
FROM generate_series(1, 10000) AS n;

INSERT INTO scheduler.run_summaries (id, tenant_id, schedule_id)
SELECT md5('summary ' || n)::uuid, 'tenant-' || n % 8, md5('schedule ' || n)::uuid
FROM generate_series(1, 10000) AS n;

INSERT INTO scheduler.policy_jobs (id, tenant_id, policy_id, status, queued_at, run_id)
SELECT md5('policy job ' || n)::uuid, 'tenant-' || n % 8, 'P-7',
    CASE WHEN n % 20 = 0 THEN 'queued' ELSE 'succeeded' END, timestamptz '2025-11-02' + n * interval '1 second',
    'run:' || n
FROM generate_series(1, 20000) AS n;

INSERT INTO scheduler.graph_jobs (id, tenant_id, type, status, payload, created_at, updated_at)
SELECT md5('graph job ' || n)::uuid, 'tenant-' || n % 8, n % 2, CASE WHEN n % 20 < 5 THEN 5 ELSE 2 END, '{}',
    timestamptz '2025-11-02' + n * interval '1 second', timestamptz '2025-11-02'
FROM generate_series(1, 20000) AS n;

INSERT INTO scheduler.graph_job_events (job_id, tenant_id, status, payload, created_at)
SELECT md5('graph job ' || CASE WHEN n % 3 = 0 THEN 7 ELSE n END)::uuid,
    'tenant-' || CASE WHEN n % 3 = 0 THEN 7 ELSE n % 8 END, 2, '{}',
    timestamptz '2025-11-02' + n * interval '1 second'
FROM generate_series(1, 20000) AS n;

INSERT INTO scheduler.audit (id, tenant_id, category, action, occurred_at)
SELECT md5('audit ' || n)::uuid, 'tenant-' || n % 8, 'scheduler', 'pause',
    timestamptz '2025-11-02' + n * interval '1 second'
FROM generate_series(1, 20000) AS n;

INSERT INTO scheduler.locks (id, tenant_id, key, lock_id)
SELECT md5('lock ' || n)::uuid, 'tenant-' || n % 8, 'tenant-' || n % 8 || '/' || n, n
FROM generate_series(1, 5000) AS n;

INSERT INTO scheduler.handlers (id, tenant_id, name, handler_type)
SELECT md5('handler ' || n)::uuid, 'tenant-' || n % 8, 'handler ' || n, 'function'
FROM generate_series(1, 5000) AS n;
"""

ID = "md5('run 700')::uuid"
AFTER = "timestamptz '2025-11-02 12:00:00+00'"

DUE = (
    "SELECT t.id FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id"
    " WHERE t.enabled AND t.priority = 50 AND t.next_fire_at <= {} AND s.enabled AND s.deleted_at IS NULL"
    " ORDER BY t.next_fire_at, t.id LIMIT 100"
)
ORDERED: dict[str, tuple[str, str]] = {
    # lists that come in their order from the index alone → (query, index)
    "0-T2.2.3 due triggers of active schedules": (
        DUE.format("timestamptz '2025-11-08'"),
        "ix_triggers_due",
    ),
    "0-T2.2.3 active schedules of a tenant": (
        (
            "SELECT id FROM scheduler.schedules WHERE tenant_id = 'tenant-3' AND enabled AND deleted_at IS NULL"
            " ORDER BY name, id LIMIT 50"
        ),
        "ix_schedules_active",
    ),
    "first page of a tenant's schedules": (
        (
            "SELECT id FROM scheduler.schedules WHERE tenant_id = 'tenant-3' AND deleted_at IS NULL"
            " ORDER BY created_at DESC NULLS LAST, id LIMIT 50"
        ),
        "ix_schedules_page",
    ),
    "0-T2.4.3 first page of a tenant's runs": (
        "SELECT id FROM scheduler.runs WHERE tenant_id = 'tenant-3' ORDER BY created_at DESC, id LIMIT 50",
        "ix_runs_page",
    ),
    "0-T2.4.3 a later page of a tenant's runs": (
        (
            f"SELECT id FROM scheduler.runs WHERE tenant_id = 'tenant-3' AND created_at <= {AFTER}"
            f" AND (created_at < {AFTER} OR id > {ID}) ORDER BY created_at DESC, id LIMIT 50"
        ),
        "ix_runs_page",
    ),
    "0-T2.4.1 runs of a schedule": (
        (
            "SELECT id FROM scheduler.runs WHERE schedule_id = md5('schedule 7')::uuid"
            " ORDER BY created_at DESC, id LIMIT 50"
        ),
        "ix_runs_schedule",
    ),
    "0-T2.4.1 queued runs that are available": (
        (
            f"SELECT id FROM scheduler.runs WHERE state = 'queued' AND coalesce(available_at, created_at) <= {AFTER}"
            " ORDER BY priority DESC, coalesce(available_at, created_at), id LIMIT 10"
        ),
        "ix_runs_waiting",
    ),
    "0-T2.7.2 snapshots of a run": (
        f"SELECT id FROM scheduler.impact_snapshots WHERE run_id = {ID} ORDER BY generated_at, id LIMIT 50",
        "ix_impact_snapshots_run",
    ),
    "2-I3 logs of a run": (
        f"SELECT id FROM scheduler.execution_logs WHERE run_id = {ID} ORDER BY logged_at, id LIMIT 50",
        "ix_execution_logs_run",
    ),
    "0-T2.6.2 policy jobs in a status": (
        (
            "SELECT id FROM scheduler.policy_jobs WHERE tenant_id = 'tenant-4' AND status = 'queued'"
            " ORDER BY queued_at DESC, id LIMIT 50"
        ),
        "ix_policy_jobs_status",
    ),
    "audit of a tenant": (
        "SELECT id FROM scheduler.audit WHERE tenant_id = 'tenant-3' ORDER BY occurred_at DESC, id LIMIT 50",
        "ix_audit_page",
    ),
    "1-S9 graph jobs in a status": (
        (
            "SELECT id FROM scheduler.graph_jobs WHERE tenant_id = 'tenant-3' AND status = 2"
            " ORDER BY created_at DESC LIMIT 50"
        ),
        "idx_graph_jobs_tenant_status",
    ),
    "1-S10 graph jobs of a type in a status": (
        (
            "SELECT id FROM scheduler.graph_jobs WHERE tenant_id = 'tenant-3' AND type = 1 AND status = 2"
            " ORDER BY created_at DESC LIMIT 50"
        ),
        "idx_graph_jobs_tenant_type_status",
    ),
    "1-S17 events of a graph job": (
        (
            "SELECT FROM scheduler.graph_job_events WHERE job_id = md5('graph job 7')::uuid ORDER BY created_at DESC"
            " LIMIT 50"
        ),
        "idx_graph_job_events_job",
    ),
}
FOUND: dict[str, tuple[str, str]] = {
    # rows that are found through the index → (query, index)
    "0-T2.2.3 the few triggers that are due at once": (
        (
            "SELECT t.id FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id"
            " WHERE t.tenant_id = 'tenant-3' AND t.enabled AND t.next_fire_at <= timestamptz '2025-11-02 00:30'"
            " AND s.enabled AND s.deleted_at IS NULL ORDER BY t.next_fire_at, t.id LIMIT 100"
        ),
        "ix_triggers_next",
    ),
    "2-I4 triggers of an event": (
        "SELECT FROM scheduler.triggers WHERE event_name = 'push' AND enabled AND tenant_id = 'tenant-3'",
        "ix_triggers_event",
    ),
    "triggers of a schedule": (
        "SELECT FROM scheduler.triggers WHERE schedule_id = md5('schedule 7')::uuid",
        "ix_triggers_schedule",
    ),
    "2-X10 runs of a trace": ("SELECT FROM scheduler.runs WHERE trace_id = 'trace-700'", "ix_runs_trace"),
    "2-X7 running runs of a schedule": (
        "SELECT FROM scheduler.runs WHERE state = 'running' AND schedule_id = md5('schedule 8')::uuid",
        "ix_runs_open",
    ),
    "3-B12 running runs": ("SELECT FROM scheduler.runs WHERE state = 'running'", "ix_runs_open"),
    "retries of a run": (f"SELECT FROM scheduler.runs WHERE retry_of = {ID}", "ix_runs_retry_of"),
    "runs of a trigger": ("SELECT FROM scheduler.runs WHERE trigger_id = md5('trigger 7')::uuid", "uq_runs_slot"),
    "a delivered event": (
        "SELECT FROM scheduler.runs WHERE trigger_id = md5('trigger 8')::uuid AND dedupe_key = 'event-8'",
        "uq_runs_dedupe",
    ),
    "summary of a schedule": (
        "SELECT FROM scheduler.run_summaries WHERE tenant_id = 'tenant-7' AND schedule_id = md5('schedule 7')::uuid",
        "uq_run_summaries_schedule",
    ),
    "a policy run by name": (
        "SELECT FROM scheduler.policy_jobs WHERE tenant_id = 'tenant-7' AND source IS NULL AND run_id = 'run:7'",
        "uq_policy_jobs_run",
    ),
    "a lock by key": ("SELECT FROM scheduler.locks WHERE key = 'tenant-7/7'", "uq_locks_key"),
    "a handler by name": (
        "SELECT FROM scheduler.handlers WHERE tenant_id = 'tenant-7' AND name = 'handler 7'",
        "uq_handlers_name",
    ),
}
TAGGED: dict[str, str] = {
    # by a service with tags, which asks functions that see the index → query; ten rows of the tenant have it
    "2-I1 schedules with any of some tags": (
        "SELECT count(*) FROM scheduler.schedules WHERE id = ANY(ARRAY(SELECT scheduler.schedules_with_any_tag("
        "ARRAY['tag-7', 'tag-none']))) AND tags && ARRAY['tag-7', 'tag-none']"
    ),
    "2-I1 schedules with all of some tags": (
        "SELECT count(*) FROM scheduler.schedules WHERE id = ANY(ARRAY(SELECT scheduler.schedules_with_every_tag("
        "ARRAY['tag-7']))) AND tags @> ARRAY['tag-7']"
    ),
}
DISPATCHER_ONLY = {
    # asked across tenants, by dispatchers
    "0-T2.2.3 due triggers of active schedules",
    "2-X7 running runs of a schedule",
    "3-B12 running runs",
}


@pytest.fixture(scope="module")
def filled(any_cluster: Cluster) -> Iterator[Connection]:
    dsn = any_cluster.scheduler()
    with connect(dsn) as connection:
        keep_statistics(connection)
        connection.execute(FILL.encode())
        connection.execute("VACUUM ANALYZE")
        yield connection
    any_cluster.drop(dsn)


def plan_of(connection: Connection, query: str) -> list[dict[str, Any]]:
    """Return the nodes of a query's plan."""
    row = connection.execute(f"EXPLAIN (FORMAT JSON, COSTS OFF) {query}".encode()).fetchone()
    assert row is not None
    nodes, left = [], [row[0][0]["Plan"]]
    while left:
        node = left.pop()
        nodes.append(node)
        left += node.get("Plans", [])
    return nodes


def kinds(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Node Type"] for node in nodes}


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


SORTS = {"Sort", "Incremental Sort"}


@pytest.mark.parametrize("what", ORDERED)
def test_lists_come_in_order_from_their_index(what: str, filled: Connection) -> None:
    query, index = ORDERED[what]
    nodes = plan_of(filled, query)
    assert index in indexes(nodes)
    assert not kinds(nodes) & {*SORTS, "Seq Scan"}


@pytest.mark.parametrize("what", FOUND)
def test_rows_are_found_through_their_index(what: str, filled: Connection) -> None:
    query, index = FOUND[what]
    nodes = plan_of(filled, query)
    assert index in indexes(nodes)
    assert "Seq Scan" not in kinds(nodes)


@pytest.mark.parametrize("what", proving(ORDERED | FOUND))
def test_row_level_security_leaves_the_plans_as_they_are(what: str, filled: Connection) -> None:
    query, index = (ORDERED | FOUND)[what]
    for role in ("scheduler_dispatcher", "scheduler_service")[: 1 if what in DISPATCHER_ONLY else 2]:
        with filled.transaction(force_rollback=True):
            filled.execute(SQL("SET LOCAL ROLE {}").format(Identifier(role)))
            filled.execute("SET LOCAL app.tenant_id = 'tenant-3'")
            nodes = plan_of(filled, query)
            assert index in indexes(nodes), role
            assert "Seq Scan" not in kinds(nodes), role
            assert what not in ORDERED or not kinds(nodes) & SORTS, role


@pytest.mark.parametrize("what", proving(TAGGED))
def test_a_service_finds_tags_through_their_index(what: str, filled: Connection) -> None:
    """What a function reads is in no plan: the server's counters of this transaction tell it."""
    with filled.transaction(force_rollback=True):
        filled.execute("SET LOCAL ROLE scheduler_service")
        filled.execute("SET LOCAL app.tenant_id = 'tenant-3'")
        nodes = plan_of(filled, TAGGED[what])
        assert indexes(nodes) == {"pk_schedules"}
        assert "Seq Scan" not in kinds(nodes)
        before = reads(filled)
        assert filled.execute(TAGGED[what].encode()).fetchone() == (10,)
        after = reads(filled)
    scans, rows, whole = (new - old for new, old in zip(after, before, strict=True))
    assert scans == 1
    assert rows <= 60
    assert whole == 0


def reads(connection: Connection) -> tuple[int, int, int]:
    """Return, of this transaction: scans of the index on tags, rows of schedules fetched, scans of the whole table."""
    row = connection.execute(
        "SELECT pg_stat_get_xact_numscans('scheduler.ix_schedules_tags'::regclass),"
        " pg_stat_get_xact_tuples_fetched('scheduler.schedules'::regclass),"
        " pg_stat_get_xact_numscans('scheduler.schedules'::regclass)"
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def test_every_index_but_those_of_keys_is_guarded(filled: Connection) -> None:
    found = filled.execute(
        "SELECT idx.relname FROM pg_index JOIN pg_class AS idx ON idx.oid = indexrelid"
        " WHERE idx.relnamespace = 'scheduler'::regnamespace AND NOT indisprimary"
    )
    guarded = {index for _, index in (ORDERED | FOUND).values()}
    in_store = {f"ix_schedules_{name}" for name in ("status", "handler", "creator")} | {"ix_triggers_kind"}
    unguarded = {name for (name,) in found} - guarded - in_store  # test_postgres_store_plans guards these
    assert unguarded == {"uq_schedules_name", "uq_runs_number", "ix_schedules_tags"}


@pytest.mark.parametrize("what", ["0-T2.4.3 a later page of a tenant's runs", "2-X10 runs of a trace"])
def test_a_missing_index_would_be_seen(what: str, filled: Connection) -> None:
    query, index = (ORDERED | FOUND)[what]
    with filled.transaction(force_rollback=True):
        filled.execute(SQL("DROP INDEX {}").format(Identifier("scheduler", index)))
        nodes = plan_of(filled, query)
    assert index not in indexes(nodes)
    assert kinds(nodes) & {*SORTS, "Seq Scan"}
