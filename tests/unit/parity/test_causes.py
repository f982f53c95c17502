"""Why two values differ, as far as they tell."""

from datetime import UTC, datetime, timedelta, timezone
from typing import get_args

import pytest
from bson import Decimal128, Int64

from migrator.parity.causes import ABSENT, CAUSES, CauseCode, classify

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expected", "actual", "cause"),
    [
        (NOON, NOON + timedelta(microseconds=1), "time-precision"),
        (NOON, NOON + timedelta(milliseconds=999), "time-precision"),
        (NOON, NOON + timedelta(hours=1), "time-zone"),
        (NOON, NOON - timedelta(hours=5, minutes=45), "time-zone"),
        (NOON, NOON.replace(tzinfo=None), "time-zone"),
        (NOON, NOON + timedelta(seconds=1), "time"),
        (NOON, NOON + timedelta(days=1), "time"),
        (NOON, NOON.astimezone(timezone(timedelta(hours=2))) + timedelta(hours=15), "time"),
        (None, 1, "absent-null"),
        (ABSENT, None, "absent-null"),
        (1, ABSENT, "absent-null"),
        ({}, [], "empty-kind"),
        ("", {}, "empty-kind"),
        (1, 1.0, "number-type"),
        (1, Int64(1), "number-type"),
        (Decimal128("1.10"), 1.1, "number-precision"),
        (0.1 + 0.2, 0.3, "number-precision"),
        (1, 2, "number"),
        (float("nan"), 1, "number-type"),
        (-0.0, 0.0, "number"),
        (True, 1, "type"),
        ("a\x00b", "a\ufffdb", "encoding"),
        ("é", "e\u0301", "text-form"),
        ("Abc ", "abc", "text-form"),
        ("abcdef", "abc", "text-truncated"),
        ("abc", "abd", "text"),
        ("abc", 1, "type"),
        ([1, 2], [2, 1], "order"),
        ([1, 2], [1, 3], "number"),
        ([1, 2], [1], "value"),
        ({"a": 1}, {"a": 1, "b": 2}, "keys"),
        ({"a": 1}, {"a": 2}, "number"),
        ({"a": NOON}, {"a": NOON + timedelta(hours=1)}, "time-zone"),
        ({"a": 1, "b": "x"}, {"a": 2, "b": "y"}, "value"),
        ({"a": 1}, [1], "type"),
        (b"a", b"b", "value"),
    ],
)
def test_a_cause_is_read_off_two_values(expected: object, actual: object, cause: str) -> None:
    assert classify(expected, actual) == cause


def test_every_code_has_its_words_and_a_fix() -> None:
    assert set(CAUSES) == set(get_args(CauseCode))
    for cause in CAUSES.values():
        assert cause.title
        assert cause.fix
        assert not cause.title.endswith(".")
