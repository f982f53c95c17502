"""The tool's advisory locks in the target: one process at a time copies, follows, cuts over or upgrades the schema.

A key is a 64-bit integer, made from a name by ``values.identity.stable_hash64``. A lock belongs to a session of the
server and ends with it, so a killed process holds none. The scheduler's locks are rows; their sessions
(``store.postgres.connections``) follow other rules.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from migrator.connections.postgres import Connection
from migrator.errors import RefusedError

_LOW_HALF = 0xFFFF_FFFF


@contextmanager
def advisory_lock(connection: Connection, key: int, *, busy: str | None = None) -> Iterator[None]:
    """Hold the lock while the body runs; waits and raises as ``take`` does."""
    take(connection, key, busy=busy)
    try:
        yield
    finally:
        release(connection, key)


def take(connection: Connection, key: int, *, busy: str | None = None, wait_ms: int = 0) -> None:
    """Take the lock for the session, until ``release`` or the end of the session.

    If ``busy`` is omitted, the wait is as long as the session's ``lock_timeout``, and the driver's ``LockNotAvailable``
    is raised at its end. Otherwise the wait is ``wait_ms`` milliseconds at most (0: no wait), and ``RefusedError`` is
    raised with the text ``busy``. A session that takes a lock twice must release it twice.
    """
    if busy is None:
        connection.execute("SELECT pg_advisory_lock(%s)", (key,))
    elif not (_take_within(connection, key, wait_ms) if wait_ms else _take_now(connection, key)):
        raise RefusedError(busy)


def release(connection: Connection, key: int) -> None:
    """Release the lock; a connection that is gone has released it already."""
    with suppress(psycopg.Error):
        connection.execute("SELECT pg_advisory_unlock(%s)", (key,))


def take_in_transaction(connection: Connection, key: int) -> None:
    """Take the lock until the transaction ends, waiting as long as the session's ``lock_timeout``."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (key,))


def try_in_transaction(connection: Connection, key: int, *, shared: bool = False) -> bool:
    """Take the lock until the transaction ends; return false, at once, if another session holds it.

    ``shared``: together with other sessions that share it. It is not taken while a session waits to hold it alone.
    """
    statement = "SELECT pg_try_advisory_xact_lock_shared(%s)" if shared else "SELECT pg_try_advisory_xact_lock(%s)"
    return connection.execute(statement, (key,)).fetchone() == (True,)


def is_held(connection: Connection, key: int, *, by: int | None = None) -> bool:
    """Whether a session of this database holds the lock; ``by``: the session of this process id of the server."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database"
        " WHERE locktype = 'advisory' AND granted AND datname = current_database()"
        " AND classid = %s::bigint::oid AND objid = %s::bigint::oid AND objsubid = 1 AND pid = coalesce(%s, pid))",
        ((key >> 32) & _LOW_HALF, key & _LOW_HALF, by),
    ).fetchone()
    return row == (True,)


def held_keys(connection: Connection) -> set[int]:
    """Return the keys that sessions of the server hold, in whichever database."""
    rows = connection.execute(
        "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks"
        " WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    )
    return {row[0] for row in rows}


def _take_now(connection: Connection, key: int) -> bool:
    return connection.execute("SELECT pg_try_advisory_lock(%s)", (key,)).fetchone() == (True,)


def _take_within(connection: Connection, key: int, wait_ms: int) -> bool:
    try:
        with connection.transaction():
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (str(wait_ms),))
            connection.execute("SELECT pg_advisory_lock(%s)", (key,))
    except psycopg.errors.LockNotAvailable:
        return False
    return True
