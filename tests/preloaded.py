"""Processes of ``migrator`` that begin with its modules loaded.

A command spends half a second of computing on loading modules. A server, one per session of tests, has loaded them, and
forks a process for each command: a real one, with its own environment, streams, session and exit status, which a test
may kill. Tests of the start itself start an interpreter. The smoke test of a cutover, which must not load MongoDB's
driver, has a server of its own.
"""

import importlib
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from migrator import cli
from tests import forked_workers
from tests.fork_server import ForkedProcess, ForkServer, of_the_interpreter, serve

SMOKE: Final = "migrator.cutover.smoke"
ON_MONGO: Final = "tests.mongo_process"
RENDERER: Final = "migrator.report.renderer"
MODULES: Final = {
    "migrator": (
        *(f"migrator.cli.{name}" for name, _ in cli.COMMANDS.values() if name != "demo"),
        "migrator.cli.metrics",
        "migrator.pipeline.chunk",
        RENDERER,
        "migrator.schema.revisions",
    ),
    ON_MONGO: (ON_MONGO,),
    SMOKE: (SMOKE, "migrator.store.postgres.store"),
}
"""By program: what its server loads."""
ROOT: Final = Path(__file__).resolve().parents[1]
COMMAND: Final = (sys.executable, "-m")


def piped(arguments: list[str], environment: dict[str, str], *, cwd: Path | None) -> subprocess.Popen[str]:
    """Start ``migrator`` with its output piped, in a session of its own."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return start("migrator", arguments, environment=environment, cwd=cwd, start_new_session=True, **streams)


def start(
    program: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    **members: Any,  # noqa: ANN401 - of Popen
) -> subprocess.Popen[str]:
    """Start a program of ``MODULES``, forked where its environment lets it; ``members``: those of ``Popen``."""
    variables = {**os.environ, **(environment or {})}
    kind: type[subprocess.Popen[str]] = _Process if _may_fork(variables) else subprocess.Popen
    return kind([*COMMAND, program, *arguments], env=variables, text=True, **members)


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


AT_FIRST: Final = of_the_interpreter(os.environ)


def _may_fork(variables: Mapping[str, str]) -> bool:
    """Whether an interpreter that began with these variables is the one that the server is."""
    return of_the_interpreter(variables) == AT_FIRST


class _Process(ForkedProcess[str]):
    """A process of a program of ``MODULES``."""

    def _asked(self, command: list[str]) -> tuple[ForkServer, list[str]]:
        program, *arguments = command[len(COMMAND) :]
        if program not in _servers:
            _servers[program] = ForkServer([*COMMAND, "tests.preloaded", program], folder=ROOT)
        return _servers[program], arguments


_servers: dict[str, ForkServer] = {}
"""By program, those that were started."""


def close() -> None:
    """End the servers that were started."""
    while _servers:
        _servers.popitem()[1].close()


def _become(program: str, arguments: list[str]) -> None:
    """Be the command of a request."""
    folder = str(Path.cwd())
    sys.path[:] = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    sys.argv = [program, *arguments]
    from migrator import fault_points  # noqa: PLC0415 - the server is told first where it belongs

    fault_points._listen = fault_points._listener()
    worker = forked_workers.begin(arguments)
    if worker is None:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        forked_workers.run(worker)


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
    for name in MODULES[program]:
        importlib.import_module(name)
    if program == "migrator":
        _load_templates()
    else:
        del sys.modules[program]  # it is run, not imported
    serve(int(descriptor), partial(_become, program))


if __name__ == "__main__":
    main()
