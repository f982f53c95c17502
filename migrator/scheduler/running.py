"""A scheduler process from the settings: store, handlers, signals. What ``migrator run`` is."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

from migrator.config import Settings
from migrator.errors import RefusedError, UsageError
from migrator.scheduler.gauges import Snapshot
from migrator.scheduler.handing import InProcessDispatcher
from migrator.scheduler.handlers import Registry, load
from migrator.scheduler.process import NOT_ENABLED, SchedulerProcess, Until
from migrator.scheduler.retention import Rule, apply_all
from migrator.store import open_scheduler_store


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


def run(settings: Settings, *, handlers: str | None = None, until: Until = "stopped") -> Snapshot:
    """Run a scheduler process on the configured backend until it is told to stop (SIGTERM, SIGINT); return its counts.

    Raises ``RefusedError`` while the scheduler is not enabled, and what ``registry_of``, ``open_scheduler_store`` and
    ``SchedulerProcess.run`` raise.
    """
    own = settings.scheduler
    if not own.enabled:
        raise RefusedError(NOT_ENABLED)
    dispatcher = InProcessDispatcher(registry_of(settings, handlers))
    store = open_scheduler_store(settings)
    try:
        rule = Rule(keep=own.retention_keep, young=timedelta(days=own.retention_days))
        process = SchedulerProcess(store, own, dispatcher, retention=lambda: apply_all(store, rule))
        with _stopped_by_signals(process):
            return process.run(until)
    finally:
        store.close()


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
