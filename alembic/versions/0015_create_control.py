"""Create the table of what operators set while a migration runs: a pause, limits of the copy, a postponed cutover."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

TABLES = ("control",)
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE control (
    name text NOT NULL,
    value double precision,
    who text NOT NULL,
    reason text NOT NULL,
    at timestamptz DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT pk_control PRIMARY KEY (name),
    CONSTRAINT ck_control_name CHECK (name = ANY (ARRAY['pause'::text, 'postpone-cutover'::text, 'max_rate'::text,
        'max_replication_lag'::text, 'max_source_load'::text])),
    CONSTRAINT ck_control_value CHECK ((value IS NULL) = (name = ANY (ARRAY['pause'::text, 'postpone-cutover'::text])))
);
COMMENT ON TABLE control IS
    'What operators set while a migration runs: a pause, a postponed cutover, limits of the copy.';
COMMENT ON COLUMN control.name IS 'pause, postpone-cutover, or the key of [copy] in whose place the value is';
COMMENT ON COLUMN control.value IS 'documents a second, seconds, or clients; 0: no limit; null: not a limit';
COMMENT ON COLUMN control.who IS 'who set it';
COMMENT ON COLUMN control.reason IS 'why it was set; may be empty';
COMMENT ON COLUMN control.at IS 'when it was set';
"""


def upgrade() -> None:
    """Make the table."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the table with its rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
