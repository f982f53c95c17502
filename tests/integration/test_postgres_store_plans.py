"""The statements that the repositories send use their indexes and touch few rows; times are not tested.

Each statement is taken as it was sent, in a service session under row-level security, and run again under EXPLAIN.
The plan within the functions that find tags is in ``test_schema_plans``.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.sql import SQL

from migrator.store.postgres.store import PostgresSession, PostgresStore
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.store.statistics import RunFilter
from tests.conftest import Cluster
from tests.integration.test_schema_plans import FILL
from tests.marks import proving
from tests.schema_rows import connect, keep_statistics
from tests.store_postgres import opened

TENANT = "tenant-7"
"""Of what has a number with the remainder 7 by 8."""

BEGIN = datetime(2025, 11, 2, tzinfo=UTC)
EARLY = BEGIN + timedelta(minutes=500)
"""Some thirty of the tenant's triggers are due."""

LATE = BEGIN + timedelta(days=30)
ALL_DUE = "0-T2.3.3 all are due"
LISTS = "2-I1"
"""Of these, every statement is explained, not only the first."""

EVENTS = """
INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, event_name)
SELECT md5('event trigger ' || n)::uuid, 'tenant-' || n % 8, md5('schedule ' || n)::uuid, 'event',
    CASE WHEN n % 200 = 7 THEN 'push' ELSE 'event ' || n END
FROM generate_series(1, 5000) AS n;

INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, run_at)
SELECT md5('one-time trigger ' || n)::uuid, 'tenant-' || n % 8, md5('schedule ' || n)::uuid, 'one_time',
    timestamptz '2025-11-02'
FROM generate_series(1, 40) AS n;

UPDATE scheduler.schedules SET created_at = timestamptz '2025-11-02' + substr(name, 10)::int * interval '1 second',
    created_by = 'user-' || substr(name, 10)::int % 50, handler_name = 'handler-' || substr(name, 10)::int % 200,
    status = CASE WHEN substr(name, 10)::int % 40 = 23 THEN 'paused' ELSE status END,
    priority = substr(name, 10)::int % 101;
"""

SORTS = {"Sort", "Incremental Sort"}
FULL_SORTS = {"Sort"}
Call = Callable[[PostgresSession], Any]
Node = dict[str, Any]


def id_of(session: PostgresSession, text: str) -> UUID:
    row = session.connection.execute("SELECT md5(%s)::uuid", (text,)).fetchone()
    assert row is not None
    return UUID(str(row[0]))


SCHEDULE = "schedule 15"
"""Has a few runs, all of them the tenant's."""

RUN = "run 703"

# What is asked → (call, index, most rows touched, sorts that may not be). A page of 50 may look at a few more than 50.
GUARDS: dict[str, tuple[Call, str, int, set[str]]] = {
    "0-T2.3.3 few are due": (lambda s: s.schedules.due(50), "ix_triggers_next", 60, set()),
    # Row-level security's condition on the tenant makes the planner expect fewer rows than the limit: before version 18
    # it then sorts what is due, which the index bounds all the same.
    ALL_DUE: (lambda s: s.schedules.due(50), "ix_triggers_next", 700, set()),
    "2-I1 first page of schedules": (lambda s: s.schedules.list(ScheduleQuery()), "ix_schedules_page", 60, SORTS),
    "2-I1 schedules in a status": (
        lambda s: s.schedules.list(ScheduleQuery(statuses=("paused", "failed"))),
        "ix_schedules_status",
        260,  # those of the tenant that are paused
        set(),
    ),
    "2-I1 schedules with a handler": (
        lambda s: s.schedules.list(ScheduleQuery(handlers=("handler-7",))),
        "ix_schedules_handler",
        60,
        set(),
    ),
    "2-I1 schedules with one of two handlers": (
        lambda s: s.schedules.list(ScheduleQuery(handlers=("handler-7", "handler-15"))),
        "ix_schedules_handler",
        120,
        set(),
    ),
    "2-I1 how many schedules have a handler": (
        lambda s: s.schedules.count(ScheduleQuery(handlers=("handler-7",))),
        "ix_schedules_handler",
        60,
        set(),
    ),
    "2-I1 schedules in a status with a tag": (
        lambda s: s.schedules.list(ScheduleQuery(statuses=("scheduled",), tags_any=("tag-7", "tag-15"), limit=5)),
        "pk_schedules",
        60,
        set(),
    ),
    "2-I1 schedules with a rare kind of trigger": (
        lambda s: s.schedules.list(ScheduleQuery(kinds=("one_time",))),
        "ix_triggers_kind",
        30,
        set(),
    ),
    "2-I1 schedules with a frequent kind of trigger": (
        lambda s: s.schedules.list(ScheduleQuery(kinds=("interval", "one_time"))),
        "ix_triggers_kind",
        5_000,  # those of the tenant, and their triggers
        set(),
    ),
    "2-I1 how many schedules have a kind of trigger": (
        lambda s: s.schedules.count(ScheduleQuery(kinds=("one_time",))),
        "ix_triggers_kind",
        30,
        set(),
    ),
    "2-I1 schedules by their next fire": (
        lambda s: s.schedules.list(ScheduleQuery(sort_by="next_fire_at", descending=False)),
        "ix_triggers_next",
        560,
        set(),
    ),
    "2-I1 schedules by their last next fire": (
        lambda s: s.schedules.list(ScheduleQuery(sort_by="next_fire_at")),
        "ix_triggers_next",
        560,
        set(),
    ),
    "2-I1 schedules by their next fire in a period": (
        lambda s: s.schedules.list(
            ScheduleQuery(sort_by="next_fire_at", next_fire_after=EARLY, next_fire_before=LATE, enabled=True)
        ),
        "ix_triggers_next",
        560,
        set(),
    ),
    "2-I1 schedules that fire in a period": (
        lambda s: s.schedules.list(ScheduleQuery(next_fire_before=EARLY)),
        "ix_triggers_next",
        160,  # some thirty, and their triggers
        set(),
    ),
    "2-I1 how many schedules fire in a period": (
        lambda s: s.schedules.count(ScheduleQuery(next_fire_before=EARLY)),
        "ix_triggers_next",
        160,
        set(),
    ),
    "0-T2.2.3 active schedules": (
        lambda s: s.schedules.list(ScheduleQuery(enabled=True, sort_by="name")),
        "ix_schedules_active",
        1_300,
        set(),
    ),
    "2-I1 schedules made in a period": (
        lambda s: s.schedules.list(
            ScheduleQuery(created_after=BEGIN + timedelta(hours=1), created_before=BEGIN + timedelta(hours=2))
        ),
        "ix_schedules_page",
        600,
        set(),
    ),
    "schedules made by someone": (
        lambda s: s.schedules.list(ScheduleQuery(created_by="user-7")),
        "ix_schedules_creator",
        60,
        set(),
    ),
    "schedules with a part in their name": (
        lambda s: s.schedules.list(ScheduleQuery(name_contains="77")),
        "ix_schedules_page",
        1_300,
        set(),
    ),
    "schedules by priority": (
        lambda s: s.schedules.list(ScheduleQuery(sort_by="priority", tags_all=("tag-7",))),
        "pk_schedules",
        60,
        set(),
    ),
    "how many schedules there are": (
        lambda s: s.schedules.count(ScheduleQuery(statuses=("scheduled",))),
        "ix_schedules_page",
        1_300,
        set(),
    ),
    "2-I4 triggers of an event": (lambda s: s.triggers.of_event("push"), "ix_triggers_event", 120, set()),
    "0-T2.4.3 first page of runs": (lambda s: s.runs.list(RunQuery()), "ix_runs_page", 60, SORTS),
    "0-T2.4.3 later page of runs": (
        lambda s: s.runs.list(RunQuery(cursor=(BEGIN + timedelta(seconds=50_007), id_of(s, RUN)))),
        "ix_runs_page",
        60,
        SORTS,
    ),
    "0-T2.4.3 2-I2 page of runs in a period": (
        lambda s: s.runs.list(
            RunQuery(created_after=BEGIN + timedelta(hours=1), created_before=BEGIN + timedelta(hours=9))
        ),
        "ix_runs_page",
        60,
        SORTS,
    ),
    "2-I2 runs in a state": (
        lambda s: s.runs.list(RunQuery(states=("completed",), limit=10)),
        "ix_runs_page",
        60,
        SORTS,
    ),
    "0-T2.4.1 2-I2 newest runs of a schedule": (
        lambda s: s.runs.of_schedule(id_of(s, SCHEDULE), 5),
        "ix_runs_schedule",
        10,
        set(),
    ),
    "0-T2.4.1 2-I2 a page of a schedule's runs": (
        lambda s: s.runs.list(RunQuery(schedule_id=id_of(s, SCHEDULE), states=("completed",), limit=3)),
        "ix_runs_schedule",
        10,
        set(),
    ),
    "2-I2 a later page of a schedule's runs, oldest first": (
        lambda s: s.runs.list(RunQuery(schedule_id=id_of(s, SCHEDULE), descending=False, offset=2, limit=3)),
        "ix_runs_schedule",
        10,
        set(),
    ),
    "2-I2 runs that repeat one": (
        lambda s: s.runs.repeats(id_of(s, "run 1599")) == [],
        "ix_runs_retry_of",
        2,
        set(),
    ),
    "2-F16 runs of a window": (
        lambda s: (
            s.statistics.runs(RunFilter(since=BEGIN + timedelta(hours=1), until=BEGIN + timedelta(hours=2))).total
        ),
        "ix_runs_page",
        500,
        set(),
    ),
    "2-F18 runs of a schedule": (
        lambda s: s.statistics.runs(RunFilter(schedule_id=id_of(s, SCHEDULE))).total,
        "ix_runs_schedule",
        10,
        set(),
    ),
    "2-F18 hours of a schedule": (
        lambda s: s.statistics.hours(RunFilter(schedule_id=id_of(s, SCHEDULE))),
        "ix_runs_schedule",
        10,
        set(),
    ),
    "2-F16 what waits and what runs": (lambda s: s.statistics.backlog().ready == 0, "ix_runs_open", 600, set()),
    "4-S5 schedules by status": (lambda s: s.statistics.schedules().total, "ix_schedules_page", 1_300, set()),
    "4-S5 what fires next": (lambda s: s.statistics.next_fires(1), "ix_triggers_next", 200, set()),
    "triggers of a page of schedules": (
        lambda s: s.triggers.of_schedules([id_of(s, f"schedule {7 + 8 * n}") for n in range(50)]),
        "ix_triggers_schedule",
        120,
        set(),
    ),
    "2-X10 2-I2 runs of a trace": (lambda s: s.runs.list(RunQuery(trace_id="trace-701")), "ix_runs_trace", 10, set()),
    "0-T2.4.1 a run": (lambda s: s.runs.get(id_of(s, RUN)), "pk_runs", 2, SORTS),
    "1-S10 0-T2.5.2 graph jobs of a type in a status": (
        lambda s: s.graph_jobs.list("overlay", "completed", 50),
        "idx_graph_jobs_tenant_type_status",
        60,
        FULL_SORTS,
    ),
    "1-S17 events of a graph job": (
        lambda s: s.graph_jobs.events(id_of(s, "graph job 23")),
        "idx_graph_job_events_job",
        10,
        set(),
    ),
    # By rank, which the index does not hold: what is in the status is read, and no more.
    "0-T2.6.2 policy jobs in a status": (
        lambda s: s.policy_jobs.list("succeeded", 50),
        "ix_policy_jobs_status",
        2_600,
        set(),
    ),
    "0-T2.7.2 snapshots of a run": (
        lambda s: s.impact_snapshots.of_run(id_of(s, RUN)),
        "ix_impact_snapshots_run",
        10,
        set(),
    ),
    "2-I3 logs of a run": (lambda s: s.execution_logs.of_run(id_of(s, RUN), 50), "ix_execution_logs_run", 10, set()),
    "triggers of a schedule": (
        lambda s: s.triggers.of_schedule(id_of(s, "schedule 7")),
        "ix_triggers_schedule",
        4,
        set(),
    ),
    "summary of a schedule": (
        lambda s: s.run_summaries.get(id_of(s, "schedule 7")),
        "uq_run_summaries_schedule",
        2,
        set(),
    ),
    "page of the audit": (lambda s: s.audit.list(50), "ix_audit_page", 60, SORTS),
}


class Recording(psycopg.Cursor[Any]):
    """Keeps what was sent."""

    sent: list[tuple[Any, Any]] = []  # noqa: RUF012 - one list for all, emptied by who reads it

    def execute(self, query: Any, params: Any = None, **rest: Any) -> Any:  # noqa: ANN401 - as the driver's
        Recording.sent.append((query, params))
        return super().execute(query, params, **rest)


@pytest.fixture(scope="module")
def store(any_cluster: Cluster) -> Iterator[PostgresStore]:
    dsn = any_cluster.scheduler()
    with connect(dsn) as connection:
        keep_statistics(connection)
        connection.execute(FILL.encode())
        connection.execute(EVENTS.encode())
        connection.execute("VACUUM ANALYZE")
    with opened(dsn) as store:
        yield store
    any_cluster.drop(dsn)


def plan_of(session: PostgresSession, call: Call, *, whole: bool) -> list[Node]:
    """Return the nodes of the plans of the statements that the call sends to our tables; the first if not ``whole``."""
    session.connection.cursor_factory = Recording
    Recording.sent = []
    try:
        call(session)
    finally:
        session.connection.cursor_factory = psycopg.Cursor
    sent = [one for one in Recording.sent if "scheduler" in str(one[0])]
    nodes: list[Node] = []
    for text, parameters in sent if whole else sent[:1]:
        query = SQL(text) if isinstance(text, str) else text
        row = session.connection.execute(
            SQL("EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) ") + query, parameters
        ).fetchone()
        assert row is not None
        left = [row[0][0]["Plan"]]
        while left:
            node = left.pop()
            nodes.append(node)
            left += node.get("Plans", [])
    return nodes


def kinds(nodes: list[Node]) -> set[str]:
    return {node["Node Type"] for node in nodes}


def indexes(nodes: list[Node]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


def touched(nodes: list[Node]) -> int:
    """Return how many rows the plan read from tables, those that a filter took away included."""
    removed = ("Rows Removed by Filter", "Rows Removed by Index Recheck", "Rows Removed by Join Filter")
    return int(
        sum(
            (node["Actual Rows"] + sum(node.get(key, 0) for key in removed)) * node["Actual Loops"]
            for node in nodes
            if "Relation Name" in node
        )
    )


@pytest.mark.parametrize("what", proving(GUARDS))
def test_statements_use_their_index_and_touch_few_rows(what: str, store: PostgresStore) -> None:
    call, index, most, unwanted = GUARDS[what]
    with store.session(TENANT, now=LATE if what == ALL_DUE else EARLY) as session:
        assert call(session)
        nodes = plan_of(session, call, whole=what.startswith(LISTS))
    assert index in indexes(nodes)
    assert "Seq Scan" not in kinds(nodes)
    assert not kinds(nodes) & unwanted
    assert touched(nodes) <= most
