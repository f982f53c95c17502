"""Which slots fire, which are passed over and say so, and where the next fire goes."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.cron import UnavailableError
from migrator.records import Trigger
from migrator.scheduler import firing
from migrator.scheduler.firing import MAX_SLOTS
from migrator.values import jsonb
from tests.cron_extras import without
from tests.unit.scheduler.lifetime import DAY, HOUR, MINUTE, SECOND, START, Lifetime, cron, schedule, trigger

TICK = 10 * SECOND


def reason(run: Any) -> Any:  # noqa: ANN401 - JSON
    return None if run.reason is None else jsonb.decode(run.reason)


# Every job on time


@pytest.mark.proves("4-C8")
@pytest.mark.parametrize(
    ("made", "step"),
    [
        (cron("0 * * * *"), HOUR),
        (cron("0 8 * * *", start_at=START), DAY),
        (trigger(interval_ms=86_400_000), DAY),
        (trigger(interval_ms=60_000), MINUTE),
        (trigger(interval_ms=30_000), 30 * SECOND),
        (trigger(interval_ms=60_000, anchor="completion"), MINUTE),
    ],
    ids=["hourly", "daily", "daily interval", "one minute", "thirty seconds", "one minute from completion"],
)
def test_in_48_hours_every_job_fires_at_each_of_its_slots(made: Trigger, step: timedelta) -> None:
    life = Lifetime(schedule(), made)
    first = life.trigger.next_fire_at
    assert first is not None
    runs = life.live_until(START + 48 * HOUR, TICK)
    expected = []
    while first <= START + 48 * HOUR:
        expected.append(first)
        first += step
    assert life.fired == expected
    assert life.skipped == []
    assert all(run.created_at - run.scheduled_at <= TICK for run in runs if run.scheduled_at is not None)


@pytest.mark.proves("2-X9")
def test_an_interval_at_a_fixed_rate_does_not_drift_with_late_ticks() -> None:
    life = Lifetime(schedule(), trigger(interval_ms=60_000))
    for tick in range(1, 200):
        life.tick(START + tick * timedelta(seconds=7, milliseconds=3 * tick))
    assert [slot - START for slot in life.fired] == [MINUTE * (n + 1) for n in range(len(life.fired))]
    assert len(life.fired) > 20


@pytest.mark.proves("2-X9")
def test_an_interval_from_completion_begins_when_the_run_ended() -> None:
    life = Lifetime(schedule(), trigger(anchor="completion"), lasting=25 * SECOND)
    life.live_until(START + 10 * MINUTE, SECOND)
    assert [slot - START for slot in life.fired] == [MINUTE + n * 85 * SECOND for n in range(len(life.fired))]
    assert len(life.fired) == 7


def test_an_interval_from_completion_waits_for_a_run_that_outlasts_it_and_records_nothing() -> None:
    life = Lifetime(schedule(), trigger(anchor="completion"), lasting=150 * SECOND)
    life.live_until(START + 10 * MINUTE, SECOND)
    assert [slot - START for slot in life.fired] == [MINUTE, MINUTE + 210 * SECOND, MINUTE + 420 * SECOND]
    assert life.skipped == []


def test_an_interval_from_completion_goes_on_when_nobody_tells_that_its_run_ended() -> None:
    made = trigger(anchor="completion", next_fire_at=START)
    fire = firing.plan(schedule(), made, 0, START)
    waiting = firing.plan(schedule(), fire.trigger, 1, START + MINUTE)
    assert (waiting.runs, waiting.trigger.next_fire_at) == ((), START + 2 * MINUTE)
    again = firing.plan(schedule(), waiting.trigger, 0, START + 2 * MINUTE)
    assert [run.scheduled_at for run in again.runs] == [START + 2 * MINUTE]


@pytest.mark.proves("2-X9", "2-F2")
def test_a_one_time_slot_fires_once_and_the_schedule_is_running_not_completed() -> None:
    life = Lifetime(schedule(), trigger(kind="one_time", run_at=START + MINUTE))
    life.live_until(START + HOUR, TICK)
    assert life.fired == [START + MINUTE]
    assert life.trigger.next_fire_at is None
    assert life.schedule.status == "running"


def test_an_event_is_never_due() -> None:
    made = trigger(kind="event", event_name="push")
    assert firing.first_fire(made, START) is None
    assert firing.plan(schedule(), made, 0, START).runs == ()


# Bounds


@pytest.mark.proves("2-F3")
@pytest.mark.parametrize("made", [cron("* * * * *"), trigger(), trigger(anchor="completion")])
def test_nothing_fires_before_the_start_and_the_start_itself_may(made: Trigger) -> None:
    life = Lifetime(schedule(), replace(made, start_at=START + HOUR))
    life.live_until(START + 2 * HOUR, TICK)
    assert life.fired[0] == START + HOUR
    assert len(life.fired) == 61


@pytest.mark.proves("2-F3b")
@pytest.mark.parametrize("made", [cron("* * * * *"), trigger(), trigger(anchor="completion")])
def test_nothing_fires_after_the_end_and_the_schedule_is_through_then(made: Trigger) -> None:
    life = Lifetime(schedule(), replace(made, end_at=START + 5 * MINUTE))
    life.live_until(START + 5 * MINUTE - SECOND, SECOND)
    assert life.schedule.status == "scheduled"
    life.live_until(START + HOUR, SECOND)
    assert life.fired == [START + n * MINUTE for n in range(1, 6)]
    assert life.trigger.next_fire_at is None
    assert life.schedule.status == "running"


@pytest.mark.proves("2-F3c")
@pytest.mark.parametrize("most", [1, 2, 7])
@pytest.mark.parametrize("policy", ["fire_once", "skip", "fire_all"])
def test_exactly_so_many_runs_are_made(most: int, policy: str) -> None:
    life = Lifetime(schedule(), trigger(max_fires=most, misfire_policy=policy))
    life.tick(START + 40 * SECOND)
    life.tick(START + 5 * MINUTE)  # several slots at once
    life.live_until(START + HOUR, TICK)
    assert len(life.fired) == most
    assert life.trigger.fire_count == most
    assert life.trigger.next_fire_at is None
    assert life.schedule.status == "running"


def test_a_trigger_that_fired_often_enough_never_fires_again() -> None:
    spent = trigger(max_fires=3, fire_count=3, next_fire_at=START)
    fire = firing.plan(schedule(), spent, 0, START)
    assert (fire.runs, fire.trigger.next_fire_at, fire.schedule_status) == ((), None, "running")
    assert firing.first_fire(spent, START) is None


def test_a_slot_outside_bounds_that_were_edited_is_dropped() -> None:
    late = trigger(next_fire_at=START, start_at=START + 150 * SECOND)
    fire = firing.plan(schedule(), late, 0, START + SECOND)
    assert (fire.runs, fire.trigger.next_fire_at) == ((), START + 3 * MINUTE)
    over = trigger(next_fire_at=START, end_at=START - SECOND)
    fire = firing.plan(schedule(), over, 0, START)
    assert (fire.runs, fire.trigger.next_fire_at, fire.schedule_status) == ((), None, "running")


# Slots that were missed


@pytest.mark.proves("2-F3d")
@pytest.mark.parametrize(
    ("columns", "fired", "skipped"),
    [
        ({}, [HOUR], []),
        ({"misfire_policy": "fire_once"}, [HOUR], []),
        ({"misfire_policy": "fire_all"}, [n * 10 * MINUTE for n in range(1, 7)], []),
        ({"misfire_policy": "skip"}, [], [HOUR]),
        ({"skip_if_overdue": True}, [], [HOUR]),
        ({"skip_if_overdue": True, "misfire_policy": "fire_all"}, [], [HOUR]),
        ({"misfire_policy": "skip", "misfire_grace_ms": 15 * 60_000}, [50 * MINUTE, HOUR], [40 * MINUTE]),
        ({"misfire_grace_ms": 15 * 60_000}, [50 * MINUTE, HOUR], []),
    ],
)
def test_after_a_jump_of_the_clock_the_policy_decides(
    columns: dict[str, Any], fired: list[timedelta], skipped: list[timedelta]
) -> None:
    life = Lifetime(schedule(), trigger(interval_ms=600_000, **columns))
    life.tick(START + 62 * MINUTE)
    assert [slot - START for slot in life.fired] == fired
    assert [slot - START for slot in life.skipped] == skipped
    assert life.trigger.next_fire_at == START + 70 * MINUTE
    assert life.trigger.fire_count == len(fired)


def test_what_was_passed_over_says_from_when_to_when() -> None:
    life = Lifetime(schedule(), trigger(misfire_policy="skip"))
    (run,) = life.tick(START + HOUR + 70 * SECOND)[-1:]
    assert (run.state, run.scheduled_at) == ("queued", START + HOUR + MINUTE)
    skipped = life.runs[0]
    assert reason(skipped) == {
        "skipped": "misfire",
        "from": "2026-03-02T08:01:00+00:00",
        "to": "2026-03-02T09:00:00+00:00",
    }
    assert skipped.finished_at == START + HOUR + 70 * SECOND


@pytest.mark.parametrize("made", [cron("* * * * *"), trigger(), trigger(interval_ms=1)])
@pytest.mark.parametrize("policy", ["fire_once", "skip", "fire_all"])
def test_what_was_down_for_decades_does_not_loop(made: Trigger, policy: str) -> None:
    old = replace(made, next_fire_at=START.replace(year=1970), misfire_policy=policy)
    fire = firing.plan(schedule(), old, 0, START + SECOND)
    queued = [run for run in fire.runs if run.state == "queued"]
    assert len(queued) <= MAX_SLOTS
    if policy == "fire_all":
        assert len(queued) == MAX_SLOTS
        assert queued[-1].scheduled_at is not None
        assert queued[-1].scheduled_at > START - MINUTE
        assert reason(fire.runs[0])["from"] == "1970-03-02T08:00:00+00:00"
        assert fire.runs[0].state == "skipped"
    assert fire.trigger.next_fire_at is not None
    assert fire.trigger.next_fire_at > START + SECOND


def test_a_clock_that_was_set_back_fires_nothing_twice() -> None:
    life = Lifetime(schedule(), trigger())
    life.live_until(START + 10 * MINUTE, TICK)
    before = list(life.fired)
    life.now = START
    life.live_until(START + 10 * MINUTE + 59 * SECOND, TICK)
    assert life.fired == before
    life.tick(START + 11 * MINUTE)
    assert life.fired == [*before, START + 11 * MINUTE]


# Limits


@pytest.mark.proves("2-X7", "4-C6")
def test_a_slot_that_meets_the_limit_is_skipped_says_so_and_the_trigger_goes_on() -> None:
    life = Lifetime(schedule(max_concurrency=1), trigger(), lasting=150 * SECOND)
    life.live_until(START + 10 * MINUTE, SECOND)
    assert [(slot - START) // MINUTE for slot in life.fired] == [1, 4, 7, 10]
    assert [(slot - START) // MINUTE for slot in life.skipped] == [2, 3, 5, 6, 8, 9]
    assert reason(life.runs[1]) == {"skipped": "concurrency"}
    assert life.trigger.fire_count == 4


def test_a_limit_of_three_admits_three() -> None:
    life = Lifetime(schedule(max_concurrency=3), trigger(), lasting=HOUR)
    life.live_until(START + 10 * MINUTE, SECOND)
    assert (len(life.fired), len(life.skipped)) == (3, 7)


def test_one_time_slots_and_what_is_caught_up_with_queue_up_instead() -> None:
    once = firing.plan(
        schedule(max_concurrency=1), trigger(kind="one_time", run_at=START, next_fire_at=START), 5, START
    )
    assert [run.state for run in once.runs] == ["queued"]
    life = Lifetime(schedule(max_concurrency=1), trigger(misfire_policy="fire_all"), lasting=HOUR)
    life.tick(START + 5 * MINUTE)
    assert [run.state for run in life.runs] == ["queued"] * 3 + ["skipped"] * 2


# What a run says


@pytest.mark.proves("2-X10")
def test_a_run_names_its_slot_its_cause_and_a_trace() -> None:
    life = Lifetime(schedule(), cron("*/5 * * * *"))
    (run,) = life.tick(START + 5 * MINUTE + SECOND)
    assert (run.cause, run.attempt, run.state, run.triggered_by) == ("cron", 1, "queued", "scheduler")
    assert (run.scheduled_at, run.available_at) == (START + 5 * MINUTE, START + 5 * MINUTE)
    assert run.created_at == START + 5 * MINUTE + SECOND
    assert run.id == firing.slot_run_id(life.trigger.id, START + 5 * MINUTE)
    assert len(run.trace_id or "") == 32
    assert len(run.span_id or "") == 16


def test_a_line_that_no_dialect_takes_any_more_fires_what_is_due_and_is_disabled() -> None:
    fire = firing.plan(schedule(), cron("61 * * * *", next_fire_at=START), 0, START)
    assert [run.state for run in fire.runs] == ["queued"]
    assert "triggerDisabled" in reason(fire.runs[0])
    assert not fire.trigger.enabled
    assert fire.trigger.next_fire_at is None


def test_a_pending_schedule_is_scheduled_by_its_first_fire() -> None:
    assert firing.plan(schedule(status="pending"), trigger(next_fire_at=START), 0, START).schedule_status == "scheduled"
    assert firing.plan(schedule(status="running"), trigger(next_fire_at=START), 0, START).schedule_status is None


# What moves a next fire


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"kind": "cron", "cron_expression": "0 * * * *", "cron_dialect": "debian"}, HOUR),
        ({}, MINUTE),
        ({"last_fire_at": START - 20 * SECOND}, 40 * SECOND),
        ({"last_fire_at": START - 100 * SECOND}, 20 * SECOND),
        ({"anchor": "completion", "interval_ms": 60_000, "kind": "interval", "last_fire_at": START}, MINUTE),
        ({"kind": "one_time", "run_at": START - HOUR}, -HOUR),
        ({"kind": "one_time", "run_at": START - HOUR, "fire_count": 1}, None),
        ({"kind": "one_time", "run_at": START - HOUR, "last_fire_at": START - HOUR}, None),
        ({"kind": "event", "event_name": "push"}, None),
        ({"enabled": False}, None),
        ({"max_fires": 2, "fire_count": 2}, None),
        ({"end_at": START - SECOND}, None),
        ({"kind": "cron", "cron_expression": "61 * * * *", "cron_dialect": "debian"}, None),
    ],
)
def test_a_trigger_without_a_next_fire_is_given_the_one_it_should_have(
    columns: dict[str, Any], expected: timedelta | None
) -> None:
    adopted = firing.with_next_fire(trigger(**columns), START)
    assert adopted.next_fire_at == (None if expected is None else START + expected)


def test_a_next_fire_that_is_there_is_not_moved_by_adoption() -> None:
    planned = trigger(next_fire_at=START - HOUR)
    assert firing.with_next_fire(planned, START) is planned


@pytest.mark.proves("2-F11")
@pytest.mark.parametrize("anchor", ["fixed_rate", "completion"])
def test_after_a_pause_the_phase_is_kept_and_nothing_fires_at_once(anchor: str) -> None:
    paused = trigger(kind="interval", interval_ms=60_000, anchor=anchor, next_fire_at=START + 17 * SECOND)
    assert firing.resumed(paused, START + HOUR).next_fire_at == START + HOUR + 17 * SECOND
    line = firing.resumed(cron("*/5 * * * *", next_fire_at=START + 5 * MINUTE), START + 61 * MINUTE)
    assert line.next_fire_at == START + 65 * MINUTE


@pytest.mark.proves("2-F11")
@pytest.mark.parametrize(
    "columns",
    [
        {"next_fire_at": START + HOUR + SECOND},
        {"next_fire_at": START, "misfire_policy": "fire_once"},
        {"next_fire_at": START, "misfire_policy": "fire_all"},
        {"next_fire_at": START, "kind": "one_time", "run_at": START},
    ],
)
def test_a_pause_leaves_what_lies_ahead_what_a_policy_asks_for_and_what_is_once(columns: dict[str, Any]) -> None:
    paused = trigger(**columns)
    assert firing.resumed(paused, START + HOUR) is paused


def test_the_end_of_a_run_moves_nothing_but_an_interval_from_completion() -> None:
    for made in (trigger(next_fire_at=START), cron("* * * * *", next_fire_at=START)):
        assert firing.completed(made, START + HOUR) is made
    over = trigger(anchor="completion", kind="interval", interval_ms=60_000)
    assert firing.completed(over, START) is over
    late = trigger(anchor="completion", kind="interval", interval_ms=60_000, next_fire_at=START, last_fire_at=START)
    assert firing.completed(late, START - HOUR).next_fire_at == START + MINUTE  # the clock was set back


@pytest.mark.parametrize("interval", [1, 10**18, 2**63 - 1])
@pytest.mark.parametrize("anchor", ["completion", "fixed_rate"])
def test_an_interval_of_any_length_is_planned_or_never_comes(interval: int, anchor: str) -> None:
    made = trigger(kind="interval", interval_ms=interval, anchor=anchor)
    first = firing.first_fire(made, START)
    assert first is None if interval > 10**17 else first == START + timedelta(milliseconds=1)
    fire = firing.plan(
        schedule(), trigger(kind="interval", interval_ms=interval, anchor=anchor, next_fire_at=START), 0, START
    )
    assert [run.scheduled_at for run in fire.runs] == [START]


def test_a_line_whose_library_is_not_installed_is_neither_fired_nor_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick ends with the reason, and its transaction with it: another process may have the library."""
    made = replace(cron("7 3 * * *"), cron_dialect="croniter", next_fire_at=START)
    without("croniter", monkeypatch)
    with pytest.raises(UnavailableError, match="croniter"):
        firing.plan(schedule(), made, 0, START)
    with pytest.raises(UnavailableError, match="croniter"):
        firing.with_next_fire(replace(made, next_fire_at=None), START)


# What is to come, without firing it


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (cron("0 * * * *"), HOUR),
        (trigger(interval_ms=90_000), timedelta(seconds=90)),
        (cron("0 8 * * *", start_at=START + DAY), DAY),
    ],
)
def test_the_next_slots_are_those_that_will_fire(made: Trigger, step: timedelta) -> None:
    life = Lifetime(schedule(), made)
    coming = firing.upcoming(life.trigger, 4)
    life.live_until(START + 6 * max(step, MINUTE), min(step, MINUTE))
    assert coming == life.fired[:4]
    assert len(coming) == 4


def test_the_next_slots_end_with_the_bounds_and_where_none_is_known() -> None:
    hourly = replace(cron("0 * * * *"), next_fire_at=START + HOUR)
    assert firing.upcoming(replace(hourly, end_at=START + 2 * HOUR), 5) == [START + HOUR, START + 2 * HOUR]
    assert firing.upcoming(replace(hourly, max_fires=7, fire_count=6), 5) == [START + HOUR]
    assert firing.upcoming(replace(hourly, enabled=False), 5) == []
    assert firing.upcoming(replace(hourly, cron_expression="no line"), 5) == [START + HOUR]
    after_a_run = trigger(anchor="completion", next_fire_at=START + MINUTE)
    assert firing.upcoming(after_a_run, 5) == [START + MINUTE]
    once = trigger(kind="one_time", run_at=START + DAY, next_fire_at=START + DAY)
    assert firing.upcoming(once, 5) == [START + DAY]
    assert firing.upcoming(trigger(kind="event", event_name="pushed"), 5) == []
