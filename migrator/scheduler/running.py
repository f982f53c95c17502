"""A scheduler process from the settings: store, handlers, signals. What ``migrator run`` is."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

from migrator.config import SchedulerSettings, Settings
from migrator.errors import RefusedError, UsageError
from migrator.scheduler.gauges import Snapshot
from migrator.scheduler.handing import InProcessDispatcher
from migrator.scheduler.handlers import Registry, load
from migrator.scheduler.ownership import Scope, Switchable, is_own
from migrator.scheduler.process import NOT_ENABLED, SchedulerProcess, Until
from migrator.scheduler.retention import Plan
from migrator.scheduler.shadow import ShadowDispatcher
from migrator.store import open_scheduler_store, prepare
from migrator.store.protocols import Store
from migrator.telemetry import say


def registry_of(settings: Settings, handlers: str | None) -> Registry:
    """Return the handlers that are named, here or in the settings; modules of the working directory are found too.

    Raises ``UsageError`` where none are named, or they cannot be had.
    """
    path = handlers or settings.scheduler.handlers
    if path is None:
        raise UsageError("no handlers; name them with --handlers module:name, or as handlers in [scheduler]")
    if os.getcwd() not in sys.path:  # noqa: PTH109 - a plain text, as all entries of the path
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as above
    return load(path)


def run(
    settings: Settings,
    *,
    handlers: str | None = None,
    until: Until = "stopped",
    reload: Callable[[], Settings] | None = None,
) -> Snapshot:
    """Run a scheduler process on the configured backend until it is told to stop (SIGTERM, SIGINT); return its counts.

    Raises ``RefusedError`` while the scheduler is not enabled, and what ``registry_of``, ``open_scheduler_store`` and
    ``SchedulerProcess.run`` raise. In a parallel run (``store.postgres.parallel_run``) only handlers marked idempotent
    are called. ``reload`` reads the configuration again, so that the process follows a cutover, or
    a rollback, by itself; without it it stops working where it is. What the process will do, and what it leaves alone,
    it says on standard error before it begins.
    """
    own = settings.scheduler
    if not own.enabled:
        raise RefusedError(NOT_ENABLED)
    registry = registry_of(settings, handlers)
    dispatcher = ShadowDispatcher(InProcessDispatcher(registry))
    with ExitStack() as stores:
        store = open_scheduler_store(settings)
        stores.callback(store.close)
        plan = Plan.of(own)

        def begin(current: Store) -> None:
            for line in announcement(current, own, registry, plan):
                say(line)
            scope = Scope(queues=tuple(own.queues) or None, handlers=registry.filter)
            for line in prepare(current, scope.covers):
                say(f"run: {line}")

        def successor(current: Store) -> Store | None:
            found = moved_to(current, reload) if reload is not None else None
            if found is not None:
                stores.callback(found.close)
            return found

        process = SchedulerProcess(
            store,
            own,
            dispatcher,
            handlers=registry.filter,
            retention=lambda current: say(f"run: {plan.carry_out(current)}"),
            prepare=begin,
            successor=successor,
            look=dispatcher.look,
        )
        with _stopped_by_signals(process):
            return process.run(until)


def announcement(store: Store, settings: SchedulerSettings, registry: Registry, plan: Plan) -> Iterator[str]:
    """Yield what a process that begins will do, and what it leaves alone; reads the workers of the store."""
    names, types = registry.filter.names, registry.filter.types
    which = f"handlers {', '.join(names) or 'none'}"
    which += f"; types {', '.join(types)} handed to another system" if types else ""
    which += f"; queues {', '.join(settings.queues)} only" if settings.queues else ""
    yield f"run: on {store.backend}, fires and claims for schedules with {which}"
    yield "run: leaves every other schedule, trigger and run as it is"
    strangers = sum(not is_own(worker) for worker in store.workers.list())
    if strangers:
        yield f"run: leaves the {strangers:,} workers of another scheduler, and the runs that they hold, as they are"
    yield f"run: {plan.words}"


def moved_to(current: Store, reload: Callable[[], Settings]) -> Store | None:
    """Return the store that holds the data now, where a switch has moved it; none: it has not, or not wholly yet.

    The configuration, read again, must name the backend that the epoch names: both are written by the switch.
    """
    told = current.switched_to() if isinstance(current, Switchable) else None
    if told is None or told == current.backend:
        return None
    settings = reload()
    return open_scheduler_store(settings) if settings.persistence.scheduler == told else None


@contextmanager
def _stopped_by_signals(process: SchedulerProcess) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
        process.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
