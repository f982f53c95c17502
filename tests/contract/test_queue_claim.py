"""Claiming: which runs, in which order, how many of a schedule; what is written."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from threading import Barrier, Thread

import pytest

from migrator import states
from migrator.errors import UsageError
from migrator.store.protocols import Store
from migrator.store.queue import SCRATCH, Claim, HandlerFilter, Queue
from tests.contract.rows import MILLISECOND, NOW, SECOND, bare, changed, fresh, ids, run, schedule, trigger
from tests.contract.working import LEASE, MINUTE, claimed, end_of, put, run_of, schedule_of

LATER = NOW + SECOND
LONG_AGO = NOW - timedelta(days=9000)


@pytest.mark.proves("3-B2", "2-X3", "3-C2")
def test_a_claimed_run_is_running_with_worker_fence_and_lease(at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant, payload=b'{"a":1}', max_retries=3))
    (row,) = put(at_work, run(tenant, schedule_id=of.id, trace_id="t", available_at=NOW))
    (claim,) = queue.claim("one", 5, LEASE, LATER, tenants=[tenant])
    assert claim.run == changed(
        row,
        state="running",
        worker_id="one",
        fence=1,
        lease_expires_at=LATER + LEASE,
        started_at=LATER,
        updated_at=LATER,
    )
    assert (claim.schedule, claim.fence) == (of, 1)
    assert run_of(at_work, tenant, row.id) == claim.run
    assert schedule_of(at_work, of) == of
    assert queue.claim("two", 5, LEASE, LATER, tenants=[tenant]) == []


@pytest.mark.proves("3-B2")
def test_a_run_without_a_schedule_is_claimed_too(at_work: Store, queue: Queue, tenant: str) -> None:
    (row,) = put(at_work, run(tenant))
    (claim,) = queue.claim("w", 5, LEASE, NOW, tenants=[tenant])
    assert (claim.run.id, claim.schedule) == (row.id, None)


@pytest.mark.proves("3-B2", "1-G3")
@pytest.mark.parametrize("state", states.RUN)
def test_only_queued_runs_are_claimed(state: str, at_work: Store, queue: Queue, tenant: str) -> None:
    (row,) = put(at_work, run(tenant, state=state))
    claims = queue.claim("w", 5, LEASE, LATER, tenants=[tenant])
    assert claimed(claims) == ([row.id] if state == "queued" else [])
    if state != "queued":
        assert run_of(at_work, tenant, row.id) == row


@pytest.mark.proves("2-X1", "3-B1")
@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_run_is_available_from_its_very_instant_on(steps: int, at_work: Store, queue: Queue, tenant: str) -> None:
    put(at_work, run(tenant, available_at=NOW))
    assert len(queue.claim("w", 5, LEASE, NOW + MILLISECOND * steps, tenants=[tenant])) == (steps >= 0)


@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_run_that_names_no_time_is_available_from_when_it_was_made(
    steps: int, at_work: Store, queue: Queue, tenant: str
) -> None:
    put(at_work, run(tenant, created_at=NOW))
    assert len(queue.claim("w", 5, LEASE, NOW + MILLISECOND * steps, tenants=[tenant])) == (steps >= 0)


@pytest.mark.proves("2-X6", "3-B1", "1-G3")
def test_runs_are_claimed_by_priority_then_by_availability_then_by_id(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    low, usual, middle, high = put(at_work, *(schedule(tenant, priority=priority) for priority in (49, None, 50, 51)))
    ties = [run(tenant, schedule_id=middle.id, available_at=NOW - SECOND) for _ in range(3)]
    early = run(tenant, schedule_id=usual.id, created_at=NOW - 3 * SECOND)
    alone = run(tenant, available_at=NOW - 2 * SECOND)
    first, last = (
        run(tenant, schedule_id=high.id, available_at=NOW),
        run(tenant, schedule_id=low.id, created_at=LONG_AGO),
    )
    late = run(tenant, schedule_id=usual.id, available_at=NOW, created_at=LONG_AGO)
    put(at_work, *ties, late, early, alone, first, last)
    claims = queue.claim("w", 9, LEASE, NOW, tenants=[tenant])
    assert claimed(claims) == [first.id, early.id, alone.id, *sorted(ids(ties)), late.id, last.id]


@pytest.mark.proves("2-X6", "3-B1")
def test_a_limit_holds_and_the_rest_is_claimed_next_time(at_work: Store, queue: Queue, tenant: str) -> None:
    rows = put(at_work, *(run(tenant, available_at=NOW - SECOND * (9 - place)) for place in range(5)))
    batches = [claimed(queue.claim("w", 2, LEASE, NOW, tenants=[tenant])) for _ in range(4)]
    assert batches == [ids(rows[:2]), ids(rows[2:4]), ids(rows[4:]), []]


def test_a_worker_takes_only_what_its_queues_name(at_work: Store, queue: Queue, tenant: str) -> None:
    mail, slow, none = put(at_work, *(schedule(tenant, queue=name) for name in ("mail", "slow", None)))
    rows = put(at_work, *(run(tenant, schedule_id=of.id) for of in (mail, slow, none)), run(tenant))

    def taken(queues: list[str] | None) -> set[str]:
        claims = queue.claim("w", 9, LEASE, NOW, queues=queues, tenants=[tenant])
        queue.release(claims, NOW)
        return {str(claim.run.id) for claim in claims}

    names = [str(row.id) for row in rows]
    assert taken([]) == set()
    assert taken(["nobody's"]) == set()
    assert taken(["mail"]) == {names[0]}
    assert taken(["slow", "mail", "mail"]) == {*names[:2]}
    assert taken(None) == {*names}


@pytest.mark.proves("2-F10", "4-S2")
def test_runs_of_a_schedule_that_is_barred_stay_queued_until_it_is_not(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    disabled, paused, deleted = rows = [schedule(tenant, enabled=False), schedule(tenant), schedule(tenant)]
    put(at_work, *rows)
    runs = put(at_work, *(run(tenant, schedule_id=of.id, available_at=LONG_AGO) for of in rows))
    with at_work.session(tenant, now=NOW) as session:
        session.schedules.change_status(paused.id, "scheduled", "paused")
        session.schedules.soft_delete(deleted.id, "me")
    (behind,) = put(at_work, run(tenant))
    assert claimed(queue.claim("w", 1, LEASE, NOW, tenants=[tenant])) == [behind.id]
    assert queue.claim("w", 9, LEASE, NOW, tenants=[tenant]) == []
    assert [run_of(at_work, tenant, row.id) for row in runs] == runs
    with at_work.session(tenant, now=NOW) as session:
        session.schedules.change_status(paused.id, "paused", "scheduled")
        session.schedules.upsert(changed(disabled, enabled=True))
    assert set(claimed(queue.claim("w", 9, LEASE, NOW, tenants=[tenant]))) == {runs[0].id, runs[1].id}


@pytest.mark.proves("2-F10")
@pytest.mark.parametrize("status", states.SCHEDULE)
def test_of_all_statuses_only_paused_bars(status: str, at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant, status=status))
    put(at_work, run(tenant, schedule_id=of.id))
    assert len(queue.claim("w", 9, LEASE, NOW, tenants=[tenant])) == (status != "paused")


@pytest.mark.proves("2-X7", "4-C6")
@pytest.mark.parametrize("most", [0, 1, 3])
def test_never_more_runs_of_a_schedule_than_it_allows(most: int, at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant, max_concurrency=most))
    rows = put(at_work, *(run(tenant, schedule_id=of.id, available_at=NOW + SECOND * place) for place in range(6)))
    held = list(queue.claim("one", 2, LEASE, NOW + MINUTE, tenants=[tenant]))
    held += queue.claim("two", 9, LEASE, NOW + MINUTE, tenants=[tenant])
    assert claimed(held) == ids(rows[:most])
    assert queue.claim("three", 9, LEASE, NOW + MINUTE, tenants=[tenant]) == []
    for state in ("completed", "error"):
        if held:
            assert queue.finish([end_of(held.pop(0), state)], NOW + MINUTE)
            more = queue.claim("four", 9, LEASE, NOW + MINUTE, tenants=[tenant])
            assert len(more) == 1
            held += more


@pytest.mark.proves("2-X7", "4-C6")
def test_runs_count_that_are_running_whoever_made_them_run_also_past_their_lease(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    (of,) = put(at_work, schedule(tenant, max_concurrency=2))
    put(at_work, run(tenant, schedule_id=of.id, state="running"))
    put(at_work, run(tenant, schedule_id=of.id, state="running", worker_id="x", fence=1, lease_expires_at=LONG_AGO))
    (row,) = put(at_work, run(tenant, schedule_id=of.id))
    assert queue.claim("w", 9, LEASE, NOW, tenants=[tenant]) == []
    assert run_of(at_work, tenant, row.id) == row


@pytest.mark.proves("2-X7")
def test_a_schedule_that_is_full_hides_nothing_behind_it(at_work: Store, queue: Queue, tenant: str) -> None:
    full, free = put(at_work, schedule(tenant, max_concurrency=1, priority=90), schedule(tenant, max_concurrency=2))
    put(at_work, *(run(tenant, schedule_id=full.id, available_at=LONG_AGO + SECOND * place) for place in range(40)))
    rows = put(
        at_work, *(run(tenant, schedule_id=free.id, available_at=NOW - SECOND * (9 - place)) for place in range(3))
    )
    claims = queue.claim("w", 2, LEASE, NOW, tenants=[tenant])
    assert [claim.schedule and claim.schedule.id for claim in claims] == [full.id, free.id]
    assert claimed(queue.claim("w", 2, LEASE, NOW, tenants=[tenant])) == [rows[1].id]
    assert queue.claim("w", 2, LEASE, NOW, tenants=[tenant]) == []


@pytest.mark.proves("4-L6", "3-B2")
def test_the_fence_rises_with_every_claim(at_work: Store, queue: Queue, tenant: str) -> None:
    put(at_work, run(tenant, fence=7))
    fences = []
    for _ in range(3):
        claims = queue.claim("w", 9, LEASE, NOW, tenants=[tenant])
        fences += [claim.fence for claim in claims]
        queue.release(claims, NOW)
    assert fences == [8, 9, 10]


@pytest.mark.proves("0-T2.4.2")
def test_a_start_that_is_known_stays(at_work: Store, queue: Queue, tenant: str) -> None:
    put(at_work, run(tenant, started_at=LONG_AGO))
    (claim,) = queue.claim("w", 9, LEASE, NOW, tenants=[tenant])
    assert claim.run.started_at == LONG_AGO


@pytest.mark.proves("0-X2")
def test_scratch_tenants_are_served_only_where_they_are_named(at_work: Store, queue: Queue) -> None:
    scratch, usual, other = f"{SCRATCH}{fresh()}", fresh(), fresh()
    rows = []
    for place, each in enumerate((scratch, usual, other)):
        (of,) = put(at_work, schedule(each, priority=100))
        rows += put(at_work, run(each, schedule_id=of.id, available_at=LONG_AGO + SECOND * place))
    assert queue.claim("w", 9, LEASE, NOW, tenants=[]) == []
    assert claimed(queue.claim("w", 1, LEASE, LONG_AGO + SECOND, tenants=None)) == [rows[1].id]
    assert claimed(queue.claim("w", 9, LEASE, NOW, tenants=[scratch, usual, scratch])) == [rows[0].id]
    assert claimed(queue.claim("w", 9, LEASE, NOW, tenants=[other])) == [rows[2].id]


@pytest.mark.proves("2-P1", "2-X7")
def test_a_schedule_of_all_tenants_bars_and_limits_the_runs_of_each(
    at_work: Store, queue: Queue, tenant: str, plant: Callable[..., None]
) -> None:
    shared = schedule("*", name=fresh(), max_concurrency=1, created_at=NOW, updated_at=NOW)
    barred = schedule("*", name=fresh(), enabled=False, created_at=NOW, updated_at=NOW)
    plant(shared, barred)
    tenants = [tenant, fresh()]
    put(at_work, run(tenant, schedule_id=barred.id))
    put(at_work, *(run(each, schedule_id=shared.id, available_at=NOW) for each in tenants))
    claims = queue.claim("w", 9, LEASE, NOW, tenants=tenants)
    assert [claim.schedule and bare(claim.schedule) for claim in claims] == [shared]
    assert queue.finish([end_of(claims[0])], NOW)
    (claim,) = queue.claim("w", 9, LEASE, NOW, tenants=tenants)
    assert claim.run.tenant_id != claims[0].run.tenant_id


def test_a_lease_is_cut_to_whole_milliseconds(at_work: Store, queue: Queue, tenant: str) -> None:
    (row,) = put(at_work, run(tenant))
    (claim,) = queue.claim("w", 9, timedelta(microseconds=1999), NOW + timedelta(microseconds=700), tenants=[tenant])
    assert claim.run.lease_expires_at == NOW + MILLISECOND
    assert run_of(at_work, tenant, row.id) == claim.run


@pytest.mark.parametrize(("limit", "lease"), [(0, LEASE), (-1, LEASE), (1, timedelta(0)), (1, -LEASE)])
def test_a_limit_below_one_or_a_lease_not_above_zero_is_refused(
    limit: int, lease: timedelta, at_work: Store, queue: Queue, tenant: str
) -> None:
    (row,) = put(at_work, run(tenant))
    with pytest.raises(UsageError):
        queue.claim("w", limit, lease, NOW, tenants=[tenant])
    assert run_of(at_work, tenant, row.id) == row


def test_a_time_without_zone_is_refused(queue: Queue, tenant: str) -> None:
    with pytest.raises(UsageError):
        queue.claim("w", 1, LEASE, NOW.replace(tzinfo=None), tenants=[tenant])


@pytest.mark.proves("3-B2", "2-X1")
def test_without_a_time_the_database_s_clock_decides(at_work: Store, queue: Queue, tenant: str) -> None:
    now = at_work.now()
    row, _ = put(at_work, run(tenant, available_at=now), run(tenant, available_at=now + 30 * MINUTE))
    (claim,) = queue.claim("w", 9, LEASE, tenants=[tenant])
    started, ends = claim.run.started_at, claim.run.lease_expires_at
    assert claim.run.id == row.id
    assert started is not None
    assert now <= started <= at_work.now()
    assert ends == started + LEASE


@pytest.mark.proves("3-B2", "2-X6", "2-X7", "4-C6", "3-C2")
def test_workers_at_the_same_time_share_the_runs_out_and_keep_the_limits(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    limited, free = put(at_work, schedule(tenant, max_concurrency=3), schedule(tenant))
    put(at_work, *(run(tenant, schedule_id=of.id) for of in (limited, free) for _ in range(15)))
    barrier, claims = Barrier(4), list[Claim]()

    def work(name: str) -> None:
        barrier.wait()
        for _ in range(5):
            claims.extend(queue.claim(name, 4, LEASE, NOW, tenants=[tenant]))

    threads = [Thread(target=work, args=(f"w{place}",)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claims += queue.claim("last", 99, LEASE, NOW, tenants=[tenant])
    assert len(set(claimed(claims))) == len(claims)
    assert Counter(claim.run.schedule_id for claim in claims) == {limited.id: 3, free.id: 15}
    for claim in claims:
        assert run_of(at_work, tenant, claim.run.id) == claim.run


@pytest.mark.proves("2-X7")
def test_a_trigger_that_is_gone_keeps_no_run_from_being_claimed(at_work: Store, queue: Queue, tenant: str) -> None:
    (of,) = put(at_work, schedule(tenant))
    (cause,) = put(at_work, trigger(of))
    (row,) = put(at_work, run(tenant, schedule_id=of.id, trigger_id=cause.id, scheduled_at=NOW))
    with at_work.session(tenant, now=NOW) as session:
        session.triggers.delete_of_schedule(of.id)
    (claim,) = queue.claim("w", 9, LEASE, NOW, tenants=[tenant])
    assert (claim.run.id, claim.run.trigger_id) == (row.id, None)


@pytest.mark.proves("5-D1", "3-B2")
def test_only_runs_of_the_handlers_that_are_named_are_claimed_and_others_hide_nothing(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    named = {
        "by name": schedule(tenant, handler_name="mine"),
        "by mode": schedule(tenant, handler_name=None, mode="analysis-only"),
        "its name before its mode": schedule(tenant, handler_name="other", mode="analysis-only"),
        "by type": schedule(tenant, handler_name="elsewhere", handler_type="agent"),
        "of another type": schedule(tenant, handler_name="elsewhere", handler_type="workflow"),
        "of another queue": schedule(tenant, handler_name="mine", queue="slow"),
        "neither name nor mode": schedule(tenant, handler_name=None, mode=None),
    }
    others = [schedule(tenant, handler_name="theirs", priority=priority) for priority in (90, None, 10)]
    put(at_work, *named.values(), *others)
    rows = {
        what: run(tenant, schedule_id=of.id, available_at=NOW - SECOND * (9 - place))
        for place, (what, of) in enumerate(named.items())
    }
    before = [run(tenant, schedule_id=of.id, available_at=LONG_AGO) for of in others for _ in range(40)]
    rows["of no schedule"] = run(tenant, available_at=NOW)
    put(at_work, *before, *rows.values())
    mine = HandlerFilter(names=("mine", "analysis-only"), types=("agent",))

    def taken(**which: object) -> set[str]:
        found = claimed(queue.claim("w", 99, LEASE, NOW, tenants=[tenant], **which))  # type: ignore[arg-type] # as given
        return {what for what, row in rows.items() if row.id in found} | {"theirs" for one in before if one.id in found}

    assert claimed(queue.claim("w", 1, LEASE, NOW, tenants=[tenant], handlers=mine)) == [rows["by name"].id]
    assert taken(queues=["slow"], handlers=mine) == {"of another queue"}
    assert taken(handlers=HandlerFilter()) == set()
    assert taken(handlers=mine) == {"by mode", "by type"}
    assert taken() == {
        "its name before its mode",
        "of another type",
        "neither name nor mode",
        "of no schedule",
        "theirs",
    }
