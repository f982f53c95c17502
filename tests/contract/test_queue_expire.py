"""Runs whose lease or timeout is over: found, and ended once, unless they were renewed in between."""

from datetime import timedelta
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator import states
from migrator.errors import UsageError
from migrator.store.protocols import Store
from migrator.store.queue import SCRATCH, Claim, Queue
from tests.contract.rows import MILLISECOND, NOW, SECOND, changed, fresh, ids, run, schedule
from tests.contract.working import LEASE, MINUTE, claimed, end_of, held, now_of, put, repeat, run_of, runs_of

OVER = NOW + LEASE
LONG_AGO = NOW - timedelta(days=9000)


def lost(tenant: str, **columns: Any) -> Any:  # noqa: ANN401 - columns have all types
    """Return a run whose lease ended now."""
    least: dict[str, Any] = {"state": "running", "worker_id": "gone", "fence": 1, "started_at": NOW - MINUTE}
    return run(tenant, **least | {"lease_expires_at": NOW} | columns)


@pytest.mark.proves("3-B4", "3-B12", "0-T2.9.3")
@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_lease_is_over_from_its_very_instant_on(steps: int, at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    now = OVER + MILLISECOND * steps
    found = queue.expired(9, now, [tenant])
    assert found == ([claim] if steps >= 0 else [])
    assert queue.expire([end_of(claim, "error")], now) == ([claim.run.id] if steps >= 0 else [])


@pytest.mark.proves("2-X2", "4-C4")
@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_timeout_is_over_from_its_very_instant_on_while_the_lease_lives(
    steps: int, at_work: Store, queue: Queue, tenant: str
) -> None:
    claim = held(at_work, tenant, timeout_ms=5000)
    now = NOW + 5 * SECOND + MILLISECOND * steps
    assert queue.expired(9, now, [tenant]) == ([claim] if steps >= 0 else [])
    assert queue.expire([end_of(claim, "timeout", error="too long")], now) == ([claim.run.id] if steps >= 0 else [])
    assert now_of(at_work, claim).state == ("timeout" if steps >= 0 else "running")


@pytest.mark.proves("3-B12")
def test_what_has_neither_lease_nor_timeout_is_never_over(at_work: Store, queue: Queue, tenant: str) -> None:
    timed, untimed = put(at_work, schedule(tenant, timeout_ms=1), schedule(tenant))
    rows = put(
        at_work,
        run(tenant, state="running", schedule_id=untimed.id, started_at=NOW),
        run(tenant, state="running", started_at=NOW),
        run(tenant, state="running", schedule_id=timed.id),
    )
    assert queue.expired(9, NOW + timedelta(days=9000), [tenant]) == []
    ends = [end_of(Claim(run=row, schedule=None), "error") for row in rows]
    assert queue.expire(ends, NOW + timedelta(days=9000)) == []


@pytest.mark.proves("3-B12")
@pytest.mark.parametrize("state", states.RUN)
def test_only_running_runs_are_over(state: str, at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant, timeout_ms=1))
    (row,) = put(at_work, lost(tenant, state=state, schedule_id=of.id))
    claim = Claim(run=row, schedule=of)
    assert queue.expired(9, OVER, [tenant]) == ([claim] if state == "running" else [])
    assert queue.expire([end_of(claim, "error")], OVER) == ([row.id] if state == "running" else [])


@pytest.mark.proves("3-B4", "1-G3")
def test_those_come_first_whose_lease_ended_first_and_nothing_changes(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    (of,) = put(at_work, schedule(tenant, timeout_ms=1000))
    ties = [lost(tenant) for _ in range(3)]
    early, unleased = lost(tenant, lease_expires_at=LONG_AGO), lost(tenant, schedule_id=of.id, lease_expires_at=None)
    ahead = lost(tenant, schedule_id=of.id, lease_expires_at=NOW + MINUTE)
    rows = put(at_work, unleased, ahead, *ties, early, lost(tenant, lease_expires_at=NOW + SECOND))
    order = [early.id, *sorted(ids(ties)), ahead.id, unleased.id]
    assert claimed(queue.expired(9, NOW, [tenant])) == order
    assert claimed(queue.expired(2, NOW, [tenant])) == order[:2]
    assert [run_of(at_work, tenant, row.id) for row in rows] == rows
    (found, *_) = queue.expired(1, NOW, [tenant])
    assert (found.run, found.schedule) == (rows[-2], None)


@pytest.mark.proves("0-X2")
def test_scratch_tenants_are_served_only_where_they_are_named(at_work: Store, queue: Queue) -> None:
    scratch, usual, other = f"{SCRATCH}{fresh()}", fresh(), fresh()
    rows = put(at_work, *(lost(each, lease_expires_at=LONG_AGO - LEASE) for each in (scratch, usual, other)))
    found = set(claimed(queue.expired(99, LONG_AGO - LEASE)))
    assert found >= {rows[1].id, rows[2].id}
    assert rows[0].id not in found
    assert claimed(queue.expired(99, NOW, [scratch])) == [rows[0].id]
    assert set(claimed(queue.expired(99, NOW, [scratch, other]))) == {rows[0].id, rows[2].id}
    assert queue.expired(99, NOW, []) == []
    assert queue.expire([end_of(Claim(run=row, schedule=None), "error") for row in rows], NOW)


@pytest.mark.proves("3-B4", "3-B12", "2-X1")
def test_a_run_that_is_over_ends_once_with_one_retry(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant, status="running")
    end = end_of(
        claim, "error", error="lost", error_detail="its worker", retry=repeat(claim.run), schedule_status="scheduled"
    )
    assert queue.expire([end, end], OVER) == [claim.run.id]
    assert queue.expire([changed(end, retry=repeat(claim.run))], OVER) == []
    assert now_of(at_work, claim) == changed(
        claim.run,
        state="error",
        error="lost",
        error_detail="its worker",
        finished_at=OVER,
        duration_ms=30_000,
        lease_expires_at=None,
        updated_at=OVER,
    )
    assert claim.schedule is not None
    assert [row.state for row in runs_of(at_work, claim.schedule)] == ["error", "queued"]
    with at_work.session(tenant, now=NOW) as session:
        found = session.schedules.get(claim.schedule.id)
    assert found is not None
    assert found.status == "scheduled"


@pytest.mark.proves("3-B4")
def test_a_lease_renewed_in_between_survives(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    (found,) = queue.expired(9, OVER, [tenant])
    assert queue.heartbeat([claim], LEASE, OVER) == [claim.run.id]
    assert queue.expire([end_of(found, "error", retry=repeat(found.run))], OVER) == []
    after = now_of(at_work, claim)
    assert (after.state, after.lease_expires_at) == ("running", OVER + LEASE)
    assert queue.finish([end_of(claim)], OVER) == [claim.run.id]


@pytest.mark.proves("2-X2")
def test_a_timeout_is_not_renewed_by_a_heartbeat(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant, timeout_ms=5000)
    assert queue.heartbeat([claim], MINUTE, NOW + 5 * SECOND) == [claim.run.id]
    assert queue.expire([end_of(claim, "timeout")], NOW + 5 * SECOND) == [claim.run.id]


@pytest.mark.proves("2-X2", "3-C7")
def test_a_timeout_counts_from_the_start_after_a_release(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant, timeout_ms=5000)
    queue.release([claim], NOW + 4 * SECOND)
    (again,) = queue.claim("two", 9, LEASE, NOW + 4 * SECOND, tenants=[tenant])
    assert queue.expired(9, NOW + 8 * SECOND, [tenant]) == []
    assert claimed(queue.expired(9, NOW + 9 * SECOND, [tenant])) == [again.run.id]


@pytest.mark.proves("4-L6", "3-B4")
def test_a_worker_that_comes_back_late_neither_ends_nor_renews_what_another_has(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    claim = held(at_work, tenant)
    again = repeat(claim.run)
    assert queue.expire([end_of(claim, "error", error="lost", retry=again)], OVER)
    (taken,) = queue.claim("two", 9, LEASE, OVER, tenants=[tenant])
    assert taken.run.id == again.id
    assert queue.heartbeat([claim], LEASE, OVER) == []
    assert queue.release([claim], OVER) == []
    assert queue.finish([end_of(claim, retry=repeat(claim.run))], OVER) == []
    assert now_of(at_work, claim).error == "lost"
    assert now_of(at_work, taken) == taken.run
    assert claim.schedule is not None
    assert len(runs_of(at_work, claim.schedule)) == 2


@pytest.mark.proves("3-B12")
def test_another_s_fence_tenant_or_worker_expires_nothing(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    wrong: list[dict[str, Any]] = [
        {"fence": 0},
        {"fence": 2},
        {"worker_id": "two"},
        {"tenant_id": fresh()},
        {"run_id": uuid4()},
    ]
    assert queue.expire([end_of(claim, "error", **columns) for columns in wrong], OVER) == []
    assert now_of(at_work, claim) == claim.run


@pytest.mark.proves("3-B12", "4-C4")
def test_a_run_that_nobody_holds_is_timed_out_too(at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant, timeout_ms=1000))
    (row,) = put(at_work, run(tenant, schedule_id=of.id, state="running", started_at=NOW))
    (found,) = queue.expired(9, NOW + SECOND, [tenant])
    assert (found.run, found.schedule, found.fence) == (row, of, 0)
    assert queue.expire([end_of(found, "timeout")], NOW + SECOND) == [row.id]
    assert queue.expired(9, NOW + SECOND, [tenant]) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int, queue: Queue, tenant: str) -> None:
    with pytest.raises(UsageError):
        queue.expired(limit, NOW, [tenant])


def test_a_time_without_zone_is_refused(queue: Queue, tenant: str) -> None:
    with pytest.raises(UsageError):
        queue.expired(1, NOW.replace(tzinfo=None), [tenant])


def test_without_a_time_the_database_s_clock_decides(at_work: Store, queue: Queue, tenant: str) -> None:
    now = at_work.now()
    past, _ = put(at_work, lost(tenant, lease_expires_at=now), lost(tenant, lease_expires_at=now + 30 * MINUTE))
    (found,) = queue.expired(9, tenants=[tenant])
    assert found.run.id == past.id
    assert queue.expire([end_of(found, "error")]) == [past.id]
    ended = run_of(at_work, tenant, past.id).finished_at
    assert ended is not None
    assert now <= ended <= at_work.now()


@pytest.mark.proves("3-B4", "4-C4", "2-X6")
def test_of_sweepers_at_the_same_time_one_ends_each_run(at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant))
    rows = put(at_work, *(lost(tenant, schedule_id=of.id) for _ in range(12)))
    barrier, told = Barrier(4), list[UUID]()

    def sweep(place: int) -> None:
        barrier.wait()
        found = queue.expired(20, NOW, [tenant])
        order = [*found[place:], *found[:place]]
        told.extend(queue.expire([end_of(claim, "error", retry=repeat(claim.run)) for claim in order], NOW))

    threads = [Thread(target=sweep, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == sorted(ids(rows))
    assert len(runs_of(at_work, of)) == 24


@pytest.mark.proves("5-D1", "3-B12")
def test_only_runs_that_the_named_workers_hold_under_a_fence_are_over(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    (timed,) = put(at_work, schedule(tenant, timeout_ms=1))
    own, late, other, foreign, bare_lease = put(
        at_work,
        lost(tenant, worker_id="mine"),
        lost(tenant, worker_id="mine", schedule_id=timed.id, lease_expires_at=NOW + MINUTE),
        lost(tenant, worker_id="theirs"),
        lost(tenant, worker_id="theirs", schedule_id=timed.id, fence=None, lease_expires_at=None),
        lost(tenant, worker_id="mine", fence=None),
    )

    def found(workers: list[str] | None) -> set[UUID]:
        return set(claimed(queue.expired(9, NOW, [tenant], workers=workers)))

    assert found(["mine", "unheard of"]) == {own.id, late.id}
    assert found(["theirs"]) == {other.id}
    assert found([]) == set()
    assert found(None) == {own.id, late.id, other.id, foreign.id, bare_lease.id}
