# ruff: noqa: S608 - statements are put together from our own column names, never from what is given
"""The statement that claims runs, and the one that finds due triggers.

Both take the rows in strict order of the schedule's priority, which neither ``runs`` nor ``triggers`` holds. Most
schedules have none of their own: those rows come in their order from an index. The schedules before and after them are
few, and are asked one by one (``ix_schedules_ranked``, ``ix_runs_open``). A branch that is not needed any more to fill
the limit is not executed.

Rows are locked in a CTE and written from it, never ``IN (SELECT … LIMIT n)``, which may take more than n of them
(PostgreSQL BUG #15715). Who meets a locked row passes over it.
"""

from functools import cache

from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.store.postgres.mapping import table
from migrator.store.rules import DEFAULT_PRIORITY
from migrator.store.work import SCRATCH

HANDLER = "coalesce(nullif(s.handler_name, ''), s.mode)"
"""The name of a schedule's handler (``work.handler_of``)."""

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
_MAY_FIRE = "(s.enabled AND s.deleted_at IS NULL AND s.status = ANY (ARRAY['pending', 'scheduled', 'running'])) IS TRUE"


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
