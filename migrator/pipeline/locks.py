"""The advisory locks of the target under which one backfill, one tail, one writer of rows works at a time.

An advisory lock belongs to a session, and goes with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from migrator.connections.postgres import Connection
from migrator.errors import RefusedError
from migrator.pipeline.sessions import Sessions, retry_transient
from migrator.values.identity import stable_hash64

TAIL_KEY = stable_hash64("*/migrator/tail")
_LOW_HALF = 0xFFFF_FFFF
TAIL_WAIT_MS = 3_000

BACKFILL_KEY = stable_hash64("*/migrator/backfill")
ROWS_KEY = stable_hash64("*/migrator/rows")
"""Of the lock under which rows are written: a backfill holds it throughout, the tail for each of its transactions."""


@contextmanager
def backfill_lock(sessions: Sessions) -> Iterator[None]:
    """Hold the lock that lets one backfill at a time write; raise ``RefusedError`` when another one holds it."""
    retry_transient(sessions.settings, lambda: _reconnect_and_lock(sessions))
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError):  # the connection is gone, and the locks with it
            sessions.target.execute("SELECT pg_advisory_unlock(%s), pg_advisory_unlock(%s)", (ROWS_KEY, BACKFILL_KEY))


def keep_backfill_lock(sessions: Sessions) -> None:
    """Connect anew and take the lock again if the target went away meanwhile, as it may while the workers wait."""
    try:
        sessions.target.execute("SELECT")
    except psycopg.OperationalError:
        sessions.target.close()
        sessions.open_target()
        _take_backfill_lock(sessions.target)


def _take_backfill_lock(target: Connection) -> None:
    row = target.execute("SELECT pg_try_advisory_lock(%s)", (BACKFILL_KEY,)).fetchone()
    if row != (True,):
        raise RefusedError("another backfill is writing to this target; wait for it, or end it")
    target.execute("SELECT pg_advisory_lock(%s)", (ROWS_KEY,))  # the tail's transaction ends in a moment


def _reconnect_and_lock(sessions: Sessions) -> None:
    if sessions.target.closed:
        sessions.open_target()
    _take_backfill_lock(sessions.target)


def take_tail_lock(target: Connection, patience_ms: int = TAIL_WAIT_MS) -> None:
    """Take the lock for this session; raise ``RefusedError`` when another one holds it.

    It is waited for: the server may take a moment to see that a tail was killed.
    """
    try:
        with target.transaction():
            target.execute("SELECT set_config('lock_timeout', %s, true)", (str(patience_ms),))
            target.execute("SELECT pg_advisory_lock(%s)", (TAIL_KEY,))
    except psycopg.errors.LockNotAvailable:
        raise RefusedError("another tail follows the source into this target; end it first") from None


def is_held(target: Connection, key: int = TAIL_KEY) -> bool:
    """Tell whether a session of this database holds an advisory lock; that of a tail, if no other key is given."""
    row = target.execute(
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE locktype = 'advisory' AND granted AND datname = current_database()"
        " AND classid = %s::bigint::oid AND objid = %s::bigint::oid AND objsubid = 1)",
        ((key >> 32) & _LOW_HALF, key & _LOW_HALF),
    ).fetchone()
    return row == (True,)
