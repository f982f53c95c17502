"""The backends that are driven in lockstep, and what of their answers must be equal."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from pymongo import MongoClient

from migrator.errors import MigratorError
from migrator.scratch import Components
from migrator.store.locks import LockHandle
from migrator.store.protocols import Store
from migrator.testing.memory.store import MemoryStore
from migrator.verify.behaviour.scenarios import plain
from tests.contract.rows import fresh
from tests.schema_rows import connect

TABLES = (
    "execution_logs",
    "impact_snapshots",
    "runs",
    "triggers",
    "schedules",
    "run_summaries",
    "workers",
    "locks",
    "audit",
    "handlers",
)
"""Emptied between two examples, children first."""


class Side:
    """A backend, how it is emptied, and what the player of the client drives there."""

    def __init__(self, name: str, store: Store, empty: Callable[[], None]) -> None:
        self.name, self.store, self._empty = name, store, empty
        self.tenants: tuple[str, str] = ("f-one", "f-two")
        self.components = Components()
        self.open: list[LockHandle] = []
        """Handles of locks that are released before the side is emptied."""

    def clear(self) -> None:
        for handle in self.open:
            with suppress(MigratorError):
                handle.release()
        self.open.clear()
        self._empty()


class Raised(msgspec.Struct, frozen=True):
    """What a call raised, as far as the backends must agree."""

    error: str


def outcome(act: Callable[[], Any]) -> Any:  # noqa: ANN401 - answers of all calls
    """Return the answer of a call, or its refusal."""
    try:
        return plain(act())
    except MigratorError as error:
        return Raised(type(error).__name__)


def memory_side(clock: Callable[[], datetime] | None = None) -> Side:
    store = MemoryStore(clock)
    return Side("memory", store, store.clear)


@contextmanager
def mongo_side(uri: str) -> Iterator[Side]:
    from migrator.config import MongoSettings, PersistenceSettings, Settings  # noqa: PLC0415 - where it is used
    from migrator.store.mongo.store import MongoStore  # noqa: PLC0415 - as above

    name = fresh()
    store = MongoStore(
        Settings(mongo=MongoSettings(uri=uri, database=name), persistence=PersistenceSettings(scheduler="mongo"))
    )
    store.prepare()
    with MongoClient[dict[str, Any]](uri) as client:
        database = client[name]

        def clear() -> None:
            for collection in database.list_collection_names():
                database[collection].delete_many({})

        try:
            yield Side("mongo", store, clear)
        finally:
            store.close()
            client.drop_database(name)


@contextmanager
def postgres_side(name: str, dsn: str) -> Iterator[Side]:
    from migrator.config import PersistenceSettings, PostgresSettings, Settings  # noqa: PLC0415 - where it is used
    from migrator.store.postgres.store import PostgresStore  # noqa: PLC0415 - as above

    store = PostgresStore(
        Settings(postgres=PostgresSettings(dsn=dsn), persistence=PersistenceSettings(scheduler="postgres"))
    )
    with connect(dsn) as connection:

        def clear() -> None:
            for table in TABLES:
                connection.execute(f"DELETE FROM scheduler.{table}".encode())

        try:
            yield Side(name, store, clear)
        finally:
            store.close()


def by_id(rows: Sequence[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row.id)


def ids_of(answer: Any) -> Any:  # noqa: ANN401 - ids, or what was raised
    """Return ids that come in no order in one."""
    return (
        sorted(answer)
        if isinstance(answer, (list, tuple)) and all(isinstance(each, UUID) for each in answer)
        else answer
    )
