"""The advisory locks of the target under which one backfill, one tail, one writer of rows works at a time.

An advisory lock belongs to a session, and goes with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from migrator.connections.postgres import Connection
from migrator.errors import RefusedError
from migrator.pipeline.sessions import Sessions, waited_out
from migrator.values.identity import stable_hash64

TAIL_KEY = stable_hash64("*/migrator/tail")
HALF = 0xFFFF_FFFF
PATIENCE_MS = 3_000

LOCK_KEY = stable_hash64("*/migrator/backfill")
ROWS_KEY = stable_hash64("*/migrator/rows")
"""Of the lock under which rows are written: a backfill holds it throughout, the tail for each of its transactions."""


@contextmanager
def alone(sessions: Sessions) -> Iterator[None]:
    """Hold the lock that lets one backfill at a time write; raise ``RefusedError`` when another one holds it."""
    waited_out(sessions.settings, lambda: _lock_anew(sessions))
    try:
        yield
    finally:
        with suppress(psycopg.OperationalError):  # the connection is gone, and the locks with it
            sessions.target.execute("SELECT pg_advisory_unlock(%s), pg_advisory_unlock(%s)", (ROWS_KEY, LOCK_KEY))


def stay_alone(sessions: Sessions) -> None:
    """Connect anew and take the lock again if the target went away meanwhile, as it may while the workers wait."""
    try:
        sessions.target.execute("SELECT")
    except psycopg.OperationalError:
        sessions.target.close()
        sessions.open_target()
        _lock(sessions.target)


def _lock(target: Connection) -> None:
    row = target.execute("SELECT pg_try_advisory_lock(%s)", (LOCK_KEY,)).fetchone()
    if row != (True,):
        raise RefusedError("another backfill is writing to this target; wait for it, or end it")
    target.execute("SELECT pg_advisory_lock(%s)", (ROWS_KEY,))  # the tail's transaction ends in a moment


def _lock_anew(sessions: Sessions) -> None:
    if sessions.target.closed:
        sessions.open_target()
    _lock(sessions.target)


def take(target: Connection, patience_ms: int = PATIENCE_MS) -> None:
    """Take the lock for this session; raise ``RefusedError`` when another one holds it.

    It is waited for: the server may take a moment to see that a tail was killed.
    """
    try:
        with target.transaction():
            target.execute("SELECT set_config('lock_timeout', %s, true)", (str(patience_ms),))
            target.execute("SELECT pg_advisory_lock(%s)", (TAIL_KEY,))
    except psycopg.errors.LockNotAvailable:
        raise RefusedError("another tail follows the source into this target; end it first") from None


def held(target: Connection, key: int = TAIL_KEY) -> bool:
    """Tell whether a session of this database holds an advisory lock; that of a tail, if no other key is given."""
    row = target.execute(
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE locktype = 'advisory' AND granted AND datname = current_database()"
        " AND classid = %s::bigint::oid AND objid = %s::bigint::oid AND objsubid = 1)",
        ((key >> 32) & HALF, key & HALF),
    ).fetchone()
    return row == (True,)
