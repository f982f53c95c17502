"""Firing: which triggers are due, in which order; what is written; what a plan may and may not answer."""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Barrier, Thread
from uuid import uuid4

import pytest

from migrator import states
from migrator.errors import ConflictError, UsageError
from migrator.records import Run, Schedule, Trigger
from migrator.store.protocols import Store
from migrator.store.queue import SCRATCH, Fire, HandlerFilter, Queue
from migrator.testing.memory.store import MemoryStore
from tests.contract.rows import (
    MILLISECOND,
    NOW,
    SECOND,
    bare,
    changed,
    event_trigger,
    fresh,
    ids,
    run,
    schedule,
    trigger,
)
from tests.contract.working import (
    MINUTE,
    Seen,
    advanced,
    each_slot,
    put,
    run_of,
    runs_of,
    schedule_of,
    slot,
    trigger_of,
)

LATER = NOW + SECOND
LONG_AGO = NOW - timedelta(days=9000)
MAY_FIRE = ("pending", "scheduled", "running")


def silent(schedule: Schedule, trigger: Trigger) -> Fire:
    """Plan nothing but the next fire."""
    del schedule
    return Fire(runs=(), trigger=advanced(trigger))


@pytest.mark.proves("2-X6", "3-B1", "2-X9")
def test_a_due_trigger_makes_its_run_and_moves_on(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant, payload=b'{"a":1}')
    cause = trigger(of)
    put(at_work, of, cause)
    said = {"available_at": LATER, "triggered_by": "clock", "trace_id": "t", "metadata": b'{"b":2}'}
    planned = slot(of, cause, cause="interval", **said)
    after = changed(advanced(cause), source_spec=b'{"c":3}')
    (made,) = queue.fire_due(Seen(lambda *_: Fire(runs=(planned,), trigger=after)), 5, LATER, [tenant])
    assert bare(made) == changed(planned, run_number=1, attempt=1, updated_at=LATER)
    assert run_of(at_work, tenant, planned.id) == made
    assert bare(trigger_of(at_work, cause)) == after
    assert bare(schedule_of(at_work, of)) == changed(of, created_at=NOW, updated_at=NOW)
    assert queue.fire_due(each_slot, 5, LATER, [tenant]) == []


@pytest.mark.proves("2-X6")
def test_a_plan_is_asked_with_the_rows_the_live_runs_and_the_time(at_work: Store, queue: Queue, tenant: str) -> None:
    of, other = schedule(tenant, tags=("x",)), schedule(tenant)
    cause, plan = trigger(of), Seen()
    put(at_work, of, other, cause, *(run(tenant, schedule_id=of.id, state=state) for state in states.RUN))
    put(at_work, run(tenant, schedule_id=of.id), run(tenant, schedule_id=other.id), run(tenant))
    queue.fire_due(plan, 5, LATER + timedelta(microseconds=999), [tenant])
    ((row, fired, live, now),) = plan.asked
    assert bare(row) == changed(of, created_at=NOW, updated_at=NOW)
    assert (bare(fired), live, now) == (cause, 3, LATER)


@pytest.mark.proves("2-X6", "0-T2.3.3")
@pytest.mark.parametrize("steps", [-1, 0, 1])
def test_a_trigger_is_due_from_its_very_instant_on(steps: int, at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    put(at_work, of, trigger(of))
    made = queue.fire_due(each_slot, 5, NOW + MILLISECOND * steps, [tenant])
    assert len(made) == (steps >= 0)


@pytest.mark.proves("2-X6", "1-G3")
def test_triggers_fire_by_priority_then_time_then_id(at_work: Store, queue: Queue, tenant: str) -> None:
    low, usual, high = (schedule(tenant, priority=priority) for priority in (49, None, 51))
    middle = schedule(tenant, priority=50)
    late, ties = trigger(usual, next_fire_at=NOW), [trigger(middle, next_fire_at=NOW - SECOND) for _ in range(3)]
    first, last = trigger(high), trigger(low, next_fire_at=NOW - MINUTE)
    put(at_work, low, usual, high, middle, late, *ties, first, last)
    plan = Seen()
    made = queue.fire_due(plan, 9, NOW, [tenant])
    assert plan.triggers == [first.id, *sorted(ids(ties)), late.id, last.id]
    assert [each.trigger_id for each in made] == plan.triggers


@pytest.mark.proves("2-X6")
def test_a_limit_counts_triggers_and_the_rest_fires_next_time(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    causes = [trigger(of, next_fire_at=NOW - SECOND * (9 - place)) for place in range(5)]
    put(at_work, of, *causes)
    plan = Seen(
        lambda of, cause: Fire(runs=(slot(of, cause), slot(of, cause, scheduled_at=NOW)), trigger=advanced(cause))
    )
    made = [len(queue.fire_due(plan, 2, NOW, [tenant])) for _ in range(4)]
    assert made == [4, 4, 2, 0]
    assert plan.triggers == ids(causes)


@pytest.mark.proves("2-X6", "3-B1", "0-T2.3.3")
def test_what_is_disabled_deleted_or_without_a_next_fire_does_not_fire(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    disabled, deleted, enabled = schedule(tenant, enabled=False), schedule(tenant), schedule(tenant)
    put(at_work, disabled, deleted, enabled, trigger(disabled), trigger(deleted))
    put(at_work, trigger(enabled, enabled=False), trigger(enabled, next_fire_at=None), event_trigger(enabled, "push"))
    with at_work.session(tenant, now=NOW) as session:
        assert session.schedules.soft_delete(deleted.id, "me")
    assert queue.fire_due(each_slot, 9, LATER, [tenant]) == []


@pytest.mark.proves("2-X6", "2-F10")
@pytest.mark.parametrize("status", states.SCHEDULE)
def test_only_a_schedule_that_may_run_fires(status: str, at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant, status=status)
    put(at_work, of, trigger(of))
    made = queue.fire_due(each_slot, 9, NOW, [tenant])
    assert len(made) == (status in MAY_FIRE)


@pytest.mark.proves("2-X6", "4-Z6")
def test_a_slot_that_has_its_run_is_passed_over_and_the_trigger_moves_on(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause)
    there = put(at_work, slot(of, cause, state="completed"))[0]
    put(at_work, slot(of, cause, attempt=2, scheduled_at=NOW + MINUTE))
    assert queue.fire_due(each_slot, 9, NOW, [tenant]) == []
    assert trigger_of(at_work, cause).next_fire_at == NOW + MINUTE
    made = queue.fire_due(each_slot, 9, NOW + MINUTE, [tenant])  # another attempt's slot is not taken
    assert [(each.scheduled_at, each.attempt, each.run_number) for each in made] == [(NOW + MINUTE, 1, 3)]
    assert run_of(at_work, tenant, there.id) == there


@pytest.mark.proves("2-X6")
def test_a_run_that_is_there_under_the_very_id_is_passed_over_too(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause, other = trigger(of), trigger(of, next_fire_at=NOW - SECOND)
    (_, _, _, there) = put(at_work, of, cause, other, slot(of, cause))
    plan = Seen(
        lambda of, cause: Fire(
            runs=(slot(of, cause, id=there.id if cause.id == there.trigger_id else uuid4()),), trigger=advanced(cause)
        )
    )
    made = queue.fire_due(plan, 9, NOW, [tenant])
    assert [each.trigger_id for each in made] == [other.id]
    assert runs_of(at_work, of) == [there, *made]


def test_an_id_that_another_run_has_is_a_conflict_and_nothing_is_kept(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    (_, _, there) = put(at_work, of, cause, run(tenant, schedule_id=of.id))
    plan = Seen(lambda of, cause: Fire(runs=(slot(of, cause, id=there.id),), trigger=advanced(cause)))
    with pytest.raises(ConflictError):
        queue.fire_due(plan, 9, NOW, [tenant])
    assert bare(trigger_of(at_work, cause)) == cause
    assert runs_of(at_work, of) == [there]


@pytest.mark.proves("2-X6")
def test_a_dedupe_key_that_the_trigger_ran_for_is_passed_over(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause, other = trigger(of), trigger(of, next_fire_at=NOW - SECOND)
    put(at_work, of, cause, other, run(tenant, schedule_id=of.id, trigger_id=cause.id, dedupe_key="k"))
    plan = Seen(lambda of, cause: Fire(runs=(slot(of, cause, dedupe_key="k"),), trigger=advanced(cause)))
    made = queue.fire_due(plan, 9, NOW, [tenant])
    assert [each.trigger_id for each in made] == [other.id]
    assert trigger_of(at_work, cause).fire_count == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit: int, queue: Queue, tenant: str) -> None:
    with pytest.raises(UsageError):
        queue.fire_due(each_slot, limit, NOW, [tenant])


def test_a_time_without_zone_is_refused(queue: Queue, tenant: str) -> None:
    with pytest.raises(UsageError):
        queue.fire_due(each_slot, 1, NOW.replace(tzinfo=None), [tenant])


@pytest.mark.proves("0-X2")
def test_scratch_tenants_are_served_only_where_they_are_named(at_work: Store, queue: Queue) -> None:
    scratch, usual, other = f"{SCRATCH}{fresh()}", fresh(), fresh()
    rows = [schedule(each, priority=100) for each in (scratch, usual, other)]
    put(at_work, *rows, *(trigger(of, next_fire_at=LONG_AGO) for of in rows))
    plan = Seen(lambda _, cause: Fire(runs=(), trigger=changed(cause, next_fire_at=None)))

    def asked(tenants: list[str] | None) -> set[str]:
        plan.asked.clear()
        queue.fire_due(plan, 9, LONG_AGO, tenants)
        return {of.tenant_id for of, *_ in plan.asked}

    assert asked([]) == set()
    assert asked([other]) == {other}
    assert asked(None) == {usual}
    assert asked([scratch, usual]) == {scratch}


@pytest.mark.proves("2-P1")
def test_a_schedule_of_all_tenants_fires_too_and_its_runs_have_no_number(
    at_work: Store, queue: Queue, tenant: str, plant: Callable[..., None]
) -> None:
    shared = schedule("*", name=fresh(), created_at=NOW, updated_at=NOW)
    cause = trigger(shared, next_fire_at=LONG_AGO)
    plant(shared, cause)
    (made,) = queue.fire_due(
        Seen(
            lambda of, cause: Fire(
                runs=(slot(of, cause, available_at=LONG_AGO),),
                trigger=changed(cause, next_fire_at=None),
                schedule_status="running",
            )
        ),
        9,
        LONG_AGO,
        ["*"],
    )
    assert (made.tenant_id, made.run_number, made.attempt) == ("*", None, 1)
    assert run_of(at_work, tenant, made.id) == made
    assert trigger_of(at_work, changed(cause, tenant_id=tenant)).next_fire_at is None
    assert schedule_of(at_work, changed(shared, tenant_id=tenant)).status == "running"
    (claim,) = queue.claim("w", 9, MINUTE, LONG_AGO, tenants=["*"])
    assert claim.run.id == made.id
    with at_work.session(tenant, now=NOW) as session:
        assert session.run_summaries.get(shared.id) is None


@pytest.mark.proves("0-T2.9.2", "2-X6")
def test_without_a_time_the_database_s_clock_decides(at_work: Store, queue: Queue, tenant: str) -> None:
    now = at_work.now()
    past, future = schedule(tenant), schedule(tenant)
    put(at_work, past, future)
    put(at_work, trigger(past, next_fire_at=now - MINUTE), trigger(future, next_fire_at=now + 30 * MINUTE))
    plan = Seen()
    made = queue.fire_due(plan, 9, tenants=[tenant])
    assert [each.schedule_id for each in made] == [past.id]
    assert now <= plan.asked[0][3] <= at_work.now()
    assert made[0].updated_at == plan.asked[0][3]


@pytest.mark.proves("2-X6", "4-J4")
def test_of_dispatchers_at_the_same_time_each_slot_is_fired_once(at_work: Store, queue: Queue, tenant: str) -> None:
    rows = [schedule(tenant) for _ in range(4)]
    causes = [trigger(of, next_fire_at=NOW - SECOND * place) for of in rows for place in range(5)]
    put(at_work, *rows, *causes)
    barrier, made = Barrier(4), list[Run]()

    def tick() -> None:
        barrier.wait()
        for _ in range(8):
            made.extend(queue.fire_due(each_slot, 3, NOW, [tenant]))

    threads = [Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while more := queue.fire_due(each_slot, 9, NOW, [tenant]):
        made.extend(more)
    assert sorted((each.trigger_id, each.scheduled_at) for each in made if each.trigger_id and each.scheduled_at) == (
        sorted((cause.id, cause.next_fire_at) for cause in causes if cause.next_fire_at)
    )
    for of in rows:
        assert [each.run_number for each in runs_of(at_work, of)] == [1, 2, 3, 4, 5]


def test_the_queue_knows_the_tenants(at_work: Store, queue: Queue, plant: Callable[..., None]) -> None:
    kept, deleted, only_runs, scratch = fresh(), fresh(), fresh(), f"{SCRATCH}{fresh()}"
    gone = schedule(deleted)
    put(at_work, schedule(kept), gone, run(only_runs), schedule(scratch), schedule(kept))
    plant(schedule("*", name=fresh(), created_at=NOW, updated_at=NOW))
    with at_work.session(deleted, now=NOW) as session:
        session.schedules.soft_delete(gone.id, "me")
    found = queue.tenants()
    assert list(found) == sorted(set(found))
    assert {kept, only_runs, scratch, "*"} <= set(found)
    assert deleted not in found


@pytest.mark.proves("5-D1", "3-B1")
def test_only_triggers_of_the_handlers_that_are_named_fire_and_others_hide_nothing(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    theirs = [schedule(tenant, handler_name="theirs", priority=priority) for priority in (90, None, 10)]
    by_mode = schedule(tenant, handler_name=None, mode="analysis-only", queue="slow")
    mine = schedule(tenant, handler_name="mine"), by_mode
    due = [trigger(of, next_fire_at=NOW - MINUTE) for of in theirs for _ in range(20)]
    own = [trigger(of) for of in mine]
    put(at_work, *theirs, *mine, *due, *own)
    named = HandlerFilter(names=("mine", "analysis-only"))
    slow = queue.fire_due(each_slot, 9, NOW, [tenant], queues=["slow"], handlers=named)
    assert [one.trigger_id for one in slow] == [own[1].id]
    assert [one.trigger_id for one in queue.fire_due(each_slot, 9, NOW, [tenant], handlers=named)] == [own[0].id]
    assert queue.fire_due(each_slot, 9, NOW, [tenant], handlers=named) == []
    assert [bare(trigger_of(at_work, one)) for one in due] == due
    assert len(queue.fire_due(each_slot, 99, NOW, [tenant])) == len(due)


def test_a_trigger_whose_fire_cannot_be_computed_costs_itself_alone(
    at_work: Store, queue: Queue, tenant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = (schedule(tenant, priority=priority) for priority in (90, 50, 10))
    bad, good, last = trigger(second), trigger(first), trigger(third)
    put(at_work, first, second, third, bad, good, last)

    def plan(schedule: Schedule, trigger: Trigger, live_runs: int, now: datetime) -> Fire:
        if trigger.id == bad.id:
            raise OverflowError("date value out of range")
        return each_slot(schedule, trigger, live_runs, now)

    made = queue.fire_due(plan, 5, LATER, [tenant])
    assert [run.schedule_id for run in made] == [first.id, third.id]
    assert bare(trigger_of(at_work, bad)) == bad
    assert [trigger_of(at_work, one).next_fire_at for one in (good, last)] == [NOW + MINUTE, NOW + MINUTE]
    if not isinstance(at_work, MemoryStore):
        told = [line for line in capsys.readouterr().err.splitlines() if str(bad.id) in line]
        assert len(told) == 1, "it is named once"
        assert "OverflowError" in told[0]
        assert tenant in told[0]
    with pytest.raises(OverflowError):
        queue.fire_due(plan, 5, LATER, [tenant])
    assert str(bad.id) not in capsys.readouterr().err, "it was named already"
    (made_again,) = queue.fire_due(each_slot, 5, LATER, [tenant])
    assert made_again.schedule_id == second.id


def test_an_error_is_raised_if_no_trigger_could_be_fired(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    put(at_work, of, trigger(of))

    with pytest.raises(OverflowError):
        queue.fire_due(Seen(_cannot), 5, LATER, [tenant])


def _cannot(*_: object) -> Fire:
    raise OverflowError("date value out of range")
