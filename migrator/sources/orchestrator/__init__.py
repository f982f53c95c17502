"""The source ``orchestrator``: four tables of PostgreSQL made by Prisma.

``docs/sources-other.md`` says where each column goes.
"""

from migrator.records import ExecutionLog, Run, Schedule, Trigger
from migrator.sources.orchestrator import events, executions, jobs, names, shapes
from migrator.sources.profile import Reference
from migrator.sources.rows import RowSource, TableSource

SYSTEM = RowSource(
    name=names.NAME,
    tables=(
        TableSource(
            name=names.JOBS,
            shape=shapes.ScheduledJob,
            tables=(Schedule, Trigger),
            decode=jobs.decode,
            encode=jobs.encode,
        ),
        TableSource(
            name=names.EVENT_HANDLERS,
            shape=shapes.EventHandler,
            tables=(Schedule, Trigger),
            decode=events.decode,
            encode=events.encode,
        ),
        TableSource(
            name=names.EXECUTIONS,
            shape=shapes.JobExecution,
            tables=(Run,),
            decode=executions.decode,
            encode=executions.encode,
            references=(Reference(Run, "schedule_id", Schedule), Reference(Run, "retry_of", Run)),
            after=(names.JOBS,),
        ),
        TableSource(
            name=names.LOGS,
            shape=shapes.JobExecutionLog,
            tables=(ExecutionLog,),
            decode=executions.decode_log,
            encode=executions.encode_log,
            references=(Reference(ExecutionLog, "run_id", Run), Reference(ExecutionLog, "schedule_id", Schedule)),
            after=(names.JOBS, names.EXECUTIONS),
        ),
    ),
)
"""The tables in load order."""
