"""A graph job, with exactly the columns of its plan."""

from typing import ClassVar

from migrator.records.base import Jsonb, Record, Small, Text, Time, Uuid


class GraphJob(Record, frozen=True, kw_only=True):
    """A build or overlay job; its document is ``payload``, the residue lies under one reserved key inside it."""

    table: ClassVar[str] = "graph_jobs"

    id: Uuid
    tenant_id: Text
    type: Small
    """0 build, 1 overlay (``states.GRAPH_JOB_TYPES``)."""
    status: Small
    """A code of ``states.GRAPH_JOB_CODES``."""
    payload: Jsonb
    created_at: Time
    updated_at: Time
    """Migrated: completedAt, else startedAt, else createdAt."""
    correlation_id: Text | None = None
