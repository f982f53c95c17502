"""The recorder writes what happened to a run besides its state: log, events, summary, the status of its schedule.

It writes after the state was written, in a transaction of its own: it must not delay, or undo, the end of a run. If
the process dies in between, log lines and events are lost; the leader's sweep repairs the rest (summaries can be
computed again, and so can the status of a schedule).
"""

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from migrator.errors import MigratorError
from migrator.log import logger
from migrator.records import ExecutionLog, Run
from migrator.scheduler import completion, firing, lifecycle
from migrator.scheduler.completion import stops_when_exhausted
from migrator.scheduler.lifecycle import Event, EventSink
from migrator.scheduler.parallel_run import source_writes
from migrator.states import RUN_FAILED
from migrator.store.conflicts import repeat_session
from migrator.store.protocols import Session, Store
from migrator.store.queue import Claim, Finish
from migrator.store.validation import GLOBAL
from migrator.values import jsonb

_TICKS: Final = 4096
"""A millisecond is divided by the 12 bits that follow it."""


class OrderedIds:
    """Makes ids, each greater than the one before, also within one millisecond and after the clock was set back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def take(self) -> UUID:
        """Return the next id."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() * _TICKS // 1_000_000)
            milliseconds, part = divmod(self._last, _TICKS)
        return UUID(int=milliseconds << 80 | 7 << 76 | part << 64 | 2 << 62 | secrets.randbits(62))


Item = TypeVar("Item")

_ids: Final = OrderedIds()


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's log."""

    at: datetime
    level: str
    message: str


def end_line(end: Finish, at: datetime) -> LogLine:
    """Return the line that says how a run ended; an error that begins with the state does not say it twice."""
    words = end.state if end.error is None else f"{end.state}: {end.error.removeprefix(f'{end.state}: ')}"
    return LogLine(at=at, level="info" if end.state == "completed" else "error", message=words)


class EndedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose end was written."""

    claim: Claim
    finish: Finish
    lines: Sequence[LogLine] = ()


class Recorder:
    """Writes log lines, events, summaries and statuses of schedules, in one transaction per tenant."""

    def __init__(
        self,
        store: Store,
        *,
        sink: EventSink = lifecycle.ignore,
        audit: bool = True,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """``audit``: events are entries of the audit trail too. ``clock`` is for tests: else the database's."""
        self._store, self._sink, self._audit, self._clock = store, sink, audit, clock

    def move(self, store: Store) -> None:
        """Use another store from now on."""
        self._store = store

    def dispatched(self, claims: Sequence[Claim]) -> None:
        """Record that runs are given to the executor."""
        for tenant, own in _by_tenant(claims, lambda claim: claim.run.tenant_id).items():
            self._write(tenant, partial(self._record, events=[_dispatch(claim) for claim in own]))

    def ended(self, runs: Sequence[EndedRun]) -> None:
        """Record runs that ended, and what follows for their schedules."""
        for tenant, own in _by_tenant(runs, lambda one: one.claim.run.tenant_id).items():
            self._write(tenant, partial(self._ended, runs=own))

    def lines(self, claim: Claim, lines: Sequence[LogLine]) -> None:
        """Record the log of a run that the worker lost: cancelled, timed out elsewhere, or released."""
        if lines:
            rows = _logs(claim.run, lines)
            self._write(claim.run.tenant_id, partial(_append, rows=rows))

    def skipped(self, runs: Sequence[Run]) -> None:
        """End schedules whose last slot was skipped."""
        for tenant, own in _by_tenant(runs, lambda run: run.tenant_id).items():
            schedules = sorted({run.schedule_id for run in own if run.schedule_id is not None})
            self._write(tenant, partial(self._end_schedules, schedules=schedules))

    def external(self, claim: Claim, task_id: str) -> None:
        """Record what a run is called in another system, if it is still this claim's."""
        self._write(claim.run.tenant_id, partial(_write_task_id, claim=claim, task_id=task_id))

    def _write(self, tenant: str, write: Callable[[Session], Sequence[Event]]) -> None:
        """Write in a session of the tenant, then tell; what fails is logged. Nobody may write rows of ``*``."""
        if tenant == GLOBAL:
            return

        def once() -> Sequence[Event]:
            with self._store.session(tenant, now=None if self._clock is None else self._clock()) as session:
                return write(session)

        try:
            events = repeat_session(once)
        except MigratorError as error:
            logger().warning("the record of a run is incomplete", reason=str(error))
        else:
            lifecycle.tell(self._sink, events)

    def _ended(self, session: Session, runs: Sequence[EndedRun]) -> Sequence[Event]:
        session.execution_logs.append([row for one in runs for row in _logs(one.claim.run, one.lines)])
        events = self._record(session, [event for one in runs for event in _events(one, session.now)])
        leave = source_writes(self._store)
        for schedule_id in sorted({one.claim.run.schedule_id for one in runs if one.claim.run.schedule_id is not None}):
            own = [one for one in runs if one.claim.run.schedule_id == schedule_id]
            schedule = session.schedules.get(schedule_id)
            if schedule is None or schedule.tenant_id != session.tenant or (leave and schedule.source is not None):
                continue
            session.run_summaries.recompute(schedule_id)
            for one in own:
                _restart_interval(session, one)
            if stops_when_exhausted(schedule) and any(_exhausted(one) for one in own):
                completion.fail_schedule(session, schedule_id)
            else:
                completion.end_schedule(session, schedule_id)
        return events

    def _end_schedules(self, session: Session, schedules: Sequence[UUID]) -> Sequence[Event]:
        leave = source_writes(self._store)
        for schedule_id in schedules:
            schedule = session.schedules.get(schedule_id) if leave else None
            if schedule is None or schedule.source is None:
                completion.end_schedule(session, schedule_id)
        return ()

    def _record(self, session: Session, events: Sequence[Event]) -> Sequence[Event]:
        if self._audit:
            for event in events:
                session.audit.append(lifecycle.audit_entry(event))
        return events


def _append(session: Session, rows: Sequence[ExecutionLog]) -> Sequence[Event]:
    session.execution_logs.append(rows)
    return ()


def _write_task_id(session: Session, claim: Claim, task_id: str) -> Sequence[Event]:
    run = session.runs.get(claim.run.id)
    if run is not None and run.state == "running" and _same_claim(run, claim):
        session.runs.update(msgspec.structs.replace(run, external_task_id=task_id), "running")
    return ()


def _same_claim(run: Run, claim: Claim) -> bool:
    return (run.worker_id, run.fence) == (claim.run.worker_id, claim.run.fence)


def _exhausted(one: EndedRun) -> bool:
    return one.finish.state in RUN_FAILED and one.finish.retry is None


def _restart_interval(session: Session, one: EndedRun) -> None:
    """Count an interval from completion anew, unless the run is to be repeated: then it has not completed."""
    if one.claim.run.trigger_id is None or one.finish.retry is not None:
        return
    trigger = session.triggers.get(one.claim.run.trigger_id)
    if trigger is None or trigger.tenant_id != session.tenant:
        return
    anew = firing.completed(trigger, session.now)
    if anew is not trigger:
        session.triggers.move(trigger.id, trigger.next_fire_at, anew.next_fire_at)


def _dispatch(claim: Claim) -> Event:
    run = claim.run
    details = {"attempt": str(run.attempt or 1), "worker": run.worker_id or ""}
    return _event(lifecycle.JOB_DISPATCH, run, run.started_at or run.created_at, details)


def _events(one: EndedRun, now: datetime) -> Iterable[Event]:
    run, finish = one.claim.run, one.finish
    if finish.state == "completed":
        yield _event(lifecycle.EXECUTION_SUCCESS, run, now, {})
        return
    if finish.state in RUN_FAILED:
        yield _event(lifecycle.EXECUTION_FAILED, run, now, {"state": finish.state}, finish.error)
    if finish.retry is not None:
        retry = finish.retry
        at = retry.available_at or now
        details = {"attempt": str(retry.attempt), "retryRun": str(retry.id), "retryAt": at.isoformat()}
        yield _event(lifecycle.EXECUTION_RETRY, run, now, details)


def _event(name: str, run: Run, at: datetime, details: Mapping[str, str], message: str | None = None) -> Event:
    return Event(
        name=name,
        tenant_id=run.tenant_id,
        at=at,
        schedule_id=run.schedule_id,
        run_id=run.id,
        trace_id=run.trace_id,
        message=message,
        details=details,
    )


def _logs(run: Run, lines: Sequence[LogLine]) -> list[ExecutionLog]:
    """Return lines as rows; their ids rise, also from call to call: lines of one millisecond are listed by id."""
    return [_log(run, line, _ids.take()) for line in lines]


def _log(run: Run, line: LogLine, identity: UUID) -> ExecutionLog:
    trace = {"traceId": run.trace_id, "spanId": run.span_id, "attempt": run.attempt}
    return ExecutionLog(
        id=identity,
        tenant_id=run.tenant_id,
        run_id=run.id,
        schedule_id=run.schedule_id,
        logged_at=line.at,
        level=line.level,
        message=completion.storable_text(line.message),
        context=jsonb.encode({name: value for name, value in trace.items() if value is not None}),
    )


def _by_tenant(things: Iterable[Item], tenant: Callable[[Item], str]) -> dict[str, list[Item]]:
    by_tenant: defaultdict[str, list[Item]] = defaultdict(list)
    for thing in things:
        by_tenant[tenant(thing)].append(thing)
    return by_tenant
