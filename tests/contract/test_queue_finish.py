"""The end of a claimed run, its heartbeat and its release: only by whom holds it, only once, all in one."""

from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest

from migrator import states
from migrator.errors import MigratorError, TransitionError, UsageError
from migrator.store.protocols import Store
from migrator.store.queue import Claim, Finish, Queue
from tests.contract.rows import MILLISECOND, NOW, SECOND, bare, changed, fresh, ids, run, schedule, trigger
from tests.contract.working import (
    LEASE,
    MINUTE,
    claimed,
    end_of,
    held,
    now_of,
    put,
    repeat,
    run_of,
    runs_of,
    schedule_of,
    slot,
)

LATER = NOW + SECOND
ENDS = ("completed", "error", "cancelled", "timeout")
FOLLOWERS = ("completed", "failed", "scheduled", "cancelled")


@pytest.mark.proves("2-X3", "4-C3", "0-T2.4.2")
@pytest.mark.parametrize("state", ENDS)
def test_a_run_ends_with_its_outcome_its_time_and_its_duration(
    state: str, at_work: Store, queue: Queue, tenant: str
) -> None:
    claim = held(at_work, tenant)
    end = end_of(claim, state, result=b'{"a":1}', error="broken", error_detail="at line 7")
    assert queue.finish([end], LATER) == [claim.run.id]
    assert now_of(at_work, claim) == changed(
        claim.run,
        state=state,
        result=b'{"a":1}',
        error="broken",
        error_detail="at line 7",
        finished_at=LATER,
        duration_ms=1000,
        lease_expires_at=None,
        updated_at=LATER,
    )
    assert claim.schedule is not None
    assert schedule_of(at_work, claim.schedule) == claim.schedule


def test_outcome_and_error_are_replaced_also_by_nothing(at_work: Store, queue: Queue, tenant: str) -> None:
    put(at_work, run(tenant, result=b"[1]", error="before", error_detail="before"))
    (claim,) = queue.claim("w", 1, LEASE, NOW, tenants=[tenant])
    assert queue.finish([end_of(claim)], LATER)
    after = now_of(at_work, claim)
    assert (after.result, after.error, after.error_detail) == (None, None, None)


def test_an_end_before_the_start_has_no_duration(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    assert queue.finish([end_of(claim)], NOW - SECOND)
    after = now_of(at_work, claim)
    assert (after.finished_at, after.duration_ms) == (NOW - SECOND, None)


def zombies(claim: Claim) -> dict[str, Finish]:
    """Return ends that are not the holder's."""
    return {
        "an older fence": end_of(claim, fence=claim.fence - 1),
        "a newer fence": end_of(claim, fence=claim.fence + 1),
        "another worker": end_of(claim, worker_id="two"),
        "no worker": end_of(claim, worker_id=""),
        "another tenant": end_of(claim, tenant_id=fresh()),
        "an unknown run": end_of(claim, run_id=uuid4()),
    }


@pytest.mark.proves("3-B3", "4-L6", "2-X2")
def test_who_does_not_hold_a_run_cannot_end_it(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant, status="running")
    for what, end in zombies(claim).items():
        late = changed(end, retry=changed(repeat(claim.run), tenant_id=end.tenant_id), schedule_status="failed")
        assert queue.finish([late], LATER) == [], what
    assert now_of(at_work, claim) == claim.run
    assert claim.schedule is not None
    assert [ids(runs_of(at_work, claim.schedule)), schedule_of(at_work, claim.schedule)] == [
        [claim.run.id],
        claim.schedule,
    ]


@pytest.mark.proves("0-T2.4.2", "1-G3")
@pytest.mark.parametrize("state", states.RUN)
def test_only_a_running_run_is_ended(state: str, at_work: Store, queue: Queue, tenant: str) -> None:
    (row,) = put(at_work, run(tenant, state=state, worker_id="one", fence=3, lease_expires_at=NOW + LEASE))
    claim = Claim(run=row, schedule=None)
    assert queue.heartbeat([claim], 2 * LEASE, LATER) == ([row.id] if state == "running" else [])
    if state != "running":
        assert queue.release([claim], LATER) == []
        assert queue.finish([end_of(claim)], LATER) == []
        assert run_of(at_work, tenant, row.id) == row
    else:
        assert queue.finish([end_of(claim)], LATER) == [row.id]


@pytest.mark.proves("0-T2.4.2")
def test_an_end_counts_once_and_the_first_stands(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    ends = [end_of(claim, "error", error="first"), end_of(claim, "completed")]
    assert queue.finish(ends, LATER) == [claim.run.id]
    assert queue.finish(ends, LATER + SECOND) == []
    after = now_of(at_work, claim)
    assert (after.state, after.error, after.finished_at) == ("error", "first", LATER)


@pytest.mark.proves("2-F12", "3-B7")
def test_a_cancelled_run_stays_cancelled_whatever_its_worker_does(at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant, status="running")
    with at_work.session(tenant, now=LATER) as session:
        cancelled = session.runs.cancel(claim.run.id, "enough")
    late = end_of(claim, "error", error="late", retry=repeat(claim.run), schedule_status="failed")
    assert queue.heartbeat([claim], LEASE, LATER) == []
    assert queue.finish([late], LATER) == []
    assert queue.release([claim], LATER) == []
    assert now_of(at_work, claim) == cancelled
    assert claim.schedule is not None
    assert len(runs_of(at_work, claim.schedule)) == 1
    assert schedule_of(at_work, claim.schedule).status == "running"


@pytest.mark.proves("2-X1", "2-F15", "3-C3")
def test_a_retry_comes_with_the_end_as_a_queued_run_of_its_own(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause, slot(of, cause, trace_id="t"))
    (claim,) = queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
    again = repeat(claim.run, available_at=NOW + MINUTE, trace_id="t")
    assert queue.finish([end_of(claim, "error", retry=again)], LATER) == [claim.run.id]
    stored = run_of(at_work, tenant, again.id)
    assert bare(stored) == changed(again, run_number=2, updated_at=LATER)
    assert queue.claim("two", 9, LEASE, NOW + MINUTE - MILLISECOND, tenants=[tenant]) == []
    (claim,) = queue.claim("two", 9, LEASE, NOW + MINUTE, tenants=[tenant])
    assert (claim.run.id, claim.run.attempt, claim.run.retry_of) == (again.id, 2, stored.retry_of)


@pytest.mark.proves("2-X1", "2-F15")
@pytest.mark.parametrize("same_id", [False, True])
def test_a_retry_whose_attempt_is_there_is_passed_over_and_the_end_stands(
    same_id: bool,  # noqa: FBT001 - a parameter of the test
    at_work: Store,
    queue: Queue,
    tenant: str,
) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause, slot(of, cause))
    (claim,) = queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
    (there,) = put(at_work, repeat(claim.run))
    again = there if same_id else repeat(claim.run)
    assert queue.finish([end_of(claim, "error", retry=again)], LATER) == [claim.run.id]
    assert now_of(at_work, claim).state == "error"
    assert ids(runs_of(at_work, of)) == [claim.run.id, there.id]


@pytest.mark.proves("2-X1")
def test_a_retry_of_a_run_whose_trigger_was_removed_has_none(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause, kept = trigger(of), trigger(of)
    put(at_work, of, cause, slot(of, cause))
    (claim,) = queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
    with at_work.session(tenant, now=NOW) as session:
        session.triggers.delete_of_schedule(of.id)
    put(at_work, kept, slot(of, kept))
    (other,) = queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
    retries = [repeat(each.run) for each in (claim, other)]
    ends = [end_of(each, "error", retry=retry) for each, retry in zip((claim, other), retries, strict=True)]
    assert set(queue.finish(ends, LATER)) == {claim.run.id, other.run.id}
    assert [run_of(at_work, tenant, retry.id).trigger_id for retry in retries] == [None, kept.id]


@pytest.mark.proves("2-X1")
def test_a_retry_of_a_schedule_that_was_deleted_paused_or_disabled_waits(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    claims = [held(at_work, tenant) for _ in range(3)]
    deleted, paused, disabled = (claim.schedule for claim in claims)
    assert deleted
    assert paused
    assert disabled
    with at_work.session(tenant, now=NOW) as session:
        session.schedules.soft_delete(deleted.id, "me")
        session.schedules.change_status(paused.id, "scheduled", "paused")
        session.schedules.upsert(changed(disabled, enabled=False))
    again = [repeat(claim.run, available_at=NOW) for claim in claims]
    ends = [end_of(claim, "error", retry=row) for claim, row in zip(claims, again, strict=True)]
    assert set(queue.finish(ends, LATER)) == set(claimed(claims))
    assert [run_of(at_work, tenant, row.id).state for row in again] == ["queued"] * 3
    assert queue.claim("two", 9, LEASE, LATER, tenants=[tenant]) == []


@pytest.mark.proves("1-G3", "2-F3b")
@pytest.mark.parametrize("status", states.SCHEDULE)
def test_a_status_for_the_schedule_is_written_only_where_it_is_running(
    status: str, at_work: Store, queue: Queue, tenant: str
) -> None:
    for follower in FOLLOWERS:
        (of,) = put(at_work, schedule(tenant, completed_at=NOW))
        put(at_work, run(tenant, schedule_id=of.id))
        (claim,) = queue.claim("one", 1, LEASE, NOW, tenants=[tenant])
        (of,) = put(at_work, changed(of, status=status))
        assert queue.finish([end_of(claim, schedule_status=follower)], LATER) == [claim.run.id]
        after = of
        if status == "running":
            after = changed(of, status=follower, updated_at=LATER)
        if (status, follower) == ("running", "completed"):
            after = changed(after, completed_at=LATER)
        assert schedule_of(at_work, of) == after


@pytest.mark.proves("0-T2.3.2")
def test_a_deleted_schedule_is_left_as_it_is(
    at_work: Store, queue: Queue, tenant: str, look: Callable[..., Any]
) -> None:
    claim = held(at_work, tenant, status="running")
    assert claim.schedule is not None
    with at_work.session(tenant, now=NOW) as session:
        session.schedules.soft_delete(claim.schedule.id, "me")
    before = look(type(claim.schedule), claim.schedule.id)
    assert queue.finish([end_of(claim, schedule_status="completed")], LATER)
    assert look(type(claim.schedule), claim.schedule.id) == before
    assert before.status == "running"


WRONG: dict[str, tuple[dict[str, Any], type[MigratorError]]] = {
    **{state: ({"state": state}, TransitionError) for state in ("planning", "queued", "running", "skipped")},
    "an unknown state": ({"state": "no such"}, UsageError),
    "a retry of another tenant": ({"retry": run("other")}, UsageError),
    "a retry in an unknown state": ({"retry": run("", state="no such")}, UsageError),
    "a NUL in the error": ({"error": "a\0b"}, UsageError),
    "a NUL in the detail": ({"error_detail": "\0"}, UsageError),
    **{
        f"a schedule that is then {status}": ({"schedule_status": status}, TransitionError)
        for status in ("pending", "paused", "running")
    },
    "a schedule that is then no such": ({"schedule_status": "no such"}, UsageError),
}


@pytest.mark.proves("1-G3")
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_end_is_refused_and_nothing_of_the_call_is_kept(
    what: str, at_work: Store, queue: Queue, tenant: str
) -> None:
    first, second = held(at_work, tenant, status="running"), held(at_work, tenant, status="running")
    columns, error = WRONG[what]
    if (retry := columns.get("retry")) is not None and not retry.tenant_id:
        columns = {"retry": changed(retry, tenant_id=tenant)}
    good = end_of(first, retry=repeat(first.run), schedule_status="scheduled")
    with pytest.raises(error):
        queue.finish([good, changed(end_of(second), **columns)], LATER)
    assert (now_of(at_work, first), now_of(at_work, second)) == (first.run, second.run)
    assert first.schedule is not None
    assert schedule_of(at_work, first.schedule).status == "running"
    assert len(runs_of(at_work, first.schedule)) == 1
    assert set(queue.finish([good, end_of(second)], LATER)) == {first.run.id, second.run.id}


@pytest.mark.proves("2-X6")
def test_a_batch_ends_those_that_are_held_and_leaves_the_others(at_work: Store, queue: Queue, tenant: str) -> None:
    claims = [held(at_work, tenant) for _ in range(6)]
    ends = [end_of(claim, ENDS[place % 4]) for place, claim in enumerate(claims)]
    ends[1], ends[4] = changed(ends[1], fence=9), changed(ends[4], worker_id="two")
    assert set(queue.finish(ends, LATER)) == {claims[place].run.id for place in (0, 2, 3, 5)}
    found = [now_of(at_work, claim).state for claim in claims]
    assert found == ["completed", "running", "cancelled", "timeout", "running", "error"]
    assert queue.finish([], LATER) == []


def test_a_run_that_no_worker_holds_answers_to_the_empty_name(at_work: Store, queue: Queue, tenant: str) -> None:
    rows = put(at_work, *(run(tenant, state="running", started_at=NOW) for _ in range(3)))
    first, second, third = (Claim(run=row, schedule=None) for row in rows)
    assert queue.heartbeat([first], LEASE, LATER) == [first.run.id]
    assert queue.finish([end_of(second)], LATER) == [second.run.id]
    assert queue.release([third], LATER) == [third.run.id]
    assert now_of(at_work, second).duration_ms == 1000


@pytest.mark.parametrize("what", ["finish", "heartbeat", "release", "expire"])
def test_a_time_without_zone_is_refused(what: str, at_work: Store, queue: Queue, tenant: str) -> None:
    claim = held(at_work, tenant)
    naive = NOW.replace(tzinfo=None)
    calls: dict[str, Callable[[], Sequence[UUID]]] = {
        "finish": lambda: queue.finish([end_of(claim)], naive),
        "heartbeat": lambda: queue.heartbeat([claim], LEASE, naive),
        "release": lambda: queue.release([claim], naive),
        "expire": lambda: queue.expire([end_of(claim)], naive),
    }
    with pytest.raises(UsageError):
        calls[what]()
    assert now_of(at_work, claim) == claim.run


@pytest.mark.proves("0-T2.4.2", "2-X8")
def test_of_ends_at_the_same_time_one_counts_with_one_retry(at_work: Store, queue: Queue, tenant: str) -> None:
    claims = [held(at_work, tenant) for _ in range(3)]
    barrier, told = Barrier(4), list[tuple[int, UUID]]()

    def finish(place: int) -> None:
        barrier.wait()
        ends = [end_of(claim, "error", error=f"{place}", retry=repeat(claim.run)) for claim in claims]
        order = ends if place % 2 else ends[::-1]
        told.extend((place, run_id) for run_id in queue.finish(order, LATER))

    threads = [Thread(target=finish, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run_id for _, run_id in told) == sorted(claimed(claims))
    by_run = {run_id: f"{place}" for place, run_id in told}
    for claim in claims:
        assert now_of(at_work, claim).error == by_run[claim.run.id]
        assert claim.schedule is not None
        assert len(runs_of(at_work, claim.schedule)) == 2


def test_without_a_time_the_database_s_clock_decides(at_work: Store, queue: Queue, tenant: str) -> None:
    put(at_work, run(tenant), run(tenant))
    now = at_work.now()
    first, second = queue.claim("one", 2, LEASE, tenants=[tenant])
    assert queue.heartbeat([first], MINUTE) == [first.run.id]
    ends = now_of(at_work, first).lease_expires_at
    assert ends is not None
    assert now + MINUTE <= ends <= at_work.now() + MINUTE
    assert queue.release([first]) == [first.run.id]
    assert queue.finish([end_of(second)]) == [second.run.id]
    finished = now_of(at_work, second).finished_at
    assert finished is not None
    assert now <= finished <= at_work.now()
