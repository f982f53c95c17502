"""celerybeat-mongo's periodic tasks, moved into the tables of two libraries, and listed, computed and sent by them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pytest
from bson import ObjectId
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.parity.check import check_parity
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.result import NAMED_LOSS
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import Line, MongoStore, PostgresStore
from migrator.testing.servers.mongo import MongoServer
from migrator.values.identity import source_id
from tests.copying import quarantine, settings_for
from tests.native_tables import BY_NAME, Made, ask, prepare
from tests.real_documents import real_documents
from tests.tailing import caught_up, compared

Document = dict[str, Any]
SCHEDULES = "schedules"
ZONE = "Europe/Vienna"
OPTIONS = {"timezone": ZONE, "host_timezone": ZONE}
SQLALCHEMY, DJANGO = BY_NAME["sqlalchemy-celery-beat-0.9"], BY_NAME["django-celery-beat-2.9"]
both = pytest.mark.parametrize("made", [pytest.param(made, id=made.target) for made in (SQLALCHEMY, DJANGO)])
PREFIX = {SQLALCHEMY.target: "celery_", DJANGO.target: "django_celery_beat_"}
NOW = datetime(2026, 11, 24, 9, 30, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def naive(time: datetime) -> datetime:
    """Return a time in UTC as BSON has it."""
    return time.astimezone(UTC).replace(tzinfo=None)


def task(name: str, rule: Any, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as celerybeat-mongo writes one; ``rule``: a number of hours, or fields of a crontab."""
    if isinstance(rule, int):
        kind: Document = {"interval": {"_cls": "Interval", "every": rule, "period": "hours"}}
    else:
        every = dict.fromkeys(("minute", "hour", "day_of_week", "day_of_month", "month_of_year"), "*")
        kind = {"crontab": {"_cls": "Crontab", **every, **rule}}
    plain: Document = {"args": [], "kwargs": {}, "enabled": True, "total_run_count": 0, "max_run_count": 0}
    made = {"_id": ObjectId(), "_cls": "PeriodicTask", "name": name, "task": "demo.task", **kind, **plain, **changes}
    return {key: value for key, value in made.items() if value is not None}


EVERY_KIND = (
    *(
        task(period, 1, interval={"_cls": "Interval", "every": 7, "period": period})
        for period in ("days", "hours", "minutes", "seconds", "microseconds")
    ),
    task("numbers", 1, interval={"every": 3.0, "period": "hours"}),
    task("crontab numbers", {"minute": 5, "hour": 6}),
    task("everything", {"minute": "*/10", "hour": "8-18/2", "day_of_week": "mon-fri"})
    | {"queue": "slow", "exchange": "topic", "routing_key": "a.b", "description": "of all kinds \u2713"}
    | {"args": [1, 2.5, None, {"a": ["\u00e4", True]}], "kwargs": {"at": naive(NOW), "n": 2**40}}
    | {"expires": naive(NOW + 5 * HOUR), "last_run_at": naive(NOW - HOUR), "total_run_count": 9},
    task("disabled", 1, enabled=False),
    task("no word of enabled", 1, enabled=None),
    task("reached", 1, total_run_count=3, max_run_count=3),
    task("once", 1, max_run_count=1),
    task("after", 1, start_after=datetime(2027, 3, 28, 2, 30)),  # noqa: DTZ001 - local, and in a gap of the clock
)


def prepared(made: Made, database: Database[Document], dsn: str, documents: Sequence[Document]) -> Settings:
    """Let the library make its tables, and the tool its schema; return the settings."""
    if documents:
        database[SCHEDULES].insert_many(documents)
    prepare(made, dsn)
    target = TargetSettings(name=made.target, options=OPTIONS)
    settings = settings_for(database, dsn, profile="celerybeat", target=target)
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target(made.target), settings.target)
    return settings


def rows(made: Made, dsn: str, table: str, *columns: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        query = f"SELECT {', '.join(columns)} FROM {PREFIX[made.target]}{table} ORDER BY 1"
        return connection.execute(query.encode()).fetchall()


def listed(made: Made, store: PostgresStore | MongoStore) -> dict[str, Line]:
    answer = ask(made, store, "entries", options=OPTIONS)
    assert [line for line in answer if line["kind"] == "failed"] == []
    return {line["id"]: line for line in answer[:-1]}


def time_of(text: str | None) -> datetime | None:
    return None if text is None else naive(datetime.fromisoformat(text))


def said(document: Document) -> Document:
    """Return the fields of a document that a library can say as they stand there."""
    names = ("task", "queue", "exchange", "routing_key", "description", "expires", "last_run_at")
    return {name: document.get(name) for name in names} | {"total_run_count": int(document["total_run_count"])}


@pytest.mark.proves("6-T5")
@both
def test_the_library_lists_every_task_as_the_document_says(
    made: Made, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    documents = [*real_documents("celerybeat-mongo/ticked"), *real_documents("celerybeat-mongo/schedules"), *EVERY_KIND]
    documents = [*{one["name"]: one for one in documents}.values()]
    settings = prepared(made, mongo_database, postgres_dsn, documents)
    result = backfill(settings, Scope())
    assert (quarantine(postgres_dsn), result.quarantined) == ([], 0)
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0
    entries = listed(made, PostgresStore(postgres_dsn))
    assert entries.keys() == {one["name"] for one in documents}
    originals = listed(made, MongoStore(mongo_server.uri, mongo_database.name))
    for document in documents:
        fields, schedule = entries[document["name"]]["fields"], entries[document["name"]]["schedule"]
        times = {name: time_of(fields[name]) for name in ("expires", "last_run_at")}
        assert {name: (fields | times)[name] for name in said(document)} == said(document)
        reached = document.get("max_run_count") and document["total_run_count"] >= document["max_run_count"]
        assert fields["enabled"] == bool(document.get("enabled") and not reached)
        assert fields["once"] == (document.get("max_run_count") == 1)
        if "crontab" in document:
            every = dict.fromkeys(("minute", "hour", "day_of_month", "month_of_year", "day_of_week"), "*")
            held = every | {name: str(value) for name, value in document["crontab"].items() if name != "_cls"}
            assert schedule == held | {"zone": ZONE}
        else:
            rule = document["interval"]
            assert schedule == {"every": timedelta(**{rule["period"]: rule["every"]}).total_seconds()}
        told = originals[document["name"]]
        assert schedule == told["schedule"]
        assert {name: fields[name] for name in told["fields"] if name != "enabled"} == {
            name: value for name, value in told["fields"].items() if name != "enabled"
        }, "celerybeat-mongo itself says the same, also of args and kwargs"
    assert entries["after"]["fields"]["start"] == "2027-03-28T01:00:00.000000+00:00", "the end of the gap"
    assert ["n", 2**40] in entries["everything"]["fields"]["kwargs"]["dict"]


@both
def test_a_row_that_says_something_else_is_seen(
    made: Made, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    settings = prepared(made, mongo_database, postgres_dsn, [task("a", 1), task("b", {"minute": "5"})])
    backfill(settings, Scope())
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"UPDATE {PREFIX[made.target]}crontabschedule SET minute = '6'".encode())
        connection.execute(f"UPDATE {PREFIX[made.target]}periodictask SET args = '[1]' WHERE name = 'a'".encode())
    entries, originals = (
        listed(made, store)
        for store in (PostgresStore(postgres_dsn), MongoStore(mongo_server.uri, mongo_database.name))
    )
    assert entries["b"]["schedule"] != originals["b"]["schedule"]
    assert entries["a"]["fields"]["args"] != originals["a"]["fields"]["args"]
    assert sorted((key, side) for _, key, side, _ in compared(settings)) == sorted(
        (source_id(one["_id"]), "row") for one in mongo_database[SCHEDULES].find()
    )


@pytest.mark.proves("6-T5")
@both
def test_the_next_fires_are_those_of_the_documents(
    made: Made, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    documents = [*real_documents("celerybeat-mongo/ticked"), task("night", {"minute": "30", "hour": "2"})]
    settings = prepared(made, mongo_database, postgres_dsn, documents)
    backfill(settings, Scope())
    windows = [
        (NOW, NOW + timedelta(days=366)),
        *((change - 24 * HOUR, change + 24 * HOUR) for change in map(changed, ((2027, 3, 28), (2027, 10, 31)))),
    ]
    stores = (PostgresStore(postgres_dsn), MongoStore(mongo_server.uri, mongo_database.name))
    left, right = (
        ask(made, one, "fires", windows=windows, limit=400, options={"timezone": ZONE})[:-1] for one in stores
    )
    documented = {one["name"]: source_id(one["_id"]) for one in documents}
    assert [line | {"document": documented[line["id"]]} for line in left] == right
    assert {line["kind"] for line in left} == {"fires"}
    assert len(left) == len(documents) * len(windows)
    year, spring, autumn = (line["fires"] for line in left if line["id"] == "night")
    assert len(year) == 366
    assert [fire[11:16] for fire in spring] == ["01:30", "01:30", "00:30"], "after the gap, which has no 02:30"
    assert [fire[8:16] for fire in autumn] == ["31T00:30", "01T01:30"], "once, though the clock shows 02:30 twice"


def changed(day: tuple[int, int, int]) -> datetime:
    return datetime(*day, 3, tzinfo=ZoneInfo(ZONE)).astimezone(UTC)


@pytest.mark.proves("6-T5")
@both
def test_beat_sends_each_due_task_once_and_no_other(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    long_ago = {"last_run_at": naive(NOW - 3 * HOUR)}
    local = NOW.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None)
    due = [
        task("hours", 2, **long_ago, args=[1], kwargs={"b": 2}, queue="slow"),
        task("crontab", {"minute": "30"}, **long_ago, exchange="topic", routing_key="a.b"),
        task("local time", {"minute": "30", "hour": "10"}, **long_ago),
        task("begun", 1, **long_ago, start_after=local - timedelta(minutes=1)),
        task("expiring", 1, **long_ago, expires=naive(NOW + HOUR)),
        task("once", 1, **long_ago, max_run_count=1),
    ]
    others = [
        task("disabled", 1, **long_ago, enabled=False),
        task("no word of enabled", 1, **long_ago, enabled=None),
        task("not yet", 4, **long_ago),
        task("other local time", {"minute": "30", "hour": "9"}, last_run_at=naive(NOW - timedelta(minutes=30))),
        task("not begun", 1, **long_ago, start_after=local + timedelta(minutes=1)),
        task("reached", 1, **long_ago, total_run_count=3, max_run_count=3),
        task("once, and it was", 1, **long_ago, total_run_count=1, max_run_count=1),
    ]
    settings = prepared(made, mongo_database, postgres_dsn, [*due, *others])
    assert backfill(settings, Scope()).quarantined == 0
    answer = ask(made, PostgresStore(postgres_dsn), "work", now=NOW, scratch=True, options={"timezone": ZONE})
    sent = [line for line in answer if line["kind"] == "execution"]
    assert sorted((line["id"], line["beat"]) for line in sent) == sorted((one["name"], 0) for one in due)
    by_name = {line["id"]: line for line in sent}
    hours = by_name["hours"]
    assert (hours["args"], hours["kwargs"], hours["queue"]) == ({"list": [1]}, {"dict": [["b", 2]]}, "slow")
    assert (by_name["crontab"]["exchange"], by_name["crontab"]["routing_key"]) == ("topic", "a.b")
    assert time_of(by_name["expiring"]["expires"]) == naive(NOW + HOUR)
    counts = dict(rows(made, postgres_dsn, "periodictask", "name", "total_run_count"))
    assert {name for name, count in counts.items() if count == 1} >= {one["name"] for one in due} - {"once"}
    assert counts["disabled"] == counts["not yet"] == 0


def wrong(made: Made) -> dict[str, list[Document]]:
    """Return documents that do not fit, by what is said of them."""
    longest = {SQLALCHEMY.target: 255, DJANGO.target: 200}[made.target]
    return {
        "unknown-value at interval.period": [task("weeks", 1, interval={"every": 1, "period": "weeks"})],
        "out-of-range at interval.every": [
            task("never", 1, interval={"every": 0, "period": "hours"}),
            task("too far", 1, interval={"every": 2**31, "period": "microseconds"}),
        ],
        "wrong-type at interval": [task("no object", 1, interval="hourly")],
        "too-long at name": [task("n" * (longest + 1), 1)],
        "too-long at task": [task("task", 1, task="t" * (longest + 1))],
        "too-long at queue": [task("queue", 1, queue="q" * (longest + 1))],
        "too-long at crontab.minute": [task("long", {"minute": ",".join(["10"] * 81)})],
        "too-long at crontab.day_of_week": [task("long day", {"day_of_week": ",".join(["1"] * 33)})],
        "unknown-value at crontab.minute": [task("99", {"minute": "99"}), task("blank", {"minute": " "})],
        "unknown-value at crontab.month_of_year": [task("month", {"month_of_year": "smarch"})],
        "unknown-value at crontab.day_of_week": [task("spaced", {"day_of_week": "sun, mon"})],
        "unknown-value at crontab": [task("both", 1, crontab={"minute": "5"})],
        "unknown-value at ": [task("neither", 1, interval=None)],
        "wrong-type at args": [task("args", 1, args={"a": 1}), task("id", 1, args=[ObjectId()])],
        "wrong-type at kwargs": [
            task("kwargs", 1, kwargs={"a": {"$b": 1}}),
            task("bytes", 1, kwargs={"a": [b"celerybeat-mongo would send a list of numbers"]}),
        ],
        "wrong-type at exchange": [task("exchange", 1, exchange=5)],
        "out-of-range at total_run_count": [
            task("count", 1, total_run_count=-1),
            task("counts", 1, total_run_count=2**31),
        ],
        "bad-date at start_after": [task("soon", 1, start_after="soon")],
        "missing-field at task": [task("no task", 1, task=None)],
        "duplicate-key at ": [task("good", {"minute": "5"})],
    }


@both
def test_what_the_tables_cannot_hold_is_quarantined_alone(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    good = task("good", 1)  # with the smaller _id of the two of this name
    expected = wrong(made)
    others = [document for documents in expected.values() for document in documents]
    settings = prepared(made, mongo_database, postgres_dsn, [good, *others])
    backfill(settings, Scope())
    reasons = sorted(f"{reason} at {path}" for _, _, reason, path, _ in quarantine(postgres_dsn))
    assert reasons == sorted(reason for reason, documents in expected.items() for _ in documents)
    assert rows(made, postgres_dsn, "periodictask", "name") == [("good",)]
    assert len(rows(made, postgres_dsn, "intervalschedule", "id")) == 1
    assert rows(made, postgres_dsn, "crontabschedule", "id") == []
    assert compared(settings) == []


@both
def test_what_has_no_column_is_a_loss_by_name(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    documents = [
        task("many", 1, max_run_count=7, soft_time_limit=30, run_immediately=True, date_changed=naive(NOW)),
        task("none", 1, max_run_count=0, run_immediately=False),
    ]
    settings = prepared(made, mongo_database, postgres_dsn, documents)
    backfill(settings, Scope())
    outcome = check_parity(settings, Scope())
    lost = {note.path: note.count for one in outcome.collections for note in one.notes if note.cause == NAMED_LOSS}
    dated = {} if made is SQLALCHEMY else {"date_changed": 1}
    assert lost == {"max_run_count": 1, "soft_time_limit": 1, "run_immediately": 1} | dated


@both
def test_the_tail_follows_and_repair_repairs(made: Made, mongo_database: Database[Document], postgres_dsn: str) -> None:
    schedules = mongo_database[SCHEDULES]
    documents = [task(name, 1) for name in ("becomes a crontab", "is renamed", "is deleted")]
    settings = prepared(made, mongo_database, postgres_dsn, documents)
    backfill(settings, Scope())
    before = dict(rows(made, postgres_dsn, "periodictask", "name", "id"))
    crontab = task("", {"minute": "5"})["crontab"]
    schedules.update_one({"name": "becomes a crontab"}, {"$set": {"crontab": crontab}, "$unset": {"interval": ""}})
    schedules.update_one({"name": "is renamed"}, {"$set": {"name": "renamed", "enabled": False}})
    schedules.delete_one({"name": "is deleted"})
    schedules.insert_one(task("new", {"hour": "3"}))
    caught_up(settings)
    after = dict(rows(made, postgres_dsn, "periodictask", "name", "id"))
    assert after.keys() == {"becomes a crontab", "renamed", "new"}
    assert (after["becomes a crontab"], after["renamed"]) == (before["becomes a crontab"], before["is renamed"])
    assert len(rows(made, postgres_dsn, "intervalschedule", "id")) == 1
    assert len(rows(made, postgres_dsn, "crontabschedule", "id")) == 2
    entries = listed(made, PostgresStore(postgres_dsn))
    assert entries["becomes a crontab"]["schedule"]["minute"] == "5"
    assert entries["new"]["schedule"]["hour"] == "3"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"UPDATE {PREFIX[made.target]}crontabschedule SET minute = '7'".encode())
    assert compared(settings) != []
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []


@both
def test_the_row_by_which_beat_notices_changes_is_left_to_the_library(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    settings = prepared(made, mongo_database, postgres_dsn, [task("a", 1)])
    backfill(settings, Scope())
    table = {SQLALCHEMY.target: "periodictaskchanged", DJANGO.target: "periodictasks"}[made.target]
    assert rows(made, postgres_dsn, table, "last_update") == []
