"""Schedules, their triggers, and handlers in PostgreSQL."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any, Final, LiteralString, TypeAlias
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import states
from migrator.connections.postgres import Connection
from migrator.errors import ConflictError, UsageError
from migrator.records import Handler, Schedule, Trigger
from migrator.store import validation
from migrator.store.postgres import parallel_run
from migrator.store.postgres.parallel_firing import plan_first
from migrator.store.postgres.repository import Query, Repository
from migrator.store.postgres.wakeups import Written
from migrator.store.protocols import ScheduleQuery
from migrator.store.wakeups import is_due, is_let_go

_Key: TypeAlias = tuple[UUID, str]
"""The id and the tenant of a schedule."""
_Keys: TypeAlias = list[_Key]

_SORTS: dict[str, LiteralString] = {
    "created_at": "s.created_at",
    "next_fire_at": "fire.next_fire_at",
    "name": 's.name COLLATE "C"',
    "priority": f"coalesce(s.priority, {validation.DEFAULT_PRIORITY})",
}

_FIRE = """
LEFT JOIN LATERAL (
    SELECT min(next_fire_at) AS next_fire_at FROM scheduler.triggers
    WHERE schedule_id = s.id AND tenant_id = s.tenant_id AND enabled AND next_fire_at IS NOT NULL
) AS fire ON true
"""

_FILTERS: dict[str, LiteralString] = {
    "statuses": "s.status = ANY(%(statuses)s)",
    # Not EXISTS, which the planner may turn into a join with all triggers.
    "kinds": (
        "ARRAY(SELECT t.kind FROM scheduler.triggers AS t WHERE t.schedule_id = s.id AND t.tenant_id = s.tenant_id)"
        " && %(kinds)s"
    ),
    "handlers": "s.handler_name = ANY(%(handlers)s)",
    "enabled": "s.enabled = %(enabled)s",
    "tags_any": "s.tags && %(tags_any)s",
    "tags_all": "s.tags @> %(tags_all)s",
    "created_after": "s.created_at > %(created_after)s",
    "created_before": "s.created_at < %(created_before)s",
    "next_fire_after": "fire.next_fire_at > %(next_fire_after)s",
    "next_fire_before": "fire.next_fire_at < %(next_fire_before)s",
    "created_by": "s.created_by = %(created_by)s",
}

# Ids of schedules from an index that a query on schedules cannot use. Each row is looked up by its id (OFFSET 0 keeps
# the planner from joining otherwise). A row of the tenant and one of * may have the same id, so the filter is applied
# again.
_LOOKED_UP: LiteralString = """FROM (SELECT DISTINCT id FROM {}) AS ids CROSS JOIN LATERAL (
    SELECT * FROM scheduler.schedules WHERE id = ids.id AND tenant_id IN (%(tenant)s, '*') OFFSET 0
) AS s
"""
_BY_TAGS: dict[str, LiteralString] = {
    # The functions use the index on tags, which row-level security bars. The narrower one first.
    "tags_all": "scheduler.schedules_with_every_tag(%(tags_all)s::text[]) AS id",
    "tags_any": "scheduler.schedules_with_any_tag(%(tags_any)s::text[]) AS id",
}
_OF_TRIGGERS: LiteralString = "(SELECT t.schedule_id FROM scheduler.triggers AS t WHERE {}) AS of_triggers (id)"
_BY_KIND: LiteralString = "t.kind = ANY(%(kinds)s)"  # ix_triggers_kind
_BY_FIRE: dict[str, LiteralString] = {  # ix_triggers_next
    "next_fire_after": "t.enabled AND t.next_fire_at > %(next_fire_after)s",
    "next_fire_before": "t.enabled AND t.next_fire_at < %(next_fire_before)s",
}
_INDEXED: Final = frozenset({"tags_any", "tags_all", "handlers", "created_by", "created_after", "created_before"})
"""Filters that have an index on schedules: what passes them is read, and no more."""

# A page of triggers that fire, in the order of ix_triggers_next, one after the other: the planner takes the store's
# condition on the tenant and that of row-level security for independent, expects few rows, and would sort them all.
_FIRES: LiteralString = """
WITH RECURSIVE walk AS (
    (SELECT {columns} FROM scheduler.triggers AS t WHERE {firing}{bounds}{beyond} ORDER BY {order} LIMIT 1)
    UNION ALL
    SELECT next.* FROM walk CROSS JOIN LATERAL (
        SELECT {columns} FROM scheduler.triggers AS t WHERE {firing}{bounds}
            AND (t.next_fire_at, t.id) {compared} (walk.next_fire_at, walk.id)
        ORDER BY {order} LIMIT 1
    ) AS next
)
SELECT * FROM walk LIMIT %(page)s
"""
_LARGEST_PAGE: Final = 5_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# A page of due triggers, in their order from ix_triggers_next. Not one query with the schedules: the planner takes the
# store's condition on the tenant and that of row-level security for independent, expects few rows, and reads them all.
_DUE: LiteralString = """
SELECT schedule_id, next_fire_at, id FROM scheduler.triggers
WHERE tenant_id = %(tenant)s AND enabled AND next_fire_at <= %(now)s {}
ORDER BY next_fire_at, schedule_id, id LIMIT %(page)s
"""
_AFTER = "AND next_fire_at >= %(from)s AND (next_fire_at, schedule_id, id) > (%(from)s, %(schedule)s, %(trigger)s)"
_MAY_FIRE = "WHERE id = ANY(%s) AND tenant_id = %s AND enabled AND status = 'scheduled' AND deleted_at IS NULL"
_PAGE = 100
_OF_STATE = {"enabled", "paused_at", "retry_count", "updated_at", "updated_by"}
"""Columns of a schedule that say nothing about what it does."""
_RULE = (
    *("kind", "cron_expression", "cron_dialect", "timezone", "interval_ms", "anchor", "run_at", "event_name"),
    *("start_at", "end_at", "max_fires"),
)
"""Columns of a trigger that say when it fires."""


class PostgresSchedules(Repository[Schedule]):
    """``protocols.Schedules``."""

    _record = Schedule

    def __init__(self, connection: Connection, tenant: str, now: datetime, written: Written) -> None:
        """``written`` takes the ids of the schedules whose definition the session writes, and whether one may run."""
        super().__init__(connection, tenant, now)
        self._written = written

    def get(self, schedule_id: UUID) -> Schedule | None:
        return self._own_first("WHERE id = %s AND tenant_id IN (%s, %s) AND deleted_at IS NULL", schedule_id)

    def by_name(self, name: str) -> Schedule | None:
        own = "WHERE tenant_id = %s AND name = %s AND source IS NULL AND deleted_at IS NULL"
        found = self._select_one(own, (self._tenant, name))  # the unique index finds it; what was copied has none
        return found or self._select_one(
            "WHERE tenant_id IN (%s, %s) AND name = %s AND deleted_at IS NULL"
            " ORDER BY tenant_id = %s, source IS NOT NULL, id LIMIT 1",
            (self._tenant, validation.GLOBAL, name, validation.GLOBAL),
        )

    def called(self, text: str) -> Sequence[Schedule]:
        validation.check_text("a name", text)
        return self._select(
            "WHERE tenant_id = %s AND (name = %s OR source_id = %s) AND deleted_at IS NULL ORDER BY id",
            (self._tenant, text, text),
        )

    def list(self, query: ScheduleQuery) -> Sequence[Schedule]:
        validation.check_page(query.limit, query.offset)
        order = _order(query)
        if query.sort_by == "next_fire_at" and query.name_contains is None and not _is_narrow(query):
            return self._by_fire(query)
        source, parameters = self._source(query)
        if query.name_contains is not None:
            named = self._named(query, order)
            return self._of_keys(named[query.offset : query.offset + query.limit])
        return self._many(
            sql.SQL("SELECT {} {} ORDER BY {} LIMIT %(limit)s OFFSET %(offset)s").format(
                self._table.qualified("s"), source, order
            ),
            parameters,
        )

    def count(self, query: ScheduleQuery) -> int:
        if query.name_contains is not None:
            return len(self._named(query, sql.SQL("s.id")))
        source, parameters = self._source(query)
        return int(self._value(sql.SQL("SELECT count(*) {}").format(source), parameters))

    def upsert(self, schedule: Schedule) -> Schedule:
        schedule = validation.checked_record(schedule, self._tenant)
        self._written.stated.add(schedule.id)
        stored = self._held(schedule.id)
        if stored is None:
            made = {"created_at": schedule.created_at or self._now, "updated_at": schedule.updated_at or self._now}
            return self._insert(msgspec.structs.replace(schedule, **made))
        if stored.deleted_at is not None:
            raise ConflictError("the id is that of a deleted schedule")
        kept = msgspec.structs.replace(schedule, created_at=stored.created_at or schedule.created_at)
        return self._replace(validation.with_stored_precision(kept, stored))

    def change_status(self, schedule_id: UUID, expected: str, status: str, **changes: Any) -> Schedule | None:  # noqa: ANN401 - columns have all types
        validation.check_transition("schedule", expected, status)
        validation.check_changes(changes)
        stored = self._held(schedule_id)
        if stored is None or stored.deleted_at is not None or stored.status != expected:
            return None
        return self._change(stored, changes | {"status": status})

    def change(self, schedule_id: UUID, **changes: Any) -> Schedule | None:  # noqa: ANN401 - as above
        validation.check_changes(changes)
        if changes.keys() - _OF_STATE:
            self._written.stated.add(schedule_id)
        stored = self._held(schedule_id)
        return None if stored is None or stored.deleted_at is not None else self._change(stored, changes)

    def _change(self, stored: Schedule, changes: dict[str, Any]) -> Schedule | None:
        changes = {"updated_at": self._now} | changes
        changed = validation.checked_record(msgspec.structs.replace(stored, **changes), self._tenant)
        self._written.work = self._written.work or is_let_go(stored, changed)
        query = sql.SQL("UPDATE scheduler.schedules SET {} WHERE id = %s AND tenant_id = %s RETURNING {}").format(
            sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in changes),
            self._table.columns,
        )
        with self.refusing():
            return self._one(
                query,
                [*(self._table.value(name, getattr(changed, name)) for name in changes), stored.id, stored.tenant_id],
            )

    def soft_delete(self, schedule_id: UUID, by: str) -> bool:
        deleted = self._value(
            "UPDATE scheduler.schedules SET deleted_at = %s, deleted_by = %s"
            " WHERE id = %s AND tenant_id = %s AND deleted_at IS NULL RETURNING true",
            (self._now, by, schedule_id, self._tenant),
        )
        if deleted is None:
            return False
        self._connection.execute(
            "UPDATE scheduler.triggers SET enabled = false WHERE schedule_id = %s AND tenant_id = %s AND enabled",
            (schedule_id, self._tenant),
        )
        return True

    def due(self, limit: int) -> Sequence[Schedule]:
        validation.check_page(limit)
        schedules: dict[UUID, Schedule] = {}
        page = max(limit, _PAGE)
        query, where = sql.SQL(_DUE).format(sql.SQL("")), {"tenant": self._tenant, "now": self._now, "page": page}
        while len(schedules) < limit:
            rows = self._connection.execute(query, where).fetchall()
            ids = [identity for identity in dict.fromkeys(row[0] for row in rows) if identity not in schedules]
            may_fire = {row.id: row for row in self._select(_MAY_FIRE, (ids, self._tenant))}
            schedules |= {identity: may_fire[identity] for identity in ids if identity in may_fire}
            if len(rows) < page:
                break
            query = sql.SQL(_DUE).format(sql.SQL(_AFTER))
            where |= dict(zip(("schedule", "from", "trigger"), rows[-1], strict=True))
        return list(schedules.values())[:limit]

    def _source(self, query: ScheduleQuery) -> tuple[Query, dict[str, Any]]:
        """Return FROM and WHERE of a query, except the condition on the name, and the parameters."""
        where, parameters = self._where(query)
        for name, tagged in _BY_TAGS.items():
            if name in parameters:
                return sql.SQL(_LOOKED_UP).format(sql.SQL(tagged)) + sql.SQL(where), parameters
        firing = [condition for name, condition in _BY_FIRE.items() if name in parameters]
        if _INDEXED.isdisjoint(parameters) and (firing or query.kinds):
            parts = [f"t.{_tenant(query)}", *(firing or [_BY_KIND])]
            triggers = sql.SQL(_OF_TRIGGERS).format(sql.SQL(" AND ").join(map(sql.SQL, parts)))
            return sql.SQL(_LOOKED_UP).format(triggers) + sql.SQL(where), parameters
        return sql.SQL("FROM scheduler.schedules AS s " + where), parameters

    def _where(self, query: ScheduleQuery) -> tuple[LiteralString, dict[str, Any]]:
        """Return the joins and the WHERE of a query on schedules ``s``, and the parameters."""
        validation.check_known("schedule status", states.SCHEDULE, query.statuses)
        validation.check_known("kind of trigger", states.TRIGGER_KINDS, query.kinds)
        given = {name: value for name in _FILTERS if (value := getattr(query, name)) not in (None, ())}
        parts = [f"s.{_tenant(query)}", "s.deleted_at IS NULL", *(_FILTERS[name] for name in given)]
        fire = _FIRE if query.sort_by == "next_fire_at" or any("fire." in part for part in parts) else ""
        parameters = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
        bounds = {"tenant": self._tenant, "limit": query.limit, "offset": query.offset}
        return fire + " WHERE " + " AND ".join(parts), parameters | bounds

    def _by_fire(self, query: ScheduleQuery) -> Sequence[Schedule]:
        """Return a page by next fire: from the triggers as far as they reach, then what never fires, by id."""
        most = query.offset + query.limit
        tenants = (self._tenant, validation.GLOBAL) if query.include_global else (self._tenant,)
        walks = [self._fires(query, tenant, most) for tenant in tenants]
        keys: _Keys = [(identity, tenant) for _, identity, tenant in islice(merge(*walks), most)]
        if len(keys) < most and query.next_fire_after is None and query.next_fire_before is None:
            where, parameters = self._where(query)
            never = sql.SQL(
                "SELECT s.id, s.tenant_id FROM scheduler.schedules AS s {} AND fire.next_fire_at IS NULL"
                " ORDER BY s.id LIMIT %(limit)s"
            ).format(sql.SQL(where))
            keys += self._connection.execute(never, parameters | {"limit": most - len(keys)}).fetchall()
        return self._of_keys(keys[query.offset :])

    def _fires(self, query: ScheduleQuery, tenant: str, most: int) -> Iterator[tuple[timedelta, UUID, str]]:
        """Yield the next fire (its time since 1970; negative for descending), id and tenant of schedules that pass.

        In order. A time at which many triggers fire is read whole; only the schedules that are asked for are looked up.
        """
        sign = -1 if query.descending else 1
        where, parameters = self._where(msgspec.structs.replace(query, include_global=False))
        parameters["tenant"] = tenant
        source = sql.SQL(_LOOKED_UP).format(sql.SQL("unnest(%(ids)s::uuid[]) AS id")) + sql.SQL(where)
        passing = sql.SQL("SELECT s.id, fire.next_fire_at {}").format(source)
        read: list[tuple[timedelta, UUID]] = []
        for page, is_last in self._pages_by_fire(query, parameters | {"page": min(most, _LARGEST_PAGE)}):
            read += ((sign * (at - _EPOCH), identity) for identity, at, _ in page)
            going_on = () if is_last else (read[-1][0],)  # the last time of a page may go on in the next one
            whole = sorted({entry for entry in read if entry[0] not in going_on})
            read = [entry for entry in read if entry[0] in going_on]
            for first in range(0, len(whole), most):
                some = whole[first : first + most]
                ids = [identity for _, identity in some]
                fires: dict[UUID, datetime] = dict(
                    self._connection.execute(passing, parameters | {"ids": ids}).fetchall()
                )
                yield from (
                    (since, identity, tenant)
                    for since, identity in some
                    if identity in fires and sign * (fires[identity] - _EPOCH) == since
                )

    def _pages_by_fire(
        self, query: ScheduleQuery, parameters: dict[str, Any]
    ) -> Iterator[tuple[Sequence[tuple[UUID, datetime, UUID]], bool]]:
        """Yield pages of schedule, next fire and id of a tenant's triggers, by next fire; whether it is the last page.

        Each page is twice as large as the one before.
        """
        firing = "t.tenant_id = %(tenant)s AND t.enabled AND t.next_fire_at IS NOT NULL"
        bounds = "".join(f" AND {condition}" for name, condition in _BY_FIRE.items() if name in parameters)
        compared, direction = ("<", "DESC") if query.descending else (">", "ASC")
        beyond = ""
        while True:
            statement = _FIRES.format(
                columns="t.schedule_id, t.next_fire_at, t.id",
                firing=firing,
                bounds=bounds,
                beyond=beyond,
                order=f"t.next_fire_at {direction}, t.id {direction}",
                compared=compared,
            )
            page = self._connection.execute(sql.SQL(statement), parameters).fetchall()
            yield page, len(page) < parameters["page"]
            if len(page) < parameters["page"]:
                return
            beyond = f" AND (t.next_fire_at, t.id) {compared} (%(at)s, %(trigger)s)"
            size = min(2 * parameters["page"], _LARGEST_PAGE)
            parameters = parameters | {"at": page[-1][1], "trigger": page[-1][2], "page": size}

    def _named(self, query: ScheduleQuery, order: Query) -> _Keys:
        """Return the keys of schedules whose name contains a text, by Python's rules for case, not a collation's."""
        source, parameters = self._source(query)
        wanted = (query.name_contains or "").lower()
        names = sql.SQL("SELECT s.id, s.tenant_id, s.name {} ORDER BY {}").format(source, order)
        rows = self._connection.execute(names, parameters)
        return [(identity, tenant) for identity, tenant, name in rows if wanted in name.lower()]

    def _of_keys(self, keys: _Keys) -> Sequence[Schedule]:
        ids = [identity for identity, _ in keys]
        where: LiteralString = "WHERE id = ANY(%s) AND tenant_id = ANY(%s)"
        rows = self._select(where, (ids, [self._tenant, validation.GLOBAL]))
        found = {(row.id, row.tenant_id): row for row in rows}
        return [found[key] for key in keys]


def _tenant(query: ScheduleQuery) -> LiteralString:
    """Return the condition on the tenant; the rows of one come in the order of an index, those of two do not."""
    return "tenant_id IN (%(tenant)s, '*')" if query.include_global else "tenant_id = %(tenant)s"


def _is_narrow(query: ScheduleQuery) -> bool:
    """Return whether an index on schedules, or the one on kinds, holds what passes."""
    of_status = bool(query.statuses) and "scheduled" not in query.statuses
    return of_status or bool(query.kinds) or any(getattr(query, name) not in (None, ()) for name in _INDEXED)


def _order(query: ScheduleQuery) -> Query:
    validation.check_known("order of schedules", _SORTS, (query.sort_by,))
    direction = "DESC" if query.descending else "ASC"
    return sql.SQL(f"{_SORTS[query.sort_by]} {direction} NULLS LAST, s.id")


_OF_EVENT = """
SELECT {columns} FROM scheduler.triggers AS t
JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
WHERE t.kind = 'event' AND t.event_name = %(event)s AND t.enabled AND t.tenant_id IN (%(tenant)s, %(all)s)
  AND s.enabled AND s.deleted_at IS NULL AND s.status = ANY(%(firing)s)
ORDER BY coalesce(s.priority, %(priority)s) DESC, t.id
"""


class PostgresTriggers(Repository[Trigger]):
    """``protocols.Triggers``."""

    _record = Trigger

    def __init__(self, connection: Connection, tenant: str, now: datetime, written: Written) -> None:
        """``written`` takes the ids of the schedules whose rule the session writes, and whether a trigger is due."""
        super().__init__(connection, tenant, now)
        self._written = written

    def get(self, trigger_id: UUID) -> Trigger | None:
        return self._visible(trigger_id)

    def of_schedule(self, schedule_id: UUID) -> Sequence[Trigger]:
        return self._select(
            "WHERE schedule_id = %s AND tenant_id IN (%s, %s) ORDER BY id",
            (schedule_id, self._tenant, validation.GLOBAL),
        )

    def held(self, schedule_id: UUID) -> Sequence[Trigger]:
        return self._select(
            "WHERE schedule_id = %s AND tenant_id = %s ORDER BY id FOR UPDATE", (schedule_id, self._tenant)
        )

    def of_schedules(self, schedule_ids: Sequence[UUID]) -> Sequence[Trigger]:
        return self._select(
            "WHERE schedule_id = ANY(%s) AND tenant_id IN (%s, %s) ORDER BY schedule_id, id",
            (list(schedule_ids), self._tenant, validation.GLOBAL),
        )

    def of_event(self, event: str) -> Sequence[Trigger]:
        query = sql.SQL(_OF_EVENT).format(columns=self._table.qualified("t"))
        return self._many(
            query,
            {
                "event": event,
                "tenant": self._tenant,
                "all": validation.GLOBAL,
                "firing": [*states.SCHEDULE_FIRING],
                "priority": validation.DEFAULT_PRIORITY,
            },
        )

    def upsert(self, trigger: Trigger) -> Trigger:
        trigger = validation.checked_record(trigger, self._tenant)
        self._require("schedules", trigger.schedule_id)
        self._written.work = self._written.work or is_due(trigger, self._now)
        stored = self._held(trigger.id)
        if stored is None:
            self._written.stated.add(trigger.schedule_id)
            return self._insert(trigger)
        if stored.schedule_id != trigger.schedule_id:
            raise UsageError("a trigger stays with its schedule")
        if any(getattr(stored, name) != getattr(trigger, name) for name in _RULE):
            self._written.stated.add(trigger.schedule_id)
        return self._replace(validation.with_stored_precision(trigger, stored))

    def move(self, trigger_id: UUID, expected: datetime | None, next_fire_at: datetime | None) -> bool:
        stored = self._held(trigger_id)
        if stored is None or stored.next_fire_at != expected:
            return False
        moved = validation.checked_record(msgspec.structs.replace(stored, next_fire_at=next_fire_at), self._tenant)
        if stored.source is not None and parallel_run.since(self._connection) is not None:
            return plan_first(self._connection, moved, next_fire_at)
        self._replace(validation.with_stored_precision(moved, stored))
        return True

    def delete_of_schedule(self, schedule_id: UUID) -> int:
        self._connection.execute(
            "UPDATE scheduler.runs SET trigger_id = NULL WHERE tenant_id = %(tenant)s AND trigger_id IN"
            " (SELECT id FROM scheduler.triggers WHERE schedule_id = %(schedule)s AND tenant_id = %(tenant)s)",
            {"schedule": schedule_id, "tenant": self._tenant},
        )
        return self._connection.execute(
            "DELETE FROM scheduler.triggers WHERE schedule_id = %s AND tenant_id = %s", (schedule_id, self._tenant)
        ).rowcount


class PostgresHandlers(Repository[Handler]):
    """``protocols.Handlers``."""

    _record = Handler

    def get(self, name: str) -> Handler | None:
        return self._select_one(
            "WHERE tenant_id IN (%s, %s) AND name = %s ORDER BY tenant_id = %s LIMIT 1",
            (self._tenant, validation.GLOBAL, name, validation.GLOBAL),
        )

    def upsert(self, handler: Handler) -> Handler:
        handler = validation.checked_record(handler, self._tenant)
        stored = self._held_by_name(handler.name)
        if stored is None:
            return self._insert(handler)
        kept = msgspec.structs.replace(
            handler, id=stored.id, source=stored.source, source_id=stored.source_id, extra=stored.extra
        )
        if stored.is_system:
            if kept != stored:
                raise ConflictError("a system handler does not change")
            return stored
        return self._replace(kept)

    def list(self) -> Sequence[Handler]:
        query = sql.SQL(
            'SELECT DISTINCT ON (name COLLATE "C") {} FROM scheduler.handlers WHERE tenant_id IN (%s, %s)'
            ' ORDER BY name COLLATE "C", tenant_id = %s'
        ).format(self._table.columns)
        return self._many(query, (self._tenant, validation.GLOBAL, validation.GLOBAL))

    def delete(self, name: str) -> bool:
        stored = self._held_by_name(name)
        if stored is None:
            return False
        if stored.is_system:
            raise ConflictError("a system handler is not deleted")
        self._connection.execute(
            "DELETE FROM scheduler.handlers WHERE id = %s AND tenant_id = %s", (stored.id, stored.tenant_id)
        )
        return True

    def _held_by_name(self, name: str) -> Handler | None:
        return self._select_one("WHERE tenant_id = %s AND name = %s FOR UPDATE", (self._tenant, name))
