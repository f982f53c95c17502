"""The executors of chunks: worker processes of this machine, or a Dask cluster."""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from importlib import import_module
from multiprocessing.connection import Connection
from types import ModuleType
from typing import ClassVar, Final, Literal, TypeVar

import msgspec

from migrator import interruption, native, telemetry
from migrator.config import CopySettings, Settings
from migrator.errors import ConfigurationError, UnreachableError, install_extra
from migrator.pipeline.ledger import Chunk, Plan
from migrator.sources import profile_of
from migrator.sources.profile import Context
from migrator.targets import catalogue
from migrator.telemetry import shield_streams

Computed = TypeVar("Computed")

PR_SET_PDEATHSIG = 1
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Parameters of ``mallopt``, as glibc numbers them."""
KEPT_BYTES: Final = 16 * 1024 * 1024
"""Freed memory that a worker keeps: more than the buffers of a batch."""
LOOK_SECONDS = 0.5  # between two looks at the parent, where the kernel does not tell
SMALL_DOCUMENTS = 5_000
SMALL_BYTES = 8_388_608
"""At most of a copy that starts no worker processes."""
REASON_BYTES = 2_000
"""At most so much of a reason: a write of less than PIPE_BUF is not mixed with another one."""
LOST_WORKER = "a worker process was killed (out of memory?); finished chunks are kept, call again to continue"
SPARE_JOBS = 2
"""Jobs that an executor is given beyond the number of its workers."""


class ChunkJob(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk as it is sent to a worker."""

    settings: Settings
    plan: Plan
    context: Context
    chunk: Chunk
    tenants: tuple[str, ...] = ()
    dry_run: bool = False
    snapshot: str = ""
    """Name of the snapshot of the source to read in, where it has one (``SourceReader.snapshot``)."""
    begun: str
    """Names the copy or the parity check to which the chunk belongs (``ledger.QuarantinedIds``)."""
    tailed: bool = False
    """Of a parity check: a tail ran when it began. It may have ended; what it did not apply is no difference."""


def workers(settings: CopySettings) -> int:
    """Return the number of worker processes."""
    if hasattr(os, "sched_getaffinity"):  # Linux knows which processors this process may use
        return settings.workers or len(os.sched_getaffinity(0))
    return settings.workers or os.cpu_count() or 1


def are_few(documents: int) -> bool:
    """Whether so many documents may be read in less time than worker processes need to start."""
    return documents <= SMALL_DOCUMENTS


def is_small(settings: CopySettings, jobs: Collection[ChunkJob]) -> bool:
    """Whether jobs take less time than worker processes need to start: few documents, one chunk a collection."""
    estimated = [(job.chunk.estimated, job.chunk.estimated * job.chunk.average_bytes) for job in jobs]
    return (
        settings.executor == "local"
        and len({job.chunk.collection for job in jobs}) == len(jobs)
        and are_few(sum(documents for documents, _ in estimated))
        and sum(size for _, size in estimated) <= SMALL_BYTES
    )


@contextmanager
def executor(settings: CopySettings) -> Iterator[Executor]:
    """Yield the executor of the configuration; its processes end after the block.

    They take a second to end, because MongoDB's driver waits for its threads. Only a block that ends in an error waits
    for them. If it is interrupted, they are killed: a chunk is one transaction. Raises ``UnreachableError`` if a worker
    was killed.
    """
    if settings.executor == "dask":
        with _dask().cluster(settings) as cluster:
            yield cluster
        return
    started = _Forked.take(settings) or _WorkerPool(settings, "spawn")
    pool = started.pool
    try:
        yield pool
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            started.kill()
        pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise UnreachableError(LOST_WORKER) from error
        raise
    started.end()


class _WorkerPool:
    """The worker processes of one executor."""

    def __init__(self, settings: CopySettings, method: Literal["fork", "spawn"]) -> None:
        """Start all of them now if they are forked, else each when it is needed."""
        context = multiprocessing.get_context(method)
        self._others = set(multiprocessing.active_children())
        reasons, channel = context.Pipe(duplex=False)
        shown = telemetry.has_display() if method == "spawn" else telemetry.draws_bars(sys.stderr)
        given = (os.getpid(), telemetry.output_settings(), channel if shown else None)
        self.number = workers(settings)
        self.pool = ProcessPoolExecutor(self.number, context, _start_worker, given)
        if method == "fork":
            gc.freeze()  # a collection would write to what both processes have, and so copy it
            with interruption_blocked(), warnings.catch_warnings():
                # newer versions of Python warn of any second thread, also of one that holds no lock
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pool.submit(os.getpid)
        threading.Thread(target=_relay, args=(reasons,), name="reasons", daemon=True).start()

    def kill(self) -> None:
        """Kill them."""
        for worker in set(multiprocessing.active_children()) - self._others:
            worker.kill()

    def end(self) -> None:
        """Let them end, which the end of the interpreter waits for."""
        # At its end, the interpreter wakes the pool's thread (concurrent.futures.process._python_exit). It fails with
        # "bad file descriptor" if that thread ends at the same moment. So the thread is waited for.
        ends = threading.Thread(target=self.pool.shutdown, name="workers end")
        ends.start()
        interruption.join_later(ends)


class _Forked:
    """The worker processes that were forked and that no executor has taken yet."""

    waiting: ClassVar[_WorkerPool | None] = None

    @classmethod
    def take(cls, settings: CopySettings) -> _WorkerPool | None:
        """Return them, once, if they are as many as an executor needs."""
        taken = cls.waiting
        if taken is None or taken.number != workers(settings):
            return None
        cls.waiting = None
        return taken

    @classmethod
    def prepare(cls, prepare: Callable[[Settings], None], settings: Settings) -> None:
        """Let those that wait call ``prepare``, while this process does something else."""
        if cls.waiting is not None:
            with suppress(BrokenProcessPool):  # whoever takes them is told
                for _ in range(cls.waiting.number):
                    cls.waiting.pool.submit(prepare, settings)


def prepare_workers(settings: Settings, documents: int, prepare: Callable[[Settings], None]) -> None:
    """Let the worker processes that were forked call ``prepare`` now, if a copy of so many documents is not small.

    ``prepare`` raises nothing.
    """
    if not are_few(documents):
        _Forked.prepare(prepare, settings)


@contextmanager
def forked_workers(settings: Settings) -> Iterator[None]:
    """Fork the worker processes for the first ``executor`` of the block, if nothing of this process forbids it.

    Call it before a connection is open, and when the modules that they need are loaded; the profile is loaded here, and
    what that raises is raised; so are the known shapes of a library's tables. A worker that is an interpreter
    of its own takes half a second to load them. MongoDB's driver has threads, which a forked process would not have:
    so a later executor starts interpreters, and so does one of a process that is not a command of this tool.
    """
    if settings.copy.executor == "local" and sys.platform == "linux" and interruption.is_alone():
        profile_of(settings.source, settings.target)
        catalogue.shapes(settings.target.name)
        native.module()
        _Forked.waiting = _WorkerPool(settings.copy, "fork")
    try:
        yield
    finally:
        unused, _Forked.waiting = _Forked.waiting, None
        if unused is not None:
            unused.end()


def _relay(reasons: Connection) -> None:
    """Show why workers wait, as long as one of them may say so."""
    with reasons, suppress(EOFError, OSError):
        while True:
            telemetry.waiting(reasons.recv_bytes().decode())


def require_executor(settings: CopySettings) -> None:
    """Connect to the configured Dask scheduler, before anything is written; raises as ``executor`` does."""
    if settings.executor == "dask" and settings.dask_scheduler is not None:
        with _dask().cluster(settings):
            pass


def _dask() -> ModuleType:
    """Return the module that needs the extra ``dask``: it takes half a second to import, and few have it."""
    try:
        return import_module("migrator.pipeline.dask")
    except ImportError:
        raise ConfigurationError(f"copy.executor is dask: install the extra, {install_extra('dask')}") from None


def documents_of(job: object) -> int:
    """Return how many documents a job is about to read, as estimated; 0 for one that reads none."""
    return job.chunk.estimated if isinstance(job, ChunkJob) else 0


def start_workers(pool: Executor, settings: CopySettings, module: str, jobs: int) -> None:
    """Start the worker processes that ``jobs`` jobs need, if the executor has any, and let them import ``module``.

    Otherwise one starts for each job that finds none idle: a first job on which the others wait would start one alone.
    """
    if isinstance(pool, ProcessPoolExecutor):
        with interruption_blocked():
            for _ in range(min(jobs, workers(settings))):
                pool.submit(_import, module)


def _import(module: str) -> None:
    import_module(module)


def jobs_at_a_time(pool: Executor, settings: CopySettings) -> int:
    """Return how many jobs an executor is given at a time, so that no worker of it waits for one."""
    if settings.executor == "dask" and not isinstance(pool, ProcessPoolExecutor | ThreadPoolExecutor):
        return int(_dask().threads(pool)) + SPARE_JOBS
    return workers(settings) + SPARE_JOBS


@contextmanager
def interruption_blocked() -> Iterator[None]:
    """Keep Ctrl-C from this thread until the end of the block, and from the processes that are started in it."""
    with interruption.deferred():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Channel:
    """The way of a worker's reasons to the bars that its parent draws."""

    def __init__(self, channel: Connection) -> None:
        self._channel = channel

    def print(self, line: str) -> None:
        """Send a line as a reason: a worker says nothing else."""
        self.waiting(line)

    def waiting(self, reason: str) -> None:
        """Send why nothing moves; in one write, so that the messages of several workers do not mix."""
        with suppress(OSError):  # the parent is gone
            self._channel.send_bytes(reason.encode("utf-8", "backslashreplace")[:REASON_BYTES])


def _start_worker(
    parent: int, output: telemetry.OutputSettings | None = None, channel: Connection | None = None
) -> None:
    """Ignore interruption, which the parent handles; end when the parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked one has the handler of its parent
    shield_streams()
    if output is not None:
        telemetry.set_output(**asdict(output))
    if channel is not None:
        telemetry.set_display(_Channel(channel))
    keep_freed_memory()
    end_with_parent(parent)


def keep_freed_memory() -> None:
    """Let this process keep the buffers of a batch for the next one, where the C library can.

    By default glibc gives them back, and the kernel clears each page anew: half of the page faults of a copy.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            mallopt(parameter, KEPT_BYTES)


def in_thread(name: str, compute: Callable[[], Computed]) -> Future[Computed]:
    """Let a thread compute something; the end of the interpreter does not wait for it."""
    future: Future[Computed] = Future()

    def run() -> None:
        try:
            future.set_result(compute())
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def end_with_parent(parent: int) -> None:
    """Let this process end when its parent does, also when that is killed."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:  # only Linux has the call
        threading.Thread(target=_watch_parent, args=(parent,), name="parent", daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Stop the cyclic garbage collector during a chunk: it would traverse every decoded document again and again.

    Afterwards it traverses what this chunk and the one before have made, not what existed before them.
    """
    was_on = gc.isenabled()
    gc.disable()
    _freeze()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.collect(1)


@cache
def _freeze() -> None:
    """Exclude from the collector what exists at the first chunk: modules and the like live as long as the process."""
    gc.freeze()
