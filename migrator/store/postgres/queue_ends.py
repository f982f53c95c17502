# ruff: noqa: S608 - statements are put together from our own column names, never from what is given
"""The statements that change runs that are held: renew, give back, end; and the ones that look for them.

What is to be done comes as one JSON parameter, whatever its length: a statement is prepared once, and a batch is one
round trip. A run is held by whoever has its worker and its fence.
"""

from functools import cache

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.store.postgres.mapping import table
from migrator.store.postgres.queue_claim import NOW, served

# IS TRUE, so that the rows are found by their ids: the planner believes that hardly any run is running, and would
# compare each of them with each of the given ones.
_HELD = (
    "r.id = g.id AND r.tenant_id = g.tenant AND (r.state = 'running') IS TRUE"
    " AND coalesce(r.worker_id, '') = g.worker AND coalesce(r.fence, 0) = g.fence"
)

_GIVEN = "json_to_recordset($2::json) AS g(id uuid, tenant text, worker text, fence bigint)"

HEARTBEAT = f"""
UPDATE scheduler.runs AS r SET updated_at = {NOW},
    lease_expires_at = greatest(lease_expires_at, date_trunc('milliseconds', {NOW} + $3::interval))
FROM {_GIVEN} WHERE {_HELD} RETURNING r.id
"""
"""now, claims, lease → the ids of those that are held."""

RELEASE = f"""
UPDATE scheduler.runs AS r SET state = 'queued', worker_id = NULL, lease_expires_at = NULL, started_at = NULL,
    updated_at = {NOW}
FROM {_GIVEN} WHERE {_HELD} RETURNING r.id
"""
"""now, claims → the ids of those that are queued again."""

_OVER = f"""(r.lease_expires_at <= {NOW} OR r.started_at + (
    SELECT s.timeout_ms * interval '1 millisecond' FROM scheduler.schedules AS s
    WHERE s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id
) <= {NOW})"""


@cache
def finish(*, only_over: bool, of_schedules: bool) -> str:
    """Return the statement: now, ends → the ids and tenants of the runs that it ended.

    ``only_over``: only runs whose lease or timeout is over; ``of_schedules``: an end may bring a schedule's status.
    """
    over = f"AND {_OVER}" if only_over else ""
    # Not with -infinity, which a row copied from elsewhere may hold: it has no difference before version 17.
    lasted = (
        f"CASE WHEN r.started_at <= {NOW} AND isfinite(r.started_at)"
        f" THEN floor(extract(epoch FROM {NOW} - r.started_at) * 1000)::bigint END"
    )
    ended = f"""
    UPDATE scheduler.runs AS r SET state = g.state, result = g.result, error = g.error, error_detail = g.detail,
        finished_at = {NOW}, duration_ms = {lasted}, lease_expires_at = NULL, updated_at = {NOW}
    FROM json_to_recordset($2::json) AS g(
        position int, id uuid, tenant text, worker text, fence bigint, state text, result jsonb, error text,
        detail text, status text
    ) WHERE {_HELD} {over} RETURNING r.id, r.tenant_id"""
    if not of_schedules:
        return ended
    # The schedules are locked in the order of their ids, as they come from ``first``.
    return f"""
WITH ended AS ({ended}, r.schedule_id, r.schedule_tenant_id, g.position, g.status), first AS MATERIALIZED (
    SELECT DISTINCT ON (schedule_id, schedule_tenant_id) schedule_id, schedule_tenant_id, status FROM ended
    WHERE status IS NOT NULL AND schedule_id IS NOT NULL ORDER BY schedule_id, schedule_tenant_id, position
), held AS MATERIALIZED (
    SELECT s.id AS held_id, s.tenant_id AS held_tenant, f.status AS following FROM first AS f
    JOIN scheduler.schedules AS s ON s.id = f.schedule_id AND s.tenant_id = f.schedule_tenant_id
    WHERE (s.status = 'running' AND s.deleted_at IS NULL) IS TRUE FOR NO KEY UPDATE OF s
), moved AS (
    UPDATE scheduler.schedules SET status = following, updated_at = {NOW},
        completed_at = CASE WHEN following = 'completed' THEN {NOW} ELSE completed_at END
    FROM held WHERE id = held_id AND tenant_id = held_tenant
)
SELECT id, tenant_id FROM ended
"""


@cache
def expired(limit: int, *, of_tenants: bool = False, of_workers: bool = False) -> str:
    """Return the statement: now[, tenants][, workers] → the columns of running runs that are over, and of schedules."""
    workers = f"AND r.fence IS NOT NULL AND r.worker_id = ANY(${3 if of_tenants else 2}::text[])" if of_workers else ""
    return f"""
SELECT {table(Run).qualified("r").as_string(None)}, {table(Schedule).qualified("s").as_string(None)}
FROM scheduler.runs AS r
LEFT JOIN scheduler.schedules AS s ON s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id
WHERE r.state = 'running' AND {served("r", 2 if of_tenants else None)}
    AND (r.lease_expires_at <= {NOW} OR r.started_at + s.timeout_ms * interval '1 millisecond' <= {NOW}) {workers}
ORDER BY r.lease_expires_at NULLS LAST, r.id LIMIT {limit}
"""


WITHOUT_TRIGGER = """
SELECT r.id, r.tenant_id FROM unnest($1::uuid[], $2::text[]) AS g(id, tenant)
JOIN scheduler.runs AS r ON r.id = g.id AND r.tenant_id = g.tenant WHERE r.trigger_id IS NULL
"""
"""ids, tenants → those of the runs that have no trigger, or none any more."""

TENANTS = """
WITH RECURSIVE of_schedules AS (
    (SELECT tenant_id FROM scheduler.schedules WHERE deleted_at IS NULL ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT s.tenant_id FROM scheduler.schedules AS s
        WHERE s.deleted_at IS NULL AND s.tenant_id > o.tenant_id ORDER BY s.tenant_id LIMIT 1)
    FROM of_schedules AS o WHERE o.tenant_id IS NOT NULL
), of_runs AS (
    (SELECT tenant_id FROM scheduler.runs ORDER BY tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.tenant_id FROM scheduler.runs AS r WHERE r.tenant_id > o.tenant_id ORDER BY r.tenant_id LIMIT 1)
    FROM of_runs AS o WHERE o.tenant_id IS NOT NULL
)
SELECT tenant_id FROM (SELECT tenant_id FROM of_schedules UNION SELECT tenant_id FROM of_runs) AS found
WHERE tenant_id IS NOT NULL ORDER BY tenant_id COLLATE "C"
"""
"""→ the tenants; each is found by one step in an index, however many rows it has."""
