"""Processes of ``migrator`` that begin with its modules loaded.

A command spends half a second of computing on loading modules. A server, one per session of tests, has loaded them, and
forks a process for each command: a real one, with its own environment, streams, session and exit status, which a test
may kill. Tests of the start itself start an interpreter. The smoke test of a cutover, which must not load MongoDB's
driver, has a server of its own.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from migrator import cli
from tests import forked_workers

SMOKE: Final = "migrator.cutover.smoke"
RENDERER: Final = "migrator.report.renderer"
MODULES: Final = {
    "migrator": (
        *(f"migrator.cli.{name}" for name, _ in cli.COMMANDS.values() if name != "demo"),
        "migrator.cli.metrics",
        "migrator.pipeline.chunk",
        RENDERER,
        "migrator.schema.revisions",
    ),
    SMOKE: (SMOKE, "migrator.store.postgres.store"),
}
"""By program: what its server loads."""
ROOT: Final = Path(__file__).resolve().parents[1]
OF_THE_INTERPRETER: Final = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "SSL_", "OPENSSL_")
"""Beginnings of the variables that an interpreter, or a library, reads only when it begins."""
OF_EACH_PROCESS: Final = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
"""Those of them that a forked process follows, or that say nothing about it."""
COMMAND: Final = (sys.executable, "-m")
DESCRIPTORS: Final = 4
"""Of a process: its three streams, and where the server writes how it ended."""
PR_SET_PDEATHSIG: Final = 1
MOST_BYTES: Final = 1 << 20


def piped(arguments: list[str], environment: dict[str, str], *, cwd: Path | None) -> subprocess.Popen[str]:
    """Start ``migrator`` with its output piped, in a session of its own."""
    variables = {**os.environ, **environment}
    kind: type[subprocess.Popen[str]] = _Process if _may_fork(variables) else subprocess.Popen
    return kind(
        [*COMMAND, "migrator", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        start_new_session=True,
        cwd=cwd,
    )


class ForkedSmoke:
    """In place of ``subprocess`` in the smoke test of a cutover: its process is forked, without MongoDB's driver."""

    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(
        command: list[str], *, capture_output: bool, text: bool, timeout: float, check: bool
    ) -> subprocess.CompletedProcess[str]:
        """Do what ``subprocess.run`` does with just these arguments."""
        assert command[: len(COMMAND) + 1] == [*COMMAND, SMOKE]
        assert capture_output
        if not _may_fork(os.environ):
            return subprocess.run(command, capture_output=capture_output, text=text, timeout=timeout, check=check)
        with _Process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text) as process:
            try:
                out, said = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, said)


def _of_the_interpreter(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(OF_THE_INTERPRETER) and name not in OF_EACH_PROCESS
    }


AT_FIRST: Final = _of_the_interpreter(os.environ)


def _may_fork(variables: Mapping[str, str]) -> bool:
    """Whether an interpreter that began with these variables is the one that the server is."""
    return _of_the_interpreter(variables) == AT_FIRST


class _Process(subprocess.Popen[str]):
    """What ``Popen`` is, but that the server forks, and is asked how the process ended."""

    _end: int
    """Descriptor from which the status is read."""

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
        program, *arguments = args[len(COMMAND) :]
        environment = dict(os.environ) if env is None else env
        request = {"arguments": arguments, "environment": environment, "folder": str(cwd or Path.cwd())}
        try:
            self.pid = _server(program).fork(request, [*streams, told])
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


class _Server:
    """The process that forks. It ends when nobody can ask any more, with all that it has forked."""

    def __init__(self, program: str) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            for end in (self._socket, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.preloaded", program, str(theirs.fileno())],
                cwd=ROOT,
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


_servers: dict[str, _Server] = {}
"""By program, those that were started."""


def _server(program: str) -> _Server:
    if program not in _servers:
        _servers[program] = _Server(program)
    return _servers[program]


def close() -> None:
    """End the servers that were started."""
    while _servers:
        _servers.popitem()[1].close()


def _serve(requests: socket.socket) -> dict[str, Any] | None:
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


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _become(program: str, request: dict[str, Any], server: int) -> None:
    """Be the command of a request."""
    _die_with(server)
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = [request["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    sys.argv = [program, *request["arguments"]]
    from migrator import fault_points  # noqa: PLC0415 - the server is told first where it belongs

    fault_points._listen = fault_points._listener()
    worker = forked_workers.begin(request["arguments"])
    try:
        if worker is None:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            forked_workers.run(worker)
    except SystemExit as end:
        if isinstance(end.code, int | None):  # else words, which the interpreter says
            _end(end.code or 0)
        raise
    else:
        _end(0)


def _end(status: int) -> None:
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


def _load_templates() -> None:
    """Compile the templates of the report, which takes longer than to fill them in."""
    renderer = importlib.import_module(RENDERER)
    for environment, end in ((renderer._html(), ".html.j2"), (renderer._markdown(), ".md.j2")):
        for name in environment.list_templates():
            if name.endswith(end):
                environment.get_template(name)


def main() -> None:
    """Load the modules, and serve; what is forked goes on as a command."""
    program, descriptor = sys.argv[1:]
    requests = socket.socket(fileno=int(descriptor))
    for name in MODULES[program]:
        importlib.import_module(name)
    if program == SMOKE:
        del sys.modules[program]  # it is run, not imported
    else:
        _load_templates()
    gc.collect()
    gc.freeze()
    server = os.getpid()
    request = _serve(requests)
    if request is not None:
        _become(program, request, server)


if __name__ == "__main__":
    main()
