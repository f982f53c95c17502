"""A policy run: its status document or its work item."""

from typing import ClassVar

from migrator.records.base import EMPTY, Flag, Int, Jsonb, SourcedRecord, Text, Time


class PolicyJob(SourcedRecord, frozen=True, kw_only=True):
    """A policy run; the status document and the work item of one run are two rows, told apart by ``source``."""

    table: ClassVar[str] = "policy_jobs"

    policy_id: Text
    policy_version: Int | None = None
    mode: Text | None = None
    priority: Text | None = None
    status: Text
    """A member of ``states.POLICY_JOB``."""
    run_id: Text | None = None
    """The source's own name of the run (text, no reference); unique per tenant and source."""
    inputs: Jsonb | None = None
    stats: Jsonb | None = None
    metadata: Jsonb | None = None
    requested_by: Text | None = None
    correlation_id: Text | None = None
    attempt_count: Int | None = None
    last_attempt_at: Time | None = None
    last_error: Text | None = None
    available_at: Time | None = None
    priority_rank: Int | None = None
    lease_owner: Text | None = None
    lease_expires_at: Time | None = None
    queued_at: Time | None = None
    started_at: Time | None = None
    submitted_at: Time | None = None
    finished_at: Time | None = None
    """Also the work item's completedAt."""
    cancelled_at: Time | None = None
    cancellation_requested: Flag | None = None
    cancellation_requested_at: Time | None = None
    cancellation_reason: Text | None = None
    schema_version: Text | None = None
    created_at: Time | None = None
    updated_at: Time | None = None
    extra: Jsonb = EMPTY
