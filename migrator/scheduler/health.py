"""Health of a tenant's scheduler, and its status, also that of all tenants together.

Health asks database, queue, workers and leader, each on its own: a part that cannot be asked is an issue, and never an
error of the call.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeVar, get_args
from uuid import UUID

import msgspec

from migrator.errors import MigratorError
from migrator.records import WorkerRecord
from migrator.scheduler import queries
from migrator.scheduler.leadership import RESOURCE
from migrator.states import WORKER_ENDED, WORKER_LIVE
from migrator.store.protocols import Session, Store
from migrator.store.queue import served_tenants
from migrator.store.statistics import Backlog, NextFire, ScheduleStatistics
from migrator.store.validation import GLOBAL

Health = Literal["healthy", "degraded", "unhealthy"]
Severity = Literal["warning", "error", "critical"]
Component = Literal["scheduler", "database", "queue", "workers"]
Answer = TypeVar("Answer")

SILENT_FOR = timedelta(minutes=2)
"""A process without a heartbeat for so long counts as dead, although no process has declared it dead yet."""


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
    """None if not known."""


class Components(msgspec.Struct, frozen=True, kw_only=True):
    """How each part is; values are None where the part could not be asked."""

    scheduler: Health
    leader: str | None
    database: Health
    latency: timedelta | None
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


def alive_workers(workers: list[WorkerRecord], now: datetime, silent_for: timedelta) -> list[WorkerRecord]:
    """Return the workers that are active or draining, with a heartbeat not longer ago than ``silent_for``."""
    return [
        worker
        for worker in workers
        if worker.status in WORKER_LIVE
        and worker.last_heartbeat_at is not None
        and now - worker.last_heartbeat_at <= silent_for
    ]


def health_of(store: Store, tenant: str, limits: Limits, now: datetime | None) -> HealthStatus:
    """Ask each part how it is."""
    issues: list[Issue] = []
    latency = _ask(issues, "database", store.ping)
    if latency is not None and latency > limits.latency:
        issues.append(Issue(component="database", severity="warning", message="the database answers slowly"))
    clock = now or (None if latency is None else _ask(issues, "database", store.now))
    backlog: Backlog | None = None
    workers: list[WorkerRecord] | None = None
    leader: tuple[str, int] | None = None
    if clock is not None:
        moment = clock
        backlog = _ask(issues, "queue", lambda: _backlog(store, tenant, moment))
        workers = _ask(issues, "workers", lambda: alive_workers(list(store.workers.list()), moment, limits.silent_for))
        leader = _ask(issues, "scheduler", lambda: store.locks.holder(GLOBAL, RESOURCE, now))
        issues += _issues(backlog, workers, leader, limits, moment)
    of = {component: _worst([one for one in issues if one.component == component]) for component in _COMPONENTS}
    return HealthStatus(
        status=_worst(issues),
        components=Components(
            scheduler=of["scheduler"],
            leader=None if leader is None else leader[0],
            database=of["database"],
            latency=latency,
            queue=of["queue"],
            ready=None if backlog is None else backlog.ready,
            workers=of["workers"],
            active_workers=None if workers is None else len(workers),
        ),
        issues=tuple(issues),
        checked_at=clock,
    )


_COMPONENTS: tuple[Component, ...] = get_args(Component)


def _ask(issues: list[Issue], component: Component, ask: Callable[[], Answer]) -> Answer | None:
    try:
        return ask()
    except MigratorError as error:
        message = f"the {component} cannot be read: {type(error).__name__}"
        issues.append(Issue(component=component, severity="critical", message=message))
        return None


def _backlog(store: Store, tenant: str, now: datetime) -> Backlog:
    return queries.read(store, tenant, now, lambda session: session.statistics.backlog())


def _issues(
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


def _worst(issues: list[Issue]) -> Health:
    if any(issue.severity == "critical" for issue in issues):
        return "unhealthy"
    return "degraded" if issues else "healthy"


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A worker or scheduler process."""

    id: UUID
    kind: str
    hostname: str | None
    pid: int | None
    status: str
    """As it is stored: one that vanished is active until it is declared dead."""
    last_heartbeat_at: datetime | None
    alive: bool


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The leader."""

    holder: str
    term: int
    """The fence of its lock."""


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """A fire that is to come."""

    tenant: str
    fire: NextFire


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the scheduler: its processes, and the counts of some tenants, or of all but those of checks."""

    backend: str
    at: datetime
    leader: Leader | None
    instances: tuple[Instance, ...]
    """By registration."""
    tenants: int
    schedules: Mapping[str, int]
    """By status; every status is there."""
    enabled: int
    running_schedules: int
    """Schedules that have a running run."""
    ready: int
    delayed: int
    running: int
    oldest_ready_at: datetime | None
    next_fires: tuple[Upcoming, ...]
    """Earliest first."""

    @property
    def alive(self) -> int:
        """Return how many processes are alive; rows of dead ones do not count."""
        return sum(one.alive for one in self.instances)


def status_of(
    store: Store, tenants: Sequence[str] | None, *, silent_for: timedelta, fires: int = 5, now: datetime | None = None
) -> Status:
    """Ask the store; a process without a heartbeat for ``silent_for`` is not alive, declared dead or not."""
    at = store.now() if now is None else now
    held = store.locks.holder(GLOBAL, RESOURCE, now)
    workers = list(store.workers.list())
    living = {worker.id for worker in alive_workers(workers, at, silent_for)}
    tenants = served_tenants(store.queue) if tenants is None else tenants
    statuses: Counter[str] = Counter()
    enabled = ready = delayed = running = running_schedules = 0
    oldest: list[datetime] = []
    upcoming: list[Upcoming] = []

    def gather(session: Session) -> tuple[ScheduleStatistics, Backlog, Sequence[NextFire]]:
        return session.statistics.schedules(), session.statistics.backlog(), session.statistics.next_fires(fires)

    for tenant in tenants:
        counted, backlog, following = queries.read(store, tenant, now, gather)
        upcoming += [Upcoming(tenant=tenant, fire=fire) for fire in following]
        statuses.update(counted.by_status)
        enabled += counted.enabled
        ready, delayed, running = ready + backlog.ready, delayed + backlog.delayed, running + backlog.running
        running_schedules += backlog.running_schedules
        if backlog.oldest_ready_at is not None:
            oldest.append(backlog.oldest_ready_at)
    upcoming.sort(key=lambda one: (one.fire.at, one.tenant, one.fire.trigger_id))
    return Status(
        backend=store.backend,
        at=at,
        leader=None if held is None else Leader(holder=held[0], term=held[1]),
        instances=tuple(
            Instance(
                id=worker.id,
                kind=worker.kind,
                hostname=worker.hostname,
                pid=worker.pid,
                status=worker.status,
                last_heartbeat_at=worker.last_heartbeat_at,
                alive=worker.id in living,
            )
            for worker in workers
        ),
        tenants=len(tenants),
        schedules=dict(statuses),
        enabled=enabled,
        running_schedules=running_schedules,
        ready=ready,
        delayed=delayed,
        running=running,
        oldest_ready_at=min(oldest, default=None),
        next_fires=tuple(upcoming[:fires]),
    )


def status_lines(health: Status) -> list[str]:
    """Return it as people read it."""
    leader = "nobody" if health.leader is None else f"{health.leader.holder}, term {health.leader.term}"
    lines = [
        f"scheduler on {health.backend}, {health.tenants:,} tenants, at {_time(health.at)}",
        f"leader: {leader}",
        f"processes: {health.alive:,} alive of {len(health.instances):,}",
    ]
    for instance in health.instances:
        state = "alive" if instance.alive else instance.status if instance.status in WORKER_ENDED else "silent"
        heard = "never heard" if instance.last_heartbeat_at is None else f"heard {_time(instance.last_heartbeat_at)}"
        lines.append(
            f"  {instance.id} {instance.kind} {instance.hostname or '?'}:{instance.pid or '?'} {state}, {heard}"
        )
    counts = ", ".join(f"{status} {count:,}" for status, count in health.schedules.items() if count)
    lines.append(f"schedules: {sum(health.schedules.values()):,} ({counts or 'none'}), {health.enabled:,} enabled")
    oldest = "" if health.oldest_ready_at is None else f", the oldest since {_time(health.oldest_ready_at)}"
    lines.append(f"runs: {health.ready:,} ready{oldest}, {health.delayed:,} delayed, {health.running:,} running")
    lines.append("next fires:" if health.next_fires else "next fires: none")
    lines += [
        f"  {_time(one.fire.at)} {one.tenant} {one.fire.name} ({one.fire.schedule_id})" for one in health.next_fires
    ]
    return lines


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"
