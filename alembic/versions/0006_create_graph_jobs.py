"""Create the graph jobs of StellaOps and their events, and isolate their tenants."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

TABLES = ("graph_jobs", "graph_job_events")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE graph_jobs (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    type smallint NOT NULL,
    status smallint NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    correlation_id text,
    CONSTRAINT pk_graph_jobs PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_graph_jobs_type CHECK (type = ANY (ARRAY[0, 1])),
    CONSTRAINT ck_graph_jobs_status CHECK (status = ANY (ARRAY[0, 1, 2, 3, 4, 5])),
    CONSTRAINT ck_graph_jobs_times CHECK (
        LEAST(created_at, updated_at) >= '0001-01-01 00:00:00+00'
        AND GREATEST(created_at, updated_at) < '10000-01-01 00:00:00+00'
    )
);
CREATE INDEX idx_graph_jobs_tenant_status ON graph_jobs (tenant_id, status, created_at DESC);
CREATE INDEX idx_graph_jobs_tenant_type_status ON graph_jobs (tenant_id, type, status, created_at DESC);
COMMENT ON TABLE graph_jobs IS 'Graph build and overlay jobs. The columns equal what payload says.';
COMMENT ON COLUMN graph_jobs.id IS 'UUID in the id of the source, or computed from that id';
COMMENT ON COLUMN graph_jobs.tenant_id IS
    'owner of the row; *: a global row, which every tenant may read and only some roles may write';
COMMENT ON COLUMN graph_jobs.type IS '0 build, 1 overlay';
COMMENT ON COLUMN graph_jobs.status IS '0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending';
COMMENT ON COLUMN graph_jobs.payload IS 'the whole document; its remainder under the reserved key $remainder';
COMMENT ON COLUMN graph_jobs.created_at IS 'createdAt of the document';
COMMENT ON COLUMN graph_jobs.updated_at IS 'last change; migrated: completedAt, else startedAt, else createdAt';
COMMENT ON COLUMN graph_jobs.correlation_id IS 'id of the request that caused it';

CREATE TABLE graph_job_events (
    id bigserial NOT NULL,
    job_id uuid NOT NULL,
    tenant_id text NOT NULL,
    status smallint NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_graph_job_events PRIMARY KEY (id, tenant_id),
    CONSTRAINT fk_graph_job_events_job_id FOREIGN KEY (tenant_id, job_id)
        REFERENCES graph_jobs (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT ck_graph_job_events_status CHECK (status = ANY (ARRAY[0, 1, 2, 3, 4, 5])),
    CONSTRAINT ck_graph_job_events_times CHECK (
        created_at >= '0001-01-01 00:00:00+00' AND created_at < '10000-01-01 00:00:00+00'
    )
);
CREATE INDEX idx_graph_job_events_job ON graph_job_events (job_id, created_at DESC);
COMMENT ON TABLE graph_job_events IS
    'Status changes of graph jobs, each in the transaction of the change. They are deleted with their job.';
COMMENT ON COLUMN graph_job_events.id IS
    'migrated rows: 2^62 + 62 bits of SHA-256 of tenant, source and _id; new rows: the sequence';
COMMENT ON COLUMN graph_job_events.job_id IS 'job';
COMMENT ON COLUMN graph_job_events.tenant_id IS
    'owner of the row; *: a global row, which every tenant may read and only some roles may write';
COMMENT ON COLUMN graph_job_events.status IS '0 queued, 1 running, 2 completed, 3 failed, 4 canceled, 5 pending';
COMMENT ON COLUMN graph_job_events.payload IS 'the whole document; its remainder under the reserved key $remainder';
COMMENT ON COLUMN graph_job_events.created_at IS 'when it happened';
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
GRANT SELECT, INSERT, UPDATE ({columns}) ON TABLE {table} TO {service}, {dispatcher};
"""
CHANGED = {
    "graph_jobs": "type, status, payload, created_at, updated_at, correlation_id",
    "graph_job_events": "job_id, status, payload, created_at",
}
"""Table to the columns that may be changed: all but the key."""
SEQUENCE = "GRANT USAGE ON SEQUENCE graph_job_events_id_seq TO {service}, {dispatcher}"


def upgrade() -> None:
    """Make the tables and isolate their tenants."""
    connection = op.get_bind()
    names: dict[str, str] = op.get_context().opts["roles"]
    connection.exec_driver_sql(DDL)
    for table, columns in CHANGED.items():
        connection.exec_driver_sql(ISOLATION.format(table=table, columns=columns, visible=VISIBLE, own=OWN, **names))
    connection.exec_driver_sql(SEQUENCE.format(**names))


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
