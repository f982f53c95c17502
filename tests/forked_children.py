"""Child processes that begin with their modules loaded: Python's server of forks, in place of an interpreter for each.

Like a process that is spawned, one that the server forks has none of the threads and connections of its parent.
"""

import multiprocessing
import os
from multiprocessing.context import BaseContext
from typing import Final

CONTEXT: Final = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "migrator.store.postgres.store",
        "migrator.verify.behaviour.locking",
        "migrator.verify.load_processes",
        "tests.store_postgres",
    ]
)
_environment: dict[str, str] = {}


class ForkedProcesses:
    """In place of ``multiprocessing`` in the verification, some of whose checks start processes of their own."""

    @staticmethod
    def get_context(method: str) -> BaseContext:
        """Return the context of forks; that of the method where the environment is not what it was at first.

        What the server forks has the environment in which the server began.
        """
        now = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        if not _environment:
            _environment.update(now)
        return CONTEXT if now == _environment else multiprocessing.get_context(method)
