"""Three Python engines themselves as oracles, on random lines around changes of the clock."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.cron import CronTrigger
from celery import Celery
from celery.schedules import ParseException, crontab
from cronsim import CronSim, CronSimError

from migrator.cron import CronError, next_fires, validate, zone
from tests.cron_lines import CHANGES, lines, starts

FIRES = 10
LINES = 60
HALF_HOUR = "Australia/Lord_Howe"


def by_cronsim(line: str, place: ZoneInfo, start: datetime) -> list[datetime]:
    steps = CronSim(line, start.astimezone(place) if place.key != "UTC" else start)
    return [next(steps).astimezone(UTC) for _ in range(FIRES)]


def by_apscheduler(line: str, place: ZoneInfo, start: datetime) -> list[datetime]:
    trigger = CronTrigger.from_crontab(line, timezone=place)
    found: list[datetime] = []
    previous = None
    now = start + timedelta(microseconds=1)
    while len(found) < FIRES:
        previous = trigger.get_next_fire_time(previous, now.astimezone(place))
        if previous is None:
            break
        found.append(previous.astimezone(UTC))
        now = found[-1] + timedelta(milliseconds=1)  # a scheduler wakes a little late
    return found


def compare(dialect: str, oracle: Callable[[str, ZoneInfo, datetime], list[datetime]], zone_name: str) -> None:
    chance = random.Random(zone_name)
    place, _ = zone(zone_name)
    for line in lines(seed=len(zone_name), count=LINES):
        start = starts(zone_name, chance)
        if (
            dialect == "debian" and start.astimezone(place).fold
        ):  # cronsim begun in a repeated hour answers with the first passing
            continue
        try:
            expected: list[datetime] | None = oracle(line, place, start)
        except (CronSimError, ValueError):
            expected = None
        # 30 February: refused by one engine when it is read, by another when it is asked
        assert (fires_or_none(dialect, line, zone_name, start) or None) == expected, (dialect, line, zone_name, start)


def fires_or_none(dialect: str, line: str, zone_name: str, start: datetime) -> list[datetime] | None:
    try:
        return next_fires(dialect, line, zone_name, start, FIRES)
    except CronError:
        return None


@pytest.mark.parametrize("zone_name", CHANGES)
def test_apscheduler_fires_as_apscheduler(zone_name: str) -> None:
    compare("apscheduler", by_apscheduler, zone_name)


# cronsim advances by whole hours in UTC and builds midnights that do not exist: after a change by half an hour, and
# after a gap at midnight, its lines with a star in minute or hour lose or shift fires. Debian's cron does neither.
STUMBLES = (HALF_HOUR, "America/Sao_Paulo", "America/Santiago", "Asia/Amman", "Pacific/Apia")


@pytest.mark.parametrize("zone_name", [name for name in CHANGES if name not in STUMBLES])
def test_debian_fires_as_cronsim(zone_name: str) -> None:
    compare("debian", by_cronsim, zone_name)


@pytest.mark.parametrize("zone_name", STUMBLES)
def test_debian_lines_without_a_star_fire_as_cronsim_everywhere(zone_name: str) -> None:
    chance = random.Random(5)
    place, _ = zone(zone_name)
    for line in lines(seed=11, count=4 * LINES):
        minute, hour, *_ = line.split()
        start = starts(zone_name, chance)
        if "*" in minute + hour or start.astimezone(place).fold:
            continue
        try:
            expected: list[datetime] | None = by_cronsim(line, place, start)
        except CronSimError:
            expected = None
        assert fires_or_none("debian", line, zone_name, start) == expected, (line, start)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"hour": 2, "minute": 30}, 5),
        ({"day": "last fri", "hour": "4"}, 5),
        ({"day": "2nd mon,last", "hour": "1-3"}, 8),
        ({"week": "1-10", "day_of_week": "sun", "hour": 0}, 8),
        ({"year": "2027-2028", "month": "feb", "day": 29}, 1),
        ({"second": "*/20"}, 6),
        ({"day_of_week": "mon-fri", "hour": 9, "minute": "0,30", "second": "15"}, 6),
        ({"month": "*/5", "hour": "22-23"}, 6),
        ({"year": 2020}, 1),
    ],
)
def test_apscheduler_keywords_fire_as_apscheduler(arguments: dict[str, str | int], count: int) -> None:
    place, _ = zone("America/New_York")
    trigger = CronTrigger(**arguments, timezone=place)
    start = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    expected: list[datetime] = []
    previous, now = None, start + timedelta(microseconds=1)
    for _ in range(count):
        previous = trigger.get_next_fire_time(previous, now.astimezone(place))
        if previous is None:
            break
        expected.append(previous.astimezone(UTC))
        now = expected[-1] + timedelta(milliseconds=1)
    assert next_fires("apscheduler", json.dumps(arguments), "America/New_York", start, count) == expected


@pytest.mark.parametrize(
    "line",
    [
        "* * * *",
        "0 0 0 0 0",
        "60 * * * *",
        "* * * * 7",
        "*/60 * * * *",
        "5-1 * * * *",
        "* * * foo *",
        "* * 6th\xa0mon * *",
        "* * * * sunday",
        "a * * * *",
        "1.5 * * * *",
        "mon * * * *",
    ],
)
def test_what_apscheduler_refuses_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CronTrigger.from_crontab(line)
    with pytest.raises(CronError):
        next_fires("apscheduler", line, "UTC", datetime(2026, 1, 1, tzinfo=UTC), 1)


def by_celery(line: str, place: ZoneInfo, start: datetime) -> list[datetime]:
    """Return the fires of a beat that runs on: it asks from the moment at which the last run was sent."""
    now = start
    app = Celery(set_as_current=False)
    schedule = crontab.from_string(line)
    schedule.app, schedule.tz, schedule.nowfun = app, place, lambda: now
    found: list[datetime] = []
    while len(found) < FIRES:
        found.append(now + schedule.remaining_estimate(now))
        now = found[-1] + timedelta(milliseconds=3)  # beat sends a little late
    return found


@pytest.mark.parametrize("zone_name", CHANGES)
def test_celery_fires_as_celery(zone_name: str) -> None:
    """From before a change of the clock on: begun inside of it, Celery does not know what is still to come."""
    chance = random.Random(zone_name)
    place, _ = zone(zone_name)
    for line in lines(seed=len(zone_name), count=LINES):
        change = datetime.fromisoformat(chance.choice(CHANGES[zone_name])).replace(tzinfo=UTC)
        start = change - timedelta(minutes=chance.choice([chance.randint(1, 90), chance.randint(1, 3000)]))
        try:
            expected: list[datetime] | None = by_celery(line, place, start)
        except ValueError:
            expected = None
        assert fires_or_none("celery", line, zone_name, start) == expected, (line, start)


@pytest.mark.parametrize("place", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize(
    "line",
    [
        "30 2 * * mon-fri",
        "0 0 * * fri-mon",
        "0 22-2/3 * * *",
        "*/7 * 1-7,15-21 * 1",
        "0 0 31 jan-dec/2 *",
        "0 12 * march Sunday",
        "0 12 * * mar",
        "5 jan * * *",
        "0 1-5/2/3 * * */2-4",
        "0 1-5-7 * * 0,3",
        "0 0 29 2 *",
    ],
)
def test_a_line_that_celery_takes_fires_as_celery(line: str, place: str) -> None:
    start = datetime(2026, 3, 1, 12, 34, tzinfo=UTC)
    assert next_fires("celery", line, place, start, FIRES) == by_celery(line, zone(place)[0], start)


@pytest.mark.parametrize(
    "line",
    [
        "* * * * 7",
        "60 * * * *",
        "5/2 * * * *",
        "*/ * * * *",
        "*/0 * * * *",
        "1-5/ * * * *",
        "1, * * * *",
        "-1 * * * *",
        "* * ? * *",
        "* * L * *",
        "* * * * 5#2",
        "* * 30 2 *",
        "* * * sun *",
        "* * * * xyz",
        "* * * *",
        "0 0 0 1 1 *",
        "@daily",
    ],
)
def test_what_celery_refuses_is_refused(line: str) -> None:
    with pytest.raises((ValueError, ParseException)):
        crontab.from_string(line)
    with pytest.raises(CronError):
        validate("celery", line, None)
