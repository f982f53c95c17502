"""The locks that admit one backfill, one tail and one writer of rows at a time (``connections.advisory_locks``)."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from migrator.connections import advisory_locks
from migrator.connections.postgres import Connection
from migrator.pipeline.sessions import Sessions, retry_transient
from migrator.values.identity import stable_hash64

TAIL_KEY = stable_hash64("*/migrator/tail")
TAIL_WAIT_MS = 3_000

BACKFILL_KEY = stable_hash64("*/migrator/backfill")
ROWS_KEY = stable_hash64("*/migrator/rows")
"""Key of the lock under which rows are written: a backfill holds it throughout, the tail in each of its transactions.
"""


@contextmanager
def backfill_lock(sessions: Sessions) -> Iterator[None]:
    """Hold the lock under which one backfill at a time writes; raise ``RefusedError`` if another one holds it.

    The body calls ``keep_backfill_lock`` after each wait, because the connection that holds it may have been replaced.
    """
    retry_transient(sessions.settings, lambda: _reconnect_and_lock(sessions))
    try:
        yield
    finally:
        for key in (ROWS_KEY, BACKFILL_KEY):
            advisory_locks.release(sessions.target, key)


def keep_backfill_lock(sessions: Sessions) -> None:
    """Connect again and take the lock again if the connection was lost, as may happen while the workers wait."""
    try:
        sessions.target.execute("SELECT")
    except psycopg.OperationalError:
        sessions.target.close()
        sessions.open_target()
        _take_backfill_lock(sessions.target)


def _take_backfill_lock(target: Connection) -> None:
    busy = "another backfill is writing to this target; wait for it, or end it"
    advisory_locks.take(target, BACKFILL_KEY, busy=busy)
    advisory_locks.take(target, ROWS_KEY)  # the tail's transaction ends soon


def _reconnect_and_lock(sessions: Sessions) -> None:
    if sessions.target.closed:
        sessions.open_target()
    _take_backfill_lock(sessions.target)


def take_tail_lock(target: Connection) -> None:
    """Take the lock for this session; raise ``RefusedError`` if another session holds it.

    It is waited for, because the server may take a moment to notice that a tail was killed.
    """
    busy = "another tail follows the source into this target; end it first"
    advisory_locks.take(target, TAIL_KEY, busy=busy, wait_ms=TAIL_WAIT_MS)


def is_tail_running(target: Connection) -> bool:
    """Return whether a tail of this target runs."""
    return advisory_locks.is_held(target, TAIL_KEY)
