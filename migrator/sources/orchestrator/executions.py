"""``JobExecution`` and ``JobExecutionLog``: runs and their logs, in the tenant of the job they belong to."""

from collections.abc import Iterable

from migrator import states
from migrator.records import ExecutionLog, Run
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.origin import job_of, origin_of, run_id, schedule_id
from migrator.sources.orchestrator.shapes import JobExecution, JobExecutionLog, ScheduledJob
from migrator.sources.profile import Decoded, Note, Rows
from migrator.sources.rows import Row, RowContext, duration_of, instant, naive, read_row, text_id, the, utc
from migrator.sources.shapes import choice, indexed
from migrator.values import identity, jsonb

_TOLERANCE_MS = 1_000
"""The source measures the duration itself, beside the times it stores."""


def decode(row: Row, context: RowContext) -> Decoded:
    """Return the run. It names no trigger: the source may dispatch one slot twice, and both happened."""
    execution = read_row(row, JobExecution)
    platform, kind = job_of(context, execution.job_id)
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
        attempt=None if execution.retry_count == 2**31 - 1 else execution.retry_count + 1,
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
        "id": identity.parse_source_id(str(run.source_id)),
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


def decode_log(row: Row, context: RowContext) -> Decoded:
    """Return the line."""
    line = read_row(row, JobExecutionLog)
    execution = context.parent(names.EXECUTIONS, line.execution_id, "execution_id")
    job_id = str(execution.get("job_id"))
    platform, _ = job_of(context, job_id)
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
        "id": identity.parse_source_id(str(log.source_id)),
        "execution_id": text_id(log.run_id),
        "timestamp": naive(log.logged_at),
        "level": log.level,
        "message": log.message,
        "context": None if log.context is None else jsonb.decode(log.context),
    }


def unbacked_counters(job: Row, executions: Iterable[Row]) -> tuple[Note, ...]:
    """Return a finding for each counter of a job that its executions do not bear out.

    A counter may rightly be above them where the source has cleaned up old executions.
    """
    found = read_row(job, ScheduledJob)
    statuses = [str(execution.get("status")) for execution in executions if execution.get("job_id") == found.id]
    backed = {
        "executions_count": len(statuses),
        "success_count": statuses.count("success"),
        "failure_count": statuses.count("failed") + statuses.count("timeout"),
    }
    return tuple(
        Note("unbacked-counter", column) for column, number in backed.items() if getattr(found, column) != number
    )


def _original(metadata: object) -> str | None:
    """Return the id of the execution that a manual retry repeats."""
    original = metadata.get("original_execution_id") if isinstance(metadata, dict) else None
    return original if isinstance(original, str) and original else None
