"""The routes of the three systems: what a request does to the store, and the JSON that it is answered with.

Each case sends requests in its system's shape. An answer must have exactly the documented members, of the documented
types: a row has the columns of the system's table. Rows that were copied and rows that were made here are both served.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, TypeAlias, get_type_hints
from uuid import UUID, uuid4

import msgspec
import pytest

from migrator.records import Record, WorkerRecord
from migrator.scheduler.completion import Outcome
from migrator.scheduler.leadership import RESOURCE
from migrator.scheduler.models import Job
from migrator.sources.crawler import PROFILE as CRAWLER
from migrator.sources.orchestrator import PROFILE as ORCHESTRATOR
from migrator.sources.profile import Profile
from migrator.sources.support_center import PROFILE as SUPPORT_CENTER
from migrator.store.validation import GLOBAL
from migrator.verify.behaviour.harness import DAY, DONE, FAILED_FOR_GOOD, HOUR, MINUTE, Harness
from tests import table_shapes
from tests.contract.facade.routes import ROUTES, USER, Answer, Route, ask, camel
from tests.contract.facade.stored import everything
from tests.contract.rows import NOW
from tests.other_systems import Given, load
from tests.table_shapes import Row, RowShape

PAGE = Path(__file__).parents[3] / "docs" / "sources-other.md"
CASES: dict[str, Callable[["Place"], None]] = {}

Plant: TypeAlias = Callable[..., None]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
AWARE: dict[Any, Any] = {datetime: Moment, datetime | None: Moment | None}


def shape(table: type[RowShape], spelt: Callable[[str], str] = str, **besides: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type of an answer: every column of a table and nothing else, times with their zone."""
    fields = [(spelt(name), AWARE.get(hint, hint)) for name, hint in get_type_hints(table).items()]
    return document(table.__name__, **dict(fields) | besides)


def document(name: str, /, **members: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type of a document that has these members, all of them, and no other."""
    return msgspec.defstruct(name, list(members.items()), forbid_unknown_fields=True, kw_only=True)


def several(member: Any) -> Any:  # noqa: ANN401 - a type
    """Return the type of a list."""
    return GenericAlias(list, (member,))


MESSAGE = document("Message", message=str)
ERROR, DETAIL = document("Error", error=str), document("Detail", detail=str)

JOB_002 = shape(table_shapes.OrchestratorJob)
EXECUTION_002 = shape(table_shapes.OrchestratorExecution)

JOB_003 = shape(table_shapes.CrawlerJob)
EXECUTION_003 = shape(table_shapes.CrawlerExecution)
EXECUTIONS_003 = document("Executions", executions=several(EXECUTION_003), total=int, limit=int, offset=int)
STATS_003 = document(
    "Stats",
    total_executions=int,
    successful_runs=int,
    failed_runs=int,
    average_duration_ms=float,
    last_execution_at=Moment | None,
    next_scheduled_at=Moment | None,
    success_rate=float,
)
METRICS_003 = document(
    "Metrics",
    jobs=document("Jobs", scheduled=int, running=int, completed=int, failed=int, cancelled=int),
    executions=document("Figures", total=int, average_duration_ms=float, success_rate=float),
    last_check_at=Moment,
    last_metrics_update=Moment,
    stale_locks_cleared=int,
)


class JobType(RowShape, kw_only=True):
    """A row of ``scheduler_job_types``, which the store has no table for."""

    id: int
    name: str
    display_name: str
    description: str | None = None
    is_active: bool


FUNCTION_004 = shape(table_shapes.TaskFunction, camel)
TYPE_004 = shape(JobType, camel)
JOB_004 = shape(table_shapes.SupportJob, camel)
EXECUTION_004 = shape(table_shapes.SupportExecution, camel)
INSTANCE_004 = shape(table_shapes.Instance, camel)
FUNCTIONS_004 = document("Functions", taskFunctions=several(FUNCTION_004), total=int)
JOBS_004 = document("Jobs", jobs=several(JOB_004), total=int, enabledCount=int, disabledCount=int, runningCount=int)
DETAIL_004 = shape(
    table_shapes.SupportJob,
    camel,
    taskFunction=FUNCTION_004,
    jobType=TYPE_004,
    recentExecutions=several(EXECUTION_004),
)
TRIGGERED_004 = document(
    "Triggered",
    jobId=UUID,
    executionId=UUID,
    celeryTaskId=str | None,
    message=str,
    execution=EXECUTION_004,
    job=JOB_004,
)
EXECUTIONS_004 = document("Executions", executions=several(EXECUTION_004), total=int)
STATUS_004 = document(
    "Status",
    isRunning=bool,
    leaderInstance=INSTANCE_004 | None,
    totalJobs=int,
    enabledJobs=int,
    runningJobs=int,
    nextScheduledJob=JOB_004 | None,
    instances=several(INSTANCE_004),
)


class Place:
    """A tenant whose rows were copied from a system, or made here, and what its clients ask."""

    def __init__(self, harness: Harness, plant: Plant) -> None:
        self.harness, self.plant = harness, plant

    def ask(self, called: str, expected: Any, body: Any = None, code: int = 200, **query: Any) -> Any:  # noqa: ANN401 - any JSON
        """Send a request, hold its answer to its code and shape, and return it."""
        answer = ask(self.harness, called, body, **query)
        assert answer.status == code, answer.body
        if expected is None:
            assert answer.body == b""
            return None
        msgspec.json.decode(answer.body, type=expected)
        return json.loads(answer.body)

    def refused(self, name: str, status: int, body: Any = None) -> None:  # noqa: ANN401 - any JSON value
        """Send a request that is refused, and see that it changes nothing."""
        before = everything(self.harness)
        answer = ask(self.harness, name, body)
        check_error(name, answer, status)
        assert everything(self.harness) == before

    def copied(self, system: Profile, table: str, row: Row, **parents: dict[Any, Row]) -> tuple[Record, ...]:
        """Write what a row of a system becomes, as a copy would."""
        context = Given(tenant=self.harness.tenant, zone="UTC", as_of=NOW, parents=parents)
        records = load(system.by_name()[table], row, context).rows
        self.plant(*records)
        return records

    def job(self, identity: str) -> Job:
        found = self.harness.facade.get(UUID(identity), now=self.harness.now)
        assert found is not None
        return found

    def fire(self, outcome: Outcome | None = DONE, later: timedelta = DAY) -> None:
        """Let a run begin, and end so; none: it goes on."""
        self.harness.executor.outcome = lambda _: outcome
        self.harness.advance(later)
        self.harness.run_once()


def check_error(name: str, answer: Answer, status: int) -> None:
    assert answer.status == status, answer.body
    found = msgspec.json.decode(answer.body, type=DETAIL if name.startswith(SUPPORT_CENTER.name) else ERROR)
    assert msgspec.structs.astuple(found)[0]


def case(*names: str) -> Callable[[Callable[[Place], None]], Callable[[Place], None]]:
    """Register what shows a route."""

    def register(show: Callable[[Place], None]) -> Callable[[Place], None]:
        CASES.update(dict.fromkeys(names, show))
        return show

    return register


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


# -- orchestrator

CRON = {
    "name": "Nightly reindex",
    "description": "all of it",
    "schedule": "30 2 * * 1-5",
    "timezone": "Europe/Vienna",
    "handler_name": "kb:reindex",
    "handler_type": "workflow",
    "payload": {"depth": 3},
    "max_retries": 0,
    "retry_delay_ms": 1500,
    "timeout_ms": 90_000,
    "priority": "high",
    "concurrency": 2,
    "tags": ["kb"],
    "metadata": {"owner": "ops"},
    "created_by": "alice",
}


def cron_job(place: Place, **changes: Any) -> Row:  # noqa: ANN401 - members of all types
    made: Row = place.ask("orchestrator POST /jobs/cron", JOB_002, CRON | changes, 201)
    return made


def failed_execution(place: Place) -> tuple[Row, Row]:
    job = cron_job(place)
    place.fire(FAILED_FOR_GOOD)
    (run,) = place.harness.runs(place.job(job["id"]))
    return job, place.ask(f"orchestrator GET /executions/{run.id}", EXECUTION_002)


@case("orchestrator POST /jobs/cron")
def makes_a_cron_job(place: Place) -> None:
    made = cron_job(place)
    assert {name: made[name] for name in CRON} == CRON
    assert (made["type"], made["status"], made["allow_overlap"]) == ("cron", "active", False)
    assert (made["executions_count"], made["success_count"], made["platform_id"]) == (0, 0, place.harness.tenant)
    job = place.job(made["id"])
    assert (job.schedule.name, job.schedule.max_concurrency, job.schedule.priority) == ("Nightly reindex", 2, 75)
    (trigger,) = job.triggers
    assert (trigger.cron_expression, trigger.cron_dialect) == ("30 2 * * 1-5", "croner")
    # Sunday the 2nd, 09:00 in Vienna: the next working day is Monday the 3rd, 02:30 there.
    assert instant(made["next_run"]) == trigger.next_fire_at == datetime(2025, 11, 3, 1, 30, tzinfo=UTC)
    paused = cron_job(place, name="later", enabled=False, allow_overlap=True)
    assert (paused["status"], paused["allow_overlap"]) == ("paused", True)
    place.refused("orchestrator POST /jobs/cron", 400, CRON | {"schedule": "every day"})
    place.refused("orchestrator POST /jobs/cron", 400, CRON | {"max_retries": "three"})


@case("orchestrator POST /jobs/once")
def makes_a_job_that_runs_once(place: Place) -> None:
    body = {name: CRON[name] for name in ("name", "handler_name", "payload", "created_by")}
    due = (NOW + HOUR).isoformat()
    made = place.ask("orchestrator POST /jobs/once", JOB_002, body | {"execute_at": due}, 201)
    assert (made["type"], made["status"], made["schedule"]) == ("one_time", "active", None)
    assert instant(made["next_run"]) == NOW + HOUR
    place.fire(later=HOUR)
    assert [run.state for run in place.harness.runs(place.job(made["id"]))] == ["completed"]
    assert place.ask(f"orchestrator GET /jobs/{made['id']}", JOB_002)["status"] == "completed"
    place.refused("orchestrator POST /jobs/once", 400, body | {"execute_at": due})


@case("orchestrator GET /jobs/{id}")
def shows_a_job(place: Place) -> None:
    row = copied_job(place)
    assert place.ask(f"orchestrator GET /jobs/{row['id']}", JOB_002) == told(row)
    made = cron_job(place)
    assert place.ask(f"orchestrator GET /jobs/{made['id']}", JOB_002) == made
    place.fire()
    found = place.ask(f"orchestrator GET /jobs/{made['id']}", JOB_002)
    assert (found["executions_count"], found["success_count"], found["failure_count"]) == (1, 1, 0)
    assert isinstance(found["avg_duration_ms"], int)


def copied_job(place: Place) -> Row:
    """Return a row that was copied, with every column that a job without executions may have."""
    naive = NOW.replace(tzinfo=None)
    row: Row = {
        "id": str(uuid4()),
        "name": "Monthly",
        "description": None,
        "type": "recurring",
        "status": "active",
        "schedule": "0 6 1 * *",
        "timezone": "Europe/Vienna",
        "next_run": naive + 29 * DAY,
        "last_run": naive - DAY,
        "start_date": naive - 60 * DAY,
        "end_date": naive + 60 * DAY,
        "max_executions": 9,
        "handler_name": "notify:send",
        "handler_type": "agent",
        "payload": {"to": ["a", None]},
        "max_retries": 1,
        "retry_delay_ms": 10,
        "timeout_ms": 99,
        "priority": "low",
        "concurrency": 1,
        "allow_overlap": False,
        "executions_count": 4,
        "success_count": 0,
        "failure_count": 0,
        "avg_duration_ms": None,
        "tags": ["x"],
        "metadata": {"skip_if_overdue": True},
        "platform_id": place.harness.tenant,
        "created_by": "bob",
        "created_at": naive - 60 * DAY,
        "updated_at": naive,
        "completed_at": None,
        "cancelled_at": None,
    }
    place.copied(ORCHESTRATOR, "ScheduledJob", row)
    return row


def told(row: Row) -> Row:
    """Return a row as JSON."""
    found: Row = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            found[name] = (value.replace(tzinfo=UTC) if value.tzinfo is None else value).isoformat()
        else:
            found[name] = str(value) if isinstance(value, UUID) else value
    return found


@case("orchestrator GET /jobs")
def lists_jobs(place: Place) -> None:
    paused = cron_job(place, enabled=False)
    active = [cron_job(place, name=f"job {number}") for number in range(3)]
    every = several(JOB_002)
    assert len(place.ask("orchestrator GET /jobs", every)) == 4
    assert place.ask("orchestrator GET /jobs", every, status="paused") == [paused]
    assert place.ask("orchestrator GET /jobs", every, type="one_time") == []
    pages = [place.ask("orchestrator GET /jobs", every, status="active", limit=2, offset=at) for at in (0, 2)]
    assert [len(page) for page in pages] == [2, 1]
    assert {job["id"] for page in pages for job in page} == {job["id"] for job in active}


@case("orchestrator PUT /jobs/{id}/schedule")
def changes_when_a_job_fires(place: Place) -> None:
    made = cron_job(place)
    found = place.ask(f"orchestrator PUT /jobs/{made['id']}/schedule", JOB_002, {"schedule": "0 12 * * *"})
    assert (found["schedule"], found["timezone"]) == ("0 12 * * *", "Europe/Vienna")
    assert instant(found["next_run"]) == place.job(made["id"]).next_fire_at == NOW.replace(hour=11, microsecond=0)
    place.refused(f"orchestrator PUT /jobs/{made['id']}/schedule", 400, {"schedule": "sometimes"})


@case("orchestrator POST /jobs/{id}/pause", "orchestrator POST /jobs/{id}/resume")
def pauses_and_resumes_a_job(place: Place) -> None:
    made = cron_job(place)
    place.ask(f"orchestrator POST /jobs/{made['id']}/pause", MESSAGE)
    assert place.job(made["id"]).schedule.status == "paused"
    place.refused(f"orchestrator POST /jobs/{made['id']}/pause", 409)
    place.fire()
    assert place.harness.runs(place.job(made["id"])) == []
    place.ask(f"orchestrator POST /jobs/{made['id']}/resume", MESSAGE)
    assert place.job(made["id"]).schedule.status == "scheduled"
    place.refused(f"orchestrator POST /jobs/{made['id']}/resume", 409)


@case("orchestrator DELETE /jobs/{id}")
def deletes_a_job(place: Place) -> None:
    made = cron_job(place)
    place.ask(f"orchestrator DELETE /jobs/{made['id']}", None, code=204)
    assert place.harness.facade.get(UUID(made["id"]), now=NOW) is None
    place.refused(f"orchestrator GET /jobs/{made['id']}", 404)
    place.refused(f"orchestrator DELETE /jobs/{made['id']}", 404)


@case("orchestrator GET /jobs/{id}/executions", "orchestrator GET /executions/{id}")
def shows_executions(place: Place) -> None:
    job, failed = failed_execution(place)
    assert (failed["status"], failed["error"], failed["retry_count"]) == ("failed", FAILED_FOR_GOOD.error, 0)
    assert (failed["job_id"], failed["max_retries"]) == (job["id"], 0)
    assert instant(failed["scheduled_at"]) <= instant(failed["started_at"]) <= instant(failed["completed_at"])
    place.fire()
    every = several(EXECUTION_002)
    found = place.ask(f"orchestrator GET /jobs/{job['id']}/executions", every)
    assert [one["status"] for one in found] == ["success", "failed"]
    assert found[1] == failed
    assert found[0]["result"] == {"rows": 3}
    asked = f"orchestrator GET /jobs/{job['id']}/executions"
    assert place.ask(asked, every, status="failed") == [failed]
    assert place.ask(asked, every, limit=1, offset=1) == [failed]
    copied = copied_job(place)
    row = copied_execution(place, copied)
    assert place.ask(f"orchestrator GET /executions/{row['id']}", EXECUTION_002) == told(row)


def copied_execution(place: Place, job: Row) -> Row:
    """Return an execution that was copied, with every column set."""
    naive = NOW.replace(tzinfo=None)
    row: Row = {
        "id": str(uuid4()),
        "job_id": job["id"],
        "status": "timeout",
        "scheduled_at": naive - DAY,
        "started_at": naive - DAY + MINUTE,
        "completed_at": naive - DAY + 2 * MINUTE,
        "duration_ms": 60_000,
        "result": {"sent": 5},
        "error": "timed out",
        "error_stack": "at line 1",
        "retry_count": 2,
        "max_retries": 4,
        "next_retry_at": naive,
        "worker_id": "worker-1",
        "metadata": {"a": 1},
        "trace_id": "trace",
        "span_id": "span",
        "parent_span_id": "parent",
        "created_at": naive - DAY,
    }
    place.copied(ORCHESTRATOR, "JobExecution", row, ScheduledJob={job["id"]: job})
    return row


@case("orchestrator POST /executions/{id}/retry")
def retries_an_execution(place: Place) -> None:
    job, failed = failed_execution(place)
    again = place.ask(f"orchestrator POST /executions/{failed['id']}/retry", EXECUTION_002)
    assert (again["status"], again["started_at"], again["job_id"]) == ("pending", None, job["id"])
    assert again["metadata"] == {"original_execution_id": failed["id"]}
    first, second = place.harness.runs(place.job(job["id"]))
    assert (str(second.id), second.retry_of, second.state) == (again["id"], first.id, "queued")
    place.refused(f"orchestrator POST /executions/{again['id']}/retry", 409)
    place.refused(f"orchestrator POST /executions/{failed['id']}/retry", 409)


@case("orchestrator POST /events/trigger")
def triggers_an_event(place: Place) -> None:
    handler = place.harness.facade.on_event("ticket:created", "notify", now=NOW)
    body = {"event_name": "ticket:created", "data": {"id": 7}}
    place.ask("orchestrator POST /events/trigger", MESSAGE, body)
    (run,) = place.harness.runs(handler)
    assert (run.cause, run.state) == ("event", "queued")
    place.refused("orchestrator POST /events/trigger", 400, {"data": {}})


# -- crawler


def crawl(place: Place, **changes: Any) -> Row:  # noqa: ANN401 - columns have all types
    """Return a job of the crawler that was copied, with its lock and its old error."""
    row: Row = {
        "id": uuid4(),
        "source_id": "src-1",
        "source_name": "The Times",
        "url": "https://example.org/news",
        "schedule_time": None,
        "schedule_enabled": True,
        "status": "scheduled",
        "created_at": NOW - 9 * DAY,
        "updated_at": NOW - DAY,
        "started_at": NOW - DAY,
        "completed_at": None,
        "error_message": None,
        "interval_minutes": 90,
        "interval_type": "minutes",
        "next_run_at": NOW + 30 * MINUTE,
        "is_paused": False,
        "max_retries": 0,
        "retry_backoff_seconds": 30,
        "current_retry_count": 0,
        "lock_token": None,
        "lock_acquired_at": None,
        "paused_at": None,
        "cancelled_at": None,
        "metadata": {"depth": 2},
    } | changes
    place.copied(CRAWLER, "jobs", row)
    return row


def crawled(place: Place, job: Row, number: int, **changes: Any) -> Row:  # noqa: ANN401 - as above
    """Return an execution of the crawler that was copied, with every column set."""
    row: Row = {
        "id": uuid4(),
        "job_id": job["id"],
        "execution_number": number,
        "status": "failed",
        "started_at": NOW - DAY + number * MINUTE,
        "completed_at": NOW - DAY + (number + 1) * MINUTE,
        "duration_ms": 60_000,
        "items_crawled": 40,
        "items_indexed": 38,
        "error_message": "boom",
        "stack_trace": "goroutine 1",
        "cpu_time_ms": 5 * 10**10,
        "memory_peak_mb": 300,
        "retry_attempt": 0,
        "metadata": {"seed": 7},
        "log_object_key": "logs/12",
        "log_size_bytes": 10**11,
        "log_line_count": 500,
    } | changes
    place.copied(CRAWLER, "job_executions", row)
    return row


def differences(before: Row, after: Row) -> set[str]:
    return {name for name in before if before[name] != after[name]}


@case("crawler POST /jobs/{id}/pause")
def pauses_a_crawl(place: Place) -> None:
    row = crawl(place)
    found = place.ask(f"crawler POST /jobs/{row['id']}/pause", JOB_003)
    assert differences(told(row), found) == {"status", "is_paused", "paused_at", "updated_at"}
    assert (found["status"], found["is_paused"], instant(found["paused_at"])) == ("paused", True, NOW)
    assert place.job(str(row["id"])).schedule.status == "paused"
    place.fire()
    assert place.harness.runs(place.job(str(row["id"]))) == []
    place.refused(f"crawler POST /jobs/{row['id']}/pause", 409)


@case("crawler POST /jobs/{id}/resume")
def resumes_a_crawl(place: Place) -> None:
    row = crawl(place, status="paused", is_paused=True, paused_at=NOW - HOUR)
    found = place.ask(f"crawler POST /jobs/{row['id']}/resume", JOB_003)
    assert differences(told(row), found) == {"status", "is_paused", "paused_at", "updated_at"}
    assert (found["status"], found["is_paused"], found["paused_at"]) == ("scheduled", False, None)
    assert place.job(str(row["id"])).schedule.status == "scheduled"
    place.refused(f"crawler POST /jobs/{row['id']}/resume", 409)
    place.fire(later=30 * MINUTE)
    assert len(place.harness.runs(place.job(str(row["id"])))) == 1


@case("crawler POST /jobs/{id}/cancel")
def cancels_a_crawl(place: Place) -> None:
    row = crawl(place)
    place.fire(None, later=30 * MINUTE)
    found = place.ask(f"crawler POST /jobs/{row['id']}/cancel", JOB_003)
    assert (found["status"], instant(found["cancelled_at"])) == ("cancelled", place.harness.now)
    job = place.job(str(row["id"]))
    assert (job.schedule.status, job.next_fire_at) == ("cancelled", None)
    assert [run.state for run in place.harness.runs(job)] == ["cancelled"]
    place.refused(f"crawler POST /jobs/{row['id']}/cancel", 409)


@case("crawler POST /jobs/{id}/retry")
def retries_a_crawl(place: Place) -> None:
    row = crawl(place, status="failed", completed_at=NOW - HOUR, error_message="boom", current_retry_count=3)
    crawled(place, row, 1)
    place.refused(f"crawler POST /jobs/{crawl(place)['id']}/retry", 409)
    found = place.ask(f"crawler POST /jobs/{row['id']}/retry", JOB_003)
    assert (found["status"], found["current_retry_count"]) == ("pending", 0)
    assert (found["error_message"], found["completed_at"]) == (None, None)
    assert [run.state for run in place.harness.runs(place.job(str(row["id"])))] == ["error", "queued"]
    place.refused(f"crawler POST /jobs/{row['id']}/retry", 409)
    place.fire(later=MINUTE)
    assert place.harness.runs(place.job(str(row["id"])))[1].state == "completed"


@case("crawler GET /jobs/{id}/executions", "crawler GET /executions/{id}")
def shows_crawls(place: Place) -> None:
    row = crawl(place)
    rows = [crawled(place, row, number) for number in (1, 2, 3)]
    asked = f"crawler GET /jobs/{row['id']}/executions"
    found = place.ask(asked, EXECUTIONS_003)
    assert found == {"executions": [told(one) for one in reversed(rows)], "total": 3, "limit": 50, "offset": 0}
    found = place.ask(asked, EXECUTIONS_003, limit=2, offset=2)
    assert found == {"executions": [told(rows[0])], "total": 3, "limit": 2, "offset": 2}
    assert place.ask(f"crawler GET /executions/{rows[1]['id']}", EXECUTION_003) == told(rows[1])
    place.fire(later=30 * MINUTE)
    born = place.ask(asked, EXECUTIONS_003)["executions"][0]
    assert (born["execution_number"], born["status"], born["job_id"]) == (4, "completed", str(row["id"]))


@case("crawler GET /jobs/{id}/stats")
def shows_the_figures_of_a_crawl(place: Place) -> None:
    row = crawl(place)
    crawled(place, row, 1)
    last = crawled(place, row, 2, status="completed", error_message=None, stack_trace=None)
    crawled(place, row, 3, status="running", completed_at=None, duration_ms=None)
    crawled(place, row, 4, status="cancelled", started_at=NOW - 2 * DAY, completed_at=NOW - 2 * DAY, duration_ms=0)
    assert last["status"] == "completed"
    assert place.ask(f"crawler GET /jobs/{row['id']}/stats", STATS_003) == {
        "total_executions": 4,
        "successful_runs": 1,
        "failed_runs": 1,
        "average_duration_ms": 60_000.0,
        "last_execution_at": (NOW - DAY + 3 * MINUTE).isoformat(),
        "next_scheduled_at": (NOW + 30 * MINUTE).isoformat(),
        "success_rate": 0.25,
    }


@case("crawler GET /scheduler/metrics")
def shows_metrics(place: Place) -> None:
    row = crawl(place)
    crawl(place, status="cancelled", cancelled_at=NOW)
    crawl(place, status="failed", completed_at=NOW)
    for number, status in enumerate(("completed", "completed", "completed", "failed"), 1):
        crawled(place, row, number, status=status)
    found = place.ask("crawler GET /scheduler/metrics", METRICS_003)
    assert found["jobs"] == {"scheduled": 1, "running": 0, "completed": 0, "failed": 1, "cancelled": 1}
    assert found["executions"] == {"total": 4, "average_duration_ms": 60_000.0, "success_rate": 0.75}
    assert (instant(found["last_check_at"]), found["stale_locks_cleared"]) == (NOW, 0)


# -- support-center

FUNCTIONS: dict[int, Row] = {
    key: {
        "id": key,
        "name": name,
        "display_name": name.replace("_", " ").capitalize(),
        "description": "what it does",
        "handler_path": f"tasks.maintenance.{name}_task",
        "handler_type": "celery_task",
        "queue": queue,
        "default_timeout_seconds": 60,
        "is_active": True,
        "is_system": system,
        "created_at": datetime(2026, 1, 15, 14, 54),  # noqa: DTZ001 - as a TIMESTAMP column comes
        "updated_at": datetime(2026, 1, 16, 14, 54),  # noqa: DTZ001 - as above
    }
    for key, name, queue, system in (
        (1, "sync_domain_users", "ad_queue", False),
        (2, "cleanup_expired_tokens", None, True),
    )
}
HOURLY = {
    "name": "Domain User Sync (Hourly)",
    "description": "from the directory",
    "taskFunctionId": 1,
    "jobTypeId": 1,
    "scheduleConfig": {"hours": 1, "minutes": 0, "seconds": 0},
    "taskArgs": {"full": True},
    "maxInstances": 2,
    "timeoutSeconds": 300,
    "retryCount": 0,
    "retryDelaySeconds": 30,
    "isEnabled": True,
}


def functions(place: Place) -> None:
    for row in FUNCTIONS.values():
        place.copied(SUPPORT_CENTER, "task_functions", row)


def hourly(place: Place, **changes: Any) -> Row:  # noqa: ANN401 - members of all types
    made: Row = place.ask("support-center POST /jobs", JOB_004, HOURLY | changes, 201)
    return made


def camelled(row: Row) -> Row:
    return {camel(name): value for name, value in told(row).items()}


@case("support-center GET /task-functions")
def lists_task_functions(place: Place) -> None:
    functions(place)
    found = place.ask("support-center GET /task-functions", FUNCTIONS_004)
    assert found == {"taskFunctions": [camelled(row) for row in FUNCTIONS.values()], "total": 2}


@case("support-center GET /job-types")
def lists_job_types(place: Place) -> None:
    found = place.ask("support-center GET /job-types", several(TYPE_004))
    assert [(one["id"], one["name"]) for one in found] == [(1, "interval"), (2, "cron")]


@case("support-center GET /jobs")
def lists_scheduled_jobs(place: Place) -> None:
    functions(place)
    sync = hourly(place)
    off = hourly(place, name="Token Cleanup (Daily)", isEnabled=False)
    found = place.ask("support-center GET /jobs", JOBS_004)
    assert {one["id"] for one in found.pop("jobs")} == {sync["id"], off["id"]}
    assert found == {"total": 2, "enabledCount": 1, "disabledCount": 1, "runningCount": 0}
    assert place.ask("support-center GET /jobs", JOBS_004, name="cleanup")["jobs"] == [off]
    assert place.ask("support-center GET /jobs", JOBS_004, is_enabled=True)["jobs"] == [sync]
    assert len(place.ask("support-center GET /jobs", JOBS_004, page=2, per_page=1)["jobs"]) == 1
    assert place.ask("support-center GET /jobs", JOBS_004, page=3, per_page=1)["jobs"] == []


@case("support-center POST /jobs")
def makes_a_scheduled_job(place: Place) -> None:
    functions(place)
    made = hourly(place)
    assert {name: made[name] for name in HOURLY} == HOURLY
    assert (made["isPaused"], made["lastStatus"], made["createdBy"]) == (False, None, str(USER))
    job = place.job(made["id"])
    (trigger,) = job.triggers
    assert (trigger.kind, trigger.interval_ms, trigger.misfire_grace_ms) == ("interval", 3_600_000, 300_000)
    assert (job.schedule.handler_name, job.schedule.queue) == ("sync_domain_users", "ad_queue")
    assert instant(made["nextRunTime"]) == trigger.next_fire_at == NOW + HOUR
    # The short form, which the system's own scheduler leaves unscheduled without saying so.
    short = hourly(place, name="short", scheduleConfig={"minutes": 90})
    assert short["scheduleConfig"] == {"hours": 1, "minutes": 30, "seconds": 0}
    assert instant(short["nextRunTime"]) == NOW + 90 * MINUTE
    weekly = hourly(place, name="weekly", jobTypeId=2, scheduleConfig={"hour": "6", "minute": "0", "day_of_week": "0"})
    (trigger,) = place.job(weekly["id"]).triggers
    # 0 is Monday: the 3rd, 06:00 in Cairo, which is two hours ahead in winter.
    assert (trigger.cron_dialect, trigger.timezone) == ("apscheduler", "Africa/Cairo")
    assert instant(weekly["nextRunTime"]) == trigger.next_fire_at == datetime(2025, 11, 3, 4, tzinfo=UTC)
    off = hourly(place, name="off", isEnabled=False)
    assert (off["isEnabled"], off["isPaused"]) == (False, False)
    place.refused("support-center POST /jobs", 400, HOURLY | {"scheduleConfig": {"hours": 0}})
    place.refused("support-center POST /jobs", 400, HOURLY | {"scheduleConfig": "0 * * * *"})
    place.refused("support-center POST /jobs", 404, HOURLY | {"taskFunctionId": 9})


@case("support-center GET /jobs/{job_id}")
def shows_a_scheduled_job(place: Place) -> None:
    functions(place)
    row = scheduled_job(place)
    executed = execution(place, row)
    assert place.ask(f"support-center GET /jobs/{row['id']}", DETAIL_004) == camelled(row) | {
        "taskFunction": camelled(FUNCTIONS[2]),
        "jobType": place.ask("support-center GET /job-types", several(TYPE_004))[0],
        "recentExecutions": [camelled(executed)],
    }


def scheduled_job(place: Place) -> Row:
    """Return a job of the support centre that was copied, with every column set."""
    naive = NOW.replace(tzinfo=None)
    row: Row = {
        "id": uuid4(),
        "name": "Token Cleanup (Daily)",
        "description": "daily",
        "task_function_id": 2,
        "job_type_id": 1,
        "schedule_config": {"hours": 24, "minutes": 0, "seconds": 0},
        "task_args": {"retention_days": 7},
        "max_instances": 1,
        "timeout_seconds": 60,
        "retry_count": 3,
        "retry_delay_seconds": 60,
        "is_enabled": True,
        "is_paused": False,
        "next_run_time": naive + MINUTE,
        "last_run_time": naive - DAY,
        "last_status": "success",
        "created_by": uuid4(),
        "updated_by": uuid4(),
        "created_at": naive - 9 * DAY,
        "updated_at": naive - DAY,
    }
    place.copied(SUPPORT_CENTER, "scheduled_jobs", row, task_functions=dict(FUNCTIONS))
    return row


def execution(place: Place, job: Row) -> Row:
    """Return an execution of the support centre that was copied, with every column set."""
    naive = NOW.replace(tzinfo=None)
    row: Row = {
        "id": uuid4(),
        "job_id": job["id"],
        "celery_task_id": "celery-1",
        "status": "success",
        "started_at": naive - DAY,
        "completed_at": naive - DAY + MINUTE,
        "duration_seconds": 60,
        "result": {"deleted": 4},
        "error_message": "none really",
        "error_traceback": "Traceback",
        "triggered_by": "manual",
        "triggered_by_user_id": USER,
        "scheduler_instance_id": uuid4(),
    }
    place.copied(SUPPORT_CENTER, "scheduled_job_executions", row)
    return row


@case("support-center PUT /jobs/{job_id}")
def changes_a_scheduled_job(place: Place) -> None:
    functions(place)
    made = hourly(place)
    found = place.ask(f"support-center PUT /jobs/{made['id']}", JOB_004, {"name": "renamed", "timeoutSeconds": 90})
    assert differences(made, found) <= {"name", "timeoutSeconds", "updatedAt", "updatedBy"}
    assert (found["name"], found["timeoutSeconds"]) == ("renamed", 90)
    assert place.job(made["id"]).schedule.timeout_ms == 90_000
    found = place.ask(f"support-center PUT /jobs/{made['id']}", JOB_004, {"scheduleConfig": {"minutes": 5}})
    assert found["scheduleConfig"] == {"hours": 0, "minutes": 5, "seconds": 0}
    assert instant(found["nextRunTime"]) == place.job(made["id"]).next_fire_at == NOW + 5 * MINUTE


@case("support-center DELETE /jobs/{job_id}")
def deletes_a_scheduled_job(place: Place) -> None:
    functions(place)
    made, system = hourly(place), hourly(place, name="system", taskFunctionId=2)
    place.ask(f"support-center DELETE /jobs/{made['id']}", None, code=204)
    assert place.harness.facade.get(UUID(made["id"]), now=NOW) is None
    place.refused(f"support-center DELETE /jobs/{system['id']}", 409)


@case("support-center PUT /jobs/{job_id}/status")
def enables_and_disables_a_scheduled_job(place: Place) -> None:
    functions(place)
    made = hourly(place)
    status = f"support-center PUT /jobs/{made['id']}/status"
    found = place.ask(status, JOB_004, {"isEnabled": False})
    assert (found["isEnabled"], found["isPaused"]) == (False, False)
    place.fire(later=HOUR)
    assert place.harness.runs(place.job(made["id"])) == []
    assert place.ask(status, JOB_004, {"isEnabled": True})["isEnabled"]
    place.fire(later=HOUR)
    assert len(place.harness.runs(place.job(made["id"]))) == 1
    off = hourly(place, name="made disabled", isEnabled=False)
    place.ask(f"support-center PUT /jobs/{off['id']}/status", JOB_004, {"isEnabled": True})
    place.fire(later=HOUR)
    assert len(place.harness.runs(place.job(off["id"]))) == 1
    place.refused(status, 400, {"isEnabled": "yes"})


@case("support-center POST /jobs/{job_id}/trigger")
def triggers_a_scheduled_job(place: Place) -> None:
    functions(place)
    made = hourly(place)
    found = place.ask(f"support-center POST /jobs/{made['id']}/trigger", TRIGGERED_004)
    (run,) = place.harness.runs(place.job(made["id"]))
    assert (found["jobId"], found["executionId"]) == (made["id"], str(run.id))
    assert (run.cause, run.state, run.triggered_by) == ("manual", "queued", str(USER))
    assert (found["execution"]["status"], found["execution"]["triggeredBy"]) == ("pending", "manual")
    assert found["execution"]["triggeredByUserId"] == str(USER)
    assert found["job"]["lastStatus"] == "pending"
    off = hourly(place, name="off", isEnabled=False)
    place.refused(f"support-center POST /jobs/{off['id']}/trigger", 409)


@case("support-center GET /executions", "support-center GET /jobs/{job_id}/executions")
def shows_executions_of_all_jobs_and_of_one(place: Place) -> None:
    functions(place)
    row = scheduled_job(place)
    executed = execution(place, row)
    made = hourly(place)
    place.fire(FAILED_FOR_GOOD, later=HOUR)
    every = place.ask("support-center GET /executions", EXECUTIONS_004)
    assert every["total"] == len(every["executions"]) == 3
    failed = place.ask("support-center GET /executions", EXECUTIONS_004, job_id=made["id"], status="failed")
    assert failed["total"] == 1
    assert [(one["jobId"], one["errorMessage"]) for one in failed["executions"]] == [
        (made["id"], FAILED_FOR_GOOD.error)
    ]
    of_job = f"support-center GET /jobs/{row['id']}/executions"
    found = place.ask(of_job, EXECUTIONS_004, status="success")
    assert found == {"executions": [camelled(executed)], "total": 1}
    assert place.ask(of_job, EXECUTIONS_004, page=2, per_page=1)["executions"] == [camelled(executed)]
    page = place.ask("support-center GET /executions", EXECUTIONS_004, page=3, per_page=1)
    assert (page["executions"], page["total"]) == ([camelled(executed)], 3)


@case("support-center GET /status")
def shows_where_the_scheduler_stands(place: Place) -> None:
    functions(place)
    sync, harness = hourly(place), place.harness
    hourly(place, name="off", isEnabled=False)
    process = WorkerRecord(
        id=uuid4(), tenant_id=GLOBAL, kind="scheduler", status="active", hostname="host-1", pid=4711, version="1.0"
    )
    harness.store.workers.register(process, NOW)
    lock = harness.store.locks.acquire(GLOBAL, RESOURCE, ttl=HOUR, holder=str(process.id), now=NOW)
    assert lock is not None
    try:
        found = place.ask("support-center GET /status", STATUS_004)
        leader = found["leaderInstance"]
        assert (leader["id"], leader["hostname"], leader["pid"]) == (str(process.id), "host-1", 4711)
        assert leader in found["instances"]
        assert (found["isRunning"], found["nextScheduledJob"]) == (True, sync)
        assert (found["totalJobs"], found["enabledJobs"], found["runningJobs"]) == (2, 1, 0)
    finally:
        lock.release(now=NOW)
        harness.store.workers.stop(process.id, NOW)
    assert place.ask("support-center GET /status", STATUS_004)["leaderInstance"] is None


# -- all of them


@pytest.mark.parametrize(
    "route", [pytest.param(one, id=one.name, marks=pytest.mark.proves(one.capability)) for one in ROUTES]
)
def test_a_route_has_its_effect_and_is_answered_in_its_shape(harness: Harness, plant: Plant, route: Route) -> None:
    CASES[route.name](Place(harness, plant))


@pytest.mark.parametrize(
    "route",
    [pytest.param(one, id=one.name, marks=pytest.mark.proves(one.capability)) for one in ROUTES if "{" in one.path],
)
def test_an_id_that_nothing_has_is_not_found(harness: Harness, plant: Plant, route: Route) -> None:
    place = Place(harness, plant)
    functions(place)
    bodies = {"PUT /jobs/{id}/schedule": {"schedule": "0 * * * *"}, "PUT /jobs/{job_id}/status": {"isEnabled": True}}
    path = re.sub(r"\{\w+\}", str(uuid4()), route.path)
    place.refused(f"{route.system} {route.verb} {path}", 404, bodies.get(f"{route.verb} {route.path}", {}))


def test_the_page_lists_these_routes_and_what_they_call() -> None:
    section = PAGE.read_text(encoding="utf-8").split("\n## Routes\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| (\S+) \| `(\w+) (\S+)` \| `(\S+)` \|$", section, re.MULTILINE)
    assert sorted(listed) == sorted((one.system, one.verb, one.path, one.calls) for one in ROUTES)
    assert [sum(one.system == system.name for one in ROUTES) for system in (ORCHESTRATOR, CRAWLER, SUPPORT_CENTER)] == [
        12,
        8,
        12,
    ]
