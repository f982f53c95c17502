"""Statistics of a tenant's schedules and runs, counted by the database.

A run counts in the period in which it was created (``created_at``), so that one that never started counts too.
Durations are those of completed runs, in whole milliseconds. A percentile p of n durations is the smallest one that at
least p * n of them do not exceed (nearest rank): always a duration that was measured, the same on each backend.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Final, Protocol
from uuid import UUID

import msgspec

PERCENTILES: Final = (0.5, 0.95, 0.99)


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs count; None is no bound."""

    schedule_id: UUID | None = None
    since: datetime | None = None
    """Inclusive."""
    until: datetime | None = None
    """Exclusive."""


class Durations(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of completed runs, in milliseconds."""

    count: int
    total: int
    least: int
    most: int
    p50: int
    p95: int
    p99: int


class RunStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of runs."""

    by_state: Mapping[str, int]
    """Every state, with 0 for a state without runs."""
    durations: Durations | None
    """None if no run completed."""
    last_started_at: datetime | None
    last_created_at: datetime | None

    @property
    def total(self) -> int:
        """Return the number of runs."""
        return sum(self.by_state.values())


class ScheduleStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a tenant's schedules that are not deleted."""

    by_status: Mapping[str, int]
    """Every status, with 0 for a status without schedules."""
    enabled: int

    @property
    def total(self) -> int:
        """Return the number of schedules."""
        return sum(self.by_status.values())


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """Live runs of a tenant, whenever they were created."""

    ready: int
    """Queued, and available now."""
    delayed: int
    """Queued, and available later (the delay of a retry)."""
    planning: int
    running: int
    running_schedules: int
    """Schedules that have a running run."""
    oldest_ready_at: datetime | None
    """Since when the ready run that waits longest is available."""


class FailurePattern(msgspec.Struct, frozen=True, kw_only=True):
    """Failed runs whose error begins alike."""

    pattern: str
    """The error up to its first colon; the state if a run has no error."""
    count: int
    last_at: datetime
    """When the last of them ended (was created, if the end is not known)."""


class NextFire(msgspec.Struct, frozen=True, kw_only=True):
    """A future fire."""

    at: datetime
    schedule_id: UUID
    trigger_id: UUID
    name: str
    """Of the schedule."""


class Statistics(Protocol):
    """Statistics of the session's tenant; they only read."""

    def schedules(self) -> ScheduleStatistics:
        """Count the schedules."""

    def runs(self, runs: RunFilter) -> RunStatistics:
        """Count the runs."""

    def backlog(self) -> Backlog:
        """Count what waits and what runs."""

    def failures(self, runs: RunFilter, limit: int) -> Sequence[FailurePattern]:
        """Return the most frequent beginnings of errors, most frequent first, then by code point."""

    def hours(self, runs: RunFilter) -> Mapping[int, int]:
        """Return the runs by the hour of the day (UTC) in which they started (were created, if they did not start)."""

    def removable(self, keep: int, before: datetime) -> Mapping[UUID | None, int]:
        """Return how many runs of each schedule ``Runs.beyond`` would list without a limit."""

    def next_fires(self, limit: int) -> Sequence[NextFire]:
        """Return the next fires, earliest first, then by trigger: of enabled triggers of schedules that may run.

        A schedule may run when it is enabled, not deleted, and its status is pending, scheduled or running.
        """


def rank(percentile: float, count: int) -> int:
    """Return the position of the percentile among ``count`` sorted values, from 1."""
    return max(1, ceil(percentile * count))
