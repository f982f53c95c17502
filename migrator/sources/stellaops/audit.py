"""``audit``: who did what."""

from typing import Any

import msgspec

from migrator.records import AuditEntry, attach_extra, remainder_of
from migrator.sources import aggregates, tenants
from migrator.sources.profile import Collection, Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import (
    Moment,
    Shape,
    filled,
    keys,
    known_paths,
    ordered_reader,
    plain,
    read,
    required,
    text,
)
from migrator.sources.stellaops import ids, names
from migrator.values import identity, jsonb
from migrator.values.times import format_iso

SOURCE = names.source(names.AUDIT)


class Actor(Shape):
    """Who acted."""

    actor_id: str | None = None
    display_name: str | None = None
    kind: str | None = None


class AuditDocument(Shape, kw_only=True):
    """An audit entry as the source writes it."""

    key: Any = msgspec.field(name="_id")
    id: Any = None
    tenant_id: str | None = None
    category: str
    action: str
    occurred_at: Moment
    actor: Actor | None = None
    entity_id: str | None = None
    schedule_id: str | None = None
    run_id: str | None = None
    correlation_id: str | None = None
    metadata: dict[str, str] | None = None
    message: str | None = None


_NAMES = keys(AuditDocument)
_actor = ordered_reader(Actor)


def decode(document: Document, context: Context) -> Decoded:
    """Return the entry of a document.

    What it tells of may be gone long since, so its ids are no references: a schedule's or run's column holds the id
    that its text computes to, stored or not.
    """
    found = read(document, AuditDocument)
    notes: list[Note] = []
    tenant = tenants.tenant_of(found.tenant_id, context, notes)
    source_id = identity.source_id(found.key)
    ids.compare_ids(found.key, found.id, notes)
    schedule, run = text(found.schedule_id, "scheduleId"), text(found.run_id, "runId")
    row = AuditEntry(
        id=identity.row_id("audit", tenant, names.AUDIT, source_id),
        tenant_id=tenant,
        source=SOURCE,
        source_id=source_id,
        category=plain(found.category, "category"),
        action=plain(found.action, "action"),
        occurred_at=required(found.occurred_at, "occurredAt"),
        actor=None if found.actor is None else jsonb.encode(document["actor"]),
        entity_id=text(found.entity_id, "entityId"),
        schedule_id=None if schedule is None else ids.schedule_id(tenant, schedule),
        run_id=None if run is None else ids.run_id(tenant, run),
        correlation_id=text(found.correlation_id, "correlationId"),
        message=text(found.message, "message"),
        metadata=None if found.metadata is None else jsonb.encode(document["metadata"]),
    )
    return Decoded((row,), tuple(notes))


def encode(rows: Rows) -> Document:
    """Return the document of an entry."""
    row: Any = rows[0]
    key, own_id = ids.keys_of(row.source_id)
    return filled(
        _NAMES,
        (
            key,
            own_id,
            row.tenant_id,
            row.category,
            row.action,
            format_iso(row.occurred_at),
            None if row.actor is None else _actor(row.actor),
            row.entity_id,
            ids.schedule_text(row.schedule_id),
            ids.run_text(row.run_id),
            row.correlation_id,
            None if row.metadata is None else jsonb.decode(row.metadata),
            row.message,
        ),
    )


COLLECTION = Collection(
    name=names.AUDIT,
    tables=(AuditEntry,),
    decode=decode,
    encode=encode,
    tenant_expression=aggregates.tenant(),
    measures=(
        aggregates.free_words("category", "$category"),
        aggregates.free_words("action", "$action"),
        aggregates.span("occurredAt", "occurred_at"),
    ),
    attach=attach_extra,
    remainder=remainder_of,
    reference_paths=frozenset({"scheduleId", "runId"}),
    known=known_paths(AuditDocument),
)
