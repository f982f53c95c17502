"""The next fires of rules of Agenda, as the tool computes them without Agenda."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from migrator.targets.library_rules import RULES, FiringRule

BEGIN = datetime(2026, 10, 24, tzinfo=UTC)
WINDOW = (BEGIN, BEGIN + timedelta(days=3))
"""In it the clock of Vienna changes."""


@pytest.mark.parametrize(
    ("text", "zone", "fires"),
    [
        ("30 2 * * *", "Europe/Vienna", ["24T00:30", "25T00:30", "26T01:30"]),
        ("30 2 * * *", None, ["24T02:30", "25T02:30", "26T02:30"]),
        ("1 day", "Europe/Vienna", ["25T00:00", "26T00:00", "27T00:00"]),
        (str(36 * 3_600_000), None, ["25T12:00", "27T00:00"]),
        ("8.64e7", None, ["25T00:00", "26T00:00", "27T00:00"]),
        ("0 0 1 1 *", None, []),
        ("0 seconds", None, None),
        ("never", None, None),
        ("30 2 * * *", "Europe/Nowhere", None),
    ],
)
def test_the_fires_of_a_rule(text: str, zone: str | None, fires: list[str] | None) -> None:
    found = RULES["agenda"].own_fires(FiringRule(text, zone), WINDOW, 5)
    assert found == (None if fires is None else [datetime.fromisoformat(f"2026-10-{fire}:00Z") for fire in fires])


def test_no_more_are_computed_than_were_asked_for() -> None:
    for text in ("1 second", "* * * * * *"):
        found = RULES["agenda"].own_fires(FiringRule(text, None), WINDOW, 5)
        assert found == [BEGIN + timedelta(seconds=number) for number in range(1, 6)]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"repeatInterval": "1 day"}, FiringRule("1 day", None)),
        ({"repeatInterval": 90, "repeatTimezone": "UTC"}, FiringRule("90", "UTC")),
        ({"repeatInterval": {"$Long": "90"}}, FiringRule("90", None)),
        ({"repeatAt": "3pm"}, None),
        ({"repeatInterval": "1 day", "skipDays": [0]}, None),
        ({"repeatInterval": "1 day", "startDate": "2026-01-01T00:00:00.000Z"}, None),
        ({}, None),
    ],
)
def test_which_jobs_have_a_rule_that_is_computed(fields: dict[str, Any], rule: FiringRule | None) -> None:
    assert RULES["agenda"].rule({"kind": "entry", "id": "a", "fields": fields}) == rule
