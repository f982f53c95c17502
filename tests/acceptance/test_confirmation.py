"""Commands that destroy or move something ask first: on a terminal for a name, elsewhere for ``--yes``."""

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.copying import run

ENVIRONMENT = "staging 7"
QUESTION = f"type {ENVIRONMENT} to go on: "


@pytest.fixture
def config(scheduler_dsn: str, tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(f'[postgres]\ndsn = "{scheduler_dsn}"\n[cutover]\nenvironment = "{ENVIRONMENT}"\n')
    path.chmod(0o600)
    return path


def on_terminal(config: Path, answer: str, *arguments: str) -> tuple[int, str]:
    """Call a command on a terminal of its own, and type the answer; return its status and what it showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(config.parent)
        os.execv(sys.executable, [sys.executable, "-m", "migrator", *arguments, "--config", str(config)])
    shown, asked = b"", False
    try:
        while select.select([terminal], [], [], 60)[0]:
            try:
                part = os.read(terminal, 65_536)
            except OSError:  # the end of a terminal
                break
            shown += part
            if not asked and shown.endswith(b"to go on: "):
                asked = True
                os.write(terminal, answer.encode() + b"\n")
    finally:
        os.close(terminal)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            os.kill(pid, signal.SIGHUP)
            _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n")


def decisions(dsn: str) -> list[tuple[str, str, str, object]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT kind, who, reason, detail FROM migration.decisions ORDER BY id").fetchall()


def test_a_dry_run_says_what_would_be_and_asks_nothing(config: Path, scheduler_dsn: str) -> None:
    with psycopg.connect(scheduler_dsn) as connection:
        before = connection.execute("SELECT count(*) FROM migration.schema_history").fetchone()
    status, said, _ = run("schema", "downgrade", "0009", "--dry-run", "--config", str(config))
    assert (status, said) == (0, "no rows are lost\nnothing was written\n")
    status, said, _ = run("schema", "upgrade", "--dry-run", "--config", str(config))
    assert (status, said.splitlines()[:2]) == (0, ["nothing to apply", "nothing was written"])
    run("schema", "downgrade", "0008", "--yes", "--config", str(config))
    status, said, _ = run("schema", "upgrade", "--dry-run", "--config", str(config))
    assert (status, said.splitlines()[:2]) == (
        0,
        [f"would apply {one} (migration)" for one in ("0009", "0010")],
    )
    with psycopg.connect(scheduler_dsn) as connection:
        now = connection.execute("SELECT count(*) FROM migration.schema_history").fetchone()
    assert before is not None
    assert now == (before[0] - 2,)  # the downgrade alone


def test_another_name_changes_nothing_and_the_right_one_does(config: Path, scheduler_dsn: str) -> None:
    command = ("schema", "downgrade", "0005", "--who", "ann", "--reason", "without  graph jobs")
    status, shown = on_terminal(config, "staging", *command)
    assert status == 2
    assert f"schema downgrade 0005, environment {ENVIRONMENT}, target " in shown
    assert "no rows are lost" in shown
    assert "migrator: the answer is not staging 7: nothing was done" in shown
    assert decisions(scheduler_dsn) == []

    status, shown = on_terminal(config, ENVIRONMENT, *command)
    assert status == 0, shown
    assert QUESTION in shown
    assert "undone 0007" in shown
    assert "undone 0006" in shown
    detail = {"revision": "0005", "rows": {}, "undone": ["0007", "0006"]}
    assert decisions(scheduler_dsn) == [("schema downgrade", "ann", "without graph jobs", detail)]


def test_without_a_terminal_it_is_refused_and_yes_answers_for_it(config: Path, scheduler_dsn: str) -> None:
    command = [sys.executable, "-m", "migrator", "schema", "downgrade", "0005", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    sentence = "schema downgrade 0005 asks before it begins, and there is no terminal to answer on: add --yes"
    assert done.stderr == f"migrator: {sentence}\n"
    assert decisions(scheduler_dsn) == []
    assert run(*command[3:], "--yes")[0] == 0
    [(kind, who, reason, _)] = decisions(scheduler_dsn)
    assert (kind, reason) == ("schema downgrade", "")
    assert who  # nobody was named: the user of the session
