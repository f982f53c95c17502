"""Create the table of the next fires that the old scheduler planned during a parallel run."""

from alembic import op

revision = "0017"
down_revision = "0015"
branch_labels = None
depends_on = None

TABLES = ("planned_fires",)
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
CREATE TABLE planned_fires (
    position bigint GENERATED ALWAYS AS IDENTITY,
    collection text NOT NULL,
    source_id text NOT NULL,
    planned_at timestamptz,
    seen_at timestamptz NOT NULL,
    CONSTRAINT pk_planned_fires PRIMARY KEY (position)
);
COMMENT ON TABLE planned_fires IS
    'Next fires that the old scheduler planned in a parallel run, each of them, as the change stream says.';
COMMENT ON COLUMN planned_fires.position IS 'order in which they were planned';
COMMENT ON COLUMN planned_fires.collection IS 'MongoDB collection';
COMMENT ON COLUMN planned_fires.source_id IS 'the document''s _id as text';
COMMENT ON COLUMN planned_fires.planned_at IS 'next fire from then on; null: there is none';
COMMENT ON COLUMN planned_fires.seen_at IS 'when the old scheduler wrote it';
"""


def upgrade() -> None:
    """Make the table."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Drop the table with its rows; nothing else goes."""
    for table in reversed(TABLES):
        op.get_bind().exec_driver_sql(f"DROP TABLE {table}")
