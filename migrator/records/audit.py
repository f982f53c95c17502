"""What somebody did."""

from typing import ClassVar

from migrator.records.base import EMPTY, Jsonb, SourcedRecord, Text, Time, Uuid


class AuditEntry(SourcedRecord, frozen=True, kw_only=True):
    """An entry of the audit trail: append only, without foreign keys, since it outlives what it tells of."""

    table: ClassVar[str] = "audit"

    category: Text
    action: Text
    occurred_at: Time
    actor: Jsonb | None = None
    entity_id: Text | None = None
    """The source's text, whatever kind of thing it names."""
    schedule_id: Uuid | None = None
    run_id: Uuid | None = None
    correlation_id: Text | None = None
    message: Text | None = None
    metadata: Jsonb | None = None
    extra: Jsonb = EMPTY
