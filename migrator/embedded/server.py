"""What both kinds of server have in common: start on a free port, stop, kill, start again, go away."""

import os
import signal
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import ClassVar, Self

from migrator.embedded.directory import PrivateDirectory
from migrator.embedded.ports import free_port
from migrator.embedded.process import Command, Process
from migrator.embedded.trouble import ended
from migrator.errors import UnreachableError

START_SECONDS = 120.0  # a cold disk and a busy machine; a server that cannot start ends long before
STOP_SECONDS = 60.0
ATTEMPTS = 10  # ports tried


class Server(ABC):
    """A server that belongs to this process; a context manager that removes it with all its data."""

    name: ClassVar[str]
    death_signal: ClassVar[int]  # ends it at once with all it started; the data may need recovery
    stop_signal: ClassVar[int]  # ends it in good order

    def __init__(self, directory: PrivateDirectory) -> None:
        """Take over the directory; nothing is started yet."""
        self._directory = directory
        self._owner = os.getpid()
        self._process: Process | None = None
        self.port = 0

    @abstractmethod
    def _command(self) -> Command:
        """Return the command that serves ``self.port``."""

    @abstractmethod
    def _is_ready(self, log: str) -> bool:
        """Tell whether the server, and not another one on the same port, takes connections."""

    @abstractmethod
    def _port_taken(self, log: str) -> bool:
        """Tell whether the server ended because somebody else has the port."""

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

    def _start_anywhere(self) -> None:
        for _ in range(ATTEMPTS):
            self.port = free_port()
            if self._start():
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
                raise ended(self.name, status, log)
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

    def close(self) -> None:
        """End the server and remove its data; a second call, or one in a forked child, does nothing."""
        if os.getpid() != self._owner or not self._directory.path.exists():
            return
        self._end(self.death_signal)
        self._directory.remove()

    def __enter__(self) -> Self:
        """Return the server, which runs already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the server with its data."""
        self.close()
