"""``scheduled_job_executions`` and ``scheduler_instances``: runs, and the processes that planned them."""

from decimal import Decimal
from typing import Any, Final

from migrator import states
from migrator.sources import table_columns
from migrator.sources.mapping.compiled import NULL
from migrator.sources.mapping.language import Mapped, Reading
from migrator.sources.profile import INHERITED, Context, Document, Note, Rejected, Rows
from migrator.sources.shapes import Int32, choice
from migrator.sources.support_center import names
from migrator.sources.support_center.jobs import job_type
from migrator.sources.table_columns import (
    Uuid,
    column,
    counted,
    flag,
    json,
    number,
    respelled,
    spanned,
    summed,
    text,
    utc,
    uuid,
)
from migrator.values import table_row

_TOLERANCE_MS: Final = 1_000
"""The column holds whole seconds, cut or rounded by the driver."""
_LONGEST_SECONDS: Final = 10**12


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Give a run that the scheduler began the type of its job as its cause."""
    run = reading.columns["runs"]
    if not states.is_terminal(states.RUN, run["state"]):
        reading.notes.append(Note("live-run", "status"))
    cause = choice(document["triggered_by"], names.TRIGGERED_BY, "triggered_by")
    if cause is None and document.get(INHERITED, {}).get("job_type") is not None:
        cause = job_type(document)
    run["cause"] = cause
    # The source stamps started_at on the insert, before anything has begun.
    run["started_at"] = None if run["state"] == "queued" else run["created_at"]
    run["duration_ms"] = _milliseconds(document.get("duration_seconds"))
    table_columns.state_duration(reading, "duration_seconds", _TOLERANCE_MS, started=run["created_at"])


def _milliseconds(value: object) -> int | None:
    """Return a number of seconds, which is INTEGER in the table and a float in the model, in milliseconds."""
    seconds = table_row.from_bson(value)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | Decimal):
        raise Rejected("wrong-type", "duration_seconds", "int, float or numeric")
    if not -_LONGEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        raise Rejected("out-of-range", "duration_seconds", f"at most {_LONGEST_SECONDS} seconds")
    return round(seconds * names.MILLISECONDS)


def _begun(rows: Rows) -> Any:  # noqa: ANN401 - a value of a row
    run: Any = rows[0]
    return table_row.time((run.started_at or run.created_at).replace(tzinfo=None))


def _seconds(rows: Rows) -> Any:  # noqa: ANN401 - a number, or null
    run: Any = rows[0]
    return NULL if run.duration_ms is None else run.duration_ms // names.MILLISECONDS


def _triggered_by(rows: Rows) -> str:
    run: Any = rows[0]
    return run.cause if run.cause in ("manual", "api") else names.SCHEDULER


_TYPE: Final = (
    "(SELECT kind.name FROM {scheduled_jobs} AS job JOIN {scheduler_job_types} AS kind ON kind.id = job.job_type_id"
    " WHERE job.id = this.job_id)"
)

EXECUTIONS: Final = Mapped(
    name=names.EXECUTIONS,
    tables=("runs",),
    fields=(
        table_columns.reference("job_id", "runs.schedule_id", names.JOBS, required=True, write_null=True),
        text("celery_task_id", "runs.external_task_id"),
        table_columns.words("status", "runs.state", names.EXECUTION_STATUSES, names.EXECUTION_STATUSES_BACK),
        utc("started_at", "runs.created_at", required=True, write=_begun),
        utc("completed_at", "runs.finished_at"),
        column("duration_seconds", converter="number", shape=Any, write=_seconds),
        json("result", "runs.result"),
        text("error_message", "runs.error"),
        text("error_traceback", "runs.error_detail"),
        text("triggered_by", required=True, write=_triggered_by),
        uuid("triggered_by_user_id", "runs.triggered_by"),
        uuid("scheduler_instance_id", "runs.worker_id"),
    ),
    admit=table_columns.key(Uuid),
    derive=_derive,
    inherited={"job_type": _TYPE},
    measures=(
        counted("state", respelled("status", names.EXECUTION_STATUSES)),
        spanned("created_at", "this.started_at AT TIME ZONE 'UTC'"),
        spanned("finished_at", "this.completed_at AT TIME ZONE 'UTC'"),
    ),
)


def _note_leader(document: Document, reading: Reading, _context: Context) -> None:
    if document["is_leader"]:
        reading.notes.append(Note("leader-not-carried", "is_leader"))


INSTANCES: Final = Mapped(
    name=names.INSTANCES,
    tables=("workers",),
    fields=(
        text("hostname", "workers.hostname", required=True),
        number("pid", "workers.pid", shape=Int32, required=True),
        utc("last_heartbeat", "workers.last_heartbeat_at", required=True),
        utc("started_at", "workers.registered_at", required=True),
        text("version", "workers.version", required=True),
        # Whether it led is remainder and a finding; locks tell that.
        flag("is_leader"),
        utc("leader_since"),
    ),
    constants={"workers.kind": "scheduler", "workers.status": "stopped"},  # it is no process of ours
    admit=table_columns.key(Uuid),
    derive=_note_leader,
    tenant=lambda _document, _context: names.WORKERS_TENANT,
    tenant_sql=f"'{names.WORKERS_TENANT}'",
    measures=(
        summed("pid", "this.pid"),
        spanned("registered_at", "this.started_at AT TIME ZONE 'UTC'"),
        spanned("last_heartbeat_at", "this.last_heartbeat AT TIME ZONE 'UTC'"),
    ),
)
