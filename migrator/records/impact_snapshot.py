"""What a run selected."""

from typing import ClassVar

from migrator.records.base import EMPTY, Big, Flag, Jsonb, SourcedRecord, Text, Time, Uuid


class ImpactSnapshot(SourcedRecord, frozen=True, kw_only=True):
    """A selector and the images it matched; up to 16 MB a row."""

    table: ClassVar[str] = "impact_snapshots"

    run_id: Uuid | None = None
    snapshot_id: Text | None = None
    selector: Jsonb | None = None
    images: Jsonb | None = None
    usage_only: Flag | None = None
    total: Big | None = None
    generated_at: Time | None = None
    schema_version: Text | None = None
    extra: Jsonb = EMPTY
