"""``locks``: leases; only those alive at the plan's instant are carried unless asked otherwise."""

from typing import Any, ClassVar

import msgspec

from migrator.records import Lock, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rejected, Rows, Skipped
from migrator.sources.shapes import Int64, Moment, Shape, filled, indexed, keys, known_paths, read, text
from migrator.sources.stellaops import names
from migrator.values import identity, jsonb
from migrator.values.times import to_bson

SOURCE = names.source(names.LOCKS)
EPOCH = "*/persistence"
"""The ``_id`` under which a cutover says which side holds the data (``store.epoch``); each side has its own."""
TOOLS_OWN = "the tool's own lock"


class LockDocument(Shape, kw_only=True):
    """A lock as the store keeps it, with BSON dates; ``ttlAt`` is another module's name for the end of the lease."""

    aliases: ClassVar = frozenset({"ttlAt"})

    key: Any = msgspec.field(name="_id")
    resource: str | None = None
    tenant_id: str | None = None
    owner: str | None = None
    fence: Int64 | None = None
    acquired_at: Moment = None
    expires_at: Moment = None
    ttl_at: Moment = None
    metadata: dict[str, Any] | None = None


_NAMES = keys(LockDocument)


def decode(document: Document, context: Context) -> Decoded:
    """Return the lock of a document; one that names no resource is named by its ``_id``.

    Raises ``Skipped`` for a lock that had expired at ``context.as_of``, and for the tool's own. One without expiry is
    live.
    """
    found = read(document, LockDocument)
    if found.key == EPOCH:
        raise Skipped(TOOLS_OWN)
    notes: list[Note] = []
    tenant = tenants.tenant_of(found.tenant_id, context, notes)
    source_id = identity.source_id(found.key)
    resource = found.resource if found.resource is not None else found.key
    if type(resource) is not str:
        raise Rejected("missing-field", "resource", "a text, or a text as _id")
    acquired = found.acquired_at
    expires = found.expires_at
    if expires is None and found.ttl_at is not None:
        notes.append(Note("alias", "ttlAt"))
        expires = found.ttl_at
    context.skip_expired_lock(expires)
    key = f"{tenant}/{indexed(resource, 'resource')}"
    row = Lock(
        id=identity.row_id("locks", tenant, names.LOCKS, source_id),
        tenant_id=tenant,
        source=SOURCE,
        source_id=source_id,
        key=key,
        lock_id=identity.lock_id(key),
        holder=text(found.owner, "owner"),
        fence=found.fence or 0,
        acquired_at=acquired,
        expires_at=expires,
        metadata=None if found.metadata is None else jsonb.encode(document["metadata"]),
    )
    return Decoded((row,), tuple(notes))


def encode(rows: Rows) -> Document:
    """Return the document of a lock; a fence of none is left out, since the source has none."""
    row: Any = rows[0]
    return filled(
        _NAMES,
        (
            identity.parse_source_id(row.source_id),
            row.key.removeprefix(f"{row.tenant_id}/"),
            row.tenant_id,
            row.holder,
            row.fence or None,
            None if row.acquired_at is None else to_bson(row.acquired_at),
            None if row.expires_at is None else to_bson(row.expires_at),
            None if row.metadata is None else jsonb.decode(row.metadata),
        ),
    )


COLLECTION = Collection(
    name=names.LOCKS,
    tables=(Lock,),
    decode=decode,
    encode=encode,
    tenant_expression=aggregates.tenant(),
    # No times: expired locks are left behind by rule, and MongoDB deletes them while they are counted.
    measures=(),
    attach=attach_extra,
    remainder=remainder_of,
    unique=(("key",),),
    known=known_paths(LockDocument),
)
