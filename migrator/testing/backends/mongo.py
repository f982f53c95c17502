"""Databases of MongoDB, one for each test: on an embedded server, or on that of ``MIGRATOR_TEST_MONGO_URI``."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pymongo import MongoClient

from migrator.config import MongoSettings, PersistenceSettings, Settings
from migrator.testing.servers import foreign
from migrator.testing.servers.mongo import MongoServer


class MongoDatabases:
    """A server, which ends with ``close``, and the databases of the tests in it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        server = self._stack.enter_context(foreign.mongo([]) or MongoServer(fast=True))
        self._uri = server.uri
        self._client = self._stack.enter_context(MongoClient[dict[str, Any]](server.uri))

    @contextmanager
    def database(self) -> Iterator[Settings]:
        """Name a database that does not exist, and drop it afterwards; yield the settings for it."""
        name = f"test_{secrets.token_hex(6)}"
        try:
            yield Settings(
                mongo=MongoSettings(uri=self._uri, database=name), persistence=PersistenceSettings(scheduler="mongo")
            )
        finally:
            self._client.drop_database(name)

    def close(self) -> None:
        """End the server, unless somebody else started it."""
        self._stack.close()
