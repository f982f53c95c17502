"""Figures of a tenant's scheduler: jobs, executions, performance, queue, system; over a window, and for today.

The window is half open, on the time at which a run was made; what is live is counted whenever it was made.
"""

import resource
import sys
import time
from datetime import UTC, datetime, timedelta

import msgspec

from migrator import cron
from migrator.errors import UsageError
from migrator.records import WorkerRecord
from migrator.scheduler import checks, rates
from migrator.store.protocols import Session
from migrator.store.statistics import RunFilter, RunStatistics

WINDOW = timedelta(hours=24)
"""Where none is asked for: up to now."""

_BORN, _SPENT = time.monotonic(), time.process_time()


class JobFigures(msgspec.Struct, frozen=True, kw_only=True):
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


class ExecutionFigures(msgspec.Struct, frozen=True, kw_only=True):
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
    """How well runs of the window did; durations are those of completed runs, in milliseconds."""

    success_rate: float | None
    failure_rate: float | None
    completed_share: float | None
    avg_duration_ms: float | None
    p50_duration_ms: int | None
    p95_duration_ms: int | None
    p99_duration_ms: int | None


class QueueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Live runs, and failures of the window."""

    size: int
    """Queued and available."""
    processing: int
    delayed: int
    """Queued, and available later."""
    failed: int
    """Error or timeout, in the window."""
    oldest_wait_s: float
    """For how long the longest waiting of the available ones waits."""


class SystemFigures(msgspec.Struct, frozen=True, kw_only=True):
    """This process, and the workers that are alive."""

    workers: int
    memory_usage_mb: float
    """Most that this process ever held."""
    cpu_usage_percent: float
    """Processor time of this process over ``uptime_seconds``, of one processor."""
    uptime_seconds: float


class Today(msgspec.Struct, frozen=True, kw_only=True):
    """Runs made since midnight in a zone."""

    zone: str
    since: datetime
    completed: int
    failed: int
    failure_rate: float | None


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    jobs: JobFigures
    executions: ExecutionFigures
    performance: Performance
    queue: QueueFigures
    system: SystemFigures
    today: Today
    start: datetime
    """Of the window, inclusive."""
    end: datetime
    """Exclusive, unless it is now."""
    generated_at: datetime


def gather(
    session: Session, workers: list[WorkerRecord], *, start: datetime | None, end: datetime | None, zone: str
) -> Metrics:
    """Return the figures of a window; ``workers`` are those alive. Raises ``UsageError``, ``ZoneError``."""
    now = session.now
    until = checks.moment("end", end)
    since = checks.moment("start", start) or (until or now) - WINDOW
    if (until or now) <= since:
        raise UsageError("end must come after start")
    midnight = _midnight(now, zone)
    figures = session.statistics
    runs = figures.runs(RunFilter(since=since, until=until))
    today = figures.runs(RunFilter(since=midnight)).by_state
    schedules, backlog = figures.schedules(), figures.backlog()
    waited = timedelta(0) if backlog.oldest_ready_at is None else now - backlog.oldest_ready_at
    counts = schedules.by_status
    return Metrics(
        jobs=JobFigures(
            total=schedules.total,
            enabled=schedules.enabled,
            active=counts["scheduled"] + counts["running"],
            **counts,
        ),
        executions=ExecutionFigures(
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
        queue=QueueFigures(
            size=backlog.ready,
            processing=backlog.running,
            delayed=backlog.delayed,
            failed=rates.failed(runs.by_state),
            oldest_wait_s=max(waited.total_seconds(), 0.0),
        ),
        system=_system(len(workers)),
        today=Today(
            zone=zone,
            since=midnight,
            completed=today["completed"],
            failed=rates.failed(today),
            failure_rate=rates.failure_rate(today),
        ),
        start=since,
        end=until or now,
        generated_at=now,
    )


def performance_of(runs: RunStatistics) -> Performance:
    """Return rates and durations of runs that were counted."""
    lasted = runs.durations
    return Performance(
        success_rate=rates.success_rate(runs.by_state),
        failure_rate=rates.failure_rate(runs.by_state),
        completed_share=rates.completed_share(runs.by_state),
        avg_duration_ms=average(runs),
        p50_duration_ms=None if lasted is None else lasted.p50,
        p95_duration_ms=None if lasted is None else lasted.p95,
        p99_duration_ms=None if lasted is None else lasted.p99,
    )


def average(runs: RunStatistics) -> float | None:
    """Return the mean duration in milliseconds, of the durations themselves: it does not drift."""
    return None if runs.durations is None else round(runs.durations.total / runs.durations.count, 2)


def _midnight(now: datetime, zone: str) -> datetime:
    where, _ = cron.zone(zone)
    return now.astimezone(where).replace(hour=0, minute=0, second=0, microsecond=0, fold=0).astimezone(UTC)


def _system(workers: int) -> SystemFigures:
    used = resource.getrusage(resource.RUSAGE_SELF)
    uptime = time.monotonic() - _BORN
    per_mb = 1_048_576 if sys.platform == "darwin" else 1024  # bytes there, kilobytes elsewhere
    return SystemFigures(
        workers=workers,
        memory_usage_mb=round(used.ru_maxrss / per_mb, 1),
        cpu_usage_percent=round(100 * (time.process_time() - _SPENT) / uptime, 2) if uptime else 0.0,
        uptime_seconds=round(uptime, 3),
    )
