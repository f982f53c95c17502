"""The projection of a schedule's runs."""

from typing import ClassVar

from migrator.records.base import EMPTY, Jsonb, SourcedRecord, Time, Uuid


class RunSummary(SourcedRecord, frozen=True, kw_only=True):
    """Counters and the latest runs of one schedule; always recomputable from ``runs``."""

    table: ClassVar[str] = "run_summaries"

    schedule_id: Uuid | None = None
    """One row per tenant and schedule. No foreign key; null for a migrated summary whose schedule is not stored."""
    updated_at: Time | None = None
    last_run: Jsonb | None = None
    recent: Jsonb | None = None
    """Bounded, newest first."""
    counters: Jsonb | None = None
    extra: Jsonb = EMPTY
