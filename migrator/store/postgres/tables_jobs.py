"""Work items of StellaOps: graph jobs with their events, policy jobs."""

from sqlalchemy import BigInteger, Column, Index, MetaData, PrimaryKeyConstraint, Table, desc
from sqlalchemy import text as sql

from migrator import states
from migrator.store.postgres.columns import (
    extra,
    flag,
    integer,
    jsonb,
    one_of,
    refers,
    small,
    sourced,
    tenant,
    text,
    time,
    uuid,
)

STATUS = "0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending"


def declare_graph(metadata: MetaData) -> None:
    """Add the two tables of the graph plan, with exactly its columns, to ``metadata``."""
    codes = sorted(states.GRAPH_JOB_CODES.values())
    Table(
        "graph_jobs",
        metadata,
        uuid("id", "the UUID in the source's id, else computed from it", null=False),
        tenant(),
        small("type", "0 build, 1 overlay", null=False),
        small("status", STATUS, null=False),
        jsonb("payload", "the whole document; its residue under the reserved key $residue", null=False, large=True),
        time("created_at", "the document's createdAt", null=False),
        time("updated_at", "last change; migrated: completedAt, else startedAt, else createdAt", null=False),
        text("correlation_id", "of the request that asked for it"),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_graph_jobs"),
        one_of("graph_jobs", "type", sorted(states.GRAPH_JOB_TYPES.values())),
        one_of("graph_jobs", "status", codes),
        Index("idx_graph_jobs_tenant_status", "tenant_id", "status", desc("created_at")),
        Index("idx_graph_jobs_tenant_type_status", "tenant_id", "type", "status", desc("created_at")),
        comment="Graph build and overlay jobs, with exactly the columns of their plan; they equal what payload says.",
    )
    Table(
        "graph_job_events",
        metadata,
        Column(
            "id",
            BigInteger(),
            autoincrement=True,
            nullable=False,
            comment="migrated rows: 2^62 + 62 bits of SHA-256 of tenant, source and _id; new rows: the sequence",
        ),
        uuid("job_id", "of which job", null=False),
        tenant(),
        small("status", STATUS, null=False),
        jsonb("payload", "the whole document; its residue under the reserved key $residue", null=False, large=True),
        time("created_at", "when it happened", null=False),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_graph_job_events"),
        refers("graph_job_events", "job_id", "graph_jobs", "CASCADE"),
        one_of("graph_job_events", "status", codes),
        Index("idx_graph_job_events_job", "job_id", desc("created_at")),
        comment="Status changes of graph jobs, each written in the transaction of the change; they go with their job.",
    )


def declare_policy(metadata: MetaData) -> None:
    """Add the policy jobs to ``metadata``."""
    Table(
        "policy_jobs",
        metadata,
        *sourced(),
        text("policy_id", "which policy", null=False),
        integer("policy_version", "which version of it"),
        text("mode", "full, incremental or simulate"),
        text("priority", "normal, high or emergency"),
        text("status", "state of the policy job machine", null=False),
        text("run_id", "the source's own name of the run: text, no reference"),
        jsonb("inputs", "what it works on", large=True),
        jsonb("stats", "counters of a status document"),
        jsonb("metadata", "whatever the owner adds"),
        text("requested_by", "person or system"),
        text("correlation_id", "of the request that asked for it"),
        integer("attempt_count", "claims so far"),
        time("last_attempt_at", "when it was last claimed"),
        text("last_error", "why the last attempt failed"),
        time("available_at", "not before"),
        integer("priority_rank", "priority as a number, for ordering"),
        text("lease_owner", "who has claimed it"),
        time("lease_expires_at", "the claim ends unless renewed"),
        time("queued_at", "when it was asked for"),
        time("started_at", "first running"),
        time("submitted_at", "when it was handed on"),
        time("finished_at", "terminal; a work item's completedAt"),
        time("cancelled_at", "when it was cancelled"),
        flag("cancellation_requested", "somebody asked to cancel it; null where the document does not say"),
        time("cancellation_requested_at", "when"),
        text("cancellation_reason", "why"),
        text("schema_version", "version of the source document's shape; old ones are not upgraded"),
        time("created_at", "when it was made"),
        time("updated_at", "last change"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_policy_jobs"),
        one_of("policy_jobs", "mode", states.POLICY_MODES),
        one_of("policy_jobs", "priority", states.POLICY_PRIORITIES),
        one_of("policy_jobs", "status", states.POLICY_JOB),
        Index(
            "uq_policy_jobs_run",
            "tenant_id",
            "source",
            "run_id",
            unique=True,
            postgresql_nulls_not_distinct=True,
            postgresql_where=sql("run_id IS NOT NULL"),
        ),
        Index("ix_policy_jobs_status", "tenant_id", "status", desc("queued_at"), "id"),
        comment="Policy runs. The status document and the work item of one run are two rows, told apart by source.",
    )
