"""A whole process on the model, its clock in the test's hand: when it does what, and how it leaves."""

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.config import SchedulerSettings
from migrator.errors import ConfigurationError, ConflictError, RefusedError, UnreachableError
from migrator.scheduler.completion import Outcome
from migrator.scheduler.process import DeclaredDeadError, SchedulerProcess, Ticker, check_intervals
from migrator.scheduler.worker import Counters
from migrator.store.protocols import RunQuery, Store
from migrator.testing.memory.store import MemoryStore
from migrator.verify.behaviour.harness import Clock, ScriptedExecutor
from tests.contract.rows import NOW, run, schedule, trigger

SECOND = timedelta(seconds=1)


class World:
    """A store in memory, a process, and a clock that moves only while the process waits."""

    def __init__(self, executor: ScriptedExecutor | None = None, **settings: Any) -> None:  # noqa: ANN401 - settings have all types
        self.clock, self.executor = Clock(NOW), ScriptedExecutor(lambda _claim: None) if executor is None else executor
        self.store = MemoryStore(self.clock)
        self.waits: list[float] = []
        self.on_wait: Callable[[], object] = lambda: None
        self.removed = 0
        self.process = SchedulerProcess(
            self.store,
            SchedulerSettings(**settings),
            self.executor,
            retention=self._remove,
            clock=self.clock,
            monotonic=self._seconds,
            wait=self._wait,
        )

    def _remove(self, store: Store) -> None:
        assert store is self.store
        self.removed += 1

    def _seconds(self) -> float:
        return (self.clock.now - NOW).total_seconds()

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(timedelta(seconds=seconds))
        self.on_wait()

    def run_for(self, length: timedelta) -> None:
        end = self.clock.now + length

        def stop() -> None:
            if self.clock.now >= end:
                self.process.stop()

        self.on_wait = stop
        self.process.run()

    def count(self) -> int:
        with self.store.session("acme") as session:
            return len(session.runs.list(RunQuery(limit=1000)).runs)

    def put(self, **columns: Any) -> UUID:  # noqa: ANN401 - columns have all types
        of = schedule("acme", name=uuid4().hex, **columns)
        row = run("acme", schedule_id=of.id, available_at=NOW)
        with self.store.session("acme") as session:
            session.schedules.upsert(of)
            session.runs.create(row)
        return row.id


@pytest.mark.proves("3-C1", "4-C8")
def test_it_polls_every_ten_seconds_without_drift_and_never_twice_at_once() -> None:
    world = World()
    of = schedule("acme")
    with world.store.session("acme") as session:
        session.schedules.upsert(of)
        session.triggers.upsert(trigger(of, interval_ms=10_000, kind="interval", anchor="fixed_rate"))
    ticks: list[float] = []
    fire = world.process.worker.fire
    busy: list[bool] = []

    def noted(most: int | None = None) -> int:
        assert not busy, "a tick within a tick"
        busy.append(True)
        ticks.append((world.clock.now - NOW).total_seconds())
        world.clock.advance(timedelta(milliseconds=700))  # a tick takes its time
        fired = fire(most)
        busy.clear()
        return fired

    world.process.worker.fire = noted  # type: ignore[method-assign] # watched
    world.run_for(300 * SECOND)
    assert ticks == [place * 10.0 for place in range(len(ticks))]
    assert len(ticks) == 30


@pytest.mark.proves("3-C8")
def test_intervals_of_the_settings_take_the_place_of_the_defaults() -> None:
    world = World(poll=3 * SECOND, sweep_every=90 * SECOND)
    polled: list[float] = []
    swept: list[float] = []
    fire, sweep = world.process.worker.fire, world.process._sweeper.sweep

    def noted_fire(most: int | None = None) -> int:
        polled.append((world.clock.now - NOW).total_seconds())
        return fire(most)

    def noted_sweep() -> Any:  # noqa: ANN401 - what it returns
        swept.append((world.clock.now - NOW).total_seconds())
        return sweep()

    world.process.worker.fire = noted_fire  # type: ignore[method-assign] # watched
    world.process._sweeper.sweep = noted_sweep  # type: ignore[method-assign] # watched
    world.run_for(270 * SECOND)
    assert polled == [place * 3.0 for place in range(90)]
    assert swept == [0.0, 90.0, 180.0]


@pytest.mark.proves("3-C4", "3-C5", "3-R2")
def test_the_leader_sweeps_every_minute_and_metrics_are_taken_every_thirty_seconds() -> None:
    world = World(retention_every=120 * SECOND)
    swept: list[float] = []
    sweep = world.process._sweeper.sweep

    def noted() -> Any:  # noqa: ANN401 - what it returns
        swept.append((world.clock.now - NOW).total_seconds())
        return sweep()

    world.process._sweeper.sweep = noted  # type: ignore[method-assign] # watched
    reported: list[float] = []
    report = world.process._report

    def taken() -> None:
        reported.append((world.clock.now - NOW).total_seconds())
        report()

    world.process._report = taken  # type: ignore[method-assign] # watched
    world.put()
    world.run_for(250 * SECOND)
    assert swept == [0, 60, 120, 180, 240]
    assert reported == [30, 60, 90, 120, 150, 180, 210, 240]
    assert world.process.metrics.claimed == 1
    assert world.removed == 3


@pytest.mark.proves("4-L4")
def test_a_leader_that_died_is_replaced_within_its_lease_and_a_beat() -> None:
    world, settings = World(), SchedulerSettings()
    lease, beat = settings.leader_ttl, settings.heartbeat
    dead = world.store.locks.acquire("*", "scheduler-leader", ttl=lease, holder="dead", now=world.clock.now)
    assert dead is not None
    led: list[timedelta] = []
    acquire = world.process.leadership.acquire

    def noted() -> int | None:
        term = acquire()
        if term is not None:
            led.append(world.clock.now - NOW)
            assert term == dead.fence + 1
        return term

    world.process.leadership.acquire = noted  # type: ignore[method-assign] # watched
    world.run_for(lease * 2)
    assert lease <= led[0] <= lease + beat


@pytest.mark.proves("4-C8")
def test_a_next_fire_that_a_conflict_kept_from_being_given_is_given_in_the_same_term() -> None:
    world = World()
    of = schedule("acme")
    bare = trigger(of, interval_ms=60_000, kind="interval", anchor="fixed_rate", next_fire_at=None)
    with world.store.session("acme") as session:
        session.schedules.upsert(of)
        session.triggers.upsert(bare)
    refused: list[bool] = []
    guard = world.process.leadership.guard

    def once(session: Any) -> None:  # noqa: ANN401 - a session
        if not refused:
            refused.append(True)
            raise ConflictError("another session wrote the same at the same moment")
        guard(session)

    world.process.leadership.guard = once  # type: ignore[method-assign] # watched
    world.run_for(30 * SECOND)
    with world.store.session("acme") as session:
        (found,) = session.triggers.of_schedule(of.id)
    assert refused
    assert found.next_fire_at is not None


@pytest.mark.proves("4-S8")
def test_what_is_not_enabled_neither_registers_nor_claims() -> None:
    world = World(enabled=False)
    world.put()
    with pytest.raises(RefusedError, match="not enabled"):
        world.process.run("once")
    assert world.store.workers.list() == []
    assert world.executor.taken == []


@pytest.mark.proves("3-C9", "3-C7")
def test_it_registers_works_and_leaves_in_good_order() -> None:
    world = World(stop_within=60 * SECOND)
    row = world.put()

    def act() -> None:
        if world.executor.taken and world.process.worker.active:
            world.process.stop()
            world.put()  # not claimed any more
            world.executor.end()

    world.on_wait = act
    done = world.process.run()
    assert (done.claimed, done.completed, done.given_back) == (1, 1, 0)
    assert [worker.status for worker in world.store.workers.list()] == ["stopped"]
    assert world.store.locks.holder("*", "scheduler-leader") is None
    with world.store.session("acme") as session:
        found = session.runs.get(row)
    assert found is not None
    assert found.state == "completed"
    again = World()
    assert again.process.run("idle").claimed == 0


def test_a_process_that_was_declared_dead_stops_at_once_and_says_so() -> None:
    world = World()
    row = world.put()

    def bury() -> None:
        if world.executor.taken:
            world.store.workers.declare_dead(SECOND, world.clock.now + timedelta(hours=1), [world.process.worker_id])

    world.on_wait = bury
    with pytest.raises(DeclaredDeadError, match="declared dead"):
        world.process.run()
    assert world.process.worker.active == ()
    assert world.store.locks.holder("*", "scheduler-leader") is None
    with world.store.session("acme") as session:
        found = session.runs.get(row)
    assert found is not None
    assert found.state == "running"  # for the sweep of another one


def test_while_the_store_is_away_it_waits_and_stops_work_whose_lease_is_over() -> None:
    world = World(lease=60 * SECOND)
    world.put()

    def fall() -> None:
        if world.executor.taken:

            def away(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
                raise UnreachableError("gone")

            world.store.queue.heartbeat = away  # type: ignore[method-assign] # the server is away
        if world.clock.now > NOW + 90 * SECOND:
            world.process.stop()

    world.on_wait = fall
    world.process.run()
    assert world.process.worker.active == ()


def test_while_no_end_can_be_written_it_waits_between_two_tries() -> None:
    world = World(poll=SECOND)
    world.put()

    def away(*_: object, **__: object) -> Any:  # noqa: ANN401 - never returns
        raise UnreachableError("permission denied")

    def deny() -> None:
        if world.executor.taken and world.process.worker.active:
            world.store.queue.finish = away  # type: ignore[method-assign] # the fence of a rollback
            world.executor.end()
        if world.clock.now > NOW + 30 * SECOND:
            world.process.stop()

    world.on_wait = deny
    world.process.run()
    assert len(world.waits) <= 60, "what it could not do was overdue, and it span"


@pytest.mark.proves("3-C8")
def test_settings_have_the_sources_defaults_and_contradictions_are_named() -> None:
    own = SchedulerSettings()
    lengths = (own.poll, own.lease, own.metrics_every, own.sweep_every)
    assert lengths == (10 * SECOND, 300 * SECOND, 30 * SECOND, 60 * SECOND)
    assert own.retention_every == timedelta(0)
    check_intervals(own)
    for words, short in (
        ("scheduler.lease is 1s", SchedulerSettings(lease=SECOND)),
        ("scheduler.dead_after is 1s", SchedulerSettings(dead_after=SECOND)),
    ):
        with pytest.raises(ConfigurationError, match=words):
            check_intervals(short)


def test_a_beat_passes_over_what_it_missed_and_keeps_its_grid() -> None:
    beat = Ticker(10 * SECOND, 5.0)
    assert [beat.due(now) for now in (5.0, 5.1, 14.9, 15.0, 47.0, 47.1, 54.9, 55.0)] == [
        True, False, False, True, True, False, False, True,
    ]  # fmt: skip
    assert beat.next_at == 65.0
    assert not Ticker(SECOND, 0.0, at_once=False).due(0.5)


@pytest.mark.proves("3-T2", "3-C5")
def test_a_snapshot_never_sees_half_of_what_was_added_together() -> None:
    counters, barrier = Counters(), Barrier(5)
    torn: list[object] = []

    def add() -> None:
        barrier.wait()
        for _ in range(2_000):
            counters.add(completed=1, duration_ms=10)

    def look() -> None:
        barrier.wait()
        for _ in range(2_000):
            seen = counters.snapshot()
            if seen.duration_ms != 10 * seen.completed:
                torn.append(seen)

    threads = [Thread(target=add) for _ in range(4)] + [Thread(target=look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torn == []
    last = counters.snapshot()
    assert (last.completed, last.duration_ms, last.success_rate) == (8_000, 80_000.0, 1.0)
    with pytest.raises(AttributeError, match="nonsense"):
        counters.add(nonsense=1)
    assert Counters().snapshot().success_rate is None


def test_between_two_polls_a_process_fires_no_more_than_it_can_execute() -> None:
    world = World(
        ScriptedExecutor(lambda _claim: Outcome(state="completed")), batch=100, concurrency=10, poll=timedelta(hours=1)
    )
    with world.store.session("acme") as session:
        for _ in range(300):
            of = schedule("acme", name=uuid4().hex)
            session.schedules.upsert(of)
            session.triggers.upsert(trigger(of, kind="one_time", run_at=NOW, next_fire_at=NOW))
    asked: list[tuple[int | None, int]] = []
    fire = world.process.worker.fire

    def noted(most: int | None = None) -> int:
        asked.append((most, world.process.worker.room))
        return fire(most)

    world.process.worker.fire = noted  # type: ignore[method-assign] # watched
    counts = world.process.run("idle")
    assert counts.completed == 300
    (first, _), *others = asked
    assert first == 100
    assert len(others) > 20
    assert all(most == room <= 10 for most, room in others)
