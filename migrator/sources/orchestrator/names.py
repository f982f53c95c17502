"""Every word of ``orchestrator`` that is not a column: tables, enumerations, constants of its code.

Source: the Prisma schema and ``scheduler.constants.ts`` of agentic-sdlc, as ``docs/sources-other.md`` retells them.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from migrator import states

NAME: Final = "orchestrator"

JOBS: Final = "ScheduledJob"
EXECUTIONS: Final = "JobExecution"
LOGS: Final = "JobExecutionLog"
EVENT_HANDLERS: Final = "EventHandler"

CRON_DIALECT: Final = "croner"
GLOBAL_TENANT: Final = "*"
"""Where ``platform_id`` is null: the job is of no platform, seen by all."""

RETRY_CAP_MS: Final = 3_600_000
"""Delays double from ``retry_delay_ms`` up to one hour."""
DEFAULT_ZONE: Final = "UTC"

CRON: Final = "cron"
RECURRING: Final = "recurring"
ONE_TIME: Final = "one_time"
EVENT: Final = "event"

JOB_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {CRON: "cron", RECURRING: "cron", ONE_TIME: "one_time", EVENT: "event"}
)
"""Type of a job → kind of its trigger; recurring is a cron line within bounds."""

CAUSES: Final[Mapping[str, str]] = MappingProxyType({CRON: "cron", RECURRING: "cron", ONE_TIME: "api", EVENT: "event"})
"""Type of a job → why its executions ran."""

JOB_STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pending": "pending",
        "active": "scheduled",
        "paused": "paused",
        "completed": "completed",
        "failed": "failed",
        "cancelled": "cancelled",
    }
)
JOB_STATUSES_BACK: Final[Mapping[str, str]] = MappingProxyType(
    {status: word for word, status in JOB_STATUSES.items()} | {"running": "active"}
)
"""An active job is one that is scheduled, or running just now."""

EXECUTION_STATUSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "pending": "queued",
        "running": "running",
        "success": "completed",
        "failed": "error",
        "timeout": "timeout",
        "cancelled": "cancelled",
        "skipped": "skipped",
    }
)
EXECUTION_STATUSES_BACK: Final[Mapping[str, str]] = MappingProxyType(
    {state: word for word, state in EXECUTION_STATUSES.items()} | {"planning": "pending"}
)

PRIORITIES: Final = states.PRIORITY_WORDS

JOB_HANDLER_TYPES: Final = MappingProxyType({word: word for word in ("function", "agent", "workflow")})
EVENT_HANDLER_TYPES: Final = MappingProxyType({word: word for word in ("function", "job_creator")})
ACTION_TYPES: Final = MappingProxyType({word: word for word in ("create_job", "trigger_workflow", "dispatch_agent")})
LOG_LEVELS: Final = MappingProxyType({word: word for word in states.LOG_LEVELS})
"""The source names debug, info, warn and error in a comment; the other two are the target's."""
