"""The machine sees what it is there for: a fault planted in one of two models makes it red."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from migrator.records import Run, Schedule
from migrator.testing.memory import locks, queue, workers
from migrator.verify.behaviour.lockstep import Difference, Lockstep, draw
from tests.contract.lockstep.sides import memory_side
from tests.contract.lockstep.test_lockstep import LENGTH, Stores

MILLISECOND = timedelta(milliseconds=1)


class Faulty(queue.Rows):
    """Rows with one thing wrong."""

    def __init__(self, tables: Any, now: datetime, fault: str) -> None:  # noqa: ANN401 - the model's tables
        super().__init__(tables, now)
        self.fault = fault

    def held(self, run_id: Any, tenant: str, worker_id: str | None, fence: int) -> Run | None:  # noqa: ANN401 - an id
        run: Run | None = self._tables[Run].get(run_id)
        if self.fault == "no fence" and run is not None and run.state == "running":
            fence = run.fence or 0
        return super().held(run_id, tenant, worker_id, fence)

    def over(self, run: Run) -> bool:
        if self.fault == "lease over too late":
            late = Faulty(self._tables, self.now - MILLISECOND, "")
            return late.over(run)
        return super().over(run)

    def count(self, schedule_id: Any, *among: str) -> int:  # noqa: ANN401 - an id
        return 0 if self.fault == "no limit" and among == ("running",) else super().count(schedule_id, *among)

    def due(self, *which: Any) -> Any:  # noqa: ANN401 - as Rows
        found = super().due(*which)
        return found[::-1] if self.fault == "wrong order" else found

    def status(self, schedule: Schedule, status: str) -> None:
        if self.fault != "status lost":
            super().status(schedule, status)

    def insert(self, run: Run, tenant: str) -> Run | None:
        made = super().insert(run, tenant)
        if self.fault == "retry at once" and made is not None and made.retry_of is not None:
            made = msgspec.structs.replace(made, available_at=self.now)
            self._tables[Run][made.id] = made
        return made


QUEUE_FAULTS = ("no fence", "lease over too late", "no limit", "wrong order", "status lost", "retry at once")


def difference(plant: Callable[[Any], None], lists: int = 100) -> Difference | None:
    """Play on a model and one that is made faulty; return the first difference."""
    right, wrong = memory_side(), memory_side()
    plant(wrong.store)
    machine = Lockstep({"right": right, "wrong": wrong}, Stores)
    found = (machine.shortened(draw(7 + number, LENGTH, Stores.words()), tries=5) for number in range(lists))
    return next((one for one in found if one is not None), None)


@pytest.mark.proves("0-T2.10.2", "0-R3")
@pytest.mark.parametrize("fault", QUEUE_FAULTS)
def test_a_fault_of_the_queue_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(store: Any) -> None:  # noqa: ANN401 - the model
        class FaultyQueue(queue.MemoryQueue):
            """Asks faulty rows."""

            def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any method
                def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as above
                    with monkeypatch.context() as patch:
                        patch.setattr(queue, "Rows", lambda tables, now: Faulty(tables, now, fault))
                        return getattr(super(FaultyQueue, self), name)(*given, **named)

                return super().__getattribute__(name) if name.startswith("_") else call

        store.queue = FaultyQueue(store.transaction)

    assert difference(plant) is not None


@pytest.mark.proves("0-T2.10.2")
def test_a_dead_worker_whose_leases_live_on_is_seen() -> None:
    def plant(store: Any) -> None:  # noqa: ANN401 - the model
        class Forgetful(workers.MemoryWorkers):
            """Leaves the leases of the dead."""

            def declare_dead(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as Workers
                before = dict(store._tables[Run])
                dead = super().declare_dead(*given, **named)
                store._tables[Run] = before
                return dead

        store.workers = Forgetful(store.transaction)

    assert difference(plant) is not None


@pytest.mark.proves("0-T2.10.2")
def test_a_lock_that_is_given_to_two_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def plant(store: Any) -> None:  # noqa: ANN401 - the model
        class Generous(locks.MemoryLocks):
            """Gives everyone what they ask for."""

            def acquire(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as Locks
                with monkeypatch.context() as patch:
                    patch.setattr(locks, "live", lambda *_: False)
                    return super().acquire(*given, **named)

        store.locks = Generous(store.transaction)

    assert difference(plant) is not None


def test_two_models_without_a_fault_agree() -> None:
    assert difference(lambda _: None, 10) is None
