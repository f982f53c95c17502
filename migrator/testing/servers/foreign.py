"""Servers that somebody started, in place of those that the tests start.

``MIGRATOR_TEST_MONGO_URI`` and ``MIGRATOR_TEST_PG_DSN`` name them, for the tests of this project and for those of an
application (``migrator.testing.pytest_plugin``). What the tests make there has names of its own, and is removed at the
end.
"""

import os
from typing import Any, Final, Self, cast

import psycopg
from psycopg import sql
from pymongo import MongoClient
from pymongo.uri_parser import parse_uri

from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer

MONGO: Final = "MIGRATOR_TEST_MONGO_URI"
POSTGRES: Final = "MIGRATOR_TEST_PG_DSN"


class ForeignMongo:
    """A MongoDB: a replica set whose user is ``root``, or that asks for no password."""

    def __init__(self, uri: str, names: list[str]) -> None:
        """``names``: of the databases that the tests may have made, when they end."""
        self.uri, self._names = uri, names
        parsed = parse_uri(uri)
        self.user, self.password = parsed["username"], parsed["password"]
        self.replica_set = parsed["options"].get("replicaSet")
        self.port = parsed["nodelist"][0][1]

    def __enter__(self) -> Self:
        """Start nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the databases of the tests."""
        with MongoClient[dict[str, Any]](self.uri) as client:
            for name in set(self._names) & set(client.list_database_names()):
                client.drop_database(name)


class ForeignPostgres(PostgresServer):
    """A PostgreSQL, by the address of a superuser without a database."""

    def __init__(self, dsn: str) -> None:
        self._dsn, self._made = dsn.rstrip("/"), list[str]()
        with psycopg.connect(self.dsn()) as connection:
            self.version = connection.info.server_version // 10_000
            self.user, self.password = connection.info.user, connection.info.password
            self.port = connection.info.port
        self._fast = False

    def __enter__(self) -> Self:
        """Start nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop the databases of the tests."""
        for name in self._made:
            self.drop_database(name)

    def dsn(self, dbname: str = "postgres", *, user: str | None = None, password: str | None = None) -> str:
        """Return the connection string of a database, for the superuser unless another user is given."""
        if user is None:
            return f"{self._dsn}/{dbname}"
        made = psycopg.conninfo.make_conninfo(f"{self._dsn}/{dbname}", user=user, password=password or self.password)
        parts = psycopg.conninfo.conninfo_to_dict(made)
        return f"postgresql://{user}:{parts['password']}@{parts['host']}:{parts['port']}/{dbname}"

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its connection string; it is dropped with the others of the tests."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        self._made.append(name)
        return self.dsn(name)


def mongo(names: list[str]) -> MongoServer | None:
    """Return the MongoDB that the environment names."""
    uri = os.environ.get(MONGO)
    return cast("MongoServer", ForeignMongo(uri, names)) if uri else None


def postgres() -> PostgresServer | None:
    """Return the PostgreSQL that the environment names."""
    dsn = os.environ.get(POSTGRES)
    return ForeignPostgres(dsn) if dsn else None


def described() -> list[str]:
    """Return the servers that are not the tests' own, without passwords."""
    hosts = [f"{host}:{port}" for host, port in parse_uri(os.environ[MONGO])["nodelist"]] if MONGO in os.environ else []
    found = [f"MongoDB of {MONGO}, {', '.join(hosts)}"] if hosts else []
    return [*found, *([f"PostgreSQL of {POSTGRES}"] if POSTGRES in os.environ else [])]
