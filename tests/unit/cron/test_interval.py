"""Which lines are constant intervals (3-A17), which are not (3-A18), and Agenda's interval texts."""

from datetime import timedelta

import pytest

from migrator.cron import CronError, ZoneError
from migrator.cron.agenda import interval_ms
from migrator.cron.interval import constant_interval

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ("0 * * * *", HOUR),
        ("*/15 * * * *", HOUR / 4),
        ("*/30 * * * *", HOUR / 2),
        ("0 */6 * * *", 6 * HOUR),
        ("0 */2 * * *", 2 * HOUR),
        ("0 0 * * *", DAY),
        ("30 5 * * *", DAY),
        ("5,20,35,50 * * * *", HOUR / 4),
        ("0 1,13 * * *", 12 * HOUR),
        ("* * * * *", timedelta(minutes=1)),
        ("0 0 * * 1", 7 * DAY),
    ],
)
def test_even_lines_in_utc_are_intervals_of_one_unit(line: str, gap: timedelta) -> None:
    assert constant_interval("robfig", line, "UTC") == gap
    assert constant_interval("robfig", line, "Asia/Kolkata") == gap
    assert constant_interval("robfig", line, None) == gap


@pytest.mark.parametrize(
    "line",
    [
        "0 9,17 * * 1-5",
        "*/7 * * * *",
        "0 */5 * * *",
        "0 0 */2 * *",
        "0 0 1 * *",
        "0 0 1 1 *",
        "0 0 29 2 *",
        "0 0 30 2 *",
        "0 0 * * 1,4",
        "*/15 9-17 * * *",
        "0 0 * 1 *",
        "0,1 0 * * *",
        "0 0 1,31 * 1",
    ],
)
def test_other_lines_are_none(line: str) -> None:
    assert constant_interval("robfig", line, "UTC") is None


@pytest.mark.parametrize("line", ["0 0 * * *", "0 */6 * * *", "0 */2 * * *", "0 0 * * 1", "30 5 * * *"])
@pytest.mark.parametrize("dialect", ["robfig", "debian", "cronos", "apscheduler", "croner"])
def test_a_change_of_the_clock_makes_a_day_uneven(dialect: str, line: str) -> None:
    assert constant_interval(dialect, line, "America/New_York") is None


def test_what_follows_the_clock_through_a_change_stays_even() -> None:
    for dialect in ("croniter", "apscheduler"):  # their libraries are not asked
        assert constant_interval(dialect, "*/15 * * * *", "America/New_York") is None
    for dialect in ("robfig", "debian", "cronos", "agenda"):
        assert constant_interval(dialect, "*/15 * * * *", "America/New_York") == HOUR / 4
        assert constant_interval(dialect, "0 * * * *", "Europe/Berlin") == HOUR
    # once in the repeated hour: an hour is missing
    assert constant_interval("croner", "*/15 * * * *", "America/New_York") is None
    # by half an hour
    assert constant_interval("robfig", "0 * * * *", "Australia/Lord_Howe") is None


def test_a_single_date_is_no_interval() -> None:
    assert constant_interval("croner", "2026-03-04T05:06:07", None) is None


def test_bad_lines_and_zones_are_refused() -> None:
    with pytest.raises(CronError):
        constant_interval("robfig", "60 * * * *", None)
    with pytest.raises(ZoneError):
        constant_interval("robfig", "0 * * * *", "Mars/Olympus")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("5 minutes", 300_000),
        ("1 month", 2_592_000_000),
        ("one and a half hours", 3_600_000),
        ("two weeks", 1_209_600_000),
        ("1 day 2 hours", 93_600_000),
        ("twenty-five minutes", 1_500_000),
        ("1.5 hours", 5_400_000),
        ("minute", 60_000),
        ("-5 minutes", -300_000),
        ("0 minutes", 0),
        ("0.0004 seconds", 0),
    ],
)
def test_interval_texts(text: str, milliseconds: int) -> None:
    assert interval_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "not a cron", "90000", "5 MINUTES", "PT5M", "5m", "9" * 400 + " years", "NaN"])
def test_texts_without_a_number_of_units_are_none(text: str) -> None:
    assert interval_ms(text) is None


@pytest.mark.parametrize(("number", "milliseconds"), [(90000, 90000), (1500.9, 1500), (0, 0), (-1, -1)])
def test_numbers_are_milliseconds(number: float, milliseconds: int) -> None:
    assert interval_ms(number) == milliseconds


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300, True, 10**400])
def test_numbers_that_no_date_can_hold_are_none(number: float) -> None:
    assert interval_ms(number) is None
