"""Ctrl-C, SIGTERM, and processes that are killed: what is done is kept, nothing runs on, the next call finishes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from migrator import fault_points as points
from tests.copying import number, run, run_of, settings_for, write_config
from tests.forked_workers import SPAWNED
from tests.gates import gone, held
from tests.stellaops_documents import fresh

DOCUMENTS = 12
ROWS = "SELECT count(*) FROM scheduler.runs"
PENDING = "SELECT count(*) FROM migration.chunks WHERE state = 'pending'"
INTERRUPTED = 4
TOOL_FAILED = 16


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """A copy of a dozen chunks."""
    mongo_database["runs"].insert_many([run_of(_id=f"r{number:02}") for number in range(DOCUMENTS)])
    return write_config(tmp_path, settings_for(mongo_database, scheduler_dsn, workers=1, chunk=1))


def finish(config: Path, dsn: str) -> str:
    status, out, said = run("backfill", "--config", str(config))
    assert (status, number(dsn, ROWS), number(dsn, PENDING)) == (0, DOCUMENTS, 0), said
    return out


def interrupt_the_group(process: int) -> None:
    """As Ctrl-C in a terminal does."""
    os.killpg(process, signal.SIGINT)


def terminate(process: int) -> None:
    os.kill(process, signal.SIGTERM)


def blocks(process: int, number: int) -> bool:
    """Whether a process does not receive a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("stop", [interrupt_the_group, terminate])
def test_an_interrupted_copy_ends_at_a_chunk(
    stop: Callable[[int], None], config: Path, scheduler_dsn: str, tmp_path: Path
) -> None:
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        stop(copy.process.pid)
        assert copy.hear("waiting") == "waiting: for the running chunks to finish; finished chunks are kept\n"
        copy.go()
        status, out, said = copy.end()
    assert status == INTERRUPTED, said
    assert "Traceback" not in said
    assert "interrupted: the finished chunks are kept; call migrator backfill again to continue" in out
    kept = number(scheduler_dsn, ROWS)
    assert 1 <= kept < DOCUMENTS
    assert number(scheduler_dsn, PENDING) == DOCUMENTS - kept
    assert run("status", "--config", str(config))[0] == INTERRUPTED
    assert run("parity", "--config", str(config))[0] == INTERRUPTED
    assert f"wrote {DOCUMENTS - kept} rows" in finish(config, scheduler_dsn)


@pytest.fixture
def small(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """A copy of two chunks, one after the other, that starts no worker processes."""
    mongo_database["schedules"].insert_one(fresh("schedules"))
    mongo_database["runs"].insert_many([run_of(_id=f"r{number:02}") for number in range(DOCUMENTS)])
    return write_config(tmp_path, settings_for(mongo_database, scheduler_dsn, workers=2))


@pytest.mark.parametrize("stop", [interrupt_the_group, terminate])
def test_an_interrupted_copy_without_workers_ends_at_a_chunk(
    stop: Callable[[int], None], small: Path, scheduler_dsn: str, tmp_path: Path
) -> None:
    with held(small, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        assert copy.pid == copy.process.pid
        stop(copy.process.pid)
        assert copy.hear("waiting") == "waiting: for the running chunks to finish; finished chunks are kept\n"
        copy.go()
        status, out, said = copy.end()
    assert status == INTERRUPTED, said
    assert "Traceback" not in said
    assert "interrupted: the finished chunks are kept; call migrator backfill again to continue" in out
    assert number(scheduler_dsn, "SELECT count(*) FROM scheduler.schedules") == 1
    assert (number(scheduler_dsn, ROWS), number(scheduler_dsn, PENDING)) == (0, 1)
    assert f"wrote {DOCUMENTS} rows" in finish(small, scheduler_dsn)


def test_the_second_signal_ends_a_copy_without_workers_at_once(small: Path, scheduler_dsn: str, tmp_path: Path) -> None:
    with held(small, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        terminate(copy.process.pid)
        copy.hear("waiting")
        terminate(copy.process.pid)
        status, _, said = copy.end()
    assert status == INTERRUPTED
    assert "ended at once; what was committed is kept" in said
    assert number(scheduler_dsn, PENDING) == 2
    finish(small, scheduler_dsn)


def test_a_killed_copy_without_workers_is_finished_by_the_next_call(
    small: Path, scheduler_dsn: str, tmp_path: Path
) -> None:
    with held(small, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        copy.go(b"die")
        status, _, _ = copy.end()
    assert status == -signal.SIGKILL
    assert number(scheduler_dsn, PENDING) == 2
    finish(small, scheduler_dsn)


@pytest.mark.parametrize(("command", "is_interpreter"), [("backfill", False), ("inspect", True)])
def test_ctrl_c_while_the_workers_are_being_born(
    command: str, config: Path, scheduler_dsn: str, tmp_path: Path, *, is_interpreter: bool
) -> None:
    """A copy forks them; an inspection, which has connections by then, starts interpreters."""
    with held(config, points.AFTER_CHUNKS_SUBMITTED, tmp_path, command=command, environment={SPAWNED: "1"}) as copy:
        others = set(copy.group()) - {copy.process.pid}
        spawned = {pid for pid in others if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()}
        born = spawned if is_interpreter else others
        assert (len(born), len(spawned)) == (1, int(is_interpreter))
        assert all(blocks(pid, signal.SIGINT) for pid in born)
        interrupt_the_group(copy.process.pid)
        copy.go()
        status, _, said = copy.end()
    assert status == INTERRUPTED, said
    assert "Traceback" not in said
    finish(config, scheduler_dsn)


def test_sigterm_to_the_group_ends_forked_workers_and_the_copy(
    config: Path, scheduler_dsn: str, tmp_path: Path
) -> None:
    """They have their parent's handlers until they begin: one that kept them would not end."""
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        assert copy.pid != copy.process.pid
        terminate(copy.pid)
        status, _, said = copy.end()
    assert status == TOOL_FAILED
    assert said.splitlines()[-1].startswith("migrator: a worker process was killed")
    assert gone(copy.pid)
    finish(config, scheduler_dsn)


@pytest.mark.parametrize("command", ["inspect", "parity"])
def test_an_interrupted_reading_stops(command: str, config: Path, scheduler_dsn: str, tmp_path: Path) -> None:
    finish(config, scheduler_dsn)
    with held(config, points.AFTER_CHUNKS_SUBMITTED, tmp_path, command=command) as reading:
        interrupt_the_group(reading.process.pid)
        reading.go()
        status, out, said = reading.end()
    assert (status, out) == (INTERRUPTED, ""), said
    assert said.splitlines()[-1] == "migrator: interrupted"
    assert "Traceback" not in said


def test_a_killed_worker_is_named_and_the_next_call_finishes(config: Path, scheduler_dsn: str, tmp_path: Path) -> None:
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        copy.go(b"die")
        status, _, said = copy.end()
    assert status == TOOL_FAILED
    assert said.splitlines()[-1] == (
        "migrator: a worker process was killed (out of memory?); finished chunks are kept, call again to continue"
    )
    assert "Traceback" not in said
    assert number(scheduler_dsn, ROWS) == DOCUMENTS - number(scheduler_dsn, PENDING) < DOCUMENTS
    finish(config, scheduler_dsn)


def test_workers_die_with_a_killed_owner(config: Path, scheduler_dsn: str, tmp_path: Path) -> None:
    with held(config, points.AFTER_LOAD_BEFORE_COMMIT, tmp_path) as copy:
        family = copy.group()
        assert {copy.process.pid, copy.pid} < set(family)
        os.kill(copy.process.pid, signal.SIGKILL)
        copy.process.wait()
        assert all(gone(pid) for pid in family)
    finish(config, scheduler_dsn)
