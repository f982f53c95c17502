"""Ctrl-C while processes are started: it interrupts after the block, also where another thread takes the signal."""

import subprocess
import sys

STEPS = 1_000
"""Each takes a millisecond, in which another thread runs, however busy the machine is."""
PROGRAM = """
import os, signal, threading, time
from migrator import interruption

interruption.install_handlers()
threading.Thread(target=threading.Event().wait, daemon=True).start()
steps = []
try:
    {block}
        signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            steps.append(1)
            time.sleep(0.001)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGINT}})
    steps.append("after")
except KeyboardInterrupt:
    print(len(steps))
"""


def steps_of(block: str) -> int:
    """Return how many steps of a block were made before the interruption."""
    program = PROGRAM.format(block=block)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


def test_it_comes_after_a_deferred_block() -> None:
    assert steps_of("with interruption.deferred():") == STEPS


def test_a_block_in_a_block_is_one() -> None:
    assert steps_of("with interruption.deferred(), interruption.deferred():") == STEPS


def test_without_it_another_thread_takes_the_signal() -> None:
    """The premise: to block the signal in the main thread does not defer it."""
    assert steps_of("if True:") < STEPS
