"""The documents after a rollback are loaded by the library that owns them, which runs every rule that it can state.

Schedules are changed by everything that the public client can do. A rule that the library cannot state is named before
the rollback, and is not run after it.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import msgspec
import psycopg
import pytest
from bson.objectid import ObjectId
from psycopg.rows import dict_row
from pymongo import MongoClient

from migrator import Scheduler, cron
from migrator.cutover import rollback
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.records import Schedule
from migrator.scheduler.executor import InProcessExecutor
from migrator.scheduler.handlers import Registry
from migrator.sources import profile_of, write_back
from migrator.states import SCHEDULE_FIRING
from migrator.testing.servers.mongo import MongoServer
from migrator.verify.behaviour.harness import Clock
from tests import acme_application, client_changes, cutting_over, store_postgres
from tests.conftest import fresh_name
from tests.contract.scheduling.process import Process
from tests.copying import TENANT
from tests.cutting_over import Scene, own_scene
from tests.real_libraries import Loaded, load
from tests.scheduler_processes import until

Document = dict[str, Any]
INSTANTS: Final = (datetime(2027, 3, 26, 12, tzinfo=UTC), datetime(2027, 10, 29, 12, tzinfo=UTC))
"""Two days before clocks are set forward and back."""
FIRES: Final = 5
LONG_AGO: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Library(msgspec.Struct, frozen=True):
    """A library, and how a document of its looks."""

    profile: str
    collection: str
    tenant: str
    name: str
    """The field with the name of a schedule."""
    rule: tuple[str, ...]
    """The fields that say when a schedule fires."""
    dialect: str
    zone: str
    document: Document
    interval: Document
    """What another document has instead of a cron line."""
    kept: frozenset[str] = frozenset()
    """Updates of which the library could not load the document: it stays as it was, and is named."""


_CRONTAB: Document = {"_cls": "Crontab", "minute": "30", "hour": "2"}
_CRONTAB |= {"day_of_month": "*", "month_of_year": "*", "day_of_week": "mon-fri"}
_UNSET: Document = dict.fromkeys(("endDate", "skipDays", "startDate"))
_AGENDA: Document = {"type": "single", "data": {"a": 1}, "priority": 0, "nextRunAt": cutting_over.FAR} | _UNSET
_AGENDA |= {"repeatInterval": "30 2 * * 1-5", "repeatTimezone": "Europe/Vienna", "lastModifiedBy": "worker-1"}
_AGENDA_6: Final = (
    *("debounceStartedAt", "disabled", "failCount", "failReason", "failedAt", "fork", "lastFinishedAt"),
    *("lastRunAt", "lockedAt", "progress", "repeatAt"),
)

_AGENDA_4: Final = Library(
    profile="agenda",
    collection="agendaJobs",
    tenant=TENANT,
    name="name",
    rule=("repeatInterval", "repeatTimezone"),
    dialect="agenda",
    zone="Europe/Vienna",
    document=_AGENDA | {"shouldSaveResult": False},
    interval={"repeatInterval": "5 minutes", "repeatTimezone": None},
)

LIBRARIES: Final[Mapping[str, Library]] = {
    "celerybeat": Library(
        profile="celerybeat",
        collection="schedules",
        tenant=TENANT,
        name="name",
        rule=("crontab", "interval", "expires", "start_after", "total_run_count", "max_run_count", "last_run_at"),
        dialect="celery",
        zone="Europe/Vienna",
        document={"_cls": "PeriodicTask", "task": client_changes.HANDLER, "crontab": _CRONTAB}
        | {"args": [1], "kwargs": {}, "enabled": True, "total_run_count": 3, "max_run_count": 0}
        | {"last_run_at": LONG_AGO, "run_immediately": False},
        interval={"crontab": None, "interval": {"_cls": "Interval", "every": 5, "period": "minutes"}},
        kept=frozenset({"update text as arguments", "update odd arguments", "update metadata of fields"}),
    ),
    "acme": Library(
        profile="acme",
        collection="jobs",
        tenant="north",
        name="title",
        rule=("cron", "every", "zone"),
        dialect="debian",
        zone="Europe/Vienna",
        document={"org": "north", "cron": "30 2 * * *", "zone": "Europe/Vienna", "active": True, "state": "on"}
        | {"options": {"retries": 1, "colour": "red"}, "created": LONG_AGO},
        interval={"cron": None, "every": 300},
    ),
    "agenda-4": _AGENDA_4,
    "agenda-6": msgspec.structs.replace(_AGENDA_4, document=_AGENDA | dict.fromkeys(_AGENDA_6)),
}


def documents_of(library: Library) -> list[Document]:
    """Return a document for each change, and one that is not changed."""
    names = client_changes.of_documents(library.dialect, library.zone)
    found = [library.document | {"_id": ObjectId(), library.name: name} for name in ("untouched", *names)]
    found += [
        library.document | library.interval | {"_id": ObjectId(), library.name: f"interval: {name}"}
        for name in ("untouched", *names)
        if name.startswith("rule")
    ]
    return found if library.profile == "agenda" else [_without_none(one) for one in found]


def _without_none(document: Document) -> Document:
    return {name: value for name, value in document.items() if value is not None}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


@pytest.fixture
def ready(
    library: Library, auth_server: MongoServer, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    def insert(database: Any) -> None:  # noqa: ANN401 - pymongo's
        database[library.collection].insert_many(documents_of(library))

    monkeypatch.setitem(cutting_over.DOCUMENTS, library.profile, insert)
    with own_scene(auth_server, scheduler_dsn, library.profile) as made:
        yield made


def change_everything(dsn: str, library: Library) -> None:
    """Call the client as an application does in the window."""
    changes = client_changes.of_documents(library.dialect, library.zone)
    field = "handler_name" if library.profile == "agenda" else "name"
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        rows = connection.execute(f"SELECT id, {field} AS label FROM scheduler.schedules".encode()).fetchall()
    ids = {row["label"]: row["id"] for row in rows}
    with store_postgres.opened(dsn) as store:
        client = Scheduler(store, library.tenant)
        for name, change in changes.items():
            for label in {name, f"interval: {name}"} & ids.keys():
                change(client, ids[label])
        client_changes.make_new(client, library.dialect, library.zone)
        registry = Registry()
        registry.handler(client_changes.ONCE)(lambda: None)
        process = Process(store, library.tenant, InProcessExecutor(registry), clock=Clock(store.now()))
        process.after(timedelta(minutes=2))

        def ended() -> bool:
            process.turn()
            return not process.worker.active

        until(ended)


class Expected(msgspec.Struct):
    """A schedule as PostgreSQL has it before the rollback."""

    id: UUID
    label: str
    fires: tuple[tuple[datetime, ...], ...] | None
    """None: it does not fire by a rule that recurs."""
    active: bool
    """Whether a time will come at which it fires."""
    running: bool
    """Whether it has a run that goes on: Agenda holds its lock."""
    begins_later: bool
    inexact: bool
    """Whether bounds, or the end of a run, count too: where the library has no field for them, it runs and is named."""


def expected(scene: Scene) -> dict[str, Expected]:
    """Return ``_id`` of the document → the schedule, without those that were deleted."""
    found = {}
    home = write_back.homes(profile_of(scene.settings.source, scene.settings.target), Schedule)[0]
    with psycopg.connect(scene.dsn, row_factory=dict_row) as connection:
        schedules = connection.execute("SELECT * FROM scheduler.schedules WHERE deleted_at IS NULL").fetchall()
        triggers = connection.execute("SELECT * FROM scheduler.triggers").fetchall()
        runs = connection.execute("SELECT schedule_id FROM scheduler.runs WHERE state = 'running'").fetchall()
    running = {one["schedule_id"] for one in runs}
    of: dict[UUID, list[Document]] = {}
    for one in triggers:
        of.setdefault(one["schedule_id"], []).append(one)
    for row in schedules:
        [trigger] = of[row["id"]]
        enabled = row["enabled"] and trigger["enabled"] and row["status"] in SCHEDULE_FIRING
        key = write_back.key_of(home, msgspec.convert({name: row[name] for name in _NAMING}, Schedule))
        found[str(key)] = Expected(
            id=row["id"],
            label=row["name"],
            fires=_fires(trigger),
            begins_later=trigger["start_at"] is not None,
            inexact=trigger["start_at"] is not None or trigger["anchor"] == "completion",
            active=enabled and (trigger["kind"] != "one_time" or trigger["next_fire_at"] is not None),
            running=row["id"] in running,
        )
    return found


_NAMING: Final = ("id", "tenant_id", "name", "status", "source", "source_id", "created_at")


def _fires(trigger: Document) -> tuple[tuple[datetime, ...], ...] | None:
    if trigger["kind"] == "cron":
        line = trigger["cron_dialect"], trigger["cron_expression"], trigger["timezone"]
        return tuple(tuple(cron.next_fires(*line, first, FIRES)) for first in INSTANTS)
    if trigger["kind"] == "interval":
        length = timedelta(milliseconds=trigger["interval_ms"])
        return tuple(tuple(first + length * number for number in range(1, FIRES + 1)) for first in INSTANTS)
    return None


def test_the_library_loads_every_document_and_runs_what_it_can_state(
    ready: Scene, library: Library, request: pytest.FixtureRequest, auth_server: MongoServer
) -> None:
    collection = ready.database[library.collection]
    before = {str(one["_id"]): one for one in collection.find()}
    ready.switch()
    change_everything(ready.dsn, library)
    rows = expected(ready)
    named = {key for gate in rollback.gates(ready.settings, ready.config, 1) for key in gate.ids}
    close_cached()
    done = rollback.run(ready.settings, ready.config, 1)
    close_cached()
    after = {str(one["_id"]): one for one in collection.find()}
    exported = "".join(file.read_text() for file in sorted(Path(done.folder).iterdir()))
    absent = {key: row for key, row in rows.items() if key not in after}
    assert [row.label for key, row in absent.items() if row.active and key not in named] == []
    assert [row.label for row in absent.values() if str(row.id) not in exported] == [], "it is nowhere"
    assert after.keys() - rows.keys() == set(), "documents of schedules that were deleted"

    loaded = loaded_by(request.node.callspec.params["library"], auth_server, library, after)
    assert loaded.keys() == after.keys()
    assert min(sum(one.ran for one in loaded.values()), len(named)) > 10, "both kinds are tried"
    faults = [
        f"{rows[key].label}: {fault}"
        for key, one in loaded.items()
        if (fault := _fault(rows[key], one, named=key in named, kept=rows[key].label in library.kept))
    ]
    assert not faults, "\n".join(sorted(faults))

    for key in named & before.keys() & after.keys():
        if not rows[key].inexact:
            rules = [{name: one.get(name) for name in library.rule} for one in (before[key], after[key])]
            assert rules[0] == rules[1], f"{rows[key].label}: the former rule is kept"
    assert all(before[key] == after[key] for key in before if rows.get(key) and "untouched" in rows[key].label)
    close_cached()
    with Tail(ready.settings) as tail:
        tail.run("caught-up")
    assert is_clean(check_and_record(ready.settings))


def loaded_by(
    name: str, auth_server: MongoServer, library: Library, after: Mapping[str, Document]
) -> dict[str, Loaded]:
    """Return the jobs that the library loads from a copy of the documents, because it changes them."""
    if name == "acme":
        return acme_application.load(after.values(), INSTANTS)
    copy = fresh_name()
    with MongoClient[Document](auth_server.uri) as client:
        client[copy][library.collection].insert_many(after.values())
        try:
            return load(name, auth_server.uri, copy, library.collection, INSTANTS)
        finally:
            client.drop_database(copy)


def _fault(row: Expected, loaded: Loaded, *, named: bool, kept: bool) -> str:
    """Return the fault of a schedule after the rollback; empty if there is none."""
    if loaded.refused:
        return loaded.refused
    if not row.active:
        return "fires again" if loaded.ran else ""
    stated = (row.inexact or loaded.fires == row.fires) and (loaded.ran or row.running or row.begins_later)
    if stated:
        if named == kept or row.inexact:
            return ""
        return "named, though it is stated" if named else "not named, though its document stays as it was"
    if not named:
        return f"not named: ran={loaded.ran} next={loaded.next} {_short(loaded.fires)}, not {_short(row.fires)}"
    return "runs by another rule" if loaded.ran else ""


def _short(fires: tuple[tuple[datetime, ...], ...] | None) -> str:
    return "no rule" if fires is None else ", ".join(f"{one:%m-%d %H:%M:%S}" for each in fires for one in each[:2])
