"""The persistence epoch in PostgreSQL (``store.epoch``)."""

from typing import Final
from uuid import uuid4

from migrator.connections.postgres import Connection
from migrator.errors import BackendMovedError
from migrator.store.epoch import BACKEND, KEY, Epoch
from migrator.store.validation import GLOBAL
from migrator.values.identity import lock_id

OWN_BACKEND: Final = "postgres"

ASKED: Final = f"SELECT metadata ->> '{BACKEND}' FROM scheduler.locks WHERE key = '{KEY}'"  # noqa: S608 - our own text
"""One lookup in a unique index, sent together with what begins a session; all tenants see rows of the global tenant."""

_WRITE: Final = f"""
INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, fence, metadata)
VALUES (%(id)s, '{GLOBAL}', '{KEY}', %(lock_id)s, %(number)s, jsonb_build_object('{BACKEND}', %(backend)s::text))
ON CONFLICT (key) DO UPDATE SET fence = excluded.fence, metadata = excluded.metadata, source = NULL, source_id = NULL
WHERE locks.fence <= excluded.fence
"""  # noqa: S608 - our own text


def read(connection: Connection) -> Epoch | None:
    """Return the content of the row; None: there was no cutover."""
    row = connection.execute(
        f"SELECT fence, metadata ->> '{BACKEND}' FROM scheduler.locks WHERE key = '{KEY}'"  # noqa: S608 - our own text
    ).fetchone()
    return None if row is None or row[1] is None else Epoch(row[0], row[1])


def require_forward(connection: Connection) -> None:
    """Raise ``BackendMovedError`` if PostgreSQL holds the data: documents must not be written over its rows."""
    found = read(connection)
    if found is not None and found.backend == "postgres":
        raise BackendMovedError("the data is in PostgreSQL since the cutover: MongoDB is not current")


def forget(connection: Connection, epoch: Epoch) -> None:
    """Delete the row if it holds exactly this epoch: there was no cutover."""
    connection.execute(
        f"DELETE FROM scheduler.locks WHERE key = '{KEY}' AND fence = %s AND metadata ->> '{BACKEND}' = %s",  # noqa: S608 - our own text
        (epoch.number, epoch.backend),
    )


def write(connection: Connection, epoch: Epoch) -> None:
    """Write the row, as the owner of the tables; called again, it changes nothing. The number never goes back."""
    connection.execute(
        _WRITE, {"id": uuid4(), "lock_id": lock_id(KEY), "number": epoch.number, "backend": epoch.backend}
    )
