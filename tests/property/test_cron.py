"""Laws of every dialect over arbitrary lines, zones and instants."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from migrator.cron import DIALECTS, CronError, next_fire, next_fires, parse, validate, zone
from migrator.cron.agenda import interval_ms
from migrator.cron.expression import Expression, Fold, Gap
from migrator.cron.interval import constant_interval
from tests.cron_lines import CHANGES, DEEP

settings.register_profile("cron", deadline=None, derandomize=not DEEP, max_examples=2000 if DEEP else 150)
PROFILE = settings.get_profile("cron")

CRONTABS = [name for name in DIALECTS if name not in ("agenda-at", "quartz")]
MOMENT = timedelta(microseconds=1)

SEARCHED_HERE = [name for name in CRONTABS if name not in ("apscheduler", "croniter")]
"""The dialects that their own libraries do not evaluate."""
dialects = st.sampled_from([name for name in CRONTABS if name != "croniter"])
searched_here = st.sampled_from(SEARCHED_HERE)
zones = st.sampled_from(sorted(CHANGES))
instants = st.datetimes(datetime(2005, 1, 1), datetime(2045, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> str:
    kind = draw(st.sampled_from(["*", "*", "value", "range", "step", "list", "stepped range"]))
    if kind == "*":
        return "*"
    first, last = sorted((draw(st.integers(low, high)), draw(st.integers(low, high))))
    step = draw(st.integers(1, max(1, (high - low) // 4)))
    assume(kind not in ("range", "stepped range") or last - first >= step)
    return {
        "value": str(first),
        "range": f"{first}-{last}",
        "step": f"*/{step}",
        "list": str(first) if first == last else f"{first},{last}",
        "stepped range": f"{first}-{last}/{step}",
    }[kind]


lines = st.builds(
    lambda *parts: " ".join(parts),
    fields(0, 59),
    fields(0, 23),
    fields(1, 31),
    fields(1, 12),
    fields(0, 6),
)
around_changes = st.builds(
    lambda change, minutes: datetime.fromisoformat(change).replace(tzinfo=UTC) + timedelta(minutes=minutes),
    st.sampled_from([change for changes in CHANGES.values() for change in changes]),
    st.integers(-4000, 3000),
)


def evaluated(dialect: str, line: str) -> Expression:
    parsed = parse(dialect, line)
    assert isinstance(parsed, Expression)
    return parsed


def accepted(dialect: str, line: str) -> None:
    try:
        parse(dialect, line)
    except CronError:  # 30 February, for one, is refused by some
        assume(False)  # noqa: FBT003 - hypothesis' own


@settings(PROFILE)
@given(dialects, lines, zones, st.one_of(instants, around_changes))
@example("croner", "*/15 * * * *", "Europe/Berlin", datetime(2026, 10, 24, 23, 0, tzinfo=UTC))
@example("agenda", "*/15 2 * * *", "Antarctica/Troll", datetime(2026, 3, 29, 0, 30, tzinfo=UTC))
def test_fires_ascend_in_aware_utc_after_the_start(dialect: str, line: str, zone_name: str, start: datetime) -> None:
    accepted(dialect, line)
    fires = next_fires(dialect, line, zone_name, start, 8)
    for earlier, later in pairwise([start, *fires]):
        assert earlier < later
    for fire in fires:
        assert fire.tzinfo is UTC
        assert fire.microsecond == 0


@settings(PROFILE)
@given(dialects, lines, zones, st.one_of(instants, around_changes))
def test_one_fire_at_a_time_gives_the_same(dialect: str, line: str, zone_name: str, start: datetime) -> None:
    accepted(dialect, line)
    fires = next_fires(dialect, line, zone_name, start, 6)
    stepped = []
    moment: datetime | None = start
    for _ in fires:
        assert moment is not None
        moment = next_fire(dialect, line, zone_name, moment)
        assert moment is not None
        stepped.append(moment)
    assert stepped == fires


@settings(PROFILE)
@given(searched_here, lines, zones, st.one_of(instants, around_changes))
def test_every_fire_is_named_by_the_line_or_moved_out_of_a_gap(
    dialect: str,
    line: str,
    zone_name: str,
    start: datetime,
) -> None:
    accepted(dialect, line)
    parsed = evaluated(dialect, line)
    place, _ = zone(zone_name)
    for fire in next_fires(dialect, line, zone_name, start, 8):
        wall = fire.astimezone(place)
        named = (
            wall.second in parsed.seconds
            and wall.minute in parsed.minutes
            and wall.hour in parsed.hours
            and wall.day in parsed.days.of(wall.year, wall.month)
        )
        before = (fire - timedelta(days=1)).astimezone(place)
        gap_near = wall.utcoffset() != before.utcoffset()
        assert named or (gap_near and parsed.gap is not Gap.SKIP)


@settings(PROFILE)
@given(lines, st.sampled_from(["UTC", "Asia/Kathmandu"]), instants)
def test_where_no_clock_changes_only_the_day_rule_and_the_weekday_differ(
    line: str,
    zone_name: str,
    start: datetime,
) -> None:
    minute, hour, day, month, _ = line.split()
    line = f"{minute} {hour} {day} {month} *"
    found = {}
    for dialect in CRONTABS:
        accepted(dialect, line)
        # croner passes over early March, robfig gives up after five years
        if dialect not in ("croner", "robfig"):
            found[dialect] = next_fires(dialect, line, zone_name, start, 5)
    assert all(fires == found["debian"] for fires in found.values()), found


@settings(PROFILE)
@given(searched_here, lines, zones, around_changes)
def test_dialects_that_follow_the_clock_agree_with_robfig(
    dialect: str,
    line: str,
    zone_name: str,
    start: datetime,
) -> None:
    """A policy of skipping gaps and repeating folds is the same in every dialect that has it."""
    minute, hour, *_ = line.split()
    line = f"{minute} {hour} * * *"
    parsed = evaluated(dialect, line)
    if parsed.gap is Gap.SKIP and parsed.fold is Fold.TWICE:
        assert next_fires(dialect, line, zone_name, start, 8) == next_fires("robfig", line, zone_name, start, 8)


@settings(PROFILE)
@given(st.sampled_from(sorted(DIALECTS)), st.one_of(st.text(max_size=40), st.from_regex(r"[0-9*/,LW#?a-z -]{1,30}")))
@example("apscheduler", "{" * 1000)
@example("cronos", "@every_second")
def test_any_text_is_evaluated_or_refused_with_a_reason(dialect: str, text: str) -> None:
    try:
        validate(dialect, text, None)
    except CronError as error:
        message = str(error)
        assert ": expected " in message
        assert message[0].islower()
        return
    fires = next_fires(dialect, text, "America/New_York", datetime(2026, 1, 1, tzinfo=UTC), 3)
    assert fires == sorted(set(fires))


@settings(PROFILE)
@given(st.sampled_from(["robfig", "debian", "cronos", "agenda"]), lines, zones)
@example("robfig", "*/15 * * * *", "America/New_York")
@example("robfig", "0 * * * *", "Australia/Lord_Howe")
def test_a_constant_interval_is_the_gap_between_all_fires(dialect: str, line: str, zone_name: str) -> None:
    accepted(dialect, line)
    gap = constant_interval(dialect, line, zone_name)
    fires = next_fires(dialect, line, zone_name, datetime(2026, 3, 27, tzinfo=UTC), 300)
    if gap is not None:
        assert {later - earlier for earlier, later in pairwise(fires)} == {gap}


@settings(PROFILE)
@given(st.one_of(st.text(max_size=60), st.floats(), st.integers()))
def test_an_interval_text_gives_milliseconds_or_nothing(text: str | float) -> None:
    found = interval_ms(text)
    assert found is None or abs(found) <= 8.64e15
