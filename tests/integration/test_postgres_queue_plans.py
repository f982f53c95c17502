"""The queue's statements use their index and touch few rows, however long the queue; times are not tested.

Each statement is taken as the store sends it, prepared in a connection of its own with its settings, and is undone.
Its plan is the generic one, which knows none of the parameters, also not the limit.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.store.postgres import queue_statements
from migrator.store.postgres.connections import DispatcherPool
from migrator.store.postgres.queue import PostgresQueue
from migrator.store.postgres.rows import as_json, fetch_rows
from tests.conftest import Cluster
from tests.integration.test_postgres_store_plans import Node, indexes, kinds, touched
from tests.schema_rows import connect, keep_statistics
from tests.store_postgres import settings

NOW = datetime(2025, 12, 24, tzinfo=UTC)
QUEUED = 30_000
RUNNING = 3_000

# Schedules 1 to 20 come first, 21 to 40 last; 41 to 60 may have one run at a time. All that is there is due.
FILL = f"""
INSERT INTO scheduler.schedules (id, tenant_id, name, status, priority, max_concurrency, timeout_ms)
SELECT md5('schedule ' || n)::uuid, 'tenant-' || n % 8, 'schedule ' || n, 'scheduled',
    CASE WHEN n <= 20 THEN 75 WHEN n <= 40 THEN 25 END, CASE WHEN n BETWEEN 41 AND 60 THEN 1 END, 60000
FROM generate_series(1, 2000) AS n;
INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, interval_ms, anchor, next_fire_at)
SELECT md5('trigger ' || n)::uuid, 'tenant-' || n % 8, md5('schedule ' || n)::uuid, 'interval', 60000, 'fixed_rate',
    timestamptz '2025-11-02' + n * interval '1 minute'
FROM generate_series(1, 2000) AS n;
INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, available_at, created_at)
SELECT md5('run ' || n)::uuid, 'tenant-' || n % 8, md5('schedule ' || 1 + (n - 1) % 2000)::uuid, 'queued',
    timestamptz '2025-11-02' + n * interval '1 second', timestamptz '2025-11-02'
FROM generate_series(1, {QUEUED}) AS n;
INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, worker_id, fence, lease_expires_at, created_at)
SELECT md5('running ' || n)::uuid, 'tenant-' || (100 + n % 1900) % 8,
    md5('schedule ' || 100 + n % 1900)::uuid, 'running', 'w', 1,
    timestamptz '2026-01-01' - n % 100 * interval '1 day', timestamptz '2025-11-02'
FROM generate_series(1, {RUNNING}) AS n;
"""

Call = tuple[str, list[Any]]


def ends(connection: Connection, count: int) -> str:
    rows = fetch_rows(connection, f"SELECT id, tenant_id FROM scheduler.runs WHERE state = 'running' LIMIT {count}", ())
    return as_json({"id": row[0], "tenant": row[1], "worker": "w", "fence": 1, "state": "completed"} for row in rows)


LEASE = timedelta(minutes=1)

# What is asked → (statement and parameters, indexes that it must use, most rows touched).
GUARDS: dict[str, tuple[Call, set[str], int]] = {
    "2-X6 a claim with some that come first": (
        (queue_statements.claim(), [NOW, "w", LEASE, 10]),
        {"ix_runs_waiting", "pk_runs"},
        6 * 10,
    ),
    # One run in eight is the tenant's.
    "2-X6 a claim of a tenant": (
        (queue_statements.claim(of_tenants=True), [NOW, "w", LEASE, 10, ["tenant-3"]]),
        {"ix_runs_waiting", "pk_runs"},
        8 * 6 * 10,
    ),
    "5-D1 runs that are over and held by some workers": (
        (queue_statements.expired(of_workers=True), [NOW, 10, ["w"]]),
        {"ix_runs_open"},
        2 * RUNNING,
    ),
    "6-U12 runs of a tenant that are over and held by some executors": (
        (queue_statements.expired(of_tenants=True, of_workers=True), [NOW, 10, ["tenant-3"], ["w"]]),
        {"ix_runs_open"},
        2 * RUNNING,
    ),
    "2-X6 due triggers": ((queue_statements.due(), [NOW, 10]), {"ix_triggers_due"}, 4 * 10),
    "3-B12 runs that are over": (
        (queue_statements.expired(), [NOW, 10]),
        {"ix_runs_open"},
        2 * RUNNING,
    ),
    "0-T2.3.4 the tenants": ((queue_statements.TENANTS, []), {"ix_schedules_page", "ix_runs_page"}, 60),
}


@pytest.fixture(scope="module")
def filled_dsn(any_cluster: Cluster) -> Iterator[str]:
    dsn = any_cluster.scheduler()
    with connect(dsn) as connection:
        keep_statistics(connection)
        connection.execute("ANALYZE")  # the statistics of an empty queue: what the plans must not depend on
        connection.execute(FILL.encode())
    yield dsn
    any_cluster.drop(dsn)


@pytest.fixture(scope="module")
def filled(filled_dsn: str) -> Iterator[DispatcherPool]:
    dispatch = DispatcherPool(settings(filled_dsn, pool_size=1))
    yield dispatch
    dispatch.close()


class UndoneError(Exception):
    """Ends a transaction that is not to be kept."""


def nodes_of(dispatch: DispatcherPool, statement: str, parameters: list[Any], *before: str) -> list[Node]:
    nodes: list[Node] = []

    def explain(connection: Connection) -> None:
        for text in before:
            fetch_rows(connection, text, ())
        given = [ends(connection, 50) if one is ... else one for one in parameters]
        fetch_rows(connection, f"PREPARE stated AS {statement}", ())
        values = sql.SQL(" ({})").format(sql.SQL(", ").join(map(sql.Literal, given))) if given else sql.SQL("")
        executed = sql.SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE stated{}").format(values)
        try:
            ((plans,),) = fetch_rows(connection, executed.as_string(connection), ())
        finally:
            fetch_rows(connection, "DEALLOCATE stated", ())
        left = [plans[0]["Plan"]]
        while left:
            nodes.append(left.pop())
            left += nodes[-1].get("Plans", [])
        raise UndoneError

    with pytest.raises(UndoneError):
        dispatch.transact(explain)
    return [node for node in nodes if node["Actual Loops"]]


@pytest.mark.proves("2-X6", "3-B1", "3-B12")
@pytest.mark.parametrize("what", GUARDS)
def test_statements_of_the_queue_touch_few_rows(what: str, filled: DispatcherPool) -> None:
    (statement, parameters), wanted, most = GUARDS[what]
    nodes = nodes_of(filled, statement, parameters)
    assert wanted <= indexes(nodes)
    assert "Seq Scan" not in kinds(nodes)
    assert touched(nodes) <= most


NONE_FIRST = "UPDATE scheduler.schedules SET priority = NULL"
ALL_LIMITED = "UPDATE scheduler.schedules SET priority = NULL, max_concurrency = 5"


@pytest.mark.proves("2-X6", "3-B2")
@pytest.mark.parametrize("before", [NONE_FIRST, ALL_LIMITED])
@pytest.mark.parametrize("limit", [1, 10, 100])
def test_a_claim_touches_a_few_rows_for_each_run(limit: int, before: str, filled: DispatcherPool) -> None:
    """Thirty thousand runs are queued: no more than is claimed is looked at, nor sorted."""
    nodes = nodes_of(filled, queue_statements.claim(), [NOW, "w", LEASE, limit], before)
    assert "ix_runs_waiting" in indexes(nodes)
    assert "Seq Scan" not in kinds(nodes)
    assert touched(nodes) <= limit * (6 if before == NONE_FIRST else 16)


ALL_MINE = "UPDATE scheduler.schedules SET priority = NULL, handler_name = 'mine'"
FEW_MINE = """UPDATE scheduler.schedules SET priority = NULL, handler_name =
    CASE WHEN name IN ('schedule 1999', 'schedule 2000') THEN 'mine' ELSE 'theirs' END"""


@pytest.mark.proves("5-D1", "3-B2")
@pytest.mark.parametrize(("before", "most"), [(ALL_MINE, 6 * 10), (FEW_MINE, 3 * QUEUED)])
def test_a_claim_for_some_handlers_goes_by_the_order_of_the_queue(
    before: str, most: int, filled: DispatcherPool
) -> None:
    """What another scheduler has queued is passed over, each run with one look at its schedule, and is not sorted."""
    nodes = nodes_of(filled, queue_statements.claim(of_handlers=True), [NOW, "w", LEASE, 10, ["mine"], []], before)
    assert {"ix_runs_waiting", "pk_schedules"} <= indexes(nodes)
    assert "Seq Scan" not in kinds(nodes)
    assert touched(nodes) <= most


@pytest.mark.proves("5-D1", "3-B1")
def test_due_triggers_of_some_handlers_are_read_in_their_order(filled: DispatcherPool) -> None:
    statement = queue_statements.due(of_handlers=True)
    nodes = nodes_of(filled, statement, [NOW, 50, ["mine"], []], ALL_MINE)
    assert "ix_triggers_due" in indexes(nodes)
    assert touched(nodes) <= 3 * 50
    nodes = nodes_of(filled, statement, [NOW, 50, ["mine"], []], FEW_MINE)
    assert "Seq Scan" not in kinds(nodes)
    assert touched(nodes) <= 3 * 2000


@pytest.mark.proves("2-X6", "3-B1")
def test_due_triggers_are_read_in_their_order(filled: DispatcherPool) -> None:
    nodes = nodes_of(filled, queue_statements.due(), [NOW, 50], NONE_FIRST)
    assert "ix_triggers_due" in indexes(nodes)
    assert touched(nodes) <= 3 * 50


PREPARED = "SELECT count(*) FROM pg_prepared_statements WHERE statement ~ 'LIMIT'"


@pytest.mark.proves("2-X6")
@pytest.mark.parametrize(
    "call",
    [
        lambda queue, limit: queue.claim("w", limit, LEASE, NOW, tenants=["nobody"]),
        lambda queue, limit: queue.fire_due(None, limit, NOW, ["nobody"]),
        lambda queue, limit: queue.expired(limit, NOW, ["nobody"]),
    ],
    ids=["claim", "fire_due", "expired"],
)
def test_a_statement_is_prepared_once_for_all_limits(
    call: Callable[[PostgresQueue, int], Sequence[object]], filled: DispatcherPool
) -> None:
    queue = PostgresQueue(filled)
    ((before,),) = filled.rows(PREPARED, ())
    for limit in (1, 2, 200, 40_000):
        assert call(queue, limit) == []
    assert filled.rows(PREPARED, ()) == [(before + 1,)]


HISTORY = """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, created_at)
SELECT md5('done ' || n)::uuid, 'tenant-1', md5('schedule 1')::uuid, 'completed', timestamptz '2025-11-02'
FROM generate_series(1, 5000) AS n"""


@pytest.mark.proves("2-X6", "3-B1")
def test_triggers_that_fire_are_found_by_their_ids_and_only_the_open_runs_of_their_schedules_are_counted(
    filled: DispatcherPool,
) -> None:
    """Each schedule has fifteen queued runs and up to two that are running; the first has a long history."""
    numbers = range(1, 11)
    given = [
        NOW,
        [UUID(md5(f"trigger {number}".encode(), usedforsecurity=False).hexdigest()) for number in numbers],
        [f"tenant-{number % 8}" for number in numbers],
    ]
    nodes = nodes_of(filled, queue_statements.locked(), given, HISTORY)
    assert {"pk_triggers", "pk_schedules", "ix_runs_open"} <= indexes(nodes)
    assert "Seq Scan" not in kinds(nodes)
    assert touched(nodes) <= len(numbers) * 40


@pytest.mark.proves("2-X3", "3-B12")
@pytest.mark.parametrize(
    "statement",
    [
        queue_statements.finish(only_expired=False, of_schedules=False),
        queue_statements.finish(only_expired=True, of_schedules=True),
        queue_statements.RELEASE,
    ],
)
def test_runs_that_end_are_found_by_their_ids(statement: str, filled: DispatcherPool) -> None:
    """Three thousand others are running."""
    nodes = nodes_of(filled, statement, [NOW, ...])
    assert "pk_runs" in indexes(nodes)
    assert "ix_runs_open" not in indexes(nodes)
    assert touched(nodes) <= 4 * 50


@pytest.mark.proves("2-X6", "3-B1", "3-B2")
def test_statements_of_the_queue_touch_few_rows_with_the_statistics_of_a_full_queue(
    filled: DispatcherPool, filled_dsn: str
) -> None:
    """The last test of this module: the others have the statistics of an empty queue."""
    with connect(filled_dsn) as connection:
        connection.execute("ANALYZE")
    for (statement, parameters), wanted, most in GUARDS.values():
        nodes = nodes_of(filled, statement, parameters)
        assert wanted <= indexes(nodes)
        assert touched(nodes) <= most
    for before, a_run in ((NONE_FIRST, 6), (ALL_LIMITED, 16)):
        for limit in (1, 100):
            nodes = nodes_of(filled, queue_statements.claim(), [NOW, "w", LEASE, limit], before)
            assert "ix_runs_waiting" in indexes(nodes)
            assert touched(nodes) <= limit * a_run
