"""Schedules and triggers of the model."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import ConflictError, UsageError
from migrator.records import Run, Schedule, Trigger
from migrator.store import validation
from migrator.store.protocols import ScheduleQuery
from migrator.testing.memory.table import MemoryTable, microseconds

MAY_RUN = {"pending", "scheduled", "running"}


class MemorySchedules(MemoryTable[Schedule]):
    """``protocols.Schedules``."""

    def get(self, schedule_id: UUID) -> Schedule | None:
        row = self._visible(schedule_id)
        return row if row is not None and row.deleted_at is None else None

    def by_name(self, name: str) -> Schedule | None:
        found = [row for row in self._all(shared=True) if row.name == name and row.deleted_at is None]
        return min(
            found, key=lambda row: (row.tenant_id == validation.GLOBAL, row.source is not None, row.id), default=None
        )

    def called(self, text: str) -> Sequence[Schedule]:
        validation.check_text("a name", text)
        found = [row for row in self._all() if text in {row.name, row.source_id} and row.deleted_at is None]
        return sorted(found, key=lambda row: row.id)

    def list(self, query: ScheduleQuery) -> Sequence[Schedule]:
        validation.check_page(query.limit, query.offset)
        schedules = sorted(self._passing(query), key=lambda row: row.id)
        with_value = [row for row in schedules if self._sort_value(row, query) is not None]
        with_value.sort(key=lambda row: self._sort_value(row, query), reverse=query.descending)
        without = [row for row in schedules if self._sort_value(row, query) is None]
        return [*with_value, *without][query.offset : query.offset + query.limit]

    def count(self, query: ScheduleQuery) -> int:
        return len(self._passing(query))

    def upsert(self, schedule: Schedule) -> Schedule:
        schedule = validation.checked_record(schedule, self._tenant)
        stored = self._own(schedule.id)
        if stored is not None and stored.deleted_at is not None:
            raise ConflictError("the id is that of a deleted schedule")
        if stored is None or stored.source is None:
            self._free(schedule)
        if stored is None:
            now = self._now
            return self._insert(
                msgspec.structs.replace(
                    schedule, created_at=schedule.created_at or now, updated_at=schedule.updated_at or now
                )
            )
        created = stored.created_at or schedule.created_at
        return self._replace(msgspec.structs.replace(schedule, created_at=created), stored)

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        validation.check_transition("schedule", expected, status)
        validation.check_changes(changes)
        stored = self._own(schedule_id)
        if stored is None or stored.deleted_at is not None or stored.status != expected:
            return None
        return self._change(stored, changes | {"status": status})

    def change(self, schedule_id: UUID, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        validation.check_changes(changes)
        stored = self._own(schedule_id)
        return None if stored is None or stored.deleted_at is not None else self._change(stored, changes)

    def _change(self, stored: Schedule, changes: dict[str, Any]) -> Schedule:
        changed = msgspec.structs.replace(stored, **({"updated_at": self._now} | changes))
        changed = validation.checked_record(changed, self._tenant)
        if stored.source is None:
            self._free(changed)
        return self._replace(changed, stored)

    def soft_delete(self, schedule_id: UUID, by: str) -> bool:
        stored = self._own(schedule_id)
        if stored is None or stored.deleted_at is not None:
            return False
        self._rows[schedule_id] = msgspec.structs.replace(stored, deleted_at=self._now, deleted_by=by)
        for trigger in self._triggers(schedule_id):
            self._tables[Trigger][trigger.id] = msgspec.structs.replace(trigger, enabled=False)
        return True

    def due(self, limit: int) -> Sequence[Schedule]:
        validation.check_page(limit)
        due = []
        for row in self._all():
            fire = self._next_fire(row.id)
            if row.enabled and row.status == "scheduled" and row.deleted_at is None and fire and fire <= self._now:
                due.append((fire, row.id, row))
        return [row for *_, row in sorted(due, key=lambda item: item[:2])][:limit]

    def _free(self, schedule: Schedule) -> None:
        for row in self._all():
            if row.name == schedule.name and row.id != schedule.id and row.source is None and row.deleted_at is None:
                raise ConflictError("the name of a schedule is taken")

    def _triggers(self, schedule_id: UUID) -> Sequence[Trigger]:
        return [trigger for trigger in self._tables[Trigger].values() if trigger.schedule_id == schedule_id]

    def _next_fire(self, schedule_id: UUID) -> datetime | None:
        fires = [trigger.next_fire_at for trigger in self._triggers(schedule_id) if trigger.enabled]
        return min((fire for fire in fires if fire is not None), default=None)

    def _sort_value(self, row: Schedule, query: ScheduleQuery) -> Any:  # noqa: ANN401 - one type per column
        if query.sort_by == "priority":
            return validation.DEFAULT_PRIORITY if row.priority is None else row.priority
        value = self._next_fire(row.id) if query.sort_by == "next_fire_at" else getattr(row, query.sort_by)
        return microseconds(value) if isinstance(value, datetime) else value

    def _passing(self, query: ScheduleQuery) -> Sequence[Schedule]:
        validation.check_known("schedule status", states.SCHEDULE, query.statuses)
        validation.check_known("kind of trigger", states.TRIGGER_KINDS, query.kinds)
        validation.check_known(
            "order of schedules", ("created_at", "next_fire_at", "name", "priority"), (query.sort_by,)
        )
        return [row for row in self._all(shared=query.include_global) if self._passes(row, query)]

    def _passes(self, row: Schedule, query: ScheduleQuery) -> bool:
        tags = set(row.tags or ())
        fire = self._next_fire(row.id)
        return (
            row.deleted_at is None
            and (not query.statuses or row.status in query.statuses)
            and (not query.kinds or any(trigger.kind in query.kinds for trigger in self._triggers(row.id)))
            and (not query.handlers or row.handler_name in query.handlers)
            and (query.enabled is None or row.enabled == query.enabled)
            and (not query.tags_any or bool(tags & set(query.tags_any)))
            and (not query.tags_all or tags >= set(query.tags_all))
            and between(row.created_at, query.created_after, query.created_before)
            and between(fire, query.next_fire_after, query.next_fire_before)
            and (query.name_contains is None or query.name_contains.lower() in row.name.lower())
            and (query.created_by is None or row.created_by == query.created_by)
        )


class MemoryTriggers(MemoryTable[Trigger]):
    """``protocols.Triggers``."""

    def get(self, trigger_id: UUID) -> Trigger | None:
        return self._visible(trigger_id)

    def of_schedule(self, schedule_id: UUID) -> Sequence[Trigger]:
        found = [row for row in self._all(shared=True) if row.schedule_id == schedule_id]
        return sorted(found, key=lambda row: row.id)

    def held(self, schedule_id: UUID) -> Sequence[Trigger]:
        return sorted((row for row in self._all() if row.schedule_id == schedule_id), key=lambda row: row.id)

    def of_schedules(self, schedule_ids: Sequence[UUID]) -> Sequence[Trigger]:
        found = [row for row in self._all(shared=True) if row.schedule_id in schedule_ids]
        return sorted(found, key=lambda row: (row.schedule_id, row.id))

    def of_event(self, event: str) -> Sequence[Trigger]:
        triggers = []
        for row in self._all(shared=True):
            of: Schedule = self._tables[Schedule][row.schedule_id]
            may_run = of.enabled and of.deleted_at is None and of.status in MAY_RUN
            if row.enabled and row.kind == "event" and row.event_name == event and may_run:
                triggers.append((-(validation.DEFAULT_PRIORITY if of.priority is None else of.priority), row.id, row))
        return [row for *_, row in sorted(triggers, key=lambda item: item[:2])]

    def upsert(self, trigger: Trigger) -> Trigger:
        trigger = validation.checked_record(trigger, self._tenant)
        self._require(Schedule, trigger.schedule_id)
        stored = self._own(trigger.id)
        if stored is None:
            return self._insert(trigger)
        if stored.schedule_id != trigger.schedule_id:
            raise UsageError("a trigger stays with its schedule")
        return self._replace(trigger, stored)

    def move(self, trigger_id: UUID, expected: datetime | None, next_fire_at: datetime | None) -> bool:
        stored = self._own(trigger_id)
        if stored is None or stored.next_fire_at != expected:
            return False
        moved = validation.checked_record(msgspec.structs.replace(stored, next_fire_at=next_fire_at), self._tenant)
        self._replace(validation.with_stored_precision(moved, stored), stored)
        return True

    def delete_of_schedule(self, schedule_id: UUID) -> int:
        removed = [row.id for row in self._all() if row.schedule_id == schedule_id]
        for identity in removed:
            del self._rows[identity]
        for run in list(self._tables[Run].values()):
            if run.trigger_id in removed:
                self._tables[Run][run.id] = msgspec.structs.replace(run, trigger_id=None)
        return len(removed)


def between(value: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    """Whether a time lies between two exclusive bounds; no time lies between any."""
    if after is None and before is None:
        return True
    return value is not None and (after is None or value > after) and (before is None or value < before)
