"""The frame of the command line."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("backfil", "no command backfil; did you mean backfill?"),
        ("xyzzy", "no command xyzzy; known: backfill, config, control, cutover, demo, doctor, inspect, "),
        ("--nope", "No such option"),
    ],
)
def test_a_command_that_does_not_exist_is_answered_with_the_nearest(word: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "migrator", word], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
