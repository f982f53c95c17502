"""APScheduler's jobs on real servers: copied, followed and compared by the commands of their page."""

import pickle
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from apscheduler.jobstores.mongodb import MongoDBJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.base import BaseScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from pymongo.database import Database
from sqlalchemy import create_engine, text

from migrator.config import CopySettings, PostgresSettings, Settings, SourceSettings
from migrator.exit_status import QUARANTINE
from migrator.parity.check import check_parity
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.tail.loop import Tail
from tests.apscheduler_documents import FILES, document, real, state
from tests.copying import number, quarantine, run, settings_for, uri_of, write_config
from tests.in_process_jobs import add_jobs
from tests.tailing import compared, differences
from tests.unit.sources.apscheduler.test_pickles import LARGE, hostile
from tests.unit.sources.apscheduler.test_version_4 import SERIALIZERS, documents_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sources-apscheduler.md").read_text(encoding="utf-8")
KEPT = "SELECT count(*) FROM scheduler.schedules WHERE extra <> '{}'"


@pytest.fixture
def source(mongo_database: Database[Any]) -> Database[Any]:
    """All documents of the library; those of one version would have the ids of another."""
    for name in FILES:
        documents = [found | {"_id": f"{name} {key}"} for key, found in real(name).items()]
        mongo_database["jobs"].insert_many(documents if name != "3.11.3" else list(real(name).values()))
    return mongo_database


@pytest.mark.proves("5-S2")
def test_the_commands_of_the_page(source: Database[Any], scheduler_dsn: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, settings_for(source, scheduler_dsn, profile="apscheduler"))
    (block,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    for command in block.splitlines():
        status, out, said = run(*shlex.split(command)[1:-1], str(config), cwd=tmp_path)
        assert status == QUARANTINE, command + out + said
    refused = quarantine(scheduler_dsn)
    assert {(reason, path) for _, _, reason, path, _ in refused} == {("refused-import", "job_state")}
    assert sorted(key for _, key, _, _, _ in refused) == sorted(
        "bound-method" if name == "3.11.3" else f"{name} bound-method" for name in FILES
    )
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.schedules") == source["jobs"].count_documents({}) - 7
    assert number(scheduler_dsn, KEPT) == 0, "all of it stands in columns"


def test_what_the_scheduler_does_meanwhile_is_followed(mongo_database: Database[Any], scheduler_dsn: str) -> None:
    jobs, found = mongo_database["jobs"], real("3.11.3")
    jobs.insert_many(found.values())
    settings = settings_for(mongo_database, scheduler_dsn, profile="apscheduler")
    backfill(settings, Scope())
    with Tail(settings) as tail:
        tail.run("caught-up")
        # it fires, is paused, changes its trigger, is finished, is added, becomes what nobody may read
        jobs.update_one({"_id": "cron-weekdays"}, {"$set": {"next_run_time": 1795483800.0}})
        jobs.update_one({"_id": "interval-90s"}, {"$set": {"next_run_time": None}})
        trigger = found["interval-weeks"]["job_state"]
        jobs.update_one({"_id": "cron-all"}, {"$set": {"job_state": trigger}})
        jobs.delete_one({"_id": "date"})
        jobs.insert_one(
            document(pickle.dumps(state(id="new", trigger=IntervalTrigger(days=2, timezone="UTC")), 2), "new")
        )
        jobs.update_one({"_id": "cron-seconds"}, {"$set": {"job_state": b"cos\nsystem\n."}})
        tail.run("caught-up")
    assert compared(settings) == []
    trigger_of = "SELECT kind || coalesce(' ' || next_fire_at, '') FROM scheduler.triggers WHERE source_id = "
    assert number(scheduler_dsn, f"{trigger_of}'interval-90s'") == "interval"
    assert number(scheduler_dsn, f"{trigger_of}'cron-all'").startswith("interval ")
    assert number(scheduler_dsn, f"{trigger_of}'date'") is None
    assert number(scheduler_dsn, f"{trigger_of}'new'").startswith("interval ")
    assert [key for _, key, _, _, _ in quarantine(scheduler_dsn)] == ["bound-method", "cron-seconds"]


@pytest.mark.proves("5-S3")
def test_hostile_pickles_are_quarantined_and_kept(
    mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    canary = tmp_path / "sang"
    pickles = {name: data for name, data in hostile(canary).items() if "5" in name or " " not in name}
    pickles |= {name: make() for name, (make, _) in LARGE.items() if name not in ("50 MB", "digits")}
    mongo_database["jobs"].insert_many([document(data, name) for name, data in pickles.items()])
    settings = settings_for(mongo_database, scheduler_dsn, profile="apscheduler")
    assert backfill(settings, Scope()).quarantined == len(pickles)
    assert not canary.exists()
    assert {reason for _, _, reason, _, _ in quarantine(scheduler_dsn)} == {"refused-import", "bad-pickle"}
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.schedules") == 0
    kept = {key: raw for _, key, _, _, raw in quarantine(scheduler_dsn)}
    assert all(pickles[key] in bytes(raw) for key, raw in kept.items())
    assert compared(settings) == []


class Still(BaseScheduler):  # type: ignore[misc] # the library has no types
    """Computes next runs, and runs nothing."""

    def shutdown(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - the library's signature
        """Do nothing: nothing runs."""

    def wakeup(self) -> None:
        """Do nothing: no thread waits."""


def test_the_table_of_sqlalchemy_is_copied_and_compared(postgres_dsn: str, scheduler_dsn: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_dsn))
    scheduler = Still(timezone="UTC", jobstores={"default": SQLAlchemyJobStore(engine=engine)})
    scheduler.start(paused=True)
    for key, trigger in {
        "cron": CronTrigger(day_of_week="mon-fri", hour=2, minute=30, timezone="Europe/Vienna"),
        "interval": IntervalTrigger(seconds=90, timezone="UTC"),
        "date": DateTrigger(datetime(2031, 6, 1, 9, 0, 0, 123457, tzinfo=UTC), timezone="UTC"),
    }.items():
        scheduler.add_job("time:sleep", trigger, args=[1], id=key, misfire_grace_time=30)
    scheduler.add_job("time:sleep", "interval", hours=1, timezone="UTC", id="paused").pause()
    with engine.begin() as connection:
        hostile_row = {"id": "hostile", "state": b"cos\nsystem\n."}
        connection.execute(text("INSERT INTO apscheduler_jobs VALUES (:id, NULL, :state)"), hostile_row)
        connection.execute(text("CREATE TABLE jobs (nothing text)"))
    settings = Settings(
        source=SourceSettings(profile="apscheduler", uri=postgres_dsn, default_tenant="acme"),
        postgres=PostgresSettings(dsn=scheduler_dsn),
        copy=CopySettings(workers=1),
    )
    done = backfill(settings, Scope())
    assert (done.documents, done.quarantined) == (5, 1)
    assert [(key, reason) for _, key, reason, _, _ in quarantine(scheduler_dsn)] == [("hostile", "refused-import")]
    assert number(scheduler_dsn, KEPT) == 0
    found = check_parity(settings, Scope())
    assert differences(found) == []
    assert {one.measure for one in found.aggregates} >= {"next_run_time", "paused", "job_state.size"}
    fire = "SELECT next_fire_at FROM scheduler.triggers WHERE source_id = 'date'"
    assert number(scheduler_dsn, fire) == datetime(2031, 6, 1, 9, 0, 0, 123457, tzinfo=UTC)
    scheduler.reschedule_job("cron", trigger="interval", minutes=5, timezone="UTC")
    assert {one[1] for one in differences(check_parity(settings, Scope()))} >= {"cron"}
    engine.dispose()


@pytest.mark.proves("4-J1", "4-J2", "4-J3")
def test_jobs_of_a_process_that_wrote_them_into_a_store_once(
    mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path
) -> None:
    kept = MongoDBJobStore(database=mongo_database.name, host=uri_of(mongo_database))
    scheduler = BackgroundScheduler(timezone="UTC", jobstores={"default": kept})
    add_jobs(scheduler)
    scheduler.start(paused=True)
    due = {job.id: job.next_run_time for job in scheduler.get_jobs()}
    scheduler.shutdown()
    settings = settings_for(mongo_database, scheduler_dsn, profile="apscheduler")
    config = str(write_config(tmp_path, settings))
    for command in ("backfill", "parity"):
        status, out, said = run(command, "--config", config)
        assert status == 0, out + said
    with psycopg.connect(scheduler_dsn) as connection:
        rows = connection.execute(
            "SELECT s.source_id, s.handler_name, s.payload -> 'args', s.payload -> 'kwargs', s.max_concurrency,"
            " s.status, t.kind, t.interval_ms, t.next_fire_at FROM scheduler.schedules AS s"
            " JOIN scheduler.triggers AS t ON t.schedule_id = s.id AND t.tenant_id = s.tenant_id"
        ).fetchall()
    expected = {
        "sync_domain_users": ({}, 3_600_000),
        "session_cleanup": ({"retention_days": 7}, 86_400_000),
        "desktop_session_cleanup": ({"timeout_minutes": 2}, 60_000),
    }
    assert {row[0]: row[1:] for row in rows} == {
        name: (f"tests.in_process_jobs:{name}", [], keywords, 1, "scheduled", "interval", every, due[name])
        for name, (keywords, every) in expected.items()
    }


@pytest.mark.parametrize("serializer", SERIALIZERS)
@pytest.mark.proves("5-S2")
def test_the_data_store_of_version_4(mongo_database: Database[Any], scheduler_dsn: str, serializer: str) -> None:
    for collection, found in documents_of(serializer):
        mongo_database[collection].insert_one(found)
    settings = settings_for(mongo_database, scheduler_dsn, profile="apscheduler4")
    assert backfill(settings, Scope()).quarantined == 0
    with Tail(settings) as tail:
        tail.run("caught-up")
        released = dict.fromkeys(("acquired_by", "acquired_until", "acquired_until_utcoffset"), "")
        mongo_database["schedules"].update_one({"_id": "cron"}, {"$unset": released, "$set": {"paused": True}})
        mongo_database["jobs"].delete_one({"schedule_id": "gone"})
        tail.run("caught-up")
    assert compared(settings) == []
    assert number(scheduler_dsn, "SELECT status FROM scheduler.schedules WHERE source_id = 'cron'") == "paused"
    of_cron = "SELECT count(*) FROM scheduler.runs r JOIN scheduler.schedules s ON s.id = r.schedule_id"
    assert number(scheduler_dsn, of_cron) == 1
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.runs") == 8
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.handlers") == 2
