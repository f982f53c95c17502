"""Commands under a guardian, as their owner sees them."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from migrator.embedded.directory import PrivateDirectory
from migrator.embedded.trouble import cannot_start

GUARDIAN = Path(__file__).with_name("guardian.py")


@dataclass(frozen=True)
class Command:
    """What to run: the program first, and the complete environment it gets beside a plain one."""

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
            "env": _environment(directory.path, command.environment),
            "log": str(self._log),
            "owner": os.getpid(),
            "remove": str(directory.path),
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
            raise cannot_start(command.argv[0], answer["error"], answer["errno"], account)
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


def _environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with nothing of ours: PG*, locale and library settings would change the server."""
    return {"HOME": str(home), "LC_ALL": "C", "PATH": "/usr/bin:/bin", "TZ": "UTC", **extra}
