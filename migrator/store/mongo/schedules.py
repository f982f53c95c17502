"""Schedules, their triggers, and handlers in MongoDB."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError, UsageError
from migrator.records import Handler, Record, Schedule, Trigger
from migrator.sources.profile import Context
from migrator.sources.store_documents import names
from migrator.sources.store_documents.own import COPY_OF, is_copy
from migrator.sources.store_documents.schedules import is_carried
from migrator.store import validation
from migrator.store.mongo.priority import FIELD, priority_of, with_priority
from migrator.store.mongo.repository import ForeignIds, Repository, StoredDocument, rewritten
from migrator.store.mongo.transaction import Transaction
from migrator.store.protocols import ScheduleQuery
from migrator.values.identity import parse_source_id
from migrator.values.times import to_bson

_Fires: TypeAlias = dict[UUID, datetime]
_Schedules: TypeAlias = list[Schedule]

_SORTS: dict[str, Callable[[Schedule, _Fires], Any]] = {
    "created_at": lambda row, _: row.created_at,
    "next_fire_at": lambda row, fires: fires.get(row.id),
    "name": lambda row, _: row.name,
    "priority": lambda row, _: priority_of(row),
}

ENABLED = {"$ne": False}
"""A trigger without the field is enabled."""


class MongoSchedules(Repository[Schedule]):
    """``protocols.Schedules``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(Schedule, transaction, foreign_ids, tenant, now)
        self._triggers = self._of(Trigger)

    def get(self, schedule_id: UUID) -> Schedule | None:
        found = self._visible(schedule_id)
        return None if found is None or found.deleted_at is not None else found

    def by_name(self, name: str) -> Schedule | None:
        found = [one.row for one in self._each({"name": name, "deletedAt": None}, shared=True)]
        return min(found, key=lambda row: (row.tenant_id == validation.GLOBAL, row.id), default=None)

    def called(self, text: str) -> Sequence[Schedule]:
        validation.check_text("a name", text)
        named: list[dict[str, Any]] = [{"name": text}]
        with suppress(ValueError):
            named.append({"_id": parse_source_id(text)})
        found = [one.row for one in self._each({"$or": named, "deletedAt": None})]
        return sorted((row for row in found if text in (row.name, row.source_id)), key=lambda row: row.id)

    def list(self, query: ScheduleQuery) -> Sequence[Schedule]:
        validation.check_page(query.limit, query.offset)
        validation.check_known("order of schedules", _SORTS, (query.sort_by,))
        rows, fires = self._passing(query)
        rows.sort(key=lambda row: row.id)
        value = _SORTS[query.sort_by]
        firing = [row for row in rows if value(row, fires) is not None]
        unsaid = [row for row in rows if value(row, fires) is None]
        firing.sort(key=lambda row: value(row, fires), reverse=query.descending)
        return (firing + unsaid)[query.offset : query.offset + query.limit]

    def count(self, query: ScheduleQuery) -> int:
        return len(self._passing(query)[0])

    def upsert(self, schedule: Schedule) -> Schedule:
        schedule = validation.checked_record(schedule, self._tenant)
        stored = self._find(schedule.id)
        if stored is None:
            row = msgspec.structs.replace(
                schedule,
                created_at=schedule.created_at or self._now,
                updated_at=schedule.updated_at or self._now,
            )
            document, read = self._checked(row)
            self._check_name(row, document["_id"])
            self._transaction.insert(self.name, [document])
            return read
        if stored.row.deleted_at is not None:
            raise ConflictError("the id is that of a deleted schedule")
        kept = msgspec.structs.replace(
            schedule, created_at=stored.row.created_at or schedule.created_at, extra=stored.row.extra
        )
        return self._write(stored, validation.with_stored_precision(kept, stored.row))

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        validation.check_transition("schedule", expected, status)
        validation.check_changes(changes)
        stored = self._find(schedule_id)
        if stored is None or stored.row.deleted_at is not None or stored.row.status != expected:
            return None
        return self._change(stored, changes | {"status": status})

    def change(self, schedule_id: UUID, **changes: Any) -> Schedule | None:  # noqa: ANN401 - as above
        validation.check_changes(changes)
        stored = self._find(schedule_id)
        return None if stored is None or stored.row.deleted_at is not None else self._change(stored, changes)

    def _change(self, stored: StoredDocument[Schedule], changes: dict[str, Any]) -> Schedule:
        changed = msgspec.structs.replace(stored.row, **{"updated_at": self._now} | changes)
        return self._write(
            stored, validation.with_stored_precision(validation.checked_record(changed, self._tenant), stored.row)
        )

    def soft_delete(self, schedule_id: UUID, by: str) -> bool:
        stored = self._find(schedule_id)
        if stored is None or stored.row.deleted_at is not None:
            return False
        self.replace(stored, msgspec.structs.replace(stored.row, deleted_at=self._now, deleted_by=by))
        of_it = {"tenantId": self._tenant, "scheduleId": self._refers(Schedule, schedule_id), "enabled": ENABLED}
        self._transaction.change(names.TRIGGERS, of_it, {"$set": {"enabled": False}})
        return True

    def due(self, limit: int) -> Sequence[Schedule]:
        validation.check_page(limit)
        fires = self._fires({"nextFireAt": {"$lte": to_bson(self._now)}})
        due: _Schedules = []
        ordered = sorted(fires.items(), key=lambda one: (one[1], one[0]))
        for identity, _ in ordered:
            stored = self._find(identity)
            row = None if stored is None else stored.row
            if row is not None and row.enabled and row.status == "scheduled" and row.deleted_at is None:
                due.append(row)
                if len(due) == limit:
                    break
        return due

    def _write(self, stored: StoredDocument[Schedule], row: Schedule) -> Schedule:
        document, read = self._changed(stored, row)
        if row.name != stored.row.name:
            self._check_name(row, document["_id"])
        self._transaction.replace(self.name, document)
        if priority_of(row) != priority_of(stored.row):
            self._pass_priority(row)
        return read

    def _pass_priority(self, row: Schedule) -> None:
        """Write the priority of a schedule into its triggers, and into its runs that are planned or queued."""
        of_it: dict[str, Any] = {"scheduleId": self._refers(Schedule, row.id)}
        if row.tenant_id != validation.GLOBAL:
            of_it["tenantId"] = row.tenant_id
        update = {"$set": {FIELD: priority_of(row)}}
        self._transaction.change(names.TRIGGERS, of_it, update)
        self._transaction.change(names.RUNS, of_it | {"state": {"$in": [*states.RUN_WAITING]}}, update)

    def _check_name(self, row: Schedule, key: object) -> None:
        taken = self._each({"name": row.name, "deletedAt": None, "_id": {"$ne": key}})
        if next(taken, None) is not None:
            raise ConflictError("the name of a schedule is taken")

    def _passing(self, query: ScheduleQuery) -> tuple[_Schedules, _Fires]:
        validation.check_known("schedule status", states.SCHEDULE, query.statuses)
        validation.check_known("kind of trigger", states.TRIGGER_KINDS, query.kinds)
        bounds = (query.next_fire_after, query.next_fire_before)
        fires = self._fires({}) if query.sort_by == "next_fire_at" or bounds != (None, None) else {}
        of_kinds = (
            {one.row.schedule_id for one in self._triggers._each({"kind": {"$in": [*query.kinds]}}, shared=True)}  # noqa: SLF001 - its own other half
            if query.kinds
            else None
        )
        rows = [
            one.row
            for one in self._each({"deletedAt": None}, shared=query.include_global)
            if (of_kinds is None or one.row.id in of_kinds) and _passes(query, one.row, fires.get(one.row.id))
        ]
        return rows, fires

    def _fires(self, where: dict[str, Any]) -> _Fires:
        """Return the earliest next fire of each schedule that has one."""
        fires: _Fires = {}
        condition = {"nextFireAt": {"$ne": None}, "enabled": ENABLED} | where
        for trigger in self._triggers._each(condition, shared=True):  # noqa: SLF001 - its own other half
            at = trigger.row.next_fire_at
            if at is not None and at < fires.get(trigger.row.schedule_id, datetime.max.replace(tzinfo=at.tzinfo)):
                fires[trigger.row.schedule_id] = at
        return fires


def _passes(query: ScheduleQuery, row: Schedule, fire: datetime | None) -> bool:
    tags = set(row.tags or ())
    return (
        (not query.statuses or row.status in query.statuses)
        and (not query.handlers or row.handler_name in query.handlers)
        and query.enabled in (None, row.enabled)
        and (not query.tags_any or not tags.isdisjoint(query.tags_any))
        and tags.issuperset(query.tags_all)
        and _between(row.created_at, query.created_after, query.created_before)
        and _between(fire, query.next_fire_after, query.next_fire_before)
        and (query.name_contains is None or query.name_contains.lower() in row.name.lower())
        and query.created_by in (None, row.created_by)
    )


def _between(value: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    if after is None and before is None:
        return True
    return value is not None and (after is None or value > after) and (before is None or value < before)


class MongoTriggers(Repository[Trigger]):
    """``protocols.Triggers``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(Trigger, transaction, foreign_ids, tenant, now)
        self._schedules = self._of(Schedule)

    def get(self, trigger_id: UUID) -> Trigger | None:
        return self._visible(trigger_id)

    def of_schedule(self, schedule_id: UUID) -> Sequence[Trigger]:
        found = self._each({"scheduleId": self._refers(Schedule, schedule_id)}, shared=True)
        return sorted((one.row for one in found), key=lambda row: row.id)

    def held(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return the tenant's own triggers of a schedule, by id.

        If another session writes one of them before this one ends, this session's own write of it raises
        ``ConflictError``.
        """
        return [one for one in self.of_schedule(schedule_id) if one.tenant_id == self._tenant]

    def of_schedules(self, schedule_ids: Sequence[UUID]) -> Sequence[Trigger]:
        texts = self._spellings(Schedule, schedule_ids)
        found = self._each({"scheduleId": {"$in": [*chain.from_iterable(texts.values())]}}, shared=True)
        return sorted((one.row for one in found), key=lambda row: (row.schedule_id, row.id))

    def of_event(self, event: str) -> Sequence[Trigger]:
        listening: list[tuple[int, UUID, Trigger]] = []
        for trigger in self._each({"kind": "event", "eventName": event, "enabled": ENABLED}, shared=True):
            schedule = self._schedules._visible(trigger.row.schedule_id)  # noqa: SLF001 - its own other half
            if schedule is None or not schedule.enabled or schedule.deleted_at is not None:
                continue
            if schedule.status in states.SCHEDULE_FIRING:
                listening.append((-priority_of(schedule), trigger.row.id, trigger.row))
        return [row for *_, row in sorted(listening, key=lambda entry: entry[:2])]

    def upsert(self, trigger: Trigger) -> Trigger:
        trigger = validation.checked_record(trigger, self._tenant)
        self._require(Schedule, trigger.schedule_id)
        stored = self._find(trigger.id)
        if stored is None:
            document, row = self._checked(trigger)
            of = self._schedules._visible(trigger.schedule_id)  # noqa: SLF001 - its own other half
            self._transaction.insert(self.name, [with_priority(document, of)])
            return row
        if stored.row.schedule_id != trigger.schedule_id:
            raise UsageError("a trigger stays with its schedule")
        kept = validation.with_stored_precision(msgspec.structs.replace(trigger, extra=stored.row.extra), stored.row)
        if is_copy(stored.document):
            said = self._say(stored.row.schedule_id, kept)
            marked = {name: value for name, value in stored.document.items() if name != COPY_OF}
            stored.document = marked | ({COPY_OF: names.SCHEDULES} if said else {})
        return self.replace(stored, kept)

    def _say(self, schedule_id: UUID, trigger: Trigger | None) -> bool:
        """Write the rule of a trigger, or that there is none, into the schedule's own document.

        False if that document cannot state it, and the trigger has a document of its own from now on.
        """
        schedule = self._schedules._find(schedule_id)  # noqa: SLF001 - its own other half
        if schedule is None:
            return False
        collection = schedule.place.collection
        before = collection.decode(schedule.document, Context(as_of=self._now)).rows
        after: tuple[Record, ...] = before[:1]
        if trigger is not None:
            of_it = {"source": schedule.row.source, "source_id": schedule.row.source_id}
            after = (before[0], msgspec.structs.replace(trigger, **of_it))
        document = rewritten(schedule.document, collection.encode(before), collection.encode(after))
        if document != schedule.document:
            self._transaction.replace(schedule.place.name, document)
        return trigger is not None and is_carried(trigger)

    def move(self, trigger_id: UUID, expected: datetime | None, next_fire_at: datetime | None) -> bool:
        stored = self._find(trigger_id)
        if stored is None or stored.row.next_fire_at != expected:
            return False
        moved = validation.checked_record(msgspec.structs.replace(stored.row, next_fire_at=next_fire_at), self._tenant)
        self.replace(stored, validation.with_stored_precision(moved, stored.row))
        return True

    def delete_of_schedule(self, schedule_id: UUID) -> int:
        triggers = list(self._each({"scheduleId": self._refers(Schedule, schedule_id)}))
        if any(is_copy(one.document) for one in triggers):
            self._say(schedule_id, None)
        keys = [one.document["_id"] for one in triggers]
        rows = {"tenantId": self._tenant, "triggerId": {"$in": keys}}
        self._transaction.change(names.RUNS, rows, {"$unset": {"triggerId": ""}})
        return self._transaction.delete(self.name, {"_id": {"$in": keys}})


class MongoHandlers(Repository[Handler]):
    """``protocols.Handlers``."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        super().__init__(Handler, transaction, foreign_ids, tenant, now)

    def get(self, name: str) -> Handler | None:
        found = [one.row for one in self._each({"name": name}, shared=True)]
        return min(found, key=lambda row: row.tenant_id == validation.GLOBAL, default=None)

    def upsert(self, handler: Handler) -> Handler:
        handler = validation.checked_record(handler, self._tenant)
        stored = self._held(handler.name)
        if stored is None:
            return self._insert(handler)
        row = stored.row
        kept = msgspec.structs.replace(handler, id=row.id, source=row.source, source_id=row.source_id, extra=row.extra)
        if row.is_system:
            if kept != row:
                raise ConflictError("a system handler does not change")
            return row
        return self.replace(stored, kept)

    def list(self) -> Sequence[Handler]:
        rows = [one.row for one in self._each({}, shared=True)]
        rows.sort(key=lambda row: (row.name, row.tenant_id == validation.GLOBAL))
        return list({row.name: row for row in reversed(rows)}.values())[::-1]

    def delete(self, name: str) -> bool:
        stored = self._held(name)
        if stored is None:
            return False
        if stored.row.is_system:
            raise ConflictError("a system handler is not deleted")
        self._transaction.delete(self.name, {"_id": stored.document["_id"]})
        return True

    def _held(self, name: str) -> StoredDocument[Handler] | None:
        return next(self._each({"name": name}), None)
