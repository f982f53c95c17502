"""The checker sees each kind of fault that it is there for."""

from datetime import timedelta
from uuid import uuid4

import pytest

from migrator.records import Run
from tests.contract.assignment import every, once_each, slots
from tests.contract.rows import NOW, SECOND, changed, run

TRIGGER = uuid4()
DUE = list(every(TRIGGER, NOW, SECOND, NOW + 9 * SECOND))


def attempt(place: int, number: int = 1, **columns: object) -> Run:
    trigger_id, at = DUE[place]
    return run("t", trigger_id=trigger_id, scheduled_at=at, attempt=number, **columns)


RIGHT = [attempt(place, state="completed") for place in range(10)]


def test_every_slot_with_its_run_is_clean() -> None:
    verdict = slots(DUE, [*reversed(RIGHT), run("t"), run("t", trigger_id=TRIGGER)])
    assert (verdict.clean, verdict.matched, str(verdict)) == (True, 10, "10 matched")


def test_a_retry_belongs_to_its_slot() -> None:
    verdict = slots(DUE, [*RIGHT, attempt(3, 2), attempt(3, 3)])
    assert (verdict.clean, verdict.matched) == (True, 10)


@pytest.mark.proves("2-X6", "4-J4")
def test_a_lost_fire_is_missing() -> None:
    verdict = slots(DUE, RIGHT[:4] + RIGHT[5:])
    assert (verdict.missing, verdict.extra, verdict.duplicate, verdict.matched) == ((DUE[4],), (), (), 9)
    assert not verdict.clean
    assert str(verdict).startswith("9 matched; 1 missing: ")


@pytest.mark.proves("2-X6", "4-J4")
def test_a_slot_that_ran_twice_is_a_duplicate() -> None:
    verdict = slots(DUE, [*RIGHT, attempt(4)])
    assert (verdict.missing, verdict.extra, verdict.duplicate, verdict.matched) == ((), (), (DUE[4],), 9)


@pytest.mark.proves("2-X6")
@pytest.mark.parametrize(
    "stray",
    [
        changed(attempt(0), scheduled_at=NOW + SECOND / 2),
        changed(attempt(0), scheduled_at=NOW - SECOND),
        changed(attempt(0), trigger_id=uuid4()),
    ],
)
def test_a_run_that_was_not_due_is_extra(stray: Run) -> None:
    verdict = slots(DUE, [*RIGHT, stray])
    assert (verdict.missing, len(verdict.extra), verdict.duplicate, verdict.matched) == ((), 1, (), 10)


def test_a_retry_that_is_there_twice_or_alone_is_seen() -> None:
    assert slots(DUE, [*RIGHT, attempt(2, 2), attempt(2, 2)]).duplicate == (DUE[2],)
    assert slots(DUE, [*RIGHT, attempt(2, 3)]).extra == (DUE[2],)
    assert slots(DUE, [*RIGHT[:2], *RIGHT[3:], attempt(2, 2)]).extra == (DUE[2],)


def test_other_things_are_matched_by_any_key() -> None:
    verdict = once_each("abcd", "aaceb")
    assert (verdict.matched, verdict.missing, verdict.extra, verdict.duplicate) == (2, ("d",), ("e",), ("a",))


def test_slots_of_a_period_end_with_the_last_that_is_due() -> None:
    assert [at - NOW for _, at in every(TRIGGER, NOW, SECOND, NOW + 2 * SECOND)] == [timedelta(0), SECOND, 2 * SECOND]
    assert list(every(TRIGGER, NOW, SECOND, NOW - SECOND)) == []
