"""Queries of the client: schedules, runs with their logs, metrics of a tenant, statistics of a schedule.

A window is half open, on the time at which a run was made; what is live is counted whenever it was made. Rates are
percentages with two decimals; None where there is nothing to divide by.
"""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import msgspec

from migrator import cron
from migrator.durations import length_of
from migrator.errors import NotFoundError, UsageError
from migrator.records import Schedule, Trigger, WorkerRecord
from migrator.scheduler import validation
from migrator.scheduler.models import Execution, History, Job, JobPage
from migrator.states import RUN_FAILED
from migrator.store.conflicts import repeat_session
from migrator.store.protocols import RunQuery, ScheduleQuery, Session, Store
from migrator.store.statistics import FailurePattern, RunFilter, RunStatistics

Answer = TypeVar("Answer")


def read(store: Store, tenant: str, now: datetime | None, ask: Callable[[Session], Answer]) -> Answer:
    """Return the answer of ``ask`` for a session of the tenant, in which it only reads.

    MongoDB ends a session that reads a collection which is created, or gets an index, at that moment, as happens when
    another process starts; then ``ask`` is called again, for a new session.
    """

    def once() -> Answer:
        with store.session(tenant, now=now) as session:
            return ask(session)

    return repeat_session(once)


def decided_runs(by_state: Mapping[str, int]) -> int:
    """Return how many runs have shown whether they succeed: completed, error, timeout."""
    return by_state["completed"] + failed_runs(by_state)


def failed_runs(by_state: Mapping[str, int]) -> int:
    """Return how many runs did not do their work: error, timeout."""
    return sum(by_state[state] for state in RUN_FAILED)


def success_rate(by_state: Mapping[str, int]) -> float | None:
    """Return the share of completed runs among those that succeeded or failed: what success rate means here.

    Runs that were cancelled, skipped, or have not ended say nothing either way.
    """
    return percent(by_state["completed"], decided_runs(by_state))


def failure_rate(by_state: Mapping[str, int]) -> float | None:
    """Return the share of failed runs among those that succeeded or failed."""
    return percent(failed_runs(by_state), decided_runs(by_state))


def completed_share(by_state: Mapping[str, int]) -> float | None:
    """Return the share of completed runs among all, live ones too: the success rate of some sources' jobs."""
    return percent(by_state["completed"], sum(by_state.values()))


def percent(part: int, whole: int) -> float | None:
    """Return a percentage with two decimals."""
    return None if not whole else round(100 * part / whole, 2)


_INSTANT = timedelta(microseconds=1)

MAX_LOG_LINES = 1000
"""Of a run's log so many lines are read, the first ones."""


def get_job(session: Session, schedule_id: UUID) -> Job | None:
    """Return a schedule of the tenant, or of all tenants."""
    validation.check_id("schedule_id", schedule_id)
    schedule = session.schedules.get(schedule_id)
    return None if schedule is None else jobs_of(session, [schedule])[0]


def get_job_by_name(session: Session, name: str) -> Job | None:
    """Return the schedule of this name."""
    schedule = session.schedules.by_name(name)
    return None if schedule is None else jobs_of(session, [schedule])[0]


def list_jobs(session: Session, query: ScheduleQuery) -> JobPage:
    """Return a page of schedules, and how many there are."""
    for bound in ("created_after", "created_before", "next_fire_after", "next_fire_before"):
        validation.instant(bound, getattr(query, bound))
    for several in ("statuses", "kinds", "handlers", "tags_any", "tags_all"):
        validation.check_several(several, getattr(query, several))
    schedules = session.schedules.list(query)
    # A first page that is not full is all there is: it need not be counted again.
    total = len(schedules) if query.offset == 0 and len(schedules) < query.limit else session.schedules.count(query)
    return JobPage(jobs=tuple(jobs_of(session, schedules)), total=total, limit=query.limit, offset=query.offset)


def list_history(
    session: Session,
    schedule_id: UUID,
    query: RunQuery,
    *,
    since: datetime | None,
    until: datetime | None,
    include_logs: bool,
) -> History:
    """Return a page of a schedule's runs; those of a schedule that was removed stay readable."""
    validation.check_id("schedule_id", schedule_id)
    since, until = validation.window(since, until)
    after = None if since is None else since - _INSTANT  # bounds are exclusive there
    page = session.runs.list(
        msgspec.structs.replace(query, schedule_id=schedule_id, created_after=after, created_before=until)
    )
    if not page.runs:
        check_known(session, schedule_id)
    logs = session.execution_logs
    executions = [
        Execution(run=run, logs=tuple(logs.of_run(run.id, MAX_LOG_LINES)) if include_logs else ()) for run in page.runs
    ]
    return History(executions=tuple(executions), more=page.cursor is not None)


def get_execution(session: Session, run_id: UUID) -> Execution | None:
    """Return a run with its log."""
    validation.check_id("run_id", run_id)
    run = session.runs.get(run_id)
    return None if run is None else Execution(run=run, logs=tuple(session.execution_logs.of_run(run_id, MAX_LOG_LINES)))


def check_known(session: Session, schedule_id: UUID) -> None:
    """Raise ``NotFoundError`` for a schedule that the tenant neither sees nor has runs of."""
    if session.schedules.get(schedule_id) is None and not session.runs.of_schedule(schedule_id, 1):
        raise NotFoundError(f"no schedule {schedule_id}")


def jobs_of(session: Session, schedules: Sequence[Schedule]) -> list[Job]:
    """Return schedules with their triggers."""
    triggers: dict[UUID, list[Trigger]] = {schedule.id: [] for schedule in schedules}
    for trigger in session.triggers.of_schedules(list(triggers)) if triggers else ():
        triggers[trigger.schedule_id].append(trigger)
    waiting = waiting_schedules(session, schedules)
    return [
        Job(schedule=schedule, triggers=tuple(triggers[schedule.id]), waits=schedule.id in waiting)
        for schedule in schedules
    ]


def waiting_schedules(session: Session, schedules: Sequence[Schedule]) -> frozenset[UUID]:
    """Return the ids of those of them that are running only because a run of them is queued: no worker executes one."""
    running = [schedule.id for schedule in schedules if schedule.status == "running"]
    if not running:
        return frozenset()
    queued = {run.schedule_id for run in session.runs.newest_of(running, ("queued",))}
    begun = {run.schedule_id for run in session.runs.newest_of(running, ("running",))}
    return frozenset(identity for identity in running if identity in queued - begun)


METRICS_WINDOW = timedelta(hours=24)
"""Where none is asked for: up to now."""

_STARTED_AT, _CPU_AT_START = time.monotonic(), time.process_time()


class JobMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that are not deleted, by status; ``active`` are those that may run (``scheduled`` or ``running``)."""

    total: int
    enabled: int
    active: int
    pending: int
    scheduled: int
    running: int
    paused: int
    completed: int
    failed: int
    cancelled: int


class ExecutionMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Runs made in the window; ``pending`` and ``running`` are all there are, whenever they were made."""

    total: int
    successful: int
    failed: int
    timeout: int
    cancelled: int
    skipped: int
    pending: int
    running: int


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """How well runs of the window did; durations are those of completed runs."""

    success_rate: float | None
    failure_rate: float | None
    completed_share: float | None
    avg_duration: timedelta | None
    p50_duration: timedelta | None
    p95_duration: timedelta | None
    p99_duration: timedelta | None


class QueueMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Live runs, and failures of the window."""

    size: int
    """Queued and available."""
    processing: int
    delayed: int
    """Queued, and available later."""
    failed: int
    """Error or timeout, in the window."""
    oldest_wait: timedelta
    """For how long the longest waiting of the available ones waits."""


class SystemMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """This process, and the workers that are alive."""

    workers: int
    memory_usage_mb: float
    """Most that this process ever held."""
    cpu_usage_percent: float
    """Processor time of this process over ``uptime``, of one processor."""
    uptime: timedelta


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """Runs made since midnight in a zone."""

    zone: str
    since: datetime
    completed: int
    failed: int
    failure_rate: float | None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    jobs: JobMetrics
    executions: ExecutionMetrics
    performance: Performance
    queue: QueueMetrics
    system: SystemMetrics
    today: Today
    start: datetime
    """Of the window, inclusive."""
    end: datetime
    """Exclusive, unless it is now."""
    generated_at: datetime


def tenant_metrics(
    session: Session, workers: list[WorkerRecord], *, start: datetime | None, end: datetime | None, zone: str
) -> Metrics:
    """Return the metrics of a window; ``workers`` are those alive. Raises ``UsageError``, ``ZoneError``."""
    now = session.now
    until = validation.instant("end", end)
    since = validation.instant("start", start) or (until or now) - METRICS_WINDOW
    if (until or now) <= since:
        raise UsageError("end must come after start")
    midnight = _midnight(now, zone)
    statistics = session.statistics
    runs = statistics.runs(RunFilter(since=since, until=until))
    today = statistics.runs(RunFilter(since=midnight)).by_state
    schedules, backlog = statistics.schedules(), statistics.backlog()
    waited = timedelta(0) if backlog.oldest_ready_at is None else now - backlog.oldest_ready_at
    counts = schedules.by_status
    return Metrics(
        jobs=JobMetrics(
            total=schedules.total,
            enabled=schedules.enabled,
            active=counts["scheduled"] + counts["running"],
            **counts,
        ),
        executions=ExecutionMetrics(
            total=runs.total,
            successful=runs.by_state["completed"],
            failed=runs.by_state["error"],
            timeout=runs.by_state["timeout"],
            cancelled=runs.by_state["cancelled"],
            skipped=runs.by_state["skipped"],
            pending=backlog.ready + backlog.delayed + backlog.planning,
            running=backlog.running,
        ),
        performance=performance_of(runs),
        queue=QueueMetrics(
            size=backlog.ready,
            processing=backlog.running,
            delayed=backlog.delayed,
            failed=failed_runs(runs.by_state),
            oldest_wait=max(waited, timedelta(0)),
        ),
        system=_system(len(workers)),
        today=Today(
            zone=zone,
            since=midnight,
            completed=today["completed"],
            failed=failed_runs(today),
            failure_rate=failure_rate(today),
        ),
        start=since,
        end=until or now,
        generated_at=now,
    )


def performance_of(runs: RunStatistics) -> Performance:
    """Return rates and durations of runs that were counted."""
    lasted = runs.durations
    return Performance(
        success_rate=success_rate(runs.by_state),
        failure_rate=failure_rate(runs.by_state),
        completed_share=completed_share(runs.by_state),
        avg_duration=mean_duration(runs),
        p50_duration=None if lasted is None else length_of(lasted.p50),
        p95_duration=None if lasted is None else length_of(lasted.p95),
        p99_duration=None if lasted is None else length_of(lasted.p99),
    )


def mean_duration(runs: RunStatistics) -> timedelta | None:
    """Return the mean duration, of the durations themselves, to 10 microseconds: it does not drift."""
    return None if runs.durations is None else length_of(round(runs.durations.total / runs.durations.count, 2))


def _midnight(now: datetime, zone: str) -> datetime:
    where, _ = cron.zone(zone)
    return now.astimezone(where).replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)


def _system(workers: int) -> SystemMetrics:
    used = resource.getrusage(resource.RUSAGE_SELF)
    uptime = time.monotonic() - _STARTED_AT
    per_mb = 1_048_576 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return SystemMetrics(
        workers=workers,
        memory_usage_mb=round(used.ru_maxrss / per_mb, 1),
        cpu_usage_percent=round(100 * (time.process_time() - _CPU_AT_START) / uptime, 2) if uptime else 0.0,
        uptime=timedelta(seconds=round(uptime, 3)),
    )


MAX_FAILURE_PATTERNS = 10
MAX_BUSIEST_HOURS = 5


class NextExecution(msgspec.Struct, frozen=True, kw_only=True):
    """What is to come."""

    scheduled_at: datetime
    estimated_duration: timedelta | None
    """The mean so far."""


class BusyHour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour of the day, UTC."""

    hour: int
    runs: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a schedule; for an event's handler, ``total`` is how often it was triggered."""

    schedule_id: UUID
    total: int
    successful: int
    failed: int
    """Error alone; a run that took too long counts under ``timeout``."""
    timeout: int
    by_state: Mapping[str, int]
    success_rate: float | None
    failure_rate: float | None
    completed_share: float | None
    avg_duration: timedelta | None
    min_duration: timedelta | None
    max_duration: timedelta | None
    last_started_at: datetime | None
    last_triggered_at: datetime | None
    """When its newest run was made."""
    next_execution: NextExecution | None
    failure_patterns: tuple[FailurePattern, ...]
    """Most frequent first."""
    busiest_hours: tuple[BusyHour, ...]
    """Busiest first; of equally busy ones the earlier."""


def schedule_stats(session: Session, schedule_id: UUID, *, since: datetime | None, until: datetime | None) -> Stats:
    """Return the statistics of a schedule; raises ``NotFoundError``, ``UsageError``."""
    validation.check_id("schedule_id", schedule_id)
    since, until = validation.window(since, until)
    where = RunFilter(schedule_id=schedule_id, since=since, until=until)
    check_known(session, schedule_id)
    runs = session.statistics.runs(where)
    lasted, mean = runs.durations, mean_duration(runs)
    found = get_job(session, schedule_id)
    fire = None if found is None else found.next_fire_at
    hours = sorted(session.statistics.hours(where).items(), key=lambda one: (-one[1], one[0]))
    return Stats(
        schedule_id=schedule_id,
        total=runs.total,
        successful=runs.by_state["completed"],
        failed=runs.by_state["error"],
        timeout=runs.by_state["timeout"],
        by_state=runs.by_state,
        success_rate=success_rate(runs.by_state),
        failure_rate=failure_rate(runs.by_state),
        completed_share=completed_share(runs.by_state),
        avg_duration=mean,
        min_duration=None if lasted is None else length_of(lasted.least),
        max_duration=None if lasted is None else length_of(lasted.most),
        last_started_at=runs.last_started_at,
        last_triggered_at=runs.last_created_at,
        next_execution=None if fire is None else NextExecution(scheduled_at=fire, estimated_duration=mean),
        failure_patterns=tuple(session.statistics.failures(where, MAX_FAILURE_PATTERNS)),
        busiest_hours=tuple(BusyHour(hour=hour, runs=count) for hour, count in hours[:MAX_BUSIEST_HOURS]),
    )
