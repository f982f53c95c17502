"""APScheduler 4 (pre-releases): ``SQLAlchemyDataStore`` and ``MongoDBDataStore``.

``entries`` and ``fires`` do not start the store, which would make tables and indexes, and write the version. A result
is read without ``get_job_result``, which deletes it. ``options.serializer`` is the store's: pickle (if omitted) or
json. No class of the application is loaded.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from contextlib import AsyncExitStack
from typing import Any

from . import stand_ins, stores
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


def _store(request: dict[str, Any], *, read_only: bool) -> Any:
    place = request["store"]
    stores.expect(place, "postgresql", "mongodb")
    serializer = _serializer(request.get("options", {}).get("serializer", "pickle"))
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
    if name not in ("pickle", "json"):
        raise Refused(f"the serializer {name} is not known: pickle or json")
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
    for kind, listed in _found(request).items():
        for entry in sorted(listed, key=lambda one: str(one.id)):
            lines.put("entry", id=f"{kind} {entry.id}", fields=_fields(entry))
    structures = importlib.import_module("apscheduler._structures")
    serializer = _store(request, read_only=True).serializer
    for row in _results(request["store"]):
        key = f"result {row['job_id']}"
        try:
            lines.put("entry", id=key, fields=_fields(structures.JobResult.unmarshal(serializer, row)))
        except Exception as error:  # noqa: BLE001 - of one result
            lines.fail(key, error)


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


def work(_request: dict[str, Any], _lines: Lines) -> None:
    """Refuse: this probe does not start a scheduler."""
    raise Refused("this probe does not execute jobs of APScheduler 4")


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
