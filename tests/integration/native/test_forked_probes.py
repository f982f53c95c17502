"""Probes that the tests fork (`tests.forked_probes`) do what those do that the product starts."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.config import Settings, TargetSettings
from migrator.targets import library
from migrator.targets.library import LIBRARIES, LibraryError, Line, PostgresStore
from tests.fork_server import ForkedProcess
from tests.forked_probes import ARGUMENTS, ForkedProbes, altered
from tests.native_tables import MADE, Made, ask, prepare

IN_PYTHON = [made for made in MADE if LIBRARIES[made.target].program == "python"]
STARTED: dict[str, Callable[..., subprocess.Popen[bytes]]] = {
    "forked": ForkedProbes.Popen,
    "started": subprocess.Popen,
}
each_way = pytest.mark.parametrize("way", STARTED)


def answers(made: Made, dsn: str) -> list[Line | str]:
    """Return what the library says of its tables, and why it does not work on those of an application."""
    store = PostgresStore(dsn, made.schema)
    with pytest.raises(LibraryError) as refused:
        ask(made, store, "work")
    return [*ask(made, store, "entries"), str(refused.value)]


@pytest.mark.parametrize("made", [pytest.param(made, id=made.name) for made in IN_PYTHON])
def test_a_library_says_the_same_in_a_process_that_is_forked(
    made: Made, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(made, postgres_dsn)
    forked = answers(made, postgres_dsn)
    monkeypatch.setattr(library, "subprocess", subprocess)
    assert forked == answers(made, postgres_dsn)


@contextmanager
def probe(way: str, script: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Lend a process that executes a script in the place of a probe, started as the product starts one."""
    program = altered(Settings(target=TargetSettings(name="apscheduler")), script, folder).target.interpreter
    streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    environment = {**os.environ, "TZ": "UTC", "OF_THIS_PROCESS": "its own"}
    with STARTED[way]([str(program), *ARGUMENTS], env=environment, start_new_session=True, **streams) as process:
        assert isinstance(process, ForkedProcess) is (way == "forked")
        try:
            yield process
        finally:
            process.kill()


TELLING = """
import os, time
print(os.getpid(), os.getpgid(0), os.getsid(0), os.environ["OF_THIS_PROCESS"], time.tzname[0], sys.flags.isolated)
print(os.getcwd(), sys.stdin.read(), sys.executable, flush=True)
"""


@each_way
def test_a_probe_is_a_process_of_its_own(way: str, tmp_path: Path) -> None:
    with probe(way, TELLING + "sys.exit(3)\n", tmp_path) as process:
        out, _ = process.communicate(b"a request")
        number = process.pid
        own = f"{number} {number} {number} its own UTC 1\n{Path.cwd()} a request {sys.executable}\n"
        assert (out.decode(), process.returncode) == (own, 3)


@each_way
def test_a_probe_that_fails_says_so_as_the_interpreter_does(way: str, tmp_path: Path) -> None:
    with probe(way, "raise ValueError('broken')\n", tmp_path) as process:
        _, told = process.communicate()
        assert told.decode().splitlines()[-1] == "ValueError: broken"
        assert process.returncode == 1


@each_way
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGALRM])
def test_a_probe_ends_by_a_signal(way: str, number: signal.Signals, tmp_path: Path) -> None:
    script = "import time\nprint('begun', flush=True)\ntime.sleep(600)\n"
    with probe(way, script, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert process.poll() is None
        os.killpg(process.pid, number)
        assert process.wait() == -number
