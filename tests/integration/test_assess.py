"""``migrator assess``: what a database holds, from its address alone; every source, and what stands in the way."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator.assessment import AGES, NO_DATE
from migrator.config import load_settings
from migrator.exit_status import QUARANTINE, TOOL_FAILED, UNVERIFIED, USAGE
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import run, run_of
from tests.demo_data import seed_quarter
from tests.modelled_documents import MODELLED
from tests.product_server import answers_of, product_server
from tests.real_documents import real_documents

pytestmark = pytest.mark.proves("6-U1")


def call(*words: str, **environment: str) -> tuple[int, str, str]:
    return run("assess", *words, environment=os.environ | {"MONGO_URI": ""} | environment)


def assessed(uri: str, database: str, *words: str) -> dict[str, Any]:
    status, out, said = call(uri, "--database", database, "--json", *words)
    assert status in {0, UNVERIFIED, QUARANTINE, UNVERIFIED | QUARANTINE}, said
    found: dict[str, Any] = json.loads(out)
    return found


def snapshot(database: Database[Any]) -> list[tuple[str, int, Any]]:
    names = sorted(database.list_collection_names())
    return [(one, database[one].count_documents({}), database[one].index_information()) for one in names]


@pytest.fixture
def uri(mongo_server: MongoServer) -> str:
    return mongo_server.uri


def adds_up(found: dict[str, Any]) -> None:
    """Assert that the figures of each collection, and of each source, add up."""
    for source in found["sources"]:
        total = dict.fromkeys(("read", "moves", "quarantined", "left out"), 0)
        for one in source["collections"]:
            left_out = sum(one["skipped"].values())
            assert one["moves"] + one["quarantined"] + left_out == one["read"], one["name"]
            assert sum(one["history"].values()) <= one["moves"]
            assert set(one["history"]) <= {*AGES, NO_DATE}
            assert one["quarantined"] == sum(reason["documents"] for reason in one["counted"]["quarantine"])
            assert one["read"] <= one["documents"]
            assert not one["whole"] or one["read"] == one["documents"]
            for key, value in (("read", one["read"]), ("moves", one["moves"]), ("quarantined", one["quarantined"])):
                total[key] += value
            total["left out"] += left_out
        assert source["totals"] == total
        assert sum(source["history"].values()) <= source["expected_moves"]


def test_the_demo_is_counted_and_nothing_is_written(mongo_database: Database[Any], uri: str) -> None:
    seed_quarter(mongo_database)
    before = snapshot(mongo_database)
    found = assessed(uri, mongo_database.name)
    adds_up(found)
    (source,) = found["sources"]
    assert source["recognised"]["profile"] == "stellaops"
    assert source["recognised"]["sure"] == "certain"
    assert {one["name"] for one in source["collections"]} == set(mongo_database.list_collection_names())
    assert all(one["whole"] for one in source["collections"])
    assert source["totals"]["read"] == sum(mongo_database[name].count_documents({}) for name, _, _ in before)
    assert source["totals"]["quarantined"] > 0
    assert source["zones"]["Europe/Berlin"] > 0
    assert source["default_tenant"] is None  # a few documents lack one, and these are the broken ones
    assert source["locks_live"] + source["locks_stale"] == mongo_database["locks"].count_documents({})
    assert snapshot(mongo_database) == before


def test_a_large_collection_is_sampled_and_said_so(mongo_database: Database[Any], uri: str) -> None:
    seed_quarter(mongo_database)
    found = assessed(uri, mongo_database.name, "--sample", "300")
    adds_up(found)
    runs = next(one for one in found["sources"][0]["collections"] if one["name"] == "runs")
    assert (runs["read"], runs["whole"]) == (300, False)
    assert runs["documents"] == mongo_database["runs"].estimated_document_count()
    status, out, _ = call(uri, "--database", mongo_database.name, "--sample", "300", "--allow-quarantined", "all")
    assert status == 0  # a sample is what was asked for
    assert "300 of 2," in out
    assert "runs: a sample, drawn at random by the server" in out
    assert "about" in next(line for line in out.splitlines() if "of all that would move" in line)


SOURCES: dict[str, tuple[str, dict[str, list[dict[str, Any]]]]] = {
    "agenda 6": ("agenda", {one: real_documents(f"agenda-6/{one}") for one in ("agendaJobs", "agenda_logs")}),
    "pulse": ("agenda", {"pulseJobs": real_documents("pulse-1/pulseJobs")}),
    "apscheduler": ("apscheduler", {"jobs": real_documents("apscheduler/3.11.3")}),
    "celerybeat": ("celerybeat", {"schedules": real_documents("celerybeat-mongo/schedules")}),
    "celery-results": ("celery-results", {"celery_taskmeta": real_documents("celery-results/celery_taskmeta")}),
    "mongodb-cron": ("mongodb-cron", {"jobs": real_documents("mongodb-cron/jobs")}),
    "mongodb-queue": ("mongodb-queue", {"queue": real_documents("mongodb-queue/queue")}),
    **{name: (name, MODELLED[name]) for name in ("shedlock", "quartz", "jobrunr", "hangfire")},
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_database_of_each_source(name: str, mongo_database: Database[Any], uri: str, tmp_path: Path) -> None:
    expected, collections = SOURCES[name]
    for collection, documents in collections.items():
        mongo_database[collection].insert_many(documents)
    mongo_database["invoices"].insert_one({"_id": 1, "amount": 3})
    found = assessed(uri, mongo_database.name, "--write-config", str(tmp_path / "config.toml"))
    adds_up(found)
    source = found["sources"][0]
    assert source["recognised"]["profile"] == expected
    assert source["totals"]["read"] == sum(map(len, collections.values()))
    assert source["totals"]["moves"] > 0, source
    assert [(one["name"], one["documents"]) for one in found["others"]] == [("invoices", 1)]
    settings = load_settings(tmp_path / "config.toml", {"POSTGRES_DSN": "postgresql:///x"})
    assert settings.source.profile == expected
    assert settings.source.default_tenant == "default"
    assert settings.mongo.database == mongo_database.name
    assert [command.split()[1] for command in found["commands"]] == ["doctor", "schema", "backfill"]
    assert "scheduler" in {one["name"] for one in source["targets"]}
    assert ("apscheduler" in {one["name"] for one in source["targets"]}) == (expected == "apscheduler")


def test_several_sources_and_one_of_another_name(mongo_database: Database[Any], uri: str, tmp_path: Path) -> None:
    mongo_database["background"].insert_many(real_documents("agenda-6/agendaJobs"))
    mongo_database["shedLock"].insert_many(MODELLED["shedlock"]["shedLock"])
    found = assessed(uri, mongo_database.name, "--write-config", str(tmp_path / "config.toml"))
    assert {(one["recognised"]["profile"], one["recognised"]["sure"]) for one in found["sources"]} == {
        ("shedlock", "certain"),
        ("agenda", "likely"),
    }
    agenda = next(one for one in found["sources"] if one["recognised"]["profile"] == "agenda")
    assert agenda["recognised"]["collections"] == {"agendaJobs": "background"}
    assert agenda["totals"]["read"] == len(real_documents("agenda-6/agendaJobs"))
    assert "# also found, to be copied with a configuration of its own: agenda" in found["config"]
    mongo_database["shedLock"].drop()
    config = assessed(uri, mongo_database.name)["config"]
    (tmp_path / "renamed.toml").write_text(config)
    assert load_settings(tmp_path / "renamed.toml", {}).source.collections == {"agendaJobs": "background"}


def test_no_known_source_names_the_command_that_describes_one(mongo_database: Database[Any], uri: str) -> None:
    mongo_database["tasks"].insert_many([{"_id": number, "title": "x"} for number in range(30)])
    status, out, _ = call(uri, "--database", mongo_database.name)
    assert status == UNVERIFIED
    assert "source: none known: describe it with migrator source draft" in out
    assert "  tasks: 30 documents" in out
    assert "  migrator source draft --collection tasks --config config.toml > own.toml" in out


def test_an_address_with_a_login_is_neither_shown_nor_written(auth_server: MongoServer, tmp_path: Path) -> None:
    with MongoClient[Any](auth_server.uri) as client:
        client["acme"]["runs"].insert_many([run_of(_id=f"r{number}") for number in range(3)])
    page, config = tmp_path / "page.html", tmp_path / "config.toml"
    words = ["--database", "acme", "--write-config", str(config), "--report", str(page)]
    status, out, said = call(*words, MONGO_URI=auth_server.uri)
    assert status == 0, said
    assert auth_server.password
    for text in (out, said, config.read_text(), page.read_text()):
        assert auth_server.password not in text
    assert 'uri_env = "MONGO_URI"' in config.read_text()
    assert load_settings(config, {"MONGO_URI": auth_server.uri}).mongo.uri_env == "MONGO_URI"
    assert "ok  fence: write-block would stop the writers" in out
    again, _, said = call(*words, MONGO_URI=auth_server.uri)
    assert again == USAGE
    assert "page.html exists, and is not overwritten" in said


@pytest.fixture
def narrow(auth_server: MongoServer) -> str:
    """Return the address of a user who may read ``runs`` and list, and not read ``audit``."""
    with MongoClient[Any](auth_server.uri) as client:
        client.drop_database("acme")
        client["acme"]["runs"].insert_many([run_of(_id=f"r{number}") for number in range(3)])
        client["acme"]["audit"].insert_one({"_id": 1})
        rights = [
            {"resource": {"db": "acme", "collection": "runs"}, "actions": ["find", "collStats"]},
            {"resource": {"db": "acme", "collection": "audit"}, "actions": ["collStats"]},
        ]
        client["acme"].command("createRole", "narrow", privileges=rights, roles=[])
        client["acme"].command("createUser", "narrow", pwd="secret-x", roles=["narrow"])
    address = auth_server.uri.rpartition("@")[2].partition("/")
    return f"mongodb://narrow:secret-x@{address[0]}/acme?authSource=acme"


def test_what_may_not_be_read_is_said_and_the_rest_is_assessed(narrow: str) -> None:
    status, out, said = call(narrow)
    assert status == UNVERIFIED, said
    assert "audit: not read: the user may not read it" in out
    assert re.search(r"^  runs +3 .* all +3 ", out, flags=re.MULTILINE), out
    assert "secret-x" not in out + said


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("postgresql://localhost/x",), USAGE, "the address is not a MongoDB URI"),
        (("mongodb://127.0.0.1:1/x?serverSelectionTimeoutMS=200",), TOOL_FAILED, "the source cannot be reached"),
        (("mongodb://127.0.0.1:1",), USAGE, "--database is not given and the address names no database"),
        ((), USAGE, "Missing argument 'URI'"),
    ],
)
def test_a_wrong_address(words: tuple[str, ...], status: int, sentence: str) -> None:
    found, out, said = call(*words)
    assert found == status, said
    assert sentence in said
    assert not out


def test_an_empty_database_names_the_others(mongo_database: Database[Any], uri: str) -> None:
    mongo_database["runs"].insert_one(run_of(_id="r"))
    status, _, said = call(uri, "--database", fresh_name())
    assert status == USAGE
    assert "it is empty, or does not exist; the server has: " in said


def test_a_time_limit_leaves_something_unverified(mongo_database: Database[Any], uri: str) -> None:
    seed_quarter(mongo_database)
    status, out, _ = call(uri, "--database", mongo_database.name, "--time-limit", "1ms")
    assert status & UNVERIFIED
    assert "the time limit of 0.001 s was reached" in out


def test_a_product_without_a_tail_is_named_with_its_command(
    mongo_database: Database[Any], mongo_client: MongoClient[Any]
) -> None:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(5)])
    assert mongo_client.address is not None
    host, port = mongo_client.address
    with product_server(answers_of("cosmos-db-request-units"), (str(host), port)) as uri:
        status, out, said = call(uri, "--database", mongo_database.name)
    assert status == 0, said
    assert "Azure Cosmos DB for MongoDB (request units), answers as MongoDB 7.0.0" in out
    assert "a deletion is no event" in out
    assert "migrator backfill --no-position --config config.toml" in out


def test_views_are_named_and_not_read(mongo_database: Database[Any], uri: str) -> None:
    mongo_database["runs"].insert_one(run_of(_id="r"))
    mongo_database.create_collection("waiting", viewOn="runs", pipeline=[])
    found = assessed(uri, mongo_database.name)
    assert found["others"] == [{"documents": None, "kind": "view", "name": "waiting"}]
