"""The four tables of ``orchestrator``. Times are TIMESTAMP(3): naive, UTC by convention."""

from typing import Annotated, Any

import msgspec

from migrator.constraints import LONGEST_KEY
from migrator.sources.rows import Count, Naive, Number, RowShape

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_KEY)]


class ScheduledJob(RowShape, kw_only=True):
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


class JobExecution(RowShape, kw_only=True):
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


class JobExecutionLog(RowShape, kw_only=True):
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
