"""The fires of APScheduler's triggers that were read as data, held against those that the libraries compute."""

import base64
import json
import pickle
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from bson import Binary

from migrator.targets.probes import apscheduler3, stores
from migrator.verify.document_fires import document_fires
from tests.agenda_documents import FOLDER

Document = dict[str, Any]
BEGIN = datetime(2027, 1, 1, tzinfo=UTC)
HOURS = timedelta(hours=36)
WINDOWS = [
    (BEGIN, BEGIN + timedelta(days=366)),
    *((at - HOURS, at + HOURS) for at in (datetime(2027, 3, 28, tzinfo=UTC), datetime(2027, 10, 31, tzinfo=UTC))),
    *((at - HOURS, at + HOURS) for at in (datetime(2027, 3, 14, tzinfo=UTC), datetime(2027, 4, 4, tzinfo=UTC))),
]
"""A year, and days around changes of the clock in Vienna, in New York and in Lord Howe and Santiago."""
LIMIT = 20
ZONES = ("Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC")


def job(trigger: Any, due: datetime | None) -> Document:  # noqa: ANN401 - the library's
    """Return the document of a job of APScheduler 3."""
    plain = {"name": "a", "executor": "default", "misfire_grace_time": 1, "coalesce": True, "max_instances": 1}
    plain |= {"version": 1, "id": "a", "func": "app:run", "args": (), "kwargs": {}}
    return {"_id": "a", "job_state": Binary(pickle.dumps({**plain, "trigger": trigger, "next_run_time": due}, 4))}


def computed(source: str, document: Document, limit: int = LIMIT) -> list[list[str]] | None:
    """Return the fires that the tool computes of a document, in each window; None of one that it does not compute."""
    lines = [*document_fires(source, None, lambda _: iter([document]), WINDOWS, limit)]
    return [line["fires"] for line in lines] if lines else None


def of_library(trigger: Any, due: datetime | None) -> list[list[str | None]]:  # noqa: ANN401 - the library's
    """Return the fires of a job of APScheduler 3 as the probe lists them."""
    stored = SimpleNamespace(trigger=trigger, next_run_time=due)
    return [
        stores.fires_of(
            lambda at: apscheduler3.first_of(stored, at),
            trigger.get_next_fire_time,
            (begin.isoformat(), end.isoformat()),
            LIMIT,
        )
        for begin, end in WINDOWS
    ]


class Triggers:
    """Triggers from a seed."""

    def __init__(self, seed: int) -> None:
        self._stream = random.Random(seed)

    def _zone(self) -> Any:  # noqa: ANN401 - a name, or a zone
        choose = self._stream.choice
        return choose([*ZONES, timezone(timedelta(hours=5, minutes=30))])

    def _moment(self) -> datetime:
        stream = self._stream
        return BEGIN + timedelta(minutes=30 * stream.randrange(-2_000, 5_000), microseconds=stream.choice([0, 1_500]))

    def _end(self) -> datetime | None:
        return self._moment() + timedelta(days=200) if self._stream.random() < 0.2 else None

    def _cron(self) -> CronTrigger:
        choose = self._stream.choice
        fields: Document = {"hour": choose(["2", "0", "3", "*", "1-3", "*/6"]), "minute": choose(["0", "30", "15,45"])}
        fields |= choose([{}, {}, {"day_of_week": "mon-fri"}, {"day": "last"}])
        start = choose([None, self._moment()])
        return CronTrigger(**fields, timezone=self._zone(), start_date=start, end_date=self._end())

    def _interval(self) -> IntervalTrigger:
        choose = self._stream.choice
        length: Document = choose([{"hours": 1}, {"days": 1}, {"hours": 7}, {"seconds": 5_400.25}, {"weeks": 1}])
        bounds: Document = {"start_date": self._moment(), "end_date": self._end()}
        return IntervalTrigger(**length, **bounds, timezone=self._zone())

    def _date(self) -> DateTrigger:
        return DateTrigger(self._moment(), self._zone())

    def _calendar(self) -> CalendarIntervalTrigger:
        choose = self._stream.choice
        step = choose([{"days": 1}, {"weeks": 1}, {"months": 1}, {"months": 1, "days": 3}, {"years": 1}])
        first = date(2026, 12, 1) + timedelta(days=self._stream.randrange(60))
        clock = {"hour": choose([0, 2, 3, 12]), "minute": choose([0, 30])}
        end = choose([None, None, first + timedelta(days=200)])
        return CalendarIntervalTrigger(**step, **clock, start_date=first, end_date=end, timezone=self._zone())

    def _either(self, deepest: int) -> OrTrigger:
        return OrTrigger([self.trigger(deepest - 1) for _ in range(self._stream.randrange(2, 4))])

    def trigger(self, deepest: int = 2) -> Any:  # noqa: ANN401 - the library's
        """Return a trigger that ends its searches."""
        kinds: list[Callable[[], Any]] = [self._cron, self._interval, self._date, self._calendar]
        if deepest and self._stream.random() < 0.5:
            return self._either(deepest)
        return self._stream.choice(kinds)()

    def due(self, trigger: Any) -> datetime | None:  # noqa: ANN401 - the library's
        """Return the next run of a job, or that it is paused."""
        fire: datetime | None = trigger.get_next_fire_time(None, BEGIN - timedelta(days=3))
        while fire is not None and fire < BEGIN:
            previous, fire = fire, trigger.get_next_fire_time(fire, fire)
            if fire is not None and fire.timestamp() <= previous.timestamp():
                return None
        return fire if self._stream.random() < 0.8 else None


@pytest.mark.parametrize("seed", range(24))
def test_the_fires_of_a_trigger_of_version_3_are_those_of_the_library(seed: int) -> None:
    triggers = Triggers(seed)
    trigger = triggers.trigger()
    due = triggers.due(trigger)
    assert computed("apscheduler", job(trigger, due)) == of_library(trigger, due), repr(trigger)


DAILY = {"hour": 12, "minute": 30, "timezone": "Europe/Vienna"}
MARCH = date(2027, 3, 1)


def test_what_agrees_is_listed_from_where_the_job_stands() -> None:
    """The first fire of a calendar interval is in the past: the library would search for another one without end."""
    trigger = AndTrigger([CronTrigger(**DAILY), CalendarIntervalTrigger(days=1, start_date=MARCH, **DAILY)])
    due = trigger.get_next_fire_time(None, datetime(2027, 3, 1, tzinfo=UTC))
    fires = of_library(trigger, due)
    assert [len(listed) for listed in fires] == [LIMIT, 3, 3, 3, 3]
    assert computed("apscheduler", job(trigger, due)) == fires


def test_a_combination_forgets_its_start_after_its_first_fire_as_the_library_does() -> None:
    trigger = OrTrigger(
        [
            CronTrigger(hour=1, timezone="UTC", start_date=datetime(2027, 6, 1, tzinfo=UTC)),
            IntervalTrigger(days=7, start_date=BEGIN, timezone="UTC"),
        ]
    )
    fires = of_library(trigger, BEGIN)
    assert fires[0][:2] == ["2027-01-01T00:00:00.000000+00:00", "2027-01-01T01:00:00.000000+00:00"]
    assert computed("apscheduler", job(trigger, BEGIN)) == fires


SOUND = OrTrigger([IntervalTrigger(hours=9, start_date=BEGIN, timezone="UTC"), CronTrigger(**DAILY)])
LENT = CalendarIntervalTrigger(days=3, start_date=MARCH, **DAILY)
FAULTS = {
    "a changed interval": (
        SOUND,
        OrTrigger([IntervalTrigger(hours=8, start_date=BEGIN, timezone="UTC"), CronTrigger(**DAILY)]),
    ),
    "a member that is dropped": (SOUND, OrTrigger(SOUND.triggers[1:])),
    "a changed calendar interval": (LENT, CalendarIntervalTrigger(days=4, start_date=MARCH, **DAILY)),
    "a start date that is shifted": (LENT, CalendarIntervalTrigger(days=3, start_date=MARCH + timedelta(1), **DAILY)),
    "a start date of an interval that is shifted": (
        OrTrigger([IntervalTrigger(days=9, start_date=BEGIN, timezone="UTC")]),
        OrTrigger([IntervalTrigger(days=9, start_date=BEGIN + timedelta(1), timezone="UTC")]),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_a_trigger_changes_the_fires_that_are_computed(name: str) -> None:
    sound, faulty = (computed("apscheduler", job(trigger, None)) for trigger in FAULTS[name])
    assert sound is not None
    assert faulty is not None
    assert sound[0] != faulty[0]


def test_jitter_is_left_out() -> None:
    trigger, other = (
        CalendarIntervalTrigger(days=3, start_date=MARCH, jitter=jitter, **DAILY) for jitter in (None, 900)
    )
    assert computed("apscheduler", job(trigger, None)) == computed("apscheduler", job(other, None))


def triggers_4() -> list[tuple[Document, list[list[str]]]]:
    """Return schedules of APScheduler 4, and the fires that the library computed."""
    lines = (FOLDER / "apscheduler" / "4.0.0a6-triggers.jsonl").read_text(encoding="utf-8").splitlines()
    schedules = []
    for line in map(json.loads, lines):
        text = line["trigger"]
        stored = text.encode() if text.startswith("{") else base64.b64decode(text)
        schedules.append(({"_id": "a", "trigger": Binary(stored)}, line["fires"]))
    return schedules


@pytest.mark.parametrize("number", range(38))
def test_the_fires_of_a_trigger_of_version_4_are_those_that_the_library_computed(number: int) -> None:
    document, fires = triggers_4()[number]
    listed = computed("apscheduler4", document, limit=6)
    assert listed is not None
    shown = [[datetime.fromisoformat(fire) for fire in window] for window in listed[:3]]
    assert shown == [[datetime.fromisoformat(fire) for fire in window] for window in fires]


YORK = "America/New_York"
EITHER: dict[str, tuple[list[tuple[str, str, str]], list[str]]] = {
    "two zones": (
        [("UTC", "6", "0"), ("Europe/Vienna", "7", "0")],
        ["13T06:00", "14T06:00", "15T06:00"],
    ),
    "a search that comes from the hour before the gap": (
        [(YORK, "1-3", "30"), (YORK, "3", "30")],
        ["13T06:30", "13T07:30", "13T08:30", "14T06:30", "14T07:30", "15T05:30", "15T06:30", "15T07:30"],
    ),
    "a time that the clock skips before one that it does not": (
        [(YORK, "2", "30"), (YORK, "3", "0")],
        ["13T07:30", "13T08:00", "14T07:30", "14T07:00", "15T06:30", "15T07:00"],
    ),
    "a search that sets a time that the clock skips": (
        [(YORK, "2-3", "30"), (YORK, "3", "30")],
        ["13T07:30", "13T08:30", "14T07:30", "14T07:30", "15T06:30", "15T07:30"],
    ),
}
"""Zone, hour and minute of each member → the fires that APScheduler 4.0.0a6 computed."""


@pytest.mark.parametrize("name", EITHER)
def test_members_that_fire_at_one_time_by_the_clock_fire_once(name: str) -> None:
    """The clock of New York is set forward on the 14th."""
    start = "2027-03-13T00:00:00+00:00"
    members = []
    for zone, hour, minute in EITHER[name][0]:
        first = datetime.fromisoformat(start).astimezone(ZoneInfo(zone)).isoformat()
        fields = {"fields": ["*", "*", "*", "*", "*", hour, minute, "0"], "timezone": zone}
        state = {"version": 1, **fields, "start_time": first, "end_time": None, "last_fire_time": None}
        members.append(["apscheduler.triggers.cron:CronTrigger", state])
    either = ["apscheduler.triggers.combining:OrTrigger", {"version": 1, "triggers": members, "next_fire_times": []}]
    stored = Binary(json.dumps({"_apscheduler_json": either}).encode())
    window = (datetime.fromisoformat(start), datetime(2027, 4, 1, tzinfo=UTC))
    expected = EITHER[name][1]
    document = {"_id": "a", "trigger": stored}
    [line] = document_fires("apscheduler4", None, lambda _: iter([document]), [window], len(expected))
    assert [fire[8:16] for fire in line["fires"]] == expected


NOON = {"version": 1, "time": [12, 0, 0], "start_date": "2027-01-31", "end_date": None, "timezone": "UTC"}
UNTOLD: dict[str, Document] = {
    "an endless calendar interval": {"interval": [0, 12, 0, 0], "last_fire_date": "9999-12-31"},
    "a calendar interval of nothing": {"interval": [0, 0, 0, 0], "last_fire_date": None},
    "an unknown zone": {"interval": [0, 0, 0, 1], "last_fire_date": None, "timezone": "Nowhere"},
    "no start": {"interval": [0, 0, 0, 1], "last_fire_date": None, "start_date": None},
    "a text for a number": {"interval": [0, 0, 0, "1"], "last_fire_date": None},
    "an hour that no day has": {"interval": [0, 0, 0, 1], "last_fire_date": None, "time": [25, 0, 0]},
}


@pytest.mark.parametrize("name", UNTOLD)
def test_what_is_not_computed_has_no_fires(name: str) -> None:
    trigger = {
        "_apscheduler_json": ["apscheduler.triggers.calendarinterval:CalendarIntervalTrigger", NOON | UNTOLD[name]]
    }
    assert computed("apscheduler4", {"_id": "a", "trigger": Binary(json.dumps(trigger).encode())}) is None


def test_what_agrees_on_nothing_has_no_fires() -> None:
    members = [["apscheduler.triggers.calendarinterval:CalendarIntervalTrigger", NOON | state] for state in CLOCKS]
    state = {"version": 1, "triggers": members, "next_fire_times": [], "threshold": 1.0, "max_iterations": 500}
    trigger = {"_apscheduler_json": ["apscheduler.triggers.combining:AndTrigger", state]}
    assert computed("apscheduler4", {"_id": "a", "trigger": Binary(json.dumps(trigger).encode())}) is None


CLOCKS = [{"interval": [0, 0, 0, 1], "last_fire_date": None, "time": [hour, 0, 0]} for hour in (1, 2)]


def test_months_that_lack_the_day_are_passed_over() -> None:
    state = NOON | {"interval": [0, 1, 0, 0], "last_fire_date": "2027-01-31"}
    trigger = {"_apscheduler_json": ["apscheduler.triggers.calendarinterval:CalendarIntervalTrigger", state]}
    fires = computed("apscheduler4", {"_id": "a", "trigger": Binary(json.dumps(trigger).encode())})
    assert fires is not None
    assert [fire[5:10] for fire in fires[0]] == ["03-31", "05-31", "07-31", "08-31", "10-31", "12-31"]
