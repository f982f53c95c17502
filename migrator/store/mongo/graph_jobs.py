"""Graph jobs and their events in MongoDB.

A payload that is a document of the source (it has an ``_id``) is written as one, its status and correlation brought up
to the columns; any other payload lies in a document of our own shape (``sources.stellaops.graph_own``).
"""

import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from bson.int64 import Int64

from migrator import states
from migrator.errors import ConflictError, UnknownError
from migrator.records.graph_job import GraphJob
from migrator.records.graph_job_event import GraphJobEvent
from migrator.sources.profile import Document
from migrator.sources.stellaops import graph_own
from migrator.store import lives, rules
from migrator.store.mongo.places import document_of
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.transaction import Transaction
from migrator.store.ports import GraphType
from migrator.values.times import format_iso

_WORDS = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
_SPELLINGS = {"canceled": ["canceled", "cancelled"]}
_DERIVED = frozenset({"payload", "updated_at"})
"""What a document of the source does not hold as it is given."""
_CHANCE_BITS = 20
_LATEST = (1 << 41) * 2 - 2
"""Milliseconds since 1970 that leave a number below 2^63: the year 2109."""


class MongoGraphJobs(Repository[GraphJob]):
    """``ports.GraphJobs``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(GraphJob, transaction, strangers, tenant, now)
        self._events = self._of(GraphJobEvent)

    def insert(self, job: GraphJob) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""
        document = self._document(rules.written(job, self._tenant))
        if self._taken(job.id):
            raise ConflictError(f"the id is taken ({self._name})")
        self._transaction.insert(self._name, [document])

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now and the type is the same; writes an event."""
        job = rules.written(job, self._tenant)
        rules.transition("graph job", expected, _WORDS[job.status])
        stored = self._find(job.id)
        if stored is None or stored.row.type != job.type or _WORDS[stored.row.status] != expected:
            return False
        kept = msgspec.structs.replace(job, created_at=stored.row.created_at)
        document = self._document(kept, stored.document["_id"])
        event, _ = self._event(lives.graph_event(job, self._now))
        self._transaction.replace(self._name, document)
        self._transaction.insert(self._events._name, [event])  # noqa: SLF001 - its own other half
        return True

    def get(self, kind: GraphType, job_id: UUID) -> GraphJob | None:
        """Return the job of this type."""
        rules.known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        job = self._visible(job_id)
        return job if job is not None and job.type == states.GRAPH_JOB_TYPES[kind] else None

    def list(self, kind: GraphType, status: str | None, limit: int) -> Sequence[GraphJob]:
        """Return jobs of this type, newest first."""
        rules.page(limit)
        rules.known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        where: dict[str, Any] = {}
        if status is not None:
            rules.known("status of graph jobs", states.GRAPH_JOB_CODES, (status,))
            where = {"status": {"$in": _SPELLINGS.get(status, [status])}}
        # Times are texts in the source's shape and dates in ours: only the rows can be sorted.
        found = [one.row for one in self._each(where) if one.row.type == states.GRAPH_JOB_TYPES[kind]]
        found.sort(key=lambda row: row.id)
        found.sort(key=lambda row: row.created_at, reverse=True)
        return found[:limit]

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        """Append; the id is given here. Raises ``UnknownError`` when there is no such job."""
        event = rules.written(event, self._tenant)
        if self._find(event.job_id) is None:
            raise UnknownError("an event of a graph job that does not exist")
        document, row = self._event(event)
        self._transaction.insert(self._events._name, [document])  # noqa: SLF001 - its own other half
        return row

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        """Return a job's events in the order they were appended; first those that the source wrote, by time."""
        texts = self._refers(GraphJob, job_id)
        found = self._events._each({"$and": [{"$or": [{"jobId": texts}, {"payload.job.id": texts}]}]}, shared=True)  # noqa: SLF001 - its own other half
        own: list[GraphJobEvent] = []
        of_source: list[GraphJobEvent] = []
        for one in found:
            (own if graph_own.is_event(one.document) else of_source).append(one.row)
        of_source.sort(key=lambda row: (row.created_at, row.id))
        return of_source + sorted(own, key=lambda row: row.id)

    def _document(self, job: GraphJob, key: object = None) -> Document:
        """Return the document of a job; raises ``UsageError`` where it would not be read as that job."""
        document = document_of(job)
        if key is not None:
            document["_id"] = key
        is_own = graph_own.is_job(document)
        if not is_own:
            word = _WORDS[job.status]
            document |= {"tenantId": job.tenant_id, "status": word, "createdAt": format_iso(job.created_at)}
            if job.correlation_id is None:
                document.pop("correlationId", None)
            else:
                document["correlationId"] = job.correlation_id
            if word == "running":
                document.setdefault("startedAt", format_iso(job.updated_at))
            elif states.is_terminal(states.GRAPH_JOB, word):
                document.setdefault("completedAt", format_iso(job.updated_at))
        self._proved(self._places[0], document, job, frozenset() if is_own else _DERIVED)
        return document

    def _event(self, event: GraphJobEvent) -> tuple[Document, GraphJobEvent]:
        """Return an event with its number: above those of the job, and by time and chance apart from all others."""
        events = self._events
        texts = self._refers(GraphJob, event.job_id)
        last = next(events._transaction.find(events._name, {"jobId": texts}, sort=(("_id", -1),)), None)  # noqa: SLF001 - its own other half
        stored = None if last is None else events._read(events._places[0], last)  # noqa: SLF001 - as above
        since = min(max(int(self._now.timestamp() * 1000), 0), _LATEST)
        chance = since << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS)
        number = max(graph_own.FIRST_NUMBER + chance, 0 if stored is None else stored.row.id + 1)
        numbered = msgspec.structs.replace(event, id=number)
        document = document_of(numbered)
        document["_id"] = Int64(number)
        return document, events._proved(events._places[0], document, numbered)  # noqa: SLF001 - as above
