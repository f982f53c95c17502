"""Job documents: each becomes a schedule, the trigger that makes it fire, and the run that it tells of."""

import math
from datetime import UTC, datetime
from typing import Any, Final

from bson.objectid import ObjectId

from migrator.records import Record, Run, Schedule
from migrator.sources.agenda import variants
from migrator.sources.agenda.moments import Moments, moments_of, schedule_status
from migrator.sources.agenda.names import BACKOFFS, JOB_TYPES
from migrator.sources.agenda.origin import label, origin_of
from migrator.sources.agenda.runs import run_of
from migrator.sources.agenda.shapes import Job, refuse_code, whole
from migrator.sources.agenda.triggers import trigger_of
from migrator.sources.profile import Context, Decoded, Document, Note, Rejected
from migrator.sources.shapes import choice, indexed, read
from migrator.values import jsonb
from migrator.values.times import format_iso

_MIDDLE: Final = 50
_TOP: Final = 100


def decode(document: Document, context: Context, *, collection: str, keep_uuid: bool) -> Decoded:
    """Return the rows of a job: its schedule, then its trigger and its run where it has them.

    Raises ``Rejected`` for a wrong type, an unknown word, a date that is none, and without a tenant.
    """
    refuse_code(document)
    job = read(document, Job)
    origin = origin_of(job.key, context, collection, keep_uuid=keep_uuid)
    notes: list[Note] = []
    moments = moments_of(job)
    variant = variants.recognise(document)
    key = origin.key("schedules")
    trigger = trigger_of(job, moments, origin, key, variant, notes)
    run = run_of(job, document, moments, origin, key, trigger)
    disabled = job.disabled is True
    status = schedule_status(moments, disabled=disabled, can_fire=trigger is not None)
    facts = _facts(job, document, moments, run, variant)
    schedule = Schedule(
        id=key,
        tenant_id=origin.tenant_id,
        source=origin.source,
        source_id=origin.source_id,
        name=f"{indexed(job.name, 'name')}:{label(job.key, origin)}",
        enabled=not disabled,
        status=status,
        handler_name=job.name,
        handler_type="function",
        payload=jsonb.encode(job.data) if "data" in document else None,
        priority=_priority(job.priority, notes),
        max_retries=job.attempts,
        retry_delay_ms=None if job.backoff is None else whole(job.backoff.delay, "backoff.delay"),
        retry_strategy=None if job.backoff is None else choice(job.backoff.type, BACKOFFS, "backoff.type"),
        metadata=jsonb.encode(facts) if facts else None,
        schema_version=variant,
        created_at=_created(job.key),
        updated_by=job.last_modified_by,
        completed_at=moments.finished if status == "completed" else None,
    )
    rows: tuple[Record | None, ...] = (schedule, trigger, run)
    return Decoded(tuple(row for row in rows if row is not None), tuple(notes))


def _priority(value: float | None, notes: list[Note]) -> int:
    """Return Agenda's priority (lowest -20, normal 0, highest 20) on the target's scale: 50 + 2p, from 0 to 100."""
    if value is None:
        return _MIDDLE
    if not math.isfinite(value):
        raise Rejected("wrong-type", "priority", "a finite number")
    scaled = math.floor(_MIDDLE + 2 * value)
    if not 0 <= scaled <= _TOP:
        notes.append(Note("clamped-priority", "priority"))
    return max(0, min(_TOP, scaled))


def _created(key: object) -> datetime | None:
    """Return when the id was made, the only trace of when the job was."""
    return key.generation_time.astimezone(UTC) if isinstance(key, ObjectId) else None


def _facts(job: Job, document: Document, moments: Moments, run: Run | None, variant: str) -> dict[str, Any]:
    """Return what has no column of its own, under the source's names: facts of the job, and of an older run.

    ``encode`` writes them back; a time is text here and a date there.
    """
    failed = run is not None and run.state == "error"
    implied = failed and moments.failed == moments.finished
    facts: dict[str, Any] = {
        "type": None if job.type is None else choice(job.type, JOB_TYPES, "type"),
        "unique": variants.is_unique(document) or None,
        "skipImmediate": variants.put_off(document, variant) or None,
        "shouldSaveResult": job.should_save_result or None,
        "fork": job.fork,
        "debounceStartedAt": _text(job.debounce_started_at),
        "runCount": job.run_count,
        "finishedCount": job.finished_count,
        "failCount": job.fail_count,
        "failReason": None if failed else job.fail_reason,
        "failedAt": None if implied else _text(moments.failed),
        "lastRunAt": _text(moments.started) if moments.claimed else None,
        "lastFinishedAt": _text(moments.finished) if run is None or run.finished_at is None else None,
        "progress": job.progress if run is None else None,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    if "result" in document and (run is None or run.state == "running"):
        facts["result"] = job.result
    return facts


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else format_iso(moment)
