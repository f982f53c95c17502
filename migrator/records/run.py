"""One execution of a schedule."""

from typing import ClassVar

from migrator.records.base import EMPTY, Big, Int, Jsonb, SourcedRecord, Text, Time, Uuid


class Run(SourcedRecord, frozen=True, kw_only=True):
    """An execution, from planning to its terminal state; a retry is a row of its own with ``retry_of``.

    A row that names a trigger and a slot must also number its ``attempt`` (a CHECK says so): that no execution is
    doubled rests on the three together.
    """

    table: ClassVar[str] = "runs"

    schedule_id: Uuid | None = None
    trigger_id: Uuid | None = None
    run_number: Int | None = None
    attempt: Int | None = None
    """1 for the first; null only where trigger or slot is null."""
    retry_of: Uuid | None = None
    """The run that this one repeats; filled in a closing pass."""
    cause: Text | None = None
    """Why it ran: open text with a known list (``states.RUN_CAUSES``)."""
    state: Text
    """A member of ``states.RUN``."""
    scheduled_at: Time | None = None
    """The slot."""
    available_at: Time | None = None
    """Not before; carries the delay of a retry."""
    created_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None
    duration_ms: Big | None = None
    """Finished less started, never negative; null where the source's dates contradict each other."""
    worker_id: Text | None = None
    fence: Big | None = None
    lease_expires_at: Time | None = None
    external_task_id: Text | None = None
    stats: Jsonb | None = None
    reason: Jsonb | None = None
    deltas: Jsonb | None = None
    result: Jsonb | None = None
    error: Text | None = None
    error_detail: Text | None = None
    trace_id: Text | None = None
    span_id: Text | None = None
    parent_span_id: Text | None = None
    triggered_by: Text | None = None
    dedupe_key: Text | None = None
    """Unique per trigger: a second delivery of one event makes no second run."""
    metadata: Jsonb | None = None
    schema_version: Text | None = None
    updated_at: Time | None = None
    extra: Jsonb = EMPTY
