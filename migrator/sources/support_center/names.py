"""Every word of ``support_center`` that is not a column: tables, enumerations, limits, seeds.

Source: the models, migrations and seeds of support-center, as ``docs/sources-other.md`` retells them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NAME: Final = "support-center"

JOB_TYPES: Final = "scheduler_job_types"
TASK_FUNCTIONS: Final = "task_functions"
JOBS: Final = "scheduled_jobs"
EXECUTIONS: Final = "scheduled_job_executions"
INSTANCES: Final = "scheduler_instances"

CRON_DIALECT: Final = "apscheduler"
MILLISECONDS: Final = 1_000
MISFIRE_GRACE_MS: Final = 300_000
"""The source gives every job 300 seconds."""
WORKERS_TENANT: Final = "*"

INTERVAL: Final = "interval"
CRON: Final = "cron"
SEEDED_JOB_TYPES: Final[Mapping[int, str]] = MappingProxyType({1: INTERVAL, 2: CRON})

HANDLER_TYPES: Final = MappingProxyType({word: word for word in ("celery_task", "async_function")})

LAST_STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pending": "scheduled",
        "running": "running",
        "success": "scheduled",
        "failed": "scheduled",
        "timeout": "scheduled",
    }
)
"""Status of a job's last execution → status of its schedule, unless it is paused."""

EXECUTION_STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {"pending": "queued", "running": "running", "success": "completed", "failed": "error", "timeout": "timeout"}
)
EXECUTION_STATUSES_BACK: Final[Mapping[str, str]] = MappingProxyType(
    {state: word for word, state in EXECUTION_STATUSES.items()}
    | {"planning": "pending", "cancelled": "failed", "skipped": "failed"}
)
"""The source has five; the others go to the nearest."""

SCHEDULER: Final = "scheduler"
TRIGGERED_BY: Final[Mapping[str, str | None]] = MappingProxyType({SCHEDULER: None, "manual": "manual", "api": "api"})
"""Who asked for an execution → its cause; the scheduler's is the type of the job."""
