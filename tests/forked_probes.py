"""Probes of libraries that begin with the library loaded: it takes most of what a question to a library costs.

Probes that a command starts, and those of a program that the tests did not install, are started as the product does.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from migrator.config import Settings
from migrator.targets.library import PROBES
from tests.fork_server import ForkedProcess, ForkServer, of_the_interpreter
from tests.real_libraries import INSTALLED

ROOT: Final = Path(__file__).resolve().parents[1]
ARGUMENTS: Final = ["-I", str(PROBES / "__main__.py")]
SERVED: Final = ["-I", str(ROOT / "tests" / "probe_server.py")]
BEGINNING: Final = "import sys\nsys.path.append({!r})\n"
END: Final = "from probes import dialogue\nsys.exit(dialogue.main())\n"
ZONE: Final = {"TZ": "UTC"}
"""In which the product starts each probe."""
AT_FIRST: Final = of_the_interpreter({**os.environ, **ZONE})


class ForkedProbes:
    """In place of ``subprocess`` in ``migrator.targets.library``."""

    PIPE: Final = subprocess.PIPE

    @staticmethod
    def Popen(command: list[str], *, env: dict[str, str], **members: Any) -> subprocess.Popen[bytes]:  # noqa: N802, ANN401 - as the class that it replaces
        """Start a probe, forked if it is one in Python and begins in the environment in which its server began."""
        served = _served(command) if of_the_interpreter(env) == AT_FIRST else None
        if served is None:
            return subprocess.Popen(command, env=env, **members)
        return _Probe(served, env=env, **members)


def altered(settings: Settings, script: str, folder: Path) -> Settings:
    """Return settings whose library is executed by a probe that is changed; its files are written into the folder.

    ``script``: imports from ``probes``, and changes what it has imported.
    """
    python = settings.target.interpreter or sys.executable
    program, path = folder / "python", folder / "altered.py"
    path.write_text(BEGINNING.format(str(PROBES.parent)) + script + END, encoding="utf-8")
    program.write_text(f"#!/bin/sh\nexec {python} -I {path}\n", encoding="utf-8")
    program.chmod(0o700)
    _altered[str(program)] = [python, str(path)]
    return replace(settings, target=replace(settings.target, interpreter=str(program)))


_altered: dict[str, list[str]] = {}
"""Program of a changed probe → its interpreter and its script."""


def _served(command: list[str]) -> list[str] | None:
    """Return the interpreter and the script of a probe that a server can fork."""
    program, *arguments = command
    if arguments != ARGUMENTS:
        return None
    if program == sys.executable or Path(program).is_relative_to(INSTALLED):
        return [program, ARGUMENTS[1]]
    return _altered.get(program)


class _Probe(ForkedProcess[bytes]):
    def _asked(self, command: list[str]) -> tuple[ForkServer, list[str]]:
        program, script = command
        if program not in _servers:
            _servers[program] = ForkServer([program, *SERVED], environment={**os.environ, **ZONE}, folder=ROOT)
        return _servers[program], [script]


_servers: dict[str, ForkServer] = {}
"""By interpreter, those that were started."""


def close() -> None:
    """End the servers that were started."""
    while _servers:
        _servers.popitem()[1].close()
