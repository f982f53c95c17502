"""The source ``support_center``: a move from in-process APScheduler jobs to five tables of PostgreSQL.

``docs/sources-other.md`` says where each column goes.
"""

from migrator.records import Handler, Run, Schedule, Trigger, WorkerRecord
from migrator.sources.profile import Reference
from migrator.sources.rows import RowSource, TableSource
from migrator.sources.support_center import executions, handlers, in_process, jobs, names, shapes

SYSTEM = RowSource(
    name=names.NAME,
    tables=(
        TableSource(name=names.JOB_TYPES, shape=shapes.JobType, decode=jobs.decode_type),
        TableSource(
            name=names.TASK_FUNCTIONS,
            shape=shapes.TaskFunction,
            tables=(Handler,),
            decode=handlers.decode,
            encode=handlers.encode,
        ),
        TableSource(
            name=names.JOBS,
            shape=shapes.ScheduledJob,
            tables=(Schedule, Trigger),
            decode=jobs.decode,
            encode=jobs.encode,
            after=(names.JOB_TYPES, names.TASK_FUNCTIONS),
        ),
        TableSource(
            name=names.EXECUTIONS,
            shape=shapes.JobExecution,
            tables=(Run,),
            decode=executions.decode,
            encode=executions.encode,
            references=(Reference(Run, "schedule_id", Schedule),),
            after=(names.JOB_TYPES, names.JOBS),
        ),
        TableSource(
            name=names.INSTANCES,
            shape=shapes.Instance,
            tables=(WorkerRecord,),
            decode=executions.decode_instance,
            encode=executions.encode_instance,
        ),
        TableSource(
            name=names.IN_PROCESS,
            shape=shapes.InProcessJob,
            tables=(Schedule, Trigger),
            decode=in_process.decode,
            encode=in_process.encode,
        ),
    ),
)
"""The five tables in load order, then the job list of the old side: one of the two is moved, the other compared."""
