"""Run numbers: one more than a schedule ever had, also after retention removed its newest runs.

The counter is ``lives.LAST_NUMBER``, a member of the schedule's summary, whose row also makes those wait who number
runs of one schedule at the same time.
"""

from datetime import datetime
from uuid import UUID

from migrator.store.lives import summary_id
from migrator.store.postgres.connection import Connection

_NUMBER = """
INSERT INTO scheduler.run_summaries AS s (id, tenant_id, schedule_id, updated_at, counters)
SELECT %(id)s, %(tenant)s, %(schedule)s, %(now)s,
    jsonb_build_object('lastRunNumber', coalesce(max(run_number), 0) + %(count)s::int)
FROM scheduler.runs WHERE schedule_id = %(schedule)s
ON CONFLICT (tenant_id, schedule_id) WHERE schedule_id IS NOT NULL DO UPDATE
SET counters = coalesce(s.counters, '{}') || jsonb_build_object('lastRunNumber', greatest(
    coalesce((s.counters ->> 'lastRunNumber')::int, 0) + %(count)s::int,
    (EXCLUDED.counters ->> 'lastRunNumber')::int
))
RETURNING (counters ->> 'lastRunNumber')::int - %(count)s::int + 1
"""


def take_numbers(connection: Connection, tenant: str, schedule_id: UUID, now: datetime, count: int = 1) -> int:
    """Take ``count`` run numbers of a tenant's schedule and return the first of them.

    Whoever else numbers runs of this schedule waits until the transaction ends; a rollback gives the numbers back.
    """
    row = connection.execute(
        _NUMBER,
        {
            "id": summary_id(tenant, schedule_id),
            "tenant": tenant,
            "schedule": schedule_id,
            "now": now,
            "count": count,
        },
    ).fetchone()
    assert row is not None  # noqa: S101 - inserted or updated, it has one row
    return int(row[0])
