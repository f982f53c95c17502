"""Processes under load: each makes jobs in a scratch tenant, then fires, claims, executes and finishes runs in batches.

Each is a process of its own with the worker, the executor and the recorder of the scheduler. All jobs are due when they
begin. The caller is told how many runs have ended, ends the processes, and receives what each of them did.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeVar, cast
from uuid import UUID, uuid4

import msgspec

from migrator.errors import OvertakenError
from migrator.records import Schedule, Trigger
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Context, Registry
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.scratch import Delegate
from migrator.store.conflicts import repeat_session
from migrator.store.protocols import Store
from migrator.store.queue import Claim, Queue
from migrator.verify.behaviour.scratch_processes import ScratchProcess, ScratchTask

HANDLER: Final = "load"
_HOUR_MS: Final = 3_600_000
MADE_TOGETHER: Final = 100
"""Jobs made in one transaction."""
IDLE_S: Final = 0.02
"""How long a process waits that found nothing to do."""
STALLED_S: Final = 120.0
"""If no process ends a run for so long, the load is stopped."""
READY_S: Final = 600.0
"""How long a process may take to make its jobs."""
STOP_S: Final = 60.0
"""How long a process may take to end the runs that it holds, and to answer."""


class LoadTask(ScratchTask, frozen=True, kw_only=True):
    """A process under load."""

    jobs: int
    """How many it makes."""
    number: int
    due_at: datetime
    batch: int

    def serve(self, store: Store, pipe: Connection) -> None:
        """Make the jobs, wait for the word, work until the next one, and send a ``LoadReport``."""
        _make_jobs(self, store)
        _work(self, store, pipe)


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a process did. Times are milliseconds of the calls that found something to do."""

    polls: list[float]
    claims: list[float]
    executed: list[UUID]
    """Ids of the runs whose handler was called, once for each call."""
    refused: int
    """Outcomes that were not accepted, because the run was no longer this process's."""


Part = TypeVar("Part")


class _TimedQueue(Delegate[Queue]):
    """A queue whose polls and claims are timed."""

    def __init__(self, inner: Queue) -> None:
        super().__init__(inner)
        self.polls: list[float] = []
        self.claims: list[float] = []

    def fire_due(self, *given: Any, **which: Any) -> Sequence[Any]:  # noqa: ANN401 - as the queue takes them
        return _timed(self.polls, lambda: self.inner.fire_due(*given, **which))

    def claim(self, *given: Any, **which: Any) -> Sequence[Claim]:  # noqa: ANN401 - as above
        return _timed(self.claims, lambda: self.inner.claim(*given, **which))


def _timed(took: list[float], call: Callable[[], Sequence[Part]]) -> Sequence[Part]:
    began = time.perf_counter()
    answer = call()
    if answer:
        took.append((time.perf_counter() - began) * 1000)
    return answer


class _TimedStore(Delegate[Store]):
    """A store with such a queue."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.queue = _TimedQueue(inner.queue)


def run_load(processes: Sequence[ScratchProcess], jobs: int, *, stalled_s: float = STALLED_S) -> list[LoadReport]:
    """Let the processes work until as many runs have ended as there are jobs, or none ends any more."""
    for process in processes:
        process.send("begin")
    ended, last = 0, time.monotonic()
    while ended < jobs and time.monotonic() - last < stalled_s:
        ready = wait([one.pipe for one in processes], timeout=1.0)
        for process in (one for one in processes if one.pipe in ready):
            ended += cast("int", process.receive())
            last = time.monotonic()
    for process in processes:
        process.send("stop")
    return [_report(process) for process in processes]


def _report(process: ScratchProcess) -> LoadReport:
    """Return the last answer of a process; before it are counts of runs."""
    while not isinstance(answer := process.receive(within_s=STOP_S), LoadReport):
        pass
    return answer


def _work(task: LoadTask, store: Store, pipe: Connection) -> None:
    timed = _TimedStore(store)
    executed: list[UUID] = []
    registry, bell = Registry(), threading.Event()

    def work(*, context: Context) -> None:
        executed.append(context.run_id)

    registry.register(HANDLER, work)
    own = task.settings.scheduler
    options = WorkerOptions(
        worker_id=uuid4(),
        batch=task.batch,
        capacity=task.batch,
        lease=own.lease,
        tenants=(task.tenant,),
    )
    worker = WorkerCore(cast("Store", timed), InProcessExecutor(registry), options, wake=bell.set)
    pipe.send(())
    pipe.recv()
    renewed = time.monotonic()
    while not pipe.poll():
        bell.clear()
        moved = _turn(worker, pipe)
        if time.monotonic() - renewed > own.heartbeat.total_seconds():
            renewed = time.monotonic()
            worker.renew()
        if not moved:
            bell.wait(IDLE_S)
    until = time.monotonic() + STOP_S / 2
    while worker.active and time.monotonic() < until:
        bell.wait(IDLE_S)
        bell.clear()
        worker.collect()
    counted = worker.counters.snapshot()
    pipe.send(
        LoadReport(
            polls=timed.queue.polls,
            claims=timed.queue.claims,
            executed=executed,
            refused=counted.lost + counted.ignored,
        )
    )


def _turn(worker: WorkerCore, pipe: Connection) -> int:
    """Fire, claim and collect once; a call that another process overtook is made again at the next turn."""
    moved = 0
    with suppress(OvertakenError):
        moved += worker.fire()
    with suppress(OvertakenError):
        moved += worker.claim()
    with suppress(OvertakenError):
        ended = worker.collect()
        moved += ended
        if ended:
            pipe.send(ended)
    return moved


def _make_jobs(task: LoadTask, store: Store) -> None:
    """Make the jobs of this process: a schedule each, with a trigger that is due now, and again in an hour."""
    for first in range(0, task.jobs, MADE_TOGETHER):
        numbers = range(first, min(first + MADE_TOGETHER, task.jobs))
        repeat_session(partial(_insert, task, store, [f"job {task.number}.{number}" for number in numbers]))


def _insert(task: LoadTask, store: Store, names: Sequence[str]) -> None:
    with store.session(task.tenant) as session:
        for name in names:
            schedule = Schedule(id=uuid4(), tenant_id=task.tenant, name=name, handler_name=HANDLER, status="scheduled")
            session.schedules.upsert(schedule)
            session.triggers.upsert(
                Trigger(
                    id=uuid4(),
                    tenant_id=task.tenant,
                    schedule_id=schedule.id,
                    kind="interval",
                    interval_ms=_HOUR_MS,
                    anchor="fixed_rate",
                    next_fire_at=task.due_at,
                )
            )
