"""``job_executions``: runs. Their numbers are counts, and repeat where executions were deleted or began together."""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from migrator import states
from migrator.records import Run, Schedule
from migrator.sources.crawler import names
from migrator.sources.crawler.shapes import JobExecution
from migrator.sources.profile import Decoded, Note, Rejected, Rows
from migrator.sources.rows import Origin, Row, RowContext, duration_of, instant, read_row, tenant_of, the, utc
from migrator.sources.shapes import choice
from migrator.values import identity, jsonb

_STATS: Final = ("items_crawled", "items_indexed", "cpu_time_ms", "memory_peak_mb")
_LOG: Final = ("log_object_key", "log_size_bytes", "log_line_count")
_TOLERANCE_MS: Final = 1
"""The source's database reckons the duration from the times, and rounds it."""


def decode(row: Row, context: RowContext) -> Decoded:
    """Return the run; without its number where another run of the job has it (``RowContext.repeated``)."""
    execution = read_row(row, JobExecution)
    notes: list[Note] = []
    state = choice(execution.status, names.EXECUTION_STATUSES, "status")
    if not states.is_terminal(states.RUN, state):
        notes.append(Note("live-run", "status"))
    origin = Origin(names.NAME, names.EXECUTIONS, tenant_of(context), str(execution.id))
    number: int | None = execution.execution_number
    if execution.id in context.repeated:
        notes.append(Note("duplicate-run-number", "execution_number"))
        number = None
    started = instant(execution.started_at, "started_at")
    finished = utc(execution.completed_at, "completed_at")
    attempt = execution.retry_attempt
    run = Run(
        **origin.columns(Run),
        schedule_id=identity.row_id(Schedule.table, origin.tenant_id, names.JOBS, str(execution.job_id)),
        run_number=number,
        attempt=None if attempt is None or attempt == 2**31 - 1 else attempt + 1,
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
        "id": UUID(str(run.source_id)),
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


def repeated_numbers(rows: Iterable[Row]) -> frozenset[UUID]:
    """Return the executions whose number an earlier one of the same job has: the first to start keeps it.

    Rows that ``decode`` quarantines anyway are left out.
    """
    taken: set[tuple[UUID, int]] = set()
    repeated: set[UUID] = set()
    usable = (row for row in rows if _counts(row))
    for row in sorted(usable, key=lambda row: (row["started_at"], row["id"])):
        key = (row["job_id"], row["execution_number"])
        if key in taken:
            repeated.add(row["id"])
        taken.add(key)
    return frozenset(repeated)


def _counts(row: Row) -> bool:
    try:
        execution = read_row(row, JobExecution)
        choice(execution.status, names.EXECUTION_STATUSES, "status")
    except Rejected:
        return False
    return True


def _members(execution: JobExecution, columns: tuple[str, ...]) -> bytes | None:
    """Return what the columns hold as one document, under their names."""
    found = {name: value for name in columns if (value := getattr(execution, name)) is not None}
    return jsonb.encode(found) if found else None
