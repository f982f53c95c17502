"""Create the policy jobs."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("policy_jobs",)
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE policy_jobs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    policy_id text NOT NULL,
    policy_version integer,
    mode text,
    priority text,
    status text NOT NULL,
    run_id text,
    inputs jsonb,
    stats jsonb,
    metadata jsonb,
    requested_by text,
    correlation_id text,
    attempt_count integer,
    last_attempt_at timestamptz,
    last_error text,
    available_at timestamptz,
    priority_rank integer,
    lease_owner text,
    lease_expires_at timestamptz,
    queued_at timestamptz,
    started_at timestamptz,
    submitted_at timestamptz,
    finished_at timestamptz,
    cancelled_at timestamptz,
    cancellation_requested boolean,
    cancellation_requested_at timestamptz,
    cancellation_reason text,
    schema_version text,
    created_at timestamptz,
    updated_at timestamptz,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_policy_jobs PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_policy_jobs_mode CHECK (mode = ANY (ARRAY['full'::text, 'incremental'::text, 'simulate'::text])),
    CONSTRAINT ck_policy_jobs_priority CHECK (priority = ANY (ARRAY[
        'normal'::text, 'high'::text, 'emergency'::text
    ])),
    CONSTRAINT ck_policy_jobs_status CHECK (status = ANY (ARRAY[
        'pending'::text, 'dispatching'::text, 'submitted'::text, 'queued'::text, 'running'::text,
        'succeeded'::text, 'completed'::text, 'failed'::text, 'canceled'::text, 'replay_pending'::text
    ])),
    CONSTRAINT ck_policy_jobs_times CHECK (
        LEAST(
            last_attempt_at, available_at, lease_expires_at, queued_at, started_at, submitted_at, finished_at,
            cancelled_at, cancellation_requested_at, created_at, updated_at
        ) >= '0001-01-01 00:00:00+00'
        AND GREATEST(
            last_attempt_at, available_at, lease_expires_at, queued_at, started_at, submitted_at, finished_at,
            cancelled_at, cancellation_requested_at, created_at, updated_at
        ) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_policy_jobs_counters CHECK (attempt_count < 2147483647)
);
CREATE INDEX ix_policy_jobs_status ON policy_jobs (tenant_id, status, queued_at DESC, id);
CREATE UNIQUE INDEX uq_policy_jobs_run ON policy_jobs (tenant_id, source, run_id) NULLS NOT DISTINCT
    WHERE run_id IS NOT NULL;
COMMENT ON TABLE policy_jobs IS
    'Policy runs. The status document and the work item of one run are two rows, which differ in source.';
COMMENT ON COLUMN policy_jobs.policy_id IS 'policy';
COMMENT ON COLUMN policy_jobs.policy_version IS 'version of the policy';
COMMENT ON COLUMN policy_jobs.mode IS 'full, incremental or simulate';
COMMENT ON COLUMN policy_jobs.priority IS 'normal, high or emergency';
COMMENT ON COLUMN policy_jobs.status IS 'state of the policy job';
COMMENT ON COLUMN policy_jobs.run_id IS 'id of the run in the source; no foreign key';
COMMENT ON COLUMN policy_jobs.inputs IS 'input of the job';
COMMENT ON COLUMN policy_jobs.stats IS 'counters of a status document';
COMMENT ON COLUMN policy_jobs.metadata IS 'data of the application';
COMMENT ON COLUMN policy_jobs.requested_by IS 'person or system';
COMMENT ON COLUMN policy_jobs.correlation_id IS 'id of the request that caused it';
COMMENT ON COLUMN policy_jobs.attempt_count IS 'claims so far';
COMMENT ON COLUMN policy_jobs.last_attempt_at IS 'when it was last claimed';
COMMENT ON COLUMN policy_jobs.last_error IS 'why the last attempt failed';
COMMENT ON COLUMN policy_jobs.available_at IS 'earliest start';
COMMENT ON COLUMN policy_jobs.priority_rank IS 'priority as a number, for ordering';
COMMENT ON COLUMN policy_jobs.lease_owner IS 'worker that claimed it';
COMMENT ON COLUMN policy_jobs.lease_expires_at IS 'when the claim ends unless it is renewed';
COMMENT ON COLUMN policy_jobs.queued_at IS 'when it was requested';
COMMENT ON COLUMN policy_jobs.started_at IS 'when it first ran';
COMMENT ON COLUMN policy_jobs.submitted_at IS 'when it was submitted';
COMMENT ON COLUMN policy_jobs.finished_at IS 'when it reached a terminal state; completedAt of a work item';
COMMENT ON COLUMN policy_jobs.cancelled_at IS 'when it was cancelled';
COMMENT ON COLUMN policy_jobs.cancellation_requested IS
    'true: its cancellation was requested; null: the document does not say';
COMMENT ON COLUMN policy_jobs.cancellation_requested_at IS 'when that was requested';
COMMENT ON COLUMN policy_jobs.cancellation_reason IS 'why it was cancelled';
COMMENT ON COLUMN policy_jobs.schema_version IS 'version of the source document''s format, as the document states it';
COMMENT ON COLUMN policy_jobs.created_at IS 'when it was created';
COMMENT ON COLUMN policy_jobs.updated_at IS 'last change';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
