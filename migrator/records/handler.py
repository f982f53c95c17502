"""A named piece of code that schedules call."""

from typing import ClassVar

from migrator.records.base import EMPTY, Big, Flag, Jsonb, SourcedRecord, Text


class Handler(SourcedRecord, frozen=True, kw_only=True):
    """A handler by name; its body is the application's."""

    table: ClassVar[str] = "handlers"

    name: Text
    """Unique per tenant."""
    handler_path: Text | None = None
    handler_type: Text
    queue: Text | None = None
    default_timeout_ms: Big | None = None
    is_active: Flag = True
    is_system: Flag = False
    """Its deletion is refused."""
    idempotent: Flag = False
    """A second run of one slot does no harm."""
    extra: Jsonb = EMPTY
