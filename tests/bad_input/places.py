"""What the cases are called on: one good pair of databases, prepared once, and bad ones, made when first asked for."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql
from pymongo import MongoClient

from migrator.records import ALL
from migrator.testing.servers.mongo import MongoServer
from tests.bad_input.case import SECRET
from tests.copying import run_of
from tests.schema_rows import connect, insert
from tests.stellaops_documents import fresh

LEDGER = ("plans", "chunks", "quarantine", "notes", "dangling_references", "pending_documents")


class Places:
    """Databases by name; each is made once."""

    def __init__(
        self,
        mongo: MongoServer,
        client: MongoClient[Any],
        scheduler: Callable[[], str],
        empty: Callable[[], str],
        stack: ExitStack,
    ) -> None:
        self._mongo, self._client, self._scheduler, self._empty, self._stack = mongo, client, scheduler, empty, stack
        self._names: dict[str, str] = {}
        client.admin.command("createUser", "anna", pwd=SECRET, roles=["root"])
        stack.callback(client.admin.command, "dropUser", "anna")
        with psycopg.connect(self.dsn_of_server, autocommit=True) as admin:
            admin.execute("DROP ROLE IF EXISTS anna")
            admin.execute(sql.SQL("CREATE ROLE anna LOGIN SUPERUSER PASSWORD {}").format(sql.Literal(SECRET)))
        self.looking = psycopg.connect(self.own(self.target), autocommit=True)
        stack.callback(self.looking.close)

    # The good pair

    @cached_property
    def mongo(self) -> str:
        """URI of the source, with the secret."""
        return f"mongodb://anna:{SECRET}@127.0.0.1:{self._mongo.port}/?replicaSet=rs0&authSource=admin"

    @property
    def mongo_port(self) -> str:
        return str(self._mongo.port)

    @cached_property
    def database(self) -> str:
        """A source with a few documents, one of which cannot be moved."""
        source = self._new_source()
        source["schedules"].insert_one(fresh("schedules"))
        source["runs"].insert_many([run_of(_id="r1"), run_of(_id="r2"), run_of(_id="odd", state=SECRET)])
        return str(source.name)

    @cached_property
    def dsn_of_server(self) -> str:
        return self._empty()

    @cached_property
    def target(self) -> str:
        return self._scheduler()

    @cached_property
    def dsn(self) -> str:
        """DSN of the target, with the secret."""
        return self.with_login(self.target)

    @cached_property
    def pg(self) -> str:
        """Host and port of the target's server."""
        parts = urlsplit(self.target)
        return f"{parts.hostname}:{parts.port}"

    @cached_property
    def pg_port(self) -> str:
        return str(urlsplit(self.target).port)

    @cached_property
    def pg_name(self) -> str:
        return self.target.rpartition("/")[2]

    def own(self, dsn: str) -> str:
        return dsn

    def with_login(self, dsn: str) -> str:
        parts = urlsplit(dsn)
        return f"postgresql://anna:{SECRET}@{parts.hostname}:{parts.port}{parts.path}"

    def _new_source(self) -> Any:  # noqa: ANN401 - a database of documents of any kind
        name = f"bad_{secrets.token_hex(4)}"
        self._stack.callback(self._client.drop_database, name)
        return self._client[name]

    # Bad sources: names of databases

    @cached_property
    def view(self) -> str:
        source = self._new_source()
        source["all"].insert_one(run_of(_id="r1"))
        source.command("create", "runs", viewOn="all", pipeline=[])
        return str(source.name)

    @cached_property
    def series(self) -> str:
        source = self._new_source()
        source.create_collection("runs", timeseries={"timeField": "at"})
        source["runs"].insert_one({"_id": 1, "at": datetime(2026, 1, 1, tzinfo=UTC)})
        return str(source.name)

    @cached_property
    def others(self) -> str:
        source = self._new_source()
        source["executions\x1b[31m\u202e"].insert_one({"_id": 1})
        return str(source.name)

    @cached_property
    def hollow(self) -> str:
        """No document, but the collections."""
        source = self._new_source()
        source.create_collection("runs")
        return str(source.name)

    @cached_property
    def alone(self) -> str:
        """URI of a server that is no replica set."""
        server: MongoServer = self._stack.enter_context(MongoServer(fast=True, replica_set=None))
        client = self._stack.enter_context(MongoClient[Any](server.uri))
        client["alone"]["runs"].insert_one(run_of(_id="r1"))
        return server.uri

    @cached_property
    def guarded(self) -> str:
        """Host and port of a server with authentication; users nobody and reader."""
        server = self._stack.enter_context(MongoServer(auth=True, fast=True))
        client = self._stack.enter_context(MongoClient[Any](server.uri))
        client["guarded"]["runs"].insert_one(run_of(_id="r1"))
        client.admin.command("createUser", "nobody", pwd=SECRET, roles=[])
        client.admin.command("createUser", "reader", pwd=SECRET, roles=[{"role": "read", "db": "guarded"}])
        return f"127.0.0.1:{server.port}"

    # Bad targets: DSNs with the secret

    def _encoded(self, encoding: str) -> str:
        name = f"bad_{secrets.token_hex(4)}"
        with psycopg.connect(self.dsn_of_server, autocommit=True) as admin:
            admin.execute(
                sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0").format(
                    sql.Identifier(name), sql.Literal(encoding)
                )
            )
        return self.with_login(self.dsn_of_server.rpartition("/")[0] + f"/{name}")

    @cached_property
    def latin1(self) -> str:
        return self._encoded("LATIN1")

    @cached_property
    def sql_ascii(self) -> str:
        return self._encoded("SQL_ASCII")

    @cached_property
    def euc_jp(self) -> str:
        return self._encoded("EUC_JP")

    @cached_property
    def bare(self) -> str:
        """Never migrated."""
        return self.with_login(self.dsn_of_server)

    def _changed(self, *statements: str) -> str:
        dsn = self._scheduler()
        with psycopg.connect(dsn, autocommit=True) as admin:
            for one in statements:
                admin.execute(one.encode())
        return self.with_login(dsn)

    @cached_property
    def foreign(self) -> str:
        dsn = self._empty()
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute("CREATE SCHEMA scheduler")
            admin.execute("CREATE TABLE scheduler.theirs ()")
        return self.with_login(dsn)

    @cached_property
    def two_revisions(self) -> str:
        return self._changed("INSERT INTO scheduler.schema_revision VALUES ('f00d')")

    @cached_property
    def unknown_revision(self) -> str:
        return self._changed("INSERT INTO migration.schema_history VALUES ('f00d', 'f00d_x.py', 'x', now(), '9')")

    @cached_property
    def changed_file(self) -> str:
        return self._changed("UPDATE scheduler.schema_history SET sha256 = 'x' WHERE revision = '0001'")

    @cached_property
    def no_table(self) -> str:
        return self._changed("DROP TABLE migration.pending_documents CASCADE")

    @cached_property
    def strangers_rows(self) -> str:
        dsn = self._changed()
        with connect(dsn) as admin:
            insert(admin, "handlers")
        return dsn

    @cached_property
    def read_only(self) -> str:
        dsn = self._changed()
        name = dsn.rpartition("/")[2]
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        return dsn

    @cached_property
    def outsider(self) -> str:
        """The good target, as a user without rights."""
        with psycopg.connect(self.dsn_of_server, autocommit=True) as admin:
            admin.execute("DROP ROLE IF EXISTS bad_outsider")
            admin.execute(sql.SQL("CREATE ROLE bad_outsider LOGIN PASSWORD {}").format(sql.Literal(SECRET)))
        return self.dsn.replace("//anna:", "//bad_outsider:")

    @cached_property
    def locked(self) -> str:
        """A target with a table that a session keeps locked."""
        dsn = self._changed()
        holder = psycopg.connect(dsn, application_name="their session")
        self._stack.callback(holder.close)
        holder.execute("LOCK TABLE scheduler.runs IN ACCESS EXCLUSIVE MODE")
        return f"{dsn}?options=-c%20lock_timeout%3D200"

    # What must stay as it is

    def counts(self) -> tuple[object, ...]:
        """Return the rows of every table of the target, and the documents and names of every collection."""
        tables = [f"scheduler.{one.table}" for one in ALL] + [f"migration.{one}" for one in LEDGER]
        query = "SELECT " + ", ".join(f"(SELECT count(*) FROM {one})" for one in tables)
        rows = self.looking.execute(query.encode()).fetchone()
        source = self._client[self.database]
        names = sorted(source.list_collection_names())
        return rows, [(one, source[one].count_documents({})) for one in names]
