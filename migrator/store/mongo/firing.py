"""Firing in MongoDB: due triggers become runs and advance, in one transaction for all triggers of a call."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
from pymongo.errors import PyMongoError

from migrator import states
from migrator.connections.mongo import MongoDatabase
from migrator.errors import ConflictError, OvertakenError, UsageError
from migrator.records import Run, Schedule, Trigger
from migrator.sources.profile import Document
from migrator.sources.store_documents import names
from migrator.sources.store_documents.own import FIRING
from migrator.store import transitions, validation
from migrator.store.left_rows import LeftRows, is_of_one_row
from migrator.store.mongo.candidates import Candidate, CandidateReader, Search, Stream, Waiting, take_first
from migrator.store.mongo.indexes import DUE
from migrator.store.mongo.priority import with_priority
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds, StoredDocument, counted, spelled
from migrator.store.mongo.runs import Numbers
from migrator.store.mongo.schedules import ENABLED
from migrator.store.mongo.transaction import Change, Transaction, in_transaction
from migrator.store.queue import Fire, FirePlan
from migrator.values.identity import source_id
from migrator.values.times import to_bson

_Key = tuple[str, Any, Any]

_FORESEEN = 1_000
"""The most taken slots in one lookup; if there are more, each is looked up by itself."""


class RunCreation:
    """Runs to be inserted at the end of a transaction."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._runs = CrossTenantRepository(Run, transaction, foreign_ids)
        self._numbers = Numbers(transaction, foreign_ids, now)
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

    def learn(self, schedules: Iterable[StoredDocument[Schedule]]) -> None:
        """Prepare for runs of these schedules."""
        own = (one for one in schedules if one.row.tenant_id != validation.GLOBAL)
        self._numbers.learn({one.row.id: (one.row.tenant_id, spelled(one)) for one in own})

    def add(self, run: Run, tenant: str, schedule: StoredDocument[Schedule] | None) -> Run | None:
        """Return the run as it will be inserted for a tenant; None if its slot or dedupe key is taken."""
        run = validation.checked_served_record(run, tenant)
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            run = msgspec.structs.replace(run, attempt=1)
        run = msgspec.structs.replace(run, run_number=None, updated_at=run.updated_at or self._now)
        document, row = self._runs.new(run)
        keys = _keys(document)
        if not self._keys.isdisjoint(keys) or self._taken(keys):
            return None
        if schedule is not None and schedule.row.tenant_id == tenant != validation.GLOBAL:
            self.learn([schedule])
            row = msgspec.structs.replace(row, run_number=self._numbers.take(tenant, schedule.row.id))
            if row.run_number is not None:
                document["runNumber"] = row.run_number
        document = with_priority(document, None if schedule is None else schedule.row)
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
    """Return the keys that two runs of a trigger cannot share: slot with attempt, and the dedupe key without it."""
    trigger, slot, dedupe = document.get("triggerId"), document.get("scheduledAt"), document.get("dedupeKey")
    keys: set[_Key] = set()
    if trigger is not None and slot is not None:
        keys.add((trigger, to_bson(slot) if slot.tzinfo else slot, document["attempt"]))
    if trigger is not None and dedupe is not None:
        keys.add((trigger, dedupe, None))
    return keys


_HELD = timedelta(seconds=5)
"""How long a process that died keeps others from its triggers."""


def not_held(now: datetime) -> Document:
    """Return the condition on triggers that no process is firing."""
    return {f"{FIRING}.until": {"$not": {"$gt": to_bson(now)}}}


def due_triggers(now: datetime) -> Waiting:
    """Return the condition on due triggers: enabled, with a next fire that is not after ``now``."""
    return Waiting(
        record=Trigger,
        streams=(
            Stream(
                where={"nextFireAt": {"$lte": to_bson(now)}, "enabled": ENABLED, **not_held(now)},
                time="nextFireAt",
                index=DUE,
            ),
        ),
        since=lambda trigger: trigger.next_fire_at,
    )


def may_fire(schedule: Schedule | None) -> bool:
    """Return whether a schedule's triggers fire."""
    return (
        schedule is not None
        and schedule.enabled
        and schedule.deleted_at is None
        and schedule.status in states.SCHEDULE_FIRING
    )


class Firing:
    """One call of ``Queue.fire_due``."""

    def __init__(
        self,
        database: MongoDatabase,
        foreign_ids: ForeignIds,
        search: Search,
        now: datetime,
        plan: FirePlan,
        left: LeftRows,
    ) -> None:
        self._database, self._foreign_ids, self._search = database, foreign_ids, search
        self._now, self._plan, self._token = now, plan, uuid4().hex
        self._left = left
        self._failed: Exception | None = None

    def fire(self, limit: int) -> Sequence[Run]:
        """Fire the first triggers; skip those that other processes are firing at this moment.

        A trigger that cannot be fired is left. Raises the first error if no other was fired.
        """
        runs = take_first(self._database, self._foreign_ids, self._search, limit, self._fire_page)
        if runs is None and self._failed is not None:
            raise self._failed
        return runs or []

    def _fire_page(
        self, _: CandidateReader, __: Sequence[Candidate], page: Sequence[Candidate]
    ) -> tuple[Sequence[Run] | None, bool]:
        """Fire the triggers of a page; return the runs, None if none is due any more, and whether others fire some."""
        held = self._hold(page)
        lost = len(held) < len(page)
        try:
            return (self._fire(held) if held else None), lost
        except OvertakenError:
            return None, True
        finally:
            self._let_go(held)

    def _hold(self, page: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the candidates that no other process is firing, and mark them for ``_HELD``.

        Two transactions that write one trigger conflict, and the one that loses has done all its work in vain. The mark
        only makes that rare: the transaction decides.
        """
        keys = {"_id": {"$in": [one.key for one in page]}}
        mark = {"by": self._token, "until": to_bson(self._now + _HELD)}
        triggers = self._database[names.TRIGGERS]
        try:
            marked = triggers.update_many({**keys, **not_held(self._now)}, {"$set": {FIRING: mark}})
            if marked.modified_count == len(page):
                return page
            held = {source_id(one["_id"]) for one in triggers.find({**keys, f"{FIRING}.by": self._token}, {"_id": 1})}
        except PyMongoError:  # the transaction begins again where that helps, and names what does not mend
            return page
        return [one for one in page if one.source_id in held]

    def _let_go(self, held: Sequence[Candidate]) -> None:
        """Remove the mark; one that stays after an error expires."""
        if held:
            mine = {"_id": {"$in": [one.key for one in held]}, f"{FIRING}.by": self._token}
            with suppress(PyMongoError):
                self._database[names.TRIGGERS].update_many(mine, {"$unset": {FIRING: ""}})

    def _fire(self, candidates: Sequence[Candidate]) -> Sequence[Run] | None:
        """Fire them together, or, where one of them fails, one by one."""
        try:
            return self._fire_together(candidates)
        except Exception as error:
            if not is_of_one_row(error):
                raise
            if len(candidates) == 1:
                row = candidates[0].stored.row
                self._left.add(row.id, row.tenant_id, error)
                self._failed = self._failed or error
                return None
        fired = [self._fire([one]) for one in candidates]
        return None if all(runs is None for runs in fired) else [run for runs in fired for run in runs or ()]

    def _fire_together(self, candidates: Sequence[Candidate]) -> Sequence[Run] | None:
        return in_transaction(
            self._database,
            lambda transaction: _Batch(transaction, self._foreign_ids, self._now).fire(self._plan, candidates),
        )


class _Batch:
    """Some triggers in one transaction, one after the other."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, now: datetime) -> None:
        self._transaction, self._now = transaction, now
        self._triggers = CrossTenantRepository(Trigger, transaction, foreign_ids)
        self._schedules = CrossTenantRepository(Schedule, transaction, foreign_ids)
        self._creation = RunCreation(transaction, foreign_ids, now)
        self._live: dict[UUID, int] = {}

    def fire(self, plan: FirePlan, candidates: Sequence[Candidate]) -> Sequence[Run] | None:
        """Return the runs inserted; None if none of the triggers is due any more."""
        triggers = self._triggers.at([one.key for one in candidates], {})
        texts = {one.schedule: one.text for one in candidates if one.schedule is not None}
        found_schedules = self._schedules.found(texts, shared=True, hints=set(texts.values()))
        self._live = counted(self._transaction, found_schedules.values(), states.RUN_OPEN)
        self._creation.learn(found_schedules.values())
        self._creation.foresee(one.row for one in triggers.values())
        changes: list[Change] = []
        status: dict[UUID, Schedule] = {}
        fired: list[Run] = []
        for one in candidates:
            stored, of = triggers.get(one.source_id), found_schedules.get(one.schedule) if one.schedule else None
            if stored is None or of is None:
                continue
            schedule = status.get(of.row.id, of.row)
            if self._is_due(stored.row) and may_fire(schedule):
                fire = plan(schedule, stored.row, self._live[schedule.id], self._now)
                fired += self._insert(fire, stored.row, of)
                changes.append(self._triggers.update(stored, self._moved(fire, stored)))
                if fire.schedule_status is not None and transitions.can_become(schedule.status, fire.schedule_status):
                    status[schedule.id] = transitions.with_status(schedule, fire.schedule_status, self._now)
        if not changes:
            return None
        self._transaction.write(names.TRIGGERS, changes)
        for of in {of.row.id: of for of in found_schedules.values()}.values():
            if of.row.id in status:
                self._schedules.replace(of, status[of.row.id])
        self._creation.insert()
        return fired

    def _is_due(self, trigger: Trigger) -> bool:
        return trigger.enabled and trigger.next_fire_at is not None and trigger.next_fire_at <= self._now

    def _insert(self, fire: Fire, trigger: Trigger, schedule: StoredDocument[Schedule]) -> list[Run]:
        if fire.trigger.id != trigger.id:
            raise UsageError("a plan answers for the trigger that it was given")
        made: list[Run] = []
        for run in fire.runs:
            of = schedule if run.schedule_id == schedule.row.id else self._other(run)
            row = self._creation.add(run, trigger.tenant_id, of)
            if row is not None:
                made.append(row)
                if row.state in states.RUN_OPEN and row.schedule_id in self._live:
                    self._live[row.schedule_id] += 1
        return made

    def _other(self, run: Run) -> StoredDocument[Schedule] | None:
        """Return the schedule of a run that is not the trigger's."""
        if run.schedule_id is None:
            return None
        return next(iter(self._schedules.found([(run.tenant_id, run.schedule_id)], shared=True).values()), None)

    @staticmethod
    def _moved(fire: Fire, stored: StoredDocument[Trigger]) -> Trigger:
        return validation.with_stored_precision(
            validation.checked_served_record(fire.trigger, stored.row.tenant_id), stored.row
        )
