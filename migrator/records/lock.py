"""A lease on a resource."""

from typing import ClassVar

from migrator.records.base import EMPTY, Big, Jsonb, SourcedRecord, Text, Time, Uuid


class Lock(SourcedRecord, frozen=True, kw_only=True):
    """A lease; the row outlives the lock, so that ``fence`` keeps rising."""

    table: ClassVar[str] = "locks"

    key: Text
    """``<tenant>/<resource>``, the tenant ``*`` for global ones; unique."""
    lock_id: Big
    """``values.identity.lock_id(key)``: the key of the advisory lock, the same in every process."""
    owner: Uuid | None = None
    """One per acquire; null when free, and for migrated locks, whose owner text is ``holder``."""
    holder: Text | None = None
    fence: Big = 0
    acquired_at: Time | None = None
    expires_at: Time | None = None
    """Null: without expiry, thus live."""
    metadata: Jsonb | None = None
    extra: Jsonb = EMPTY
