"""What a plan answers to a due trigger, and what becomes of it: all of the answer or nothing of the call."""

from collections.abc import Callable
from uuid import uuid4

import pytest

from migrator import states
from migrator.errors import UsageError
from migrator.records import Schedule, Trigger
from migrator.store.protocols import Store
from migrator.store.queue import Fire, Queue
from tests.contract.rows import (
    NOW,
    SECOND,
    bare,
    changed,
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
    runs_of,
    schedule_of,
    slot,
    trigger_of,
)

LATER = NOW + SECOND
MAY_FIRE = ("pending", "scheduled", "running")


@pytest.mark.proves("2-X6", "3-R3")
def test_a_plan_s_runs_are_numbered_in_its_order_with_all_others_of_the_schedule(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause, run(tenant, schedule_id=of.id))
    slots = [NOW - MINUTE * place for place in (2, 1, 0)]
    plan = Seen(
        lambda of, cause: Fire(runs=tuple(slot(of, cause, scheduled_at=at) for at in slots), trigger=advanced(cause))
    )
    made = queue.fire_due(plan, 9, NOW, [tenant])
    assert [(each.scheduled_at, each.run_number) for each in made] == list(zip(slots, (2, 3, 4), strict=True))
    (after,) = put(at_work, run(tenant, schedule_id=of.id))
    assert after.run_number == 5
    with at_work.session(tenant, now=NOW) as session:
        ended = session.runs.cancel(after.id, "x")
        assert ended is not None
        session.runs.remove([after.id])
    (more,) = queue.fire_due(each_slot, 9, NOW + MINUTE, [tenant])
    assert more.run_number == 6


@pytest.mark.proves("2-X7")
def test_a_run_may_be_planned_as_skipped_and_stays_so(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause)
    planned = slot(of, cause, state="skipped", finished_at=NOW, error="overlap", updated_at=LATER, attempt=1)
    (made,) = queue.fire_due(Seen(lambda *_: Fire(runs=(planned,), trigger=advanced(cause))), 9, NOW, [tenant])
    assert bare(made) == changed(planned, run_number=1)
    assert queue.claim("w", 9, MINUTE, NOW, tenants=[tenant]) == []


def test_a_plan_may_make_no_run(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause)
    last = changed(cause, next_fire_at=None, enabled=False)
    assert queue.fire_due(Seen(lambda *_: Fire(runs=(), trigger=last)), 9, NOW, [tenant]) == []
    assert bare(trigger_of(at_work, cause)) == last
    assert runs_of(at_work, of) == []


def leads(status: str, follower: str) -> bool:
    """Whether the machine leads there, by way of running if need be; written out, so that a slip shows."""
    return (
        follower
        in {
            "pending": {"scheduled", "running", "cancelled", "completed", "failed"},
            "scheduled": {"running", "paused", "cancelled", "pending", "completed", "failed"},
            "running": {"completed", "failed", "scheduled", "cancelled"},
        }[status]
    )


@pytest.mark.proves("1-G3", "2-F3b")
@pytest.mark.parametrize("status", MAY_FIRE)
def test_a_schedule_s_status_is_written_where_the_machine_leads_there(
    status: str, at_work: Store, queue: Queue, tenant: str
) -> None:
    rows = {follower: schedule(tenant, status=status, completed_at=NOW) for follower in states.SCHEDULE}
    put(at_work, *rows.values(), *(trigger(of) for of in rows.values()))
    asked = {of.id: follower for follower, of in rows.items()}

    def answer(of: Schedule, cause: Trigger) -> Fire:
        return Fire(runs=(), trigger=advanced(cause), schedule_status=asked[of.id])

    queue.fire_due(Seen(answer), 9, LATER, [tenant])
    for follower, of in rows.items():
        before = changed(of, created_at=NOW, updated_at=NOW)
        after = changed(before, status=follower, updated_at=LATER)
        if follower == "completed":
            after = changed(after, completed_at=LATER)
        assert bare(schedule_of(at_work, of)) == (after if leads(status, follower) else before), follower


def test_a_status_that_is_none_is_refused_and_nothing_is_kept(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause)
    plan = Seen(lambda of, cause: Fire(runs=(slot(of, cause),), trigger=advanced(cause), schedule_status="no such"))
    with pytest.raises(UsageError):
        queue.fire_due(plan, 9, NOW, [tenant])
    assert (bare(trigger_of(at_work, cause)), runs_of(at_work, of)) == (cause, [])


@pytest.mark.proves("2-X6", "2-X7")
def test_a_later_trigger_s_plan_sees_what_the_ones_before_it_made(at_work: Store, queue: Queue, tenant: str) -> None:
    of = schedule(tenant)
    causes = [trigger(of, next_fire_at=NOW - SECOND * (9 - place)) for place in range(3)]
    put(at_work, of, *causes, run(tenant, schedule_id=of.id))
    skipped = {causes[1].id: "skipped"}

    def answer(of: Schedule, cause: Trigger) -> Fire:
        made = slot(of, cause, state=skipped.get(cause.id, "queued"))
        return Fire(runs=(made,), trigger=advanced(cause), schedule_status="running")

    plan = Seen(answer)
    queue.fire_due(plan, 9, NOW, [tenant])
    assert [(row.status, live) for row, _, live, _ in plan.asked] == [
        ("scheduled", 1),
        ("running", 2),
        ("running", 2),
    ]


@pytest.mark.proves("2-X6")
def test_a_trigger_whose_schedule_was_ended_by_one_before_it_is_left_and_counts(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    of, other = schedule(tenant, priority=51), schedule(tenant)
    first, second = (trigger(of, next_fire_at=NOW - SECOND * place) for place in (2, 1))
    third = trigger(other)
    put(at_work, of, other, first, second, third)
    plan = Seen(lambda of, cause: Fire(runs=(slot(of, cause),), trigger=advanced(cause), schedule_status="completed"))
    assert [each.trigger_id for each in queue.fire_due(plan, 2, NOW, [tenant])] == [first.id]
    assert bare(trigger_of(at_work, second)) == second
    assert [each.trigger_id for each in queue.fire_due(plan, 2, NOW, [tenant])] == [third.id]
    assert plan.triggers == [first.id, third.id]


class PlanError(Exception):
    """What a plan raises here."""


@pytest.mark.proves("2-X6")
def test_what_every_plan_raises_ends_the_call_and_nothing_of_it_is_kept(
    at_work: Store, queue: Queue, tenant: str
) -> None:
    of = schedule(tenant)
    causes = [trigger(of, next_fire_at=NOW - SECOND * (9 - place)) for place in range(3)]
    put(at_work, of, *causes)

    def answer(of: Schedule, cause: Trigger) -> Fire:  # noqa: ARG001 - a plan's signature
        raise PlanError

    with pytest.raises(PlanError):
        queue.fire_due(Seen(answer), 9, NOW, [tenant])
    assert [bare(trigger_of(at_work, each)) for each in causes] == causes
    assert (runs_of(at_work, of), schedule_of(at_work, of).status) == ([], "scheduled")
    made = queue.fire_due(each_slot, 9, NOW, [tenant])
    assert [each.run_number for each in made] == [1, 2, 3]


WRONG: dict[str, Callable[[Schedule, Trigger], Fire]] = {
    "another trigger": lambda _, cause: Fire(runs=(), trigger=changed(cause, id=uuid4())),
    "a run of another tenant": lambda of, cause: Fire(
        runs=(changed(slot(of, cause), tenant_id="other"),), trigger=advanced(cause)
    ),
    "an unknown state": lambda of, cause: Fire(runs=(slot(of, cause, state="no such"),), trigger=advanced(cause)),
    "a time without zone": lambda of, cause: Fire(
        runs=(slot(of, cause, available_at=NOW.replace(tzinfo=None)),), trigger=advanced(cause)
    ),
    "a trigger that is none": lambda of, cause: Fire(runs=(slot(of, cause),), trigger=changed(cause, interval_ms=0)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_of_a_plan_is_refused_and_nothing_is_kept(
    what: str, at_work: Store, queue: Queue, tenant: str
) -> None:
    of = schedule(tenant)
    cause = trigger(of)
    put(at_work, of, cause)
    with pytest.raises(UsageError):
        queue.fire_due(Seen(WRONG[what]), 9, NOW, [tenant])
    assert (bare(trigger_of(at_work, cause)), runs_of(at_work, of)) == (cause, [])
