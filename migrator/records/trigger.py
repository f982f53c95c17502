"""When a schedule fires."""

from typing import ClassVar

from migrator.records.base import EMPTY, Big, Flag, Jsonb, SourcedRecord, Text, Time, Uuid


class Trigger(SourcedRecord, frozen=True, kw_only=True):
    """One cause that makes a schedule fire; exactly the columns of its ``kind`` are set (a CHECK says so).

    cron: ``cron_expression`` and ``cron_dialect`` · interval: ``interval_ms`` and ``anchor`` · one_time: ``run_at`` ·
    event: ``event_name``, and never ``timezone`` or ``next_fire_at``.
    """

    table: ClassVar[str] = "triggers"

    schedule_id: Uuid
    kind: Text
    cron_expression: Text | None = None
    cron_dialect: Text | None = None
    timezone: Text | None = None
    """IANA name; null where the source names none."""
    interval_ms: Big | None = None
    anchor: Text | None = None
    """``completion`` (counted from the end of the last run) or ``fixed_rate``."""
    run_at: Time | None = None
    event_name: Text | None = None
    start_at: Time | None = None
    end_at: Time | None = None
    max_fires: Big | None = None
    fire_count: Big = 0
    skip_if_overdue: Flag = False
    misfire_policy: Text | None = None
    misfire_grace_ms: Big | None = None
    enabled: Flag = True
    next_fire_at: Time | None = None
    last_fire_at: Time | None = None
    derived: Flag = False
    """Made in a closing pass from many documents; not encoded back."""
    source_spec: Jsonb | None = None
    """The original expression verbatim."""
    extra: Jsonb = EMPTY
