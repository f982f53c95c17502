"""A scheduler's data in MongoDB: sessions, and calls across tenants."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal, Self

from pymongo import ReadPreference
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from migrator import records
from migrator.config import Settings
from migrator.connections.mongo import UNAUTHORIZED, grant_of, open_source, require_replica_set, translate_errors
from migrator.errors import RefusedError
from migrator.records import Lock, Schedule
from migrator.sources.store_documents import names
from migrator.store.mongo import epoch
from migrator.store.mongo.audit import MongoAudit
from migrator.store.mongo.epoch import require_here
from migrator.store.mongo.indexes import create_missing_triggers, ensure_indexes
from migrator.store.mongo.jobs import MongoGraphJobs, MongoPolicyJobs
from migrator.store.mongo.locks import MongoLocks
from migrator.store.mongo.places import PLACES
from migrator.store.mongo.priority import copy_priorities
from migrator.store.mongo.queue import MongoQueue
from migrator.store.mongo.repository import ForeignIds
from migrator.store.mongo.runs import MongoExecutionLogs, MongoImpactSnapshots, MongoRuns, MongoRunSummaries
from migrator.store.mongo.schedules import MongoHandlers, MongoSchedules, MongoTriggers
from migrator.store.mongo.statistics import MongoStatistics
from migrator.store.mongo.transaction import WHAT, Transaction
from migrator.store.mongo.wakeups import MongoWakeups
from migrator.store.mongo.workers import MongoWorkers
from migrator.store.validation import check_purgeable, check_tenant, checked_time


def purge(transaction: Transaction, tenant: str) -> Mapping[str, int]:
    """Delete every document of a tenant; return table to documents deleted."""
    removed = Counter({record.table: 0 for record in records.ALL})
    for record, places in PLACES.items():
        for place in places:
            removed[record.table] += transaction.delete(place.name, _of_tenant(place.tenants, tenant))
    removed[Lock.table] += transaction.delete(names.LOCKS, {"_id": {"$regex": f"^{re.escape(tenant)}/"}})
    return dict(removed)


def _of_tenant(paths: Sequence[str], tenant: str) -> dict[str, Any]:
    """Return the filter of the documents of this tenant: the first of the paths that holds a value decides."""
    choices = [dict.fromkeys(paths[:place]) | {path: tenant} for place, path in enumerate(paths)]
    return {"$or": choices}


class MongoSession:
    """One transaction of one tenant (``protocols.Session``)."""

    def __init__(self, transaction: Transaction, foreign_ids: ForeignIds, tenant: str, now: datetime) -> None:
        self.transaction, self.tenant, self.now = transaction, tenant, now
        self.schedules = MongoSchedules(transaction, foreign_ids, tenant, now)
        self.triggers = MongoTriggers(transaction, foreign_ids, tenant, now)
        self.runs = MongoRuns(transaction, foreign_ids, tenant, now)
        self.graph_jobs = MongoGraphJobs(transaction, foreign_ids, tenant, now)
        self.policy_jobs = MongoPolicyJobs(transaction, foreign_ids, tenant, now)
        self.impact_snapshots = MongoImpactSnapshots(transaction, foreign_ids, tenant, now)
        self.execution_logs = MongoExecutionLogs(transaction, foreign_ids, tenant, now)
        self.run_summaries = MongoRunSummaries(transaction, foreign_ids, tenant, now)
        self.audit = MongoAudit(transaction, foreign_ids, tenant, now)
        self.handlers = MongoHandlers(transaction, foreign_ids, tenant, now)
        self.statistics = MongoStatistics(transaction, foreign_ids, tenant, now)


class MongoStore:
    """``protocols.Store`` over one client, whose connections are pooled by the driver."""

    backend: Literal["mongo"] = "mongo"

    def __init__(self, settings: Settings) -> None:
        """Connect, to fail early; raises as ``open_source`` does. Nothing is written: ``prepare`` creates the indexes.

        Raises ``RefusedError`` for a server that is no member of a replica set: it has no transactions.
        """
        self.settings = settings
        self.database = open_source(settings)
        chosen = settings.persistence.scheduler == "mongo"
        """False for a store that answers shadow reads, or is a tool's: the epoch does not apply to it."""
        self._chosen = chosen
        self._foreign_ids = ForeignIds()
        self.queue = MongoQueue(self.database, self._foreign_ids, self.now)
        self.workers = MongoWorkers(self.database, self._foreign_ids, self.now)
        self.locks = MongoLocks(self.database)
        self.wakeups = MongoWakeups(self.database)
        try:
            try:
                require_replica_set(self.database)
            except RefusedError:
                raise RefusedError(f"{WHAT} is not a replica set, so it has no transactions; make it one") from None
            if chosen:
                with translate_errors(WHAT):
                    require_here(self.database)
        except BaseException:
            self.close()
            raise

    def prepare(self) -> Mapping[str, Sequence[str]]:
        """Create the indexes that are missing; return collection to the indexes that were created.

        To be called before the first write: they guard unique keys, and have the order of the queue.
        """
        return ensure_indexes(self.database)

    def create_missing_triggers(self, covers: Callable[[Schedule], bool]) -> int:
        """Write the triggers that schedule documents state, if ``covers`` accepts the schedule; return how many."""
        with translate_errors(WHAT):
            return create_missing_triggers(self.database, covers)

    def copy_priorities(self, covers: Callable[[Schedule], bool]) -> int:
        """Write the schedule's priority into triggers and queued runs that state another one; return how many."""
        return copy_priorities(self.database, covers)

    @contextmanager
    def session(self, tenant: str, *, now: datetime | None = None) -> Iterator[MongoSession]:
        check_tenant(tenant)
        clock = checked_time(now) or self.now()
        with translate_errors(WHAT), self.database.client.start_session() as session:

            def start() -> None:
                session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority"), ReadPreference.PRIMARY)
                if self._chosen:
                    require_here(self.database, session)

            transaction = Transaction(self.database, session, start)
            try:
                transaction.begin()
                yield MongoSession(transaction, self._foreign_ids, tenant, clock)
                transaction.commit()
            except BaseException:
                transaction.abort()
                raise

    def now(self) -> datetime:
        with translate_errors(WHAT):
            clock: datetime = self.database.client.admin.command("hello")["localTime"]
        return clock.replace(tzinfo=UTC)

    def epoch_backend(self) -> str | None:
        """Return the backend that the persistence epoch names; None: there was no cutover."""
        with translate_errors(WHAT):
            found = epoch.read(self.database)
        return None if found is None else found.backend

    def ping(self) -> timedelta:
        with translate_errors(WHAT):
            begun = monotonic()
            self.database.client.admin.command("ping")
            return timedelta(seconds=monotonic() - begun)

    def connections(self) -> int | None:
        with translate_errors(WHAT):
            try:
                status = self.database.client.admin.command("serverStatus", repl=0, metrics=0, locks=0, wiredTiger=0)
            except OperationFailure as error:
                if error.code == UNAUTHORIZED:
                    return None
                raise
        return int(status["connections"]["current"])

    def purge(self, tenant: str) -> Mapping[str, int]:
        check_purgeable(tenant)
        with self.session(tenant) as session:
            return purge(session.transaction, tenant)

    def close(self) -> None:
        self.database.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_store(settings: Settings) -> MongoStore:
    """Open the store; see ``migrator.store.open_store``."""
    return MongoStore(settings)


def write_grant(settings: Settings) -> tuple[str, str]:
    """Return the database, and the command by which an administrator lets the settings' user write into it."""
    source = open_source(settings)
    with source.client:
        return source.name, grant_of(source, "readWrite", source.name)
