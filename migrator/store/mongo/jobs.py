"""Graph jobs with their events, and policy jobs in MongoDB.

A policy job is a status document or a work item of the source; one that is inserted here is a work item.
"""

import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from bson.int64 import Int64

from migrator import states
from migrator.constraints import most_of
from migrator.errors import ConflictError, NotFoundError
from migrator.records import GraphJob, GraphJobEvent, PolicyJob
from migrator.sources.profile import Document
from migrator.sources.store_documents import graph, names
from migrator.store import transitions, validation
from migrator.store.mongo.places import document_of
from migrator.store.mongo.repository import ForeignIds, Repository, StoredDocument
from migrator.store.mongo.transaction import Transaction
from migrator.store.protocols import GraphType
from migrator.values.times import format_iso

_WORDS = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
_SPELLINGS = {"canceled": ["canceled", "cancelled"]}
_DERIVED = frozenset({"payload", "updated_at"})
"""Members of a document of the source that are not stored as they are given."""
_CHANCE_BITS = 20
_LATEST = (1 << 41) * 2 - 2
"""Milliseconds since 1970 that leave a number below 2^63: the year 2109."""


class MongoGraphJobs(Repository[GraphJob]):
    """``protocols.GraphJobs``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(GraphJob, transaction, foreign_ids, tenant, now)
        self._events = self._of(GraphJobEvent)

    def insert(self, job: GraphJob) -> None:
        document = self._document(validation.checked_record(job, self._tenant))
        if self._taken(job.id):
            raise ConflictError(f"the id is taken ({self.name})")
        self._transaction.insert(self.name, [document])

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        job = validation.checked_record(job, self._tenant)
        validation.check_transition("graph job", expected, _WORDS[job.status])
        stored = self._find(job.id)
        if stored is None or stored.row.type != job.type or _WORDS[stored.row.status] != expected:
            return False
        kept = msgspec.structs.replace(job, created_at=stored.row.created_at)
        document = self._document(kept, stored.document["_id"])
        event, _ = self._event(transitions.graph_event(job, self._now))
        self._transaction.replace(self.name, document)
        self._transaction.insert(self._events.name, [event])
        return True

    def get(self, kind: GraphType, job_id: UUID) -> GraphJob | None:
        validation.check_known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        job = self._visible(job_id)
        return job if job is not None and job.type == states.GRAPH_JOB_TYPES[kind] else None

    def list(self, kind: GraphType, status: str | None, limit: int) -> Sequence[GraphJob]:
        validation.check_page(limit)
        validation.check_known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        where: dict[str, Any] = {}
        if status is not None:
            validation.check_known("status of graph jobs", states.GRAPH_JOB_CODES, (status,))
            where = {"status": {"$in": _SPELLINGS.get(status, [status])}}
        # Times are texts in the source's format and dates in ours: only the rows can be sorted.
        rows = [one.row for one in self._each(where) if one.row.type == states.GRAPH_JOB_TYPES[kind]]
        rows.sort(key=lambda row: row.id)
        rows.sort(key=lambda row: row.created_at, reverse=True)
        return rows[:limit]

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        event = validation.checked_record(event, self._tenant)
        if self._find(event.job_id) is None:
            raise NotFoundError("an event of a graph job that does not exist")
        document, row = self._event(event)
        self._transaction.insert(self._events.name, [document])
        return row

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        """Return a job's events in the order of their insertion; first those that the source wrote, by time."""
        texts = self._refers(GraphJob, job_id)
        events = self._events._each({"$and": [{"$or": [{"jobId": texts}, {"payload.job.id": texts}]}]}, shared=True)  # noqa: SLF001 - its own other half
        own: list[GraphJobEvent] = []
        of_source: list[GraphJobEvent] = []
        for one in events:
            (own if graph.is_own_event(one.document) else of_source).append(one.row)
        of_source.sort(key=lambda row: (row.created_at, row.id))
        return of_source + sorted(own, key=lambda row: row.id)

    def _document(self, job: GraphJob, key: object = None) -> Document:
        """Return the document of a job; raises ``UsageError`` if it would not be read as that job."""
        document = document_of(job)
        if key is not None:
            document["_id"] = key
        is_own = graph.is_own_job(document)
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
        """Return an event with its number: above those of the job, and by time and chance different from all others."""
        events = self._events
        texts = self._refers(GraphJob, event.job_id)
        last = next(events._transaction.find(events.name, {"jobId": texts}, sort=(("_id", -1),)), None)  # noqa: SLF001 - its own other half
        stored = None if last is None else events.stored(last)
        since = min(max(int(self._now.timestamp() * 1000), 0), _LATEST)
        chance = since << _CHANCE_BITS | secrets.randbits(_CHANCE_BITS)
        number = max(graph.FIRST_NUMBER + chance, 0 if stored is None else stored.row.id + 1)
        numbered = msgspec.structs.replace(event, id=number)
        document = document_of(numbered)
        document["_id"] = Int64(number)
        return document, events._proved(events._places[0], document, numbered)  # noqa: SLF001 - as above


_NEVER = datetime.max.replace(tzinfo=UTC)


def _rank(job: PolicyJob) -> tuple[Any, ...]:
    """Return the key of the order of lists: highest rank first, then by queued time, nulls last."""
    rank = job.priority_rank
    return (rank is None, 0 if rank is None else -rank, job.queued_at or _NEVER, job.id)


class MongoPolicyJobs(Repository[PolicyJob]):
    """``protocols.PolicyJobs``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(PolicyJob, transaction, foreign_ids, tenant, now)

    def insert(self, job: PolicyJob) -> None:
        job = validation.checked_record(job, self._tenant)
        document, row = self._checked(
            msgspec.structs.replace(job, created_at=job.created_at or self._now, updated_at=job.updated_at or self._now)
        )
        if row.run_id is not None and next(self._each({"runId": row.run_id}), None) is not None:
            raise ConflictError("the run id of a policy job is taken")
        self._transaction.insert(self.name, [document])

    def get(self, job_id: UUID) -> PolicyJob | None:
        return self._visible(job_id)

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        """Return the job with this idempotency key: of several, the one created here, else the work item."""
        found = [one for one in self._all({"runId": run_id}) if one.row.run_id == run_id]
        return min(found, key=_by_origin).row if found else None

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        validation.check_page(limit)
        where: dict[str, Any] = {}
        if status is not None:
            validation.check_known("status of policy jobs", states.POLICY_JOB, (status,))
            where = {"status": {"$in": [spelled for spelled, word in names.POLICY_STATUSES.items() if word == status]}}
        return sorted((one.row for one in self._all(where)), key=_rank)[:limit]

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        job = validation.checked_record(job, self._tenant)
        validation.check_transition("policy job", expected, job.status)
        stored = self._find(job.id)
        if stored is None or stored.row.status != expected:
            return False
        kept = msgspec.structs.replace(
            job,
            run_id=stored.row.run_id,
            created_at=stored.row.created_at or job.created_at,
            extra=stored.row.extra,
        )
        self.replace(stored, validation.with_stored_precision(kept, stored.row))
        return True

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        validation.check_page(limit)
        validation.check_above_zero("a lease", lease)
        until = validation.milliseconds(self._now + lease)
        pending = [
            one
            for one in self._each({"status": "pending"})
            if one.row.available_at is None or one.row.available_at <= self._now
        ]
        leased: list[PolicyJob] = []
        for stored in sorted(pending, key=lambda one: _rank(one.row)):
            if len(leased) == limit:
                break
            if self._transaction.may_write(self.name, stored.raw):
                leased.append(self.replace(stored, _dispatching(stored.row, owner, until, self._now)))
        return leased

    def _all(self, where: dict[str, Any]) -> Iterator[StoredDocument[PolicyJob]]:
        for place in self._places:
            yield from self._each(where, place=place)


def _dispatching(job: PolicyJob, owner: str, until: datetime, now: datetime) -> PolicyJob:
    return msgspec.structs.replace(
        job,
        status="dispatching",
        attempt_count=min(job.attempt_count or 0, most_of("policy_jobs.attempt_count") - 1) + 1,
        last_attempt_at=now,
        lease_owner=owner,
        lease_expires_at=until,
        updated_at=now,
    )


def _by_origin(one: StoredDocument[PolicyJob]) -> tuple[Any, ...]:
    created_here = str(one.row.source_id).startswith(names.POLICY_ITEM_PREFIX)
    return (not created_here, one.row.source, one.row.id)
