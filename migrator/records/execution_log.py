"""A line of a run's log."""

from typing import ClassVar

from migrator.records.base import EMPTY, Jsonb, SourcedRecord, Text, Time, Uuid


class ExecutionLog(SourcedRecord, frozen=True, kw_only=True):
    """A log line; kept with a null ``run_id`` when its run is gone."""

    table: ClassVar[str] = "execution_logs"

    run_id: Uuid | None = None
    schedule_id: Uuid | None = None
    """No foreign key: the line outlives the schedule."""
    logged_at: Time
    level: Text
    """A member of ``states.LOG_LEVELS``."""
    message: Text | None = None
    context: Jsonb | None = None
    extra: Jsonb = EMPTY
