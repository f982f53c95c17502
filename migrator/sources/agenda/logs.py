"""``agenda_logs``: what Agenda 6 writes about its jobs, one line per event, when logging is on."""

import re

from bson.objectid import ObjectId

from migrator.sources.mapping.language import Reading
from migrator.sources.profile import Context, Document, Note
from migrator.values import identity

_digits = re.compile(r"[0-9a-f]{24}").fullmatch
"""How a library writes an ObjectId as text; other spellings are left to the driver."""


def refer(document: Document, reading: Reading, _context: Context, *, jobs: str) -> None:
    """Fill the run and the schedule of a line: those of the job that it names, in the collection ``jobs``."""
    named = job_named(document)
    if named is not None:
        run, schedule = (identity.row_id(table, reading.tenant, jobs, named) for table in ("runs", "schedules"))
        reading.fill("execution_logs", run_id=run, schedule_id=schedule)
    elif document.get("jobId") is not None:
        reading.notes.append(Note("unusable-reference", "jobId"))


def job_named(document: Document) -> str | None:
    """Return the source id of the job that a line names; None if it names none that can be."""
    job = document.get("jobId")
    if type(job) is str and _digits(job):
        return identity.source_id_of_digits(job)
    return identity.source_id(ObjectId(job)) if job is not None and ObjectId.is_valid(job) else None
