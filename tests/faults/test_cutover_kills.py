"""A switch, and the way back, killed at every step and called again: they end as ones that were never disturbed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg
import pytest
from bson.objectid import ObjectId

from migrator import fault_points
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import fence, journal, outbox, reverse_sync
from migrator.cutover.journal import latest
from migrator.records import Run
from migrator.sources.agenda import variants
from migrator.store import open_scheduler_store
from migrator.store.epoch import Epoch
from migrator.store.mongo import epoch as mongo_epoch
from migrator.store.postgres import epoch as postgres_epoch
from migrator.store.protocols import Store
from migrator.testing.servers.mongo import MongoServer
from migrator.values import identity
from tests import store_postgres
from tests.conftest import fresh_name
from tests.copying import TENANT, run
from tests.cron_lines import DEEP
from tests.cutting_over import Scene, scene
from tests.killed_commands import killed_at
from tests.store_postgres import run as run_of
from tests.store_postgres import schedule, trigger

MOMENTS = ("begun", "done") if DEEP else ("done",)
"""Of the deep profile: every step at both. The short one kills at each step one after the other, and a few alone."""

SMOKE = ("smoke.written", "smoke.done")
"""At the first, rows of its scratch tenant are left, which the next call removes."""
RESTORING = ("rollback-export.begun", "rollback-restore.begun", "restored", "rollback-restore.done")


def call(scene: Scene, *arguments: str) -> tuple[int, str]:
    status, out, said = run(*arguments, "--config", str(scene.config))
    return status, out + said


def standing(scene: Scene) -> dict[str, Any]:
    """Return everything by which one end state is told from another."""
    engaged = fence.is_source_fenced(scene.database, "write-block", ())
    with open_target(scene.settings, autocommit=True) as target:
        found = latest(target)
        assert found is not None
        return {
            "state": found.state,
            "file": load_settings(str(scene.config)).persistence.scheduler,
            "source": _side(mongo_epoch.read(scene.database)),
            "target": _side(postgres_epoch.read(target)),
            "fence": engaged,
            "outbox": outbox.is_open(target),
            "stream": reverse_sync.FENCE_COLLECTION in scene.database.list_collection_names(),
            "notes": outbox.backlog(target)[0],
        }


def _side(found: Epoch | None) -> str | None:
    return None if found is None else found.backend


SWITCHED = {
    "state": "cut-over",
    "file": "postgres",
    "source": "postgres",
    "target": "postgres",
    "fence": True,
    "outbox": True,
    "stream": True,
    "notes": 0,
}
BACK = {
    "state": "rolled-back",
    "file": "mongo",
    "source": "mongo",
    "target": "mongo",
    "fence": False,
    "outbox": False,
    "stream": False,
    "notes": 0,
}


@contextmanager
def _store(scene: Scene) -> Iterator[Store]:
    """Open the store that the configuration names."""
    store = open_scheduler_store(load_settings(str(scene.config)))
    try:
        yield store
    finally:
        store.close()


def rows(scene: Scene) -> dict[str, int]:
    with psycopg.connect(scene.dsn) as connection:
        return {
            table: connection.execute(f"SELECT count(*) FROM scheduler.{table}").fetchone()[0]  # type: ignore[index]
            for table in ("schedules", "runs", "triggers", "policy_jobs")
        }


@pytest.mark.slow
@pytest.mark.proves("4-X6", "4-B1")
def test_killed_at_one_step_after_the_other_there_and_back(ready: Scene) -> None:
    """The short form of the tests below, which kill each step of a switch of its own."""
    before = rows(ready)
    for point in ("fence.begun", "fence.done", "parity.done", "outbox.done"):
        assert killed_at(f"{fault_points.CUTOVER_PREFIX}{point}", ready, "cutover", "run")
        assert load_settings(str(ready.config)).persistence.scheduler == "mongo"
    for point in (
        f"{journal.POINT_OF_NO_RETURN}.done",
        "open-target.begun",
        "open-target.done",
        *SMOKE,
        "backup.done",
        "reverse-sync.done",
    ):
        assert killed_at(f"{fault_points.CUTOVER_PREFIX}{point}", ready, "cutover", "run"), point
    status, said = call(ready, "cutover", "run")
    assert status == 0, said
    assert standing(ready) == SWITCHED
    assert rows(ready) == before
    with _store(ready) as store, store.session("a") as session:
        written = session.schedules.upsert(schedule(name="since"))
    for step in journal.ROLLBACK_STEPS[1]:
        assert killed_at(f"{fault_points.CUTOVER_PREFIX}{step}.done", ready, "rollback", "run"), step
    status, said = call(ready, "rollback", "run")
    assert status == 0, said
    assert standing(ready) == BACK
    with _store(ready) as store, store.session("a") as session:
        assert session.schedules.get(written.id) is not None


@pytest.mark.slow
@pytest.mark.proves("4-X6", "0-T2.12.1")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", journal.CUTOVER_STEPS if DEEP else ("drain", "open-target"))
def test_a_switch_that_was_killed_ends_as_one_that_was_not(step: str, moment: str, ready: Scene) -> None:
    before = rows(ready)
    assert killed_at(f"{fault_points.CUTOVER_PREFIX}{step}.{moment}", ready, "cutover", "run")
    if step in journal.STEPS_BEFORE:
        assert load_settings(str(ready.config)).persistence.scheduler == "mongo"
    status, said = call(ready, "cutover", "run")
    assert status == 0, said
    assert standing(ready) == SWITCHED
    assert rows(ready) == before


@pytest.mark.slow
@pytest.mark.proves("4-B1", "4-X6")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", journal.ROLLBACK_STEPS[1] if DEEP else (journal.REOPEN_STEP,))
def test_a_way_back_that_was_killed_ends_as_one_that_was_not(step: str, moment: str, ready: Scene) -> None:
    ready.switch()
    with _store(ready) as store, store.session("a") as session:
        written = session.schedules.upsert(schedule(name="since"))
    assert killed_at(f"{fault_points.CUTOVER_PREFIX}{step}.{moment}", ready, "rollback", "run")
    status, said = call(ready, "rollback", "run")
    assert status == 0, said
    assert standing(ready) == BACK
    with _store(ready) as store, store.session("a") as session:
        assert session.schedules.get(written.id) is not None


@pytest.mark.slow
@pytest.mark.proves("4-B3")
@pytest.mark.parametrize("point", RESTORING if DEEP else ("restored",))
def test_a_restore_that_was_killed_ends_as_one_that_was_not(point: str, ready: Scene) -> None:
    ready.switch()
    assert killed_at(f"{fault_points.CUTOVER_PREFIX}{point}", ready, "rollback", "run", "--level", "3")
    status, said = call(ready, "rollback", "run", "--level", "3")
    assert status == 0, said
    assert standing(ready) == BACK


LATER: Final = datetime(2027, 1, 1, tzinfo=UTC)
"""Later than every run of the documents."""
REVERSE = (fault_points.BEFORE_REVERSE_WRITE, fault_points.AFTER_REVERSE_WRITE, fault_points.AFTER_REVERSE_DROP)


@pytest.mark.slow
@pytest.mark.proves("4-B1", "4-X6", "5-C1")
@pytest.mark.parametrize("profile", ["agenda", "acme"])
def test_a_rollback_of_another_source_that_was_killed_ends_as_one_that_was_not(
    profile: str, auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    """Killed at the write of documents, and at the steps that open MongoDB again and replace the rows."""
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, profile=profile) as other:
        other.ready()
        other.switch()
        tenant, collection = (TENANT, "agendaJobs") if profile == "agenda" else ("north", "jobs")
        count = other.database[collection].count_documents({})
        with store_postgres.opened(scheduler_dsn) as store, store.session(tenant) as session:
            made = session.schedules.upsert(schedule(tenant, name="since", handler_name="since"))
            session.triggers.upsert(trigger(made))
            session.runs.create(run_of(tenant, schedule_id=made.id, state="completed"))
        steps_back = (f"{fault_points.CUTOVER_PREFIX}{one}.done" for one in (journal.REOPEN_STEP, "rollback-close"))
        for point in (*REVERSE, *steps_back):
            assert killed_at(point, other, "rollback", "run"), point
        status, said = call(other, "rollback", "run")
        assert status == 0, said
        assert standing(other) == BACK | {"source": None}, "its application does not read the epoch"
        assert other.database[collection].count_documents({}) == count + 1
        with psycopg.connect(scheduler_dsn) as connection:
            found = connection.execute("SELECT count(*), count(source) FROM scheduler.schedules").fetchone()
            assert found is not None
            assert found[0] == found[1], "no row is left that no document makes"
        status, said = call(other, "tail", "--until-caught-up")
        assert status == 0, said
        status, said = call(other, "parity")
        assert status == 0, said


class Runs(threading.Thread):
    """Somebody who records runs in PostgreSQL all the time, and remembers each of them."""

    def __init__(self, dsn: str, tenant: str, schedules: list[UUID]) -> None:
        super().__init__()
        self._dsn, self._tenant, self._schedules = dsn, tenant, schedules
        self._stop_asked = threading.Event()
        self.told: list[Run] = []

    def run(self) -> None:
        """Write until `stop` is called."""
        with store_postgres.opened(self._dsn) as store:
            while not self._stop_asked.is_set():
                number = len(self.told)
                began = LATER + timedelta(seconds=2 * number)
                failed: dict[str, Any] = {"state": ("error", "timeout")[number % 2], "error": f"number {number}"}
                with store.session(self._tenant) as session:
                    one = session.runs.create(
                        run_of(
                            self._tenant,
                            schedule_id=self._schedules[number * 7 % len(self._schedules)],
                            started_at=began,
                            finished_at=began + timedelta(seconds=1),
                            **(failed if number % 3 else {"state": "completed"}),
                        )
                    )
                self.told.append(one)

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()


@pytest.mark.slow
@pytest.mark.proves("4-B1", "4-X5", "5-C1")
@pytest.mark.parametrize("profile", ["agenda", "acme"])
def test_runs_recorded_while_the_reverse_sync_is_killed_are_in_the_documents_once(
    profile: str, auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path
) -> None:
    """The judge are the documents, read by hand: Agenda's hold the last run and counts, the others every run."""
    with scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, profile=profile) as other:
        other.ready()
        tenant, collection = (TENANT, "agendaJobs") if profile == "agenda" else ("north", "jobs")
        before = {str(one["_id"]): one for one in other.database[collection].find()}
        history = other.database["history"].count_documents({})
        other.switch()
        with psycopg.connect(scheduler_dsn) as connection:
            found = connection.execute(
                "SELECT id, source_id FROM scheduler.schedules WHERE source LIKE %s ORDER BY id LIMIT 5",
                (f"%/{collection}",),
            ).fetchall()
        keys = {row[0]: str(identity.parse_source_id(row[1])) for row in found}
        writer = Runs(scheduler_dsn, tenant, list(keys))
        writer.start()
        try:
            for point in REVERSE:
                assert killed_at(point, other, "tail"), point
        finally:
            writer.stop()
        status, said = call(other, "rollback", "run")
        assert status == 0, said
        assert len(writer.told) >= len(REVERSE)
        after = {str(one["_id"]): one for one in other.database[collection].find()}
        for schedule_id, key in keys.items() if profile == "agenda" else ():
            own = [one for one in writer.told if one.schedule_id == schedule_id]
            failures = [one for one in own if one.error is not None]
            last = own[-1].started_at if own else before[key].get("lastRunAt")
            assert after[key].get("lastRunAt") == (last.replace(tzinfo=None) if last else last)
            completed = [number for number, one in enumerate(own) if one.error is None]
            if completed and variants.recognise(before[key]) == variants.AGENDA_6:  # it counts since the last success
                assert (after[key].get("failCount") or 0) == len(own) - 1 - completed[-1]
            else:
                assert (after[key].get("failCount") or 0) == (before[key].get("failCount") or 0) + len(failures)
            assert not failures or after[key]["failReason"] == failures[-1].error
        if profile == "acme":
            stored = {one["_id"]: one for one in other.database["history"].find({"_id": {"$type": "string"}})}
            assert other.database["history"].count_documents({}) == history + len(writer.told)
            assert {key: (one.get("message"), one["job"]) for key, one in stored.items()} == {
                str(one.id): (one.error, ObjectId(keys[one.schedule_id])) for one in writer.told if one.schedule_id
            }
