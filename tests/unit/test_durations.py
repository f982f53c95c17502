"""Durations as text: what each means, the shortest text of each, and what is refused with which words."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.durations import EXPECTED, NONE, UNITS, check_range, format_duration, parse_duration

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("500ms", SECOND / 2),
        ("30s", 30 * SECOND),
        ("5m", 300 * SECOND),
        ("2h", 7_200 * SECOND),
        ("7d", timedelta(days=7)),
        ("1h30m", 5_400 * SECOND),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("90s", 90 * SECOND),
        ("007s", 7 * SECOND),
        ("1m0s", 60 * SECOND),
    ],
)
def test_a_text_is_the_sum_of_its_parts(text: str, meaning: timedelta) -> None:
    assert parse_duration(text) == meaning


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", EXPECTED),
        ("s", EXPECTED),
        ("30", f"{EXPECTED}; a number alone is in no unit"),
        ("0", f"{EXPECTED}; a number alone is in no unit"),
        ("0.5", f"{EXPECTED}; a number alone is in no unit"),
        ("-30s", f"{EXPECTED}, not a negative one"),
        ("-1", f"{EXPECTED}, not a negative one"),
        ("1.5s", f'{EXPECTED}; a fraction is written in a smaller unit: "1500ms"'),
        ("30 s", EXPECTED),
        (" 30s", EXPECTED),
        ("30s\n", EXPECTED),
        ("1h 30m", EXPECTED),
        ("PT30S", EXPECTED),
        ("inf", EXPECTED),
        ("٣s", EXPECTED),
        ("5min", f'{EXPECTED}, not "min"'),
        ("5M", f'{EXPECTED}, not "M"'),
        ("1w", f'{EXPECTED}, not "w"'),
        ("30m1h", f'{EXPECTED}; of several units the largest is first, and each is there once: "1h30m"'),
        ("1m1m", f'{EXPECTED}; of several units the largest is first, and each is there once: "1h30m"'),
        ("0s", 'expected a duration of at least "1ms"'),
        ("36501d", 'expected a duration of at most "36500d"'),
        ("9" * 12 + "d", 'expected a duration of at most "36500d"'),
        ("9" * 5_000 + "ms", 'expected a duration of at most "36500d"'),
    ],
)
def test_another_text_is_refused_and_told_what_was_expected(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        parse_duration(text)


def test_the_limits_of_a_duration_are_its_own() -> None:
    assert parse_duration("0s", least=NONE) == NONE
    assert parse_duration("24d", most=timedelta(days=24)) == timedelta(days=24)
    with pytest.raises(ValueError, match='at most "1h"'):
        parse_duration("61m", most=UNITS["h"])
    with pytest.raises(ValueError, match='at least "1s"'):
        check_range(SECOND / 2, least=SECOND)
    with pytest.raises(ValueError, match="whole number of milliseconds"):
        check_range(timedelta(microseconds=1_001))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.001, "1ms"), (0.5, "500ms"), (1.5, "1500ms"), (60, "1m"), (90, "90s"), (300, "5m"),
        (3_600, "1h"), (5_400, "90m"), (86_400, "1d"), (86_401, "1d1s"), (129_600, "36h"), (172_800, "2d"),
        (3_600.5, "1h500ms"),
    ],
)  # fmt: skip
def test_a_duration_is_written_as_the_shortest_text(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


@given(st.integers(1, 36_500 * 86_400_000))
def test_what_is_written_is_read_back(milliseconds: int) -> None:
    length = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(length)) == length
