"""Processes that tests start have the signals of a terminal, however the tests were started."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

IGNORED = """
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(subprocess.call([sys.executable, "-c", sys.argv[1]]))
"""
CHILD = """
import subprocess, sys
{first}
child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout, end="")
"""


def ignored(first: str) -> str:
    """Tell what a child of a program sees that was started with SIGINT ignored."""
    command = [sys.executable, "-c", IGNORED, CHILD.format(first=first)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_tests_that_are_started_with_ctrl_c_ignored_do_not_hand_that_on() -> None:
    assert ignored("") == "True\n"
    assert ignored("import tests.conftest") == "False\n"
