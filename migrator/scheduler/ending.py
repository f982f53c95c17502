"""How a claimed run ends, and whether it is repeated. Pure."""

from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from migrator.records import Run
from migrator.scheduler.retry import may_retry, retry_of
from migrator.states import RUN_FAILED
from migrator.store.queue import Claim, Finish

State: TypeAlias = Literal["completed", "error", "cancelled", "timeout"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    state: State
    result: bytes | None = None
    """JSON."""
    error: str | None = None
    error_detail: str | None = None
    """A traceback."""
    final: bool = False
    """A retry would end the same way: there is none."""


def ending(claim: Claim, outcome: Outcome, now: datetime) -> Finish:
    """Return what is written for an outcome; with a retry where the run failed and its schedule allows one more."""
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


def timeout_of(claim: Claim) -> timedelta | None:
    """Return how long the run may take; none for as long as it likes."""
    limit = None if claim.schedule is None else claim.schedule.timeout_ms
    try:
        return None if limit is None else timedelta(milliseconds=limit)
    except OverflowError:
        return None


def timed_out(claim: Claim) -> Outcome:
    """Return the outcome of a run that took longer than its schedule allows."""
    limit = None if claim.schedule is None else claim.schedule.timeout_ms
    return Outcome(state="timeout", error=f"timeout: ran for longer than {limit} ms")


def abandoned(claim: Claim, now: datetime) -> Outcome:
    """Return the outcome of a run that is over (``Queue.expired``): its time is up, or nobody renewed its lease."""
    limit, started = timeout_of(claim), claim.run.started_at
    if limit is not None and started is not None and now - started >= limit:
        return timed_out(claim)
    return Outcome(state="error", error="lost: its worker did not renew the lease")
