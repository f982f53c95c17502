"""``JobExecution`` and ``JobExecutionLog``: runs and their logs, in the tenant of the job they belong to."""

from typing import Any, Final

from migrator import states
from migrator.constraints import most_of
from migrator.records import ExecutionLog, Run, Schedule
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.origin import job_of, origin_of, run_id, schedule_id
from migrator.sources.orchestrator.shapes import JobExecution, JobExecutionLog
from migrator.sources.profile import INHERITED, Context, Decoded, Document, Note, Reference, Rows
from migrator.sources.rows import (
    Row,
    collection_of,
    counted,
    duration_of,
    inherits,
    instant,
    naive,
    named_by,
    read_row,
    respelled,
    spanned,
    summed,
    text_id,
    text_of_key,
    the,
    utc,
)
from migrator.sources.shapes import choice, indexed
from migrator.values import identity, jsonb

_TOLERANCE_MS = 1_000
"""The source measures the duration itself, beside the times it stores."""


def decode(row: Row, _context: Context) -> Decoded:
    """Return the run. It names no trigger: the source may dispatch one slot twice, and both happened."""
    execution = read_row(row, JobExecution)
    platform, kind = job_of(row, "job_id", names.JOBS)
    origin = origin_of(execution.id, platform, names.EXECUTIONS)
    notes: list[Note] = []
    state = choice(execution.status, names.EXECUTION_STATUSES, "status")
    if not states.is_terminal(states.RUN, state):
        notes.append(Note("live-run", "status"))
    if execution.next_retry_at is not None:
        # Nothing in the source ever reads it: the retry was announced and not made.
        notes.append(Note("retry-never-made", "next_retry_at"))
    original = _original(execution.metadata)
    started = utc(execution.started_at, "started_at")
    finished = utc(execution.completed_at, "completed_at")
    run = Run(
        **origin.columns(Run),
        schedule_id=schedule_id(origin.tenant_id, execution.job_id),
        attempt=execution.retry_count + 1 if execution.retry_count < most_of("runs.attempt") else None,
        retry_of=None if original is None else run_id(origin.tenant_id, original),
        cause=names.CAUSES.get(kind) if original is None else "retry",
        state=state,
        scheduled_at=utc(execution.scheduled_at, "scheduled_at"),
        created_at=instant(execution.created_at, "created_at"),
        started_at=started,
        finished_at=finished,
        duration_ms=duration_of(
            execution.duration_ms, started, finished, column="duration_ms", tolerance=_TOLERANCE_MS, notes=notes
        ),
        worker_id=execution.worker_id,
        result=None if execution.result is None else jsonb.encode(execution.result),
        error=execution.error,
        error_detail=execution.error_stack,
        trace_id=None if execution.trace_id is None else indexed(execution.trace_id, "trace_id"),
        span_id=execution.span_id,
        parent_span_id=execution.parent_span_id,
        metadata=None if execution.metadata is None else jsonb.encode(execution.metadata),
    )
    return Decoded((run,), tuple(notes))


def encode(rows: Rows) -> Row:
    """Return the row as far as the run carries it; what was left of its retries is remainder."""
    run = the(rows, Run)
    return {
        "id": text_of_key(run),
        "job_id": text_id(run.schedule_id),
        "status": names.EXECUTION_STATUSES_BACK[run.state],
        "scheduled_at": naive(run.scheduled_at),
        "started_at": naive(run.started_at),
        "completed_at": naive(run.finished_at),
        "duration_ms": run.duration_ms,
        "result": None if run.result is None else jsonb.decode(run.result),
        "error": run.error,
        "error_stack": run.error_detail,
        "retry_count": 0 if run.attempt is None else run.attempt - 1,
        "worker_id": run.worker_id,
        "metadata": None if run.metadata is None else jsonb.decode(run.metadata),
        "trace_id": run.trace_id,
        "span_id": run.span_id,
        "parent_span_id": run.parent_span_id,
        "created_at": naive(run.created_at),
    }


def decode_log(row: Row, _context: Context) -> Decoded:
    """Return the line."""
    line = read_row(row, JobExecutionLog)
    job_id = str(inherits(row, "job_id", "execution_id", names.EXECUTIONS))
    platform, _ = job_of(row, "execution_id", names.EXECUTIONS)
    origin = origin_of(line.id, platform, names.LOGS)
    log = ExecutionLog(
        **origin.columns(ExecutionLog),
        run_id=run_id(origin.tenant_id, line.execution_id),
        schedule_id=schedule_id(origin.tenant_id, job_id),
        logged_at=instant(line.timestamp, "timestamp"),
        level=choice(line.level, names.LOG_LEVELS, "level"),
        message=line.message,
        context=None if line.context is None else jsonb.encode(line.context),
    )
    return Decoded((log,))


def encode_log(rows: Rows) -> Row:
    """Return the row as far as the line carries it."""
    log = the(rows, ExecutionLog)
    return {
        "id": text_of_key(log),
        "execution_id": text_id(log.run_id),
        "timestamp": naive(log.logged_at),
        "level": log.level,
        "message": log.message,
        "context": None if log.context is None else jsonb.decode(log.context),
    }


def _original(metadata: object) -> str | None:
    """Return the id of the execution that a manual retry repeats."""
    original = metadata.get("original_execution_id") if isinstance(metadata, dict) else None
    return original if isinstance(original, str) and original else None


def _named_original(document: Document) -> str | None:
    original = _original(document.get("metadata"))
    return None if original is None else identity.source_id(original)


def _named_job(document: Document) -> str | None:
    held: Any = document[INHERITED].get("job_id")
    return None if held is None else identity.source_id(held)


_JOB: Final = "(SELECT job.{column} FROM {{ScheduledJob}} AS job WHERE job.id = this.job_id)"
_JOB_OF_LOG: Final = (
    "(SELECT {column} FROM {{JobExecution}} AS execution JOIN {{ScheduledJob}} AS job ON job.id = execution.job_id"
    " WHERE execution.id = this.execution_id)"
)

COLLECTION: Final = collection_of(
    names.EXECUTIONS,
    JobExecution,
    (Run,),
    decode,
    encode,
    references=(
        Reference(Run, "schedule_id", Schedule, collection=names.JOBS, named=named_by("job_id")),
        Reference(Run, "retry_of", Run, collection=names.EXECUTIONS, named=_named_original),
    ),
    after=(names.JOBS,),
    inherited={
        "type": _JOB.format(column="type::text"),
        "platform_id": _JOB.format(column="platform_id::text"),
    },
    tenant_sql=f"coalesce({_JOB.format(column='platform_id::text')}, '{names.GLOBAL_TENANT}')",
    measures=(
        counted("state", respelled("status", names.EXECUTION_STATUSES)),
        summed("attempt", "this.retry_count + 1"),
        spanned("scheduled_at", "this.scheduled_at AT TIME ZONE 'UTC'"),
        spanned("started_at", "this.started_at AT TIME ZONE 'UTC'"),
        spanned("finished_at", "this.completed_at AT TIME ZONE 'UTC'"),
    ),
)
LOGS: Final = collection_of(
    names.LOGS,
    JobExecutionLog,
    (ExecutionLog,),
    decode_log,
    encode_log,
    references=(
        Reference(ExecutionLog, "run_id", Run, collection=names.EXECUTIONS, named=named_by("execution_id")),
        Reference(ExecutionLog, "schedule_id", Schedule, collection=names.JOBS, named=_named_job),
    ),
    after=(names.JOBS, names.EXECUTIONS),
    inherited={
        "job_id": _JOB_OF_LOG.format(column="job.id"),
        "type": _JOB_OF_LOG.format(column="job.type::text"),
        "platform_id": _JOB_OF_LOG.format(column="job.platform_id::text"),
    },
    tenant_sql=f"coalesce({_JOB_OF_LOG.format(column='job.platform_id::text')}, '{names.GLOBAL_TENANT}')",
    measures=(
        counted("level", "this.level"),
        spanned("logged_at", "this.timestamp AT TIME ZONE 'UTC'"),
    ),
)
