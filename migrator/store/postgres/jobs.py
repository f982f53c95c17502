"""Graph jobs with their events, and policy jobs in PostgreSQL."""

from collections.abc import Sequence
from datetime import timedelta
from typing import LiteralString
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import states
from migrator.constraints import most_of
from migrator.errors import NotFoundError
from migrator.records import GraphJob, GraphJobEvent, PolicyJob
from migrator.store import transitions, validation
from migrator.store.postgres.repository import Repository
from migrator.store.protocols import GraphType

LIST = "WHERE tenant_id = %s AND type = %s AND status = ANY(%s) ORDER BY created_at DESC, id LIMIT %s"
LIST_STATUS = "WHERE tenant_id = %s AND type = %s AND status = %s ORDER BY created_at DESC, id LIMIT %s"

# Migrated events have ids from 2^62 on, computed from their source, so only their times order them. Those created here
# are numbered in the order in which they are appended.
EVENTS = (
    "WHERE job_id = %s AND tenant_id IN (%s, %s) ORDER BY id < 4611686018427387904,"
    " CASE WHEN id >= 4611686018427387904 THEN created_at END, id"
)
_APPEND = (
    "INSERT INTO scheduler.graph_job_events (job_id, tenant_id, status, payload, created_at)"
    " VALUES (%s, %s, %s, %s, %s) RETURNING id"
)
_REPLACE = (
    "UPDATE scheduler.graph_jobs SET status = %s, payload = %s, updated_at = %s, correlation_id = %s"
    " WHERE id = %s AND tenant_id = %s AND type = %s AND status = %s RETURNING true"
)


class _GraphJobEvents(Repository[GraphJobEvent]):
    _record = GraphJobEvent

    def of_job(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        return self._select(EVENTS, (job_id, self._tenant, validation.GLOBAL))


class PostgresGraphJobs(Repository[GraphJob]):
    """``protocols.GraphJobs``."""

    _record = GraphJob

    def insert(self, job: GraphJob) -> None:
        self._insert(validation.checked_record(job, self._tenant))

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        job = validation.checked_record(job, self._tenant)
        words = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
        validation.check_transition("graph job", expected, words[job.status])
        changes = (job.status, job.payload.decode(), job.updated_at, job.correlation_id)
        condition = (job.id, self._tenant, job.type, states.GRAPH_JOB_CODES[expected])
        with self.refusing():
            if self._value(_REPLACE, (*changes, *condition)) is None:
                return False
            self._append(transitions.graph_event(job, self._now))
        return True

    def get(self, kind: GraphType, job_id: UUID) -> GraphJob | None:
        validation.check_known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        job = self._visible(job_id)
        return job if job is not None and job.type == states.GRAPH_JOB_TYPES[kind] else None

    def list(self, kind: GraphType, status: str | None, limit: int) -> Sequence[GraphJob]:
        validation.check_page(limit)
        validation.check_known("type of graph job", states.GRAPH_JOB_TYPES, (kind,))
        codes = states.GRAPH_JOB_CODES
        if status is None:
            text, chosen = LIST, [*codes.values()]
            return self._select(text, (self._tenant, states.GRAPH_JOB_TYPES[kind], chosen, limit))
        validation.check_known("status of graph jobs", codes, (status,))
        return self._select(LIST_STATUS, (self._tenant, states.GRAPH_JOB_TYPES[kind], codes[status], limit))

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        event = validation.checked_record(event, self._tenant)
        # Locked, so that the job is not deleted before the event is inserted.
        if self._held(event.job_id) is None:
            raise NotFoundError("an event of a graph job that does not exist")
        with self.refusing():
            return self._append(event)

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        return _GraphJobEvents(self._connection, self._tenant, self._now).of_job(job_id)

    def _append(self, event: GraphJobEvent) -> GraphJobEvent:
        values = (event.job_id, self._tenant, event.status, event.payload.decode(), event.created_at)
        return msgspec.structs.replace(event, id=int(self._value(_APPEND, values)))


_ORDER: LiteralString = " ORDER BY priority_rank DESC NULLS LAST, queued_at NULLS LAST, id LIMIT %(limit)s"

LEASE = """
WITH taken AS MATERIALIZED (
    SELECT id AS taken_id FROM scheduler.policy_jobs
    WHERE tenant_id = %(tenant)s AND status = 'pending' AND (available_at IS NULL OR available_at <= %(now)s)
    ORDER BY priority_rank DESC NULLS LAST, queued_at NULLS LAST, id LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE scheduler.policy_jobs SET status = 'dispatching', last_attempt_at = %(now)s,
        lease_owner = %(owner)s, lease_expires_at = %(until)s, updated_at = %(now)s,
        attempt_count = least(coalesce(attempt_count, 0), %(most)s) + 1
    FROM taken WHERE id = taken_id AND tenant_id = %(tenant)s RETURNING {columns}
)
SELECT {columns} FROM leased ORDER BY priority_rank DESC NULLS LAST, queued_at NULLS LAST, id
"""


class PostgresPolicyJobs(Repository[PolicyJob]):
    """``protocols.PolicyJobs``."""

    _record = PolicyJob

    def insert(self, job: PolicyJob) -> None:
        job = validation.checked_record(job, self._tenant)
        made = {"created_at": job.created_at or self._now, "updated_at": job.updated_at or self._now}
        self._insert(msgspec.structs.replace(job, **made))

    def get(self, job_id: UUID) -> PolicyJob | None:
        return self._visible(job_id)

    def by_run_id(self, run_id: str) -> PolicyJob | None:
        return self._select_one(
            "WHERE tenant_id = %s AND run_id = %s ORDER BY source NULLS FIRST, id LIMIT 1", (self._tenant, run_id)
        )

    def list(self, status: str | None, limit: int) -> Sequence[PolicyJob]:
        validation.check_page(limit)
        where: LiteralString = "WHERE tenant_id = %(tenant)s"
        if status is not None:
            validation.check_known("status of policy jobs", states.POLICY_JOB, (status,))
            where += " AND status = %(status)s"
        return self._select(where + _ORDER, {"tenant": self._tenant, "status": status, "limit": limit})

    def try_replace(self, job: PolicyJob, expected: str) -> bool:
        job = validation.checked_record(job, self._tenant)
        validation.check_transition("policy job", expected, job.status)
        stored = self._held(job.id)
        if stored is None or stored.status != expected:
            return False
        kept = msgspec.structs.replace(job, run_id=stored.run_id, created_at=stored.created_at or job.created_at)
        self._replace(validation.with_stored_precision(kept, stored))
        return True

    def lease(self, owner: str, limit: int, lease: timedelta) -> Sequence[PolicyJob]:
        validation.check_page(limit)
        validation.check_above_zero("a lease", lease)
        until = validation.milliseconds(self._now + lease)
        query = sql.SQL(LEASE).format(columns=self._table.columns)
        given = {"tenant": self._tenant, "now": self._now, "limit": limit, "owner": owner, "until": until}
        return self._many(query, given | {"most": most_of("policy_jobs.attempt_count") - 1})
