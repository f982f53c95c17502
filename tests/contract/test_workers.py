"""Worker and scheduler processes: registered, alive by their heartbeat, declared dead once, their runs given up."""

from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator.errors import UsageError
from migrator.records import WorkerRecord
from migrator.store.protocols import Store
from migrator.store.queue import Queue
from migrator.store.workers import Workers
from tests.contract.rows import MILLISECOND, NOW, SECOND, bare, changed, ids, run, schedule
from tests.contract.working import LEASE, MINUTE, claimed, end_of, now_of, put, repeat, run_of

LATER = NOW + SECOND
SILENCE = timedelta(seconds=10)


def worker(**columns: Any) -> WorkerRecord:  # noqa: ANN401 - columns have all types
    least: dict[str, Any] = {"id": uuid4(), "tenant_id": "*", "kind": "worker", "status": "active"}
    return WorkerRecord(**least | columns)


def found(workers: Workers, worker_id: UUID) -> WorkerRecord:
    (one,) = [row for row in workers.list() if row.id == worker_id]
    return one


@pytest.mark.proves("0-T2.9.1", "4-L1")
def test_a_worker_is_registered_as_active_and_alive_now(workers: Workers) -> None:
    one = worker(
        kind="scheduler",
        hostname="h",
        pid=7,
        version="1.0",
        queues=("mail", "slow"),
        capacity=4,
        status="dead",
        metadata=b'{"a":1}',
    )
    written = workers.register(one, LATER)
    assert bare(written) == changed(one, status="active", registered_at=LATER, last_heartbeat_at=LATER)
    assert found(workers, one.id) == written
    other = workers.register(worker(registered_at=NOW, last_heartbeat_at=NOW), LATER)
    assert (other.registered_at, other.last_heartbeat_at) == (NOW, LATER)


@pytest.mark.proves("0-T2.9.1", "4-L1")
@pytest.mark.parametrize("end", ["alive", "stopped", "dead"])
def test_one_that_registers_again_is_brought_up_to_date(end: str, workers: Workers) -> None:
    one = workers.register(worker(hostname="before", pid=1), NOW)
    if end == "stopped":
        assert workers.stop(one.id, NOW)
    if end == "dead":
        assert workers.declare_dead(SILENCE, NOW + MINUTE, [one.id]) == [one.id]
    again = worker(id=one.id, hostname="after", queues=("mail",), registered_at=NOW + MINUTE)
    written = workers.register(again, NOW + MINUTE)
    assert bare(written) == changed(again, registered_at=NOW, last_heartbeat_at=NOW + MINUTE)
    assert found(workers, one.id) == written
    assert workers.heartbeat(one.id, NOW + MINUTE)


def test_registering_again_does_not_take_the_heartbeat_back(workers: Workers) -> None:
    one = workers.register(worker(), LATER)
    assert workers.register(one, NOW).last_heartbeat_at == LATER


@pytest.mark.parametrize("columns", [{"tenant_id": "a"}, {"kind": "no such"}, {"hostname": "a\0"}])
def test_what_is_no_worker_is_refused(columns: dict[str, str], workers: Workers) -> None:
    one = worker(**columns)
    with pytest.raises(UsageError):
        workers.register(one, NOW)
    assert one.id not in ids(workers.list())


@pytest.mark.proves("0-T2.9.2", "4-L2")
def test_a_heartbeat_stamps_and_never_goes_back(workers: Workers) -> None:
    one = workers.register(worker(metadata=b'{"a":1}'), NOW)
    assert workers.heartbeat(one.id, LATER)
    assert found(workers, one.id) == changed(one, last_heartbeat_at=LATER)
    assert workers.heartbeat(one.id, NOW)
    assert found(workers, one.id) == changed(one, last_heartbeat_at=LATER)


@pytest.mark.proves("0-T2.9.2", "4-L5")
def test_who_was_stopped_declared_dead_or_never_registered_is_told_to_stop(workers: Workers) -> None:
    stopped, dead = workers.register(worker(), NOW), workers.register(worker(), NOW)
    assert workers.stop(stopped.id, NOW)
    assert workers.declare_dead(SILENCE, NOW + MINUTE, [dead.id]) == [dead.id]
    for worker_id in (stopped.id, dead.id, uuid4()):
        assert not workers.heartbeat(worker_id, NOW + MINUTE)
        assert not workers.stop(worker_id, NOW + MINUTE)
    assert found(workers, stopped.id) == changed(stopped, status="stopped")
    assert found(workers, dead.id) == changed(dead, status="dead")


def test_workers_are_listed_by_registration_ties_by_id(workers: Workers) -> None:
    ties = [workers.register(worker(), LATER) for _ in range(3)]
    early = workers.register(worker(), NOW - MINUTE)
    mine = {early.id, *ids(ties)}
    assert [row.id for row in workers.list() if row.id in mine] == [early.id, *sorted(ids(ties))]


@pytest.mark.proves("0-T2.9.3", "4-L5")
@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_dead_is_who_was_silent_for_longer(steps: int, workers: Workers) -> None:
    one = workers.register(worker(), NOW)
    dead = workers.declare_dead(SILENCE, NOW + SILENCE + MILLISECOND * steps, [one.id])
    assert dead == ([one.id] if steps > 0 else [])
    assert found(workers, one.id).status == ("dead" if steps > 0 else "active")


@pytest.mark.proves("0-T2.9.3")
def test_each_is_declared_dead_once_and_stopped_ones_never(workers: Workers) -> None:
    one, stopped, fresh = (workers.register(worker(), at) for at in (NOW, NOW, NOW + MINUTE))
    workers.stop(stopped.id, NOW)
    among = [one.id, stopped.id, fresh.id, uuid4()]
    assert workers.declare_dead(SILENCE, NOW + MINUTE, []) == []
    assert workers.declare_dead(SILENCE, NOW + MINUTE, among) == [one.id]
    assert workers.declare_dead(SILENCE, NOW + MINUTE, among) == []
    assert [found(workers, each).status for each in among[:3]] == ["dead", "stopped", "active"]


@pytest.mark.proves("0-T2.9.3")
def test_without_names_all_are_asked(workers: Workers) -> None:
    ancient = NOW - timedelta(days=9000)
    one = workers.register(worker(), ancient)
    assert workers.declare_dead(SILENCE, ancient + MINUTE) == [one.id]


@pytest.mark.proves("0-T2.9.3")
def test_who_drains_may_die_and_who_never_spoke_is_silent(workers: Workers, plant: Callable[..., None]) -> None:
    drains, mute = worker(status="draining", last_heartbeat_at=NOW, registered_at=NOW), worker(registered_at=NOW)
    plant(drains, mute)
    assert workers.heartbeat(drains.id, LATER)
    assert found(workers, drains.id).status == "draining"
    among = [drains.id, mute.id]
    assert workers.declare_dead(SILENCE, LATER + SILENCE, among) == [mute.id]
    assert workers.declare_dead(SILENCE, NOW + MINUTE, among) == [drains.id]
    other = worker(status="draining", last_heartbeat_at=NOW, registered_at=NOW)
    plant(other)
    assert workers.stop(other.id, NOW)


@pytest.mark.proves("0-T2.9.3", "3-B12", "4-L5")
def test_the_runs_of_a_dead_worker_are_over_at_once_and_reclaimed_once(
    at_work: Store, queue: Queue, workers: Workers, tenant: str
) -> None:
    dead, alive = workers.register(worker(), NOW), workers.register(worker(), NOW)
    (of,) = put(at_work, schedule(tenant))
    put(at_work, *(run(tenant, schedule_id=of.id, available_at=NOW + MILLISECOND * place) for place in range(3)))
    kept, ended, theirs = (
        queue.claim(f"{who}", 1, lease, NOW + SECOND, tenants=[tenant])[0]
        for who, lease in ((dead.id, timedelta(hours=1)), (dead.id, 3 * SECOND), (alive.id, timedelta(hours=1)))
    )
    now = NOW + MINUTE
    assert workers.heartbeat(alive.id, now)
    assert queue.expired(9, NOW + SECOND, [tenant]) == []
    assert workers.declare_dead(SILENCE, now, [dead.id, alive.id]) == [dead.id]
    assert now_of(at_work, kept) == changed(kept.run, lease_expires_at=now, updated_at=now)
    assert now_of(at_work, ended).lease_expires_at == NOW + 4 * SECOND
    assert now_of(at_work, theirs) == theirs.run
    over = queue.expired(9, now, [tenant])
    assert claimed(over) == [ended.run.id, kept.run.id]
    ends = [end_of(claim, "error", error="its worker died", retry=repeat(claim.run)) for claim in over]
    assert set(queue.expire(ends, now)) == {ended.run.id, kept.run.id}
    assert queue.expire(ends, now) == []
    assert queue.finish([end_of(kept)], now) == []
    assert run_of(at_work, tenant, kept.run.id).error == "its worker died"
    assert len(queue.claim(f"{alive.id}", 9, LEASE, now, tenants=[tenant])) == 2


@pytest.mark.proves("0-T2.9.3")
def test_only_running_runs_of_the_dead_are_touched(at_work: Store, workers: Workers, tenant: str) -> None:
    dead = workers.register(worker(), NOW)
    states = ("queued", "completed", "cancelled")
    rows = put(at_work, *(run(tenant, state=state, worker_id=f"{dead.id}", fence=1) for state in states))
    (unleased,) = put(at_work, run(tenant, state="running", worker_id=f"{dead.id}", fence=1))
    assert workers.declare_dead(SILENCE, NOW + MINUTE, [dead.id]) == [dead.id]
    assert [run_of(at_work, tenant, row.id) for row in rows] == rows
    assert run_of(at_work, tenant, unleased.id).lease_expires_at == NOW + MINUTE


@pytest.mark.parametrize("silence", [timedelta(0), -SILENCE])
def test_a_silence_not_above_zero_is_refused(silence: timedelta, workers: Workers) -> None:
    one = workers.register(worker(), NOW)
    with pytest.raises(UsageError):
        workers.declare_dead(silence, NOW + MINUTE, [one.id])
    assert found(workers, one.id) == one


def test_a_time_without_zone_is_refused(workers: Workers) -> None:
    one, naive = workers.register(worker(), NOW), NOW.replace(tzinfo=None)
    calls: tuple[Callable[[], object], ...] = (
        lambda: workers.register(one, naive),
        lambda: workers.heartbeat(one.id, naive),
        lambda: workers.stop(one.id, naive),
        lambda: workers.declare_dead(SILENCE, naive, [one.id]),
    )
    for call in calls:
        with pytest.raises(UsageError):
            call()
    assert found(workers, one.id) == one


@pytest.mark.proves("4-L5")
def test_who_is_stopped_or_dead_may_be_forgotten(workers: Workers) -> None:
    alive, stopped, dead = (workers.register(worker(), NOW) for _ in range(3))
    workers.stop(stopped.id, NOW)
    workers.declare_dead(SILENCE, NOW + MINUTE, [dead.id])
    assert not workers.remove(alive.id)
    assert not workers.remove(uuid4())
    for one in (stopped, dead):
        assert workers.remove(one.id)
        assert not workers.remove(one.id)
        assert not workers.heartbeat(one.id, NOW)
    left = set(ids(workers.list())) & {alive.id, stopped.id, dead.id}
    assert left == {alive.id}


@pytest.mark.proves("0-T2.9.2")
def test_without_a_time_the_database_s_clock_stamps(at_work: Store, workers: Workers) -> None:
    before = at_work.now()
    one = workers.register(worker())
    assert workers.heartbeat(one.id)
    spoke = found(workers, one.id).last_heartbeat_at
    assert one.registered_at is not None
    assert spoke is not None
    assert before <= one.registered_at <= spoke <= at_work.now()
    assert workers.declare_dead(MINUTE, among=[one.id]) == []
    assert workers.stop(one.id)


@pytest.mark.proves("0-T2.9.3", "0-T2.9.4")
def test_of_detectors_at_the_same_time_one_is_told_of_each_death(workers: Workers) -> None:
    dead = [workers.register(worker(), NOW).id for _ in range(8)]
    barrier, told = Barrier(4), list[UUID]()

    def detect() -> None:
        barrier.wait()
        told.extend(workers.declare_dead(SILENCE, NOW + MINUTE, dead))

    threads = [Thread(target=detect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == sorted(dead)
