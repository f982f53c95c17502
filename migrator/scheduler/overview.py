"""Where the whole scheduler stands, over all tenants: what ``migrator status --scheduler`` shows."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from migrator.scheduler import health
from migrator.scheduler.leader import RESOURCE
from migrator.scheduler.standing import Instance, Leader, instance_of
from migrator.states import WORKER_ENDED
from migrator.store.protocols import Store
from migrator.store.queue import SCRATCH
from migrator.store.statistics import NextFire
from migrator.store.validation import GLOBAL


class Upcoming(msgspec.Struct, frozen=True, kw_only=True):
    """A fire that is to come."""

    tenant: str
    fire: NextFire


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of all tenants but those of verifications."""

    backend: str
    at: datetime
    leader: Leader | None
    instances: tuple[Instance, ...]
    tenants: int
    schedules: Mapping[str, int]
    """By status; every status is there."""
    enabled: int
    ready: int
    delayed: int
    running: int
    oldest_ready_at: datetime | None
    next_fires: tuple[Upcoming, ...]
    """Earliest first."""

    @property
    def alive(self) -> int:
        """Return how many processes are alive."""
        return sum(one.alive for one in self.instances)


def overview(store: Store, *, silent_for: timedelta, fires: int = 5, now: datetime | None = None) -> Overview:
    """Ask the store; ``silent_for``: whoever did not speak for longer is not alive, declared dead or not."""
    at = store.now() if now is None else now
    held = store.locks.holder(GLOBAL, RESOURCE, now)
    workers = list(store.workers.list())
    living = {worker.id for worker in health.alive(workers, at, silent_for)}
    tenants = [one for one in store.queue.tenants() if one != GLOBAL and not one.startswith(SCRATCH)]
    statuses: Counter[str] = Counter()
    enabled = ready = delayed = running = 0
    oldest: list[datetime] = []
    upcoming: list[Upcoming] = []
    for tenant in tenants:
        with store.session(tenant, now=now) as session:
            counted, backlog = session.statistics.schedules(), session.statistics.backlog()
            upcoming += [Upcoming(tenant=tenant, fire=fire) for fire in session.statistics.next_fires(fires)]
        statuses.update(counted.by_status)
        enabled += counted.enabled
        ready, delayed, running = ready + backlog.ready, delayed + backlog.delayed, running + backlog.running
        if backlog.oldest_ready_at is not None:
            oldest.append(backlog.oldest_ready_at)
    upcoming.sort(key=lambda one: (one.fire.at, one.tenant, one.fire.trigger_id))
    return Overview(
        backend=store.backend,
        at=at,
        leader=None if held is None else Leader(holder=held[0], term=held[1]),
        instances=tuple(instance_of(worker, alive=worker.id in living) for worker in workers),
        tenants=len(tenants),
        schedules=dict(statuses),
        enabled=enabled,
        ready=ready,
        delayed=delayed,
        running=running,
        oldest_ready_at=min(oldest, default=None),
        next_fires=tuple(upcoming[:fires]),
    )


def lines(found: Overview) -> list[str]:
    """Return it as people read it."""
    leader = "nobody" if found.leader is None else f"{found.leader.holder}, term {found.leader.term}"
    said = [
        f"scheduler on {found.backend}, {found.tenants:,} tenants, at {_time(found.at)}",
        f"leader: {leader}",
        f"processes: {found.alive:,} alive of {len(found.instances):,}",
    ]
    for one in found.instances:
        state = "alive" if one.alive else one.status if one.status in WORKER_ENDED else "silent"
        heard = "never heard" if one.last_heartbeat_at is None else f"heard {_time(one.last_heartbeat_at)}"
        said.append(f"  {one.id} {one.kind} {one.hostname or '?'}:{one.pid or '?'} {state}, {heard}")
    counts = ", ".join(f"{status} {count:,}" for status, count in found.schedules.items() if count)
    said.append(f"schedules: {sum(found.schedules.values()):,} ({counts or 'none'}), {found.enabled:,} enabled")
    oldest = "" if found.oldest_ready_at is None else f", the oldest since {_time(found.oldest_ready_at)}"
    said.append(f"runs: {found.ready:,} ready{oldest}, {found.delayed:,} delayed, {found.running:,} running")
    said.append("next fires:" if found.next_fires else "next fires: none")
    said += [
        f"  {_time(one.fire.at)} {one.tenant} {one.fire.name} ({one.fire.schedule_id})" for one in found.next_fires
    ]
    return said


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"
