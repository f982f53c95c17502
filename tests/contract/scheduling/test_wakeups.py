"""A process whose next poll is an hour away executes work that comes, on every backend.

Each test waits until the process has polled: without a wake-up it would find nothing more within the test.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import SimpleQueue
from threading import Event, Lock, Thread

import pytest

from migrator.config import SchedulerSettings
from migrator.errors import RefusedError, UnreachableError
from migrator.scheduler.client import Scheduler
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Registry
from migrator.scheduler.models import ScheduleRequest
from migrator.scheduler.process import SchedulerProcess
from migrator.store.protocols import Store
from migrator.store.wakeups import ListenerThread

LONG = 60.0
"""Seconds after which a test gives up: it waits for no time to pass."""
REQUEST = ScheduleRequest(name="work", handler_name="work", cron="0 0 1 1 *", max_retries=0, created_by="test")


class Sleeper:
    """A process that polls once an hour, and what its handler was called for."""

    def __init__(self, store: Store, tenant: str, *, capacity: int = 10) -> None:
        self.done: SimpleQueue[str] = SimpleQueue()
        self.may_end = Event()
        self.may_end.set()
        done, may_end, registry = self.done, self.may_end, Registry()

        @registry.handler("work")
        def work(*, text: str) -> None:
            done.put(text)
            assert may_end.wait(LONG)

        settings = SchedulerSettings(poll=timedelta(hours=1), concurrency=capacity)
        self.process = SchedulerProcess(store, settings, InProcessExecutor(registry), tenants=(tenant,))
        self._rung, self._waits = Event(), Event()
        claim, awaken, process = self.process.worker.claim, self.process._awaken, self.process
        both = Lock()  # else a poll between the two lines of noted would wait for another one, an hour later

        def noted() -> None:
            with both:
                awaken()
                self._rung.set()

        def claimed() -> int:
            count = claim()
            with both:
                if self._rung.is_set() and not process._woken:
                    self._waits.set()
            return count

        process._awaken = noted  # type: ignore[method-assign] # watched
        process.worker.claim = claimed  # type: ignore[method-assign] # watched
        self._thread = Thread(target=self.process.run, daemon=True)

    def begin(self) -> None:
        """Start, and wait until the process is woken by what comes, and has polled for what was there before."""
        self._thread.start()
        assert self._waits.wait(LONG)

    def end(self) -> None:
        self.may_end.set()
        self.process.stop()
        self._thread.join(LONG)
        assert not self._thread.is_alive()


@contextmanager
def asleep(store: Store, tenant: str, *, capacity: int = 10) -> Iterator[Sleeper]:
    """Yield a process that waits for its next poll, or for a wake-up."""
    sleeper = Sleeper(store, tenant, capacity=capacity)
    try:
        sleeper.begin()
        yield sleeper
    finally:
        sleeper.end()


def test_a_process_that_polls_once_an_hour_executes_a_run_that_is_queued(at_work: Store, tenant: str) -> None:
    scheduler = Scheduler(at_work, tenant)
    job = scheduler.schedule(REQUEST)
    with asleep(at_work, tenant) as sleeper:
        scheduler.trigger_now(job.id, arguments={"text": "first"})
        assert sleeper.done.get(timeout=LONG) == "first"
        scheduler.trigger_now(job.id, arguments={"text": "second"})
        assert sleeper.done.get(timeout=LONG) == "second"


def test_it_executes_a_job_that_is_created_to_run_at_once(at_work: Store, tenant: str) -> None:
    with asleep(at_work, tenant) as sleeper:
        Scheduler(at_work, tenant).schedule_once(
            ScheduleRequest(handler_name="work", payload={"text": "once"}, created_by="test")
        )
        assert sleeper.done.get(timeout=LONG) == "once"


def test_it_executes_a_run_that_waited_for_its_schedule_to_be_resumed(at_work: Store, tenant: str) -> None:
    scheduler = Scheduler(at_work, tenant)
    job = scheduler.schedule(REQUEST)
    scheduler.trigger_now(job.id, arguments={"text": "waited"})
    scheduler.pause(job.id)
    with asleep(at_work, tenant) as sleeper:
        assert sleeper.done.empty()
        scheduler.resume(job.id)
        assert sleeper.done.get(timeout=LONG) == "waited"


def test_a_process_that_was_full_takes_what_came_meanwhile_when_a_run_ends(at_work: Store, tenant: str) -> None:
    scheduler = Scheduler(at_work, tenant)
    job = scheduler.schedule(REQUEST)
    with asleep(at_work, tenant, capacity=1) as sleeper:
        sleeper.may_end.clear()
        scheduler.trigger_now(job.id, arguments={"text": "first"})
        assert sleeper.done.get(timeout=LONG) == "first"
        scheduler.trigger_now(job.id, arguments={"text": "second"})
        sleeper.may_end.set()
        assert sleeper.done.get(timeout=LONG) == "second"


def test_a_run_that_is_given_back_wakes_another_process(at_work: Store, tenant: str) -> None:
    scheduler = Scheduler(at_work, tenant)
    job = scheduler.schedule(REQUEST)
    with asleep(at_work, tenant) as first:
        first.may_end.clear()
        scheduler.trigger_now(job.id, arguments={"text": "given back"})
        assert first.done.get(timeout=LONG) == "given back"
        with asleep(at_work, tenant) as second:
            first.process.stop()
            first.process.stop()  # at once: the run is given back
            assert second.done.get(timeout=LONG) == "given back"


def test_a_backend_that_cannot_wake_a_process_says_so_once_and_is_not_asked_again() -> None:
    asked: list[int] = []
    reported: list[str] = []

    def receive(_began: object, _stopped: Event) -> None:
        asked.append(1)
        raise RefusedError("a pooler is between")

    subscription = ListenerThread(receive, lambda: None, reported.append)
    subscription.join()
    assert asked == [1]
    assert reported == ["a pooler is between"]


def test_a_subscription_that_broke_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.store.wakeups.RETRY_S", 0.0)
    rung = Event()
    asked: list[int] = []
    reported: list[str] = []

    def receive(began: object, stopped: Event) -> None:
        asked.append(1)
        if len(asked) < 3:
            raise UnreachableError("the server is away")
        assert callable(began)
        began()
        stopped.wait(LONG)

    subscription = ListenerThread(receive, rung.set, reported.append)
    assert rung.wait(LONG)
    subscription.close()
    subscription.join()
    assert asked == [1, 1, 1]
    assert reported == ["the server is away"]
