"""Documents of APScheduler: those that the library wrote, and new ones around any pickle."""

import bson
import msgspec
from bson import json_util
from bson.binary import Binary

from migrator.pipeline.transform import decode_document, rebuild
from migrator.records import EMPTY, Schedule, Trigger
from migrator.sources.apscheduler import PROFILE
from migrator.sources.profile import Context, Document, Note
from migrator.values import document as documents
from migrator.values.canonical import same
from tests.agenda_documents import CONTEXT, FOLDER

FILES = (
    "3.6.3",
    "3.10.4-pytz-protocol-0",
    "3.10.4-pytz-protocol-2",
    "3.11.3",
    "3.11.3-protocol-1",
    "3.11.3-protocol-3",
    "given",
)
COLLECTION = PROFILE.by_name()["jobs"]


def real(name: str) -> dict[str, Document]:
    """Return the documents of a file, as decoding BSON gives them, by ``_id``."""
    options = json_util.JSONOptions(json_mode=json_util.JSONMode.CANONICAL, tz_aware=False)
    lines = (FOLDER / "apscheduler" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    found = [documents.decode(bson.encode(json_util.loads(line, json_options=options))) for line in lines]
    return {one["_id"]: one for one in found}


def document(pickle: bytes, key: str = "one", next_run_time: float | None = 1795397400.0) -> Document:
    """Return the document of a pickle."""
    return {"_id": key, "next_run_time": next_run_time, "job_state": Binary(pickle, 0)}


class Trip(msgspec.Struct):
    """A document there and back."""

    schedule: Schedule
    trigger: Trigger | None
    notes: tuple[Note, ...]
    is_clean: bool

    @property
    def kinds(self) -> list[str]:
        return [note.kind for note in self.notes]


def travel(found: Document, context: Context = CONTEXT) -> Trip:
    """Decode and encode a document as the copy does; what comes back is what was read, byte for byte if it is clean."""
    raw = bson.encode(found)
    prepared = decode_document(COLLECTION, context, raw)
    prepared.serialize()
    rows, left = tuple(row.record for row in prepared.serialized), prepared.remainder
    rebuilt = rebuild(COLLECTION, rows)
    assert same(rebuilt, prepared.content)
    assert left != EMPTY or bson.encode(rebuilt) == raw
    schedule, trigger = rows[0], rows[1] if len(rows) > 1 else None
    assert isinstance(schedule, Schedule)
    assert trigger is None or isinstance(trigger, Trigger)
    return Trip(schedule, trigger, prepared.notes, left == EMPTY)
