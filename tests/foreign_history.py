"""A live scheduler's history in MongoDB, written by another application, with all that a careless process touches."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from bson import encode
from pymongo.database import Database

from tests.stellaops_documents import CANONICAL, fresh

OWN: Final = UUID("00000000-0000-4000-8000-000000000001")
"""A silent process of this scheduler, which worked on MongoDB when the history was written."""

Content = dict[str, dict[bytes, bytes]]

DAY = timedelta(days=1)
BATCH = 60
"""Schedules, and twice as many old runs of one of them."""


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"


def plant_own(database: Database[Any]) -> None:
    """Insert a silent process of this scheduler, and a run that it holds."""
    now = datetime.now(UTC).replace(microsecond=0)
    stated = {"kind": "scheduler", "metadata": {"scheduler": "migrator", "handlers": ["note"], "handlerTypes": []}}
    database["workers"].insert_one(fresh("workers", _id=f"wrk_{OWN.hex}", lastHeartbeatAt=now - DAY, **stated))
    live = {"retryOf": ..., "scheduleId": ..., "deltas": [], "finishedAt": ..., "error": ..., "state": "running"}
    held = {"workerId": str(OWN), "leaseExpiresAt": now - DAY, "fence": 1, "createdAt": _text(now - DAY)}
    database["runs"].insert_one(fresh("runs", _id=(key := _id("run")), id=key, **live) | held)


def plant(database: Database[Any]) -> None:
    """Insert canonical documents, old runs with logs, silent workers, lost and waiting runs, due and bare triggers."""
    now = datetime.now(UTC).replace(microsecond=0)
    for collection in CANONICAL:
        database[collection].insert_one(fresh(collection))
    schedules = [
        fresh("schedules", _id=key, id=key, name=f"scan {n}", deletedAt=..., deletedBy=..., timeoutMs=60_000)
        for n, key in enumerate(_id("sch") for _ in range(BATCH))
    ]
    database["schedules"].insert_many(schedules)
    first = schedules[0]["_id"]
    least: dict[str, Any] = {"retryOf": ..., "scheduleId": first, "deltas": []}
    old = [
        fresh("runs", _id=key, id=key, createdAt=_text(now - (400 + n) * DAY), **least)
        for n, key in enumerate(_id("run") for _ in range(2 * BATCH))
    ]
    live: dict[str, Any] = {**least, "finishedAt": ..., "error": ...}
    queued = [
        fresh("runs", _id=key, id=key, state="queued", startedAt=..., createdAt=_text(now - DAY), **live)
        for key in (_id("run") for _ in range(11))
    ]
    running = [
        fresh("runs", _id=key, id=key, state="running", createdAt=_text(now - DAY), startedAt=_text(now - DAY), **live)
        for key in (_id("run") for _ in range(3))
    ]
    running[0]["workerId"] = "planner-1@host-2"
    running[1] |= {"workerId": "planner-1@host-2", "leaseExpiresAt": now - DAY}
    running[2] |= {"workerId": "wrk_2", "leaseExpiresAt": now - DAY, "fence": 4}
    database["runs"].insert_many(old + queued + running)
    logs = [fresh("execution_logs", _id=_id("log"), runId=run["_id"], scheduleId=first) for run in old]
    database["execution_logs"].insert_many(logs)
    silent = [
        fresh("workers", _id=f"wrk_{n}", kind=kind, lastHeartbeatAt=now - DAY)
        for n, kind in enumerate(("worker", "scheduler") * 5, start=2)
    ]
    database["workers"].insert_many(silent)
    triggers = [
        fresh("triggers", _id=_id("trg"), scheduleId=one["_id"], endAt=..., maxFires=..., nextFireAt=at)
        for one, at in zip(schedules[:20], [now - DAY] * 10 + [...] * 10, strict=True)
    ]
    database["triggers"].insert_many(triggers)
    # A schedule that is through: its one trigger fired, its run has ended.
    through = fresh("schedules", _id=(key := _id("sch")), id=key, name="once", deletedAt=..., deletedBy=...)
    through |= {"status": "running", "cronExpression": "0 2 30 2 *"}
    database["schedules"].insert_one(through)
    spent = {"_id": _id("trg"), "tenantId": "tenant-a", "scheduleId": key, "kind": "one_time", "enabled": True}
    database["triggers"].insert_one(spent | {"runAt": now - 2 * DAY, "fireCount": 1, "lastFireAt": now - 2 * DAY})


def contents(database: Database[Any]) -> Content:
    """Return every document of a database: collection to `_id` to bytes."""
    found: Content = {}
    for name in sorted(database.list_collection_names()):
        found[name] = {encode({"_": one["_id"]}): encode(one) for one in database[name].find()}
    return found


def shape(database: Database[Any]) -> dict[str, Any]:
    """Return every collection with its options and indexes."""
    return {
        one["name"]: (one.get("type"), one.get("options"), database[one["name"]].index_information())
        for one in sorted(database.list_collections(), key=lambda one: str(one["name"]))
    }
