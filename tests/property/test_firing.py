"""Triggers of any timing, ticked at any moments, against the slots that arithmetic alone names."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.cutover import slots
from migrator.scheduler import firing
from tests.unit.scheduler.lifetime import HOUR, MINUTE, SECOND, START, Lifetime, cron, schedule, trigger

LINES = {"* * * * *": MINUTE, "*/5 * * * *": 5 * MINUTE, "0 * * * *": HOUR}

gaps = st.lists(st.integers(1, 3_000).map(lambda seconds: timedelta(seconds=seconds)), min_size=1, max_size=30)
policies = st.sampled_from([None, "fire_once", "skip", "fire_all"])
bounds = st.none() | st.integers(0, 7_200).map(lambda seconds: START + timedelta(seconds=seconds))


@st.composite
def timings(draw: st.DrawFn) -> tuple[Any, timedelta, datetime]:
    """Return a trigger, its step, and an instant from which its slots can be counted."""
    start, end = draw(bounds), draw(bounds)
    if start is not None and end is not None and end <= start:
        start = None
    columns: dict[str, Any] = {"start_at": start, "end_at": end, "max_fires": draw(st.none() | st.integers(1, 12))}
    columns |= {"misfire_policy": draw(policies), "misfire_grace_ms": draw(st.none() | st.integers(0, 600_000))}
    if draw(st.booleans()):
        line = draw(st.sampled_from(sorted(LINES)))
        return cron(line, **columns), LINES[line], START
    step = timedelta(seconds=draw(st.integers(20, 900)))
    return trigger(interval_ms=step // timedelta(milliseconds=1), **columns), step, start or START


@pytest.mark.proves("2-F3", "2-F3b", "2-F3c", "2-F3d", "0-T2.11.3", "0-R2")
@given(timings(), gaps, st.none() | st.integers(1, 3), st.integers(0, 900))
def test_no_slot_twice_none_out_of_bounds_none_too_many_none_forgotten(
    timing: tuple[Any, timedelta, datetime], moments: list[timedelta], limit: int | None, lasts: int
) -> None:
    made, step, origin = timing
    life = Lifetime(schedule(max_concurrency=limit), made, lasting=timedelta(seconds=lasts))
    now = START if made.start_at != START else START - timedelta(microseconds=1)  # the start itself is a slot
    for gap in moments:
        previous, now = now, max(now, START) + gap
        runs = life.tick(now)
        slots = [run.scheduled_at for run in runs if run.scheduled_at is not None]
        assert all(slot <= now for slot in slots)
        assert all((slot - origin) % step == timedelta(0) for slot in slots)
        owed = _slots(origin, step, previous, now)
        owed = [slot for slot in owed if made.start_at is None or slot >= made.start_at]
        owed = [slot for slot in owed if made.end_at is None or slot <= made.end_at]
        assert set(slots) <= set(owed)
        spent = made.max_fires is not None and life.trigger.fire_count >= made.max_fires
        if owed and not spent and len(owed) <= 100:
            assert slots, "what is owed fires, or says that it was skipped"
            grace = MINUTE if made.misfire_grace_ms is None else timedelta(milliseconds=made.misfire_grace_ms)
            prompt = {slot for slot in owed if now - slot <= grace}
            assert prompt <= set(slots)
    if made.max_fires is not None:
        assert len(life.fired) <= made.max_fires
    assert life.trigger.fire_count == len(life.fired)
    assert life.fired == sorted(life.fired)
    upcoming = life.trigger.next_fire_at
    assert upcoming is None or upcoming > now
    assert (upcoming is None) == (life.schedule.status == "running") or upcoming is None


@pytest.mark.proves("4-C8")
@given(st.integers(10, 600), st.lists(st.integers(1, 59), min_size=20, max_size=60))
def test_ticks_closer_than_the_grace_lose_no_slot_whatever_their_rhythm(step: int, rhythm: list[int]) -> None:
    life = Lifetime(schedule(), trigger(interval_ms=step * 1000, misfire_policy="skip"))
    now = START
    for seconds in rhythm:
        now += seconds * SECOND
        life.tick(now)
    assert life.fired == _slots(START, timedelta(seconds=step), START, now)


def _slots(origin: datetime, step: timedelta, after: datetime, until: datetime) -> list[datetime]:
    """Return the multiples of step after origin, and it itself, that lie in (after, until]."""
    found, slot = [], origin
    while slot <= until:
        if slot > after:
            found.append(slot)
        slot += step
    return found


FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
ends_of_time = st.sampled_from([FIRST, FIRST + SECOND, FIRST + 2 * HOUR, START, LAST - 2 * HOUR, LAST]) | st.datetimes(
    timezones=st.just(UTC)
)
ZONES = (None, "Pacific/Kiritimati", "Pacific/Niue", "Europe/Berlin")
WRITTEN = {
    "debian": "*/5 * * * *",
    "croniter": "*/5 * * * *",
    "apscheduler": "*/5 * * * *",
    "celery": "0 0 29 2 *",
    "quartz": "0 0 0 * * ?",
}


@st.composite
def extreme_triggers(draw: st.DrawFn) -> Any:  # noqa: ANN401 - as `trigger`
    """Return a trigger with any times and lengths that its columns accept."""
    moments = st.none() | ends_of_time
    columns: dict[str, Any] = {name: draw(moments) for name in ("start_at", "end_at", "next_fire_at", "last_fire_at")}
    lengths = st.sampled_from([1, 86_400_000, 2**63 - 1]) | st.integers(1, 2**63 - 1)
    columns |= {"misfire_policy": draw(policies), "misfire_grace_ms": draw(st.none() | lengths)}
    kind = draw(st.sampled_from(["cron", "interval", "one_time"]))
    if kind == "cron":
        dialect = draw(st.sampled_from(sorted(WRITTEN)))
        zone = draw(st.sampled_from(ZONES))
        return trigger(kind=kind, cron_expression=WRITTEN[dialect], cron_dialect=dialect, timezone=zone, **columns)
    if kind == "one_time":
        return trigger(kind=kind, run_at=draw(ends_of_time), **columns)
    anchor = draw(st.sampled_from(["completion", "fixed_rate"]))
    return trigger(kind=kind, interval_ms=draw(lengths), anchor=anchor, **columns)


@given(extreme_triggers(), st.sampled_from([START, FIRST, FIRST + HOUR, LAST]))
def test_the_slots_of_every_trigger_that_its_columns_accept_can_be_computed(made: Any, now: datetime) -> None:  # noqa: ANN401 - as `trigger`
    fire = firing.plan(schedule(), made, 0, now)
    assert len(fire.runs) <= firing.MAX_SLOTS + 1
    for planned in (
        fire.trigger.next_fire_at,
        firing.first_fire(made, now),
        firing.next_fire(made, now),
        firing.with_next_fire(made, now).next_fire_at,
        firing.resumed(made, now).next_fire_at,
        firing.completed(made, now).next_fire_at,
        slots.nearest_slot(made, now, HOUR),
    ):
        assert planned is None or FIRST <= planned <= LAST
    assert len(firing.upcoming(made, 5)) <= 5
