"""What the facade reads: schedules with their triggers, runs with their logs."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from migrator.errors import NotFoundError, UsageError
from migrator.records import Schedule, Trigger
from migrator.scheduler import checks
from migrator.scheduler.answers import Execution, History, Job, JobPage
from migrator.scheduler.requests import HistoryQuery
from migrator.store.protocols import RunQuery, ScheduleQuery, Session

_INSTANT = timedelta(microseconds=1)

LOG_LINES = 1000
"""Of a run's log so many lines are read, the first ones."""


def job(session: Session, schedule_id: UUID) -> Job | None:
    """Return a schedule of the tenant, or of all tenants."""
    schedule = session.schedules.get(schedule_id)
    return None if schedule is None else _jobs(session, [schedule])[0]


def jobs(session: Session, query: ScheduleQuery) -> JobPage:
    """Return a page of schedules, and how many there are."""
    for bound in ("created_after", "created_before", "next_fire_after", "next_fire_before"):
        checks.moment(bound, getattr(query, bound))
    found = session.schedules.list(query)
    # A first page that is not full is all there is: it need not be counted again.
    total = len(found) if query.offset == 0 and len(found) < query.limit else session.schedules.count(query)
    return JobPage(jobs=tuple(_jobs(session, found)), total=total, limit=query.limit, offset=query.offset)


def history(session: Session, schedule_id: UUID, query: HistoryQuery) -> History:
    """Return a page of a schedule's runs; those of a schedule that was removed stay readable."""
    since, until = checks.moment("since", query.since), checks.moment("until", query.until)
    if since is not None and until is not None and until <= since:
        raise UsageError("until must come after since")
    page = session.runs.list(
        RunQuery(
            schedule_id=schedule_id,
            states=query.states,
            # Bounds are exclusive there.
            created_after=None if since is None else since - _INSTANT,
            created_before=until,
            limit=query.limit,
            offset=query.offset,
            descending=query.descending,
        )
    )
    if not page.runs:
        known(session, schedule_id)
    logs = session.execution_logs
    executions = [
        Execution(run=run, logs=tuple(logs.of_run(run.id, LOG_LINES)) if query.include_logs else ())
        for run in page.runs
    ]
    return History(executions=tuple(executions), more=page.cursor is not None)


def execution(session: Session, run_id: UUID) -> Execution | None:
    """Return a run with its log."""
    run = session.runs.get(run_id)
    return None if run is None else Execution(run=run, logs=tuple(session.execution_logs.of_run(run_id, LOG_LINES)))


def known(session: Session, schedule_id: UUID) -> None:
    """Raise ``NotFoundError`` for a schedule that the tenant neither sees nor has runs of."""
    if session.schedules.get(schedule_id) is None and not session.runs.of_schedule(schedule_id, 1):
        raise NotFoundError(f"no schedule {schedule_id}")


def _jobs(session: Session, schedules: Sequence[Schedule]) -> list[Job]:
    triggers: dict[UUID, list[Trigger]] = {schedule.id: [] for schedule in schedules}
    for trigger in session.triggers.of_schedules(list(triggers)) if triggers else ():
        triggers[trigger.schedule_id].append(trigger)
    return [Job(schedule=schedule, triggers=tuple(triggers[schedule.id])) for schedule in schedules]
