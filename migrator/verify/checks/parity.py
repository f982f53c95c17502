"""Area parity: every document is accounted for, equal on both links, and there is no extra row.

One parity check (``parity.check``) feeds all of these checks. Each answers one question, so that the report can say
which one failed.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import msgspec

from migrator.parity.aggregates import NONE, column_of, has_column_measures
from migrator.parity.causes import CauseCode
from migrator.parity.check import check_parity
from migrator.parity.model import (
    KEYS_LISTED,
    AggregateDifference,
    AggregateResult,
    CollectionComparison,
    ParityOutcome,
    Side,
)
from migrator.parity.recorded_check import check_and_record
from migrator.pipeline.plan import Scope
from migrator.result import (
    FAILED,
    PASSED,
    Cell,
    Finding,
    Outcome,
    Status,
    Tally,
    not_applicable,
    table_panel,
    unverified,
)
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of

NO_COLLECTION = "no collection of the source feeds this table"


def comparison(context: CheckContext) -> ParityOutcome:
    """Return the parity check of every document, made once for all checks; its error is raised for each."""
    return context.shared("parity check of every document", lambda: compare(context))


def compare(context: CheckContext) -> ParityOutcome:
    """Compare every document with its rows, on record if that is asked for."""
    lock_source = context.request.lock_source
    if context.request.on_record:
        return check_and_record(context.settings, must=False, lock_source=lock_source)
    if context.lent is None:
        return check_parity(context.settings, Scope(), lock_source=lock_source)
    with ThreadPoolExecutor(1) as pool:  # the samples are so small that a process would take longer to start
        return check_parity(context.settings, Scope(only=context.lent.collections), pool=pool)


def result_of_sides(
    context: CheckContext, sides: tuple[Side, ...], counted: Callable[[CollectionComparison], int], unit: str
) -> CheckResult:
    """Return the result of the parity check on some sides (``parity.model.Side``), with the cells of the tables."""
    comparisons = comparison(context).collections
    outcomes: dict[str, list[Outcome]] = {}
    compared: dict[str, int] = {}
    for collection in comparisons:
        wrong = {tally.table or collection.tables[0] for _, tally in collection.tallied(*sides)}
        for table in collection.tables:
            state = FAILED if table in wrong else unverified(collection.unverified) if collection.unverified else PASSED
            outcomes.setdefault(table, []).append(state)
            compared[table] = compared.get(table, 0) + _count(collection, table, counted, unit)
    tallies, findings = differences(context, *sides)
    total = sum(tally.count for tally in tallies)
    return CheckResult(
        outcome=outcome_of(wrong=bool(total), unsure=unverified_reasons(context)),
        counts={unit: sum(counted(one) for one in comparisons), "differences": total},
        cells=coverage_cells(context, outcomes, compared, unit),
        tallies=tuple(tallies),
        findings=tuple(findings[: context.listed]),
        findings_total=total,
    )


def _count(one: CollectionComparison, table: str, counted: Callable[[CollectionComparison], int], unit: str) -> int:
    """Return how much was compared in one table: rows by table where that is known, documents at their owner."""
    if unit == "rows":
        return max((column.compared for column in one.columns if column.table == table), default=0)
    return counted(one) if table == one.tables[0] else 0


def differences(
    context: CheckContext, *sides: Side, causes: tuple[CauseCode, ...] = ()
) -> tuple[list[Tally], list[Finding]]:
    """Return the tallies of the parity check on some sides, of some causes or of all, with their first keys."""
    tallies: list[Tally] = []
    findings: list[Finding] = []
    for collection in comparison(context).collections:
        chosen = [line for line in collection.findings if line.side in sides and (not causes or line.cause in causes)]
        keys: dict[tuple[str, ...], dict[str, None]] = {}
        for line in chosen:
            keys.setdefault((line.side, line.table, line.path, line.cause), {})[line.key] = None
        tallies += [
            msgspec.structs.replace(
                tally, keys=tuple(keys.get((side, tally.table, tally.path, tally.cause), ()))[:KEYS_LISTED]
            )
            for side, tally in collection.tallied(*sides)
            if not causes or tally.cause in causes
        ]
        findings += chosen
    return tallies, findings


def coverage_cells(
    context: CheckContext, outcomes: dict[str, list[Outcome]], compared: dict[str, int], unit: str
) -> tuple[Cell, ...]:
    """Return the cells of a check: of several collections in one table the worst outcome counts.

    A table that no collection feeds is not applicable; one that is fed and has no outcome here stays uncovered.
    """
    fed = {table for one in comparison(context).collections for table in one.tables}
    cells = []
    for table in context.tables:
        if table in outcomes:
            cells.append(Cell(table=table, outcome=_worst(outcomes[table]), count=compared[table], unit=unit))
        elif table not in fed:
            cells.append(Cell(table=table, outcome=not_applicable(NO_COLLECTION)))
    return tuple(cells)


def aggregate_cells(context: CheckContext, results: Iterable[AggregateResult]) -> tuple[tuple[Cell, ...], list[str]]:
    """Return the cells of aggregates that both databases computed, and why some could not be compared."""
    outcomes: dict[str, list[Outcome]] = {}
    compared: dict[str, int] = {}
    doubts = []
    for result in results:
        state = FAILED if result.differing_total else unverified(result.unverified) if result.unverified else PASSED
        outcomes.setdefault(result.table, []).append(state)
        compared[result.table] = compared.get(result.table, 0) + result.compared
        if result.unverified:
            doubts.append(f"{result.collection}: {result.unverified}")
    return coverage_cells(context, outcomes, compared, "aggregates"), doubts


_WORST_FIRST: Final[tuple[Status, ...]] = ("failed", "unverified", "not-asked-for", "not-applicable", "passed")


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    return min(outcomes, key=lambda one: _WORST_FIRST.index(one.status))


def compared_collections(context: CheckContext) -> list[CollectionComparison]:
    """Return the collections of which at least a part was compared."""
    return [one for one in comparison(context).collections if one.documents or not one.unverified]


def unverified_reasons(context: CheckContext) -> list[str]:
    """Return why collections were not compared."""
    reasons = [f"{one.collection}: {one.unverified}" for one in comparison(context).collections if one.unverified]
    return [*reasons, *([comparison(context).unverified_because] if comparison(context).unverified_because else ())]


def accounted_for(context: CheckContext) -> CheckResult:
    """Every document read is matched, differing, quarantined or skipped by a rule; none is missing."""
    outcome = comparison(context)
    collections = compared_collections(context)
    missing = sum(one.missing for one in collections)
    unbalanced = [one.collection for one in collections if not one.balanced]
    unexplained = [
        one.collection
        for one in collections
        if one.differing and not one.tallied("row", "document", "missing", "rejected")
    ]
    documents = sum(one.documents for one in collections)
    doubts = [*unverified_reasons(context), *(() if documents else ("the source holds no document of this profile",))]
    result = result_of_sides(context, ("missing", "rejected"), lambda one: one.documents, "documents")
    return CheckResult(
        outcome=outcome_of(wrong=bool(missing or unbalanced or unexplained or result.findings_total), unsure=doubts),
        counts={
            "documents": documents,
            "matched": sum(one.matched for one in collections),
            "differing": sum(one.differing for one in collections),
            "missing": missing,
            "quarantined": sum(one.quarantined for one in collections),
            "not copied by rule": sum(sum(one.skipped.values()) for one in collections),
        }
        | ({"changed on PostgreSQL": changed} if (changed := sum(one.changed for one in collections)) else {}),
        cells=result.cells,
        tallies=result.tallies,
        findings=result.findings,
        findings_total=result.findings_total,
        collections=tuple(one.counts for one in collections),
        quarantine=tuple(line for one in collections for line in one.quarantine),
        losses=tuple(line for one in collections for line in one.losses),
        left_out=(
            *(f"collection {one} is in no profile: not copied, so not compared" for one in outcome.unknown_collections),
            *(f"collection {one} is not copied, on purpose: {reason}" for one, reason in outcome.left_out.items()),
        ),
    )


def losses_kept(context: CheckContext) -> CheckResult:
    """Every value that its column cannot hold unchanged is in the remainder."""
    collections = compared_collections(context)
    lost = [line for one in collections for line in one.losses if not line.kept]
    return CheckResult(
        outcome=outcome_of(wrong=bool(lost), unsure=unverified_reasons(context)),
        counts={
            "documents without remainder": sum(one.without_remainder for one in collections),
            "documents with remainder": sum(one.with_remainder for one in collections),
            "lossy values kept": sum(line.count for one in collections for line in one.losses if line.kept),
        },
        tallies=tuple(
            Tally(
                severity="difference",
                cause="lost",
                collection=line.collection,
                path=line.path,
                title=f"a value that its column cannot hold ({line.kind}), and that the remainder does not hold",
                fix="this is a fault of the profile, which must leave the value to the remainder",
                count=line.count,
            )
            for line in lost
        ),
    )


def policies_applied(context: CheckContext) -> CheckResult:
    """Each peculiarity of the source has a policy; they are counted and listed."""
    collections = compared_collections(context)
    tallies = [note for one in collections for note in one.notes]
    return CheckResult(
        outcome=outcome_of(wrong=False, unsure=unverified_reasons(context)),
        counts={"findings": sum(tally.count for tally in tallies)},
        tallies=tuple(tallies),
    )


_NO_COUNT: Final = {"sum": "sum", "first": "first time", "last": "last time"}
"""Label of an aggregate that is no count of documents, in words."""


def _aggregate_words(one: AggregateResult, line: AggregateDifference) -> str:
    """Return which aggregate differs: of which documents, and of which tenant."""
    if one.kind != "group":
        what = _NO_COUNT.get(line.label, line.label)
    elif not line.label:
        what = "number of documents"
    else:
        what = "documents without a value" if line.label == NONE else f"documents with {line.label}"
    return f"{what}, tenant {line.tenant}"


def aggregates_agree(context: CheckContext) -> CheckResult:
    """Both databases compute the same aggregates, by code that shares nothing with the transform."""
    return _aggregate_result(
        context,
        comparison(context).aggregates,
        cause="aggregate",
        title="an aggregate that the two databases compute differently",
        fix="look for a fault that decode and encode share: a round trip cannot detect it",
        path=lambda one: one.measure,
        describe=lambda one, line: (
            _aggregate_words(one, line),
            f"{line.source} by MongoDB, {line.target} by PostgreSQL",
        ),
    )


def _aggregate_result(
    context: CheckContext,
    results: tuple[AggregateResult, ...],
    *,
    cause: str,
    title: str,
    fix: str,
    path: Callable[[AggregateResult], str],
    describe: Callable[[AggregateResult, AggregateDifference], tuple[str, str]],
) -> CheckResult:
    """Return a check of aggregates; ``words`` gives the key of a difference, and what it says."""
    cells, doubts = aggregate_cells(context, results)
    if not results:
        doubts.append("no aggregates were computed")
    total = sum(one.differing_total for one in results)
    described = [(one, *describe(one, line)) for one in results for line in one.differing]
    return CheckResult(
        outcome=outcome_of(wrong=bool(total), unsure=doubts),
        counts={"aggregates": sum(one.compared for one in results), "differing": total},
        cells=cells,
        tallies=tuple(
            Tally(
                severity="difference",
                cause=cause,
                collection=one.collection,
                table=one.table,
                path=path(one),
                title=title,
                fix=fix,
                count=one.differing_total,
                keys=tuple(describe(one, line)[0] for line in one.differing[:KEYS_LISTED]),
            )
            for one in results
            if one.differing_total
        ),
        findings=tuple(
            Finding(
                severity="difference",
                cause=cause,
                collection=one.collection,
                table=one.table,
                key=key,
                path=path(one),
                side="aggregate",
                details=(detail,),
            )
            for one, key, detail in described
        )[: context.listed],
        findings_total=total,
    )


CHECKS = (
    CheckSpec(
        id="parity.documents",
        title="Every document is accounted for",
        fails_if=(
            "a document has no row, or the documents read are not as many as those equal, different, missing, "
            "quarantined and skipped together"
        ),
        requirements=("0-X1", "0-O6", "4-Z1", "4-Z3"),
        run=accounted_for,
    ),
    CheckSpec(
        id="parity.rows",
        title="Every stored row is the row that its document decodes to",
        fails_if="a stored row is not, column by column and type by type, the row that its document decodes to",
        requirements=("0-X1",),
        limits=("Documents are read while the check runs. A document that is written meanwhile may appear stale.",),
        run=partial(result_of_sides, sides=("row",), counted=lambda one: one.rows, unit="rows"),
    ),
    CheckSpec(
        id="parity.round-trip",
        title="Every document can be rebuilt from its rows",
        fails_if="the rows of a document do not encode back to it",
        requirements=("0-X1",),
        limits=("The order of keys inside documents is not compared; the order of list members is.",),
        run=partial(result_of_sides, sides=("document",), counted=lambda one: one.matched, unit="documents"),
    ),
    CheckSpec(
        id="parity.extra",
        title="No row of this source is without its document",
        fails_if="a row of this source has no document",
        requirements=("0-X1",),
        limits=("Rows that name no source (created in the target) are not looked for.",),
        run=partial(result_of_sides, sides=("extra",), counted=lambda one: one.rows, unit="rows"),
    ),
    CheckSpec(
        id="parity.losses",
        title="Every value that its column cannot hold is in the remainder",
        fails_if="a value that its column cannot hold is kept nowhere",
        requirements=("0-X1",),
        run=losses_kept,
    ),
    CheckSpec(
        id="parity.policies",
        title="The oddities of the source, and the policy that decides each, are recorded",
        fails_if="never: it counts what policies decide",
        can_fail=False,
        run=policies_applied,
    ),
    CheckSpec(
        id="parity.aggregates",
        title="Both databases compute the same aggregates, independently of the transform",
        fails_if="MongoDB and PostgreSQL do not compute the same counts, sums, first and last times",
        requirements=("0-X1",),
        limits=(
            "Aggregates are counts by state, sums, first and last times. Errors may cancel out in a sum.",
            "Sums of fractions are compared to nine digits, times to the millisecond.",
        ),
        run=aggregates_agree,
    ),
)


COLUMNS_DERIVED = (
    "the profile {} derives every column, from fields that each version of the source spells in its own way: the round"
    " trip and the other aggregates compare them"
)

ColumnRow = tuple[str | int | None, ...]
COLUMN_HEADINGS = (
    "table",
    "column",
    "compared",
    "differing",
    "filled, by MongoDB",
    "filled, by PostgreSQL",
    "characters or members, by MongoDB",
    "characters or members, by PostgreSQL",
)


def columns_agree(context: CheckContext) -> CheckResult:
    """Compare, for every column that a field states directly, how many values and characters both sides hold."""
    results = comparison(context).columns
    profile = comparison(context).profile.partition("/")[0]
    rows = _column_rows(context, results)
    result = _aggregate_result(
        context,
        results,
        cause="column",
        title="a column of which the two databases hold different amounts",
        fix="look for columns that were exchanged, and for texts that were cut or trimmed",
        path=lambda one: column_of(one.measure)[0],
        describe=lambda one, line: (
            f"tenant {line.tenant}",
            f"{line.source} {column_of(one.measure)[1]} by MongoDB, {line.target} by PostgreSQL",
        ),
    )
    derived = not results and not has_column_measures(profile)
    return msgspec.structs.replace(
        result,
        outcome=not_applicable(COLUMNS_DERIVED.format(profile)) if derived else result.outcome,
        counts={} if derived else {"columns": len(rows), **result.counts},
        panels=() if derived else (table_panel("Every column, and what was compared of it", COLUMN_HEADINGS, rows),),
    )


def _column_rows(context: CheckContext, results: tuple[AggregateResult, ...]) -> tuple[ColumnRow, ...]:
    """Return a row per column that was compared; aggregates that no field states directly are left empty."""
    seen: dict[tuple[str, str], list[int]] = {}
    for one in compared_collections(context):
        for column in one.columns:
            sums = seen.setdefault((column.table, column.column), [0, 0])
            sums[0] += column.compared
            sums[1] += column.differing
    totals: dict[tuple[str, str, bool], list[int]] = {}
    for result in results:
        if not result.unverified:
            column_name, kind = column_of(result.measure)
            sums = totals.setdefault((result.table, column_name, kind == "filled"), [0, 0])
            sums[0] += int(result.source_total or 0)
            sums[1] += int(result.target_total or 0)
    return tuple(
        (
            *place,
            *counts,
            *totals.get((*place, True), (None, None)),
            *totals.get((*place, False), (None, None)),
        )
        for place, counts in sorted(seen.items())
    )


COLUMN_CHECKS = (
    CheckSpec(
        id="parity.columns",
        title="Every column holds as many values, characters and members as its field",
        fails_if=(
            "a column does not hold as many values, characters or members as its field; the report lists every column"
        ),
        requirements=("0-X1",),
        limits=("Derived columns (ids, references, durations, states) are compared by the round trip alone.",),
        run=columns_agree,
    ),
)
