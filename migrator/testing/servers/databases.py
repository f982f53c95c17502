"""Databases of PostgreSQL for tests: empty ones, and copies of one that has the tables of the scheduler."""

from collections.abc import Callable

from migrator.schema.revisions import upgrade
from migrator.testing.servers.postgres import PostgresServer


class SchedulerDatabases:
    """The databases of a server, one for each test; the tables are made once, and copied."""

    def __init__(self, server: PostgresServer, new_name: Callable[[], str], *, template: str) -> None:
        """``new_name`` returns a name nobody has used; ``template``: that of the database which is copied."""
        self.server = server
        self._new_name, self._template = new_name, template
        self._has_template = False

    def empty(self) -> str:
        """Create an empty database; return its address."""
        return self.server.create_database(self._new_name())

    def scheduler(self) -> str:
        """Create a database with the tables of the scheduler, and no row; return its address."""
        if not self._has_template:
            upgrade(self.server.create_database(self._template))
            self._has_template = True
        return self.server.create_database(self._new_name(), template=self._template)

    def drop(self, dsn: str) -> None:
        """Drop a database by its address."""
        self.server.drop_database(dsn.rpartition("/")[2])
