"""An exception in each step of a cutover, a rollback and a finish: what ``cutover status`` names leads on."""

import itertools
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
import pytest
from click.testing import CliRunner

from migrator import fault_points
from migrator.cli import cli
from migrator.config import load_settings
from migrator.connections.postgres import open_target
from migrator.cutover import (
    backup,
    config_file,
    cutover,
    epoch,
    fence,
    journal,
    outbox,
    overdue,
    reverse_sync,
    rollback,
)
from migrator.cutover import completion as closing
from migrator.cutover.journal import latest
from migrator.cutover.smoke import SmokeError
from migrator.exit_status import DONE, UNVERIFIED
from migrator.parity.recorded_check import check_and_record, is_clean
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.pipeline.tail.loop import Tail
from migrator.store import open_scheduler_store
from migrator.store.postgres import parallel_run
from tests.consent import consenting
from tests.cron_lines import DEEP
from tests.cutting_over import Scene
from tests.faults.test_cutover_kills import BACK, SWITCHED, standing
from tests.killed_commands import killed_at
from tests.store_postgres import schedule

MOMENTS = ("begun", "done") if DEEP else ("done",)
EARLY: Final = ("--now", "--who", "op", "--reason", "test")


class Plant(msgspec.Struct, frozen=True):
    """Where an exception is raised: when a step is begun or done, or in place of a function that it calls."""

    step: str
    moment: str = ""
    owner: Any = None
    name: str = ""

    def __str__(self) -> str:
        return f"{self.step}: {self.moment or self.name}"


def at(steps: tuple[str, ...]) -> list[Plant]:
    return [Plant(step, moment=moment) for step in steps for moment in MOMENTS]


def within(step: str, *functions: tuple[Any, str], always: bool = False) -> list[Plant]:
    """Of a whole round there and back only in the deep profile."""
    return [Plant(step, owner=owner, name=name) for owner, name in functions] if DEEP or always else []


FORWARD = [
    *at((*journal.STEPS_BEFORE, journal.POINT_OF_NO_RETURN)),
    *at(("open-target",)),
    *within(
        "open-target",
        (epoch, "close_source"),
        (overdue, "fire_late"),
        (config_file, "set_backend"),
        (parallel_run, "end"),
        (epoch, "set_target"),
    ),
    *at(("smoke",)),
    *within("smoke", (cutover, "smoke")),
    *at(("backup",)),
    *within("backup", (backup, "export_source")),
    *at(("reverse-sync",)),
    *within("reverse-sync", (reverse_sync, "run")),
]
BACKWARD = [
    *at(journal.ROLLBACK_STEPS[1]),
    *within("rollback-fence", (fence, "engage_target")),
    *within("rollback-drain", (reverse_sync, "run")),
    *within("rollback-check", (reverse_sync, "check_written")),
    *within(
        "rollback-open-source",
        (epoch, "set_target"),
        (epoch, "open_source"),
        (config_file, "set_backend"),
        (rollback, "lift_source_fence"),
    ),
    *within(
        "rollback-close",
        (reverse_sync, "drop_fence_collection"),
        (outbox, "close_outbox"),
        (reverse_sync, "assign_documents"),
        (reverse_sync, "delete_processes"),
    ),
]
UNDONE = (
    *journal.STEPS_BEFORE,
    journal.POINT_OF_NO_RETURN,
    "rollback-fence",
    "rollback-drain",
    "rollback-check",
    "rollback-fires",
)
"""Steps whose failure the call undoes by itself."""
ERRORS = itertools.cycle((RuntimeError("planted"), OSError(5, "planted"), KeyError("planted")))


@contextmanager
def planted(plant: Plant) -> Iterator[list[str]]:
    """Raise at the place, whenever it is passed; yield the points that were passed."""
    passed: list[str] = []
    error = next(ERRORS)

    def listen(point: str) -> None:
        passed.append(point)
        if plant.moment and point == f"{fault_points.CUTOVER_PREFIX}{plant.step}.{plant.moment}":
            raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fault_points, "_listen", listen)
        if plant.owner is not None:
            real = getattr(plant.owner, plant.name)

            def fails(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - of any function
                if passed and passed[-1] == f"{fault_points.CUTOVER_PREFIX}{plant.step}.begun":
                    raise error
                return real(*arguments, **named)

            patched.setattr(plant.owner, plant.name, fails)
        yield passed
    close_cached()


def call(scene: Scene, *arguments: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(cli, consenting([*arguments, "--config", str(scene.config)]))
    error = None if isinstance(done.exception, SystemExit) else done.exception
    return done.exit_code, done.output, error


def fails(scene: Scene, plant: Plant, *arguments: str) -> None:
    """Call a command that fails by the plant."""
    with planted(plant) as passed:
        _, said, error = call(scene, *arguments)
    assert f"{fault_points.CUTOVER_PREFIX}{plant.step}.begun" in passed, (plant, said)
    assert error is not None and "planted" in str(error), (plant, said)  # noqa: PT018 - one statement about the error


def named(scene: Scene) -> list[list[str]]:
    """Return the commands that ``cutover status`` names, as they stand there; they agree with the exit statuses."""
    status, out, error = call(scene, "cutover", "status")
    assert error is None
    lines = [line for line in out.splitlines() if ": migrator " in line and line.startswith(("next", "or, if"))]
    found = [shlex.split(line.partition(": ")[2]) for line in lines]
    waits = bool(found)
    assert bool(status & UNVERIFIED) is waits, out
    assert bool(call(scene, "status")[0] & UNVERIFIED) is waits
    doctor = call(scene, "doctor")
    assert bool(doctor[0] & UNVERIFIED) is waits, doctor
    assert ("?   cutover: " in doctor[1]) is waits
    return found


def literally(command: list[str]) -> tuple[int, str]:
    """Execute a command as a message names it."""
    assert command[0] == "migrator"
    done = CliRunner().invoke(cli, consenting(command[1:]))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def leads_on(scene: Scene, plant: Plant, arguments: list[str], end: Callable[[], bool]) -> None:
    """After a failure: undone by itself and called again, or the command that the status names; both end well."""
    commands = named(scene)
    if plant.step in UNDONE:
        assert commands == [], plant
        status, said, error = call(scene, *arguments)
        assert (status, error) == (DONE, None), (plant, said)
    else:
        if plant.step == "reverse-sync" and end():  # the cutover is made without it
            return
        assert commands, plant
        status, said = literally(commands[0])
        assert status == DONE, (plant, said)
    assert end(), (plant, standing(scene))
    assert named(scene) == []


@pytest.mark.slow
@pytest.mark.proves("4-X6")
def test_an_exception_in_each_step_there_and_back(ready: Scene) -> None:
    """Round after round on one pair of databases; whatever failed, the end states are those of undisturbed calls."""
    forth = ["cutover", "run", "--allow-quarantined", str(ready.quarantined)]
    back = ["rollback", "run"]
    for number in range(max(len(FORWARD), len(BACKWARD))):
        plant = FORWARD[number % len(FORWARD)]
        fails(ready, plant, *forth)
        leads_on(ready, plant, forth, lambda: standing(ready) == SWITCHED)
        store = open_scheduler_store(load_settings(str(ready.config)))
        with store.session("a") as session:
            written = session.schedules.upsert(schedule(name=f"since {number}"))
        store.close()
        plant = BACKWARD[number % len(BACKWARD)]
        fails(ready, plant, *back)
        leads_on(ready, plant, back, lambda: standing(ready) == BACK)
        store = open_scheduler_store(load_settings(str(ready.config)))
        with store.session("a") as session:
            assert session.schedules.get(written.id) is not None
        store.close()
        _again(ready)


def _again(scene: Scene) -> None:
    """Bring the copy up to date after a rollback, for the next cutover."""
    with Tail(scene.settings) as tail:
        tail.run("caught-up")
    backfill(scene.settings, Scope())
    assert is_clean(check_and_record(scene.settings))
    close_cached()


@pytest.mark.slow
@pytest.mark.proves("4-B3", "4-X6")
def test_an_exception_in_each_step_of_a_restore(ready: Scene) -> None:
    ready.switch()
    command = ["migrator", "rollback", "run", "--level", "3"]
    for plant in (
        *at(("rollback-fence", "rollback-export")),
        *within("rollback-export", (backup, "export_since"), always=True),
    ):
        fails(ready, plant, *command[1:])
        assert named(ready) == []  # undone: PostgreSQL goes on
        assert standing(ready) == SWITCHED
    rest = (Plant("rollback-restore", moment="begun"), Plant("rollback-restore", owner=backup, name="restore_source"))
    for plant in (*rest, *at(("rollback-restore", "rollback-open-source", "rollback-close"))):
        fails(ready, plant, *command[1:])
        assert named(ready) == [[*command, "--config", str(ready.config)]], plant
        if standing(ready)["state"] == "cut-over":
            for level in ("1", "2"):
                other = str(call(ready, "rollback", "run", "--level", level)[2])
                assert other.endswith("was begun: call migrator rollback run --level 3")
            assert closing_refused(ready).endswith("call migrator rollback run --level 3 first")
    status, said = literally(named(ready)[0])
    assert status == DONE, said
    assert standing(ready) == BACK
    # the tail has an alarm, which `status` tells, until PostgreSQL is what the restored MongoDB says
    assert call(ready, "status")[0] == UNVERIFIED
    assert call(ready, "parity", "--repair", "apply")[0] == DONE
    assert named(ready) == []


def closing_refused(scene: Scene) -> str:
    error = call(scene, "cutover", "finish", *EARLY)[2]
    return str(error)


@pytest.mark.slow
@pytest.mark.proves("4-B2")
def test_an_exception_in_each_step_of_taking_the_schema_away(ready: Scene) -> None:
    ready.switch()
    command = ["migrator", "rollback", "run", "--level", "2"]
    fails(ready, Plant("rollback-close", owner=reverse_sync, name="drop_fence_collection"), *command[1:])
    for plant in (*at(("rollback-export",)), *within("rollback-export", (backup, "export_target"), always=True)):
        fails(ready, plant, *command[1:])
        assert named(ready) == [[*command, "--config", str(ready.config)]], plant
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rollback, "_downgrade", _raise)
        assert "planted" in str(call(ready, *command[1:])[2])
    status, said = literally(named(ready)[0])
    assert status == DONE, said
    with psycopg.connect(ready.dsn) as connection:
        row = connection.execute("SELECT to_regnamespace('scheduler'), to_regnamespace('migration')").fetchone()
    assert row == (None, None)


def _raise(*_: object) -> None:
    raise RuntimeError("planted")


@pytest.mark.slow
@pytest.mark.proves("4-Y1")
def test_an_exception_in_each_step_of_a_finish(ready: Scene) -> None:
    ready.switch()
    fails(ready, Plant("finish", moment="begun"), "cutover", "finish", *EARLY)
    assert named(ready) == []  # nothing was closed: the window is open as before
    functions = ((outbox, "close_outbox"), (reverse_sync, "drop_fence_collection"), (closing, "drop_indexes"))
    for plant in (*within("finish", *functions, always=True), Plant("finish", moment="done")):
        fails(ready, plant, "cutover", "finish", *EARLY)
        assert named(ready) == [["migrator", "cutover", "finish", "--config", str(ready.config)]], plant
    status, said = literally(named(ready)[0])
    assert status == DONE, said
    assert standing(ready) == SWITCHED | {"state": "finished", "outbox": False, "stream": False}
    assert named(ready) == []
    command = ["migrator", "cutover", "release-source"]
    released = Plant("release-source", owner=closing, name="lift_source_fence")
    for plant in (Plant("release-source", moment="begun"), released, Plant("release-source", moment="done")):
        fails(ready, plant, *command[1:])
        assert named(ready) == [[*command, "--config", str(ready.config)]], plant
    status, said = literally(named(ready)[0])
    assert status == DONE, said
    assert standing(ready) == SWITCHED | {"state": "finished", "fence": False, "outbox": False, "stream": False}
    assert named(ready) == []


@pytest.mark.slow
def test_a_store_that_never_works_is_gone_back_from(ready: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails after the point of no return, and goes on failing, must not hold everybody up for ever."""

    def broken(_: Path) -> None:
        raise SmokeError("the store does not work")

    monkeypatch.setattr(cutover, "smoke", broken)
    for _ in range(2):
        error = call(ready, "cutover", "run", "--allow-quarantined", str(ready.quarantined))[2]
        assert str(error) == "the store does not work"
        run_again, go_back, _ = named(ready)
    assert run_again[:3] == ["migrator", "cutover", "run"]
    assert "in step smoke (the store does not work)" in call(ready, "cutover", "status")[1]
    assert "call migrator cutover run, which finishes the cutover, or" in str(call(ready, "cutover", "abort")[2])
    assert "call migrator cutover run, which finishes it, or" in closing_refused(ready)
    status, said = literally(go_back)
    assert status == DONE, said
    assert standing(ready) == BACK


@pytest.mark.slow
def test_a_killed_rollback_keeps_the_window_from_being_closed(ready: Scene) -> None:
    """PostgreSQL's fence stands: closed now, nobody would ever lift it."""
    ready.switch()
    assert killed_at(f"{fault_points.CUTOVER_PREFIX}rollback-drain.begun", ready, "rollback", "run")
    assert closing_refused(ready).endswith("call migrator rollback run --level 1 first")
    (command,) = named(ready)
    assert command == ["migrator", "rollback", "run", "--level", "1", "--config", str(ready.config)]
    assert literally(command)[0] == DONE
    assert standing(ready) == BACK


@pytest.mark.slow
def test_a_cutover_that_was_killed_before_its_return_is_aborted_as_the_status_says(ready: Scene) -> None:
    assert killed_at(f"{fault_points.CUTOVER_PREFIX}parity.done", ready, "cutover", "run")
    (command,) = named(ready)
    assert command[:3] == ["migrator", "cutover", "abort"]
    assert "call migrator cutover abort" in str(call(ready, "rollback", "run")[2])
    assert "call migrator cutover abort" in closing_refused(ready)
    assert literally(command)[0] == DONE
    with open_target(ready.settings, autocommit=True) as target:
        found = latest(target)
    assert found is not None
    assert found.state == "aborted"
    assert named(ready) == []
