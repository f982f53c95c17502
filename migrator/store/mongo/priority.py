"""The schedule's priority in the documents of triggers and runs, where the index of the queue uses it.

The store writes the field with each trigger and each run that is planned or queued, and changes it with the schedule.
Documents of another application lack it, and count as of the usual priority. ``copy_priorities`` writes it if their
schedule states another one. It follows from the schedule, so the profile leaves it out of rows and remainder.
"""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from pymongo import UpdateMany

from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.records import Schedule
from migrator.sources.profile import Context, Document, Rejected, Skipped
from migrator.sources.store_documents import names
from migrator.sources.store_documents.names import SCHEDULE_PRIORITY
from migrator.store.mongo.places import PLACES
from migrator.store.mongo.transaction import WHAT
from migrator.store.validation import DEFAULT_PRIORITY, GLOBAL

FIELD: Final = SCHEDULE_PRIORITY
_TOGETHER: Final = 1_000
_QUEUED: Final = {names.TRIGGERS: dict[str, Any](), names.RUNS: {"state": "queued"}}
"""Collection to the condition on documents whose priority is checked."""


def priority_of(schedule: Schedule | None) -> int:
    """Return the priority of what waits of a schedule, or of none."""
    return DEFAULT_PRIORITY if schedule is None or schedule.priority is None else schedule.priority


def with_priority(document: Document, schedule: Schedule | None) -> Document:
    """Return the document of a trigger or run with the priority of its schedule."""
    return {**document, FIELD: priority_of(schedule)}


def restated(document: Document, schedule: Schedule | None) -> Document:
    """Return the field as a stored document must have it; empty where another application wrote the usual one."""
    priority = priority_of(schedule)
    return {} if FIELD not in document and priority == DEFAULT_PRIORITY else {FIELD: priority}


def copy_priorities(database: MongoDatabase, covers: Callable[[Schedule], bool] = lambda _: True) -> int:
    """Write the priority into triggers and queued runs that state another one; return how many were changed.

    Only for the schedules that are the caller's (``covers``). A document whose schedule states only the usual priority
    gets that one in any case.
    """
    decode = PLACES[Schedule][0].collection.decode
    context = Context(as_of=datetime.min.replace(tzinfo=UTC), of_store=True)
    spelled: dict[tuple[str, int], list[str]] = defaultdict(list)
    stated: set[tuple[str, str]] = set()
    with translate_errors(WHAT):
        for document in database[names.SCHEDULES].find({"priority": {"$type": "number", "$ne": DEFAULT_PRIORITY}}):
            with suppress(Rejected, Skipped):
                schedule = next(row for row in decode(document, context).rows if isinstance(row, Schedule))
                for text in {f"{names.SCHEDULE_PREFIX}{schedule.id.hex}", document["_id"]}:
                    stated.add((schedule.tenant_id, text))
                    if covers(schedule):
                        spelled[schedule.tenant_id, priority_of(schedule)].append(text)
        changed = 0
        for name, condition in _QUEUED.items():
            changes = []
            for (tenant, level), texts in spelled.items():
                own = {} if tenant == GLOBAL else {"tenantId": tenant}
                for first in range(0, len(texts), _TOGETHER):
                    where = {"scheduleId": {"$in": texts[first : first + _TOGETHER]}, FIELD: {"$ne": level}}
                    changes.append(UpdateMany({**condition, **own, **where}, {"$set": {FIELD: level}}))
            by = {"tenantId": "$tenantId", "scheduleId": "$scheduleId"}
            usual = {FIELD: {"$gte": 0, "$ne": DEFAULT_PRIORITY}}
            for group in database[name].aggregate([{"$match": {**condition, **usual}}, {"$group": {"_id": by}}]):
                key = group["_id"]
                text = key.get("scheduleId")
                if not {(key.get("tenantId"), text), (GLOBAL, text)} & stated:
                    where = {**condition, **usual, "tenantId": key.get("tenantId"), "scheduleId": text}
                    changes.append(UpdateMany(where, {"$set": {FIELD: DEFAULT_PRIORITY}}))
            if changes:
                changed += database[name].bulk_write(changes, ordered=False).modified_count
    return changed
