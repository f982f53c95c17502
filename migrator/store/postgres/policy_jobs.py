"""Policy jobs in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import states
from migrator.records.policy_job import PolicyJob
from migrator.store import rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.repository import Repository

_ORDER = " ORDER BY priority_rank DESC NULLS LAST, queued_at NULLS LAST, id LIMIT %(limit)s"

LEASE = """
WITH taken AS MATERIALIZED (
    SELECT id AS taken_id FROM scheduler.policy_jobs
    WHERE tenant_id = %(tenant)s AND status = 'pending' AND (available_at IS NULL OR available_at <= %(now)s)
    ORDER BY priority_rank DESC NULLS LAST, queued_at NULLS LAST, id LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE scheduler.policy_jobs SET status = 'dispatching', attempt_count = coalesce(attempt_count, 0) + 1,
        last_attempt_at = %(now)s, lease_owner = %(owner)s, lease_expires_at = %(until)s, updated_at = %(now)s
    FROM taken WHERE id = taken_id RETURNING {columns}
)
SELECT {columns} FROM leased ORDER BY priority_rank DESC NULLS LAST, queued_at NULLS LAST, id
"""


class PostgresPolicyJobs(Repository[PolicyJob]):
    """``ports.PolicyJobs``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(PolicyJob, connection, tenant, now)

    def insert(self, job: PolicyJob) -> None:
        """Insert; raises ``ConflictError`` for an id or a run id that exists."""
        job = rules.written(job, self._tenant)
        self._insert(
            msgspec.structs.replace(
                job,
                source=None,
                source_id=None,
                created_at=job.created_at or self._now,
                updated_at=job.updated_at or self._now,
            )
        )

    def get(self, job_id: UUID) -> PolicyJob | None:
        """Return the job."""
        return self._visible(job_id)

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        """Return the job with this idempotency key: of several sources, the one born here, else by source."""
        query = self._table.select + sql.SQL(
            "WHERE tenant_id = %s AND run_id = %s ORDER BY source NULLS FIRST, id LIMIT 1"
        )
        return self._one(query, (self._tenant, run_id))

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        """Return jobs, highest rank first, then by queued time (none last)."""
        rules.page(limit)
        condition = sql.SQL("WHERE tenant_id = %(tenant)s")
        if status is not None:
            rules.known("status of policy jobs", states.POLICY_JOB, (status,))
            condition = sql.SQL("WHERE tenant_id = %(tenant)s AND status = %(status)s")
        query = self._table.select + condition + sql.SQL(_ORDER)
        return self._many(query, {"tenant": self._tenant, "status": status, "limit": limit})

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now; raises ``TransitionError`` for an illegal pair."""
        job = rules.written(job, self._tenant)
        rules.transition("policy job", expected, job.status)
        stored = self._held(job.id)
        if stored is None or stored.status != expected:
            return False
        kept = msgspec.structs.replace(job, run_id=stored.run_id, created_at=stored.created_at or job.created_at)
        return self._replace(rules.precise(kept, stored)) is not None

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        """Take pending jobs that are available: they are dispatching, leased to ``owner``, one attempt more."""
        rules.page(limit)
        rules.above_zero("a lease", lease)
        until = rules.milliseconds(self._now + lease)
        query = sql.SQL(LEASE).format(columns=self._table.columns)
        return self._many(
            query, {"tenant": self._tenant, "now": self._now, "limit": limit, "owner": owner, "until": until}
        )
