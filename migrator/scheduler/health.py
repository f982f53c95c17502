"""Whether the scheduler is well: asked of the database, the queue, the workers and the leader, each on its own.

A part that cannot be asked is an issue of its own, and never an error of the call.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Literal, TypeVar, get_args

import msgspec

from migrator.errors import MigratorError
from migrator.records import WorkerRecord
from migrator.scheduler.leader import RESOURCE
from migrator.states import WORKER_LIVE
from migrator.store.protocols import Store
from migrator.store.statistics import Backlog
from migrator.store.validation import GLOBAL

Health = Literal["healthy", "degraded", "unhealthy"]
Severity = Literal["warning", "error", "critical"]
Component = Literal["scheduler", "database", "queue", "workers"]
Answer = TypeVar("Answer")

SILENT_FOR = timedelta(minutes=2)
"""A process that did not speak for so long counts as dead, though nobody declared it so yet."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From where on something is an issue."""

    latency: timedelta = timedelta(seconds=1)
    """Above: the database is slow."""
    wait: timedelta = timedelta(minutes=5)
    """A run that is available and waits longer: the queue does not keep up."""
    silent_for: timedelta = SILENT_FOR


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be."""

    component: Component
    severity: Severity
    message: str
    since: datetime | None = None
    """None: not known."""


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """How each part is; figures are null where the part could not be asked."""

    scheduler: Health
    leader: str | None
    database: Health
    latency_ms: float | None
    queue: Health
    ready: int | None
    workers: Health
    active_workers: int | None


class HealthStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Any critical issue: unhealthy; any issue: degraded."""

    status: Health
    components: Components
    issues: tuple[Issue, ...]
    checked_at: datetime | None
    """By the database's clock, unless another one was passed; none where it could not be asked."""


def alive(workers: list[WorkerRecord], now: datetime, silent_for: timedelta) -> list[WorkerRecord]:
    """Return who is active or draining, and spoke not longer ago than ``silent_for``."""
    return [
        worker
        for worker in workers
        if worker.status in WORKER_LIVE
        and worker.last_heartbeat_at is not None
        and now - worker.last_heartbeat_at <= silent_for
    ]


def check(store: Store, tenant: str, limits: Limits, now: datetime | None) -> HealthStatus:
    """Ask each part how it is."""
    issues: list[Issue] = []
    latency = _asked(issues, "database", store.ping)
    if latency is not None and latency > limits.latency:
        issues.append(Issue(component="database", severity="warning", message="the database answers slowly"))
    clock = now or (None if latency is None else _asked(issues, "database", store.now))
    backlog: Backlog | None = None
    workers: list[WorkerRecord] | None = None
    leader: tuple[str, int] | None = None
    if clock is not None:
        moment = clock
        backlog = _asked(issues, "queue", lambda: _backlog(store, tenant, moment))
        workers = _asked(issues, "workers", lambda: alive(list(store.workers.list()), moment, limits.silent_for))
        leader = _asked(issues, "scheduler", lambda: store.locks.holder(GLOBAL, RESOURCE, now))
        issues += _findings(backlog, workers, leader, limits, moment)
    of = {component: _of([one for one in issues if one.component == component]) for component in _COMPONENTS}
    return HealthStatus(
        status=_of(issues),
        components=Components(
            scheduler=of["scheduler"],
            leader=None if leader is None else leader[0],
            database=of["database"],
            latency_ms=None if latency is None else round(latency.total_seconds() * 1000, 3),
            queue=of["queue"],
            ready=None if backlog is None else backlog.ready,
            workers=of["workers"],
            active_workers=None if workers is None else len(workers),
        ),
        issues=tuple(issues),
        checked_at=clock,
    )


_COMPONENTS: tuple[Component, ...] = get_args(Component)


def _asked(issues: list[Issue], component: Component, ask: Callable[[], Answer]) -> Answer | None:
    try:
        return ask()
    except MigratorError as error:
        message = f"the {component} cannot be asked: {type(error).__name__}"
        issues.append(Issue(component=component, severity="critical", message=message))
        return None


def _backlog(store: Store, tenant: str, now: datetime) -> Backlog:
    with store.session(tenant, now=now) as session:
        return session.statistics.backlog()


def _findings(
    backlog: Backlog | None,
    workers: list[WorkerRecord] | None,
    leader: tuple[str, int] | None,
    limits: Limits,
    now: datetime,
) -> Iterator[Issue]:
    if workers is not None and not workers:
        yield Issue(component="workers", severity="error", message="no worker is alive")
    if leader is None:
        yield Issue(component="scheduler", severity="warning", message="nobody leads")
    if backlog is not None and backlog.oldest_ready_at is not None and now - backlog.oldest_ready_at > limits.wait:
        message = f"runs that are available wait longer than {limits.wait.total_seconds():g} s"
        yield Issue(component="queue", severity="warning", message=message, since=backlog.oldest_ready_at)


def _of(issues: list[Issue]) -> Health:
    if any(issue.severity == "critical" for issue in issues):
        return "unhealthy"
    return "degraded" if issues else "healthy"
