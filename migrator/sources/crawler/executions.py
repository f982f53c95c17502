"""``job_executions``: runs. Their numbers are counts, and repeat where executions were deleted or began together."""

from typing import Any, Final

from migrator import states
from migrator.constraints import most_of
from migrator.records import Run, Schedule
from migrator.sources.crawler import names
from migrator.sources.crawler.shapes import JobExecution
from migrator.sources.profile import INHERITED, Context, Decoded, Note, Reference, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    counted,
    duration_of,
    instant,
    key_text,
    named_by,
    read_row,
    respelled,
    spanned,
    summed,
    tenant_of,
    the,
    utc,
    uuid_of_key,
)
from migrator.sources.shapes import choice
from migrator.values import identity, jsonb

_STATS: Final = ("items_crawled", "items_indexed", "cpu_time_ms", "memory_peak_mb")
_LOG: Final = ("log_object_key", "log_size_bytes", "log_line_count")
_TOLERANCE_MS: Final = 1
"""The source's database reckons the duration from the times, and rounds it."""


def decode(row: Row, context: Context) -> Decoded:
    """Return the run; without its number where a run of the job that began before it has the number."""
    execution = read_row(row, JobExecution)
    notes: list[Note] = []
    state = choice(execution.status, names.EXECUTION_STATUSES, "status")
    if not states.is_terminal(states.RUN, state):
        notes.append(Note("live-run", "status"))
    origin = Origin(names.NAME, names.EXECUTIONS, tenant_of(context), key_text(row))
    number: int | None = execution.execution_number
    if row.get(INHERITED, {}).get("repeated"):
        notes.append(Note("duplicate-run-number", "execution_number"))
        number = None
    started = instant(execution.started_at, "started_at")
    finished = utc(execution.completed_at, "completed_at")
    attempt = execution.retry_attempt
    run = Run(
        **origin.columns(Run),
        schedule_id=identity.row_id(Schedule.table, origin.tenant_id, names.JOBS, key_text({"id": execution.job_id})),
        run_number=number,
        attempt=attempt + 1 if attempt is not None and attempt < most_of("runs.attempt") else None,
        cause="retry" if attempt else None,
        state=state,
        created_at=started,
        started_at=started,
        finished_at=finished,
        duration_ms=duration_of(
            execution.duration_ms, started, finished, column="duration_ms", tolerance=_TOLERANCE_MS, notes=notes
        ),
        stats=_members(execution, _STATS),
        result=_members(execution, _LOG),
        error=execution.error_message,
        error_detail=execution.stack_trace,
        metadata=None if execution.metadata is None else jsonb.encode(execution.metadata),
    )
    return Decoded((run,), tuple(notes))


def encode(rows: Rows) -> Row:
    """Return the row as far as the run carries it."""
    run = the(rows, Run)
    stats: dict[str, Any] = {} if run.stats is None else jsonb.decode(run.stats)
    log: dict[str, Any] = {} if run.result is None else jsonb.decode(run.result)
    return {
        "id": uuid_of_key(run),
        "job_id": run.schedule_id,
        "execution_number": run.run_number,
        "status": names.EXECUTION_STATUSES_BACK[run.state],
        "started_at": run.started_at,
        "completed_at": run.finished_at,
        "duration_ms": run.duration_ms,
        **{name: stats.get(name) for name in _STATS},
        "error_message": run.error,
        "stack_trace": run.error_detail,
        "retry_attempt": None if run.attempt is None else run.attempt - 1,
        "metadata": None if run.metadata is None else jsonb.decode(run.metadata),
        **{name: log.get(name) for name in _LOG},
    }


def _members(execution: JobExecution, columns: tuple[str, ...]) -> bytes | None:
    """Return what the columns hold as one document, under their names."""
    found = {name: value for name in columns if (value := getattr(execution, name)) is not None}
    return jsonb.encode(found) if found else None


_REPEATED: Final = """
EXISTS (SELECT FROM {job_executions} AS earlier WHERE earlier.job_id = this.job_id
    AND earlier.execution_number = this.execution_number
    AND earlier.status IN ('running', 'completed', 'failed', 'cancelled')
    AND (earlier.started_at, earlier.id) < (this.started_at, this.id))
"""
"""The first execution to start keeps the number that several have."""

COLLECTION: Final = collection_of(
    names.EXECUTIONS,
    JobExecution,
    (Run,),
    decode,
    encode,
    references=(Reference(Run, "schedule_id", Schedule, collection=names.JOBS, named=named_by("job_id")),),
    after=(names.JOBS,),
    inherited={"repeated": _REPEATED},
    unique=(("tenant_id", "schedule_id", "run_number"),),
    longs=("duration_ms", "cpu_time_ms", "log_size_bytes"),
    measures=(
        counted("state", respelled("status", names.EXECUTION_STATUSES)),
        spanned("created_at", "this.started_at"),
        spanned("finished_at", "this.completed_at"),
        *(summed(f"stats->>'{name}'", f"this.{name}", f"stats.{name}") for name in _STATS),
    ),
)
