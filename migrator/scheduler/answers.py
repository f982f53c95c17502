"""What the scheduler's facade answers."""

from datetime import datetime
from uuid import UUID

import msgspec

from migrator.records import ExecutionLog, Run, Schedule, Trigger


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with what makes it fire."""

    schedule: Schedule
    triggers: tuple[Trigger, ...]
    """By id."""

    @property
    def id(self) -> UUID:
        """Return the id of the schedule."""
        return self.schedule.id

    @property
    def next_fire_at(self) -> datetime | None:
        """Return the earliest next fire of its enabled triggers, also while it is paused or disabled."""
        fires = [trigger.next_fire_at for trigger in self.triggers if trigger.enabled]
        return min((fire for fire in fires if fire is not None), default=None)


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of schedules."""

    jobs: tuple[Job, ...]
    total: int
    """How many pass the filters, on all pages."""
    limit: int
    offset: int


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its log."""

    run: Run
    logs: tuple[ExecutionLog, ...] = ()
    """In time order; empty too where logs were not asked for."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs."""

    executions: tuple[Execution, ...]
    more: bool
    """Whether others follow."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What an event led to."""

    event_id: str
    runs: tuple[Run, ...]
    """Those that this delivery made, one per handler, highest priority first."""
    repeated: int
    """Handlers that had heard of this event before: they got no second run."""


class Seeding(msgspec.Struct, frozen=True, kw_only=True):
    """What became of handlers that were seeded, by name."""

    added: tuple[str, ...]
    unchanged: tuple[str, ...]
    conflicting: tuple[str, ...]
    """Stored otherwise, or their code is stored under another name: left as they are stored."""
