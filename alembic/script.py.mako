"""${message}."""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}

TABLES = ()
"""Made by this revision; taken away, with their rows, when it is undone."""

DDL = """
"""


def upgrade() -> None:
    """Say what it makes."""
    op.get_bind().exec_driver_sql(DDL)


def downgrade() -> None:
    """Say what it takes away."""
