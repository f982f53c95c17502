"""The switch as a whole, and the way back, on a server that asks for passwords."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.errors import OperationFailure

from migrator.config import load_settings
from migrator.cutover import outbox, reverse, rollback
from migrator.cutover.outlook import outlook, standing
from migrator.embedded.mongo import MongoServer
from migrator.errors import RefusedError, SwitchedError
from migrator.store import open_scheduler_store, open_store
from migrator.store.postgres.connection import open_target
from tests.conftest import fresh_name
from tests.cutting_over import Scene, scene
from tests.store_postgres import schedule


@pytest.fixture(scope="module")
def server() -> Iterator[MongoServer]:
    with MongoServer.start(auth=True, fast=True) as started:
        yield started


@pytest.fixture
def ready(server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    with scene(server, fresh_name(), scheduler_dsn, tmp_path) as made:
        made.ready()
        yield made


@pytest.mark.proves("0-T2.12.1", "0-T2.12.3", "3-O1", "4-X1", "4-X2", "4-B1", "1-B1", "1-D1/2")
def test_there_and_back_and_nothing_is_lost(ready: Scene) -> None:
    found = outlook(ready.settings, ready.config, quarantined=ready.quarantined)
    assert [one.name for one in found.gates if one.passed is False] == []
    assert found.ready
    old = open_scheduler_store(ready.settings)
    with old.session("a") as session:
        before = session.schedules.upsert(schedule(name="before"))

    done = ready.switch()

    assert done.cutover.state == "switched"
    assert 0 < done.pause_s < 20
    assert load_settings(str(ready.config)).persistence.scheduler == "postgres"
    assert "# which" in ready.config.read_text()
    assert tomllib.loads(Path(done.cutover.backup_path).read_text())["persistence"]["scheduler"] == "mongo"
    with pytest.raises(SwitchedError, match=r"is in postgres since the last switch"), old.session("a"):
        pass
    old.close()
    with pytest.raises(SwitchedError):
        open_store(ready.settings)
    with ready.foreign() as foreign, pytest.raises(OperationFailure):
        foreign.runs.delete_many({})
    new = open_scheduler_store(load_settings(str(ready.config)))
    with new.session("a") as session:
        assert session.schedules.get(before.id) is not None
        after = session.schedules.upsert(schedule(name="after"))
    with pytest.raises(RefusedError, match="switch was made already"):
        ready.switch()

    back = rollback.run(ready.settings, ready.config, 1)

    assert back.documents >= 1
    assert load_settings(str(ready.config)).persistence.scheduler == "mongo"
    with pytest.raises(SwitchedError, match=r"is in mongo since the last switch"), new.session("a"):
        pass
    new.close()
    again = open_scheduler_store(load_settings(str(ready.config)))
    with again.session("a") as session:
        assert session.schedules.get(before.id) is not None
        assert session.schedules.get(after.id) is not None
    again.close()
    with ready.foreign() as foreign:
        foreign.runs.insert_one({"_id": "free again"})
    with open_target(ready.settings, autocommit=True) as target:
        assert not outbox.is_open(target)
    assert reverse.MARKERS not in ready.database.list_collection_names()
    with pytest.raises(RefusedError, match="the data is in MongoDB already"):
        rollback.run(ready.settings, ready.config, 1)
    stands = standing(ready.settings).cutover
    assert stands is not None
    assert stands.state == "rolled-back"
