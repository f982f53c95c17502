"""Say of a pending link which document it names, and whose: an id alone may be that of another document."""

from alembic import op

revision = "0013"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

# There are links only while a copy is unfinished. Those of runs (no other table refers to itself) get the tenant of
# their row; one whose row is not stored is of no use. Which document an older link names is not known: its id decides.
UPGRADE = """
ALTER TABLE migration.pending_links
    ADD COLUMN tenant_id text, ADD COLUMN target_source text, ADD COLUMN target_source_id text;
UPDATE migration.pending_links AS link SET tenant_id = stored.tenant_id
    FROM scheduler.runs AS stored WHERE link.record_table = 'runs' AND stored.id = link.row_id;
DELETE FROM migration.pending_links WHERE tenant_id IS NULL;
ALTER TABLE migration.pending_links
    ALTER COLUMN tenant_id SET NOT NULL,
    DROP CONSTRAINT pk_pending_links,
    ADD CONSTRAINT pk_pending_links PRIMARY KEY (record_table, row_id, tenant_id, column_name);
COMMENT ON COLUMN migration.pending_links.tenant_id IS 'tenant of the row that refers, and of the row referred to';
COMMENT ON COLUMN migration.pending_links.target_source IS
    'profile and collection of the document referred to; null: the id alone decides';
COMMENT ON COLUMN migration.pending_links.target_source_id IS
    'the _id of the document referred to, as text; null: the id alone decides';
"""

# Without the tenant one of two links of rows with the same id would have to go: the copy makes them again.
DOWNGRADE = """
DELETE FROM migration.pending_links AS one USING migration.pending_links AS other
    WHERE (one.record_table, one.row_id, one.column_name) = (other.record_table, other.row_id, other.column_name)
    AND one.tenant_id > other.tenant_id;
ALTER TABLE migration.pending_links
    DROP CONSTRAINT pk_pending_links,
    DROP COLUMN target_source_id, DROP COLUMN target_source, DROP COLUMN tenant_id;
ALTER TABLE migration.pending_links
    ADD CONSTRAINT pk_pending_links PRIMARY KEY (record_table, row_id, column_name);
"""


def upgrade() -> None:
    """Add the columns, and the tenant to the key."""
    op.get_bind().exec_driver_sql(UPGRADE)


def downgrade() -> None:
    """Take the columns away."""
    op.get_bind().exec_driver_sql(DOWNGRADE)
