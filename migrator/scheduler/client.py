"""The client of the scheduler: what an application calls to make, change, run and read schedules.

``Scheduler`` is the client of one tenant; ``SchedulerPort`` is the port of source 002 as a typed protocol, 18 methods.

Every method takes ``now`` (if omitted: the database's clock). A change is one transaction: rows, the entry of the
audit trail, and the lifecycle event that a listener hears of afterwards. Errors: ``UsageError`` (bad input;
``RefusedError`` where something else must be done first), ``UnknownError``, ``TransitionError``, ``ConflictError``;
nothing is changed.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, runtime_checkable
from uuid import UUID, uuid4

from migrator.errors import ConflictError
from migrator.records import Handler, Run
from migrator.scheduler import commands, creation, health, queries
from migrator.scheduler.commands import Change
from migrator.scheduler.health import HealthStatus, Limits, Status
from migrator.scheduler.lifecycle import Event, EventSink, ignore
from migrator.scheduler.models import (
    Delivery,
    EventRequest,
    Execution,
    History,
    HistoryQuery,
    Job,
    JobPage,
    OnceRequest,
    Patch,
    RecurringRequest,
    ScheduleRequest,
    Seeding,
    Timing,
)
from migrator.scheduler.queries import Metrics, Stats
from migrator.store.protocols import ScheduleQuery, Session, Store
from migrator.telemetry import logger

PORT_METHODS: Final[Mapping[str, str]] = MappingProxyType(
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
class SchedulerPort(Protocol):
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


T = TypeVar("T")

DEFAULT_ACTOR: Final = "api"
"""Who acts, where nobody is named."""

MAX_ATTEMPTS: Final = 5
"""How often a change is tried that another one came before."""


class Scheduler:
    """The facade of one tenant (``protocol.Scheduler``)."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        *,
        sink: EventSink = ignore,
        new_id: Callable[[], UUID] = uuid4,
        limits: Limits | None = None,
    ) -> None:
        """``sink`` hears lifecycle events after the commit; ``new_id`` gives the ids of new rows."""
        self.store, self.tenant = store, tenant
        self._sink, self._new_id = sink, new_id
        self._limits = Limits() if limits is None else limits

    # -- creation

    def schedule(self, request: ScheduleRequest, *, now: datetime | None = None) -> Job:
        """Make a schedule that a cron line makes fire."""
        return self._change(request.created_by, now, lambda change: creation.create_cron(change, request))

    def schedule_once(self, request: OnceRequest, *, now: datetime | None = None) -> Job:
        """Make a schedule that fires once; a time that is past is refused, none is now."""
        return self._change(request.created_by, now, lambda change: creation.create_once(change, request))

    def schedule_recurring(self, request: RecurringRequest, *, now: datetime | None = None) -> Job:
        """Make a schedule that recurs between a start and an end, at most so many times."""
        return self._change(request.created_by, now, lambda change: creation.create_recurring(change, request))

    def on_event(
        self, event: str, handler_name: str, request: EventRequest | None = None, *, now: datetime | None = None
    ) -> Job:
        """Let a handler run at each event of this name; registered twice under one name is ``ConflictError``."""
        asked = EventRequest() if request is None else request
        return self._change(
            asked.created_by, now, lambda change: creation.create_event_handler(change, event, handler_name, asked)
        )

    # -- changes

    def reschedule(
        self, schedule_id: UUID, timing: Timing, *, by: str = DEFAULT_ACTOR, now: datetime | None = None
    ) -> Job:
        """Give a recurring schedule another timing, counted from now; its runs and counts stay."""
        return self._change(by, now, lambda change: commands.reschedule(change, schedule_id, timing))

    def unschedule(self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> None:
        """Remove a schedule softly: it fires no more, its runs stay readable; refused for a system handler's."""
        self._change(by, now, lambda change: commands.unschedule(change, schedule_id))

    def pause(self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Job:
        """Let a scheduled one fire no more until it is resumed."""
        return self._change(by, now, lambda change: commands.pause(change, schedule_id))

    def resume(self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Job:
        """Let a paused one fire again: in its phase, and what it missed only where its misfire policy says so."""
        return self._change(by, now, lambda change: commands.resume(change, schedule_id))

    def cancel(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str = "cancelled", now: datetime | None = None
    ) -> Job:
        """End a schedule and its live runs for good."""
        return self._change(by, now, lambda change: commands.cancel(change, schedule_id, reason))

    def toggle(self, schedule_id: UUID, *, enabled: bool, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Job:
        """Enable or disable it, from the next tick on."""
        return self._change(by, now, lambda change: commands.toggle(change, schedule_id, enabled=enabled))

    def update(self, schedule_id: UUID, patch: Patch, *, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Job:
        """Change what it does; no fire moves."""
        return self._change(by, now, lambda change: commands.update(change, schedule_id, patch))

    # -- runs

    def trigger_event(
        self,
        event: str,
        data: Any = None,  # noqa: ANN401 - any JSON value
        *,
        event_id: str | None = None,
        by: str = DEFAULT_ACTOR,
        now: datetime | None = None,
    ) -> Delivery:
        """Queue a run for each handler of an event; the same ``event_id`` again makes no second one."""
        return self._change(by, now, lambda change: commands.trigger_event(change, event, data, event_id))

    def trigger_now(
        self,
        schedule_id: UUID,
        *,
        by: str = DEFAULT_ACTOR,
        payload: Any = None,  # noqa: ANN401 - any JSON value
        now: datetime | None = None,
    ) -> Run:
        """Queue a run besides the regular ones; refused for a disabled or paused schedule."""
        return self._change(by, now, lambda change: commands.trigger_now(change, schedule_id, payload))

    def retry(self, run_id: UUID, *, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Run:
        """Queue one run that repeats a run which failed or took too long."""
        return self._change(by, now, lambda change: commands.retry_run(change, run_id))

    def retry_schedule(self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Run:
        """Begin a failed schedule anew: its retry count is 0, its newest failed run is repeated."""
        return self._change(by, now, lambda change: commands.retry_schedule(change, schedule_id))

    # -- queries

    def get(self, schedule_id: UUID, *, now: datetime | None = None) -> Job | None:
        """Return a schedule of the tenant, or of all tenants."""
        return self._read(now, lambda session: queries.get_job(session, schedule_id))

    def list(self, query: ScheduleQuery | None = None, *, now: datetime | None = None) -> JobPage:
        """Return a page of schedules."""
        asked = ScheduleQuery() if query is None else query
        return self._read(now, lambda session: queries.list_jobs(session, asked))

    def history(self, schedule_id: UUID, query: HistoryQuery | None = None, *, now: datetime | None = None) -> History:
        """Return a page of a schedule's runs, in the order in which they were made."""
        asked = HistoryQuery() if query is None else query
        return self._read(now, lambda session: queries.list_history(session, schedule_id, asked))

    def get_execution(self, run_id: UUID, *, now: datetime | None = None) -> Execution | None:
        """Return a run with its log."""
        return self._read(now, lambda session: queries.get_execution(session, run_id))

    def metrics(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        zone: str = "UTC",
        now: datetime | None = None,
    ) -> Metrics:
        """Return the metrics of a window (the last 24 hours), and of today in a zone."""
        workers = [*self.store.workers.list()]

        def gather(session: Session) -> Metrics:
            living = health.alive_workers(workers, session.now, self._limits.silent_for)
            return queries.tenant_metrics(session, living, start=start, end=end, zone=zone)

        return self._read(now, gather)

    def stats(
        self,
        schedule_id: UUID,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        now: datetime | None = None,
    ) -> Stats:
        """Return statistics of one schedule: rates, durations, failures by pattern, busiest hours."""
        return self._read(now, lambda session: queries.schedule_stats(session, schedule_id, since=since, until=until))

    def health(self, *, now: datetime | None = None) -> HealthStatus:
        """Return how database, queue, workers and leader are; never raises for their sake."""
        return health.health_of(self.store, self.tenant, self._limits, now)

    def status(self, *, now: datetime | None = None) -> Status:
        """Return leader, instances, counts and what comes next."""
        return health.status_of(self.store, self.tenant, self._limits, now)

    # -- administration

    def seed_handlers(self, handlers: Sequence[Handler], *, now: datetime | None = None) -> Seeding:
        """Add handlers that are not known; done again it changes nothing, done otherwise it is reported."""
        return self._change(DEFAULT_ACTOR, now, lambda change: commands.seed_handlers(change.session, handlers))

    def purge(self) -> Mapping[str, int]:
        """Remove every row of the tenant, its audit trail included; return table to rows removed."""
        removed = self.store.purge(self.tenant)
        logger().warning("a tenant was removed", tenant=self.tenant, rows=sum(removed.values()))
        return removed

    def _read(self, now: datetime | None, ask: Callable[[Session], T]) -> T:
        with self.store.session(self.tenant, now=now) as session:
            return ask(session)

    def _change(self, by: str, now: datetime | None, make: Callable[[Change], T]) -> T:
        for left in reversed(range(MAX_ATTEMPTS)):
            try:
                with self.store.session(self.tenant, now=now) as session:
                    change = Change(session, by, self._new_id)
                    made = make(change)
            except ConflictError:  # a key that is taken stays taken; who was merely overtaken gets through
                if not left:
                    raise
            else:
                for event in change.events:
                    self._tell(event)
                return made
        raise AssertionError

    def _tell(self, event: Event) -> None:
        try:
            self._sink(event)
        except Exception as error:  # noqa: BLE001 - whatever the listener does, the change stands
            logger().warning("a listener to lifecycle events failed", name=event.name, error=type(error).__name__)
