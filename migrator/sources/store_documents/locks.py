"""``locks``: leases, with BSON dates; only those alive at the plan's instant are carried unless asked otherwise."""

from typing import Any

from migrator.records import Lock
from migrator.sources.mapping.language import Field, Mapped, Reading
from migrator.sources.profile import Context, Document, Rejected, Rows, Skipped
from migrator.sources.shapes import Int64, indexed
from migrator.sources.store_documents import names
from migrator.sources.store_documents.fields import TENANT, field, json, text, time

EPOCH = "*/persistence"
"""The ``_id`` under which a cutover says which side holds the data (``store.epoch``); each side has its own."""
TOOLS_OWN = "the tool's own lock"


def _admit(document: Document, _context: Context) -> None:
    if document["_id"] == EPOCH:
        raise Skipped(TOOLS_OWN)


def _derive(document: Document, reading: Reading, _context: Context) -> None:
    """Read the resource; a lock that names none is named by its ``_id``."""
    resource = document.get("resource")
    if resource is None:
        resource = document["_id"]
    if type(resource) is not str:
        raise Rejected("missing-field", "resource", "a text, or a text as _id")
    reading.fill(Lock.table, key=indexed(resource, "resource"))


def _resource(rows: Rows) -> str:
    row: Any = rows[0]
    key: str = row.key
    return key.removeprefix(f"{row.tenant_id}/")


LOCKS = Mapped(
    name=names.LOCKS,
    tables=("locks",),
    fields=(
        Field(path="resource", converter="text", write=_resource),
        TENANT,
        text("locks.holder", "owner"),
        field("locks.fence", "number", shape=Int64, default=0),
        time("locks.acquiredAt", encoding="date"),
        time("locks.expiresAt", encoding="date", also=("ttlAt",)),
        json("locks.metadata", dict[str, Any]),
    ),
    admit=_admit,
    derive=_derive,
    # No times: expired locks are left behind by rule, and MongoDB deletes them while they are counted.
    measures=(),
)
