"""Statistics of one schedule: over all runs that there are, or a window of them."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from migrator.errors import UsageError
from migrator.scheduler import checks, rates
from migrator.scheduler.metrics import average
from migrator.scheduler.reading import job, known
from migrator.store.protocols import Session
from migrator.store.statistics import FailurePattern, RunFilter

PATTERNS = 10
BUSIEST = 5


class NextExecution(msgspec.Struct, frozen=True, kw_only=True):
    """What is to come."""

    scheduled_at: datetime
    estimated_duration_ms: float | None
    """The mean so far."""


class BusyHour(msgspec.Struct, frozen=True, kw_only=True):
    """An hour of the day, UTC."""

    hour: int
    runs: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a schedule; for an event's handler, ``total`` is how often it was triggered."""

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
    avg_duration_ms: float | None
    min_duration_ms: int | None
    max_duration_ms: int | None
    last_started_at: datetime | None
    last_triggered_at: datetime | None
    """When its newest run was made."""
    next_execution: NextExecution | None
    failure_patterns: tuple[FailurePattern, ...]
    """Most frequent first."""
    busiest_hours: tuple[BusyHour, ...]
    """Busiest first; of equally busy ones the earlier."""


def of_schedule(session: Session, schedule_id: UUID, *, since: datetime | None, until: datetime | None) -> Stats:
    """Return the statistics of a schedule; raises ``NotFoundError``, ``UsageError``."""
    where = RunFilter(schedule_id=schedule_id, since=checks.moment("since", since), until=checks.moment("until", until))
    if where.since is not None and where.until is not None and where.until <= where.since:
        raise UsageError("until must come after since")
    known(session, schedule_id)
    runs = session.statistics.runs(where)
    lasted, mean = runs.durations, average(runs)
    found = job(session, schedule_id)
    fire = None if found is None else found.next_fire_at
    hours = sorted(session.statistics.hours(where).items(), key=lambda one: (-one[1], one[0]))
    return Stats(
        schedule_id=schedule_id,
        total=runs.total,
        successful=runs.by_state["completed"],
        failed=runs.by_state["error"],
        timeout=runs.by_state["timeout"],
        by_state=runs.by_state,
        success_rate=rates.success_rate(runs.by_state),
        failure_rate=rates.failure_rate(runs.by_state),
        completed_share=rates.completed_share(runs.by_state),
        avg_duration_ms=mean,
        min_duration_ms=None if lasted is None else lasted.least,
        max_duration_ms=None if lasted is None else lasted.most,
        last_started_at=runs.last_started_at,
        last_triggered_at=runs.last_created_at,
        next_execution=None if fire is None else NextExecution(scheduled_at=fire, estimated_duration_ms=mean),
        failure_patterns=tuple(session.statistics.failures(where, PATTERNS)),
        busiest_hours=tuple(BusyHour(hour=hour, runs=count) for hour, count in hours[:BUSIEST]),
    )
