"""What PostgreSQL changed since it is active: no difference between the databases, because MongoDB is the older one.

Until a cutover, MongoDB is written to and PostgreSQL follows. Since then PostgreSQL is written to. MongoDB follows
until ``cutover finish``, as far as its documents can say it. So a document whose rows, or whose schedule, changed since
the outbox was opened is counted apart. What did not change is compared as ever: nobody should have touched it.
After a rollback everything is compared again.

A row has changed if it says so (``updated_at``, ``created_at``), or if its schedule fired, ran or changed. A table of
which the scheduler deletes rows may lack a row. What a trigger does next is the scheduler's.

The rows of a library do not say when they were changed: triggers note it from the cutover on.
"""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.parity.model import AggregateResult, CollectionComparison
from migrator.pipeline.tail.lookups import has_source_column
from migrator.pipeline.target import TargetTables
from migrator.records import ExecutionLog, Handler, Lock, Record, Run, Schedule, Trigger, WorkerRecord
from migrator.sources.profile import Collection, Profile
from migrator.store.postgres.rows import table_name
from migrator.values import identity

ACTIVE: Final = "PostgreSQL is active since the cutover and goes on alone: what it adds up is not compared with MongoDB"

_SCHEDULES: Final = """
SELECT id, tenant_id FROM scheduler.schedules WHERE updated_at >= %(since)s OR deleted_at >= %(since)s
UNION SELECT schedule_id, tenant_id FROM scheduler.runs
    WHERE schedule_id IS NOT NULL AND (updated_at >= %(since)s OR created_at >= %(since)s)
UNION SELECT schedule_id, tenant_id FROM scheduler.triggers
    WHERE schedule_id IS NOT NULL AND (last_fire_at >= %(since)s OR source IS NULL)
"""
_CREATED: Final = """
SELECT 'schedules', count(*) FROM scheduler.schedules WHERE source IS NULL
UNION ALL SELECT 'triggers', count(*) FROM scheduler.triggers WHERE source IS NULL
UNION ALL SELECT 'runs', count(*) FROM scheduler.runs WHERE source IS NULL
"""
CHANGED: Final = (
    *("updated_at", "deleted_at", "paused_at", "cancelled_at", "completed_at", "created_at", "last_fire_at"),
    *("started_at", "finished_at", "logged_at", "generated_at", "occurred_at"),
)
"""Columns that say when something was done with a row; a client deletes a schedule without ``updated_at``."""
_PLANNED: Final = frozenset({"next_fire_at", "last_fire_at", "fire_count", "enabled"})
"""Columns of a trigger that the scheduler itself writes."""
_OF_PROCESSES: Final = (WorkerRecord, Lock)
"""Records whose rows belong to processes, which are on PostgreSQL now."""
_DELETED: Final = (Run, ExecutionLog, Trigger, Handler, *_OF_PROCESSES)
"""Records whose rows the scheduler deletes."""


def created_rows(target: Connection) -> dict[str, int]:
    """Return table → rows that were created on PostgreSQL: no document of the copy is theirs."""
    return {table: count for table, count in target.execute(_CREATED).fetchall() if count}


class ComparedRow(msgspec.Struct, frozen=True):
    """A row of a document."""

    record: type[Record]
    stored: Mapping[str, object] | None
    """The columns as they are stored; None: there is no such row."""
    differing: frozenset[str]


class Changes:
    """What changed since PostgreSQL is active, asked for when it is first needed."""

    def __init__(self, target: Connection, tables: TargetTables, profile: Profile) -> None:
        self._target, self._tables, self._profile = target, tables, profile
        self.since: Final = tables.active_since(target)
        """When PostgreSQL became active; None: it is not."""
        self._documents: dict[str, frozenset[str] | None] = {}
        self._schedules: set[tuple[UUID, str]] | None = None
        self._made: dict[str, Container[str]] = {}

    def explain(self, collection: Collection, source_id: str, rows: Iterable[ComparedRow]) -> bool:
        """Whether PostgreSQL changed the rows of a document, or made the document (by the reverse sync)."""
        if self.since is None:
            return False
        changed = self._changed_documents(collection)
        if changed is not None:
            # written meanwhile: the set is read again before a difference is told
            return source_id in changed or source_id in (self._changed_documents(collection, anew=True) or ())
        known = list(rows)
        if known[0].record in _OF_PROCESSES:
            return True
        if any(row.stored is not None and self._is_changed(row.record, row.stored) for row in known):
            return True
        if known[0].stored is None and known[0].record not in _DELETED:
            return source_id in self._made_documents(collection)
        return all(
            row.record in _DELETED if row.stored is None else row.record is Trigger and row.differing <= _PLANNED
            for row in known
            if row.stored is None or row.differing
        )

    def _changed_documents(self, collection: Collection, *, anew: bool = False) -> frozenset[str] | None:
        if anew or collection.name not in self._documents:
            self._documents[collection.name] = self._tables.changed_documents(
                self._target, collection.tables[0], self._profile.source_of(collection.name)
            )
        return self._documents[collection.name]

    def _made_documents(self, collection: Collection) -> Container[str]:
        """Return the source ids of the documents that stand for rows created on PostgreSQL."""
        if collection.name not in self._made:
            owner, made = collection.tables[0], set[str]()
            if has_source_column(owner):
                created = "created_at" if "created_at" in owner.__struct_fields__ else "NULL::timestamptz"
                rows = self._target.execute(
                    sql.SQL("SELECT id, {} FROM {} WHERE source IS NULL").format(
                        sql.SQL(created), table_name(owner.table)
                    )
                ).fetchall()
                keys = (identity.object_id(row_id, at) if collection.object_ids else str(row_id) for row_id, at in rows)
                made = set(map(identity.source_id, keys))
            self._made[collection.name] = made
        return self._made[collection.name]

    def _is_changed(self, record: type[Record], stored: Mapping[str, object]) -> bool:
        assert self.since is not None  # noqa: S101 - nobody asks otherwise
        times = (stored.get(name) for name in CHANGED)
        if any(isinstance(at, datetime) and at >= self.since for at in times):
            return True
        schedule = stored.get("id" if record is Schedule else "schedule_id")
        return (schedule, stored.get("tenant_id")) in self._changed_schedules()

    def _changed_schedules(self) -> set[tuple[UUID, str]]:
        if self._schedules is None:
            rows = self._target.execute(_SCHEDULES, {"since": self.since}).fetchall()
            self._schedules = {(row[0], row[1]) for row in rows}
        return self._schedules


def derived_while_active(found: CollectionComparison) -> CollectionComparison:
    """Return a comparison of what many documents make together; one that differs is not compared."""
    if found.differing or found.missing or found.extra:
        return CollectionComparison(collection=found.collection, tables=found.tables, unverified=ACTIVE)
    return found


def aggregates_while_active(results: Iterable[AggregateResult]) -> list[AggregateResult]:
    """Return aggregates; those that differ are not compared."""
    return [
        msgspec.structs.replace(one, differing=(), differing_total=0, unverified=ACTIVE) if one.differing_total else one
        for one in results
    ]
