"""The parallel run: a lock row that says that another scheduler runs the same jobs at the same time.

The row ``*/parallel`` of ``locks`` holds since when. It exists from ``cutover parallel`` until the parallel run is
ended, or until the cutover. Only ``migrator.cutover`` writes it. Scheduler processes read it before they claim, so that
no process has to be notified or restarted. It is a row of the scheduler's own schema because these processes may read
no other schema.
"""

from datetime import datetime
from typing import Final
from uuid import uuid4

from migrator.connections.postgres import Connection
from migrator.store.postgres import epoch
from migrator.store.validation import GLOBAL
from migrator.values.identity import lock_id

KEY: Final = f"{GLOBAL}/parallel"
SINCE: Final = "since"
"""The member of the row's metadata."""


IN_PROGRESS: Final = f"SELECT (metadata ->> '{SINCE}')::timestamptz FROM scheduler.locks WHERE key = '{KEY}'"  # noqa: S608 - our own text
"""One lookup in a unique index."""

SERVED: Final = (
    f"({{0}}.source IS NULL OR NOT EXISTS (SELECT FROM scheduler.locks WHERE key = '{KEY}')"
    f" AND NOT EXISTS ({epoch.COPIED}))"
)
"""Whether a row may be changed here: it was created here, or no other scheduler writes it. Takes the row's alias."""

HOLD: Final = f"SELECT 1 FROM scheduler.locks WHERE key = '{KEY}' FOR SHARE"  # noqa: S608 - our own text
"""A row if both sides run, who do so until the transaction has ended."""

_BEGIN: Final = f"""
INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, fence, metadata)
VALUES (%(id)s, '{GLOBAL}', '{KEY}', %(lock_id)s, 1, jsonb_build_object('{SINCE}', %(at)s::timestamptz))
ON CONFLICT (key) DO UPDATE SET fence = locks.fence + 1, metadata = excluded.metadata
"""  # noqa: S608 - our own text


def since(connection: Connection) -> datetime | None:
    """Return since when both sides run; None: they do not."""
    row = connection.execute(IN_PROGRESS).fetchone()
    return None if row is None else row[0]


def begin(connection: Connection, at: datetime) -> None:
    """Record that both sides run, as the owner of the tables; called again, it sets the time anew."""
    connection.execute(_BEGIN, {"id": uuid4(), "lock_id": lock_id(KEY), "at": at})


def end(connection: Connection) -> datetime | None:
    """Record that one side runs alone; return since when both ran, or None if they did not.

    It waits for transactions that fire as in a parallel run. What the triggers of the source fired here is forgotten
    with ``forget``.
    """
    row = connection.execute(
        f"DELETE FROM scheduler.locks WHERE key = '{KEY}' RETURNING (metadata ->> '{SINCE}')::timestamptz"  # noqa: S608 - our own text
    ).fetchone()
    return None if row is None else row[0]


def forget(connection: Connection) -> None:
    """Remove what the triggers of the source fired here."""
    connection.execute("DELETE FROM scheduler.parallel_triggers")
