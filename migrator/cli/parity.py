"""The command ``parity``, and what commands print of a comparison."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import click

from migrator.cli.confirmation import approval, approval_options, confirm, yes_option
from migrator.cli.options import (
    allow_quarantined_option,
    common_options,
    dry_run_option,
    finish,
    load,
    overwrite_option,
    show,
    workers_option,
)
from migrator.errors import UsageError
from migrator.exit_status import Allowance, beyond, mask
from migrator.parity.causes import CAUSES
from migrator.parity.check import check_parity
from migrator.parity.foreign_copy import ForeignOutcome, check_foreign_copy
from migrator.parity.model import DROPPED, ParityOutcome
from migrator.parity.recorded_check import check_and_record
from migrator.parity.repair import Repair, apply_repair, plan_repair
from migrator.pipeline.executors import forked_workers
from migrator.pipeline.plan import Scope
from migrator.result import NAMED_LOSS


@click.command()
@click.option("--only", multiple=True, metavar="COLLECTION", help="Compare only this collection; repeatable.")
@click.option("--tenant", multiple=True, metavar="TENANT", help="Compare only this tenant; repeatable.")
@workers_option
@click.option(
    "--repair",
    type=click.Choice(["plan", "apply"]),
    help="plan lists the documents to be read again; apply reads them again, and asks for confirmation first.",
)
@overwrite_option
@click.option(
    "--lock-source",
    is_flag=True,
    help="A source in PostgreSQL: hold SHARE locks on its tables during the parity check, so that nobody writes.",
)
@click.option(
    "--target-of",
    metavar="OTHER",
    help="Compare a copy that OTHER (a tool or a script, in your words) has made: by the mapping, read only.",
)
@allow_quarantined_option
@approval_options
@yes_option
@dry_run_option
@common_options
def parity_command(
    config: str | None,
    only: tuple[str, ...],
    tenant: tuple[str, ...],
    workers: int | None,
    repair: str | None,
    target_of: str | None,
    allow_quarantined: Allowance,
    who: str | None,
    reason: str | None,
    *,
    overwrite_changed_rows: bool,
    lock_source: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compare every document with its rows, and the rows with the document. Only --repair apply changes rows.

    The outcome of a parity check of everything is recorded in migration.parity_checks. The cutover requires a recent
    one without differences. If the source is written to, let migrator tail run. Documents are compared then, and
    aggregates (counts, sums, times) are not, which sets the bit 4. The cutover requires only the documents.

    With --target-of the copy in postgres.dsn is one that this tool did not make. Nothing is written, and nothing is
    recorded. A field that no column holds, and that the mapping does not declare as a loss, sets the bit 4.
    """
    settings = load(config, workers=workers)
    scope = Scope(only=tuple(sorted(set(only))), tenants=tuple(sorted(set(tenant))))
    if target_of is not None:
        if repair or lock_source or workers or who or reason or yes or overwrite_changed_rows:
            raise UsageError(
                "--target-of reads in one process and writes nothing: --repair, --lock-source, --workers, --who,"
                " --reason, --overwrite-changed-rows and --yes do not belong to it"
            )
        if not target_of.strip():
            raise UsageError("--target-of needs words that say who made the copy")
        compared = check_foreign_copy(settings, scope, target_of)
        show(compared, foreign_lines(compared), as_json=as_json)
        finish(parity_status(compared, allow_quarantined, partly=bool(tenant)))
    repaired = None
    if repair != "apply" and (who or reason or yes or overwrite_changed_rows):
        raise UsageError("--who, --reason, --overwrite-changed-rows and --yes belong to --repair apply")
    if repair is None:
        check = partial(check_parity, scope=scope) if scope != Scope() else partial(check_and_record, dry_run=dry_run)
        with forked_workers(settings):
            outcome = check(settings, lock_source=lock_source)
    else:
        if repair == "apply" and not dry_run:
            confirm(settings, "parity repair", lambda: repair_lines(plan_repair(settings, scope)), yes=yes)
            by = approval(who, reason)
            repaired = apply_repair(settings, scope, by, overwrite=overwrite_changed_rows)
        else:
            repaired = plan_repair(settings, scope)
        outcome = repaired.after or repaired.found
    lines = [*(() if repaired is None else repair_lines(repaired)), *parity_lines(outcome)]
    lines += [NOT_RECORDED] * dry_run
    show(repaired or outcome, lines, as_json=as_json)
    finish(parity_status(outcome, allow_quarantined, partly=bool(tenant)))


NOT_RECORDED = "nothing was written, and nothing recorded"


def repair_lines(repair: Repair) -> Iterator[str]:
    """Yield the changes that a repair would make, or has made."""
    for name, ids in repair.documents.items():
        yield f"{name}: {len(ids):,} documents {'were' if repair.applied else 'would be'} read again"
        for one in ids[:5]:
            yield f"  {one}"
    if not repair.documents:
        yield "nothing to repair"
    if repair.applied:
        yield f"wrote {repair.written:,} rows, removed {repair.removed:,}"
    if repair.cleared:
        yield f"cleared the alarm of the tail: {repair.cleared}"


def _collection_lines(outcome: ParityOutcome, whole: str, rejected: str) -> Iterator[str]:
    """Yield the table of the collections; ``whole`` and ``rejected`` head two of its columns."""
    yield (
        f"{'collection':<20} {'documents':>10} {'equal':>10} {whole:>10} {'different':>9} {'missing':>8} {'extra':>6}"
        f" {rejected} {'skipped':>8}"
    )
    for collection in outcome.collections:
        if collection.unverified:
            yield f"{collection.collection:<20} not compared: {collection.unverified}"
            continue
        yield (
            f"{collection.collection:<20} {collection.documents:>10,} {collection.matched:>10,}"
            f" {collection.without_remainder:>10,}"
            f" {collection.differing:>9,} {collection.missing:>8,} {collection.extra:>6,}"
            f" {collection.quarantined:>{len(rejected)},} {sum(collection.skipped.values()):>8,}"
        )


def parity_lines(outcome: ParityOutcome) -> Iterator[str]:
    """Yield the summary of a parity check, its differences first by cause."""
    yield from _collection_lines(outcome, "clean", "quarantined")
    yield from _finding_lines(outcome)
    yield from _loss_lines(outcome)
    yield from _never_firing_lines(outcome)
    for result in outcome.both_aggregates:
        if result.differing_total:
            yield f"{result.collection}: aggregate {result.measure} differs in {result.differing_total:,} values"
    left = Counter(
        result.unverified for result in outcome.both_aggregates if result.unverified and not result.differing_total
    )
    yield from (f"{count:,} aggregates (counts, sums, times) not compared: {why}" for why, count in left.items())
    if outcome.unverified_because:
        yield f"unverified: {outcome.unverified_because}"
    yield from _active_lines(outcome)
    yield parity_total(outcome)


def foreign_lines(outcome: ForeignOutcome) -> Iterator[str]:
    """Yield the summary of a parity check of a copy that another tool made."""
    yield f"this copy was made by {outcome.copied_by}, and not by this tool; nothing was written, and nothing recorded"
    yield from _collection_lines(outcome, "whole", " no rows")
    yield from _finding_lines(outcome)
    for collection in outcome.collections:
        for reason in collection.quarantine:
            yield (
                f"{collection.collection}: the mapping makes no rows of {reason.count:,} documents: {reason.reason} at"
                f" {reason.path or 'the document'}; whether the copy has them was not compared"
            )
    for field in outcome.not_held:
        kept = "not held by the copy" if field.kind == "added" else f"not held as the document has it ({field.kind})"
        declared = f"; declared: {field.reason}" if field.reason else ""
        yield f"{field.collection}: {kept}: {field.path} in {field.documents:,} documents{declared}"
    for column in outcome.not_compared:
        yield f"not compared: {column.table}.{column.column} in {column.rows:,} rows: {column.reason}"
    for link in outcome.links:
        yield f"{link.link}: {link.state.replace('-', ' ')}{f': {link.reason}' if link.reason else ''}"
    yield foreign_total(outcome)


def foreign_total(outcome: ForeignOutcome) -> str:
    """Return the last line of a parity check of a copy that another tool made."""
    done = [collection for collection in outcome.collections if not collection.unverified]
    parts = [
        f"{count:,} {word}"
        for word, count in (
            ("equal", sum(one.matched for one in done)),
            ("different", sum(one.differing for one in done)),
            ("missing", sum(one.missing for one in done)),
            ("extra rows", sum(one.extra for one in done)),
            ("without rows by the mapping", sum(one.quarantined for one in done)),
            ("skipped by rule", sum(sum(one.skipped.values()) for one in done)),
            ("of the collections not compared", len(outcome.collections) - len(done)),
        )
        if count or word == "equal"
    ]
    return f"compared {sum(one.documents for one in done):,} documents: {', '.join(parts)}"


def _finding_lines(outcome: ParityOutcome) -> Iterator[str]:
    """Yield the differences of each collection by cause, and the first few of them."""
    told: set[str] = set()
    for collection in outcome.collections:
        for side, tally in collection.tallied():
            yield f"{collection.collection}: {tally.count:,} x {side} {_place(tally.table, tally.path)}: {tally.cause}"
            if tally.fix and tally.cause not in told:
                told.add(tally.cause)
                yield f"  likely fix: {tally.fix}"
        for finding in collection.findings[:5]:
            place = f"{finding.side} {_place(finding.table, finding.path)} of {finding.key}"
            yield f"  {place}: {'; '.join(finding.details) or finding.cause}"


def _loss_lines(outcome: ParityOutcome) -> Iterator[str]:
    """Yield the losses by name, a line each."""
    for collection in outcome.collections:
        for note in collection.notes:
            if note.cause == NAMED_LOSS:
                yield (
                    f"{collection.collection}: lost to the library: {note.path} in {note.count:,} documents: {note.fix}"
                )


def _active_lines(outcome: ParityOutcome) -> Iterator[str]:
    if outcome.active_since is not None:
        yield (
            f"PostgreSQL is active since {outcome.active_since:%Y-%m-%d %H:%M:%S} UTC: compared is what it did not"
            " change since; its changes are no differences"
        )
        made = ", ".join(f"{count:,} {table}" for table, count in outcome.created.items())
        yield from [f"created on PostgreSQL, and not compared: {made}"] * bool(made)


def _never_firing_lines(outcome: ParityOutcome) -> Iterator[str]:
    if outcome.never_firing_total:
        cause = CAUSES["never-firing-schedule"]
        yield f"{outcome.never_firing_total:,} x never-firing-schedule: {cause.title}; {cause.fix}"
    for schedule in outcome.never_firing[:5]:
        yield f"  {schedule.collection} {schedule.source_id}"


def parity_status(outcome: ParityOutcome, allowed: Allowance, *, partly: bool = False) -> int:
    """Return the exit status of a parity check; ``partly``: not of every tenant."""
    return mask(
        different=outcome.differs,
        unverified=outcome.unverified or partly,
        quarantine=beyond(sum(one.quarantined for one in outcome.collections), allowed),
    )


def _place(table: str, path: str) -> str:
    return ".".join(part for part in (table, path) if part) or "document"


def parity_total(outcome: ParityOutcome) -> str:
    """Return the last line of a parity check. Rows of several documents together are not counted as documents."""
    done = [one for one in outcome.collections if not one.unverified]
    documents = [one for one in done if not one.collection.startswith("(")]
    parts = [f"{sum(one.matched for one in documents):,} equal"]
    dropped = sum(one.skipped.get(DROPPED, 0) for one in documents)
    left_out = len(outcome.collections) - len(done)
    for word, count in (
        ("different", sum(one.differing for one in done)),
        ("missing", sum(one.missing for one in done)),
        ("extra rows", sum(one.extra for one in done)),
        ("ledger entries that differ", sum(one.ledger for one in done)),
        ("enabled schedules that never fire", outcome.never_firing_total),
        ("aggregates that differ", sum(one.differing_total for one in outcome.both_aggregates)),
        ("changed on PostgreSQL since the cutover", sum(one.changed for one in documents)),
        ("quarantined", sum(one.quarantined for one in documents)),
        ("dropped from quarantine", dropped),
        ("skipped by rule", sum(sum(one.skipped.values()) for one in documents) - dropped),
        ("collection not compared" if left_out == 1 else "collections not compared", left_out),
    ):
        if count:
            parts.append(f"{count:,} {word}")
    return f"compared {sum(one.documents for one in documents):,} documents: {', '.join(parts)}"
