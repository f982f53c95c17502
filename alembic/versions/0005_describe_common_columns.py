"""Describe the columns that each table with a source has: its key, its origin, its remainder."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

SOURCED = (
    "handlers",
    "schedules",
    "triggers",
    "runs",
    "execution_logs",
    "impact_snapshots",
    "run_summaries",
    "policy_jobs",
    "workers",
    "locks",
    "audit",
)

COMMENTS = """
COMMENT ON COLUMN {table}.id IS 'a new UUID; of a migrated row: computed from tenant, collection and source_id';
COMMENT ON COLUMN {table}.tenant_id IS
    'owner of the row; *: a global row, which every tenant may read and only some roles may write';
COMMENT ON COLUMN {table}.source IS
    'profile and collection of the document (stellaops/runs); null: the row was created on PostgreSQL';
COMMENT ON COLUMN {table}.source_id IS
    '_id of the document: a string as it is, any other value as canonical Extended JSON. Not indexed: a row is '
    'found by its computed id. To search by it, build a hash index after the load';
COMMENT ON COLUMN {table}.extra IS
    'remainder: the fields of the document that no column holds, by path, with their types; {{}}: there are none';
"""


def upgrade() -> None:
    """Write the comments."""
    for table in SOURCED:
        op.get_bind().exec_driver_sql(COMMENTS.format(table=table))


def downgrade() -> None:
    """Leave the comments: they are right at every revision."""
