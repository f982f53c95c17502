"""Figures of the model: the words of ``store.statistics`` read literally."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from migrator import states
from migrator.records import Run, Schedule, Trigger
from migrator.states import RUN_FAILED
from migrator.store import validation
from migrator.store.statistics import (
    PERCENTILES,
    Backlog,
    Durations,
    FailurePattern,
    NextFire,
    RunFilter,
    RunStatistics,
    ScheduleStatistics,
    rank,
)
from migrator.testing.memory.runs import MemoryRuns
from migrator.testing.memory.schedules import MAY_RUN
from migrator.testing.memory.table import MemoryTable, Tables


class MemoryStatistics:
    """``statistics.Statistics``."""

    def __init__(self, tables: Tables, tenant: str, now: datetime) -> None:
        self._now = now
        self._schedules = MemoryTable(Schedule, tables, tenant, now)
        self._triggers = MemoryTable(Trigger, tables, tenant, now)
        self._runs = MemoryTable(Run, tables, tenant, now)
        self._beyond = MemoryRuns(Run, tables, tenant, now).beyond

    def schedules(self) -> ScheduleStatistics:
        rows = [row for row in self._schedules._all() if row.deleted_at is None]
        counts = Counter(row.status for row in rows)
        return ScheduleStatistics(
            by_status={status: counts[status] for status in states.SCHEDULE},
            enabled=len([row for row in rows if row.enabled]),
        )

    def runs(self, runs: RunFilter) -> RunStatistics:
        rows = list(self._filtered(runs))
        counts = Counter(row.state for row in rows)
        lasted = sorted(row.duration_ms for row in rows if row.state == "completed" and row.duration_ms is not None)
        durations = None
        if lasted:
            p50, p95, p99 = (lasted[rank(percentile, len(lasted)) - 1] for percentile in PERCENTILES)
            durations = Durations(
                count=len(lasted), total=sum(lasted), least=lasted[0], most=lasted[-1], p50=p50, p95=p95, p99=p99
            )
        return RunStatistics(
            by_state={state: counts[state] for state in states.RUN},
            durations=durations,
            last_started_at=max((row.started_at for row in rows if row.started_at is not None), default=None),
            last_created_at=max((row.created_at for row in rows), default=None),
        )

    def backlog(self) -> Backlog:
        rows = list(self._filtered(RunFilter()))
        queued = [row.available_at or row.created_at for row in rows if row.state == "queued"]
        ready = [at for at in queued if at <= self._now]
        running = [row for row in rows if row.state == "running"]
        return Backlog(
            ready=len(ready),
            delayed=len(queued) - len(ready),
            planning=len([row for row in rows if row.state == "planning"]),
            running=len(running),
            running_schedules=len({row.schedule_id for row in running} - {None}),
            oldest_ready_at=min(ready, default=None),
        )

    def failures(self, runs: RunFilter, limit: int) -> Sequence[FailurePattern]:
        validation.check_page(limit)
        ends: dict[str, list[datetime]] = {}
        for row in self._filtered(runs):
            if row.state in RUN_FAILED:
                ends.setdefault(pattern_of(row.error, row.state), []).append(row.finished_at or row.created_at)
        found = [FailurePattern(pattern=one, count=len(all_), last_at=max(all_)) for one, all_ in ends.items()]
        return sorted(found, key=lambda one: (-one.count, one.pattern))[:limit]

    def hours(self, runs: RunFilter) -> Mapping[int, int]:
        return dict(sorted(Counter((row.started_at or row.created_at).hour for row in self._filtered(runs)).items()))

    def removable(self, keep: int, before: datetime) -> Mapping[UUID | None, int]:
        return Counter(run.schedule_id for run in self._beyond(keep, before, sys.maxsize))

    def next_fires(self, limit: int) -> Sequence[NextFire]:
        validation.check_page(limit)
        fires = []
        for trigger in self._triggers._all():
            schedule = self._schedules._own(trigger.schedule_id)
            if schedule is None or not schedule.enabled or schedule.deleted_at is not None:
                continue
            if schedule.status in MAY_RUN and trigger.enabled and trigger.next_fire_at is not None:
                fires.append(
                    NextFire(
                        at=trigger.next_fire_at, schedule_id=schedule.id, trigger_id=trigger.id, name=schedule.name
                    )
                )
        return sorted(fires, key=lambda one: (one.at, one.trigger_id))[:limit]

    def _filtered(self, runs: RunFilter) -> Iterator[Run]:
        for row in self._runs._all():
            if (
                runs.schedule_id in {None, row.schedule_id}
                and (runs.since is None or row.created_at >= runs.since)
                and (runs.until is None or row.created_at < runs.until)
            ):
                yield row


def pattern_of(error: str | None, state: str) -> str:
    return state if error is None else error.partition(":")[0]
