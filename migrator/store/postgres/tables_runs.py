"""What ran: runs, their logs, impact snapshots and summaries."""

from sqlalchemy import Index, MetaData, PrimaryKeyConstraint, Table, TextClause, desc
from sqlalchemy import text as sql

from migrator import states
from migrator.store.postgres.columns import (
    big,
    check,
    extra,
    flag,
    integer,
    jsonb,
    one_of,
    refers,
    sourced,
    tenant_of_schedule,
    text,
    time,
    uuid,
)

SINCE = sql("COALESCE(available_at, created_at)")
"""Since when a queued run is available."""


def _in_state(*among: str) -> TextClause:
    words = ", ".join(f"'{state}'::text" for state in among)
    return sql(f"state = ANY (ARRAY[{words}])")


def declare(metadata: MetaData) -> None:
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
        # Claims go by the first; the second counts and finds what is open of a schedule, and what is running. A claim
        # changes the state, so each index that held both queued and running runs would cost it an entry.
        Index("ix_runs_waiting", "state", SINCE, "id", postgresql_where=_in_state("planning", "queued")),
        Index("ix_runs_open", "state", "schedule_id", SINCE, "id", postgresql_where=_in_state("queued", "running")),
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
