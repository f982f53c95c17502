"""``agenda_logs``: what Agenda 6 writes about its jobs, one line per event."""

from typing import Any, Final

from bson.objectid import ObjectId

from migrator.records import ExecutionLog
from migrator.sources.agenda.names import LEVELS
from migrator.sources.agenda.origin import origin_of
from migrator.sources.agenda.shapes import Log, refuse_code
from migrator.sources.profile import Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import choice, keys, read, required
from migrator.values import identity, jsonb
from migrator.values.times import to_bson

_ORDER: Final = keys(Log)
_CONTEXT: Final = tuple(name for name in _ORDER if name not in ("_id", "level", "message", "timestamp"))
"""Fields without a column of their own; the context of the line holds them under their own names."""


def decode(document: Document, context: Context, *, collection: str, jobs: str) -> Decoded:
    """Return the line; its run and its schedule are those of the job it names, in the collection ``jobs``.

    Raises ``Rejected`` for a wrong type, an unknown level, a date that is none, and without a tenant.
    """
    refuse_code(document)
    log = read(document, Log)
    origin = origin_of(log.key, context, collection, keep_uuid=True)
    notes: list[Note] = []
    job = None
    if log.job_id is not None:
        if ObjectId.is_valid(log.job_id):
            job = origin_of(ObjectId(log.job_id), context, jobs, keep_uuid=True)
        else:
            notes.append(Note("unusable-reference", "jobId"))
    kept = {name: document[name] for name in _CONTEXT if document.get(name) is not None}
    row = ExecutionLog(
        id=origin.key("execution_logs"),
        tenant_id=origin.tenant_id,
        source=origin.source,
        source_id=origin.source_id,
        run_id=None if job is None else job.key("runs"),
        schedule_id=None if job is None else job.key("schedules"),
        logged_at=required(log.timestamp, "timestamp"),
        level=choice(log.level, LEVELS, "level"),
        message=log.message,
        context=jsonb.encode(kept) if kept else None,
    )
    return Decoded((row,), tuple(notes))


def job_named(document: Document) -> str | None:
    """Return the source id of the job that a line names; none where it names none that can be."""
    job = document.get("jobId")
    return identity.source_id(ObjectId(job)) if job is not None and ObjectId.is_valid(job) else None


def encode(rows: Rows) -> Document:
    """Return the log document as far as its row carries it."""
    row = rows[0]
    assert isinstance(row, ExecutionLog)  # noqa: S101 - told to the type checker
    kept: dict[str, Any] = {} if row.context is None else jsonb.decode(row.context)
    kept["_id"] = identity.parse_source_id(str(row.source_id))
    kept["level"] = row.level
    kept["timestamp"] = to_bson(row.logged_at)
    if row.message is not None:
        kept["message"] = row.message
    return {name: kept[name] for name in _ORDER if name in kept}
