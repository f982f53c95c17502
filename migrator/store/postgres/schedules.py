"""Schedules in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString, TypeAlias
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import states
from migrator.errors import ConflictError
from migrator.records.schedule import Schedule
from migrator.store import rules
from migrator.store.ports import ScheduleQuery
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.repository import Query, Repository

_Ids: TypeAlias = list[UUID]

_SORTS: dict[str, LiteralString] = {
    "created_at": "s.created_at",
    "next_fire_at": "fire.next_fire_at",
    "name": 's.name COLLATE "C"',
    "priority": f"coalesce(s.priority, {rules.DEFAULT_PRIORITY})",
}

_FIRE = """
LEFT JOIN LATERAL (
    SELECT min(next_fire_at) AS next_fire_at FROM scheduler.triggers
    WHERE schedule_id = s.id AND tenant_id = s.tenant_id AND enabled AND next_fire_at IS NOT NULL
) AS fire ON true
"""

_FILTERS: dict[str, LiteralString] = {
    "statuses": "s.status = ANY(%(statuses)s)",
    "kinds": "EXISTS (SELECT FROM scheduler.triggers AS t WHERE t.schedule_id = s.id AND t.kind = ANY(%(kinds)s))",
    "enabled": "s.enabled = %(enabled)s",
    "tags_any": "s.tags && %(tags_any)s",
    "tags_all": "s.tags @> %(tags_all)s",
    "created_after": "s.created_at > %(created_after)s",
    "created_before": "s.created_at < %(created_before)s",
    "next_fire_after": "fire.next_fire_at > %(next_fire_after)s",
    "next_fire_before": "fire.next_fire_at < %(next_fire_before)s",
    "created_by": "s.created_by = %(created_by)s",
}

# Of a schedule's triggers that are due only the earliest counts. Written so, and not as a minimum over groups, the
# rows come in their order from ix_triggers_due, and the query ends at its limit.
DUE = """
SELECT {columns} FROM scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id
WHERE t.tenant_id = %(tenant)s AND t.enabled AND t.next_fire_at <= %(now)s
  AND s.tenant_id = %(tenant)s AND s.enabled AND s.status = 'scheduled' AND s.deleted_at IS NULL
  AND NOT EXISTS (
    SELECT FROM scheduler.triggers AS earlier
    WHERE earlier.schedule_id = t.schedule_id AND earlier.enabled
      AND (earlier.next_fire_at, earlier.id) < (t.next_fire_at, t.id)
  )
ORDER BY t.next_fire_at, s.id LIMIT %(limit)s
"""


class PostgresSchedules(Repository[Schedule]):
    """``ports.Schedules``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(Schedule, connection, tenant, now)

    def get(self, schedule_id: UUID) -> Schedule | None:
        """Return the schedule."""
        query = self._table.select + sql.SQL("WHERE id = %s AND tenant_id IN (%s, %s) AND deleted_at IS NULL")
        return self._one(query, (schedule_id, self._tenant, rules.GLOBAL))

    def by_name(self, name: str) -> Schedule | None:
        """Return the schedule born here with this name."""
        query = self._table.select + sql.SQL(
            "WHERE tenant_id IN (%s, %s) AND name = %s AND source IS NULL AND deleted_at IS NULL"
            " ORDER BY tenant_id = %s LIMIT 1"
        )
        return self._one(query, (self._tenant, rules.GLOBAL, name, rules.GLOBAL))

    def list(self, query: ScheduleQuery) -> Sequence[Schedule]:
        """Return the schedules that pass every filter."""
        rules.page(query.limit, query.offset)
        source, parameters = self._source(query)
        order = _order(query)
        if query.name_contains is not None:
            named = self._named(query, order)
            return self._of_ids(named[query.offset : query.offset + query.limit])
        return self._many(
            sql.SQL("SELECT {} {} ORDER BY {} LIMIT %(limit)s OFFSET %(offset)s").format(
                self._table.qualified("s"), source, order
            ),
            parameters,
        )

    def count(self, query: ScheduleQuery) -> int:
        """Return how many pass, whatever ``limit`` and ``offset``."""
        if query.name_contains is not None:
            return len(self._named(query, sql.SQL("s.id")))
        source, parameters = self._source(query)
        return int(self._value(sql.SQL("SELECT count(*) {}").format(source), parameters))

    def upsert(self, schedule: Schedule) -> Schedule:
        """Insert, or replace all columns of the one with this id; raises ``ConflictError`` for a name that is taken."""
        schedule = rules.written(schedule, self._tenant)
        stored = self._held(schedule.id)
        if stored is None:
            return self._insert(
                msgspec.structs.replace(
                    schedule,
                    source=None,
                    source_id=None,
                    created_at=schedule.created_at or self._now,
                    updated_at=schedule.updated_at or self._now,
                )
            )
        if stored.deleted_at is not None:
            raise ConflictError("the id is that of a deleted schedule")
        kept = msgspec.structs.replace(schedule, created_at=stored.created_at or schedule.created_at)
        replaced = self._replace(rules.precise(kept, stored))
        assert replaced is not None  # noqa: S101 - its row is locked
        return replaced

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        """Compare-and-set: write the status (and ``changes``) if it is ``expected`` now; none if it is not."""
        rules.transition("schedule", expected, status)
        rules.changes_of(changes)
        stored = self._held(schedule_id)
        if stored is None or stored.deleted_at is not None or stored.status != expected:
            return None
        changes = {"updated_at": self._now} | changes | {"status": status}
        changed = rules.written(msgspec.structs.replace(stored, **changes), self._tenant)
        query = sql.SQL("UPDATE scheduler.schedules SET {} WHERE id = %s RETURNING {}").format(
            sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in changes),
            self._table.columns,
        )
        with self.refusing():
            return self._one(
                query, [*(self._table.value(name, getattr(changed, name)) for name in changes), schedule_id]
            )

    def soft_delete(self, schedule_id: UUID, by: str) -> bool:
        """Mark deleted, its triggers disabled; false when there is none, or was deleted before."""
        found = self._value(
            "UPDATE scheduler.schedules SET deleted_at = %s, deleted_by = %s"
            " WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL RETURNING true",
            (self._now, by, schedule_id, self._tenant),
        )
        if found is None:
            return False
        self._connection.execute(
            "UPDATE scheduler.triggers SET enabled = false WHERE schedule_id = %s AND tenant_id = %s AND enabled",
            (schedule_id, self._tenant),
        )
        return True

    def due(self, limit: int) -> Sequence[Schedule]:
        """Return enabled schedules in status scheduled with an enabled trigger whose next fire is not after now."""
        rules.page(limit)
        query = sql.SQL(DUE).format(columns=self._table.qualified("s"))
        return self._many(query, {"tenant": self._tenant, "now": self._now, "limit": limit})

    def _source(self, query: ScheduleQuery) -> tuple[Query, dict[str, Any]]:
        """Return FROM and WHERE of a query, but for the name, and the parameters."""
        rules.known("schedule status", states.SCHEDULE, query.statuses)
        rules.known("kind of trigger", states.TRIGGER_KINDS, query.kinds)
        given = {name: value for name in _FILTERS if (value := getattr(query, name)) not in (None, ())}
        parts = ["s.tenant_id = ANY(%(tenants)s)", "s.deleted_at IS NULL", *(_FILTERS[name] for name in given)]
        fire = _FIRE if query.sort_by == "next_fire_at" or any("fire." in part for part in parts) else ""
        tenants = [self._tenant, rules.GLOBAL] if query.include_global else [self._tenant]
        parameters = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        source = "FROM scheduler.schedules AS s " + fire + " WHERE " + " AND ".join(parts)
        bounds = {"tenants": tenants, "limit": query.limit, "offset": query.offset}
        return sql.SQL(source), parameters | bounds

    def _named(self, query: ScheduleQuery, order: Query) -> _Ids:
        """Return the ids of schedules whose name holds a part, by Python's rules for case, not a collation's."""
        source, parameters = self._source(query)
        wanted = (query.name_contains or "").lower()
        rows = self._connection.execute(sql.SQL("SELECT s.id, s.name {} ORDER BY {}").format(source, order), parameters)
        return [identity for identity, name in rows if wanted in name.lower()]

    def _of_ids(self, ids: _Ids) -> Sequence[Schedule]:
        found = {row.id: row for row in self._many(self._table.select + sql.SQL("WHERE id = ANY(%s)"), (ids,))}
        return [found[identity] for identity in ids]


def _order(query: ScheduleQuery) -> Query:
    rules.known("order of schedules", _SORTS, (query.sort_by,))
    direction = "DESC" if query.descending else "ASC"
    return sql.SQL(f"{_SORTS[query.sort_by]} {direction} NULLS LAST, s.id")
