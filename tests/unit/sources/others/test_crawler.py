"""crawler: intervals, the cron lines that its migration spoiled, numbers that repeat."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from migrator import states
from migrator.cron import next_fires
from migrator.records import Schedule
from migrator.sources.crawler import PROFILE, names
from migrator.sources.profile import Rejected
from migrator.values import jsonb
from tests.other_systems import CONTEXT, CRAWLER_ROWS, KEYS, MINUTE, NOON, NOON_UTC, Given, Trip, load, restore, travel

TABLES = PROFILE.by_name()
JOBS, EXECUTIONS = TABLES["jobs"], TABLES["job_executions"]
JOB, EXECUTION = CRAWLER_ROWS["jobs"], CRAWLER_ROWS["job_executions"]
CLEAN = JOB | {"lock_token": None, "lock_acquired_at": None}
AS_OF = datetime(2026, 11, 20, 12, tzinfo=UTC)
BASE_COLUMNS = tuple(JOB)[:12]
LISTED = list(names.LISTED.items())


def job(context: Any = CONTEXT, **changes: Any) -> Trip:  # noqa: ANN401 - columns of all types
    return travel(JOBS, CLEAN | changes, context)


def base(context: Given = CONTEXT, **changes: Any) -> Trip:  # noqa: ANN401 - as above
    """A row of the table before its migration: twelve columns."""
    row = {name: JOB[name] for name in BASE_COLUMNS}
    return travel(JOBS, row | changes, context)


def execution(**changes: Any) -> Trip:  # noqa: ANN401 - as above
    return travel(EXECUTIONS, EXECUTION | changes)


def context(**changes: Any) -> Given:  # noqa: ANN401 - as above
    return msgspec.structs.replace(CONTEXT, **changes)


def test_the_maps_are_total() -> None:
    assert set(names.STATUSES.values()) == set(states.SCHEDULE)
    assert set(names.EXECUTION_STATUSES_BACK) == set(states.RUN)
    for word, state in names.EXECUTION_STATUSES.items():
        assert names.EXECUTION_STATUSES_BACK[state] == word


@pytest.mark.parametrize(("word", "status"), names.STATUSES.items())
def test_statuses(word: str, status: str) -> None:
    trip = job(status=word, is_paused=word == "paused")
    assert trip.schedule.status == status
    assert ("status" in trip.left) == (word == "processing")
    assert "is_paused" not in trip.left


@pytest.mark.parametrize(
    ("table", "changes", "fault"),
    [
        ("jobs", {"status": "done"}, "unknown-value status"),
        ("jobs", {"interval_type": "weeks"}, "unknown-value interval_type"),
        ("jobs", {"interval_type": None}, "missing-field interval_type"),
        ("jobs", {"interval_minutes": 0}, "out-of-range interval_minutes"),
        ("jobs", {"interval_minutes": -60}, "out-of-range interval_minutes"),
        ("jobs", {"max_retries": -1}, "out-of-range max_retries"),
        ("jobs", {"next_run_at": NOON}, "bad-date next_run_at"),
        ("jobs", {"id": str(KEYS[1])}, "wrong-type id"),
        ("jobs", {"source_name": "x" * 3000}, "too-long source_name"),
        ("job_executions", {"status": "pending"}, "unknown-value status"),
        ("job_executions", {"execution_number": 2**31}, "out-of-range execution_number"),
        ("job_executions", {"duration_ms": 2**63}, "wrong-type duration_ms"),  # no bigint, but a numeric
    ],
)
def test_what_is_set_aside(table: str, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(Rejected) as caught:
        load(TABLES[table], CRAWLER_ROWS[table] | changes, CONTEXT)
    assert f"{caught.value.reason} {caught.value.path}" == fault


def test_the_twelve_columns() -> None:
    trip = travel(JOBS, JOB)
    schedule, trigger = trip.schedule, trip.trigger
    assert (trigger.kind, trigger.interval_ms, trigger.anchor) == ("interval", 90 * 60_000, "completion")
    assert trigger.next_fire_at == NOON_UTC + 90 * MINUTE
    assert (schedule.max_retries, schedule.retry_delay_ms, schedule.retry_count) == (4, 30_000, 1)
    assert (schedule.retry_strategy, schedule.retry_cap_ms) == ("exponential", 3_600_000)
    assert (schedule.paused_at, schedule.cancelled_at) == (NOON_UTC + 4 * MINUTE, NOON_UTC + 5 * MINUTE)
    assert schedule.metadata == jsonb.encode({"depth": 2})
    assert schedule.status == "scheduled"
    assert trip.kinds == ["lock-held"]
    assert schedule.name == "The Times"
    assert jsonb.decode(schedule.payload or b"")["url"] == "https://example.org/news"


@pytest.mark.parametrize(("unit", "milliseconds"), [("minutes", 60_000), ("hours", 3_600_000), ("days", 86_400_000)])
def test_one_unit(unit: str, milliseconds: int) -> None:
    """The source's trigger adds N of the unit; that is what the interval is here, once."""
    assert job(schedule_time=None, interval_minutes=7, interval_type=unit).trigger.interval_ms == 7 * milliseconds


@pytest.mark.parametrize(("line", "interval"), LISTED)
def test_an_interval_counted_twice_is_undone(line: str, interval: tuple[int, str]) -> None:
    """Hourly became every 60 hours, daily every 1440 days; the line is still there, and right."""
    minutes, unit = interval
    trip = job(schedule_time=line, interval_minutes=minutes, interval_type=unit)
    assert trip.kinds == ["interval-counted-twice"]
    assert (trip.trigger.kind, trip.trigger.cron_expression, trip.trigger.interval_ms) == ("cron", line, None)
    assert (trip.trigger.cron_dialect, trip.trigger.timezone) == ("robfig", "Africa/Cairo")


@pytest.mark.parametrize(("line", "interval"), LISTED)
def test_a_listed_line_fires_as_its_interval_with_one_unit(line: str, interval: tuple[int, str]) -> None:
    """The minutes that the source's migration wrote were right; the unit on top of them was not."""
    minutes, unit = interval
    trip = job(context(zone="UTC"), schedule_time=line, interval_minutes=minutes, interval_type=unit)
    assert trip.kinds == ["interval-counted-twice"]
    assert trip.trigger.next_fire_at == next_fires("robfig", line, "UTC", AS_OF, 1)[0]
    fires = next_fires(str(trip.trigger.cron_dialect), str(trip.trigger.cron_expression), "UTC", NOON_UTC, 20)
    assert [fires[0] + number * timedelta(minutes=minutes) for number in range(20)] == fires


@pytest.mark.parametrize(
    ("line", "interval"),
    [
        ("*/15 * * * *", (60, "minutes")),
        ("0 9 * * *", (60, "minutes")),
        ("0 0 * * 0", (60, "minutes")),
        ("0 9,17 * * 1-5", (60, "minutes")),
        ("0 */4 * * *", (60, "hours")),
        ("0 */6 * * 1-5", (60, "hours")),
    ],
)
def test_a_line_that_silently_became_an_hour_is_a_line_again(line: str, interval: tuple[int, str]) -> None:
    """Never 60 minutes."""
    assert names.converted(line) == interval
    minutes, unit = interval
    trip = job(schedule_time=line, interval_minutes=minutes, interval_type=unit)
    assert trip.kinds == ["cron-made-60-minutes"]
    assert (trip.trigger.kind, trip.trigger.cron_expression) == ("cron", line)


@pytest.mark.parametrize("line", ["0 9,17 * * 1-5", "30 6 1 * *", "0 */5 * * *"])
def test_a_complex_line_stays_a_line(line: str) -> None:
    trip = base(context(zone="UTC"), schedule_time=line)
    assert (trip.trigger.kind, trip.trigger.cron_expression) == ("cron", line)


def test_an_interval_that_is_the_line_stays() -> None:
    """60 minutes is what `5 * * * *` means."""
    trip = job(schedule_time="5 * * * *", interval_minutes=60, interval_type="minutes")
    assert (trip.trigger.kind, trip.trigger.interval_ms, trip.kinds) == ("interval", 3_600_000, [])


def test_an_interval_that_somebody_set_wins_over_the_line() -> None:
    """The line stays in source_spec; no zone is needed for it."""
    trip = job(Given(tenant="acme"), schedule_time="0 9 * * *", interval_minutes=30)
    assert (trip.trigger.kind, trip.trigger.interval_ms) == ("interval", 1_800_000)
    assert jsonb.decode(trip.trigger.source_spec or b"") == {
        "schedule_time": "0 9 * * *",
        "interval_minutes": 30,
        "interval_type": "minutes",
    }


def test_a_spoiled_interval_beside_a_line_that_is_none() -> None:
    """The source never evaluated such a line; what fires there is the interval."""
    trip = job(schedule_time="not a cron", interval_minutes=60, interval_type="minutes")
    assert (trip.trigger.kind, trip.kinds) == ("interval", ["unevaluable-cron"])


@pytest.mark.parametrize(
    ("minutes", "unit", "kinds"),
    [
        (720, "hours", ["interval-maybe-counted-twice"]),
        (1440, "days", ["interval-maybe-counted-twice"]),
        (6, "hours", []),
        (30, "days", []),
        (720, "minutes", []),
    ],
)
def test_an_interval_without_a_line_that_may_be_counted_twice(minutes: int, unit: str, kinds: list[str]) -> None:
    """Nothing tells whether 720 hours were meant: it fires as in the source, and is reported."""
    trip = job(schedule_time=None, interval_minutes=minutes, interval_type=unit)
    assert trip.kinds == kinds
    assert trip.trigger.interval_ms == minutes * names.UNITS[unit]


def test_a_line_without_a_zone_is_nobodys_guess() -> None:
    """The operator states the zone."""
    for row in (
        CLEAN | {"interval_minutes": 60, "schedule_time": "0 9 * * *"},
        {name: JOB[name] for name in BASE_COLUMNS},
    ):
        with pytest.raises(Rejected, match="no-zone at schedule_time"):
            load(JOBS, row, Given(tenant="acme"))
    named = base(Given(tenant="acme"), schedule_time="CRON_TZ=Europe/Vienna 0 9 * * *")
    assert named.trigger.timezone == "Europe/Vienna"


@pytest.mark.parametrize("status", ["pending", "processing", "completed", "failed"])
def test_rows_that_break_the_sources_own_migration(status: str) -> None:
    """Any enabled row, and any that is processing."""
    trip = base(status=status)
    assert trip.schedule.status == {"processing": "running"}.get(status, status)
    assert trip.trigger.kind == "cron"
    assert trip.trigger.enabled


def test_a_cron_job_gets_its_first_fire_from_its_line() -> None:
    """A job silently not scheduled: the base table stores no next run, and the migrated one a wrong one."""
    cairo = ZoneInfo("Africa/Cairo")
    spoiled = job(schedule_time="0 9 * * *", interval_minutes=60, interval_type="minutes")
    for trip in (base(status="pending", schedule_time="0 9 * * *"), spoiled):
        assert trip.trigger.next_fire_at == datetime(2026, 11, 21, 9, tzinfo=cairo).astimezone(UTC)
    never = base(status="pending", schedule_time="0 0 31 2 *")
    assert (never.trigger.next_fire_at, never.kinds) == (None, ["no-next-fire"])
    assert base(status="failed").trigger.next_fire_at is not None
    assert base(status="cancelled").trigger.next_fire_at is None
    assert base(status="pending", schedule_enabled=None).trigger.next_fire_at is None


def test_an_interval_without_a_next_run_begins_anew() -> None:
    """The source wipes the next run of a paused job, and counts a full interval when it goes on."""
    paused = job(status="paused", is_paused=True, next_run_at=None)
    assert paused.trigger.next_fire_at == datetime(2026, 11, 20, 13, 30, tzinfo=UTC)
    endless = job(next_run_at=None, interval_minutes=2**31 - 1, interval_type="days", schedule_time=None)
    assert (endless.trigger.next_fire_at, endless.kinds) == (None, ["no-next-fire"])


def test_a_disabled_interval_does_not_fire() -> None:
    trip = job(schedule_enabled=False, next_run_at=None)
    assert (trip.trigger.enabled, trip.trigger.next_fire_at, trip.kinds) == (False, None, [])


@pytest.mark.parametrize("enabled", [False, None])
def test_a_disabled_line_does_not_fire(enabled: object) -> None:
    trip = base(schedule_enabled=enabled, status="pending")
    assert (trip.trigger.enabled, trip.trigger.next_fire_at) == (False, None)


def test_a_job_for_once() -> None:
    once = {"schedule_time": None, "schedule_enabled": False, "interval_minutes": None, "next_run_at": None}
    pending = job(**once, status="pending").trigger
    assert (pending.kind, pending.run_at, pending.next_fire_at) == ("one_time", NOON_UTC, NOON_UTC)
    retry = job(**once | {"next_run_at": NOON_UTC + MINUTE}).trigger
    assert (retry.run_at, retry.next_fire_at, retry.enabled) == (NOON_UTC + MINUTE, NOON_UTC + MINUTE, True)
    assert job(**once, status="completed").trigger.next_fire_at is None


def test_a_line_that_robfig_refuses_makes_no_trigger() -> None:
    trip = base(schedule_time="@daily")
    assert [type(row) for row in trip.rows] == [Schedule]
    assert trip.kinds == ["unevaluable-cron"]


def test_flags_that_contradict_each_other_are_reported() -> None:
    assert job(is_paused=True).kinds == ["paused-contradiction"]
    assert job(status="paused").kinds == ["paused-contradiction"]


def test_an_interval_changed_since_is_written_in_minutes() -> None:
    """A way back: what was changed here is told in the one unit that cannot be counted twice."""
    decoded = load(JOBS, CLEAN | {"interval_minutes": 2, "interval_type": "hours", "schedule_time": None}, CONTEXT)
    schedule, trigger = decoded.rows
    changed = msgspec.structs.replace(trigger, interval_ms=45 * 60_000)
    back = restore(JOBS, (schedule, changed))
    assert (back["interval_minutes"], back["interval_type"]) == (45, "minutes")


def test_an_execution_is_a_run() -> None:
    run = execution().run
    assert (run.schedule_id, run.run_number, run.attempt, run.cause) == (KEYS[5], 12, 3, "retry")
    assert (run.state, run.error, run.error_detail) == ("error", "boom", "goroutine 1")
    assert jsonb.decode(run.stats or b"") == {
        "items_crawled": 40,
        "items_indexed": 38,
        "cpu_time_ms": 5 * 10**10,
        "memory_peak_mb": 300,
    }
    assert execution(retry_attempt=0).run.cause is None
    assert execution(status="running", completed_at=None, duration_ms=None).kinds == ["live-run"]


@pytest.mark.parametrize(
    ("changes", "kinds", "duration"),
    [
        ({"duration_ms": 60_001}, [], 60_001),
        ({"duration_ms": 60_002}, ["duration-mismatch"], 60_002),
        ({"duration_ms": None}, ["duration-computed"], 60_000),
        ({"completed_at": NOON_UTC - MINUTE}, ["finished-before-started"], None),
    ],
)
def test_durations(changes: dict[str, Any], kinds: list[str], duration: int | None) -> None:
    """The source's trigger leaves a row that was inserted complete without one."""
    trip = execution(**changes)
    assert (trip.kinds, trip.run.duration_ms) == (kinds, duration)


def test_a_number_that_repeats_stays_with_the_first() -> None:
    """3-R3: counted after deletions, or by two that began together: no execution is lost for it.

    Which executions repeat a number, the reader finds by SQL: see tests/integration/test_other_systems.py.
    """
    rows = [EXECUTION | {"id": KEYS[1], "started_at": NOON_UTC + MINUTE}, EXECUTION, EXECUTION | {"id": KEYS[14]}]
    told = context(repeated=frozenset({KEYS[1], KEYS[14]}))
    trips = [travel(EXECUTIONS, row, told) for row in rows]
    assert [trip.run.run_number for trip in trips] == [None, 12, None]
    assert "duplicate-run-number" in trips[0].kinds
    assert len({(trip.run.schedule_id, trip.run.run_number) for trip in trips if trip.run.run_number}) == 1
