"""Runs and their summaries in the model."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from migrator import states
from migrator.constraints import most_of
from migrator.errors import ConflictError
from migrator.records import ExecutionLog, ImpactSnapshot, Run, RunSummary, Schedule
from migrator.store import transitions, validation
from migrator.store.protocols import RunPage, RunQuery
from migrator.testing.memory.schedules import between
from migrator.testing.memory.table import MemoryTable, newest_first
from migrator.values import jsonb

newest = newest_first("created_at")


def oldest(run: Run) -> tuple[datetime, UUID]:
    """Return the key of the opposite order, equal times by id too."""
    return run.created_at, run.id


class MemoryRunSummaries(MemoryTable[RunSummary]):
    """``protocols.RunSummaries``."""

    def get(self, schedule_id: UUID) -> RunSummary | None:
        return next((row for row in self._all() if row.schedule_id == schedule_id), None)

    def recompute(self, schedule_id: UUID, recent: int = 20) -> RunSummary:
        validation.check_page(recent)
        validation.check_own_tenant(self._tenant, self._tenant)
        runs = [run for run in self._tables[Run].values() if run.schedule_id == schedule_id]
        runs = sorted((run for run in runs if run.tenant_id == self._tenant), key=newest)
        if not runs:
            self._require(Schedule, schedule_id, shared=True)
        last_number = self.take_number(schedule_id, 0)
        totals: Counter[str] = Counter()
        for run in runs:
            stats: Any = {} if run.stats is None else jsonb.decode(run.stats)
            if isinstance(stats, dict):
                totals.update({name: transitions.whole_number(stats.get(name)) for name in transitions.TOTALS})
        stored = self.get(schedule_id)
        assert stored is not None
        summary = transitions.summary(
            stored.id,
            self._tenant,
            schedule_id,
            counts=Counter(run.state for run in runs),
            totals=totals,
            newest=runs[:recent],
            last_number=last_number,
            now=self._now,
        )
        return self._replace(summary, stored)

    def take_number(self, schedule_id: UUID, count: int = 1) -> int:
        """Return the highest run number after taking ``count``; makes the summary where there is none."""
        numbers = [run.run_number or 0 for run in self._tables[Run].values() if run.schedule_id == schedule_id]
        stored = self.get(schedule_id)
        counters: Any = {} if stored is None or stored.counters is None else jsonb.decode(stored.counters)
        last = min(transitions.whole_number(counters.get(transitions.LAST_NUMBER)), most_of("runs.run_number"))
        number = max(last, *numbers, 0) + count
        counted = jsonb.encode(counters | {transitions.LAST_NUMBER: number})
        if stored is None:
            identity = transitions.summary_id(self._tenant, schedule_id)
            self._insert(
                RunSummary(
                    id=identity,
                    tenant_id=self._tenant,
                    schedule_id=schedule_id,
                    updated_at=self._now,
                    counters=counted,
                )
            )
        else:
            self._rows[stored.id] = msgspec.structs.replace(stored, counters=counted)
        return number


class MemoryRuns(MemoryTable[Run]):
    """``protocols.Runs``."""

    def get(self, run_id: UUID) -> Run | None:
        return self._visible(run_id)

    def list(self, query: RunQuery) -> RunPage:
        validation.check_page(query.limit, query.offset)
        validation.check_known("run state", states.RUN, query.states)
        order = newest if query.descending else oldest
        found = sorted((run for run in self._all() if self._passes(run, query)), key=order)[query.offset :]
        page = tuple(found[: query.limit])
        more = len(found) > query.limit
        return RunPage(runs=page, cursor=(page[-1].created_at, page[-1].id) if more else None)

    def create(self, run: Run) -> Run:
        run = validation.checked_record(run, self._tenant)
        owner = self._require_of_run(run)
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            run = msgspec.structs.replace(run, attempt=1)
        if run.id in self._rows:
            raise ConflictError("the id is taken")
        self._free(run)
        number = None
        if run.schedule_id is not None and owner == self._tenant:
            summaries = MemoryRunSummaries(RunSummary, self._tables, self._tenant, self._now)
            number = transitions.run_number(summaries.take_number(run.schedule_id))
        return self._insert(
            msgspec.structs.replace(run, run_number=number, updated_at=run.updated_at or self._now),
        )

    def update(self, run: Run, expected: str) -> bool:
        run = validation.checked_record(run, self._tenant)
        transitions.check_update(expected, run.state)
        stored = self._own(run.id)
        if stored is None or stored.state != expected:
            return False
        self._require_of_run(run, stored)
        advanced = transitions.advanced_run(stored, validation.with_stored_precision(run, stored), self._now)
        self._free(advanced)
        self._replace(advanced, stored)
        return True

    def pending(self, limit: int) -> Sequence[Run]:
        validation.check_page(limit)
        found = [run for run in self._all() if run.state in {"planning", "queued"}]
        return sorted(found, key=lambda run: (run.created_at, run.id))[:limit]

    def of_schedule(self, schedule_id: UUID, limit: int) -> Sequence[Run]:
        validation.check_page(limit)
        return sorted((run for run in self._all() if run.schedule_id == schedule_id), key=newest)[:limit]

    def newest_of(self, schedule_ids: Sequence[UUID], states: Sequence[str]) -> Sequence[Run]:
        among = sorted((run for run in self._all() if run.state in states), key=newest)
        found = [next((run for run in among if run.schedule_id == one), None) for one in schedule_ids]
        return [run for run in found if run is not None]

    def repeats(self, run_id: UUID) -> Sequence[Run]:
        return sorted((run for run in self._all() if run.retry_of == run_id), key=oldest)

    def cancel(self, run_id: UUID, reason: str) -> Run | None:
        stored = self._own(run_id)
        if stored is None or states.is_terminal(states.RUN, stored.state):
            return None
        cancelled = validation.checked_record(transitions.cancelled_run(stored, reason, self._now), self._tenant)
        return self._replace(cancelled, stored)

    def cancel_of_schedule(self, schedule_id: UUID, reason: str) -> int:
        runs = [run.id for run in self._all() if run.schedule_id == schedule_id]
        return sum(self.cancel(run_id, reason) is not None for run_id in runs)

    def beyond(self, keep: int, before: datetime, limit: int) -> Sequence[Run]:
        validation.check_page(limit, keep)
        runs = sorted(self._all(), key=newest)
        places: Counter[UUID | None] = Counter()
        beyond = []
        for run in runs:
            places[run.schedule_id] += 1
            old = places[run.schedule_id] > keep and run.created_at < before
            if old and states.is_terminal(states.RUN, run.state):
                beyond.append(run)
        return sorted(beyond, key=lambda run: (run.created_at, run.id))[:limit]

    def held(self, run_ids: Sequence[UUID]) -> Sequence[Run]:
        ended = [run for run in self._all() if run.id in run_ids and states.is_terminal(states.RUN, run.state)]
        return sorted(ended, key=lambda run: (run.created_at, run.id))

    def remove(self, run_ids: Sequence[UUID]) -> int:
        ended = {run.id for run in self._all() if states.is_terminal(states.RUN, run.state)} & set(run_ids)
        for run_id in ended:
            del self._rows[run_id]
        for line in list(self._tables[ExecutionLog].values()):
            if line.run_id in ended:
                del self._tables[ExecutionLog][line.id]
        for snapshot in list(self._tables[ImpactSnapshot].values()):
            if snapshot.run_id in ended:
                self._tables[ImpactSnapshot][snapshot.id] = msgspec.structs.replace(snapshot, run_id=None)
        for run in list(self._rows.values()):
            if run.retry_of in ended:
                self._rows[run.id] = msgspec.structs.replace(run, retry_of=None)
        return len(ended)

    def taken(self, run: Run, but: UUID | None = None) -> str | None:
        """Return the key of a run that another run has, in words; not the run ``but``."""
        for other in self._rows.values():
            if run.trigger_id is None or other.trigger_id != run.trigger_id or other.id == but:
                continue
            slot = None not in {run.scheduled_at, run.attempt}
            if slot and (other.scheduled_at, other.attempt) == (run.scheduled_at, run.attempt):
                return "the slot of the trigger is taken"
            if run.dedupe_key is not None and other.dedupe_key == run.dedupe_key:
                return "the trigger ran for this dedupe key already"
        return None

    def _free(self, run: Run) -> None:
        taken = self.taken(run, run.id)
        if taken is not None:
            raise ConflictError(taken)

    @staticmethod
    def _passes(run: Run, query: RunQuery) -> bool:
        after = True
        if query.cursor is not None:
            at, last = query.cursor
            before = run.created_at < at if query.descending else run.created_at > at
            after = before or (run.created_at == at and run.id > last)
        return (
            after
            and (query.schedule_id is None or run.schedule_id == query.schedule_id)
            and (not query.states or run.state in query.states)
            and between(run.created_at, query.created_after, query.created_before)
            and (query.trace_id is None or run.trace_id == query.trace_id)
        )
