"""Create what ran: runs, their logs, impact snapshots, summaries."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("runs", "execution_logs", "impact_snapshots", "run_summaries")
"""Made by this revision; taken away, with their rows, when it is undone."""

# A foreign key contains the tenant, as row-level security does not apply to it. Unique keys contain it last, because
# rows are found by the columns before it. uq_runs_slot is partial on trigger_id alone, so that lookups of the foreign
# key can use it too. A claim changes the state, so each index that held both queued and running runs would cost it an
# entry: claims use ix_runs_waiting, and ix_runs_open counts and finds a schedule's open runs, and running runs.
# Retention deletes runs: without ix_runs_retry_of each deleted row would cost a scan of the table.
DDL = """
CREATE TABLE runs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    schedule_id uuid,
    trigger_id uuid,
    run_number integer,
    attempt integer,
    retry_of uuid,
    cause text,
    state text NOT NULL,
    scheduled_at timestamptz,
    available_at timestamptz,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    duration_ms bigint,
    worker_id text,
    fence bigint,
    lease_expires_at timestamptz,
    external_task_id text,
    stats jsonb,
    reason jsonb,
    deltas jsonb,
    result jsonb,
    error text,
    error_detail text,
    trace_id text,
    span_id text,
    parent_span_id text,
    triggered_by text,
    dedupe_key text,
    metadata jsonb,
    schema_version text,
    updated_at timestamptz,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    global_schedule boolean DEFAULT false NOT NULL,
    schedule_tenant_id text
        GENERATED ALWAYS AS (CASE WHEN global_schedule THEN '*'::text ELSE tenant_id END) STORED,
    priority smallint DEFAULT 50 NOT NULL,
    CONSTRAINT pk_runs PRIMARY KEY (id, tenant_id),
    CONSTRAINT fk_runs_schedule_id FOREIGN KEY (schedule_tenant_id, schedule_id)
        REFERENCES schedules (tenant_id, id),
    CONSTRAINT fk_runs_trigger_id FOREIGN KEY (schedule_tenant_id, trigger_id)
        REFERENCES triggers (tenant_id, id),
    CONSTRAINT fk_runs_retry_of FOREIGN KEY (tenant_id, retry_of)
        REFERENCES runs (tenant_id, id) ON DELETE SET NULL (retry_of),
    CONSTRAINT ck_runs_state CHECK (state = ANY (ARRAY[
        'planning'::text, 'queued'::text, 'running'::text, 'completed'::text, 'error'::text,
        'cancelled'::text, 'timeout'::text, 'skipped'::text
    ])),
    CONSTRAINT ck_runs_duration_ms CHECK (duration_ms >= 0),
    CONSTRAINT ck_runs_attempt CHECK (trigger_id IS NULL OR scheduled_at IS NULL OR attempt IS NOT NULL),
    CONSTRAINT ck_runs_times CHECK (
        LEAST(
            scheduled_at, available_at, created_at, started_at, finished_at, lease_expires_at, updated_at
        ) >= '0001-01-01 00:00:00+00'
        AND GREATEST(
            scheduled_at, available_at, created_at, started_at, finished_at, lease_expires_at, updated_at
        ) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_runs_counters CHECK (run_number < 2147483647 AND attempt < 2147483647 AND fence < 9223372036854775807)
);
CREATE INDEX ix_runs_waiting ON runs (state, priority DESC, COALESCE(available_at, created_at), id)
    WHERE state = ANY (ARRAY['planning'::text, 'queued'::text]);
CREATE INDEX ix_runs_open ON runs (state, schedule_id, COALESCE(available_at, created_at), id)
    WHERE state = ANY (ARRAY['queued'::text, 'running'::text]);
CREATE INDEX ix_runs_page ON runs (tenant_id, created_at DESC, id);
CREATE INDEX ix_runs_retry_of ON runs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX ix_runs_schedule ON runs (schedule_id, created_at DESC, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX ix_runs_trace ON runs (trace_id) WHERE trace_id IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_dedupe ON runs (trigger_id, dedupe_key, tenant_id) WHERE dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_number ON runs (schedule_id, run_number, tenant_id) WHERE run_number IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_slot ON runs (trigger_id, scheduled_at, attempt, tenant_id) WHERE trigger_id IS NOT NULL;
COMMENT ON TABLE runs IS
    'Runs, from planning to a terminal state. A retry is a row of its own. A schedule or trigger that has runs '
    'cannot be deleted. When a run is deleted, retry_of of its retries becomes null.';
COMMENT ON COLUMN runs.schedule_id IS 'schedule that ran';
COMMENT ON COLUMN runs.trigger_id IS 'trigger that fired';
COMMENT ON COLUMN runs.run_number IS 'counts a schedule''s runs; null for migrated StellaOps runs';
COMMENT ON COLUMN runs.attempt IS '1 for the first; must be set where trigger_id and scheduled_at are';
COMMENT ON COLUMN runs.retry_of IS 'run that this one repeats';
COMMENT ON COLUMN runs.cause IS 'why it ran: any text, usually of a known list';
COMMENT ON COLUMN runs.state IS 'state of the run';
COMMENT ON COLUMN runs.scheduled_at IS 'the slot';
COMMENT ON COLUMN runs.available_at IS 'earliest start; later than created_at for a delayed retry';
COMMENT ON COLUMN runs.created_at IS 'when it was created; lists are ordered by it';
COMMENT ON COLUMN runs.started_at IS 'when it first ran';
COMMENT ON COLUMN runs.finished_at IS 'when it reached a terminal state';
COMMENT ON COLUMN runs.duration_ms IS
    'finished_at minus started_at; null: the dates of the source contradict each other';
COMMENT ON COLUMN runs.worker_id IS 'worker that claimed it; a name, no foreign key';
COMMENT ON COLUMN runs.fence IS 'fencing token of the claim: a write with an older one is refused';
COMMENT ON COLUMN runs.lease_expires_at IS 'when the claim ends unless it is renewed';
COMMENT ON COLUMN runs.external_task_id IS 'id of the task in an external queue';
COMMENT ON COLUMN runs.stats IS 'counters; never decrease';
COMMENT ON COLUMN runs.reason IS 'what requested it';
COMMENT ON COLUMN runs.deltas IS 'what changed';
COMMENT ON COLUMN runs.result IS 'result of the handler';
COMMENT ON COLUMN runs.error IS 'why it failed: one line';
COMMENT ON COLUMN runs.error_detail IS 'why it failed: all that is known';
COMMENT ON COLUMN runs.trace_id IS 'distributed trace';
COMMENT ON COLUMN runs.span_id IS 'span in the trace';
COMMENT ON COLUMN runs.parent_span_id IS 'parent span';
COMMENT ON COLUMN runs.triggered_by IS 'person or system';
COMMENT ON COLUMN runs.dedupe_key IS 'unique per trigger: a second delivery of one event makes no second run';
COMMENT ON COLUMN runs.metadata IS 'data of the application';
COMMENT ON COLUMN runs.schema_version IS 'version of the source document''s format, as the document states it';
COMMENT ON COLUMN runs.updated_at IS 'last change';
COMMENT ON COLUMN runs.global_schedule IS
    'true: schedule_id and trigger_id refer to rows of the tenant *; false: to rows of the run''s tenant. A run '
    'refers to no other global row';
COMMENT ON COLUMN runs.schedule_tenant_id IS
    'computed: the tenant of the schedule and of the trigger, a part of both foreign keys';
COMMENT ON COLUMN runs.priority IS
    'priority of the schedule, kept equal by the database while the run is planning or queued; 50 without one';

CREATE TABLE execution_logs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    run_id uuid,
    schedule_id uuid,
    logged_at timestamptz NOT NULL,
    level text NOT NULL,
    message text,
    context jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_execution_logs PRIMARY KEY (id, tenant_id),
    CONSTRAINT fk_execution_logs_run_id FOREIGN KEY (tenant_id, run_id)
        REFERENCES runs (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_execution_logs_level CHECK (level = ANY (ARRAY[
        'trace'::text, 'debug'::text, 'info'::text, 'warn'::text, 'error'::text, 'fatal'::text
    ])),
    CONSTRAINT ck_execution_logs_times CHECK (
        logged_at >= '0001-01-01 00:00:00+00' AND logged_at < '10000-01-01 00:00:00+00'
    )
);
CREATE INDEX ix_execution_logs_run ON execution_logs (run_id, logged_at, id);
COMMENT ON TABLE execution_logs IS 'Lines of the logs of runs. They are deleted with their run.';
COMMENT ON COLUMN execution_logs.run_id IS 'run of the line; null: the source does not have the run any more';
COMMENT ON COLUMN execution_logs.schedule_id IS
    'schedule of the run; no foreign key, because lines stay when a schedule is deleted';
COMMENT ON COLUMN execution_logs.logged_at IS 'when the line was written';
COMMENT ON COLUMN execution_logs.level IS 'trace to fatal';
COMMENT ON COLUMN execution_logs.message IS 'text of the line';
COMMENT ON COLUMN execution_logs.context IS 'data of the line';

CREATE TABLE impact_snapshots (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    run_id uuid,
    snapshot_id text,
    selector jsonb,
    images jsonb,
    usage_only boolean,
    total bigint,
    generated_at timestamptz,
    schema_version text,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_impact_snapshots PRIMARY KEY (id, tenant_id),
    CONSTRAINT fk_impact_snapshots_run_id FOREIGN KEY (tenant_id, run_id)
        REFERENCES runs (tenant_id, id) ON DELETE SET NULL (run_id),
    CONSTRAINT ck_impact_snapshots_times CHECK (
        generated_at >= '0001-01-01 00:00:00+00' AND generated_at < '10000-01-01 00:00:00+00'
    )
);
CREATE INDEX ix_impact_snapshots_run ON impact_snapshots (run_id, generated_at, id)
    WHERE run_id IS NOT NULL;
COMMENT ON TABLE impact_snapshots IS
    'A selector and the images that it matched; up to 16 MB a row. It stays when its run is deleted.';
COMMENT ON COLUMN impact_snapshots.run_id IS 'run; null: the source names none';
COMMENT ON COLUMN impact_snapshots.snapshot_id IS 'id of the snapshot in the source';
COMMENT ON COLUMN impact_snapshots.selector IS 'which images were requested';
COMMENT ON COLUMN impact_snapshots.images IS 'images that matched';
COMMENT ON COLUMN impact_snapshots.usage_only IS 'true: only images in use';
COMMENT ON COLUMN impact_snapshots.total IS 'number of matches, as the source states it';
COMMENT ON COLUMN impact_snapshots.generated_at IS 'when it was made';
COMMENT ON COLUMN impact_snapshots.schema_version IS
    'version of the source document''s format, as the document states it';

CREATE TABLE run_summaries (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    schedule_id uuid,
    updated_at timestamptz,
    last_run jsonb,
    recent jsonb,
    counters jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_run_summaries PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_run_summaries_times CHECK (
        updated_at >= '0001-01-01 00:00:00+00' AND updated_at < '10000-01-01 00:00:00+00'
    )
);
CREATE UNIQUE INDEX uq_run_summaries_schedule ON run_summaries (tenant_id, schedule_id)
    WHERE schedule_id IS NOT NULL;
COMMENT ON TABLE run_summaries IS
    'Summaries of the runs of a schedule: one row per tenant and schedule, computed from runs.';
COMMENT ON COLUMN run_summaries.schedule_id IS
    'schedule; no foreign key; null: a migrated summary whose schedule is not stored';
COMMENT ON COLUMN run_summaries.updated_at IS 'last change';
COMMENT ON COLUMN run_summaries.last_run IS 'newest run';
COMMENT ON COLUMN run_summaries.recent IS 'some of the newest runs, newest first';
COMMENT ON COLUMN run_summaries.counters IS 'runs by state, and totals';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
