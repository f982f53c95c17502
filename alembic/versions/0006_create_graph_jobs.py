"""Create the graph jobs and their events, as their plan has them, and isolate their tenants."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("graph_jobs", "graph_job_events")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE scheduler.graph_jobs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    type smallint NOT NULL,
    status smallint NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    correlation_id text,
    CONSTRAINT pk_graph_jobs PRIMARY KEY (id),
    CONSTRAINT ck_graph_jobs_type CHECK (type = ANY (ARRAY[0, 1])),
    CONSTRAINT ck_graph_jobs_status CHECK (status = ANY (ARRAY[0, 1, 2, 3, 4, 5]))
);
CREATE INDEX idx_graph_jobs_tenant_status ON scheduler.graph_jobs (tenant_id, status, created_at DESC);
CREATE INDEX idx_graph_jobs_tenant_type_status ON scheduler.graph_jobs (tenant_id, type, status, created_at DESC);
COMMENT ON TABLE scheduler.graph_jobs IS
    'Graph build and overlay jobs, with exactly the columns of their plan; they equal what payload says.';
COMMENT ON COLUMN scheduler.graph_jobs.id IS 'the UUID in the source''s id, else computed from it';
COMMENT ON COLUMN scheduler.graph_jobs.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.graph_jobs.type IS '0 build, 1 overlay';
COMMENT ON COLUMN scheduler.graph_jobs.status IS '0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending';
COMMENT ON COLUMN scheduler.graph_jobs.payload IS 'the whole document; its residue under the reserved key $residue';
COMMENT ON COLUMN scheduler.graph_jobs.created_at IS 'the document''s createdAt';
COMMENT ON COLUMN scheduler.graph_jobs.updated_at IS
    'last change; migrated: completedAt, else startedAt, else createdAt';
COMMENT ON COLUMN scheduler.graph_jobs.correlation_id IS 'of the request that asked for it';

CREATE TABLE scheduler.graph_job_events (
    id bigserial NOT NULL,
    job_id uuid NOT NULL,
    tenant_id text NOT NULL,
    status smallint NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_graph_job_events PRIMARY KEY (id),
    CONSTRAINT fk_graph_job_events_job_id FOREIGN KEY (job_id)
        REFERENCES scheduler.graph_jobs (id) ON DELETE CASCADE,
    CONSTRAINT ck_graph_job_events_status CHECK (status = ANY (ARRAY[0, 1, 2, 3, 4, 5]))
);
CREATE INDEX idx_graph_job_events_job ON scheduler.graph_job_events (job_id, created_at DESC);
COMMENT ON TABLE scheduler.graph_job_events IS
    'Status changes of graph jobs, each written in the transaction of the change; they go with their job.';
COMMENT ON COLUMN scheduler.graph_job_events.id IS
    'migrated rows: 2^62 + 62 bits of SHA-256 of tenant, source and _id; new rows: the sequence';
COMMENT ON COLUMN scheduler.graph_job_events.job_id IS 'of which job';
COMMENT ON COLUMN scheduler.graph_job_events.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.graph_job_events.status IS
    '0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending';
COMMENT ON COLUMN scheduler.graph_job_events.payload IS
    'the whole document; its residue under the reserved key $residue';
COMMENT ON COLUMN scheduler.graph_job_events.created_at IS 'when it happened';
"""

CURRENT = "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)"
VISIBLE = f"tenant_id = ANY (ARRAY[{CURRENT}, CASE WHEN {CURRENT} IS NULL THEN NULL::text ELSE '*'::text END])"
OWN = f"tenant_id = {CURRENT} AND tenant_id <> '*'::text"

ISOLATION = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON {table} FOR SELECT TO {service} USING ({visible});
CREATE POLICY tenant_insert ON {table} FOR INSERT TO {service} WITH CHECK ({own});
CREATE POLICY tenant_update ON {table} FOR UPDATE TO {service} USING ({own}) WITH CHECK ({own});
CREATE POLICY tenant_delete ON {table} FOR DELETE TO {service} USING ({own});
CREATE POLICY dispatcher_all ON {table} TO {dispatcher} USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE {table} TO {service}, {dispatcher};
"""
SEQUENCE = "GRANT USAGE ON SEQUENCE scheduler.graph_job_events_id_seq TO {service}, {dispatcher}"


def upgrade() -> None:
    """Make the tables and isolate their tenants."""
    connection = op.get_bind()
    names: dict[str, str] = op.get_context().opts["roles"]
    connection.exec_driver_sql(DDL)
    for table in TABLES:
        connection.exec_driver_sql(ISOLATION.format(table=f"scheduler.{table}", visible=VISIBLE, own=OWN, **names))
    connection.exec_driver_sql(SEQUENCE.format(**names))


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE scheduler.{table}")
