"""Schedules in MongoDB.

A tenant has some thousands of them at most: lists read all of the tenant's, and filter and sort records, so that the
rules are those of the columns, whatever the documents spell.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.stellaops import names
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Stored, Strangers
from migrator.store.mongo.transaction import Transaction
from migrator.store.ports import ScheduleQuery
from migrator.values.times import to_bson

_Fires: TypeAlias = dict[UUID, datetime]
_Schedules: TypeAlias = list[Schedule]

_SORTS: dict[str, Callable[[Schedule, _Fires], Any]] = {
    "created_at": lambda row, _: row.created_at,
    "next_fire_at": lambda row, fires: fires.get(row.id),
    "name": lambda row, _: row.name,
    "priority": lambda row, _: rules.DEFAULT_PRIORITY if row.priority is None else row.priority,
}

ENABLED = {"$ne": False}
"""A trigger without the field is enabled."""


class MongoSchedules(Repository[Schedule]):
    """``ports.Schedules``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(Schedule, transaction, strangers, tenant, now)
        self._triggers = self._of(Trigger)

    def get(self, schedule_id: UUID) -> Schedule | None:
        """Return the schedule."""
        found = self._visible(schedule_id)
        return None if found is None or found.deleted_at is not None else found

    def by_name(self, name: str) -> Schedule | None:
        """Return the tenant's schedule with this name, else the global one."""
        found = [one.row for one in self._each({"name": name, "deletedAt": None}, shared=True)]
        return min(found, key=lambda row: (row.tenant_id == rules.GLOBAL, row.id), default=None)

    def list(self, query: ScheduleQuery) -> Sequence[Schedule]:
        """Return the schedules that pass every filter."""
        rules.page(query.limit, query.offset)
        rules.known("order of schedules", _SORTS, (query.sort_by,))
        rows, fires = self._passing(query)
        rows.sort(key=lambda row: row.id)
        value = _SORTS[query.sort_by]
        said = [row for row in rows if value(row, fires) is not None]
        unsaid = [row for row in rows if value(row, fires) is None]
        said.sort(key=lambda row: value(row, fires), reverse=query.descending)
        return (said + unsaid)[query.offset : query.offset + query.limit]

    def count(self, query: ScheduleQuery) -> int:
        """Return how many pass, whatever ``limit`` and ``offset``."""
        return len(self._passing(query)[0])

    def upsert(self, schedule: Schedule) -> Schedule:
        """Insert, or replace all columns of the one with this id; raises ``ConflictError`` for a name that is taken."""
        schedule = rules.written(schedule, self._tenant)
        stored = self._find(schedule.id)
        if stored is None:
            row = msgspec.structs.replace(
                schedule,
                created_at=schedule.created_at or self._now,
                updated_at=schedule.updated_at or self._now,
            )
            document, read = self._new(row)
            self._check_name(row, document["_id"])
            self._transaction.insert(self._name, [document])
            return read
        if stored.row.deleted_at is not None:
            raise ConflictError("the id is that of a deleted schedule")
        kept = msgspec.structs.replace(
            schedule, created_at=stored.row.created_at or schedule.created_at, extra=stored.row.extra
        )
        return self._write(stored, rules.precise(kept, stored.row))

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        """Compare-and-set: write the status (and ``changes``) if it is ``expected`` now; none if it is not."""
        rules.transition("schedule", expected, status)
        rules.changes_of(changes)
        stored = self._find(schedule_id)
        if stored is None or stored.row.deleted_at is not None or stored.row.status != expected:
            return None
        return self._change(stored, changes | {"status": status})

    def change(self, schedule_id: UUID, **changes: Any) -> Schedule | None:  # noqa: ANN401 - as above
        """Write these columns and no other, whatever the status; none where there is no such schedule."""
        rules.changes_of(changes)
        stored = self._find(schedule_id)
        return None if stored is None or stored.row.deleted_at is not None else self._change(stored, changes)

    def _change(self, stored: Stored[Schedule], changes: dict[str, Any]) -> Schedule:
        changed = msgspec.structs.replace(stored.row, **{"updated_at": self._now} | changes)
        return self._write(stored, rules.precise(rules.written(changed, self._tenant), stored.row))

    def soft_delete(self, schedule_id: UUID, by: str) -> bool:
        """Mark deleted, its triggers disabled; false when there is none, or was deleted before."""
        stored = self._find(schedule_id)
        if stored is None or stored.row.deleted_at is not None:
            return False
        self._replace(stored, msgspec.structs.replace(stored.row, deleted_at=self._now, deleted_by=by))
        of_it = {"tenantId": self._tenant, "scheduleId": self._refers(Schedule, schedule_id), "enabled": ENABLED}
        self._transaction.change(names.TRIGGERS, of_it, {"$set": {"enabled": False}})
        return True

    def due(self, limit: int) -> Sequence[Schedule]:
        """Return enabled schedules in status scheduled with an enabled trigger whose next fire is not after now."""
        rules.page(limit)
        fires = self._fires({"nextFireAt": {"$lte": to_bson(self._now)}})
        found: _Schedules = []
        ordered = sorted(fires.items(), key=lambda one: (one[1], one[0]))
        for identity, _ in ordered:
            stored = self._find(identity)
            row = None if stored is None else stored.row
            if row is not None and row.enabled and row.status == "scheduled" and row.deleted_at is None:
                found.append(row)
                if len(found) == limit:
                    break
        return found

    def _write(self, stored: Stored[Schedule], row: Schedule) -> Schedule:
        document, read = self._changed(stored, row)
        if row.name != stored.row.name:
            self._check_name(row, document["_id"])
        self._transaction.replace(self._name, document)
        return read

    def _check_name(self, row: Schedule, key: object) -> None:
        taken = self._each({"name": row.name, "deletedAt": None, "_id": {"$ne": key}})
        if next(taken, None) is not None:
            raise ConflictError("the name of a schedule is taken")

    def _passing(self, query: ScheduleQuery) -> tuple[_Schedules, _Fires]:
        rules.known("schedule status", states.SCHEDULE, query.statuses)
        rules.known("kind of trigger", states.TRIGGER_KINDS, query.kinds)
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
        for one in self._triggers._each(condition, shared=True):  # noqa: SLF001 - its own other half
            at = one.row.next_fire_at
            if at is not None and at < fires.get(one.row.schedule_id, datetime.max.replace(tzinfo=at.tzinfo)):
                fires[one.row.schedule_id] = at
        return fires


def _passes(query: ScheduleQuery, row: Schedule, fire: datetime | None) -> bool:
    tags = set(row.tags or ())
    return (
        (not query.statuses or row.status in query.statuses)
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
