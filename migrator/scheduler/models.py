"""What callers of the client give and get: requests, patches, queries, pages, executions. Lengths are milliseconds.

Requests are checked in ``scheduler.validation``.
"""

from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from migrator.records import ExecutionLog, Run, Schedule, Trigger

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

MisfirePolicy = Literal["fire_once", "skip", "fire_all"]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When something recurs: a cron line or an interval, exactly one of them."""

    cron: str | None = None
    dialect: str = "debian"
    timezone: str = "UTC"
    interval: timedelta | None = None
    anchor: Literal["fixed_rate", "completion"] = "fixed_rate"
    """What an interval is counted from: the planned fire, or the end of the last run."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done; the defaults are those of source 002."""

    name: str
    handler_name: str
    created_by: str
    id: UUID | None = None
    """None: a new one."""
    description: str | None = None
    handler_type: str = "function"
    queue: str | None = None
    """None: that of the handler, where it is known and names one."""
    payload: Any = None
    """Any JSON value."""
    enabled: bool = True
    """False: paused and disabled, as an imported schedule that is not enabled; ``resume`` undoes both."""
    priority: int | str | None = None
    """0 to 100, or a word of ``states.PRIORITY_WORDS``; none counts as 50."""
    max_retries: int = 3
    retry_delay_ms: int = MINUTE_MS
    retry_strategy: Literal["exponential", "fixed"] = "exponential"
    retry_cap_ms: int = HOUR_MS
    on_exhausted: Literal["keep", "stop"] = "keep"
    timeout_ms: int | None = None
    """None: that of the handler, where it is known and names one, else five minutes."""
    max_concurrency: int | None = 1
    """None: runs may overlap without limit."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None


class ScheduleRequest(Work, frozen=True, kw_only=True):
    """A schedule that a cron line makes fire."""

    cron: str
    dialect: str = "debian"
    timezone: str = "UTC"
    misfire_policy: MisfirePolicy | None = None
    misfire_grace_ms: int | None = None


class OnceRequest(Work, frozen=True, kw_only=True):
    """A schedule that fires once."""

    run_at: datetime | None = None
    """None: at once. A time that is past is refused."""


class RecurringRequest(Work, frozen=True, kw_only=True):
    """A schedule that recurs within bounds."""

    timing: Timing
    start_at: datetime | None = None
    """No fire before; none: from now on."""
    end_at: datetime | None = None
    """No fire after; the instant itself counts."""
    max_fires: int | None = None
    skip_if_overdue: bool = False
    misfire_policy: MisfirePolicy | None = None
    misfire_grace_ms: int | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What an event leads to besides a call."""

    type: Literal["create_job", "trigger_workflow", "dispatch_agent"]
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class EventRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a handler hears of an event."""

    name: str | None = None
    """None: ``<event>:<handler>``, which can be registered once."""
    id: UUID | None = None
    priority: int | str = 50
    enabled: bool = True
    action: Action | None = None
    created_by: str = "api"
    max_retries: int = 3
    timeout_ms: int | None = None
    max_concurrency: int | None = None


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a schedule that move no fire; what is unset stays."""

    name: str | UnsetType = UNSET
    description: str | UnsetType | None = UNSET
    handler_name: str | UnsetType = UNSET
    handler_type: str | UnsetType = UNSET
    queue: str | UnsetType | None = UNSET
    payload: Any = UNSET
    priority: int | str | UnsetType | None = UNSET
    max_retries: int | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
    retry_strategy: str | UnsetType = UNSET
    retry_cap_ms: int | UnsetType = UNSET
    on_exhausted: str | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    max_concurrency: int | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType | None = UNSET


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs of a schedule; they stand in the order in which they were made, those that never started too."""

    limit: int = 10
    offset: int = 0
    states: tuple[str, ...] = ()
    since: datetime | None = None
    """Made at this instant or later."""
    until: datetime | None = None
    """Made before this instant."""
    include_logs: bool = False
    descending: bool = True
    """Newest first."""


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
