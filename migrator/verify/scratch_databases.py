"""Scratch databases of one run, which are dropped when the run ends, however it ends.

``scratch_target`` makes a database in PostgreSQL; ``scratch_databases`` makes one on both servers, and clones of it.
All carry the run's name. The run holds an advisory lock of that name in the configured database. A database whose lock
nobody holds was left by a killed run, and the next run of the same kind drops it. Creation begins with the lock and
PostgreSQL, and removal ends there, so that the one always tells of the other.
"""

import itertools
import re
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec
from bson.raw_bson import RawBSONDocument
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo
from pymongo.errors import OperationFailure

from migrator.config import CopySettings, HookSettings, Settings, postgres_dsn
from migrator.connections.advisory_locks import advisory_lock, held_keys
from migrator.connections.mongo import UNAUTHORIZED, MongoDatabase, grant_of, open_source, translate_errors
from migrator.connections.postgres import Connection, open_login
from migrator.connections.postgres import translate_errors as translate_target_errors
from migrator.durations import NONE
from migrator.errors import RefusedError
from migrator.pipeline.sessions import close_cached
from migrator.values.identity import stable_hash64

PREFIX: Final = "migrator_scratch_"
"""Of databases on both servers."""
TARGET_PREFIX: Final = "migrator_rehearsal_"
"""Prefix of databases in PostgreSQL alone: they can be removed without a connection to MongoDB."""
_END_OWN_SESSIONS: Final = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND usename = current_user"
    " AND pid <> pg_backend_pid()"
)


class ScratchDatabases:
    """The scratch databases of a run: while checks run on one clone, the next is made and the last one dropped."""

    def __init__(self, settings: Settings, name: str, control: Connection, source: MongoDatabase) -> None:
        self._control = control
        self._given = settings
        self._numbers = itertools.count(1)
        self._clones: set[str] = set()
        self._background = ThreadPoolExecutor(1)
        self._ahead: Future[str] | None = None
        self.name = name
        self.source = source
        self.settings = self._with(name)
        """Those of the base: the copy from which the clones are made."""

    def _with(self, database: str) -> Settings:
        given = _settings_of(self._given, database)
        return msgspec.structs.replace(
            given,
            mongo=_mongo_settings(given, self.name),
            # what is copied there was chosen already, and its ages say nothing of today
            copy=_unthrottled(msgspec.structs.replace(given.copy, workers=1, executor="local", history="all")),
            hooks=HookSettings(),
        )

    @contextmanager
    def clone(self) -> Iterator[Settings]:
        """Lend a clone of the base, dropped afterwards; nobody may be connected to the base."""
        name = (self._ahead or self._background.submit(self._make)).result()
        self._ahead = self._background.submit(self._make)
        try:
            yield self._with(name)
        finally:
            close_cached()
            self._background.submit(self._remove, name)

    def _make(self) -> str:
        name = f"{self.name}_{next(self._numbers)}"
        self._clones.add(name)
        create_database(self._control, name, template=self.name)
        return name

    def _remove(self, name: str) -> None:
        drop_database(self._control, name)
        self._clones.discard(name)

    def close(self) -> None:
        """Drop every clone that still exists."""
        self._background.shutdown()
        for name in sorted(self._clones):
            drop_database(self._control, name)


@contextmanager
def scratch_target(settings: Settings) -> Iterator[Settings]:
    """Lend the settings that lead to a new database in PostgreSQL; first drop what killed runs have left.

    Raises ``RefusedError`` where the user may not make databases.
    """
    name = _new_name(TARGET_PREFIX)
    with translate_target_errors("the target"), open_login(settings) as control:
        for left in itertools.chain.from_iterable(leftovers(control, TARGET_PREFIX).values()):
            drop_database(control, left)
        with _database(control, name):
            yield _settings_of(settings, name)


@contextmanager
def scratch_databases(settings: Settings) -> Iterator[ScratchDatabases]:
    """Make the scratch databases, and drop them in every case; first drop what killed runs have left.

    Raises ``RefusedError`` where a right is missing, ``UnreachableError`` where a server is.
    """
    name = _new_name(PREFIX)
    with ExitStack() as closing, translate_target_errors("the target"):
        source = open_source(msgspec.structs.replace(settings, mongo=_mongo_settings(settings, name)))
        closing.callback(source.client.close)
        control = closing.enter_context(open_login(settings))
        remove_leftovers(control, source)
        closing.enter_context(_database(control, name))
        with writes(source):
            source["_migrator"].insert_one({"_id": name})
            closing.callback(_drop_source, source, name)
            source["_migrator"].drop()
        databases = ScratchDatabases(settings, name, control, source)
        closing.callback(databases.close)
        closing.callback(close_cached)
        yield databases


@contextmanager
def writes(source: MongoDatabase) -> Iterator[None]:
    """Say that the right to write into a scratch database is missing, where the server refuses it."""
    with translate_errors("the source"):
        try:
            yield
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            raise RefusedError(
                "the source's user may not create scratch databases (each has a new name); as an administrator run",
                grant=grant_of(source, "readWriteAnyDatabase", "admin"),
            ) from error


def insert_documents(source: MongoDatabase, name: str, raws: Iterable[bytes]) -> int:
    """Write documents, byte for byte, into a collection of the scratch database; return how many."""
    documents = [RawBSONDocument(raw) for raw in raws]
    if documents:
        with writes(source):
            source[name].insert_many(documents)
    return len(documents)


def create_database(control: Connection, name: str, template: str | None = None) -> None:
    """Create a database; raise ``RefusedError`` where the right is missing."""
    copied = sql.SQL(" TEMPLATE {}").format(sql.Identifier(template)) if template else sql.SQL("")
    try:
        control.execute(sql.SQL("CREATE DATABASE {}{}").format(sql.Identifier(name), copied))
    except errors.InsufficientPrivilege as error:
        user = sql.Identifier(control.info.user).as_string(control)
        raise RefusedError(
            "the target's user may not create scratch databases; as an administrator run",
            grant=f"ALTER ROLE {user} CREATEDB",
        ) from error


def drop_database(control: Connection, name: str) -> None:
    """Drop a database, if it is there, and end the sessions in it.

    With FORCE the server refuses a user that is no superuser while an autovacuum worker is in the database. Without it
    the server ends the worker itself, and waits some seconds for other sessions.
    """
    statement = sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name))
    try:
        control.execute(statement + sql.SQL(" WITH (FORCE)"))
    except errors.InsufficientPrivilege:
        control.execute(_END_OWN_SESSIONS, (name,))
        control.execute(statement)


@contextmanager
def _database(control: Connection, name: str) -> Iterator[None]:
    """Make a database under the lock of its name, and drop it."""
    with advisory_lock(control, _key(name)):
        try:
            create_database(control, name)
            yield
        finally:
            drop_database(control, name)


def leftovers(control: Connection, prefix: str) -> dict[str, list[str]]:
    """Return the runs whose lock nobody holds any more, each with its databases, the clones first."""
    held, pattern = held_keys(control), re.compile(rf"({prefix}[0-9a-f]{{12}})(_[0-9]+)?")
    runs: dict[str, list[str]] = {}
    for (database,) in control.execute("SELECT datname FROM pg_database ORDER BY length(datname) DESC, datname"):
        found = pattern.fullmatch(database)
        if found and _key(found[1]) not in held:
            runs.setdefault(found[1], []).append(database)
    return runs


def remove_leftovers(control: Connection, source: MongoDatabase) -> list[str]:
    """Drop what runs on both servers have left; return the names of those runs."""
    left = leftovers(control, PREFIX)
    for run, databases in left.items():
        _drop_source(source, run)
        for database in databases:
            drop_database(control, database)
    return sorted(left)


def _drop_source(source: MongoDatabase, name: str) -> None:
    """Drop every collection; a database without any is gone, and no right to drop databases is asked for."""
    with translate_errors("the source"):
        database = source.client[name]
        for collection in database.list_collection_names():
            database.drop_collection(collection)


def _unthrottled(copy: CopySettings) -> CopySettings:
    """Return the settings of a copy without its limits, which are for what the application uses."""
    return msgspec.structs.replace(copy, max_rate=0, max_replication_lag=NONE, max_source_load=0)


def _mongo_settings(settings: Settings, name: str) -> Any:  # noqa: ANN401 - the settings of MongoDB
    return msgspec.structs.replace(settings.mongo, database=name)


def _settings_of(settings: Settings, database: str) -> Settings:
    """Return the settings that lead to another database of the target."""
    dsn = make_conninfo(postgres_dsn(settings), dbname=database)
    postgres = msgspec.structs.replace(settings.postgres, dsn=dsn, dsn_env=None, dsn_file=None)
    return msgspec.structs.replace(settings, postgres=postgres, hooks=HookSettings())


def _new_name(prefix: str) -> str:
    return prefix + secrets.token_hex(6)


def _key(name: str) -> int:
    return stable_hash64(f"*/migrator/scratch/{name}")
