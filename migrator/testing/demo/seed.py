"""Every collection of the demo, in the order in which it is written, and the writing of it into MongoDB."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database

from migrator.errors import RefusedError
from migrator.testing.demo import jobs, operations, runs, schedules
from migrator.testing.demo.faults import faulty_documents
from migrator.testing.demo.plan import COUNTS, Plan, Size

COLLECTIONS: dict[str, Callable[[Plan], Iterator[bytes]]] = {
    "schedules": schedules.documents,
    "triggers": schedules.triggers,
    "runs": runs.run_documents,
    "run_summaries": runs.summaries,
    "impact_snapshots": runs.snapshot_documents,
    "audit": operations.audit,
    "policy_runs": jobs.policy_run_documents,
    "policy_jobs": jobs.policy_job_documents,
    "graph_jobs": jobs.graph_job_documents,
    "graph_job_events": jobs.graph_event_documents,
    "locks": operations.locks,
    "workers": operations.workers,
    "execution_logs": operations.execution_logs,
}
"""Generators of clean documents as raw BSON; ``triggers`` stays empty unless the plan asks for it."""


def plan_of(size: Size, seed: int, *, triggers: bool = False) -> Plan:
    """Return the plan of a demo database of that size."""
    return Plan(seed=seed, counts=COUNTS[size], triggers=triggers)


SEED = 20251102
"""The seed when none is given."""
_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_DOCUMENTS = 5000


def seed(
    database: Database[Any],
    size: Size,
    seed: int = SEED,
    *,
    faults: bool = True,
    triggers: bool = False,
    huge: bool = False,
    drop: bool = False,
    dry_run: bool = False,
) -> Mapping[str, int]:
    """Write the demo's data and return the number of documents by collection.

    ``faults`` adds the planted documents, ``huge`` a document close to MongoDB's limit of 16 MB among them, and
    ``triggers`` a collection of triggers besides those of the schedules. ``drop`` removes the database first.
    ``dry_run``: the documents are made and counted, and nothing is written. Raises ``RefusedError`` when the database
    holds anything already, and is not to be dropped.
    """
    present = sorted(name for name in database.list_collection_names() if not name.startswith("system."))
    if drop and not dry_run:
        database.client.drop_database(database.name)
    elif present and not drop:
        raise RefusedError(f"database {database.name} is not empty: it has {', '.join(present[:5])}")
    plan = plan_of(size, seed, triggers=triggers)
    extra = faulty_documents(seed, huge=huge) if faults else ()
    written: dict[str, int] = {}
    for name, documents in COLLECTIONS.items():
        faulty = (item.raw for item in extra if item.collection == name)
        made = chain(documents(plan), faulty)
        count = sum(1 for _ in made) if dry_run else insert(database[name], made)
        if count:
            written[name] = count
    return written


def insert(collection: Collection[Any], documents: Iterator[bytes]) -> int:
    """Insert raw documents, in their order, and return their number; one batch is written while the next is made."""
    total = 0
    writing: Future[object] | None = None
    with ThreadPoolExecutor(1) as writer:
        for batch in _batches(documents):
            if writing is not None:
                writing.result()
            writing = writer.submit(collection.insert_many, batch, ordered=False)
            total += len(batch)
        if writing is not None:
            writing.result()
    return total


def _batches(documents: Iterator[bytes]) -> Iterator[list[RawBSONDocument]]:
    batch: list[RawBSONDocument] = []
    size = 0
    for raw in documents:
        if batch and (size + len(raw) > _BATCH_BYTES or len(batch) == _BATCH_DOCUMENTS):
            yield batch
            batch, size = [], 0
        batch.append(RawBSONDocument(raw))
        size += len(raw)
    if batch:
        yield batch
