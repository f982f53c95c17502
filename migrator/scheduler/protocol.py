"""The port of source 002, as a typed protocol: 18 methods, in the order of its document, with one of ours each."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Protocol, runtime_checkable
from uuid import UUID

from migrator.records import Run
from migrator.scheduler.answers import Delivery, Execution, History, Job, JobPage
from migrator.scheduler.health import HealthStatus
from migrator.scheduler.metrics import Metrics
from migrator.scheduler.requests import (
    EventRequest,
    HistoryQuery,
    OnceRequest,
    RecurringRequest,
    ScheduleRequest,
    Timing,
)
from migrator.scheduler.stats import Stats
from migrator.store.protocols import ScheduleQuery

PORT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "schedule": "schedule",
        "scheduleOnce": "schedule_once",
        "scheduleRecurring": "schedule_recurring",
        "reschedule": "reschedule",
        "unschedule": "unschedule",
        "onEvent": "on_event",
        "triggerEvent": "trigger_event",
        "getJob": "get",
        "listJobs": "list",
        "pauseJob": "pause",
        "resumeJob": "resume",
        "cancelJob": "cancel",
        "getJobHistory": "history",
        "getExecution": "get_execution",
        "retryExecution": "retry",
        "getMetrics": "metrics",
        "healthCheck": "health",
        "getJobStats": "stats",
    }
)
"""Method of the source's port → method here."""


@runtime_checkable
class Scheduler(Protocol):
    """What ``SchedulerService`` says of each method holds for every implementation."""

    def schedule(self, request: ScheduleRequest, *, now: datetime | None = None) -> Job: ...  # noqa: D102 - as the class says

    def schedule_once(self, request: OnceRequest, *, now: datetime | None = None) -> Job: ...  # noqa: D102 - as above

    def schedule_recurring(self, request: RecurringRequest, *, now: datetime | None = None) -> Job: ...  # noqa: D102 - as above

    def reschedule(  # noqa: D102 - as above
        self, schedule_id: UUID, timing: Timing, *, by: str = ..., now: datetime | None = None
    ) -> Job: ...

    def unschedule(self, schedule_id: UUID, *, by: str = ..., now: datetime | None = None) -> None: ...  # noqa: D102 - as above

    def on_event(  # noqa: D102 - as above
        self, event: str, handler_name: str, request: EventRequest | None = None, *, now: datetime | None = None
    ) -> Job: ...

    def trigger_event(  # noqa: D102 - as above
        self,
        event: str,
        data: Any = None,  # noqa: ANN401 - any JSON value
        *,
        event_id: str | None = None,
        by: str = ...,
        now: datetime | None = None,
    ) -> Delivery: ...

    def get(self, schedule_id: UUID, *, now: datetime | None = None) -> Job | None: ...  # noqa: D102 - as above

    def list(self, query: ScheduleQuery | None = None, *, now: datetime | None = None) -> JobPage: ...  # noqa: D102 - as above

    def pause(self, schedule_id: UUID, *, by: str = ..., now: datetime | None = None) -> Job: ...  # noqa: D102 - as above

    def resume(self, schedule_id: UUID, *, by: str = ..., now: datetime | None = None) -> Job: ...  # noqa: D102 - as above

    def cancel(  # noqa: D102 - as above
        self, schedule_id: UUID, *, by: str = ..., reason: str = ..., now: datetime | None = None
    ) -> Job: ...

    def history(  # noqa: D102 - as above
        self, schedule_id: UUID, query: HistoryQuery | None = None, *, now: datetime | None = None
    ) -> History: ...

    def get_execution(self, run_id: UUID, *, now: datetime | None = None) -> Execution | None: ...  # noqa: D102 - as above

    def retry(self, run_id: UUID, *, by: str = ..., now: datetime | None = None) -> Run: ...  # noqa: D102 - as above

    def metrics(  # noqa: D102 - as above
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        zone: str = "UTC",
        now: datetime | None = None,
    ) -> Metrics: ...

    def health(self, *, now: datetime | None = None) -> HealthStatus: ...  # noqa: D102 - as above

    def stats(  # noqa: D102 - as above
        self,
        schedule_id: UUID,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        now: datetime | None = None,
    ) -> Stats: ...
