"""Run summaries in PostgreSQL."""

from datetime import datetime
from uuid import UUID

from psycopg import sql

from migrator.records.run import Run
from migrator.records.run_summary import RunSummary
from migrator.store import lives, rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.numbering import take_numbers
from migrator.store.postgres.repository import Repository
from migrator.store.postgres.runs import OF_SCHEDULE

# Only what is a whole number in jsonb's spelling counts, as in ``lives.whole``.
_COUNTS = """
SELECT state, count(*), {} FROM scheduler.runs WHERE schedule_id = %s AND tenant_id = %s GROUP BY state
"""
_TOTAL = """
coalesce(sum(CASE WHEN jsonb_typeof(stats -> {0}) = 'number' AND stats ->> {0} ~ '^-?[0-9]+$'
    THEN (stats ->> {0})::numeric END), 0)
"""


class PostgresRunSummaries(Repository[RunSummary]):
    """``ports.RunSummaries``."""

    def __init__(self, connection: Connection, tenant: str, now: datetime) -> None:
        super().__init__(RunSummary, connection, tenant, now)
        self._runs = Repository(Run, connection, tenant, now)

    def get(self, schedule_id: UUID) -> RunSummary | None:
        """Return a schedule's summary."""
        return self._one(
            self._table.select + sql.SQL("WHERE tenant_id = %s AND schedule_id = %s"), (self._tenant, schedule_id)
        )

    def recompute(self, schedule_id: UUID, recent: int = 20) -> RunSummary:
        """Compute it from the runs, and store it (``lives.summary``); ``lastRunNumber`` never goes back."""
        rules.page(recent)
        rules.own(self._tenant, self._tenant)
        if self._value("SELECT 1 FROM scheduler.runs WHERE schedule_id = %s LIMIT 1", (schedule_id,)) is None:
            self._require("schedules", schedule_id, shared=True)
        # Takes no number, but makes the row where there is none, locks it, and tells the counter: who numbers a run
        # meanwhile waits, and comes after.
        last_number = take_numbers(self._connection, self._tenant, schedule_id, self._now, 0) - 1
        members = sql.SQL(", ").join(sql.SQL(_TOTAL).format(sql.Literal(member)) for member in lives.TOTALS)
        rows = self._connection.execute(sql.SQL(_COUNTS).format(members), (schedule_id, self._tenant)).fetchall()
        stored = self.get(schedule_id)
        assert stored is not None  # noqa: S101 - made or found above
        summary = lives.summary(
            stored.id,
            self._tenant,
            schedule_id,
            counts={state: count for state, count, *_ in rows},
            totals={member: sum(int(row[place]) for row in rows) for place, member in enumerate(lives.TOTALS, 2)},
            newest=self._newest(schedule_id, recent),
            last_number=last_number,
            now=self._now,
        )
        replaced = self._replace(summary)
        assert replaced is not None  # noqa: S101 - its row is locked
        return replaced

    def _newest(self, schedule_id: UUID, recent: int) -> list[Run]:
        runs = self._runs
        return runs._many(runs._table.select + sql.SQL(OF_SCHEDULE), (schedule_id, self._tenant, recent))  # noqa: SLF001 - its own other half
