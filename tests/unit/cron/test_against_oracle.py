"""Every dialect against a walk through each minute around a change of the clock."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from migrator.cron import next_fires, zone
from migrator.verify.behaviour.cron_oracle import Fold, Gap, expected_fires, fires, matcher
from tests.cron_lines import CHANGES, lines

LINES = 10
AROUND = timedelta(hours=6)


SAME_FOR_ALL_LINES: dict[str, tuple[str, Gap, Fold]] = {
    "croner": ("or", "first", "offset"),
    "robfig": ("robfig", "skip", "twice"),
    "celery": ("and", "first", "once"),
    "quartz": ("and", "skip", "second"),
}


def policies(dialect: str, line: str) -> tuple[str, Gap, Fold]:
    """Return rule, gap and fold of a line as the dialect's documents state them."""
    minute, hour, *_ = line.split()
    if dialect == "debian":
        follows = minute.startswith("*") or hour.startswith("*")
        return ("star", "skip", "twice") if follows else ("star", "end", "once")
    if dialect in SAME_FOR_ALL_LINES:
        return SAME_FOR_ALL_LINES[dialect]
    if dialect == "cronos":
        interval = any(sign in minute + hour for sign in "*/-")
        return "and", "end", "twice" if interval else "once"
    return "or", "skip" if every_hour(hour) else "shift", "twice" if every_hour(hour) else "once"


def every_hour(hour: str) -> bool:
    return all(matcher(f"* {hour} * * *", "and")(datetime(2026, 1, 1, at, tzinfo=UTC)) for at in range(24))


def rule_of(line: str, stated: str) -> str:
    """Return the oracle's rule; robfig counts a star, but not one with a step above 1."""
    if stated != "robfig":
        return stated
    *_, day, _, weekday = line.split()
    star = any(item in ("*", "*/1") for item in f"{day},{weekday}".split(","))
    return "and" if star else "or"


def ambiguous(dialect: str, line: str) -> bool:
    """Return whether the oracle cannot say what the engine makes of the day fields."""
    *_, day, _, weekday = line.split()
    equal = any(
        len(set(item.partition("/")[0].split("-"))) == 1 and "-" in item
        for field in line.split()
        for item in field.split(",")
    )
    if dialect == "debian":  # cronsim takes "4-4/1" for "4-23/1"
        return equal
    if dialect == "cronos":  # takes a star alone only
        return any("," in field and "*" in field for field in line.split())
    return dialect in ("croner", "agenda") and ("," in day or "," in weekday) and "*" in day + weekday


@pytest.mark.proves("0-T2.11.3", "0-R2")
@pytest.mark.parametrize("dialect", ["debian", "croner", "robfig", "cronos", "celery", "quartz", "agenda"])
@pytest.mark.parametrize("zone_name", CHANGES)
def test_fires_are_those_of_a_walk_through_every_minute(zone_name: str, dialect: str) -> None:
    place, _ = zone(zone_name)
    chance = random.Random(f"{zone_name} {dialect}")
    for line in lines(seed=chance.randrange(10**6), count=LINES):
        # around a change only the time fields matter; the days are widened so that something fires
        minute, hour, day, _, weekday = line.split()
        line = f"{minute} {hour} {day} * {weekday}"  # noqa: PLW2901 - the line that is meant
        written = line
        if dialect == "quartz":  # has other numbers of weekdays, and takes one day field alone
            line, written = f"{minute} {hour} * * *", f"0 {minute} {hour} ? * *"  # noqa: PLW2901 - as above
        if ambiguous(dialect, line):
            continue
        stated, gap, fold = policies(dialect, line)
        change = datetime.fromisoformat(chance.choice(CHANGES[zone_name])).replace(tzinfo=UTC)
        start, end = change - AROUND, change + AROUND
        walk = fires(matcher(line, rule_of(line, stated)), place, start, end, gap, fold)
        walked = sorted({fire for fire in walk if fire < end})
        if dialect == "debian":
            assert expected_fires(line, zone_name, start, end) == walked, (line, zone_name)
        found = next_fires(dialect, written, zone_name, start - timedelta(seconds=1), len(walked) + 1)
        assert [fire for fire in found if fire < end] == walked, (dialect, line, zone_name)
