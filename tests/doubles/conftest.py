"""MongoDB for code that only finds, counts, samples and inserts: mongomock each day, a server too in the deep run.

mongomock has no raw documents, no commands and no read concern, so what the tool reads those with is replaced here:
the connection, and the encoding of a drawn document.
"""

from typing import Any, cast

import bson
import mongomock
import pytest
from pymongo.database import Database

from migrator.config import MongoSettings, Settings
from migrator.pipeline import source_sample
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.cron_lines import DEEP

Document = dict[str, Any]


@pytest.fixture(params=["mongomock", *(["mongo"] if DEEP else [])])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(side: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Database[Document]:
    if side == "mongo":
        return cast("Database[Document]", request.getfixturevalue("mongo_database"))
    double: Any = mongomock.MongoClient()[fresh_name()]

    def draw(source: Any, name: str, size: int) -> list[bytes]:  # noqa: ANN401 - the double
        return [bson.encode(found) for found in source[name].aggregate([{"$sample": {"size": size}}])]

    monkeypatch.setattr(source_sample, "open_source", lambda _: double)
    monkeypatch.setattr(source_sample, "committed", lambda source: source)
    monkeypatch.setattr(source_sample, "draw", draw)
    return cast("Database[Document]", double)


@pytest.fixture
def settings(side: str, database: Database[Document], request: pytest.FixtureRequest) -> Settings:
    if side == "mongo":
        server: MongoServer = request.getfixturevalue("mongo_server")
        return Settings(mongo=MongoSettings(uri=server.uri, database=database.name))
    return Settings(mongo=MongoSettings(uri="mongodb://127.0.0.1:1", database=database.name))
