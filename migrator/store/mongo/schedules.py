"""Schedules, their triggers, and handlers in MongoDB."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime
from itertools import chain
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError, UsageError
from migrator.records import Handler, Record, Schedule, Trigger
from migrator.sources.profile import Context, Document
from migrator.sources.store_documents import names
from migrator.sources.store_documents.own import COPY_OF, is_copy
from migrator.sources.store_documents.schedules import is_carried
from migrator.store import validation
from migrator.store.mongo import schedule_lists
from migrator.store.mongo.priority import FIELD, priority_of, with_priority
from migrator.store.mongo.repository import ForeignIds, Repository, Sort, StoredDocument, rewritten
from migrator.store.mongo.transaction import Transaction
from migrator.store.protocols import ScheduleQuery
from migrator.values.identity import parse_source_id
from migrator.values.times import to_bson

_Fires: TypeAlias = dict[UUID, datetime]
_Schedules: TypeAlias = list[Schedule]
_Check: TypeAlias = Callable[[Schedule], bool]

_FEW: Final = 1_000
"""So many schedules are looked up by their ids; more are read with all others of the tenant."""
_LARGEST_BATCH: Final = 1_000

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
        validation.check_known("order of schedules", schedule_lists.ORDERS, (query.sort_by,))
        most = query.offset + query.limit
        if query.sort_by == "next_fire_at" and not query.kinds:
            return self._by_fire(query, most)[query.offset : most]
        ids, check = self._with_triggers(query)
        if query.sort_by != "next_fire_at" and (ids is None or len(ids) > _FEW):
            return self._in_order(query, most, check)[query.offset : most]
        passing = [row for row in self._read(query, ids) if check(row)]
        fires = self._fires_of({row.id for row in passing}) if query.sort_by == "next_fire_at" else {}
        passing.sort(key=lambda row: schedule_lists.sort_key(query, row, fires.get(row.id)))
        return passing[query.offset : most]

    def count(self, query: ScheduleQuery) -> int:
        ids, check = self._with_triggers(query)
        where = schedule_lists.server_count(query)
        if where is None:
            return sum(1 for row in self._read(query, ids) if check(row))
        tenants = self._tenants(query)
        own: Mapping[str, Any] = {"tenantId": {"$in": [*tenants]}}
        pipeline: Sequence[Mapping[str, Any]] = [{"$match": {**own, **where}}, {"$count": "schedules"}]
        counted = sum(one["schedules"] for one in self._transaction.aggregate(self.name, pipeline))
        return int(counted) + sum(1 for _ in self._of_selection(tenants, where))

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

    def _tenants(self, query: ScheduleQuery) -> Sequence[str]:
        return (self._tenant, validation.GLOBAL) if query.include_global else (self._tenant,)

    def _with_triggers(self, query: ScheduleQuery) -> tuple[Collection[UUID] | None, _Check]:
        """Return the ids of the schedules whose triggers pass, None for all, and the whole check of a schedule."""
        validation.check_known("schedule status", states.SCHEDULE, query.statuses)
        validation.check_known("kind of trigger", states.TRIGGER_KINDS, query.kinds)
        is_bounded = (query.next_fire_after, query.next_fire_before) != (None, None)
        if not query.kinds and not is_bounded:
            return None, lambda row: schedule_lists.passes(query, row, None)
        ids: set[UUID] | None = None
        if query.kinds:
            of_kinds = self._triggers._each({"kind": {"$in": [*query.kinds]}}, shared=True)  # noqa: SLF001 - its own other half
            ids = {one.row.schedule_id for one in of_kinds}
        fires: _Fires = {}
        if is_bounded:
            firing = {*self._fires({"nextFireAt": schedule_lists.fire_bounds(query)})}
            ids = firing if ids is None else ids & firing
            fires = self._fires_of(ids)
        among = ids or set()
        return among, lambda row: row.id in among and schedule_lists.passes(query, row, fires.get(row.id))

    def _fires_of(self, ids: Collection[UUID]) -> _Fires:
        """Return the next fires of these schedules."""
        if len(ids) > _FEW:
            return self._fires({})
        texts = chain.from_iterable(self._spellings(Schedule, ids).values()) if ids else ()
        return self._fires({"scheduleId": {"$in": [*texts]}})

    def _fires(self, where: dict[str, Any]) -> _Fires:
        """Return the earliest next fire of each schedule that has one."""
        condition = {"nextFireAt": {"$ne": None}, "enabled": ENABLED} | where
        return schedule_lists.earliest([one.row for one in self._triggers._each(condition, shared=True)])  # noqa: SLF001 - its own other half

    def _read(self, query: ScheduleQuery, ids: Collection[UUID] | None) -> Iterator[Schedule]:
        """Yield the schedules with these ids, all if None, that are not deleted; more than pass."""
        tenants = self._tenants(query)
        if ids is not None and len(ids) <= _FEW:
            wanted = [(tenant, identity) for tenant in tenants for identity in ids]
            stored = self.found(wanted, shared=False).values()
            yield from (one.row for one in stored if one.row.deleted_at is None)
            return
        where = schedule_lists.server_filter(query)
        places: Sequence[Mapping[str, Any]] = [{}]
        if (query.created_after, query.created_before) != (None, None):
            places = [schedule_lists.created_bounds(query), {"createdAt": {"$type": "date"}}]
        for place in places:
            yield from (row for row, _ in self._of_tenants(tenants, [where, place]))
        yield from self._of_selection(tenants, where)

    def _of_tenants(
        self,
        tenants: Sequence[str],
        conditions: Sequence[Mapping[str, Any]],
        sort: Sort = (),
        batch: int | None = None,
    ) -> Generator[tuple[Schedule, Document], None, None]:
        """Yield the schedules, with their documents, that name one of these tenants and meet all conditions."""
        where = {"$and": [{"tenantId": {"$in": [*tenants]}}, *conditions]}
        for raw in self._transaction.find(self.name, where, sort=sort, batch=batch):
            stored = self.stored(raw)
            if stored is not None:
                yield stored.row, stored.document

    def _of_selection(self, tenants: Sequence[str], where: Mapping[str, Any]) -> Iterator[Schedule]:
        """Yield the schedules whose documents name a tenant in their selection alone; there are few."""
        elsewhere = {"selection.tenantId": {"$in": [*tenants]}, "tenantId": {"$nin": [*tenants]}}
        for raw in self._transaction.find(self.name, {"$and": [elsewhere, where]}):
            stored = self.stored(raw)
            if stored is not None and stored.row.tenant_id in tenants:
                yield stored.row

    def _in_order(self, query: ScheduleQuery, most: int, check: _Check) -> _Schedules:
        """Return the schedules that pass, at least the first ``most`` if there are so many, in order.

        Indexes have this order, as far as documents spell what they say alike. So documents are read until all that
        follow come after ``most`` of those that were read.
        """
        tenants, where = self._tenants(query), schedule_lists.server_filter(query)
        walk, read = schedule_lists.walk_of(query), list[tuple[schedule_lists.Key, Schedule]]()

        def place(row: Schedule) -> schedule_lists.Key:
            key = schedule_lists.sort_key(query, row, None)
            if check(row):
                read.append((key, row))
            return key

        for row in self._of_selection(tenants, where):
            place(row)
        for condition in walk.misplaced:
            for row, _ in self._of_tenants(tenants, [where, condition]):
                place(row)
        own_ids = all(self._foreign_ids.is_empty(self._transaction, self._places[0], one) for one in tenants)
        batch, highest = min(most + 1, _LARGEST_BATCH), None
        for segment in walk.segments:
            bucket = None
            with closing(self._of_tenants(tenants, [where, segment.where], segment.sort, batch)) as documents:
                for row, document in documents:
                    complete = highest if segment.bucket(row) != bucket else None
                    bucket, key = segment.bucket(row), place(row)
                    highest = key if highest is None else max(highest, key)
                    if own_ids and segment.is_exact(row, document):
                        complete = key
                    if len(read) >= most and complete is not None and sum(one <= complete for one, _ in read) >= most:
                        break
                else:
                    continue
            break
        read.sort(key=lambda one: one[0])
        return [row for _, row in read]

    def _by_fire(self, query: ScheduleQuery, most: int) -> _Schedules:
        """Return the schedules that pass, at least the first ``most`` if there are so many, by their next fire."""
        validation.check_known("schedule status", states.SCHEDULE, query.statuses)
        tenants, sign = self._tenants(query), -1 if query.descending else 1
        own_ids = all(self._foreign_ids.is_empty(self._transaction, self._places[0], one) for one in tenants)
        is_sorted = own_ids and not query.descending  # as references to schedules are, so are the schedules' ids
        sort = [("nextFireAt", sign), ("scheduleId", 1)] if is_sorted else [("nextFireAt", sign)]
        where = {"nextFireAt": schedule_lists.fire_bounds(query), "enabled": ENABLED}
        rows: _Schedules = []
        firing: set[UUID] = set()
        waiting: list[tuple[datetime, UUID]] = []
        batch = min(most + 1, _LARGEST_BATCH)
        with closing(self._triggers._each(where, sort=sort, shared=True, batch=batch)) as triggers:  # noqa: SLF001 - its own other half
            for trigger in triggers:
                at, identity = trigger.row.next_fire_at, trigger.row.schedule_id
                if at is None:
                    continue
                # A time is read whole if its triggers come in another order than the schedules.
                if len(rows) + len(waiting) >= most and (
                    at != waiting[-1][0] or (is_sorted and identity != waiting[-1][1])
                ):
                    rows += self._firing_at(query, waiting)
                    waiting = []
                    if len(rows) >= most:
                        return rows
                firing.add(identity)
                waiting.append((at, identity))
        rows += self._firing_at(query, waiting)
        if len(rows) < most and (query.next_fire_after, query.next_fire_before) == (None, None):
            without_fire = (row for row in self._read(query, None) if row.id not in firing)
            passing = (row for row in without_fire if schedule_lists.passes(query, row, None))
            rows += sorted(passing, key=lambda row: row.id)
        return rows

    def _firing_at(self, query: ScheduleQuery, triggers: Sequence[tuple[datetime, UUID]]) -> _Schedules:
        """Return the schedules that pass and of which one of the triggers is the next to fire, by fire and id."""
        ids = {identity for _, identity in triggers}
        fires = self._fires_of(ids)
        by_id: dict[UUID, _Schedules] = {}
        for row in self._read(query, ids):
            at = fires.get(row.id)
            if at is not None and schedule_lists.passes(query, row, at):
                by_id.setdefault(row.id, []).append(row)
        due = [(at, identity) for at, identity in {*triggers} if fires.get(identity) == at]
        due.sort(key=lambda one: one[1])
        due.sort(key=lambda one: one[0], reverse=query.descending)
        return [row for _, identity in due for row in by_id.get(identity, ())]


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
