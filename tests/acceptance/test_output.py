"""What every command prints: one JSON document for a program, lines for a person, progress on standard error."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from migrator import fault_points as points
from migrator.schema.revisions import upgrade
from migrator.testing.servers.postgres import PostgresServer
from tests.copying import run, run_of, settings_for, write_config
from tests.gates import held

QUARANTINE = 8
UNVERIFIED = 4


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """A source with one document that is set aside."""
    mongo_database["runs"].insert_many([run_of(_id="r1"), run_of(_id="r2"), run_of(_id="odd", state="exploded")])
    return write_config(tmp_path, settings_for(mongo_database, scheduler_dsn, chunk=1))


COMMANDS = [
    ("inspect",),
    ("plan",),
    ("backfill", "--dry-run"),
    ("backfill",),
    ("backfill",),
    ("status",),
    ("quarantine", "list"),
    ("quarantine", "show", "runs", "odd"),
    ("quarantine", "show", "--values", "runs", "odd"),
    ("quarantine", "retry"),
    ("parity",),
    ("verify", "--no-behaviour"),
    ("schema", "upgrade"),
    ("schema", "current"),
    ("schema", "check"),
    ("schema", "downgrade", "migration@base", "--discard-rows", "--yes"),
]
"""In an order that makes sense."""


def test_every_command_gives_one_json_document(config: Path, tmp_path: Path) -> None:
    for command in COMMANDS:
        status, out, err = run(*command, "--json", "--config", str(config), cwd=tmp_path)
        left_out = UNVERIFIED if "--no-behaviour" in command else 0
        assert status & ~QUARANTINE == left_out, (command, err)
        assert json.loads(out), command
        assert "Traceback" not in err
        if "--values" in command:
            assert json.loads(json.loads(out)["document"])["_id"] == "odd"
    (folder,) = (one for one in (tmp_path / "reports").iterdir() if one.is_dir())
    for name in ("check", "render"):
        status, out, err = run("report", name, str(folder / "result.json"), "--json")
        assert status == 0, err
        assert json.loads(out), name


def test_lines_for_a_person_end_with_what_was_not_done(config: Path, tmp_path: Path) -> None:
    for command in (("backfill",), ("schema", "upgrade")):
        _, out, _ = run(*command, "--config", str(config), cwd=tmp_path)
        assert out.splitlines()[-1].startswith("nothing compared: run migrator ")
    _, out, _ = run("plan", "--config", str(config), cwd=tmp_path)
    assert out.splitlines()[-1] == "nothing written, nothing compared"


def test_progress_is_plain_where_nobody_looks(config: Path) -> None:
    _, out, err = run("backfill", "--config", str(config))
    (line,) = err.splitlines()
    assert re.fullmatch(
        r"backfill: 3 of about 3 documents, 2 rows, \S+ k?B; \d+ documents/s, \d+ rows/s, \S+ k?B/s; quarantined 1",
        line,
    )
    assert "\x1b" not in out + err


def test_progress_is_drawn_on_a_terminal_and_ends_with_one_line(config: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "migrator", "backfill", "--config", str(config)], stderr=theirs, stdout=subprocess.PIPE
    ) as process:
        os.close(theirs)
        said = _read(ours)
    assert process.returncode == QUARANTINE
    last = said.split("\r\x1b[K")[-1]
    assert last.startswith("backfill: 3 of about 3 documents, 2 rows, ")
    assert last.endswith("quarantined 1\r\n")
    bars, _, after = said.partition("\x1b[?25h")  # the cursor is shown again when the bars are gone
    assert "of about 3 " in bars
    assert after.count("\r\n") == 1


def _read(terminal: int) -> str:
    said = b""
    try:
        while some := os.read(terminal, 65_536):
            said += some
    except OSError:  # how a terminal says that nobody is left on its other end
        pass
    finally:
        os.close(terminal)
    return said.decode()


def test_waiting_leaves_standard_output_alone(mongo_database: Database[Any], tmp_path: Path) -> None:
    """A worker that waits says so itself, on standard error."""
    mongo_database["runs"].insert_many([run_of(_id=f"r{number}") for number in range(3)])
    with PostgresServer(fast=True) as postgres:
        dsn = postgres.create_database("target")
        upgrade(dsn)
        config = write_config(tmp_path, settings_for(mongo_database, dsn, chunk=1))
        with held(config, points.AFTER_CHUNK_BEGUN, tmp_path, "--json") as copy:
            postgres.kill()
            copy.go()
            copy.hear("waiting: the target")
            postgres.restart()
            status, out, said = copy.end()
    assert status == 0, said
    assert json.loads(out)["written"] == 3
