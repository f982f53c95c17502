"""What makes a job fire, and what is done where nothing can."""

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from bson.int64 import Int64

from migrator.values import jsonb, remainder
from tests.agenda_documents import (
    KEY,
    NOON,
    SECOND,
    Document,
    created_4,
    every_4,
    hokify,
    is_clean,
    job_6,
    pulse,
    travel,
)

AWARE = NOON.replace(tzinfo=UTC)


@pytest.mark.parametrize("line", ["30 2 * * 1-5", "0 30 2 * * 1-5", "*/5 * * * *", "@daily"])
@pytest.mark.parametrize("zone", [None, "Europe/Vienna"])
def test_a_cron_line_keeps_its_text_dialect_and_zone(line: str, zone: str | None) -> None:
    trip = travel(every_4(line, repeatTimezone=zone))
    trigger = trip.trigger
    assert trigger is not None
    assert (trigger.kind, trigger.cron_expression, trigger.cron_dialect) == ("cron", line, "agenda")
    assert (trigger.timezone, trigger.next_fire_at, trigger.last_fire_at) == (zone, AWARE, None)
    assert jsonb.decode(trigger.source_spec or b"") == {"repeatInterval": line}
    assert is_clean(trip)


@pytest.mark.parametrize(
    ("interval", "milliseconds"),
    [
        *[("5 minutes", 300_000), ("1 month", 2_592_000_000), ("one and a half hours", 3_600_000)],
        *[
            (90_000, 90_000),
            (0.5e3, 500),
            (90_000.75, 90_000),
            (3e9, 3_000_000_000),
            ("3 days and 4 hours", 273_600_000),
        ],
    ],
)
def test_words_and_numbers_are_intervals(interval: Any, milliseconds: int) -> None:  # noqa: ANN401 - text or number
    trip = travel(every_4(interval, repeatTimezone="America/New_York"))
    trigger = trip.trigger
    assert trigger is not None
    assert (trigger.kind, trigger.interval_ms, trigger.anchor) == ("interval", milliseconds, "fixed_rate")
    assert trigger.timezone == "America/New_York"
    assert is_clean(trip)


def test_an_interval_of_another_type_stays() -> None:
    trip = travel(every_4(Int64(90_000)))
    assert trip.trigger is not None
    assert trip.trigger.interval_ms == 90_000
    assert [(entry.field, entry.kind) for entry in remainder.entries(trip.remainder)] == [("repeatInterval", "type")]


@pytest.mark.parametrize(
    ("document", "milliseconds"),
    [
        (job_6(repeatInterval="90000"), 90_000),
        (every_4("90000"), None),
        (hokify(repeatInterval="90000", repeatTimezone=None), None),
    ],
)
def test_only_agenda_6_reads_digits_as_milliseconds(document: Document, milliseconds: int | None) -> None:
    trip = travel(document)
    assert (None if trip.trigger is None else trip.trigger.interval_ms) == milliseconds
    assert ("unevaluable-cron" in trip.kinds) == (milliseconds is None)


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (every_4("@hourly"), "cron"),
        (pulse(repeatInterval="@hourly"), "cron"),
        (job_6(repeatInterval="@hourly"), "interval"),
        (hokify(repeatInterval="@hourly"), "interval"),
    ],
)
def test_the_libraries_differ_in_what_comes_first(document: Document, kind: str) -> None:
    trigger = travel(document).trigger
    assert trigger is not None
    assert trigger.kind == kind


@pytest.mark.parametrize("at", ["3:30pm", "15:30", "noon"])
def test_a_time_of_day_is_cron_of_its_own_dialect(at: str) -> None:
    trip = travel(created_4(repeatAt=at))
    trigger = trip.trigger
    assert trigger is not None
    assert (trigger.kind, trigger.cron_expression, trigger.cron_dialect) == ("cron", at, "agenda-at")
    assert is_clean(trip)


def test_an_interval_wins_over_a_time_of_day() -> None:
    trip = travel(every_4("5 minutes", repeatAt="3:30pm"))
    assert trip.trigger is not None
    assert trip.trigger.kind == "interval"
    assert is_clean(trip)


def test_a_one_shot_fires_once() -> None:
    trigger = travel(created_4()).trigger
    assert trigger is not None
    assert (trigger.kind, trigger.run_at, trigger.next_fire_at) == ("one_time", AWARE, AWARE)
    assert (trigger.cron_expression, trigger.interval_ms, trigger.anchor, trigger.timezone) == (None,) * 4


def test_a_one_shot_that_is_locked_is_not_due_again() -> None:
    trip = travel(created_4(lockedAt=NOON))
    assert trip.trigger is not None
    assert (trip.trigger.run_at, trip.trigger.next_fire_at) == (AWARE, None)
    assert is_clean(trip)


def test_a_finished_one_shot_has_no_trigger() -> None:
    assert travel(created_4(nextRunAt=None)).trigger is None


def test_a_disabled_job_has_a_trigger_that_does_not_fire() -> None:
    trigger = travel(created_4(disabled=True)).trigger
    assert trigger is not None
    assert not trigger.enabled


def test_start_end_and_days_to_skip() -> None:
    start, end = datetime(2030, 1, 1), datetime(2031, 1, 1)  # noqa: DTZ001 - as decoding BSON gives them
    trip = travel(every_4("1 day", startDate=start, endDate=end, skipDays="1 day"))
    trigger = trip.trigger
    assert trigger is not None
    assert (trigger.start_at, trigger.end_at) == (start.replace(tzinfo=UTC), end.replace(tzinfo=UTC))
    assert jsonb.decode(trigger.source_spec or b"") == {"repeatInterval": "1 day", "skipDays": "1 day"}
    assert is_clean(trip)
    trip = travel(job_6(repeatInterval="1 day", skipDays=[0, 6]))
    assert is_clean(trip)


def test_a_start_may_be_a_number_of_milliseconds() -> None:
    trip = travel(every_4(startDate=1_893_456_000_000.0))
    assert trip.trigger is not None
    assert trip.trigger.start_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert trip.remainder == b'{"startDate":1893456000000.0}'


@pytest.mark.parametrize("end", [NOON, NOON - SECOND])
def test_a_window_that_is_never_open_disables_the_trigger(end: datetime) -> None:
    trip = travel(every_4(startDate=NOON, endDate=end))
    assert trip.trigger is not None
    assert (trip.trigger.start_at, trip.trigger.end_at, trip.trigger.enabled) == (None, None, False)
    assert trip.kinds == {"empty-window"}
    assert not is_clean(trip)


UNUSABLE: list[tuple[str, Document]] = [
    ("unevaluable-cron", every_4("not a cron")),
    ("unevaluable-cron", every_4("61 * * * *")),
    ("unevaluable-cron", created_4(repeatAt="whenever")),
    ("unusable-interval", every_4(-5)),
    ("unusable-interval", every_4(0.5)),
    ("unusable-interval", every_4(math.nan)),
    ("unusable-interval", every_4(math.inf)),
    ("unusable-interval", every_4(1e300)),
    ("unusable-interval", every_4("0 minutes")),
    ("unknown-zone", every_4("30 2 * * *", repeatTimezone="Middle/Earth")),
    ("unknown-zone", every_4("5 minutes", repeatTimezone="+02:00")),
]


@pytest.mark.parametrize(("kind", "document"), UNUSABLE)
def test_what_cannot_be_evaluated_makes_no_trigger_and_stays(kind: str, document: Document) -> None:
    trip = travel(document)
    assert trip.trigger is None
    assert trip.kinds == {kind}
    assert not is_clean(trip)
    assert trip.schedule is not None
    assert trip.schedule.status == "pending"


def test_a_windows_zone_is_mapped_and_its_name_stays() -> None:
    trip = travel(every_4("30 2 * * *", repeatTimezone="W. Europe Standard Time"))
    assert trip.trigger is not None
    assert trip.trigger.timezone == "Europe/Berlin"
    assert trip.remainder == b'{"repeatTimezone":"W. Europe Standard Time"}'
    assert trip.kinds == {"mapped-zone"}


@pytest.mark.parametrize("nothing", ["", 0, 0.0])
def test_an_empty_interval_is_none(nothing: Any) -> None:  # noqa: ANN401 - text or number
    trip = travel(created_4(repeatInterval=nothing))
    assert trip.trigger is not None
    assert trip.trigger.kind == "one_time"
    assert jsonb.decode(trip.trigger.source_spec or b"") == {"repeatInterval": nothing}


def test_a_single_job_may_be_there_twice() -> None:
    first, second = travel(every_4()), travel(every_4() | {"_id": f"{KEY}"})
    assert first.trigger is not None
    assert second.trigger is not None
    assert first.trigger.id != second.trigger.id
