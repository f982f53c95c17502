"""Lines of Quartz: its own numbers of weekdays, one day field alone, years, and changes of the clock."""

from datetime import UTC, datetime

import pytest

from migrator.cron import CronError, next_fires, validate

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NEW_YORK = "America/New_York"


def shown(line: str, start: datetime, count: int, zone: str = "UTC") -> list[str]:
    return [fire.strftime("%Y-%m-%dT%H:%M:%S") for fire in next_fires("quartz", line, zone, start, count)]


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ("0 0 9 ? * 1", ["2026-01-04T09:00:00", "2026-01-11T09:00:00"]),  # a Sunday
        ("0 0 9 ? * SUN", ["2026-01-04T09:00:00", "2026-01-11T09:00:00"]),
        ("0 0 9 ? * 2-6", ["2026-01-01T09:00:00", "2026-01-02T09:00:00", "2026-01-05T09:00:00"]),
        ("0 0 9 ? * SAT-SUN", ["2026-01-03T09:00:00", "2026-01-04T09:00:00", "2026-01-10T09:00:00"]),
        ("0 0 9 ? * L", ["2026-01-03T09:00:00"]),  # a Saturday
        ("0 0 9 ? * 6L", ["2026-01-30T09:00:00", "2026-02-27T09:00:00"]),
        ("0 0 9 ? * 6#3", ["2026-01-16T09:00:00", "2026-02-20T09:00:00"]),
        ("0 0 9 L * ?", ["2026-01-31T09:00:00", "2026-02-28T09:00:00"]),
        ("0 0 9 L-2 * ?", ["2026-01-29T09:00:00"]),
        ("0 0 9 LW * ?", ["2026-01-30T09:00:00", "2026-02-27T09:00:00"]),
        ("0 0 9 15W 8 ?", ["2026-08-14T09:00:00"]),  # the fifteenth is a Saturday
        ("15/20 0/30 22-1 * * ?", ["2026-01-01T00:00:15", "2026-01-01T00:00:35", "2026-01-01T00:00:55"]),
        ("/30 0 9 * * ?", ["2026-01-01T09:00:00", "2026-01-01T09:00:30", "2026-01-02T09:00:00"]),
        ("0 0 9 1 1 ? 2030-2032/2", ["2030-01-01T09:00:00", "2032-01-01T09:00:00"]),
        ("0 0 9 1 JAN ? 2020", []),
    ],
)
def test_a_line_fires_as_quartz_counts(line: str, fires: list[str]) -> None:
    assert shown(line, NEW_YEAR, max(len(fires), 1)) == fires


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0 9 * *", "6 or 7 fields"),
        ("0 0 9 * * *", "in one of the two day fields"),
        ("0 0 9 ? * ?", "in one of the two day fields"),
        ("0 0 9 ? * 0", "day of week: expected a value from 1 to 7"),
        ("0 0 9 ? * 6#6", "day of week: expected a step from 1 to 5"),
        ("0 0 9 L-31 * ?", "day of month: expected at most 30"),
        ("0 0 9 1 13 ?", "month: expected"),
        ("0 0 9 1 1 ? 1969", "year: expected a value from 1970 to 2099"),
        ("0 60 9 ? * *", "minute: expected"),
    ],
)
def test_a_line_that_quartz_does_not_take_is_refused(line: str, message: str) -> None:
    with pytest.raises(CronError, match=message):
        validate("quartz", line, None)


def test_changes_of_the_clock_are_those_of_the_calendar_of_java() -> None:
    """The instants are those that its search gave with ``java.util.GregorianCalendar`` of Java 17."""
    before_gap, before_fold = datetime(2026, 3, 7, 12, tzinfo=UTC), datetime(2026, 11, 1, 4, 15, tzinfo=UTC)
    assert shown("0 30 2 * * ?", before_gap, 2, NEW_YORK) == ["2026-03-09T06:30:00", "2026-03-10T06:30:00"]
    assert shown("0 30 1 * * ?", before_fold, 2, NEW_YORK) == ["2026-11-01T06:30:00", "2026-11-02T06:30:00"]
    halves = shown("0 0/30 * * * ?", before_fold, 4, NEW_YORK)
    assert [fire[11:16] for fire in halves] == ["04:30", "06:00", "06:30", "07:00"]
    vienna = shown("0 30 2 * * ?", datetime(2026, 10, 24, 12, tzinfo=UTC), 2, "Europe/Vienna")
    assert vienna == ["2026-10-25T01:30:00", "2026-10-26T01:30:00"]
