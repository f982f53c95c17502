"""Triggers in MongoDB."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from migrator.errors import UsageError
from migrator.records.base import Record
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.sources.profile import Context
from migrator.sources.stellaops import names
from migrator.sources.stellaops.own import COPY_OF, is_copy
from migrator.sources.stellaops.schedules import is_carried
from migrator.store import rules
from migrator.store.mongo.repository import Repository, Strangers
from migrator.store.mongo.schedules import ENABLED
from migrator.store.mongo.transaction import Transaction

_MAY_RUN = ("pending", "scheduled", "running")


class MongoTriggers(Repository[Trigger]):
    """``ports.Triggers``."""

    def __init__(self, transaction: Transaction, strangers: Strangers, tenant: str, now: datetime) -> None:
        super().__init__(Trigger, transaction, strangers, tenant, now)
        self._schedules = self._of(Schedule)

    def get(self, trigger_id: UUID) -> Trigger | None:
        """Return the trigger."""
        return self._visible(trigger_id)

    def of_schedule(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return a schedule's triggers, by id."""
        found = self._each({"scheduleId": self._refers(Schedule, schedule_id)}, shared=True)
        return sorted((one.row for one in found), key=lambda row: row.id)

    def held(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return the tenant's own triggers of a schedule, by id.

        Who writes one of them before the session ends makes the session's own write of it a ``ConflictError``.
        """
        return [one for one in self.of_schedule(schedule_id) if one.tenant_id == self._tenant]

    def of_schedules(self, schedule_ids: Sequence[UUID]) -> Sequence[Trigger]:
        """Return the triggers of several schedules at once, by schedule, then by id."""
        texts = [text for identity in schedule_ids for text in self._texts(Schedule, identity)]
        found = self._each({"scheduleId": {"$in": texts}}, shared=True)
        return sorted((one.row for one in found), key=lambda row: (row.schedule_id, row.id))

    def of_event(self, event: str) -> Sequence[Trigger]:
        """Return enabled event triggers of this tenant and of ``*`` for an event, of schedules that may run."""
        found: list[tuple[int, UUID, Trigger]] = []
        for one in self._each({"kind": "event", "eventName": event, "enabled": ENABLED}, shared=True):
            schedule = self._schedules._visible(one.row.schedule_id)  # noqa: SLF001 - its own other half
            if schedule is None or not schedule.enabled or schedule.deleted_at is not None:
                continue
            if schedule.status in _MAY_RUN:
                priority = rules.DEFAULT_PRIORITY if schedule.priority is None else schedule.priority
                found.append((-priority, one.row.id, one.row))
        return [row for *_, row in sorted(found, key=lambda entry: entry[:2])]

    def upsert(self, trigger: Trigger) -> Trigger:
        """Insert, or replace all columns of the one with this id."""
        trigger = rules.written(trigger, self._tenant)
        self._require(Schedule, trigger.schedule_id)
        stored = self._find(trigger.id)
        if stored is None:
            return self._insert(trigger)
        if stored.row.schedule_id != trigger.schedule_id:
            raise UsageError("a trigger stays with its schedule")
        kept = rules.precise(msgspec.structs.replace(trigger, extra=stored.row.extra), stored.row)
        if is_copy(stored.document):
            said = self._say(stored.row.schedule_id, kept)
            marked = {name: value for name, value in stored.document.items() if name != COPY_OF}
            stored.document = marked | ({COPY_OF: names.SCHEDULES} if said else {})
        return self._replace(stored, kept)

    def _say(self, schedule_id: UUID, trigger: Trigger | None) -> bool:
        """Write the rule of a trigger, or that there is none, into the schedule's own document.

        False where that document cannot say it, and the trigger stands by itself from now on.
        """
        found = self._schedules._find(schedule_id)  # noqa: SLF001 - its own other half
        if found is None:
            return False
        collection = found.place.collection
        before = collection.decode(found.document, Context(as_of=self._now)).rows
        after: tuple[Record, ...] = before[:1]
        if trigger is not None:
            of_it = {"source": found.row.source, "source_id": found.row.source_id}
            after = (before[0], msgspec.structs.replace(trigger, **of_it))
        document = dict(found.document)
        former, present = collection.encode(before), collection.encode(after)
        for name in former.keys() | present.keys():
            if name not in present:
                document.pop(name, None)
            elif former.get(name) != present[name]:
                document[name] = present[name]
        if document != found.document:
            self._transaction.replace(found.place.name, document)
        return trigger is not None and is_carried(trigger)

    def move(self, trigger_id: UUID, expected: datetime | None, next_fire_at: datetime | None) -> bool:
        """Compare-and-set: write the next fire, and nothing else, if it is ``expected`` now."""
        stored = self._find(trigger_id)
        if stored is None or stored.row.next_fire_at != expected:
            return False
        moved = rules.written(msgspec.structs.replace(stored.row, next_fire_at=next_fire_at), self._tenant)
        self._replace(stored, rules.precise(moved, stored.row))
        return True

    def delete_of_schedule(self, schedule_id: UUID) -> int:
        """Remove a schedule's triggers; returns how many. Runs keep their rows, without the trigger."""
        found = list(self._each({"scheduleId": self._refers(Schedule, schedule_id)}))
        if any(is_copy(one.document) for one in found):
            self._say(schedule_id, None)
        keys = [one.document["_id"] for one in found]
        rows = {"tenantId": self._tenant, "triggerId": {"$in": keys}}
        self._transaction.change(names.RUNS, rows, {"$unset": {"triggerId": ""}})
        return self._transaction.delete(self._name, {"_id": {"$in": keys}})
