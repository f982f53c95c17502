"""Graph jobs and their events in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import states
from migrator.errors import UnknownError
from migrator.records.graph_job import GraphJob
from migrator.records.graph_job_event import GraphJobEvent
from migrator.store import lives, rules
from migrator.store.ports import GraphType
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.mapping import table
from migrator.store.postgres.repository import Repository

LIST = "WHERE tenant_id = %s AND type = %s AND status = ANY(%s) ORDER BY created_at DESC, id LIMIT %s"
LIST_STATUS = "WHERE tenant_id = %s AND type = %s AND status = %s ORDER BY created_at DESC, id LIMIT %s"

# Migrated events have ids from 2^62 on, computed from their source, so only their times order them; those born here
# are numbered as they come.
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


class PostgresGraphJobs(Repository[GraphJob]):
    """``ports.GraphJobs``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(GraphJob, connection, tenant, now)
        self._events = Repository(GraphJobEvent, connection, tenant, now)

    def insert(self, job: GraphJob) -> None:
        """Insert; raises ``ConflictError`` for an id that exists."""
        self._insert(rules.written(job, self._tenant))

    def try_replace(self, job: GraphJob, expected: str) -> bool:
        """Replace if the status is ``expected`` now and the type is the same; writes an event."""
        job = rules.written(job, self._tenant)
        words = {code: word for word, code in states.GRAPH_JOB_CODES.items()}
        rules.transition("graph job", expected, words[job.status])
        changes = (job.status, job.payload.decode(), job.updated_at, job.correlation_id)
        condition = (job.id, self._tenant, job.type, states.GRAPH_JOB_CODES[expected])
        with self.refusing():
            if self._value(_REPLACE, (*changes, *condition)) is None:
                return False
            self._append(lives.graph_event(job, self._now))
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
        codes = states.GRAPH_JOB_CODES
        if status is None:
            text, chosen = LIST, [*codes.values()]
            return self._many(
                self._table.select + sql.SQL(text), (self._tenant, states.GRAPH_JOB_TYPES[kind], chosen, limit)
            )
        rules.known("status of graph jobs", codes, (status,))
        return self._many(
            self._table.select + sql.SQL(LIST_STATUS),
            (self._tenant, states.GRAPH_JOB_TYPES[kind], codes[status], limit),
        )

    def append_event(self, event: GraphJobEvent) -> GraphJobEvent:
        """Append; the id is given here. Raises ``UnknownError`` when there is no such job."""
        event = rules.written(event, self._tenant)
        # Locked, so that the job is not deleted before the event is there.
        if self._held(event.job_id) is None:
            raise UnknownError("an event of a graph job that does not exist")
        with self.refusing():
            return self._append(event)

    def events(self, job_id: UUID) -> Sequence[GraphJobEvent]:
        """Return a job's events in the order they were appended."""
        query = table(GraphJobEvent).select + sql.SQL(EVENTS)
        return self._events._many(query, (job_id, self._tenant, rules.GLOBAL))  # noqa: SLF001 - its own other half

    def _append(self, event: GraphJobEvent) -> GraphJobEvent:
        values = (event.job_id, self._tenant, event.status, event.payload.decode(), event.created_at)
        return msgspec.structs.replace(event, id=int(self._value(_APPEND, values)))
