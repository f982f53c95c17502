"""Run numbers: one more than a schedule ever had, also after retention removed its newest runs.

The counter is ``lives.LAST_NUMBER``, a member of the schedule's summary, whose row also makes those wait who number
runs of one schedule at the same time.
"""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from migrator.store.lives import summary_id
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.dispatch import as_json, fetch

_NUMBER = """
INSERT INTO scheduler.run_summaries AS s (id, tenant_id, schedule_id, updated_at, counters)
SELECT %(id)s, %(tenant)s, %(schedule)s, %(now)s,
    jsonb_build_object('lastRunNumber', coalesce(max(run_number), 0) + %(count)s::int)
FROM scheduler.runs WHERE schedule_id = %(schedule)s AND tenant_id = %(tenant)s
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


_NUMBER_MANY = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset($1::json) AS g(id uuid, tenant text, schedule uuid, count int)
), counted AS (
    INSERT INTO scheduler.run_summaries AS s (id, tenant_id, schedule_id, updated_at, counters)
    SELECT w.id, w.tenant, w.schedule, $2, jsonb_build_object('lastRunNumber', w.count + coalesce(
        (SELECT max(run_number) FROM scheduler.runs AS r WHERE r.schedule_id = w.schedule AND r.tenant_id = w.tenant), 0
    )) FROM wanted AS w ORDER BY w.schedule, w.tenant
    ON CONFLICT (tenant_id, schedule_id) WHERE schedule_id IS NOT NULL DO UPDATE
    SET counters = coalesce(s.counters, '{}') || jsonb_build_object('lastRunNumber', greatest(
        coalesce((s.counters ->> 'lastRunNumber')::int, 0)
            + (SELECT w.count FROM wanted AS w
                WHERE w.schedule = EXCLUDED.schedule_id AND w.tenant = EXCLUDED.tenant_id),
        (EXCLUDED.counters ->> 'lastRunNumber')::int
    ))
    RETURNING tenant_id, schedule_id, (counters ->> 'lastRunNumber')::int AS last
)
SELECT w.tenant, w.schedule, counted.last - w.count + 1 FROM wanted AS w
JOIN counted ON counted.schedule_id = w.schedule AND counted.tenant_id = w.tenant
"""


def take_many(
    connection: Connection, wanted: Mapping[tuple[str, UUID], int], now: datetime
) -> dict[tuple[str, UUID], int]:
    """Take run numbers of many schedules, each by (its tenant, its id); return the first of each.

    In the order of the schedules, so that two who number several of them do not wait for each other. The connection
    is one of ``dispatch.Dispatch``.
    """
    if not wanted:
        return {}
    asked = [
        {"id": summary_id(tenant, schedule), "tenant": tenant, "schedule": schedule, "count": count}
        for (tenant, schedule), count in wanted.items()
    ]
    found = fetch(connection, _NUMBER_MANY, (as_json(asked), now))
    return {(tenant, schedule): first for tenant, schedule, first in found}
