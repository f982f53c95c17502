"""Create who works and what is held and told: workers, locks, audit."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = ("workers", "locks", "audit")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE scheduler.workers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    kind text NOT NULL,
    hostname text,
    pid integer,
    version text,
    queues text[],
    capacity integer,
    status text NOT NULL,
    registered_at timestamptz,
    last_heartbeat_at timestamptz,
    metadata jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_workers PRIMARY KEY (id),
    CONSTRAINT ck_workers_kind CHECK (kind = ANY (ARRAY['worker'::text, 'scheduler'::text])),
    CONSTRAINT ck_workers_status CHECK (status = ANY (ARRAY[
        'active'::text, 'draining'::text, 'stopped'::text, 'dead'::text
    ]))
);
COMMENT ON TABLE scheduler.workers IS
    'Worker and scheduler processes, under the tenant *. Who leads is derived from locks, not stored here.';
COMMENT ON COLUMN scheduler.workers.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.workers.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.workers.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.workers.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.workers.kind IS 'worker or scheduler';
COMMENT ON COLUMN scheduler.workers.hostname IS 'where it runs';
COMMENT ON COLUMN scheduler.workers.pid IS 'process on that host';
COMMENT ON COLUMN scheduler.workers.version IS 'of the program';
COMMENT ON COLUMN scheduler.workers.queues IS 'what it takes';
COMMENT ON COLUMN scheduler.workers.capacity IS 'runs at the same time';
COMMENT ON COLUMN scheduler.workers.status IS 'active, draining, stopped or dead';
COMMENT ON COLUMN scheduler.workers.registered_at IS 'when it came';
COMMENT ON COLUMN scheduler.workers.last_heartbeat_at IS 'when it last spoke, by the database''s clock';
COMMENT ON COLUMN scheduler.workers.metadata IS 'whatever it adds';
COMMENT ON COLUMN scheduler.workers.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.locks (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    key text NOT NULL,
    lock_id bigint NOT NULL,
    owner uuid,
    holder text,
    fence bigint DEFAULT 0 NOT NULL,
    acquired_at timestamptz,
    expires_at timestamptz,
    metadata jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_locks PRIMARY KEY (id),
    CONSTRAINT uq_locks_key UNIQUE (key),
    CONSTRAINT ck_locks_key CHECK (starts_with(key, tenant_id || '/'::text))
);
COMMENT ON TABLE scheduler.locks IS
    'Leases on resources. The row outlives the lock, so that the fence keeps rising. The key begins with the '
    'row''s tenant: nobody takes another tenant''s lock.';
COMMENT ON COLUMN scheduler.locks.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.locks.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.locks.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.locks.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.locks.key IS '<tenant>/<resource>, the tenant * for global ones';
COMMENT ON COLUMN scheduler.locks.lock_id IS
    '64 bits of SHA-256 of the key: the advisory lock, the same in every process';
COMMENT ON COLUMN scheduler.locks.owner IS 'one per acquire; null when free, and for migrated locks';
COMMENT ON COLUMN scheduler.locks.holder IS 'who, in words; a migrated lock''s owner text';
COMMENT ON COLUMN scheduler.locks.fence IS 'rises with every acquire, also after release';
COMMENT ON COLUMN scheduler.locks.acquired_at IS 'when it was taken';
COMMENT ON COLUMN scheduler.locks.expires_at IS 'when it ends unless renewed; null: without expiry, thus live';
COMMENT ON COLUMN scheduler.locks.metadata IS 'whatever the holder adds';
COMMENT ON COLUMN scheduler.locks.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';

CREATE TABLE scheduler.audit (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    source text,
    source_id text,
    category text NOT NULL,
    action text NOT NULL,
    occurred_at timestamptz NOT NULL,
    actor jsonb,
    entity_id text,
    schedule_id uuid,
    run_id uuid,
    correlation_id text,
    message text,
    metadata jsonb,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT pk_audit PRIMARY KEY (id)
);
CREATE INDEX ix_audit_page ON scheduler.audit (tenant_id, occurred_at DESC, id);
COMMENT ON TABLE scheduler.audit IS
    'Audit trail: append only, without foreign keys, since it outlives what it tells of.';
COMMENT ON COLUMN scheduler.audit.id IS 'computed from tenant, collection and source_id; how a row is found again';
COMMENT ON COLUMN scheduler.audit.tenant_id IS
    'owner of the row; * is global: visible to all, written only by roles that may';
COMMENT ON COLUMN scheduler.audit.source IS 'profile and collection (stellaops/runs); null for a row born here';
COMMENT ON COLUMN scheduler.audit.source_id IS
    'the document''s _id: a plain string verbatim, any other as canonical Extended JSON; not indexed, since a '
    'row is found by its computed id: who searches by it may build a hash index after the load';
COMMENT ON COLUMN scheduler.audit.category IS 'of what kind';
COMMENT ON COLUMN scheduler.audit.action IS 'what was done';
COMMENT ON COLUMN scheduler.audit.occurred_at IS 'when';
COMMENT ON COLUMN scheduler.audit.actor IS 'by whom';
COMMENT ON COLUMN scheduler.audit.entity_id IS 'to what: the source''s text, whatever it names';
COMMENT ON COLUMN scheduler.audit.schedule_id IS 'concerning which schedule; no foreign key';
COMMENT ON COLUMN scheduler.audit.run_id IS 'concerning which run; no foreign key';
COMMENT ON COLUMN scheduler.audit.correlation_id IS 'of the request';
COMMENT ON COLUMN scheduler.audit.message IS 'in words';
COMMENT ON COLUMN scheduler.audit.metadata IS 'with what';
COMMENT ON COLUMN scheduler.audit.extra IS
    'residue: what of the source document no column carries, typed, by path; {} for a clean document';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE scheduler.{table}")
