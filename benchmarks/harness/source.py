"""What is measured: one collection of one source, and the tables that its documents feed."""

import pickle
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

import bson
import msgspec
from bson.binary import Binary
from bson.objectid import ObjectId
from pymongo.database import Database

from migrator.exit_status import QUARANTINE
from migrator.testing.demo import Plan, insert, runs, schedules
from migrator.testing.demo.plan import Counts

SCHEDULES: Final = 400
_SEED: Final = 7
_IMAGES: Final = 80
"""Images of a snapshot of about 22 KB."""
_LARGE_BYTES: Final = 100_000
"""The least size of a large document."""
_EACH_INVALID: Final = 20
"""One document in so many cannot be converted: 5 %."""
_NOON: Final = datetime(2026, 11, 22, 12)  # noqa: DTZ001 - as BSON dates are written
_BATCH: Final = 1_000


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A collection, and where its documents go."""

    collection: str
    profile: str
    tables: tuple[str, ...]
    """In the order in which rows can be written."""
    changed: str
    """A number that `change` counts up."""
    target: str = "scheduler"
    """The target; that of a library has its own tables (``programs/<target>.sql``), with ``id`` as their key."""
    variant: Literal["", "invalid", "large"] = ""
    """``invalid``: 5 % of the documents go into quarantine; ``large``: they have 100 KB each."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return "-".join(filter(None, (self.collection, self.variant, "native" if self.is_native else "")))

    def rows(self, documents: int) -> int:
        """Return the rows that so many documents make in the table ``counted``."""
        return documents - (len(range(0, documents, _EACH_INVALID)) if self.variant == "invalid" else 0)

    @property
    def status(self) -> int:
        """The exit status of its copy and of its parity check."""
        return QUARANTINE if self.variant == "invalid" else 0

    @property
    def is_native(self) -> bool:
        """Whether its tables are those of a library."""
        return self.target != "scheduler"

    @property
    def counted(self) -> str:
        """The table, with its schema, that has one row for each document."""
        return self.qualified(self.tables[0])

    def qualified(self, table: str) -> str:
        """Return the name of one of its tables with the schema."""
        return f"public.{table}" if self.is_native else f"scheduler.{table}"


DATASETS: Final[Mapping[str, Dataset]] = {
    one.name: one
    for one in (
        Dataset(collection="runs", profile="stellaops", tables=("runs",), changed="stats.completed"),
        Dataset(collection="runs", profile="stellaops", tables=("runs",), changed="stats.completed", variant="invalid"),
        Dataset(collection="runs", profile="stellaops", tables=("runs",), changed="stats.completed", variant="large"),
        Dataset(collection="impact_snapshots", profile="stellaops", tables=("impact_snapshots",), changed="total"),
        Dataset(
            collection="agendaJobs", profile="agenda", tables=("schedules", "triggers", "runs"), changed="priority"
        ),
        Dataset(collection="jobs", profile="apscheduler", tables=("schedules", "triggers"), changed="next_run_time"),
        Dataset(
            collection="agendaJobs", profile="agenda", tables=("agenda_jobs",), changed="priority", target="agenda"
        ),
        Dataset(
            collection="jobs",
            profile="apscheduler",
            tables=("apscheduler_jobs",),
            changed="next_run_time",
            target="apscheduler",
        ),
    )
}


def fill(database: Database[Any], dataset: Dataset, documents: int) -> int:
    """Write the documents of one collection (``runs`` with their schedules); return the mean size in bytes."""
    collection = dataset.collection
    if collection == "runs":
        insert(database["schedules"], schedules.documents(_plan(documents)))
    if dataset.variant:
        spoil = _invalid if dataset.variant == "invalid" else _large
        insert(database[collection], spoil(demo_documents(collection, documents)))
    elif collection in ("runs", "impact_snapshots"):
        insert(database[collection], demo_documents(collection, documents))
    else:
        made = _agenda_jobs(documents) if collection == "agendaJobs" else _apscheduler_jobs(documents)
        _insert(database, collection, made)
    return int(database.command("collStats", collection)["avgObjSize"])


def demo_documents(collection: str, documents: int) -> Iterator[bytes]:
    """Yield documents of ``runs`` or ``impact_snapshots``."""
    return _snapshots(documents) if collection == "impact_snapshots" else runs.run_documents(_plan(documents))


def _invalid(documents: Iterable[bytes]) -> Iterator[bytes]:
    """Yield runs, one in twenty of them in a state that does not exist."""
    for number, document in enumerate(documents):
        yield document if number % _EACH_INVALID else bson.encode({**bson.decode(document), "state": "unheard-of"})


def _large(documents: Iterable[bytes]) -> Iterator[bytes]:
    """Yield runs with so many deltas that each has 100 KB."""
    deltas: list[Any] = []
    for raw in documents:
        document = bson.decode(raw)
        deltas = document.get("deltas") or deltas or [{"imageDigest": "sha256:" + 64 * "0", "newFindings": 1}]
        document["deltas"] = deltas * -(-_LARGE_BYTES // len(bson.encode({"deltas": deltas})))
        yield bson.encode(document)


def _plan(runs: int = 0) -> Plan:
    return Plan(seed=_SEED, counts=_counts(runs), plain=True)


def _insert(database: Database[Any], collection: str, made: Iterator[dict[str, Any]]) -> None:
    batch: list[dict[str, Any]] = []
    for document in made:
        batch.append(document)
        if len(batch) == _BATCH:
            database[collection].insert_many(batch)
            batch = []
    if batch:
        database[collection].insert_many(batch)


def _snapshots(documents: int) -> Iterator[bytes]:
    plan = _plan()
    stream = plan.stream("benchmark-snapshots")
    images = runs.image_pool(plan)
    for index in range(documents):
        yield runs.snapshot(plan, stream, images, index, _IMAGES)


def _agenda_jobs(documents: int) -> Iterator[dict[str, Any]]:
    """Yield jobs as Agenda 4 writes those that repeat and have run: a schedule, a trigger and a run each."""
    for number in range(documents):
        ran = _NOON - timedelta(seconds=number % 86_400)
        yield {
            "_id": ObjectId(f"65a0{number:020x}"),
            "name": f"job-{number % 40}",
            "data": {"to": f"user-{number}@example.com", "attempt": number % 3, "tags": ["nightly", "mail"]},
            "priority": 0,
            "shouldSaveResult": False,
            "type": "normal",
            "nextRunAt": _NOON + timedelta(seconds=number % 86_400),
            "repeatInterval": f"{5 + number % 50} minutes",
            "repeatTimezone": None,
            "startDate": None,
            "endDate": None,
            "skipDays": None,
            "lastModifiedBy": f"worker-{number % 4}",
            "lockedAt": None,
            "lastRunAt": ran,
            "lastFinishedAt": ran + timedelta(milliseconds=1_500 + number % 500),
        }


def _apscheduler_jobs(documents: int) -> Iterator[dict[str, Any]]:
    """Yield jobs of APScheduler 3.11 as its ``MongoDBJobStore`` writes them: a schedule and a trigger each."""
    from apscheduler.triggers.cron import CronTrigger  # noqa: PLC0415 - an extra
    from apscheduler.triggers.interval import IntervalTrigger  # noqa: PLC0415 - as above

    triggers = [CronTrigger(minute=minute, hour="*/2", timezone="UTC") for minute in range(30)]
    triggers += [IntervalTrigger(minutes=5 + minute, timezone="UTC") for minute in range(30)]
    for number in range(documents):
        due = _NOON.replace(tzinfo=UTC) + timedelta(seconds=number % 86_400)
        state = {
            "version": 1,
            "id": f"job-{number:012}",
            "func": "reports.tasks:send",
            "trigger": triggers[number % len(triggers)],
            "executor": "default",
            "args": (f"user-{number}@example.com",),
            "kwargs": {"attempt": number % 3},
            "name": f"send {number % 40}",
            "misfire_grace_time": 30,
            "coalesce": True,
            "max_instances": 1,
            "next_run_time": due,
        }
        yield {
            "_id": state["id"],
            "next_run_time": due.timestamp(),
            "job_state": Binary(pickle.dumps(state, pickle.HIGHEST_PROTOCOL)),
        }


def _counts(runs: int = 0) -> Counts:
    return Counts(SCHEDULES, runs, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def change(database: Database[Any], dataset: Dataset, step: int) -> int:
    """Change one document in a hundred, without moving any field; ``step`` -1 takes a step of 1 back."""
    collection, field = dataset.collection, dataset.changed
    identifiers = [row["_id"] for row in database[collection].find({}, {"_id": 1}).sort("_id").hint("_id_")][::100]
    changed = 0
    for start in range(0, len(identifiers), _BATCH):
        chosen = {"_id": {"$in": identifiers[start : start + _BATCH]}}
        changed += database[collection].update_many(chosen, {"$inc": {field: step}}).modified_count
    return changed
