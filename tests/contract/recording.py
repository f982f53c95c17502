"""A plugin of pytest: of each test of this suite, one case on the newest PostgreSQL, and the methods that it calls.

``python -m pytest -p tests.contract.recording`` with ``RECORD_CALLS_INTO`` naming the file to write. A call counts if a
module of this suite makes it in a test that passes; a call that the store makes itself does not count. A session's
repositories are recorded as ``runs.list``, what crosses tenants as ``queue.claim``.
"""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.store.postgres.locks import PostgresLocks
from migrator.store.postgres.queue import PostgresQueue
from migrator.store.postgres.store import PostgresSession
from migrator.store.postgres.workers import PostgresWorkers
from migrator.store.protocols import Session
from migrator.testing.servers import binaries

HERE = Path(__file__).parent
NEWEST = f"pg{binaries.postgres_versions()[0]}"
REPOSITORIES = sorted(
    name for name, member in vars(Session).items() if isinstance(member, property) and name not in {"tenant", "now"}
)
ACROSS: dict[str, type] = {"queue": PostgresQueue, "workers": PostgresWorkers, "locks": PostgresLocks}


def public(part: type) -> set[str]:
    """Return the names of the methods that a class has for others."""
    return {name for name in dir(part) if not name.startswith("_") and callable(getattr(part, name))}


class Recorder:
    """Keeps the calls of the test that runs, and those of the tests that passed."""

    def __init__(self) -> None:
        self.now: set[str] = set()
        self.passed: set[str] = set()
        self.wrapped: set[type] = set()

    def wrap(self, name: str, part: type) -> None:
        """Record every public method of a class from now on."""
        if part not in self.wrapped:
            self.wrapped.add(part)
            for method in public(part):
                setattr(part, method, self._recorded(f"{name}.{method}", getattr(part, method)))

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method's
            if Path(sys._getframe(1).f_code.co_filename).parent == HERE:
                self.now.add(name)
            return method(*args, **kwargs)

        return call


RECORDER = Recorder()


def pytest_configure() -> None:
    """Wrap what crosses tenants at once, and a repository when a session first hands it out."""
    for name, part in ACROSS.items():
        RECORDER.wrap(name, part)
    begin = PostgresSession.__init__

    @functools.wraps(begin)
    def begin_recorded(session: PostgresSession, *args: Any) -> None:  # noqa: ANN401 - as the session's
        begin(session, *args)
        for name in REPOSITORIES:
            RECORDER.wrap(name, type(getattr(session, name)))

    PostgresSession.__init__ = begin_recorded  # type: ignore[assignment, method-assign] # recorded from now on


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the first case of each test on the newest PostgreSQL."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        if NEWEST in item.nodeid.partition("[")[2].rstrip("]").split("-"):
            first.setdefault(item.nodeid.partition("[")[0], item)
    items[:] = first.values()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Iterator[None]:
    """Count what was called in a test that passed."""
    if call.when == "call" and call.excinfo is None:
        RECORDER.passed |= RECORDER.now
    RECORDER.now.clear()
    return (yield)


def pytest_sessionfinish() -> None:
    """Write down what the tests called."""
    Path(os.environ["RECORD_CALLS_INTO"]).write_text(json.dumps(sorted(RECORDER.passed)), encoding="utf-8")
