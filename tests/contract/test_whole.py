"""The suite leaves no method of a repository out, and no backend has one less."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from migrator.store.locks import Locks
from migrator.store.protocols import Session, SessionStore, Store
from migrator.store.queue import Queue
from migrator.store.workers import Workers
from tests.contract.rows import NOW

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def methods() -> Iterator[tuple[str, str]]:
    for name, member in vars(Session).items():
        if isinstance(member, property) and name not in {"tenant", "now"}:
            protocol = get_type_hints(member.fget)["return"]
            yield from ((name, method) for method in vars(protocol) if not method.startswith("_"))


ALL = sorted(methods())
ACROSS = {"queue": Queue, "workers": Workers, "locks": Locks}
PARTS = sorted((part, method) for part, port in ACROSS.items() for method in vars(port) if not method.startswith("_"))


@pytest.mark.slow
@pytest.mark.proves("0-T2.3.4", "0-T2.4.4", "0-T2.5.3", "0-T2.6.3", "0-T2.7.3", "0-T2.9.4")
def test_tests_that_pass_on_postgresql_call_every_method(tmp_path: Path) -> None:
    """What ``recording`` sees the tests themselves call, each on a real server; one run, so that one test asks."""
    written = tmp_path / "calls.json"
    plugins = ["-p", "tests.contract.recording", "-p", "no:xdist", "-p", "no:cacheprovider"]
    files = [str(path) for path in sorted(HERE.glob("test_*.py")) if path.name != Path(__file__).name]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-q", *files],
        cwd=ROOT,
        env=os.environ | {"RECORD_CALLS_INTO": str(written)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert {f"{part}.{method}" for part, method in (*ALL, *PARTS)} - {*json.loads(written.read_text())} == set()


@pytest.mark.parametrize(("repository", "method"), ALL)
def test_every_method_is_there(repository: str, method: str, store: SessionStore, tenant: str) -> None:
    with store.session(tenant, now=NOW) as session:
        found = getattr(getattr(session, repository), method)
    protocol = get_type_hints(vars(Session)[repository].fget)["return"]
    assert (
        list(inspect.signature(found).parameters) == list(inspect.signature(getattr(protocol, method)).parameters)[1:]
    )


def test_the_methods_are_looked_up_in_the_ports() -> None:
    assert len({repository for repository, _ in ALL}) == 11
    assert ("runs", "list") in ALL


@pytest.mark.parametrize(("part", "method"), PARTS)
def test_every_method_across_tenants_is_there(part: str, method: str, at_work: Store) -> None:
    found, port = getattr(getattr(at_work, part), method), getattr(ACROSS[part], method)
    assert list(inspect.signature(found).parameters) == list(inspect.signature(port).parameters)[1:]


def test_the_other_half_is_looked_up_too() -> None:
    assert ("queue", "fire_due") in PARTS
    assert len(PARTS) == 17
