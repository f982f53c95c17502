"""Runs in PostgreSQL, with their numbers, summaries, logs and impact snapshots.

A run number is one more than a schedule ever had, also after retention deleted its newest runs. The counter is
``transitions.LAST_NUMBER``, a member of the schedule's summary. A session that numbers runs of a schedule locks that
row.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

from psycopg import sql

from migrator import states
from migrator.connections.postgres import Connection
from migrator.constraints import most_of
from migrator.records import ExecutionLog, ImpactSnapshot, Run, RunSummary
from migrator.store import transitions, validation
from migrator.store.postgres.repository import Repository, unsourced
from migrator.store.postgres.rows import as_json, fetch_rows, literals
from migrator.store.postgres.wakeups import Written
from migrator.store.protocols import RunPage, RunQuery
from migrator.store.transitions import summary_id
from migrator.store.validation import GLOBAL
from migrator.store.wakeups import is_ready

_MOST = most_of("runs.run_number")
# The member may be what a source wrote: what is no whole number counts as 0, as on MongoDB.
_LAST = f"""CASE WHEN jsonb_typeof(s.counters -> 'lastRunNumber') = 'number'
            AND s.counters ->> 'lastRunNumber' ~ '^[0-9]+$'
        THEN least((s.counters ->> 'lastRunNumber')::numeric, {_MOST})::bigint ELSE 0 END"""
_NUMBER = f"""
WITH wanted AS MATERIALIZED (
    SELECT * FROM json_to_recordset($1::json) AS g(id uuid, tenant text, schedule uuid, count int)
), counted AS (
    INSERT INTO scheduler.run_summaries AS s (id, tenant_id, schedule_id, updated_at, counters)
    SELECT w.id, w.tenant, w.schedule, $2, jsonb_build_object('lastRunNumber', w.count::bigint + coalesce(
        (SELECT max(run_number) FROM scheduler.runs AS r WHERE r.schedule_id = w.schedule AND r.tenant_id = w.tenant), 0
    )) FROM wanted AS w ORDER BY w.schedule, w.tenant
    ON CONFLICT (tenant_id, schedule_id) WHERE schedule_id IS NOT NULL DO UPDATE
    SET counters = coalesce(s.counters, '{{}}') || jsonb_build_object('lastRunNumber', greatest(
        {_LAST} + (SELECT w.count FROM wanted AS w
                WHERE w.schedule = EXCLUDED.schedule_id AND w.tenant = EXCLUDED.tenant_id),
        (EXCLUDED.counters ->> 'lastRunNumber')::bigint
    ))
    RETURNING tenant_id, schedule_id, (counters ->> 'lastRunNumber')::bigint AS last
)
SELECT w.tenant, w.schedule, counted.last - w.count + 1 FROM wanted AS w
JOIN counted ON counted.schedule_id = w.schedule AND counted.tenant_id = w.tenant
"""  # noqa: S608 - our own text


def take_numbers(
    connection: Connection, wanted: Mapping[tuple[str, UUID], int], now: datetime
) -> dict[tuple[str, UUID], int]:
    """Take so many run numbers of each schedule, by (its tenant, its id); return the first of each.

    In the order of the schedules, so that two sessions that number several of them do not deadlock. Other sessions that
    number runs of these schedules wait until the transaction ends; a rollback returns the numbers. A count of 0 takes
    none, but locks the counter, and makes one if there is none. A number may be larger than the column holds
    (``transitions.run_number``).
    """
    if not wanted:
        return {}
    asked = [
        {"id": summary_id(tenant, schedule), "tenant": tenant, "schedule": schedule, "count": count}
        for (tenant, schedule), count in wanted.items()
    ]
    found = fetch_rows(connection, _NUMBER, (as_json(asked), now))
    return {(tenant, schedule): first for tenant, schedule, first in found}


LIVE = list(states.live(states.RUN))

_FILTERS: dict[str, LiteralString] = {
    "schedule_id": "schedule_id = %(schedule_id)s",
    "states": "state = ANY(%(states)s)",
    "created_after": "created_at > %(created_after)s",
    "created_before": "created_at < %(created_before)s",
    "trace_id": "trace_id = %(trace_id)s",
}

# The index serves the first condition. The second leaves out what the page before held of its last instant.
_OLDER: LiteralString = "created_at <= %(at)s AND (created_at < %(at)s OR id > %(after)s)"
_NEWER: LiteralString = "created_at >= %(at)s AND (created_at > %(at)s OR id > %(after)s)"

PENDING = (
    f"WHERE tenant_id = %s AND state = ANY(ARRAY[{literals(states.RUN_WAITING)}]) ORDER BY created_at, id LIMIT %s"
)
OF_SCHEDULE = "WHERE schedule_id = %s AND tenant_id = %s ORDER BY created_at DESC, id LIMIT %s"

_NEWEST_OF = sql.SQL("""
SELECT {} FROM unnest(%s::uuid[]) WITH ORDINALITY AS g(schedule, place) CROSS JOIN LATERAL (
    SELECT * FROM scheduler.runs WHERE schedule_id = g.schedule AND tenant_id = %s AND state = ANY(%s)
    ORDER BY created_at DESC, id LIMIT 1
) AS r ORDER BY g.place
""")

_BEYOND = """
SELECT {columns} FROM (
    SELECT *, row_number() OVER (PARTITION BY schedule_id ORDER BY created_at DESC, id) AS rank
    FROM scheduler.runs WHERE tenant_id = %s
) AS r
WHERE rank > %s AND created_at < %s AND NOT state = ANY(%s) ORDER BY created_at, id LIMIT %s
"""


class PostgresRuns(Repository[Run]):
    """``protocols.Runs``."""

    _record = Run

    def __init__(self, connection: Connection, tenant: str, now: datetime, written: Written) -> None:
        """``written`` takes whether a run may be claimed."""
        super().__init__(connection, tenant, now)
        self._written = written

    def get(self, run_id: UUID) -> Run | None:
        return self._visible(run_id)

    def list(self, query: RunQuery) -> RunPage:
        validation.check_page(query.limit, query.offset)
        validation.check_known("run state", states.RUN, query.states)
        given = {name: value for name in (*_FILTERS, "cursor") if (value := getattr(query, name)) not in (None, ())}
        parameters: dict[str, Any] = {"tenant": self._tenant, "limit": query.limit + 1, "offset": query.offset}
        parameters |= given | {"states": list(query.states)}
        if query.cursor is not None:
            parameters["at"], parameters["after"] = query.cursor
            del parameters["cursor"]
        filters = _FILTERS | {"cursor": _OLDER if query.descending else _NEWER}
        condition = " AND ".join(["WHERE tenant_id = %(tenant)s", *(filters[name] for name in given)])
        order: LiteralString = "created_at DESC, id" if query.descending else "created_at, id"
        runs = self._select(condition + " ORDER BY " + order + " LIMIT %(limit)s OFFSET %(offset)s", parameters)
        page = tuple(runs[: query.limit])
        more = len(runs) > query.limit
        return RunPage(runs=page, cursor=(page[-1].created_at, page[-1].id) if more else None)

    def create(self, run: Run) -> Run:
        run = validation.checked_record(run, self._tenant)
        owner = self._require("schedules", run.schedule_id, shared=True)
        cause = self._require("triggers", run.trigger_id, shared=True)
        self._require("runs", run.retry_of)
        changes: dict[str, Any] = {"run_number": None, "updated_at": run.updated_at or self._now}
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            changes["attempt"] = 1
        with self.refusing():
            if run.schedule_id is not None and owner == self._tenant:
                numbered = {(self._tenant, run.schedule_id): 1}
                (number,) = take_numbers(self._connection, numbered, self._now).values()
                changes["run_number"] = transitions.run_number(number)
            values = [*self._table.values(unsourced(run, **changes)), (owner or cause) == GLOBAL]
            (made,) = self._many(self._table.insert("global_schedule"), values)
        self._written.work = self._written.work or is_ready(made, self._now)
        return made

    def update(self, run: Run, expected: str) -> bool:
        run = validation.checked_record(run, self._tenant)
        transitions.check_update(expected, run.state)
        stored = self._held(run.id)
        if stored is None or stored.state != expected:
            return False
        # A referenced row may have been deleted since: only a reference that changes is looked up.
        owner: str | None = None
        for name, column in (("triggers", "trigger_id"), ("schedules", "schedule_id"), ("runs", "retry_of")):
            if getattr(run, column) != getattr(stored, column):
                found = self._require(name, getattr(run, column), shared=name != "runs")
                owner = owner if name == "runs" else found or owner
        advanced = transitions.advanced_run(stored, validation.with_stored_precision(run, stored), self._now)
        if owner is None:
            self._replace(advanced)
            return True
        with self.refusing():
            self._many(self._table.replace("global_schedule"), [owner == GLOBAL, *self._table.changes(advanced)])
        return True

    def pending(self, limit: int) -> Sequence[Run]:
        validation.check_page(limit)
        return self._select(PENDING, (self._tenant, limit))

    def of_schedule(self, schedule_id: UUID, limit: int) -> Sequence[Run]:
        validation.check_page(limit)
        return self._select(OF_SCHEDULE, (schedule_id, self._tenant, limit))

    def newest_of(self, schedule_ids: Sequence[UUID], states: Sequence[str]) -> Sequence[Run]:
        return self._many(
            _NEWEST_OF.format(self._table.qualified("r")), (list(schedule_ids), self._tenant, list(states))
        )

    def repeats(self, run_id: UUID) -> Sequence[Run]:
        return self._select("WHERE retry_of = %s AND tenant_id = %s ORDER BY created_at, id", (run_id, self._tenant))

    def cancel(self, run_id: UUID, reason: str) -> Run | None:
        stored = self._held(run_id)
        if stored is None or stored.state not in LIVE:
            return None
        return self._replace(
            validation.checked_record(transitions.cancelled_run(stored, reason, self._now), self._tenant)
        )

    def cancel_of_schedule(self, schedule_id: UUID, reason: str) -> int:
        runs = self._select(
            "WHERE schedule_id = %s AND tenant_id = %s AND state = ANY(%s) ORDER BY id FOR UPDATE",
            (schedule_id, self._tenant, LIVE),
        )
        return sum(self.cancel(run.id, reason) is not None for run in runs)

    def beyond(self, keep: int, before: datetime, limit: int) -> Sequence[Run]:
        validation.check_page(limit, keep)
        query = sql.SQL(_BEYOND).format(columns=self._table.columns)
        return self._many(query, (self._tenant, keep, before, LIVE, limit))

    def held(self, run_ids: Sequence[UUID]) -> Sequence[Run]:
        return self._select(
            "WHERE id = ANY(%s) AND tenant_id = %s AND NOT state = ANY(%s) ORDER BY created_at, id FOR UPDATE",
            (list(run_ids), self._tenant, LIVE),
        )

    def remove(self, run_ids: Sequence[UUID]) -> int:
        return self._connection.execute(
            "DELETE FROM scheduler.runs WHERE id = ANY(%s) AND tenant_id = %s AND NOT state = ANY(%s)",
            (list(run_ids), self._tenant, LIVE),
        ).rowcount


# Only a whole number in jsonb's spelling counts, as in ``transitions.whole_number``.
_COUNTS = """
SELECT state, count(*), {} FROM scheduler.runs WHERE schedule_id = %s AND tenant_id = %s GROUP BY state
"""
_TOTAL = """
coalesce(sum(CASE WHEN jsonb_typeof(stats -> {0}) = 'number' AND stats ->> {0} ~ '^-?[0-9]+$'
    THEN (stats ->> {0})::numeric END), 0)
"""


class PostgresRunSummaries(Repository[RunSummary]):
    """``protocols.RunSummaries``."""

    _record = RunSummary

    def get(self, schedule_id: UUID) -> RunSummary | None:
        return self._select_one("WHERE tenant_id = %s AND schedule_id = %s", (self._tenant, schedule_id))

    def recompute(self, schedule_id: UUID, recent: int = 20) -> RunSummary:
        validation.check_page(recent)
        validation.check_own_tenant(self._tenant, self._tenant)
        known = "SELECT 1 FROM scheduler.runs WHERE schedule_id = %s AND tenant_id = %s LIMIT 1"
        if self._value(known, (schedule_id, self._tenant)) is None:
            self._require("schedules", schedule_id, shared=True)
        # Takes no number, but creates the row if there is none, locks it, and reads the counter: a session that numbers
        # a run meanwhile waits, and comes after.
        (following,) = take_numbers(self._connection, {(self._tenant, schedule_id): 0}, self._now).values()
        members = sql.SQL(", ").join(sql.SQL(_TOTAL).format(sql.Literal(member)) for member in transitions.TOTALS)
        rows = self._connection.execute(sql.SQL(_COUNTS).format(members), (schedule_id, self._tenant)).fetchall()
        stored = self.get(schedule_id)
        assert stored is not None  # noqa: S101 - made or found above
        summary = transitions.summary(
            stored.id,
            self._tenant,
            schedule_id,
            counts={state: count for state, count, *_ in rows},
            totals={member: sum(int(row[place]) for row in rows) for place, member in enumerate(transitions.TOTALS, 2)},
            newest=PostgresRuns(self._connection, self._tenant, self._now, Written()).of_schedule(schedule_id, recent),
            last_number=following - 1,
            now=self._now,
        )
        return self._replace(summary)


class PostgresExecutionLogs(Repository[ExecutionLog]):
    """``protocols.ExecutionLogs``."""

    _record = ExecutionLog

    def append(self, lines: Sequence[ExecutionLog]) -> None:
        written = [unsourced(validation.checked_record(line, self._tenant)) for line in lines]
        for run_id in dict.fromkeys(line.run_id for line in written):
            self._require("runs", run_id)
        with self.refusing(), self._connection.cursor() as cursor:
            cursor.executemany(self._table.insert(), [self._table.values(line) for line in written])

    def of_run(self, run_id: UUID, limit: int = 1000) -> Sequence[ExecutionLog]:
        validation.check_page(limit)
        return self._select(
            "WHERE run_id = %s AND tenant_id = %s ORDER BY logged_at, id LIMIT %s", (run_id, self._tenant, limit)
        )

    def of_runs(self, run_ids: Sequence[UUID]) -> Sequence[ExecutionLog]:
        return self._select(
            "WHERE run_id = ANY(%s) AND tenant_id = %s ORDER BY run_id, logged_at, id", (list(run_ids), self._tenant)
        )


class PostgresImpactSnapshots(Repository[ImpactSnapshot]):
    """``protocols.ImpactSnapshots``."""

    _record = ImpactSnapshot

    def insert(self, snapshot: ImpactSnapshot) -> None:
        snapshot = validation.checked_record(snapshot, self._tenant)
        self._require("runs", snapshot.run_id)
        self._insert(snapshot)

    def get(self, snapshot_id: UUID) -> ImpactSnapshot | None:
        return self._visible(snapshot_id)

    def of_run(self, run_id: UUID) -> Sequence[ImpactSnapshot]:
        return self._select(
            "WHERE run_id = %s AND tenant_id = %s ORDER BY generated_at DESC NULLS LAST, id", (run_id, self._tenant)
        )
