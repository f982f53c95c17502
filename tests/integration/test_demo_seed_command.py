"""``migrator demo seed`` on a real MongoDB."""

import json
from typing import Any

from click.testing import CliRunner, Result
from pymongo import MongoClient
from pymongo.database import Database

from migrator.cli import cli
from migrator.testing.demo import faulty_documents
from migrator.testing.servers.mongo import MongoServer


def seed(server: MongoServer, *options: str) -> Result:
    return seed_at(server.uri, *options)


def seed_at(uri: str, *options: str) -> Result:
    return CliRunner(env={"MIGRATOR_MONGO__URI": uri}).invoke(cli, ["demo", "seed", *options])


def test_it_writes_says_what_and_lists_the_trouble(mongo_server: MongoServer, mongo_database: Database[Any]) -> None:
    done = seed(mongo_server, "--database", mongo_database.name, "--seed", "5")
    assert done.exit_code == 0, done.output
    total = sum(mongo_database[name].count_documents({}) for name in mongo_database.list_collection_names())
    assert f"{total:,} documents written into {mongo_database.name}, seed 5" in done.output
    assert "2 x no-tenant" in done.output
    assert "will be quarantined: no-tenant" in done.output


def test_a_database_that_holds_anything_is_refused_unless_it_may_be_dropped(
    mongo_server: MongoServer, mongo_database: Database[Any]
) -> None:
    mongo_database["mine"].insert_one({"_id": 1})
    refused = seed(mongo_server, "--database", mongo_database.name)
    assert refused.exit_code == 1
    assert "is not empty: it has mine; name another with --database, or let --drop remove it" in str(refused.exception)
    assert mongo_database["mine"].count_documents({}) == 1
    done = seed(mongo_server, "--database", mongo_database.name, "--drop", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said["documents"].keys() == set(mongo_database.list_collection_names())
    assert len(said["planted"]) == len(faulty_documents())


def test_clean_data_has_no_trouble_and_triggers_come_only_when_asked_for(
    mongo_server: MongoServer, mongo_database: Database[Any]
) -> None:
    done = seed(mongo_server, "--database", mongo_database.name, "--clean", "--triggers", "--json")
    said = json.loads(done.output)
    assert said["planted"] == []
    assert said["documents"]["triggers"] == mongo_database["triggers"].count_documents({}) == 400
    assert mongo_database["runs"].count_documents({"_id": {"$type": "objectId"}}) == 0


def test_the_database_of_the_uri_is_used_else_that_of_the_product(
    mongo_server: MongoServer, mongo_client: MongoClient[Any]
) -> None:
    named = mongo_server.uri.replace("/?", "/from_the_uri?")
    for uri, name in ((named, "from_the_uri"), (mongo_server.uri, "stellaops_scheduler")):
        done = seed_at(uri, "--clean")
        assert done.exit_code == 0, done.output
        assert mongo_client[name]["schedules"].count_documents({}) == 400
        mongo_client.drop_database(name)


def test_a_database_of_the_server_is_never_written_or_dropped(mongo_server: MongoServer) -> None:
    refused = seed(mongo_server, "--database", "admin", "--drop")
    assert "belongs to the server" in str(refused.exception)


def test_a_database_is_dropped_only_by_its_name(mongo_server: MongoServer, mongo_database: Database[Any]) -> None:
    mongo_database["mine"].insert_one({"_id": 1})
    uri = mongo_server.uri.replace("/?", f"/{mongo_database.name}?")
    refused = seed_at(uri, "--drop")
    assert "add --database NAME" in str(refused.exception)
    assert mongo_database["mine"].count_documents({}) == 1


def test_the_database_of_the_configuration_has_precedence_over_that_of_the_uri(
    mongo_server: MongoServer, mongo_client: MongoClient[Any], mongo_database: Database[Any]
) -> None:
    uri = mongo_server.uri.replace("/?", "/from_the_uri?")
    environment = {"MIGRATOR_MONGO__URI": uri, "MIGRATOR_MONGO__DATABASE": mongo_database.name}
    done = CliRunner(env=environment).invoke(cli, ["demo", "seed", "--clean"])
    assert done.exit_code == 0, done.output
    assert mongo_database["schedules"].count_documents({}) == 400
    assert "from_the_uri" not in mongo_client.list_database_names()
