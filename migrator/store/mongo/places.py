"""Where the rows of a record are in MongoDB: a collection of ``sources.store_documents``, and the form of an ``_id``.

The ``_id`` of a row that was created here is a prefix and the row's UUID in hexadecimal digits, so the UUID finds the
document.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from bson.binary import Binary, UuidRepresentation

from migrator.records import (
    AuditEntry,
    ExecutionLog,
    GraphJob,
    GraphJobEvent,
    Handler,
    ImpactSnapshot,
    Lock,
    PolicyJob,
    Record,
    Run,
    RunSummary,
    Schedule,
    SourcedRecord,
    Trigger,
    WorkerRecord,
)
from migrator.sources.profile import Collection, Document
from migrator.sources.store_documents import COLLECTIONS, names
from migrator.values.identity import row_id, source_id

_COLLECTIONS = {collection.name: collection for collection in COLLECTIONS}


class StoreCollection(msgspec.Struct, frozen=True, kw_only=True):
    """A collection that holds rows of a record."""

    collection: Collection
    prefixes: tuple[str, ...]
    """Prefixes of an ``_id`` that was created here; the first is used for new documents."""
    tenants: tuple[str, ...] = ("tenantId",)
    """Field paths, one of which holds the tenant."""

    @property
    def name(self) -> str:
        """The collection's name."""
        return self.collection.name

    def keys(self, identity: UUID) -> list[Any]:
        """Return the ``_id``s from which this row id may be computed without knowing the document."""
        binary = Binary.from_uuid(identity, UuidRepresentation.STANDARD)
        return [*(f"{prefix}{identity.hex}" for prefix in self.prefixes), str(identity), binary]

    def of_tenants(self, *tenants: str) -> dict[str, Any]:
        """Return a filter that finds the tenants' documents, and may find others', which ``decode`` will say."""
        wanted: Any = tenants[0] if len(tenants) == 1 else {"$in": list(tenants)}
        if len(self.tenants) == 1:
            return {self.tenants[0]: wanted}
        return {"$or": [{path: wanted} for path in self.tenants]}

    def foreign_filter(self) -> dict[str, Any]:
        """Return the filter of documents whose ``_id`` has another form."""
        return {"_id": {"$not": {"$regex": f"^(?:{'|'.join(self.prefixes)})[0-9a-f]{{32}}$"}}}

    def row_id(self, tenant: str, key: object) -> UUID:
        """Return the id of the row of a document with this ``_id``."""
        table: str = self.collection.tables[0].table
        return row_id(table, tenant, self.name, source_id(key), keep_uuid=self.name != names.POLICY_JOBS)


def _place(name: str, *prefixes: str, tenants: tuple[str, ...] = ("tenantId",)) -> StoreCollection:
    return StoreCollection(collection=_COLLECTIONS[name], prefixes=prefixes, tenants=tenants)


PLACES: Mapping[type[Record], tuple[StoreCollection, ...]] = {
    Schedule: (_place(names.SCHEDULES, names.SCHEDULE_PREFIX, tenants=("tenantId", "selection.tenantId")),),
    Trigger: (_place(names.TRIGGERS, names.TRIGGER_PREFIX),),
    Run: (_place(names.RUNS, names.RUN_PREFIX),),
    GraphJob: (_place(names.GRAPH_JOBS, names.GRAPH_BUILD_PREFIX, names.GRAPH_OVERLAY_PREFIX),),
    GraphJobEvent: (_place(names.GRAPH_JOB_EVENTS, "", tenants=("tenantId", "tenant")),),
    PolicyJob: (
        _place(names.POLICY_JOBS, names.POLICY_ITEM_PREFIX),
        _place(names.POLICY_RUNS, "prn_", tenants=("tenantId", "tenant", "tenant_id")),
    ),
    ImpactSnapshot: (_place(names.IMPACT_SNAPSHOTS, "imp_", tenants=("tenantId", "selector.tenantId")),),
    ExecutionLog: (_place(names.EXECUTION_LOGS, "log_"),),
    RunSummary: (_place(names.RUN_SUMMARIES, "sum_"),),
    AuditEntry: (_place(names.AUDIT, "aud_"),),
    Handler: (_place(names.HANDLERS, "hdl_"),),
    WorkerRecord: (_place(names.WORKERS, "wrk_"),),
    Lock: (_place(names.LOCKS, "lck_"),),
}
"""Record to its places; new rows go to the first."""


def document_of(record: Record, key: str | None = None) -> Document:
    """Return the document of a new record; ``key`` is its ``_id``, which is otherwise made from the row's id."""
    place = PLACES[type(record)][0]
    if isinstance(record, SourcedRecord):
        key = f"{place.prefixes[0]}{record.id.hex}" if key is None else key
        record = msgspec.structs.replace(record, source=names.source(place.name), source_id=key)
    return place.collection.encode((record,))
