"""What a file of tests costs: CPU seconds of all processes below that of pytest, whether they live or have ended."""

import subprocess
import sys

from tests.costs import Cost, reading, table

COMPUTING = "import time\nwhile time.process_time() < 0.3: pass\nprint(); input()"
"""A program that computes for 0.3 seconds, says so, and waits."""
SHELL = ["sh", "-c", '"$0" -c "$1"; exit', sys.executable, COMPUTING]
"""A process whose child is that program."""


def test_the_computing_of_a_process_counts_while_it_lives_and_when_it_has_ended() -> None:
    before = reading()
    with subprocess.Popen(SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        alive = reading()
        process.stdin.write("\n")
    ended = reading()
    assert alive.others - before.others >= 0.25  # the clocks of the system count hundredths
    assert ended.others >= alive.others


def test_the_dearest_file_stands_first_below_the_sum() -> None:
    lines = table({"cheap.py": Cost(3, 9.0, 1.0, 0.5), "dear.py": Cost(1, 2.0, 0.25, 4.0)}).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["5.8", "1.2", "11.0", "4", "all"],
        ["4.2", "0.2", "2.0", "1", "dear.py"],
        ["1.5", "1.0", "9.0", "3", "cheap.py"],
    ]
