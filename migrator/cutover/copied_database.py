"""A copied database before its cutover: rows that did not come from the source, and how they are removed.

Only a parallel run may make rows in a copy. Those of a rehearsal (``[persistence] copy``), and those that were made by
hand, would be written to MongoDB by no reverse sync, or would run beside those of the old application. So they refuse
the cutover until a person has them exported and removed.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, LiteralString

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover import backup, journal
from migrator.cutover.server_gates import Answer
from migrator.durations import format_duration
from migrator.errors import RefusedError
from migrator.parity import recorded_check
from migrator.pipeline.sessions import Sessions
from migrator.schema import decisions
from migrator.schema.decisions import Approval
from migrator.store.epoch import KEY
from migrator.store.postgres import epoch, parallel_run
from migrator.store.queue import SCRATCH

COMMAND: Final = "migrator cutover clean-copy"

_MADE: LiteralString = f"{{0}}.source IS NULL AND NOT starts_with({{0}}.tenant_id, '{SCRATCH}')"
_IN_PARALLEL: LiteralString = (
    "EXISTS (SELECT FROM unnest(%(begun)s::timestamptz[], %(ended)s::timestamptz[]) AS p (begun, ended)"
    " WHERE {0} >= date_trunc('milliseconds', p.begun) AND {0} < p.ended)"
)
_OF_SCHEDULE: LiteralString = (
    "EXISTS (SELECT FROM scheduler.schedules AS s WHERE s.id = t.schedule_id AND s.tenant_id = t.tenant_id"
    f" AND s.source IS NULL AND {_IN_PARALLEL.format('s.created_at')})"
)
_OF_RUN: LiteralString = (
    "EXISTS (SELECT FROM scheduler.runs AS r WHERE r.id = t.run_id AND r.tenant_id = t.tenant_id"
    f" AND r.source IS NULL AND {_IN_PARALLEL.format('r.created_at')})"
)
_TABLES: Final[Mapping[LiteralString, LiteralString]] = {
    "impact_snapshots": _OF_RUN,
    "execution_logs": _OF_RUN,
    "run_summaries": _IN_PARALLEL.format("t.updated_at"),
    "policy_jobs": _IN_PARALLEL.format("t.created_at"),
    "runs": _IN_PARALLEL.format("t.created_at"),
    "triggers": _OF_SCHEDULE,
    "schedules": _IN_PARALLEL.format("t.created_at"),
}
"""Table → which of its rows the parallel run made. A table is emptied before those to which it refers.

Handlers say what a process can do, and the audit trail what was done: both may be there. The tables of graph jobs do
not say from where a row came.
"""
_PROCESSES: Final[Mapping[LiteralString, LiteralString]] = {
    "workers": "source IS NULL",
    "locks": f"source IS NULL AND key NOT IN ('{KEY}', '{parallel_run.KEY}')",
}


class CopyCleanup(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed, or would be."""

    rows: dict[str, int]
    """Table → rows."""
    rehearsal_since: datetime | None
    """Since when rows of the copy were changed; None: they were not."""
    folder: str
    """Where the rows were exported; empty if there were none."""


def made_rows(target: Connection) -> dict[str, int]:
    """Return table → rows that came neither from the source nor from a parallel run."""
    periods, counts = _periods(target), {}
    for table, of in _TABLES.items():
        statement = f"SELECT count(*) FROM scheduler.{table} AS t WHERE {_condition(of)}"  # noqa: S608 - our own text
        counts[table] = (target.execute(statement, periods).fetchone() or (0,))[0]
    return {table: count for table, count in counts.items() if count}


def answer(sessions: Sessions) -> Answer:
    """Whether the database holds nothing but the copy and a parallel run."""
    target = sessions.target
    now = epoch.read(target)
    if now is not None and now.backend == epoch.OWN_BACKEND:
        return True, "PostgreSQL is active, so that it makes rows of its own"
    if sessions.settings.persistence.copy == "may be changed":
        return False, (
            'copy = "may be changed" in [persistence] lets processes change the copy: remove it from the configuration'
            f" of every process, stop them, and call {COMMAND}"
        )
    since, made = epoch.rehearsal_since(target), made_rows(target)
    if since is not None:
        return False, f"the copy may be changed since {since:%Y-%m-%d %H:%M:%S} UTC ({_listed(made)}): call {COMMAND}"
    if made:
        return False, f"{_listed(made)} came neither from the source nor from a parallel run: call {COMMAND} --dry-run"
    cleaned = _cleaned_at(target)
    last = recorded_check.last_check(target)
    if cleaned is not None and (last is None or last.started_at < cleaned):
        return False, (
            f"the copy was changed until {cleaned:%Y-%m-%d %H:%M:%S} UTC, and not compared since: call migrator parity"
            " --repair apply"
        )
    return True, "every row came from the source or from a parallel run"


def clean(settings: Settings, target: Connection, folder: Path, by: Approval, *, dry_run: bool) -> CopyCleanup:
    """Export the rows that the copy did not bring, and remove them; the copy may not be changed any more.

    ``folder``: for the export; it must not exist. Copied rows that were changed are repaired by the parity check,
    without which the gate stays closed. Raises ``RefusedError`` if PostgreSQL is or was active, if the configuration
    still lets the copy be changed, and while a process works on it.
    """
    if epoch.read(target) is not None:
        raise RefusedError("a cutover was made of this database, or is under way: its rows are no copy")
    if not epoch.is_closed_copy(target) and epoch.rehearsal_since(target) is None:
        raise RefusedError("this database is not a copy: there is nothing to be removed")
    if settings.persistence.copy == "may be changed":
        raise RefusedError('remove copy = "may be changed" from [persistence] first: a process would change it again')
    since = epoch.rehearsal_since(target)
    with target.transaction(force_rollback=dry_run):
        # no process begins between the count and the end of the transaction
        target.execute("SELECT FROM scheduler.locks WHERE key = %s FOR UPDATE", (KEY,))
        if since is not None or not dry_run:
            _require_no_process(settings, target)
        made = made_rows(target)
        if made and not dry_run:
            backup.export_rows(target, folder, {t: _condition(_TABLES[t]) for t in made}, _periods(target))
        for table, of in _TABLES.items():
            target.execute(f"DELETE FROM scheduler.{table} AS t WHERE {_condition(of)}", _periods(target))  # noqa: S608 - our own text
        if parallel_run.since(target) is None:
            for table, rows in _PROCESSES.items():
                target.execute(f"DELETE FROM scheduler.{table} WHERE {rows}")  # noqa: S608 - our own text
        epoch.end_rehearsal(target)
        if since is not None or made:
            decisions.record(target, decisions.COPY_CLEANED, by, rows=made)
    return CopyCleanup(rows=made, rehearsal_since=since, folder=str(folder) if made and not dry_run else "")


def _condition(of_parallel: LiteralString) -> LiteralString:
    return f"{_MADE.format('t')} AND NOT {of_parallel}"


def _periods(target: Connection) -> dict[str, list[datetime]]:
    """Return when each parallel run began and ended, as parameters."""
    begun: list[datetime] = []
    ended: list[datetime] = []
    for decision in decisions.recorded(target):
        if decision.kind == decisions.PARALLEL_BEGUN and len(begun) == len(ended):
            begun.append(decision.at)
        elif decision.kind in (decisions.PARALLEL_ENDED, decisions.CUTOVER) and len(begun) > len(ended):
            ended.append(decision.at)
    if len(begun) > len(ended):
        ended.append(journal.database_time(target) + timedelta(seconds=1))
    return {"begun": begun, "ended": ended}


def _require_no_process(settings: Settings, target: Connection) -> None:
    """Raise ``RefusedError`` while a process that was registered here has a heartbeat, unless in a parallel run."""
    if parallel_run.since(target) is not None:
        return
    limit = settings.scheduler.dead_after
    alive = fetch_value(
        target,
        "SELECT count(*) FROM scheduler.workers WHERE source IS NULL AND status = 'active'"
        " AND last_heartbeat_at > clock_timestamp() - %s::interval",
        (limit,),
    )
    if alive:
        raise RefusedError(
            f"{alive:,} processes work on this copy (a heartbeat in the last {format_duration(limit)}): stop them first"
        )


def _cleaned_at(target: Connection) -> datetime | None:
    found = [one.at for one in decisions.recorded(target) if one.kind == decisions.COPY_CLEANED]
    return found[-1] if found else None


def _listed(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} rows of {table}" for table, count in rows.items()) or "no rows were made"
