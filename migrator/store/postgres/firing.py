"""One transaction that fires triggers whose rows it has locked."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from migrator.errors import UsageError
from migrator.records.run import Run
from migrator.records.schedule import Schedule
from migrator.records.trigger import Trigger
from migrator.store import lives, rules
from migrator.store.postgres import queue_claim
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.dispatch import as_json, fetch
from migrator.store.postgres.mapping import table
from migrator.store.postgres.run_inserts import insert_runs, would_insert
from migrator.store.work import FirePlan

OPEN = frozenset({"queued", "running"})
"""What a plan is told of as live."""

Key: TypeAlias = tuple[UUID, str]
"""Id and tenant of a row."""

_MOVE = (
    "UPDATE scheduler.schedules SET status = $1, updated_at = $2, completed_at = $3"
    " WHERE id = $4 AND status = $5 AND tenant_id = $6"
)


class Firing:
    """Asks the plan for one trigger after the other, then writes what it said, in few statements.

    All runs are numbered in one statement, in the order of their schedules: numbering locks a schedule's counter until
    the end, and those who lock in one order never wait for each other in a circle.
    """

    def __init__(self, connection: Connection, now: datetime, plan: FirePlan) -> None:
        self._connection, self._now, self._plan = connection, now, plan
        self._runs: list[tuple[Run, str]] = []
        """Runs to be inserted, each with the tenant of its trigger."""
        self._uncounted: dict[Key, list[tuple[Run, str]]] = {}
        """Those of them that are not among the live ones yet, by the schedule whose trigger made them."""
        self._live: dict[Key, int] = {}

    def fire(self, due: Sequence[Key]) -> list[Run]:
        """Fire these triggers; return the runs inserted."""
        triggers, schedules = table(Trigger), table(Schedule)
        width = len(triggers.names) + 1
        before: dict[Key, Schedule] = {}
        after: dict[Key, Schedule] = {}
        given = (self._now, [identity for identity, _ in due], [tenant for _, tenant in due])
        advanced: list[Trigger] = []
        for row in fetch(self._connection, queue_claim.locked(), given):
            trigger, stored = triggers.read(row[1:width]), schedules.read(row[width:])
            key = (stored.id, stored.tenant_id)
            before.setdefault(key, stored)
            self._live.setdefault(key, row[0])
            if key in self._uncounted:
                self._count()  # this plan is to know how many of them there are
            schedule = after.get(key, stored)
            if schedule.status not in rules.MAY_RUN:
                continue  # a trigger before this one ended it
            fire = self._plan(schedule, trigger, self._live[key], self._now)
            if fire.trigger.id != trigger.id:
                raise UsageError("a plan answers for the trigger that it was given")
            if fire.schedule_status is not None and lives.leads_to(schedule.status, fire.schedule_status):
                schedule = lives.with_status(schedule, fire.schedule_status, self._now)
            after[key] = schedule
            self._uncounted[key] = made = [(run, trigger.tenant_id) for run in fire.runs]
            self._runs += made
            advanced.append(rules.precise(rules.served(fire.trigger, trigger.tenant_id), trigger))
        inserted = insert_runs(self._connection, self._runs, self._now)
        self._advance(advanced)
        self._move((before[key], schedule) for key, schedule in after.items())
        return inserted

    def _count(self) -> None:
        """Count the runs that will be inserted among the live ones of the schedules that were fired."""
        given = [run for runs in self._uncounted.values() for run in runs]
        coming = {(run.id, run.tenant_id) for run in would_insert(self._connection, given, self._now)}
        for key, runs in self._uncounted.items():
            self._live[key] += sum((run.id, run.tenant_id) in coming and run.state in OPEN for run, _ in runs)
        self._uncounted.clear()

    def _advance(self, triggers: Sequence[Trigger]) -> None:
        changes = ", ".join(f"{name} = n.{name}" for name in table(Trigger).written)
        fetch(
            self._connection,
            f"UPDATE scheduler.triggers AS t SET {changes}"  # noqa: S608 - our own column names
            " FROM json_populate_recordset(NULL::scheduler.triggers, $1::json) AS n"
            " WHERE t.id = n.id AND t.tenant_id = n.tenant_id",
            (as_json(map(table(Trigger).document, triggers)),),
        )

    def _move(self, schedules: Iterable[tuple[Schedule, Schedule]]) -> None:
        for stored, moved in sorted(schedules, key=lambda pair: (pair[0].id, pair[0].tenant_id)):
            if stored.status != moved.status:
                fetch(
                    self._connection,
                    _MOVE,
                    (moved.status, moved.updated_at, moved.completed_at, stored.id, stored.status, stored.tenant_id),
                )
