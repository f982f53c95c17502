"""Create the policy jobs."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("policy_jobs",)
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE scheduler.policy_jobs (
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
    CONSTRAINT pk_policy_jobs PRIMARY KEY (id),
    CONSTRAINT ck_policy_jobs_mode CHECK (mode = ANY (ARRAY['full'::text, 'incremental'::text, 'simulate'::text])),
    CONSTRAINT ck_policy_jobs_priority CHECK (priority = ANY (ARRAY[
        'normal'::text, 'high'::text, 'emergency'::text
    ])),
    CONSTRAINT ck_policy_jobs_status CHECK (status = ANY (ARRAY[
        'pending'::text, 'dispatching'::text, 'submitted'::text, 'queued'::text, 'running'::text,
        'succeeded'::text, 'completed'::text, 'failed'::text, 'canceled'::text, 'replay_pending'::text
    ]))
);
CREATE INDEX ix_policy_jobs_status ON scheduler.policy_jobs (tenant_id, status, queued_at DESC, id);
CREATE UNIQUE INDEX uq_policy_jobs_run ON scheduler.policy_jobs (tenant_id, source, run_id) NULLS NOT DISTINCT
    WHERE run_id IS NOT NULL;
COMMENT ON TABLE scheduler.policy_jobs IS
    'Policy runs. The status document and the work item of one run are two rows, told apart by source.';
COMMENT ON COLUMN scheduler.policy_jobs.id IS
    'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.policy_jobs.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.policy_jobs.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.policy_jobs.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.policy_jobs.policy_id IS 'which policy';
COMMENT ON COLUMN scheduler.policy_jobs.policy_version IS 'which version of it';
COMMENT ON COLUMN scheduler.policy_jobs.mode IS 'full, incremental or simulate';
COMMENT ON COLUMN scheduler.policy_jobs.priority IS 'normal, high or emergency';
COMMENT ON COLUMN scheduler.policy_jobs.status IS 'state of the policy job machine';
COMMENT ON COLUMN scheduler.policy_jobs.run_id IS 'the source''s own name of the run: text, no reference';
COMMENT ON COLUMN scheduler.policy_jobs.inputs IS 'what it works on';
COMMENT ON COLUMN scheduler.policy_jobs.stats IS 'counters of a status document';
COMMENT ON COLUMN scheduler.policy_jobs.metadata IS 'whatever the owner adds';
COMMENT ON COLUMN scheduler.policy_jobs.requested_by IS 'person or system';
COMMENT ON COLUMN scheduler.policy_jobs.correlation_id IS 'of the request that asked for it';
COMMENT ON COLUMN scheduler.policy_jobs.attempt_count IS 'claims so far';
COMMENT ON COLUMN scheduler.policy_jobs.last_attempt_at IS 'when it was last claimed';
COMMENT ON COLUMN scheduler.policy_jobs.last_error IS 'why the last attempt failed';
COMMENT ON COLUMN scheduler.policy_jobs.available_at IS 'not before';
COMMENT ON COLUMN scheduler.policy_jobs.priority_rank IS 'priority as a number, for ordering';
COMMENT ON COLUMN scheduler.policy_jobs.lease_owner IS 'who has claimed it';
COMMENT ON COLUMN scheduler.policy_jobs.lease_expires_at IS 'the claim ends unless renewed';
COMMENT ON COLUMN scheduler.policy_jobs.queued_at IS 'when it was asked for';
COMMENT ON COLUMN scheduler.policy_jobs.started_at IS 'first running';
COMMENT ON COLUMN scheduler.policy_jobs.submitted_at IS 'when it was handed on';
COMMENT ON COLUMN scheduler.policy_jobs.finished_at IS 'terminal; a work item''s completedAt';
COMMENT ON COLUMN scheduler.policy_jobs.cancelled_at IS 'when it was cancelled';
COMMENT ON COLUMN scheduler.policy_jobs.cancellation_requested IS
    'somebody asked to cancel it; null where the document does not say';
COMMENT ON COLUMN scheduler.policy_jobs.cancellation_requested_at IS 'when';
COMMENT ON COLUMN scheduler.policy_jobs.cancellation_reason IS 'why';
COMMENT ON COLUMN scheduler.policy_jobs.schema_version IS
    'version of the source document''s shape; old ones are not upgraded';
COMMENT ON COLUMN scheduler.policy_jobs.created_at IS 'when it was made';
COMMENT ON COLUMN scheduler.policy_jobs.updated_at IS 'last change';
COMMENT ON COLUMN scheduler.policy_jobs.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE scheduler.{table}")
