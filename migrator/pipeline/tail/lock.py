"""The lock that lets one tail at a time follow into a target; it belongs to a session, and goes with it."""

import psycopg

from migrator.errors import RefusedError
from migrator.store.postgres.connection import Connection
from migrator.values.identity import stable_hash64

TAIL_KEY = stable_hash64("*/migrator/tail")
HALF = 0xFFFF_FFFF
PATIENCE_MS = 3_000


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
