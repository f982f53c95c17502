"""What the leader puts right, on every backend; and that only the leader does."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from migrator.errors import LostLockError
from migrator.records import WorkerRecord
from migrator.scheduler.leadership import Leadership
from migrator.scheduler.sweeper import Sweeper, Swept
from migrator.scheduler.worker import Scope, scope_metadata
from migrator.store.protocols import Store
from migrator.store.queue import HandlerFilter
from migrator.verify.behaviour.harness import Clock, ScriptedExecutor
from tests.contract.rows import NOW, SECOND, changed, fresh, run, schedule, trigger
from tests.contract.scheduling.process import Process
from tests.contract.working import MINUTE, put, run_of, schedule_of, trigger_of

TTL = timedelta(hours=2)  # longer than any test's clock moves


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


@pytest.fixture
def leadership(at_work: Store, clock: Clock) -> Iterator[Leadership]:
    made = Leadership(at_work, ttl=TTL, holder="me", tenant=fresh(), clock=clock)
    assert made.acquire() is not None
    yield made
    made.release()


def sweeper(store: Store, leadership: Leadership, tenant: str, clock: Clock, scope: Scope | None = None) -> Sweeper:
    # Workers are shared by all tests of a backend: nobody here is silent for so long.
    return Sweeper(store, leadership, dead_after=timedelta(days=9000), scope=scope, tenants=[tenant], clock=clock)


@pytest.mark.proves("0-T2.9.3", "4-L5")
def test_the_runs_of_a_process_that_fell_silent_are_reclaimed_once(
    at_work: Store, tenant: str, leadership: Leadership, clock: Clock
) -> None:
    of = schedule(tenant, max_retries=1, retry_delay_ms=0)
    put(at_work, of, run(tenant, schedule_id=of.id, available_at=NOW))
    process = Process(at_work, tenant, ScriptedExecutor(lambda _claim: None), clock=clock)
    # Long ago, so that no other test's process is as silent as this one.
    past = NOW - timedelta(days=20_000)
    at_work.workers.register(
        WorkerRecord(id=process.worker_id, tenant_id="*", kind="scheduler", status="active", registered_at=past),
        past,
    )
    process.turn()
    broom = sweeper(at_work, leadership, tenant, clock)
    swept = broom.sweep()
    assert (swept.dead, swept.ended, swept.retried) == (1, 1, 1)
    assert broom.sweep() == Swept()
    assert sorted(process.states()) == ["error", "queued"]
    assert not at_work.workers.heartbeat(process.worker_id, NOW)


@pytest.mark.proves("2-X9", "2-F2")
@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("completed", "running", "completed"),
        ("error", "running", "failed"),
        ("running", "running", "running"),
        ("completed", "paused", "paused"),
    ],
)
def test_a_schedule_that_was_left_behind_is_settled(
    state: str, status: str, expected: str, at_work: Store, tenant: str, leadership: Leadership, clock: Clock
) -> None:
    of = schedule(tenant, status=status)
    spent = trigger(of, kind="one_time", run_at=NOW, next_fire_at=None, fire_count=1)
    put(at_work, of, spent, run(tenant, schedule_id=of.id, trigger_id=spent.id, scheduled_at=NOW, state=state))
    swept = sweeper(at_work, leadership, tenant, clock).sweep()
    assert schedule_of(at_work, of).status == expected
    assert swept.completed == (expected != status)


@pytest.mark.proves("4-C8")
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"kind": "cron", "cron_expression": "*/5 * * * *", "cron_dialect": "debian"},
            NOW.replace(minute=5, second=0, microsecond=0),
        ),
        ({}, NOW + MINUTE),
        ({"enabled": False}, None),
        ({"max_fires": 1, "fire_count": 1}, None),
    ],
)
def test_a_trigger_that_was_moved_here_without_a_next_fire_is_given_one(
    columns: dict[str, Any],
    expected: datetime | None,
    at_work: Store,
    tenant: str,
    leadership: Leadership,
    clock: Clock,
) -> None:
    of, planned = schedule(tenant), schedule(tenant)
    bare, other = trigger(of, **columns | {"next_fire_at": None}), trigger(planned)
    put(at_work, of, planned, bare, other)
    assert sweeper(at_work, leadership, tenant, clock).give_missing_fires() == (expected is not None)
    assert trigger_of(at_work, bare).next_fire_at == expected
    assert trigger_of(at_work, other).next_fire_at == NOW
    assert sweeper(at_work, leadership, tenant, clock).give_missing_fires() == 0


@pytest.mark.proves("4-L3", "4-L6", "4-L5")
def test_only_the_leader_sweeps_and_one_that_was_replaced_writes_nothing(
    at_work: Store, tenant: str, clock: Clock
) -> None:
    lock = fresh()
    first = Leadership(at_work, ttl=TTL, holder="first", tenant=lock, clock=clock)
    second = Leadership(at_work, ttl=TTL, holder="second", tenant=lock, clock=clock)
    term = first.acquire()
    assert term is not None
    assert second.acquire() is None
    of = schedule(tenant)
    put(at_work, of, trigger(of, next_fire_at=None))
    assert sweeper(at_work, second, tenant, clock).give_missing_fires() == 0
    with pytest.raises(LostLockError), at_work.session(tenant, now=clock.now) as session:
        second.guard(session)
    assert first.release()
    assert not first.release()
    follower = second.acquire()
    assert follower is not None
    assert follower > term
    assert first.acquire() is None

    def write_in_the_old_term() -> None:
        with at_work.session(tenant, now=clock.now) as session:
            session.schedules.upsert(changed(of, name=uuid4().hex))
            at_work.locks.guard(session, lock, "scheduler-leader", term)

    with pytest.raises(LostLockError):
        write_in_the_old_term()
    assert schedule_of(at_work, of).name == of.name
    second.release()


@pytest.mark.proves("4-L4")
def test_a_leader_that_died_is_replaced_when_its_lease_is_over_and_not_before(at_work: Store, clock: Clock) -> None:
    """A candidate stands three times within a lease: nobody leads for at most a lease and a third of one."""
    lease, lock = timedelta(seconds=30), fresh()
    dead = Leadership(at_work, ttl=lease, holder="dead", tenant=lock, clock=clock)
    other = Leadership(at_work, ttl=lease, holder="other", tenant=lock, clock=clock)
    first = dead.acquire()
    assert first is not None
    clock.advance(SECOND)  # the candidate's turns are not those of the dead
    terms = {}
    while clock.now < NOW + lease * 2:
        terms[clock.now - NOW] = other.acquire()
        clock.advance(lease / 3)
    assert [after for after, term in terms.items() if term is not None] == [
        lease + SECOND,
        lease * 4 / 3 + SECOND,
        lease * 5 / 3 + SECOND,
    ]
    assert set(terms.values()) == {None, first + 1}
    other.release()


@pytest.mark.proves("2-F3d", "4-C8")
def test_a_clock_that_was_set_back_runs_nothing_twice(at_work: Store, tenant: str) -> None:
    executor = ScriptedExecutor(lambda _claim: None)
    process = Process(at_work, tenant, executor)
    of = schedule(tenant)
    put(at_work, of, trigger(of))
    for _ in range(3):
        process.turn()
        executor.end()
        process.clock.advance(MINUTE)
    process.clock.advance(timedelta(hours=-2))
    for _ in range(5):
        process.after(MINUTE)
    assert len(process.all_runs()) == 3
    process.clock.advance(timedelta(hours=2))
    process.clock.now = NOW + 3 * MINUTE
    process.turn()
    slots = [each.scheduled_at for each in process.all_runs()]
    assert len(slots) == len(set(slots)) == 4


MINE = Scope(handlers=HandlerFilter(names=("mine",)))


def registered(store: Store, at: datetime, **columns: Any) -> WorkerRecord:  # noqa: ANN401 - columns have all types
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": "*", "kind": "scheduler", "status": "active"}
    return store.workers.register(WorkerRecord(**least | {"registered_at": at} | columns), at)


@pytest.mark.proves("5-D1", "3-B12")
def test_processes_of_another_scheduler_and_the_runs_that_they_hold_are_left_alone(
    at_work: Store, tenant: str, leadership: Leadership, clock: Clock
) -> None:
    past = NOW - timedelta(days=20_000)
    own = registered(at_work, past, metadata=scope_metadata(MINE))
    others = [
        registered(at_work, past, metadata=metadata)
        for metadata in (None, b'{"zone":"a"}', b'{"scheduler":"another"}', b"[1]", b'"migrator"')
    ]
    of = schedule(tenant, timeout_ms=1000, handler_name="mine")
    held = {
        worker.id: run(
            tenant,
            schedule_id=of.id,
            state="running",
            worker_id=str(worker.id),
            fence=1,
            started_at=NOW - MINUTE,
            lease_expires_at=NOW - MINUTE,
        )
        for worker in (own, *others)
    }
    put(at_work, of, *held.values())
    swept = sweeper(at_work, leadership, tenant, clock, MINE).sweep()
    assert (swept.dead, swept.ended) == (1, 1)
    assert run_of(at_work, tenant, held[own.id].id).state == "timeout"
    status = {one.id: one.status for one in at_work.workers.list()}
    assert status[own.id] == "dead"
    for worker in others:
        assert status[worker.id] == "active"
        assert run_of(at_work, tenant, held[worker.id].id).state == "running"
        at_work.workers.stop(worker.id)


@pytest.mark.proves("5-D1", "2-X9", "4-C8")
def test_schedules_that_no_process_works_for_are_neither_settled_nor_given_a_next_fire(
    at_work: Store, tenant: str, leadership: Leadership, clock: Clock
) -> None:
    """The leader acts for what another process works for, too, as long as that one is alive."""
    through, bare = {}, {}
    names = ("mine", "beside", "gone", "theirs")
    for name in names:
        ended = schedule(tenant, status="running", handler_name=name)
        spent = trigger(ended, kind="one_time", run_at=NOW, next_fire_at=None, fire_count=1)
        planned = schedule(tenant, handler_name=name)
        through[name], bare[name] = ended, trigger(planned, next_fire_at=None)
        done = run(tenant, schedule_id=ended.id, trigger_id=spent.id, scheduled_at=NOW, state="completed")
        put(at_work, ended, spent, planned, bare[name], done)
    beside = registered(at_work, NOW, metadata=scope_metadata(Scope(handlers=HandlerFilter(names=("beside",)))))
    gone = registered(at_work, NOW, metadata=scope_metadata(Scope(handlers=HandlerFilter(names=("gone",)))))
    at_work.workers.stop(gone.id)
    broom = sweeper(at_work, leadership, tenant, clock, MINE)
    assert (broom.sweep().completed, broom.give_missing_fires()) == (2, 2)
    for name in names:
        acted = name in ("mine", "beside")
        assert (schedule_of(at_work, through[name]).status == "completed") is acted, name
        assert (trigger_of(at_work, bare[name]).next_fire_at is not None) is acted, name
    at_work.workers.stop(beside.id)
