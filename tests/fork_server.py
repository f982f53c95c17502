"""Processes that a server forks: each is a real one, with its own environment, streams, session and exit status.

A server is an interpreter that has loaded modules and has one thread. The tests ask it for a process with
``ForkedProcess``, which is ``Popen`` in all else. This module needs the standard library alone: a server may be an
interpreter without the packages of the tests.
"""

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, AnyStr, Final

OF_THE_INTERPRETER: Final = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "SSL_", "OPENSSL_")
"""Beginnings of the variables that an interpreter, or a library, reads only when it begins."""
OF_EACH_PROCESS: Final = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
"""Those of them that a forked process follows, or that say nothing about it."""
DESCRIPTORS: Final = 4
"""Of a process: its three streams, and where the server writes how it ended."""
PR_SET_PDEATHSIG: Final = 1
MOST_BYTES: Final = 1 << 20


def of_the_interpreter(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process which is forked does not read any more."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(OF_THE_INTERPRETER) and name not in OF_EACH_PROCESS
    }


class ForkedProcess(subprocess.Popen[AnyStr]):
    """What ``Popen`` is, but that the server forks, and is asked how the process ended."""

    _end: int
    """Descriptor from which the status is read."""

    def _asked(self, command: list[str]) -> "tuple[ForkServer, list[str]]":
        """Return the server that forks this process, and the arguments that it gets."""
        raise NotImplementedError

    def _execute_child(
        self,
        args: list[str],
        _executable: Any,  # noqa: ANN401 - of Popen's making, as what follows
        _preexec_fn: Any,  # noqa: ANN401 - as above
        _close_fds: Any,  # noqa: ANN401 - as above
        _pass_fds: Any,  # noqa: ANN401 - as above
        cwd: Path | None,
        env: dict[str, str] | None,
        _startupinfo: Any,  # noqa: ANN401 - as above
        _creationflags: Any,  # noqa: ANN401 - as above
        _shell: Any,  # noqa: ANN401 - as above
        *pipes_and_others: Any,  # noqa: ANN401 - as above
    ) -> None:
        pipes: list[int] = [*pipes_and_others[:6]]
        theirs = (pipes[0], pipes[3], pipes[5])
        streams: list[int] = [number if pipe == -1 else pipe for number, pipe in enumerate(theirs)]
        self._end, told = os.pipe()
        server, arguments = self._asked(args)
        environment = dict(os.environ) if env is None else env
        request = {"arguments": arguments, "environment": environment, "folder": str(cwd or Path.cwd())}
        try:
            self.pid = server.fork(request, [*streams, told])
            vars(self)["_child_created"] = True
        finally:
            os.close(told)
            getattr(self, "_close_pipe_fds")(*pipes)  # noqa: B009 - Popen's types do not show it

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Return the process and its status as ``waitpid`` would; 0: it runs."""
        if flags & os.WNOHANG and not select.select([self._end], [], [], 0)[0]:
            return 0, 0
        told = os.read(self._end, 16)
        os.close(self._end)
        return self.pid, int(told) if told else signal.SIGKILL  # nothing: the server was killed, and so was the process

    def _internal_poll(self, _deadstate: int | None = None) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode


class ForkServer:
    """The process that forks. It ends when nobody can ask any more, with all that it has forked."""

    def __init__(self, command: list[str], *, environment: Mapping[str, str] | None = None, folder: Path) -> None:
        """Start the command of a server; its last argument is to be the descriptor of its socket."""
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            for end in (self._socket, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Return the id of a process that runs the command of the request."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return int(self._socket.recv(16))

    def close(self) -> None:
        """End the process, and all that it has forked."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.wait()


def serve(descriptor: int, run: Callable[[list[str]], None]) -> None:
    """Fork for each request until nobody can ask any more; the process that is forked calls ``run`` and ends."""
    gc.collect()
    gc.freeze()
    server = os.getpid()
    request = _next_request(socket.socket(fileno=descriptor))
    if request is None:
        return
    die_with(server)
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    try:
        run(request["arguments"])
    except SystemExit as ending:
        if isinstance(ending.code, int | None):  # else words, which the interpreter says
            end(ending.code or 0)
        raise
    else:
        end(0)


def _next_request(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until nobody can ask any more; return the request in the process that was forked."""
    ends: dict[int, int] = {}
    woken, waker = os.pipe()
    for end in (woken, waker):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ends(ends)
        if requests.fileno() not in ready:
            continue
        told, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, DESCRIPTORS)
        if not told:
            return None
        pid = os.fork()
        if pid:
            ends[pid] = descriptors.pop()
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(str(pid).encode())
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(before)
        requests.close()
        for descriptor in (*ends.values(), woken, waker, descriptors.pop()):
            os.close(descriptor)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        request: dict[str, Any] = json.loads(told)
        return request


def _tell_ends(ends: dict[int, int]) -> None:
    """Say of each process that ended how it did."""
    while ends:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with suppress(BrokenPipeError):
            os.write(ends[pid], str(status).encode())
        os.close(ends.pop(pid))


def die_with(parent: int) -> None:
    """Let this process be killed when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def end(status: int) -> None:
    """End as the interpreter does, but free nothing: that copies the memory which is shared with the server.

    Freeing takes 55 ms of computing, three times what the shortest command takes from its fork to its end. Return if
    the streams cannot be written, of which the interpreter has something to say.
    """
    getattr(threading, "_shutdown")()  # noqa: B009 - the types do not show it
    getattr(atexit, "_run_exitfuncs")()  # noqa: B009 - as above
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(status)
