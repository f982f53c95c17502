"""Worker processes of a command that tests start (``tests.preloaded``), forked from what the command was as it began.

A worker of the pipeline is an interpreter of its own, which loads the modules of the command once more. A command that
is forked itself keeps a copy of itself as it was before it did anything: one thread, no connection, all modules loaded.
The copy forks each worker, which gets what ``multiprocessing`` would give to a new interpreter: descriptors,
environment, folder and signals; and the command is its parent.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from multiprocessing import util
from typing import Any, Final

WITH_WORKERS: Final = frozenset({"backfill", "cutover", "parity", "tail", "verify"})
"""Commands that may start workers. The others are spared the copy."""
SPAWNED: Final = "TESTS_SPAWNED_WORKERS"
"""Environment of a command whose workers are interpreters of their own, as outside the tests."""
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
MOST_BYTES: Final = 1 << 18
MOST_DESCRIPTORS: Final = 64
STREAMS: Final = (0, 1, 2)
WAITING_S: Final = 0.001
KEPT_FROM_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Signals that a test sends to the group of a command: its copy ends with it, not before."""

Code = tuple[str, list[str]]
"""What an interpreter is told with ``-c``, and the arguments that follow."""

_original: Final = util.spawnv_passfds


def begin(arguments: list[str]) -> Code | None:
    """Keep a copy of this process, which is about to be a command; return the code of a worker, in that worker alone.

    Call it with one thread, and with the environment and the folder of the command.
    """
    if not arguments or arguments[0] not in WITH_WORKERS or SPAWNED in os.environ:
        return None
    requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = os.getpid()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # so that the worker, a child of a child, becomes its child
    if os.fork():
        theirs.close()
        setattr(util, "spawnv_passfds", _Copy(requests).spawn)  # noqa: B010 - a function of the module
        return None
    requests.close()
    return _serve(theirs, command)


class _Copy:
    """The copy of a command, as the command sees it."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests

    def spawn(self, path: bytes, arguments: Sequence[str], passed: Sequence[int]) -> int:
        """Do what ``multiprocessing.util.spawnv_passfds`` does: start ``python -c``; return the id of the process."""
        numbers = sorted(map(int, passed))
        request = {
            "words": arguments[arguments.index("-c") + 1 :],
            "passed": numbers,
            "environment": dict(os.environ),
            "folder": os.getcwd(),  # noqa: PTH109 - as it is sent
            "blocked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        }
        try:
            socket.send_fds(self._requests, [json.dumps(request).encode()], [*STREAMS, *numbers])
            return int(self._requests.recv(16))
        except (OSError, ValueError):  # a stream is closed, or the copy was killed
            return _original(path, arguments, passed)


def _serve(requests: socket.socket, command: int) -> Code:
    """Fork for each request, as long as the command lives; return in a worker, with what it is to do."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != command:
        os._exit(1)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in KEPT_FROM_SIGNALS}
    while True:
        told, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, MOST_DESCRIPTORS)
        if not told:
            os._exit(0)
        middle = os.fork()
        if middle:
            for descriptor in descriptors:
                os.close(descriptor)
            os.waitpid(middle, 0)
            continue
        worker = os.fork()
        if worker:
            requests.send(str(worker).encode())
            os._exit(0)
        while os.getppid() != command:  # until the process between them has ended
            select.select((), (), (), WAITING_S)
            if os.getppid() == 1:
                os._exit(1)
        requests.close()
        return _become(json.loads(told), descriptors, before)


def _become(request: dict[str, Any], descriptors: list[int], before: dict[signal.Signals, Any]) -> Code:
    """Be in the state of an interpreter that the command has started."""
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    for kept, action in before.items():
        signal.signal(kept, action)
    numbers = [*STREAMS, *request["passed"]]
    highest = max(*numbers, *descriptors) + 1
    for place, descriptor in enumerate(descriptors):  # first to where none of the numbers is
        os.dup2(descriptor, highest + place, inheritable=False)
    for descriptor in descriptors:
        os.close(descriptor)
    for place, number in enumerate(numbers):
        os.dup2(highest + place, number, inheritable=number in STREAMS)
        os.close(highest + place)
    for number, name in enumerate(("stdin", "stdout", "stderr")):  # those of the server remember what its files were
        was = getattr(sys, name)
        kind, buffering = ("w" if number else "r"), (1 if name == "stderr" else -1)
        stream = open(number, kind, buffering, was.encoding, was.errors, closefd=False)  # noqa: SIM115 - stays open
        setattr(sys, name, stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    code, *arguments = request["words"]
    sys.argv = ["-c", *arguments]
    return code, arguments


def run(code: Code) -> None:
    """Execute what ``multiprocessing`` wrote for the worker."""
    exec(compile(code[0], "<string>", "exec"), {"__name__": "__main__"})
