"""What is to be run: one row per schedule, whatever makes it fire."""

from typing import ClassVar

from migrator.records.base import EMPTY, Big, Flag, Int, Jsonb, Small, SourcedRecord, Text, TextList, Time


class Schedule(SourcedRecord, frozen=True, kw_only=True):
    """A schedule: what runs, how it is retried, who made it.

    Columns that a source may leave out are null rather than a default, so that absent and stated stay two things.
    """

    table: ClassVar[str] = "schedules"

    name: Text
    """Unique among a tenant's rows born here and not deleted; source data may repeat it."""
    description: Text | None = None
    enabled: Flag = True
    status: Text
    """A member of ``states.SCHEDULE``."""
    mode: Text | None = None
    selection: Jsonb | None = None
    only_if: Jsonb | None = None
    notify: Jsonb | None = None
    limits: Jsonb | None = None
    subscribers: TextList | None = None
    handler_name: Text | None = None
    handler_type: Text | None = None
    queue: Text | None = None
    payload: Jsonb | None = None
    priority: Small | None = None
    """0 to 100, higher first; null counts as 50."""
    max_retries: Int | None = None
    """Retries after the first attempt; null is none."""
    retry_delay_ms: Big | None = None
    retry_strategy: Text | None = None
    retry_cap_ms: Big | None = None
    """Longest delay of an exponential series; null where the source names none. Rows born here get 3 600 000."""
    retry_count: Int | None = None
    on_exhausted: Text | None = None
    timeout_ms: Big | None = None
    max_concurrency: Int | None = None
    """Runs at the same time; null means that they may overlap without limit."""
    tags: TextList | None = None
    metadata: Jsonb | None = None
    schema_version: Text | None = None
    created_at: Time | None = None
    created_by: Text | None = None
    updated_at: Time | None = None
    updated_by: Text | None = None
    paused_at: Time | None = None
    cancelled_at: Time | None = None
    completed_at: Time | None = None
    deleted_at: Time | None = None
    """Set: softly deleted; lists, gets and due queries leave it out."""
    deleted_by: Text | None = None
    extra: Jsonb = EMPTY
