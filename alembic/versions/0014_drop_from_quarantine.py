"""Let a person drop a document from the quarantine: give it up, with a name and a reason."""

from alembic import op

revision = "0014"
down_revision = "0012"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

UPGRADE = """
ALTER TABLE quarantine ADD COLUMN dropped_by text, ADD COLUMN dropped_because text;
ALTER TABLE quarantine DROP CONSTRAINT ck_quarantine_state;
ALTER TABLE quarantine ADD CONSTRAINT ck_quarantine_state
    CHECK (state = ANY (ARRAY['open'::text, 'resolved'::text, 'superseded'::text, 'dropped'::text]));
ALTER TABLE quarantine ADD CONSTRAINT ck_quarantine_dropped
    CHECK ((state = 'dropped') = (dropped_by IS NOT NULL AND dropped_because IS NOT NULL));
COMMENT ON COLUMN quarantine.state IS 'open, resolved, superseded or dropped';
COMMENT ON COLUMN quarantine.resolved_at IS 'when it was loaded, replaced or dropped';
COMMENT ON COLUMN quarantine.dropped_by IS 'who gave the document up; null unless it is dropped';
COMMENT ON COLUMN quarantine.dropped_because IS 'why the document was given up; null unless it is dropped';
"""
DOWNGRADE = """
UPDATE quarantine SET state = 'open', resolved_at = NULL, dropped_by = NULL, dropped_because = NULL
    WHERE state = 'dropped';
ALTER TABLE quarantine DROP CONSTRAINT ck_quarantine_dropped;
ALTER TABLE quarantine DROP CONSTRAINT ck_quarantine_state;
ALTER TABLE quarantine ADD CONSTRAINT ck_quarantine_state
    CHECK (state = ANY (ARRAY['open'::text, 'resolved'::text, 'superseded'::text]));
ALTER TABLE quarantine DROP COLUMN dropped_by, DROP COLUMN dropped_because;
COMMENT ON COLUMN quarantine.state IS 'open, resolved or superseded';
COMMENT ON COLUMN quarantine.resolved_at IS 'when it was loaded, or replaced';
"""


def upgrade() -> None:
    """Add the state and the decision."""
    op.get_bind().exec_driver_sql(UPGRADE)


def downgrade() -> None:
    """Open the entries again that were dropped; the decisions stay in the table decisions."""
    op.get_bind().exec_driver_sql(DOWNGRADE)
