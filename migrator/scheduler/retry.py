"""When a run that failed runs again: a new run of the same slot, later."""

from datetime import datetime, timedelta
from uuid import uuid5

from migrator.records import Run, Schedule
from migrator.scheduler.firing import slot_run_id

DELAY_MS = 60_000
"""Before the first retry, where the schedule states none."""

CAP_MS = 3_600_000
"""Longest delay, where the schedule states none: one hour."""

_CENTURY_MS = 100 * 366 * 86_400_000
"""Longer delays are cut to this one: a date has to be made of them."""

_DOUBLINGS = 42
"""Doubling more often than this exceeds a century whatever the first delay is, if it is a millisecond at least."""


def delay(schedule: Schedule, retry: int) -> timedelta:
    """Return how long to wait before the n-th retry (from 1): base * 2^(n-1) up to the cap, or always base if fixed.

    A fixed delay has no cap. Negative delays and caps count as 0. No n overflows.
    """
    base = DELAY_MS if schedule.retry_delay_ms is None else max(schedule.retry_delay_ms, 0)
    if schedule.retry_strategy == "fixed":
        return timedelta(milliseconds=min(base, _CENTURY_MS))
    cap = CAP_MS if schedule.retry_cap_ms is None else max(schedule.retry_cap_ms, 0)
    doubled = base << min(max(retry, 1) - 1, _DOUBLINGS)
    return timedelta(milliseconds=min(doubled, cap, _CENTURY_MS))


def may_retry(schedule: Schedule | None, run: Run) -> bool:
    """Tell whether a run that failed is repeated: the schedule still wants it, and allows one more retry."""
    if schedule is None or schedule.status == "cancelled" or schedule.deleted_at is not None:
        return False
    return (run.attempt or 1) <= (schedule.max_retries or 0)


def retry_of(schedule: Schedule, run: Run, now: datetime) -> Run:
    """Return the queued run that repeats ``run``, which ended at ``now``: same slot, one attempt more, same trace.

    Its span is a new one below that of the run it repeats. The dedupe key is not taken over: it was spent.
    """
    attempt = (run.attempt or 1) + 1
    slot = run.trigger_id is not None and run.scheduled_at is not None
    if slot:
        assert run.trigger_id is not None  # noqa: S101 - just asked
        assert run.scheduled_at is not None  # noqa: S101 - as above
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
        available_at=now + delay(schedule, attempt - 1),
        created_at=now,
        trace_id=run.trace_id,
        span_id=uuid5(identity, "span").hex[:16],
        parent_span_id=run.span_id,
        triggered_by=run.triggered_by,
        metadata=run.metadata,
        updated_at=now,
    )


def exhausted_stops(schedule: Schedule) -> bool:
    """Tell whether the schedule ends when a run of it failed for the last time; unstated, it goes on."""
    return schedule.on_exhausted == "stop"
