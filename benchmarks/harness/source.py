"""The data that is measured with: clean documents of the demo's generators, and what changes in them."""

from collections.abc import Iterator
from typing import Any

from pymongo.database import Database

from migrator.embedded.demo import Plan, insert, runs, schedules
from migrator.embedded.demo.plan import Counts

SCHEDULES = 400
_SEED = 7
_IMAGES = 80
"""Images of a snapshot of about 22 KB."""


def fill(database: Database[Any], collection: str, documents: int) -> int:
    """Write the documents of one collection (``runs`` with their schedules); return the mean size in bytes."""
    if collection == "runs":
        plan = Plan(seed=_SEED, counts=_counts(runs=documents), plain=True)
        insert(database["schedules"], schedules.documents(plan))
        insert(database["runs"], runs.run_documents(plan))
    else:
        insert(database["impact_snapshots"], _snapshots(documents))
    return int(database.command("collStats", collection)["avgObjSize"])


def _snapshots(documents: int) -> Iterator[bytes]:
    plan = Plan(seed=_SEED, counts=_counts(), plain=True)
    stream = plan.stream("benchmark-snapshots")
    images = runs.image_pool(plan)
    for index in range(documents):
        yield runs.snapshot(plan, stream, images, index, _IMAGES)


def _counts(runs: int = 0) -> Counts:
    return Counts(SCHEDULES, runs, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def change(database: Database[Any], collection: str, step: int) -> int:
    """Change one document in a hundred, without moving any field; ``step`` -1 takes a step of 1 back."""
    field = "stats.completed" if collection == "runs" else "total"
    identifiers = [row["_id"] for row in database[collection].find({}, {"_id": 1}).sort("_id").hint("_id_")][::100]
    changed = 0
    for start in range(0, len(identifiers), 1000):
        chosen = {"_id": {"$in": identifiers[start : start + 1000]}}
        changed += database[collection].update_many(chosen, {"$inc": {field: step}}).modified_count
    return changed
