"""Indexes and foreign keys that a first load builds afterwards: cheaper at once than row by row.

What is dropped is recorded in the transaction that drops it. What is restored is recorded in the transaction that
restores it. So a killed run leaves a list of what must be restored. Unique constraints are never deferred, because they
refuse a second copy. Indexes of few rows stay as well: to build one reads the whole table.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import fault_points
from migrator.config import Settings
from migrator.connections.postgres import Connection, open_target
from migrator.store.postgres.rows import SCHEMA
from migrator.telemetry import say

MAINTENANCE_MEMORY = "256MB"
MIN_DOCUMENTS = 10_000
"""Documents below which a table is loaded without dropping anything."""

FEW_ROWS = ("ix_runs_open", "ix_runs_retry_of", "ix_runs_waiting")
"""Indexes that hold few rows of a history: of runs that have not ended, and of those that repeat another one."""


class DeferredObject(msgspec.Struct, frozen=True):
    """An index or constraint that must be created again."""

    id: int
    table: str
    kind: str
    name: str
    definition: str


def defer(target: Connection, plan: UUID, tables: Iterable[str]) -> int:
    """Drop the foreign keys and the non-unique indexes of many rows of these empty tables; return how many."""
    names = sorted(set(tables))
    objects = target.execute(
        "SELECT 'constraint', rel.relname, con.conname, pg_get_constraintdef(con.oid)"
        " FROM pg_constraint AS con JOIN pg_class AS rel ON rel.oid = con.conrelid"
        " WHERE con.contype = 'f' AND rel.relnamespace = %(schema)s::regnamespace AND rel.relname = ANY(%(tables)s)"
        " UNION ALL SELECT 'index', rel.relname, idx.relname, pg_get_indexdef(idx.oid)"
        " FROM pg_index AS i JOIN pg_class AS rel ON rel.oid = i.indrelid"
        " JOIN pg_class AS idx ON idx.oid = i.indexrelid WHERE NOT i.indisunique AND idx.relname <> ALL(%(few)s)"
        " AND rel.relnamespace = %(schema)s::regnamespace AND rel.relname = ANY(%(tables)s) ORDER BY 1, 2, 3",
        {"schema": SCHEMA, "tables": names, "few": list(FEW_ROWS)},
    ).fetchall()
    for kind, table, name, definition in objects:
        target.execute(
            "INSERT INTO migration.deferred_ddl (plan_id, target_table, kind, name, definition, dropped_at)"
            " VALUES (%s, %s, %s, %s, %s, clock_timestamp())",
            (plan, table, kind, name, definition),
        )
        target.execute(_drop(kind, table, name))
    fault_points.reach(fault_points.AFTER_DEFERRED_DROPPED)
    return len(objects)


def outstanding(target: Connection) -> list[DeferredObject]:
    """Return the objects that must be created again: indexes first, then constraints, which may use them."""
    rows = target.execute(
        "SELECT id, target_table, kind, name, definition FROM migration.deferred_ddl WHERE restored_at IS NULL"
        " ORDER BY kind DESC, target_table, id"
    )
    return [DeferredObject(*row) for row in rows]


def restore(target: Connection, settings: Settings, connections: int) -> int:
    """Create everything that was dropped, over ``connections`` further connections at once; return the number."""
    due = outstanding(target)
    if due:
        say(f"backfill: building {len(due)} indexes and foreign keys that the load removed")
    fault_points.reach(fault_points.BEFORE_DEFERRED_RESTORED)
    for kind in ("index", "constraint"):
        # One thread per table: foreign keys of one table would wait for each other's locks.
        groups: dict[object, list[DeferredObject]] = {}
        for one in due:
            if one.kind == kind:
                groups.setdefault(one.table if kind == "constraint" else one.id, []).append(one)
        waiting = deque(groups.values())
        with ThreadPoolExecutor(max(1, connections)) as pool:
            for built in [pool.submit(_build, settings, waiting) for _ in range(min(connections, len(groups)))]:
                built.result()
    return len(due)


def _build(settings: Settings, waiting: deque[list[DeferredObject]]) -> None:
    """Build groups over one connection until none is left: a session costs as much as a small index."""
    with open_target(settings, autocommit=True) as target:
        target.execute(sql.SQL("SET maintenance_work_mem = {}").format(MAINTENANCE_MEMORY))
        # The sessions of these threads wait for each other, for as long as the check of a large table takes.
        target.execute("SET lock_timeout = 0")
        while True:
            try:
                group = waiting.popleft()
            except IndexError:
                return
            for one in group:
                _restore_one(target, one)


def _restore_one(target: Connection, deferred: DeferredObject) -> None:
    with target.transaction():
        row = target.execute(
            "SELECT restored_at IS NULL FROM migration.deferred_ddl WHERE id = %s FOR UPDATE", (deferred.id,)
        ).fetchone()
        if row == (True,):
            target.execute(_create(deferred))
            target.execute(
                "UPDATE migration.deferred_ddl SET restored_at = clock_timestamp() WHERE id = %s", (deferred.id,)
            )
            fault_points.reach(fault_points.AFTER_DEFERRED_BUILT)


def _drop(kind: str, table: str, name: str) -> sql.Composed:
    if kind == "index":
        return sql.SQL("DROP INDEX {}").format(sql.Identifier(SCHEMA, name))
    return sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(sql.Identifier(SCHEMA, table), sql.Identifier(name))


def _create(deferred: DeferredObject) -> sql.Composed:
    definition = sql.SQL(deferred.definition)
    if deferred.kind == "index":
        return sql.Composed([definition])
    return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
        sql.Identifier(SCHEMA, deferred.table), sql.Identifier(deferred.name), definition
    )
