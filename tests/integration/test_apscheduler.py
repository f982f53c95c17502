"""APScheduler's jobs on real servers: copied, followed and compared by the commands of their page."""

import pickle
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from apscheduler.triggers.interval import IntervalTrigger
from pymongo.database import Database

from migrator.exit_status import QUARANTINE
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.tail.loop import Tail
from tests.apscheduler_documents import FILES, document, real
from tests.copying import number, quarantine, run, settings_for, write_config
from tests.tailing import compared
from tests.unit.sources.apscheduler.test_jobs import state
from tests.unit.sources.apscheduler.test_pickles import LARGE, hostile

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sources-apscheduler.md").read_text(encoding="utf-8")
KEPT = "SELECT count(*) FROM scheduler.schedules WHERE extra <> '{}'"


@pytest.fixture
def source(mongo_database: Database[Any]) -> Database[Any]:
    """All documents of the library; those of one version would have the ids of another."""
    for name in FILES:
        documents = [found | {"_id": f"{name} {key}"} for key, found in real(name).items()]
        mongo_database["jobs"].insert_many(documents if name != "3.11.3" else list(real(name).values()))
    return mongo_database


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
        jobs.insert_one(document(pickle.dumps(state(id="new", trigger=IntervalTrigger(days=2)), 2), "new"))
        jobs.update_one({"_id": "cron-seconds"}, {"$set": {"job_state": b"cos\nsystem\n."}})
        tail.run("caught-up")
    assert compared(settings) == []
    trigger_of = "SELECT kind || coalesce(' ' || next_fire_at, '') FROM scheduler.triggers WHERE source_id = "
    assert number(scheduler_dsn, f"{trigger_of}'interval-90s'") == "interval"
    assert number(scheduler_dsn, f"{trigger_of}'cron-all'").startswith("interval ")
    assert number(scheduler_dsn, f"{trigger_of}'date'") is None
    assert number(scheduler_dsn, f"{trigger_of}'new'").startswith("interval ")
    assert [key for _, key, _, _, _ in quarantine(scheduler_dsn)] == ["bound-method", "cron-seconds"]


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
