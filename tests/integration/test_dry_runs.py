"""Dry runs where something waits to be written: they say how much, and leave source, target and files as they were."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from migrator.report import integrity
from tests.copying import run, run_of, settings_for, write_config
from tests.integration.test_reading_commands import SAMPLE, Pair
from tests.unit.report.test_signing import pair as key_pair

WRITTEN_NOTHING = "nothing was written"


class Scene(Pair):
    """A copied source, and the commands."""

    def call(self, *arguments: str) -> tuple[int, list[str]]:
        status, out, err = run(*arguments, "--config", str(self.config), cwd=self.config.parent)
        assert "Traceback" not in err, err
        return status, (out or err).splitlines()

    def dry(self, *arguments: str) -> list[str]:
        """Make a dry run, and return what it says but for the last line; nothing may have changed."""
        before, files = self.everything(), sorted(self.config.parent.rglob("*"))
        status, said = self.call(*arguments, "--dry-run")
        assert (status, said[-1]) == (0, WRITTEN_NOTHING), said
        assert self.everything() == before
        assert sorted(self.config.parent.rglob("*")) == files
        return said[:-1]


@pytest.fixture
def scene(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Scene:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(3)])
    mongo_database["runs"].insert_many([run_of(_id="odd", state="odd"), run_of(_id="gone", state="odd")])
    config = write_config(tmp_path, settings_for(mongo_database, scheduler_dsn))
    made = Scene(mongo_database.client, mongo_database.name, scheduler_dsn, config)
    assert made.call("backfill")[0] == 8
    return made


def test_the_tail_counts_the_changes_since_its_position(scene: Scene) -> None:
    runs = scene.database["runs"]
    assert scene.call("tail", "--until-caught-up")[0] == 8
    for state in ("running", "error"):
        runs.update_one({"_id": "r0"}, {"$set": {"state": state}})
    runs.delete_one({"_id": "r1"})
    scene.database["schedules"].drop()
    found = scene.dry("tail", "--metrics-file", "metrics")
    assert found[0].startswith("would apply 3 changes since ")
    assert found[1:] == ["runs: 2 documents would be read again"]
    _, said = scene.call("tail", "--until-caught-up", "--json")
    applied = json.loads("".join(said))
    assert (applied["events"], applied["documents"]) == (3, 2)
    assert datetime.fromisoformat(applied["position"])
    assert scene.dry("tail")[0].startswith("would apply 0 changes since ")


def test_a_retry_is_rolled_back(scene: Scene) -> None:
    runs = scene.database["runs"]
    runs.update_one({"_id": "odd"}, {"$set": {"state": "completed"}})
    runs.delete_one({"_id": "gone"})
    assert scene.dry("quarantine", "retry") == ["would load 1, still in quarantine 0, deleted in the source 1"]
    assert scene.call("quarantine", "retry")[1][0] == "loaded 1, still in quarantine 0, deleted in the source 1"


def test_a_seed_that_would_drop_drops_nothing(scene: Scene) -> None:
    name = scene.database.name
    found = scene.dry("demo", "seed", "--database", name, "--drop")
    assert found[-1] == f"database {name} would be dropped first"
    assert any(" documents would be written into " in line for line in found)
    status, said = scene.call("demo", "seed", "--database", name, "--dry-run")
    assert (status, "is not empty" in said[0]) == (2, True), "what is refused without it is refused with it"


def test_a_signature_is_not_written(scene: Scene) -> None:
    folder = scene.config.parent / "signed"
    folder.mkdir()
    (folder / "result.json").write_bytes(SAMPLE.read_bytes())
    private, _ = key_pair(scene.config.parent)
    before = (folder / "result.json").read_bytes()
    _, out, _ = run("report", "sign", str(folder / "result.json"), "--key", str(private), "--dry-run")
    assert out.startswith("would sign with the key ")
    assert f"would write {folder}/report.html\n" in out
    assert [one.name for one in folder.iterdir()] == ["result.json"]
    assert (folder / "result.json").read_bytes() == before
    assert integrity.read_result(folder / "result.json")


def test_servers_are_started_only_where_they_can_be(scene: Scene) -> None:
    taken = scene.config.parent
    status, said = scene.call("servers", "start", "--dir", str(taken), "--dry-run")
    assert (status, "holds other files" in said[0]) == (2, True)
    absent = taken / "absent"
    assert scene.dry("servers", "start", "--dir", str(absent))[0].endswith(
        "would be started, with their data and passwords in that directory"
    )
    assert not absent.exists()
