"""The backends that the suite runs on, unchanged: each a store, and a way to put rows there that no session may write.

One store serves all tests of a backend; every test has a tenant of its own.
"""

from collections.abc import Callable, Iterator
from typing import Any, cast
from uuid import UUID

import pytest

from migrator.config import MongoSettings, PersistenceSettings, PostgresSettings, Settings
from migrator.records import Record
from migrator.store import open_store, prepare
from migrator.store.locks import Locks
from migrator.store.protocols import SessionStore, Store
from migrator.store.queue import Queue
from migrator.store.workers import Workers
from migrator.testing.memory.store import MemoryStore
from migrator.testing.servers import binaries
from tests.contract.rows import NOW, fresh
from tests.cron_lines import DEEP

VERSIONS = [f"pg{version}" for version in binaries.postgres_versions()]
BACKENDS = ["memory", "mongo", *VERSIONS]
ON_THE_OLDEST_TOO = ("test_administration.py", "test_columns.py", "test_whole.py")
"""Files that fill, read and empty every table. They run on the newest and the oldest version of PostgreSQL.
``integration/test_statements.py`` prepares each statement on every version, since versions differ in what they parse
and plan. Of the other files the newest version is enough each day; ``MIGRATOR_TESTS=deep`` runs all on all."""
ROUTES = "test_routes.py"
"""Rows of the three systems are copied to PostgreSQL only."""
SCENARIOS = "test_scenarios.py"
"""The scenarios run on MongoDB and PostgreSQL through their checks (``integration/verify_behaviour``)."""


class Bench:
    """A backend: its store, ``plant``, which writes rows past the store, and ``look``, which reads one."""

    def __init__(
        self, store: SessionStore, plant: Callable[..., None], look: Callable[[type[Record], UUID], Any]
    ) -> None:
        self.store, self.plant, self.look = store, plant, look


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Name the backends of a test; ``MIGRATOR_TESTS=deep`` runs all tests on all of them."""
    if "bench" not in metafunc.fixturenames:
        return
    path = metafunc.definition.path
    backends = ["memory", "mongo", VERSIONS[0]]
    if path.name in ON_THE_OLDEST_TOO:
        backends += VERSIONS[1:][-1:]
    if DEEP:
        backends = BACKENDS
    if path.name == SCENARIOS and not DEEP:
        backends = ["memory"]
    if path.name == ROUTES:
        backends = VERSIONS if DEEP else VERSIONS[:1]
    metafunc.parametrize("bench", backends, indirect=True, scope="session")


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "memory":
        memory = MemoryStore()
        yield Bench(memory, memory.plant, memory.look)
    elif request.param == "mongo":
        yield from mongo_bench(request.getfixturevalue("mongo_server").uri)
    else:
        cluster = request.getfixturevalue("clusters").get(int(request.param.removeprefix("pg")))
        dsn = cluster.scheduler()
        yield from postgres_bench(dsn)
        cluster.drop(dsn)


def mongo_bench(uri: str) -> Iterator[Bench]:
    from migrator.connections.mongo import open_source  # noqa: PLC0415 - only where this backend is used
    from migrator.sources.profile import Context  # noqa: PLC0415 - as below
    from migrator.store.mongo.places import PLACES, document_of  # noqa: PLC0415 - as above

    settings = Settings(
        mongo=MongoSettings(uri=uri, database=fresh()), persistence=PersistenceSettings(scheduler="mongo")
    )
    database, store = open_source(settings), open_store(settings)
    prepare(store, lambda _: True)

    def plant(*rows: Record) -> None:
        for row in rows:
            database[PLACES[type(row)][0].name].insert_one(document_of(row))

    def look(record: type[Record], identity: UUID) -> Record | None:
        place = PLACES[record][0]
        found = database[place.name].find_one({"_id": {"$in": place.keys(identity)}})
        context = Context(as_of=NOW, of_store=True)
        return None if found is None else place.collection.decode(found, context).rows[0]

    yield Bench(store, plant, look)
    store.close()
    database.client.drop_database(database.name)
    database.client.close()


def postgres_bench(dsn: str) -> Iterator[Bench]:
    from psycopg.sql import SQL  # noqa: PLC0415 - as below

    from migrator.store.postgres.rows import table  # noqa: PLC0415 - only where this backend is used
    from tests.schema_rows import connect  # noqa: PLC0415 - as above

    settings = Settings(postgres=PostgresSettings(dsn=dsn), persistence=PersistenceSettings(scheduler="postgres"))
    store = open_store(settings)

    def plant(*rows: Record) -> None:
        with connect(dsn) as connection:
            for row in rows:
                connection.execute(table(type(row)).insert(), table(type(row)).values(row))

    def look(record: type[Record], identity: UUID) -> Record | None:
        with connect(dsn) as connection, connection.cursor(row_factory=table(record).factory) as cursor:
            return cursor.execute(table(record).select + SQL("WHERE id = %s"), (identity,)).fetchone()

    yield Bench(store, plant, look)
    store.close()


@pytest.fixture(scope="session")
def store(bench: Bench) -> SessionStore:
    return bench.store


@pytest.fixture(scope="session")
def at_work(store: SessionStore) -> Store:
    """The store, with what crosses tenants."""
    return cast("Store", store)


@pytest.fixture(scope="session")
def queue(at_work: Store) -> Queue:
    """Firing and claiming; name the tenant in each call, since the others' rows are there too."""
    return at_work.queue


@pytest.fixture(scope="session")
def workers(at_work: Store) -> Workers:
    """Processes; all tests of a backend share them."""
    return at_work.workers


@pytest.fixture(scope="session")
def locks(at_work: Store) -> Locks:
    return at_work.locks


@pytest.fixture(scope="session")
def plant(bench: Bench) -> Callable[..., None]:
    """Write rows of ``*``, or of another source, which no session writes."""
    return bench.plant


@pytest.fixture(scope="session")
def look(bench: Bench) -> Callable[[type[Record], UUID], Any]:
    """Read a row past the store, which hides some."""
    return bench.look


@pytest.fixture
def tenant() -> str:
    return fresh()
