"""What the database itself refuses, whoever writes."""

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from migrator import constraints, states
from migrator.connections.postgres import Connection
from tests.schema_dump import BOOKKEEPING, read_tables
from tests.schema_rows import LEAST, NOW, connect, count, insert

LATER = "2025-11-02T09:00:00+00:00"
CRON = {"kind": "cron", "run_at": None, "cron_expression": "0 2 * * *", "cron_dialect": "cronos"}
INTERVAL = {"kind": "interval", "run_at": None, "interval_ms": 60_000, "anchor": "fixed_rate"}
EVENT = {"kind": "event", "run_at": None, "event_name": "image.pushed"}

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    # what is wrong → (table, values, constraint)
    "schedule in no state": ("schedules", {"status": "active"}, "ck_schedules_status"),
    "schedule in no mode": ("schedules", {"mode": "analysisonly"}, "ck_schedules_mode"),
    "handler of no type": ("handlers", {"handler_type": "lambda"}, "ck_handlers_handler_type"),
    "schedule's handler of no type": ("schedules", {"handler_type": "lambda"}, "ck_schedules_handler_type"),
    "retry by no strategy": ("schedules", {"retry_strategy": "linear"}, "ck_schedules_retry_strategy"),
    "exhausted otherwise": ("schedules", {"on_exhausted": "delete"}, "ck_schedules_on_exhausted"),
    "priority below": ("schedules", {"priority": -1}, "ck_schedules_priority"),
    "priority above": ("schedules", {"priority": 101}, "ck_schedules_priority"),
    "trigger of no kind": ("triggers", {"kind": "webhook"}, "ck_triggers_kind"),
    "cron without dialect": ("triggers", CRON | {"cron_dialect": None}, "ck_triggers_kind_columns"),
    "cron without expression": ("triggers", CRON | {"cron_expression": None}, "ck_triggers_kind_columns"),
    "cron with an interval": ("triggers", CRON | {"interval_ms": 1}, "ck_triggers_kind_columns"),
    "cron with a date": ("triggers", CRON | {"run_at": NOW}, "ck_triggers_kind_columns"),
    "interval without length": ("triggers", INTERVAL | {"interval_ms": None}, "ck_triggers_kind_columns"),
    "interval without anchor": ("triggers", INTERVAL | {"anchor": None}, "ck_triggers_kind_columns"),
    "interval of nothing": ("triggers", INTERVAL | {"interval_ms": 0}, "ck_triggers_interval_ms"),
    "interval from nowhere": ("triggers", INTERVAL | {"anchor": "start"}, "ck_triggers_anchor"),
    "one-off without date": ("triggers", {"run_at": None}, "ck_triggers_kind_columns"),
    "one-off with an event": ("triggers", {"event_name": "x"}, "ck_triggers_kind_columns"),
    "event without name": ("triggers", EVENT | {"event_name": None}, "ck_triggers_kind_columns"),
    "event in a time zone": ("triggers", EVENT | {"timezone": "UTC"}, "ck_triggers_kind_columns"),
    "event that is due": ("triggers", EVENT | {"next_fire_at": NOW}, "ck_triggers_event"),
    "end at start": ("triggers", {"start_at": NOW, "end_at": NOW}, "ck_triggers_period"),
    "end before start": ("triggers", {"start_at": LATER, "end_at": NOW}, "ck_triggers_period"),
    "misfire by no policy": ("triggers", {"misfire_policy": "ignore"}, "ck_triggers_misfire_policy"),
    "run in no state": ("runs", {"state": "pending"}, "ck_runs_state"),
    "run of negative length": ("runs", {"duration_ms": -1}, "ck_runs_duration_ms"),
    "log of no level": ("execution_logs", {"level": "notice"}, "ck_execution_logs_level"),
    "policy job in no state": ("policy_jobs", {"status": "cancelled"}, "ck_policy_jobs_status"),
    "policy job in no mode": ("policy_jobs", {"mode": "partial"}, "ck_policy_jobs_mode"),
    "policy job of no priority": ("policy_jobs", {"priority": "low"}, "ck_policy_jobs_priority"),
    "worker of no kind": ("workers", {"kind": "leader"}, "ck_workers_kind"),
    "worker in no state": ("workers", {"status": "gone"}, "ck_workers_status"),
    "lock of another tenant": ("locks", {"key": "b/leader"}, "ck_locks_key"),
    "lock of a tenant with our name in front": ("locks", {"key": "ab/leader"}, "ck_locks_key"),
    "graph job of type 2": ("graph_jobs", {"type": 2}, "ck_graph_jobs_type"),
    "graph job in status 9": ("graph_jobs", {"status": 9}, "ck_graph_jobs_status"),
    "graph job event in status 6": ("graph_job_events", {"status": 6}, "ck_graph_job_events_status"),
}
OUTSIDE = ("infinity", "-infinity", "0001-12-31 23:59:59.999999+00 BC", "10000-01-01 00:00:00+00")
"""Times that no value of the tool stands for."""
FULL = {"integer": 2**31 - 1, "bigint": 2**63 - 1}
"""Counters to which one cannot be added."""
REFUSED |= {
    f"{table.name}.{column.name} at {value}": (table.name, {column.name: value}, f"ck_{table.name}_times")
    for table in read_tables("scheduler").values()
    for column in table.columns.values()
    if column.type == "timestamp with time zone" and table.name not in BOOKKEEPING
    for value in OUTSIDE
}
REFUSED |= {
    f"{table}.{column} full": (
        table,
        {column: FULL[read_tables("scheduler")[table].columns[column].type]},
        f"ck_{table}_counters",
    )
    for table, _, column in (
        one.partition(".") for one in sorted(constraints.COUNTERS | {"parallel_triggers.fire_count"})
    )
}
EDGES = ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00")


@pytest.fixture
def connection(scheduler_dsn: str) -> Any:  # noqa: ANN401 - a generator of connections
    with connect(scheduler_dsn) as opened:
        yield opened


def constraint_of(error: psycopg.Error) -> str | None:
    return error.diag.constraint_name


@pytest.mark.proves("1-S3", "1-S4", "1-S14")
def test_values_outside_the_closed_lists_are_refused(any_scheduler_dsn: str) -> None:
    """Type 2 and status 9 of graph jobs among them."""
    with connect(any_scheduler_dsn) as connection:
        for what, (table, values, name) in REFUSED.items():
            with pytest.raises(psycopg.errors.CheckViolation) as caught:
                insert(connection, table, **values)
            assert constraint_of(caught.value) == name, what


def test_the_first_and_the_last_time_and_the_largest_counters_are_taken(connection: Connection) -> None:
    for table, values, name in REFUSED.values():
        if name.endswith("_times"):
            for edge in EDGES:
                insert(connection, table, **dict.fromkeys(values, edge))
        elif name.endswith("_counters"):
            insert(connection, table, **{column: value - 1 for column, value in values.items()})


def test_every_check_has_a_row_that_it_refuses(connection: Connection) -> None:
    found = connection.execute(
        "SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'scheduler'::regnamespace"
    )
    assert {name for (name,) in found} == {name for _, _, name in REFUSED.values()} | {"ck_runs_attempt"}


@pytest.mark.parametrize(
    ("table", "column", "machine"),
    [
        ("schedules", "status", states.SCHEDULE),
        ("runs", "state", states.RUN),
        ("policy_jobs", "status", states.POLICY_JOB),
    ],
)
def test_every_state_of_a_machine_is_taken(
    table: str, column: str, machine: states.Machine, connection: Connection
) -> None:
    for state in machine:
        insert(connection, table, **{column: state})
    assert count(connection, table) == len(machine)


@pytest.mark.proves("1-S3", "1-S4")
def test_every_code_of_graph_jobs_is_taken(connection: Connection) -> None:
    for type_ in states.GRAPH_JOB_TYPES.values():
        for status in states.GRAPH_JOB_CODES.values():
            insert(connection, "graph_jobs", type=type_, status=status)
    assert count(connection, "graph_jobs") == 12


# The plan of 2025-12-06 for the graph jobs, as published: column → type, nullable. Its default now() of a migrated time
# is left out on purpose: no migrated column takes the time of its load.
GRAPH_JOBS = {
    "id": ("uuid", "NO"),
    "tenant_id": ("text", "NO"),
    "type": ("smallint", "NO"),
    "status": ("smallint", "NO"),
    "payload": ("jsonb", "NO"),
    "created_at": ("timestamp with time zone", "NO"),
    "updated_at": ("timestamp with time zone", "NO"),
    "correlation_id": ("text", "YES"),
}
GRAPH_JOB_EVENTS = {
    "id": ("bigint", "NO"),
    "job_id": ("uuid", "NO"),
    "tenant_id": ("text", "NO"),
    "status": ("smallint", "NO"),
    "payload": ("jsonb", "NO"),
    "created_at": ("timestamp with time zone", "NO"),
}
PLANNED = [
    *(("graph_jobs", name, f"1-S{place}") for place, name in enumerate(GRAPH_JOBS, 1)),
    *(("graph_job_events", name, f"1-S{place}") for place, name in enumerate(GRAPH_JOB_EVENTS, 11)),
]


@pytest.mark.parametrize(
    ("table", "column"),
    [pytest.param(table, column, marks=pytest.mark.proves(proved)) for table, column, proved in PLANNED],
)
def test_a_column_of_the_graph_jobs_is_as_planned(table: str, column: str, connection: Connection) -> None:
    found = connection.execute(
        "SELECT data_type, is_nullable, column_default FROM information_schema.columns"
        " WHERE table_schema = 'scheduler' AND table_name = %s AND column_name = %s",
        (table, column),
    ).fetchone()
    planned = (GRAPH_JOBS if table == "graph_jobs" else GRAPH_JOB_EVENTS)[column]
    sequence = "nextval('scheduler.graph_job_events_id_seq'::regclass)"
    assert found == (*planned, sequence if (table, column) == ("graph_job_events", "id") else None)


def test_the_graph_jobs_have_no_column_that_was_not_planned(connection: Connection) -> None:
    for table, planned in (("graph_jobs", GRAPH_JOBS), ("graph_job_events", GRAPH_JOB_EVENTS)):
        found = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'scheduler' AND table_name = %s",
            (table,),
        ).fetchall()
        assert {name for (name,) in found} == set(planned)


@pytest.mark.parametrize("values", [CRON, INTERVAL, EVENT, {}], ids=["cron", "interval", "event", "one_time"])
def test_every_kind_of_trigger_is_taken(values: dict[str, Any], connection: Connection) -> None:
    insert(connection, "triggers", **values)
    insert(connection, "triggers", **values, start_at=NOW, end_at=LATER, max_fires=3)
    assert count(connection, "triggers") == 2


@pytest.mark.parametrize("table", LEAST)
def test_what_must_be_given_is_demanded(table: str, connection: Connection) -> None:
    for name in LEAST[table]:
        values = {name: None} if name != "kind" or table != "triggers" else {"kind": None, "run_at": NOW}
        with pytest.raises((psycopg.errors.NotNullViolation, psycopg.errors.CheckViolation)):
            insert(connection, table, **values)


def test_a_name_is_unique_among_rows_born_here_and_free_again_when_deleted(connection: Connection) -> None:
    """0-T2.3.2: the name is reusable; source data may repeat it."""
    first = insert(connection, "schedules", name="same")
    insert(connection, "schedules", "b", name="same")
    for _ in range(2):
        insert(connection, "schedules", name="same", source="stellaops/schedules", source_id=str(uuid4()))
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        insert(connection, "schedules", name="same")
    assert constraint_of(caught.value) == "uq_schedules_name"
    connection.execute("UPDATE scheduler.schedules SET deleted_at = %s, deleted_by = 'ops' WHERE id = %s", (NOW, first))
    insert(connection, "schedules", name="same")


def test_one_slot_of_a_trigger_has_one_run_for_each_attempt(connection: Connection) -> None:
    """No duplicate execution."""
    slot = {"trigger_id": insert(connection, "triggers"), "scheduled_at": NOW}
    insert(connection, "runs", **slot, attempt=1)
    insert(connection, "runs", **slot, attempt=2)
    insert(connection, "runs", trigger_id=slot["trigger_id"], scheduled_at=LATER, attempt=1)
    for _ in range(2):  # by hand: without a slot, as often as one likes
        insert(connection, "runs", trigger_id=slot["trigger_id"], attempt=1)
    with pytest.raises(psycopg.errors.UniqueViolation) as caught:
        insert(connection, "runs", **slot, attempt=1)
    assert constraint_of(caught.value) == "uq_runs_slot"
    with pytest.raises(psycopg.errors.CheckViolation) as unnumbered:
        insert(connection, "runs", **slot)
    assert constraint_of(unnumbered.value) == "ck_runs_attempt"


def test_a_schedule_s_runs_are_numbered_once_and_events_delivered_once(connection: Connection) -> None:
    schedule, trigger = insert(connection, "schedules"), insert(connection, "triggers")
    insert(connection, "runs", schedule_id=schedule, run_number=1)
    insert(connection, "runs", trigger_id=trigger, dedupe_key="event-1")
    insert(connection, "runs", trigger_id=insert(connection, "triggers"), dedupe_key="event-1")
    for values, name in (
        ({"schedule_id": schedule, "run_number": 1}, "uq_runs_number"),
        ({"trigger_id": trigger, "dedupe_key": "event-1"}, "uq_runs_dedupe"),
    ):
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            insert(connection, "runs", **values)
        assert constraint_of(caught.value) == name


def test_migrated_runs_without_number_trigger_and_slot_meet_nobody(connection: Connection) -> None:
    schedule = insert(connection, "schedules")
    for _ in range(3):
        insert(connection, "runs", schedule_id=schedule)
    assert count(connection, "runs") == 3


def test_a_policy_run_has_one_row_in_each_source_and_null_counts_as_one(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        sources = ("stellaops/policy_runs", "stellaops/policy_jobs", None)
        for source in sources:
            insert(connection, "policy_jobs", source=source, run_id="run:P-7:auto")
            insert(connection, "policy_jobs", source=source)
            insert(connection, "policy_jobs", source=source)
        insert(connection, "policy_jobs", "b", source=None, run_id="run:P-7:auto")
        for source in sources:
            with pytest.raises(psycopg.errors.UniqueViolation) as caught:
                insert(connection, "policy_jobs", source=source, run_id="run:P-7:auto")
            assert constraint_of(caught.value) == "uq_policy_jobs_run"


def test_locks_summaries_and_handlers_are_one_of_a_kind(connection: Connection) -> None:
    schedule = insert(connection, "schedules")
    once: dict[str, tuple[dict[str, Any], str]] = {
        "locks": ({"key": "a/leader"}, "uq_locks_key"),
        "run_summaries": ({"schedule_id": schedule}, "uq_run_summaries_schedule"),
        "handlers": ({"name": "mail"}, "uq_handlers_name"),
    }
    for table, (values, name) in once.items():
        insert(connection, table, **values)
        with pytest.raises(psycopg.errors.UniqueViolation) as caught:
            insert(connection, table, **values)
        assert constraint_of(caught.value) == name
    insert(connection, "run_summaries", "b", schedule_id=schedule)
    insert(connection, "handlers", "b", name="mail")


@pytest.mark.proves("1-S12")
def test_deleting_a_graph_job_removes_its_events_and_an_orphan_event_is_refused(any_scheduler_dsn: str) -> None:
    with connect(any_scheduler_dsn) as connection:
        job, other = insert(connection, "graph_jobs"), insert(connection, "graph_jobs")
        first = insert(connection, "graph_job_events", job_id=job)
        second = insert(connection, "graph_job_events", job_id=other)
        insert(connection, "graph_job_events", job_id=other, id=2**62 + 5)
        assert second > first
        connection.execute("DELETE FROM scheduler.graph_jobs WHERE id = %s", (job,))
        assert count(connection, "graph_job_events") == 2
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            insert(connection, "graph_job_events", job_id=job)


def test_triggers_go_with_their_schedule_and_runs_hold_it(connection: Connection) -> None:
    trigger = insert(connection, "triggers")
    (schedule,) = connection.execute("SELECT schedule_id FROM scheduler.triggers").fetchone() or (None,)
    run = insert(connection, "runs", schedule_id=schedule, trigger_id=trigger)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        connection.execute("DELETE FROM scheduler.schedules")
    connection.execute("DELETE FROM scheduler.runs WHERE id = %s", (run,))
    connection.execute("DELETE FROM scheduler.schedules")
    assert count(connection, "triggers") == 0


def test_logs_go_with_their_run_while_snapshots_and_retries_outlive_it(connection: Connection) -> None:
    run = insert(connection, "runs")
    retry = insert(connection, "runs", retry_of=run)
    insert(connection, "execution_logs", run_id=run)
    insert(connection, "execution_logs")
    snapshot = insert(connection, "impact_snapshots", run_id=run)
    connection.execute("DELETE FROM scheduler.runs WHERE id = %s", (run,))
    assert count(connection, "execution_logs") == 1
    assert connection.execute("SELECT retry_of FROM scheduler.runs WHERE id = %s", (retry,)).fetchone() == (None,)
    query = "SELECT run_id FROM scheduler.impact_snapshots WHERE id = %s"
    assert connection.execute(query, (snapshot,)).fetchone() == (None,)


def reference(column: str) -> dict[str, Any]:
    return {column: uuid4()}


def test_references_to_nothing_are_refused(connection: Connection) -> None:
    for table, column in (
        *(("runs", name) for name in ("schedule_id", "trigger_id", "retry_of")),
        ("triggers", "schedule_id"),
        ("execution_logs", "run_id"),
        ("impact_snapshots", "run_id"),
    ):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            insert(connection, table, **reference(column))
    for column in ("schedule_id", "run_id"):
        insert(connection, "audit", **reference(column))
    insert(connection, "execution_logs", schedule_id=uuid4())
    insert(connection, "run_summaries", schedule_id=uuid4())
