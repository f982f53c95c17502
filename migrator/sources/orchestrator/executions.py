"""``JobExecution`` and ``JobExecutionLog``: runs and their logs, in the tenant of the job they belong to."""

from typing import Any, Final

from migrator import states
from migrator.constraints import most_of
from migrator.records import Run
from migrator.sources import table_columns
from migrator.sources.mapping.language import Field, Mapped, Reading
from migrator.sources.orchestrator import names
from migrator.sources.orchestrator.platforms import tenant_of_parent
from migrator.sources.profile import INHERITED, Context, Document, Note, Reference, Rows
from migrator.sources.shapes import Int32
from migrator.sources.table_columns import (
    Count,
    Key,
    counted,
    given,
    json,
    number,
    reference,
    respelled,
    spanned,
    summed,
    text,
    utc,
    words,
)
from migrator.values import identity

_TOLERANCE_MS: Final = 1_000
"""The source measures the duration itself, beside the times it stores."""


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Find what a run repeats, and why it ran. It names no trigger: the source may dispatch one slot twice."""
    run = reading.columns["runs"]
    if not states.is_terminal(states.RUN, run["state"]):
        reading.notes.append(Note("live-run", "status"))
    if document.get("next_retry_at") is not None:
        # Nothing in the source ever reads it: the retry was announced and not made.
        reading.notes.append(Note("retry-never-made", "next_retry_at"))
    retries = document.get("retry_count", 0)
    run["attempt"] = retries + 1 if retries < most_of("runs.attempt") else None
    original = _named_original(document)
    if original is not None:
        run["retry_of"] = identity.row_id(Run.table, reading.tenant, names.EXECUTIONS, original)
    run["cause"] = names.CAUSES.get(document[INHERITED]["type"]) if original is None else "retry"
    table_columns.state_duration(reading, "duration_ms", _TOLERANCE_MS)


def _named_original(document: Document) -> str | None:
    """Return the source id of the execution that a manual retry repeats."""
    metadata = document.get("metadata")
    original = metadata.get("original_execution_id") if isinstance(metadata, dict) else None
    return identity.source_id(original) if isinstance(original, str) and original else None


def _retries(rows: Rows) -> int:
    run: Any = rows[0]
    return 0 if run.attempt is None else run.attempt - 1


_JOB: Final = "(SELECT job.{column} FROM {{ScheduledJob}} AS job WHERE job.id = this.job_id)"
_JOB_OF_LOG: Final = (
    "(SELECT {column} FROM {{JobExecution}} AS execution JOIN {{ScheduledJob}} AS job ON job.id = execution.job_id"
    " WHERE execution.id = this.execution_id)"
)

EXECUTIONS: Final = Mapped(
    name=names.EXECUTIONS,
    tables=("runs",),
    fields=(
        reference("job_id", "runs.schedule_id", names.JOBS, id_type="text", required=True, write_null=True),
        words("status", "runs.state", names.EXECUTION_STATUSES, names.EXECUTION_STATUSES_BACK),
        utc("scheduled_at", "runs.scheduled_at", required=True),
        utc("started_at", "runs.started_at"),
        utc("completed_at", "runs.finished_at"),
        number("duration_ms", "runs.duration_ms", shape=Int32),
        json("result", "runs.result"),
        text("error", "runs.error"),
        text("error_stack", "runs.error_detail"),
        number("retry_count", write=_retries, **given(Count, default=0)),
        text("worker_id", "runs.worker_id"),
        json("metadata", "runs.metadata"),
        text("trace_id", "runs.trace_id"),
        text("span_id", "runs.span_id"),
        text("parent_span_id", "runs.parent_span_id"),
        utc("created_at", "runs.created_at", required=True),
        # What was left of its retries is remainder.
        number("max_retries", **given(Count, default=3)),
        utc("next_retry_at"),
    ),
    references=(Reference(Run, "retry_of", Run, collection=names.EXECUTIONS, named=_named_original),),
    admit=table_columns.key(Key),
    derive=_derive,
    tenant=tenant_of_parent("job_id", names.JOBS, "type"),
    tenant_sql=f"coalesce({_JOB.format(column='platform_id::text')}, '{names.GLOBAL_TENANT}')",
    inherited={
        "type": _JOB.format(column="type::text"),
        "platform_id": _JOB.format(column="platform_id::text"),
    },
    measures=(
        counted("state", respelled("status", names.EXECUTION_STATUSES)),
        summed("attempt", "this.retry_count + 1"),
        spanned("scheduled_at", "this.scheduled_at AT TIME ZONE 'UTC'"),
        spanned("started_at", "this.started_at AT TIME ZONE 'UTC'"),
        spanned("finished_at", "this.completed_at AT TIME ZONE 'UTC'"),
    ),
)
LOGS: Final = Mapped(
    name=names.LOGS,
    tables=("execution_logs",),
    fields=(
        reference(
            "execution_id", "execution_logs.run_id", names.EXECUTIONS, id_type="text", required=True, write_null=True
        ),
        Field(
            path=f"{INHERITED}.job_id",
            columns=("execution_logs.schedule_id",),
            converter="reference",
            collection=names.JOBS,
        ),
        utc("timestamp", "execution_logs.logged_at", required=True),
        words("level", "execution_logs.level", names.LOG_LEVELS),
        text("message", "execution_logs.message", required=True),
        json("context", "execution_logs.context"),
    ),
    admit=table_columns.key(Key),
    tenant=tenant_of_parent("execution_id", names.EXECUTIONS, "job_id", "type"),
    tenant_sql=f"coalesce({_JOB_OF_LOG.format(column='job.platform_id::text')}, '{names.GLOBAL_TENANT}')",
    inherited={
        "job_id": _JOB_OF_LOG.format(column="job.id"),
        "type": _JOB_OF_LOG.format(column="job.type::text"),
        "platform_id": _JOB_OF_LOG.format(column="job.platform_id::text"),
    },
    measures=(
        counted("level", "this.level"),
        spanned("logged_at", "this.timestamp AT TIME ZONE 'UTC'"),
    ),
)
