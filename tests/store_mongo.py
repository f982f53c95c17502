"""A MongoDB store for tests; the records to put into it are those of ``tests.store_postgres``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymongo.database import Database

from migrator.config import MongoSettings, PersistenceSettings, Settings
from migrator.records import Schedule
from migrator.store import prepare
from migrator.store.mongo.store import MongoStore
from tests.copying import uri_of


def settings(database: Database[Any], options: str = "") -> Settings:
    return Settings(
        mongo=MongoSettings(uri=uri_of(database) + options, database=database.name),
        persistence=PersistenceSettings(scheduler="mongo"),
    )


@contextmanager
def opened(
    database: Database[Any], covers: Callable[[Schedule], bool] = lambda _: True, *, options: str = ""
) -> Iterator[MongoStore]:
    """Open a store and prepare it, as an application does that works for the schedules of ``covers``.

    ``options`` follow those of the URI.
    """
    store = MongoStore(settings(database, options))
    prepare(store, covers)
    try:
        yield store
    finally:
        store.close()
