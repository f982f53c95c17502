"""The client of the scheduler: what an application calls to make, change, run and read schedules."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeVar, Unpack
from uuid import UUID, uuid4

from migrator.argument_types import checked
from migrator.errors import NotFoundError, UsageError
from migrator.log import logger
from migrator.records import Handler, Run
from migrator.scheduler import commands, creation, health, queries, validation
from migrator.scheduler.commands import Change
from migrator.scheduler.completion import Outcome, OutcomeState, expired_outcome, finish_of
from migrator.scheduler.health import HealthStatus, Limits, Status
from migrator.scheduler.lifecycle import Event, EventSink, ignore, tell
from migrator.scheduler.models import (
    Changes,
    Delivery,
    Execution,
    History,
    Job,
    JobPage,
    ScheduleRequest,
    Seeding,
    Timing,
)
from migrator.scheduler.queries import Metrics, Stats
from migrator.scheduler.recorder import EndedRun, Recorder, end_line
from migrator.store.conflicts import repeat_session
from migrator.store.protocols import PsycopgConnection, RunQuery, ScheduleQuery, Session, Store, Transactional
from migrator.store.queue import Claim

T = TypeVar("T")

DEFAULT_ACTOR: Final = "api"
"""Who acts, where nobody is named."""


class Scheduler:
    """The client of one tenant: it creates, changes, runs and reads schedules. It may be used by any number of threads.

    Every method takes ``now``, an instant with a time zone, which is meant for tests; if omitted, it is the database's
    clock. A change is one transaction: the rows, the entry of the audit trail, and the lifecycle event that ``sink``
    gets after the commit. ``by`` says who acts and ``reason`` why; both are in the entry of the audit trail. Two
    changes of one schedule at the same moment are carried out one after the other.

    Raises ``UsageError`` for bad input, a wrong type too (``RefusedError`` if something else must be done first),
    ``NotFoundError`` for an id that the tenant does not have (``get`` and ``get_execution`` return None),
    ``TransitionError`` for a change that the state does not allow, ``ConflictError`` for an id or a name that is taken,
    ``OvertakenError`` if other sessions kept changing the same rows for the half second in which the change was tried
    again, ``UnreachableError`` if the database cannot be reached, and ``BackendMovedError`` after a cutover or a
    rollback moved the data: read the settings and open the store again.
    After an error nothing is changed; after ``UnreachableError`` in the middle of a commit that is not certain.
    """

    @checked
    def __init__(
        self,
        store: Store,
        tenant: str,
        *,
        sink: EventSink = ignore,
        new_id: Callable[[], UUID] = uuid4,
        limits: Limits | None = None,
    ) -> None:
        """``sink`` is called with each lifecycle event after the commit; what it raises is logged.

        ``new_id`` returns the ids of new rows; ``limits`` are those of ``health`` and ``status``.
        """
        self.store, self.tenant = store, tenant
        self._sink, self._new_id = sink, new_id
        self._limits = Limits() if limits is None else limits

    def using(self, connection: PsycopgConnection) -> "TransactionScheduler":
        """Return the client whose calls are part of the transaction of a connection of the application (PostgreSQL).

        What a call creates and queues exists if, and only if, the application commits. ``connection``: of psycopg 3,
        synchronous or asynchronous, to the store's database. ``UsageError`` on MongoDB.
        """
        if not hasattr(connection, "pgconn"):
            raise UsageError(f"connection must be a connection of psycopg 3, not {type(connection).__name__}")
        if self.store.backend != "postgres" or not isinstance(self.store, Transactional):
            raise UsageError(
                f"the data is in {self.store.backend}, and only a client on PostgreSQL takes part in the application's"
                " transaction: call the client itself, after the commit"
            )
        return TransactionScheduler(
            self.store.using(connection), self.tenant, sink=self._sink, new_id=self._new_id, limits=self._limits
        )

    # -- creation

    @checked
    def schedule(self, request: ScheduleRequest, *, now: datetime | None = None) -> Job:
        """Create a schedule that recurs by a cron line or an interval, within bounds of time and number."""
        return self._change(request.created_by, now, lambda change: creation.create_recurring(change, request))

    @checked
    def schedule_once(
        self, request: ScheduleRequest, run_at: datetime | None = None, *, now: datetime | None = None
    ) -> Job:
        """Create a schedule that fires once; if ``run_at`` is omitted: at once. ``UsageError`` for a time in the past.

        The request has neither a cron line, nor an interval, nor bounds.
        """
        return self._change(request.created_by, now, lambda change: creation.create_once(change, request, run_at))

    @checked
    def ensure(self, request: ScheduleRequest, *, now: datetime | None = None) -> Job:
        """Create a schedule that recurs, or change the one of this name into it. Called again, it writes nothing.

        All fields of the request count, those that are omitted too, except ``enabled`` and ``id``, which a new schedule
        gets: one that was paused or disabled stays so. Only another timing, start or end plans another next fire.
        ``ConflictError`` for the name of a schedule with another id than ``request.id``, ``UsageError`` for that of one
        that does not recur.
        """
        return self._change(request.created_by, now, lambda change: creation.ensure(change, request))

    @checked
    def on_event(
        self,
        event: str,
        handler_name: str,
        *,
        name: str | None = None,
        schedule_id: UUID | None = None,
        handler_type: str = "function",
        payload: Any = None,  # noqa: ANN401 - any JSON value
        enabled: bool = True,
        priority: int | str = 50,
        max_retries: int = 3,
        timeout: timedelta | None = None,
        max_concurrency: int | None = None,
        by: str = DEFAULT_ACTOR,
        now: datetime | None = None,
    ) -> Job:
        """Create a schedule that runs a handler at each event of this name; ``ConflictError`` if ``name`` is taken.

        ``name``, if omitted: ``<event>:<handler>``. The other parameters are those of ``ScheduleRequest``.
        """
        request = ScheduleRequest(
            name=f"{event}:{handler_name}" if name is None else name,
            handler_name=handler_name,
            created_by=by,
            id=schedule_id,
            handler_type=handler_type,
            payload=payload,
            enabled=enabled,
            priority=priority,
            max_retries=max_retries,
            timeout=timeout,
            max_concurrency=max_concurrency,
        )
        return self._change(by, now, lambda change: creation.create_event_handler(change, event, request))

    # -- changes

    @checked
    def reschedule(
        self,
        schedule_id: UUID,
        *,
        cron: str | None = None,
        dialect: str = "debian",
        timezone: str = "UTC",
        interval: timedelta | None = None,
        anchor: Literal["fixed_rate", "completion"] = "fixed_rate",
        by: str = DEFAULT_ACTOR,
        now: datetime | None = None,
    ) -> Job:
        """Give a recurring schedule another timing, counted from now. Its runs and counts stay.

        The parameters are those of ``ScheduleRequest``: a cron line or an interval, exactly one of them.
        """
        timing = Timing(cron=cron, dialect=dialect, timezone=timezone, interval=interval, anchor=anchor)
        return self._change(by, now, lambda change: commands.reschedule(change, schedule_id, timing))

    @checked
    def unschedule(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str | None = None, now: datetime | None = None
    ) -> None:
        """Mark a schedule as deleted: it does not fire again, and its runs stay readable.

        Waiting runs are cancelled; a running one may end. ``RefusedError`` for a schedule of a system handler.
        """
        self._change(by, now, lambda change: commands.unschedule(change, schedule_id), reason)

    @checked
    def pause(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str | None = None, now: datetime | None = None
    ) -> Job:
        """Pause a schedule that is scheduled: it does not fire until ``resume``.

        A job that fires once may be paused too while its run waits.
        """
        return self._change(by, now, lambda change: commands.pause(change, schedule_id), reason)

    @checked
    def resume(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str | None = None, now: datetime | None = None
    ) -> Job:
        """Let a paused schedule fire again, in its phase. Missed slots fire only if its misfire policy says so."""
        return self._change(by, now, lambda change: commands.resume(change, schedule_id), reason)

    @checked
    def cancel(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str = "cancelled", now: datetime | None = None
    ) -> Job:
        """Cancel a schedule and all its live runs. It cannot be resumed."""
        return self._change(by, now, lambda change: commands.cancel(change, schedule_id, reason))

    @checked
    def toggle(self, schedule_id: UUID, *, enabled: bool, by: str = DEFAULT_ACTOR, now: datetime | None = None) -> Job:
        """Enable or disable a schedule. Workers heed it from their next poll on."""
        return self._change(by, now, lambda change: commands.toggle(change, schedule_id, enabled=enabled))

    @checked
    def update(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, now: datetime | None = None, **changes: Unpack[Changes]
    ) -> Job:
        """Change a schedule except for its timing: ``reschedule`` does that. What is not named stays as it is.

        ``changes`` are fields of ``ScheduleRequest``: ``name``, ``description``, ``handler_name``, ``handler_type``,
        ``queue``, ``payload``, ``priority``, ``max_retries``, ``retry_delay``, ``retry_strategy``,
        ``retry_cap``, ``on_exhausted``, ``timeout``, ``max_concurrency``, ``tags``, ``metadata``.
        """
        return self._change(by, now, lambda change: commands.update(change, schedule_id, changes))

    # -- runs

    @checked
    def trigger_event(
        self,
        event: str,
        data: Any = None,  # noqa: ANN401 - any JSON value
        *,
        event_id: str | None = None,
        by: str = DEFAULT_ACTOR,
        now: datetime | None = None,
    ) -> Delivery:
        """Queue a run for each handler of an event. Called again with the same ``event_id``, it queues no second run.

        ``data``: any JSON value; a handler reads it as ``context.asked["payload"]``.
        """
        return self._change(by, now, lambda change: commands.trigger_event(change, event, data, event_id))

    @checked
    def trigger_now(
        self,
        schedule_id: UUID,
        *,
        by: str = DEFAULT_ACTOR,
        reason: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> Run:
        """Queue a run now, in addition to the planned ones; ``RefusedError`` for a disabled or paused schedule.

        ``arguments``: keywords of the handler, for this run and its retries, in addition to the members of the
        schedule's payload and instead of those with the same name. Their values are JSON.
        """
        return self._change(by, now, lambda change: commands.trigger_now(change, schedule_id, arguments), reason)

    @checked
    def retry(
        self, run_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str | None = None, now: datetime | None = None
    ) -> Run:
        """Queue one run that repeats a run in state ``error`` or ``timeout``. A run is repeated once."""
        return self._change(by, now, lambda change: commands.retry_run(change, run_id), reason)

    @checked
    def retry_schedule(
        self, schedule_id: UUID, *, by: str = DEFAULT_ACTOR, reason: str | None = None, now: datetime | None = None
    ) -> Run:
        """Let a failed schedule begin again: its retry count becomes 0, and its newest failed run is repeated."""
        return self._change(by, now, lambda change: commands.retry_schedule(change, schedule_id), reason)

    # -- execution, for an application that executes runs without a ``Worker``

    @checked
    def claim(
        self,
        worker_id: str,
        limit: int = 1,
        lease: timedelta = timedelta(minutes=5),
        *,
        queues: Sequence[str] | None = None,
        now: datetime | None = None,
    ) -> Sequence[Claim]:
        """Claim queued runs of the tenant, by priority and then by time; ``queues``: only of these, if omitted: of all.

        ``worker_id`` says who executes them; no other worker gets them. ``heartbeat`` renews the lease, which says that
        somebody works on them. ``rescue`` ends the runs whose lease is over. A leading ``Worker`` does so for the
        workers, and for the executors that ``[scheduler] executors`` names.
        """
        validation.check_several("queues", queues)
        return self.store.queue.claim(worker_id, limit, lease, now, queues=queues, tenants=[self.tenant])

    @checked
    def finish(
        self,
        claim: Claim,
        state: OutcomeState = "completed",
        *,
        result: Any = None,  # noqa: ANN401 - any JSON value
        error: str | None = None,
        error_detail: str | None = None,
        final: bool = False,
        now: datetime | None = None,
    ) -> bool:
        """Write how a claimed run ended; False if the claim no longer holds, and nothing was written.

        A run that failed (``error``, ``timeout``) gets a retry if its schedule allows one, and not if it is ``final``:
        a retry would end the same way. A schedule that will not
        fire again is ended by a leading worker at its next sweep, if a worker has its handler.
        """
        written = validation.encode_json("result", result)
        outcome = Outcome(state=state, result=written, error=error, error_detail=error_detail, final=final)
        at = self.store.now() if now is None else now
        return bool(self.store.queue.finish([finish_of(claim, outcome, at)], now))

    @checked
    def lost(
        self, workers: Sequence[str] | None = None, *, limit: int = 100, now: datetime | None = None
    ) -> Sequence[Claim]:
        """Return running runs whose lease is over, or whose time: by the end of the lease. Nothing is changed.

        ``workers``: only of those who claimed by these ids (``worker_id`` of ``claim``); if omitted: of whoever.
        """
        validation.check_several("workers", workers)
        return self.store.queue.expired(limit, now, [self.tenant], workers=workers)

    @checked
    def rescue(self, workers: Sequence[str], *, limit: int = 100, now: datetime | None = None) -> Sequence[Claim]:
        """End the lost runs that these claimed; return those that ended. A retry is queued if the schedule allows one.

        ``workers``: the ids by which an application's executors claim. A run whose lease was renewed meanwhile goes on.
        The end is recorded as a worker records it.
        """
        claims = self.lost(workers, limit=limit, now=now)
        at = self.store.now() if now is None else now
        ends = [finish_of(claim, expired_outcome(claim, at), at) for claim in claims]
        written = set(self.store.queue.expire(ends, now))
        ended = [
            EndedRun(claim=claim, finish=end, lines=[end_line(end, at)])
            for claim, end in zip(claims, ends, strict=True)
            if end.run_id in written
        ]
        clock = None if now is None else lambda: at
        Recorder(self.store, sink=self._sink, clock=clock).ended(ended)
        return [run.claim for run in ended]

    # -- runs that another system executes

    @checked
    def complete(
        self,
        run_id: UUID,
        state: OutcomeState = "completed",
        *,
        fence: int | None = None,
        result: Any = None,  # noqa: ANN401 - any JSON value
        error: str | None = None,
        error_detail: str | None = None,
        final: bool = False,
        now: datetime | None = None,
    ) -> bool:
        """End a run that another system executes, from any process; return False if it is not running any more.

        ``fence``: ``Request.fence`` of the call that handed the run over. With it, a task of an earlier claim ends
        nothing that was claimed again since; if omitted, whichever claim holds the run is ended. The other parameters
        are those of ``finish``. The end is recorded as a worker records it: log, audit trail, summary and schedule.
        """
        written = validation.encode_json("result", result)
        outcome = Outcome(state=state, result=written, error=error, error_detail=error_detail, final=final)
        claim = self._held(run_id, fence, now)
        if claim is None:
            return False
        at = self.store.now() if now is None else now
        end = finish_of(claim, outcome, at)
        if not self.store.queue.finish([end], now):
            return False
        line = end_line(end, at)
        clock = None if now is None else lambda: at
        Recorder(self.store, sink=self._sink, clock=clock).ended([EndedRun(claim=claim, finish=end, lines=[line])])
        return True

    @checked
    def heartbeat(
        self,
        run_id: UUID,
        lease: timedelta = timedelta(minutes=5),
        *,
        fence: int | None = None,
        now: datetime | None = None,
    ) -> bool:
        """Renew the lease of a run that another system executes; return False if it is not running any more.

        False tells the other system to stop: the run was cancelled, has timed out or was taken away. ``fence`` as for
        ``complete``. While its process renews the lease, the run goes on even if the worker that sent it has ended.
        """
        claim = self._held(run_id, fence, now)
        return claim is not None and bool(self.store.queue.heartbeat([claim], lease, now))

    # -- queries

    @checked
    def get(self, schedule_id: UUID, *, now: datetime | None = None) -> Job | None:
        """Return a schedule of the tenant, or one of all tenants (``*``); None if there is none, or it was deleted."""
        return self._read(now, lambda session: queries.get_job(session, schedule_id))

    @checked
    def get_by_name(self, name: str, *, now: datetime | None = None) -> Job | None:
        """Return the tenant's schedule of this name, else that of all tenants (``*``); None if there is none.

        Of several, as a copy may hold them, it is one that was not copied, else the one with the lowest id.
        """
        return self._read(now, lambda session: queries.get_job_by_name(session, name))

    @checked
    def list(self, query: ScheduleQuery | None = None, *, now: datetime | None = None) -> JobPage:
        """Return a page of schedules; if the query is omitted: the first 50, newest first."""
        asked = ScheduleQuery() if query is None else query
        return self._read(now, lambda session: queries.list_jobs(session, asked))

    @checked
    def history(
        self,
        schedule_id: UUID,
        *,
        limit: int = 10,
        offset: int = 0,
        states: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        include_logs: bool = False,
        descending: bool = True,
        now: datetime | None = None,
    ) -> History:
        """Return a page of a schedule's runs by creation time; runs that never started are among them.

        ``states``: only runs in these; ``since``: created at this instant or later; ``until``: created before this
        instant; ``descending``: newest first.
        """
        validation.check_several("states", states)
        query = RunQuery(states=tuple(states), limit=limit, offset=offset, descending=descending)
        return self._read(
            now,
            lambda session: queries.list_history(
                session, schedule_id, query, since=since, until=until, include_logs=include_logs
            ),
        )

    @checked
    def get_execution(self, run_id: UUID, *, now: datetime | None = None) -> Execution | None:
        """Return a run with its log (the first 1,000 lines); None if there is none."""
        return self._read(now, lambda session: queries.get_execution(session, run_id))

    @checked
    def metrics(
        self,
        start: datetime | None = None,
        end: datetime | None = None,
        *,
        zone: str = "UTC",
        now: datetime | None = None,
    ) -> Metrics:
        """Return counts, rates (percent) and durations of a window, and of today in ``zone``.

        The window is that of the last 24 hours, unless ``start`` and ``end`` are given.
        """
        workers = [*self.store.workers.list()]

        def gather(session: Session) -> Metrics:
            living = health.alive_workers(workers, session.now, self._limits.silent_for)
            return queries.tenant_metrics(session, living, start=start, end=end, zone=zone)

        return self._read(now, gather)

    @checked
    def stats(
        self,
        schedule_id: UUID,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        now: datetime | None = None,
    ) -> Stats:
        """Return statistics of one schedule: rates (percent), durations, failures by pattern, busiest hours."""
        return self._read(now, lambda session: queries.schedule_stats(session, schedule_id, since=since, until=until))

    @checked
    def health(self, *, now: datetime | None = None) -> HealthStatus:
        """Return the condition of database, queue, workers and leader. What cannot be reached is part of the answer."""
        return health.health_of(self.store, self.tenant, self._limits, now)

    @checked
    def status(self, *, now: datetime | None = None) -> Status:
        """Return the leader, the workers, counts by state, and the next fires of the tenant."""
        return health.status_of(self.store, [self.tenant], silent_for=self._limits.silent_for, now=now)

    # -- administration

    @checked
    def seed_handlers(self, handlers: Sequence[Handler], *, now: datetime | None = None) -> Seeding:
        """Add the handlers that are not stored; those that are stored with other values stay as they are."""
        return self._change(DEFAULT_ACTOR, now, lambda change: commands.seed_handlers(change.session, handlers))

    @checked
    def purge(self) -> Mapping[str, int]:
        """Remove every row of the tenant, its audit trail included; return each table with the rows removed.

        ``RefusedError`` if the user of the database may not act as the owner of the tables.
        """
        removed = self.store.purge(self.tenant)
        logger().warning("a tenant was removed", tenant=self.tenant, rows=sum(removed.values()))
        return removed

    def _held(self, run_id: UUID, fence: int | None, now: datetime | None) -> Claim | None:
        """Return the claim that holds a run; None if it is not running, or by another claim than that of ``fence``."""
        validation.check_id("run_id", run_id)

        def read(session: Session) -> Claim | None:
            run = session.runs.get(run_id)
            if run is None:
                raise NotFoundError(f"no run {run_id}")
            if run.state != "running" or (fence is not None and run.fence != fence):
                return None
            schedule = None if run.schedule_id is None else session.schedules.get(run.schedule_id)
            return Claim(run=run, schedule=schedule)

        return self._read(now, read)

    def _read(self, now: datetime | None, ask: Callable[[Session], T]) -> T:
        return queries.read(self.store, self.tenant, now, ask)

    def _change(self, by: str, now: datetime | None, make: Callable[[Change], T], reason: str | None = None) -> T:
        def once() -> tuple[T, Sequence[Event]]:
            with self.store.session(self.tenant, now=now) as session:
                change = Change(session, by, self._new_id, reason)
                made = make(change)
            return made, change.events

        made, events = repeat_session(once)
        tell(self._sink, events)
        return made


class TransactionScheduler(Scheduler):
    """The client in a transaction of the application (``Scheduler.using``): creates, changes and reads schedules.

    ``claim``, ``finish``, ``lost``, ``rescue``, ``complete``, ``heartbeat``, ``metrics``, ``health``, ``status`` and
    ``purge`` belong to no single tenant, and raise ``UsageError``. A call that is refused undoes only itself, and the
    transaction goes on. Each call needs an open transaction, or a connection that is not in autocommit. Nothing else
    may use the connection during a call.
    """

    def __init__(
        self,
        store: Store,
        tenant: str,
        *,
        sink: EventSink = ignore,
        new_id: Callable[[], UUID] = uuid4,
        limits: Limits | None = None,
    ) -> None:
        """``store``: that of the transaction (``Transactional.using``); the others are those of ``Scheduler``."""
        self._events: list[Event] = []
        super().__init__(store, tenant, sink=self._events.append, new_id=new_id, limits=limits)
        self._listener = sink

    def health(self, *, now: datetime | None = None) -> HealthStatus:
        """Raise ``UsageError``."""
        self.store.workers.list()
        return super().health(now=now)

    def publish(self) -> None:
        """Call ``sink`` with the lifecycle events of the calls so far: after the commit, and not after a rollback."""
        events, self._events[:] = [*self._events], []
        tell(self._listener, events)
