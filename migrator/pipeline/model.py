"""What the parts of the copy hand to each other; all of it can be sent to another process."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

Mode = Literal["direct", "merge"]
"""``direct``: the range was empty when the plan was made, rows are appended; ``merge``: rows are compared first."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over the source; its ``as_of``, profile and configuration hold for all of its chunks."""

    id: UUID
    profile: str
    profile_version: int
    tool_version: str
    config_digest: str
    source_identity: str
    as_of: datetime
    state: str = "open"
    context: dict[str, Any] = msgspec.field(default_factory=dict)
    """What decode may know (``Context``), and the scope: collections and tenants."""
    stream_position: bytes | None = None
    """Where a change stream must start so that nothing written since is missed; taken before the first read."""


class PlannedChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A range of ``_id`` in one collection: ``lower <= _id < upper``, none for an open end."""

    collection: str
    ordinal: int
    lower: bytes | None
    upper: bytes | None
    estimated: int
    average_bytes: int
    mode: Mode = "direct"
    done: bool = False


class ChunkDone(msgspec.Struct, frozen=True, kw_only=True):
    """What a chunk did; the figures stand in the ledger too."""

    collection: str
    ordinal: int
    documents: int = 0
    """Read from the source."""
    bytes: int = 0
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    quarantined: int = 0
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows that its documents stand for, by table."""
    written: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows inserted or changed, by table."""
    clean: int = 0
    """Documents without residue."""
    already: bool = False
    """Another worker had done it."""
