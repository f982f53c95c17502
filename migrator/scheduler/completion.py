"""How a claimed run ends, whether it is retried, and when its schedule is completed.

A schedule ends when nothing will fire it any more and its last run has ended, not when that run is handed to its
handler. Its status is ``running`` meanwhile (``firing.plan`` sets it). The worker that ends a run looks; the leader's
sweep looks again, for what a process left undone that died in between.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeAlias
from uuid import UUID, uuid5

import msgspec

from migrator import states
from migrator.constraints import most_of
from migrator.records import Run, Schedule, Trigger
from migrator.scheduler.firing import slot_run_id
from migrator.states import RUN_FAILED
from migrator.store.protocols import RunQuery, Session
from migrator.store.queue import Claim, Finish

DEFAULT_RETRY_DELAY_MS = 60_000
"""Before the first retry, where the schedule states none."""

DEFAULT_RETRY_CAP_MS = 3_600_000
"""Longest delay if the schedule states none: one hour."""

_CENTURY_MS = 100 * 366 * 86_400_000
"""Longer delays are cut to this one: a date has to be made of them."""

_DOUBLINGS = 42
"""Doubling more often than this exceeds a century whatever the first delay is, if it is a millisecond at least."""


def retry_delay(schedule: Schedule, retry: int) -> timedelta:
    """Return how long to wait before the n-th retry (from 1): base * 2^(n-1) up to the cap, or always base if fixed.

    A fixed delay has no cap. Negative delays and caps count as 0. No n overflows.
    """
    base = DEFAULT_RETRY_DELAY_MS if schedule.retry_delay_ms is None else max(schedule.retry_delay_ms, 0)
    if schedule.retry_strategy == "fixed":
        return timedelta(milliseconds=min(base, _CENTURY_MS))
    cap = DEFAULT_RETRY_CAP_MS if schedule.retry_cap_ms is None else max(schedule.retry_cap_ms, 0)
    doubled = base << min(max(retry, 1) - 1, _DOUBLINGS)
    return timedelta(milliseconds=min(doubled, cap, _CENTURY_MS))


def may_retry(schedule: Schedule | None, run: Run) -> bool:
    """Whether a run that failed is repeated: the schedule still wants it, and allows one more retry."""
    if schedule is None or schedule.status == "cancelled" or schedule.deleted_at is not None:
        return False
    return (run.attempt or 1) <= min(schedule.max_retries or 0, most_of("runs.attempt") - 1)


def retry_of(schedule: Schedule, run: Run, now: datetime) -> Run:
    """Return the queued run that repeats ``run``, which ended at ``now``: same slot, one attempt more, same trace.

    Its span is a new one below that of the run it repeats. The dedupe key is not taken over: it was spent.
    """
    attempt = (run.attempt or 1) + 1
    if run.trigger_id is not None and run.scheduled_at is not None:
        identity = slot_run_id(run.trigger_id, run.scheduled_at, attempt)
    else:
        identity = uuid5(run.id, f"retry/{attempt}")
    return Run(
        id=identity,
        tenant_id=run.tenant_id,
        schedule_id=run.schedule_id,
        trigger_id=run.trigger_id,
        attempt=attempt,
        retry_of=run.id,
        cause="retry",
        state="queued",
        scheduled_at=run.scheduled_at,
        available_at=now + retry_delay(schedule, attempt - 1),
        created_at=now,
        trace_id=run.trace_id,
        span_id=uuid5(identity, "span").hex[:16],
        parent_span_id=run.span_id,
        triggered_by=run.triggered_by,
        metadata=run.metadata,
        updated_at=now,
    )


def stops_when_exhausted(schedule: Schedule) -> bool:
    """Whether the schedule ends when a run of it failed for the last time; unstated, it goes on."""
    return schedule.on_exhausted == "stop"


OutcomeState: TypeAlias = Literal["completed", "error", "cancelled", "timeout"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    state: OutcomeState
    result: bytes | None = None
    """JSON text in UTF-8."""
    error: str | None = None
    error_detail: str | None = None
    """A traceback."""
    final: bool = False
    """A retry would end the same way: there is none."""


def finish_of(claim: Claim, outcome: Outcome, now: datetime) -> Finish:
    """Return the changes of ``Queue.finish`` for an outcome, with a retry if the run failed and its schedule allows it.

    A ``Worker`` also writes the log and the audit trail, and ends a schedule that will not fire again. An application
    that finishes runs itself does not: a leading worker ends such schedules at its next sweep, if a worker has their
    handler.
    """
    retry: Run | None = None
    if outcome.state in RUN_FAILED and not outcome.final and may_retry(claim.schedule, claim.run):
        assert claim.schedule is not None  # noqa: S101 - may_retry asked
        retry = retry_of(claim.schedule, claim.run, now)
    return Finish(
        run_id=claim.run.id,
        tenant_id=claim.run.tenant_id,
        worker_id=claim.run.worker_id or "",
        fence=claim.fence,
        state=outcome.state,
        result=outcome.result,
        error=outcome.error,
        error_detail=outcome.error_detail,
        retry=retry,
    )


def storable_text(words: str, longest: int | None = None) -> str:
    """Return text as a column can hold it: without NUL and lone surrogates; of a long text the end is kept."""
    storable = words.replace("\0", "\ufffd").encode(errors="replace").decode()
    return storable if longest is None or len(storable) <= longest else f"…{storable[1 - longest :]}"


def timeout_of(claim: Claim) -> timedelta | None:
    """Return how long the run may take; none for as long as it likes."""
    return None if claim.schedule is None else claim.schedule.timeout


def timeout_outcome(claim: Claim) -> Outcome:
    """Return the outcome of a run that took longer than its schedule allows."""
    limit = None if claim.schedule is None else claim.schedule.timeout_ms
    return Outcome(state="timeout", error=f"timeout: ran for longer than {limit} ms")


def expired_outcome(claim: Claim, now: datetime) -> Outcome:
    """Return the outcome of a run that is over (``Queue.expired``): its time is up, or nobody renewed its lease."""
    limit, started = timeout_of(claim), claim.run.started_at
    if limit is not None and started is not None and now - started >= limit:
        return timeout_outcome(claim)
    return Outcome(state="error", error="lost: its worker did not renew the lease")


LIVE_STATES = states.live(states.RUN)
NEWEST_RUNS = 10
"""Runs among which the last one is looked for: a repetition may be made in the millisecond of the run it repeats."""


def may_fire(trigger: Trigger) -> bool:
    """Whether the trigger will, or may, still fire."""
    return trigger.enabled and (trigger.kind == "event" or trigger.next_fire_at is not None)


def end_status(schedule: Schedule, triggers: Sequence[Trigger], live: int, last: Run | None) -> str | None:
    """Return the status that a running schedule goes to; none while it stays.

    ``scheduled`` when something may fire it again after all. Else, once no run of it is live: ``failed`` when its last
    run failed and it was there for this one run, or stops at failures; ``completed`` otherwise.
    """
    if schedule.status != "running":
        return None
    if any(may_fire(trigger) for trigger in triggers):
        return "scheduled"
    if live:
        return None
    once = bool(triggers) and all(trigger.kind == "one_time" for trigger in triggers)
    failed = last is not None and last.state in RUN_FAILED
    return "failed" if failed and (once or stops_when_exhausted(schedule)) else "completed"


def end_schedule(session: Session, schedule_id: UUID) -> str | None:
    """Write the end of a schedule that is through; return its new status, none where it stays as it is."""
    schedule = session.schedules.get(schedule_id)
    if schedule is None or schedule.status != "running" or schedule.tenant_id != session.tenant:
        return None
    live = len(session.runs.list(RunQuery(schedule_id=schedule_id, states=LIVE_STATES, limit=1)).runs)
    last = max(session.runs.of_schedule(schedule_id, NEWEST_RUNS), key=_order, default=None)
    status = end_status(schedule, session.triggers.of_schedule(schedule_id), live, last)
    if status is None:
        return None
    changes = {"completed_at": session.now} if status == "completed" else {}
    written = session.schedules.change_status(schedule_id, "running", status, **changes)
    return None if written is None else status


def _order(run: Run) -> tuple[datetime, int, int]:
    return run.created_at, run.run_number or 0, run.attempt or 0


def fail_schedule(session: Session, schedule_id: UUID) -> bool:
    """Make a schedule failed whose last retry failed and that is to stop then; false where it did not run any more."""
    schedule = session.schedules.get(schedule_id)
    if schedule is None or schedule.tenant_id != session.tenant:
        return False
    if schedule.status in {"pending", "scheduled"}:
        schedule = session.schedules.change_status(schedule_id, schedule.status, "running")
    if schedule is None or schedule.status != "running":
        return False
    return session.schedules.change_status(schedule_id, "running", "failed") is not None
