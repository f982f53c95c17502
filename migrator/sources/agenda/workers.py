"""Workers, of which Agenda has no collection: the names of its instances stand on jobs and log lines."""

from collections.abc import Iterable
from typing import Any, Final

from migrator.records import WorkerRecord
from migrator.values import identity, jsonb

TENANT: Final = "*"
_COLLECTION: Final = "instances"
"""No collection: the names come from ``lastModifiedBy`` of jobs and ``agendaName`` of logs."""
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
            source=f"agenda/{_COLLECTION}",
            source_id=identity.source_id(name),
            kind="worker",
            hostname=name,
            status="stopped",
            metadata=_METADATA,
        )
        for name in sorted(texts)
    )
