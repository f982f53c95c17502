"""APScheduler 4 (pre-releases): ``SQLAlchemyDataStore`` and ``MongoDBDataStore``.

``entries`` and ``fires`` do not start the store, which would make tables and indexes, and write the version. A result
is read without ``get_job_result``, which deletes it. ``options.serializer`` is the store's: pickle, json, or either (if
omitted), which is told from what is stored. No class of the application is loaded.

``work`` starts two schedulers under a clock that stands still, with stand-ins for the functions of all tasks, until
nothing is due. A job of a schedule is told by its schedule.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

from . import beats, stand_ins, stores
from .dialogue import Lines, Refused, bounded

DISTRIBUTIONS = ("apscheduler",)
TABLES = ("tasks", "schedules", "jobs", "job_results", "metadata")
_TRIGGERS = "apscheduler.triggers."
LIBRARY = frozenset(
    _TRIGGERS + name
    for name in (
        "cron.CronTrigger",
        "interval.IntervalTrigger",
        "date.DateTrigger",
        "calendarinterval.CalendarIntervalTrigger",
        "combining.AndTrigger",
        "combining.OrTrigger",
    )
)


SCHEDULERS = ("probe-0", "probe-1")
PATIENCE = 120
"""Seconds after which the schedulers must have nothing to do."""
PICKLED = b"\x80"
"""The first byte of a pickle, with which no JSON begins."""


def _store(request: dict[str, Any], *, read_only: bool) -> Any:
    place = request["store"]
    stores.expect(place, "postgresql", "mongodb")
    serializer = _serializer(request.get("options", {}).get("serializer", "either"))
    if place["kind"] == "postgresql":
        module = importlib.import_module("apscheduler.datastores.sqlalchemy")
        made = module.SQLAlchemyDataStore(stores.engine(place, read_only=read_only), schema=place.get("schema") or None)
    else:
        module = importlib.import_module("apscheduler.datastores.mongodb")
        made = module.MongoDBDataStore(stores.mongo_client(place), database=place["database"])
    made.serializer = serializer
    return made


def _serializer(name: str) -> Any:
    """Return the library's serializer, which loads nothing of the application."""
    if name not in ("pickle", "json", "either"):
        raise Refused(f"the serializer {name} is not known: pickle, json or either")
    if name == "either":
        pickles, texts = _serializer("pickle"), _serializer("json")

        class Either(importlib.import_module("apscheduler.abc").Serializer):  # type: ignore[misc]  # it has no types
            """Reads what both serializers write, and writes pickles."""

            def serialize(self, obj: Any) -> bytes:
                return bytes(pickles.serialize(obj))

            def deserialize(self, serialized: bytes) -> Any:
                return (pickles if serialized.startswith(PICKLED) else texts).deserialize(serialized)

        return Either()
    marshalling = importlib.import_module("apscheduler._marshalling")
    find = marshalling.callable_from_ref
    setattr(  # noqa: B010 - a module has no such attribute for mypy
        marshalling,
        "callable_from_ref",
        lambda reference: (
            find(reference) if reference.replace(":", ".") in LIBRARY else stand_ins.find_stand_in(reference)
        ),
    )
    module = importlib.import_module(f"apscheduler.serializers.{name}")
    if name == "pickle":
        inert = stand_ins.pickles(LIBRARY)
        vars(module).update(loads=inert.loads, dumps=inert.dumps)
        return module.PickleSerializer()
    return module.JSONSerializer()


def _found(request: dict[str, Any]) -> dict[str, list[Any]]:
    store = _store(request, read_only=True)

    async def read() -> dict[str, list[Any]]:
        return {
            "task": await store.get_tasks(),
            "schedule": await store.get_schedules(),
            "job": await store.get_jobs(),
        }

    return asyncio.run(read())


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each task, schedule and job as the library finds it, and each result as the store's own reader reads it."""
    stored = _found(request)
    free = _free_slots(stored)
    for kind, listed in stored.items():
        for entry in sorted(listed, key=lambda one: str(one.id)):
            members = {} if kind == "task" else {"free": free.get(entry.task_id, "never")}
            lines.put("entry", id=f"{kind} {entry.id}", fields=_fields(entry), **members)
    structures = importlib.import_module("apscheduler._structures")
    serializer = _store(request, read_only=True).serializer
    for row in _results(request["store"]):
        key = f"result {row['job_id']}"
        try:
            lines.put("entry", id=key, fields=_fields(structures.JobResult.unmarshal(serializer, row)))
        except Exception as error:  # noqa: BLE001 - of one result
            lines.fail(key, error)


def _free_slots(stored: dict[str, list[Any]]) -> dict[str, str | None]:
    """Return task → from when on a job of it may run: None is at once, else when a lease ends, or never.

    A task counts its running jobs. Those of a scheduler that was killed are subtracted when their leases have ended.
    """
    leases: dict[str, list[datetime]] = {}
    for job in stored["job"]:
        if job.acquired_until is not None:
            leases.setdefault(job.task_id, []).append(job.acquired_until)
    free: dict[str, str | None] = {}
    for task in stored["task"]:
        is_full = task.max_running_jobs is not None and task.max_running_jobs == task.running_jobs
        first = min(leases[task.id]) if task.id in leases else None
        free[task.id] = (stores.in_utc(first) or "never") if is_full else None
    return free


def _fields(entry: Any) -> dict[str, Any]:
    """Return the fields of an entry; times are instants, for the tables keep no offset."""
    values = {}
    for name in (field.name for field in importlib.import_module("attrs").fields(type(entry))):
        value = getattr(entry, name)
        if name in ("trigger", "args", "kwargs", "metadata", "return_value", "exception"):
            values[name] = stand_ins.plain(value)
        elif hasattr(value, "astimezone"):
            values[name] = stores.in_utc(value)
        elif hasattr(value, "total_seconds"):
            values[name] = value.total_seconds()
        else:
            values[name] = value.name if hasattr(value, "name") else value if value is None else str(value)
    return values


def _results(place: dict[str, Any]) -> list[dict[str, Any]]:
    names = ("job_id", "outcome", "started_at", "finished_at", "expires_at", "exception", "return_value")
    if place["kind"] == "postgresql":
        schema = (place.get("schema") or "public").replace('"', '""')
        rows = stores.execute(place, f'SELECT {", ".join(names)} FROM "{schema}".job_results ORDER BY job_id')  # noqa: S608 - quoted
        results = [dict(zip(names, row)) for row in rows]  # noqa: B905 - Python 3.9 has no strict
        for row in results:
            for name in ("exception", "return_value"):
                row[name] = None if row[name] is None else bytes(row[name])
        return results
    module = importlib.import_module("apscheduler.datastores.mongodb")
    collection = module.MongoDBDataStore(stores.mongo_client(place), database=place["database"])._jobs_results
    results = []
    for document in collection.find({}).sort("_id"):
        module.unmarshal_timestamps(document)
        document["job_id"] = document.pop("_id")
        results.append(document)
    return results


def fires(request: dict[str, Any], lines: Lines) -> None:
    """Print the fires that each schedule's trigger computes from where it stands, up to the end of each window."""
    for window in request["windows"]:
        begin, end = (stores.instant(text) for text in window)
        for schedule in sorted(_found(request)["schedule"], key=lambda one: str(one.id)):
            listed: list[Any] = []
            try:
                with bounded(request["entry_seconds"]):
                    fire = schedule.trigger.next()
                    while fire is not None and fire < end and len(listed) < request["limit"]:
                        if fire >= begin:
                            listed.append(stores.in_utc(fire))
                        fire = schedule.trigger.next()
                lines.put("fires", id=f"schedule {schedule.id}", window=window, fires=listed)
            except Exception as error:  # noqa: BLE001 - of one schedule
                lines.fail(f"schedule {schedule.id}", error)


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let two schedulers execute what is due, and print which jobs they have released."""
    stores.expect(request["store"], "postgresql")
    stored = _found(request)
    known = {job.id for job in stored["job"]}
    now = stores.instant(request["now"])
    module = importlib.import_module("apscheduler._schedulers.async_")
    beats.shift(now, (module.__name__, "datetime"), ("apscheduler.datastores.sqlalchemy", "datetime"))
    released = importlib.import_module("apscheduler._events").JobReleased
    kinds = {"success": "execution", "missed_start_deadline": "missed", "abandoned": "missed"}

    def tell(event: Any) -> None:
        key = f"job {event.job_id}" if event.job_id in known else f"schedule {event.schedule_id}"
        at = stores.in_utc(event.scheduled_start or now)
        lines.put(kinds.get(event.outcome.name, "raised"), id=key, at=at, scheduler=event.scheduler_id)

    async def start() -> None:
        async with AsyncExitStack() as stack:
            for identity in SCHEDULERS:
                scheduler = _scheduler(request, module, identity, stored)
                await stack.enter_async_context(scheduler)
                scheduler.event_broker.subscribe(tell, {released})
                # the schedulers themselves do this first: in this order it is the same at each start
                await scheduler.cleanup()
                await scheduler.start_in_background()
            await _idle(request["store"], now)

    asyncio.run(start())


def _scheduler(request: dict[str, Any], module: Any, identity: str, stored: dict[str, list[Any]]) -> Any:
    """Return a scheduler that executes the jobs of every task, of whatever executor, and does nothing in them."""
    executor = importlib.import_module("apscheduler.executors.async_").AsyncJobExecutor
    names = {task.job_executor for task in stored["task"]} | {one.job_executor for one in stored["schedule"]}
    scheduler = module.AsyncScheduler(
        _store(request, read_only=False),
        importlib.import_module("apscheduler.eventbrokers.local").LocalEventBroker(),
        identity=identity,
        job_executors={name: executor() for name in names | {job.executor for job in stored["job"]}},
        cleanup_interval=None,
    )
    scheduler._task_callables.update({task.id: _nothing for task in stored["task"]})
    return scheduler


def _nothing(*_: Any, **__: Any) -> None:
    """Stand in for a function of the application."""


DUE = """SELECT
    (SELECT count(*) FROM "{0}".schedules WHERE acquired_by = ANY(%s) OR (
        NOT paused AND next_fire_time <= %s AND (acquired_until IS NULL OR acquired_until < %s)))
    + (SELECT count(*) FROM "{0}".jobs JOIN "{0}".tasks ON tasks.id = jobs.task_id WHERE acquired_by = ANY(%s) OR (
        (acquired_until IS NULL OR acquired_until < %s)
        AND (max_running_jobs IS NULL OR max_running_jobs <> running_jobs)))"""
"""What the schedulers have to do, or are at."""


async def _idle(place: dict[str, Any], now: datetime) -> None:
    """Wait until nothing is due; raises ``Refused`` if that lasts too long."""
    schema = (place.get("schema") or "public").replace('"', '""')
    ours = list(SCHEDULERS)
    calm = 0
    for _ in range(PATIENCE * 4):
        await asyncio.sleep(0.25)
        rows = await asyncio.to_thread(stores.execute, place, DUE.format(schema), ours, now, now, ours, now)
        calm = 0 if rows[0][0] else calm + 1
        if calm == 2:  # noqa: PLR2004 - what the last job has released is told
            return
    raise Refused(f"the schedulers have not executed what is due within {PATIENCE} s")


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let the library make its tables."""
    stores.expect(request["store"], "postgresql")
    store = _store(request, read_only=False)
    broker = importlib.import_module("apscheduler.eventbrokers.local").LocalEventBroker()

    async def start() -> None:
        async with AsyncExitStack() as stack:
            await broker.start(stack, logging.getLogger("probe"))
            await store.start(stack, broker, logging.getLogger("probe"))

    asyncio.run(start())
    row = {"table": "metadata", "column": "schema_version", "value": "1"}
    lines.put("prepared", tables=list(TABLES), version_row=row)
