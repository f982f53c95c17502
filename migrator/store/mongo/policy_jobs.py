"""Policy jobs in MongoDB: status documents and work items of the source; a job born here is a work item."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError
from migrator.records.policy_job import PolicyJob
from migrator.sources.stellaops import names
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Stored, Strangers
from migrator.store.mongo.transaction import Transaction

_NEVER = datetime.max.replace(tzinfo=UTC)


def _rank(job: PolicyJob) -> tuple[Any, ...]:
    """Return the key of the order of lists: highest rank first, then by queued time, nulls last."""
    rank = job.priority_rank
    return (rank is None, 0 if rank is None else -rank, job.queued_at or _NEVER, job.id)


class MongoPolicyJobs(Repository[PolicyJob]):
    """``ports.PolicyJobs``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(PolicyJob, transaction, strangers, tenant, now)

    def insert(self, job: PolicyJob) -> None:
        """Insert; raises ``ConflictError`` for an id or a run id that exists."""
        job = rules.written(job, self._tenant)
        document, row = self._new(
            msgspec.structs.replace(job, created_at=job.created_at or self._now, updated_at=job.updated_at or self._now)
        )
        if row.run_id is not None and next(self._each({"runId": row.run_id}), None) is not None:
            raise ConflictError("the run id of a policy job is taken")
        self._transaction.insert(self._name, [document])

    def get(self, job_id: UUID) -> PolicyJob | None:
        """Return the job."""
        return self._visible(job_id)

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        """Return the job with this idempotency key: of several, the one born here, else the work item."""
        found = [one for one in self._all({"runId": run_id}) if one.row.run_id == run_id]
        return min(found, key=_by_origin).row if found else None

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        """Return jobs, highest rank first, then by queued time (none last)."""
        rules.page(limit)
        where: dict[str, Any] = {}
        if status is not None:
            rules.known("status of policy jobs", states.POLICY_JOB, (status,))
            where = {"status": {"$in": [spelled for spelled, word in names.POLICY_STATUSES.items() if word == status]}}
        return sorted((one.row for one in self._all(where)), key=_rank)[:limit]

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now; raises ``TransitionError`` for an illegal pair."""
        job = rules.written(job, self._tenant)
        rules.transition("policy job", expected, job.status)
        stored = self._find(job.id)
        if stored is None or stored.row.status != expected:
            return False
        kept = msgspec.structs.replace(
            job,
            run_id=stored.row.run_id,
            created_at=stored.row.created_at or job.created_at,
            extra=stored.row.extra,
        )
        self._replace(stored, rules.precise(kept, stored.row))
        return True

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        """Take pending work items that are available: dispatching, leased to ``owner``, one attempt more."""
        rules.page(limit)
        rules.above_zero("a lease", lease)
        until = rules.milliseconds(self._now + lease)
        pending = [
            one
            for one in self._each({"status": "pending"})
            if one.row.available_at is None or one.row.available_at <= self._now
        ]
        leased: list[PolicyJob] = []
        for one in sorted(pending, key=lambda one: _rank(one.row)):
            if len(leased) == limit:
                break
            if self._transaction.may_write(self._name, one.raw):
                leased.append(self._replace(one, _dispatching(one.row, owner, until, self._now)))
        return leased

    def _all(self, where: dict[str, Any]) -> Iterator[Stored[PolicyJob]]:
        for place in self._places:
            yield from self._each(where, place=place)


def _dispatching(job: PolicyJob, owner: str, until: datetime, now: datetime) -> PolicyJob:
    return msgspec.structs.replace(
        job,
        status="dispatching",
        attempt_count=(job.attempt_count or 0) + 1,
        last_attempt_at=now,
        lease_owner=owner,
        lease_expires_at=until,
        updated_at=now,
    )


def _by_origin(one: Stored[PolicyJob]) -> tuple[Any, ...]:
    born_here = str(one.row.source_id).startswith(names.POLICY_ITEM_PREFIX)
    return (not born_here, one.row.source, one.row.id)
