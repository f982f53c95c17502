"""The source ``crawler``: a scheduler on its way from cron to intervals, two tables of PostgreSQL.

Rows of the base table and of every later migration are read. ``docs/sources-other.md`` says where each column goes.
"""

from migrator.records import Run, Schedule, Trigger
from migrator.sources.crawler import executions, jobs, names, shapes
from migrator.sources.profile import Reference
from migrator.sources.rows import RowSource, TableSource

SYSTEM = RowSource(
    name=names.NAME,
    tables=(
        TableSource(
            name=names.JOBS,
            shape=shapes.Job,
            tables=(Schedule, Trigger),
            decode=jobs.decode,
            encode=jobs.encode,
        ),
        TableSource(
            name=names.EXECUTIONS,
            shape=shapes.JobExecution,
            tables=(Run,),
            decode=executions.decode,
            encode=executions.encode,
            references=(Reference(Run, "schedule_id", Schedule),),
            after=(names.JOBS,),
        ),
    ),
)
"""The tables in load order."""
