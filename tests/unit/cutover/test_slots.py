"""Slots that are inferred from when the old side acted: the nearest due time within the tolerance, and no other."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.cutover.slots import compare, infer, nearest_slot
from migrator.records import Trigger
from migrator.scheduler import firing

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ONE, OTHER = ("a", UUID(int=1)), ("a", UUID(int=2))


def trigger(**columns: Any) -> Trigger:  # noqa: ANN401 - columns have all types
    return Trigger(id=UUID(int=9), tenant_id="a", schedule_id=ONE[1], **columns)


def cron(line: str, **columns: Any) -> Trigger:  # noqa: ANN401 - columns have all types
    return trigger(kind="cron", cron_expression=line, cron_dialect="croner", timezone="UTC", **columns)


def interval(seconds: int, **columns: Any) -> Trigger:  # noqa: ANN401 - columns have all types
    given: dict[str, Any] = {"anchor": "fixed_rate", "next_fire_at": NOON} | columns
    return trigger(kind="interval", interval_ms=1000 * seconds, **given)


@pytest.mark.parametrize(
    ("one", "at", "slot"),
    [
        (cron("*/5 * * * *"), 302 * SECOND, 300 * SECOND),
        (cron("*/5 * * * *"), 298 * SECOND, 300 * SECOND),
        (cron("*/5 * * * *"), 330 * SECOND, 300 * SECOND),
        (cron("*/5 * * * *"), 331 * SECOND, None),
        (cron("*/20 * * * * *"), 30 * SECOND, 20 * SECOND),  # a scheduler acts after the time at which it should
        (cron("*/5 * * * *", max_fires=1, fire_count=1), 302 * SECOND, 300 * SECOND),
        (cron("*/5 * * * *", end_at=NOON), 302 * SECOND, None),
        (cron("no line"), 302 * SECOND, None),
        (interval(90), -88 * SECOND, -90 * SECOND),
        (interval(90), 179 * SECOND, 180 * SECOND),
        (interval(90), 135 * SECOND, None),
        (interval(90, start_at=NOON + SECOND), SECOND, None),
        (interval(90, anchor="completion"), 90 * SECOND, None),
        (interval(90, next_fire_at=None), 90 * SECOND, None),
        (trigger(kind="one_time", run_at=NOON), 30 * SECOND, 0 * SECOND),
        (trigger(kind="one_time", run_at=NOON), -31 * SECOND, None),
        (trigger(kind="event", event_name="e"), 0 * SECOND, None),
    ],
)
def test_the_nearest_due_time_within_the_tolerance(one: Trigger, at: timedelta, slot: timedelta | None) -> None:
    found = nearest_slot(one, NOON + at, 30 * SECOND)
    assert found == (None if slot is None else NOON + slot)


LINES = st.sampled_from(["* * * * *", "*/7 * * * *", "3,4,50 * * * *", "*/13 * * * * *", "0 3 * * *", "30 2 28 3 *"])


@given(
    one=st.one_of(
        LINES.map(cron),
        st.integers(1, 900).map(lambda seconds: interval(seconds, anchor="fixed_rate")),
    ),
    at=st.datetimes(datetime(2026, 3, 27), datetime(2026, 3, 30)).map(lambda at: at.replace(tzinfo=UTC)),  # noqa: DTZ001 - replaced
    tolerance=st.integers(1, 1_800).map(lambda seconds: timedelta(seconds=seconds)),
)
def test_no_due_time_is_nearer_and_none_is_overlooked(one: Trigger, at: datetime, tolerance: timedelta) -> None:
    if one.kind == "interval":  # its due times are counted from any of them
        step = timedelta(milliseconds=one.interval_ms or 0)
        all_due = [NOON + (number + (at - NOON) // step) * step for number in range(-2, 4)]
    else:
        all_due = []
        due = firing.next_fire(one, at - tolerance - 2 * SECOND)
        while due is not None and due <= at + tolerance + 2 * SECOND:
            all_due.append(due)
            due = firing.next_fire(one, due)
    within = [due for due in all_due if abs(due - at) <= tolerance]
    assert nearest_slot(one, at, tolerance) == min(within, key=lambda due: (abs(due - at), due), default=None)


def test_the_nearest_trigger_of_a_schedule_counts_and_what_has_no_slot_is_told() -> None:
    triggers = {ONE: [cron("0 * * * *"), cron("1 * * * *")]}
    acted = [(ONE, NOON + 55 * SECOND), (ONE, NOON + 5 * SECOND), (ONE, NOON + 600 * SECOND), (OTHER, NOON)]
    slots, unmatched = infer(acted, triggers, 30 * SECOND)
    assert slots == [(ONE, NOON + 60 * SECOND), (ONE, NOON)]
    assert unmatched == acted[2:]


def test_slots_are_matched_missing_extra_or_duplicate() -> None:
    later = NOON + timedelta(minutes=1)
    found = compare(
        [(ONE, NOON), (ONE, later), (OTHER, NOON)], [(ONE, NOON), (OTHER, NOON), (OTHER, NOON), (OTHER, later)]
    )
    assert found.matched == 1
    assert found.missing == ((ONE, later),)
    assert found.extra == ((OTHER, later),)
    assert found.duplicate == ((OTHER, NOON),)
    assert not found.clean
    assert compare([(ONE, NOON)], [(ONE, NOON)]).clean


def test_inferred_slots_are_compared_and_counted() -> None:
    later = NOON + timedelta(minutes=1)
    found = compare([(ONE, NOON)], [(ONE, NOON), (ONE, later)], inferred=[(ONE, later)])
    assert (found.matched, found.inferred, found.clean) == (2, 1, True)
    twice = compare([(ONE, NOON)], [(ONE, NOON)], inferred=[(ONE, NOON)])
    assert (twice.matched, twice.inferred, twice.duplicate) == (0, 0, ((ONE, NOON),))
    told = compare([], [], unmatched=[(ONE, NOON)])
    assert told.unmatched == ((ONE, NOON),)
    assert not told.clean
