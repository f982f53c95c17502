"""Firing and claiming in the model: ``queue.Queue`` read literally."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError, UsageError
from migrator.records import Run, RunSummary, Schedule, Trigger
from migrator.store import transitions, validation
from migrator.store.left_rows import is_of_one_row
from migrator.store.queue import SCRATCH, Claim, Finish, FirePlan, HandlerFilter
from migrator.testing.memory.runs import MemoryRuns, MemoryRunSummaries
from migrator.testing.memory.schedules import MAY_RUN
from migrator.testing.memory.table import MemoryTable, Tables, microseconds

Transaction: TypeAlias = Callable[[datetime | None], AbstractContextManager[tuple[Tables, datetime]]]
"""``MemoryStore.transaction``."""

replace = msgspec.structs.replace


def served(tenant: str, tenants: Sequence[str] | None) -> bool:
    return not tenant.startswith(SCRATCH) if tenants is None else tenant in tenants


def priority(schedule: Schedule | None) -> int:
    return validation.DEFAULT_PRIORITY if schedule is None or schedule.priority is None else schedule.priority


class MemoryQueue:
    """``queue.Queue``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def tenants(self) -> Sequence[str]:
        with self._transaction(None) as (tables, _):
            found = {row.tenant_id for row in tables[Schedule].values() if row.deleted_at is None}
            return sorted(found | {row.tenant_id for row in tables[Run].values()})

    def fire_due(
        self,
        plan: FirePlan,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
    ) -> Sequence[Run]:
        validation.check_page(limit)
        with self._transaction(now) as (tables, moment):
            rows = Rows(tables, moment)
            fired: list[Run] = []
            failed: Exception | None = None
            succeeded = 0
            for tried, trigger in enumerate(rows.due(tenants, queues, handlers)):
                if tried % limit == 0 and tried and (succeeded or failed is None):
                    break
                schedule: Schedule = tables[Schedule][trigger.schedule_id]
                if schedule.status not in MAY_RUN:
                    continue  # a trigger before this one ended it
                before = {kind: dict(kept) for kind, kept in tables.items()}
                try:
                    fired += rows.fire(plan, schedule, trigger)
                except Exception as error:
                    if not is_of_one_row(error):
                        raise
                    failed = failed or error
                    for kind, kept in before.items():
                        tables[kind].clear()
                        tables[kind].update(kept)
                else:
                    succeeded += 1
            if failed is not None and not succeeded:
                raise failed
            return fired

    def claim(
        self,
        worker_id: str,
        limit: int,
        lease: timedelta,
        now: datetime | None = None,
        *,
        queues: Sequence[str] | None = None,
        handlers: HandlerFilter | None = None,
        tenants: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        validation.check_above_zero("a lease", lease)
        with self._transaction(now) as (tables, moment):
            rows = Rows(tables, moment)
            claims: list[Claim] = []
            for run in rows.available(tenants, queues, handlers):
                schedule = rows.schedule(run)
                most = None if schedule is None else schedule.max_concurrency
                full = schedule is not None and most is not None and rows.count(schedule.id, "running") >= most
                if len(claims) < limit and not full:
                    taken = rows.write(
                        replace(
                            run,
                            state="running",
                            worker_id=worker_id,
                            fence=(run.fence or 0) + 1,
                            lease_expires_at=moment + lease,
                            started_at=run.started_at or moment,
                            updated_at=moment,
                        ),
                        run,
                    )
                    claims.append(Claim(run=taken, schedule=schedule))
            return claims

    def heartbeat(self, claims: Sequence[Claim], lease: timedelta, now: datetime | None = None) -> Sequence[UUID]:
        validation.check_above_zero("a lease", lease)
        with self._transaction(now) as (tables, moment):
            rows, kept = Rows(tables, moment), set()
            for claim in claims:
                run = rows.held(claim.run.id, claim.run.tenant_id, claim.run.worker_id, claim.fence)
                if run is not None:
                    ends = max(moment + lease, run.lease_expires_at or moment)
                    rows.write(replace(run, lease_expires_at=ends, updated_at=moment), run)
                    kept.add(run.id)
            return [*kept]

    def finish(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        with self._transaction(now) as (tables, moment):
            return self._end(Rows(tables, moment), ends, only_expired=False)

    def release(self, claims: Sequence[Claim], now: datetime | None = None) -> Sequence[UUID]:
        with self._transaction(now) as (tables, moment):
            rows, given = Rows(tables, moment), set()
            for claim in claims:
                run = rows.held(claim.run.id, claim.run.tenant_id, claim.run.worker_id, claim.fence)
                if run is not None:
                    free = replace(
                        run, state="queued", worker_id=None, lease_expires_at=None, started_at=None, updated_at=moment
                    )
                    rows.write(free, run)
                    given.add(run.id)
            return [*given]

    def expired(
        self,
        limit: int,
        now: datetime | None = None,
        tenants: Sequence[str] | None = None,
        *,
        workers: Sequence[str] | None = None,
    ) -> Sequence[Claim]:
        validation.check_page(limit)
        with self._transaction(now) as (tables, moment):
            rows = Rows(tables, moment)
            expired = [run for run in tables[Run].values() if served(run.tenant_id, tenants) and rows.over(run)]
            if workers is not None:
                expired = [run for run in expired if run.worker_id in workers and run.fence is not None]
            expired.sort(key=lambda run: (run.lease_expires_at is None, run.lease_expires_at or moment, run.id))
            return [Claim(run=run, schedule=rows.schedule(run)) for run in expired[:limit]]

    def expire(self, ends: Sequence[Finish], now: datetime | None = None) -> Sequence[UUID]:
        with self._transaction(now) as (tables, moment):
            return self._end(Rows(tables, moment), ends, only_expired=True)

    @staticmethod
    def _end(rows: "Rows", ends: Sequence[Finish], *, only_expired: bool) -> Sequence[UUID]:
        for end in ends:
            validation.check_outcome(end)
            validation.check_transition("run", "running", end.state)
            if end.schedule_status is not None:
                validation.check_transition("schedule", "running", end.schedule_status)
        ended = []
        for end in ends:
            run = rows.held(end.run_id, end.tenant_id, end.worker_id, end.fence)
            if run is None or (only_expired and not rows.over(run)):
                continue
            over = replace(
                run,
                state=end.state,
                result=end.result,
                error=end.error,
                error_detail=end.error_detail,
                finished_at=rows.now,
                lease_expires_at=None,
                updated_at=rows.now,
            )
            rows.write(over, run)
            ended.append(run.id)
            if end.retry is not None:
                rows.insert(transitions.retry_after(end.retry, run), end.tenant_id)
            schedule = rows.schedule(run)
            may = schedule is not None and schedule.deleted_at is None and schedule.status == "running"
            if end.schedule_status is not None and schedule is not None and may:
                rows.status(schedule, end.schedule_status)
        return ended


def reachable(status: str, follower: str) -> bool:
    """Whether the machine leads there, in one step or by way of running."""
    validation.check_known("schedule state", states.SCHEDULE, (follower,))
    steps = states.SCHEDULE[status]
    return follower in steps or ("running" in steps and follower in states.SCHEDULE["running"] - {status})


class Rows:
    """The tables as the queue sees them, across tenants, at one moment."""

    def __init__(self, tables: Tables, now: datetime) -> None:
        self._tables, self.now = tables, now

    def due(
        self, tenants: Sequence[str] | None, queues: Sequence[str] | None, handlers: HandlerFilter | None
    ) -> list[Trigger]:
        """Return due triggers in the order of firing."""
        due = []
        for trigger in self._tables[Trigger].values():
            of: Schedule = self._tables[Schedule][trigger.schedule_id]
            may_run = of.enabled and of.deleted_at is None and of.status in MAY_RUN
            fire = trigger.next_fire_at
            may_run = may_run and worked_for(of, queues, handlers)
            if trigger.enabled and fire is not None and fire <= self.now and may_run:
                due.append((-priority(of), microseconds(fire), trigger.id, trigger))
        return [row for *_, row in sorted(due, key=lambda item: item[:3]) if served(row.tenant_id, tenants)]

    def available(
        self, tenants: Sequence[str] | None, queues: Sequence[str] | None, handlers: HandlerFilter | None
    ) -> list[Run]:
        """Return queued runs that may be claimed, in the order of claiming, before ``max_concurrency`` is asked."""
        available = []
        for run in self._tables[Run].values():
            of = self.schedule(run)
            barred = of is not None and (not of.enabled or of.status == "paused" or of.deleted_at is not None)
            named = worked_for(of, queues, handlers)
            since = run.available_at or run.created_at
            ready = run.state == "queued" and since <= self.now
            if ready and named and not barred and served(run.tenant_id, tenants):
                available.append((-priority(of), microseconds(since), run.id, run))
        return [row for *_, row in sorted(available, key=lambda item: item[:3])]

    def schedule(self, run: Run) -> Schedule | None:
        found: Schedule | None = None if run.schedule_id is None else self._tables[Schedule][run.schedule_id]
        return found

    def count(self, schedule_id: UUID, *among: str) -> int:
        """Return how many runs of a schedule are in one of these states."""
        return sum(run.schedule_id == schedule_id and run.state in among for run in self._tables[Run].values())

    def held(self, run_id: UUID, tenant: str, worker_id: str | None, fence: int) -> Run | None:
        """Return a run that is running under this worker and fence."""
        run: Run | None = self._tables[Run].get(run_id)
        if run is None or run.tenant_id != tenant or run.state != "running":
            return None
        return run if (run.worker_id or "", run.fence or 0) == (worker_id or "", fence) else None

    def over(self, run: Run) -> bool:
        """Whether a run is running past its lease, or past its schedule's timeout."""
        if run.state != "running":
            return False
        of = self.schedule(run)
        lease = run.lease_expires_at is not None and run.lease_expires_at <= self.now
        if of is None or of.timeout_ms is None or run.started_at is None:
            return lease
        return lease or run.started_at + timedelta(milliseconds=of.timeout_ms) <= self.now

    def insert(self, run: Run, tenant: str) -> Run | None:
        """Insert a fired run or a retry; none where its slot or dedupe key is taken."""
        run = held_to_rules(run, tenant)
        runs = MemoryRuns(Run, self._tables, tenant, self.now)
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            run = replace(run, attempt=1)
        if runs.taken(run) is not None:
            return None
        if run.id in self._tables[Run]:
            raise ConflictError("the id is taken")
        number = None
        of = self.schedule(run)
        if of is not None and of.tenant_id == tenant != validation.GLOBAL:
            summaries = MemoryRunSummaries(RunSummary, self._tables, tenant, self.now)
            number = transitions.run_number(summaries.take_number(of.id))
        made = replace(run, run_number=number, updated_at=run.updated_at or self.now, source=None, source_id=None)
        self._tables[Run][made.id] = made
        return made

    def fire(self, plan: FirePlan, schedule: Schedule, trigger: Trigger) -> list[Run]:
        """Fire a trigger; return the runs inserted."""
        fire = plan(schedule, trigger, self.count(schedule.id, "queued", "running"), self.now)
        if fire.trigger.id != trigger.id:
            raise UsageError("a plan answers for the trigger that it was given")
        made = [run for one in fire.runs if (run := self.insert(one, schedule.tenant_id)) is not None]
        self.write(fire.trigger, trigger)
        if fire.schedule_status is not None and reachable(schedule.status, fire.schedule_status):
            self.status(schedule, fire.schedule_status)
        return made

    def write(self, row: Any, stored: Any) -> Any:  # noqa: ANN401 - runs and triggers
        """Write over a row what an update may change."""
        held = held_to_rules(row, stored.tenant_id)
        return MemoryTable(type(row), self._tables, stored.tenant_id, self.now)._replace(held, stored)

    def status(self, schedule: Schedule, status: str) -> None:
        completed = self.now if status == "completed" else schedule.completed_at
        self._tables[Schedule][schedule.id] = replace(
            schedule, status=status, updated_at=self.now, completed_at=completed
        )


def worked_for(of: Schedule | None, queues: Sequence[str] | None, handlers: HandlerFilter | None) -> bool:
    """Whether a caller that named queues and handlers works for a schedule."""
    if of is None:
        return (queues, handlers) == (None, None)
    if queues is not None and of.queue not in queues:
        return False
    if handlers is None:
        return True
    return (of.handler_name or of.mode) in handlers.names or of.handler_type in handlers.types


def held_to_rules(row: Any, tenant: str) -> Any:  # noqa: ANN401 - runs and triggers
    """Return the row as a session of its tenant would write it, also where that is ``*``."""
    if row.tenant_id != tenant:
        raise UsageError("a record of another tenant than the session's")
    stand_in = "-" if tenant == validation.GLOBAL else tenant
    return replace(validation.checked_record(replace(row, tenant_id=stand_in), stand_in), tenant_id=tenant)
