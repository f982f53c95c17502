"""Rows of a scheduler at work, made in PostgreSQL by the server itself: a million in a minute or so.

A schedule and its trigger by number; the first triggers are due. Runs that wait, runs whose lease is over, and the
history of the first schedule. Times count from the server's clock, so that what is due is so at once.
"""

from typing import Final
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.store.postgres.connection import Connection


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """How many."""

    schedules: int
    """And as many triggers."""
    due: int = 0
    waiting: int = 0
    stale: int = 0
    """Runs whose worker is gone: running, and their lease is over."""
    history: int = 0
    """Runs of the first schedule that are done."""

    @property
    def rows(self) -> int:
        """Return how many rows that makes."""
        return 2 * self.schedules + self.waiting + self.stale + self.history


_STATEMENTS: Final = (
    # schedules
    """INSERT INTO scheduler.schedules (id, tenant_id, name, status, enabled, created_at, updated_at)
    SELECT md5({tenant} || ' schedule ' || n)::uuid, {tenant}, 'job ' || n, 'scheduled', true,
        statement_timestamp() - n * interval '1 millisecond', statement_timestamp()
    FROM generate_series(1, {schedules}) AS n""",
    # triggers: the first are due, a millisecond apart
    """INSERT INTO scheduler.triggers (id, tenant_id, schedule_id, kind, interval_ms, anchor, enabled, next_fire_at)
    SELECT md5({tenant} || ' trigger ' || n)::uuid, {tenant}, md5({tenant} || ' schedule ' || n)::uuid, 'interval',
        3600000, 'fixed_rate', true, date_trunc('milliseconds', statement_timestamp())
        + CASE WHEN n <= {due} THEN (n - {due}) ELSE 3600000 + n END * interval '1 millisecond'
    FROM generate_series(1, {schedules}) AS n""",
    # runs that wait
    """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, cause, available_at, created_at)
    SELECT md5({tenant} || ' waiting ' || n)::uuid, {tenant},
        md5({tenant} || ' schedule ' || 1 + n % {schedules})::uuid, 'queued', 'schedule',
        date_trunc('milliseconds', statement_timestamp()) + (n - {waiting}) * interval '1 millisecond',
        date_trunc('milliseconds', statement_timestamp())
    FROM generate_series(1, {waiting}) AS n""",
    # runs whose worker is gone
    """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, cause, worker_id, fence, lease_expires_at,
        started_at, created_at)
    SELECT md5({tenant} || ' stale ' || n)::uuid, {tenant},
        md5({tenant} || ' schedule ' || 1 + n % {schedules})::uuid, 'running', 'schedule', 'gone', 1,
        date_trunc('milliseconds', statement_timestamp()) - n * interval '1 millisecond',
        date_trunc('milliseconds', statement_timestamp()) - interval '1 minute',
        date_trunc('milliseconds', statement_timestamp()) - interval '1 minute'
    FROM generate_series(1, {stale}) AS n""",
    # the history of the first schedule
    """INSERT INTO scheduler.runs (id, tenant_id, schedule_id, state, cause, run_number, started_at, finished_at,
        duration_ms, created_at)
    SELECT md5({tenant} || ' done ' || n)::uuid, {tenant}, md5({tenant} || ' schedule 1')::uuid, 'completed',
        'schedule', n, at, at + interval '1 second', 1000, at
    FROM (SELECT n, date_trunc('milliseconds', statement_timestamp()) - n * interval '1 minute' AS at
        FROM generate_series(1, {history}) AS n) AS done""",
)


def fill(connection: Connection, tenant: str, amount: Amount) -> None:
    """Insert the rows of a tenant in one transaction, as the owner of the tables."""
    words = {name: sql.Literal(value) for name, value in msgspec.structs.asdict(amount).items()}
    with connection.transaction():
        for statement in _STATEMENTS:
            connection.execute(sql.SQL(statement).format(tenant=sql.Literal(tenant), **words))


def first_schedule(connection: Connection, tenant: str) -> UUID:
    """Return the id of the schedule that has a history."""
    row = connection.execute("SELECT md5(%s || ' schedule 1')::uuid", (tenant,)).fetchone()
    assert row is not None  # noqa: S101 - a SELECT without FROM has one row
    identifier: UUID = row[0]
    return identifier
