"""Index the queue: what may be claimed, what is open of a schedule, and schedules with a priority of their own."""

from alembic import op

revision = "0009"
down_revision = "0006"
branch_labels = None
depends_on = None

TABLES = ()
"""Made by this revision: none."""

# A claim changes the state, so each index that holds both queued and running runs costs it an entry: only one does.
UPGRADE = """
DROP INDEX scheduler.ix_runs_live;
CREATE INDEX ix_runs_waiting ON scheduler.runs (state, COALESCE(available_at, created_at), id)
    WHERE state = ANY (ARRAY['planning'::text, 'queued'::text]);
CREATE INDEX ix_runs_open ON scheduler.runs (state, schedule_id, COALESCE(available_at, created_at), id)
    WHERE state = ANY (ARRAY['queued'::text, 'running'::text]);
CREATE INDEX ix_schedules_ranked ON scheduler.schedules (priority) WHERE priority <> 50;
"""

DOWNGRADE = """
DROP INDEX scheduler.ix_schedules_ranked;
DROP INDEX scheduler.ix_runs_open;
DROP INDEX scheduler.ix_runs_waiting;
CREATE INDEX ix_runs_live ON scheduler.runs (state, available_at, id)
    WHERE state = ANY (ARRAY['planning'::text, 'queued'::text, 'running'::text]);
"""


def upgrade() -> None:
    """Make the indexes in place of the one that could not give the queue's order."""
    op.get_bind().exec_driver_sql(UPGRADE)


def downgrade() -> None:
    """Put the former index back; no row changes."""
    op.get_bind().exec_driver_sql(DOWNGRADE)
