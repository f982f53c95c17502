"""Agenda, and a source of a mapping file, there and back: their documents are the application's own.

After a rollback the documents are read here by hand, in the application's fields. Then the tail and a parity check
find nothing to do, and the next cutover goes through.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import bson
import psycopg
import pytest
from bson.objectid import ObjectId

from migrator.cutover import reverse_sync, rollback
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.records import Schedule
from migrator.sources import write_back
from migrator.store.protocols import ScheduleQuery
from migrator.testing.servers.mongo import MongoServer
from migrator.values import identity, jsonb
from migrator.verify import rehearsal
from tests import cutting_over, store_postgres
from tests.conftest import fresh_name
from tests.copying import TENANT
from tests.cutting_over import FAR, Scene, own_scene, scene
from tests.ordinary_user import hand_over, ordinary_folder
from tests.store_postgres import run, schedule, trigger

NOON: Final = datetime(2037, 11, 23, 12, tzinfo=UTC)
"""Later than the runs of the documents, and ahead, so that nothing is overdue."""
SECOND: Final = timedelta(seconds=1)
Document = dict[str, Any]


@pytest.fixture
def ready(request: pytest.FixtureRequest, auth_server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    with own_scene(auth_server, scheduler_dsn, request.param) as made:
        yield made


def documents(scene: Scene) -> dict[tuple[str, Any], Document]:
    return {
        (name, str(one["_id"])): one
        for name in scene.database.list_collection_names()
        if name not in (reverse_sync.FENCE_COLLECTION, "locks")
        for one in scene.database[name].find()
    }


def changed(before: dict[Any, Document], after: dict[Any, Document]) -> dict[Any, Document | None]:
    """Return the fields that differ, by document; None: there is no such document any more."""
    absent = object()
    return {
        key: {
            name: after[key].get(name)
            for name in {**before.get(key, {}), **after[key]}
            if before.get(key, {}).get(name, absent) != after[key].get(name, absent)
        }
        if key in after
        else None
        for key in {**before, **after}
        if key not in before or key not in after or bson.encode(before[key]) != bson.encode(after[key])
    }


def write(scene: Scene, sql: str, *given: object) -> int:
    with psycopg.connect(scene.dsn) as connection:
        return connection.execute(sql.encode(), given).rowcount


def counted(scene: Scene) -> dict[str, int]:
    """Return table → rows that were created on PostgreSQL."""
    tables = ("schedules", "triggers", "runs", "execution_logs", "audit")
    with psycopg.connect(scene.dsn) as connection:
        rows = " UNION ALL ".join(f"SELECT '{one}' FROM scheduler.{one} WHERE source IS NULL" for one in tables)
        return Counter(row[0] for row in connection.execute(rows.encode()).fetchall())


def again(scene: Scene) -> None:
    """Follow, compare: nothing differs."""
    close_cached()
    with Tail(scene.settings) as tail:
        tail.run("caught-up")
    outcome = check_and_record(scene.settings)
    assert is_clean(outcome), [(one.collection, one.differing, one.missing, one.extra) for one in outcome.collections]
    assert counted(scene) == {}


@pytest.mark.parametrize("ready", ["acme", "agenda", "celerybeat"], indirect=True)
def test_the_way_back_is_rehearsed_in_scratch_databases(ready: Scene) -> None:
    done = rehearsal.rehearse_reverse_sync(ready.settings)
    assert (done.wrong, done.written) == ((), 11 if ready.profile == "acme" else 6)


@pytest.mark.parametrize("ready", ["celerybeat"], indirect=True)
def test_celery_beat_goes_there_and_back(ready: Scene) -> None:
    """Documents that were created here are such as beat finds and reads."""
    before = documents(ready)
    ids = {one["name"]: key for key, one in before.items()}
    ready.switch()
    assert changed(before, documents(ready)) == {}, "nothing was written, so nothing changes"
    of_hours = "schedule_id = (SELECT id FROM scheduler.schedules WHERE name = %s)"
    fired = "UPDATE scheduler.triggers SET fire_count = fire_count + 1, last_fire_at = %s"
    write(ready, f"{fired} WHERE {of_hours}", NOON, "workdays")
    write(ready, f"UPDATE scheduler.triggers SET end_at = %s, max_fires = 9 WHERE {of_hours}", NOON, "routed")
    write(ready, f"UPDATE scheduler.triggers SET start_at = %s WHERE {of_hours}", NOON, "hours")
    paused = "UPDATE scheduler.schedules SET status = 'paused', enabled = false, updated_at = %s WHERE name = %s"
    write(ready, paused, NOON, "spaces")
    write(ready, f"UPDATE scheduler.triggers SET enabled = false WHERE {of_hours}", "spaces")
    write(ready, "UPDATE scheduler.schedules SET deleted_at = now(), updated_at = now() WHERE name = 'now'")
    with store_postgres.opened(ready.dsn) as store, store.session(TENANT, now=NOON) as session:
        often = session.schedules.upsert(schedule(TENANT, name="often", handler_name="demo.often", created_at=NOON))
        session.triggers.upsert(trigger(often, next_fire_at=NOON))
        daily = session.schedules.upsert(schedule(TENANT, name="daily", handler_name="demo.daily", created_at=NOON))
        line = {"cron_expression": "15 4 * * mon", "cron_dialect": "celery", "timezone": "Europe/Vienna"}
        session.triggers.upsert(trigger(daily, kind="cron", next_fire_at=NOON, **line))
        elsewhere = session.schedules.upsert(schedule(TENANT, name="elsewhere", created_at=NOON))
        session.triggers.upsert(trigger(elsewhere, kind="cron", next_fire_at=NOON, **line | {"timezone": "Asia/Tokyo"}))
    done = rollback.run(ready.settings, ready.config, 1)
    assert [one.ids for one in done.gaps] == [(keys_of(elsewhere),)], "beat has one zone"
    plain = NOON.replace(tzinfo=None)
    found = changed(before, documents(ready))
    made = {one["name"]: one for one in found.values() if one is not None and "name" in one}
    assert {key: one for key, one in found.items() if one is None or "name" not in one} == {
        ids["workdays"]: {"total_run_count": 1, "last_run_at": plain},
        ids["routed"]: {"expires": plain, "max_run_count": 9},
        ids["hours"]: {"start_after": plain + timedelta(hours=1)},
        ids["spaces"]: {"enabled": False, "date_changed": plain},
        ids["now"]: None,
    }
    usual = {"_cls": "PeriodicTask", "enabled": True, "total_run_count": 0, "max_run_count": 0}
    assert made["often"].items() >= (usual | {"task": "demo.often"}).items()
    assert made["often"]["_id"] == ObjectId(keys_of(often))
    assert made["often"]["interval"] == {"_cls": "Interval", "every": 1, "period": "minutes"}
    assert made["daily"]["crontab"] == {"_cls": "Crontab", "minute": "15", "hour": "4"} | {
        "day_of_month": "*",
        "month_of_year": "*",
        "day_of_week": "mon",
    }
    again(ready)


@pytest.mark.proves("4-B1", "5-C1")
@pytest.mark.parametrize("ready", ["acme"], indirect=True)
def test_a_mapped_source_goes_there_and_back(ready: Scene) -> None:
    before = documents(ready)
    ids = {one["title"]: key for key, one in before.items() if key[0] == "jobs"}
    ready.switch()
    assert changed(before, documents(ready)) == {}, "nothing was written, so nothing changes"
    write(ready, "UPDATE scheduler.schedules SET max_retries = 9, updated_at = now() WHERE name = 'job 3'")
    write(ready, "UPDATE scheduler.schedules SET max_retries = NULL, updated_at = now() WHERE name = 'job 2'")
    write(ready, "UPDATE scheduler.schedules SET status = 'paused', updated_at = now() WHERE name = 'job 4'")
    write(ready, "UPDATE scheduler.schedules SET deleted_at = now(), updated_at = now() WHERE name = 'job 5'")
    write(
        ready,
        "UPDATE scheduler.triggers SET cron_expression = '7 7 * * *' WHERE schedule_id ="
        " (SELECT id FROM scheduler.schedules WHERE name = 'job 0')",
    )
    write(
        ready,
        "UPDATE scheduler.triggers SET enabled = false WHERE schedule_id ="
        " (SELECT id FROM scheduler.schedules WHERE name = 'job 1')",
    )
    write(ready, "DELETE FROM scheduler.runs WHERE source_id LIKE %s", '%"11"%')
    with store_postgres.opened(ready.dsn) as store, store.session("north", now=NOON) as session:
        made = session.schedules.upsert(schedule("north", name="born", created_at=NOON))
        session.triggers.upsert(trigger(made, next_fire_at=NOON))
        session.triggers.upsert(trigger(made, kind="event", event_name="of no field", next_fire_at=None))
        late = run("north", schedule_id=made.id, state="timeout", started_at=NOON, finished_at=NOON, worker_id="w")
        session.runs.create(late)
    done = rollback.run(ready.settings, ready.config, 1)
    assert changed(before, documents(ready)) == {
        ids["job 0"]: {"cron": "7 7 * * *"},
        ids["job 1"]: {"active": False},
        ids["job 2"]: {"options": {"colour": "red"}},
        ids["job 3"]: {"options": {"retries": 9, "colour": "red"}},
        ids["job 4"]: {"state": "off"},
        ids["job 5"]: None,
        ("history", "11"): None,
        ("jobs", str(made.id)): {"_id": str(made.id), "org": "north", "title": "born", "every": 60}
        | {"next": NOON.timestamp(), "active": True, "state": "on", "created": NOON.replace(tzinfo=None)},
        ("history", str(late.id)): {"_id": str(late.id), "org": "north", "job": str(made.id), "status": "failed"}
        | {"queued": late.created_at.isoformat(), "begun": NOON.timestamp() * 1000, "ended": NOON.timestamp() * 1000},
    }
    of_removed = {"schedules": 1, "triggers": 2}
    assert done.lost == of_removed | {
        "schedules.enabled": 1,
        "runs.run_number": 1,
        "runs.state": 1,
        "runs.worker_id": 1,
    }
    assert done.unlike == ()
    assert [(one.words, one.ids) for one in done.gaps] == [
        ("would not fire for a trigger of kind event: its document states another, or none", (str(made.id),))
    ]
    again(ready)
    with psycopg.connect(ready.dsn) as connection:
        row = connection.execute("SELECT id, source FROM scheduler.schedules WHERE name = 'born'").fetchone()
    assert row == (made.id, "acme/jobs"), "the text of a UUID keeps the row's id"

    ready.switch()
    before = documents(ready)
    with store_postgres.opened(ready.dsn) as store, store.session("north", now=NOON) as session:
        session.schedules.upsert(schedule("north", name="not in the backup", created_at=NOON))
    rollback.run(ready.settings, ready.config, 3)
    assert changed(before, documents(ready)) == {}
    assert counted(ready) == {}, "what a restore leaves out was exported"


def test_references_by_a_name_are_written_as_the_name(auth_server: MongoServer, scheduler_dsn: str) -> None:
    """Of a run of a schedule that was copied, and of one that was created in PostgreSQL."""
    with ordinary_folder() as folder:
        mapping = folder / "named.toml"
        text = cutting_over.ACME.read_text(encoding="utf-8")
        text = text.replace('collection = "jobs" }', 'collection = "jobs", by = "title" }')
        mapping.write_text(text, encoding="utf-8")
        hand_over(mapping)
        with scene(auth_server, fresh_name(), scheduler_dsn, folder, "other", profile=str(mapping)) as made:
            for number in range(12):
                made.database["history"].update_one({"_id": number}, {"$set": {"job": f"job {number % 6}"}})
            hand_over(made.config)
            made.ready()
            before = documents(made)
            made.switch()
            with store_postgres.opened(made.dsn) as store, store.session("north", now=NOON) as session:
                born = session.schedules.upsert(schedule("north", name="born", created_at=NOON))
                session.triggers.upsert(trigger(born, next_fire_at=NOON))
                old = next(one for one in session.schedules.list(ScheduleQuery()) if one.name == "job 3")
                late = {"state": "completed", "started_at": NOON, "finished_at": NOON}
                runs = [session.runs.create(run("north", schedule_id=one.id, **late)) for one in (born, old)]
            rollback.run(made.settings, made.config, 1)
            written = changed(before, documents(made))
            named = {key[1]: fields and fields.get("job") for key, fields in written.items() if key[0] == "history"}
            assert named == {str(runs[0].id): "born", str(runs[1].id): "job 3"}
            assert {key for key in written if key[0] == "jobs"} == {("jobs", str(born.id))}
            again(made)


def touch_everything(scene: Scene) -> None:
    """Write every row as it is."""
    for table in ("schedules", "triggers", "runs"):
        write(scene, f"UPDATE scheduler.{table} SET tenant_id = tenant_id")


def keys_of(one: Schedule) -> str:
    """Return the ObjectId of a document for a schedule: the time of its creation, and half of its id."""
    assert one.created_at is not None
    return f"{int(one.created_at.timestamp()):08x}{one.id.hex[16:]}"


class Jobs:
    """The jobs of Agenda by the library that wrote them and their name, on both sides."""

    def __init__(self, scene: Scene) -> None:
        with psycopg.connect(scene.dsn) as connection:
            rows = connection.execute(
                "SELECT schema_version, handler_name, id, source, source_id FROM scheduler.schedules ORDER BY source_id"
            ).fetchall()
        self.rows = {(row[0], row[1]): row[2] for row in rows}
        self.keys = {
            (row[0], row[1]): (row[3].rpartition("/")[2], str(identity.parse_source_id(row[4]))) for row in rows
        }


@pytest.mark.proves("4-B1", "5-C1")
@pytest.mark.parametrize("ready", ["agenda"], indirect=True)
def test_agenda_goes_there_and_back(ready: Scene) -> None:
    ready.switch()
    before, jobs = documents(ready), Jobs(ready)
    touch_everything(ready)
    assert reverse_sync.run(ready.settings, noted_by_now=True).documents > 100
    assert changed(before, documents(ready)) == {}, "nothing was written, so nothing changes"
    close_cached()

    soon, later = NOON + timedelta(seconds=3), FAR + timedelta(days=1)
    of = jobs.rows
    with store_postgres.opened(ready.dsn) as store, store.session(TENANT, now=NOON) as session:
        result, earlier = jsonb.encode({"rows": 3}), NOON - timedelta(hours=1)
        failed: Document = {"state": "error", "error": "bad", "started_at": earlier}
        runs: list[tuple[tuple[str, str], Document]] = [
            (("agenda-6", "nightly"), {"result": result}),
            (("agenda-4", "with-result"), {"result": result}),
            (("agenda-6", "boom"), failed),
            (("agenda-6", "boom"), {"state": "timeout", "error": "worse"}),
            (("agenda-6", "retry"), {}),
            (("agenda-6", "later"), failed | {"finished_at": earlier}),
            (("agenda-6", "later"), {"started_at": earlier + SECOND, "finished_at": earlier + SECOND}),
            (("agenda-6", "later"), {"state": "error", "error": "worse"}),
            (("pulse", "boom"), failed),
            (("pulse", "boom"), {}),
            (
                ("pulse", "later"),
                {"state": "running", "finished_at": None, "lease_expires_at": NOON + timedelta(minutes=10)},
            ),
            (
                ("pulse", "later-too"),
                {"state": "queued", "started_at": None, "finished_at": None, "available_at": later},
            ),
        ]
        for job, columns in runs:
            least: Document = {"started_at": NOON, "finished_at": soon, "state": "completed", "created_at": NOON}
            session.runs.create(run(TENANT, schedule_id=of[job], **least | columns))
        born = session.schedules.upsert(schedule(TENANT, name="born", handler_name="report", created_at=NOON))
        session.triggers.upsert(trigger(born, next_fire_at=later, end_at=FAR))
        heard = session.schedules.upsert(schedule(TENANT, name="heard", handler_name="hear", created_at=NOON))
        session.triggers.upsert(trigger(heard, kind="event", event_name="rain", next_fire_at=None))
        for one in (born, heard):
            session.runs.create(run(TENANT, schedule_id=one.id, state="skipped", created_at=NOON))
    for job, statement in {
        ("agenda-6", "nightly"): "UPDATE scheduler.triggers SET next_fire_at = %s, last_fire_at = now()",
        ("pulse", "later"): "UPDATE scheduler.triggers SET next_fire_at = NULL, last_fire_at = %s",
        ("pulse", "later-too"): "UPDATE scheduler.triggers SET next_fire_at = NULL, last_fire_at = %s",
        ("agenda-6", "slow"): "UPDATE scheduler.runs SET state = 'completed', finished_at = %s,"
        " lease_expires_at = NULL, updated_at = now()",
        ("agenda-6", "paused"): "UPDATE scheduler.triggers SET enabled = true, next_fire_at = %s",
        ("agenda-4", "numeric-interval"): "UPDATE scheduler.triggers SET interval_ms = 60000, next_fire_at = %s",
    }.items():
        assert write(ready, f"{statement} WHERE schedule_id = %s", later, of[job]) == 1
    for job, changes in {
        ("hokify", "windowed"): "status = 'paused'",
        ("agenda-6", "paused"): "status = 'scheduled', enabled = true",
        ("hokify", "later"): "deleted_at = now()",
        ("agenda-6", "ok"): "payload = '{\"userId\": 8}', priority = 60, description = 'of no field'",
    }.items():
        assert write(ready, f"UPDATE scheduler.schedules SET {changes}, updated_at = now() WHERE id = %s", of[job]) == 1
    write(
        ready,
        "INSERT INTO scheduler.execution_logs (id, tenant_id, logged_at, level) VALUES (gen_random_uuid(), %s, now(),"
        " 'info')",
        TENANT,
    )
    with store_postgres.opened(ready.dsn) as store, store.session("elsewhere", now=NOON) as session:
        foreign = session.schedules.upsert(schedule("elsewhere", name="of another tenant", created_at=NOON))
    planned = [one.words for one in rollback.gates(ready.settings, ready.config, 1)]
    done = rollback.run(ready.settings, ready.config, 1)
    plain, after = NOON.replace(tzinfo=None), soon.replace(tzinfo=None)
    due = later.replace(tzinfo=None)
    ended: Document = {"lastRunAt": plain, "lastFinishedAt": after}
    usual: Document = {"priority": 0, "shouldSaveResult": False, "type": "normal"}
    repeats: Document = dict.fromkeys(("repeatTimezone", "startDate", "endDate", "skipDays"))
    keys = jobs.keys
    report, hear = (ObjectId(keys_of(one)) for one in (born, heard))
    assert changed(before, documents(ready)) == {
        keys["agenda-6", "nightly"]: ended | {"nextRunAt": due},
        keys["agenda-4", "with-result"]: ended | {"result": {"rows": 3}},
        keys["agenda-6", "boom"]: ended | {"failedAt": after, "failCount": 3, "failReason": "worse"},
        keys["agenda-6", "retry"]: ended | {"failCount": 0},
        keys["agenda-6", "later"]: ended | {"failedAt": after, "failCount": 1, "failReason": "worse"},
        keys["pulse", "boom"]: ended
        | {"lockedAt": None, "runCount": 2, "finishedCount": 1}
        | {"failCount": 1, "failReason": "bad", "failedAt": after},
        keys["pulse", "later"]: {"nextRunAt": None, "lockedAt": plain, "lastRunAt": plain, "runCount": 1},
        keys["pulse", "later-too"]: {"nextRunAt": due},
        keys["agenda-4", "numeric-interval"]: {"nextRunAt": due, "repeatInterval": 60_000},
        keys["agenda-6", "ok"]: {"data": {"userId": 8}, "priority": 5},
        keys["agenda-6", "slow"]: {"lockedAt": None, "lastFinishedAt": due},
        keys["agenda-6", "paused"]: {"nextRunAt": due, "disabled": None},
        keys["hokify", "later"]: None,
        keys["hokify", "windowed"]: {"disabled": True},
        ("agendaJobs", str(report)): {"_id": report, "name": "report", "nextRunAt": due, "repeatInterval": 60_000}
        | usual
        | repeats,
    }
    lost = {"runs": 10, "runs.result": 1, "runs.run_number": 7, "runs.state": 2, "execution_logs": 1}
    lost |= {"schedules": 3, "schedules.description": 1, "schedules.name": 1, "schedules.metadata": 5}
    lost |= {"schedules.enabled": 1, "schedules.status": 3, "schedules.completed_at": 3}
    lost |= {
        "triggers": 4,
        "triggers.end_at": 1,
        "triggers.run_at": 1,
        "triggers.enabled": 1,
        "triggers.last_fire_at": 3,
    }
    assert done.lost == lost
    assert done.unlike == ()
    assert "not in any document: runs, 10 rows" in planned
    assert {one.words: one.ids for one in done.gaps} == {
        "would fire without its end_at: its document has no field for it": (str(report),),
        "would not fire for a trigger of kind event: its document states another, or none; it gets no document": (
            str(hear),
        ),
        f"that do not fire now {write_back.NO_TENANT}; it gets no document": (keys_of(foreign),),
    }
    lines = (Path(done.folder) / "lost.runs.jsonl").read_text(encoding="utf-8").splitlines()
    assert sum(json.loads(line)["row"]["state"] == "skipped" for line in lines) == 2
    again(ready)
    ready.switch()
