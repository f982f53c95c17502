"""The end of an interrupted command: the first Ctrl-C ends it in order and within a limit, the second one at once.

SIGTERM counts as Ctrl-C. No process outlives the command. A command may handle the first signal itself (``counted``).

Signals are counted by a thread, to which the interpreter writes the number of each as it comes
(https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd). A handler alone cannot count: it runs in the main
thread when that executes its next instruction. The main thread may be in a call that does not return, and a signal that
comes just before it waits for a lock is handled after the wait.
"""

import atexit
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Final

from migrator.exit_status import UNVERIFIED
from migrator.telemetry import restore_terminal

LIMIT_S: Final = 5.0
"""Seconds in which an interrupted command ends in order; then it is ended at once."""

_NUDGE_S: Final = 0.1
"""How often the main thread is woken after the first signal, so that it executes the handler."""
_DEFERRED_S: Final = 1.0
"""How long the end at once waits for a block of ``deferred``."""
_COUNTER: Final = "interruption"
_AT_ONCE = "ended at once; what was committed is kept, and a transaction that was open is undone"


Handler = Callable[[int, FrameType | None], None]

_installed = threading.Event()
_slow_end = threading.Event()
_handled = threading.Event()
_postponed = threading.Event()
_not_deferred = threading.Event()
_not_deferred.set()
_counted: set[object] = set()
_threads: list[threading.Thread] = []


def install_handlers() -> None:
    """Handle SIGTERM, and SIGINT unless this process was started with it ignored (nohup, the background of a shell).

    For the main thread. Another call in the same process installs the handlers again, and nothing else: a process that
    was interrupted ends, so that what was counted stays.
    """
    if not _installed.is_set():
        _installed.set()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=_watch, args=(reader,), name=_COUNTER, daemon=True).start()
        atexit.register(_keep_status)
    signal.signal(signal.SIGURG, _do_nothing)
    signal.signal(signal.SIGTERM, _handle)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _handle)


def is_alone() -> bool:
    """Whether this process is a command whose only threads are the main one and the one that counts signals.

    The latter holds no lock while it waits, so that such a process can be forked.
    """
    return _installed.is_set() and {one.name for one in threading.enumerate()} <= {"MainThread", _COUNTER}


def allow_slow_end() -> None:
    """Let this command end in order however long that takes: it has something to undo that others wait for."""
    _slow_end.set()


def counted(handler: Handler) -> Handler:
    """Count the signals that a command's own handler takes; those of any other handler are left to the command."""
    _counted.add(handler)
    return handler


@contextmanager
def deferred() -> Iterator[None]:
    """Let the first signal interrupt the main thread after the block, and not in it: it starts processes.

    A child whose parent is interrupted before it was told what to do ends with a traceback. To block the signal is not
    enough: another thread takes it, and its handler runs in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread() or not _not_deferred.is_set():
        yield
        return
    _not_deferred.clear()
    try:
        yield
    finally:
        _not_deferred.set()
    if _postponed.is_set() and not _handled.is_set():
        _handled.set()
        raise KeyboardInterrupt


def _forget() -> None:
    """Let the signals of a forked child count for itself alone: the pipe is its parent's."""
    signal.set_wakeup_fd(-1)


def _watch(reader: int) -> None:
    """Count the signals of this process; end it at the second one, or some time after the first."""
    end: float | None = None
    while True:
        if not select.select([reader], [], [], None if end is None else _NUDGE_S)[0] and end is not None:
            if monotonic() >= end and not _slow_end.is_set():
                _end_at_once(f"interrupted, and not ended within {LIMIT_S:.0f} s")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)
            continue
        for number in os.read(reader, 64):
            if number not in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) not in _counted:
                continue
            if end is not None:
                _end_at_once("interrupted again")
            end = monotonic() + LIMIT_S


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


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """End the wait of the main thread for a lock, which then executes the handler of the signal before this one."""


@counted
def _handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's signature
    if not _not_deferred.is_set():
        _postponed.set()
        return
    if not _handled.is_set():  # at the second signal the thread ends this process, and the command does nothing more
        _handled.set()
        raise KeyboardInterrupt


def _end_at_once(why: str) -> None:
    """End this process without anything that could wait for long; worker processes and servers end with it."""
    _not_deferred.wait(_DEFERRED_S)
    with suppress(Exception):
        loaded = sys.modules.get("multiprocessing")  # without it there are no children
        for child in loaded.active_children() if loaded else ():
            child.kill()
    with suppress(Exception):
        restore_terminal()
    with suppress(OSError):
        os.write(2, f"migrator: {why}: {_AT_ONCE}\n".encode())
    os._exit(UNVERIFIED)
