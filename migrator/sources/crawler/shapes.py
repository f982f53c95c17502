"""The two tables of ``crawler``. Times are TIMESTAMPTZ.

The columns of later migrations have defaults here: a row of the base table lacks them, and encode gives them as null.
"""

from typing import Annotated, Any
from uuid import UUID

import msgspec

from migrator.constraints import most_of
from migrator.sources.rows import Aware, Count, Number, RowShape
from migrator.sources.shapes import Int64

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class Job(RowShape, kw_only=True):
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


class JobExecution(RowShape, kw_only=True):
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
