"""Create what ran: runs, their logs, impact snapshots, summaries."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("runs", "execution_logs", "impact_snapshots", "run_summaries")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE scheduler.runs (
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
    CONSTRAINT pk_runs PRIMARY KEY (id),
    CONSTRAINT fk_runs_schedule_id FOREIGN KEY (schedule_id) REFERENCES scheduler.schedules (id),
    CONSTRAINT fk_runs_trigger_id FOREIGN KEY (trigger_id) REFERENCES scheduler.triggers (id),
    CONSTRAINT fk_runs_retry_of FOREIGN KEY (retry_of) REFERENCES scheduler.runs (id) ON DELETE SET NULL,
    CONSTRAINT ck_runs_state CHECK (state = ANY (ARRAY[
        'planning'::text, 'queued'::text, 'running'::text, 'completed'::text, 'error'::text,
        'cancelled'::text, 'timeout'::text, 'skipped'::text
    ])),
    CONSTRAINT ck_runs_duration_ms CHECK (duration_ms >= 0),
    CONSTRAINT ck_runs_attempt CHECK (trigger_id IS NULL OR scheduled_at IS NULL OR attempt IS NOT NULL)
);
CREATE INDEX ix_runs_live ON scheduler.runs (state, available_at, id)
    WHERE state = ANY (ARRAY['planning'::text, 'queued'::text, 'running'::text]);
CREATE INDEX ix_runs_page ON scheduler.runs (tenant_id, created_at DESC, id);
CREATE INDEX ix_runs_retry_of ON scheduler.runs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX ix_runs_schedule ON scheduler.runs (schedule_id, created_at DESC, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX ix_runs_trace ON scheduler.runs (trace_id) WHERE trace_id IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_dedupe ON scheduler.runs (trigger_id, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_number ON scheduler.runs (schedule_id, run_number) WHERE run_number IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_slot ON scheduler.runs (trigger_id, scheduled_at, attempt) WHERE trigger_id IS NOT NULL;
COMMENT ON TABLE scheduler.runs IS
    'Executions, from planning to a terminal state; a retry is a row of its own. A schedule or trigger that has '
    'runs is not deleted from under them; a run whose original is removed keeps a null retry_of.';
COMMENT ON COLUMN scheduler.runs.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.runs.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.runs.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.runs.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.runs.schedule_id IS 'what ran';
COMMENT ON COLUMN scheduler.runs.trigger_id IS 'what made it run';
COMMENT ON COLUMN scheduler.runs.run_number IS 'counts a schedule''s runs; null for migrated StellaOps runs';
COMMENT ON COLUMN scheduler.runs.attempt IS '1 for the first; must be set where trigger_id and scheduled_at are';
COMMENT ON COLUMN scheduler.runs.retry_of IS 'the run this one repeats';
COMMENT ON COLUMN scheduler.runs.cause IS 'why it ran: open text with a known list';
COMMENT ON COLUMN scheduler.runs.state IS 'state of the run machine';
COMMENT ON COLUMN scheduler.runs.scheduled_at IS 'the slot';
COMMENT ON COLUMN scheduler.runs.available_at IS 'not before; carries the delay of a retry';
COMMENT ON COLUMN scheduler.runs.created_at IS 'when it was made; lists go by it';
COMMENT ON COLUMN scheduler.runs.started_at IS 'first running';
COMMENT ON COLUMN scheduler.runs.finished_at IS 'terminal';
COMMENT ON COLUMN scheduler.runs.duration_ms IS
    'finished less started; null where the source''s dates contradict each other';
COMMENT ON COLUMN scheduler.runs.worker_id IS 'who has claimed it; a name, no reference';
COMMENT ON COLUMN scheduler.runs.fence IS 'fence of the claim: a write with an older one is refused';
COMMENT ON COLUMN scheduler.runs.lease_expires_at IS 'the claim ends unless renewed';
COMMENT ON COLUMN scheduler.runs.external_task_id IS 'its name in an outside queue';
COMMENT ON COLUMN scheduler.runs.stats IS 'counters; never decrease';
COMMENT ON COLUMN scheduler.runs.reason IS 'what asked for it';
COMMENT ON COLUMN scheduler.runs.deltas IS 'what changed';
COMMENT ON COLUMN scheduler.runs.result IS 'what it gave';
COMMENT ON COLUMN scheduler.runs.error IS 'why it failed, in short';
COMMENT ON COLUMN scheduler.runs.error_detail IS 'why it failed, in full';
COMMENT ON COLUMN scheduler.runs.trace_id IS 'distributed trace';
COMMENT ON COLUMN scheduler.runs.span_id IS 'span in the trace';
COMMENT ON COLUMN scheduler.runs.parent_span_id IS 'span above it';
COMMENT ON COLUMN scheduler.runs.triggered_by IS 'person or system';
COMMENT ON COLUMN scheduler.runs.dedupe_key IS
    'unique per trigger: a second delivery of one event makes no second run';
COMMENT ON COLUMN scheduler.runs.metadata IS 'whatever the owner adds';
COMMENT ON COLUMN scheduler.runs.schema_version IS
    'version of the source document''s shape; old ones are not upgraded';
COMMENT ON COLUMN scheduler.runs.updated_at IS 'last change';
COMMENT ON COLUMN scheduler.runs.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.execution_logs (
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
    CONSTRAINT pk_execution_logs PRIMARY KEY (id),
    CONSTRAINT fk_execution_logs_run_id FOREIGN KEY (run_id) REFERENCES scheduler.runs (id) ON DELETE CASCADE,
    CONSTRAINT ck_execution_logs_level CHECK (level = ANY (ARRAY[
        'trace'::text, 'debug'::text, 'info'::text, 'warn'::text, 'error'::text, 'fatal'::text
    ]))
);
CREATE INDEX ix_execution_logs_run ON scheduler.execution_logs (run_id, logged_at, id);
COMMENT ON TABLE scheduler.execution_logs IS 'Lines of the runs'' logs; they go with their run.';
COMMENT ON COLUMN scheduler.execution_logs.id IS
    'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.execution_logs.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.execution_logs.source IS
    'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.execution_logs.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.execution_logs.run_id IS 'whose line; null when the run was gone before the move';
COMMENT ON COLUMN scheduler.execution_logs.schedule_id IS 'no foreign key: the line outlives the schedule';
COMMENT ON COLUMN scheduler.execution_logs.logged_at IS 'when';
COMMENT ON COLUMN scheduler.execution_logs.level IS 'trace to fatal';
COMMENT ON COLUMN scheduler.execution_logs.message IS 'what';
COMMENT ON COLUMN scheduler.execution_logs.context IS 'with what';
COMMENT ON COLUMN scheduler.execution_logs.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.impact_snapshots (
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
    CONSTRAINT pk_impact_snapshots PRIMARY KEY (id),
    CONSTRAINT fk_impact_snapshots_run_id FOREIGN KEY (run_id) REFERENCES scheduler.runs (id) ON DELETE SET NULL
);
CREATE INDEX ix_impact_snapshots_run ON scheduler.impact_snapshots (run_id, generated_at, id)
    WHERE run_id IS NOT NULL;
COMMENT ON TABLE scheduler.impact_snapshots IS
    'A selector and the images it matched; up to 16 MB a row. Outlives its run.';
COMMENT ON COLUMN scheduler.impact_snapshots.id IS
    'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.impact_snapshots.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.impact_snapshots.source IS
    'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.impact_snapshots.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.impact_snapshots.run_id IS 'for which run, where one is named';
COMMENT ON COLUMN scheduler.impact_snapshots.snapshot_id IS 'the source''s own name of it';
COMMENT ON COLUMN scheduler.impact_snapshots.selector IS 'what was asked for';
COMMENT ON COLUMN scheduler.impact_snapshots.images IS 'what matched';
COMMENT ON COLUMN scheduler.impact_snapshots.usage_only IS 'only images in use';
COMMENT ON COLUMN scheduler.impact_snapshots.total IS 'how many matched, as the source says';
COMMENT ON COLUMN scheduler.impact_snapshots.generated_at IS 'when';
COMMENT ON COLUMN scheduler.impact_snapshots.schema_version IS
    'version of the source document''s shape; old ones are not upgraded';
COMMENT ON COLUMN scheduler.impact_snapshots.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.run_summaries (
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
    CONSTRAINT pk_run_summaries PRIMARY KEY (id)
);
CREATE UNIQUE INDEX uq_run_summaries_schedule ON scheduler.run_summaries (tenant_id, schedule_id)
    WHERE schedule_id IS NOT NULL;
COMMENT ON TABLE scheduler.run_summaries IS
    'Projection of a schedule''s runs: one row per tenant and schedule, always recomputable from runs.';
COMMENT ON COLUMN scheduler.run_summaries.id IS
    'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.run_summaries.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.run_summaries.source IS
    'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.run_summaries.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.run_summaries.schedule_id IS
    'of which schedule; no foreign key; null for a migrated summary whose schedule is not stored';
COMMENT ON COLUMN scheduler.run_summaries.updated_at IS 'last change';
COMMENT ON COLUMN scheduler.run_summaries.last_run IS 'the newest run';
COMMENT ON COLUMN scheduler.run_summaries.recent IS 'bounded, newest first';
COMMENT ON COLUMN scheduler.run_summaries.counters IS 'runs by state, and totals';
COMMENT ON COLUMN scheduler.run_summaries.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE scheduler.{table}")
