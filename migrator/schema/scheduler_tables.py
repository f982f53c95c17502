"""The thirteen tables of the schema ``scheduler``, declared with SQLAlchemy Core.

This is only a declaration: revisions create the tables, and ``catalogue`` compares them with it.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    TextClause,
    UniqueConstraint,
    desc,
)
from sqlalchemy import text as sql

from migrator import states
from migrator.schema.columns import (
    big,
    check,
    extra,
    flag,
    integer,
    jsonb,
    one_of,
    priority,
    refers,
    small,
    sourced,
    tenant,
    tenant_of_schedule,
    text,
    texts,
    time,
    uuid,
)


def _declare_schedules(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _handlers(metadata)
    _schedules(metadata)
    _triggers(metadata)


def _handlers(metadata: MetaData) -> None:
    Table(
        "handlers",
        metadata,
        *sourced(),
        text("name", "unique per tenant", null=False),
        text("handler_path", "where the application finds the code"),
        text("handler_type", "how it is called", null=False),
        text("queue", "default queue of its runs"),
        big("default_timeout_ms", "timeout of runs whose schedule states none"),
        flag("is_active", "false: must not be scheduled", default=True),
        flag("is_system", "true: it cannot be deleted", default=False),
        flag("idempotent", "true: a second run of one slot does no harm", default=False),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_handlers"),
        UniqueConstraint("tenant_id", "name", name="uq_handlers_name"),
        one_of("handlers", "handler_type", states.HANDLER_TYPES),
        comment="Handlers: named code of the application that schedules call.",
    )


def _schedules(metadata: MetaData) -> None:
    Table(
        "schedules",
        metadata,
        *sourced(),
        text(
            "name",
            "unique among a tenant's rows with source null that are not deleted; source data may repeat it",
            null=False,
        ),
        text("description", "free text"),
        flag("enabled", "false: it does not fire, and due queries leave it out", default=True),
        text("status", "state of the schedule", null=False),
        text("mode", "StellaOps: analysis-only or content-refresh"),
        jsonb("selection", "StellaOps: which images"),
        jsonb("only_if", "StellaOps: conditions"),
        jsonb("notify", "StellaOps: notifications"),
        jsonb("limits", "StellaOps: rates and parallelism"),
        texts("subscribers", "who is notified; null: absent in the source"),
        text("handler_name", "handler that is called; no foreign key, because it may not be registered yet"),
        text("handler_type", "how it is called"),
        text("queue", "queue of its runs; null: the default queue"),
        jsonb("payload", "argument of its runs", large=True),
        small("priority", "0 to 100, higher first (low 25, medium 50, high 75, critical 100); null counts as 50"),
        integer("max_retries", "retries after the first attempt; null: none"),
        big("retry_delay_ms", "delay before the first retry"),
        text("retry_strategy", "exponential: the delay doubles; fixed: it stays"),
        big("retry_cap_ms", "longest delay; null: the source states none", default="3600000"),
        integer("retry_count", "retries made since the last success"),
        text("on_exhausted", "after the last retry: keep or stop the schedule; null: keep"),
        big("timeout_ms", "longest duration of a run; null: no limit"),
        integer("max_concurrency", "most runs at the same time; null: no limit"),
        texts("tags", "labels to search by"),
        jsonb("metadata", "data of the application"),
        text("schema_version", "version of the source document's format, as the document states it"),
        time("created_at", "when it was created"),
        text("created_by", "by whom"),
        time("updated_at", "when it was last changed"),
        text("updated_by", "by whom"),
        time("paused_at", "when it was paused"),
        time("cancelled_at", "when it was cancelled"),
        time("completed_at", "when it fired for the last time"),
        time("deleted_at", "soft deletion: lists, reads and due queries leave the row out"),
        text("deleted_by", "by whom"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_schedules"),
        one_of("schedules", "status", states.SCHEDULE),
        one_of("schedules", "mode", states.SCHEDULE_MODES),
        one_of("schedules", "handler_type", states.HANDLER_TYPES),
        one_of("schedules", "retry_strategy", states.RETRY_STRATEGIES),
        one_of("schedules", "on_exhausted", states.EXHAUSTED_POLICIES),
        check("ck_schedules_priority", "priority >= 0 AND priority <= 100"),
        Index(
            "uq_schedules_name",
            "tenant_id",
            "name",
            unique=True,
            postgresql_where=sql("source IS NULL AND deleted_at IS NULL"),
        ),
        Index(
            "ix_schedules_active",
            "tenant_id",
            "name",
            "id",
            postgresql_where=sql("enabled AND deleted_at IS NULL"),
        ),
        Index(
            "ix_schedules_page",
            "tenant_id",
            desc("created_at").nulls_last(),
            "id",
            postgresql_where=sql("deleted_at IS NULL"),
        ),
        Index("ix_schedules_tags", "tags", postgresql_using="gin"),
        comment="Schedules, one row each. A column that a source may leave out has no default: null means that the"
        " source document does not have the field.",
    )


def _triggers(metadata: MetaData) -> None:
    Table(
        "triggers",
        metadata,
        *sourced(),
        uuid("schedule_id", "schedule that fires", null=False),
        text("kind", "cron, interval, one_time or event; exactly the columns of the kind are set", null=False),
        text("cron_expression", "cron: verbatim, never rewritten"),
        text("cron_dialect", "cron: the engine whose rules evaluate the expression"),
        text("timezone", "IANA name; null: the source states none; not for events"),
        big("interval_ms", "interval: its length"),
        text("anchor", "interval: from the completion of the last run, or at a fixed_rate"),
        time("run_at", "one_time: when it fires"),
        text("event_name", "event: name of the event"),
        time("start_at", "it does not fire earlier"),
        time("end_at", "it does not fire later"),
        big("max_fires", "most fires"),
        big("fire_count", "fires so far", null=False, default="0"),
        flag("skip_if_overdue", "true: a late fire is skipped", default=False),
        text("misfire_policy", "what is done about missed fires; null: fire_once"),
        big("misfire_grace_ms", "a fire that is later than this is missed"),
        flag("enabled", "false: it does not fire", default=True),
        time("next_fire_at", "next slot; null: there is none; always null for events"),
        time("last_fire_at", "the last slot that fired"),
        flag(
            "derived",
            "true: made from many documents in a closing pass, and not encoded into a document",
            default=False,
        ),
        jsonb("source_spec", "expression as the source states it"),
        extra(),
        priority("priority of the schedule, kept equal by the database; 50 without one"),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_triggers"),
        refers("triggers", "schedule_id", "schedules", "CASCADE"),
        one_of("triggers", "kind", states.TRIGGER_KINDS),
        one_of("triggers", "anchor", states.TRIGGER_ANCHORS),
        one_of("triggers", "misfire_policy", states.MISFIRE_POLICIES),
        check(
            "ck_triggers_kind_columns",
            "(kind = 'cron'::text) = (cron_expression IS NOT NULL)"
            " AND (kind = 'cron'::text) = (cron_dialect IS NOT NULL)"
            " AND (kind = 'interval'::text) = (interval_ms IS NOT NULL)"
            " AND (kind = 'interval'::text) = (anchor IS NOT NULL)"
            " AND (kind = 'one_time'::text) = (run_at IS NOT NULL)"
            " AND (kind = 'event'::text) = (event_name IS NOT NULL)"
            " AND (kind <> 'event'::text OR timezone IS NULL)",
        ),
        check("ck_triggers_event", "kind <> 'event'::text OR next_fire_at IS NULL"),
        check("ck_triggers_interval_ms", "interval_ms > 0"),
        check("ck_triggers_period", "end_at > start_at"),
        # Firing uses the first, for all tenants; lists of a tenant use the second.
        Index(
            "ix_triggers_due",
            desc("priority"),
            "next_fire_at",
            "id",
            postgresql_where=sql("enabled AND next_fire_at IS NOT NULL"),
        ),
        Index(
            "ix_triggers_next",
            "tenant_id",
            "next_fire_at",
            "id",
            postgresql_where=sql("enabled AND next_fire_at IS NOT NULL"),
        ),
        Index(
            "ix_triggers_event",
            "event_name",
            "tenant_id",
            "id",
            postgresql_where=sql("enabled AND event_name IS NOT NULL"),
        ),
        Index("ix_triggers_schedule", "schedule_id"),
        comment="When a schedule fires. A trigger is deleted with its schedule.",
    )


_AVAILABLE_SINCE = sql("COALESCE(available_at, created_at)")
"""Since when a queued run is available."""


def _in_state(*among: str) -> TextClause:
    words = ", ".join(f"'{state}'::text" for state in among)
    return sql(f"state = ANY (ARRAY[{words}])")


def _declare_runs(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _runs(metadata)
    _execution_logs(metadata)
    _impact_snapshots(metadata)
    _run_summaries(metadata)


def _runs(metadata: MetaData) -> None:
    Table(
        "runs",
        metadata,
        *sourced(),
        uuid("schedule_id", "schedule that ran"),
        uuid("trigger_id", "trigger that fired"),
        integer("run_number", "counts a schedule's runs; null for migrated StellaOps runs"),
        integer("attempt", "1 for the first; must be set where trigger_id and scheduled_at are"),
        uuid("retry_of", "run that this one repeats"),
        text("cause", "why it ran: any text, usually of a known list"),
        text("state", "state of the run", null=False),
        time("scheduled_at", "the slot"),
        time("available_at", "earliest start; later than created_at for a delayed retry"),
        time("created_at", "when it was created; lists are ordered by it", null=False),
        time("started_at", "when it first ran"),
        time("finished_at", "when it reached a terminal state"),
        big("duration_ms", "finished_at minus started_at; null: the dates of the source contradict each other"),
        text("worker_id", "worker that claimed it; a name, no foreign key"),
        big("fence", "fencing token of the claim: a write with an older one is refused"),
        time("lease_expires_at", "when the claim ends unless it is renewed"),
        text("external_task_id", "id of the task in an external queue"),
        jsonb("stats", "counters; never decrease"),
        jsonb("reason", "what requested it"),
        jsonb("deltas", "what changed", large=True),
        jsonb("result", "result of the handler", large=True),
        text("error", "why it failed: one line"),
        text("error_detail", "why it failed: all that is known"),
        text("trace_id", "distributed trace"),
        text("span_id", "span in the trace"),
        text("parent_span_id", "parent span"),
        text("triggered_by", "person or system"),
        text("dedupe_key", "unique per trigger: a second delivery of one event makes no second run"),
        jsonb("metadata", "data of the application"),
        text("schema_version", "version of the source document's format, as the document states it"),
        time("updated_at", "last change"),
        extra(),
        *tenant_of_schedule(),
        priority(
            "priority of the schedule, kept equal by the database while the run is planning or queued; 50 without one"
        ),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_runs"),
        refers("runs", "schedule_id", "schedules", tenant="schedule_tenant_id"),
        refers("runs", "trigger_id", "triggers", tenant="schedule_tenant_id"),
        refers("runs", "retry_of", "runs", "SET NULL (retry_of)"),
        one_of("runs", "state", states.RUN),
        check("ck_runs_duration_ms", "duration_ms >= 0"),
        check("ck_runs_attempt", "trigger_id IS NULL OR scheduled_at IS NULL OR attempt IS NOT NULL"),
        Index(
            "uq_runs_number",
            "schedule_id",
            "run_number",
            "tenant_id",
            unique=True,
            postgresql_where=sql("run_number IS NOT NULL"),
        ),
        # The tenant is last in these keys: rows are found by the columns before it. The index is partial on trigger_id
        # alone, so that the lookups of the foreign key can use it too.
        Index(
            "uq_runs_slot",
            "trigger_id",
            "scheduled_at",
            "attempt",
            "tenant_id",
            unique=True,
            postgresql_where=sql("trigger_id IS NOT NULL"),
        ),
        Index(
            "uq_runs_dedupe",
            "trigger_id",
            "dedupe_key",
            "tenant_id",
            unique=True,
            postgresql_where=sql("dedupe_key IS NOT NULL"),
        ),
        Index("ix_runs_page", "tenant_id", desc("created_at"), "id"),
        Index(
            "ix_runs_schedule",
            "schedule_id",
            desc("created_at"),
            "id",
            postgresql_where=sql("schedule_id IS NOT NULL"),
        ),
        # Claims use the first, in its order. The second counts and finds a schedule's open runs, and running runs. A
        # claim changes the state, so each index that held both queued and running runs would cost it an entry.
        Index(
            "ix_runs_waiting",
            "state",
            desc("priority"),
            _AVAILABLE_SINCE,
            "id",
            postgresql_where=_in_state(*states.RUN_WAITING),
        ),
        Index(
            "ix_runs_open",
            "state",
            "schedule_id",
            _AVAILABLE_SINCE,
            "id",
            postgresql_where=_in_state(*states.RUN_OPEN),
        ),
        Index("ix_runs_trace", "trace_id", postgresql_where=sql("trace_id IS NOT NULL")),
        # Retention deletes runs: without this index each deleted row would cost a scan of the table.
        Index("ix_runs_retry_of", "retry_of", postgresql_where=sql("retry_of IS NOT NULL")),
        comment="Runs, from planning to a terminal state. A retry is a row of its own. A schedule or trigger that has"
        " runs cannot be deleted. When a run is deleted, retry_of of its retries becomes null.",
    )


def _execution_logs(metadata: MetaData) -> None:
    Table(
        "execution_logs",
        metadata,
        *sourced(),
        uuid("run_id", "run of the line; null: the source does not have the run any more"),
        uuid("schedule_id", "schedule of the run; no foreign key, because lines stay when a schedule is deleted"),
        time("logged_at", "when the line was written", null=False),
        text("level", "trace to fatal", null=False),
        text("message", "text of the line"),
        jsonb("context", "data of the line"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_execution_logs"),
        refers("execution_logs", "run_id", "runs", "CASCADE"),
        one_of("execution_logs", "level", states.LOG_LEVELS),
        Index("ix_execution_logs_run", "run_id", "logged_at", "id"),
        comment="Lines of the logs of runs. They are deleted with their run.",
    )


def _impact_snapshots(metadata: MetaData) -> None:
    Table(
        "impact_snapshots",
        metadata,
        *sourced(),
        uuid("run_id", "run; null: the source names none"),
        text("snapshot_id", "id of the snapshot in the source"),
        jsonb("selector", "which images were requested"),
        jsonb("images", "images that matched", large=True),
        flag("usage_only", "true: only images in use"),
        big("total", "number of matches, as the source states it"),
        time("generated_at", "when it was made"),
        text("schema_version", "version of the source document's format, as the document states it"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_impact_snapshots"),
        refers("impact_snapshots", "run_id", "runs", "SET NULL (run_id)"),
        Index(
            "ix_impact_snapshots_run",
            "run_id",
            "generated_at",
            "id",
            postgresql_where=sql("run_id IS NOT NULL"),
        ),
        comment="A selector and the images that it matched; up to 16 MB a row. It stays when its run is deleted.",
    )


def _run_summaries(metadata: MetaData) -> None:
    Table(
        "run_summaries",
        metadata,
        *sourced(),
        uuid("schedule_id", "schedule; no foreign key; null: a migrated summary whose schedule is not stored"),
        time("updated_at", "last change"),
        jsonb("last_run", "newest run"),
        jsonb("recent", "some of the newest runs, newest first", large=True),
        jsonb("counters", "runs by state, and totals"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_run_summaries"),
        Index(
            "uq_run_summaries_schedule",
            "tenant_id",
            "schedule_id",
            unique=True,
            postgresql_where=sql("schedule_id IS NOT NULL"),
        ),
        comment="Summaries of the runs of a schedule: one row per tenant and schedule, computed from runs.",
    )


_STATUS_CODES = "0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending"


def _declare_graph_jobs(metadata: MetaData) -> None:
    """Add the two tables of the graph plan, with exactly its columns, to ``metadata``."""
    codes = sorted(states.GRAPH_JOB_CODES.values())
    Table(
        "graph_jobs",
        metadata,
        uuid("id", "UUID in the id of the source, or computed from that id", null=False),
        tenant(),
        small("type", "0 build, 1 overlay", null=False),
        small("status", _STATUS_CODES, null=False),
        jsonb("payload", "the whole document; its remainder under the reserved key $remainder", null=False, large=True),
        time("created_at", "createdAt of the document", null=False),
        time("updated_at", "last change; migrated: completedAt, else startedAt, else createdAt", null=False),
        text("correlation_id", "id of the request that caused it"),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_graph_jobs"),
        one_of("graph_jobs", "type", sorted(states.GRAPH_JOB_TYPES.values())),
        one_of("graph_jobs", "status", codes),
        Index("idx_graph_jobs_tenant_status", "tenant_id", "status", desc("created_at")),
        Index("idx_graph_jobs_tenant_type_status", "tenant_id", "type", "status", desc("created_at")),
        comment="Graph build and overlay jobs. The columns equal what payload says.",
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
        uuid("job_id", "job", null=False),
        tenant(),
        small("status", _STATUS_CODES, null=False),
        jsonb("payload", "the whole document; its remainder under the reserved key $remainder", null=False, large=True),
        time("created_at", "when it happened", null=False),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_graph_job_events"),
        refers("graph_job_events", "job_id", "graph_jobs", "CASCADE"),
        one_of("graph_job_events", "status", codes),
        Index("idx_graph_job_events_job", "job_id", desc("created_at")),
        comment="Status changes of graph jobs, each in the transaction of the change. They are deleted with their job.",
    )


def _declare_policy_jobs(metadata: MetaData) -> None:
    """Add the policy jobs to ``metadata``."""
    Table(
        "policy_jobs",
        metadata,
        *sourced(),
        text("policy_id", "policy", null=False),
        integer("policy_version", "version of the policy"),
        text("mode", "full, incremental or simulate"),
        text("priority", "normal, high or emergency"),
        text("status", "state of the policy job", null=False),
        text("run_id", "id of the run in the source; no foreign key"),
        jsonb("inputs", "input of the job", large=True),
        jsonb("stats", "counters of a status document"),
        jsonb("metadata", "data of the application"),
        text("requested_by", "person or system"),
        text("correlation_id", "id of the request that caused it"),
        integer("attempt_count", "claims so far"),
        time("last_attempt_at", "when it was last claimed"),
        text("last_error", "why the last attempt failed"),
        time("available_at", "earliest start"),
        integer("priority_rank", "priority as a number, for ordering"),
        text("lease_owner", "worker that claimed it"),
        time("lease_expires_at", "when the claim ends unless it is renewed"),
        time("queued_at", "when it was requested"),
        time("started_at", "when it first ran"),
        time("submitted_at", "when it was submitted"),
        time("finished_at", "when it reached a terminal state; completedAt of a work item"),
        time("cancelled_at", "when it was cancelled"),
        flag("cancellation_requested", "true: its cancellation was requested; null: the document does not say"),
        time("cancellation_requested_at", "when that was requested"),
        text("cancellation_reason", "why it was cancelled"),
        text("schema_version", "version of the source document's format, as the document states it"),
        time("created_at", "when it was created"),
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
        comment="Policy runs. The status document and the work item of one run are two rows, which differ in source.",
    )


def _declare_operations(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _workers(metadata)
    _locks(metadata)
    _audit(metadata)


def _workers(metadata: MetaData) -> None:
    Table(
        "workers",
        metadata,
        *sourced(),
        text("kind", "worker or scheduler", null=False),
        text("hostname", "host on which it runs"),
        integer("pid", "process id on that host"),
        text("version", "version of the program"),
        texts("queues", "queues from which it claims"),
        integer("capacity", "most runs at the same time"),
        text("status", "active, draining, stopped or dead", null=False),
        time("registered_at", "when it registered"),
        time("last_heartbeat_at", "last heartbeat, by the clock of the database"),
        jsonb("metadata", "data of the process"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_workers"),
        one_of("workers", "kind", states.WORKER_KINDS),
        one_of("workers", "status", states.WORKER_STATUSES),
        comment="Worker and scheduler processes, in the tenant *. Which process leads is a lock, not stored here.",
    )


def _locks(metadata: MetaData) -> None:
    Table(
        "locks",
        metadata,
        *sourced(),
        text("key", "<tenant>/<resource>; the tenant is * for a global lock", null=False),
        big("lock_id", "64 bits of SHA-256 of the key: the key of the advisory lock", null=False),
        uuid("owner", "id of the acquisition; null: the lock is free, or migrated"),
        text("holder", "name of the holder; of a migrated lock its owner"),
        big("fence", "fencing token: rises with every acquisition, also after a release", null=False, default="0"),
        time("acquired_at", "when it was acquired"),
        time("expires_at", "when it ends unless it is renewed; null: it does not expire"),
        jsonb("metadata", "data of the holder"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_locks"),
        UniqueConstraint("key", name="uq_locks_key"),
        check("ck_locks_key", "starts_with(key, tenant_id || '/'::text)"),
        comment="Locks: leases on resources. A released lock keeps its row, so that the fence keeps rising. The key"
        " begins with the tenant of the row, so that no tenant takes the lock of another.",
    )


def _audit(metadata: MetaData) -> None:
    Table(
        "audit",
        metadata,
        *sourced(),
        text("category", "kind of entry", null=False),
        text("action", "what was done", null=False),
        time("occurred_at", "when it was done", null=False),
        jsonb("actor", "person or system that did it"),
        text("entity_id", "id of the object, as text of the source"),
        uuid("schedule_id", "schedule that it concerns; no foreign key"),
        uuid("run_id", "run that it concerns; no foreign key"),
        text("correlation_id", "id of the request that caused it"),
        text("message", "description"),
        jsonb("metadata", "data of the entry"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_audit"),
        Index("ix_audit_page", "tenant_id", desc("occurred_at"), "id"),
        comment="Audit trail: append only. It has no foreign keys, because entries stay when their object is deleted.",
    )


SCHEDULER = MetaData(schema="scheduler")
"""The thirteen tables of the scheduler."""

_declare_schedules(SCHEDULER)
_declare_runs(SCHEDULER)
_declare_policy_jobs(SCHEDULER)
_declare_operations(SCHEDULER)
_declare_graph_jobs(SCHEDULER)
