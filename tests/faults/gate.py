"""A listener for ``MIGRATOR_FAULT_POINTS`` that holds the first process to pass a point until the test lets it go on.

``GATE_AT`` names the point, ``GATE`` a folder. The process writes its pid into the pipe ``reached`` and reads ``go``.
"""

import importlib
import os
import signal
from pathlib import Path

importlib.import_module("patient")  # a test that interrupts what stands at the gate gives it time

DIE = b"die"
"""Instead of going on, be killed."""


def passed(point: str) -> None:
    """Wait at the gate, once in all processes together."""
    folder = Path(os.environ["GATE"])
    if point != os.environ["GATE_AT"]:
        return
    try:
        (folder / "taken").touch(exist_ok=False)
    except FileExistsError:
        return
    (folder / "reached").write_text(str(os.getpid()))
    with (folder / "go").open("rb", buffering=0) as order:  # one read: the test keeps its end open
        heard = order.read(16)
    if heard == DIE:
        os.kill(os.getpid(), signal.SIGKILL)
