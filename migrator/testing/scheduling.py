"""The scene of an application's test: a store with a clock, and handlers that are called at once and recorded."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from threading import Event
from typing import Any
from uuid import UUID

import msgspec

from migrator.argument_types import checked
from migrator.config import SchedulerSettings, Settings
from migrator.errors import UsageError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.completion import Outcome
from migrator.scheduler.executor import Executor, InProcessExecutor, RunListener
from migrator.scheduler.handlers import Registry
from migrator.scheduler.process import SchedulerProcess
from migrator.scheduler.worker import Scope
from migrator.store import open_store, prepare
from migrator.store.protocols import RunQuery, Store
from migrator.store.queue import Claim, handler_of
from migrator.testing.clocked_store import ClockedStore, MovedClock
from migrator.testing.memory.store import MemoryStore
from migrator.values import jsonb

TENANT = "test"
"""Of ``Scheduling.scheduler``."""


class HandlerCall(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was handed to its handler."""

    handler: str
    arguments: dict[str, Any]
    state: str
    """``completed`` or ``error``."""
    result: Any = None
    error: str | None = None
    tenant: str
    run_id: UUID
    attempt: int
    """From 1."""
    scheduled_at: datetime | None
    """The slot; None for a run by hand."""
    at: datetime
    """The time of the clock."""


class Scheduling:
    """A store of one test, its clock, and what its handlers were called with."""

    def __init__(self, store: Store, clock: MovedClock, settings: Settings | None) -> None:
        """Begin with no call; ``settings`` open the same store, and are None for one in memory."""
        self.store = store
        """Goes by the clock. Hand it to the application, or make clients of it: ``Scheduler(scheduling.store, …)``."""
        self.clock = clock
        self.calls: list[HandlerCall] = []
        """All calls so far, in order."""
        self._settings = settings

    @property
    def settings(self) -> Settings:
        """The settings that open the same data, for code that opens a store itself; it goes by the database's clock.

        ``UsageError`` if the store is in memory.
        """
        if self._settings is None:
            raise UsageError("a store in memory has no settings: hand scheduling.store to the application")
        return self._settings

    @cached_property
    def scheduler(self) -> Scheduler:
        """The client of the tenant ``test``."""
        return Scheduler(self.store, TENANT)

    @checked
    def run_until_idle(self, registry: Registry, *, recorded: Collection[str] = ()) -> Sequence[HandlerCall]:
        """Fire what is due and execute what is queued, of every tenant, until nothing is left; return the calls.

        The clock stands still meanwhile. Handlers are called one after the other. Those of ``recorded`` are not called:
        their runs end as completed. Nor is anything sent to another system. Schedules whose handler is not in
        ``registry`` stay as they are.
        """
        before = len(self.calls)
        executor = _RecordingExecutor(registry, frozenset(recorded), self.clock, self.calls)
        waited = [0.0]

        def wait(seconds: float) -> None:
            waited[0] += seconds

        SchedulerProcess(
            self.store,
            SchedulerSettings(),
            executor,
            scope=Scope(handlers=registry.filter),
            clock=self.clock,
            monotonic=lambda: waited[0],
            wait=wait,
        ).run("idle")
        return self.calls[before:]

    @checked
    def run_for(
        self, length: timedelta, registry: Registry, *, recorded: Collection[str] = ()
    ) -> Sequence[HandlerCall]:
        """Let so much time pass: move the clock to each slot and each retry in it, and run until idle there.

        The parameters are those of ``run_until_idle``.
        """
        before, end = len(self.calls), self.clock.now + length
        self.run_until_idle(registry, recorded=recorded)
        while (moment := self._next_work()) is not None and moment <= end:
            self.clock.move_to(moment)
            self.run_until_idle(registry, recorded=recorded)
        self.clock.move_to(end)
        return self.calls[before:]

    def _next_work(self) -> datetime | None:
        """Return the first time after the present one at which a trigger is due, or a run that waits is available."""
        moments: list[datetime] = []
        for tenant in self.store.queue.tenants():
            with self.store.session(tenant) as session:
                moments += [fire.at for fire in session.statistics.next_fires(_MANY)]
                waiting = session.runs.list(RunQuery(states=("queued",), limit=_MANY)).runs
                moments += [run.available_at for run in waiting if run.available_at is not None]
        return min((moment for moment in moments if moment > self.clock.now), default=None)


@contextmanager
def opened(settings: Settings | None) -> Iterator[Scheduling]:
    """Open the store that the settings name, or one in memory; yield the scene of a test on it."""
    clock = MovedClock()
    with MemoryStore(clock) if settings is None else open_store(settings) as store:
        prepare(store)
        yield Scheduling(ClockedStore(store, clock), clock, settings)


_MANY = 1_000
"""Triggers, and runs that wait, of one tenant that are looked at."""


class _RecordingExecutor:
    """Hands each run to its handler, waits for its end, and records it (``Executor``)."""

    def __init__(
        self, registry: Registry, recorded: Collection[str], clock: MovedClock, calls: list[HandlerCall]
    ) -> None:
        self._inner: Executor = InProcessExecutor(registry)
        self._registry, self._recorded, self._clock, self._calls = registry, recorded, clock, calls

    def submit(self, claim: Claim, reports: RunListener) -> str | None:
        """Execute a run to its end."""
        if handler_of(claim.schedule) in self._recorded or self._registry.system(claim.schedule) is not None:
            self._record(claim, Outcome(state="completed"))
            reports.ended(claim, Outcome(state="completed"))
            return None
        listener = _AwaitedListener(reports)
        self._inner.submit(claim, listener)
        listener.ending.wait()
        self._record(claim, listener.outcomes[0])
        return None

    def _record(self, claim: Claim, outcome: Outcome) -> None:
        self._calls.append(
            HandlerCall(
                handler=handler_of(claim.schedule) or "",
                arguments=claim.arguments,
                state=outcome.state,
                result=None if outcome.result is None else jsonb.decode(outcome.result),
                error=outcome.error,
                tenant=claim.run.tenant_id,
                run_id=claim.run.id,
                attempt=claim.run.attempt or 1,
                scheduled_at=claim.run.scheduled_at,
                at=self._clock.now,
            )
        )

    def cancel(self, run_id: UUID) -> None:
        """Tell the run's handler to stop."""
        self._inner.cancel(run_id)

    def forget(self, run_id: UUID) -> None:
        """Do nothing: nothing is sent to another system."""

    def collect(self) -> None:
        """Do nothing: as above."""

    def close(self) -> None:
        """Do nothing: each run has ended."""


class _AwaitedListener:
    """Passes on what a run reports (``RunListener``), and tells its end."""

    def __init__(self, inner: RunListener) -> None:
        self._inner = inner
        self.ending = Event()
        self.outcomes: list[Outcome] = []

    def ended(self, claim: Claim, outcome: Outcome) -> None:
        """Pass on an outcome."""
        self.outcomes.append(outcome)
        self._inner.ended(claim, outcome)
        self.ending.set()

    def said(self, claim: Claim, level: str, message: str) -> None:
        """Pass on a line of the log."""
        self._inner.said(claim, level, message)
