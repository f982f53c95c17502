"""Ctrl-C in every long command: once ends in order and in good time, twice at once, and no process is left behind.

A command is interrupted where it would not go on by itself: behind a lock on a table, a read that the source holds up,
or a named point.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pymongo import MongoClient
from pymongo.database import Database

from migrator import signals as points
from migrator.ending import WITHIN_S
from migrator.exit_status import UNVERIFIED
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from tests.copying import kill, run_of, settings_for, start, write_config
from tests.gates import PATIENCE, gone, held

DOCUMENTS = 12
AT_ONCE = (
    "migrator: interrupted again: ended at once; what was committed is kept, and a transaction that was open is undone"
)
TOO_LATE = AT_ONCE.replace("interrupted again", f"interrupted, and not ended within {WITHIN_S:.0f} s")

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
    "metrics": ON_POSTGRES,
}
HELD_UP_MS = 2_000 * int(WITHIN_S)


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """A copy of a dozen documents, one of which has changed since."""
    mongo_database["runs"].insert_many([run_of(_id=f"r{number:02}") for number in range(DOCUMENTS)])
    settings = settings_for(mongo_database, scheduler_dsn, workers=2, chunk=3)
    assert backfill(settings, Scope()).complete
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


def interrupt(process: subprocess.Popen[str], times: int) -> tuple[int, str]:
    """Press Ctrl-C in its terminal so many times, each after the one before was taken; return status and messages."""
    family = descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    if times == 2:
        wait_until(lambda: process.poll() is not None or not pending(process.pid, signal.SIGINT))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in said
    assert all(gone(pid) for pid in family), said
    return process.returncode, said


def pending(pid: int, number: int) -> bool:
    """Tell whether a signal was sent to a process and not taken yet."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


@contextmanager
def started(command: str, config: Path, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    process = start(*command.split(), "--config", str(config), environment=environment, cwd=config.parent)
    try:
        yield process
    finally:
        kill(process)
        process.communicate()


def assert_ended(command: str, times: int, status: int, said: str) -> None:
    """Once: in order; but the tail ends at a commit, and only the clock ends its wait for a lock.

    Twice: at once, unless the command had ended in order by then.
    """
    assert status == UNVERIFIED, said
    in_order = TOO_LATE if command == "tail" else "migrator: interrupted"
    expected = {in_order} if times == 1 else {in_order, AT_ONCE}
    assert expected & set(said.splitlines()), said


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("command", BEHIND_A_LOCK)
def test_behind_a_lock_of_the_target(command: str, times: int, config: Path, scheduler_dsn: str) -> None:
    with psycopg.connect(scheduler_dsn) as holder, psycopg.connect(scheduler_dsn, autocommit=True) as watch:
        holder.execute("LOCK TABLE scheduler.runs IN ACCESS EXCLUSIVE MODE")
        with started(command, config, BEHIND_A_LOCK[command]) as process:
            wait_until(lambda: process.poll() is not None or watch.execute(WAITING).fetchone() != (0,))
            assert process.poll() is None, process.communicate()
            assert_ended(command, times, *interrupt(process, times))


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_behind_a_read_of_the_source(times: int, config: Path, mongo_client: MongoClient[dict[str, Any]]) -> None:
    data = {
        "failCommands": ["find", "aggregate"],
        "appName": "migrator",
        "blockConnection": True,
        "blockTimeMS": HELD_UP_MS,
    }
    point = mongo_client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)
    try:
        with started("inspect", config) as process:
            entered = {"timesEntered": point["count"] + 1, "maxTimeMS": int(PATIENCE * 1_000)}
            mongo_client.admin.command("waitForFailPoint", "failCommand", **entered)
            assert_ended("inspect", times, *interrupt(process, times))
    finally:
        mongo_client.admin.command("configureFailPoint", "failCommand", mode="off")


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_the_demo_takes_its_servers_along(times: int, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    with held(config, points.AFTER_PLAN_STORED, tmp_path, command="demo") as demo:
        family = descendants(demo.process.pid)
        assert {"mongod", "postgres"} <= {Path(f"/proc/{pid}/comm").read_text().strip() for pid in family}
        assert_ended("demo", times, *interrupt(demo.process, times))


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
