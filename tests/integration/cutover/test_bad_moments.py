"""Bad input met in the middle of a switch, or by a server of its own; each test has a scene of its own."""

import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest
from pymongo.database import Database

from migrator import fault_points
from migrator.config import load_settings
from migrator.cutover import completion, config_file, cutover, epoch, fence, journal, procedure, rollback
from migrator.errors import BackendMovedError, MigratorError, RefusedError
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail.positions import oplog_history
from migrator.scheduler import firing
from migrator.store import open_scheduler_store
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import run
from tests.cron_lines import DEEP
from tests.cutting_over import gate, own_scene, red, scene, with_cutover
from tests.gates import held
from tests.ordinary_user import ordinary_user
from tests.store_postgres import schedule, trigger

USAGE = 2


def fill_history(database: Database[Any], until: Callable[[], bool]) -> None:
    while not until():
        database["filler"].insert_many([{"blob": "x" * 500_000} for _ in range(10)])


def test_a_history_that_is_too_short_for_the_switch(scheduler_dsn: str, tmp_path: Path) -> None:
    """The oplog of a megabyte: behind the tail, too small for a switch, behind the last comparison."""
    parameters = {"minOplogTruncationPoints": "1"}
    with (
        MongoServer(auth=True, fast=True, oplog_mb=1, parameters=parameters) as short,
        scene(short, fresh_name(), scheduler_dsn, tmp_path) as ready,
    ):
        ready.ready()
        assert gate(ready.settings, ready.conditions, "history")[0] is True

        def lost() -> bool:
            return "the position of the tail is before that" in gate(ready.settings, ready.conditions, "history")[1]

        fill_history(ready.database.client["elsewhere"], lost)
        assert "and the position of the tail is before that" in red(ready.settings, ready.conditions)["history"]
        status, _, said = run("tail", "--until-caught-up", "--config", str(ready.config))
        assert status == 0, said
        assert "and a cutover may need 1m: enlarge the oplog" in red(ready.settings, ready.conditions)["history"]
        patient = with_cutover(ready.settings, max_lag=timedelta(seconds=1), max_pause=timedelta(seconds=1))
        history = oplog_history(ready.database)
        assert history is not None
        while time.time() < history.oldest.time + 3:
            ready.database.client["elsewhere"].command("ping")
        ready.database.client["elsewhere"]["filler"].insert_one({})
        with psycopg.connect(ready.dsn) as connection:
            # As if nothing had been compared since: the tail has compared everything when its position was lost.
            past = '{"seconds": 0.5, "position": {"t": 1, "i": 1}}'
            connection.execute("UPDATE migration.parity_checks SET result = result || %s::jsonb", (past,))
        passed, words = gate(patient, ready.conditions, "history")
        assert (passed, "everything is compared under the fence" in words) == (True, True), words
        with psycopg.connect(ready.dsn) as connection:
            connection.execute("UPDATE migration.parity_checks SET result = result || '{\"seconds\": 90}'")
        assert "which took 90 s: call migrator parity" in red(patient, ready.conditions)["history"]


@pytest.mark.proves("4-X6")
def test_a_configuration_that_becomes_read_only_behind_the_return(
    auth_server: MongoServer, scheduler_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may write on either side until it is mended; then the same call finishes."""
    real = epoch.close_source
    with own_scene(auth_server, scheduler_dsn) as ready:

        def locked(sessions: Sessions, number: int) -> None:
            real(sessions, number)
            ready.folder.chmod(0o500)

        monkeypatch.setattr(epoch, "close_source", locked)
        with ordinary_user():
            for _ in range(2):
                with pytest.raises(MigratorError, match="to name postgres: Permission denied; correct that"):
                    ready.switch()
                assert config_file.named_backend(ready.config) == "mongo"
                assert fence.is_source_fenced(ready.database, "write-block", ())
                with pytest.raises(BackendMovedError):
                    open_scheduler_store(ready.settings)
                with pytest.raises(RefusedError, match="point of no return is passed: call migrator cutover run"):
                    procedure.abort(cutover.SchedulerCutover, ready.settings)
            monkeypatch.undo()
            ready.folder.chmod(0o700)
        done = ready.switch()
        assert (done.resumed, done.cutover.state) == (True, "cut-over")
        store = open_scheduler_store(load_settings(str(ready.config)))
        assert store.backend == "postgres"
        store.close()


def test_two_switches_at_once(auth_server: MongoServer, scheduler_dsn: str) -> None:
    with own_scene(auth_server, scheduler_dsn) as ready:
        before = (f"{fault_points.CUTOVER_PREFIX}fence.done", ready.folder)
        with held(ready.config, *before, command="cutover run") as first:
            status, out, said = run("cutover", "run", "--config", str(ready.config))
            assert (status, out) == (USAGE, "")
            assert said == "migrator: another cutover, or rollback, of this target is running\n"
            for other in (
                lambda: procedure.abort(cutover.SchedulerCutover, ready.settings),
                lambda: completion.finish(ready.settings),
                lambda: rollback.run(ready.settings, ready.config, 1),
            ):
                with pytest.raises(RefusedError, match="another cutover, or rollback, of this target is running"):
                    other()
            first.go()
            status, out, said = first.end()
        assert status == 0, said
        assert out.startswith("cut over to PostgreSQL, epoch 1\n")
        with pytest.raises(RefusedError, match="there was a cutover already"):
            ready.switch()


@pytest.mark.proves("4-X5")
@pytest.mark.parametrize("ends", ["switched", "taken back"] if DEEP else ["switched"])
def test_a_scheduler_that_is_logged_in_as_the_tools_own_user(
    ends: str, auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence lets that user through: the epoch stops the process, from before the fence on."""
    with (
        scene(auth_server, fresh_name(), scheduler_dsn, tmp_path, "its_own") as ready,
        closing(open_scheduler_store(ready.settings)) as store,
    ):
        with store.session("a") as session:
            one = session.schedules.upsert(schedule(enabled=True))
            session.triggers.upsert(trigger(one, enabled=True, next_fire_at=store.now()))
        assert len(store.queue.fire_due(firing.plan, 10)) == 1  # there is a run to be claimed, and then another to fire
        with store.session("a") as session:
            (due,) = session.triggers.of_schedule(one.id)
            session.triggers.upsert(msgspec.structs.replace(due, next_fire_at=store.now()))
        ready.ready()
        tried: list[str] = []

        def work(point: str) -> None:
            if point not in {
                f"{fault_points.CUTOVER_PREFIX}{step}.begun" for step in ("drain", "parity", journal.POINT_OF_NO_RETURN)
            }:
                return
            tried.append(point)
            with pytest.raises(BackendMovedError), store.session("a") as session:
                session.schedules.upsert(schedule())
            with pytest.raises(BackendMovedError):
                store.queue.fire_due(firing.plan, 10)
            with pytest.raises(BackendMovedError):
                store.queue.claim(str(uuid4()), 10, timedelta(minutes=1))
            if ends == "taken back" and point.endswith("parity.begun"):
                raise RefusedError("enough")

        monkeypatch.setattr(fault_points, "_listen", work)
        if ends == "switched":
            ready.switch()
            assert len(tried) == 3
            after = open_scheduler_store(load_settings(str(ready.config)))
            with after.session("a") as session:
                assert session.schedules.get(one.id) is not None
            after.close()
        else:
            with pytest.raises(RefusedError, match="enough"):
                ready.switch()
            with store.session("a") as session:
                session.schedules.upsert(schedule())
            assert config_file.named_backend(ready.config) == "mongo"
