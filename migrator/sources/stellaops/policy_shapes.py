"""What policy documents look like: inputs, counters, the status document and the work item."""

from typing import Any, ClassVar

import msgspec

from migrator.sources.shapes import Int32, Moment, Shape


class Inputs(Shape):
    """What a policy run works on; values of the environment may be any JSON."""

    sbom_set: list[str] | None = None
    advisory_cursor: Moment = None
    vex_cursor: Moment = None
    environment: dict[str, Any] | None = None
    capture_explain: bool | None = None


class Stats(Shape):
    """Counters of a policy run."""

    components: int | None = None
    rules_fired: int | None = None
    findings_written: int | None = None
    vex_overrides: int | None = None
    quieted: int | None = None
    duration_seconds: float | None = None


class StatusDocument(Shape, kw_only=True):
    """A document of ``policy_runs`` in camelCase."""

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    run_id: str | None = None
    tenant_id: str | None = None
    policy_id: str
    policy_version: Int32 | None = None
    mode: str | None = None
    status: str
    priority: str | None = None
    queued_at: Moment = None
    started_at: Moment = None
    finished_at: Moment = None
    error: str | None = None
    attempts: Int32 | None = None
    requested_by: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, str] | None = None
    stats: Stats | None = None
    inputs: Inputs | None = None
    cancellation_requested: bool | None = None
    cancellation_requested_at: Moment = None
    cancellation_reason: str | None = None


class JobDocument(Shape, kw_only=True):
    """A document of ``policy_jobs``."""

    key: Any = msgspec.field(name="_id")
    schema_version: str | None = None
    id: Any = None
    tenant_id: str | None = None
    policy_id: str
    policy_version: Int32 | None = None
    mode: str | None = None
    priority: str | None = None
    priority_rank: Int32 | None = None
    run_id: str | None = None
    requested_by: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, str] | None = None
    inputs: Inputs | None = None
    queued_at: Moment = None
    status: str
    attempt_count: Int32 | None = None
    last_attempt_at: Moment = None
    last_error: str | None = None
    created_at: Moment = None
    updated_at: Moment = None
    available_at: Moment = None
    submitted_at: Moment = None
    completed_at: Moment = None
    lease_owner: str | None = None
    lease_expires_at: Moment = None
    cancellation_requested: bool | None = None
    cancellation_requested_at: Moment = None
    cancellation_reason: str | None = None
    cancelled_at: Moment = None


class SnakeInputs(Shape, rename=None):
    """Inputs of the snake_case document."""

    sbom_set: list[str] | None = None
    advisory_cursor: Moment = None
    vex_cursor: Moment = None
    env: dict[str, Any] | None = None


class SnakeStats(Shape, rename=None):
    """Counters of the snake_case document."""

    components: int | None = None
    rules_fired: int | None = None
    findings_written: int | None = None
    vex_overrides: int | None = None
    quieted: int | None = None
    duration_seconds: float | None = None


class SnakeDocument(Shape, rename=None, kw_only=True):
    """A document of ``policy_runs`` in snake_case; its tenant is spelled in three ways, and documented in none."""

    aliases: ClassVar = frozenset({"tenant_id", "tenantId"})

    key: Any = msgspec.field(name="_id")
    tenant: str | None = None
    tenant_id: str | None = None
    tenant_id_camel: str | None = msgspec.field(name="tenantId", default=None)
    policy_id: str
    policy_version: Int32 | None = None
    mode: str | None = None
    status: str
    inputs: SnakeInputs | None = None
    stats: SnakeStats | None = None
