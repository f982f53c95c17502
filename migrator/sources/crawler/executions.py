"""``job_executions``: runs. Their numbers are counts, and repeat where executions were deleted or began together."""

from typing import Annotated, Any, Final

import msgspec

from migrator import states
from migrator.constraints import most_of
from migrator.sources import table_columns as columns
from migrator.sources.crawler import names
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.profile import INHERITED, Context, Document, Note, Rows
from migrator.sources.shapes import Int32, Int64
from migrator.sources.table_columns import Uuid, counted, json, number, respelled, spanned, summed, text, time

_NUMBER: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=most_of("runs.run_number"))]
_TOLERANCE_MS: Final = 1
"""The source's database reckons the duration from the times, and rounds it."""

_REPEATED: Final = """
EXISTS (SELECT FROM {job_executions} AS earlier WHERE earlier.job_id = this.job_id
    AND earlier.execution_number = this.execution_number
    AND earlier.status IN ('running', 'completed', 'failed', 'cancelled')
    AND (earlier.started_at, earlier.id) < (this.started_at, this.id))
"""
"""The first execution to start keeps the number that several have."""


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Leave out a number that a run of the job which began before has; count attempts from 1."""
    run = reading.columns["runs"]
    if not states.is_terminal(states.RUN, run["state"]):
        reading.notes.append(Note("live-run", "status"))
    if document.get(INHERITED, {}).get("repeated"):
        reading.notes.append(Note("duplicate-run-number", "execution_number"))
        run["run_number"] = None
    attempt = document.get("retry_attempt")
    if attempt is not None and attempt < most_of("runs.attempt"):
        run["attempt"] = attempt + 1
    if attempt:
        run["cause"] = "retry"
    run["started_at"] = run["created_at"]
    columns.state_duration(reading, "duration_ms", _TOLERANCE_MS)


def _retries(rows: Rows) -> Any:  # noqa: ANN401 - a number, or null
    run: Any = rows[0]
    return NULL if run.attempt is None else run.attempt - 1


def _stats(name: str, shape: Any, **options: Any) -> Any:  # noqa: ANN401 - a type; of ``Field``
    return number(name, f"runs.stats.{name}", shape=shape, **options)


EXECUTIONS: Final = Mapped(
    name=names.EXECUTIONS,
    tables=("runs",),
    fields=(
        columns.reference("job_id", "runs.schedule_id", names.JOBS, required=True, write_null=True),
        number("execution_number", "runs.run_number", shape=_NUMBER, required=True, write_null=True),
        columns.words("status", "runs.state", names.EXECUTION_STATUSES, names.EXECUTION_STATUSES_BACK),
        time("started_at", "runs.created_at", required=True),
        time("completed_at", "runs.finished_at"),
        number("duration_ms", "runs.duration_ms", shape=Int64, type="long"),
        _stats("items_crawled", Int32),
        _stats("items_indexed", Int32),
        _stats("cpu_time_ms", Int64, type="long"),
        _stats("memory_peak_mb", Int32),
        text("error_message", "runs.error"),
        text("stack_trace", "runs.error_detail"),
        number("retry_attempt", shape=columns.Count, write=_retries),
        json("metadata", "runs.metadata"),
        text("log_object_key", "runs.result.log_object_key"),
        number("log_size_bytes", "runs.result.log_size_bytes", shape=Int64, type="long"),
        number("log_line_count", "runs.result.log_line_count", shape=Int64),
    ),
    admit=columns.key(Uuid),
    derive=_derive,
    inherited={"repeated": _REPEATED},
    measures=(
        counted("state", respelled("status", names.EXECUTION_STATUSES)),
        spanned("created_at", "this.started_at"),
        spanned("finished_at", "this.completed_at"),
        *(
            summed(f"stats->>'{name}'", f"this.{name}", f"stats.{name}")
            for name in ("items_crawled", "items_indexed", "cpu_time_ms", "memory_peak_mb")
        ),
    ),
)
