"""The next fires of documents, as the tool computes them without the library of the documents."""

import json
import pickle
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from bson import Binary, Int64, ObjectId

from migrator.verify.document_fires import document_fires, zone_of

Document = dict[str, Any]
VIENNA = "Europe/Vienna"
DAY = timedelta(days=1)
SPRING = (datetime(2027, 3, 27, tzinfo=UTC), datetime(2027, 3, 30, tzinfo=UTC))
AUTUMN = (datetime(2027, 10, 30, tzinfo=UTC), datetime(2027, 11, 2, tzinfo=UTC))
"""Days around the changes of the clock in Vienna."""
BEGIN = SPRING[0]
LATER = BEGIN + 400 * DAY


def listed(
    source: str, document: Document, windows: Sequence[tuple[datetime, datetime]] = (SPRING,), limit: int = 5
) -> list[list[str]] | None:
    """Return the fires of a document in each window, without year and seconds; None of one that has none here."""
    lines = [*document_fires(source, VIENNA, lambda _: iter([document]), windows, limit)]
    for line in lines:
        for fire in line["fires"]:
            assert datetime.fromisoformat(fire).utcoffset() == timedelta()
            assert fire.endswith("00.000000+00:00")
    assert [line["window"] for line in lines] in ([], [[*window] for window in windows])
    return [[fire[5:16] for fire in line["fires"]] for line in lines] if lines else None


def job(trigger: Any, **state: Any) -> Document:  # noqa: ANN401 - the library's
    """Return the document of a job of APScheduler 3."""
    plain = {"name": "a", "executor": "default", "misfire_grace_time": 1, "coalesce": True, "max_instances": 1}
    plain |= {"version": 1, "id": "a", "func": "app:run", "args": (), "kwargs": {}, "next_run_time": None}
    stored = pickle.dumps({**plain, "trigger": trigger, **state}, 4)
    return {"_id": "a", "next_run_time": None, "job_state": Binary(stored)}


NIGHTLY = ["27T01:30", "28T01:30", "29T00:30"]
TWICE = ["30T00:30", "31T00:30", "31T01:30", "01T01:30"]
TRIGGERS: dict[str, tuple[Any, list[str] | None]] = {
    "a cron line": (CronTrigger(hour=2, minute=30, timezone=VIENNA), NIGHTLY),
    "in UTC": (CronTrigger(hour=2, minute=30, timezone=UTC), ["27T02:30", "28T02:30", "29T02:30"]),
    "by an offset": (
        CronTrigger(hour=2, minute=30, timezone=timezone(timedelta(hours=5, minutes=30))),
        ["27T21:00", "28T21:00", "29T21:00"],
    ),
    "with bounds": (
        CronTrigger(
            hour=2, minute=30, timezone=VIENNA, start_date=BEGIN + DAY, end_date=datetime(2027, 3, 29, tzinfo=UTC)
        ),
        ["28T01:30"],
    ),
    "from a part of a second on": (
        CronTrigger(second="*/20", timezone=VIENNA, start_date=datetime(2027, 3, 27, 1, 0, 0, 1, tzinfo=UTC)),
        None,
    ),
    "an interval of a day": (
        IntervalTrigger(days=1, timezone=VIENNA, start_date=datetime(2027, 1, 1, 2, 30, tzinfo=ZoneInfo(VIENNA))),
        ["27T01:30", "28T01:30", "29T01:30"],
    ),
    "an interval that begins later": (
        IntervalTrigger(hours=36, timezone=VIENNA, start_date=BEGIN + timedelta(hours=5)),
        ["27T05:00", "28T17:00"],
    ),
    "an interval that ends": (
        IntervalTrigger(hours=36, timezone=VIENNA, start_date=BEGIN, end_date=BEGIN + timedelta(hours=36)),
        ["27T00:00", "28T12:00"],
    ),
    "one time": (DateTrigger(BEGIN + DAY, VIENNA), ["28T00:00"]),
    "one time before": (DateTrigger(BEGIN - DAY, VIENNA), []),
    "either": (
        OrTrigger([CronTrigger(hour=2, timezone=VIENNA), CronTrigger(hour=3, timezone=VIENNA)]),
        ["27T01:00", "27T02:00", "28T01:00", "29T00:00", "29T01:00"],
    ),
    "both": (
        AndTrigger([CronTrigger(hour=4, timezone=VIENNA), CronTrigger(hour=4, day_of_week="*", timezone=VIENNA)]),
        ["27T03:00", "28T02:00", "29T02:00"],
    ),
    "both, which do not agree at once": (
        AndTrigger([CronTrigger(hour=4, timezone=VIENNA), CronTrigger(day_of_week="mon", hour="*", timezone=VIENNA)]),
        None,
    ),
    "a calendar interval": (
        CalendarIntervalTrigger(days=1, start_date=date(2027, 1, 1), timezone=VIENNA),
        ["27T23:00", "28T22:00", "29T22:00"],
    ),
    "a calendar interval at a time that the clock skips": (
        CalendarIntervalTrigger(days=1, hour=2, minute=30, start_date=date(2027, 1, 1), timezone=VIENNA),
        ["27T01:30", "29T00:30"],
    ),
    "a calendar interval of months": (
        CalendarIntervalTrigger(months=1, hour=12, start_date=date(2026, 12, 29), timezone="UTC"),
        ["29T12:00"],
    ),
    "a calendar interval of months and days that has ended": (
        CalendarIntervalTrigger(
            months=1, days=1, start_date=date(2026, 12, 24), end_date=date(2027, 3, 26), timezone="UTC"
        ),
        [],
    ),
    "with an interval in it": (
        OrTrigger([IntervalTrigger(days=1, start_date=BEGIN, timezone="UTC"), CronTrigger(hour=5, timezone="UTC")]),
        ["27T00:00", "27T05:00", "28T05:00", "29T05:00"],
    ),
    "an empty time between its bounds": (
        CronTrigger(hour=2, timezone=VIENNA, start_date=BEGIN + DAY, end_date=BEGIN),
        [],
    ),
}


@pytest.mark.parametrize("name", [name for name in TRIGGERS if name != "from a part of a second on"])
def test_a_job_of_apscheduler_3(name: str) -> None:
    trigger, fires = TRIGGERS[name]
    computed = listed("apscheduler", job(trigger))
    assert computed == (None if fires is None else [[f"03-{fire}" for fire in fires]])


def test_a_search_begins_with_a_whole_second() -> None:
    trigger, _ = TRIGGERS["from a part of a second on"]
    [line] = document_fires("apscheduler", None, lambda _: iter([job(trigger)]), [SPRING], 2)
    assert line["fires"] == ["2027-03-27T01:00:20.000000+00:00", "2027-03-27T01:00:40.000000+00:00"]


def test_what_the_clock_repeats_fires_as_the_library_of_each_source_has_it() -> None:
    cron_line = CronTrigger(hour=2, minute=30, timezone=VIENNA)
    fires = listed("apscheduler", job(cron_line), [SPRING, AUTUMN])
    assert fires == [[f"03-{fire}" for fire in NIGHTLY], ["10-30T00:30", "10-31T00:30", "10-31T01:30", "11-01T01:30"]]
    fires = listed("celerybeat", task(crontab={"minute": "30", "hour": "2"}), [SPRING, AUTUMN])
    assert fires == [[f"03-{fire}" for fire in NIGHTLY], ["10-30T00:30", "10-31T00:30", "11-01T01:30"]]


def test_what_the_clock_repeats_fires_once_in_agenda() -> None:
    [line] = document_fires("agenda", None, jobs_alone(of_agenda(**NIGHT)), [AUTUMN], 5)
    assert [fire[5:16] for fire in line["fires"]] == ["10-30T00:30", "10-31T00:30", "11-01T01:30"]


def test_a_job_that_cannot_be_read_has_no_fires() -> None:
    assert listed("apscheduler", {"_id": "a", "next_run_time": 1.0, "job_state": Binary(b"x")}) is None


def schedule(kind: str, **state: Any) -> Document:  # noqa: ANN401 - of a trigger
    """Return the document of a schedule of APScheduler 4 with the serializer JSON."""
    trigger = {"_apscheduler_json": [f"apscheduler.triggers.{kind}", {"version": 1, **state}]}
    fields = {"task_id": "t", "args": b"[]", "kwargs": b"{}", "paused": False, "coalesce": "latest"}
    times = {"misfire_grace_time": None, "max_jitter": None, "next_fire_time": None, "last_fire_time": None}
    return {"_id": "a", "job_executor": "x", "metadata": {}, **fields, **times, "trigger": json.dumps(trigger).encode()}


CRON = ("cron:CronTrigger", {"fields": ["*", "*", "*", "*", "*", "2", "30", "0"], "timezone": VIENNA})
HOURS = ("interval:IntervalTrigger", {"interval": [0, 0, 12, 0, 0, 0]})
DATE = ("date:DateTrigger", {"run_time": "2027-03-28T00:00:00+00:00"})
EARLY = "2027-03-26T02:30:00+01:00"
BOUNDS = {"start_time": "2027-01-01T00:00:00+01:00", "end_time": None}


@pytest.mark.parametrize(
    ("kind", "state", "fires"),
    [
        (CRON, {"last_fire_time": EARLY}, NIGHTLY),
        (CRON, {"last_fire_time": "2027-03-28T03:30:00+02:00"}, ["29T00:30"]),
        (CRON, {"last_fire_time": EARLY, "end_time": "2027-03-28T01:30:00+00:00"}, ["27T01:30", "28T01:30"]),
        (CRON, {"last_fire_time": None, "start_time": EARLY}, NIGHTLY),
        (CRON, {"last_fire_time": None, "start_time": "2027-03-27T01:30:00+00:00"}, None),
        (CRON, {"last_fire_time": "2027-03-26T02:30:00.5+01:00"}, NIGHTLY),
        (HOURS, {"last_fire_time": EARLY}, ["27T01:30", "27T13:30", "28T01:30", "28T13:30", "29T01:30"]),
        (HOURS, {"last_fire_time": EARLY, "end_time": "2027-03-27T14:00:00+00:00"}, ["27T01:30", "27T13:30"]),
        (("interval:IntervalTrigger", {"interval": [0, 0, 0, 0, 0, -5]}), {"last_fire_time": EARLY}, None),
        (DATE, {"completed": False}, ["28T00:00"]),
        (DATE, {"completed": True}, []),
        (
            ("combining:OrTrigger", {"triggers": [["apscheduler.triggers." + CRON[0], {**CRON[1], **BOUNDS}]]}),
            {},
            NIGHTLY,
        ),
        (("combining:AndTrigger", {"triggers": []}), {}, None),
    ],
)
def test_a_schedule_of_apscheduler_4(kind: tuple[str, Document], state: Document, fires: list[str] | None) -> None:
    computed = listed("apscheduler4", schedule(kind[0], **kind[1], **BOUNDS | state))
    assert computed == (None if fires is None else [[f"03-{fire}" for fire in fires]])


def test_an_interval_of_apscheduler_4_is_added_to_what_the_clock_of_its_zone_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The state of a pickle has a zone; that of JSON has an offset."""
    last = datetime(2027, 3, 26, 2, 30, tzinfo=ZoneInfo(VIENNA))
    state = {"version": 1, "interval": [0, 1, 0, 0, 0, 0], "start_time": last, "end_time": None, "last_fire_time": last}
    monkeypatch.setattr(IntervalTrigger, "__getstate__", lambda _: state)  # the class of version 4 has the same name
    document = schedule("interval:IntervalTrigger") | {"trigger": pickle.dumps(IntervalTrigger(days=1), 4)}
    assert listed("apscheduler4", document) == [["03-27T01:30", "03-28T01:30", "03-29T00:30"]]


def task(**fields: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a task of celerybeat-mongo."""
    rule = {"crontab": {"_cls": "Crontab", **fields.pop("crontab")}} if "crontab" in fields else {}
    plain = {"_cls": "PeriodicTask", "name": "a", "task": "t", "args": [], "kwargs": {}, "enabled": True}
    return {"_id": ObjectId("65a000000000000000000001"), **plain, "total_run_count": 0, **rule, **fields}


@pytest.mark.parametrize(
    ("fields", "fires"),
    [
        ({"crontab": {"minute": "30", "hour": "2"}}, NIGHTLY),
        ({"crontab": {"minute": "30", "hour": "2"}, "enabled": False}, NIGHTLY),
        ({"crontab": {"minute": "30", "hour": "2"}, "start_after": LATER.replace(tzinfo=None)}, NIGHTLY),
        ({"crontab": {"minute": "30", "hour": "2"}, "expires": BEGIN.replace(tzinfo=None)}, NIGHTLY),
        ({"interval": {"_cls": "Interval", "every": 36, "period": "hours"}}, ["28T12:00"]),
        ({"interval": {"_cls": "Interval", "every": 5, "period": "microseconds"}}, None),
        ({}, None),
    ],
)
def test_a_task_of_celerybeat(fields: Document, fires: list[str] | None) -> None:
    computed = listed("celerybeat", task(**fields))
    assert computed == (None if fires is None else [[f"03-{fire}" for fire in fires]])


def of_agenda(**fields: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a job of Agenda."""
    return {"_id": ObjectId("65a000000000000000000001"), "name": "a", "type": "normal", "nextRunAt": None, **fields}


NIGHT = {"repeatInterval": "30 2 * * *", "repeatTimezone": VIENNA}
ON_SATURDAY = datetime(2027, 3, 27, 12)  # noqa: DTZ001 - as BSON gives it


@pytest.mark.parametrize(
    ("fields", "fires"),
    [
        (NIGHT, NIGHTLY),
        (NIGHT | {"disabled": True}, NIGHTLY),
        (NIGHT | {"skipDays": [0]}, ["27T01:30", "29T01:30"]),
        (NIGHT | {"startDate": ON_SATURDAY}, ["27T12:00", "28T01:30", "29T00:30"]),
        (NIGHT | {"startDate": ON_SATURDAY, "skipDays": [6, 0]}, ["29T11:00"]),
        (NIGHT | {"endDate": ON_SATURDAY}, ["27T01:30"]),
        (NIGHT | {"skipDays": [0, 1, 2, 3, 4, 5, 6]}, []),
        ({"repeatInterval": "one day and 12 hours"}, ["28T12:00", "30T00:00"]),
        ({"repeatInterval": 36 * 3_600_000}, ["28T12:00", "30T00:00"]),
        ({"repeatInterval": Int64(36 * 3_600_000)}, ["28T12:00", "30T00:00"]),
        ({"repeatInterval": "129600000"}, ["28T12:00", "30T00:00"]),
        ({"repeatInterval": "12.96e7"}, ["28T12:00", "30T00:00"]),
        ({"repeatInterval": "1 day", "repeatTimezone": VIENNA}, ["28T00:00", "29T00:00", "30T00:00"]),
        ({"repeatInterval": "30 2 * * *"}, ["27T02:30", "28T02:30", "29T02:30"]),
        ({"repeatInterval": "0 0 1 1 *"}, []),
        ({"repeatInterval": "0 seconds"}, None),
        ({"repeatAt": "3:30pm"}, None),
        ({"nextRunAt": ON_SATURDAY}, ["27T12:00"]),
        ({"nextRunAt": None}, []),
        ({"repeatAt": "tomorrow at noon"}, None),
        ({"repeatInterval": "whenever"}, None),
        ({"repeatInterval": -1}, None),
        (NIGHT | {"skipDays": "2 days"}, None),
        (NIGHT | {"skipDays": [0, 0]}, None),
        (NIGHT | {"repeatTimezone": "Nowhere"}, None),
        (NIGHT | {"startDate": 5.0}, None),
    ],
)
def test_a_job_of_agenda(fields: Document, fires: list[str] | None) -> None:
    lines = [*document_fires("agenda", None, jobs_alone(of_agenda(**fields)), [SPRING], 5)]
    assert [line["id"] for line in lines] == ["00000000-65a0-0000-0000-000000000001"] * len(lines)
    assert [line["fires"] for line in lines] == ([] if fires is None else [[f"2027-03-{at}:00.000Z" for at in fires]])


def jobs_alone(document: Document) -> Any:  # noqa: ANN401 - see document_fires
    """Return the documents of Agenda's collection; there are none of Pulse."""
    return lambda name: iter([document] if name == "agendaJobs" else [])


def test_no_more_are_computed_than_were_asked_for() -> None:
    every = {"interval": {"_cls": "Interval", "every": 1, "period": "minutes"}}
    assert listed("celerybeat", task(**every), limit=2) == [["03-27T00:01", "03-27T00:02"]]
    for text in ("1 second", "* * * * * *"):
        [line] = document_fires("agenda", None, jobs_alone(of_agenda(repeatInterval=text)), [SPRING], 2)
        assert line["fires"] == ["2027-03-27T00:00:01.000Z", "2027-03-27T00:00:02.000Z"]
    trigger = IntervalTrigger(minutes=1, start_date=BEGIN, timezone="UTC")
    assert listed("apscheduler", job(trigger), limit=2) == [["03-27T00:00", "03-27T00:01"]]


def test_other_sources_have_no_fires_here() -> None:
    assert listed("shedlock", {"_id": "a"}) is None


def test_the_zone_is_that_of_the_option() -> None:
    assert (zone_of({"timezone": VIENNA}), zone_of({})) == (VIENNA, None)
