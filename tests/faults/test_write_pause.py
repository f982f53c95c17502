"""The limit of the write pause reaches whatever the tool waits for while writers are stopped.

A wait for a lock has no limit here, and MongoDB answers after the limit: else a call would not return, or succeed.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Self

import msgspec
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

from migrator import fault_points
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import cutover, fence, losses, rollback
from migrator.cutover.gates import GateOptions
from migrator.cutover.journal import FAILED, latest, steps
from migrator.cutover.plan import cutover_plan
from migrator.cutover.write_pause import WritePause
from migrator.errors import RefusedError
from migrator.parity import recheck
from migrator.pipeline import checksums
from migrator.pipeline.sessions import Sessions
from migrator.store import open_scheduler_store
from migrator.testing.servers.mongo import MongoServer
from tests.conftest import fresh_name
from tests.copying import run_of
from tests.cutting_over import Scene, gate, scene, with_cutover
from tests.store_postgres import schedule

LIMIT = timedelta(seconds=8)
SILENT_MS = 11_000
"""More than the limit, which began before; what undoes a cutover waits for the rest of it."""
SAYS = r"the write pause would exceed its limit of 8 s \(cutover\.max_pause\)"


@pytest.fixture
def ready(auth_server: MongoServer, scheduler_dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """Yield a scene whose sessions wait for a lock without a limit."""
    dsn = make_conninfo(scheduler_dsn, options="-c lock_timeout=0")
    with scene(auth_server, fresh_name(), dsn, tmp_path) as made:
        made.ready()
        made.settings = with_cutover(made.settings, max_pause=LIMIT)
        yield made


Holdup = Callable[[Scene], None]


class LockedTable:
    """A session that holds a table: whoever comes later waits for it."""

    def __init__(self, dsn: str, table: str) -> None:
        self._connection = psycopg.connect(dsn)
        self._table = table

    def __enter__(self) -> Self:
        return self

    def take(self, _: Scene) -> None:
        self._connection.execute(f"LOCK TABLE scheduler.{self._table} IN ACCESS EXCLUSIVE MODE".encode())

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def held_up_at(monkeypatch: pytest.MonkeyPatch, scene: Scene, step: str, hold_up: Holdup) -> list[str]:
    """Hold something up when a step begins; return the list that will name the step then."""
    reached: list[str] = []

    def listen(point: str) -> None:
        if point == f"{fault_points.CUTOVER_PREFIX}{step}.begun" and not reached:
            reached.append(step)
            hold_up(scene)

    monkeypatch.setattr(fault_points, "_listen", listen)
    return reached


@pytest.fixture
def alarms(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry whenever the limit interrupts the main thread."""
    rung: list[str] = []
    alarm = WritePause._raise

    def count(pause: WritePause, number: int, frame: FrameType | None) -> None:
        rung.append(pause.words)
        alarm(pause, number, frame)

    monkeypatch.setattr(WritePause, "_raise", count)
    return rung


def assert_as_before(scene: Scene, step: str) -> None:
    """Writers go on, and the journal says why."""
    assert not fence.is_source_fenced(scene.database, "write-block", ())
    with scene.foreign() as database:
        database.runs.insert_one(run_of(_id=f"after {step}"))
    with open_target(scene.settings, autocommit=True) as target:
        found = latest(target)
        assert found is not None
        assert found.state == "aborted"
        failed = {one.step: one.detail.get(FAILED) for one in steps(target, found.id)}
    assert str(failed[step]).startswith("the write pause would exceed its limit"), failed


@pytest.mark.slow
@pytest.mark.proves("4-X6")
@pytest.mark.parametrize("step", ["drain", "parity", "outbox"])
def test_a_locked_table_does_not_hold_the_writers_up(step: str, ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.database.runs.insert_one(run_of(_id="to be compared"))
    with LockedTable(ready.dsn, "runs") as locked:
        if step == "drain":

            def hold_up(_: Scene) -> None:
                locked.take(ready)
                ready.database.runs.insert_one(run_of(_id="under the fence"))

        else:
            hold_up = locked.take
        reached = held_up_at(monkeypatch, ready, step, hold_up)
        with pytest.raises(RefusedError, match=SAYS):
            ready.switch()
        assert reached == [step]
        assert_as_before(ready, step)


@pytest.mark.slow
def test_a_comparison_of_everything_ends_at_the_limit(
    ready: Scene, monkeypatch: pytest.MonkeyPatch, alarms: list[str]
) -> None:
    monkeypatch.setattr(recheck, "changed_since", lambda *_: None)  # the oplog does not reach back
    processes = msgspec.structs.replace(ready.settings.copy, workers=2, patience=timedelta(seconds=1))
    ready.settings = msgspec.structs.replace(ready.settings, copy=processes)
    with LockedTable(ready.dsn, "runs") as locked:
        reached = held_up_at(monkeypatch, ready, "parity", locked.take)
        with pytest.raises(RefusedError, match=SAYS):
            ready.switch()
    assert reached == ["parity"]
    assert len(alarms) == 1, "the thread that waits for the lock was not waited for"
    assert_as_before(ready, "parity")


@contextmanager
def silent(scene: Scene) -> Iterator[Callable[[str], None]]:
    """Yield what lets MongoDB answer one command of the tool only after the limit."""
    admin = scene.database.client.admin

    def let(command: str) -> None:
        data = {"failCommands": [command], "blockConnection": True, "blockTimeMS": SILENT_MS, "appName": "migrator"}
        admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)

    try:
        yield let
    finally:
        admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.mark.slow
def test_a_mongodb_that_does_not_answer_ends_at_the_limit(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with silent(ready) as let:
        reached = held_up_at(monkeypatch, ready, "parity", lambda _: let("aggregate"))
        with pytest.raises(RefusedError, match=SAYS):
            ready.switch()
    assert reached == ["parity"]
    assert_as_before(ready, "parity")


@pytest.mark.slow
@pytest.mark.proves("4-B1")
@pytest.mark.parametrize(("step", "command"), [("rollback-drain", "findAndModify"), ("rollback-check", "find")])
def test_a_rollback_that_would_hold_the_writers_up_is_undone(
    step: str, command: str, ready: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.switch()
    with closing(open_scheduler_store(load_settings(str(ready.config)))) as store, store.session("a") as session:
        session.schedules.upsert(schedule(name="since"))
    with silent(ready) as let:
        reached = held_up_at(monkeypatch, ready, step, lambda _: let(command))
        with pytest.raises(RefusedError, match=SAYS):
            rollback.run(ready.settings, ready.config, 1)
    monkeypatch.undo()
    assert reached == [step]
    with open_target(ready.settings, autocommit=True) as target:
        assert not fence.is_target_fenced(target, ready.settings.postgres)
        found = latest(target)
    assert found is not None
    assert found.state == "cut-over"
    with closing(open_scheduler_store(load_settings(str(ready.config)))) as store, store.session("a") as session:
        session.schedules.upsert(schedule(name="PostgreSQL stays open"))
    rollback.run(with_cutover(ready.settings, max_pause=timedelta(minutes=5)), ready.config, 1)


def slow_comparison(scene: Scene, result_of: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Let the recorded parity check have another result."""
    with psycopg.connect(scene.dsn) as connection:
        row = connection.execute("SELECT id, result FROM migration.parity_checks ORDER BY started_at DESC LIMIT 1")
        key, result = row.fetchone() or (None, {})
        assert result is not None
        result |= result_of(result)
        connection.execute("UPDATE migration.parity_checks SET result = %s WHERE id = %s", (Jsonb(result), key))
        checksums.write(connection, "parity_checks", "stored.id = %s", key)


def test_an_expected_pause_beyond_the_limit_is_a_gate(ready: Scene) -> None:
    name = "write pause"
    assert gate(ready.settings, ready.conditions, name)[0] is True
    slow_comparison(ready, lambda result: {"seconds": 1000.0 * result["documents"]})
    for number in range(9):
        ready.database.runs.insert_one(run_of(_id=f"changed {number}"))
    passed, words = gate(ready.settings, ready.conditions, name)
    assert passed is False
    assert words == (
        "about 10.0 s are expected, in which 9 documents that changed are compared (at most 8s): call migrator parity"
        " shortly before the cutover, or raise cutover.max_pause"
    )
    planned = cutover_plan(ready.settings, ready.config, quarantined=ready.quarantined)
    assert not planned.ready
    assert next(one.words for one in planned.gates if one.name == name) == words
    with pytest.raises(RefusedError, match=r"the cutover is refused: .*write pause: about 10\.0 s"):
        cutover.run(ready.settings, GateOptions(config=ready.config, quarantined=ready.quarantined))
    raised = with_cutover(ready.settings, max_pause=timedelta(minutes=1))
    assert gate(raised, ready.conditions, name)[0] is True


def test_the_rate_of_a_small_check_on_a_busy_machine_refuses_nothing(ready: Scene) -> None:
    slow_comparison(ready, lambda _: {"documents": 14, "seconds": 20.0})
    for number in range(9):
        ready.database.runs.insert_one(run_of(_id=f"changed {number}"))
    passed, words = gate(ready.settings, ready.conditions, "write pause")
    assert (passed, words) == (
        True,
        (
            "about 1.1 s are expected, in which 9 documents that changed are compared at 100 documents a second, a rate"
            " that is assumed: the last check compared 14 alone (at most 8s)"
        ),
    )


def test_the_plan_of_a_rollback_says_how_long_it_takes(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    ready.switch()
    with closing(open_scheduler_store(load_settings(str(ready.config)))) as store, store.session("a") as session:
        for number in range(9):
            session.schedules.upsert(schedule(name=f"since {number}"))
    found = {one.name: one for one in rollback.gates(ready.settings, ready.config, 1)}["write pause"]
    assert (found.passed, " documents with their rows (at most 8s)" in found.words) == (True, True), found.words
    survey, clock = losses.survey, SimpleNamespace(monotonic=lambda: 0.0)

    def slow_survey(sessions: Sessions, since: datetime) -> losses.Losses:
        made = survey(sessions, since)
        clock.monotonic = lambda: 9.0
        return made

    monkeypatch.setattr(losses, "survey", slow_survey)
    monkeypatch.setattr(rollback, "time", clock)
    found = {one.name: one for one in rollback.gates(ready.settings, ready.config, 1)}["write pause"]
    assert found.passed is False
    assert found.words.startswith("about 10.0 s are expected, to compare ")
    assert found.words.endswith(" documents with their rows (at most 8s): raise cutover.max_pause")
    monkeypatch.undo()
    restore = {one.name: one for one in rollback.gates(ready.settings, ready.config, 3)}["write pause"]
    assert restore.passed is None
    assert "and restore 14 documents; without a limit while it restores" in restore.words
