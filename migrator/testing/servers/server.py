"""A server process: start on a free port, stop, kill, start again, remove; and why it did not start.

Nothing can reserve a port for another process, so a server that finds its port taken is started again on another one.
Ports below the range from which the kernel serves outgoing connections are preferred: there a stopped server finds its
port free again.
"""

import contextlib
import errno
import json
import os
import platform
import random
import re
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from migrator.errors import ConfigurationError, MigratorError, UnreachableError, install_extra
from migrator.testing.servers.directory import Account, PrivateDirectory, unprivileged

OWN_SERVERS = "or give the addresses of your own servers in the configuration (mongo.uri, postgres.dsn)"
EXTRA = install_extra("embedded")

# what to install for the libraries that the wheels leave to the system: Debian's package, Fedora's package
PACKAGES = {
    "libcurl.so.4": "libcurl4 (Debian, Ubuntu) or libcurl (Fedora, RHEL)",
    "liblzma.so.5": "liblzma5 (Debian, Ubuntu) or xz-libs (Fedora, RHEL)",
    "libz.so.1": "zlib1g (Debian, Ubuntu) or zlib (Fedora, RHEL)",
    "libgcc_s.so.1": "libgcc-s1 (Debian, Ubuntu) or libgcc (Fedora, RHEL)",
    "libresolv.so.2": "libc6 (Debian, Ubuntu) or glibc (Fedora, RHEL)",
    "libssl.so.1.1": f"the extra again: {EXTRA}",
    "libcrypto.so.1.1": f"the extra again: {EXTRA}",
}

_MISSING = re.compile(r"error while loading shared libraries: ([^:\s]+): cannot open shared object file")
_OLD_LIBC = re.compile(r"version `(GLIBC_[0-9.]+)' not found")


def check_platform() -> None:
    """Refuse where the wheels' programs cannot run at all; raises ConfigurationError."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise ConfigurationError(
            f"embedded servers exist for Linux on x86_64 only, this is {system} on {machine}; give the addresses "
            "of your own servers in the configuration (mongo.uri, postgres.dsn)"
        )


def extra_missing(distribution: str) -> ConfigurationError:
    """Return the error for a wheel that is not installed, or not complete."""
    return ConfigurationError(f"embedded servers need the package {distribution}: {EXTRA}, {OWN_SERVERS}")


def spawn_failure(program: str | Path, text: str, number: int, account: Account | None) -> MigratorError:
    """Return the error for a program the system would not even start."""
    name = Path(program).name
    if number == errno.ENOEXEC:
        return ConfigurationError(f"{name} was built for another architecture than {platform.machine()}; {OWN_SERVERS}")
    if number == errno.ENOENT:
        return ConfigurationError(f"{program} does not exist, or the system lacks its loader; {OWN_SERVERS}")
    if number in {errno.EACCES, errno.EPERM}:
        who = account.name if account else "this user"
        return ConfigurationError(
            f"{name} cannot be started as {who}: {text}; if temporary directories are mounted noexec, set TMPDIR to "
            f"one that is not, {OWN_SERVERS}"
        )
    return UnreachableError(f"{name} cannot be started: {text}")


def start_failure(name: str, status: int, log: str) -> MigratorError:
    """Return the error for a program that started and ended before it was ready."""
    if missing := _MISSING.search(log):
        library = missing[1]
        package = PACKAGES.get(library, "the package that holds it")
        return UnreachableError(f"{name} needs the system library {library}: install {package}, {OWN_SERVERS}")
    if old := _OLD_LIBC.search(log):
        return ConfigurationError(f"{name} needs a newer C library ({old[1]}) than this system has; {OWN_SERVERS}")
    if "No space left on device" in log:
        return UnreachableError(f"{name} did not start: no space left for its directory; free some or set TMPDIR")
    lines = [line for line in log.splitlines() if line.strip()]
    said = "; ".join(lines[-3:])[-600:] or "it said nothing"
    return UnreachableError(f"{name} did not start (status {status}): {said}")


LOWEST = 28_100  # above MongoDB's own ports
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at this moment."""
    try:
        highest = int(RANGE.read_text().split()[0])
    except OSError:
        highest = 32_768
    for _ in range(50):
        port = random.randrange(LOWEST, max(highest, LOWEST + 1))  # noqa: S311 - not a secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


GUARDIAN = Path(__file__).with_name("guardian.py")


@dataclass(frozen=True)
class Command:
    """What to run: the program first, and the complete environment in addition to a plain one."""

    argv: Sequence[str | Path]
    environment: Mapping[str, str] = field(default_factory=dict)


class Process:
    """A command running under its guardian; ends when this process does."""

    def __init__(self, command: Command, directory: PrivateDirectory, *, log: str, death_signal: int) -> None:
        """Start the command; UnreachableError when the system cannot run its program."""
        self._log = directory.path / log
        account = directory.account
        order = {
            "account": [account.uid, account.gid] if account else None,
            "argv": [str(part) for part in command.argv],
            "cwd": str(directory.path),
            "death_signal": death_signal,
            "env": _clean_environment(directory.path, command.environment),
            "log": str(self._log),
            "owner": os.getpid(),
            "remove": None if directory.kept else str(directory.path),
        }
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARDIAN), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[directory.lock],
            start_new_session=True,  # Ctrl-C in the terminal is the owner's to handle
        )
        assert self._guardian.stdout  # noqa: S101 - for the type checker: a pipe was asked for
        with self._guardian.stdout as answers:
            answer = json.loads(answers.readline() or b'{"error": "the guardian ended early", "errno": 0}')
        if "error" in answer:
            self.wait()
            raise spawn_failure(command.argv[0], answer["error"], answer["errno"], account)
        self.pid: int = answer["pid"]

    @property
    def running(self) -> bool:
        """Whether the command and everything it started are still there."""
        return self._guardian.poll() is None

    @property
    def log(self) -> str:
        """All the command has written so far."""
        try:
            return self._log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def send(self, number: int) -> None:
        """Send the command a signal; nothing when it has ended."""
        pipe = self._guardian.stdin
        if pipe and not pipe.closed and self.running:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(bytes([number]))
                pipe.flush()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the command and all it started have ended; return its status, 128 + n for signal n.

        Raises TimeoutError after ``timeout`` seconds.
        """
        try:
            status = self._guardian.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error
        if self._guardian.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._guardian.stdin.close()
        return status


def run(command: Command, directory: PrivateDirectory, *, death_signal: int, timeout: float) -> tuple[int, str]:
    """Run a command to its end; return its status and what it wrote."""
    process = Process(command, directory, log="log.run", death_signal=death_signal)
    try:
        status = process.wait(timeout)
    except BaseException:
        process.send(9)
        process.wait()
        raise
    return status, process.log


def _clean_environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with nothing of ours: PG*, locale and library settings would change the server."""
    return {"HOME": str(home), "LC_ALL": "C", "PATH": "/usr/bin:/bin", "TZ": "UTC", **extra}


START_SECONDS = 120.0  # a cold disk and a busy machine; a server that cannot start ends long before
STOP_SECONDS = 60.0
ATTEMPTS = 10  # ports tried


class Server(ABC):
    """A server that belongs to this process; a context manager that removes it with all its data.

    In a kept directory the data stay, and so does the port.
    """

    name: ClassVar[str]
    death_signal: ClassVar[int]  # ends it at once with all it started; the data may need recovery
    stop_signal: ClassVar[int]  # ends it in good order

    def __init__(self, directory: PrivateDirectory | None) -> None:
        """Take the directory, or make one; a subclass starts the server, in the block of `_removed_on_error`."""
        self._directory = directory or PrivateDirectory.create(unprivileged())
        self._owner = os.getpid()
        self._closed = False
        self._process: Process | None = None
        self.port = 0

    @abstractmethod
    def _command(self) -> Command:
        """Return the command that serves ``self.port``."""

    @abstractmethod
    def _is_ready(self, log: str) -> bool:
        """Whether the server, and not another one on the same port, takes connections."""

    @abstractmethod
    def _port_taken(self, log: str) -> bool:
        """Whether the server ended because another process has the port."""

    @property
    def pid(self) -> int | None:
        """The process id of the server, None while it is stopped."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Whether the server is there."""
        return self._process is not None and self._process.running

    @property
    def log(self) -> str:
        """What the server has written since it was started last."""
        return self._process.log if self._process else ""

    @contextlib.contextmanager
    def _removed_on_error(self) -> Iterator[None]:
        """Remove the server if it cannot be started."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _start_anywhere(self) -> None:
        kept = self._directory.path / "port"
        if self._directory.complete:
            self.port = int(kept.read_text())
            if not self._start():
                raise UnreachableError(f"{self.name} cannot start again: another process has port {self.port}")
            return
        for _ in range(ATTEMPTS):
            self.port = free_port()
            if self._start():
                if self._directory.kept:
                    self._directory.write(kept.name, str(self.port))
                return
        raise UnreachableError(f"{self.name} found every port taken, {ATTEMPTS} tried")

    def _start(self) -> bool:
        """Start on the present port; False when it is taken."""
        self._process = process = Process(self._command(), self._directory, log="log", death_signal=self.death_signal)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            running, log = process.running, process.log
            if not running:
                status = process.wait()
                if self._port_taken(log):
                    return False
                raise start_failure(self.name, status, log)
            if self._is_ready(log):
                return True
            time.sleep(0.02)
        self.kill()
        raise UnreachableError(f"{self.name} was not ready after {START_SECONDS:.0f} s: {process.log[-300:]}")

    def stop(self) -> None:
        """Stop in good order and keep the data; nothing when it is stopped already."""
        self._end(self.stop_signal)

    def kill(self) -> None:
        """End it as a crash would, keep the data as they are; returns when all its processes are gone."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze the server's main process: connections are taken by the kernel and never answered."""
        if self._process:
            self._process.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        if self._process:
            self._process.send(signal.SIGCONT)

    def restart(self) -> None:
        """Start again on the same port and the same data, after stopping it if need be."""
        self.stop()
        deadline = time.monotonic() + START_SECONDS
        while not self._start():
            if time.monotonic() > deadline:
                raise UnreachableError(f"{self.name} cannot start again: port {self.port} was taken meanwhile")
            time.sleep(0.1)

    def _end(self, number: int) -> None:
        process = self._process
        if process is None or os.getpid() != self._owner:
            return
        process.send(signal.SIGCONT)
        process.send(number)
        try:
            process.wait(STOP_SECONDS)
        except TimeoutError:
            process.send(signal.SIGKILL)
            process.wait()

    def __enter__(self) -> Self:
        """Return the server, which runs already."""
        return self

    def close(self) -> None:
        """End the server and remove its data; a second call, or one in a forked child, does nothing.

        In a kept directory: end it in good order, and keep the data.
        """
        if os.getpid() != self._owner or self._closed:
            return
        self._closed = True
        self._end(self.stop_signal if self._directory.kept else self.death_signal)
        self._directory.remove()

    def __exit__(self, *_: object) -> None:
        """Remove the server with its data."""
        self.close()
