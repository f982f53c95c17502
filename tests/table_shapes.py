"""The tables of other systems as their own migrations declare them, which the mappings of the sources are held to.

A default of None means that the column may be null or not there yet; other columns must hold something.
"""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypeAlias
from uuid import UUID

import msgspec

from migrator.constraints import LONGEST_KEY, most_of
from migrator.sources.shapes import Int64, Shape

Row: TypeAlias = dict[str, Any]
"""Column to value: None, bool, int, float, str, Decimal, UUID, datetime, list, dict."""

Naive = Annotated[datetime, msgspec.Meta(tz=False)]
Aware = Annotated[datetime, msgspec.Meta(tz=True)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Number = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class RowShape(Shape, rename=str):
    """The columns of a table, in its order, under its names."""


def columns_of(shape: type[RowShape]) -> tuple[str, ...]:
    """Return the declared columns in their order."""
    return shape.__struct_encode_fields__


Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class CrawlerJob(RowShape, kw_only=True):
    """A job: 12 columns of the base table, 12 more of migration 003."""

    id: UUID
    source_id: str
    source_name: str | None = None
    url: str
    schedule_time: str | None = None
    schedule_enabled: bool | None = None
    status: str
    created_at: Aware
    updated_at: Aware
    started_at: Aware | None = None
    completed_at: Aware | None = None
    error_message: str | None = None
    interval_minutes: Positive | None = None
    interval_type: str | None = None
    next_run_at: Aware | None = None
    is_paused: bool | None = None
    max_retries: Count | None = None
    retry_backoff_seconds: Count | None = None
    current_retry_count: Annotated[int, msgspec.Meta(ge=0, le=most_of("schedules.retry_count"))] | None = None
    lock_token: UUID | None = None
    lock_acquired_at: Aware | None = None
    paused_at: Aware | None = None
    cancelled_at: Aware | None = None
    metadata: Any = None


class CrawlerExecution(RowShape, kw_only=True):
    """An execution: 15 columns, 3 more of migration 007."""

    id: UUID
    job_id: UUID
    execution_number: Annotated[int, msgspec.Meta(ge=-(2**31), le=most_of("runs.run_number"))]
    status: str
    started_at: Aware
    completed_at: Aware | None = None
    duration_ms: Int64 | None = None
    items_crawled: Number | None = None
    items_indexed: Number | None = None
    error_message: str | None = None
    stack_trace: str | None = None
    cpu_time_ms: Int64 | None = None
    memory_peak_mb: Number | None = None
    retry_attempt: Count | None = None
    metadata: Any = None
    log_object_key: str | None = None
    log_size_bytes: Int64 | None = None
    log_line_count: Int64 | None = None


Key = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_KEY)]


class OrchestratorJob(RowShape, kw_only=True):
    """A job; 33 columns."""

    id: Key
    name: str
    description: str | None = None
    type: str
    status: str
    schedule: str | None = None
    timezone: str = "UTC"
    next_run: Naive | None = None
    last_run: Naive | None = None
    start_date: Naive | None = None
    end_date: Naive | None = None
    max_executions: Positive | None = None
    handler_name: str
    handler_type: str = "function"
    payload: Any = None
    max_retries: Count = 3
    retry_delay_ms: Count = 60_000
    timeout_ms: Positive = 300_000
    priority: str = "medium"
    concurrency: Positive = 1
    allow_overlap: bool = False
    executions_count: Count = 0
    success_count: Count = 0
    failure_count: Count = 0
    avg_duration_ms: Number | None = None
    tags: list[str] | None = None
    metadata: Any = None
    platform_id: str | None = None
    created_by: str
    created_at: Naive
    updated_at: Naive
    completed_at: Naive | None = None
    cancelled_at: Naive | None = None


class OrchestratorExecution(RowShape, kw_only=True):
    """An execution of a job; 19 columns."""

    id: Key
    job_id: Key
    status: str
    scheduled_at: Naive
    started_at: Naive | None = None
    completed_at: Naive | None = None
    duration_ms: Number | None = None
    result: Any = None
    error: str | None = None
    error_stack: str | None = None
    retry_count: Count = 0
    max_retries: Count = 3
    next_retry_at: Naive | None = None
    worker_id: str | None = None
    metadata: Any = None
    trace_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    created_at: Naive


class OrchestratorLog(RowShape, kw_only=True):
    """A line of an execution's log; 6 columns."""

    id: Key
    execution_id: Key
    timestamp: Naive
    level: str
    message: str
    context: Any = None


class EventHandler(RowShape, kw_only=True):
    """What is done when an event arrives; 14 columns."""

    id: Key
    event_name: str
    handler_name: str
    handler_type: str = "function"
    enabled: bool = True
    priority: Number = 5
    action_type: str | None = None
    action_config: Any = None
    platform_id: str | None = None
    trigger_count: Count = 0
    success_count: Count = 0
    failure_count: Count = 0
    created_at: Naive
    last_triggered: Naive | None = None


Instances = Annotated[int, msgspec.Meta(ge=1, le=10)]
Timeout = Annotated[int, msgspec.Meta(ge=30, le=3600)]
Retries = Annotated[int, msgspec.Meta(ge=0, le=10)]
Delay = Annotated[int, msgspec.Meta(ge=0, le=3600)]
"""The limits of the source's model; its tables have no CHECK."""


class TaskFunction(RowShape, kw_only=True):
    """A handler; 12 columns."""

    id: Number
    name: str
    display_name: str
    description: str | None = None
    handler_path: str
    handler_type: str
    queue: str | None = None
    default_timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    is_active: bool
    is_system: bool
    created_at: Naive
    updated_at: Naive


class SupportJob(RowShape, kw_only=True):
    """A job; 20 columns."""

    id: UUID
    name: str
    description: str | None = None
    task_function_id: Number
    job_type_id: Number
    schedule_config: dict[str, Any]
    task_args: Any = None
    max_instances: Instances
    timeout_seconds: Timeout
    retry_count: Retries
    retry_delay_seconds: Delay
    is_enabled: bool
    is_paused: bool
    next_run_time: Naive | None = None
    last_run_time: Naive | None = None
    last_status: str | None = None
    created_by: UUID | None = None
    updated_by: UUID | None = None
    created_at: Naive
    updated_at: Naive


class SupportExecution(RowShape, kw_only=True):
    """An execution; 13 columns."""

    id: UUID
    job_id: UUID
    celery_task_id: str | None = None
    status: str
    started_at: Naive
    completed_at: Naive | None = None
    duration_seconds: int | float | Decimal | None = None
    """INTEGER in the table, a float in the model: drivers cut or round it."""
    result: Any = None
    error_message: str | None = None
    error_traceback: str | None = None
    triggered_by: str
    triggered_by_user_id: UUID | None = None
    scheduler_instance_id: UUID | None = None


class Instance(RowShape, kw_only=True):
    """A scheduler process; 8 columns."""

    id: UUID
    hostname: str
    pid: Number
    is_leader: bool
    leader_since: Naive | None = None
    last_heartbeat: Naive
    started_at: Naive
    version: str
