"""Celery's schedules and results, mongodb-queue and mongodb-cron: real documents on real servers."""

from datetime import UTC, datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import psycopg
import pytest
from bson.binary import Binary
from bson.objectid import ObjectId
from celery import Celery
from celery.schedules import crontab
from psycopg.rows import dict_row
from pymongo.database import Database

from migrator import cron
from migrator.config import Settings, SourceSettings
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from tests.copying import number, quarantine, settings_for
from tests.real_documents import real_documents
from tests.tailing import caught_up

Document = dict[str, Any]
VIENNA = "Europe/Vienna"
EVERY = {"_cls": "Interval", "every": 5, "period": "seconds"}
LINE = {"_cls": "Crontab", "minute": "30", "hour": "2", "day_of_week": "*", "day_of_month": "*", "month_of_year": "*"}


def settings_of(database: Database[Document], dsn: str, profile: str, **source: Any) -> Settings:  # noqa: ANN401 - a setting
    settings = settings_for(database, dsn)
    return msgspec.structs.replace(settings, source=SourceSettings(profile=profile, default_tenant="house", **source))


def rows(dsn: str, query: str) -> list[dict[str, Any]]:
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        return connection.execute(query.encode()).fetchall()


def reasons(dsn: str) -> list[tuple[str, str]]:
    return sorted((reason, path) for _, _, reason, path, _ in quarantine(dsn))


def measures_of_equal_sides(settings: Settings) -> set[str]:
    """Compare both sides, which must be equal; return what was aggregated."""
    outcome = check_parity(settings, Scope())
    for one in outcome.collections:
        assert (one.collection, one.differing, one.missing, one.extra, one.unverified) == (one.collection, 0, 0, 0, "")
    for figure in outcome.aggregates:
        assert (figure.measure, figure.differing_total, figure.unverified) == (figure.measure, 0, "")
    return {figure.measure for figure in outcome.aggregates}


def schedule(name: str, **fields: Any) -> Document:  # noqa: ANN401 - any value of a field
    document = {
        "_id": ObjectId(),
        "_cls": "PeriodicTask",
        "name": name,
        "task": "demo.task",
        "interval": EVERY,
        "args": [],
        "kwargs": {},
        "enabled": True,
        "total_run_count": 0,
        "max_run_count": 0,
        "run_immediately": False,
    } | fields
    return {key: value for key, value in document.items() if value is not None}


BEAT = [
    *real_documents("celerybeat-mongo/schedules"),
    *real_documents("celerybeat-mongo/ticked"),
    schedule("both", crontab=LINE),
    schedule("no period", interval=EVERY | {"every": 0}),
    schedule("unknown period", interval=EVERY | {"period": "weeks"}),
    schedule("number", task=7),
    schedule("text for a list", args="text"),
    schedule("a name that MongoEngine refuses", kwargs={"a": [{"$b": 1}]}),
    schedule("a number for a text", routing_key=7),
    schedule("bad line", interval=None, crontab=LINE | {"minute": "5/2"}),
    schedule("at sunset", interval=None, solar={"event": "sunset"}),
    schedule("from eight", start_after=datetime(2026, 12, 24, 8, 30), extra={"a": 1}),  # noqa: DTZ001 - a local time
]
TRIGGERS = "SELECT * FROM scheduler.schedules s JOIN scheduler.triggers t ON t.schedule_id = s.id ORDER BY name"


@pytest.mark.proves("5-S2")
def test_schedules_of_beat_are_equal_or_quarantined_for_a_reason(
    mongo_database: Database[Document], scheduler_dsn: str
) -> None:
    mongo_database["schedules"].insert_many(BEAT)
    settings = settings_of(mongo_database, scheduler_dsn, "celerybeat", zone=VIENNA)
    assert backfill(settings, Scope()).complete
    assert reasons(scheduler_dsn) == [
        ("out-of-range", "interval"),
        ("unknown-value", "interval.period"),
        ("wrong-kind", ""),
        ("wrong-type", "args"),
        ("wrong-type", "kwargs"),
        ("wrong-type", "routing_key"),
        ("wrong-type", "task"),
    ]
    assert measures_of_equal_sides(settings) >= {"enabled", "soft_time_limit", "schedules.status"}
    made = {row["name"]: row for row in rows(scheduler_dsn, TRIGGERS)}
    assert len(made) == len(BEAT) - 7 - 2, "a bad line and the sun make no trigger"
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.schedules") == len(made) + 2
    nightly = made["nightly"]
    assert (nightly["handler_name"], nightly["handler_type"]) == ("demo.report", "celery_task")
    assert nightly["metadata"] == {"exchange": "default", "routing_key": "reports", "run_immediately": False}
    assert (nightly["cron_expression"], nightly["cron_dialect"]) == ("30 2 * * mon-fri", "celery")
    assert (nightly["timezone"], nightly["max_fires"], nightly["timeout_ms"]) == (VIENNA, 100, 60_000)
    assert nightly["start_at"] == datetime(2026, 1, 1, 7, 0, 0, 123_000, tzinfo=UTC), "08:00 in Vienna"
    assert nightly["end_at"] == datetime(2031, 1, 1, tzinfo=UTC), "Celery reads it as UTC"
    assert made["every-30s"]["payload"] == {"args": [1, "two", 3.5], "kwargs": {"a": 1, "deep": {"list": [1, 2]}}}
    assert (made["every-30s"]["interval_ms"], made["every-30s"]["queue"]) == (30_000, "fast")
    assert (made["disabled-one"]["status"], made["disabled-one"]["enabled"]) == ("paused", False)
    assert (made["hand-inserted"]["interval_ms"], made["hand-inserted"]["fire_count"]) == (600_000, 0)
    assert made["from eight"]["start_at"] == datetime(2026, 12, 24, 7, 30, tzinfo=UTC)
    assert made["hours"]["max_fires"] == made["hours"]["fire_count"] == 3
    assert made["every-30s"]["max_fires"] is None, "0 is no limit"
    kept = {row["name"]: row["extra"] for row in rows(scheduler_dsn, "SELECT name, extra FROM scheduler.schedules")}
    assert kept["nightly"] == kept["hours"] == kept["disabled-one"] == {}
    assert kept["from eight"] == {"+extra": {"a": 1}}
    assert kept["at sunset"] == {"+solar": {"event": "sunset"}, "+max_run_count": 0, "+total_run_count": 0}


def test_the_tail_follows_beat(mongo_database: Database[Document], scheduler_dsn: str) -> None:
    schedules = mongo_database["schedules"]
    schedules.insert_many(real_documents("celerybeat-mongo/ticked"))
    settings = settings_of(mongo_database, scheduler_dsn, "celerybeat", zone=VIENNA)
    backfill(settings, Scope())
    ran = datetime(2026, 11, 23, tzinfo=UTC)
    schedules.update_one({"name": "hours"}, {"$set": {"last_run_at": ran}, "$inc": {"total_run_count": 1}})
    schedules.delete_one({"name": "now"})
    schedules.insert_one(schedule("new"))
    caught_up(settings)
    measures_of_equal_sides(settings)
    made = {row["name"]: row for row in rows(scheduler_dsn, TRIGGERS)}
    assert (made["hours"]["fire_count"], made["hours"]["last_fire_at"]) == (4, ran)
    assert "new" in made
    assert "now" not in made


def test_without_a_zone_what_depends_on_it_is_quarantined(
    mongo_database: Database[Document], scheduler_dsn: str
) -> None:
    mongo_database["schedules"].insert_many(
        [schedule("often"), BEAT[-1], schedule("line", interval=None, crontab=LINE)]
    )
    settings = settings_of(mongo_database, scheduler_dsn, "celerybeat")
    backfill(settings, Scope())
    assert reasons(scheduler_dsn) == [("no-zone", "crontab"), ("no-zone", "start_after")]
    assert [row["name"] for row in rows(scheduler_dsn, TRIGGERS)] == ["often"]


@pytest.mark.proves("5-S2")
def test_the_next_fires_of_what_was_stored_are_those_of_celery(
    mongo_database: Database[Document], scheduler_dsn: str
) -> None:
    real = [one for name in ("schedules", "ticked") for one in real_documents(f"celerybeat-mongo/{name}")]
    mongo_database["schedules"].insert_many(real)
    backfill(settings_of(mongo_database, scheduler_dsn, "celerybeat", zone=VIENNA), Scope())
    stored = {row["name"]: row for row in rows(scheduler_dsn, TRIGGERS) if row["kind"] == "cron"}
    assert len(stored) == 9
    for document in real:
        if "crontab" not in document:
            continue
        moments = [datetime(2026, 10, 24, 20, tzinfo=UTC)]  # the night in which the clock is set back
        fields = {name: value for name, value in document["crontab"].items() if name != "_cls"}
        theirs = crontab(**fields, app=Celery(set_as_current=False), nowfun=partial(itemgetter(-1), moments))
        theirs.tz = ZoneInfo(VIENNA)
        row = stored[document["name"]]
        for fire in cron.next_fires(row["cron_dialect"], row["cron_expression"], row["timezone"], moments[0], 20):
            assert fire == moments[-1] + theirs.remaining_estimate(moments[-1]), document["name"]
            moments.append(fire + timedelta(milliseconds=5))


@pytest.mark.proves("5-S2")
def test_results_of_tasks(mongo_database: Database[Document], scheduler_dsn: str) -> None:
    tasks = real_documents("celery-results/celery_taskmeta")
    mongo_database["celery_taskmeta"].insert_many(tasks)
    mongo_database["celery_taskmeta"].insert_one(tasks[0] | {"_id": "of-a-future-version", "status": "POSTPONED"})
    mongo_database["celery_groupmeta"].insert_many(real_documents("celery-results/celery_groupmeta"))
    settings = settings_of(mongo_database, scheduler_dsn, "celery-results")
    backfill(settings, Scope())
    unfinished = [one for one in tasks if one["date_done"] is None]
    assert len(unfinished) == 20
    expected = [("missing-field", "date_done")] * 20 + [("unknown-value", "status")]
    assert reasons(scheduler_dsn) == expected, "a task that has not ended has no time"
    assert measures_of_equal_sides(settings) >= {"status", "date_done", "retries"}
    runs = {row["external_task_id"]: row for row in rows(scheduler_dsn, "SELECT * FROM scheduler.runs")}
    states = {"SUCCESS": "completed", "FAILURE": "error", "REVOKED": "cancelled"}
    for one in tasks:
        if one not in unfinished:
            assert runs[one["_id"]]["state"] == states[one["status"]]
    report = runs["report-extended"]
    assert report["metadata"] == {
        "name": "demo.add",
        "args": [1],
        "kwargs": {"y": 2},
        "queue": "extended",
        "children": [],
    }
    assert (report["result"], report["attempt"], report["worker_id"], report["extra"]) == (3, 1, "vm", {})
    [failed] = [runs[one["_id"]] for one in tasks if one["status"] == "FAILURE" and one.get("queue") == "extended"]
    assert failed["error_detail"].startswith("Traceback (most recent call last):")
    assert failed["result"]["exc_type"] == "ValueError"
    for one in tasks:
        if isinstance(one["result"], Binary | bytes) and one not in unfinished:
            assert runs[one["_id"]]["result"] is None, "a pickle is kept, and never read"
    [odd] = [one for one in tasks if "NaN" in str(one["result"]) and "name" not in one]
    assert runs[odd["_id"]]["extra"]["+result"] == odd["result"]
    groups = rows(scheduler_dsn, "SELECT entity_id, metadata FROM scheduler.audit WHERE action = 'group-saved'")
    assert sorted(len(row["metadata"] or ()) for row in groups) == [0, 0, 3, 3]


@pytest.mark.proves("5-S2")
def test_messages_of_a_queue(mongo_database: Database[Document], scheduler_dsn: str) -> None:
    messages = real_documents("mongodb-queue/queue")
    mongo_database["mail"].insert_many(
        [
            *messages,
            *real_documents("mongodb-queue/dead"),
            {"_id": "own id", "visible": "2026-11-22T12:00:00.000Z", "payload": 1},
            {"_id": ObjectId(), "visible": "soon", "payload": 1},
        ]
    )
    settings = settings_of(mongo_database, scheduler_dsn, "mongodb-queue", collections={"queue": "mail"})
    backfill(settings, Scope())
    assert reasons(scheduler_dsn) == [("bad-date", "visible"), ("wrong-type", "_id")]
    assert measures_of_equal_sides(settings) >= {"visible", "tries", "deleted", "runs.state", "_id"}
    states = rows(scheduler_dsn, "SELECT state, count(*) FROM scheduler.runs GROUP BY state ORDER BY state")
    assert [tuple(row.values()) for row in states] == [("completed", 3), ("queued", 6), ("running", 2)]
    [poison] = rows(scheduler_dsn, "SELECT * FROM scheduler.runs WHERE attempt = 2")
    assert (poison["metadata"], poison["state"], poison["extra"]) == ({"poison": True}, "completed", {})
    assert poison["external_task_id"] == next(one["ack"] for one in messages if one.get("tries") == 2)
    assert poison["created_at"] < poison["finished_at"] < poison["available_at"]


@pytest.mark.proves("5-S2")
def test_documents_of_mongodb_cron(mongo_database: Database[Document], scheduler_dsn: str) -> None:
    mongo_database["jobs"].insert_many(real_documents("mongodb-cron/jobs"))
    mongo_database["jobs"].insert_one({"_id": 7, "interval": ["0 0 12 * * *"], "sleepUntil": None})
    settings = settings_of(mongo_database, scheduler_dsn, "mongodb-cron", zone=VIENNA)
    backfill(settings, Scope())
    assert reasons(scheduler_dsn) == [("wrong-type", "interval")]
    measures_of_equal_sides(settings)
    query = TRIGGERS.replace("SELECT *", "SELECT s.extra ->> '+name' AS called, s.status, t.*")
    made = {row["called"]: row for row in rows(scheduler_dsn, query.replace("ORDER BY name", "ORDER BY 1"))}
    assert made.keys() == {
        "every two seconds",
        "at night",
        "it has ended",
        "five fields",
        "later",
        "not started",
        "stopped",
        "held",
    }, "one without a line that ended has nothing to fire for"
    night = made["at night"]
    assert (night["cron_expression"], night["cron_dialect"], night["timezone"]) == ("0 30 2 * * 1-5", "agenda", VIENNA)
    assert night["end_at"] == datetime(2027, 6, 30, tzinfo=UTC)
    assert night["next_fire_at"] == cron.next_fire(
        "agenda", "0 30 2 * * 1-5", "UTC", datetime(2026, 11, 22, 23, tzinfo=UTC)
    )
    assert {name for name, row in made.items() if not row["enabled"]} == {"it has ended", "not started", "stopped"}
