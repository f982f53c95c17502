"""What is written about a run besides its state: log lines, events, the summary, and what follows for its schedule.

It comes after the state was written, in a transaction of its own: it must not hold up, or undo, the end of a run. What
is lost when the process dies in between is told by nobody else (lines, events), or made good by the leader's sweep
(summaries are recomputable, schedules are settled again).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

import msgspec

from migrator.errors import ConflictError, MigratorError
from migrator.records import ExecutionLog, Run
from migrator.scheduler import firing, lifecycle, settling
from migrator.scheduler.lifecycle import Event, EventSink
from migrator.scheduler.retry import exhausted_stops
from migrator.scheduler.rising import RisingIds
from migrator.states import RUN_FAILED
from migrator.store.protocols import Session, Store
from migrator.store.queue import Claim, Finish
from migrator.store.validation import GLOBAL
from migrator.telemetry import logger
from migrator.values import jsonb

One = TypeVar("One")

_TRIES: Final = 3
"""Two sessions may meet in one row; MongoDB then ends one of them."""


_ids: Final = RisingIds()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a run's log."""

    at: datetime
    level: str
    message: str


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose end was written."""

    claim: Claim
    finish: Finish
    lines: Sequence[Line] = ()


class Books:
    """Keeps them, one transaction per tenant."""

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
        """Go on with another store."""
        self._store = store

    def dispatched(self, claims: Sequence[Claim]) -> None:
        """Tell that runs are handed over."""
        for tenant, own in _by_tenant(claims, lambda claim: claim.run.tenant_id).items():
            self._write(tenant, partial(self._record, events=[_dispatch(claim) for claim in own]))

    def ended(self, runs: Sequence[Ended]) -> None:
        """Write and tell what follows from runs that ended."""
        for tenant, own in _by_tenant(runs, lambda one: one.claim.run.tenant_id).items():
            self._write(tenant, partial(self._ended, runs=own))

    def lines(self, claim: Claim, lines: Sequence[Line]) -> None:
        """Write the log of a run that was lost: cancelled, timed out elsewhere, or given back."""
        if lines:
            rows = _logs(claim.run, lines)
            self._write(claim.run.tenant_id, partial(_append, rows=rows))

    def skipped(self, runs: Sequence[Run]) -> None:
        """Look whether schedules are through whose last slot was skipped."""
        for tenant, own in _by_tenant(runs, lambda run: run.tenant_id).items():
            schedules = sorted({run.schedule_id for run in own if run.schedule_id is not None})
            self._write(tenant, partial(_settle, schedules=schedules))

    def external(self, claim: Claim, task_id: str) -> None:
        """Record what a run is called in another system, if it is still this claim's."""
        self._write(claim.run.tenant_id, partial(_name, claim=claim, task_id=task_id))

    def _write(self, tenant: str, write: Callable[[Session], Sequence[Event]]) -> None:
        """Write in a session of the tenant, then tell; what fails is logged. Nobody may write rows of ``*``."""
        if tenant == GLOBAL:
            return
        for tried in range(1, _TRIES + 1):
            try:
                with self._store.session(tenant, now=None if self._clock is None else self._clock()) as session:
                    events = write(session)
            except ConflictError as error:
                if tried == _TRIES:
                    logger().warning("the books of a run are incomplete", reason=str(error))
            except MigratorError as error:
                logger().warning("the books of a run are incomplete", reason=str(error))
                return
            else:
                self._tell(events)
                return

    def _ended(self, session: Session, runs: Sequence[Ended]) -> Sequence[Event]:
        session.execution_logs.append([row for one in runs for row in _logs(one.claim.run, one.lines)])
        events = self._record(session, [event for one in runs for event in _events(one, session.now)])
        for schedule_id in sorted({one.claim.run.schedule_id for one in runs if one.claim.run.schedule_id is not None}):
            own = [one for one in runs if one.claim.run.schedule_id == schedule_id]
            schedule = session.schedules.get(schedule_id)
            if schedule is None or schedule.tenant_id != session.tenant:
                continue
            session.run_summaries.recompute(schedule_id)
            for one in own:
                _begin_anew(session, one)
            if exhausted_stops(schedule) and any(_exhausted(one) for one in own):
                settling.stop(session, schedule_id)
            else:
                settling.settle(session, schedule_id)
        return events

    def _record(self, session: Session, events: Sequence[Event]) -> Sequence[Event]:
        if self._audit:
            for event in events:
                session.audit.append(lifecycle.entry(event))
        return events

    def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            try:
                self._sink(event)
            except Exception as error:  # noqa: BLE001 - a listener must not keep a run's books from being written
                logger().warning("a listener to the scheduler failed", error=type(error).__name__)


def _append(session: Session, rows: Sequence[ExecutionLog]) -> Sequence[Event]:
    session.execution_logs.append(rows)
    return ()


def _settle(session: Session, schedules: Sequence[UUID]) -> Sequence[Event]:
    for schedule_id in schedules:
        settling.settle(session, schedule_id)
    return ()


def _name(session: Session, claim: Claim, task_id: str) -> Sequence[Event]:
    run = session.runs.get(claim.run.id)
    if run is not None and run.state == "running" and _same_claim(run, claim):
        session.runs.update(msgspec.structs.replace(run, external_task_id=task_id), "running")
    return ()


def _same_claim(run: Run, claim: Claim) -> bool:
    return (run.worker_id, run.fence) == (claim.run.worker_id, claim.run.fence)


def _exhausted(one: Ended) -> bool:
    return one.finish.state in RUN_FAILED and one.finish.retry is None


def _begin_anew(session: Session, one: Ended) -> None:
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


def _events(one: Ended, now: datetime) -> Iterable[Event]:
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


def _logs(run: Run, lines: Sequence[Line]) -> list[ExecutionLog]:
    """Return lines as rows; their ids rise, also from call to call: lines of one millisecond are listed by id."""
    return [_log(run, line, _ids.take()) for line in lines]


def _log(run: Run, line: Line, identity: UUID) -> ExecutionLog:
    trace = {"traceId": run.trace_id, "spanId": run.span_id, "attempt": run.attempt}
    return ExecutionLog(
        id=identity,
        tenant_id=run.tenant_id,
        run_id=run.id,
        schedule_id=run.schedule_id,
        logged_at=line.at,
        level=line.level,
        message=line.message,
        context=jsonb.encode({name: value for name, value in trace.items() if value is not None}),
    )


def _by_tenant(things: Iterable[One], tenant: Callable[[One], str]) -> dict[str, list[One]]:
    found: defaultdict[str, list[One]] = defaultdict(list)
    for thing in things:
        found[tenant(thing)].append(thing)
    return found
