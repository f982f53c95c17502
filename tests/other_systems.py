"""Rows of ``orchestrator``, ``crawler`` and ``support_center`` as a driver gives them: every column set."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from bson.int64 import Int64

from migrator.records import Record, Run, Schedule, Trigger, remainder_of
from migrator.sources.crawler import PROFILE as CRAWLER
from migrator.sources.orchestrator import PROFILE as ORCHESTRATOR
from migrator.sources.profile import INHERITED, Collection, Context, Decoded, Document, Note, Profile, Rows
from migrator.sources.support_center import PROFILE as SUPPORT_CENTER
from migrator.sources.support_center import names
from migrator.sources.table_columns import row_of as find
from migrator.values import remainder, table_row
from migrator.values.copy_format import codec
from tests import table_shapes
from tests.table_shapes import Row, RowShape

NOON = datetime(2026, 2, 3, 12, 0, 0, 123000)  # noqa: DTZ001 - as a TIMESTAMP column comes
NOON_UTC = NOON.replace(microsecond=123456, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

AnyRecord = TypeVar("AnyRecord", bound=Record)

KEYS = [UUID(f"00000000-0000-4000-8000-{number:012d}") for number in range(20)]
PLATFORM = str(KEYS[19])

ORCHESTRATOR_ROWS: dict[str, Row] = {
    "ScheduledJob": {
        "id": str(KEYS[0]),
        "name": "Nightly reindex",
        "description": "all of it",
        "type": "recurring",
        "status": "active",
        "schedule": "30 2 * * 1-5",
        "timezone": "Europe/Vienna",
        "next_run": NOON + MINUTE,
        "last_run": NOON,
        "start_date": NOON - timedelta(days=30),
        "end_date": NOON + timedelta(days=30),
        "max_executions": 50,
        "handler_name": "kb:reindex",
        "handler_type": "workflow",
        "payload": {"depth": 3, "ratio": 0.5, "big": 2**40, "nested": [{"a": None}]},
        "max_retries": 5,
        "retry_delay_ms": 1500,
        "timeout_ms": 90000,
        "priority": "high",
        "concurrency": 3,
        "allow_overlap": False,
        "executions_count": 20,
        "success_count": 18,
        "failure_count": 2,
        "avg_duration_ms": 1234,
        "tags": ["kb", "night"],
        "metadata": {"skip_if_overdue": True, "owner": "ops"},
        "platform_id": PLATFORM,
        "created_by": "alice",
        "created_at": NOON - timedelta(days=40),
        "updated_at": NOON,
        "completed_at": NOON + MINUTE,
        "cancelled_at": NOON + 2 * MINUTE,
    },
    "EventHandler": {
        "id": str(KEYS[1]),
        "event_name": "ticket:created",
        "handler_name": "notify",
        "handler_type": "job_creator",
        "enabled": True,
        "priority": 7,
        "action_type": "create_job",
        "action_config": {"name": "x"},
        "platform_id": PLATFORM,
        "trigger_count": 9,
        "success_count": 8,
        "failure_count": 1,
        "created_at": NOON,
        "last_triggered": NOON + MINUTE,
    },
    "JobExecution": {
        "id": str(KEYS[2]),
        "job_id": str(KEYS[0]),
        "status": "failed",
        "scheduled_at": NOON,
        "started_at": NOON + MINUTE,
        "completed_at": NOON + 2 * MINUTE,
        "duration_ms": 60000,
        "result": {"rows": 5},
        "error": "E_TIMEOUT: upstream",
        "error_stack": "at line 1",
        "retry_count": 2,
        "max_retries": 4,
        "next_retry_at": NOON + 5 * MINUTE,
        "worker_id": "worker-1",
        "metadata": {"manual_retry": True, "original_execution_id": str(KEYS[3])},
        "trace_id": "trace",
        "span_id": "span",
        "parent_span_id": "parent",
        "created_at": NOON,
    },
    "JobExecutionLog": {
        "id": str(KEYS[4]),
        "execution_id": str(KEYS[2]),
        "timestamp": NOON,
        "level": "warn",
        "message": "slow",
        "context": {"ms": 9000},
    },
}

CRAWLER_ROWS: dict[str, Row] = {
    "jobs": {
        "id": KEYS[5],
        "source_id": "src-1",
        "source_name": "The Times",
        "url": "https://example.org/news",
        "schedule_time": "15 */3 * * *",
        "schedule_enabled": True,
        "status": "scheduled",
        "created_at": NOON_UTC,
        "updated_at": NOON_UTC + MINUTE,
        "started_at": NOON_UTC + 2 * MINUTE,
        "completed_at": NOON_UTC + 3 * MINUTE,
        "error_message": "404",
        "interval_minutes": 90,
        "interval_type": "minutes",
        "next_run_at": NOON_UTC + 90 * MINUTE,
        "is_paused": False,
        "max_retries": 4,
        "retry_backoff_seconds": 30,
        "current_retry_count": 1,
        "lock_token": KEYS[6],
        "lock_acquired_at": NOON_UTC,
        "paused_at": NOON_UTC + 4 * MINUTE,
        "cancelled_at": NOON_UTC + 5 * MINUTE,
        "metadata": {"depth": 2},
    },
    "job_executions": {
        "id": KEYS[7],
        "job_id": KEYS[5],
        "execution_number": 12,
        "status": "failed",
        "started_at": NOON_UTC,
        "completed_at": NOON_UTC + MINUTE,
        "duration_ms": 60000,
        "items_crawled": 40,
        "items_indexed": 38,
        "error_message": "boom",
        "stack_trace": "goroutine 1",
        "cpu_time_ms": 5 * 10**10,
        "memory_peak_mb": 300,
        "retry_attempt": 2,
        "metadata": {"seed": 7},
        "log_object_key": "logs/12",
        "log_size_bytes": 10**11,
        "log_line_count": 500,
    },
}

SUPPORT_CENTER_ROWS: dict[str, Row] = {
    "task_functions": {
        "id": 3,
        "name": "cleanup_expired_tokens",
        "display_name": "Cleanup Expired Tokens",
        "description": "old tokens",
        "handler_path": "tasks.maintenance.cleanup_expired_tokens_task",
        "handler_type": "celery_task",
        "queue": "ad_queue",
        "default_timeout_seconds": 60,
        "is_active": True,
        "is_system": True,
        "created_at": NOON,
        "updated_at": NOON + MINUTE,
    },
    "scheduled_jobs": {
        "id": KEYS[8],
        "name": "Token Cleanup (Daily)",
        "description": "daily",
        "task_function_id": 3,
        "job_type_id": 1,
        "schedule_config": {"hours": 24, "minutes": 0, "seconds": 0},
        "task_args": {"retention_days": 7},
        "max_instances": 1,
        "timeout_seconds": 60,
        "retry_count": 3,
        "retry_delay_seconds": 60,
        "is_enabled": True,
        "is_paused": False,
        "next_run_time": NOON + MINUTE,
        "last_run_time": NOON,
        "last_status": "success",
        "created_by": KEYS[9],
        "updated_by": KEYS[10],
        "created_at": NOON,
        "updated_at": NOON,
    },
    "scheduled_job_executions": {
        "id": KEYS[11],
        "job_id": KEYS[8],
        "celery_task_id": "celery-1",
        "status": "success",
        "started_at": NOON,
        "completed_at": NOON + MINUTE,
        "duration_seconds": 60,
        "result": {"deleted": 4},
        "error_message": "none really",
        "error_traceback": "Traceback",
        "triggered_by": "manual",
        "triggered_by_user_id": KEYS[9],
        "scheduler_instance_id": KEYS[12],
    },
    "scheduler_instances": {
        "id": KEYS[12],
        "hostname": "host-1",
        "pid": 4711,
        "is_leader": True,
        "leader_since": NOON,
        "last_heartbeat": NOON + MINUTE,
        "started_at": NOON,
        "version": "1.0",
    },
}

SHAPES: dict[str, type[RowShape]] = {
    "ScheduledJob": table_shapes.OrchestratorJob,
    "EventHandler": table_shapes.EventHandler,
    "JobExecution": table_shapes.OrchestratorExecution,
    "JobExecutionLog": table_shapes.OrchestratorLog,
    "jobs": table_shapes.CrawlerJob,
    "job_executions": table_shapes.CrawlerExecution,
    "task_functions": table_shapes.TaskFunction,
    "scheduled_jobs": table_shapes.SupportJob,
    "scheduled_job_executions": table_shapes.SupportExecution,
    "scheduler_instances": table_shapes.Instance,
}
"""Table → its columns."""

SYSTEMS: tuple[tuple[Profile, dict[str, Row]], ...] = (
    (ORCHESTRATOR, ORCHESTRATOR_ROWS),
    (CRAWLER, CRAWLER_ROWS),
    (SUPPORT_CENTER, SUPPORT_CENTER_ROWS),
)
TABLES: list[tuple[Collection, Row]] = [
    (table, rows[table.name]) for system, rows in SYSTEMS for table in system.collections
]
"""Each table, and a row of it with every column set."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a row is read with: what the operator states, and the rows that it refers to."""

    tenant: str | None = None
    zone: str | None = None
    as_of: datetime = datetime(2026, 11, 20, 12, tzinfo=UTC)
    parents: dict[str, dict[Any, Row]] = {}
    """Table → primary key → row."""
    repeated: frozenset[UUID] = frozenset()
    """Executions whose number another one of the same job has already."""

    def row(self, table: str, key: object) -> Row:
        """Return a row that is referred to; empty if it is not there."""
        return self.parents.get(table, {}).get(key, {})


CONTEXT = Given(
    tenant="acme",
    zone="Africa/Cairo",
    parents={
        "ScheduledJob": {str(KEYS[0]): ORCHESTRATOR_ROWS["ScheduledJob"]},
        "JobExecution": {str(KEYS[2]): ORCHESTRATOR_ROWS["JobExecution"]},
        "task_functions": {3: SUPPORT_CENTER_ROWS["task_functions"]},
        "scheduled_jobs": {KEYS[8]: SUPPORT_CENTER_ROWS["scheduled_jobs"]},
    },
)


def shape_of(table: Collection) -> type[RowShape]:
    """Return the declared columns of a table."""
    return SHAPES[table.name]


def document_of(table: Collection, row: Row, given: Given) -> Document:
    """Return the document that the reader of tables makes of a row, with what the SQL of ``inherited`` finds."""
    document = {
        "_id" if name == "id" else name: _long(value) if (table.name, name) in LONGS else _bson(value)
        for name, value in row.items()
    }
    if table.inherited:
        document[INHERITED] = {name: _bson(value) for name, value in _inherited(table.name, row, given).items()}
    return document


LONGS = {("job_executions", name) for name in ("duration_ms", "cpu_time_ms", "log_size_bytes")}
"""Columns of the type ``bigint``."""


def _long(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    return Int64(value) if type(value) is int and abs(value) < 2**63 else _bson(value)


def _bson(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    try:
        return table_row.to_bson(value)
    except OverflowError:  # the server writes a year of five digits
        return table_row.time_from_text("10000-01-01 00:59:59.999999+00")


def _inherited(table: str, row: Row, given: Given) -> Row:
    match table:
        case "JobExecution":
            job = given.row("ScheduledJob", row.get("job_id"))
        case "JobExecutionLog":
            execution = given.row("JobExecution", row.get("execution_id"))
            job = given.row("ScheduledJob", execution.get("job_id"))
            job = job | {"job_id": execution.get("job_id")} if job else {}
        case "job_executions":
            return {"repeated": row["id"] in given.repeated}
        case "scheduled_jobs":
            function = given.row("task_functions", row.get("task_function_id"))
            handler = {name: function.get(name) for name in ("name", "handler_type", "queue")} if function else None
            return {"handler": handler, "job_type": _job_type(row, given)}
        case _:
            return {"job_type": _job_type(given.row("scheduled_jobs", row.get("job_id")), given)}
    return {name: job.get(name) for name in ("type", "platform_id", "job_id")}


def _job_type(job: Row, given: Given) -> Any:  # noqa: ANN401 - a text, or None
    types = given.parents.get("scheduler_job_types")
    key = job.get("job_type_id")
    if not isinstance(key, int):
        return None
    return names.SEEDED_JOB_TYPES.get(key) if types is None else types.get(key, {}).get("name")


def load(table: Collection, row: Row, given: Given) -> Decoded:
    """Return the records of a row, with the remainder of what they do not carry, and findings."""
    document = document_of(table, row, given)
    context = Context(as_of=given.as_of, default_tenant=given.tenant, zone=given.zone)
    decoded = table.decode(document, context)
    left = remainder.difference(table.without_derived(document), table.encode(decoded.rows))
    return Decoded(table.attach(decoded.rows, left), decoded.notes)


def restore(table: Collection, rows: Rows) -> Row:
    """Return the row that records made by ``load`` stand for."""
    document = remainder.apply(table.encode(rows), table.remainder(rows))
    return {"id" if name == "_id" else name: table_row.from_bson(value) for name, value in document.items()}


class Trip(msgspec.Struct):
    """A row there and back."""

    rows: tuple[Record, ...]
    notes: tuple[Note, ...]
    back: Row
    left: list[str]
    """Columns that the records do not carry."""

    @property
    def kinds(self) -> list[str]:
        return [note.kind for note in self.notes]

    @property
    def schedule(self) -> Schedule:
        return self._the(Schedule)

    @property
    def trigger(self) -> Trigger:
        return self._the(Trigger)

    @property
    def run(self) -> Run:
        return self._the(Run)

    def _the(self, record: type[AnyRecord]) -> AnyRecord:
        found = find(self.rows, record)
        assert found is not None, f"no {record.__name__}"
        return found


def exactly(value: object) -> str:
    """Return a text that is the same only for values of the same types and contents, instants compared in UTC."""
    if isinstance(value, dict):
        return "{" + ", ".join(sorted(f"{key!r}: {exactly(item)}" for key, item in value.items())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(exactly, value)) + "]"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return repr(value.astimezone(UTC))
    return repr(value)


def travel(table: Collection, row: Row, context: Given = CONTEXT) -> Trip:
    """Load a row, render its records as COPY would, and rebuild it: it must be what it was."""
    decoded = load(table, row, context)
    for record in decoded.rows:
        codec(type(record)).serialize(record)
    back = restore(table, decoded.rows)
    assert exactly(back) == exactly(row)
    left = [entry.path for entry in remainder.entries(remainder_of(decoded.rows))]
    return Trip(decoded.rows, decoded.notes, back, left)
