"""How a command ends: the first Ctrl-C in order and in good time, the second at once, and no process outlives it.

SIGTERM counts as Ctrl-C. A command may handle the first signal itself, and then calls ``interrupted``.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Final

from migrator.exit_status import UNVERIFIED

WITHIN_S: Final = 5.0
"""Seconds in which an interrupted command ends in order; then it is ended at once."""

_AT_ONCE = "ended at once; what was committed is kept, and a transaction that was open is undone"


_installed = threading.Event()
_begun = threading.Event()
_unhurried = threading.Event()
_waited: list[threading.Thread] = []


def install() -> None:
    """Handle SIGTERM, and SIGINT unless this process was started with it ignored (nohup, the background of a shell)."""
    signal.signal(signal.SIGTERM, _handle)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _handle)
    _installed.set()
    threading.Thread(target=_watch, name="interruption", daemon=True).start()


def take_time() -> None:
    """Let this command end in order however long that takes: it has something to undo that others wait for."""
    _unhurried.set()


def interrupted() -> None:
    """Count a signal: the first one starts the clock, the second one ends this process here.

    Without ``install``, in a process that is not the command's, it does nothing.
    """
    if not _installed.is_set():
        return
    if _begun.is_set():
        _end_at_once("interrupted again")
    _begun.set()


def _watch() -> None:
    """End this process some time after the first signal. A thread, started before: a main thread may hang in a call."""
    _begun.wait()
    if not _unhurried.wait(WITHIN_S):
        _end_at_once(f"interrupted, and not ended within {WITHIN_S:.0f} s")


def wait_for(thread: threading.Thread) -> None:
    """Wait for a thread before the interpreter ends (``settle``)."""
    _waited[:] = [one for one in _waited if one.is_alive()]
    _waited.append(thread)


def settle() -> None:
    """Wait for what ``wait_for`` was told of."""
    while _waited:
        _waited.pop().join()


def _handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    interrupted()
    raise KeyboardInterrupt


def _end_at_once(why: str) -> None:
    """End this process without anything that could wait; worker processes and servers end with it."""
    with suppress(Exception):
        if "multiprocessing" in sys.modules:
            import multiprocessing  # noqa: PLC0415 - it is loaded

            for child in multiprocessing.active_children():
                child.kill()
    with suppress(OSError):
        os.write(2, f"migrator: {why}: {_AT_ONCE}\n".encode())
    os._exit(UNVERIFIED)
