"""The declared schema: SQLAlchemy Core metadata of ``scheduler`` and of the tool's own ``migration``.

Only a declaration: Alembic revisions make the tables, ``catalogue`` compares what is there with what stands here.
"""

from sqlalchemy import MetaData

from migrator.store.postgres import (
    tables_cutover,
    tables_jobs,
    tables_ledger,
    tables_operations,
    tables_runs,
    tables_schedules,
    tables_tail,
)

SCHEDULER = MetaData(schema="scheduler")
"""The product's thirteen tables."""

MIGRATION = MetaData(schema="migration")
"""The tool's own tables."""

tables_schedules.declare(SCHEDULER)
tables_runs.declare(SCHEDULER)
tables_jobs.declare_policy(SCHEDULER)
tables_operations.declare(SCHEDULER)
tables_jobs.declare_graph(SCHEDULER)
tables_ledger.declare(MIGRATION)
tables_tail.declare(MIGRATION)
tables_cutover.declare(MIGRATION)
