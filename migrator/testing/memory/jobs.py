"""Graph jobs and policy jobs of the model."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError, NotFoundError
from migrator.records import GraphJob, GraphJobEvent, PolicyJob
from migrator.store import transitions, validation
from migrator.store.protocols import GraphType
from migrator.testing.memory.table import MemoryTable, microseconds, newest_first

WORDS = {code: word for word, code in states.GRAPH_JOB_CODES.items()}


class MemoryGraphJobs(MemoryTable[GraphJob]):
    """``protocols.GraphJobs``."""

    def insert(self, job: GraphJob) -> None:
        self._insert(validation.checked_record(job, self._tenant))

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        job = validation.checked_record(job, self._tenant)
        validation.check_transition("graph job", expected, WORDS[job.status])
        stored = self._own(job.id)
        if stored is None or stored.type != job.type or WORDS[stored.status] != expected:
            return False
        self._rows[job.id] = msgspec.structs.replace(job, created_at=stored.created_at)
        self._append(transitions.graph_event(job, self._now))
        return True

    def get(self, kind: GraphType, job_id: UUID) -> GraphJob | None:
        validation.check_known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        job = self._visible(job_id)
        return job if job is not None and job.type == states.GRAPH_JOB_TYPES[kind] else None

    def list(self, kind: GraphType, status: str | None, limit: int) -> Sequence[GraphJob]:
        validation.check_page(limit)
        validation.check_known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        if status is not None:
            validation.check_known("status of graph jobs", states.GRAPH_JOB_CODES, (status,))
        jobs = [
            job
            for job in self._all()
            if job.type == states.GRAPH_JOB_TYPES[kind] and status in {None, WORDS[job.status]}
        ]
        return sorted(jobs, key=newest_first("created_at"))[:limit]

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        event = validation.checked_record(event, self._tenant)
        if self._own(event.job_id) is None:
            raise NotFoundError("an event of a graph job that does not exist")
        return self._append(event)

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        found = [event for event in self._tables[GraphJobEvent].values() if event.job_id == job_id]
        return [event for event in found if event.tenant_id in {self._tenant, validation.GLOBAL}]

    def _append(self, event: GraphJobEvent) -> GraphJobEvent:
        events = self._tables[GraphJobEvent]
        event = msgspec.structs.replace(event, id=max(events, default=0) + 1)
        events[event.id] = event
        return event


class MemoryPolicyJobs(MemoryTable[PolicyJob]):
    """``protocols.PolicyJobs``."""

    def insert(self, job: PolicyJob) -> None:
        job = validation.checked_record(job, self._tenant)
        if job.run_id is not None and any(row.run_id == job.run_id and row.source is None for row in self._all()):
            raise ConflictError("the run id of a policy job is taken")
        self._insert(
            msgspec.structs.replace(job, created_at=job.created_at or self._now, updated_at=job.updated_at or self._now)
        )

    def get(self, job_id: UUID) -> PolicyJob | None:
        return self._visible(job_id)

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        found = [row for row in self._all() if row.run_id == run_id]
        return min(found, key=lambda row: (row.source is not None, row.source or "", row.id), default=None)

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        validation.check_page(limit)
        if status is not None:
            validation.check_known("status of policy jobs", states.POLICY_JOB, (status,))
        return sorted((row for row in self._all() if status in {None, row.status}), key=rank)[:limit]

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        job = validation.checked_record(job, self._tenant)
        validation.check_transition("policy job", expected, job.status)
        stored = self._own(job.id)
        if stored is None or stored.status != expected:
            return False
        kept = msgspec.structs.replace(job, run_id=stored.run_id, created_at=stored.created_at or job.created_at)
        self._replace(kept, stored)
        return True

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        validation.check_page(limit)
        validation.check_above_zero("a lease", lease)
        pending = [
            row
            for row in self._all()
            if row.status == "pending" and (row.available_at is None or row.available_at <= self._now)
        ]
        leased = [
            msgspec.structs.replace(
                row,
                status="dispatching",
                attempt_count=(row.attempt_count or 0) + 1,
                last_attempt_at=self._now,
                lease_owner=owner,
                lease_expires_at=validation.milliseconds(self._now + lease),
                updated_at=self._now,
            )
            for row in sorted(pending, key=rank)[:limit]
        ]
        self._rows |= {row.id: row for row in leased}
        return leased


def rank(job: PolicyJob) -> tuple[bool, int, bool, int, UUID]:
    """Return the key of the order of policy jobs."""
    queued = 0 if job.queued_at is None else microseconds(job.queued_at)
    return job.priority_rank is None, -(job.priority_rank or 0), job.queued_at is None, queued, job.id
