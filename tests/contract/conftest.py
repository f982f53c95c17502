"""The backends that the suite runs on, unchanged: each a store, and a way to put rows there that no session may write.

One store serves all tests of a backend; every test has a tenant of its own.
"""

from collections.abc import Callable, Iterator

import pytest

from migrator.config import MongoSettings, PersistenceSettings, PostgresSettings, Settings
from migrator.embedded import binaries
from migrator.records.base import Record
from migrator.store import open_store
from migrator.store.ports import Store
from tests.contract.memory.store import MemoryStore
from tests.contract.rows import fresh

BACKENDS = ["memory", "mongo", *(f"pg{version}" for version in binaries.postgres_versions())]


class Bench:
    """A backend: its store, and ``plant``, which writes rows past the store."""

    def __init__(self, store: Store, plant: Callable[..., None]) -> None:
        self.store, self.plant = store, plant


@pytest.fixture(scope="session", params=BACKENDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        memory = MemoryStore()
        yield Bench(memory, memory.plant)
    elif request.param == "mongo":
        yield from mongo_bench(request.getfixturevalue("mongo_server").uri)
    else:
        cluster = request.getfixturevalue("clusters").get(int(request.param.removeprefix("pg")))
        dsn = cluster.scheduler()
        yield from postgres_bench(dsn)
        cluster.drop(dsn)


def mongo_bench(uri: str) -> Iterator[Bench]:
    from migrator.store.mongo.client import open_source  # noqa: PLC0415 - only where this backend is used
    from migrator.store.mongo.places import PLACES, document_of  # noqa: PLC0415 - as above

    settings = Settings(
        mongo=MongoSettings(uri=uri, database=fresh()), persistence=PersistenceSettings(scheduler="mongo")
    )
    database, store = open_source(settings), open_store(settings)

    def plant(*rows: Record) -> None:
        for row in rows:
            database[PLACES[type(row)][0].name].insert_one(document_of(row))

    yield Bench(store, plant)
    store.close()
    database.client.drop_database(database.name)
    database.client.close()


def postgres_bench(dsn: str) -> Iterator[Bench]:
    from migrator.store.postgres.mapping import table  # noqa: PLC0415 - only where this backend is used
    from tests.schema_rows import connect  # noqa: PLC0415 - as above

    settings = Settings(postgres=PostgresSettings(dsn=dsn), persistence=PersistenceSettings(scheduler="postgres"))
    store = open_store(settings)

    def plant(*rows: Record) -> None:
        with connect(dsn) as connection:
            for row in rows:
                connection.execute(table(type(row)).insert, table(type(row)).values(row))

    yield Bench(store, plant)
    store.close()


@pytest.fixture(scope="session")
def store(bench: Bench) -> Store:
    return bench.store


@pytest.fixture(scope="session")
def plant(bench: Bench) -> Callable[..., None]:
    """Write rows of ``*``, or of another source, which no session writes."""
    return bench.plant


@pytest.fixture
def tenant() -> str:
    return fresh()
