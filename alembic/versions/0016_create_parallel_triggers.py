"""Create the table that has what triggers of a source fire on PostgreSQL during a parallel run."""

from alembic import op

revision = "0016"
down_revision = "0013"
branch_labels = None
depends_on = None

TABLES = ("parallel_triggers",)
"""Made by this revision; taken away, with their rows, when it is undone."""

# No foreign key: the tail deletes and inserts triggers, and must not wait for processes that fire. A row whose trigger
# is gone fires nothing.
DDL = """
CREATE TABLE parallel_triggers (
    id uuid NOT NULL,
    tenant_id text NOT NULL,
    timing text NOT NULL,
    began_at timestamptz,
    next_fire_at timestamptz,
    last_fire_at timestamptz,
    fire_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT pk_parallel_triggers PRIMARY KEY (id, tenant_id),
    CONSTRAINT ck_parallel_triggers_times CHECK (
        LEAST(began_at, next_fire_at, last_fire_at) >= '0001-01-01 00:00:00+00'
        AND GREATEST(began_at, next_fire_at, last_fire_at) < '10000-01-01 00:00:00+00'
    ),
    CONSTRAINT ck_parallel_triggers_counters CHECK (fire_count < 9223372036854775807)
);
COMMENT ON TABLE parallel_triggers IS
    'What triggers that came from the source fire here in a parallel run. The triggers themselves follow the source.';
COMMENT ON COLUMN parallel_triggers.id IS 'trigger';
COMMENT ON COLUMN parallel_triggers.tenant_id IS
    'owner of the row; *: a global row, which every tenant may read and only some roles may write';
COMMENT ON COLUMN parallel_triggers.timing IS
    'columns of the trigger that say when it fires; if they change, it continues with the next fire of the source';
COMMENT ON COLUMN parallel_triggers.began_at IS 'first slot that is fired here; null: none is planned yet';
COMMENT ON COLUMN parallel_triggers.next_fire_at IS 'next slot; null if there is none';
COMMENT ON COLUMN parallel_triggers.last_fire_at IS 'slot fired last';
COMMENT ON COLUMN parallel_triggers.fire_count IS 'fires so far';
"""

CURRENT = "NULLIF(current_setting('app.tenant_id'::text, true), ''::text)"
VISIBLE = f"tenant_id = ANY (ARRAY[{CURRENT}, CASE WHEN {CURRENT} IS NULL THEN NULL::text ELSE '*'::text END])"
OWN = f"tenant_id = {CURRENT} AND tenant_id <> '*'::text"

ISOLATION = """
ALTER TABLE parallel_triggers ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant_read ON parallel_triggers FOR SELECT TO {service} USING ({visible});
CREATE POLICY tenant_insert ON parallel_triggers FOR INSERT TO {service} WITH CHECK ({own});
CREATE POLICY tenant_update ON parallel_triggers FOR UPDATE TO {service} USING ({own}) WITH CHECK ({own});
CREATE POLICY tenant_delete ON parallel_triggers FOR DELETE TO {service} USING ({own});
CREATE POLICY dispatcher_all ON parallel_triggers TO {dispatcher} USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE (timing, began_at, next_fire_at, last_fire_at, fire_count)
    ON TABLE parallel_triggers TO {service}, {dispatcher};
"""


def upgrade() -> None:
    """Make the table and isolate its tenants."""
    connection = op.get_bind()
    connection.exec_driver_sql(DDL)
    names: dict[str, str] = op.get_context().opts["roles"]
    connection.exec_driver_sql(ISOLATION.format(visible=VISIBLE, own=OWN, **names))


def downgrade() -> None:
    """Drop the table with its rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
