"""Inserting runs across tenants: what the queue makes, many at a time, held to the rules of ``Runs.create``."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec

from migrator.errors import ConflictError
from migrator.records.run import Run
from migrator.store import rules
from migrator.store.postgres.connection import Connection
from migrator.store.postgres.dispatch import CrossedError, as_json, fetch
from migrator.store.postgres.mapping import table
from migrator.store.postgres.numbering import take_many
from migrator.store.postgres.rows import global_schedule

_Key: TypeAlias = tuple[object, ...]

_KNOWN = """
SELECT g.position,
    EXISTS (SELECT FROM scheduler.runs AS r WHERE r.id = g.id AND r.tenant_id = g.tenant),
    EXISTS (SELECT FROM scheduler.runs AS r WHERE r.trigger_id = g.trigger_id AND r.tenant_id = g.tenant
        AND (r.scheduled_at = g.scheduled_at AND r.attempt = g.attempt)),
    EXISTS (SELECT FROM scheduler.runs AS r WHERE r.trigger_id = g.trigger_id AND r.tenant_id = g.tenant
        AND r.dedupe_key = g.dedupe_key),
    (SELECT s.tenant_id FROM scheduler.schedules AS s
        WHERE s.id = g.schedule_id AND s.tenant_id = ANY (ARRAY[g.tenant, '*'::text])
        ORDER BY s.tenant_id = '*' LIMIT 1)
FROM json_to_recordset($1::json) AS g(
    position int, id uuid, tenant text, trigger_id uuid, scheduled_at timestamptz, attempt int, dedupe_key text,
    schedule_id uuid
) ORDER BY g.position
"""

_COLUMNS = ", ".join(table(Run).names)
_INSERT = (
    f"INSERT INTO scheduler.runs ({_COLUMNS}, global_schedule) SELECT {_COLUMNS}, {global_schedule('n')}"  # noqa: S608 - our own column names
    " FROM json_populate_recordset(NULL::scheduler.runs, $1::json) AS n ON CONFLICT DO NOTHING RETURNING id"
)


def insert_runs(connection: Connection, given: Sequence[tuple[Run, str]], now: datetime) -> list[Run]:
    """Insert runs, each for a tenant, in this order; return those that were, as they were.

    Passed over is one whose slot or dedupe key is taken. Raises ``ConflictError`` for an id that is taken, and where
    another session took a number, slot or key at this moment; ``UsageError`` for a run of another tenant.
    """
    if not given:
        return []
    runs = [_complete(rules.served(run, tenant), now) for run, tenant in given]
    chosen = _number(connection, _free(connection, runs), now)
    inserted = {identity for (identity,) in fetch(connection, _INSERT, (as_json(map(table(Run).document, chosen)),))}
    if len(inserted) < len(chosen):
        # Somebody was quicker. Whether it took the slot or only a number cannot be told: the call is made again.
        raise CrossedError("another session made a run for the same slot, or with the same number, at this moment")
    return chosen


def would_insert(connection: Connection, given: Sequence[tuple[Run, str]], now: datetime) -> list[Run]:
    """Return the runs that `insert_runs` would insert, without numbering them, which locks their schedules' counters.

    Raises as it does.
    """
    runs = [_complete(rules.served(run, tenant), now) for run, tenant in given]
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
    for position, exists, slot, key, owner in fetch(connection, _KNOWN, (asked,)):
        run = runs[position]
        keys = _keys(run)
        if slot or key or not taken.isdisjoint(keys):
            continue  # whatever its id: ids that follow from the slot are taken with it
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
    following = take_many(connection, wanted, now)
    numbered = []
    for run, owner in runs:
        if run.schedule_id is not None and _counts(run, owner):
            number = following[run.tenant_id, run.schedule_id]
            following[run.tenant_id, run.schedule_id] += 1
            numbered.append(msgspec.structs.replace(run, run_number=number))
        else:
            numbered.append(run)
    return numbered


def _counts(run: Run, owner: str | None) -> bool:
    return owner == run.tenant_id != rules.GLOBAL
