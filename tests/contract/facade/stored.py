"""What tests of the facade read and write past it, and another system that is asked to run something."""

from typing import Any

from migrator.records import Schedule, Trigger
from migrator.scheduler.handlers import ExternalSystem, Request
from migrator.scheduler.models import Job
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.verify.behaviour.harness import Harness


def stored(harness: Harness, job: Job) -> Job:
    """Return a schedule as it stands now; it must be there."""
    found = harness.facade.get(job.id, now=harness.now)
    assert found is not None
    return found


def status_of(harness: Harness, job: Job) -> str:
    return stored(harness, job).schedule.status


def force_status(harness: Harness, job: Job, status: str, *, enabled: bool = True) -> Schedule:
    """Write a status past the state machine."""
    with harness.session() as session:
        found = session.schedules.get(job.id)
        assert found is not None
        columns = {name: getattr(found, name) for name in found.__struct_fields__}
        written: Schedule = session.schedules.upsert(Schedule(**columns | {"status": status, "enabled": enabled}))
    return written


def everything(harness: Harness) -> tuple[Any, ...]:
    """Return all that a refused call must leave as it is."""
    with harness.session() as session:
        schedules = session.schedules.list(ScheduleQuery(limit=1000))
        triggers: list[Trigger] = [*session.triggers.of_schedules([one.id for one in schedules])]
        runs = session.runs.list(RunQuery(limit=1000)).runs
        audit = session.audit.list(1000)
        handlers = session.handlers.list()
    return tuple(schedules), tuple(triggers), runs, tuple(audit), tuple(handlers)


class Elsewhere(ExternalSystem):
    """Another system: it notes what it is asked to run."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def send(self, request: Request) -> str:
        self.asked.append(request)
        return f"task-{len(self.asked)}"
