"""Sessions that hold locks on the target's tables: what to report when a lock was not obtained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import msgspec
import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from migrator.errors import LockedError

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

SCHEMAS: Final = ("scheduler", "migration")
STRONG: Final = ("ShareLock", "ShareRowExclusiveLock", "ExclusiveLock", "AccessExclusiveLock")
"""Modes that keep a session from writing rows."""
MOST: Final = 5

_HOLDERS = """
SELECT pg_locks.pid, usename, application_name, state, extract(epoch FROM clock_timestamp() - xact_start)::int,
    string_agg(DISTINCT nspname || '.' || relname || ' (' || mode || ')', ', ')
FROM pg_locks
JOIN pg_class ON pg_class.oid = relation
JOIN pg_namespace ON pg_namespace.oid = relnamespace
LEFT JOIN pg_stat_activity ON pg_stat_activity.pid = pg_locks.pid
WHERE locktype = 'relation' AND granted AND relkind IN ('r', 'p') AND nspname = ANY(%s)
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND pg_locks.pid IS DISTINCT FROM pg_backend_pid() AND (%s OR mode = ANY(%s))
GROUP BY 1, 2, 3, 4, 5
ORDER BY max(array_position(%s, mode)) DESC NULLS LAST, 5 DESC NULLS LAST
LIMIT %s
"""


class LockHolder(msgspec.Struct, frozen=True):
    """A session that holds locks on tables of the target."""

    pid: int | None
    """None for a prepared transaction."""
    user: str | None
    application: str | None
    """None if the tool's user may not see it."""
    state: str | None
    seconds: int | None
    """Seconds since its transaction began."""
    tables: str
    """Tables, each with the mode."""

    def words(self) -> str:
        """Describe the session, and what it holds."""
        if self.pid is None:
            return f"a prepared transaction (pg_prepared_xacts) holds {self.tables}"
        facts = [
            f"user {self.user}" if self.user else "",
            f"application {self.application}" if self.application else "",
        ]
        facts += [self.state or "", f"for {self.seconds} s" if self.seconds is not None else ""]
        return f"process {self.pid} ({', '.join(filter(None, facts))}) holds {self.tables}"


def lock_holders(connection: Connection, *, weak: bool) -> list[LockHolder]:
    """Return the holders of locks on tables, the strongest first, at most ``MOST``; ``weak``: also those of readers."""
    with connection.transaction():
        connection.execute(
            "SET LOCAL ROLE NONE"
        )  # the user of the DSN may see more of its other sessions than the role
        cursor = psycopg.ClientCursor(connection)  # the connection's own may take other placeholders
        rows = cursor.execute(_HOLDERS, ([*SCHEMAS], weak, [*STRONG], [*STRONG], MOST)).fetchall()
    return [LockHolder(*row) for row in rows]


def describe_holders(connection: Connection, *, weak: bool = False) -> str:
    """Return the sentence for a lock that was not obtained; it names the holder, if that is visible."""
    try:
        holders = lock_holders(connection, weak=weak) or lock_holders(connection, weak=True)
    except psycopg.Error:
        holders = []
    named = "; ".join(one.words() for one in holders) or "its holder has gone, or holds a row or a lock of the tool"
    return f"the target: a lock on a table was not granted in time: {named}"


@contextmanager
def holders_named(connection: Connection) -> Iterator[None]:
    """Name the session for which a statement of this one waited in vain; raises ``LockedError``.

    What the connection's transaction has done is rolled back then.
    """
    try:
        yield
    except errors.LockNotAvailable as error:
        if connection.info.transaction_status != TransactionStatus.IDLE:
            connection.rollback()
        raise LockedError(describe_holders(connection)) from error
