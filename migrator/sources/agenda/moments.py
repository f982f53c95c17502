"""When a job ran, was locked, finished and failed; and what that says about its state.

Nothing here looks at the clock: of Agenda's own ``computeJobState`` only the parts that compare a job with itself.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from migrator.sources.agenda.shapes import Job
from migrator.sources.profile import Rejected

LOCK_LIFETIME: Final = timedelta(minutes=10)
"""Agenda's default; a job's own lifetime stands in the program, not in the document."""


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """The times of a job's last run, aware and in UTC; None where absent or null."""

    next_run: datetime | None
    locked: datetime | None
    started: datetime | None
    finished: datetime | None
    failed: datetime | None

    @property
    def ran(self) -> bool:
        """There is something to tell about a run."""
        return self.started is not None or self.locked is not None

    @property
    def ended(self) -> bool:
        """The last run that began has finished."""
        if self.started is None or self.finished is None:
            return False
        return self.finished >= self.started

    @property
    def claimed(self) -> bool:
        """An instance holds the lock for a run that it has not begun."""
        return self.locked is not None and (self.started is None or self.ended)

    @property
    def last_failed(self) -> bool:
        """Whatever finished last was a failure; a failure sets both times to the same instant."""
        return self.failed is not None and (self.finished is None or self.failed >= self.finished)


def moments_of(job: Job) -> Moments:
    """Return the times of a job."""
    return Moments(
        next_run=job.next_run_at,
        locked=job.locked_at,
        started=job.last_run_at,
        finished=job.last_finished_at,
        failed=job.failed_at,
    )


def lease_end(locked: datetime) -> datetime:
    """Return when a lock of the default lifetime expires; raises ``Rejected`` past the last year."""
    try:
        return locked + LOCK_LIFETIME
    except OverflowError:
        raise Rejected("bad-date", "lockedAt", "a time in the years 1 to 9999") from None


def schedule_status(moments: Moments, *, disabled: bool, can_fire: bool) -> str:
    """Return the schedule's state: running while locked, paused when disabled, scheduled while a trigger will fire."""
    if moments.locked is not None:
        return "running"
    if disabled:
        return "paused"
    if moments.next_run is not None:
        return "scheduled" if can_fire else "pending"
    return "failed" if moments.last_failed else "completed"


def run_state(moments: Moments) -> str:
    """Return the state of the last run.

    One that began, holds no lock and never finished was cut off when its process stopped, which gives the lock back.
    """
    if moments.locked is not None:
        return "running"
    if not moments.ended:
        return "cancelled"
    return "error" if moments.last_failed else "completed"
