"""Worker and scheduler processes in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from migrator import states
from migrator.connections.postgres import Connection
from migrator.errors import UsageError
from migrator.records import WorkerRecord
from migrator.store import validation
from migrator.store.postgres.connections import DispatcherPool
from migrator.store.postgres.queue_statements import NOW
from migrator.store.postgres.rows import as_json, fetch_rows, literals, table

_COLUMNS = table(WorkerRecord).columns.as_string(None)
_NAMES = table(WorkerRecord).names
_OWN = f"tenant_id = '{validation.GLOBAL}'"
"""Processes live under the tenant *: a row of another tenant, whatever its id, is none of them."""
_ALIVE = f"({_OWN} AND status = ANY (ARRAY[{literals(states.WORKER_LIVE)}]))"
_FIXED = ("id", "tenant_id", "source", "source_id", "extra")
_KEPT = (*_FIXED, "registered_at", "last_heartbeat_at")

_REGISTER = f"""
INSERT INTO scheduler.workers AS w ({_COLUMNS})
SELECT {", ".join(f"coalesce(n.{name}, {NOW})" if name.endswith("_at") else f"n.{name}" for name in _NAMES)}
FROM json_populate_record(NULL::scheduler.workers, $2::json) AS n
ON CONFLICT (id, tenant_id) DO UPDATE SET
    {", ".join(f"{name} = EXCLUDED.{name}" for name in _NAMES if name not in _KEPT)},
    registered_at = coalesce(w.registered_at, {NOW}),
    last_heartbeat_at = greatest(w.last_heartbeat_at, {NOW})
RETURNING {_COLUMNS}
"""  # noqa: S608 - our own column names

_HEARTBEAT = f"""
UPDATE scheduler.workers SET last_heartbeat_at = greatest(last_heartbeat_at, {NOW}) WHERE id = $2 AND {_ALIVE}
RETURNING true
"""  # noqa: S608 - as above

_STOP = f"UPDATE scheduler.workers SET status = 'stopped' WHERE id = $1 AND {_ALIVE} RETURNING true"  # noqa: S608 - as above

_LIST = f"SELECT {_COLUMNS} FROM scheduler.workers WHERE {_OWN} ORDER BY registered_at NULLS FIRST, id"  # noqa: S608 - as above

# A process whose heartbeat is being written is waited for, and read again: it stays alive.
_DECLARE_DEAD = f"""
WITH silent AS MATERIALIZED (
    SELECT id AS silent_id FROM scheduler.workers WHERE {_ALIVE}
        AND (last_heartbeat_at IS NULL OR last_heartbeat_at < $1::timestamptz - $2::interval)
        AND ($3::uuid[] IS NULL OR id = ANY($3::uuid[]))
    ORDER BY id FOR UPDATE
)
UPDATE scheduler.workers SET status = 'dead' FROM silent WHERE id = silent_id AND {_OWN} RETURNING id
"""  # noqa: S608 - as above

_END_LEASES = """
UPDATE scheduler.runs SET lease_expires_at = least(lease_expires_at, $1), updated_at = $1
WHERE state = 'running' AND worker_id = ANY($2::text[])
"""

_REMOVE = f"DELETE FROM scheduler.workers WHERE id = $1 AND {_OWN} AND NOT {_ALIVE} RETURNING true"  # noqa: S608 - as above


class PostgresWorkers:
    """``workers.Workers``."""

    def __init__(self, pool: DispatcherPool) -> None:
        self._pool = pool

    def register(self, worker: WorkerRecord, now: datetime | None = None) -> WorkerRecord:
        if worker.tenant_id != validation.GLOBAL:
            raise UsageError("workers live under the tenant *")
        validation.check_known("kind of worker", states.WORKER_KINDS, (worker.kind,))
        row = msgspec.structs.replace(worker, source=None, source_id=None, status="active", last_heartbeat_at=None)
        document = as_json([table(WorkerRecord).document(validation.checked_served_record(row, validation.GLOBAL))])[
            1:-1
        ]
        (written,) = self._pool.rows(_REGISTER, (validation.checked_time(now), document))
        registered: WorkerRecord = table(WorkerRecord).read(written)
        return registered

    def heartbeat(self, worker_id: UUID, now: datetime | None = None) -> bool:
        return bool(self._pool.rows(_HEARTBEAT, (validation.checked_time(now), worker_id)))

    def stop(self, worker_id: UUID, now: datetime | None = None) -> bool:
        validation.checked_time(now)
        return bool(self._pool.rows(_STOP, (worker_id,)))

    def list(self) -> Sequence[WorkerRecord]:
        return [table(WorkerRecord).read(row) for row in self._pool.rows(_LIST, ())]

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        validation.check_above_zero("a time of silence", silent_for)
        named = validation.checked_time(now)
        chosen: Any = None if among is None else list(among)

        def declare(connection: Connection) -> list[UUID]:
            at = named or self._pool.clock(connection)
            dead = [identity for (identity,) in fetch_rows(connection, _DECLARE_DEAD, (at, silent_for, chosen))]
            if dead:
                fetch_rows(connection, _END_LEASES, (at, [str(identity) for identity in dead]))
            return dead

        return self._pool.transact(declare)

    def remove(self, worker_id: UUID) -> bool:
        return bool(self._pool.rows(_REMOVE, (worker_id,)))
