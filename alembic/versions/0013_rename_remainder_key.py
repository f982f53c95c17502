"""Hold the remainder of a payload under ``$remainder``, which was ``$residue``."""

from alembic import op

revision = "0013"
down_revision = "0011"
branch_labels = None
depends_on = None

TABLES = ()
"""Makes no table."""

# Row-level security does not bind the owner of the tables. While the outbox is open, its triggers note these rows too.
RENAME = """
UPDATE {table} SET payload = payload - '{old}' || jsonb_build_object('{new}', payload -> '{old}')
    WHERE payload ? '{old}'
"""


def upgrade() -> None:
    """Change the key."""
    _rename("$residue", "$remainder")


def downgrade() -> None:
    """Give the key its name of before."""
    _rename("$remainder", "$residue")


def _rename(old: str, new: str) -> None:
    for table in ("graph_jobs", "graph_job_events"):
        op.get_bind().exec_driver_sql(RENAME.format(table=table, old=old, new=new))
