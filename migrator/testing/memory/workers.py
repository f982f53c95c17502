"""Workers in the model: ``workers.Workers`` read literally."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from migrator import states
from migrator.errors import UsageError
from migrator.records import Run, WorkerRecord
from migrator.store import validation
from migrator.testing.memory.queue import Transaction, held_to_rules
from migrator.testing.memory.table import Tables, microseconds

ALIVE = {"active", "draining"}
NEVER = datetime(1, 1, 1, tzinfo=UTC)

replace = msgspec.structs.replace


class MemoryWorkers:
    """``workers.Workers``."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def register(self, worker: WorkerRecord, now: datetime | None = None) -> WorkerRecord:
        if worker.tenant_id != validation.GLOBAL:
            raise UsageError("workers live under the tenant *")
        validation.check_known("kind of worker", states.WORKER_KINDS, (worker.kind,))
        with self._transaction(now) as (tables, moment):
            stored: WorkerRecord | None = tables[WorkerRecord].get(worker.id)
            if stored is None:
                first, spoke = worker.registered_at or moment, moment
                kept = replace(worker, source=None, source_id=None)
            else:
                first, spoke = stored.registered_at or moment, max(moment, stored.last_heartbeat_at or moment)
                kept = replace(worker, source=stored.source, source_id=stored.source_id, extra=stored.extra)
            row = replace(kept, status="active", registered_at=first, last_heartbeat_at=spoke)
            tables[WorkerRecord][worker.id] = written = held_to_rules(row, validation.GLOBAL)
            assert isinstance(written, WorkerRecord)
            return written

    def heartbeat(self, worker_id: UUID, now: datetime | None = None) -> bool:
        with self._transaction(now) as (tables, moment):
            worker = alive(tables, worker_id)
            if worker is None:
                return False
            spoke = max(moment, worker.last_heartbeat_at or moment)
            tables[WorkerRecord][worker_id] = replace(worker, last_heartbeat_at=spoke)
            return True

    def stop(self, worker_id: UUID, now: datetime | None = None) -> bool:
        with self._transaction(now) as (tables, _):
            worker = alive(tables, worker_id)
            if worker is None:
                return False
            tables[WorkerRecord][worker_id] = replace(worker, status="stopped")
            return True

    def list(self) -> Sequence[WorkerRecord]:
        with self._transaction(None) as (tables, _):
            found = tables[WorkerRecord].values()
            return sorted(found, key=lambda row: (microseconds(row.registered_at or NEVER), row.id))

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        validation.check_above_zero("a time of silence", silent_for)
        with self._transaction(now) as (tables, moment):
            dead = []
            for worker in list(tables[WorkerRecord].values()):
                without_heartbeat = (worker.last_heartbeat_at or NEVER) < moment - silent_for
                if without_heartbeat and worker.status in ALIVE and (among is None or worker.id in among):
                    tables[WorkerRecord][worker.id] = replace(worker, status="dead")
                    dead.append(worker.id)
            names = {str(worker_id) for worker_id in dead}
            for run in list(tables[Run].values()):
                if run.state == "running" and run.worker_id in names:
                    ends = min(moment, run.lease_expires_at or moment)
                    tables[Run][run.id] = replace(run, lease_expires_at=ends, updated_at=moment)
            return dead

    def remove(self, worker_id: UUID) -> bool:
        with self._transaction(None) as (tables, _):
            worker: WorkerRecord | None = tables[WorkerRecord].get(worker_id)
            if worker is None or worker.status in ALIVE:
                return False
            del tables[WorkerRecord][worker_id]
            return True


def alive(tables: Tables, worker_id: UUID) -> WorkerRecord | None:
    worker: WorkerRecord | None = tables[WorkerRecord].get(worker_id)
    return worker if worker is not None and worker.status in ALIVE else None
