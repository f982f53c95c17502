"""New runs in a transaction of the queue: held to the rules of ``Runs.create``, several tenants' at once.

Their keys are looked up and their numbers taken for many runs at a time; what is looked up is written in the same
transaction, whose unique indexes see what others write meanwhile.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from migrator.errors import ConflictError
from migrator.records.run import Run
from migrator.records.run_summary import RunSummary
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.profile import Document
from migrator.sources.stellaops import names
from migrator.store import lives, rules
from migrator.store.mongo.many import Many, spelled
from migrator.store.mongo.numbering import lives_number, numbered, summary_key
from migrator.store.mongo.repository import Stored, Strangers
from migrator.store.mongo.transaction import Transaction
from migrator.values.times import to_bson

_Key = tuple[str, Any, Any]

_FORESEEN = 1_000
"""So many taken slots are looked up at once; where there are more, each is looked up by itself."""


class Numbers:
    """The run numbers of several schedules, each of a tenant's own."""

    def __init__(self, transaction: Transaction, strangers: Strangers, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._summaries = Many(RunSummary, transaction, strangers, now)
        self._stored: dict[UUID, Stored[RunSummary] | None] = {}
        self._last: dict[UUID, int] = {}
        self._taken: dict[UUID, Schedule] = {}

    def learn(self, schedules: Iterable[Stored[Schedule]]) -> None:
        """Look up the last number that each schedule ever had."""
        new = {one.row.id: one for one in schedules if one.row.id not in self._last}
        if not new:
            return
        texts = {identity: spelled(one) for identity, one in new.items()}
        owners = {one.row.tenant_id for one in new.values()}
        named = {
            "tenantId": {"$in": sorted(owners)},
            "scheduleId": {"$in": [text for of in texts.values() for text in of]},
        }
        for stored in self._summaries.matching(named):
            identity = stored.row.schedule_id
            one = None if identity is None else new.get(identity)
            if one is not None and one.row.tenant_id == stored.row.tenant_id:
                self._stored.setdefault(one.row.id, stored)
        self._last |= {identity: lives_number(self._stored.get(identity)) for identity in new}
        beyond = [
            {"scheduleId": {"$in": texts[identity]}, "runNumber": {"$gt": self._last[identity]}} for identity in new
        ]
        of_text = {text: identity for identity, of in texts.items() for text in of}
        for run in self._transaction.project(names.RUNS, {"$or": beyond}, ["scheduleId", "runNumber"]):
            identity = of_text[run["scheduleId"]]
            self._last[identity] = max(self._last[identity], lives.whole(run["runNumber"]))

    def take(self, schedule: Schedule) -> int:
        """Return the next number of a schedule that was learnt of."""
        self._taken[schedule.id] = schedule
        self._last[schedule.id] += 1
        return self._last[schedule.id]

    def store(self) -> None:
        """Write the last number of each schedule that took one."""
        made: list[Document] = []
        for identity, schedule in self._taken.items():
            stored = self._stored.get(identity)
            if stored is not None:
                self._summaries.replace(stored, numbered(stored, self._last[identity]))
                continue
            fresh = RunSummary(
                id=lives.summary_id(schedule.tenant_id, identity),
                tenant_id=schedule.tenant_id,
                schedule_id=identity,
                updated_at=self._now,
            )
            row = numbered(Stored(fresh, {}, b"", self._summaries.place), self._last[identity])
            made.append(self._summaries.new(row, summary_key(schedule.tenant_id, identity))[0])
        if made:
            self._transaction.insert(names.RUN_SUMMARIES, made)


class Minting:
    """Runs to be inserted at the end of a transaction."""

    def __init__(self, transaction: Transaction, strangers: Strangers, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._runs = Many(Run, transaction, strangers, now)
        self._numbers = Numbers(transaction, strangers, now)
        self._documents: list[Document] = []
        self._ids: list[UUID] = []
        self._keys: set[_Key] = set()
        self._foreseen: set[str] = set()
        self._from: datetime | None = None

    def foresee(self, triggers: Iterable[Trigger]) -> None:
        """Look up at once which slots of these triggers are taken, from the earliest next fire on."""
        fires = {f"{names.TRIGGER_PREFIX}{one.id.hex}": one.next_fire_at for one in triggers}
        earliest = min((at for at in fires.values() if at is not None), default=None)
        if earliest is None:
            return
        where = {"triggerId": {"$in": [*fires]}, "scheduledAt": {"$gte": to_bson(earliest)}}
        fields = ["triggerId", "scheduledAt", "attempt"]
        read = [*self._transaction.project(names.RUNS, where, fields, limit=_FORESEEN)]
        if len(read) < _FORESEEN:
            self._foreseen, self._from = set(fires), to_bson(earliest)
            self._keys |= {(one["triggerId"], one["scheduledAt"], one.get("attempt")) for one in read}

    def learn(self, schedules: Iterable[Stored[Schedule]]) -> None:
        """Make ready for runs of these schedules."""
        self._numbers.learn(one for one in schedules if one.row.tenant_id != rules.GLOBAL)

    def add(self, run: Run, tenant: str, schedule: Stored[Schedule] | None) -> Run | None:
        """Return the run as it will be inserted for a tenant; none where its slot or dedupe key is taken."""
        run = rules.served(run, tenant)
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            run = msgspec.structs.replace(run, attempt=1)
        run = msgspec.structs.replace(run, run_number=None, updated_at=run.updated_at or self._now)
        document, row = self._runs.new(run)
        keys = _keys(document)
        if not self._keys.isdisjoint(keys) or self._taken(keys):
            return None
        if schedule is not None and schedule.row.tenant_id == tenant != rules.GLOBAL:
            self.learn([schedule])
            row = msgspec.structs.replace(row, run_number=self._numbers.take(schedule.row))
            document["runNumber"] = row.run_number
        self._keys |= keys
        self._ids.append(row.id)
        self._documents.append(document)
        return row

    def insert(self) -> None:
        """Insert them; raises ``ConflictError`` for an id that is taken."""
        if not self._documents:
            return
        if len(set(self._ids)) < len(self._ids) or self._runs.any_taken(self._ids):
            raise ConflictError(f"the id is taken ({names.RUNS})")
        self._numbers.store()
        self._transaction.insert(names.RUNS, self._documents)

    def _taken(self, keys: Collection[_Key]) -> bool:
        either: list[Document] = [
            {"triggerId": trigger, "dedupeKey": key}
            if attempt is None
            else {"triggerId": trigger, "scheduledAt": key, "attempt": attempt}
            for trigger, key, attempt in keys
            if attempt is None or trigger not in self._foreseen or self._from is None or key < self._from
        ]
        found = self._transaction.project(names.RUNS, {"$or": either}, ["_id"], limit=1) if either else ()
        return any(True for _ in found)


def _keys(document: Document) -> set[_Key]:
    """Return what no two runs of a trigger share: slot and attempt, and the dedupe key (which has no attempt)."""
    trigger, slot, dedupe = document.get("triggerId"), document.get("scheduledAt"), document.get("dedupeKey")
    keys: set[_Key] = set()
    if trigger is not None and slot is not None:
        keys.add((trigger, to_bson(slot) if slot.tzinfo else slot, document["attempt"]))
    if trigger is not None and dedupe is not None:
        keys.add((trigger, dedupe, None))
    return keys
