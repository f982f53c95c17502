"""The run that a job document tells of: the one in progress, else the last one."""

from datetime import timedelta
from typing import Final
from uuid import UUID

from migrator.records import Run, Trigger
from migrator.sources.agenda.moments import Moments, lease_end, run_state
from migrator.sources.agenda.origin import Origin
from migrator.sources.agenda.shapes import Job
from migrator.sources.profile import Document
from migrator.values import jsonb

_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_ATTEMPT: Final = 2**31 - 1
CLAIMED: Final = jsonb.encode({"claimed": True})
"""``metadata`` of a run whose instance has taken the lock and not begun."""


def run_of(
    job: Job, document: Document, moments: Moments, origin: Origin, schedule_id: UUID, trigger: Trigger | None
) -> Run | None:
    """Return the run, or None for a job that neither ran nor is locked."""
    begun = moments.locked if moments.claimed else moments.started
    if begun is None:
        return None
    state = run_state(moments)
    finished = moments.finished if state in ("completed", "error") else None
    slot = moments.next_run if moments.claimed and trigger is not None else None
    return Run(
        id=origin.key("runs"),
        tenant_id=origin.tenant_id,
        source=origin.source,
        source_id=origin.source_id,
        schedule_id=schedule_id,
        trigger_id=None if trigger is None else trigger.id,
        attempt=1 if slot is not None else _attempt(job, state),
        cause=_cause(job, trigger),
        state=state,
        scheduled_at=slot,
        created_at=begun,
        started_at=begun,
        finished_at=finished,
        duration_ms=None if finished is None else (finished - begun) // _MILLISECOND,
        worker_id=job.last_modified_by,
        lease_expires_at=None if moments.locked is None else lease_end(moments.locked),
        stats=None if job.progress is None else jsonb.encode({"progress": job.progress}),
        result=jsonb.encode(job.result) if state != "running" and "result" in document else None,
        error=job.fail_reason if state == "error" else None,
        metadata=CLAIMED if moments.claimed else None,
    )


def _cause(job: Job, trigger: Trigger | None) -> str:
    """Say why it ran; what does not repeat was asked for by the program."""
    if trigger is not None and trigger.kind != "one_time":
        return trigger.kind
    return "interval" if job.repeat_interval or job.repeat_at else "api"


def _attempt(job: Job, state: str) -> int | None:
    """Return the number of the attempt, by the failures of a job that runs once; a repeating one counts all of them."""
    if job.repeat_interval or job.repeat_at or not isinstance(job.fail_count or 0, int):
        return None
    failures = int(job.fail_count or 0)
    attempt = failures if state == "error" else failures + 1
    return attempt if 0 < attempt <= _MAX_ATTEMPT else None
