"""Triggers in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.errors import UsageError
from migrator.records.trigger import Trigger
from migrator.store import rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.repository import Repository

_OF_EVENT = """
SELECT {columns} FROM scheduler.triggers AS t
JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
WHERE t.kind = 'event' AND t.event_name = %(event)s AND t.enabled AND t.tenant_id IN (%(tenant)s, %(all)s)
  AND s.enabled AND s.deleted_at IS NULL AND s.status IN ('pending', 'scheduled', 'running')
ORDER BY coalesce(s.priority, %(priority)s) DESC, t.id
"""


class PostgresTriggers(Repository[Trigger]):
    """``ports.Triggers``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(Trigger, connection, tenant, now)

    def get(self, trigger_id: UUID) -> Trigger | None:
        """Return the trigger."""
        return self._visible(trigger_id)

    def of_schedule(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return a schedule's triggers, by id."""
        query = self._table.select + sql.SQL("WHERE schedule_id = %s AND tenant_id IN (%s, %s) ORDER BY id")
        return self._many(query, (schedule_id, self._tenant, rules.GLOBAL))

    def held(self, schedule_id: UUID) -> Sequence[Trigger]:
        """Return the tenant's own triggers of a schedule, by id; nobody else writes them before the session ends."""
        query = self._table.select + sql.SQL("WHERE schedule_id = %s AND tenant_id = %s ORDER BY id FOR UPDATE")
        return self._many(query, (schedule_id, self._tenant))

    def of_schedules(self, schedule_ids: Sequence[UUID]) -> Sequence[Trigger]:
        """Return the triggers of several schedules at once, by schedule, then by id."""
        query = self._table.select + sql.SQL(
            "WHERE schedule_id = ANY(%s) AND tenant_id IN (%s, %s) ORDER BY schedule_id, id"
        )
        return self._many(query, (list(schedule_ids), self._tenant, rules.GLOBAL))

    def of_event(self, event: str) -> Sequence[Trigger]:
        """Return enabled event triggers of this tenant and of ``*`` for an event, of schedules that may run."""
        query = sql.SQL(_OF_EVENT).format(columns=self._table.qualified("t"))
        priority = rules.DEFAULT_PRIORITY
        return self._many(query, {"event": event, "tenant": self._tenant, "all": rules.GLOBAL, "priority": priority})

    def upsert(self, trigger: Trigger) -> Trigger:
        """Insert, or replace all columns of the one with this id."""
        trigger = rules.written(trigger, self._tenant)
        self._require("schedules", trigger.schedule_id)
        stored = self._held(trigger.id)
        if stored is None:
            return self._insert(msgspec.structs.replace(trigger, source=None, source_id=None))
        if stored.schedule_id != trigger.schedule_id:
            raise UsageError("a trigger stays with its schedule")
        replaced = self._replace(rules.precise(trigger, stored))
        assert replaced is not None  # noqa: S101 - its row is locked
        return replaced

    def move(self, trigger_id: UUID, expected: datetime | None, next_fire_at: datetime | None) -> bool:
        """Compare-and-set: write the next fire, and nothing else, if it is ``expected`` now."""
        stored = self._held(trigger_id)
        if stored is None or stored.next_fire_at != expected:
            return False
        moved = rules.written(msgspec.structs.replace(stored, next_fire_at=next_fire_at), self._tenant)
        return self._replace(rules.precise(moved, stored)) is not None

    def delete_of_schedule(self, schedule_id: UUID) -> int:
        """Remove a schedule's triggers; returns how many. Runs keep their rows, without the trigger."""
        self._connection.execute(
            "UPDATE scheduler.runs SET trigger_id = NULL WHERE tenant_id = %(tenant)s AND trigger_id IN"
            " (SELECT id FROM scheduler.triggers WHERE schedule_id = %(schedule)s AND tenant_id = %(tenant)s)",
            {"schedule": schedule_id, "tenant": self._tenant},
        )
        return self._connection.execute(
            "DELETE FROM scheduler.triggers WHERE schedule_id = %s AND tenant_id = %s", (schedule_id, self._tenant)
        ).rowcount
