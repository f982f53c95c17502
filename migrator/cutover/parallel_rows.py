"""What PostgreSQL recorded of a parallel run, which no document of another application shows.

The old scheduler ran the same slots, and its documents say how. A run of the new side that ended before the outbox was
opened, or that called no handler, changes no document: neither its last run nor its counts. A rollback exports it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString

from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.cutover.outbox import RowKey
from migrator.records import AuditEntry, ExecutionLog, ImpactSnapshot, Record, Run
from migrator.schema import decisions

_DRY: LiteralString = '{"dry_run": true}'
"""The result of a run whose handler was not called (``scheduler.executor.DRY_RUN``)."""
_SKIPPED: LiteralString = '{"skipped": "parallel run"}'
"""The reason of a run that the end of the parallel run skipped (``takeover``)."""
_OPENED: LiteralString = (
    "(SELECT coalesce(o.ended_at, o.began_at) FROM migration.cutover_steps AS o JOIN migration.cutovers AS c"
    " ON c.id = o.cutover_id WHERE o.step = 'outbox' AND o.state <> 'undone' ORDER BY c.began_at DESC LIMIT 1)"
)


_KIND: LiteralString = decisions.PARALLEL_BEGUN
_BEGUN: LiteralString = (
    f"(SELECT date_trunc('milliseconds', min(d.at)) FROM migration.decisions AS d WHERE d.kind = '{_KIND}')"  # noqa: S608 - our own text
)


def of_parallel_run(alias: LiteralString) -> LiteralString:
    """Return the condition for runs of a parallel run, of schedules that came from the source."""
    return (
        f"({alias}.source IS NULL AND coalesce({alias}.created_at >= {_BEGUN}"
        f" AND coalesce({alias}.updated_at, {alias}.created_at) < {_OPENED}"
        f" OR {alias}.result = '{_DRY}' OR {alias}.reason = '{_SKIPPED}', false)"
        " AND EXISTS (SELECT FROM scheduler.schedules AS of_source WHERE of_source.source IS NOT NULL"
        f" AND of_source.id = {alias}.schedule_id AND of_source.tenant_id = {alias}.schedule_tenant_id))"
    )


_OF_RUN: LiteralString = (
    "t.source IS NULL AND EXISTS (SELECT FROM scheduler.runs AS r WHERE r.id = t.run_id AND r.tenant_id = t.tenant_id"
    f" AND {of_parallel_run('r')})"
)
CONDITIONS: Final[Mapping[type[Record], LiteralString]] = {
    Run: of_parallel_run("t"),
    ExecutionLog: _OF_RUN,
    ImpactSnapshot: _OF_RUN,
    AuditEntry: f"t.source IS NULL AND t.occurred_at >= {_BEGUN} AND t.occurred_at < {_OPENED}",
}
"""Record → the condition for the rows ``t`` of its table."""


def keys_of(target: Connection, record: type[Record], keys: Sequence[RowKey]) -> set[RowKey]:
    """Return which of these rows were made in a parallel run."""
    if record not in CONDITIONS:
        return set()
    place = sql.Identifier("scheduler", record.table)
    statement = sql.SQL(
        "SELECT t.id::text, t.tenant_id FROM {} AS t"
        " WHERE (t.id, t.tenant_id) IN (SELECT * FROM unnest(%s::uuid[], %s::text[])) AND "
    ).format(place)
    ids, tenants = [row_id for row_id, _ in keys], [tenant for _, tenant in keys]
    return {*target.execute(statement + sql.SQL(CONDITIONS[record]), (ids, tenants)).fetchall()}


def every_key(target: Connection, record: type[Record]) -> list[RowKey]:
    """Return the rows of a table that were made in a parallel run."""
    place = sql.Identifier("scheduler", record.table)
    statement = sql.SQL("SELECT t.id::text, t.tenant_id FROM {} AS t WHERE ").format(place)
    return target.execute(statement + sql.SQL(CONDITIONS[record])).fetchall()
