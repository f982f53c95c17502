"""What each dialect takes, refuses and fires: the differences that a migration must not blur."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from migrator.cron import (
    DIALECTS,
    CronError,
    UnavailableError,
    ZoneError,
    next_fire,
    next_fires,
    validate,
)
from migrator.errors import UsageError
from tests.cron_extras import without

NEW_YORK = "America/New_York"
BEFORE_GAP = datetime(2026, 3, 8, 4, 30, tzinfo=UTC)  # 23:30 of the day before; 02:00 becomes 03:00 at 07:00Z
BEFORE_FOLD = datetime(2026, 11, 1, 3, 50, tzinfo=UTC)  # 23:50; 02:00 becomes 01:00 at 06:00Z
CRONTABS = [name for name in DIALECTS if name not in ("agenda-at", "quartz")]


def shown(fires: list[datetime]) -> list[str]:
    return [fire.strftime("%m-%dT%H:%M") for fire in fires]


@pytest.mark.parametrize(
    ("dialect", "fire"),
    [
        ("debian", "03-08T07:00"),
        ("croniter", "03-08T07:00"),
        ("croner", "03-08T07:30"),
        ("robfig", "03-09T06:30"),
        ("apscheduler", "03-08T07:30"),
        ("cronos", "03-08T07:00"),
        ("celery", "03-08T07:30"),
        ("agenda", "03-08T07:30"),
    ],
)
@pytest.mark.proves("0-T2.11.3")
def test_half_past_two_in_the_gap(dialect: str, fire: str) -> None:
    assert shown(next_fires(dialect, "30 2 * * *", NEW_YORK, BEFORE_GAP, 1)) == [fire]


@pytest.mark.proves("0-T2.11.3")
@pytest.mark.parametrize("dialect", CRONTABS)
def test_half_past_one_in_the_fold(dialect: str) -> None:
    twice = dialect in ("croniter", "robfig", "apscheduler")
    expected = ["11-01T05:30", "11-01T06:30"] if twice else ["11-01T05:30", "11-02T06:30"]
    assert shown(next_fires(dialect, "30 1 * * *", NEW_YORK, BEFORE_FOLD, 2)) == expected


def test_croner_takes_the_second_passing_in_europe() -> None:
    start = datetime(2026, 10, 24, 12, 0, tzinfo=UTC)
    assert shown(next_fires("croner", "30 2 * * *", "Europe/Berlin", start, 1)) == ["10-25T01:30"]
    assert shown(next_fires("debian", "30 2 * * *", "Europe/Berlin", start, 1)) == ["10-25T00:30"]


@pytest.mark.proves("0-T2.11.3")
@pytest.mark.parametrize("dialect", CRONTABS)
def test_weekdays_shift_by_one_in_apscheduler_alone(dialect: str) -> None:
    fire = next_fire(dialect, "0 9 * * 1", "UTC", datetime(2026, 1, 1, tzinfo=UTC))
    assert fire is not None
    assert fire.strftime("%A") == ("Tuesday" if dialect == "apscheduler" else "Monday")


@pytest.mark.parametrize("dialect", CRONTABS)
def test_the_thirteenth_and_friday(dialect: str) -> None:
    fire = next_fire(dialect, "0 0 13 * fri", "UTC", datetime(2026, 3, 14, tzinfo=UTC))
    both = dialect in ("apscheduler", "cronos", "celery")
    assert fire == datetime(2026, 11, 13, tzinfo=UTC) if both else datetime(2026, 3, 20, tzinfo=UTC)


@pytest.mark.parametrize("dialect", CRONTABS)
def test_a_star_with_a_step_in_a_day_field(dialect: str) -> None:
    """Debian joins with "and" when a day field starts with a star; Cronos, APScheduler and Celery always do."""
    fires = shown(next_fires(dialect, "0 0 */2 * mon", "UTC", datetime(2026, 1, 1, tzinfo=UTC), 2))
    both = dialect in ("debian", "apscheduler", "cronos", "celery")
    assert fires == (["01-05T00:00", "01-19T00:00"] if both else ["01-03T00:00", "01-05T00:00"])


@pytest.mark.parametrize(
    ("dialect", "line"),
    [
        ("debian", "*/10 * * * * *"),
        ("croner", "*/10 * * * * *"),
        ("cronos", "*/10 * * * * *"),
        ("agenda", "*/10 * * * * *"),
        ("croniter", "* * * * * */10"),
        ("apscheduler", '{"second": "*/10"}'),
    ],
)
def test_seconds(dialect: str, line: str) -> None:
    start = datetime(2026, 1, 1, 0, 0, 41, tzinfo=UTC)
    expected = [start.replace(second=50), start.replace(second=0) + timedelta(minutes=1)]
    assert next_fires(dialect, line, None, start, 2) == expected


@pytest.mark.parametrize("dialect", ["robfig", "apscheduler", "celery", "agenda-at"])
def test_six_fields_belong_to_the_dialects_that_have_them(dialect: str) -> None:
    with pytest.raises(CronError):
        validate(dialect, "0 0 0 1 1 *", None)


@pytest.mark.parametrize("dialect", CRONTABS)
def test_macros_belong_to_the_dialects_that_have_them(dialect: str) -> None:
    if dialect in ("debian", "robfig", "apscheduler", "celery"):
        with pytest.raises(CronError):
            validate(dialect, "@daily", None)
    else:
        validate(dialect, "@daily", None)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "secretly planted words",
        "5 minutes",
        "* * *",
        "61 * * * *",
        "* 24 * * *",
        "* * 32 * *",
        "* * * 13 *",
        "x\n* * * *",
        "9" * 5000 + " * * * *",
        "* * * * *\n",
        "*" * 2000,
        "* * * * \x00",
        "٣ * * * *",
        "² * * * *",
    ],
)
def test_what_no_dialect_takes_is_refused_without_showing_it(dialect: str, line: str) -> None:
    if dialect == "agenda" and line == "* * *":
        validate(dialect, line, None)  # fewer fields are the last ones
        return
    with pytest.raises(CronError) as caught:
        validate(dialect, line, None)
    message = str(caught.value)
    assert message[0].islower()
    assert not message.endswith(".")
    for word in line.split():
        assert len(word) < 3 or word not in message
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("dialect", "line", "field"),
    [
        ("debian", "60 * * * *", "minute"),
        ("debian", "* * 32 * *", "day of month"),
        ("croniter", "* * * * 8", "cron line"),
        ("croniter", "H * * * *", "cron line"),
        ("croniter", "0 r(1-5) * * *", "cron line"),
        ("cronos", "H 3 * * *", "minute"),
        ("cronos", "H(0-5) * * * * *", "second"),
        ("cronos", "0 h/2 * * *", "hour"),
        ("croner", "* * * 13 *", "month"),
        ("robfig", "* * * * 7", "day of week"),
        ("apscheduler", "* 24 * * *", "hour"),
        ("celery", "* * * * 7", "day of week"),
        ("celery", "0 0 30 2 *", "day of month"),
        ("cronos", "61 * * * * *", "second"),
        ("agenda", "* * * * 5#6", "day of week"),
        ("agenda", "0 0 30 2 *", "day of month"),
        ("agenda-at", "quarter past", "repeatAt"),
    ],
)
def test_the_message_names_the_field(dialect: str, line: str, field: str) -> None:
    with pytest.raises(CronError, match=f"^{field}: expected "):
        validate(dialect, line, None)


@pytest.mark.parametrize("dialect", ["cronos", "croniter"])
def test_a_field_that_is_filled_in_from_a_seed_is_refused_with_the_reason(dialect: str) -> None:
    with pytest.raises(CronError, match="in place of H, which is filled in from a seed that the line does not hold"):
        validate(dialect, "H 3 * * *", None)
    validate(dialect, "0 3 * mar thu", None)  # letters that names hold


@pytest.mark.parametrize("dialect", ["apscheduler", "croniter"])
def test_without_its_library_a_dialect_is_refused_by_name(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no error of the line: whoever passes over lines that are wrong must not pass over this one."""
    without(dialect, monkeypatch)
    for line in ("1 2 * * *", "not a line"):
        with pytest.raises(UnavailableError) as refused:
            next_fire(dialect, line, None, BEFORE_GAP)
        assert str(refused.value) == (
            f"the cron dialect {dialect} is evaluated by its library: pip install 'scheduler-migrator[{dialect}]'"
        )
        assert not isinstance(refused.value, CronError)
    validate("debian", "1 2 * * *", None)


def test_an_unknown_dialect_is_refused() -> None:
    with pytest.raises(CronError, match="cron dialect: expected one of debian, "):
        validate("unix", "0 0 * * ?", None)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "+02:00", "UTC+2", "../etc/passwd", "America", "Europe/"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(ZoneError, match=r"^time zone: expected "):
        validate("cronos", "0 0 * * *", name)


def test_a_zone_in_the_line_wins() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for prefix in ("TZ=Asia/Tokyo", "CRON_TZ=Asia/Tokyo"):
        assert shown(next_fires("robfig", f"{prefix} 0 5 * * *", NEW_YORK, start, 1)) == ["01-01T20:00"]
    with pytest.raises(ZoneError):
        validate("robfig", "TZ=Mars/Olympus 0 5 * * *", None)


@pytest.mark.parametrize("line", ["2026-03-04T05:06:07", "2026-03-04T05:06:07Z", "2026-03-04 05:06:07.500+00:00"])
def test_an_iso_date_of_croner_fires_once(line: str) -> None:
    fires = next_fires("croner", line, "Asia/Kathmandu", datetime(2026, 1, 1, tzinfo=UTC), 5)
    local = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert fires == [local if line[-1] in "Z0" else local - timedelta(hours=5, minutes=45)]


@pytest.mark.parametrize("dialect", ["croniter", "croner", "robfig", "apscheduler", "cronos"])
def test_the_thirtieth_of_february_never_comes(dialect: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert next_fire(dialect, "0 0 30 2 *", NEW_YORK, start) is None
    assert next_fires(dialect, "0 0 30 2 *", NEW_YORK, start, 3) == []


@pytest.mark.proves("0-T2.11.3")
@pytest.mark.parametrize("dialect", CRONTABS)
def test_a_leap_day_comes_after_the_year_2100(dialect: str) -> None:
    fires = next_fires(dialect, "0 0 29 2 *", "UTC", datetime(2093, 1, 1, tzinfo=UTC), 2)
    assert fires[0] == datetime(2096, 2, 29, tzinfo=UTC)
    # robfig gives up after five years
    assert fires[1:] == ([] if dialect == "robfig" else [datetime(2104, 2, 29, tzinfo=UTC)])


@pytest.mark.parametrize("dialect", CRONTABS)
def test_a_rare_day_is_found_within_the_search(dialect: str) -> None:
    """29 February on a Monday: every 28 years, for the engines that want both."""
    if dialect in ("cronos", "apscheduler", "celery"):
        fire = next_fire(dialect, "0 0 29 2 mon", "UTC", datetime(2025, 1, 1, tzinfo=UTC))
        assert fire == datetime(2044, 2, 29, tzinfo=UTC)


def test_croner_passes_over_early_march_as_it_does() -> None:
    """Up to croner 10, 31 February leads to 3 March: the first of March is passed over."""
    fires = next_fires("croner", "0 0 1,31 * *", "UTC", datetime(2026, 1, 30, tzinfo=UTC), 4)
    assert shown(fires) == ["01-31T00:00", "02-01T00:00", "03-31T00:00", "04-01T00:00"]
    fires = next_fires("croner", "0 0 1 * mon", "UTC", datetime(2026, 2, 20, tzinfo=UTC), 3)
    assert shown(fires) == ["02-23T00:00", "03-02T00:00", "03-09T00:00"]


def test_apscheduler_passes_over_a_midnight_after_a_gap_as_it_does() -> None:
    fires = next_fires("apscheduler", "0 0 1 * *", NEW_YORK, datetime(2026, 2, 20, tzinfo=UTC), 2)
    assert shown(fires) == ["03-01T05:00", "05-01T04:00"]


def test_only_aware_times_are_taken() -> None:
    naive = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused
    with pytest.raises(ValueError, match="expected an aware datetime"):
        next_fire("debian", "* * * * *", None, naive)


def test_any_offset_is_taken_and_utc_given() -> None:
    start = datetime(2026, 1, 1, 9, 0, tzinfo=timezone(timedelta(hours=9)))
    fire = next_fire("debian", "0 * * * *", None, start)
    assert fire == datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
    assert fire.tzinfo is UTC


def test_a_fire_is_strictly_later() -> None:
    noon = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
    moment = timedelta(microseconds=1)
    assert next_fire("debian", "0 12 * * *", None, noon) == noon + timedelta(days=1)
    assert next_fire("debian", "0 12 * * *", None, noon - moment) == noon


@pytest.mark.parametrize(
    ("text", "hour", "minute"),
    [("3:30pm", 15, 30), ("15:30", 15, 30), ("3pm", 15, 0), ("12am", 0, 0), ("12:15 pm", 12, 15), ("at noon", 12, 0)],
)
def test_repeat_at_is_a_time_of_every_day(text: str, hour: int, minute: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    expected = [start.replace(day=day, hour=hour, minute=minute) for day in (1, 2)]
    if (hour, minute) == (0, 0):
        expected = [fire + timedelta(days=1) for fire in expected]
    assert next_fires("agenda-at", text, None, start, 2) == expected


@pytest.mark.parametrize("text", ["9", "24:00", "13pm", "0am", "3:60pm", "3:30:15pm", "tomorrow at 5pm", "monday"])
def test_repeat_at_of_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CronError):
        validate("agenda-at", text, None)


@pytest.mark.parametrize("text", ["90000", "5", " 5 "])
def test_digits_alone_are_milliseconds_and_no_line(text: str) -> None:
    with pytest.raises(CronError):
        validate("agenda", text, None)


@pytest.mark.parametrize(
    "text",
    [
        '{"hour": 1, "hours": 2}',
        "{}",
        "{",
        '{"hour": null}',
        "[1]",
        '{"hour": "25"}',
        '{"day": "9th mon"}',
        '{"hour": {"a": 1}}',
        '{"day": "2nd 3"}',
        '{"day": "1st foo"}',
        "{" * 900,
    ],
)
def test_keywords_that_apscheduler_does_not_have_are_refused(text: str) -> None:
    with pytest.raises(CronError):
        validate("apscheduler", text, None)


@pytest.mark.parametrize(
    "line",
    [
        "0 0 L-3 * *",
        "0 0 15L * *",
        "0 0 * * L",
        "0 0 * * 1#0",
        "0 0 W * *",
        "0 0 ? * *",
        "0 0 * * MONDAY",
        "@reboot",
        "2026-13-01T00:00:00",
        "12:30",
        "*/61 * * * *",
        "0 0 */32 * *",
        "0 0 * * */8",
        "1- * * * *",
        "-1 * * * *",
    ],
)
def test_what_croner_refuses_is_refused(line: str) -> None:
    with pytest.raises(CronError):
        validate("croner", line, None)


@pytest.mark.parametrize(
    ("line", "days"),
    [
        ("0 0 15W * *", ["01-15", "02-16", "03-16"]),
        ("0 0 LW * *", ["01-30", "02-27", "03-31"]),
        ("0 0 * * 5L", ["01-30", "02-27", "03-27"]),
        ("0 0 * * FRI#L", ["01-30", "02-27", "03-27"]),
        ("0 0 * * MON-TUE#1", ["01-05", "01-06", "02-02"]),
        ("0 0 L,15 * *", ["01-15", "01-31", "02-15"]),
        ("0 0 * * sat-sun", ["01-03", "01-04", "01-10"]),
        ("0 0 * * 3/2", ["01-02", "01-07", "01-09"]),
        ("0 0 /10 * *", ["01-11", "01-21", "01-31"]),
        ("0 0 31W * *", ["01-30", "03-31", "05-29"]),
    ],
)
def test_the_days_of_croner(line: str, days: list[str]) -> None:
    fires = next_fires("croner", line, None, datetime(2026, 1, 1, tzinfo=UTC), 3)
    assert [fire.strftime("%m-%d") for fire in fires] == days
