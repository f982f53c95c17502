"""Which slots the old scheduler took, from the next fires that it planned one after the other."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp

from migrator.cutover.slots import following_slots
from migrator.pipeline.tail.planned_fires import PLANNED, PlannedFire, planned_fire, projection, taken
from migrator.records import Trigger
from migrator.sources import load_profile

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def of(*moves: tuple[float | None, float], document: str = "one") -> list[PlannedFire]:
    """Return the sequence of (next fire, when it was written), in seconds after noon."""
    return [PlannedFire("jobs", document, None if to is None else at(to), at(seen)) for to, seen in moves]


@pytest.mark.parametrize(
    ("moves", "slots"),
    [
        ([(1, 0), (2, 1), (3, 2.1)], [(1, 1), (2, 2.1)]),  # it moves on when it is due, each time
        ([(1, 0), (4, 3.2)], [(1, 3.2)]),  # slots that were due together
        ([(1.000032, 0), (2.000032, 1)], [(1.000032, 1)]),  # an event is dated in whole milliseconds
        ([(1, 0), (2, 0.9), (3, 1.9)], [(1, 1), (2, 2)]),  # the clock of MongoDB is behind
        ([(10, 0), (20, 3), (30, 20)], [(20, 20)]),  # planned anew before it was due
        ([(10, 0), (None, 3), (30, 20)], []),  # paused before it was due
        ([(10, 0), (None, 10)], [(10, 10)]),  # the last slot of all
        ([(3, 3), (2, 1), (3, 2), (4, 3)], [(2, 2), (3, 3)]),  # the rows were newer than the events that follow
        ([(1, 0), (1, 1), (2, 1)], [(1, 1)]),
        ([(5, 0), (2, 6), (3, 6)], [(2, 3)]),  # back to an earlier time
        ([], []),
    ],
)
def test_a_slot_is_taken_if_the_next_fire_moves_on_when_it_is_due(
    moves: list[tuple[float | None, float]], slots: list[tuple[float, float]]
) -> None:
    found = [(one.slot, one.until) for one in taken(of(*moves))]
    assert found == [(at(slot), at(max(slot, min(until, following(moves, slot))))) for slot, until in slots]


def following(moves: list[tuple[float | None, float]], slot: float) -> float:
    later = [to for to, _ in moves if to is not None and to > slot]
    return min(later, default=slot)


def test_documents_are_told_apart() -> None:
    one, other = of((1, 0), (2, 1)), of((1, 0), (9, 1), document="other")
    mixed = [one[0], other[0], other[1], one[1]]
    assert [(one.source_id, one.slot) for one in taken(mixed)] == [("other", at(1)), ("one", at(1))]


def test_slots_that_one_move_passes_over_are_those_of_the_trigger() -> None:
    every = Trigger(
        id=UUID(int=1), tenant_id="a", schedule_id=UUID(int=2), kind="interval", interval_ms=1_000, anchor="fixed_rate"
    )
    assert following_slots(every, at(1), at(4)) == [at(2), at(3)]
    assert following_slots(every, at(1), at(2)) == []
    once = Trigger(id=UUID(int=1), tenant_id="a", schedule_id=UUID(int=2), kind="one_time", run_at=at(3))
    assert following_slots(once, at(1), at(4)) == []


@pytest.mark.parametrize(
    ("profile", "value", "instant"),
    [
        ("apscheduler", NOON.timestamp() + 0.5, at(0.5)),
        ("apscheduler", None, None),
        ("apscheduler", 1e300, None),
        ("agenda", NOON.replace(tzinfo=None), NOON),
        ("agenda", DatetimeMS(2**60), None),
        ("agenda", 7.0, None),
    ],
)
def test_an_event_plans_an_instant(profile: str, value: object, instant: datetime | None) -> None:
    name = {"apscheduler": "jobs", "agenda": "agendaJobs"}[profile]
    change = {PLANNED: [value], "wallTime": NOON.replace(tzinfo=None), "clusterTime": Timestamp(1, 1)}
    assert planned_fire(change, load_profile(profile), name, "one") == PlannedFire(name, "one", instant, NOON)


def test_an_event_that_does_not_change_the_field_plans_nothing() -> None:
    change = {"clusterTime": Timestamp(int(NOON.timestamp()), 1)}
    assert planned_fire(change, load_profile("apscheduler"), "jobs", "one") is None
    assert planned_fire(change | {PLANNED: [None]}, None, "jobs", "one") is None
    late = planned_fire(change | {PLANNED: [None]}, load_profile("apscheduler"), "jobs", "one")
    assert late is not None
    assert late.seen_at == at(1)  # servers that say only the second
    assert projection(None) == projection(load_profile("stellaops")) == {}
