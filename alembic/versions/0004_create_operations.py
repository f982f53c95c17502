"""Create processes, locks and the audit trail: workers, locks, audit."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = ("workers", "locks", "audit")
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE workers (
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
    CONSTRAINT pk_workers PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_workers_kind CHECK (kind = ANY (ARRAY['worker'::text, 'scheduler'::text])),
    CONSTRAINT ck_workers_status CHECK (status = ANY (ARRAY[
        'active'::text, 'draining'::text, 'stopped'::text, 'dead'::text
    ])),
    CONSTRAINT ck_workers_times CHECK (
        LEAST(registered_at, last_heartbeat_at) >= '0001-01-01 00:00:00+00'
        AND GREATEST(registered_at, last_heartbeat_at) < '10000-01-01 00:00:00+00'
    )
);
COMMENT ON TABLE workers IS
    'Worker and scheduler processes, in the tenant *. Which process leads is a lock, not stored here.';
COMMENT ON COLUMN workers.kind IS 'worker or scheduler';
COMMENT ON COLUMN workers.hostname IS 'host on which it runs';
COMMENT ON COLUMN workers.pid IS 'process id on that host';
COMMENT ON COLUMN workers.version IS 'version of the program';
COMMENT ON COLUMN workers.queues IS 'queues from which it claims';
COMMENT ON COLUMN workers.capacity IS 'most runs at the same time';
COMMENT ON COLUMN workers.status IS 'active, draining, stopped or dead';
COMMENT ON COLUMN workers.registered_at IS 'when it registered';
COMMENT ON COLUMN workers.last_heartbeat_at IS 'last heartbeat, by the clock of the database';
COMMENT ON COLUMN workers.metadata IS 'data of the process';

CREATE TABLE locks (
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
    CONSTRAINT pk_locks PRIMARY KEY (id, tenant_id),
    CONSTRAINT uq_locks_key UNIQUE (key),
    CONSTRAINT ck_locks_key CHECK (starts_with(key, tenant_id || '/'::text)),
    CONSTRAINT ck_locks_times CHECK (
        LEAST(acquired_at, expires_at) >= '0001-01-01 00:00:00+00'
        AND GREATEST(acquired_at, expires_at) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_locks_counters CHECK (fence < 9223372036854775807)
);
COMMENT ON TABLE locks IS
    'Locks: leases on resources. A released lock keeps its row, so that the fence keeps rising. The key begins '
    'with the tenant of the row, so that no tenant takes the lock of another.';
COMMENT ON COLUMN locks.key IS '<tenant>/<resource>; the tenant is * for a global lock';
COMMENT ON COLUMN locks.lock_id IS '64 bits of SHA-256 of the key: the key of the advisory lock';
COMMENT ON COLUMN locks.owner IS 'id of the acquisition; null: the lock is free, or migrated';
COMMENT ON COLUMN locks.holder IS 'name of the holder; of a migrated lock its owner';
COMMENT ON COLUMN locks.fence IS 'fencing token: rises with every acquisition, also after a release';
COMMENT ON COLUMN locks.acquired_at IS 'when it was acquired';
COMMENT ON COLUMN locks.expires_at IS 'when it ends unless it is renewed; null: it does not expire';
COMMENT ON COLUMN locks.metadata IS 'data of the holder';

CREATE TABLE audit (
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
    CONSTRAINT pk_audit PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_audit_times CHECK (
        occurred_at >= '0001-01-01 00:00:00+00' AND occurred_at < '10000-01-01 00:00:00+00'
    )
);
CREATE INDEX ix_audit_page ON audit (tenant_id, occurred_at DESC, id);
COMMENT ON TABLE audit IS
    'Audit trail: append only. It has no foreign keys, because entries stay when their object is deleted.';
COMMENT ON COLUMN audit.category IS 'kind of entry';
COMMENT ON COLUMN audit.action IS 'what was done';
COMMENT ON COLUMN audit.occurred_at IS 'when it was done';
COMMENT ON COLUMN audit.actor IS 'person or system that did it';
COMMENT ON COLUMN audit.entity_id IS 'id of the object, as text of the source';
COMMENT ON COLUMN audit.schedule_id IS 'schedule that it concerns; no foreign key';
COMMENT ON COLUMN audit.run_id IS 'run that it concerns; no foreign key';
COMMENT ON COLUMN audit.correlation_id IS 'id of the request that caused it';
COMMENT ON COLUMN audit.message IS 'description';
COMMENT ON COLUMN audit.metadata IS 'data of the entry';
"""


def upgrade() -> None:
    """Make the tables."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the tables with their rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
