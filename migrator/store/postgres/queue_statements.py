"""The statements of the queue: finding due triggers, claiming runs, and renewing, releasing and ending held ones.

A run is held by the worker whose id and fence it has. A limit is a parameter, and the changes of held runs are one JSON
parameter, whatever its length: a statement is prepared once, and a batch is one round trip.
"""

from functools import cache

from migrator import states
from migrator.records import Run, Schedule, Trigger
from migrator.store.postgres import parallel_run
from migrator.store.postgres.rows import interval, literals, table
from migrator.store.queue import SCRATCH

# ruff: noqa: S608 - statements are put together from our own column names, never from what is given


HANDLER = "coalesce(nullif(s.handler_name, ''), s.mode)"
"""The name of a schedule's handler (``queue.handler_of``)."""

NOW = "coalesce($1::timestamptz, date_trunc('milliseconds', statement_timestamp()))"
"""The time of a statement: its first parameter, or the database's clock, the same throughout the statement."""

SINCE = "coalesce({0}.available_at, {0}.created_at)"


def served(alias: str, tenants: int | None) -> str:
    """Return the condition on a row's tenant; ``tenants`` is the number of the parameter that names them, if any."""
    if tenants is None:
        return f"NOT starts_with({alias}.tenant_id, '{SCRATCH}')"
    return f"{alias}.tenant_id = ANY(${tenants}::text[])"


def _schedule(identity: str, tenant: str) -> str:
    """Return the join of each row with its schedule ``s``, looked up by its key: OFFSET 0 prevents other joins."""
    where = f"id = {identity} AND tenant_id = {tenant}"
    return (
        "LEFT JOIN LATERAL (SELECT *, xmin AS row_version FROM scheduler.schedules"
        f" WHERE {where} OFFSET 0) AS s ON true"
    )


def _of_schedule(state: str, more: str = "") -> str:
    """Return the subquery that counts the runs of the schedule ``s`` in a state.

    They are read in the order of the index on open runs. Without an order, old statistics let the planner choose an
    index that also holds the runs of other schedules, or all that the schedule ever had.
    """
    return f"""(
        SELECT count(*) FROM (
            SELECT FROM scheduler.runs AS o
            WHERE o.state = '{state}' AND o.schedule_id = s.id AND o.schedule_tenant_id = s.tenant_id {more}
            ORDER BY {SINCE.format("o")}, o.id
        ) AS counted
    )"""


def open_runs(more: str = "") -> str:
    """Return the expression for the number of queued and running runs ``o`` of the schedule ``s``."""
    return f"{_of_schedule('queued', more)} + {_of_schedule('running', more)}"


# The runs of a schedule are those of its tenant; of a schedule of the tenant *, those of all tenants, which share its
# limit. Of a schedule with a limit, the first waiting runs are taken, as many as the limit minus the running ones. Runs
# that others have locked count as waiting, so that two claims at once do not exceed the limit, if nothing else changed
# since the statement began. To ensure that, the schedule is locked, and must be unchanged (xmin).
_ROOM = f"""(s.max_concurrency IS NULL OR s.max_concurrency > {_of_schedule("running")} + (
        SELECT count(*) FROM (
            SELECT FROM scheduler.runs AS q WHERE q.state = 'queued' AND q.schedule_id = s.id
                AND q.schedule_tenant_id = s.tenant_id
                AND ({SINCE.format("q")}, q.id) < ({SINCE.format("r")}, r.id) LIMIT s.max_concurrency
        ) AS ahead
    ))"""


# A trigger is due from its next fire on, a run available from its time on: one index each has both after the priority.
_DUE = "t.enabled AND t.next_fire_at IS NOT NULL"
_QUEUED = "r.state = 'queued'"


def _ordered(table: str, alias: str, waiting: str, columns: str, condition: str, since: str, limit: str) -> str:
    """Return two CTEs: ``levels``, the priorities of what waits, highest first, and ``chosen``, the rows, locked.

    One ordered scan of the index on (priority, since, id) of what is ``waiting``: in each priority it reads from the
    first row to the first one whose time has not come, and continues with the next priority. A plain ORDER BY over all
    priorities would also read the rows of higher priorities whose time has not come. ``condition`` is evaluated for
    each row in turn; a locked row is skipped. Not one that only a foreign key locks (FOR KEY SHARE): FOR UPDATE would
    skip a run while a line of its log is written, and no wake-up would come for it. It looks up no more priorities, and
    locks no more rows, than ``limit`` rows (a parameter) need.
    """
    highest = f"SELECT {alias}.priority FROM {table} AS {alias} WHERE {waiting}"
    first = f"ORDER BY {alias}.priority DESC LIMIT 1"
    return f"""
RECURSIVE levels AS (
    ({highest} {first})
    UNION ALL
    SELECT ({highest} AND {alias}.priority < l.priority {first}) FROM levels AS l WHERE l.priority IS NOT NULL
), chosen AS MATERIALIZED (
    SELECT found.* FROM levels AS l CROSS JOIN LATERAL (
        SELECT {columns} FROM {table} AS {alias}
        {_schedule(f"{alias}.schedule_id", f"{alias}.{_OWNER[alias]}")}
        WHERE {waiting} AND {alias}.priority = l.priority AND {since} <= {NOW} AND {condition}
        ORDER BY {since}, {alias}.id LIMIT {limit} FOR NO KEY UPDATE OF {alias} SKIP LOCKED
    ) AS found LIMIT {limit}
)"""


_OWNER = {"r": "schedule_tenant_id", "t": "tenant_id"}
"""Alias of runs and of triggers to their column with the schedule's tenant."""


def named_filters(first: int, *, of_tenants: bool, of_queues: bool, of_handlers: bool) -> tuple[int | None, str]:
    """Return the number of the parameter that names tenants, and the condition on the schedule; "" if there is none.

    The parameters are, from ``first`` on, each if it is used: tenants, queues, names of handlers and their types. The
    condition is evaluated for the schedule of each row in turn: rows that are not served are skipped in the order of
    the queue.
    """
    numbers = iter(range(first, first + 4))
    tenants = next(numbers) if of_tenants else None
    condition = f" AND s.queue = ANY(${next(numbers)}::text[])" if of_queues else ""
    if of_handlers:
        names, types = next(numbers), next(numbers)
        condition += f" AND ({HANDLER} = ANY(${names}::text[]) OR s.handler_type = ANY(${types}::text[]))"
    return tenants, condition


def left_out(alias: str, first: int | None) -> str:
    """Return the condition that leaves out the rows whose ids and tenants are the parameters from ``first`` on."""
    left = f"SELECT * FROM unnest(${first}::uuid[], ${(first or 0) + 1}::text[])"
    return "" if first is None else f" AND ({alias}.id, {alias}.tenant_id) NOT IN ({left})"


@cache
def claim(
    *,
    of_tenants: bool = False,
    of_queues: bool = False,
    of_handlers: bool = False,
    but: int | None = None,
    only_look: bool = False,
) -> str:
    """Return the statement: now, worker, lease, limit, then as ``named_filters`` → columns of runs, of their schedules.

    ``but``: the number of the first of two parameters that name runs to be left out. ``only_look``: nothing is
    claimed, and the ids and tenants of the runs that would be are returned; they are locked.
    """
    tenants, served_only = named_filters(5, of_tenants=of_tenants, of_queues=of_queues, of_handlers=of_handlers)
    runs, schedules = table(Run), table(Schedule)
    alone = "false" if served_only else "r.schedule_id IS NULL"
    may_run = f"s.enabled AND s.deleted_at IS NULL AND s.status <> 'paused'{served_only}"
    columns = (
        "r.id AS chosen_id, r.tenant_id AS chosen_tenant, s.row_version AS version,"
        " CASE WHEN s.max_concurrency IS NOT NULL THEN s.id END AS limited, s.tenant_id AS limited_tenant"
    )
    ordered = _ordered(
        "scheduler.runs",
        "r",
        _QUEUED,
        columns,
        f"{served('r', tenants)} AND {parallel_run.SERVED.format('r')}{left_out('r', but)}"
        f" AND CASE WHEN s.id IS NULL THEN {alone} ELSE {may_run} AND {_ROOM} END",
        SINCE.format("r"),
        "$4",
    )
    # For a limit that it does not know, the planner expects a tenth of all rows, and would read the runs whole. It
    # expects ten elements of an array, and looks the runs up by their ids.
    if only_look:
        return f"WITH {ordered} SELECT chosen_id, chosen_tenant FROM chosen WHERE ($2::text, $3::interval) IS NOT NULL"
    return f"""
WITH {ordered}, gate AS MATERIALIZED (
    SELECT opened.* FROM chosen CROSS JOIN LATERAL (
        SELECT s.id AS open_id, s.tenant_id AS open_tenant, s.ctid AS place FROM scheduler.schedules AS s
        WHERE s.id = limited AND s.tenant_id = limited_tenant AND s.xmin = version
        LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED
    ) AS opened
), free AS MATERIALIZED (
    SELECT chosen_id, chosen_tenant FROM chosen
    WHERE limited IS NULL OR (limited, limited_tenant) IN (SELECT open_id, open_tenant FROM gate)
), taken AS (
    UPDATE scheduler.runs AS r SET state = 'running', worker_id = $2, fence = coalesce(fence, 0) + 1,
        lease_expires_at = date_trunc('milliseconds', {NOW} + $3::interval),
        started_at = coalesce(started_at, {NOW}), updated_at = {NOW}
    FROM unnest(ARRAY(SELECT chosen_id FROM free), ARRAY(SELECT chosen_tenant FROM free)) AS g(id, tenant)
    WHERE r.id = g.id AND r.tenant_id = g.tenant
    RETURNING {runs.qualified("r").as_string(None)}, r.schedule_tenant_id, r.priority
), marked AS (
    UPDATE scheduler.schedules AS s SET status = s.status
    WHERE s.ctid = ANY (ARRAY(SELECT place FROM gate)) AND EXISTS (SELECT FROM gate)
)
SELECT {runs.qualified("t").as_string(None)}, {schedules.qualified("s").as_string(None)}
FROM taken AS t {_schedule("t.schedule_id", "t.schedule_tenant_id")}
ORDER BY t.priority DESC, {SINCE.format("t")}, t.id
"""


# IS TRUE, so that schedules are looked up by their ids, and no index on active ones is read whole.
MAY_FIRE = (
    f"(s.enabled AND s.deleted_at IS NULL AND s.status = ANY (ARRAY[{literals(states.SCHEDULE_FIRING)}])) IS TRUE"
)


@cache
def due(
    *,
    of_tenants: bool = False,
    of_queues: bool = False,
    of_handlers: bool = False,
    but: int | None = None,
) -> str:
    """Return the statement that locks due triggers: now, limit, then as ``named_filters`` → their ids and tenants.

    ``but``: as in ``claim``, triggers to be left out.
    """
    tenants, served_only = named_filters(3, of_tenants=of_tenants, of_queues=of_queues, of_handlers=of_handlers)
    ordered = _ordered(
        "scheduler.triggers",
        "t",
        _DUE,
        "t.id AS chosen_id, t.tenant_id AS chosen_tenant",
        f"{served('t', tenants)} AND {parallel_run.SERVED.format('t')}{left_out('t', but)}"
        f" AND CASE WHEN s.id IS NOT NULL THEN {MAY_FIRE}{served_only} ELSE false END",
        "t.next_fire_at",
        "$2",
    )
    return f"WITH {ordered} SELECT chosen_id, chosen_tenant FROM chosen"


@cache
def locked() -> str:
    """Return the statement: now, ids, tenants of locked triggers → live runs, columns of triggers, of their schedules.

    It sees what was committed until the rows were locked; the statement that locked them does not.
    """
    triggers, schedules = table(Trigger), table(Schedule)
    return f"""
SELECT {open_runs()},
    {triggers.qualified("t").as_string(None)}, {schedules.qualified("s").as_string(None)}
FROM unnest($2::uuid[], $3::text[]) AS g(id, tenant)
CROSS JOIN LATERAL (SELECT * FROM scheduler.triggers WHERE id = g.id AND tenant_id = g.tenant OFFSET 0) AS t
{_schedule("t.schedule_id", "t.tenant_id")}
WHERE t.enabled AND t.next_fire_at <= {NOW} AND {MAY_FIRE}
ORDER BY t.priority DESC, t.next_fire_at, t.id
"""


# IS TRUE, so that the rows are found by their ids: the planner expects hardly any running runs, and would compare each
# of them with each of the given ones.
_HELD = (
    "r.id = g.id AND r.tenant_id = g.tenant AND (r.state = 'running') IS TRUE"
    " AND coalesce(r.worker_id, '') = g.worker AND coalesce(r.fence, 0) = g.fence"
)


def _given(columns: str) -> str:
    """Return the rows ``g`` of the second parameter, a JSON array of objects.

    The planner expects ten elements of an array and a hundred of a set of JSON: for ten it looks rows up by their ids.
    """
    elements = "unnest(ARRAY(SELECT json_array_elements($2::json)))"
    return f"{elements} AS element CROSS JOIN LATERAL json_to_record(element) AS g({columns})"


_GIVEN = _given("id uuid, tenant text, worker text, fence bigint")

GIVE_BACK = """
UPDATE scheduler.runs AS r SET state = 'queued', worker_id = NULL, lease_expires_at = NULL
FROM unnest($1::uuid[], $2::text[]) AS g(id, tenant)
WHERE r.id = g.id AND r.tenant_id = g.tenant AND r.state = 'running' AND r.worker_id = $3
"""
"""ids, tenants, worker: release runs that were claimed, and whose rows cannot be read."""

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
    SELECT {interval("s.timeout_ms")} FROM scheduler.schedules AS s
    WHERE s.id = r.schedule_id AND s.tenant_id = r.schedule_tenant_id
) <= {NOW})"""


_ENDS = _given(
    "position int, id uuid, tenant text, worker text, fence bigint, state text, result jsonb, error text, detail text,"
    " status text"
)


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
    FROM {_ENDS} WHERE {_HELD} {over} RETURNING r.id, r.tenant_id"""
    if not of_schedules:
        return ended
    # The schedules are locked in the order of their ids, as they come from ``first``. LATERAL with a LIMIT: each is
    # looked up by its id, also while the statistics say that there are no schedules.
    return f"""
WITH ended AS ({ended}, r.schedule_id, r.schedule_tenant_id, g.position, g.status), first AS MATERIALIZED (
    SELECT DISTINCT ON (schedule_id, schedule_tenant_id) schedule_id, schedule_tenant_id, status FROM ended
    WHERE status IS NOT NULL AND schedule_id IS NOT NULL ORDER BY schedule_id, schedule_tenant_id, position
), held AS MATERIALIZED (
    SELECT locked.id AS held_id, locked.tenant_id AS held_tenant, f.status AS following
    FROM first AS f CROSS JOIN LATERAL (
        SELECT s.id, s.tenant_id FROM scheduler.schedules AS s
        WHERE s.id = f.schedule_id AND s.tenant_id = f.schedule_tenant_id
            AND (s.status = 'running' AND s.deleted_at IS NULL) IS TRUE
        LIMIT 1 FOR NO KEY UPDATE OF s
    ) AS locked
), moved AS (
    UPDATE scheduler.schedules SET status = following, updated_at = {NOW},
        completed_at = CASE WHEN following = 'completed' THEN {NOW} ELSE completed_at END
    FROM held WHERE id = held_id AND tenant_id = held_tenant
)
SELECT id, tenant_id FROM ended
"""


@cache
def expired(*, of_tenants: bool = False, of_workers: bool = False) -> str:
    """Return the statement: now, limit[, tenants][, workers] → columns of running runs that are over, of schedules."""
    workers = f"AND r.fence IS NOT NULL AND r.worker_id = ANY(${4 if of_tenants else 3}::text[])" if of_workers else ""
    return f"""
WITH over AS MATERIALIZED (
    SELECT r.* FROM scheduler.runs AS r
    WHERE r.state = 'running' AND {served("r", 3 if of_tenants else None)} {workers} AND {_EXPIRED}
    ORDER BY r.lease_expires_at NULLS LAST, r.id LIMIT $2
)
SELECT {table(Run).qualified("r").as_string(None)}, {table(Schedule).qualified("s").as_string(None)} FROM over AS r
{_schedule("r.schedule_id", "r.schedule_tenant_id")}
ORDER BY r.lease_expires_at NULLS LAST, r.id
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
