"""APScheduler 3: ``SQLAlchemyJobStore`` and ``MongoDBJobStore``.

The library deletes every job that it cannot restore when it lists jobs. ``entries`` and ``fires`` let it restore each
job, and keep those that fail from it; their sessions are read only, and ``MongoDBJobStore`` gets no chance to make its
index. No function of the application is loaded: each job gets a function that does nothing.

One scheduler may serve a store of APScheduler 3: the library has no lock between schedulers. ``work`` therefore starts
one scheduler with an executor of ``options.workers`` threads (2 if omitted).
"""

from __future__ import annotations

import contextlib
import importlib
import math
import threading
from functools import partial
from typing import Any

from . import stand_ins, stores
from .dialogue import Lines, Refused, TooLongError, bounded

DISTRIBUTIONS = ("apscheduler",)
TABLE = "apscheduler_jobs"
COLLECTION = "jobs"
_CRON = "apscheduler.triggers.cron."
LIBRARY = frozenset(
    [_CRON + "CronTrigger"]
    + [_CRON + "fields." + name + "Field" for name in ("Base", "Week", "DayOfMonth", "DayOfWeek", "Month")]
    + [
        _CRON + "expressions." + name + "Expression"
        for name in ("All", "Range", "MonthRange", "WeekdayRange", "WeekdayPosition", "LastDayOfMonth")
    ]
    + ["apscheduler.triggers." + name for name in ("interval.IntervalTrigger", "date.DateTrigger")]
    + ["apscheduler.triggers.calendarinterval.CalendarIntervalTrigger"]
    + ["apscheduler.triggers.combining." + name for name in ("AndTrigger", "OrTrigger")]
)
FIELDS = (
    *("name", "executor", "misfire_grace_time", "coalesce", "max_instances"),
    *("args", "kwargs", "trigger", "next_run_time"),
)


class Unrestored:
    """Stands for a job that the library cannot restore, so that it does not delete it."""

    next_run_time = None

    def __init__(self, stored: bytes, error: Exception) -> None:
        self.stored, self.error = bytes(stored), error


def _store(request: dict[str, Any], *, read_only: bool) -> Any:
    """Return the library's job store, which loads nothing of the application."""
    place = request["store"]
    stores.expect(place, "postgresql", "mongodb")
    if place["kind"] == "postgresql":
        module = importlib.import_module("apscheduler.jobstores.sqlalchemy")
        engine = stores.engine(place, read_only=read_only)
        schema = place.get("schema") or None
        store = module.SQLAlchemyJobStore(engine=engine, tablename=stores.named(place, TABLE), tableschema=schema)
    else:
        module = importlib.import_module("apscheduler.jobstores.mongodb")
        client, collection = stores.mongo_client(place), stores.named(place, COLLECTION)
        store = module.MongoDBJobStore(database=place["database"], collection=collection, client=client)
    setattr(module, "pickle", stand_ins.pickles(LIBRARY))  # noqa: B010 - a module has no such attribute for mypy
    setattr(importlib.import_module("apscheduler.job"), "ref_to_obj", _stand_in_function)  # noqa: B010 - as above
    return store


def _stand_in_function(reference: Any) -> Any:
    """Do what ``apscheduler.util.ref_to_obj`` does, without importing: refuse what it refuses before it imports."""
    if not isinstance(reference, str):
        raise TypeError("References must be strings")
    if ":" not in reference:
        raise ValueError("Invalid reference")
    return lambda *_, **__: reference


def _restored(request: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return the store, and each job as the library restores it, or what stands for it."""
    store = _store(request, read_only=True)
    base = importlib.import_module("apscheduler.jobstores.base").BaseJobStore
    base.start(store, None, "default")  # the store's own start would make the table, or the index
    restore = store._reconstitute_job

    def reconstitute(stored: bytes) -> Any:
        try:
            return restore(stored)
        except Exception as error:  # noqa: BLE001 - whatever the library raises, it would delete the job
            return Unrestored(stored, error)

    store._reconstitute_job = reconstitute
    return store, store.get_all_jobs()


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each job as the library restores it, and ``next_run_time`` as the store has it."""
    store, jobs = _restored(request)
    broken = {job.stored: job.error for job in jobs if isinstance(job, Unrestored)}
    restored = {job.id: job for job in jobs if not isinstance(job, Unrestored)}
    for key, due, pickle in _stored(request["store"], store):
        if pickle in broken:
            lines.fail(key, broken[pickle])
        elif key not in restored:
            lines.fail(key, Refused("the job has another id than its row"))
        else:
            shown = None if due is None else repr(float(due))
            lines.put("entry", id=key, due=shown, fields=_fields(restored[key]))


def _stored(place: dict[str, Any], store: Any) -> list[tuple[str, Any, bytes]]:
    """Return id, ``next_run_time`` and pickle of each job, in the order of ids, without the library."""
    if place["kind"] == "postgresql":
        columns = store.jobs_t.c
        chosen = importlib.import_module("sqlalchemy").select(columns.id, columns.next_run_time, columns.job_state)
        with store.engine.connect() as connection:
            rows = [tuple(row) for row in connection.execute(chosen)]
    else:
        names = ("_id", "next_run_time", "job_state")
        rows = [tuple(document.get(name) for name in names) for document in store.collection.find({}, names)]
    return sorted(((str(key), due, bytes(pickle or b"")) for key, due, pickle in rows), key=lambda row: row[0])


def _fields(job: Any) -> dict[str, Any]:
    values = {name: getattr(job, name) for name in FIELDS} | {"func": job.func_ref}
    return {name: stand_ins.plain(value) for name, value in values.items()}


def fires(request: dict[str, Any], lines: Lines) -> None:
    """Print the fires of each job in each window, without jitter, which is random."""
    restored = [job for job in _restored(request)[1] if not isinstance(job, Unrestored)]  # those are told as entries
    for job in sorted(restored, key=lambda job: str(job.id)):
        try:
            _without_jitter(job.trigger)
            for window in request["windows"]:
                with bounded(request["entry_seconds"]):
                    following = job.trigger.get_next_fire_time
                    found = stores.fires_of(partial(first_of, job), following, window, request["limit"])
                lines.put("fires", id=job.id, window=window, fires=found)
        except Exception as error:  # noqa: BLE001 - of one job
            lines.fail(job.id, error)


def first_of(job: Any, begin: Any) -> Any:
    """Return the fire from which those of a window are listed: the first one of a job that has not fired yet.

    A calendar interval begins with its first date, and a combination with a date of it, also if that has passed; an
    ``AndTrigger`` may find no first fire. Their jobs go on from where they stand.
    """
    kind = type(job.trigger).__name__
    if kind in ("CronTrigger", "IntervalTrigger", "DateTrigger") or job.next_run_time is None:
        return job.trigger.get_next_fire_time(None, begin)
    fire = job.trigger.get_next_fire_time(None, begin) if kind == "OrTrigger" else job.next_run_time
    return job.next_run_time if fire is not None and fire < begin else fire


def _without_jitter(trigger: Any) -> None:
    if getattr(trigger, "jitter", None) is not None:
        trigger.jitter = None
    for inner in getattr(trigger, "triggers", ()):
        _without_jitter(inner)


def _scheduler(base: Any) -> Any:
    """Return a scheduler that processes jobs when it is told to, with one executor for all names of executors."""

    class Scheduler(base.BaseScheduler):  # type: ignore[misc]  # the library has no types
        def wakeup(self) -> None:
            """Wait for nothing."""

        def shutdown(self, *, wait: bool = True) -> None:
            """End the executor, after its jobs."""
            super().shutdown(wait)

        def _lookup_executor(self, _: str) -> Any:
            return super()._lookup_executor("default")

    return Scheduler(timezone=stores.UTC)


def _bound_triggers(seconds: float, lines: Lines) -> None:
    """Let a trigger whose parts never agree end its job, which is told as failed, and not the search of the library."""
    combining: Any = importlib.import_module("apscheduler.triggers.combining")
    job: Any = importlib.import_module("apscheduler.job").Job
    run_times, following = job._get_run_times, combining.AndTrigger.get_next_fire_time
    asked: list[Any] = []

    def note_job(self: Any, now: Any) -> Any:
        asked[:] = [self.id]
        return run_times(self, now)

    def bounded_following(self: Any, previous: Any, now: Any) -> Any:
        try:
            with bounded(seconds):
                return following(self, previous, now)
        except TooLongError as error:
            lines.fail(asked[0], error)
            return None

    job._get_run_times, combining.AndTrigger.get_next_fire_time = note_job, bounded_following


def _pause(scheduler: Any, ids: set[str]) -> None:
    """Pause jobs, and forget their ids; the library has removed those that do not fire again."""
    missing = importlib.import_module("apscheduler.jobstores.base").JobLookupError
    for key in ids:
        with contextlib.suppress(missing):
            scheduler.pause_job(key)
    ids.clear()


def work(request: dict[str, Any], lines: Lines) -> None:
    """Let the library execute what is due at ``now``; print each execution, and each fire that it misses.

    ``options.ticks``: seconds since 1970, ascending, at which the library is told to work in place of ``now``, twice at
    each, and the second time there is nothing left to do: those lines have ``again``. Then a job that was executed is
    paused, because the library makes a list of all fires between two ticks. After ``options.most`` lines no other tick
    is begun. A line ``tick`` tells the end of each.
    """
    base: Any = importlib.import_module("apscheduler.schedulers.base")
    events = importlib.import_module("apscheduler.events")
    executors = importlib.import_module("apscheduler.executors.pool")
    options = request.get("options", {})
    ticks = options.get("ticks") or [stores.instant(request["now"]).timestamp()]
    workers = options.get("workers", 2)
    scheduler, executor = _scheduler(base), executors.ThreadPoolExecutor(workers)
    scheduler.add_executor(executor, "default")
    scheduler.add_jobstore(_store(request, read_only=False), "default")
    kinds = {
        events.EVENT_JOB_EXECUTED: "execution",
        events.EVENT_JOB_MISSED: "missed",
        events.EVENT_JOB_ERROR: "raised",
        events.EVENT_JOB_MAX_INSTANCES: "too many",
        events.EVENT_JOB_REMOVED: "removed",
    }

    begun: dict[str, Any] = {"ids": set(), "again": {}}

    def tell(event: Any) -> None:
        begun["ids"].add(event.job_id)
        single = getattr(event, "scheduled_run_time", None)
        times = getattr(event, "scheduled_run_times", None) or [single]
        for at in times:
            handler = getattr(event, "retval", None)
            worker = threading.current_thread().name
            told = {"id": event.job_id, "at": stores.in_utc(at), "handler": handler, "worker": worker}
            lines.put(kinds[event.code], **told, **begun["again"])

    def show(seconds: float) -> None:
        clock = stores.shifted_clock(stores.of_seconds(seconds))
        base.datetime = clock
        setattr(importlib.import_module("apscheduler.executors.base"), "datetime", clock)  # noqa: B010 - as above

    def process() -> None:
        scheduler._process_jobs()
        together = threading.Barrier(workers)  # each thread waits here after it has told of its jobs
        for waiting in [executor._pool.submit(together.wait) for _ in range(workers)]:
            waiting.result()

    _bound_triggers(request["entry_seconds"], lines)
    scheduler.add_listener(tell, sum(kinds))
    show(ticks[0])
    scheduler.start()
    for tick in ticks:
        if sum(lines.counts.values()) >= options.get("most", math.inf):
            break
        show(tick)
        process()
        if options.get("ticks"):
            begun["again"] = {"again": True}
            process()
            begun["again"] = {}
            _pause(scheduler, begun["ids"])
        lines.put("tick", at=tick)
    scheduler.shutdown(wait=True)


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let the library make its table."""
    stores.expect(request["store"], "postgresql")
    store = _store(request, read_only=False)
    store.start(None, "default")
    lines.put("prepared", tables=[TABLE])
