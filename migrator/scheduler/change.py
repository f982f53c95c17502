"""One change through the facade: a transaction, who makes it, and what it tells of.

Rows are written in the order triggers, runs, schedule, which is the dispatcher's own, so that two who change the same
do not wait for each other in a circle. Where another one came first, the change begins anew (``overtaken``).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from migrator.errors import ConflictError
from migrator.records import Run, Schedule
from migrator.scheduler.answers import Job
from migrator.scheduler.lifecycle import Event, entry
from migrator.store.protocols import Session


class OvertakenError(ConflictError):
    """Another one changed the same row at the same moment; judged again, the change may be right or wrong."""


class Change:
    """What a change works with."""

    def __init__(self, session: Session, by: str, new_id: Callable[[], UUID]) -> None:
        self.session, self.by, self.new_id = session, by, new_id
        self.events: list[Event] = []
        """In order; whoever listens hears of them after the commit."""

    @property
    def now(self) -> datetime:
        """Return the time of the transaction."""
        return self.session.now

    def tell(self, name: str, **what: Any) -> None:  # noqa: ANN401 - as ``note``
        """Write what happened into the audit trail, for whoever listens too; ``name`` is one of ``lifecycle.NAMES``."""
        self.events.append(self.note(name, **what))

    def note(
        self,
        name: str,
        *,
        schedule_id: UUID | None = None,
        run: Run | None = None,
        message: str | None = None,
        **details: str,
    ) -> Event:
        """Write what happened into the audit trail."""
        event = Event(
            name=name,
            tenant_id=self.session.tenant,
            at=self.now,
            schedule_id=schedule_id if run is None else run.schedule_id,
            run_id=None if run is None else run.id,
            trace_id=None if run is None else run.trace_id,
            actor=self.by,
            message=message,
            details=details,
        )
        self.session.audit.append(entry(event))
        return event

    def move(self, schedule: Schedule, status: str, **changes: Any) -> Schedule:  # noqa: ANN401 - columns have all types
        """Write a status that was judged by what ``schedule`` held; raises ``TransitionError``, ``OvertakenError``."""
        moved = self.session.schedules.change_status(
            schedule.id, schedule.status, status, **{"updated_by": self.by} | changes
        )
        if moved is None:
            raise overtaken()
        return moved

    def touch(self, schedule: Schedule, **changes: Any) -> Schedule:  # noqa: ANN401 - as above
        """Write columns of a schedule whose status must still be what ``schedule`` held."""
        touched = self.session.schedules.change(schedule.id, **{"updated_by": self.by} | changes)
        if touched is None or touched.status != schedule.status:
            raise overtaken()
        return touched

    def job(self, schedule: Schedule) -> Job:
        """Return the schedule as it stands now, with its triggers."""
        return Job(schedule=schedule, triggers=tuple(self.session.triggers.of_schedule(schedule.id)))


def overtaken() -> OvertakenError:
    """Return the error for a row that another one changed in between."""
    return OvertakenError("the schedule was changed at the same moment: call again")
