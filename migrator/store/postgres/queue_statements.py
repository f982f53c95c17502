"""The statements of the queue: finding due triggers, claiming runs, and renewing, releasing and ending held ones.

A run is held by the worker whose id and fence it has. What is to be done with held runs is one JSON parameter, whatever
its length: a statement is prepared once, and a batch is one round trip.
"""

from functools import cache

from migrator import states
from migrator.records import Run, Schedule, Trigger
from migrator.store.postgres.rows import literals, table
from migrator.store.queue import SCRATCH
from migrator.store.validation import DEFAULT_PRIORITY

# ruff: noqa: S608 - statements are put together from our own column names, never from what is given


HANDLER = "coalesce(nullif(s.handler_name, ''), s.mode)"
"""The name of a schedule's handler (``queue.handler_of``)."""

NOW = "coalesce($1::timestamptz, date_trunc('milliseconds', statement_timestamp()))"
"""The time of a statement: its first parameter, or the database's clock, the same all through the statement."""

SINCE = "coalesce({0}.available_at, {0}.created_at)"


def served(alias: str, tenants: int | None) -> str:
    """Return the condition on a row's tenant; ``tenants`` is the number of the parameter that names them, if any."""
    if tenants is None:
        return f"NOT starts_with({alias}.tenant_id, '{SCRATCH}')"
    return f"{alias}.tenant_id = ANY(${tenants}::text[])"


# The runs of a schedule are those of its tenant; of a schedule of the tenant *, those of all tenants, which share its
# limit. Of a schedule that may have so many runs at a time, the first so many that wait, less those that run. What
# others have locked counts as waiting, so that two claims at once do not take more between them, as long as nothing
# else changed since the statement began; for that the schedule is locked, and must be as it was (xmin).
_ROOM = f"""(s.max_concurrency IS NULL OR s.max_concurrency > (
        SELECT count(*) FROM scheduler.runs AS o
        WHERE o.state = 'running' AND o.schedule_id = s.id AND o.schedule_tenant_id = s.tenant_id
    ) + (
        SELECT count(*) FROM (
            SELECT FROM scheduler.runs AS q WHERE q.state = 'queued' AND q.schedule_id = s.id
                AND q.schedule_tenant_id = s.tenant_id
                AND ({SINCE.format("q")}, q.id) < ({SINCE.format("r")}, r.id) LIMIT s.max_concurrency
        ) AS ahead
    ))"""


def _branches(columns: str, child: str, usual: str, ranked: str, order: str, limit: int) -> str:
    """Return three CTEs (``first``, ``usual``, ``last``), and ``chosen``, all that they hold.

    ``usual`` is the query for schedules of the usual priority, ``ranked`` the one for others; ``child`` the alias of
    the rows that are locked.
    """
    lock = f"FOR UPDATE OF {child} SKIP LOCKED"
    head = f"SELECT {columns} FROM"
    left = f"{limit} - (SELECT count(*) FROM first)"
    return f"""
first AS MATERIALIZED (
    {head} {ranked} AND s.priority <> {DEFAULT_PRIORITY} AND s.priority > {DEFAULT_PRIORITY}
    ORDER BY s.priority DESC, {order} LIMIT {limit} {lock}
), usual AS MATERIALIZED (
    {head} {usual} ORDER BY {order} LIMIT {left} {lock}
), last AS MATERIALIZED (
    {head} {ranked} AND s.priority <> {DEFAULT_PRIORITY} AND s.priority < {DEFAULT_PRIORITY}
    ORDER BY s.priority DESC, {order} LIMIT {left} - (SELECT count(*) FROM usual) {lock}
), chosen AS MATERIALIZED (
    SELECT * FROM first UNION ALL SELECT * FROM usual UNION ALL SELECT * FROM last
)"""


def _named(first: int, *, of_tenants: bool, of_queues: bool, of_handlers: bool) -> tuple[int | None, str]:
    """Return the number of the parameter that names tenants, and the condition on the schedule; "" where none is.

    The parameters are, from the ``first`` on, each where it is asked for: tenants, queues, names of handlers and their
    types. The condition is asked of the schedule that a row's own index led to by its key, so that it costs no plan of
    its own: what is not served is passed over in the order of the queue.
    """
    numbers = iter(range(first, first + 4))
    tenants = next(numbers) if of_tenants else None
    condition = f" AND s.queue = ANY(${next(numbers)}::text[])" if of_queues else ""
    if of_handlers:
        names, types = next(numbers), next(numbers)
        condition += f" AND ({HANDLER} = ANY(${names}::text[]) OR s.handler_type = ANY(${types}::text[]))"
    return tenants, condition


@cache
def claim(limit: int, *, of_tenants: bool = False, of_queues: bool = False, of_handlers: bool = False) -> str:
    """Return the statement: now, worker, lease, then as ``_named`` → the columns of runs, then of their schedules."""
    tenants, served_only = _named(4, of_tenants=of_tenants, of_queues=of_queues, of_handlers=of_handlers)
    runs, schedules = table(Run), table(Schedule)
    waiting = f"r.state = 'queued' AND {SINCE.format('r')} <= {NOW} AND {served('r', tenants)}"
    may_run = f"(s.enabled AND s.deleted_at IS NULL AND s.status <> 'paused') IS TRUE{served_only}"
    alone = "" if served_only else "r.schedule_id IS NULL OR "
    usual = (
        "scheduler.runs AS r LEFT JOIN scheduler.schedules AS s"
        " ON s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id"
        f" WHERE {waiting} AND ({alone}coalesce(s.priority, {DEFAULT_PRIORITY}) = {DEFAULT_PRIORITY}"
        f" AND {may_run} AND {_ROOM})"
    )
    ranked = (
        "scheduler.schedules AS s JOIN scheduler.runs AS r"
        " ON r.schedule_id = s.id AND r.schedule_tenant_id = s.tenant_id"
        f" WHERE {waiting} AND {may_run} AND {_ROOM}"
    )
    columns = (
        "r.id AS chosen_id, r.tenant_id AS chosen_tenant, s.xmin AS version,"
        " CASE WHEN s.max_concurrency IS NOT NULL THEN s.id END AS limited, s.tenant_id AS limited_tenant"
    )
    order = f"{SINCE.format('r')}, r.id"
    return f"""
WITH {_branches(columns, "r", usual, ranked, order, limit)}, gate AS MATERIALIZED (
    SELECT s.id AS open_id, s.tenant_id AS open_tenant FROM chosen
    JOIN scheduler.schedules AS s ON s.id = limited AND s.tenant_id = limited_tenant AND s.xmin = version
    FOR NO KEY UPDATE OF s SKIP LOCKED
), taken AS (
    UPDATE scheduler.runs AS r SET state = 'running', worker_id = $2, fence = coalesce(fence, 0) + 1,
        lease_expires_at = date_trunc('milliseconds', {NOW} + $3::interval),
        started_at = coalesce(started_at, {NOW}), updated_at = {NOW}
    FROM chosen WHERE r.id = chosen_id AND r.tenant_id = chosen_tenant
        AND (limited IS NULL OR (limited, limited_tenant) IN (SELECT open_id, open_tenant FROM gate))
    RETURNING {runs.qualified("r").as_string(None)}, r.schedule_tenant_id
), marked AS (
    UPDATE scheduler.schedules AS s SET status = s.status
    FROM (SELECT DISTINCT open_id, open_tenant FROM gate) AS opened WHERE s.id = open_id AND s.tenant_id = open_tenant
)
SELECT {runs.qualified("t").as_string(None)}, {schedules.qualified("s").as_string(None)}
FROM taken AS t LEFT JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.schedule_tenant_id
ORDER BY coalesce(s.priority, {DEFAULT_PRIORITY}) DESC, {SINCE.format("t")}, t.id
"""


# IS TRUE, here and above, so that schedules are looked up by their ids, and no index on what is active is read whole.
_MAY_FIRE = (
    f"(s.enabled AND s.deleted_at IS NULL AND s.status = ANY (ARRAY[{literals(states.SCHEDULE_FIRING)}])) IS TRUE"
)


@cache
def due(limit: int, *, of_tenants: bool = False, of_queues: bool = False, of_handlers: bool = False) -> str:
    """Return the statement that locks due triggers: now, then as ``_named`` → their ids and tenants."""
    tenants, served_only = _named(2, of_tenants=of_tenants, of_queues=of_queues, of_handlers=of_handlers)
    condition = f"t.enabled AND t.next_fire_at <= {NOW} AND {served('t', tenants)} AND {_MAY_FIRE}{served_only}"
    usual = (
        "scheduler.triggers AS t JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id"
        f" WHERE {condition} AND coalesce(s.priority, {DEFAULT_PRIORITY}) = {DEFAULT_PRIORITY}"
    )
    ranked = (
        "scheduler.schedules AS s JOIN scheduler.triggers AS t ON t.schedule_id = s.id AND t.tenant_id = s.tenant_id"
        f" WHERE {condition}"
    )
    branches = _branches(
        "t.id AS chosen_id, t.tenant_id AS chosen_tenant", "t", usual, ranked, "t.next_fire_at, t.id", limit
    )
    return f"WITH {branches} SELECT chosen_id, chosen_tenant FROM chosen"


@cache
def locked() -> str:
    """Return the statement: now, ids, tenants of locked triggers → live runs, columns of triggers, of their schedules.

    It sees what was committed until the rows were locked, which the one that locked them does not.
    """
    triggers, schedules = table(Trigger), table(Schedule)
    live = (
        "(SELECT count(*) FROM scheduler.runs AS o"
        " WHERE o.state = '{}' AND o.schedule_id = s.id AND o.schedule_tenant_id = s.tenant_id)"
    )
    return f"""
SELECT {live.format("queued")} + {live.format("running")},
    {triggers.qualified("t").as_string(None)}, {schedules.qualified("s").as_string(None)}
FROM unnest($2::uuid[], $3::text[]) AS g(id, tenant)
JOIN scheduler.triggers AS t ON t.id = g.id AND t.tenant_id = g.tenant
JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
WHERE t.enabled AND t.next_fire_at <= {NOW} AND {_MAY_FIRE}
ORDER BY coalesce(s.priority, {DEFAULT_PRIORITY}) DESC, t.next_fire_at, t.id
"""


# ruff: noqa: S608 - statements are put together from our own column names, never from what is given


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

_EXPIRED = f"""(r.lease_expires_at <= {NOW} OR r.started_at + (
    SELECT s.timeout_ms * interval '1 millisecond' FROM scheduler.schedules AS s
    WHERE s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id
) <= {NOW})"""


@cache
def finish(*, only_expired: bool, of_schedules: bool) -> str:
    """Return the statement: now, ends → the ids and tenants of the runs that it ended.

    ``only_expired``: only runs whose lease or timeout is over; ``of_schedules``: an end may bring a schedule's status.
    """
    over = f"AND {_EXPIRED}" if only_expired else ""
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
