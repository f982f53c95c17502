"""Change words in stored data: the remainder of a payload is under ``$remainder``, which was ``$residue``.

The result of a run that ended without its handler, in a parallel run, is ``{"dry_run": true}``, which was
``{"shadowed": true}``.
"""

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
RESULT = """
UPDATE runs SET result = jsonb_build_object('{new}', true) WHERE result = jsonb_build_object('{old}', true)
"""


def upgrade() -> None:
    """Change the words."""
    _rename("$residue", "$remainder")
    op.get_bind().exec_driver_sql(RESULT.format(old="shadowed", new="dry_run"))


def downgrade() -> None:
    """Write the words of before."""
    _rename("$remainder", "$residue")
    op.get_bind().exec_driver_sql(RESULT.format(old="dry_run", new="shadowed"))


def _rename(old: str, new: str) -> None:
    for table in ("graph_jobs", "graph_job_events"):
        op.get_bind().exec_driver_sql(RENAME.format(table=table, old=old, new=new))
