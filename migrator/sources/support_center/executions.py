"""``scheduled_job_executions`` and ``scheduler_instances``: runs, and the processes that planned them."""

from decimal import Decimal
from typing import Final
from uuid import UUID

from migrator import states
from migrator.records import Run, Schedule, WorkerRecord
from migrator.sources.profile import INHERITED, Context, Decoded, Note, Reference, Rejected, Rows
from migrator.sources.rows import (
    Origin,
    Row,
    collection_of,
    counted,
    duration_of,
    instant,
    key_text,
    naive,
    named_by,
    read_row,
    respelled,
    spanned,
    summed,
    tenant_of,
    text_id,
    the,
    utc,
    uuid_of_key,
)
from migrator.sources.shapes import choice
from migrator.sources.support_center import names
from migrator.sources.support_center.jobs import job_type
from migrator.sources.support_center.shapes import Instance, JobExecution
from migrator.values import identity, jsonb

_TOLERANCE_MS: Final = 1_000
"""The column holds whole seconds, cut or rounded by the driver."""
_LONGEST_SECONDS: Final = 10**12


def decode(row: Row, context: Context) -> Decoded:
    """Return the run; one that the scheduler began has the type of its job as its cause."""
    execution = read_row(row, JobExecution)
    notes: list[Note] = []
    state = choice(execution.status, names.EXECUTION_STATUSES, "status")
    if not states.is_terminal(states.RUN, state):
        notes.append(Note("live-run", "status"))
    origin = Origin(names.NAME, names.EXECUTIONS, tenant_of(context), key_text(row))
    made = instant(execution.started_at, "started_at")
    finished = utc(execution.completed_at, "completed_at")
    run = Run(
        **origin.columns(Run),
        schedule_id=identity.row_id(Schedule.table, origin.tenant_id, names.JOBS, key_text({"id": execution.job_id})),
        cause=choice(execution.triggered_by, names.TRIGGERED_BY, "triggered_by") or _planned(row),
        state=state,
        created_at=made,
        # The source stamps started_at on the insert, before anything has begun.
        started_at=None if state == "queued" else made,
        finished_at=finished,
        duration_ms=duration_of(
            _milliseconds(execution.duration_seconds),
            made,
            finished,
            column="duration_seconds",
            tolerance=_TOLERANCE_MS,
            notes=notes,
        ),
        worker_id=text_id(execution.scheduler_instance_id),
        external_task_id=execution.celery_task_id,
        result=None if execution.result is None else jsonb.encode(execution.result),
        error=execution.error_message,
        error_detail=execution.error_traceback,
        triggered_by=text_id(execution.triggered_by_user_id),
    )
    return Decoded((run,), tuple(notes))


def encode(rows: Rows) -> Row:
    """Return the row as far as the run carries it."""
    run = the(rows, Run)
    return {
        "id": uuid_of_key(run),
        "job_id": run.schedule_id,
        "celery_task_id": run.external_task_id,
        "status": names.EXECUTION_STATUSES_BACK[run.state],
        "started_at": naive(run.started_at or run.created_at),
        "completed_at": naive(run.finished_at),
        "duration_seconds": None if run.duration_ms is None else run.duration_ms // names.MILLISECONDS,
        "result": None if run.result is None else jsonb.decode(run.result),
        "error_message": run.error,
        "error_traceback": run.error_detail,
        "triggered_by": run.cause if run.cause in ("manual", "api") else names.SCHEDULER,
        "triggered_by_user_id": None if run.triggered_by is None else UUID(run.triggered_by),
        "scheduler_instance_id": None if run.worker_id is None else UUID(run.worker_id),
    }


def decode_instance(row: Row, _context: Context) -> Decoded:
    """Return the process as stopped: it is none of ours. Whether it led is remainder and a finding; locks tell that."""
    instance = read_row(row, Instance)
    notes = (Note("leader-not-carried", "is_leader"),) if instance.is_leader else ()
    worker = WorkerRecord(
        **Origin(names.NAME, names.INSTANCES, names.WORKERS_TENANT, key_text(row)).columns(WorkerRecord),
        kind="scheduler",
        hostname=instance.hostname,
        pid=instance.pid,
        version=instance.version,
        status="stopped",
        registered_at=utc(instance.started_at, "started_at"),
        last_heartbeat_at=utc(instance.last_heartbeat, "last_heartbeat"),
    )
    return Decoded((worker,), notes)


def encode_instance(rows: Rows) -> Row:
    """Return the row as far as the worker carries it; whether it led is remainder."""
    worker = the(rows, WorkerRecord)
    return {
        "id": uuid_of_key(worker),
        "hostname": worker.hostname,
        "pid": worker.pid,
        "last_heartbeat": naive(worker.last_heartbeat_at),
        "started_at": naive(worker.registered_at),
        "version": worker.version,
    }


def _planned(row: Row) -> str | None:
    return None if row.get(INHERITED, {}).get("job_type") is None else job_type(row)


def _milliseconds(seconds: float | Decimal | None) -> int | None:
    if seconds is None:
        return None
    if not -_LONGEST_SECONDS <= seconds <= _LONGEST_SECONDS:
        raise Rejected("out-of-range", "duration_seconds", f"at most {_LONGEST_SECONDS} seconds")
    return round(seconds * names.MILLISECONDS)


_TYPE: Final = (
    "(SELECT kind.name FROM {scheduled_jobs} AS job JOIN {scheduler_job_types} AS kind ON kind.id = job.job_type_id"
    " WHERE job.id = this.job_id)"
)

COLLECTION: Final = collection_of(
    names.EXECUTIONS,
    JobExecution,
    (Run,),
    decode,
    encode,
    references=(Reference(Run, "schedule_id", Schedule, collection=names.JOBS, named=named_by("job_id")),),
    after=(names.JOBS,),
    inherited={"job_type": _TYPE},
    measures=(
        counted("state", respelled("status", names.EXECUTION_STATUSES)),
        spanned("created_at", "this.started_at AT TIME ZONE 'UTC'"),
        spanned("finished_at", "this.completed_at AT TIME ZONE 'UTC'"),
    ),
)
INSTANCES: Final = collection_of(
    names.INSTANCES,
    Instance,
    (WorkerRecord,),
    decode_instance,
    encode_instance,
    tenant_sql=f"'{names.WORKERS_TENANT}'",
    measures=(
        summed("pid", "this.pid"),
        spanned("registered_at", "this.started_at AT TIME ZONE 'UTC'"),
        spanned("last_heartbeat_at", "this.last_heartbeat AT TIME ZONE 'UTC'"),
    ),
)
