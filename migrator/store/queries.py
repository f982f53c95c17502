"""What lists are asked by, and what a page of them holds; ``store.ports`` offers them too."""

from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from migrator.records.run import Run

SortKey: TypeAlias = Literal["created_at", "next_fire_at", "name", "priority"]
GraphType: TypeAlias = Literal["build", "overlay"]


class ScheduleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What ``Schedules.list`` filters by; none and empty mean: not at all. ``limit`` below 1 raises ``UsageError``."""

    statuses: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    """Kinds of its triggers."""
    enabled: bool | None = None
    tags_any: tuple[str, ...] = ()
    tags_all: tuple[str, ...] = ()
    created_after: datetime | None = None
    """Exclusive, as all bounds here."""
    created_before: datetime | None = None
    next_fire_after: datetime | None = None
    """A schedule's next fire is the earliest ``next_fire_at`` of its enabled triggers."""
    next_fire_before: datetime | None = None
    name_contains: str | None = None
    """Regardless of case (ASCII letters and those that ``str.lower`` folds)."""
    created_by: str | None = None
    include_global: bool = False
    limit: int = 50
    offset: int = 0
    sort_by: SortKey = "created_at"
    """Schedules without a value come last in both directions; a priority that is null counts as 50."""
    descending: bool = True


class RunQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What ``Runs.list`` filters by. Pages are by key: pass the last run's ``cursor`` to go on."""

    schedule_id: UUID | None = None
    states: tuple[str, ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    trace_id: str | None = None
    cursor: tuple[datetime, UUID] | None = None
    """(created_at, id) of the last run of the page before."""
    limit: int = 50
    offset: int = 0
    """Runs passed over, after the cursor; a page by key is the quicker way."""
    descending: bool = True
    """Newest first, else oldest first."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """Runs by created_at, then id, and where the next page begins (none: this was the last)."""

    runs: tuple[Run, ...]
    cursor: tuple[datetime, UUID] | None
