"""Statistics in PostgreSQL: aggregates over the indexes of pages and of live runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from psycopg import sql

from migrator import states
from migrator.connections.postgres import Connection
from migrator.store import validation
from migrator.store.postgres.rows import literals
from migrator.store.statistics import (
    PERCENTILES,
    Backlog,
    Durations,
    FailurePattern,
    NextFire,
    RunFilter,
    RunStatistics,
    ScheduleStatistics,
)

_SCHEDULES = """
SELECT status, count(*), count(*) FILTER (WHERE enabled) FROM scheduler.schedules
WHERE tenant_id = %s AND deleted_at IS NULL GROUP BY status
"""

_BOUNDS: Mapping[str, LiteralString] = {
    "schedule_id": " AND schedule_id = %(schedule_id)s",
    "since": " AND created_at >= %(since)s",
    "until": " AND created_at < %(until)s",
}

_RUNS = """
SELECT max(started_at), max(created_at), {counts},
    count(duration_ms) FILTER (WHERE state = 'completed'), sum(duration_ms) FILTER (WHERE state = 'completed'),
    min(duration_ms) FILTER (WHERE state = 'completed'), max(duration_ms) FILTER (WHERE state = 'completed'),
    percentile_disc(%(percentiles)s::float8[]) WITHIN GROUP (ORDER BY duration_ms) FILTER (WHERE state = 'completed')
FROM scheduler.runs WHERE tenant_id = %(tenant)s {bounds}
"""

# The states are written here as in ix_runs_open and ix_runs_waiting, so that these indexes can be used.
_BACKLOG = f"""
SELECT count(*) FILTER (WHERE state = 'queued' AND coalesce(available_at, created_at) <= %(now)s),
    count(*) FILTER (WHERE state = 'queued' AND coalesce(available_at, created_at) > %(now)s),
    (SELECT count(*) FROM scheduler.runs WHERE tenant_id = %(tenant)s AND state = 'planning'),
    count(*) FILTER (WHERE state = 'running'),
    count(DISTINCT schedule_id) FILTER (WHERE state = 'running'),
    min(coalesce(available_at, created_at)) FILTER (
        WHERE state = 'queued' AND coalesce(available_at, created_at) <= %(now)s
    )
FROM scheduler.runs WHERE tenant_id = %(tenant)s AND state = ANY(ARRAY[{literals(states.RUN_OPEN)}])
"""  # noqa: S608 - our own words

_FAILURES = """
SELECT coalesce(split_part(error, ':', 1), state) COLLATE "C" AS pattern, count(*),
    max(coalesce(finished_at, created_at))
FROM scheduler.runs WHERE tenant_id = %(tenant)s AND state = ANY(%(failed)s) {bounds}
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s
"""

_HOURS = """
SELECT extract(hour FROM coalesce(started_at, created_at) AT TIME ZONE 'UTC')::int, count(*)
FROM scheduler.runs WHERE tenant_id = %(tenant)s {bounds} GROUP BY 1
"""

_REMOVABLE = """
SELECT schedule_id, count(*) FROM (
    SELECT schedule_id, state, created_at,
        row_number() OVER (PARTITION BY schedule_id ORDER BY created_at DESC, id) AS rank
    FROM scheduler.runs WHERE tenant_id = %s
) AS r
WHERE rank > %s AND created_at < %s AND NOT state = ANY(%s) GROUP BY schedule_id
"""

# Pages of triggers, in their order from ix_triggers_next. Not one query with the schedules: under row-level security
# the planner expects few rows of a tenant, and would read and sort them all.
_NEXT: LiteralString = """
SELECT next_fire_at, id, schedule_id FROM scheduler.triggers
WHERE tenant_id = %(tenant)s AND enabled AND next_fire_at IS NOT NULL {}
ORDER BY next_fire_at, id LIMIT %(page)s
"""
_AFTER = "AND next_fire_at >= %(at)s AND (next_fire_at, id) > (%(at)s, %(trigger)s)"
_MAY_RUN = f"""
SELECT id, name FROM scheduler.schedules WHERE id = ANY(%s) AND tenant_id = %s
  AND enabled AND deleted_at IS NULL AND status IN ({literals(states.SCHEDULE_FIRING)})
"""  # noqa: S608 - as above
_PAGE, _LARGEST_PAGE = 10, 1000
"""Small at first: the planner keeps the order of the index only for a page smaller than what it expects."""


class PostgresStatistics:
    """``statistics.Statistics``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        self._connection, self._tenant, self._now = connection, tenant, now

    def schedules(self) -> ScheduleStatistics:
        rows = self._connection.execute(_SCHEDULES, (self._tenant,)).fetchall()
        found = {status: count for status, count, _ in rows}
        return ScheduleStatistics(
            by_status={status: found.get(status, 0) for status in states.SCHEDULE},
            enabled=sum(enabled for *_, enabled in rows),
        )

    def runs(self, runs: RunFilter) -> RunStatistics:
        counts = sql.SQL(", ").join(
            sql.SQL("count(*) FILTER (WHERE state = {})").format(sql.Literal(state)) for state in states.RUN
        )
        (row,) = self._rows(_RUNS, runs, counts=counts, percentiles=[*PERCENTILES])
        started, created, rest = row[0], row[1], row[2:]
        count, total, least, most, percentiles = rest[len(states.RUN) :]
        durations = None
        if count:
            p50, p95, p99 = percentiles
            durations = Durations(count=count, total=int(total), least=least, most=most, p50=p50, p95=p95, p99=p99)
        return RunStatistics(
            by_state=dict(zip(states.RUN, rest, strict=False)),
            durations=durations,
            last_started_at=started,
            last_created_at=created,
        )

    def backlog(self) -> Backlog:
        row = self._connection.execute(_BACKLOG, {"tenant": self._tenant, "now": self._now}).fetchone()
        assert row is not None  # noqa: S101 - an aggregate without GROUP BY has one row
        ready, delayed, planning, running, schedules, oldest = row
        return Backlog(
            ready=ready,
            delayed=delayed,
            planning=planning,
            running=running,
            running_schedules=schedules,
            oldest_ready_at=oldest,
        )

    def failures(self, runs: RunFilter, limit: int) -> Sequence[FailurePattern]:
        validation.check_page(limit)
        rows = self._rows(_FAILURES, runs, failed=[*states.RUN_FAILED], limit=limit)
        return [FailurePattern(pattern=pattern, count=count, last_at=last) for pattern, count, last in rows]

    def hours(self, runs: RunFilter) -> Mapping[int, int]:
        return dict(sorted(self._rows(_HOURS, runs)))

    def removable(self, keep: int, before: datetime) -> Mapping[UUID | None, int]:
        validation.check_page(1, keep)
        rows = self._connection.execute(_REMOVABLE, (self._tenant, keep, before, [*states.live(states.RUN)])).fetchall()
        return dict(rows)

    def next_fires(self, limit: int) -> Sequence[NextFire]:
        validation.check_page(limit)
        fires: list[NextFire] = []
        query = sql.SQL(_NEXT).format(sql.SQL(""))
        where: dict[str, Any] = {"tenant": self._tenant, "page": _PAGE}
        while len(fires) < limit:
            rows = self._connection.execute(query, where).fetchall()
            schedules = list({schedule for *_, schedule in rows})
            named: list[tuple[UUID, str]] = self._connection.execute(_MAY_RUN, (schedules, self._tenant)).fetchall()
            may_run = dict(named)
            fires += [
                NextFire(at=at, schedule_id=schedule, trigger_id=trigger, name=may_run[schedule])
                for at, trigger, schedule in rows
                if schedule in may_run
            ]
            if len(rows) < where["page"]:
                break
            query = sql.SQL(_NEXT).format(sql.SQL(_AFTER))
            where |= {"at": rows[-1][0], "trigger": rows[-1][1], "page": min(2 * where["page"], _LARGEST_PAGE)}
        return fires[:limit]

    def _rows(
        self,
        query: LiteralString,
        runs: RunFilter,
        *,
        counts: sql.Composable = sql.SQL(""),  # noqa: B008 - immutable
        **parameters: Any,  # noqa: ANN401 - whatever the query takes
    ) -> list[tuple[Any, ...]]:
        given = {name: value for name in _BOUNDS if (value := getattr(runs, name)) is not None}
        bounds = sql.SQL("".join(_BOUNDS[name] for name in given))
        text = sql.SQL(query).format(bounds=bounds, counts=counts)
        return self._connection.execute(text, {"tenant": self._tenant, **given, **parameters}).fetchall()
