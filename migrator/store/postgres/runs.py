"""Runs in PostgreSQL."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, LiteralString
from uuid import UUID

import msgspec
from psycopg import sql

from migrator import states
from migrator.records.run import Run
from migrator.store import lives, rules
from migrator.store.ports import RunPage, RunQuery
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.mapping import table
from migrator.store.postgres.numbering import take_numbers
from migrator.store.postgres.repository import Repository
from migrator.store.rules import GLOBAL

LIVE = list(states.live(states.RUN))

_FILTERS: dict[str, LiteralString] = {
    "schedule_id": "schedule_id = %(schedule_id)s",
    "states": "state = ANY(%(states)s)",
    "created_after": "created_at > %(created_after)s",
    "created_before": "created_at < %(created_before)s",
    "trace_id": "trace_id = %(trace_id)s",
}

# The first condition is the index's, the second leaves out what the page before held of its last instant.
_OLDER: LiteralString = "created_at <= %(at)s AND (created_at < %(at)s OR id > %(after)s)"
_NEWER: LiteralString = "created_at >= %(at)s AND (created_at > %(at)s OR id > %(after)s)"

PENDING = "WHERE tenant_id = %s AND state = ANY(ARRAY['planning', 'queued']) ORDER BY created_at, id LIMIT %s"
OF_SCHEDULE = "WHERE schedule_id = %s AND tenant_id = %s ORDER BY created_at DESC, id LIMIT %s"

_BEYOND = """
SELECT {columns} FROM (
    SELECT *, row_number() OVER (PARTITION BY schedule_id ORDER BY created_at DESC, id) AS rank
    FROM scheduler.runs WHERE tenant_id = %s
) AS r
WHERE rank > %s AND created_at < %s AND NOT state = ANY(%s) ORDER BY created_at, id LIMIT %s
"""


_RUNS = table(Run)
_INSERT = sql.SQL(
    sql.SQL("INSERT INTO scheduler.runs ({}, global_schedule) VALUES ({}, %s) RETURNING {}")
    .format(_RUNS.columns, sql.SQL(", ").join([sql.Placeholder()] * len(_RUNS.names)), _RUNS.columns)
    .as_string(None)
)
"""The columns, and whether schedule and trigger are rows of the tenant ``*``."""
_REPLACE = sql.SQL(
    sql.SQL("UPDATE scheduler.runs SET global_schedule = %s, {} WHERE id = %s AND tenant_id = %s RETURNING {}")
    .format(
        sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in _RUNS.written), _RUNS.columns
    )
    .as_string(None)
)


class PostgresRuns(Repository[Run]):
    """``ports.Runs``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(Run, connection, tenant, now)

    def get(self, run_id: UUID) -> Run | None:
        """Return the run."""
        return self._visible(run_id)

    def list(self, query: RunQuery) -> RunPage:
        """Return one page."""
        rules.page(query.limit, query.offset)
        rules.known("run state", states.RUN, query.states)
        given = {name: value for name in (*_FILTERS, "cursor") if (value := getattr(query, name)) not in (None, ())}
        parameters: dict[str, Any] = {"tenant": self._tenant, "limit": query.limit + 1, "offset": query.offset}
        parameters |= given | {"states": list(query.states)}
        if query.cursor is not None:
            parameters["at"], parameters["after"] = query.cursor
            del parameters["cursor"]
        filters = _FILTERS | {"cursor": _OLDER if query.descending else _NEWER}
        condition = " AND ".join(["WHERE tenant_id = %(tenant)s", *(filters[name] for name in given)])
        order: LiteralString = "created_at DESC, id" if query.descending else "created_at, id"
        text = sql.SQL(condition + " ORDER BY " + order + " LIMIT %(limit)s OFFSET %(offset)s")
        runs = self._many(self._table.select + text, parameters)
        page = tuple(runs[: query.limit])
        more = len(runs) > query.limit
        return RunPage(runs=page, cursor=(page[-1].created_at, page[-1].id) if more else None)

    def create(self, run: Run) -> Run:
        """Insert; ``run_number`` is given here: one more than the schedule ever had, also after retention."""
        run = rules.written(run, self._tenant)
        owner = self._require("schedules", run.schedule_id, shared=True)
        cause = self._require("triggers", run.trigger_id, shared=True)
        self._require("runs", run.retry_of)
        changes: dict[str, Any] = {"source": None, "source_id": None, "run_number": None}
        changes["updated_at"] = run.updated_at or self._now
        if run.trigger_id is not None and run.scheduled_at is not None and run.attempt is None:
            changes["attempt"] = 1
        with self.refusing():
            if run.schedule_id is not None and owner == self._tenant:
                changes["run_number"] = take_numbers(self._connection, self._tenant, run.schedule_id, self._now)
            made = self._one(
                _INSERT, [*self._table.values(msgspec.structs.replace(run, **changes)), (owner or cause) == GLOBAL]
            )
        assert made is not None  # noqa: S101 - INSERT … RETURNING without a row has raised
        return made

    def update(self, run: Run, expected: str) -> bool:
        """Replace all columns if the state is ``expected`` now; started_at, finished_at and stats obey the machine."""
        run = rules.written(run, self._tenant)
        lives.may_update(expected, run.state)
        stored = self._held(run.id)
        if stored is None or stored.state != expected:
            return False
        # What it refers to may have been deleted since: only a reference that changes is looked up.
        owner: str | None = None
        for name, column in (("triggers", "trigger_id"), ("schedules", "schedule_id"), ("runs", "retry_of")):
            if getattr(run, column) != getattr(stored, column):
                found = self._require(name, getattr(run, column), shared=name != "runs")
                owner = owner if name == "runs" else found or owner
        advanced = lives.advanced_run(stored, rules.precise(run, stored), self._now)
        if owner is None:
            return self._replace(advanced) is not None
        with self.refusing():
            return self._one(_REPLACE, [owner == GLOBAL, *self._table.changes(advanced)]) is not None

    def pending(self, limit: int) -> Sequence[Run]:
        """Return planning and queued runs, oldest first."""
        rules.page(limit)
        return self._many(self._table.select + sql.SQL(PENDING), (self._tenant, limit))

    def of_schedule(self, schedule_id: UUID, limit: int) -> Sequence[Run]:
        """Return the tenant's newest runs of a schedule, newest first."""
        rules.page(limit)
        return self._many(self._table.select + sql.SQL(OF_SCHEDULE), (schedule_id, self._tenant, limit))

    def repeats(self, run_id: UUID) -> Sequence[Run]:
        """Return the tenant's runs that name this one in ``retry_of``, oldest first."""
        query = self._table.select + sql.SQL("WHERE retry_of = %s AND tenant_id = %s ORDER BY created_at, id")
        return self._many(query, (run_id, self._tenant))

    def cancel(self, run_id: UUID, reason: str) -> Run | None:
        """Make a live run cancelled, whoever works on it; none when it is not live."""
        stored = self._held(run_id)
        if stored is None or stored.state not in LIVE:
            return None
        return self._replace(rules.written(lives.cancelled_run(stored, reason, self._now), self._tenant))

    def cancel_of_schedule(self, schedule_id: UUID, reason: str) -> int:
        """Do the same to all live runs of a schedule; return how many."""
        query = self._table.select + sql.SQL(
            "WHERE schedule_id = %s AND tenant_id = %s AND state = ANY(%s) ORDER BY id FOR UPDATE"
        )
        runs = self._many(query, (schedule_id, self._tenant, LIVE))
        return sum(self.cancel(run.id, reason) is not None for run in runs)

    def beyond(self, keep: int, before: datetime, limit: int) -> Sequence[Run]:
        """Return ended runs that retention may remove, oldest first: neither young nor among the newest."""
        rules.page(limit, keep)
        query = sql.SQL(_BEYOND).format(columns=self._table.columns)
        return self._many(query, (self._tenant, keep, before, LIVE, limit))

    def remove(self, run_ids: Sequence[UUID]) -> int:
        """Delete runs that ended, with their logs; live and unknown ones are passed over. Returns how many."""
        return self._connection.execute(
            "DELETE FROM scheduler.runs WHERE id = ANY(%s) AND tenant_id = %s AND NOT state = ANY(%s)",
            (list(run_ids), self._tenant, LIVE),
        ).rowcount
