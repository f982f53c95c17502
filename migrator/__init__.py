"""Move a scheduler from MongoDB to PostgreSQL, and prove it; and the scheduler's client for applications.

The names below are the public API: ``from migrator import Scheduler``. They are documented in docs/api.md, and keep
their names, parameters and meaning. Everything else in this package may change. Each is imported when it is first used,
and none of them imports the tool that moves the data.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from migrator.config import Settings, load_settings
    from migrator.errors import (
        ArchiveError,
        BackendMovedError,
        ConfigurationError,
        ConflictError,
        CopyError,
        DeniedError,
        LockedError,
        LostLockError,
        MigratorError,
        NotFoundError,
        OvertakenError,
        RefusedError,
        StoreError,
        TransitionError,
        UnreachableError,
        UsageError,
    )
    from migrator.records import ExecutionLog, Handler, Run, Schedule, Trigger
    from migrator.scheduler.async_client import AsyncScheduler
    from migrator.scheduler.client import Scheduler, TransactionScheduler
    from migrator.scheduler.completion import Outcome
    from migrator.scheduler.handlers import Context, ExternalSystem, Registry, Request
    from migrator.scheduler.health import (
        Components,
        HealthStatus,
        Instance,
        Issue,
        Leader,
        Limits,
        Status,
        Upcoming,
    )
    from migrator.scheduler.lifecycle import Event
    from migrator.scheduler.models import (
        Changes,
        Delivery,
        Execution,
        History,
        Job,
        JobPage,
        ScheduleRequest,
        Seeding,
    )
    from migrator.scheduler.process import Worker
    from migrator.scheduler.queries import (
        BusyHour,
        ExecutionMetrics,
        JobMetrics,
        Metrics,
        NextExecution,
        Performance,
        QueueMetrics,
        Stats,
        SystemMetrics,
        Today,
    )
    from migrator.scheduler.worker import CounterSnapshot
    from migrator.store import open_store, prepare
    from migrator.store.protocols import ScheduleQuery, Store
    from migrator.store.queue import Claim
    from migrator.store.statistics import FailurePattern, NextFire

__version__ = "0.1.0"

__all__ = [
    "ArchiveError",
    "AsyncScheduler",
    "BackendMovedError",
    "BusyHour",
    "Changes",
    "Claim",
    "Components",
    "ConfigurationError",
    "ConflictError",
    "Context",
    "CopyError",
    "CounterSnapshot",
    "Delivery",
    "DeniedError",
    "Event",
    "Execution",
    "ExecutionLog",
    "ExecutionMetrics",
    "ExternalSystem",
    "FailurePattern",
    "Handler",
    "HealthStatus",
    "History",
    "Instance",
    "Issue",
    "Job",
    "JobMetrics",
    "JobPage",
    "Leader",
    "Limits",
    "LockedError",
    "LostLockError",
    "Metrics",
    "MigratorError",
    "NextExecution",
    "NextFire",
    "NotFoundError",
    "Outcome",
    "OvertakenError",
    "Performance",
    "QueueMetrics",
    "RefusedError",
    "Registry",
    "Request",
    "Run",
    "Schedule",
    "ScheduleQuery",
    "ScheduleRequest",
    "Scheduler",
    "Seeding",
    "Settings",
    "Stats",
    "Status",
    "Store",
    "StoreError",
    "SystemMetrics",
    "Today",
    "TransactionScheduler",
    "TransitionError",
    "Trigger",
    "UnreachableError",
    "Upcoming",
    "UsageError",
    "Worker",
    "load_settings",
    "open_store",
    "prepare",
]

_MODULES: Final = MappingProxyType(
    {
        "migrator.config": "Settings load_settings",
        "migrator.store": "open_store prepare",
        "migrator.store.protocols": "Store ScheduleQuery",
        "migrator.scheduler.client": "Scheduler TransactionScheduler",
        "migrator.scheduler.async_client": "AsyncScheduler",
        "migrator.scheduler.models": "ScheduleRequest Changes Job JobPage Execution History Delivery Seeding",
        "migrator.store.queue": "Claim",
        "migrator.scheduler.queries": (
            "Metrics JobMetrics ExecutionMetrics Performance QueueMetrics SystemMetrics Today Stats"
            " NextExecution BusyHour"
        ),
        "migrator.store.statistics": "FailurePattern NextFire",
        "migrator.scheduler.health": "HealthStatus Components Issue Status Leader Instance Upcoming Limits",
        "migrator.scheduler.lifecycle": "Event",
        "migrator.records": "Schedule Trigger Run ExecutionLog Handler",
        "migrator.scheduler.process": "Worker",
        "migrator.scheduler.worker": "CounterSnapshot",
        "migrator.scheduler.handlers": "Registry Context ExternalSystem Request",
        "migrator.scheduler.completion": "Outcome",
        "migrator.errors": (
            "MigratorError UsageError ConfigurationError RefusedError UnreachableError DeniedError LockedError"
            " ArchiveError StoreError ConflictError OvertakenError TransitionError NotFoundError LostLockError"
            " BackendMovedError CopyError"
        ),
    }
)
"""The module of each public name, in the order of docs/api.md."""


if not TYPE_CHECKING:  # type checkers see the imports above, and report a name that is not there

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever has that name
        for module, names in _MODULES.items():
            if name in names.split():
                return getattr(import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
