"""Which method of the client serves each route of the three systems: what it does, and the row that is the answer.

The page has the same table. The routes themselves, HTTP and JSON, belong to the applications.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import msgspec
import pytest

from migrator.errors import ConflictError, NotFoundError, RefusedError, TransitionError, UsageError
from migrator.records import Handler, Run, WorkerRecord
from migrator.scheduler.completion import Outcome
from migrator.scheduler.leadership import RESOURCE
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.sources import load_profile
from migrator.sources.profile import Profile
from migrator.sources.support_center import names as support_names
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.store.validation import GLOBAL
from migrator.verify.behaviour.harness import DAY, DONE, FAILED_FOR_GOOD, HOUR, MINUTE, SECOND, Harness
from tests.contract.facade.stored import everything, stored
from tests.contract.rows import NOW
from tests.other_systems import SYSTEMS, restore

PAGE = Path(__file__).parents[3] / "docs" / "sources-other.md"
ROWS = {profile.name: rows for profile, rows in SYSTEMS}
"""System → table → a row with every column."""
ORCHESTRATOR, CRAWLER, SUPPORT_CENTER = "orchestrator", "crawler", "support-center"
PROFILES: dict[str, Profile] = {name: load_profile(name) for name in ROWS}
USER = "00000000-0000-4000-8000-00000000aaaa"
CRON: dict[str, Any] = {"cron": "30 2 * * 1-5", "dialect": "croner", "timezone": "Europe/Vienna"}
HANDLER = Handler(
    id=uuid4(), tenant_id="", name="sync", handler_type="celery_task", handler_path="tasks.sync", source_id='{"_id": 1}'
)


def answer(system: str, table: str, *records: Any) -> dict[str, Any]:  # noqa: ANN401 - records of any table
    """Return the columns that records have in a table of a system; each is a column that the system's table has."""
    known = tuple(  # rows created here have no other id than their own
        one if one.source_id is not None else msgspec.structs.replace(one, source_id=str(one.id)) for one in records
    )
    row = restore(PROFILES[system].by_name()[table], known)
    assert row.keys() <= ROWS[system][table].keys()
    assert msgspec.json.encode(row)
    return row


def job_row(system: str, job: Job) -> dict[str, Any]:
    table = {ORCHESTRATOR: "ScheduledJob", CRAWLER: "jobs", SUPPORT_CENTER: "scheduled_jobs"}[system]
    return answer(system, table, job.schedule, *job.triggers)


def run_row(system: str, run: Run) -> dict[str, Any]:
    tables = {ORCHESTRATOR: "JobExecution", CRAWLER: "job_executions", SUPPORT_CENTER: "scheduled_job_executions"}
    if system == SUPPORT_CENTER and run.cause not in ("manual", "api"):  # only users have an id there
        run = msgspec.structs.replace(run, triggered_by=None)
    return answer(system, tables[system], run)


def made(harness: Harness, **changes: Any) -> Job:  # noqa: ANN401 - fields of a request
    stated: dict[str, Any] = {
        "name": "nightly",
        "handler_name": "kb:reindex",
        "max_retries": 0,
        "created_by": "alice",
    } | CRON
    return harness.facade.schedule(ScheduleRequest(**stated | changes), now=harness.now)


def hourly(harness: Harness, **changes: Any) -> Job:  # noqa: ANN401 - fields of a request
    stated: dict[str, Any] = {"name": "hourly", "handler_name": HANDLER.name, "max_retries": 0, "created_by": USER} | {
        "interval": HOUR
    }
    return harness.facade.schedule(ScheduleRequest(**stated | changes), now=harness.now)


def fired(harness: Harness, job: Job, outcome: Outcome = DONE, later: timedelta = DAY) -> Run:
    """Return the newest run of a job, which has ended so."""
    harness.executor.outcome = lambda _: outcome
    harness.advance(later)
    harness.run_once()
    return harness.runs(job)[-1]


def refused(harness: Harness, error: type[Exception], call: Callable[[], object]) -> None:
    """Hold that a call is refused and changes nothing."""
    before = everything(harness)
    with pytest.raises(error):
        call()
    assert everything(harness) == before


# -- what each route does


def schedules(harness: Harness) -> None:
    job = made(harness, tags=("kb",), priority="high", max_concurrency=2)
    row = job_row(ORCHESTRATOR, job)
    assert (row["schedule"], row["timezone"], row["type"]) == ("30 2 * * 1-5", "Europe/Vienna", "cron")
    assert (row["concurrency"], row["created_by"], row["status"]) == (2, "alice", "active")
    # Sunday the 2nd, 09:00 in Vienna: the next working day is Monday the 3rd, 02:30 there.
    assert job.next_fire_at == datetime(2025, 11, 3, 1, 30, tzinfo=UTC)
    assert job_row(ORCHESTRATOR, made(harness, name="later", enabled=False))["status"] == "paused"
    refused(harness, UsageError, lambda: made(harness, name="odd", cron="every day"))


def schedules_once(harness: Harness) -> None:
    request = ScheduleRequest(name="once", handler_name="h", created_by="alice")
    job = harness.facade.schedule_once(request, NOW + HOUR, now=NOW)
    assert (job_row(ORCHESTRATOR, job)["type"], job.next_fire_at) == ("one_time", NOW + HOUR)
    assert fired(harness, job, later=HOUR).state == "completed"
    assert job_row(ORCHESTRATOR, stored(harness, job))["status"] == "completed"
    refused(harness, UsageError, lambda: harness.facade.schedule_once(request, NOW - HOUR, now=harness.now))


def gets(harness: Harness) -> None:
    job = made(harness)
    fired(harness, job)
    stats = harness.facade.stats(job.id, now=harness.now)
    assert (stats.successful, stats.failed, stats.timeout) == (1, 0, 0)
    assert job_row(ORCHESTRATOR, stored(harness, job))["executions_count"] == 1


def lists(harness: Harness) -> None:
    jobs = [made(harness, name=f"job {number}") for number in range(3)]
    paused = made(harness, name="off", enabled=False)
    page = harness.facade.list(ScheduleQuery(statuses=("paused",), limit=2), now=NOW)
    assert ([one.id for one in page.jobs], page.total) == ([paused.id], 1)
    pages = [harness.facade.list(ScheduleQuery(enabled=True, limit=2, offset=at), now=NOW) for at in (0, 2)]
    assert {one.id for page in pages for one in page.jobs} == {one.id for one in jobs}
    found = harness.facade.list(ScheduleQuery(name_contains="b 2"), now=NOW).jobs
    assert [one.id for one in found] == [jobs[2].id]
    assert harness.facade.list(ScheduleQuery(kinds=("one_time",)), now=NOW).jobs == ()
    standing = harness.facade.status(now=NOW)
    assert (standing.enabled, sum(standing.schedules.values()), standing.running_schedules) == (3, 4, 0)


def reschedules(harness: Harness) -> None:
    job = made(harness)
    changed = harness.facade.reschedule(job.id, **CRON | {"cron": "0 12 * * *"}, now=NOW)
    assert job_row(ORCHESTRATOR, changed)["schedule"] == "0 12 * * *"
    assert changed.next_fire_at == datetime(2025, 11, 2, 11, tzinfo=UTC)
    refused(harness, UsageError, lambda: harness.facade.reschedule(job.id, **CRON | {"cron": "sometimes"}, now=NOW))


def pauses(harness: Harness) -> None:
    job = hourly(harness)
    row = job_row(CRAWLER, harness.facade.pause(job.id, now=NOW))
    assert (row["is_paused"], row["paused_at"]) == (True, NOW)
    refused(harness, TransitionError, lambda: harness.facade.pause(job.id, now=NOW))
    harness.advance(DAY)
    harness.run_once()
    assert harness.runs(job) == []


def resumes(harness: Harness) -> None:
    job = hourly(harness)
    harness.facade.pause(job.id, now=NOW)
    row = job_row(CRAWLER, harness.facade.resume(job.id, now=NOW))
    assert (row["is_paused"], row["paused_at"], row["status"]) == (False, None, "scheduled")
    refused(harness, TransitionError, lambda: harness.facade.resume(job.id, now=NOW))
    assert fired(harness, job).state == "completed"


def cancels(harness: Harness) -> None:
    job = hourly(harness)
    row = job_row(CRAWLER, harness.facade.cancel(job.id, now=NOW))
    assert (row["status"], row["cancelled_at"]) == ("cancelled", NOW)
    refused(harness, TransitionError, lambda: harness.facade.cancel(job.id, now=NOW))


def retries_the_newest(harness: Harness) -> None:
    request = ScheduleRequest(name="once", handler_name="h", created_by=USER, max_retries=0)
    job = harness.facade.schedule_once(request, NOW + HOUR, now=NOW)
    refused(harness, TransitionError, lambda: harness.facade.retry_schedule(job.id, now=NOW))
    failed = fired(harness, job, FAILED_FOR_GOOD, HOUR)
    assert stored(harness, job).schedule.status == "failed"
    harness.facade.retry_schedule(job.id, now=harness.now)
    newest = harness.runs(job)[-1]
    assert (newest.retry_of, newest.state, stored(harness, job).schedule.status) == (failed.id, "queued", "running")
    refused(harness, TransitionError, lambda: harness.facade.retry_schedule(job.id, now=harness.now))


def unschedules(harness: Harness) -> None:
    job = made(harness)
    harness.facade.unschedule(job.id, by=USER, now=NOW)
    assert harness.facade.get(job.id, now=NOW) is None
    refused(harness, NotFoundError, lambda: harness.facade.unschedule(job.id, now=NOW))


def shows_the_history(harness: Harness) -> None:
    job = hourly(harness)
    failed, done = fired(harness, job, FAILED_FOR_GOOD, HOUR), fired(harness, job, later=HOUR)
    found = harness.facade.history(job.id, now=harness.now).executions
    assert [one.run.id for one in found] == [done.id, failed.id]
    assert [run_row(CRAWLER, one.run)["status"] for one in found] == ["completed", "failed"]
    of_state = harness.facade.history(job.id, states=("error",), now=harness.now).executions
    paged = harness.facade.history(job.id, limit=1, offset=1, now=harness.now).executions
    assert [one.run.id for one in of_state] == [one.run.id for one in paged] == [failed.id]
    row = run_row(SUPPORT_CENTER, failed)
    assert (row["status"], row["error_message"]) == ("failed", FAILED_FOR_GOOD.error)
    stats = harness.facade.stats(job.id, now=harness.now)
    assert (stats.total, stats.by_state["completed"], stats.by_state["error"]) == (2, 1, 1)


def shows_an_execution(harness: Harness) -> None:
    run = fired(harness, made(harness), FAILED_FOR_GOOD)
    found = harness.facade.get_execution(run.id, now=harness.now)
    assert found is not None
    for system in (ORCHESTRATOR, CRAWLER):
        assert run_row(system, found.run)["status"] == "failed"
    assert harness.facade.get_execution(uuid4(), now=harness.now) is None


def retries(harness: Harness) -> None:
    failed = fired(harness, made(harness), FAILED_FOR_GOOD)
    again = harness.facade.retry(failed.id, now=harness.now)
    assert (again.retry_of, again.attempt, again.state) == (failed.id, (failed.attempt or 0) + 1, "queued")
    assert run_row(ORCHESTRATOR, again)["status"] == "pending"
    refused(harness, TransitionError, lambda: harness.facade.retry(again.id, now=harness.now))
    refused(harness, ConflictError, lambda: harness.facade.retry(failed.id, now=harness.now))


def triggers_an_event(harness: Harness) -> None:
    job = harness.facade.on_event("ticket:created", "notify", now=NOW)
    harness.facade.trigger_event("ticket:created", {"id": 7}, now=NOW)
    (run,) = harness.runs(job)
    assert (run.cause, run.state) == ("event", "queued")


def shows_statistics(harness: Harness) -> None:
    job = hourly(harness)
    failed, done = fired(harness, job, FAILED_FOR_GOOD, HOUR), fired(harness, job, later=HOUR)
    stats = harness.facade.stats(job.id, now=harness.now)
    assert (stats.total, stats.successful, stats.failed, stats.completed_share) == (2, 1, 1, 50.0)
    assert stats.last_started_at == done.started_at != failed.started_at
    assert stats.next_execution is not None
    assert stats.next_execution.scheduled_at == stored(harness, job).next_fire_at


def shows_metrics(harness: Harness) -> None:
    fired(harness, hourly(harness), FAILED_FOR_GOOD, HOUR)
    harness.facade.cancel(made(harness).id, now=harness.now)
    found = harness.facade.metrics(now=harness.now)
    assert (found.jobs.scheduled, found.jobs.running, found.jobs.cancelled) == (1, 0, 1)
    assert (found.executions.total, found.performance.success_rate) == (1, 0.0)
    assert found.generated_at == harness.now


def lists_handlers(harness: Harness) -> None:
    with harness.session() as session:
        handlers = session.handlers.list()
    [row] = [answer(SUPPORT_CENTER, "task_functions", one) for one in handlers]
    assert (row["name"], row["handler_type"], row["id"]) == (HANDLER.name, HANDLER.handler_type, 1)


def lists_job_types(_: Harness) -> None:
    assert sorted(support_names.SEEDED_JOB_TYPES.values()) == ["cron", "interval"]


def schedules_an_interval(harness: Harness) -> None:
    job = hourly(harness, timeout=90 * SECOND, retry_delay=5 * SECOND, retry_strategy="fixed", payload={"depth": 3})
    row = job_row(SUPPORT_CENTER, job)
    assert (row["timeout_seconds"], row["retry_delay_seconds"], row["task_args"]) == (90, 5, {"depth": 3})
    assert (row["is_enabled"], job.next_fire_at) == (True, NOW + HOUR)
    refused(harness, UsageError, lambda: hourly(harness, name="odd", interval=timedelta(0)))


def updates(harness: Harness) -> None:
    job = hourly(harness)
    changed = harness.facade.update(job.id, by=USER, now=NOW, name="renamed", timeout=90 * SECOND)
    row = job_row(SUPPORT_CENTER, changed)
    assert (row["name"], row["timeout_seconds"]) == ("renamed", 90)
    changed = harness.facade.reschedule(job.id, interval=5 * MINUTE, by=USER, now=NOW)
    assert changed.next_fire_at == NOW + 5 * MINUTE


def toggles(harness: Harness) -> None:
    job = hourly(harness)
    row = job_row(SUPPORT_CENTER, harness.facade.toggle(job.id, enabled=False, by=USER, now=NOW))
    assert (row["is_enabled"], row["is_paused"]) == (False, False)
    harness.advance(HOUR)
    harness.run_once()
    assert harness.runs(job) == []
    harness.facade.toggle(job.id, enabled=True, by=USER, now=harness.now)
    assert fired(harness, job, later=HOUR).state == "completed"


def triggers_now(harness: Harness) -> None:
    job = hourly(harness)
    run = harness.facade.trigger_now(job.id, by=USER, now=NOW)
    assert (run.cause, run.state, run.triggered_by) == ("manual", "queued", USER)
    row = run_row(SUPPORT_CENTER, run)
    assert (row["status"], row["triggered_by_user_id"]) == ("pending", UUID(USER))
    off = hourly(harness, name="off", enabled=False)
    refused(harness, RefusedError, lambda: harness.facade.trigger_now(off.id, now=NOW))


def lists_runs(harness: Harness) -> None:
    runs = [fired(harness, hourly(harness, name=name), later=HOUR) for name in ("a", "b")]
    with harness.session() as session:
        of_one = session.runs.list(RunQuery(schedule_id=runs[0].schedule_id)).runs
        page = session.runs.list(RunQuery(limit=2, states=("completed",)))
    assert {run.schedule_id for run in of_one} == {runs[0].schedule_id}
    assert len([run_row(SUPPORT_CENTER, run) for run in page.runs]) == 2


def shows_the_status(harness: Harness) -> None:
    job = hourly(harness)
    process = WorkerRecord(
        id=uuid4(), tenant_id=GLOBAL, kind="scheduler", status="active", hostname="host-1", pid=4711, version="1.0"
    )
    harness.store.workers.register(process, NOW)
    lock = harness.store.locks.acquire(GLOBAL, RESOURCE, ttl=HOUR, holder=str(process.id), now=NOW)
    assert lock is not None
    try:
        standing = harness.facade.status(now=NOW)
        assert standing.leader is not None
        assert (standing.leader.holder, standing.alive > 0, standing.enabled) == (str(process.id), True, 1)
        assert [one.fire.schedule_id for one in standing.next_fires] == [job.id]
        assert answer(SUPPORT_CENTER, "scheduler_instances", process)["hostname"] == "host-1"
    finally:
        lock.release(now=NOW)
        harness.store.workers.stop(process.id, NOW)
    assert harness.facade.status(now=NOW).leader is None


class Route(NamedTuple):
    """A route, the method that serves it, and what shows that it does."""

    system: str
    capability: str
    verb: str
    path: str
    calls: str
    """Method of the client; with a dot: of a repository of the store's session, or a constant of the source."""
    shown: Callable[[Harness], None]


def routes(system: str, *lines: Sequence[Any]) -> list[Route]:
    return [Route(system, *line) for line in lines]


ROUTES = [
    *routes(
        ORCHESTRATOR,
        ("2-X13", "POST", "/jobs/cron", "schedule", schedules),
        ("2-X13", "POST", "/jobs/once", "schedule_once", schedules_once),
        ("2-X13", "GET", "/jobs/{id}", "get", gets),
        ("2-X13", "GET", "/jobs", "list", lists),
        ("2-X13", "PUT", "/jobs/{id}/schedule", "reschedule", reschedules),
        ("2-X13", "POST", "/jobs/{id}/pause", "pause", pauses),
        ("2-X13", "POST", "/jobs/{id}/resume", "resume", resumes),
        ("2-X13", "DELETE", "/jobs/{id}", "unschedule", unschedules),
        ("2-X13", "GET", "/jobs/{id}/executions", "history", shows_the_history),
        ("2-X13", "GET", "/executions/{id}", "get_execution", shows_an_execution),
        ("2-X13", "POST", "/executions/{id}/retry", "retry", retries),
        ("2-X13", "POST", "/events/trigger", "trigger_event", triggers_an_event),
    ),
    *routes(
        CRAWLER,
        ("3-D1", "POST", "/jobs/{id}/pause", "pause", pauses),
        ("3-D2", "POST", "/jobs/{id}/resume", "resume", resumes),
        ("3-D3", "POST", "/jobs/{id}/cancel", "cancel", cancels),
        ("3-D4", "POST", "/jobs/{id}/retry", "retry_schedule", retries_the_newest),
        ("3-D5", "GET", "/jobs/{id}/executions", "history", shows_the_history),
        ("3-D6", "GET", "/jobs/{id}/stats", "stats", shows_statistics),
        ("3-D7", "GET", "/executions/{id}", "get_execution", shows_an_execution),
        ("3-D8", "GET", "/scheduler/metrics", "metrics", shows_metrics),
    ),
    *routes(
        SUPPORT_CENTER,
        ("4-S7", "GET", "/task-functions", "handlers.list", lists_handlers),
        ("4-S7", "GET", "/job-types", "names.SEEDED_JOB_TYPES", lists_job_types),
        ("4-S7", "GET", "/jobs", "list", lists),
        ("4-S7", "POST", "/jobs", "schedule", schedules_an_interval),
        ("4-S7", "GET", "/jobs/{job_id}", "get", gets),
        ("4-S7", "PUT", "/jobs/{job_id}", "update", updates),
        ("4-S7", "DELETE", "/jobs/{job_id}", "unschedule", unschedules),
        ("4-S7", "PUT", "/jobs/{job_id}/status", "toggle", toggles),
        ("4-S7", "POST", "/jobs/{job_id}/trigger", "trigger_now", triggers_now),
        ("4-S7", "GET", "/executions", "runs.list", lists_runs),
        ("4-S7", "GET", "/jobs/{job_id}/executions", "history", shows_the_history),
        ("4-S7", "GET", "/status", "status", shows_the_status),
    ),
]


@pytest.mark.parametrize(
    "route",
    [
        pytest.param(one, id=f"{one.system} {one.verb} {one.path}", marks=pytest.mark.proves(one.capability))
        for one in ROUTES
    ],
)
def test_the_method_of_a_route_has_its_effect_and_answers_with_the_columns_of_its_system(
    harness: Harness, plant: Callable[..., None], route: Route
) -> None:
    plant(msgspec.structs.replace(HANDLER, tenant_id=harness.tenant))
    route.shown(harness)


def test_an_id_that_nothing_has_is_not_found(harness: Harness) -> None:
    facade, key = harness.facade, uuid4()
    calls: list[Callable[[], object]] = [
        lambda: facade.reschedule(key, interval=HOUR, now=NOW),
        lambda: facade.update(key, now=NOW, name="x"),
        lambda: facade.toggle(key, enabled=True, now=NOW),
        *(lambda name=name: getattr(facade, name)(key, now=NOW) for name in ("pause", "resume", "cancel")),
        *(lambda name=name: getattr(facade, name)(key, now=NOW) for name in ("retry", "retry_schedule")),
        *(lambda name=name: getattr(facade, name)(key, now=NOW) for name in ("unschedule", "trigger_now")),
        *(lambda name=name: getattr(facade, name)(key, now=NOW) for name in ("history", "stats")),
    ]
    for call in calls:
        refused(harness, NotFoundError, call)
    assert facade.get(key, now=NOW) is None
    assert facade.get_execution(key, now=NOW) is None


def test_the_page_lists_these_routes_and_what_they_call() -> None:
    section = PAGE.read_text(encoding="utf-8").split("\n## Routes\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| (\S+) \| `(\w+) (\S+)` \| `(\S+)` \|$", section, re.MULTILINE)
    assert sorted(listed) == sorted((one.system, one.verb, one.path, one.calls) for one in ROUTES)
    assert [sum(one.system == system for one in ROUTES) for system in (ORCHESTRATOR, CRAWLER, SUPPORT_CENTER)] == [
        12,
        8,
        12,
    ]
