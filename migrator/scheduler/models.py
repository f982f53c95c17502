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
    """When a schedule recurs: a cron line or an interval, exactly one of them."""

    cron: str | None = None
    dialect: str = "debian"
    timezone: str = "UTC"
    interval: timedelta | None = None
    anchor: Literal["fixed_rate", "completion"] = "fixed_rate"
    """What an interval is counted from: the planned fire, or the end of the last run."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule does, whenever it fires."""

    name: str
    handler_name: str
    created_by: str
    id: UUID | None = None
    """If omitted: a new one."""
    description: str | None = None
    handler_type: str = "function"
    queue: str | None = None
    """If omitted: that of the handler, if it is stored and names one."""
    payload: Any = None
    """Any JSON value."""
    enabled: bool = True
    """False: paused and disabled; ``resume`` undoes both."""
    priority: int | str | None = None
    """0 to 100, higher first, or a word of docs/states.md; None counts as 50."""
    max_retries: int = 3
    retry_delay_ms: int = MINUTE_MS
    retry_strategy: Literal["exponential", "fixed"] = "exponential"
    retry_cap_ms: int = HOUR_MS
    on_exhausted: Literal["keep", "stop"] = "keep"
    timeout_ms: int | None = None
    """If omitted: that of the handler, if it is stored and names one, else five minutes."""
    max_concurrency: int | None = 1
    """How many runs may be running at the same time; None: no limit."""
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
    """If omitted: at once. A time in the past is refused."""


class RecurringRequest(Work, frozen=True, kw_only=True):
    """A schedule that recurs within bounds."""

    timing: Timing
    start_at: datetime | None = None
    """No fire before this instant; if omitted: from now on."""
    end_at: datetime | None = None
    """No fire after this instant."""
    max_fires: int | None = None
    skip_if_overdue: bool = False
    misfire_policy: MisfirePolicy | None = None
    misfire_grace_ms: int | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What an event leads to instead of a call of the handler."""

    type: Literal["create_job", "trigger_workflow", "dispatch_agent"]
    config: dict[str, Any] = msgspec.field(default_factory=dict)


class EventRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How a handler is run at an event."""

    name: str | None = None
    """If omitted: ``<event>:<handler>``, which can be registered once."""
    id: UUID | None = None
    priority: int | str = 50
    enabled: bool = True
    action: Action | None = None
    created_by: str = "api"
    max_retries: int = 3
    timeout_ms: int | None = None
    max_concurrency: int | None = None


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a schedule that do not move a fire; a field that is not given stays as it is."""

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
    """Which runs of a schedule, by creation time; runs that never started are among them."""

    limit: int = 10
    offset: int = 0
    states: tuple[str, ...] = ()
    since: datetime | None = None
    """Created at this instant or later."""
    until: datetime | None = None
    """Created before this instant."""
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
    """Whether another page follows."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What an event led to."""

    event_id: str
    runs: tuple[Run, ...]
    """The runs that this call queued, one per handler, highest priority first."""
    repeated: int
    """Handlers that have a run of this ``event_id`` already."""


class Seeding(msgspec.Struct, frozen=True, kw_only=True):
    """The names of handlers that were given to ``seed_handlers``."""

    added: tuple[str, ...]
    unchanged: tuple[str, ...]
    conflicting: tuple[str, ...]
    """Stored with other values, or their code is stored under another name; what is stored stays."""
