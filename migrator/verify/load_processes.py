"""Processes under load: each makes jobs in a scratch tenant, then fires, claims, executes and finishes runs in batches.

Each is a process of its own with the worker, the executor and the recorder of the scheduler. All jobs are due when they
begin. The caller is told how many runs have ended, ends the processes, and receives what each of them did.
"""

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Final, TypeVar, cast
from uuid import UUID, uuid4

import msgspec

from migrator import telemetry
from migrator.config import Settings
from migrator.errors import MigratorError, OvertakenError
from migrator.records import Schedule, Trigger
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Context, Registry
from migrator.scheduler.worker import WorkerCore, WorkerOptions
from migrator.scratch import PARTS
from migrator.store import open_side
from migrator.store.conflicts import repeat_session
from migrator.store.protocols import Store
from migrator.store.queue import Claim, Queue
from migrator.verify.behaviour.scratch_tenants import Components, Delegate, ScopedStore, TenantScope

HANDLER: Final = "load"
_HOUR_MS: Final = 3_600_000
MADE_TOGETHER: Final = 100
"""Jobs made in one transaction."""
IDLE_S: Final = 0.02
"""How long a process waits that found nothing to do."""
STALLED_S: Final = 120.0
"""If no process ends a run for so long, the load is stopped."""
STOP_S: Final = 60.0
"""How long a process may take to end the runs that it holds, and to answer."""


class LoadTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is given."""

    settings: Settings
    backend: str
    base: str
    components: Components
    jobs: int
    """How many it makes."""
    number: int
    due_at: datetime
    batch: int

    @property
    def tenant(self) -> str:
        """The tenant that has the jobs."""
        return self.base + PARTS[0]


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
    found = call()
    if found:
        took.append((time.perf_counter() - began) * 1000)
    return found


class _TimedStore(Delegate[Store]):
    """A store with such a queue."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.queue = _TimedQueue(inner.queue)


class LoadError(MigratorError):
    """A process ended before it answered."""


@contextmanager
def load_processes(tasks: Sequence[LoadTask]) -> Iterator[list[Connection]]:
    """Start a process for each task, yield a pipe to each after it has made its jobs, and end all in every case.

    Raises ``LoadError`` for a process that ends early, and the error that ended it.
    """
    spawn = multiprocessing.get_context("spawn")
    pipes, born = [], []
    try:
        for task in tasks:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_process_main, args=(task, theirs, telemetry.output_settings()), daemon=True)
            process.start()
            theirs.close()
            pipes.append(ours)
            born.append(process)
        for pipe in pipes:
            received(pipe)
        yield pipes
    finally:
        for process in born:
            process.kill()
            process.join()


def received(pipe: Connection, *, within_s: float | None = None) -> Any:  # noqa: ANN401 - whatever was sent
    """Return the next answer of a process; raises ``LoadError`` if none comes, and the error that ended it."""
    try:
        if within_s is not None and not pipe.poll(within_s):
            raise LoadError("a process of the load test did not answer")
        answer = pipe.recv()
    except (EOFError, OSError):
        raise LoadError("a process of the load test ended before it answered") from None
    if isinstance(answer, MigratorError):
        raise answer
    return answer


def run_load(pipes: Sequence[Connection], jobs: int, *, stalled_s: float = STALLED_S) -> list[LoadReport]:
    """Let the processes work until as many runs have ended as there are jobs, or none ends any more."""
    for pipe in pipes:
        pipe.send("begin")
    ended, last = 0, time.monotonic()
    while ended < jobs and time.monotonic() - last < stalled_s:
        ready = wait(pipes, timeout=1.0)
        for pipe in (one for one in pipes if one in ready):
            ended += cast("int", received(pipe))
            last = time.monotonic()
    for pipe in pipes:
        pipe.send("stop")
    return [_report(pipe) for pipe in pipes]


def _report(pipe: Connection) -> LoadReport:
    """Return the last answer of a process; before it are counts of runs."""
    while not isinstance(answer := received(pipe, within_s=STOP_S), LoadReport):
        pass
    return answer


def _process_main(task: LoadTask, pipe: Connection, output: telemetry.OutputSettings) -> None:
    telemetry.set_output(**asdict(output))
    with suppress(EOFError, OSError, KeyboardInterrupt):
        try:
            inner = open_side(task.settings, task.backend)
            try:
                scope = TenantScope(task.base, [task.base + part for part in PARTS])
                _serve(task, task.components.store(cast("Store", ScopedStore(inner, scope))), pipe)
            finally:
                inner.close()
        except MigratorError as error:
            pipe.send(error)


def _serve(task: LoadTask, store: Store, pipe: Connection) -> None:
    _make_jobs(task, store)
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
            refused=counted.lost + counted.late,
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
