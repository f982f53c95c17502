"""What every record has in common.

A record is a row: one frozen struct per table, whose fields are the table's columns, in the table's order. The
annotations below carry the column type, so that a row can be rendered from the declaration alone.
"""

from datetime import datetime
from typing import Annotated, ClassVar
from uuid import UUID

import msgspec

Small = Annotated[int, "int2"]
Int = Annotated[int, "int4"]
Big = Annotated[int, "int8"]
Text = Annotated[str, "text"]
TextList = Annotated[tuple[str, ...], "text[]"]
Flag = Annotated[bool, "bool"]
Time = Annotated[datetime, "timestamptz"]
"""An instant: aware, UTC, microseconds."""
Uuid = Annotated[UUID, "uuid"]
Jsonb = Annotated[bytes, "jsonb"]
"""JSON text in UTF-8 as ``values.jsonb.encode`` writes it (keys sorted, no white space)."""

EMPTY: bytes = b"{}"
"""The residue of a clean document."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``table`` in the schema ``scheduler``."""

    table: ClassVar[str]


class SourcedRecord(Record, frozen=True, kw_only=True):
    """A row that says where it came from; ``source`` and ``source_id`` are null for rows born here."""

    id: Uuid
    tenant_id: Text
    source: Text | None = None
    source_id: Text | None = None
