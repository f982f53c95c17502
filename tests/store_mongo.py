"""A MongoDB store for tests; the records to put into it are those of ``tests.store_postgres``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from migrator.config import MongoSettings, PersistenceSettings, Settings
from migrator.store.mongo.store import MongoStore
from tests.copying import uri_of


def settings(database: Database[Any]) -> Settings:
    return Settings(
        mongo=MongoSettings(uri=uri_of(database), database=database.name),
        persistence=PersistenceSettings(scheduler="mongo"),
    )


@contextmanager
def opened(database: Database[Any]) -> Iterator[MongoStore]:
    store = MongoStore(settings(database))
    try:
        yield store
    finally:
        store.close()
