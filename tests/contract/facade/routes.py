"""Routes of orchestrator, crawler and support-center, answered by the client in this process: JSON, without HTTP.

Each route reads its request in the shape that its system's code declares, calls the facade, and answers as that system
does: a row is the columns of the system's table, rebuilt by the adapter that also reads the table. An error is a
document with one member: 404 for an id that nothing has, 409 for what the state of a thing refuses, 400 for a bad
request.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType, structs

from migrator.errors import ConflictError, NotFoundError, RefusedError, TransitionError, UsageError
from migrator.records import Handler, Run, SourcedRecord
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import Job, ScheduleRequest
from migrator.sources.crawler import PROFILE as CRAWLER
from migrator.sources.crawler import names as crawler_names
from migrator.sources.orchestrator import PROFILE as ORCHESTRATOR
from migrator.sources.orchestrator import names as orchestrator_names
from migrator.sources.profile import Profile, Rejected
from migrator.sources.support_center import PROFILE as SUPPORT_CENTER
from migrator.sources.support_center import names as support_names
from migrator.sources.support_center.jobs import cron_of, interval_of
from migrator.store.protocols import RunQuery, ScheduleQuery
from migrator.store.statistics import RunFilter
from migrator.values import identity
from migrator.verify.behaviour.harness import Harness
from tests.other_systems import restore, shape_of
from tests.table_shapes import Row, columns_of

USER = UUID("00000000-0000-4000-8000-00000000aaaa")
"""Who is signed in, as the authentication of the application would say."""

ZONE = "Africa/Cairo"
"""Where the support centre's servers stand."""

AnyRecord = TypeVar("AnyRecord", bound=SourcedRecord)
AnyBody = TypeVar("AnyBody")


class Answer(NamedTuple):
    """What a client gets."""

    status: int
    body: bytes


class Recorder:
    """The facade, with the names of the methods that were called."""

    def __init__(self, facade: Scheduler) -> None:
        self.facade, self.called = facade, list[str]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - members of all types
        self.called.append(name)
        return getattr(self.facade, name)


class Asked:
    """One request."""

    def __init__(self, harness: Harness, params: Mapping[str, str], query: Mapping[str, Any], body: bytes) -> None:
        self.harness, self.now, self.params, self.query, self.content = harness, harness.now, params, query, body
        self.recorder = Recorder(harness.facade)

    @property
    def facade(self) -> Scheduler:
        facade: Any = self.recorder
        return facade  # type: ignore[no-any-return] # it has every member of the facade

    @property
    def id(self) -> UUID:
        return UUID(next(iter(self.params.values())))

    def body(self, shape: type[AnyBody]) -> AnyBody:
        return msgspec.json.decode(self.content, type=shape)

    def job(self) -> Job:
        found = self.facade.get(self.id, now=self.now)
        if found is None:
            raise NotFoundError(f"no job {self.id}")
        return found


class Route(NamedTuple):
    """One route of a system."""

    system: str
    capability: str
    verb: str
    path: str
    calls: str
    """Method of the facade; with a dot: of a repository of the store's session, or a constant of the adapter."""
    status: int
    serve: Callable[[Asked], Any]

    @property
    def name(self) -> str:
        return f"{self.system} {self.verb} {self.path}"


ROUTES: list[Route] = []


def route(
    system: Profile, capability: str, verb: str, path: str, calls: str, status: int = 200
) -> Callable[[Callable[[Asked], Any]], Callable[[Asked], Any]]:
    """Register what serves a route."""

    def register(serve: Callable[[Asked], Any]) -> Callable[[Asked], Any]:
        ROUTES.append(Route(system.name, capability, verb, path, calls, status, serve))
        return serve

    return register


def ask(harness: Harness, called: str, body: Any = None, **query: Any) -> Answer:  # noqa: ANN401 - any JSON value
    """Send a request: ``crawler POST /jobs/<id>/pause``."""
    system, verb, path = called.split(" ")
    for one in ROUTES:
        found = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", one.path), path)
        if (one.system, one.verb) == (system, verb) and found:
            break
    else:
        raise LookupError(called)
    asked = Asked(harness, found.groupdict(), query, json.dumps(body).encode())
    try:
        made = one.serve(asked)
    except NotFoundError as error:
        return _error(one, 404, error)
    except (TransitionError, ConflictError, RefusedError) as error:
        return _error(one, 409, error)
    except (UsageError, Rejected, msgspec.ValidationError) as error:
        return _error(one, 400, error)
    assert "." in one.calls or one.calls in asked.recorder.called, f"{one.name} does not call {one.calls}"
    return Answer(one.status, b"" if one.status == 204 else json.dumps(_told(made)).encode())


def _error(of: Route, status: int, error: Exception) -> Answer:
    member = "detail" if of.system == SUPPORT_CENTER.name else "error"
    return Answer(status, json.dumps({member: str(error)}).encode())


def _told(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """Return a value as JSON has it; a time without a zone is UTC, as the systems say."""
    match value:
        case datetime():
            return value.replace(tzinfo=UTC).isoformat() if value.tzinfo is None else value.isoformat()
        case UUID():
            return str(value)
        case dict():
            return {key: _told(member) for key, member in value.items()}
        case list() | tuple():
            return [_told(member) for member in value]
    return value


def _born(record: AnyRecord) -> AnyRecord:
    """Return a record with the id that its system knows it by: rows created here have no other."""
    return record if record.source_id is not None else structs.replace(record, source_id=str(record.id))


def _row(system: Profile, table: str, records: Iterable[SourcedRecord], **besides: Any) -> Row:  # noqa: ANN401 - columns have all types
    """Return the columns of the table, in its order; ``besides`` are those that its records do not carry."""
    source = system.by_name()[table]
    found = restore(source, tuple(_born(record) for record in records)) | besides
    return {column: found.get(column) for column in columns_of(shape_of(source))}


# -- orchestrator


class CronJob(msgspec.Struct):
    """Body of POST /jobs/cron."""

    name: str
    schedule: str
    handler_name: str
    created_by: str
    description: str | None = None
    timezone: str = "UTC"
    handler_type: str = "function"
    payload: Any = None
    enabled: bool = True
    max_retries: int = 3
    retry_delay_ms: int = 60_000
    timeout_ms: int = 300_000
    priority: str = "medium"
    concurrency: int = 1
    allow_overlap: bool = False
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class OneTimeJob(msgspec.Struct):
    """Body of POST /jobs/once."""

    name: str
    execute_at: datetime
    handler_name: str
    created_by: str
    description: str | None = None
    handler_type: str = "function"
    payload: Any = None
    max_retries: int = 3
    retry_delay_ms: int = 60_000
    timeout_ms: int = 300_000
    priority: str = "medium"
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class NewSchedule(msgspec.Struct):
    """Body of PUT /jobs/{id}/schedule."""

    schedule: str


class BusEvent(msgspec.Struct):
    """Body of POST /events/trigger."""

    event_name: str
    data: Any


def _work(body: CronJob | OneTimeJob) -> dict[str, Any]:
    other = {"schedule", "timezone", "concurrency", "allow_overlap", "execute_at"}
    return {name: value for name, value in structs.asdict(body).items() if name not in other}


def _job_002(asked: Asked, job: Job) -> Row:
    stats = asked.facade.stats(job.id, now=asked.now)
    mean = stats.avg_duration_ms
    return _row(
        ORCHESTRATOR,
        orchestrator_names.JOBS,
        (job.schedule, *job.triggers),
        success_count=stats.successful,
        failure_count=stats.failed + stats.timeout,
        avg_duration_ms=None if mean is None else round(mean),
        tags=list(job.schedule.tags or ()),
    )


def _execution_002(asked: Asked, run: Run) -> Row:
    schedule = None if run.schedule_id is None else asked.facade.get(run.schedule_id, now=asked.now)
    besides: dict[str, Any] = {"scheduled_at": run.scheduled_at or run.available_at or run.created_at}
    if run.source_id is None:
        besides["max_retries"] = 0 if schedule is None else schedule.schedule.max_retries or 0
    if run.retry_of is not None:
        besides["metadata"] = {"original_execution_id": run.retry_of}
    return _row(ORCHESTRATOR, orchestrator_names.EXECUTIONS, (run,), **besides)


@route(ORCHESTRATOR, "2-X13", "POST", "/jobs/cron", "schedule", 201)
def _(asked: Asked) -> Row:
    body = asked.body(CronJob)
    request = ScheduleRequest(
        **_work(body),
        cron=body.schedule,
        dialect=orchestrator_names.CRON_DIALECT,
        timezone=body.timezone,
        max_concurrency=None if body.allow_overlap else body.concurrency,
    )
    return _job_002(asked, asked.facade.schedule(request, now=asked.now))


@route(ORCHESTRATOR, "2-X13", "POST", "/jobs/once", "schedule_once", 201)
def _(asked: Asked) -> Row:
    body = asked.body(OneTimeJob)
    made = asked.facade.schedule_once(ScheduleRequest(**_work(body)), body.execute_at, now=asked.now)
    return _job_002(asked, made)


@route(ORCHESTRATOR, "2-X13", "GET", "/jobs/{id}", "get")
def _(asked: Asked) -> Row:
    return _job_002(asked, asked.job())


@route(ORCHESTRATOR, "2-X13", "GET", "/jobs", "list")
def _(asked: Asked) -> list[Row]:
    kind, status = asked.query.get("type"), asked.query.get("status")
    query = ScheduleQuery(
        kinds=() if kind is None else (orchestrator_names.JOB_TYPES[kind],),
        statuses=() if status is None else (orchestrator_names.JOB_STATUSES[status],),
        limit=asked.query.get("limit", 20),
        offset=asked.query.get("offset", 0),
    )
    return [_job_002(asked, job) for job in asked.facade.list(query, now=asked.now).jobs]


@route(ORCHESTRATOR, "2-X13", "PUT", "/jobs/{id}/schedule", "reschedule")
def _(asked: Asked) -> Row:
    changed = asked.facade.reschedule(
        asked.id,
        cron=asked.body(NewSchedule).schedule,
        dialect=orchestrator_names.CRON_DIALECT,
        timezone=asked.job().triggers[0].timezone or "UTC",
        now=asked.now,
    )
    return _job_002(asked, changed)


@route(ORCHESTRATOR, "2-X13", "POST", "/jobs/{id}/pause", "pause")
def _(asked: Asked) -> Row:
    asked.facade.pause(asked.id, now=asked.now)
    return {"message": "Job paused successfully"}


@route(ORCHESTRATOR, "2-X13", "POST", "/jobs/{id}/resume", "resume")
def _(asked: Asked) -> Row:
    asked.facade.resume(asked.id, now=asked.now)
    return {"message": "Job resumed successfully"}


@route(ORCHESTRATOR, "2-X13", "DELETE", "/jobs/{id}", "unschedule", 204)
def _(asked: Asked) -> None:
    asked.facade.unschedule(asked.id, now=asked.now)


@route(ORCHESTRATOR, "2-X13", "GET", "/jobs/{id}/executions", "history")
def _(asked: Asked) -> list[Row]:
    status = asked.query.get("status")
    found = asked.facade.history(
        asked.id,
        limit=asked.query.get("limit", 20),
        offset=asked.query.get("offset", 0),
        states=() if status is None else (orchestrator_names.EXECUTION_STATUSES[status],),
        now=asked.now,
    )
    return [_execution_002(asked, one.run) for one in found.executions]


@route(ORCHESTRATOR, "2-X13", "GET", "/executions/{id}", "get_execution")
def _(asked: Asked) -> Row:
    return _execution_002(asked, _run(asked))


@route(ORCHESTRATOR, "2-X13", "POST", "/executions/{id}/retry", "retry")
def _(asked: Asked) -> Row:
    return _execution_002(asked, asked.facade.retry(asked.id, now=asked.now))


@route(ORCHESTRATOR, "2-X13", "POST", "/events/trigger", "trigger_event")
def _(asked: Asked) -> Row:
    body = asked.body(BusEvent)
    asked.facade.trigger_event(body.event_name, body.data, now=asked.now)
    return {"message": "Event triggered successfully"}


def _run(asked: Asked) -> Run:
    found = asked.facade.get_execution(asked.id, now=asked.now)
    if found is None:
        raise NotFoundError(f"no execution {asked.id}")
    return found.run


# -- crawler


def _job_003(asked: Asked, job: Job) -> Row:
    error = None
    if job.schedule.status == "failed":
        newest = asked.facade.history(job.id, limit=1, now=asked.now).executions
        error = newest[0].run.error if newest else None
    return _row(CRAWLER, crawler_names.JOBS, (job.schedule, *job.triggers), error_message=error)


def _execution_003(run: Run) -> Row:
    return _row(CRAWLER, crawler_names.EXECUTIONS, (run,), started_at=run.started_at or run.created_at)


def _share(percent: float | None) -> float:
    return 0.0 if percent is None else percent / 100


@route(CRAWLER, "3-D1", "POST", "/jobs/{id}/pause", "pause")
def _(asked: Asked) -> Row:
    return _job_003(asked, asked.facade.pause(asked.id, now=asked.now))


@route(CRAWLER, "3-D2", "POST", "/jobs/{id}/resume", "resume")
def _(asked: Asked) -> Row:
    return _job_003(asked, asked.facade.resume(asked.id, now=asked.now))


@route(CRAWLER, "3-D3", "POST", "/jobs/{id}/cancel", "cancel")
def _(asked: Asked) -> Row:
    return _job_003(asked, asked.facade.cancel(asked.id, now=asked.now))


@route(CRAWLER, "3-D4", "POST", "/jobs/{id}/retry", "retry_schedule")
def _(asked: Asked) -> Row:
    asked.facade.retry_schedule(asked.id, now=asked.now)
    return _job_003(asked, asked.job())


@route(CRAWLER, "3-D5", "GET", "/jobs/{id}/executions", "history")
def _(asked: Asked) -> Row:
    limit, offset = asked.query.get("limit", 50), asked.query.get("offset", 0)
    found = asked.facade.history(asked.id, limit=limit, offset=offset, now=asked.now)
    return {
        "executions": [_execution_003(one.run) for one in found.executions],
        "total": asked.facade.stats(asked.id, now=asked.now).total,
        "limit": limit,
        "offset": offset,
    }


@route(CRAWLER, "3-D6", "GET", "/jobs/{id}/stats", "stats")
def _(asked: Asked) -> Row:
    stats = asked.facade.stats(asked.id, now=asked.now)
    return {
        "total_executions": stats.total,
        "successful_runs": stats.successful,
        "failed_runs": stats.failed,
        "average_duration_ms": stats.avg_duration_ms or 0.0,
        "last_execution_at": stats.last_started_at,
        "next_scheduled_at": None if stats.next_execution is None else stats.next_execution.scheduled_at,
        "success_rate": _share(stats.completed_share),
    }


@route(CRAWLER, "3-D7", "GET", "/executions/{id}", "get_execution")
def _(asked: Asked) -> Row:
    return _execution_003(_run(asked))


@route(CRAWLER, "3-D8", "GET", "/scheduler/metrics", "metrics")
def _(asked: Asked) -> Row:
    found = asked.facade.metrics(now=asked.now)
    return {
        "jobs": {
            name: getattr(found.jobs, name) for name in ("scheduled", "running", "completed", "failed", "cancelled")
        },
        "executions": {
            "total": found.executions.total,
            "average_duration_ms": found.performance.avg_duration_ms or 0.0,
            "success_rate": _share(found.performance.success_rate),
        },
        "last_check_at": found.generated_at,
        "last_metrics_update": found.generated_at,
        # A claim is a lease, which ends by itself: no lock is ever stale, and none is cleared.
        "stale_locks_cleared": 0,
    }


# -- support-center


class NewJob(msgspec.Struct, rename="camel"):
    """Body of POST /jobs."""

    name: str
    task_function_id: int
    job_type_id: int
    schedule_config: dict[str, Any]
    description: str | None = None
    task_args: dict[str, Any] | None = None
    max_instances: int = 1
    timeout_seconds: int = 300
    retry_count: int = 3
    retry_delay_seconds: int = 60
    is_enabled: bool = True


class ChangedJob(msgspec.Struct, rename="camel"):
    """Body of PUT /jobs/{job_id}; what is left out stays."""

    name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    task_args: dict[str, Any] | UnsetType | None = UNSET
    max_instances: int | UnsetType = UNSET
    timeout_seconds: int | UnsetType = UNSET
    retry_count: int | UnsetType = UNSET
    retry_delay_seconds: int | UnsetType = UNSET
    job_type_id: int | UnsetType = UNSET
    schedule_config: dict[str, Any] | UnsetType = UNSET


class Toggle(msgspec.Struct, rename="camel"):
    """Body of PUT /jobs/{job_id}/status."""

    is_enabled: bool


def camel(name: str) -> str:
    """Return a name as JSON of this system spells it."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _camel(row: Mapping[str, Any]) -> Row:
    return {camel(name): value for name, value in row.items()}


def _handlers(asked: Asked) -> dict[int, Handler]:
    """Return the task functions by the key that the system gives them."""
    with asked.harness.store.session(asked.harness.tenant, now=asked.now) as session:
        return {identity.parse_source_id(str(one.source_id)): one for one in session.handlers.list()}


def _function(asked: Asked, key: int) -> Handler:
    found = _handlers(asked).get(key)
    if found is None:
        raise NotFoundError(f"no task function {key}")
    return found


def _function_row(handler: Handler) -> Row:
    return _camel(_row(SUPPORT_CENTER, support_names.TASK_FUNCTIONS, (handler,)))


def _type_row(key: int) -> Row:
    name = support_names.SEEDED_JOB_TYPES[key]
    row = {"id": key, "name": name, "display_name": name.capitalize(), "description": None, "is_active": True}
    return _camel(row)


def _timing(job_type_id: int, config: dict[str, Any]) -> dict[str, Any]:
    """Return when a job recurs; its ``schedule_config`` is an interval or a dictionary of cron keywords."""
    if job_type_id not in support_names.SEEDED_JOB_TYPES:
        raise NotFoundError(f"no job type {job_type_id}")
    if support_names.SEEDED_JOB_TYPES[job_type_id] == support_names.INTERVAL:
        cause = interval_of(config, "scheduleConfig", [])
        return {"interval": timedelta(milliseconds=cause["interval_ms"])}
    found = cron_of(config, "scheduleConfig", ZONE, [])
    if found is None:
        raise UsageError("scheduleConfig holds keywords that are refused")
    return {"cron": found["cron_expression"], "dialect": found["cron_dialect"], "timezone": found["timezone"]}


def _job_004(asked: Asked, job: Job) -> Row:
    (trigger,) = job.triggers
    newest = asked.facade.history(job.id, limit=1, now=asked.now).executions
    if trigger.kind == support_names.CRON:
        config = json.loads(trigger.cron_expression or "{}")
    else:
        seconds = (trigger.interval_ms or 0) // support_names.MILLISECONDS
        config = {"hours": seconds // 3600, "minutes": seconds % 3600 // 60, "seconds": seconds % 60}
    types = {name: key for key, name in support_names.SEEDED_JOB_TYPES.items()}
    functions = {handler.name: key for key, handler in _handlers(asked).items()}
    row = _row(
        SUPPORT_CENTER,
        support_names.JOBS,
        (job.schedule, trigger),
        schedule_config=config,
        task_function_id=functions[job.schedule.handler_name or ""],
        job_type_id=types[trigger.kind],
    )
    if newest:
        row["last_status"] = support_names.EXECUTION_STATUSES_BACK[newest[0].run.state]
    return _camel(row)


def _execution_004(run: Run) -> Row:
    if run.cause not in ("manual", "api"):  # by the scheduler: only users have an id
        run = structs.replace(run, triggered_by=None)
    return _camel(_row(SUPPORT_CENTER, support_names.EXECUTIONS, (run,)))


def _page(asked: Asked, default: int) -> dict[str, Any]:
    size = asked.query.get("per_page", default)
    return {"limit": size, "offset": (asked.query.get("page", 1) - 1) * size}


def _states(asked: Asked) -> tuple[str, ...]:
    status = asked.query.get("status")
    return () if status is None else (support_names.EXECUTION_STATUSES[status],)


def _total(by_state: Mapping[str, int], states: tuple[str, ...]) -> int:
    return sum(count for state, count in by_state.items() if not states or state in states)


@route(SUPPORT_CENTER, "4-S7", "GET", "/task-functions", "handlers.list")
def _(asked: Asked) -> Row:
    found = [_function_row(handler) for _, handler in sorted(_handlers(asked).items())]
    return {"taskFunctions": found, "total": len(found)}


@route(SUPPORT_CENTER, "4-S7", "GET", "/job-types", "names.SEEDED_JOB_TYPES")
def _(_: Asked) -> list[Row]:
    return [_type_row(key) for key in support_names.SEEDED_JOB_TYPES]


@route(SUPPORT_CENTER, "4-S7", "GET", "/jobs", "list")
def _(asked: Asked) -> Row:
    query = ScheduleQuery(
        name_contains=asked.query.get("name"), enabled=asked.query.get("is_enabled"), **_page(asked, 20)
    )
    page = asked.facade.list(query, now=asked.now)
    standing = asked.facade.status(now=asked.now)
    return {
        "jobs": [_job_004(asked, job) for job in page.jobs],
        "total": page.total,
        "enabledCount": standing.enabled,
        "disabledCount": sum(standing.schedules.values()) - standing.enabled,
        "runningCount": standing.running_schedules,
    }


@route(SUPPORT_CENTER, "4-S7", "POST", "/jobs", "schedule", 201)
def _(asked: Asked) -> Row:
    body = asked.body(NewJob)
    handler = _function(asked, body.task_function_id)
    request = ScheduleRequest(
        name=body.name,
        description=body.description,
        handler_name=handler.name,
        handler_type=handler.handler_type,
        created_by=str(USER),
        payload=body.task_args,
        max_retries=body.retry_count,
        retry_delay_ms=body.retry_delay_seconds * support_names.MILLISECONDS,
        retry_strategy="fixed",
        timeout_ms=body.timeout_seconds * support_names.MILLISECONDS,
        max_concurrency=body.max_instances,
        misfire_grace_ms=support_names.MISFIRE_GRACE_MS,
        **_timing(body.job_type_id, body.schedule_config),
    )
    made = asked.facade.schedule(request, now=asked.now)
    if not body.is_enabled:  # asked for disabled, the facade makes it paused too, and enabling it leaves it so
        made = asked.facade.toggle(made.id, enabled=False, by=str(USER), now=asked.now)
    return _job_004(asked, made)


@route(SUPPORT_CENTER, "4-S7", "GET", "/jobs/{job_id}", "get")
def _(asked: Asked) -> Row:
    row = _job_004(asked, asked.job())
    recent = asked.facade.history(asked.id, limit=10, now=asked.now).executions
    return row | {
        "taskFunction": _function_row(_function(asked, row["taskFunctionId"])),
        "jobType": _type_row(row["jobTypeId"]),
        "recentExecutions": [_execution_004(one.run) for one in recent],
    }


@route(SUPPORT_CENTER, "4-S7", "PUT", "/jobs/{job_id}", "update")
def _(asked: Asked) -> Row:
    body = asked.body(ChangedJob)
    second = support_names.MILLISECONDS
    stated = {
        "name": body.name,
        "description": body.description,
        "payload": body.task_args,
        "max_concurrency": body.max_instances,
        "max_retries": body.retry_count,
        "timeout_ms": UNSET if body.timeout_seconds is UNSET else body.timeout_seconds * second,
        "retry_delay_ms": UNSET if body.retry_delay_seconds is UNSET else body.retry_delay_seconds * second,
    }
    changes: Any = {name: value for name, value in stated.items() if value is not UNSET}
    changed = asked.facade.update(asked.id, by=str(USER), now=asked.now, **changes)
    if body.schedule_config is not UNSET:
        kinds = {name: key for key, name in support_names.SEEDED_JOB_TYPES.items()}
        kind = kinds[changed.triggers[0].kind] if body.job_type_id is UNSET else body.job_type_id
        timing = _timing(kind, body.schedule_config)
        changed = asked.facade.reschedule(asked.id, **timing, by=str(USER), now=asked.now)
    return _job_004(asked, changed)


@route(SUPPORT_CENTER, "4-S7", "DELETE", "/jobs/{job_id}", "unschedule", 204)
def _(asked: Asked) -> None:
    asked.facade.unschedule(asked.id, by=str(USER), now=asked.now)


@route(SUPPORT_CENTER, "4-S7", "PUT", "/jobs/{job_id}/status", "toggle")
def _(asked: Asked) -> Row:
    enabled = asked.body(Toggle).is_enabled
    return _job_004(asked, asked.facade.toggle(asked.id, enabled=enabled, by=str(USER), now=asked.now))


@route(SUPPORT_CENTER, "4-S7", "POST", "/jobs/{job_id}/trigger", "trigger_now")
def _(asked: Asked) -> Row:
    run = asked.facade.trigger_now(asked.id, by=str(USER), now=asked.now)
    return {
        "jobId": asked.id,
        "executionId": run.id,
        "celeryTaskId": run.external_task_id,
        "message": "Job triggered successfully",
        "execution": _execution_004(run),
        "job": _job_004(asked, asked.job()),
    }


@route(SUPPORT_CENTER, "4-S7", "GET", "/executions", "runs.list")
def _(asked: Asked) -> Row:
    states = _states(asked)
    of = None if "job_id" not in asked.query else UUID(asked.query["job_id"])
    with asked.harness.store.session(asked.harness.tenant, now=asked.now) as session:
        page = session.runs.list(RunQuery(schedule_id=of, states=states, **_page(asked, 50)))
        total = _total(session.statistics.runs(RunFilter(schedule_id=of)).by_state, states)
    return {"executions": [_execution_004(run) for run in page.runs], "total": total}


@route(SUPPORT_CENTER, "4-S7", "GET", "/jobs/{job_id}/executions", "history")
def _(asked: Asked) -> Row:
    states = _states(asked)
    found = asked.facade.history(asked.id, states=states, now=asked.now, **_page(asked, 50))
    return {
        "executions": [_execution_004(one.run) for one in found.executions],
        "total": _total(asked.facade.stats(asked.id, now=asked.now).by_state, states),
    }


@route(SUPPORT_CENTER, "4-S7", "GET", "/status", "status")
def _(asked: Asked) -> Row:
    standing = asked.facade.status(now=asked.now)
    instances = []
    for worker in asked.harness.store.workers.list():
        if None in (worker.hostname, worker.pid, worker.version):  # no process, which states all three
            continue
        leads = standing.leader is not None and standing.leader.holder == str(worker.id)
        row = _row(SUPPORT_CENTER, support_names.INSTANCES, (worker,), is_leader=leads)
        instances.append(_camel(row))
    following = standing.next_fires[:1]
    job = asked.facade.get(following[0].fire.schedule_id, now=asked.now) if following else None
    return {
        "isRunning": standing.alive > 0,
        "leaderInstance": next((one for one in instances if one["isLeader"]), None),
        "totalJobs": sum(standing.schedules.values()),
        "enabledJobs": standing.enabled,
        "runningJobs": standing.running_schedules,
        "nextScheduledJob": None if job is None else _job_004(asked, job),
        "instances": instances,
    }
