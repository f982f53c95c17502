"""What tests of a cutover to a library's tables share: a copied job store, and the real library on both servers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
import pytest
import sqlalchemy
from apscheduler.jobstores.base import BaseJobStore
from apscheduler.jobstores.mongodb import MongoDBJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from bson.binary import Binary
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.cutover import fence
from migrator.cutover.gates import GateOptions
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import Line, MongoStore, PostgresStore
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import settings_for, write_config
from tests.native_tables import BY_NAME, ask, prepare, program

Document = dict[str, Any]
APPLICATION = "application"
MADE = BY_NAME["apscheduler-3.11"]
NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
"""The time at which the library works in these tests."""


class LibraryScene:
    """APScheduler's jobs in MongoDB, and its table in PostgreSQL."""

    made = MADE
    profile = ""
    """Of the source; empty: that of the target's name."""

    def __init__(self, server: MongoServer, database: Database[Document], dsn: str, folder: Path) -> None:
        self.server, self.database, self.dsn, self.folder = server, database, dsn, folder
        packages = program(self.made).packages
        target = TargetSettings(name=self.made.target, packages=None if packages is None else str(packages))
        base = settings_for(database, dsn, profile=self.profile or self.made.target, target=target)
        self.settings: Settings = msgspec.structs.replace(
            base, mongo=type(base.mongo)(uri=server.uri, database=database.name)
        )
        self.config = write_config(folder, self.settings)

    def prepare(self) -> None:
        """Let the library make its table, and the tool its schemas."""
        prepare(self.made, self.dsn)
        revisions.upgrade(self.dsn, branches=("migration",))
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            native_target.prepare(connection, load_target(self.made.target), self.settings.target)

    def ready(self) -> None:
        """Copy, follow, compare."""
        assert backfill(self.settings, Scope()).complete
        self.follow()

    def follow(self) -> None:
        """Let the tail catch up, and compare."""
        with Tail(self.settings) as tail:
            tail.run("caught-up")
        assert is_clean(check_and_record(self.settings))

    @property
    def conditions(self) -> GateOptions:
        return GateOptions(config=self.config)

    @property
    def mongo(self) -> MongoStore:
        """The store as the application sees it: its user is stopped by the fence."""
        return MongoStore(self.uri_of(APPLICATION), self.database.name)

    @property
    def postgres(self) -> PostgresStore:
        return PostgresStore(self.dsn)

    def uri_of(self, user: str) -> str:
        return f"mongodb://{user}:secret@127.0.0.1:{self.server.port}/?authSource=admin&replicaSet=rs0"

    def work(self, store: PostgresStore | MongoStore, now: datetime) -> list[Line]:
        """Let the real library execute what is due; return the lines of what it did."""
        # one worker: two processes of Agenda that make its trigger anew at the same moment may fail
        lines = ask(self.made, store, "work", now=now, scratch=True, options={"workers": 1})
        return [line for line in lines if line["kind"] != "done"]

    def rows(self) -> dict[str, tuple[float | None, bytes]]:
        with psycopg.connect(self.dsn) as connection:
            rows = connection.execute("SELECT id, next_run_time, job_state FROM apscheduler_jobs").fetchall()
        return {key: (due, bytes(state)) for key, due, state in rows}

    def documents(self) -> dict[str, Document]:
        return {document["_id"]: document for document in self.database["jobs"].find()}

    def pairs(self) -> dict[str, tuple[float | None, bytes]]:
        """Return the fields of each job in its document, as ``rows`` gives those of the rows."""
        return {
            key: (document["next_run_time"], bytes(document["job_state"])) for key, document in self.documents().items()
        }

    def execute(self, statement: str, *parameters: object) -> list[Any]:
        """Execute a statement as another program, in a transaction of its own."""
        with psycopg.connect(self.dsn) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []


def add_jobs(database: Database[Document], uri: str) -> None:
    """Let the library add jobs: what is due at ``NOW``, what is late, what is paused, what is far away."""
    store = MongoDBJobStore(database=database.name, collection="jobs", host=uri)
    with scheduler_on(store) as scheduler:
        for key, trigger, due, grace in (
            ("hourly", CronTrigger(minute=0, timezone=UTC), NOW, None),
            ("interval", IntervalTrigger(minutes=90, start_date=NOW, timezone=UTC), NOW, 60),
            ("overdue", CronTrigger(minute=0, timezone=UTC), NOW - timedelta(hours=3), None),
            ("once-past", DateTrigger(NOW - timedelta(days=1)), NOW - timedelta(days=1), None),
            ("once-late", DateTrigger(NOW - timedelta(days=1)), NOW - timedelta(days=1), 1),
            ("future", DateTrigger(NOW + timedelta(days=400)), NOW + timedelta(days=400), None),
            ("paused", IntervalTrigger(hours=1, start_date=NOW, timezone=UTC), None, None),
        ):
            scheduler.add_job(
                "json:dumps", trigger, args=[key], id=key, next_run_time=due, misfire_grace_time=grace, coalesce=True
            )
    database["jobs"].insert_one(
        {
            "_id": "broken",
            "next_run_time": (NOW + timedelta(days=400)).timestamp(),
            "job_state": Binary(b"\x80\x05?", 0),
        }
    )


@contextmanager
def scheduler_on(store: BaseJobStore) -> Iterator[BackgroundScheduler]:
    """Yield a scheduler of the library that executes nothing, for what an application does with its jobs."""
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_jobstore(store, "default")
    scheduler.start(paused=True)
    try:
        yield scheduler
    finally:
        scheduler.shutdown()


def on_postgres(scene: LibraryScene) -> AbstractContextManager[BackgroundScheduler]:
    """Return a scheduler of the library on its table in PostgreSQL."""
    url = scene.dsn.replace("postgresql://", "postgresql+psycopg://")
    return scheduler_on(SQLAlchemyJobStore(engine=sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)))


def on_mongo(scene: LibraryScene) -> AbstractContextManager[BackgroundScheduler]:
    """Return a scheduler of the library on its collection in MongoDB, as the application's user."""
    store = MongoDBJobStore(database=scene.database.name, collection="jobs", host=scene.uri_of(APPLICATION))
    return scheduler_on(store)


Scene = TypeVar("Scene", bound=LibraryScene)


@contextmanager
def library_scene(
    kind: Callable[[MongoServer, Database[Document], str, Path], Scene],
    add: Callable[[Database[Document], str], None],
    server: MongoServer,
    dsn: str,
    folder: Path,
) -> Iterator[Scene]:
    """Yield a scene that is copied, followed and compared; everything of it in MongoDB is removed afterwards.

    ``add``: what adds the library's documents, to the database at an address.
    """
    name = fresh_name()
    with MongoClient[Document](server.uri) as client:
        database = client[name]
        add(database, server.uri)
        client.admin.command("createUser", APPLICATION, pwd="secret", roles=[{"role": "readWrite", "db": name}])
        try:
            made = kind(server, database, dsn, folder)
            made.prepare()
            made.ready()
            yield made
        finally:
            close_cached()
            fence.lift_source(database, "write-block", ())
            client.admin.command("dropUser", APPLICATION)
            client.drop_database(name)


@pytest.fixture
def library(auth_server: MongoServer, postgres_dsn: str, tmp_path: Path) -> Iterator[LibraryScene]:
    """A job store that is ready for a cutover."""
    with library_scene(LibraryScene, add_jobs, auth_server, postgres_dsn, tmp_path) as made:
        yield made
