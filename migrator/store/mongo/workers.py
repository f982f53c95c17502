"""Workers in MongoDB: processes that work or plan, under the tenant ``*``."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from pymongo.write_concern import WriteConcern

from migrator import states
from migrator.connections.mongo import MongoDatabase, translate_errors
from migrator.errors import UsageError
from migrator.records import WorkerRecord
from migrator.sources.store_documents import names
from migrator.store import validation
from migrator.store.mongo.indexes import RUNNING
from migrator.store.mongo.places import PLACES
from migrator.store.mongo.repository import CrossTenantRepository, ForeignIds
from migrator.store.mongo.transaction import WHAT, Change, Transaction, retry_overtaken
from migrator.values.times import to_bson

_NEVER = datetime.min.replace(tzinfo=UTC)


class MongoWorkers:
    """``workers.Workers``."""

    def __init__(self, database: MongoDatabase, foreign_ids: ForeignIds, clock: Callable[[], datetime]) -> None:
        self._database, self._foreign_ids, self._clock = database, foreign_ids, clock
        self._collection = database.get_collection(names.WORKERS, write_concern=WriteConcern("majority"))

    def register(self, worker: WorkerRecord, now: datetime | None = None) -> WorkerRecord:
        if worker.tenant_id != validation.GLOBAL:
            raise UsageError("workers live under the tenant *")
        validation.check_known("kind of worker", states.WORKER_KINDS, (worker.kind,))
        moment = validation.checked_time(now) or self._clock()

        def act(transaction: Transaction) -> WorkerRecord:
            workers = CrossTenantRepository(WorkerRecord, transaction, self._foreign_ids)
            stored = workers.found([(validation.GLOBAL, worker.id)], shared=False).get((validation.GLOBAL, worker.id))
            first = worker.registered_at if stored is None else stored.row.registered_at
            spoke = moment if stored is None else max(moment, stored.row.last_heartbeat_at or moment)
            row = msgspec.structs.replace(
                worker, status="active", registered_at=first or moment, last_heartbeat_at=spoke
            )
            row = validation.checked_served_record(row, validation.GLOBAL)
            if stored is not None:
                return workers.replace(stored, validation.with_stored_precision(row, stored.row))
            document, read = workers.new(row)
            transaction.insert(names.WORKERS, [document])
            return read

        return retry_overtaken(self._database, act)

    def heartbeat(self, worker_id: UUID, now: datetime | None = None) -> bool:
        moment: Any = "$$NOW" if now is None else to_bson(validation.checked_time(now))
        return self._changes(worker_id, {"lastHeartbeatAt": {"$max": ["$lastHeartbeatAt", moment]}})

    def stop(self, worker_id: UUID, now: datetime | None = None) -> bool:
        validation.checked_time(now)
        return self._changes(worker_id, {"status": "stopped"})

    def list(self) -> Sequence[WorkerRecord]:
        with translate_errors(WHAT), self._database.client.start_session() as session:
            workers = CrossTenantRepository(WorkerRecord, Transaction(self._database, session), self._foreign_ids)
            found = [one.row for one in workers.matching({"tenantId": validation.GLOBAL})]
        return sorted(found, key=lambda row: (row.registered_at or _NEVER, row.id))

    def declare_dead(
        self, silent_for: timedelta, now: datetime | None = None, among: Sequence[UUID] | None = None
    ) -> Sequence[UUID]:
        validation.check_above_zero("a time of silence", silent_for)
        moment = validation.checked_time(now) or self._clock()

        def act(transaction: Transaction) -> Sequence[UUID]:
            workers = CrossTenantRepository(WorkerRecord, transaction, self._foreign_ids)
            dead: dict[UUID, Change] = {}
            for stored in workers.matching({"tenantId": validation.GLOBAL, "status": {"$in": [*states.WORKER_LIVE]}}):
                row = stored.row
                without_heartbeat = (row.last_heartbeat_at or _NEVER) < moment - silent_for
                if without_heartbeat and (among is None or row.id in among):
                    dead[row.id] = workers.update(stored, msgspec.structs.replace(row, status="dead"))
            if dead:
                transaction.write(names.WORKERS, [*dead.values()])
                held = {"state": "running", "workerId": {"$in": [str(identity) for identity in dead]}}
                transaction.change(names.RUNS, held, _leases_end(moment), hint=RUNNING)
            return [*dead]

        return retry_overtaken(self._database, act)

    def remove(self, worker_id: UUID) -> bool:
        with translate_errors(WHAT):
            return self._collection.delete_one(_of(worker_id, states.WORKER_ENDED)).deleted_count == 1

    def _changes(self, worker_id: UUID, fields: dict[str, Any]) -> bool:
        """Change a process that is alive; return whether there is one."""
        with translate_errors(WHAT):
            return (
                self._collection.update_one(_of(worker_id, states.WORKER_LIVE), [{"$set": fields}]).matched_count == 1
            )


def _of(worker_id: UUID, status: Sequence[str]) -> dict[str, Any]:
    keys = PLACES[WorkerRecord][0].keys(worker_id)
    return {"_id": {"$in": keys}, "tenantId": validation.GLOBAL, "status": {"$in": [*status]}}


def _leases_end(moment: datetime) -> Sequence[dict[str, Any]]:
    now = to_bson(moment)
    ends = {"$min": [{"$ifNull": ["$leaseExpiresAt", now]}, now]}
    return [{"$set": {"leaseExpiresAt": ends, "updatedAt": now}}]
