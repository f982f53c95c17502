"""A scheduler process (``migrator scheduler run``): it registers, polls, works, leads if nobody else does, and stops.

One thread drives a ``WorkerCore``, a ``Leadership`` and a ``Sweeper``, turn by turn, and never runs a handler: no tick
overlaps another, and a heartbeat waits for nothing but the database.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from threading import Event as Bell
from types import FrameType
from typing import Final, Literal, TypeAlias
from uuid import UUID, uuid4

from migrator import __version__
from migrator.argument_types import checked
from migrator.config import SchedulerSettings, Settings
from migrator.durations import format_duration
from migrator.errors import ConfigurationError, MigratorError, RefusedError, StoreError, UnreachableError, UsageError
from migrator.log import logger
from migrator.records import WorkerRecord
from migrator.scheduler.executor import Executor, InProcessExecutor, ParallelRunExecutor
from migrator.scheduler.handlers import Registry, load_registry
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.recorder import Recorder
from migrator.scheduler.retention import apply_all, carry_out, plan_words, rule_of
from migrator.scheduler.sweeper import Sweeper
from migrator.scheduler.worker import (
    EVERYTHING,
    CounterSnapshot,
    EpochStore,
    Scope,
    WorkerCore,
    WorkerOptions,
    is_own_worker,
    scope_metadata,
)
from migrator.store import open_scheduler_store, prepare
from migrator.store.protocols import Store
from migrator.store.validation import GLOBAL
from migrator.store.wakeups import Subscription
from migrator.telemetry import say


class Ticker:
    """Ticks at whole multiples of its interval since its start; missed ticks are skipped."""

    def __init__(self, every: timedelta, now: float, *, at_once: bool = True) -> None:
        """``now`` is by the monotonic clock, in seconds; ``at_once``: the first tick is now."""
        self._every = every.total_seconds()
        self._start, self._count = now, 0 if at_once else 1

    def due(self, now: float) -> bool:
        """Whether the tick is due; if it is, the next one is planned."""
        if now < self.next_at:
            return False
        self._count = int((now - self._start) // self._every) + 1
        return True

    @property
    def next_at(self) -> float:
        """When the next tick is due, by the monotonic clock in seconds."""
        return self._start + self._count * self._every


def check_intervals(settings: SchedulerSettings) -> None:
    """Raise ``ConfigurationError`` where one length of time leaves another no room."""
    for name, length in (("lease", settings.lease), ("dead_after", settings.dead_after)):
        if length < 2 * settings.heartbeat:
            raise ConfigurationError(
                f"scheduler.{name} is {format_duration(length)} and must be at least twice scheduler.heartbeat"
                f" ({format_duration(settings.heartbeat)}): one late heartbeat would cost the runs"
            )


Until: TypeAlias = Literal["stopped", "idle", "once"]
"""Work until told to stop; until nothing is due, queued or running; or for one poll and what it claimed."""


NOT_ENABLED: Final = "the scheduler is not enabled; set enabled = true in [scheduler]"


class DeclaredDeadError(MigratorError):
    """Another process declared this one dead: what it worked on belongs to others by now."""


class SchedulerProcess:
    """Drives a ``WorkerCore``, a ``Leadership`` and a ``Sweeper``."""

    def __init__(
        self,
        store: Store,
        settings: SchedulerSettings,
        executor: Executor,
        *,
        scope: Scope = EVERYTHING,
        tenants: tuple[str, ...] | None = None,
        retention: Callable[[Store], object] | None = None,
        reopen_store: Callable[[Store], Store | None] | None = None,
        before_claim: Callable[[Store], object] = lambda _: None,
        prepare: Callable[[Store], object] = lambda _: None,
        clock: Callable[[], datetime] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        """``clock``, ``monotonic`` and ``wait`` are for tests; ``retention`` is called by the leader now and then.

        ``reopen_store`` returns the store to go on with where a cutover or rollback has moved the data, and None if
        it has not, or not yet. ``before_claim`` is called before each claim, with the store that is claimed from;
        ``prepare`` before anything is written to a store. ``scope``: the schedules to work for.

        Raises ``ConfigurationError`` for settings that contradict each other.
        """
        self.worker_id: UUID = uuid4()
        """One per start: two processes are never taken for one."""
        self._store, self._settings, self._executor = store, settings, executor
        self._retention, self._clock, self._monotonic = retention, clock, monotonic
        self._reopen_store, self._before_claim, self._prepare = reopen_store, before_claim, prepare
        check_intervals(settings)
        self._bell = Bell()
        self._wait = self._bell.wait if wait is None else wait
        self._stopping = self._stop_at_once = self._woken = False
        self._subscription: Subscription | None = None
        options = WorkerOptions(
            worker_id=self.worker_id,
            batch=settings.batch,
            capacity=settings.concurrency,
            lease=settings.lease,
            scope=scope,
            tenants=tenants,
        )
        self._row = WorkerRecord(
            id=self.worker_id,
            tenant_id=GLOBAL,
            kind="scheduler",
            hostname=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=scope.queues,
            capacity=settings.concurrency,
            status="active",
            metadata=scope_metadata(scope),
        )
        self.worker = WorkerCore(
            store,
            executor,
            options,
            audit=settings.audit,
            clock=clock,
            monotonic=monotonic,
            wake=self._bell.set,
        )
        self.leadership = Leadership(
            store,
            ttl=settings.leader_ttl,
            holder=f"{socket.gethostname()}:{os.getpid()}:{self.worker_id}",
            clock=clock,
            monotonic=monotonic,
        )
        self._sweeper = Sweeper(
            store,
            self.leadership,
            dead_after=settings.dead_after,
            scope=scope,
            batch=settings.batch,
            tenants=tenants,
            executors=settings.executors,
            recorder=Recorder(store, audit=settings.audit, clock=clock),
            clock=clock,
        )
        self._gave_fires_in: int | None = None
        self._has_more = False
        self.metrics: CounterSnapshot = self.worker.counters.snapshot()
        """The snapshot taken last."""

    def stop(self) -> None:
        """Stop in good order; called again, at once. May be called from a signal handler."""
        self._stop_at_once = self._stopping
        self._stopping = True
        self._bell.set()

    def run(self, until: Until = "stopped") -> CounterSnapshot:
        """Work, then leave; return what was done.

        Raises ``DeclaredDeadError`` when another process declared this one dead, and what the store raises before the
        first turn. Later the store may be away: the process waits for it, and stops working on runs whose leases it
        could not renew in time.
        """
        if not self._settings.enabled:
            raise RefusedError(NOT_ENABLED)
        self._register()
        try:
            if until == "stopped":
                self._subscribe()
            self._work(until)
        except DeclaredDeadError:
            self.worker.abandon()
            self.leadership.release()
            raise
        except BaseException:
            self._stop_at_once = True
            self._shut_down()
            raise
        self._shut_down()
        return self.worker.counters.snapshot()

    def _register(self) -> None:
        self._prepare(self._store)
        self._store.workers.register(self._row, self._now())
        logger().info("registered", worker=str(self.worker_id))

    def _subscribe(self) -> None:
        """Be woken from now on when work comes to the store; the poll finds what no wake-up tells."""
        self._unsubscribe()
        self._subscription = self._store.wakeups.subscribe(self._awaken, _not_woken)

    def _unsubscribe(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _awaken(self) -> None:
        """Look for work as soon as this turn has ended; from any thread."""
        self._woken = True
        self._bell.set()

    def _work(self, until: Until) -> None:
        own, now = self._settings, self._monotonic()
        poll, heartbeat = Ticker(own.poll, now), Ticker(own.heartbeat, now, at_once=False)
        sweep, metrics = Ticker(own.sweep_every, now), Ticker(own.metrics_every, now, at_once=False)
        retention = Ticker(own.retention_every, now) if own.retention_every else None
        self._last_heartbeat = now
        while not self._stopping:
            now = self._monotonic()
            moved, least = 0, 0.0
            try:
                if heartbeat.due(now):
                    self._heartbeat()
                moved += self.worker.collect()
                self.worker.time_out()
                self._lead(sweep=sweep.due(now), remove=retention is not None and retention.due(now))
                moved += self._poll(due=poll.due(now), moved=moved)
            except (StoreError, UnreachableError) as error:
                if self._move_store():
                    poll, heartbeat = Ticker(own.poll, now), Ticker(own.heartbeat, now, at_once=False)
                    continue
                self._store_unreachable(error)
                least = own.poll.total_seconds()  # overdue tickers would not let it wait
            if metrics.due(now):
                self._report()
            if until == "idle" and not moved and not self.worker.active and not self._has_more:
                return
            if until == "once":
                return
            if not self._stopping:
                following = min(one.next_at for one in (poll, heartbeat, sweep, metrics))
                self._pause(max(following - self._monotonic(), least))

    def _pause(self, seconds: float) -> None:
        """Wait for the next tick, for a run that ends, or for ``stop``."""
        if seconds > 0:
            self._wait(seconds)
        self._bell.clear()

    def _poll(self, *, due: bool, moved: int) -> int:
        """Fire and claim if a poll is due, if work has come, or if a run ended and more wait; return what was done.

        Between two polls a process fires no more than it can execute now. At a poll it fires a batch even if it is
        busy: the slots of a schedule are planned by the clock, and processes that have room claim the runs.
        """
        if not (due or self._woken or (self._has_more and moved)):
            return 0
        self._woken = False
        most = self._settings.batch if due else self.worker.room
        fired = self.worker.fire(most) if most else 0
        self._before_claim(self._store)
        room, claimed = self.worker.room, self.worker.claim()
        left = self.worker.room
        if left and 0 < most <= fired:
            self._awaken()  # more may be due, and there is room for it
        elif not left and fired > room:
            self._store.wakeups.wake()  # others may have room for it
        # A worker that filled its capacity has to claim again as soon as a run ends.
        self._has_more = not left or claimed >= self._settings.batch
        return fired + claimed

    def _heartbeat(self) -> None:
        if not self._store.workers.heartbeat(self.worker_id, self._now()):
            raise DeclaredDeadError("this process was declared dead; other processes repeat its runs")
        self.worker.renew()
        self._last_heartbeat = self._monotonic()

    def _move_store(self) -> bool:
        """Use the store that the data was moved to, if a cutover or rollback moved it; return whether it did.

        Runs keep their worker and fence, so that their leases are renewed, and their ends written, on the other
        side. The configuration, read again, names that store.
        """
        if self._reopen_store is None:
            return False
        try:
            store = self._reopen_store(self._store)
            if store is None:
                return False
            self._prepare(store)
            if not store.workers.heartbeat(self.worker_id, self._now()):
                store.workers.register(self._row, self._now())
        except (MigratorError, OSError) as error:
            logger().warning("the data was moved to the other backend, which cannot be reached yet", reason=str(error))
            return False
        self._store = store
        self.worker.move(store)
        self.leadership.move(store)
        self._sweeper.move(store)
        self._gave_fires_in, self._has_more = None, False
        if self._subscription is not None:
            self._subscribe()
        logger().info(
            "the data was moved to the other backend: continues there",
            backend=store.backend,
            runs=len(self.worker.active),
        )
        return True

    def _store_unreachable(self, error: MigratorError) -> None:
        away = isinstance(error, UnreachableError)
        logger().warning("the store cannot be reached" if away else "the store refuses a call", reason=str(error))
        if self.worker.active and self._monotonic() - self._last_heartbeat >= self._settings.lease.total_seconds():
            logger().warning("stopped working on runs whose leases are over", runs=len(self.worker.active))
            self.worker.abandon()

    def _lead(self, *, sweep: bool, remove: bool) -> None:
        term = self.leadership.acquire()
        if term is None:
            return
        if term != self._gave_fires_in:
            self._sweeper.give_missing_fires()
            if not self._sweeper.interrupted:
                self._gave_fires_in = term
        if sweep:
            swept = self._sweeper.sweep()
            self.worker.counters.add(reclaimed=swept.ended)
        if remove and self._retention is not None and self.leadership.term is not None:
            self._retention(self._store)

    def _report(self) -> None:
        self.metrics = self.worker.counters.snapshot()
        counted = {name: getattr(self.metrics, name) for name in self.metrics.__struct_fields__}
        if self.metrics.last_tick_at is not None:
            counted["last_tick_at"] = self.metrics.last_tick_at.isoformat()
        logger().info("metrics", term=self.leadership.term, **counted)

    def _shut_down(self) -> None:
        """Let running runs end, within the limit; release the others, resign, and mark this worker as stopped."""
        limit = self._monotonic() + self._settings.stop_within.total_seconds()
        ticker = Ticker(self._settings.heartbeat, self._monotonic(), at_once=False)
        try:
            while self.worker.executes and not self._stop_at_once and self._monotonic() < limit:
                self._pause(min(limit, ticker.next_at) - self._monotonic())
                if ticker.due(self._monotonic()):
                    self._heartbeat()
                    self.leadership.acquire()
                self.worker.collect()
                self.worker.time_out()
            self.worker.collect()
            given = self.worker.release()
            self.leadership.release()
            self._store.workers.stop(self.worker_id, self._now())
            logger().info("left", worker=str(self.worker_id), given_back=given)
        except (StoreError, UnreachableError, DeclaredDeadError) as error:
            self.worker.abandon()
            logger().warning("ended without a last heartbeat", reason=str(error))
        finally:
            self._unsubscribe()
            self._executor.close()

    def _now(self) -> datetime | None:
        return None if self._clock is None else self._clock()


def _not_woken(reason: str) -> None:
    logger().warning("is not woken when work comes: the poll finds it", reason=reason)


def registry_of(settings: Settings, handlers: str | None) -> Registry:
    """Return the handlers that are named, here or in the settings; modules of the working directory are found too.

    Raises ``UsageError`` where none are named, or they cannot be had.
    """
    path = handlers or settings.scheduler.handlers
    if path is None:
        raise UsageError("no handlers; name them with --handlers module:name, or as handlers in [scheduler]")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - a plain text, as all entries of the path
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as above
    return load_registry(path)


class Worker:
    """A worker process: it fires due triggers, claims runs, calls their handlers and records how they end.

    It works only for schedules whose handler is in ``registry`` (and whose queue is one of ``[scheduler] queues``, if
    that names any), and opens and closes its own store. One of all workers leads: it ends runs whose worker is dead,
    and removes old runs if retention is configured.
    """

    @checked
    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        tenants: Sequence[str] | None = None,
        reload: Callable[[], Settings] | None = None,
    ) -> None:
        """``tenants``: work for these only; if omitted: for all.

        ``reload`` reads the settings again, so that the worker goes on in the other database after a cutover or a
        rollback; if omitted, it waits there until it is stopped.
        """
        self._settings, self._registry, self._reload = settings, registry, reload
        self._tenants = None if tenants is None else tuple(tenants)
        self._executor = InProcessExecutor(registry)
        self._process: SchedulerProcess | None = None
        self._stopped = False

    def stop(self) -> None:
        """Claim nothing more; let runs end, for at most ``stop_within``, and release the others.

        May be called from any thread and from a signal handler. Called again: release all runs at once.
        """
        self._stopped = True
        if self._process is not None:
            self._process.stop()

    def run(self, until: Until = "stopped") -> CounterSnapshot:
        """Work in this thread until ``stop`` is called; return what was done, as counts.

        ``until="idle"``: until nothing is due, queued or running. ``until="once"``: for one poll, and what it claimed.
        Before it begins, the worker says on standard error what it works on.

        Raises ``RefusedError`` while ``[scheduler] enabled`` is false, ``ConfigurationError`` for settings that
        contradict each other, ``UnreachableError`` if the database cannot be reached when the worker starts, and
        ``MigratorError`` if another worker declared this one dead.
        """
        own = self._settings.scheduler
        if not own.enabled:
            raise RefusedError(NOT_ENABLED)
        registry, reload = self._registry, self._reload
        scope = Scope(queues=tuple(own.queues) or None, handlers=registry.filter)
        executor = ParallelRunExecutor(self._executor, registry.idempotent)
        with ExitStack() as stores:
            store = stores.enter_context(open_scheduler_store(self._settings))

            def begin(current: Store) -> None:
                for line in announcement(current, own, registry):
                    say(line)
                for line in prepare(current, scope.covers):
                    say(f"run: {line}")

            def reopen_store(current: Store) -> Store | None:
                found = moved_to(current, reload) if reload is not None else None
                return None if found is None else stores.enter_context(found)

            self._process = SchedulerProcess(
                store,
                own,
                executor,
                scope=scope,
                tenants=self._tenants,
                retention=_Retention(self._settings),
                prepare=begin,
                reopen_store=reopen_store,
                before_claim=executor.look,
            )
            if self._stopped:
                self._process.stop()
            return self._process.run(until)


def run(
    settings: Settings,
    *,
    handlers: str | None = None,
    until: Until = "stopped",
    reload: Callable[[], Settings] | None = None,
) -> CounterSnapshot:
    """Run a worker with the handlers that are named, until SIGTERM or SIGINT; return its counts.

    In a parallel run (``store.postgres.parallel_run``) only handlers marked idempotent are called. Raises what
    ``registry_of`` and ``Worker.run`` raise.
    """
    if not settings.scheduler.enabled:
        raise RefusedError(NOT_ENABLED)
    worker = Worker(settings, registry_of(settings, handlers), reload=reload)
    with _stopped_by_signals(worker):
        return worker.run(until)


def retain(settings: Settings, store: Store) -> str:
    """Remove old runs as a leader does, but none that must stay (`Jobs.retention_refusal`); return what was done."""
    from migrator.scheduler.operations import Jobs  # noqa: PLC0415 - it imports the sources, which a worker does not need

    rule = rule_of(settings.scheduler)
    stays = Jobs(store, settings).retention_refusal(lambda: apply_all(store, rule, dry_run=True))
    return carry_out(settings.scheduler, store) if stays is None else f"{_NOTHING_REMOVED}: {stays}"


_NOTHING_REMOVED: Final = "retention removed no run"


class _Retention:
    """What the leader does about old runs each time, with a line of the log; why they stay is said once."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._last = settings, ""

    def __call__(self, store: Store) -> None:
        done = retain(self._settings, store)
        if done != self._last or not done.startswith(_NOTHING_REMOVED):
            say(f"run: {done}")
        self._last = done


def announcement(store: Store, settings: SchedulerSettings, registry: Registry) -> Iterator[str]:
    """Yield the announcement of a new process: what it will do, and leave alone; reads the workers of the store."""
    names, types = registry.filter.names, registry.filter.types
    which = f"handlers {', '.join(names) or 'none'}"
    which += f"; types {', '.join(types)} handed to another system" if types else ""
    which += f"; queues {', '.join(settings.queues)} only" if settings.queues else ""
    yield f"run: on {store.backend}, fires and claims for schedules with {which}"
    yield "run: does not change any other schedule, trigger or run"
    strangers = sum(not is_own_worker(worker) for worker in store.workers.list())
    if strangers:
        yield f"run: leaves the {strangers:,} workers of another scheduler, and the runs that they hold, as they are"
    yield f"run: {plan_words(settings)}"


def moved_to(current: Store, reload: Callable[[], Settings]) -> Store | None:
    """Return the store to which a cutover or rollback has moved all data; None if none has, or not completely.

    The configuration, read again, must name the backend that the epoch names: the cutover writes both.
    """
    told = current.epoch_backend() if isinstance(current, EpochStore) else None
    if told is None or told == current.backend:
        return None
    settings = reload()
    return open_scheduler_store(settings) if settings.persistence.scheduler == told else None


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        worker.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
