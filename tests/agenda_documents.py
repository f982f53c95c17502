"""Documents of Agenda's family: the real ones of Agenda 4, 5 and 6, hokify's fork and Pulse, and synthetic ones.

The synthetic ones follow what the libraries write: which fields, which as null, in which order.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
import msgspec
from bson import json_util
from bson.objectid import ObjectId

from migrator.pipeline.transform import decode_document, rebuild
from migrator.records import EMPTY, ExecutionLog, Run, Schedule, Trigger
from migrator.sources.agenda import PROFILE
from migrator.sources.profile import Context, Note
from migrator.values import document as documents
from migrator.values.canonical import same

Document = dict[str, Any]

FOLDER = Path(__file__).parent / "fixtures_data"
CONTEXT = Context(as_of=datetime(2026, 11, 20, tzinfo=UTC), default_tenant="acme")
NOON = datetime(2026, 11, 20, 12)  # noqa: DTZ001 - as decoding BSON gives it
SECOND = timedelta(seconds=1)
KEY = ObjectId("6b005affa4375445fe12232e")

REAL = [
    ("agenda-4", "agendaJobs"),
    ("agenda-5", "agendaJobs"),
    ("agenda-6", "agendaJobs"),
    ("agenda-6", "agenda_logs"),
    ("hokify-6", "agendaJobs"),
    ("pulse-1", "pulseJobs"),
]


def real(folder: str, collection: str) -> list[bytes]:
    """Return the raw documents of a fixture."""
    options = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, tz_aware=False)
    lines = (FOLDER / folder / f"{collection}.jsonl").read_text(encoding="utf-8").splitlines()
    return [bson.encode(json_util.loads(line, json_options=options)) for line in lines]


class Trip(msgspec.Struct):
    """A document there and back."""

    document: Document
    notes: tuple[Note, ...]
    schedule: Schedule | None
    trigger: Trigger | None
    run: Run | None
    log: ExecutionLog | None
    encoded: Document
    remainder: bytes
    rebuilt: Document

    @property
    def kinds(self) -> set[str]:
        return {note.kind for note in self.notes}


def travel(document: Document | bytes, collection: str = "agendaJobs", context: Context = CONTEXT) -> Trip:
    """Decode and encode a document as the copy does, and hold the law: what comes back is what was read."""
    raw = document if isinstance(document, bytes) else bson.encode(document)
    kind = PROFILE.by_name()[collection]
    prepared = decode_document(kind, context, raw)
    prepared.serialize()
    rows, remainder = tuple(row.record for row in prepared.serialized), prepared.remainder
    rebuilt = rebuild(kind, rows)
    assert same(rebuilt, prepared.content)
    assert kind.remainder(rows) == remainder
    by_type = {type(row): row for row in rows}
    assert len(by_type) == len(rows)
    assert type(rows[0]) is kind.tables[0]
    assert {type(row) for row in rows} <= set(kind.tables)
    assert {(row.tenant_id, row.source, row.source_id) for row in rows} == {  # type: ignore[attr-defined]
        ("acme", f"agenda/{collection}", rows[0].source_id)  # type: ignore[attr-defined]
    }
    return Trip(
        document=documents.decode(raw),
        notes=prepared.notes,
        schedule=by_type.get(Schedule),  # type: ignore[arg-type]
        trigger=by_type.get(Trigger),  # type: ignore[arg-type]
        run=by_type.get(Run),  # type: ignore[arg-type]
        log=by_type.get(ExecutionLog),  # type: ignore[arg-type]
        encoded=kind.encode(prepared.rows),
        remainder=remainder,
        rebuilt=rebuilt,
    )


def is_clean(trip: Trip) -> bool:
    return trip.remainder == EMPTY


def created_4(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """A one-shot that Agenda 4 or 5 has inserted; every change comes after its fields."""
    return {
        "_id": KEY,
        "name": "mail",
        "data": {},
        "priority": 0,
        "shouldSaveResult": False,
        "type": "normal",
        "nextRunAt": NOON,
        "lastModifiedBy": "worker-1",
    } | changes


def every_4(interval: Any = "5 minutes", **changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """A repeating job that Agenda 4 or 5 has upserted with ``every``."""
    return {
        "_id": KEY,
        "name": "mail",
        "type": "single",
        "data": {},
        "endDate": None,
        "lastModifiedBy": "worker-1",
        "nextRunAt": NOON,
        "priority": 0,
        "repeatInterval": interval,
        "repeatTimezone": None,
        "shouldSaveResult": False,
        "skipDays": None,
        "startDate": None,
    } | changes


def hokify(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """A one-shot of hokify's fork: unset fields are left out until it runs."""
    return {
        "_id": KEY,
        "name": "mail",
        "data": {"to": "a"},
        "type": "normal",
        "priority": 0,
        "nextRunAt": NOON,
        "lastModifiedBy": "worker-1",
    } | changes


def hokify_run(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """The same after its run: every field of its state is there, null or not."""
    state: Document = {
        "nextRunAt": None,
        "lockedAt": None,
        "failCount": None,
        "failReason": None,
        "failedAt": None,
        "lastFinishedAt": NOON + SECOND,
        "lastRunAt": NOON,
        "progress": None,
    }
    return hokify() | state | changes


def pulse(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """A one-shot of Pulse that may be retried."""
    return {
        "_id": KEY,
        "name": "mail",
        "data": {"to": "a"},
        "priority": 0,
        "shouldSaveResult": True,
        "attempts": 2,
        "backoff": {"type": "exponential", "delay": 1000},
        "type": "normal",
        "nextRunAt": NOON,
        "lastModifiedBy": "worker-1",
    } | changes


def pulse_run(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """The same after it failed three times: two retries after the first attempt."""
    state: Document = {
        "nextRunAt": None,
        "lockedAt": None,
        "lastRunAt": NOON,
        "progress": 40,
        "failCount": 3,
        "failReason": "down",
        "failedAt": NOON + SECOND,
        "lastFinishedAt": NOON + SECOND,
        "runCount": 3,
    }
    return pulse() | state | changes


def job_6(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """A one-shot of Agenda 6: every field of its model is there."""
    return {
        "_id": KEY,
        "name": "mail",
        "data": {},
        "type": "normal",
        "priority": 0,
        "nextRunAt": NOON,
        "lockedAt": None,
        "lastFinishedAt": None,
        "failedAt": None,
        "failCount": None,
        "failReason": None,
        "repeatTimezone": None,
        "lastRunAt": None,
        "repeatInterval": None,
        "repeatAt": None,
        "disabled": None,
        "progress": None,
        "debounceStartedAt": None,
        "fork": None,
        "startDate": None,
        "endDate": None,
        "skipDays": None,
        "lastModifiedBy": "worker-1",
    } | changes


def log_6(**changes: Any) -> Document:  # noqa: ANN401 - any BSON value
    """A line of the log of Agenda 6."""
    return {
        "_id": ObjectId("6b005b0aaa99f1c452262ced"),
        "level": "info",
        "event": "success",
        "jobId": str(KEY),
        "jobName": "mail",
        "message": "job succeeded",
        "duration": 2,
        "timestamp": NOON,
        "agendaName": "worker-1",
    } | changes
