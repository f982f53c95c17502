"""Firing in PostgreSQL: one transaction that locks due triggers, inserts their runs and advances them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec

from migrator import states
from migrator.connections.postgres import Connection
from migrator.errors import ConflictError, OvertakenError, UsageError
from migrator.records import Run, Schedule, Trigger
from migrator.store import transitions, validation
from migrator.store.postgres import parallel_run, queue_statements
from migrator.store.postgres.rows import as_json, fetch_rows, global_schedule, table
from migrator.store.postgres.runs import take_numbers
from migrator.store.queue import FirePlan

_Key: TypeAlias = tuple[object, ...]

_KNOWN = f"""
SELECT g.position,
    EXISTS (SELECT FROM scheduler.runs AS r WHERE r.id = g.id AND r.tenant_id = g.tenant),
    EXISTS (SELECT FROM scheduler.runs AS r WHERE r.trigger_id = g.trigger_id AND r.tenant_id = g.tenant
        AND (r.scheduled_at = g.scheduled_at AND r.attempt = g.attempt)),
    EXISTS (SELECT FROM scheduler.runs AS r WHERE r.trigger_id = g.trigger_id AND r.tenant_id = g.tenant
        AND r.dedupe_key = g.dedupe_key),
    (SELECT CASE WHEN {parallel_run.SERVED.format("s")} THEN s.tenant_id END FROM scheduler.schedules AS s
        WHERE s.id = g.schedule_id AND s.tenant_id = ANY (ARRAY[g.tenant, '*'::text])
        ORDER BY s.tenant_id = '*' LIMIT 1)
FROM json_to_recordset($1::json) AS g(
    position int, id uuid, tenant text, trigger_id uuid, scheduled_at timestamptz, attempt int, dedupe_key text,
    schedule_id uuid
) ORDER BY g.position
"""  # noqa: S608 - our own text
"""The tenant of a schedule that a source writes as well, in a parallel run, is null: its runs have no number."""

_COLUMNS = ", ".join(table(Run).names)
_INSERT = (
    f"INSERT INTO scheduler.runs ({_COLUMNS}, global_schedule) SELECT {_COLUMNS}, {global_schedule('n')}"  # noqa: S608 - our own column names
    " FROM json_populate_recordset(NULL::scheduler.runs, $1::json) AS n ON CONFLICT DO NOTHING RETURNING id, tenant_id"
)


def insert_runs(connection: Connection, given: Sequence[tuple[Run, str]], now: datetime) -> list[Run]:
    """Insert runs, each for a tenant, in this order; return those that were inserted.

    A run whose slot or dedupe key is taken is skipped. Raises ``ConflictError`` for an id that is taken,
    ``OvertakenError`` if another session took a number, slot or key at this moment, ``UsageError`` for a run of another
    tenant.
    """
    if not given:
        return []
    runs = [_complete(validation.checked_served_record(run, tenant), now) for run, tenant in given]
    chosen = _number(connection, _free(connection, runs), now)
    inserted = fetch_rows(connection, _INSERT, (as_json(map(table(Run).document, chosen)),))
    if len(inserted) < len(chosen):  # counted as rows: two tenants may have runs with one id
        # Another session was first. Whether it took the slot or only a number is not known: the call is repeated.
        raise OvertakenError("another session made a run for the same slot, or with the same number, at this moment")
    return chosen


def would_insert(connection: Connection, given: Sequence[tuple[Run, str]], now: datetime) -> list[Run]:
    """Return the runs that `insert_runs` would insert, without numbering them, which locks their schedules' counters.

    Raises as it does.
    """
    runs = [_complete(validation.checked_served_record(run, tenant), now) for run, tenant in given]
    return [run for run, _ in _free(connection, runs)] if runs else []


def _complete(run: Run, now: datetime) -> Run:
    attempt = run.attempt
    if run.trigger_id is not None and run.scheduled_at is not None and attempt is None:
        attempt = 1
    return msgspec.structs.replace(
        run, source=None, source_id=None, run_number=None, attempt=attempt, updated_at=run.updated_at or now
    )


def _free(connection: Connection, runs: Sequence[Run]) -> list[tuple[Run, str | None]]:
    """Return the runs whose keys are free, each with its schedule's tenant."""
    asked = as_json(
        {
            "position": position,
            "id": run.id,
            "tenant": run.tenant_id,
            "trigger_id": run.trigger_id,
            "scheduled_at": run.scheduled_at,
            "attempt": run.attempt,
            "dedupe_key": run.dedupe_key,
            "schedule_id": run.schedule_id,
        }
        for position, run in enumerate(runs)
    )
    taken: set[_Key] = set()
    free: list[tuple[Run, str | None]] = []
    for position, exists, slot, key, owner in fetch_rows(connection, _KNOWN, (asked,)):
        run = runs[position]
        keys = _keys(run)
        if slot or key or not taken.isdisjoint(keys):
            continue  # whatever its id: an id that follows from the slot is taken with it
        if exists or ("id", run.id, run.tenant_id) in taken:
            raise ConflictError("the id is taken")
        free.append((run, owner))
        taken |= {*keys, ("id", run.id, run.tenant_id)}
    return free


def _keys(run: Run) -> set[_Key]:
    keys: set[_Key] = set()
    if run.trigger_id is not None and run.scheduled_at is not None:
        keys.add(("slot", run.tenant_id, run.trigger_id, run.scheduled_at, run.attempt))
    if run.trigger_id is not None and run.dedupe_key is not None:
        keys.add(("key", run.tenant_id, run.trigger_id, run.dedupe_key))
    return keys


def _number(connection: Connection, runs: Sequence[tuple[Run, str | None]], now: datetime) -> list[Run]:
    """Return the runs with their numbers: those of a schedule of their own tenant have one."""
    wanted: Counter[tuple[str, UUID]] = Counter(
        (run.tenant_id, run.schedule_id) for run, owner in runs if run.schedule_id is not None and _counts(run, owner)
    )
    following = take_numbers(connection, wanted, now)
    numbered = []
    for run, owner in runs:
        if run.schedule_id is not None and _counts(run, owner):
            number = following[run.tenant_id, run.schedule_id]
            following[run.tenant_id, run.schedule_id] += 1
            numbered.append(msgspec.structs.replace(run, run_number=transitions.run_number(number)))
        else:
            numbered.append(run)
    return numbered


def _counts(run: Run, owner: str | None) -> bool:
    return owner == run.tenant_id != validation.GLOBAL


Key: TypeAlias = tuple[UUID, str]
"""Id and tenant of a row."""

_MOVE = (
    "UPDATE scheduler.schedules SET status = $1, updated_at = $2, completed_at = $3"
    " WHERE id = $4 AND status = $5 AND tenant_id = $6"
)


class Firing:
    """Asks the plan for one trigger after the other, then writes the results, in few statements.

    All runs are numbered in one statement, in the order of their schedules. Numbering locks a schedule's counter until
    the end of the transaction. Sessions that lock in one order do not deadlock.
    """

    def __init__(self, connection: Connection, now: datetime, plan: FirePlan) -> None:
        self._connection, self._now, self._plan = connection, now, plan
        self._runs: list[tuple[Run, str]] = []
        """Runs to be inserted, each with the tenant of its trigger."""
        self._uncounted: dict[Key, list[tuple[Run, str]]] = {}
        """Those of them that are not yet counted as live, by the schedule whose trigger made them."""
        self._live: dict[Key, int] = {}

    def fire(self, due: Sequence[Key]) -> list[Run]:
        """Fire these triggers; return the runs inserted."""
        before: dict[Key, Schedule] = {}
        after: dict[Key, Schedule] = {}
        advanced: list[Trigger] = []
        for live, trigger, stored in self._locked(due):
            key = (stored.id, stored.tenant_id)
            before.setdefault(key, stored)
            self._live.setdefault(key, live)
            if key in self._uncounted:
                self._count()  # this plan needs their number
            schedule = after.get(key, stored)
            if schedule.status not in states.SCHEDULE_FIRING:
                continue  # a trigger before this one ended the schedule
            fire = self._plan(schedule, trigger, self._live[key], self._now)
            if fire.trigger.id != trigger.id:
                raise UsageError("a plan answers for the trigger that it was given")
            if fire.schedule_status is not None and transitions.can_become(schedule.status, fire.schedule_status):
                schedule = transitions.with_status(schedule, fire.schedule_status, self._now)
            after[key] = schedule
            self._uncounted[key] = made = [(run, trigger.tenant_id) for run in fire.runs]
            self._runs += made
            advanced.append(
                validation.with_stored_precision(
                    validation.checked_served_record(fire.trigger, trigger.tenant_id), trigger
                )
            )
        inserted = insert_runs(self._connection, self._runs, self._now)
        self._advance(advanced)
        self._move((before[key], schedule) for key, schedule in after.items())
        return inserted

    def _locked(self, due: Sequence[Key]) -> Iterator[tuple[int, Trigger, Schedule]]:
        """Yield the number of live runs, the trigger and the schedule of each locked trigger that is still due."""
        triggers, schedules = table(Trigger), table(Schedule)
        width = len(triggers.names) + 1
        given = (self._now, [identity for identity, _ in due], [tenant for _, tenant in due])
        for row in fetch_rows(self._connection, queue_statements.locked(), given):
            yield row[0], triggers.read(row[1:width]), schedules.read(row[width:])

    def _count(self) -> None:
        """Count the runs that will be inserted as live runs of the schedules that fired."""
        given = [run for runs in self._uncounted.values() for run in runs]
        coming = {(run.id, run.tenant_id) for run in would_insert(self._connection, given, self._now)}
        for key, runs in self._uncounted.items():
            self._live[key] += sum(
                (run.id, run.tenant_id) in coming and run.state in states.RUN_OPEN for run, _ in runs
            )
        self._uncounted.clear()

    def _advance(self, triggers: Sequence[Trigger]) -> None:
        changes = ", ".join(f"{name} = n.{name}" for name in table(Trigger).written)
        fetch_rows(
            self._connection,
            f"UPDATE scheduler.triggers AS t SET {changes}"  # noqa: S608 - our own column names
            " FROM json_populate_recordset(NULL::scheduler.triggers, $1::json) AS n"
            " WHERE t.id = n.id AND t.tenant_id = n.tenant_id",
            (as_json(map(table(Trigger).document, triggers)),),
        )

    def _move(self, schedules: Iterable[tuple[Schedule, Schedule]]) -> None:
        for stored, moved in sorted(schedules, key=lambda pair: (pair[0].id, pair[0].tenant_id)):
            if stored.status != moved.status:
                fetch_rows(
                    self._connection,
                    _MOVE,
                    (moved.status, moved.updated_at, moved.completed_at, stored.id, stored.status, stored.tenant_id),
                )
