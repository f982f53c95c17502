"""A plain ``verify`` writes nothing to the source's server: no database, no collection, no entry in the oplog."""

import json
from pathlib import Path
from typing import Any

import pytest
from bson import Timestamp
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import Settings
from tests.copying import run, settings_for, write_config
from tests.stellaops_documents import fresh

USAGE = 2


def state(client: MongoClient[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return every collection of every database but the server's own, with its documents and indexes."""
    found: dict[tuple[str, str], Any] = {}
    for name in sorted(set(client.list_database_names()) - {"local", "config", "admin"}):
        database = client[name]
        for collection in sorted(database.list_collection_names()):
            documents = sorted(str(one) for one in database[collection].find())
            found[name, collection] = (documents, sorted(database[collection].index_information()))
    return found


def last(client: MongoClient[dict[str, Any]]) -> Timestamp:
    newest = client.local["oplog.rs"].find_one(sort=[("$natural", -1)])
    assert newest is not None
    stamp: Timestamp = newest["ts"]
    return stamp


def writes(client: MongoClient[dict[str, Any]], since: Timestamp) -> list[str]:
    """Return where the oplog has writes since then, but for no-ops and the server's own sessions."""
    places = []
    for one in client.local["oplog.rs"].find({"ts": {"$gt": since}, "op": {"$ne": "n"}}):
        places += [each["ns"] for each in one["o"].get("applyOps", [one])]  # a transaction is one entry
    return [place for place in places if not place.startswith(("config.", "admin.system."))]


def name_of(settings: Settings) -> str:
    """Return the name of the target's database."""
    return str(settings.postgres.dsn).rpartition("/")[2]


@pytest.fixture
def settings(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Settings:
    for name in ("schedules", "runs"):
        mongo_database[name].insert_one(fresh(name))
    made = settings_for(mongo_database, scheduler_dsn)
    assert run("backfill", "--config", str(write_config(tmp_path, made)), cwd=tmp_path)[0] == 0
    return made


@pytest.mark.proves("5-R2", "5-D1")
@pytest.mark.parametrize("more", [(), ("--only", "cutover")], ids=["plain", "cutover"])
def test_nothing_is_written_to_the_source(
    more: tuple[str, ...], settings: Settings, mongo_client: MongoClient[dict[str, Any]], tmp_path: Path
) -> None:
    before, since = state(mongo_client), last(mongo_client)
    status, out, err = run("verify", "--config", str(write_config(tmp_path, settings)), "--json", *more, cwd=tmp_path)
    assert writes(mongo_client, since) == []
    assert state(mongo_client) == before
    assert status == (4 if more else 0), err
    source, target = json.loads(out)["run"]["sides"]
    assert (source["database"], target["database"]) == (settings.mongo.database, name_of(settings))
    assert source["address"] == "{}:{}".format(*(mongo_client.address or ()))
    assert source["replica_set"] == "rs0"
    (left,) = [one for one in json.loads(out)["evidence"]["checks"] if one["id"] == "cutover.rollback"]
    assert left["outcome"]["status"] == "not-asked-for"
    assert "--scratch-on-source" in left["outcome"]["reason"]


@pytest.mark.parametrize(
    "option", [("--sensitivity",), ("--backend", "mongo"), ("--backend", "both"), ("--behaviour", "5")]
)
def test_what_writes_there_is_refused_unless_it_is_allowed(
    option: tuple[str, ...], settings: Settings, mongo_client: MongoClient[dict[str, Any]], tmp_path: Path
) -> None:
    before, since = state(mongo_client), last(mongo_client)
    status, _, err = run("verify", "--config", str(write_config(tmp_path, settings)), *option, cwd=tmp_path)
    assert status == USAGE
    assert err.splitlines()[-1].endswith("writes to the source's server; allow that with --scratch-on-source")
    assert writes(mongo_client, since) == []
    assert state(mongo_client) == before


def test_when_it_is_allowed_the_rollback_is_rehearsed_and_nothing_is_left(
    settings: Settings, mongo_client: MongoClient[dict[str, Any]], tmp_path: Path
) -> None:
    before = state(mongo_client)
    since = last(mongo_client)
    options = ("--only", "cutover", "--scratch-on-source", "--json")
    _, out, err = run("verify", "--config", str(write_config(tmp_path, settings)), *options, cwd=tmp_path)
    (made,) = [one for one in json.loads(out)["evidence"]["checks"] if one["id"] == "cutover.rollback"]
    assert made["outcome"]["status"] == "passed", err
    assert {place.rpartition("_")[0] for place in writes(mongo_client, since)} != set(), "this test sees writes"
    assert [place for place in writes(mongo_client, since) if not place.startswith("migrator_scratch_")] == []
    assert state(mongo_client) == before
