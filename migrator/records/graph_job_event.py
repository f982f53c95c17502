"""What happened to a graph job."""

from typing import ClassVar

from migrator.records.base import Big, Jsonb, Record, Small, Text, Time, Uuid


class GraphJobEvent(Record, frozen=True, kw_only=True):
    """A status change of a graph job, written in the transaction of that change."""

    table: ClassVar[str] = "graph_job_events"

    id: Big
    """Migrated rows: 2^62 + 62 bits of SHA-256 (``values.identity.event_id``); new rows: the sequence."""
    job_id: Uuid
    tenant_id: Text
    status: Small
    """A code of ``states.GRAPH_JOB_CODES``."""
    payload: Jsonb
    created_at: Time
