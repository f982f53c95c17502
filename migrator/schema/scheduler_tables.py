"""The thirteen tables of the schema ``scheduler``, declared with SQLAlchemy Core.

Only a declaration: revisions make the tables, and ``catalogue`` compares them with what is declared here.
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
        text("handler_path", "where the application finds its body"),
        text("handler_type", "how it is called", null=False),
        text("queue", "default queue of its runs"),
        big("default_timeout_ms", "timeout where the schedule states none"),
        flag("is_active", "may be scheduled", default=True),
        flag("is_system", "its deletion is refused", default=False),
        flag("idempotent", "a second run of one slot does no harm", default=False),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_handlers"),
        UniqueConstraint("tenant_id", "name", name="uq_handlers_name"),
        one_of("handlers", "handler_type", states.HANDLER_TYPES),
        comment="Named pieces of code that schedules call; the bodies are the application's.",
    )


def _schedules(metadata: MetaData) -> None:
    Table(
        "schedules",
        metadata,
        *sourced(),
        text("name", "unique among a tenant's rows born here and not deleted; source data may repeat it", null=False),
        text("description", "free text"),
        flag("enabled", "fires; a disabled schedule is left out of due queries", default=True),
        text("status", "state of the schedule machine", null=False),
        text("mode", "StellaOps: analysis-only or content-refresh"),
        jsonb("selection", "StellaOps: which images"),
        jsonb("only_if", "StellaOps: conditions"),
        jsonb("notify", "StellaOps: when to tell whom"),
        jsonb("limits", "StellaOps: rates and parallelism"),
        texts("subscribers", "who is told; null is absent, empty is empty"),
        text("handler_name", "what to call; a name, no reference: the handler may not be registered yet"),
        text("handler_type", "how it is called"),
        text("queue", "queue of its runs; null is the default one"),
        jsonb("payload", "argument of its runs", large=True),
        small("priority", "0 to 100, higher first (low 25, medium 50, high 75, critical 100); null counts as 50"),
        integer("max_retries", "retries after the first attempt; null is none"),
        big("retry_delay_ms", "delay before the first retry"),
        text("retry_strategy", "exponential: the delay doubles; fixed: it stays"),
        big("retry_cap_ms", "longest delay; null where a source names none", default="3600000"),
        integer("retry_count", "retries made since the last success"),
        text("on_exhausted", "after the last retry: keep the schedule or stop it; null is keep"),
        big("timeout_ms", "longest duration of a run; null is none"),
        integer("max_concurrency", "runs at the same time; null: they may overlap"),
        texts("tags", "labels to search by"),
        jsonb("metadata", "whatever the owner adds"),
        text("schema_version", "version of the source document's shape; old ones are not upgraded"),
        time("created_at", "when it was made"),
        text("created_by", "by whom"),
        time("updated_at", "when it was last changed"),
        text("updated_by", "by whom"),
        time("paused_at", "when it was paused"),
        time("cancelled_at", "when it was cancelled"),
        time("completed_at", "when it fired for the last time"),
        time("deleted_at", "when it was softly deleted: lists, gets and due queries leave it out"),
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
        comment="What runs: one row per schedule, whatever makes it fire. A column that a source may leave out is null"
        " rather than a default, so that absent and stated stay two things.",
    )


def _triggers(metadata: MetaData) -> None:
    Table(
        "triggers",
        metadata,
        *sourced(),
        uuid("schedule_id", "what fires", null=False),
        text("kind", "cron, interval, one_time or event; exactly the columns of the kind are set", null=False),
        text("cron_expression", "cron: verbatim, never rewritten"),
        text("cron_dialect", "cron: the engine whose rules evaluate the expression"),
        text("timezone", "IANA name; null where a source names none; not for events"),
        big("interval_ms", "interval: the only unit"),
        text("anchor", "interval: counted from the completion of the last run, or at a fixed_rate"),
        time("run_at", "one_time: when"),
        text("event_name", "event: which"),
        time("start_at", "no fire before"),
        time("end_at", "no fire after"),
        big("max_fires", "no more fires than so many"),
        big("fire_count", "fires so far", null=False, default="0"),
        flag("skip_if_overdue", "a fire that is late is skipped", default=False),
        text("misfire_policy", "what to do with missed fires; null is fire_once"),
        big("misfire_grace_ms", "later than so much counts as missed"),
        flag("enabled", "fires", default=True),
        time("next_fire_at", "the next slot; null: none is due; never set for events"),
        time("last_fire_at", "the last slot that fired"),
        flag("derived", "made in a closing pass from many documents; not encoded back", default=False),
        jsonb("source_spec", "the original expression verbatim"),
        extra(),
        priority("of the schedule, kept equal by the database; a schedule without one counts as 50"),
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
        # Fires go by the first, whatever the tenant; lists of a tenant by the second.
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
        comment="When a schedule fires. Goes with its schedule.",
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
        uuid("schedule_id", "what ran"),
        uuid("trigger_id", "what made it run"),
        integer("run_number", "counts a schedule's runs; null for migrated StellaOps runs"),
        integer("attempt", "1 for the first; must be set where trigger_id and scheduled_at are"),
        uuid("retry_of", "the run this one repeats"),
        text("cause", "why it ran: open text with a known list"),
        text("state", "state of the run machine", null=False),
        time("scheduled_at", "the slot"),
        time("available_at", "not before; carries the delay of a retry"),
        time("created_at", "when it was made; lists go by it", null=False),
        time("started_at", "first running"),
        time("finished_at", "terminal"),
        big("duration_ms", "finished less started; null where the source's dates contradict each other"),
        text("worker_id", "who has claimed it; a name, no reference"),
        big("fence", "fence of the claim: a write with an older one is refused"),
        time("lease_expires_at", "the claim ends unless renewed"),
        text("external_task_id", "its name in an outside queue"),
        jsonb("stats", "counters; never decrease"),
        jsonb("reason", "what asked for it"),
        jsonb("deltas", "what changed", large=True),
        jsonb("result", "what it gave", large=True),
        text("error", "why it failed, in short"),
        text("error_detail", "why it failed, in full"),
        text("trace_id", "distributed trace"),
        text("span_id", "span in the trace"),
        text("parent_span_id", "span above it"),
        text("triggered_by", "person or system"),
        text("dedupe_key", "unique per trigger: a second delivery of one event makes no second run"),
        jsonb("metadata", "whatever the owner adds"),
        text("schema_version", "version of the source document's shape; old ones are not upgraded"),
        time("updated_at", "last change"),
        extra(),
        *tenant_of_schedule(),
        priority("of the schedule, kept equal by the database while the run is planning or queued; 50 without one"),
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
        # The tenant comes last in these keys: rows are found by what stands before it.
        # Partial on trigger_id alone, so that the foreign key's look-ups can use it too.
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
        # Claims go by the first, in its order; the second counts and finds what is open of a schedule, and what is
        # running. A claim changes the state, so each index that held both queued and running runs would cost it an
        # entry.
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
        comment="Executions, from planning to a terminal state; a retry is a row of its own. A schedule or trigger that"
        " has runs is not deleted from under them; a run whose original is removed keeps a null retry_of.",
    )


def _execution_logs(metadata: MetaData) -> None:
    Table(
        "execution_logs",
        metadata,
        *sourced(),
        uuid("run_id", "whose line; null when the run was gone before the move"),
        uuid("schedule_id", "no foreign key: the line outlives the schedule"),
        time("logged_at", "when", null=False),
        text("level", "trace to fatal", null=False),
        text("message", "what"),
        jsonb("context", "with what"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_execution_logs"),
        refers("execution_logs", "run_id", "runs", "CASCADE"),
        one_of("execution_logs", "level", states.LOG_LEVELS),
        Index("ix_execution_logs_run", "run_id", "logged_at", "id"),
        comment="Lines of the runs' logs; they go with their run.",
    )


def _impact_snapshots(metadata: MetaData) -> None:
    Table(
        "impact_snapshots",
        metadata,
        *sourced(),
        uuid("run_id", "for which run, where one is named"),
        text("snapshot_id", "the source's own name of it"),
        jsonb("selector", "what was asked for"),
        jsonb("images", "what matched", large=True),
        flag("usage_only", "only images in use"),
        big("total", "how many matched, as the source says"),
        time("generated_at", "when"),
        text("schema_version", "version of the source document's shape; old ones are not upgraded"),
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
        comment="A selector and the images it matched; up to 16 MB a row. Outlives its run.",
    )


def _run_summaries(metadata: MetaData) -> None:
    Table(
        "run_summaries",
        metadata,
        *sourced(),
        uuid(
            "schedule_id", "of which schedule; no foreign key; null for a migrated summary whose schedule is not stored"
        ),
        time("updated_at", "last change"),
        jsonb("last_run", "the newest run"),
        jsonb("recent", "bounded, newest first", large=True),
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
        comment="Projection of a schedule's runs: one row per tenant and schedule, always recomputable from runs.",
    )


_STATUS_CODES = "0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending"


def _declare_graph_jobs(metadata: MetaData) -> None:
    """Add the two tables of the graph plan, with exactly its columns, to ``metadata``."""
    codes = sorted(states.GRAPH_JOB_CODES.values())
    Table(
        "graph_jobs",
        metadata,
        uuid("id", "the UUID in the source's id, else computed from it", null=False),
        tenant(),
        small("type", "0 build, 1 overlay", null=False),
        small("status", _STATUS_CODES, null=False),
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
        small("status", _STATUS_CODES, null=False),
        jsonb("payload", "the whole document; its residue under the reserved key $residue", null=False, large=True),
        time("created_at", "when it happened", null=False),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_graph_job_events"),
        refers("graph_job_events", "job_id", "graph_jobs", "CASCADE"),
        one_of("graph_job_events", "status", codes),
        Index("idx_graph_job_events_job", "job_id", desc("created_at")),
        comment="Status changes of graph jobs, each written in the transaction of the change; they go with their job.",
    )


def _declare_policy_jobs(metadata: MetaData) -> None:
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
        text("hostname", "where it runs"),
        integer("pid", "process on that host"),
        text("version", "of the program"),
        texts("queues", "what it takes"),
        integer("capacity", "runs at the same time"),
        text("status", "active, draining, stopped or dead", null=False),
        time("registered_at", "when it came"),
        time("last_heartbeat_at", "when it last spoke, by the database's clock"),
        jsonb("metadata", "whatever it adds"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_workers"),
        one_of("workers", "kind", states.WORKER_KINDS),
        one_of("workers", "status", states.WORKER_STATUSES),
        comment="Worker and scheduler processes, under the tenant *. Who leads is derived from locks, not stored here.",
    )


def _locks(metadata: MetaData) -> None:
    Table(
        "locks",
        metadata,
        *sourced(),
        text("key", "<tenant>/<resource>, the tenant * for global ones", null=False),
        big("lock_id", "64 bits of SHA-256 of the key: the advisory lock, the same in every process", null=False),
        uuid("owner", "one per acquire; null when free, and for migrated locks"),
        text("holder", "who, in words; a migrated lock's owner text"),
        big("fence", "rises with every acquire, also after release", null=False, default="0"),
        time("acquired_at", "when it was taken"),
        time("expires_at", "when it ends unless renewed; null: without expiry, thus live"),
        jsonb("metadata", "whatever the holder adds"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_locks"),
        UniqueConstraint("key", name="uq_locks_key"),
        check("ck_locks_key", "starts_with(key, tenant_id || '/'::text)"),
        comment="Leases on resources. The row outlives the lock, so that the fence keeps rising. The key begins with"
        " the row's tenant: nobody takes another tenant's lock.",
    )


def _audit(metadata: MetaData) -> None:
    Table(
        "audit",
        metadata,
        *sourced(),
        text("category", "of what kind", null=False),
        text("action", "what was done", null=False),
        time("occurred_at", "when", null=False),
        jsonb("actor", "by whom"),
        text("entity_id", "to what: the source's text, whatever it names"),
        uuid("schedule_id", "concerning which schedule; no foreign key"),
        uuid("run_id", "concerning which run; no foreign key"),
        text("correlation_id", "of the request"),
        text("message", "in words"),
        jsonb("metadata", "with what"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_audit"),
        Index("ix_audit_page", "tenant_id", desc("occurred_at"), "id"),
        comment="Audit trail: append only, without foreign keys, since it outlives what it tells of.",
    )


SCHEDULER = MetaData(schema="scheduler")
"""The product's thirteen tables."""

_declare_schedules(SCHEDULER)
_declare_runs(SCHEDULER)
_declare_policy_jobs(SCHEDULER)
_declare_operations(SCHEDULER)
_declare_graph_jobs(SCHEDULER)
