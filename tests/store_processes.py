"""Processes of their own that use a PostgreSQL store, for tests of what only shows between processes."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from migrator.store.postgres.store import PostgresStore
from tests.forked_children import CONTEXT
from tests.store_postgres import opened

Work = Callable[..., Any]
"""Called in the child with its store, the pipe to the parent, and what was given; its result is the last message."""


class Child:
    """A process with a store of its own."""

    def __init__(self, work: Work, dsn: str, given: tuple[Any, ...]) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_run, args=(work, dsn, theirs, given), daemon=True)
        self.process.start()
        theirs.close()

    def hears(self) -> Any:  # noqa: ANN401 - whatever the child sends
        """Return the child's next message."""
        return self.pipe.recv()

    def go(self) -> None:
        """Let the child go on, where it waits for that."""
        self.pipe.send(None)

    def signal(self, number: signal.Signals) -> None:
        pid = self.process.pid
        assert pid is not None
        os.kill(pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _run(work: Work, dsn: str, pipe: Connection, given: tuple[Any, ...]) -> None:
    with opened(dsn, pool_size=2) as store:
        pipe.send(work(store, pipe, *given))


@contextmanager
def children(count: int, work: Work, dsn: str, *given: Any) -> Iterator[list[Child]]:  # noqa: ANN401 - as the work takes
    """Start processes, and end whichever are left."""
    born: list[Child] = []
    try:
        born.extend(Child(work, dsn, (number, *given)) for number in range(count))
        yield born
    finally:
        for child in born:
            child.end()


__all__ = ["Child", "PostgresStore", "children"]
