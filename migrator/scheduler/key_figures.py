"""The five figures that source document 004 watches while a scheduler is moved, over all tenants of one backend.

How many runs, how long they take, how many fail, how many connections the database has, and how many runs wait. Either
backend is asked the same, so that before and after can stand side by side.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from migrator.errors import UnreachableError
from migrator.scheduler import rates
from migrator.scheduler.exposition import Sample
from migrator.scheduler.samples import served
from migrator.store.protocols import Store
from migrator.store.statistics import RunFilter

WINDOW: Final = timedelta(hours=1)
"""Up to the moment at which they are taken; runs count by when they were made."""


class KeyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The five, as they were at one moment."""

    taken_at: datetime
    """By the database's clock."""
    runs: int
    """Made in the window."""
    duration_ms: float | None
    """Mean of the completed ones; none where none completed."""
    failure_percent: float | None
    """Of those that have shown whether they succeed; none where none has."""
    connections: int | None
    """To the database (MongoDB: to the server); none: the user may not ask."""
    ready: int
    """Runs that are queued and available, whenever they were made."""


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """How one of the five is called."""

    field: str
    """Of ``KeyFigures``."""
    words: str
    sample: str
    help: str
    scale: float = 1.0
    """From the field to the sample's unit."""
    wanted: str
    """What source 004 wants to see after the move."""


FIGURES: Final = (
    Figure(
        field="runs",
        words="runs in the last hour",
        sample="overall_runs_1h",
        help="Runs of all tenants made in the last hour.",
        wanted="about the same",
    ),
    Figure(
        field="duration_ms",
        words="mean duration, ms",
        sample="overall_run_duration_seconds",
        help="Mean duration of completed runs of all tenants, last hour.",
        scale=0.001,
        wanted="not longer",
    ),
    Figure(
        field="failure_percent",
        words="failed, percent",
        sample="overall_failure_rate_percent",
        help="Failed among the runs of all tenants that were judged, last hour.",
        wanted="near 0",
    ),
    Figure(
        field="connections",
        words="connections to the database",
        sample="database_connections",
        help="Connections to the database; on MongoDB, to the server.",
        wanted="fewer",
    ),
    Figure(
        field="ready",
        words="runs that wait",
        sample="overall_runs_ready",
        help="Runs of all tenants queued and available.",
        wanted="few",
    ),
)

SOMETIMES: Final = frozenset(
    {"overall_run_duration_seconds", "overall_failure_rate_percent", "database_connections"},
)
"""Samples that are there only where there is something to tell."""


def take(
    store: Store,
    *,
    now: datetime | None = None,
    within: timedelta = timedelta.max,
    monotonic: Callable[[], float] = time.monotonic,
) -> KeyFigures:
    """Ask the store for the figures of this moment; ``now`` none is the database's clock.

    Tenants are asked one after the other; raises ``UnreachableError`` where that is not done ``within`` so long.
    """
    end = monotonic() + within.total_seconds()
    at = store.now() if now is None else now
    by_state: Counter[str] = Counter()
    lasted = completed = ready = 0
    for tenant in served(store):
        if monotonic() > end:
            raise UnreachableError(f"the key figures of all tenants take longer than {within.total_seconds():g} s")
        with store.session(tenant, now=now) as session:
            runs, backlog = session.statistics.runs(RunFilter(since=at - WINDOW)), session.statistics.backlog()
        by_state.update(runs.by_state)
        ready += backlog.ready
        if runs.durations is not None:
            lasted, completed = lasted + runs.durations.total, completed + runs.durations.count
    return KeyFigures(
        taken_at=at,
        runs=sum(by_state.values()),
        duration_ms=round(lasted / completed, 1) if completed else None,
        failure_percent=rates.failure_rate(by_state),
        connections=store.connections(),
        ready=ready,
    )


def samples(figures: KeyFigures, *, prefix: str = "", **labels: str) -> Iterator[Sample]:
    """Yield the figures that there are, for Prometheus."""
    for one in FIGURES:
        value = getattr(figures, one.field)
        if value is not None:
            yield Sample(name=prefix + one.sample, help=one.help, value=round(value * one.scale, 6), labels=labels)
