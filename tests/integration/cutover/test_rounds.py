"""There and back, three times round: the old application, the scheduler on PostgreSQL, and who writes meanwhile.

After each step every schedule fires when its document says, on both sides. What the document says is read here by
hand, from the fields that the old application knows; nothing of the profile is asked.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self, TypeVar

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.rows import dict_row
from pymongo.errors import PyMongoError

from migrator import cron
from migrator.cli import cli
from migrator.config import load_settings
from migrator.cutover import reverse_sync
from migrator.errors import MigratorError, RefusedError
from migrator.exit_status import UNVERIFIED
from migrator.scheduler import firing
from migrator.scheduler.client import Scheduler
from migrator.scheduler.models import ScheduleRequest
from migrator.store import open_scheduler_store
from migrator.store.protocols import ScheduleQuery, Store
from migrator.testing.servers.mongo import MongoServer
from migrator.verify.checks.contradictions import contradictions
from tests.conftest import fresh_name
from tests.consent import consenting
from tests.cron_lines import DEEP
from tests.cutting_over import Scene, scene
from tests.ordinary_user import hand_over, ordinary_folder
from tests.stellaops_documents import fresh

TENANT: Final = "tenant-a"
SINCE: Final = datetime(2026, 3, 1, tzinfo=UTC)
FIRES: Final = 8
ALIVE: Final[dict[str, Any]] = {"deletedAt": ..., "deletedBy": ...}
BORN: Final = "a" * 32
EVERY: Final = ScheduleQuery(limit=100)
PATIENCE_S: Final = 240
T = TypeVar("T")


def of_the_old_application(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any BSON
    """Return a schedule as the old application writes it."""
    return fresh("schedules", _id=name, id=name, name=name, **ALIVE | changes)


OLD: Final = (
    of_the_old_application(f"sch_{BORN}"),
    of_the_old_application("in words", cronExpression="*/5 * * * *", timezone="W. Europe Standard Time"),
    of_the_old_application("by day", cronExpression="0 7 13 * 5", timezone="America/New_York"),
    of_the_old_application("to be paused", cronExpression="0 1 * * *"),
    of_the_old_application("to be changed", cronExpression="0 3 * * *", timezone=...),
    of_the_old_application("to be removed", cronExpression="0 4 * * *"),
    of_the_old_application("off", cronExpression="0 5 * * *", enabled=False),
    of_the_old_application("by hand", cronExpression=..., timezone=...),
)


@contextmanager
def old_application(auth_server: MongoServer, dsn: str) -> Iterator[Scene]:
    with ordinary_folder() as folder, scene(auth_server, fresh_name(), dsn, folder, "rounds") as made:
        hand_over(made.config)
        with made.foreign() as old:
            old.schedules.insert_many([dict(one) for one in OLD])
        yield made


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str) -> Iterator[Scene]:
    with old_application(auth_server, scheduler_dsn) as made:
        yield made


@pytest.fixture
def ready_on_any(auth_server: MongoServer, any_scheduler_dsn: str) -> Iterator[Scene]:
    """Every PostgreSQL that the tool accepts as a target and that can be started here."""
    with old_application(auth_server, any_scheduler_dsn) as made:
        yield made


def called(scene: Scene, *arguments: str, besides: int = 0) -> str:
    """Call a command, which must end well (or with the status ``besides``); return what it said."""
    done = CliRunner().invoke(cli, consenting([*arguments, "--config", str(scene.config)]))
    assert done.exit_code in {0, besides}, (arguments, done.exit_code, done.output)
    with psycopg.connect(scene.dsn) as connection:
        assert [(one.title, row) for one, row in contradictions(connection)] == [], arguments
    return done.output


def said(document: dict[str, Any]) -> tuple[datetime, ...]:
    """Return when a document of the old application says that it fires."""
    line, zone = document.get("cronExpression"), document.get("timezone")
    if document.get("deletedAt") is not None or document.get("enabled") is False or not line:
        return ()
    return tuple(cron.next_fires("cronos", line, zone, SINCE, FIRES))


def stored(dsn: str) -> dict[str, list[tuple[datetime, ...]]]:
    """Return when the enabled cron triggers of each schedule that may run fire, by the schedule's name."""
    found: dict[str, list[tuple[datetime, ...]]] = {}
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        for row in connection.execute(
            "SELECT s.name, t.kind, t.cron_dialect, t.cron_expression, t.timezone, t.next_fire_at"
            " FROM scheduler.schedules AS s LEFT JOIN scheduler.triggers AS t ON t.schedule_id = s.id AND t.enabled"
            " WHERE s.enabled AND s.deleted_at IS NULL AND s.status IN ('pending', 'scheduled', 'running')"
        ):
            fires = found.setdefault(row["name"], [])
            if row["kind"] == "cron":
                rule = (row["cron_dialect"], row["cron_expression"], row["timezone"])
                fires.append(tuple(cron.next_fires(*rule, SINCE, FIRES)))
                at = row["next_fire_at"]
                assert at is None or cron.next_fires(*rule, at - timedelta(seconds=1), 1) == [at]
    return found


def agree(scene: Scene) -> dict[str, tuple[datetime, ...]]:
    """Return when each schedule fires; both sides say the same."""
    documents = {one["name"]: said(one) for one in scene.database.schedules.find({"deletedAt": None})}
    rows = stored(scene.dsn)
    assert {name: [fires] for name, fires in documents.items() if fires} == {
        name: fires for name, fires in rows.items() if fires
    }
    assert rows.keys() <= documents.keys()
    return documents


@contextmanager
def on_postgres(scene: Scene) -> Iterator[tuple[Store, Scheduler]]:
    settings = load_settings(str(scene.config))
    assert settings.persistence.scheduler == "postgres"
    with closing(open_scheduler_store(settings)) as store:
        yield store, Scheduler(store, TENANT)


class Writer:
    """Somebody who writes wherever the data is, all the time: as the old application, and through our own store."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.05):
            number += 1
            try:
                with self._scene.foreign() as old:
                    notify = {"notify.includeKev": bool(number % 2), "description": f"old {number}"}
                    old.schedules.update_one({"_id": "in words"}, {"$set": notify})
                    old.runs.insert_one(fresh("runs", _id=f"run:{number}", id=f"run:{number}", scheduleId="in words"))
                self.written += 1
            except PyMongoError:
                self._through_the_store(number)  # the fence stands: the data is elsewhere, or on its way

    def _through_the_store(self, number: int) -> None:
        try:
            with on_postgres(self._scene) as (store, _), store.session(TENANT) as session:
                for one in session.schedules.list(ScheduleQuery(name_contains="words")):
                    session.schedules.change(one.id, description=f"new {number}")
                self._stop.wait(0.2)  # a transaction that stays open when the fence is closed
            self.written += 1
        except (MigratorError, AssertionError):
            pass  # neither side is open at this moment


class Quiet:
    """Nobody writes but the test, and the tail is called when there is something to follow."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def follow(self) -> dict[str, tuple[datetime, ...]]:
        """Bring the rows up to date."""
        called(self.scene, "tail", "--until-caught-up")
        called(self.scene, "parity")
        return agree(self.scene)

    def cut_over(self) -> None:
        """Compare and cut over, as the messages say."""
        called(self.scene, "parity")
        called(self.scene, "cutover", "plan")
        called(self.scene, "cutover", "run")


class Busy(Quiet):
    """Somebody writes all the time, and one `migrator tail` runs from the copy to the end."""

    def follow(self) -> dict[str, tuple[datetime, ...]]:
        """Wait until the rows are up to date: what the test itself has written is there."""
        return until(lambda: agree(self.scene))

    def cut_over(self) -> None:
        """Try until documents are equal, and the tail near enough; figures cannot be compared under writes."""
        until(self._try_to_cut_over)

    def _try_to_cut_over(self) -> None:
        """Compare and cut over: a check that met changing documents is not complete, and is repeated."""
        called(self.scene, "parity", besides=UNVERIFIED)
        called(self.scene, "cutover", "run")


def until(step: Callable[[], T]) -> T:
    """Try a step until it succeeds; the last failure is the test's."""
    end = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while True:
        try:
            return step()
        except AssertionError:
            if time.monotonic() > end:
                raise
            pause.wait(0.1)  # leave the processors to those who are waited for


def work_on_postgres(scene: Scene, number: int) -> None:
    """Make, change, pause, remove schedules, and let what is due fire."""
    with on_postgres(scene) as (store, service):
        ids = {one.schedule.name: one.schedule.id for one in service.list(EVERY).jobs}
        with store.session(TENANT) as session:
            for schedule_id in ids.values():
                for one in session.triggers.of_schedule(schedule_id):
                    armed = firing.with_next_fire(one, session.now).next_fire_at
                    if armed is not None and one.next_fire_at is None:
                        assert session.triggers.move(one.id, None, armed)
        store.queue.fire_due(firing.plan, 1_000, store.now() + timedelta(days=1))
        born: dict[str, Any] = {"handler_name": "scan", "created_by": "ops"}
        service.schedule(ScheduleRequest(name=f"born {number}", cron="30 2 * * *", timezone="Europe/Berlin", **born))
        service.schedule(ScheduleRequest(name=f"held {number}", cron="7 * * * *", timezone="UTC", **born))
        gone = service.schedule(ScheduleRequest(name=f"gone {number}", cron="8 * * * *", timezone="UTC", **born))
        service.schedule(ScheduleRequest(name=f"interval {number}", interval=timedelta(hours=1), **born))
        service.reschedule(ids["to be changed"], cron=f"{number} 3 * * *", timezone="Asia/Tokyo")
        paused = next(one for one in service.list(EVERY).jobs if one.schedule.name == f"held {number}")
        service.pause(paused.schedule.id)
        service.pause(ids["to be paused"])
        service.unschedule(gone.schedule.id)


def work_of_the_old_application(scene: Scene, number: int) -> None:
    """Insert a schedule, change some, remove one, switch on what was paused: in the fields that it knows."""
    with scene.foreign() as old:
        old.schedules.insert_one(of_the_old_application(f"added {number}", cronExpression=f"{number} 9 * * 1"))
        for name, line in (("by day", f"0 {7 + number} * * 5"), (f"born {number}", f"{number} 4 * * *")):
            found = old.schedules.find_one({"name": name})
            assert found is not None
            assert {"cronExpression", "timezone", "enabled"} <= found.keys()
            old.schedules.update_one({"_id": found["_id"]}, {"$set": {"cronExpression": line}})
        on = old.schedules.update_many(
            {"name": {"$in": ["to be paused", f"held {number}"]}}, {"$set": {"enabled": True}}
        )
        assert on.modified_count == 2
        removed = "to be removed" if number == 1 else f"added {number - 1}"
        assert old.schedules.delete_one({"_id": removed}).deleted_count == 1
        # one is written anew as a whole, so that fields which it does not know are gone
        found = old.schedules.find_one({"name": "to be changed"})
        assert found is not None
        known = {name: value for name, value in found.items() if name in fresh("schedules") or name == "_id"}
        old.schedules.replace_one({"_id": found["_id"]}, known)


def _back(scene: Scene, number: int) -> None:
    """Write on PostgreSQL, go back, and find it in MongoDB."""
    agree(scene)
    work_on_postgres(scene, number)
    with suppress(RefusedError):  # the tail does it
        reverse_sync.run(scene.settings, noted_by_now=True)
    until(lambda: agree(scene))
    planned = until(lambda: called(scene, "rollback", "plan"))  # not ready while a row is changed that it compares
    for listed in (planned, called(scene, "rollback", "run")):
        assert "would not fire for a trigger of kind interval: its fields state cron lines only" in listed
        assert "would have no mode, which the old application needs" in listed
    fires = agree(scene)
    assert fires[f"born {number}"]
    assert (fires[f"held {number}"], fires["to be paused"], fires[f"interval {number}"]) == ((), (), ())


@pytest.mark.proves("4-B1", "1-B1")
def test_round_and_the_end_on_any_version_of_the_target(ready_on_any: Scene) -> None:
    """Copy, tail, cutover, rollback, cutover again, and its end; statements of a newer server do not stand in it."""
    called(ready_on_any, "backfill")
    _times(3 if DEEP else 1, Quiet(ready_on_any))


@pytest.mark.proves("4-B1", "1-B1")
def test_three_times_round_while_somebody_writes(ready: Scene) -> None:
    called(ready, "backfill")
    command = [sys.executable, "-m", "migrator", "tail", "--config", str(ready.config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as tail:
        try:
            with Writer(ready) as writer:
                _times(3, Busy(ready))
            assert writer.written
            assert tail.stderr is not None
            assert tail.wait(PATIENCE_S) == 0, tail.stderr.read()
        finally:
            tail.kill()


def linked(scene: Scene) -> None:
    """Every run that a trigger fired, and whose schedule is there, still names it: no slot fires twice."""
    with psycopg.connect(scene.dsn) as connection:
        fired, named = connection.execute(
            "SELECT count(*), count(trigger_id) FROM scheduler.runs JOIN scheduler.schedules AS s ON s.id = schedule_id"
            " WHERE triggered_by = 'scheduler' AND s.name <> 'to be removed'"
        ).fetchone() or (0, 0)
    assert fired == named > 0


def _times(rounds: int, day: Quiet) -> None:
    for number in range(1, rounds + 1):
        day.follow()
        day.cut_over()
        _back(day.scene, number)
        day.follow()
        work_of_the_old_application(day.scene, number)
        fires = day.follow()
        assert fires[f"added {number}"]
        assert fires["to be paused"]
        assert fires[f"held {number}"]
        linked(day.scene)
    day.cut_over()
    agree(day.scene)
    called(day.scene, "cutover", "finish", "--now", "--who", "me", "--reason", "the last time")
    agree(day.scene)
    with psycopg.connect(day.scene.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM migration.quarantine WHERE state = 'open'").fetchone() == (0,)
