"""Give what a person decides by a checksum: the entries of chunks with their notes, plans, and comparisons."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

UPGRADE = """
ALTER TABLE migration.plans ADD COLUMN checksum bytea;
COMMENT ON COLUMN migration.plans.checksum IS
    'SHA-256 over this row and the notes of its closing passes, as the tool wrote them; null: an older version did';
ALTER TABLE migration.chunks ADD COLUMN checksum bytea;
COMMENT ON COLUMN migration.chunks.checksum IS
    'SHA-256 over this row and its notes, as the tool wrote them; null: not done, or an older version did';
ALTER TABLE migration.comparisons ADD COLUMN checksum bytea;
COMMENT ON COLUMN migration.comparisons.checksum IS
    'SHA-256 over this row, as the tool wrote it; null: an older version did';
"""

DOWNGRADE = """
ALTER TABLE migration.plans DROP COLUMN checksum;
ALTER TABLE migration.chunks DROP COLUMN checksum;
ALTER TABLE migration.comparisons DROP COLUMN checksum;
"""


def upgrade() -> None:
    """Add the columns."""
    op.get_bind().exec_driver_sql(UPGRADE)


def downgrade() -> None:
    """Take the columns away."""
    op.get_bind().exec_driver_sql(DOWNGRADE)
