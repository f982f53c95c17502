"""A listener for ``MIGRATOR_FAULT_POINTS``: kills at the n-th pass of one point, its whole process group or a server.

``KILL_AT`` names the point, ``KILL_COUNT`` says which passing, ``KILL_TALLY`` is a file that counts over all processes.
``KILL_PID`` is whom to kill: unset, everything in the group of this process; else that process, once, and on it goes.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path


def passed(point: str) -> None:
    """Count, and kill when it is time."""
    if point != os.environ["KILL_AT"]:
        return
    tally = Path(os.environ["KILL_TALLY"])
    with tally.open("ab") as file:  # appending one byte is atomic, also between processes
        file.write(b".")
    passings, wanted = tally.stat().st_size, int(os.environ["KILL_COUNT"])
    if "KILL_PID" not in os.environ:
        if passings >= wanted:
            os.killpg(os.getpgid(0), signal.SIGKILL)
    elif passings == wanted:
        with suppress(ProcessLookupError):
            os.kill(int(os.environ["KILL_PID"]), signal.SIGKILL)
