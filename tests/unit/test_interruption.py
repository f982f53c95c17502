"""A command that does not end in order is ended by the second signal, or by the clock; no process outlives it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from migrator import interruption
from migrator.cli import cli
from migrator.errors import ConfigurationError
from migrator.exit_status import UNVERIFIED
from tests.gates import gone

STUBBORN = """
import multiprocessing, signal, sys, threading
from migrator import interruption

def main():
    interruption.install_handlers()
    child = multiprocessing.get_context("spawn").Process(target=signal.pause)
    child.start()
    if "unhurried" in sys.argv:
        interruption.allow_slow_end()
    if "patient" in sys.argv:
        interruption.LIMIT_S = 60
    said = False
    while True:
        try:
            if not said:
                said = True
                print(child.pid, flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)

if __name__ == "__main__":
    main()
"""


def stubborn(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], int]:
    """Start a command that takes no notice of an interruption; return it, and the pid of its worker."""
    script = folder / "stubborn.py"
    script.write_text(STUBBORN)
    command = [sys.executable, str(script), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(interruption.__file__).parents[1])}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def end(process: subprocess.Popen[str], worker: int) -> str:
    """Wait for the end; return what was said."""
    _, said = process.communicate()
    assert process.returncode == UNVERIFIED
    assert gone(worker)
    return said


@pytest.mark.parametrize("arguments", [("patient",), ("unhurried",)])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_at_once(second: int, arguments: tuple[str, ...], tmp_path: Path) -> None:
    process, worker = stubborn(tmp_path, *arguments)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "interrupted\n"
    process.send_signal(second)
    assert end(process, worker).startswith("migrator: interrupted again: ended at once; ")


def test_the_clock_ends_what_does_not_end_in_order(tmp_path: Path) -> None:
    process, worker = stubborn(tmp_path)
    process.terminate()
    said = end(process, worker)
    assert said.startswith(f"migrator: interrupted, and not ended within {interruption.LIMIT_S:.0f} s: ended at once; ")


TWICE = """
import os
from migrator import interruption

interruption.install_handlers()
before = len(os.listdir("/proc/self/fd"))
interruption.install_handlers()
assert len(os.listdir("/proc/self/fd")) == before
"""


def test_a_second_call_opens_nothing_more() -> None:
    subprocess.run([sys.executable, "-c", TWICE], check=True)


UNHURRIED: list[tuple[str, ...]] = [
    ("cutover", "run"),
    ("cutover", "abort"),
    ("cutover", "finish"),
    ("cutover", "release-source"),
    ("rollback", "run"),
    ("scheduler", "run"),
]
HURRIED = [("parity",), ("cutover", "status"), ("cutover", "plan"), ("rollback", "plan"), ("backfill",)]


@pytest.mark.parametrize("command", UNHURRIED + HURRIED, ids=" ".join)
def test_only_a_command_that_has_something_to_undo_or_to_finish_is_not_ended_by_the_clock(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[None] = []
    monkeypatch.setattr(interruption, "allow_slow_end", lambda: asked.append(None))
    with pytest.raises(ConfigurationError):
        cli.main([*command, "--config", str(tmp_path / "none.toml")], standalone_mode=False)
    assert bool(asked) == (command in UNHURRIED)
