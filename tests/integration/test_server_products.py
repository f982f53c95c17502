"""Servers that answer as other products do, asked by the real driver; what the product lacks is refused in words."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import MongoSettings, Settings
from migrator.connections.mongo import open_source
from migrator.connections.server_product import UNKNOWN_FEATURE, ServerProduct, SourceServer, products, source_server
from migrator.cutover import server_gates
from migrator.exit_status import DIFFERENT, UNVERIFIED, USAGE
from migrator.testing.servers.mongo import MongoServer
from tests.copying import run, run_of, settings_for, write_config
from tests.golden.docs import server_products_page
from tests.product_server import NAMES, answers_of, product_server

pytestmark = pytest.mark.proves("6-U4")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "server-products.md"
WITHOUT_A_TAIL = [name for name in NAMES if name.startswith(("ferretdb", "cosmos", "contradicting"))]


def asked(uri: str) -> SourceServer:
    with open_source(Settings(mongo=MongoSettings(uri=uri, database="scheduler"))).client as client:
        return source_server(client.scheduler)


@pytest.mark.parametrize("name", NAMES)
def test_a_product_is_told_by_its_answers(name: str) -> None:
    answers = answers_of(name)
    with product_server(answers) as uri:
        server = asked(uri)
    assert server.product.name == answers["expected"]
    assert server.version == answers["buildInfo"]["version"]
    assert bool(server.why_no_tail) == (name in WITHOUT_A_TAIL)


def test_the_server_that_the_tests_run_on_is_the_community_edition(mongo_server: MongoServer) -> None:
    server = asked(mongo_server.uri)
    assert server.product.name == "mongodb-community"
    assert server.words == "MongoDB (community), 6.0.27"
    assert server.signs == ()


@pytest.mark.parametrize("product", products(), ids=lambda one: one.name)
def test_every_product_has_an_answer_for_every_feature_with_its_reason(product: ServerProduct) -> None:
    assert all(one.why and one != UNKNOWN_FEATURE for one in product.features().values())
    assert product.source
    assert product.name in {answers_of(name)["expected"] for name in NAMES}


def test_every_host_name_is_told_without_asking_another_address() -> None:
    for product in products():
        for end in product.hosts:
            answers = answers_of("mongodb-enterprise" if product.genuine else "unknown")
            answers["hello"]["me"] = f"one{end}:27017"
            with product_server(answers) as uri:
                assert asked(uri).product == product, end


@pytest.fixture
def data(mongo_database: Database[Any]) -> Database[Any]:
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(20)])
    return mongo_database


@pytest.fixture
def address(mongo_client: MongoClient[Any]) -> tuple[str, int]:
    assert mongo_client.address is not None
    host, port = mongo_client.address
    return str(host), port


@pytest.fixture(params=["ferretdb-2", "ferretdb-2-with-set-name", "cosmos-db-request-units", "cosmos-db-vcore"])
def settings(
    request: pytest.FixtureRequest, data: Database[Any], address: tuple[str, int], scheduler_dsn: str
) -> Iterator[Settings]:
    with product_server(answers_of(request.param), address) as uri:
        yield msgspec.structs.replace(
            settings_for(data, scheduler_dsn), mongo=MongoSettings(uri=uri, database=data.name)
        )


REFUSAL = r"the source is (FerretDB|Azure Cosmos DB for MongoDB [^,]+).*, and .*(change stream|deletions)"


def test_there_is_a_copy_without_a_tail(settings: Settings, tmp_path: Path) -> None:
    config = str(write_config(tmp_path, settings))

    def refused(*words: str) -> None:
        status, out, said = run(*words, "--config", config)
        assert status == USAGE, out + said
        assert re.search(REFUSAL, said), said
        assert "--no-position" in said

    refused("backfill")
    status, out, said = run("backfill", "--no-position", "--config", config)
    assert status == 0, out + said
    refused("tail", "--until-caught-up")
    refused("tail", "--dry-run")
    status, out, said = run("parity", "--config", config)
    assert status == 0, out + said
    status, out, said = run("parity", "--repair", "apply", "--yes", "--config", config)
    assert status == 0, out + said
    status, out, _ = run("cutover", "plan", "--config", config)
    assert status == UNVERIFIED, out
    assert re.search(rf"NO +replica set: {REFUSAL}", out), out


def test_the_doctor_names_the_product_and_what_follows(settings: Settings, tmp_path: Path) -> None:
    status, out, _ = run("doctor", "--config", str(write_config(tmp_path, settings)))
    assert status & DIFFERENT
    (line,) = re.findall(r"^NO  server product: .*", out, flags=re.MULTILINE)
    assert "answers as MongoDB" in line
    assert "change stream: no" in line or "deletions in the change stream: no" in line
    assert line.endswith("call backfill with --no-position while nothing writes")


def test_an_unknown_product_stops_nothing_and_is_named(mongo_database: Database[Any]) -> None:
    with product_server(answers_of("unknown")) as uri, MongoClient[Any](uri) as client:
        passed, words = server_gates.server_product(client[mongo_database.name])
    assert passed is None
    assert words == "unknown product, answers as MongoDB 7.0.0"


def test_a_server_of_mongodb_is_no_finding(mongo_database: Database[Any]) -> None:
    assert server_gates.server_product(mongo_database) == (True, "MongoDB (community), 6.0.27")


def test_the_page_is_made_from_the_data() -> None:
    text = PAGE.read_text(encoding="utf-8")
    part = server_products_page.made_part()
    if os.environ.get("UPDATE_GOLDEN"):
        text = text.replace(between_marks(text), part)
        PAGE.write_text(text, encoding="utf-8")
    assert between_marks(text) == part, "docs/server-products.md is not current; UPDATE_GOLDEN=1 writes it anew"


def between_marks(page: str) -> str:
    return page[page.index(server_products_page.BEGIN) : page.index(server_products_page.END)]
