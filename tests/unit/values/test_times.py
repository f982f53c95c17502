"""Instants: the traps of .NET times and of BSON dates."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from bson.datetime_ms import DatetimeMS

from migrator.values import times

EIGHT = datetime(2025, 11, 2, 8, tzinfo=UTC)
NAIVE = datetime(2025, 11, 2, 8)  # noqa: DTZ001 - as a BSON date is decoded


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2025-11-02T08:00:00+00:00", 0),
        ("2025-11-02T08:00:00Z", 0),
        ("2025-11-02T08:00:00-00:00", 0),
        ("2025-11-02T08:00:00.0Z", 0),
        ("2025-11-02T08:00:00.5Z", 500_000),
        ("2025-11-02T08:00:00.5+00:00", 500_000),
        ("2025-11-02T08:00:00.123Z", 123_000),
        ("2025-11-02T08:00:00.123456+00:00", 123_456),
        ("2025-11-02T08:00:00.1234567Z", 123_456),
        ("2025-11-02T08:00:00.9999999Z", 999_999),
        ("2025-11-02T08:00:00.999999999Z", 999_999),
        ("2025-11-02T08:00:00.0000009Z", 0),
        ("2025-11-02T09:00:00+01:00", 0),
        ("2025-11-02T09:00:00+0100", 0),
        ("2025-11-02T09:00:00+01", 0),
        ("2025-11-02T02:30:00-05:30", 0),
        ("2025-11-01T18:00:00.25-14:00", 250_000),
    ],
)
def test_spellings_of_an_instant(text: str, micros: int) -> None:
    instant = times.parse_iso(text)
    assert instant == EIGHT + timedelta(microseconds=micros)
    assert instant.tzinfo is UTC


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2025-11-02",
        "2025-11-02T08:00:00",
        "2025-11-02T08:00:00.1234567",
        "2025-11-02T08:00Z",
        "2025-11-02 08:00:00Z",
        "2025-11-02 08:00:00+00:00",
        "2025-11-02t08:00:00z",
        "2025-11-02T08:00:00.Z",
        "2025-11-02T08:00:00,5Z",
        "2025-11-02T08:00:00.1234567890Z",
        "2025-11-02T08:00:00Z ",
        "2025-11-02T08:00:00Z\n",
        "2025-11-02T08:00:00+00:00\n",
        "2025-11-02T08:00:00+00:0O",
        "2025-02-29T08:00:00+00:00",
        "2025-02-29T08:00:00Z",
        "2025-13-02T08:00:00Z",
        "2025-11-02T24:00:00Z",
        "2025-11-02T24:00:00+00:00",
        "2025-11-02T08:60:00Z",
        "2025-11-02T08:00:60Z",
        "2025-11-02T08:00:00+24:00",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:30:00-01:00",
        "+275760-09-13T00:00:00Z",
        "20251102T080000Z",
        "2025-W44-7T08:00:00+00:00",
        "٢٠٢٥-11-02T08:00:00Z",
        "1762070400000",
    ],
)
def test_what_names_no_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        times.parse_iso(text)


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (EIGHT, "2025-11-02T08:00:00+00:00"),
        (EIGHT + timedelta(milliseconds=500), "2025-11-02T08:00:00.5+00:00"),
        (EIGHT + timedelta(microseconds=120), "2025-11-02T08:00:00.00012+00:00"),
        (EIGHT + timedelta(microseconds=123_456), "2025-11-02T08:00:00.123456+00:00"),
        (EIGHT.astimezone(timezone(timedelta(hours=-5))), "2025-11-02T08:00:00+00:00"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00+00:00"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), "9999-12-31T23:59:59.999999+00:00"),
    ],
)
def test_the_canonical_spelling(instant: datetime, text: str) -> None:
    assert times.format_iso(instant) == text
    assert times.parse_iso(text) == instant


def test_a_naive_time_is_never_written() -> None:
    with pytest.raises(ValueError, match="without an offset"):
        times.format_iso(NAIVE)
    with pytest.raises(ValueError, match="without an offset"):
        times.to_bson(NAIVE)


def test_bson_dates() -> None:
    assert times.from_bson(NAIVE) == EIGHT
    assert times.from_bson(NAIVE).tzinfo is UTC
    assert times.to_bson(EIGHT + timedelta(microseconds=1_999)) == NAIVE + timedelta(milliseconds=1)
    assert times.to_bson(EIGHT.astimezone(timezone(timedelta(hours=3)))) == NAIVE
    before = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert times.to_bson(before).microsecond == 999_000


@pytest.mark.parametrize("value", [EIGHT, DatetimeMS(8_640_000_000_000_000), "2025-11-02T08:00:00Z", 1])
def test_only_a_decoded_bson_date_is_one(value: object) -> None:
    with pytest.raises(ValueError, match="not a decoded BSON date"):
        times.from_bson(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wall", "zone", "instant"),
    [
        ("2026-07-01T12:00:00.123", "Europe/Vienna", "2026-07-01T10:00:00.123"),
        ("2026-10-25T02:30", "Europe/Vienna", "2026-10-25T00:30"),  # twice: the first
        ("2026-03-29T02:30", "Europe/Vienna", "2026-03-29T01:00"),  # never: the end of the gap
        ("2026-03-29T03:00", "Europe/Vienna", "2026-03-29T01:00"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-30T10:00"),  # a day that was left out
        ("2026-10-04T02:10", "Australia/Lord_Howe", "2026-10-03T15:30"),
    ],
)
def test_a_local_time_is_the_first_instant_at_which_a_clock_shows_it(wall: str, zone: str, instant: str) -> None:
    shown, place = datetime.fromisoformat(f"{wall}+00:00"), ZoneInfo(zone)
    found = times.instant_of(shown, place)
    assert found == datetime.fromisoformat(f"{instant}+00:00")
    assert times.wall_clock(found, place) >= shown
    assert times.wall_clock(found - timedelta(microseconds=1), place) < shown


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 11, 22, 12, 0, 0, 5_999, tzinfo=UTC), "2026-11-22T12:00:00.005Z"),
        (datetime(99, 1, 1, tzinfo=UTC), "0099-01-01T00:00:00.000Z"),
    ],
)
def test_the_spelling_of_javascript(moment: datetime, text: str) -> None:
    assert times.format_javascript(moment) == text
