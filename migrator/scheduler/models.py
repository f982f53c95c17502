"""What callers of the client give and get: requests, pages, executions.

Requests are checked in ``scheduler.validation``.
"""

from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict
from uuid import UUID

import msgspec

from migrator import states
from migrator.records import ExecutionLog, Run, Schedule, Trigger
from migrator.values import jsonb


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When a schedule recurs: a cron line or an interval, exactly one of them."""

    cron: str | None = None
    dialect: str = "debian"
    timezone: str = "UTC"
    interval: timedelta | None = None
    anchor: Literal["fixed_rate", "completion"] = "fixed_rate"
    """What an interval is counted from: the planned fire, or the end of the last run."""


class ScheduleRequest(Timing, frozen=True, kw_only=True):
    """What a new schedule does, and when it recurs: by ``cron`` or by ``interval``, or neither if it fires once."""

    handler_name: str
    created_by: str
    name: str | None = None
    """Of one schedule of the tenant at a time; one that has ended gives its name to the next. May be omitted of a
    schedule that fires once: ``<handler>:<id>``."""
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
    retry_delay: timedelta = timedelta(minutes=1)
    """Before the first retry; doubled before each further one, up to ``retry_cap``, unless the strategy is fixed."""
    retry_strategy: Literal["exponential", "fixed"] = "exponential"
    retry_cap: timedelta = timedelta(hours=1)
    on_exhausted: Literal["keep", "stop"] = "keep"
    timeout: timedelta | None = None
    """If omitted: that of the handler, if it is stored and names one, else five minutes."""
    max_concurrency: int | None = 1
    """How many runs may be running at the same time; None: no limit."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] | None = None
    start_at: datetime | None = None
    """No fire before this instant; if omitted: from now on."""
    end_at: datetime | None = None
    """No fire after this instant."""
    max_fires: int | None = None
    skip_if_overdue: bool = False
    misfire_policy: Literal["fire_once", "skip", "fire_all"] | None = None
    misfire_grace: timedelta | None = None
    """A slot is late if it is older than this; if omitted: one minute."""


class Changes(TypedDict, total=False):
    """Changes of a schedule that do not move a fire; a field that is not given stays as it is."""

    name: str
    description: str | None
    handler_name: str
    handler_type: str
    queue: str | None
    payload: Any
    priority: int | str | None
    max_retries: int
    retry_delay: timedelta
    retry_strategy: str
    retry_cap: timedelta
    on_exhausted: str
    timeout: timedelta
    max_concurrency: int | None
    tags: tuple[str, ...]
    metadata: dict[str, Any] | None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule with what makes it fire."""

    schedule: Schedule
    triggers: tuple[Trigger, ...]
    """By id."""
    waits: bool = False
    """It has no further slots, and each live run of it waits for a worker."""

    @property
    def state(self) -> str:
        """Return the status of the schedule; ``queued`` in place of ``running`` while each live run of it waits."""
        return states.SCHEDULE_QUEUED if self.waits else self.schedule.status

    @property
    def id(self) -> UUID:
        """Return the id of the schedule."""
        return self.schedule.id

    @property
    def payload(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the payload of the schedule as a value; ``schedule.payload`` is its JSON text."""
        return None if self.schedule.payload is None else jsonb.decode(self.schedule.payload)

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

    @property
    def result(self) -> Any:  # noqa: ANN401 - any JSON value
        """Return the result of the run as a value; ``run.result`` is its JSON text."""
        return None if self.run.result is None else jsonb.decode(self.run.result)


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
