"""The rows of ``locks``: they decide who holds what, by the database's clock; a session only waits on their behalf.

``metadata.migratorSession`` of a lock that is held here is the process of the server whose session stands for it, 0
where there is none. A lock whose session ended is free at once; one without a session, and a migrated one, ends by its
row alone.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import msgspec

from migrator.store.postgres.queue_claim import NOW
from migrator.values.identity import lock_id

Rows: TypeAlias = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Executes one statement with numbered parameters as the dispatcher, and returns its rows."""

_SESSION = "migratorSession"
_PLAIN = f"(CASE WHEN jsonb_typeof(metadata) = 'object' THEN metadata - '{_SESSION}' ELSE '{{}}'::jsonb END)"
_HELD = "(owner IS NOT NULL OR holder IS NOT NULL)"
_MINE = f"key = $2 AND owner = $3 AND fence = $4 AND expires_at > {NOW}"
_TTL = f"date_trunc('milliseconds', {NOW} + $5::interval)"

_READ = f"""
SELECT {_HELD}, coalesce(expires_at <= {NOW}, false), extract(epoch FROM expires_at - {NOW})::float8,
    CASE WHEN jsonb_typeof(metadata -> '{_SESSION}') = 'number' THEN (metadata ->> '{_SESSION}')::int END,
    coalesce(holder, ''), fence
FROM scheduler.locks WHERE key = $2
"""  # noqa: S608 - our own text

# FOR UPDATE, so that sessions that are guarded (FOR KEY SHARE) are met; who renews or gives back does not meet them.
_TAKE = f"""
WITH found AS MATERIALIZED (
    SELECT id AS found_id FROM scheduler.locks WHERE key = $2
        AND (NOT {_HELD} OR expires_at <= {NOW} OR $7 AND (metadata -> '{_SESSION}') > '0'::jsonb)
    FOR UPDATE SKIP LOCKED
)
UPDATE scheduler.locks SET owner = $3, holder = $4, fence = fence + 1, acquired_at = {NOW}, expires_at = {_TTL},
    metadata = {_PLAIN} || jsonb_build_object('{_SESSION}', $6::int), lock_id = $8
FROM found WHERE id = found_id RETURNING fence
"""  # noqa: S608 - as above

_MAKE = f"""
INSERT INTO scheduler.locks (id, tenant_id, key, lock_id, owner, holder, fence, acquired_at, expires_at, metadata)
VALUES ($7, split_part($2, '/', 1), $2, $8, $3, $4, 1, {NOW}, {_TTL}, jsonb_build_object('{_SESSION}', $6::int))
ON CONFLICT (key) DO NOTHING RETURNING fence
"""  # noqa: S608 - as above

_RENEW = f"UPDATE scheduler.locks SET expires_at = {_TTL} WHERE {_MINE} RETURNING true"  # noqa: S608 - as above

_RELEASE = f"""
UPDATE scheduler.locks SET owner = NULL, holder = NULL, expires_at = NULL, metadata = NULLIF(
    {_PLAIN} || CASE WHEN metadata -> '{_SESSION}' = '0' THEN jsonb_build_object('{_SESSION}', 0) ELSE '{{}}' END,
    '{{}}'
) WHERE {_MINE} RETURNING true
"""  # noqa: S608 - as above


class State(msgspec.Struct, frozen=True):
    """What a lock's row says."""

    held: bool
    over: bool
    """Past its end."""
    left: float | None
    """Seconds until its end, negative past it; none: it has none."""
    session: int | None
    """The process whose session stands for it, 0: it goes by its row alone; none: it does not say."""
    holder: str
    fence: int

    @property
    def live(self) -> bool:
        """Whether somebody holds it."""
        return self.held and not self.over


class LockRow:
    """One lock's row, for one who acquires, and then holds it."""

    def __init__(self, key: str, holder: str = "") -> None:
        self.key, self.holder, self.owner, self.lock_id = key, holder, uuid4(), lock_id(key)

    def read(self, rows: Rows, now: datetime | None) -> State | None:
        """Return what the row says; none: there is none yet."""
        found = rows(_READ, (now, self.key))
        return State(*found[0]) if found else None

    def take(self, rows: Rows, now: datetime | None, ttl: timedelta, session: int | None) -> int | None:
        """Take the lock if it is free, and return its fence.

        ``session``: the process whose session has the advisory lock for it, so that another one that stood for it has
        ended; none: nobody's.
        """
        given = (now, self.key, self.owner, self.holder, ttl, session or 0)
        found = rows(_TAKE, (*given, session is not None, self.lock_id)) or rows(_MAKE, (*given, uuid4(), self.lock_id))
        return int(found[0][0]) if found else None

    def renew(self, rows: Rows, now: datetime | None, ttl: timedelta, fence: int) -> bool:
        """Extend the lock; false where it is not held any more."""
        return bool(rows(_RENEW, (now, self.key, self.owner, fence, ttl)))

    def release(self, rows: Rows, now: datetime | None, fence: int) -> bool:
        """Free the lock; false where it is not held any more."""
        return bool(rows(_RELEASE, (now, self.key, self.owner, fence)))
