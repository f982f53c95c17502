"""Firing in a parallel run: what a trigger of the source fires here has a place of its own.

The rows of triggers and schedules that came from the source follow the source, also while both sides run: the old side
and the tail alone change them. What such a trigger fires here is in ``scheduler.parallel_triggers``, from the first
time that a process on PostgreSQL finds it. It begins with the next fire of the source, and goes on with that if the
source changes the timing. Runs of these schedules have no number, and their summaries are those of the source.

Nothing is caught up: of what is late, the old side decides what it still fires. A slot is not skipped because runs of
its schedule are live. Its run waits, and the claim keeps to the limit.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from migrator.connections.postgres import Connection
from migrator.records import Schedule, Trigger
from migrator.store.postgres import queue_statements
from migrator.store.postgres.firing import Firing, Key
from migrator.store.postgres.rows import as_json, fetch_rows, table

# ruff: noqa: S608 - statements are put together from our own column names, never from what is given

LEAST_GRACE_MS: Final = 60_000
"""How old a slot may be at least before it is left to the old side: this side may be the slower one."""

_MILLISECOND: Final = timedelta(milliseconds=1)

_TIMING: Final = (
    "ROW(t.kind, t.cron_expression, t.cron_dialect, t.timezone, t.interval_ms, t.anchor, extract(epoch FROM t.run_at),"
    " extract(epoch FROM t.start_at), extract(epoch FROM t.end_at), t.enabled)::text"
)
"""What of a trigger says when it fires."""

_FOLLOW: Final = f"""
INSERT INTO scheduler.parallel_triggers AS p (id, tenant_id, timing, began_at, next_fire_at)
SELECT t.id, t.tenant_id, {_TIMING}, t.next_fire_at, t.next_fire_at FROM scheduler.triggers AS t
WHERE t.source IS NOT NULL AND t.kind <> 'event' AND NOT EXISTS (
    SELECT FROM scheduler.parallel_triggers AS k
    WHERE k.id = t.id AND k.tenant_id = t.tenant_id AND k.timing = {_TIMING}
)
ON CONFLICT (id, tenant_id) DO UPDATE SET timing = excluded.timing,
    began_at = coalesce(p.began_at, excluded.began_at), next_fire_at = coalesce(excluded.next_fire_at, p.next_fire_at)
"""
"""Give every trigger of the source its place; one whose timing was changed goes on with the next fire of the source."""

_PLAN: Final = f"""
INSERT INTO scheduler.parallel_triggers AS p (id, tenant_id, timing, began_at, next_fire_at)
SELECT t.id, t.tenant_id, {_TIMING}, %(at)s, %(at)s FROM scheduler.triggers AS t
WHERE t.id = %(id)s AND t.tenant_id = %(tenant)s
ON CONFLICT (id, tenant_id) DO UPDATE SET began_at = excluded.began_at, next_fire_at = excluded.next_fire_at
WHERE p.began_at IS NULL
"""


def plan_first(connection: Connection, trigger: Trigger, at: datetime | None) -> bool:
    """Plan the first slot of a trigger of which the source says no next fire; false if it has one here."""
    given = {"at": at, "id": trigger.id, "tenant": trigger.tenant_id}
    return connection.execute(_PLAN, given).rowcount == 1


class ParallelFiring(Firing):
    """Fires triggers that came from the source, and leaves their rows and those of their schedules as they are."""

    def due(
        self, given: Sequence[object], *, tenants: int | None, served_only: str, but: int | None = None
    ) -> list[Key]:
        """Return the due triggers of the source, locked in their place of the parallel run.

        The parameters are the time, the limit and what ``served_only``, ``tenants`` and ``but`` refer to, as in
        ``queue_statements.due``.
        """
        fetch_rows(self._connection, _FOLLOW, ())
        statement = f"""
SELECT p.id, p.tenant_id FROM scheduler.parallel_triggers AS p
JOIN scheduler.triggers AS t ON t.id = p.id AND t.tenant_id = p.tenant_id
JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
WHERE t.enabled AND p.next_fire_at <= {queue_statements.NOW} AND {queue_statements.served("t", tenants)}
    AND {queue_statements.MAY_FIRE}{served_only}{queue_statements.left_out("t", but)}
ORDER BY t.priority DESC, p.next_fire_at, p.id LIMIT $2 FOR UPDATE OF p SKIP LOCKED
"""
        return [(identity, tenant) for identity, tenant in fetch_rows(self._connection, statement, given)]

    def _locked(self, due: Sequence[Key]) -> Iterator[tuple[int, Trigger, Schedule]]:
        triggers, schedules = table(Trigger), table(Schedule)
        width = len(triggers.names) + 1
        statement = f"""
SELECT {queue_statements.open_runs("AND o.source IS NULL")}, {triggers.qualified("t").as_string(None)},
    {schedules.qualified("s").as_string(None)}, p.next_fire_at, p.last_fire_at, p.fire_count
FROM unnest($2::uuid[], $3::text[]) AS g(id, tenant)
JOIN scheduler.parallel_triggers AS p ON p.id = g.id AND p.tenant_id = g.tenant
JOIN scheduler.triggers AS t ON t.id = g.id AND t.tenant_id = g.tenant
JOIN scheduler.schedules AS s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
WHERE p.next_fire_at <= {queue_statements.NOW} ORDER BY t.priority DESC, p.next_fire_at, p.id
"""
        given = (self._now, [identity for identity, _ in due], [tenant for _, tenant in due])
        for row in fetch_rows(self._connection, statement, given):
            of_source = triggers.read(row[1:width])
            planned, last, count = row[-3:]
            is_late = (self._now - planned) / _MILLISECOND > max(of_source.misfire_grace_ms or 0, LEAST_GRACE_MS)
            if is_late and of_source.next_fire_at is not None and of_source.next_fire_at > planned:
                planned = of_source.next_fire_at
            own = msgspec.structs.replace(of_source, next_fire_at=planned, last_fire_at=last, fire_count=count)
            unlimited = msgspec.structs.replace(schedules.read(row[width:-3]), max_concurrency=None)
            yield row[0], own, unlimited

    def _advance(self, triggers: Sequence[Trigger]) -> None:
        own = [
            {
                "id": one.id,
                "tenant": one.tenant_id,
                "next": one.next_fire_at if one.enabled else None,
                "last": one.last_fire_at,
                "count": one.fire_count,
            }
            for one in triggers
        ]
        fetch_rows(
            self._connection,
            "UPDATE scheduler.parallel_triggers AS p SET next_fire_at = g.next, last_fire_at = g.last,"
            " fire_count = g.count FROM json_to_recordset($1::json) AS g(id uuid, tenant text, next timestamptz,"
            " last timestamptz, count bigint) WHERE p.id = g.id AND p.tenant_id = g.tenant",
            (as_json(own),),
        )

    def _move(self, schedules: Iterable[tuple[Schedule, Schedule]]) -> None:
        """Leave the schedules as they are."""
