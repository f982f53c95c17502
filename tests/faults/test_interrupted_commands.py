"""Ctrl-C in every long command: once ends in order and in good time, twice at once, and no process is left behind.

A command is interrupted where it would not go on by itself: behind a lock, a command that the source holds up, or a
named point. ``cutover run``, ``rollback run`` and ``scheduler run`` have no time limit after the first Ctrl-C: the
first two undo what writers wait for, the third waits for the runs that it works on.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator import fault_points as points
from migrator.config import load_settings
from migrator.connections import advisory_locks
from migrator.connections.postgres import open_target
from migrator.cutover import fence
from migrator.cutover.journal import LOCK, latest, steps
from migrator.cutover.status import attention
from migrator.exit_status import UNVERIFIED
from migrator.interruption import LIMIT_S
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema.revisions import LOCK_KEY
from tests.conftest import fresh_name
from tests.copying import kill, run, run_of, settings_for, start, uri_of, write_config
from tests.cutting_over import Scene
from tests.gates import FOLDER, PATIENCE, gone, held
from tests.scheduled_work import lines
from tests.scheduler_processes import Site

DOCUMENTS = 12
AT_ONCE = (
    "migrator: interrupted again: ended at once; what was committed is kept, and a transaction that was open is undone"
)
TOO_LATE = AT_ONCE.replace("interrupted again", f"interrupted, and not ended within {LIMIT_S:.0f} s")

WAITING = """
    SELECT count(*) FROM pg_locks
    WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
ON_POSTGRES = {"MIGRATOR_PERSISTENCE__SCHEDULER": "postgres"}
BEHIND_A_LOCK: dict[str, dict[str, str]] = {
    "backfill": {},
    "parity": {},
    "verify": {},
    "tail": {},
    "scheduler metrics": ON_POSTGRES,
    "scheduler retention --yes": ON_POSTGRES,
    "schema upgrade": {},
}
LOCKS = {"schema upgrade": f"SELECT pg_advisory_xact_lock({LOCK_KEY})"}
"""What a command waits for, where it is not the table of the runs."""
HELD_UP_MS = 240_000
"""Longer than a command may take to end in order (``tests/faults/patient.py``)."""
BEHIND_THE_SOURCE = {
    "inspect": (["find", "aggregate"], HELD_UP_MS),
    "plan": (["find", "aggregate"], HELD_UP_MS),
    "assess URI": (["find", "aggregate"], HELD_UP_MS),
    "demo seed --database NAME": (["insert"], 500),
}
"""What the source holds up, and for how many milliseconds each time: ``demo seed`` waits for the batch under way."""


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """A copy of a dozen documents, one of which has changed since."""
    mongo_database["runs"].insert_many([run_of(_id=f"r{number:02}") for number in range(DOCUMENTS)])
    settings = settings_for(mongo_database, scheduler_dsn, workers=2, chunk=3)
    assert backfill(settings_for(mongo_database, scheduler_dsn, chunk=3), Scope()).complete  # by the kept worker
    mongo_database["runs"].update_one({"_id": "r05"}, {"$set": {"error": "changed"}})
    return write_config(tmp_path, settings)


def wait_until(reached: Callable[[], bool]) -> None:
    """Ask again until it is so; the test's own time limit ends a wait that is in vain."""
    pause = threading.Event()
    while not reached():
        pause.wait(0.02)


def descendants(pid: int) -> set[int]:
    """Return a process and all that it has started, directly or through others."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, new = {pid}, [pid]
    while new:
        children = parents.get(new.pop(), [])
        found |= set(children)
        new += children
    return found


def interrupt(process: subprocess.Popen[str], times: int, taken: Callable[[], bool] | None = None) -> tuple[int, str]:
    """Press Ctrl-C in its terminal so many times, the second after the first was ``taken``; return status, messages."""
    family = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    if times == 2:
        done = taken or (lambda: not pending(process.pid, signal.SIGINT))
        wait_until(lambda: process.poll() is not None or done())
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in said
    assert all(gone(pid) for pid in family), said
    return process.returncode, said


def pending(pid: int, number: int) -> bool:
    """Whether a signal was sent to a process and not taken yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


@contextmanager
def started(command: str, config: Path, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a command; all but the tail, which only the clock ends, have time to end in order."""
    patient = {"MIGRATOR_FAULT_POINTS": "patient:passed", "PYTHONPATH": str(FOLDER)} if command != "tail" else {}
    variables = {**patient, **(environment or {})}
    settings = [] if command.startswith("assess ") else ["--config", str(config)]
    process = start(*command.split(), *settings, environment=variables, cwd=config.parent)
    try:
        yield process
    finally:
        kill(process)
        process.communicate()


def name_of(pid: int) -> str:
    """Return the name of a process; nothing of one that has ended since, as backends do."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def assert_ended(command: str, times: int, status: int, said: str) -> None:
    """Once: in order; but the tail ends at a commit, and only the clock ends its wait for a lock.

    Twice: at once, unless the command had ended in order by then.
    """
    assert status == UNVERIFIED, said
    in_order = TOO_LATE if command == "tail" else "migrator: interrupted"
    expected = {in_order} if times == 1 else {in_order, AT_ONCE}
    assert expected & set(said.splitlines()), said


def wait_behind(
    command: str, times: int, config: Path, dsn: str, take: str, environment: dict[str, str] | None = None
) -> None:
    """Interrupt a command while it waits for a lock that this statement takes."""
    with psycopg.connect(dsn) as holder, psycopg.connect(dsn, autocommit=True) as watch:
        holder.execute(take)
        with started(command, config, environment) as process:
            wait_until(lambda: process.poll() is not None or watch.execute(WAITING).fetchone() != (0,))
            assert process.poll() is None, process.communicate()
            assert_ended(command, times, *interrupt(process, times))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("command", BEHIND_A_LOCK)
def test_behind_a_lock_of_the_target(command: str, times: int, config: Path, scheduler_dsn: str) -> None:
    lock_it = LOCKS.get(command, "LOCK TABLE scheduler.runs")
    if command.startswith("scheduler retention"):  # it is refused on a copy before it waits for anything
        with psycopg.connect(scheduler_dsn, autocommit=True) as connection:
            connection.execute("DELETE FROM scheduler.locks WHERE key = '*/persistence'")
    wait_behind(command, times, config, scheduler_dsn, lock_it, BEHIND_A_LOCK[command])


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("command", BEHIND_THE_SOURCE)
def test_behind_a_command_of_the_source(
    command: str,
    times: int,
    config: Path,
    mongo_database: Database[Any],
    mongo_client: MongoClient[dict[str, Any]],
) -> None:
    held_up, milliseconds = BEHIND_THE_SOURCE[command]
    name, address = fresh_name(), uri_of(mongo_database).replace("/?", f"/{mongo_database.name}?")
    data = {
        "failCommands": held_up,
        "appName": "migrator",
        "blockConnection": True,
        "blockTimeMS": milliseconds,
    }
    point = mongo_client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)
    try:
        with started(command.replace("NAME", name).replace("URI", address), config) as process:
            entered = {"timesEntered": point["count"] + 1, "maxTimeMS": int(PATIENCE * 1_000)}
            mongo_client.admin.command("waitForFailPoint", "failCommand", **entered)
            assert_ended(command, times, *interrupt(process, times))
    finally:
        held_up_ones = {"appName": "migrator", "active": True}
        for one in mongo_client.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": held_up_ones}]):
            mongo_client.admin.command("killOp", op=one["opid"])  # "off" waits for what is held up
        mongo_client.admin.command("configureFailPoint", "failCommand", mode="off")
        mongo_client.drop_database(name)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_the_demo_takes_its_servers_along(times: int, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    with held(config, points.AFTER_PLAN_STORED, tmp_path, command="demo") as demo:
        family = descendants(demo.process.pid)
        assert {"mongod", "postgres"} <= {name_of(pid) for pid in family}
        assert_ended("demo", times, *interrupt(demo.process, times))


def interrupted_at(point: str, times: int, ready: Scene, command: str) -> str:
    """Interrupt a command at a point; twice: while it writes down that it was, so that it undoes nothing."""
    folder = ready.folder / point
    folder.mkdir()
    with (
        psycopg.connect(ready.dsn) as holder,
        open_target(ready.settings, autocommit=True) as watch,
        held(ready.config, f"{points.CUTOVER_PREFIX}{point}", folder, command=command) as run_to,
    ):
        if times == 2:
            holder.execute("LOCK TABLE migration.cutover_steps IN SHARE ROW EXCLUSIVE MODE")
        status, said = interrupt(run_to.process, times, lambda: watch.execute(WAITING).fetchone() != (0,))
        holder.rollback()
        wait_until(
            lambda: not advisory_locks.is_held(watch, LOCK)
        )  # the server sees the end of its client when the wait is over
    assert status == UNVERIFIED, said
    assert (AT_ONCE if times == 2 else "migrator: interrupted") in said.splitlines(), said
    return said


def standing(ready: Scene) -> tuple[str, Mapping[str, str], str, bool]:
    """Return the state and the steps of the journal, the backend that the file names, and whether MongoDB is fenced."""
    with open_target(ready.settings, autocommit=True) as target:
        found = latest(target)
        assert found is not None
        told = {one.step: one.state for one in steps(target, found.id)}
    backend = load_settings(str(ready.config)).persistence.scheduler
    return found.state, told, backend, fence.is_source_fenced(ready.database, "write-block", ())


def leads_on(ready: Scene, words: str) -> list[str]:
    """Return the command that the status names first, of a cutover or a rollback that it describes in these words."""
    status, out, said = run("cutover", "status", "--config", str(ready.config))
    assert status == UNVERIFIED, said
    assert f"NOT FINISHED: {words}" in out, out
    named = next(line for line in out.splitlines() if line.startswith("next: "))
    program, *arguments = shlex.split(named.removeprefix("next: "))
    assert program == "migrator"
    return arguments


@pytest.mark.slow
def test_a_cutover_says_where_it_stands_and_goes_on(ready: Scene) -> None:
    said = interrupted_at("parity.begun", 1, ready, "cutover run")
    assert "cutover: undone: no fence is closed, and everything is as it was before" in said.splitlines()
    state, told, *rest = standing(ready)
    assert (state, set(told.values()), rest) == ("aborted", {"undone"}, ["mongo", False])
    assert attention(ready.settings) is None

    interrupted_at("drain.done", 2, ready, "cutover run")
    state, told, *rest = standing(ready)
    assert (state, told["fence"], told["drain"], rest) == ("running", "done", "running", ["mongo", True])
    command = leads_on(ready, "a cutover was interrupted before its point of no return in step drain")
    assert run(*command)[0] == 0
    assert (standing(ready)[0], standing(ready)[2:]) == ("aborted", ("mongo", False))

    interrupted_at("open-target.begun", 1, ready, "cutover run")
    state, told, *_ = standing(ready)
    assert (state, told["open-target"]) == ("running", "running")
    command = leads_on(ready, "a cutover was interrupted after its point of no return in step open-target")
    assert command == ["cutover", "run", "--config", str(ready.config)]

    interrupted_at("smoke.written", 2, ready, "cutover run")  # its process goes along
    state, told, *_ = standing(ready)
    assert (state, told["open-target"], told["smoke"]) == ("running", "done", "running")
    command = leads_on(ready, "a cutover was interrupted after its point of no return in step smoke")
    status, out, said = run(*command)
    assert (status, "(an interrupted cutover was finished)" in out) == (0, True), said
    state, told, *rest = standing(ready)
    assert (state, set(told.values()), rest) == ("cut-over", {"done"}, ["postgres", True])


@pytest.mark.slow
def test_a_rollback_says_where_it_stands_and_goes_on(ready: Scene) -> None:
    ready.switch()
    for times in (1, 2):
        wait_behind("cutover status --wait 10m", times, ready.config, ready.dsn, "LOCK TABLE scheduler.workers")

    interrupted_at("rollback-check.begun", 1, ready, "rollback run")
    state, told, *rest = standing(ready)
    undone = {step for step, at in told.items() if at == "undone"}
    assert (state, undone, rest) == (
        "cut-over",
        {"rollback-fence", "rollback-drain", "rollback-check"},
        ["postgres", True],
    )
    with open_target(ready.settings, autocommit=True) as target:
        assert not fence.is_target_fenced(target, ready.settings.postgres)
    assert attention(ready.settings) is None

    interrupted_at("rollback-open-source.done", 2, ready, "rollback run")
    state, told, *_ = standing(ready)
    assert (state, told["rollback-check"], told["rollback-open-source"]) == ("cut-over", "done", "running")
    command = leads_on(ready, "a rollback of level 1 was interrupted in step rollback-open-source")
    status, _, said = run(*command)
    assert status == 0, said
    state, told, *rest = standing(ready)
    assert (state, set(told.values()), rest) == ("rolled-back", {"done"}, ["mongo", False])


@pytest.mark.slow
@pytest.mark.parametrize(("times", "state"), [(1, "completed"), (2, "queued")], ids=["once", "twice"])
def test_a_scheduler_process_ends_its_run_or_gives_it_back(
    times: int, state: str, scheduler_dsn: str, tmp_path: Path
) -> None:
    site = Site(tmp_path, "postgres", f'[postgres]\ndsn = "{scheduler_dsn}"')
    try:
        schedule = site.put("hold")
        process = site.start(concurrency=1, stop_within=f"{PATIENCE:.0f}s")
        wait_until(lambda: process.poll() is not None or bool(lines(tmp_path, "begun")))
        family = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        if times == 1:
            (tmp_path / "go").touch()
        else:
            process.send_signal(signal.SIGTERM)  # two of the same number may be taken as one
        assert process.wait(PATIENCE) == 0, site.log(process)
        assert "Traceback" not in site.log(process)
        assert all(gone(pid) for pid in family)
        (run_of_it,) = site.runs(schedule)
        assert (run_of_it.state, run_of_it.worker_id is None) == (state, state == "queued")
        assert site.worker_of(process) == "stopped"
    finally:
        site.close()


THREADS_AT_THE_END = """
import sys, threading
from migrator import __main__
sys.argv = ["migrator", *sys.argv[1:]]
try:
    __main__.main()
except SystemExit as end:
    print(end.code, [one.name for one in threading.enumerate()[1:] if not one.daemon])
"""


def test_no_thread_of_the_workers_is_left_to_the_end_of_the_interpreter(config: Path) -> None:
    """There it raced with the interpreter, which then said "bad file descriptor"."""
    command = [sys.executable, "-c", THREADS_AT_THE_END, "inspect", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr
