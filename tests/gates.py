"""A copy that a test stops at a named point, to do something to the servers or to the process, and then lets go on."""

import os
import select
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.copying import kill, start

FOLDER = Path(__file__).parent / "faults"
PATIENCE = 240.0
"""Seconds after which a test gives up; never waited for where things go as they should."""


class Held:
    """A running command, one process of which stands at the gate."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, pid: int) -> None:
        self.process = process
        self.folder = folder
        self.said = ""
        self.pid = pid
        """The process at the gate."""
        self._order = os.open(folder / "go", os.O_RDWR)  # a pipe that is open for both never blocks its opener

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._order)

    def go(self, order: bytes = b"on") -> None:
        """Let it go on; it may have left the gate already, interrupted."""
        os.write(self._order, order)

    def hear(self, words: str) -> str:
        """Read what it says on standard error up to the line that holds these words; return that line."""
        assert self.process.stderr is not None
        watch = threading.Timer(PATIENCE, kill, (self.process,))
        watch.start()
        for line in self.process.stderr:
            self.said += line
            if words in line:
                watch.cancel()
                return line
        watch.cancel()
        raise AssertionError(f"never said {words!r}: {self.said}")

    def end(self) -> tuple[int, str, str]:
        """Wait for its end; return exit status, standard output, and all that it said on standard error."""
        out, err = self.process.communicate(timeout=PATIENCE)
        self.said += err
        return self.process.returncode, out, self.said

    def group(self) -> list[int]:
        """Return the processes of its group."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                except OSError:
                    continue
                if fields[0] != "Z" and int(fields[2]) == self.process.pid:
                    found.append(int(entry.name))
        return found


@contextmanager
def held(
    config: Path,
    point: str,
    folder: Path,
    *arguments: str,
    command: str = "backfill",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Held]:
    """Start a command and hold it at the first passing of ``point``; whatever is left of it ends with the block.

    A command of a group is named by both words: ``cutover run``.
    """
    folder = folder / "gate"
    folder.mkdir()
    for name in ("reached", "go"):
        os.mkfifo(folder / name)
    process = start(
        *command.split(),
        "--config",
        str(config),
        *arguments,
        environment={
            "MIGRATOR_FAULT_POINTS": "gate:passed",
            "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
            "GATE_AT": point,
            "GATE": str(folder),
            **environment,
        },
    )
    try:
        command_at_the_gate = Held(process, folder, _at_the_gate(process, folder))
        with closing(command_at_the_gate):
            yield command_at_the_gate
    finally:
        kill(process)
        process.communicate()


def _at_the_gate(process: subprocess.Popen[str], folder: Path) -> int:
    """Wait until a process stands at the gate; return its pid."""
    reached, ended = os.open(folder / "reached", os.O_RDONLY | os.O_NONBLOCK), os.pidfd_open(process.pid)
    try:
        ready = select.select([reached, ended], [], [], PATIENCE)[0]
        if reached not in ready:
            kill(process)
            raise AssertionError(f"never came to the gate: {process.communicate()}")
        return int(os.read(reached, 32))
    finally:
        os.close(reached)
        os.close(ended)


def gone(pid: int) -> bool:
    """Wait until a process that is not a child of this one has ended; tell whether it has."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)
