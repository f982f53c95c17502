"""The five tables of ``support_center``, and its old job list. Times are TIMESTAMP: naive, UTC by convention."""

from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec

from migrator.sources.rows import Naive, Number, RowShape

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


class ScheduledJob(RowShape, kw_only=True):
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


class JobExecution(RowShape, kw_only=True):
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
