"""Where a row came from, the ids that follow from it, and workers, of which Agenda has no collection.

The names of workers are those that Agenda's instances leave on jobs and logs.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec
from bson.objectid import ObjectId

from migrator.records import WorkerRecord
from migrator.sources.agenda.names import NAME
from migrator.sources.profile import Context, Rejected
from migrator.values import identity, jsonb

_LONGEST_LABEL: Final = 100
"""Characters; the name of a schedule is indexed."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What all rows of one document share."""

    tenant_id: str
    source: str
    source_id: str
    collection: str
    keep_uuid: bool
    """The collection is the first that feeds its tables, so its UUIDs are kept."""

    def key(self, table: str) -> UUID:
        """Return the id of the document's row in this table."""
        return identity.row_id(table, self.tenant_id, self.collection, self.source_id, keep_uuid=self.keep_uuid)


def origin_of(key: object, context: Context, collection: str, *, keep_uuid: bool) -> Origin:
    """Return the origin of the document with this ``_id``.

    Agenda's documents name no tenant: raises ``Rejected`` where none is configured.
    """
    if not context.default_tenant:
        raise Rejected("no-tenant", "", "the setting default_tenant, since these documents name no tenant")
    return Origin(context.default_tenant, source_of(collection), identity.source_id(key), collection, keep_uuid)


@lru_cache(maxsize=64)
def source_of(collection: str) -> str:
    """Return the text of the ``source`` column."""
    return f"{NAME}/{collection}"


def label(key: object, origin: Origin) -> str:
    """Return an ``_id`` as people read it: the hex digits of an ObjectId, and the row's own id for a long text."""
    if isinstance(key, ObjectId):
        return str(key)
    return origin.source_id if len(origin.source_id) <= _LONGEST_LABEL else str(origin.key("schedules"))


TENANT: Final = "*"
SOURCE: Final = f"{NAME}/instances"
"""No collection: the names come from ``lastModifiedBy`` of jobs and ``agendaName`` of logs."""
_COLLECTION: Final = "instances"
_METADATA: Final = jsonb.encode({"derived": True})
"""The mark of a row that a closing pass made from many documents; it is not encoded back."""


def distinct(field: str) -> tuple[dict[str, Any], ...]:
    """Return the aggregation pipeline that yields each text in a field once, as ``_id``."""
    return ({"$match": {field: {"$type": "string"}}}, {"$group": {"_id": f"${field}"}})


def derive_workers(names: Iterable[object]) -> tuple[WorkerRecord, ...]:
    """Return a worker for each instance name, once, in the order of the names; what is no text is passed over.

    An instance is called after its host and process unless the program says otherwise. Nothing tells when it was
    last alive, so it counts as stopped: it is no worker of the target.
    """
    texts = {name for name in names if isinstance(name, str) and name}
    return tuple(
        WorkerRecord(
            id=identity.row_id("workers", TENANT, _COLLECTION, identity.source_id(name), keep_uuid=False),
            tenant_id=TENANT,
            source=SOURCE,
            source_id=identity.source_id(name),
            kind="worker",
            hostname=name,
            status="stopped",
            metadata=_METADATA,
        )
        for name in sorted(texts)
    )
