"""The persistence epoch in PostgreSQL (``store.epoch``)."""

from datetime import datetime
from typing import Final
from uuid import UUID

from migrator.connections.postgres import Connection
from migrator.errors import BackendMovedError
from migrator.store.epoch import BACKEND, COPY, KEY, REHEARSAL, Epoch
from migrator.store.validation import GLOBAL
from migrator.values.identity import lock_id

# ruff: noqa: S608 - statements are put together from our own names

OWN_BACKEND: Final = "postgres"

SOURCE: Final = "source"
"""The member of the row's metadata that names the source to which a rollback would go; absent: no rollback is open."""

_ROW_ID: Final = UUID("6c9f2c1e-2f0b-5d3c-9d6b-0a4f3a2f6e10")
"""The id of the row: the same in each database, so that two copies have the same rows."""

_PARALLEL: Final = f"SELECT FROM scheduler.locks WHERE key = '{GLOBAL}/parallel'"
_CLOSED: Final = f"metadata ->> '{BACKEND}' IS NULL AND metadata ->> '{REHEARSAL}' IS NULL"

ASKED: Final = f"""
SELECT metadata ->> '{BACKEND}', CASE WHEN {_CLOSED} AND NOT EXISTS ({_PARALLEL}) THEN metadata ->> '{COPY}' END
FROM scheduler.locks WHERE key = '{KEY}'
"""
"""The members of ``EpochState``, sent together with what begins a session. All tenants see rows of the global one."""

COPIED: Final = f"""
SELECT metadata ->> '{COPY}' FROM scheduler.locks
WHERE key = '{KEY}' AND metadata ->> '{COPY}' IS NOT NULL AND {_CLOSED}
"""
"""The source of a copy that no cutover has made active, and that no rehearsal changes; in a parallel run too."""

COPY_AND_REHEARSAL: Final = f"""
SELECT metadata ->> '{COPY}', metadata ->> '{REHEARSAL}' IS NOT NULL FROM scheduler.locks
WHERE key = '{KEY}' AND metadata ->> '{BACKEND}' IS NULL AND metadata ->> '{COPY}' IS NOT NULL
"""
"""The source of a copy that no cutover has made active, and whether it is changed in a rehearsal."""

_WRITE: Final = f"""
INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, fence, metadata)
VALUES (%(id)s, '{GLOBAL}', '{KEY}', %(lock_id)s, %(number)s,
    jsonb_strip_nulls(jsonb_build_object('{BACKEND}', %(backend)s::text, '{SOURCE}', %(source)s::text)))
ON CONFLICT (key) DO UPDATE SET fence = excluded.fence, source = NULL, source_id = NULL,
    metadata = (coalesce(locks.metadata, '{{}}') - '{SOURCE}') || excluded.metadata
WHERE locks.fence <= excluded.fence
"""
_MARK_COPY: Final = f"""
INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, fence, metadata)
VALUES (%(id)s, '{GLOBAL}', '{KEY}', %(lock_id)s, 0, jsonb_build_object('{COPY}', %(source)s::text))
ON CONFLICT (key) DO UPDATE SET metadata = coalesce(locks.metadata, '{{}}') || excluded.metadata
"""
DECLARE_REHEARSAL: Final = f"""
UPDATE scheduler.locks SET metadata = metadata || jsonb_build_object('{REHEARSAL}', clock_timestamp())
WHERE key = '{KEY}' AND metadata ->> '{COPY}' IS NOT NULL AND {_CLOSED}
"""
"""Record that rows of the copy may be changed from now on; as the dispatcher or the owner of the tables."""


def read(connection: Connection) -> Epoch | None:
    """Return the content of the row; None: there was no cutover."""
    row = connection.execute(
        f"SELECT fence, metadata ->> '{BACKEND}' FROM scheduler.locks WHERE key = '{KEY}'"
    ).fetchone()
    return None if row is None or row[1] is None else Epoch(row[0], row[1])


def require_forward(connection: Connection) -> None:
    """Raise ``BackendMovedError`` if PostgreSQL holds the data: documents must not be written over its rows."""
    found = read(connection)
    if found is not None and found.backend == "postgres":
        raise BackendMovedError("the data is in PostgreSQL since the cutover: MongoDB is not current")


def forget(connection: Connection, epoch: Epoch) -> None:
    """Take back exactly this epoch, if the row holds it: there was no cutover, and a copy is a copy again."""
    holds = f"key = '{KEY}' AND fence = %s AND metadata ->> '{BACKEND}' = %s"
    given = (epoch.number, epoch.backend)
    connection.execute(f"DELETE FROM scheduler.locks WHERE {holds} AND metadata ->> '{COPY}' IS NULL", given)
    connection.execute(
        f"UPDATE scheduler.locks SET fence = 0, metadata = metadata - '{BACKEND}' - '{SOURCE}' WHERE {holds}", given
    )


def write(connection: Connection, epoch: Epoch, source: str | None = None) -> None:
    """Write the row, as the owner of the tables; called again, it changes nothing. The number never goes back.

    ``source``: the name of the source to which a rollback would go, while one is open.
    """
    connection.execute(
        _WRITE,
        {"id": _ROW_ID, "lock_id": lock_id(KEY), "number": epoch.number, "backend": epoch.backend, "source": source},
    )


def rollback_source(connection: Connection) -> str | None:
    """Return the name of the source to which a rollback would go; None: no rollback is open."""
    row = connection.execute(f"SELECT metadata ->> '{SOURCE}' FROM scheduler.locks WHERE key = '{KEY}'").fetchone()
    return None if row is None else row[0]


def close_rollback(connection: Connection) -> None:
    """Take the source out of the row: no rollback is open any more."""
    connection.execute(
        f"UPDATE scheduler.locks SET metadata = metadata - '{SOURCE}' WHERE key = '{KEY}' AND metadata ? '{SOURCE}'"
    )


def mark_copy(connection: Connection, source: str) -> None:
    """Record that the database holds a copy of a source (the name of its profile); called again, it changes nothing."""
    connection.execute(_MARK_COPY, {"id": _ROW_ID, "lock_id": lock_id(KEY), "source": source})


def is_closed_copy(connection: Connection) -> bool:
    """Return whether the database is a copy that nobody may change, except in a parallel run."""
    return connection.execute(COPIED).fetchone() not in (None, (None,))


def rehearsal_since(connection: Connection) -> datetime | None:
    """Return since when rows of the copy may be changed; None: they may not."""
    row = connection.execute(
        f"SELECT (metadata ->> '{REHEARSAL}')::timestamptz FROM scheduler.locks WHERE key = '{KEY}'"
    ).fetchone()
    return None if row is None else row[0]


def end_rehearsal(connection: Connection) -> None:
    """Record that rows of the copy may not be changed any more."""
    connection.execute(f"UPDATE scheduler.locks SET metadata = metadata - '{REHEARSAL}' WHERE key = '{KEY}'")
