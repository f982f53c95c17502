"""Runs in MongoDB.

Times of the source's fields are texts whose order is that of the times, as long as they are spelled canonically. A
document of another application that spells its createdAt otherwise is found, but may stand elsewhere in a list.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError
from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.profile import Rejected
from migrator.sources.shapes import instant
from migrator.sources.stellaops import names
from migrator.store import lives, rules
from migrator.store.mongo.numbering import Numbering
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.transaction import Transaction
from migrator.store.ports import RunPage, RunQuery
from migrator.values.times import format_iso

LIVE = states.live(states.RUN)
NEWEST = (("createdAt", -1), ("_id", 1))
OLDEST = (("createdAt", 1), ("_id", 1))
_Document: TypeAlias = dict[str, Any]


def spellings(words: Sequence[str]) -> list[str]:
    """Return every spelling of these states."""
    return [spelled for spelled, word in names.RUN_STATES.items() if word in words]


class MongoRuns(Repository[Run]):
    """``ports.Runs``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(Run, transaction, strangers, tenant, now)
        self._numbering = Numbering(transaction, strangers, tenant, now)

    def get(self, run_id: UUID) -> Run | None:
        """Return the run."""
        return self._visible(run_id)

    def list(self, query: RunQuery) -> RunPage:
        """Return one page."""
        rules.page(query.limit, query.offset)
        rules.known("run state", states.RUN, query.states)
        parts: list[_Document] = [{}]
        if query.schedule_id is not None:
            parts.append({"scheduleId": self._refers(Schedule, query.schedule_id)})
        if query.states:
            parts.append({"state": {"$in": spellings(query.states)}})
        if query.created_after is not None:
            parts.append({"createdAt": {"$gt": format_iso(query.created_after)}})
        if query.created_before is not None:
            parts.append({"createdAt": {"$lt": format_iso(query.created_before)}})
        if query.trace_id is not None:
            parts.append({"traceId": query.trace_id})
        if query.cursor is not None:
            parts.append(self._after(*query.cursor, descending=query.descending))
        sort = NEWEST if query.descending else OLDEST
        runs = self._rows({"$and": parts}, query.offset + query.limit + 1, sort=sort)[query.offset :]
        page = tuple(runs[: query.limit])
        more = len(runs) > query.limit
        return RunPage(runs=page, cursor=(page[-1].created_at, page[-1].id) if more else None)

    def create(self, run: Run) -> Run:
        """Insert; ``run_number`` is given here: one more than the schedule ever had, also after retention."""
        run = rules.written(run, self._tenant)
        owner = self._require(Schedule, run.schedule_id, shared=True)
        self._require(Trigger, run.trigger_id, shared=True)
        self._require(Run, run.retry_of)
        changes: dict[str, Any] = {"run_number": None, "updated_at": run.updated_at or self._now}
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            changes["attempt"] = 1
        numbered = run.schedule_id is not None and owner == self._tenant
        if numbered and run.schedule_id is not None:
            changes["run_number"] = self._numbering.next(run.schedule_id)
        document, row = self._new(msgspec.structs.replace(run, **changes))
        self._check_keys(document)
        if run.schedule_id is not None and row.run_number is not None:
            self._numbering.take(run.schedule_id, row.run_number)
        self._transaction.insert(self._name, [document])
        return row

    def update(self, run: Run, expected: str) -> bool:
        """Replace all columns if the state is ``expected`` now; started_at, finished_at and stats obey the machine."""
        run = rules.written(run, self._tenant)
        lives.may_update(expected, run.state)
        stored = self._find(run.id)
        if stored is None or stored.row.state != expected:
            return False
        # What it refers to may have been deleted since: only a reference that changes is looked up.
        if run.schedule_id != stored.row.schedule_id:
            self._require(Schedule, run.schedule_id, shared=True)
        if run.trigger_id != stored.row.trigger_id:
            self._require(Trigger, run.trigger_id, shared=True)
        if run.retry_of != stored.row.retry_of:
            self._require(Run, run.retry_of)
        advanced = lives.advanced_run(stored.row, rules.precise(run, stored.row), self._now)
        document, _ = self._changed(stored, advanced)
        self._check_keys(document)
        self._transaction.replace(self._name, document)
        return True

    def pending(self, limit: int) -> Sequence[Run]:
        """Return planning and queued runs, oldest first."""
        rules.page(limit)
        return self._rows({"state": {"$in": ["planning", "queued"]}}, limit, sort=OLDEST)

    def of_schedule(self, schedule_id: UUID, limit: int) -> Sequence[Run]:
        """Return the tenant's newest runs of a schedule, newest first."""
        rules.page(limit)
        return self._rows({"scheduleId": self._refers(Schedule, schedule_id)}, limit, sort=NEWEST)

    def repeats(self, run_id: UUID) -> Sequence[Run]:
        """Return the tenant's runs that name this one in ``retry_of``, oldest first."""
        return [one.row for one in self._each({"retryOf": self._refers(Run, run_id)}, sort=OLDEST)]

    def cancel(self, run_id: UUID, reason: str) -> Run | None:
        """Make a live run cancelled, whoever works on it; none when it is not live."""
        stored = self._find(run_id)
        if stored is None or stored.row.state not in LIVE:
            return None
        cancelled = rules.written(lives.cancelled_run(stored.row, reason, self._now), self._tenant)
        return self._replace(stored, rules.precise(cancelled, stored.row))

    def cancel_of_schedule(self, schedule_id: UUID, reason: str) -> int:
        """Do the same to all live runs of a schedule; return how many."""
        where = {"scheduleId": self._refers(Schedule, schedule_id), "state": {"$in": [*LIVE]}}
        ids = [one.row.id for one in self._each(where)]
        return sum(self.cancel(identity, reason) is not None for identity in ids)

    def beyond(self, keep: int, before: datetime, limit: int) -> Sequence[Run]:
        """Return ended runs that retention may remove, oldest first: neither young nor among the newest."""
        rules.page(limit, keep)
        ended = set(spellings([state for state in states.RUN if state not in LIVE]))
        seen: Counter[object] = Counter()
        old: list[Any] = []
        fields = ("scheduleId", "createdAt", "state")
        for one in self._transaction.project(self._name, {"tenantId": self._tenant}, fields, sort=NEWEST):
            schedule = one.get("scheduleId")
            seen[schedule] += 1
            if seen[schedule] > keep and one.get("state") in ended and _created(one, before):
                old.append(one["_id"])
        # Oldest first, then by id: as they are sorted again, so that equal times stand in the order of their ids.
        where = {"_id": {"$in": old}}
        return self._rows(where, limit, sort=OLDEST) if old else []

    def remove(self, run_ids: Sequence[UUID]) -> int:
        """Delete runs that ended, with their logs; live and unknown ones are passed over. Returns how many."""
        keys: list[Any] = []
        for run_id in dict.fromkeys(run_ids):
            stored = self._find(run_id)
            if stored is not None and stored.row.state not in LIVE:
                keys += [stored.document["_id"], f"{names.RUN_PREFIX}{run_id.hex}"]
        mine: _Document = {"tenantId": self._tenant}
        self._transaction.delete(names.EXECUTION_LOGS, mine | {"runId": {"$in": keys}})
        self._transaction.change(names.IMPACT_SNAPSHOTS, mine | {"runId": {"$in": keys}}, {"$unset": {"runId": ""}})
        self._transaction.change(names.RUNS, mine | {"retryOf": {"$in": keys}}, {"$unset": {"retryOf": ""}})
        return self._transaction.delete(self._name, mine | {"_id": {"$in": keys}})

    def _after(self, created_at: datetime, run_id: UUID, *, descending: bool) -> _Document:
        stored = self._find(run_id)
        key = f"{names.RUN_PREFIX}{run_id.hex}" if stored is None else stored.document["_id"]
        at = format_iso(created_at)
        beyond = "$lt" if descending else "$gt"
        return {"createdAt": {f"{beyond}e": at}, "$or": [{"createdAt": {beyond: at}}, {"_id": {"$gt": key}}]}

    def _check_keys(self, document: _Document) -> None:
        """Raise ``ConflictError`` where the slot or the dedupe key of the trigger is another run's."""
        trigger, other = document.get("triggerId"), {"$ne": document["_id"]}
        if trigger is None:
            return
        slot, dedupe = document.get("scheduledAt"), document.get("dedupeKey")
        if slot is not None and self._exists(
            {"triggerId": trigger, "scheduledAt": slot, "attempt": document.get("attempt"), "_id": other}
        ):
            raise ConflictError("the slot of the trigger is taken: it ran, or is to run, already")
        if dedupe is not None and self._exists({"triggerId": trigger, "dedupeKey": dedupe, "_id": other}):
            raise ConflictError("the trigger ran for this dedupe key already")

    def _exists(self, where: _Document) -> bool:
        return next(self._transaction.find(self._name, where), None) is not None


def _created(document: _Document, before: datetime) -> bool:
    try:
        return instant(document.get("createdAt"), "createdAt") < before
    except Rejected:
        return False
