"""The libraries whose documents a rollback writes: they load what was written, and run what is due.

Agenda is installed by npm from the lock files beside it, once for each state of them, and Python libraries by pip, each
into an environment of its own; celerybeat-mongo is in
``requirements.lock``. A test that needs what cannot be had here says so, and is not run.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from migrator.targets.library import LIBRARIES, Interpreter

ROOT = Path(__file__).resolve().parents[1]
LOCKS = Path(__file__).parent / "fixtures_data" / "libraries"
INSTALLED = ROOT / ".libraries"
SECONDS = 300
"""For an installation, and for a library to load and run its documents."""


class Loaded(msgspec.Struct, frozen=True):
    """What a library makes of a document."""

    fires: tuple[tuple[datetime, ...], ...] | None
    """The next fires after each instant that was asked for; None for a document without a rule that recurs."""
    next: datetime | None
    """The next run that the document states."""
    ran: bool
    """Whether the library ran it, with its time come."""
    refused: str = ""
    """Why the library would not save it."""


def load(library: str, uri: str, database: str, collection: str, instants: Sequence[datetime]) -> dict[str, Loaded]:
    """Return ``_id`` → what the library makes of each document; fails if it cannot load one of them."""
    if library == "celerybeat":
        command = [sys.executable, "-m", "tests.load_celerybeat", uri, database]
        zone = "Europe/Vienna"
        if importlib.util.find_spec("celerybeatmongo") is None:
            pytest.skip("not run: celerybeat-mongo is not installed, call make")
    else:
        address = uri.replace("/?", f"/{database}?")
        command = ["node", str(LOCKS / "load-agenda.js"), str(packages(library)), address, collection]
        zone = "UTC"
    done = subprocess.run(
        command,
        input=json.dumps([one.isoformat() for one in instants]),
        env={**os.environ, "TZ": zone},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{library} cannot load its documents:\n{done.stderr[-4000:]}"
    return msgspec.json.decode(done.stdout, type=dict[str, Loaded])


def packages(library: str) -> Path:
    """Return the folder with the packages of a lock file, installed if they are not yet."""
    for program, package in (("node", "nodejs"), ("npm", "npm")):
        if shutil.which(program) is None:
            pytest.skip(f"not run: {program} is not installed (Debian: apt install {package})")
    lock = LOCKS / library
    digest = hashlib.sha256((lock / "package-lock.json").read_bytes()).hexdigest()
    folder = INSTALLED / f"{library}-{digest[:12]}"
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / f"{library}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(lock / name, folder)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
                answer = "" if done.returncode == 0 else done.stderr
            except subprocess.TimeoutExpired:
                answer = f"no answer for {SECONDS} s"
            if answer:
                pytest.skip(f"not run: npm cannot install the packages of {lock}: {answer.strip()[-300:]}")
            (folder / "complete").touch()
    return folder


def interpreter(name: str) -> Path:
    """Return the Python of an environment with the packages of a lock file, made if it does not exist yet.

    Libraries whose versions exclude each other have an environment each.
    """
    lock = LOCKS / f"{name}.lock"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()
    folder = INSTALLED / f"{name}-{digest[:12]}"
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            # pip of this environment: one in each is installed, and its modules compiled, for nothing. What is imported
            # is compiled then.
            pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--no-compile"]
            install = [*pip, "--quiet", "--require-hashes", "--requirement", str(lock)]
            try:
                venv.create(folder)
                done = subprocess.run(install, capture_output=True, text=True, timeout=SECONDS, check=False)
                answer = "" if done.returncode == 0 else done.stderr
            except (subprocess.SubprocessError, OSError) as error:
                answer = str(error)
            if answer:
                pytest.skip(f"not run: pip cannot install the packages of {lock}: {answer.strip()[-300:]}")
            (folder / "complete").touch()
    return folder / "bin" / "python"


def compile_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Java start the compiled probe of Quartz: compiling it takes most of the time of each start.

    A test that does not call this starts it as the product does, from its source.
    """
    require_java()
    command = Interpreter.command
    ordinary = command(Interpreter(), "quartz")
    source, jars = Path(ordinary[-1]), ordinary[ordinary.index("-cp") + 1]
    version = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    digest = hashlib.sha256(source.read_bytes() + version).hexdigest()
    folder = INSTALLED / f"quartz-probe-{digest[:12]}"
    INSTALLED.mkdir(exist_ok=True)
    with (INSTALLED / "quartz-probe.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            subprocess.run(["javac", "-proc:none", "-d", folder, "-cp", jars, source], check=True, timeout=SECONDS)
            (folder / "complete").touch()
    compiled = [*ordinary[: ordinary.index("-cp")], "-cp", f"{folder}:{jars}", source.stem]

    def started(self: Interpreter, target: str) -> list[str]:
        asked = command(self, target)
        return compiled if asked == ordinary else asked

    monkeypatch.setattr(Interpreter, "command", started)


def require_java() -> None:
    """Say that a test was not run where Debian's packages of Quartz are not installed."""
    missing = [jar for jar in LIBRARIES["quartz"].jars if not Path(f"/usr/share/java/{jar}.jar").exists()]
    if missing or shutil.which("java") is None:
        pytest.skip("not run: Quartz is not installed (Debian: apt install libquartz2-java libpostgresql-jdbc-java)")
