"""When a schedule is through: pure, and what writes it.

A schedule ends when nothing will fire it any more and its last run has ended, not when that run is handed over. It is
``running`` meanwhile (``firing.plan`` makes it so). Whoever ends a run looks; the leader's sweep looks again, for what
a process left undone that died in between.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from migrator import states
from migrator.records import Run, Schedule, Trigger
from migrator.scheduler.retry import exhausted_stops
from migrator.states import RUN_FAILED
from migrator.store.protocols import RunQuery, Session

LIVE = states.live(states.RUN)
SAME_MOMENT = 10
"""Runs among which the last one is looked for: a repetition may be made in the millisecond of the run it repeats."""


def may_fire(trigger: Trigger) -> bool:
    """Tell whether the trigger will, or may, still fire."""
    return trigger.enabled and (trigger.kind == "event" or trigger.next_fire_at is not None)


def end_of(schedule: Schedule, triggers: Sequence[Trigger], live: int, last: Run | None) -> str | None:
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
    return "failed" if failed and (once or exhausted_stops(schedule)) else "completed"


def settle(session: Session, schedule_id: UUID) -> str | None:
    """Write the end of a schedule that is through; return its new status, none where it stays as it is."""
    schedule = session.schedules.get(schedule_id)
    if schedule is None or schedule.status != "running" or schedule.tenant_id != session.tenant:
        return None
    live = len(session.runs.list(RunQuery(schedule_id=schedule_id, states=LIVE, limit=1)).runs)
    last = max(session.runs.of_schedule(schedule_id, SAME_MOMENT), key=_order, default=None)
    status = end_of(schedule, session.triggers.of_schedule(schedule_id), live, last)
    if status is None:
        return None
    changes = {"completed_at": session.now} if status == "completed" else {}
    written = session.schedules.change_status(schedule_id, "running", status, **changes)
    return None if written is None else status


def _order(run: Run) -> tuple[datetime, int, int]:
    return run.created_at, run.run_number or 0, run.attempt or 0


def stop(session: Session, schedule_id: UUID) -> bool:
    """Make a schedule failed whose last retry failed and that is to stop then; false where it did not run any more."""
    schedule = session.schedules.get(schedule_id)
    if schedule is None or schedule.tenant_id != session.tenant:
        return False
    if schedule.status in {"pending", "scheduled"}:
        schedule = session.schedules.change_status(schedule_id, schedule.status, "running")
    if schedule is None or schedule.status != "running":
        return False
    return session.schedules.change_status(schedule_id, "running", "failed") is not None
