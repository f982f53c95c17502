"""The heartbeat of a claimed run, and giving it back: only by whom holds it."""

from datetime import timedelta
from uuid import uuid4

import pytest

from migrator.errors import UsageError
from migrator.store.protocols import Store
from migrator.store.queue import Queue
from tests.contract.rows import NOW, SECOND, changed, fresh, run
from tests.contract.working import LEASE, MINUTE, end_of, held, now_of, put

LATER = NOW + SECOND


@pytest.mark.proves("3-B4", "2-X8")
def test_a_heartbeat_extends_the_lease_from_now_and_nothing_else(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    assert queue.heartbeat([claim], LEASE, LATER) == [claim.run.id]
    assert now_of(at_work, claim) == changed(claim.run, lease_expires_at=LATER + LEASE, updated_at=LATER)


def test_a_heartbeat_never_takes_a_lease_back(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    assert queue.heartbeat([claim], SECOND, LATER) == [claim.run.id]
    assert queue.heartbeat([claim], LEASE, NOW - MINUTE) == [claim.run.id]
    assert now_of(at_work, claim).lease_expires_at == NOW + LEASE


def test_a_lease_that_is_over_and_not_taken_is_extended(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    assert queue.heartbeat([claim], LEASE, NOW + MINUTE) == [claim.run.id]
    assert queue.expired(9, NOW + MINUTE, [tenant]) == []
    assert now_of(at_work, claim).lease_expires_at == NOW + MINUTE + LEASE


@pytest.mark.proves("4-L6", "3-B3")
def test_who_does_not_hold_a_run_neither_extends_nor_releases_it(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    others = [
        changed(claim, run=changed(claim.run, **columns))
        for columns in ({"fence": 0}, {"fence": 2}, {"worker_id": "two"}, {"tenant_id": fresh()}, {"id": uuid4()})
    ]
    assert queue.heartbeat(others, LEASE, LATER) == []
    assert queue.release(others, LATER) == []
    assert now_of(at_work, claim) == claim.run
    assert queue.heartbeat([*others, claim, claim], LEASE, LATER) == [claim.run.id]
    assert queue.release([*others, claim, claim], LATER) == [claim.run.id]


@pytest.mark.parametrize("lease", [timedelta(0), -LEASE])
def test_a_lease_not_above_zero_is_refused(lease: timedelta, at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    with pytest.raises(UsageError):
        queue.heartbeat([claim], lease, LATER)
    assert now_of(at_work, claim) == claim.run


@pytest.mark.proves("3-C7")
def test_a_released_run_is_queued_as_if_it_had_never_been_claimed_but_for_its_fence(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    (before,) = put(at_work, run(tenant, attempt=2, available_at=NOW - SECOND, error="the first time"))
    (claim,) = queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
    assert queue.release([claim], LATER) == [claim.run.id]
    assert now_of(at_work, claim) == changed(before, fence=1, updated_at=LATER)
    assert queue.finish([end_of(claim)], LATER) == []
    (again,) = queue.claim("one", 1, LEASE, LATER, tenants=[tenant])
    assert (again.run.started_at, again.fence, again.run.attempt) == (LATER, 2, 2)
    assert queue.finish([end_of(claim)], LATER) == []
    assert queue.heartbeat([claim], LEASE, LATER) == []
    assert queue.release([claim], LATER) == []
    assert now_of(at_work, again) == again.run
    assert queue.finish([end_of(again)], LATER) == [again.run.id]
