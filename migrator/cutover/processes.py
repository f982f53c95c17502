"""Which scheduler processes work on PostgreSQL since the cutover, and which of the old side have not come back.

The operator restarts processes; their heartbeats show that they run. A process that changes over by itself keeps its
id. A restarted process has another id: it counts for one of the same host.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import target_connection
from migrator.cutover import epoch, journal
from migrator.errors import MigratorError
from migrator.log import logger
from migrator.scheduler import health
from migrator.store import open_side
from migrator.store.validation import GLOBAL

JOURNAL_KEY: Final = "processes_before"
"""The member of the journal's detail."""
POLL_S: Final = 0.5


class SchedulerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the scheduler."""

    id: UUID
    host: str | None
    pid: int | None

    def __str__(self) -> str:
        """Return it as it is printed."""
        return f"{self.host or '?'}:{self.pid or '?'} ({self.id})"


class Arrivals(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that work on PostgreSQL since the cutover."""

    since: datetime
    """When PostgreSQL was opened."""
    here: tuple[SchedulerProcess, ...]
    """Processes with a heartbeat on PostgreSQL since then."""
    missing: tuple[SchedulerProcess, ...] | None
    """Processes that were alive on the old side before the cutover; None if they are not known."""

    @property
    def complete(self) -> bool:
        """Whether a process is there, and none is missing."""
        return bool(self.here) and not self.missing


def alive_before(settings: Settings) -> list[dict[str, Any]] | None:
    """Return the processes alive on the old side now, as the journal stores them; None if they are not known."""
    if not epoch.store_reads_source(settings):
        return None
    try:
        with closing(open_side(settings, "mongo")) as store:
            living = health.alive_workers(list(store.workers.list()), store.now(), settings.scheduler.dead_after)
    except MigratorError as error:
        logger().warning("the processes of the old side cannot be read", why=str(error))
        return None
    return [msgspec.to_builtins(SchedulerProcess(id=one.id, host=one.hostname, pid=one.pid)) for one in living]


def match_arrivals(
    before: Sequence[SchedulerProcess] | None, here: Sequence[SchedulerProcess], since: datetime
) -> Arrivals:
    """Match the processes of the old side with those that are here. Pure."""
    if before is None:
        return Arrivals(since=since, here=tuple(here), missing=None)
    ids, known = {one.id for one in here}, {one.id for one in before}
    left = [one for one in before if one.id not in ids]
    anew = [one.host for one in here if one.id not in known]
    missing = []
    for process in left:
        if process.host in anew:
            anew.remove(process.host)
        else:
            missing.append(process)
    return Arrivals(since=since, here=tuple(here), missing=tuple(missing))


def arrivals(settings: Settings) -> Arrivals | None:
    """Return the processes since the last cutover; None if PostgreSQL was not opened by a cutover."""
    with target_connection(settings) as target:
        last = journal.latest(target)
        since = None if last is None else journal.opened_at(target, last.id)
        if last is None or since is None or last.state not in ("running", "cut-over", "finished"):
            return None
        rows = target.execute(
            "SELECT id, hostname, pid FROM scheduler.workers WHERE tenant_id = %s AND last_heartbeat_at > %s"
            " ORDER BY registered_at, id",
            (GLOBAL, since),
        ).fetchall()
    kept = last.detail.get(JOURNAL_KEY)
    before = None if kept is None else msgspec.convert(kept, list[SchedulerProcess])
    return match_arrivals(before, [SchedulerProcess(id=row[0], host=row[1], pid=row[2]) for row in rows], since)


def wait_for_arrivals(
    settings: Settings,
    seconds: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Arrivals | None:
    """Wait until all processes have come back, for ``seconds`` at most; return them. The clocks are for tests."""
    end = monotonic() + seconds
    while True:
        found = arrivals(settings)
        if found is None or found.complete or monotonic() >= end:
            return found
        wait(POLL_S)


def lines(arrived: Arrivals) -> Iterator[str]:
    """Yield the lines for a terminal."""
    yield f"processes with a heartbeat on PostgreSQL since the cutover: {len(arrived.here):,}"
    yield from (f"  {one}" for one in arrived.here)
    if arrived.missing is None:
        yield "the processes of the old side are not known: check there that all were restarted"
    elif arrived.missing:
        yield f"of the old side {len(arrived.missing):,} have no heartbeat yet: restart them"
        yield from (f"  {one}" for one in arrived.missing)
    elif arrived.here:
        yield "every process of the old side has a heartbeat"
