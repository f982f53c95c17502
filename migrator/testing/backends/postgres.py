"""Databases of PostgreSQL, one for each test: on an embedded server, or on that of ``MIGRATOR_TEST_PG_DSN``."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from migrator.config import PersistenceSettings, PostgresSettings, Settings
from migrator.testing.servers import foreign
from migrator.testing.servers.databases import SchedulerDatabases
from migrator.testing.servers.postgres import PostgresServer

POOL_SIZE = 4
"""Connections of a test's store."""


def new_name() -> str:
    """Return a name that no database has."""
    return f"test_{secrets.token_hex(6)}"


class PostgresDatabases:
    """A server, which ends with ``close``, and the databases of the tests in it."""

    def __init__(self) -> None:
        self._servers = ExitStack()
        server = self._servers.enter_context(foreign.postgres() or PostgresServer(fast=True))
        self._databases = SchedulerDatabases(server, new_name, template=new_name())

    @contextmanager
    def database(self) -> Iterator[Settings]:
        """Create a database with the tables of the scheduler, and drop it; yield the settings for it."""
        dsn = self._databases.scheduler()
        try:
            yield Settings(
                postgres=PostgresSettings(dsn=dsn, pool_size=POOL_SIZE),
                persistence=PersistenceSettings(scheduler="postgres"),
            )
        finally:
            self._databases.drop(dsn)

    def close(self) -> None:
        """End the server, or drop the tests' databases on a server that somebody started."""
        self._servers.close()
