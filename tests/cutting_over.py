"""What tests of the switch share: a server that asks for passwords, a copied scheduler, the commands, the outcome."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from pymongo import MongoClient
from pymongo.database import Database

from migrator.config import Settings, SourceSettings
from migrator.connections.postgres import open_target
from migrator.cutover import cutover, fence, outbox
from migrator.cutover.gates import GateOptions, evaluate
from migrator.errors import RefusedError
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.sources import load_profile
from migrator.store.epoch import Epoch
from migrator.store.postgres import epoch
from migrator.testing.servers.mongo import MongoServer
from migrator.values import document as documents
from tests.agenda_documents import REAL, real
from tests.conftest import fresh_name
from tests.copying import settings_for, write_config
from tests.ordinary_user import hand_over, ordinary_folder
from tests.real_documents import real_documents
from tests.stellaops_documents import CANONICAL, fresh

APPLICATION = "application"
ACME = Path(__file__).parent / "fixtures_data" / "mappings" / "acme.toml"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
FAR = datetime(2099, 1, 1, tzinfo=UTC)
COMPARABLE = load_profile("stellaops")
"""A source whose parallel run can be compared."""


class Scene:
    """A scheduler in MongoDB that was copied, followed and compared, and is ready to be switched."""

    def __init__(
        self,
        server: MongoServer,
        database: Database[Any],
        dsn: str,
        folder: Path,
        user: str = APPLICATION,
        profile: str = "stellaops",
    ) -> None:
        self.server, self.database, self.dsn, self.folder, self.user = server, database, dsn, folder, user
        self.profile = profile
        base = settings_for(database, dsn, profile=profile)
        mapping = {"acme": str(ACME)}.get(profile, profile if profile.endswith(".toml") else None)
        self.settings = Settings(
            source=SourceSettings(mapping=mapping, default_tenant="house")
            if mapping is not None
            else msgspec.structs.replace(base.source, zone=ZONES.get(profile)),
            mongo=type(base.mongo)(uri=server.uri, database=database.name),
            postgres=base.postgres,
            copy=base.copy,
        )
        self.config = write_config(folder, self.settings)
        self.config.write_text(f"# ours\n[persistence]\nscheduler = 'mongo' # which\n\n{self.config.read_text()}")
        self.quarantined = 0

    def ready(self) -> None:
        """Copy, follow, compare."""
        assert backfill(self.settings, Scope()).complete
        with Tail(self.settings) as tail:
            self.quarantined = tail.run("caught-up").quarantined
        assert is_clean(check_and_record(self.settings))

    @property
    def conditions(self) -> GateOptions:
        return GateOptions(config=self.config, quarantined=self.quarantined)

    def switch(self) -> cutover.CutoverResult:
        """Make the switch in this process."""
        return cutover.run(self.settings, self.conditions)

    def uri_of(self, user: str) -> str:
        """Return how a user of another program reaches the server."""
        return f"mongodb://{user}:secret@127.0.0.1:{self.server.port}/?authSource=admin&replicaSet=rs0"

    @contextmanager
    def foreign(self, user: str | None = None) -> Iterator[Database[Any]]:
        """Yield the database as another program's client sees it."""
        with MongoClient[dict[str, Any]](self.uri_of(user or self.user)) as client:
            yield client[self.database.name]


def _stellaops(database: Database[Any]) -> None:
    for collection in CANONICAL:
        database[collection].insert_one(fresh(collection))


def _agenda(database: Database[Any]) -> None:
    for folder, collection in REAL:
        found = [documents.decode(raw) for raw in real(folder, collection)]
        for one in found:
            if one.get("nextRunAt") is not None:
                one["nextRunAt"] = FAR  # so that nothing is overdue, whatever the day
        database[collection].insert_many(found)


def _acme(database: Database[Any]) -> None:
    jobs = [
        {"_id": ObjectId(), "org": "north", "title": f"job {number}", "cron": "30 2 * * *", "zone": "Europe/Vienna"}
        | {"active": True, "state": "on", "options": {"retries": number, "colour": "red"}, "created": SINCE}
        for number in range(6)
    ]
    runs = [
        {"_id": number, "org": "north", "job": jobs[number % 6]["_id"], "status": "ok", "legacy": {"host": number}}
        | {"queued": "2026-11-22T12:00:00+00:00", "begun": Int64(1795348800000), "ended": Int64(1795348801500)}
        for number in range(12)
    ]
    database["jobs"].insert_many(jobs)
    database["history"].insert_many(runs)


def _celerybeat(database: Database[Any]) -> None:
    database["schedules"].insert_many(real_documents("celerybeat-mongo/ticked"))


DOCUMENTS = {"stellaops": _stellaops, "agenda": _agenda, "acme": _acme, "celerybeat": _celerybeat}
ZONES = {"celerybeat": "Europe/Vienna"}
"""Source → the zone in which its application ran."""
"""Source → what inserts its documents."""


@contextmanager
def scene(
    server: MongoServer, name: str, dsn: str, folder: Path, user: str = APPLICATION, profile: str = "stellaops"
) -> Iterator[Scene]:
    """Yield a scene over a handful of documents; everything of it is removed afterwards.

    ``profile``: also the path of a mapping for the documents of ``acme``. ``user``: of the other programs; two scenes
    on one server need two.
    """
    with MongoClient[dict[str, Any]](server.uri) as client:
        database = client[name]
        DOCUMENTS.get(profile, _acme)(database)
        client.admin.command("createUser", user, pwd="secret", roles=[{"role": "readWrite", "db": name}])
        try:
            yield Scene(server, database, dsn, folder, user, profile)
        finally:
            close_cached()
            fence.lift_source(database, "write-block", ())
            client.admin.command("dropUser", user)
            client.drop_database(name)


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """A scene of a handful of documents, ready to be switched; a file whose scenes differ has a fixture of its own."""
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path) as made:
        made.ready()
        yield made


@contextmanager
def own_scene(server: MongoServer, dsn: str, profile: str = "stellaops") -> Iterator[Scene]:
    """One for a test that switches, with a folder that the ordinary user may write."""
    with ordinary_folder() as folder, scene(server, fresh_name(), dsn, folder, "its_own", profile) as made:
        hand_over(made.config)
        made.ready()
        yield made


@contextmanager
def opened_outbox(settings: Settings) -> Iterator[Settings]:
    """Copy everything, and open the outbox, as a cutover does; yield the settings."""
    try:
        assert backfill(settings, Scope()).complete
        with open_target(settings, autocommit=True) as target:
            outbox.open_outbox(target)
            epoch.write(target, Epoch(1, "postgres"))
        yield settings
    finally:
        close_cached()


def with_cutover(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, cutover=msgspec.structs.replace(settings.cutover, **changes))


def with_mongo(settings: Settings, **changes: object) -> Settings:
    return msgspec.structs.replace(settings, mongo=msgspec.structs.replace(settings.mongo, **changes))


def red(settings: Settings, conditions: GateOptions) -> dict[str, str]:
    """Return the gates that hold up the switch, and why; a switch is refused for just these."""
    sessions = Sessions(settings)
    try:
        found = {one.name: one.words for one in evaluate(sessions, conditions) if one.passed is False}
    finally:
        sessions.close()
    if found:
        with pytest.raises(RefusedError, match="the cutover is refused: ") as refused:
            cutover.run(settings, conditions)
        assert all(f"{name}: " in str(refused.value) for name in found)
    return found


def gate(settings: Settings, conditions: GateOptions, name: str) -> tuple[bool | None, str]:
    sessions = Sessions(settings)
    try:
        return next((one.passed, one.words) for one in evaluate(sessions, conditions) if one.name == name)
    finally:
        sessions.close()
