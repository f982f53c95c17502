"""Invariants of histories and counters, as data: a condition over the stored rows finds those that violate one.

Each violation is compared with the row's document: either the source has the same anomaly, or the copy is at fault.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, LiteralString

import msgspec

from migrator import states
from migrator.connections.postgres import Connection
from migrator.records import (
    ExecutionLog,
    GraphJob,
    GraphJobEvent,
    Lock,
    PolicyJob,
    Record,
    Run,
    Schedule,
    Trigger,
    WorkerRecord,
)
from migrator.result import Severity
from migrator.verify.semantics.anomalies import NO_SOURCE, Anomalies, RowKey, SourceRows, batches, same_values


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """One rule over the rows of one table."""

    code: str
    """Stable; the cause of its findings."""
    title: str
    """The violation in words."""
    record: type[Record]
    columns: tuple[str, ...]
    """Columns that the rule looks at: where the source says the same in them, the violation is the source's."""
    violated: LiteralString
    """SQL condition over the row ``t``."""
    about: LiteralString = "true"
    """SQL condition over the row ``t``: without such a row, the rule has nothing to judge."""
    source: LiteralString = "scheduler.{} AS t"
    """Where the rows come from, the table's name put in."""
    retention: bool = False
    """For a row created here the violation is only a warning: retention may have removed what it counts."""
    maintained: bool = False
    """The database maintains the columns, and no document states them: each violation is a difference."""


def _words(items: Iterable[str]) -> LiteralString:
    return ", ".join(f"'{one}'" for one in items)


_WAITING = _words(one for one in states.RUN if one in ("planning", "queued"))
_ENDED = _words(one for one in states.RUN if not states.RUN[one])
_LEGAL = ", ".join(
    f"({states.GRAPH_JOB_CODES[before]}, {states.GRAPH_JOB_CODES[after]})"
    for before, followers in states.GRAPH_JOB.items()
    for after in sorted(followers)
)
_CODES = " ".join(f"WHEN '{word}' THEN {code}" for word, code in states.GRAPH_JOB_CODES.items())

HISTORY: Final[tuple[Invariant, ...]] = (
    Invariant(
        code="started-before-slot",
        title="a run that began before its slot",
        record=Run,
        columns=("scheduled_at", "started_at"),
        violated="t.started_at < t.scheduled_at",
    ),
    Invariant(
        code="run-before-schedule",
        title="a run older than its schedule",
        record=Run,
        columns=("created_at",),
        violated="EXISTS (SELECT FROM scheduler.schedules AS one WHERE one.id = t.schedule_id"
        " AND one.tenant_id = t.schedule_tenant_id AND one.created_at > t.created_at)",
    ),
    Invariant(
        code="times-out-of-order",
        title="a run whose times are not in order",
        record=Run,
        columns=("created_at", "started_at", "finished_at"),
        violated="t.started_at < t.created_at OR t.finished_at < t.started_at OR t.finished_at < t.created_at",
    ),
    Invariant(
        code="state-without-its-times",
        title="a run whose state and times contradict each other",
        record=Run,
        columns=("state", "started_at", "finished_at"),
        violated=(
            f"(t.state IN ({_WAITING}) AND (t.started_at IS NOT NULL OR t.finished_at IS NOT NULL))"
            " OR (t.state = 'running' AND (t.started_at IS NULL OR t.finished_at IS NOT NULL))"
            f" OR (t.state IN ({_ENDED}) AND t.finished_at IS NULL)"
            " OR (t.state IN ('completed', 'timeout') AND t.started_at IS NULL)"
        ),
    ),
    Invariant(
        code="duration",
        title="a duration that is not finished less started",
        record=Run,
        columns=("duration_ms", "started_at", "finished_at"),
        violated="t.duration_ms IS DISTINCT FROM CASE WHEN t.finished_at >= t.started_at THEN"
        " trunc(extract(epoch FROM t.finished_at - t.started_at) * 1000)::bigint END",
    ),
    Invariant(
        code="run-number-twice",
        title="a run number that another run of the schedule has too",
        record=Run,
        columns=("schedule_id", "run_number"),
        violated="t.again > 1",
        source="(SELECT *, count(*) OVER (PARTITION BY schedule_id, run_number) AS again FROM scheduler.{}"
        " WHERE schedule_id IS NOT NULL AND run_number IS NOT NULL) AS t",
    ),
    Invariant(
        code="slot-twice",
        title="two runs of one trigger, slot and attempt",
        record=Run,
        columns=("trigger_id", "scheduled_at", "attempt"),
        violated="t.again > 1",
        source="(SELECT *, count(*) OVER (PARTITION BY trigger_id, scheduled_at, attempt) AS again FROM scheduler.{}"
        " WHERE trigger_id IS NOT NULL AND scheduled_at IS NOT NULL) AS t",
    ),
    Invariant(
        code="attempts",
        title="a retry that does not follow the run it repeats",
        record=Run,
        columns=("attempt", "retry_of", "created_at"),
        violated="EXISTS (SELECT FROM scheduler.runs AS before WHERE before.id = t.retry_of"
        " AND before.tenant_id = t.tenant_id AND (before.id = t.id OR before.created_at > t.created_at"
        " OR t.attempt <> before.attempt + 1))",
    ),
    Invariant(
        code="negative-stats",
        title="statistics below zero, which can only have decreased",
        record=Run,
        columns=("stats",),
        violated="t.stats::text LIKE '%: -%' AND jsonb_typeof(t.stats) = 'object' AND EXISTS (SELECT FROM"
        " jsonb_each(t.stats) AS one WHERE jsonb_typeof(one.value) = 'number' AND one.value::numeric < 0)",
    ),
    Invariant(
        code="columns-against-payload",
        title="a graph job whose columns do not say what its payload says",
        record=GraphJob,
        columns=("status", "payload"),
        violated=(
            "jsonb_typeof(t.payload -> 'status') = 'string' AND t.status <>"
            f" CASE t.payload ->> 'status' {_CODES} WHEN 'cancelled' THEN 4 END"
        ),
    ),
    Invariant(
        code="illegal-path",
        title="an event that tells of a change of state that no graph job can make",
        record=GraphJobEvent,
        columns=("status", "created_at"),
        violated=(f"t.before <> t.status AND (t.before, t.status) NOT IN ({_LEGAL})"),
        source="(SELECT *, lag(status) OVER (PARTITION BY job_id ORDER BY created_at, id) AS before"
        " FROM scheduler.{}) AS t",
    ),
    Invariant(
        code="times-out-of-order",
        title="a graph job that changed before it was made",
        record=GraphJob,
        columns=("created_at", "updated_at"),
        violated="t.updated_at < t.created_at",
    ),
    Invariant(
        code="times-out-of-order",
        title="a policy job whose times are not in order",
        record=PolicyJob,
        columns=("queued_at", "started_at", "finished_at"),
        violated="t.finished_at < t.started_at OR t.started_at < t.queued_at OR t.finished_at < t.queued_at",
    ),
    Invariant(
        code="times-out-of-order",
        title="a schedule that was changed or deleted before it was made",
        record=Schedule,
        columns=("created_at", "updated_at", "deleted_at"),
        violated="t.updated_at < t.created_at OR t.deleted_at < t.created_at",
    ),
    Invariant(
        code="times-out-of-order",
        title="a trigger whose next fire is before its last, or after its end",
        record=Trigger,
        columns=("next_fire_at", "last_fire_at", "end_at"),
        violated="t.next_fire_at <= t.last_fire_at OR t.next_fire_at > t.end_at",
    ),
    Invariant(
        code="log-before-run",
        title="a log line older than its run",
        record=ExecutionLog,
        columns=("logged_at",),
        violated="EXISTS (SELECT FROM scheduler.runs AS run WHERE run.id = t.run_id"
        " AND run.tenant_id = t.tenant_id AND run.created_at > t.logged_at)",
    ),
    Invariant(
        code="times-out-of-order",
        title="a worker heard of before it registered",
        record=WorkerRecord,
        columns=("registered_at", "last_heartbeat_at"),
        violated="t.last_heartbeat_at < t.registered_at",
    ),
    Invariant(
        code="times-out-of-order",
        title="a lock that expired before it was taken",
        record=Lock,
        columns=("acquired_at", "expires_at"),
        violated="t.expires_at < t.acquired_at",
    ),
)
"""Histories: states and times, numbers, attempts, paths."""

_COUNTS: Final = "t.fire_count > 0"

COUNTERS: Final[tuple[Invariant, ...]] = (
    Invariant(
        code="fired-too-often",
        title="a trigger that fired more often than it may",
        record=Trigger,
        columns=("fire_count", "max_fires"),
        violated="t.fire_count > t.max_fires",
        about=_COUNTS,
    ),
    Invariant(
        code="counted-without-rows",
        title="a trigger that counts more fires than it has runs",
        record=Trigger,
        columns=("fire_count",),
        violated="t.fire_count > 0 AND t.fire_count > (SELECT count(DISTINCT run.scheduled_at)"
        " FROM scheduler.runs AS run WHERE run.trigger_id = t.id AND run.schedule_tenant_id = t.tenant_id)",
        about=_COUNTS,
        retention=True,
    ),
    Invariant(
        code="rows-without-count",
        title="a trigger that has more slots run than it counts fires",
        record=Trigger,
        columns=("fire_count",),
        violated="t.fire_count < (SELECT count(DISTINCT run.scheduled_at) FROM scheduler.runs AS run"
        " WHERE run.trigger_id = t.id AND run.schedule_tenant_id = t.tenant_id)",
        about="EXISTS (SELECT FROM scheduler.runs)",
    ),
    Invariant(
        code="retries-without-runs",
        title="a schedule that counts retries and has no run that is one",
        record=Schedule,
        columns=("retry_count",),
        violated="t.retry_count > 0 AND NOT EXISTS (SELECT FROM scheduler.runs AS run WHERE run.schedule_id = t.id"
        " AND run.schedule_tenant_id = t.tenant_id AND (run.retry_of IS NOT NULL OR run.attempt > 1))",
        about="t.retry_count > 0",
        retention=True,
    ),
)
"""Counters, and the rows they count."""


PRIORITIES: Final[tuple[Invariant, ...]] = (
    Invariant(
        code="trigger-priority",
        title="a trigger whose stored priority is not its schedule's",
        record=Trigger,
        columns=("priority",),
        violated="t.priority <> coalesce((SELECT one.priority FROM scheduler.schedules AS one"
        " WHERE one.id = t.schedule_id AND one.tenant_id = t.tenant_id), 50)",
        maintained=True,
    ),
    Invariant(
        code="run-priority",
        title="a planning or queued run whose stored priority is not its schedule's",
        record=Run,
        columns=("priority",),
        violated="t.state IN ('planning', 'queued') AND t.priority <> coalesce((SELECT one.priority FROM"
        " scheduler.schedules AS one WHERE one.id = t.schedule_id AND one.tenant_id = t.schedule_tenant_id), 50)",
        maintained=True,
    ),
)
"""The schedule's priority in the rows of the queue (revision 0007)."""


MAX_VIOLATIONS = 20_000
"""Rows of one rule that are judged; of more, none is taken for explained."""

EXPLAINED = "the source's own document says the same: it was copied as it is"
FAULT = "find out who wrote the row: neither the copy nor this scheduler makes such a one"


def check_invariant(rule: Invariant, target: Connection, source: SourceRows | None, anomalies: Anomalies) -> int:
    """Find the rows that violate an invariant; return how many there are.

    ``source`` is none where there is no source: then a row that came from it cannot be judged.
    """
    judged = 0
    for batch in batches(target, _violations(rule)):
        if judged < MAX_VIOLATIONS:
            _judge(rule, batch, source, anomalies)
        else:
            anomalies.add_doubt(f"more than {MAX_VIOLATIONS} rows break the rule {rule.code}; the rest was not judged")
        judged += len(batch)
    return judged


def judged_rows(rules: Iterable[Invariant], target: Connection) -> dict[str, int]:
    """Return how many rows of each table the rules have something to judge in."""
    conditions: dict[str, list[LiteralString]] = {}
    for rule in rules:
        conditions.setdefault(rule.record.table, []).append(f"({rule.about})")
    return {table: _rows(target, table, " OR ".join(about)) for table, about in sorted(conditions.items())}


def _rows(target: Connection, table: str, condition: str) -> int:
    query = f"SELECT count(*) FROM scheduler.{table} AS t WHERE {condition}"  # noqa: S608 - a record's table name, and texts of this module
    row = target.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0


def _violations(rule: Invariant) -> LiteralString:
    """Return the query for the rows that violate a rule: id, source, source id, and the columns of the rule."""
    origin = "t.source, t.source_id" if "source" in rule.record.__struct_fields__ else "NULL, t.payload ->> '_id'"
    columns = ", ".join(f"t.{name}::text" if name in ("payload", "stats") else f"t.{name}" for name in rule.columns)
    rows = rule.source.format(rule.record.table)
    return f"SELECT t.id, {origin}, {columns} FROM {rows} WHERE {rule.violated} ORDER BY t.id"  # noqa: S608 - texts of this module


def _judge(rule: Invariant, rows: Sequence[tuple[Any, ...]], source: SourceRows | None, anomalies: Anomalies) -> None:
    table = rule.record.table
    keys = [RowKey(table, row[0], row[1] or _feeding(source, table, row[2]), row[2]) for row in rows]
    source_rows = {} if source is None or rule.maintained else source.rows(keys)
    for key, row in zip(keys, rows, strict=True):
        severity: Severity = "warning" if rule.retention else "difference"
        if key.source is not None and not rule.maintained:
            if source is None:
                anomalies.add_doubt(NO_SOURCE)
                continue
            same = same_values(source_rows.get(key.row_id), rule.columns, row[3:])
            severity = "explained" if same else "difference"
        anomalies.add(
            severity,
            rule.code,
            rule.title,
            EXPLAINED if severity == "explained" else FAULT,
            key=key.source_id or str(key.id),
            table=table,
            path=rule.columns[0],
        )


def _feeding(source: SourceRows | None, table: str, source_id: str | None) -> str | None:
    """Return the source of a row whose table has no column for it; rows without an ``_id`` are created here."""
    if source_id is None or source is None or table not in ("graph_jobs", "graph_job_events"):
        return None
    return source.sessions.profile.source_of(table)
