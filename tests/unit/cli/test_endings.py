"""How the command line ends: whatever happens, with one line and a status that says what happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.exit_status import TOOL_FAILED, USAGE

ROOT = Path(__file__).resolve().parents[3]
RESULT = str(ROOT / "reports" / "sample" / "result.json")
CHECK = [sys.executable, "-m", "migrator", "report", "check", RESULT]

FAULT = """
import sys, threading
from migrator import __main__
from migrator.report import integrity
def fail(*_):
    {fault}
integrity.check_report = fail
sys.argv = ["migrator", "report", "check", {result!r}]
__main__.main()
"""


def faulty(fault: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command in which something happens that nobody foresaw."""
    script = FAULT.format(fault=fault, result=RESULT)
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **settings}, cwd=ROOT, check=False
    )


@pytest.mark.parametrize(
    "error", ["ValueError", "BrokenPipeError", "EOFError", "MemoryError", "RecursionError", "OSError", "KeyError"]
)
def test_what_nobody_foresaw_ends_with_16_and_one_line(error: str) -> None:
    done = faulty(f"raise {error}('SECRET')")
    assert (done.returncode, done.stdout) == (TOOL_FAILED, "")
    assert done.stderr.startswith(f"migrator: unforeseen {error} at migrator/cli/report.py:")
    assert done.stderr.endswith("; MIGRATOR_TRACEBACK=1 in the environment prints the traceback\n")
    assert (done.stderr.count("\n"), done.stderr.count("SECRET")) == (1, 0)


@pytest.mark.parametrize("error", ["ValueError('x')", "BrokenPipeError('x')", "check.UsageError('x')"])
def test_the_hint_gives_the_traceback_and_the_same_status(error: str) -> None:
    plain, traced = faulty(f"raise {error}"), faulty(f"raise {error}", MIGRATOR_TRACEBACK="1")
    assert plain.returncode == traced.returncode
    assert "Traceback" not in plain.stderr
    assert traced.stderr.startswith("Traceback (most recent call last):\n")
    assert f"raise {error}" not in plain.stderr
    assert ", in fail\n" in traced.stderr


def test_an_error_in_a_thread_or_a_destructor_shows_no_traceback() -> None:
    thread = faulty("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join(); sys.exit(0)")
    assert thread.stderr.startswith("migrator: unforeseen ZeroDivisionError")
    assert thread.stderr.count("\n") == 1
    destructor = "class Odd:\n        def __del__(self): 1 / 0\n    Odd(); sys.exit(0)"
    assert faulty(destructor).stderr == ""
    assert "ZeroDivisionError" in faulty(destructor, MIGRATOR_TRACEBACK="1").stderr


@pytest.mark.parametrize(
    "arguments", [["scheduler", "metrics", "--tenant", "\udcff"], ["backfill", "--config", "caf\udce9.toml"]]
)
def test_an_argument_that_is_no_text_is_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "migrator", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith(f"migrator: argument {len(arguments)} is not UTF-8: ")
    assert (done.stderr.count("\n"), done.stderr.count("\\udc")) == (1, 1)


def test_standard_output_that_is_full() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(CHECK, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == TOOL_FAILED
    said = "migrator: cannot write standard output: no space left on device; the result is incomplete\n"
    assert done.stderr == said


def test_standard_output_whose_reader_has_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(CHECK, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == TOOL_FAILED
    assert done.stderr == "migrator: cannot write standard output: broken pipe; the result is incomplete\n"


def shell(ending: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", f'exec "$@" {ending}', "sh", *CHECK]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_standard_output_that_is_closed() -> None:
    done = shell(">&-")
    assert done.returncode == USAGE
    said = "migrator: standard output is closed; redirect it to /dev/null where the result is not wanted\n"
    assert done.stderr == said


@pytest.mark.parametrize("ending", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
def test_the_command_is_carried_out_though_its_messages_go_nowhere(ending: str) -> None:
    done = shell(ending)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the evidence is whole")


@pytest.mark.parametrize("ending", ["2>&-", "2>/dev/full"])
def test_an_error_keeps_its_status_where_messages_go_nowhere(ending: str) -> None:
    done = shell(f"missing.xml {ending}")
    assert (done.returncode, done.stdout) == (USAGE, "")
