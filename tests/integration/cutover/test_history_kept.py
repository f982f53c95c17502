"""A cutover and a rollback with documents that are left out as history: they stay in MongoDB as they are."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.cutover import rollback
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import number, run_of
from tests.cutting_over import scene
from tests.tailing import caught_up, compared

LONG_AGO = "2020-01-01T00:00:00+00:00"
COPIED = "SELECT count(*) FROM scheduler.runs WHERE source_id LIKE 'old-%'"


@pytest.mark.proves("6-U7")
def test_what_is_left_out_outlives_a_cutover_and_a_rollback(
    auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as made:
        runs = made.database["runs"]
        runs.insert_many(run_of(_id=f"old-{n}", state="completed", finishedAt=LONG_AGO) for n in range(5))
        made.settings = replace(made.settings, copy=replace(made.settings.copy, history="30d"))
        made.config.write_text(made.config.read_text().replace('history = "all"', 'history = "30d"'))
        made.ready()
        old = list(runs.find({"_id": {"$regex": "^old-"}}).sort("_id", 1))
        whole = runs.count_documents({})
        assert (len(old), number(scheduler_dsn, COPIED)) == (5, 0)
        made.switch()
        back = rollback.run(made.settings, made.config, 1)
        assert (back.lost, back.unlike) == ({}, ())
        assert list(runs.find({"_id": {"$regex": "^old-"}}).sort("_id", 1)) == old
        assert runs.count_documents({}) == whole
        runs.update_one({"_id": "old-0"}, {"$set": {"state": "running"}, "$unset": {"finishedAt": 1}})
        caught_up(made.settings)
        assert number(scheduler_dsn, COPIED) == 1, "the tail goes on with the rule"
        assert compared(made.settings) == []
