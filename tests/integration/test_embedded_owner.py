"""Servers die with the process that started them, however it ends; run as root and as an ordinary user."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import migrator
from migrator.testing.servers.directory import Account, PrivateDirectory, may_enter, unprivileged

DEADLINE = 60_000  # milliseconds

# Starts both servers, tells all about them, does what it is told, then waits to be killed.
OWNER = """
import json, os, signal, sys
from pathlib import Path
from migrator.testing.servers.mongo import MongoServer
from migrator.testing.servers.postgres import PostgresServer

def tell(server):
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    guardian = server._process._guardian.pid
    uid = os.stat(f"/proc/{server.pid}").st_uid
    return {"pid": server.pid, "guardian": guardian, "children": [*map(int, children)], "uid": uid,
            "directory": str(server._directory.path), "name": server.name}

servers = [MongoServer(fast=True, cache_gb=0.25), PostgresServer(fast=True)]
print(json.dumps([tell(server) for server in servers]), flush=True)
for line in sys.stdin:
    if line == "stop\\n":
        for server in servers:
            server.stop()
    child = os.fork() if line == "fork\\n" else None
    if child == 0:
        signal.pause()
    if line == "leave\\n":
        sys.exit()
    print(child or "done", flush=True)
"""


@dataclass
class Owner:
    """A process that has started servers."""

    process: subprocess.Popen[str]
    servers: list[dict[str, Any]]

    def tell(self, word: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def pids(self) -> list[int]:
        return [pid for server in self.servers for pid in (server["pid"], server["guardian"], *server["children"])]

    @property
    def directories(self) -> list[Path]:
        return [Path(server["directory"]) for server in self.servers]


class Vigil:
    """Waits for the end of processes that are not ours, which only works when begun while they are there."""

    def __init__(self, pids: list[int]) -> None:
        self._handles = {os.pidfd_open(pid): pid for pid in pids}

    def survivors(self) -> list[int]:
        poll = select.poll()
        left = dict(self._handles)
        for handle in left:
            poll.register(handle, select.POLLIN)
        while left and (ended := poll.poll(DEADLINE)):
            for handle, _ in ended:
                poll.unregister(handle)
                del left[handle]
        for handle in self._handles:
            os.close(handle)
        return list(left.values())


@dataclass
class Python:
    """An interpreter with this project, for a certain user."""

    program: Path
    path: str
    account: Account | None
    libraries: str = ""

    @contextlib.contextmanager
    def owner(self, temporary: Path) -> Iterator[Owner]:
        user = {"user": self.account.uid, "group": self.account.gid, "extra_groups": []} if self.account else {}
        process = subprocess.Popen(
            [self.program, "-c", OWNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={
                "LD_LIBRARY_PATH": self.libraries,
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": self.path,
                "TMPDIR": str(temporary),
            },
            **user,  # type: ignore[call-overload]  # one dictionary for three parameters
        )
        with process:
            assert process.stdout
            owner = Owner(process, json.loads(process.stdout.readline()))
            guardians = Vigil([server["guardian"] for server in owner.servers])
            try:
                yield owner
            finally:
                process.kill()
                guardians.survivors()  # they remove what the test's own clearing up would stumble over


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Every user may make directories in here, as in /tmp."""
    path = Path(tempfile.mkdtemp(prefix="test-embedded-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


def _as_this_user() -> Python:
    checkout = Path(migrator.__file__).parents[1]
    return Python(Path(sys.executable), str(checkout), None, os.environ.get("LD_LIBRARY_PATH", ""))


def _for_others(account: Account, folder: Path) -> Python:
    """Return an interpreter that the account may run: this one where it can be reached, else a copy of its parts."""
    base, stdlib = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    site, checkout = Path(sysconfig.get_path("purelib")), Path(migrator.__file__).parents[1]
    real = Path(os.path.realpath(sys.executable))
    program = real
    if not may_enter(account, real.parent):
        program = folder / "bin" / real.name
        program.parent.mkdir()
        shutil.copy2(real, program)
        leave = shutil.ignore_patterns("site-packages", "test", "__pycache__", "config-*", "idlelib", "ensurepip")
        shutil.copytree(stdlib, folder / stdlib.relative_to(base), ignore=leave)
        for library in (base / "lib").glob("libpython*.so*"):
            shutil.copy2(library, folder / "lib", follow_symlinks=False)
    if not may_enter(account, site):
        shutil.copytree(site, folder / "site", ignore=shutil.ignore_patterns("__pycache__"))
        site = folder / "site"
    if not may_enter(account, checkout):
        shutil.copytree(checkout / "migrator", folder / "checkout" / "migrator")
        checkout = folder / "checkout"
    return Python(program, f"{checkout}:{site}", account, str(folder / "lib"))


@pytest.fixture(scope="module", params=["this user", "an ordinary user"] if os.geteuid() == 0 else ["this user"])
def python(request: pytest.FixtureRequest) -> Iterator[Python]:
    """An interpreter of this user, and one of an ordinary user when this one is root."""
    account = unprivileged() if request.param == "an ordinary user" else None
    if account is None:
        yield _as_this_user()
        return
    with tempfile.TemporaryDirectory(prefix="test-python-") as folder:
        Path(folder).chmod(0o755)
        yield _for_others(account, Path(folder))


def test_servers_and_directories_go_when_the_owner_is_killed(python: Python, temporary: Path) -> None:
    with python.owner(temporary) as owner:
        ordinary = {server["uid"] for server in owner.servers}
        assert 0 not in ordinary
        assert all(path.parent == temporary and path.exists() for path in owner.directories)
        vigil = Vigil(owner.pids)
        owner.kill()
        assert vigil.survivors() == []
        assert [path for path in owner.directories if path.exists()] == []


def test_servers_go_when_the_owner_just_leaves(python: Python, temporary: Path) -> None:
    with python.owner(temporary) as owner:
        vigil = Vigil(owner.pids)
        owner.tell("leave")
        assert vigil.survivors() == []
        assert list(temporary.iterdir()) == []


def test_servers_go_when_owner_and_guardians_are_killed_together(python: Python, temporary: Path) -> None:
    with python.owner(temporary) as owner:
        vigil = Vigil(owner.pids)
        for server in owner.servers:
            os.kill(server["guardian"], signal.SIGKILL)
        owner.kill()
        assert vigil.survivors() == []


def test_servers_go_though_a_forked_child_of_the_owner_lives_on(python: Python, temporary: Path) -> None:
    with python.owner(temporary) as owner:
        child = int(owner.tell("fork"))
        vigil = Vigil(owner.pids)
        owner.kill()
        assert vigil.survivors() == []
        assert Path(f"/proc/{child}").exists()
        os.kill(child, signal.SIGKILL)


def test_what_a_killed_owner_leaves_behind_goes_on_the_next_start(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    python = _as_this_user()
    with python.owner(temporary) as running, python.owner(temporary) as owner:
        owner.tell("stop")  # no guardian is left to clear up
        owner.kill()
        assert all(path.exists() for path in owner.directories)
        PrivateDirectory.create(unprivileged()).remove()
        assert [path for path in owner.directories if path.exists()] == []
        assert all(path.exists() for path in running.directories)
