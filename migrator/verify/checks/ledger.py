"""Area parity, the tool's own tables: ledger and quarantine are as the tool wrote them, and no one else writes."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from typing import Any, Final, LiteralString

from migrator.connections.postgres import Connection
from migrator.parity.causes import CauseCode
from migrator.pipeline import checksums
from migrator.pipeline.target import target_tables
from migrator.records import ALL
from migrator.result import FAILED, PASSED, Cell, Finding, Measurement, Panel, Tally
from migrator.sources import profile_of
from migrator.store.queue import SCRATCH
from migrator.values.identity import source_id_of
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of
from migrator.verify.checks.contradictions import contradictions
from migrator.verify.checks.parity import differences, unverified_reasons
from migrator.verify.semantics.anomalies import Anomalies, batches, source_rows

CHANGED = "a row of the ledger that is not as the tool wrote it"
FIX = "find out who changed it; backfill --restart writes the ledger again, and keeps the rows"
UNBALANCED = "a chunk whose documents are not the sum of copied, quarantined and skipped ones"
LEDGER: Final = "parity.ledger"
LEDGER_CAUSES: tuple[CauseCode, ...] = ("reference-unrecorded",)
"""Causes that this check reports; those of the quarantine belong to ``parity.quarantine``."""


def ledger_sound(context: CheckContext) -> CheckResult:
    """Compute the ledger's checksums and sums again, and look for dangling references that are not recorded."""
    owners = {
        one.name: one.tables[0].table
        for one in profile_of(context.settings.source, context.settings.target).collections
    }
    with context.target() as target:
        looked = checksums.verify_checksums(target)
        rate = copy_rate(target)
        contradicting = contradictions(target, is_native=context.settings.target.is_native)
        unbalanced = target.execute(
            "SELECT chunk.collection, chunk.collection || ' chunk ' || chunk.ordinal FROM migration.chunks AS chunk"
            " JOIN unnest(%s::text[], %s::text[]) AS owner (collection, owner_table) USING (collection)"
            " WHERE state = 'done' AND documents <> skipped + quarantined + coalesce((rows ->> owner_table)::bigint, 0)"
            " ORDER BY 1, 2",
            (list(owners), list(owners.values())),
        ).fetchall()
    problems = [("ledger-changed", CHANGED, FIX, table, row) for table, row in looked.changed]
    problems += [("ledger-sum", UNBALANCED, FIX, "chunks", row[1]) for row in unbalanced]
    problems += [("ledger-contradiction", one.title, one.fix, one.table, row) for one, row in contradicting]
    tallies, findings = differences(context, "ledger", causes=LEDGER_CAUSES)
    tallies += [
        Tally(severity="difference", cause=cause, path=f"migration.{table}", title=title, fix=fix, count=1, keys=(row,))
        for cause, title, fix, table, row in problems
    ]
    findings += [
        Finding(severity="difference", cause=cause, key=row, path=f"migration.{table}", side="ledger")
        for cause, _, _, table, row in problems
    ]
    doubts = [f"{looked.without} rows of the ledger were written by an older version, without a checksum"]
    total = sum(one.count for one in tallies)
    return CheckResult(
        outcome=outcome_of(wrong=bool(total), unsure=[*unverified_reasons(context), *doubts[: looked.without]]),
        counts={"rows of the ledger": looked.rows, "differences": total},
        measurements=rate,
        tallies=tuple(tallies),
        findings=tuple(sorted(findings)[: context.listed]),
        findings_total=total,
    )


COPY_RATE: Final = "copy rate"
_PARTS: Final = 40
"""Points of the copy rate over time."""
_RATES: LiteralString = (
    "WITH done AS (SELECT extract(epoch FROM finished_at)::float8 AS ended, extract(epoch FROM started_at)::float8 AS"
    " began, documents FROM migration.chunks WHERE state = 'done' AND documents > 0 AND plan_id = (SELECT id FROM"
    " migration.plans ORDER BY created_at DESC, id LIMIT 1)), span AS (SELECT min(began) AS first, max(ended) AS last"
    " FROM done) SELECT first, last, least(width_bucket(ended, first, last, %s), %s) AS part, sum(documents)::float8"
    " FROM done, span WHERE last > first GROUP BY 1, 2, 3 ORDER BY 3"
)


def copy_rate(target: Connection) -> tuple[Measurement, ...]:
    """Return how many documents a second the last copy has read and written, as a whole and over time."""
    rows = target.execute(_RATES, (_PARTS, _PARTS)).fetchall()
    if not rows:
        return ()
    first, last = rows[0][:2]
    length = (last - first) / _PARTS
    counts = {part: documents for _, _, part, documents in rows}
    points = tuple((f"{number * length:.1f} s", counts.get(number, 0.0) / length) for number in range(1, _PARTS + 1))
    whole = sum(counts.values()) / (last - first)
    return (Measurement(check=LEDGER, name=COPY_RATE, unit="documents/s", value=whole, points=points),)


SHORTEST: Final = 5
"""Bytes of the shortest document of BSON."""

BATCH: Final = 100
"""Documents in quarantine compared at a time; one may have 16 MB."""

QUARANTINE_CAUSES: Final[tuple[CauseCode, ...]] = ("quarantine-entry", "quarantine-loadable")
"""Causes of an entry whose reason is another one now, or whose document can be loaded."""

STANDBY_TABLES: Final = frozenset({"workers", "locks"})
"""Tables to which a scheduler writes while it waits for the cutover; rows there are no finding."""


_QUARANTINED: LiteralString = (
    "SELECT collection, source_id, raw, state FROM migration.quarantine WHERE state IN ('open', 'dropped')"
    " ORDER BY collection, source_key"
)
_DROPPED: LiteralString = (
    "SELECT collection, source_id, reason, path, dropped_by, dropped_because, resolved_at FROM migration.quarantine"
    " WHERE profile = %s AND state = 'dropped' ORDER BY collection, source_key"
)
_DROPPED_COLUMNS: Final = ("collection", "_id", "code", "path", "who", "why", "when")


def quarantine_intact(context: CheckContext) -> CheckResult:
    """Compare every document in quarantine with the source's, and its reason with the one that it has now."""
    anomalies = Anomalies(context.listed, "quarantine")
    compared = 0
    with context.target() as target, source_rows(context, target) as source:
        cut_over = _is_cut_over(context, target)  # MongoDB is no longer the source
        dropped = target.execute(_DROPPED, (source.sessions.profile.name,)).fetchall()
        known = source.sessions.profile.by_name()
        for batch in batches(target, _QUARANTINED, (), BATCH):
            for name, key, raw, _ in batch:
                if name not in known:
                    title = "a document in quarantine of a collection that the source does not have"
                elif len(raw) < SHORTEST or source_id_of(bytes(raw)) != key:
                    title = "a document in quarantine whose bytes are those of another document, or of none"
                else:
                    continue
                fix = "find out who wrote the entry, and delete the row from migration.quarantine"
                anomalies.add("difference", "quarantine-contradiction", title, fix, key=key, collection=name)
            dropped_keys = {(row[0], row[1]) for row in batch if row[3] == "dropped"}
            for name in sorted({row[0] for row in batch} & known.keys()):
                kept = {row[1]: bytes(row[2]) for row in batch if row[0] == name}
                existing = source.documents(name, kept)
                for key, raw in sorted(kept.items()):
                    compared += 1
                    if key not in existing:
                        title = "a document in quarantine that the source does not have"
                        anomalies.add(
                            "warning" if cut_over or (name, key) in dropped_keys else "difference",
                            "quarantine-source-gone",
                            title,
                            "call quarantine retry, which closes the entry of a document that was deleted",
                            key=key,
                            collection=name,
                        )
                    elif existing[key] != raw:
                        title = "a document in quarantine whose bytes are not those of the source"
                        fix = "call quarantine retry if the document was corrected; else find out who changed the entry"
                        anomalies.add("difference", "quarantine-bytes", title, fix, key=key, collection=name)
    tallies, findings = differences(context, "ledger", causes=QUARANTINE_CAUSES)
    wrong = anomalies.count("difference") + sum(one.count for one in tallies)
    counts = {"documents in quarantine": compared - len(dropped)}
    if dropped:
        counts["documents dropped from it"] = len(dropped)
    return CheckResult(
        outcome=outcome_of(wrong=bool(wrong), unsure=unverified_reasons(context)),
        counts=counts | {"differences": wrong, "warnings": anomalies.count("warning")},
        panels=_dropped_panel(dropped, context.listed),
        tallies=(*anomalies.tallies(), *tallies),
        findings=tuple(sorted([*anomalies.findings, *findings])[: context.listed]),
        findings_total=wrong,
    )


def _dropped_panel(rows: Sequence[tuple[Any, ...]], listed: int) -> tuple[Panel, ...]:
    """Return the documents that people gave up, with who decided it and why."""
    if not rows:
        return ()
    # A time that the tool did not write may be missing: the entry is told without it.
    times = ("" if row[6] is None else f"{row[6].astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" for row in rows[:listed])
    lines = tuple((*(one or "" for one in row[:6]), at) for row, at in zip(rows[:listed], times, strict=True))
    title = "Dropped from quarantine: left out by a person's decision"
    return (Panel(kind="table", title=title, columns=_DROPPED_COLUMNS, rows=lines, rows_total=len(rows)),)


def _is_cut_over(context: CheckContext, target: Connection) -> bool:
    """Whether the application works on the target."""
    if context.settings.target.is_native:
        return target_tables(context.settings).active_since(target) is not None
    return context.settings.persistence.scheduler == "postgres"


def no_foreign_rows(context: CheckContext) -> CheckResult:
    """Look for rows that did not come from the source, while the application still writes to MongoDB."""
    anomalies = Anomalies(context.listed, "foreign")
    cells = []
    created = 0
    with context.target() as target:
        cut_over = _is_cut_over(context, target)
        for table, count, keys in _foreign_rows(context, target):
            created += count
            wrong = bool(count) and not cut_over and table not in STANDBY_TABLES
            for key in keys if wrong else ():
                anomalies.add(
                    "difference",
                    "foreign-writer",
                    "a row that was not copied from the source, while the application writes to MongoDB",
                    "stop the other writer, and remove the row: a later copy would overwrite it or conflict with it",
                    key=key,
                    table=table,
                )
            cells.append(Cell(table=table, outcome=FAILED if wrong else PASSED, count=count, unit="rows"))
    return CheckResult(
        outcome=outcome_of(wrong=bool(anomalies.findings)),
        counts={"rows created in the target": created, "differences": anomalies.count("difference")},
        cells=tuple(cells),
        tallies=anomalies.tallies(),
        findings=tuple(sorted(anomalies.findings)),
        findings_total=anomalies.count("difference"),
    )


def _foreign_rows(context: CheckContext, target: Connection) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Yield each table, with the number of rows that did not come from the source and the keys of the first ones."""
    if context.settings.target.is_native:
        profile = profile_of(context.settings.source, context.settings.target)
        tables = target_tables(context.settings)
        for record in dict.fromkeys(record for collection in profile.collections for record in collection.tables):
            yield record.table, *tables.foreign_rows(target, profile, record, context.listed)
        return
    for record in ALL:
        if "source" in record.__struct_fields__:
            rows = target.execute(
                "SELECT id::text, count(*) OVER () FROM scheduler."  # noqa: S608 - a record's table name
                f"{record.table} WHERE source IS NULL AND NOT starts_with(tenant_id, %s) ORDER BY id LIMIT %s",
                (SCRATCH, context.listed),
            ).fetchall()
            yield record.table, rows[0][1] if rows else 0, [key for key, _ in rows]


CHECKS = (
    CheckSpec(
        id="parity.quarantine",
        title="Every document in quarantine has the bytes of its source, and the right reason",
        fails_if=(
            "a document in quarantine is not byte for byte the source's, is not in the source, has the bytes of "
            "another document, can be loaded now, or would be quarantined for another reason than its entry says"
        ),
        requirements=("0-X1",),
        run=quarantine_intact,
    ),
    CheckSpec(
        id="parity.foreign",
        title="No other program writes to the target before the cutover",
        fails_if="while the application writes to MongoDB, a row names no source, or a row of a library has no origin",
        requirements=("0-X1",),
        scheduler_limits=(
            "graph_jobs and graph_job_events have no column for the source. parity.extra detects extra rows in them.",
            "Workers and locks are left out, because a scheduler that waits for the cutover writes there.",
        ),
        run=no_foreign_rows,
    ),
    CheckSpec(
        id=LEDGER,
        title="The ledger is as the tool wrote it, and records every dangling reference",
        fails_if=(
            "a plan, a chunk, a note, a recorded parity check or a decision was changed by hand, a chunk's counts do "
            "not add up, a dangling reference is not recorded, or rows of the tool's own tables contradict each other: "
            "an entry in quarantine under another key, or closed at no time; a note of no chunk; a tail of another "
            "source; a cutover that the scheduler does not know; a note in an outbox that is not open"
        ),
        requirements=("0-X1",),
        limits=(
            "A checksum detects a row that was changed by hand, unless its checksum was computed again too.",
            "While a tail runs, dangling references are not looked for.",
        ),
        run=ledger_sound,
    ),
)
