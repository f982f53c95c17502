"""Where the scheduler stands: who leads, which processes are alive, how much there is, what comes next."""

from datetime import datetime
from uuid import UUID

import msgspec

from migrator.records import WorkerRecord
from migrator.scheduler import health
from migrator.scheduler.leader import RESOURCE
from migrator.store.protocols import Store
from migrator.store.statistics import NextFire
from migrator.store.validation import GLOBAL


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
    """Who leads."""

    holder: str
    term: int
    """The fence of its lock."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Where the scheduler stands."""

    is_running: bool
    """Whether any process is alive; rows of dead ones do not count."""
    leader: Leader | None
    total_jobs: int
    enabled_jobs: int
    running_jobs: int
    """Schedules that have a running run."""
    ready_runs: int
    running_runs: int
    next_job: NextFire | None
    instances: tuple[Instance, ...]
    """By registration."""
    at: datetime


def of(store: Store, tenant: str, limits: health.Limits, now: datetime | None) -> Status:
    """Return where the scheduler of a tenant stands."""
    held = store.locks.holder(GLOBAL, RESOURCE, now)
    workers = list(store.workers.list())
    with store.session(tenant, now=now) as session:
        schedules, backlog = session.statistics.schedules(), session.statistics.backlog()
        following = session.statistics.next_fires(1)
        at = session.now
    living = {worker.id for worker in health.alive(workers, at, limits.silent_for)}
    return Status(
        is_running=bool(living),
        leader=None if held is None else Leader(holder=held[0], term=held[1]),
        total_jobs=schedules.total,
        enabled_jobs=schedules.enabled,
        running_jobs=backlog.running_schedules,
        ready_runs=backlog.ready,
        running_runs=backlog.running,
        next_job=following[0] if following else None,
        instances=tuple(instance_of(worker, alive=worker.id in living) for worker in workers),
        at=at,
    )


def instance_of(worker: WorkerRecord, *, alive: bool) -> Instance:
    """Return a process as it is shown."""
    return Instance(
        id=worker.id,
        kind=worker.kind,
        hostname=worker.hostname,
        pid=worker.pid,
        status=worker.status,
        last_heartbeat_at=worker.last_heartbeat_at,
        alive=alive,
    )
