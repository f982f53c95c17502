"""Runs a command as a user would, and says what it cost: wall clock of the whole process, CPU time, memory.

CPU time of the client is that of the process and of all it started and waited for; of a server, what its processes
used while the command ran. Memory is the resident set, sampled over the whole tree of processes; pages that several
processes share count for each of them.
"""

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_OWN, _WAITED_FOR, _AFTER_CPU = 11, 13, 15
"""Places of CPU time in the fields of a process: its own, that of the children it has waited for, and what follows."""
_INTERVAL = 0.05
_LOOKS = 4
"""Memory is read each time; which processes there are, every fourth time."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one command; seconds and bytes."""

    status: int
    wall: float
    client_cpu: float
    server_cpu: dict[str, float]
    peak_tree: int
    """Most memory of all processes together."""
    peak_process: int
    """Most memory of any one process."""
    output: str
    """The last lines of what it wrote."""


def measure(
    argv: Sequence[str], *, environment: Mapping[str, str], servers: Mapping[str, int], log: Path
) -> Measurement:
    """Run the command to its end; ``servers`` are names and process ids of the servers' main processes."""
    before = {name: tree_cpu(pid) for name, pid in servers.items()}
    with log.open("wb") as sink:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        sampler = _Sampler(process.pid)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.finish()
    return Measurement(
        status=process.returncode,
        wall=wall,
        client_cpu=usage.ru_utime + usage.ru_stime,
        server_cpu={name: tree_cpu(pid) - before[name] for name, pid in servers.items()},
        peak_tree=sampler.tree,
        peak_process=sampler.process,
        output=log.read_text(errors="replace")[-2000:],
    )


class _Sampler(threading.Thread):
    """Looks at the memory of a tree of processes until told to stop."""

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.tree = 0
        self.process = 0
        self._root = root
        self._stop_sampling = threading.Event()

    def run(self) -> None:
        looks = 0
        pids: list[int] = []
        while True:
            if looks % _LOOKS == 0:
                pids = descendants(self._root)
            looks += 1
            sizes = [_resident(pid) for pid in pids]
            self.tree = max(self.tree, sum(sizes))
            self.process = max(self.process, *sizes, 0)
            if self._stop_sampling.wait(_INTERVAL):
                return

    def finish(self) -> None:
        self._stop_sampling.set()
        self.join()


def descendants(root: int) -> list[int]:
    """Return the process and everything below it that is there now."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - several times a second
        if name.isdigit() and (fields := _fields(int(name))):
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def tree_cpu(root: int) -> float:
    """Return the CPU seconds of a process, of its living descendants, and of those it has waited for."""
    return sum(_ticks(pid, _OWN) for pid in descendants(root)) / _TICKS


def cpu_below(root: int) -> float:
    """Return what `tree_cpu` does, without the process itself."""
    return sum(_ticks(pid, _WAITED_FOR if pid == root else _OWN) for pid in descendants(root)) / _TICKS


def _ticks(pid: int, first: int) -> int:
    return sum(map(int, _fields(pid)[first:_AFTER_CPU]))


def _fields(pid: int) -> list[str]:
    """Return the fields after the name in ``/proc/<pid>/stat``: state, parent, and so on; empty if it is gone."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _resident(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _read(path: str) -> str:
    try:
        with open(path) as file:  # noqa: PTH123 - many times a second
            return file.read()
    except OSError:
        return ""
