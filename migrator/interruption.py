"""The end of an interrupted command: the first Ctrl-C ends it in order and within a limit, the second one at once.

SIGTERM counts as Ctrl-C. No process outlives the command. A command may handle the first signal itself; it then calls
``count_signal``.
"""

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Final

from migrator.exit_status import UNVERIFIED
from migrator.telemetry import restore_terminal

LIMIT_S: Final = 5.0
"""Seconds in which an interrupted command ends in order; then it is ended at once."""

_AT_ONCE = "ended at once; what was committed is kept, and a transaction that was open is undone"


_installed = threading.Event()
_signalled = threading.Event()
_slow_end = threading.Event()
_threads: list[threading.Thread] = []


def install_handlers() -> None:
    """Handle SIGTERM, and SIGINT unless this process was started with it ignored (nohup, the background of a shell)."""
    signal.signal(signal.SIGTERM, _handle)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _handle)
    if not _installed.is_set():
        atexit.register(_keep_status)
    _installed.set()
    threading.Thread(target=_watch, name="interruption", daemon=True).start()


def allow_slow_end() -> None:
    """Let this command end in order however long that takes: it has something to undo that others wait for."""
    _slow_end.set()


def count_signal() -> None:
    """Count a signal: the first one starts the clock, the second one ends this process here.

    Without ``install_handlers``, in a process that is not the command's, it does nothing.
    """
    if not _installed.is_set():
        return
    if _signalled.is_set():
        _end_at_once("interrupted again")
    _signalled.set()


def _watch() -> None:
    """End this process some time after the first signal. A thread, started before: a main thread may hang in a call."""
    _signalled.wait()
    if not _slow_end.wait(LIMIT_S):
        _end_at_once(f"interrupted, and not ended within {LIMIT_S:.0f} s")


def join_later(thread: threading.Thread) -> None:
    """Wait for a thread before the interpreter ends (``join_threads``)."""
    _threads[:] = [one for one in _threads if one.is_alive()]
    _threads.append(thread)


def join_threads() -> None:
    """Wait for the threads that ``join_later`` was given."""
    while _threads:
        _threads.pop().join()


def _keep_status() -> None:
    """Let no further signal change the exit status, which is decided: the interpreter ends.

    It gives handled signals their default action back, and one would kill the process. What is ignored stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    count_signal()
    raise KeyboardInterrupt


def _end_at_once(why: str) -> None:
    """End this process without anything that could wait; worker processes and servers end with it."""
    with suppress(Exception):
        loaded = sys.modules.get("multiprocessing")  # without it there are no children
        for child in loaded.active_children() if loaded else ():
            child.kill()
    with suppress(Exception):
        restore_terminal()
    with suppress(OSError):
        os.write(2, f"migrator: {why}: {_AT_ONCE}\n".encode())
    os._exit(UNVERIFIED)
