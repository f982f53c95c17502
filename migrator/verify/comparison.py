"""The comparison as checks see it: what was found on one side, as squares, tallies and findings."""

from collections.abc import Callable, Iterable

from migrator.parity.causes import CAUSES
from migrator.parity.model import KEYS_LISTED, AggregateResult, CollectionComparison, Side
from migrator.records import ALL
from migrator.result import FAILED, PASSED, Cell, Finding, Outcome, Tally, not_applicable, unverified
from migrator.verify.check import Found, judge
from migrator.verify.context import Context

NO_COLLECTION = "no collection of the source feeds this table"


def sides_compared(
    context: Context, sides: tuple[Side, ...], counted: Callable[[CollectionComparison], int], unit: str
) -> Found:
    """Return what the comparison found on some sides, with the squares of the tables."""
    comparisons = context.comparison.collections
    outcomes: dict[str, list[Outcome]] = {}
    figures: dict[str, int] = {}
    tallies: list[Tally] = []
    findings: list[Finding] = []
    for one in comparisons:
        wrong = {cause.table or one.tables[0] for cause in one.causes if cause.side in sides}
        for table in one.tables:
            state = FAILED if table in wrong else unverified(one.unverified) if one.unverified else PASSED
            outcomes.setdefault(table, []).append(state)
            figures[table] = figures.get(table, 0) + _count(one, table, counted, unit)
        tallies += _tallies(one, sides)
        findings += [
            Finding(
                severity="difference",
                cause=line.cause,
                collection=line.collection,
                table=line.table,
                key=line.source_id,
                path=line.path,
                side=line.side,
                words=line.words,
            )
            for line in one.differences
            if line.side in sides
        ]
    total = sum(tally.count for tally in tallies)
    return Found(
        outcome=judge(wrong=bool(total), unsure=unsure(context)),
        counts={unit: sum(counted(one) for one in comparisons), "differences": total},
        cells=squares(context, outcomes, figures, unit),
        tallies=tuple(tallies),
        findings=tuple(findings[: context.listed]),
        findings_total=total,
    )


def _count(one: CollectionComparison, table: str, counted: Callable[[CollectionComparison], int], unit: str) -> int:
    """Return how much was compared in one table: rows by table where that is known, documents at their owner."""
    if unit == "rows":
        return max((column.compared for column in one.columns if column.table == table), default=0)
    return counted(one) if table == one.tables[0] else 0


def _tallies(one: CollectionComparison, sides: tuple[Side, ...]) -> list[Tally]:
    return [
        Tally(
            severity="difference",
            cause=cause.cause,
            collection=one.collection,
            table=cause.table,
            path=cause.path,
            title=CAUSES[cause.cause].title,
            fix=CAUSES[cause.cause].fix,
            count=cause.count,
            keys=tuple(
                dict.fromkeys(
                    line.source_id
                    for line in one.differences
                    if (line.table, line.path, line.side, line.cause)
                    == (cause.table, cause.path, cause.side, cause.cause)
                )
            )[:KEYS_LISTED],
        )
        for cause in one.causes
        if cause.side in sides
    ]


def squares(
    context: Context, outcomes: dict[str, list[Outcome]], figures: dict[str, int], unit: str
) -> tuple[Cell, ...]:
    """Return the squares of a check: of several collections in one table the worst outcome counts.

    A table that no collection feeds is not applicable; one that is fed and has no outcome here stays uncovered.
    """
    fed = {table for one in context.comparison.collections for table in one.tables}
    cells = []
    for record in ALL:
        table = record.table
        if table in outcomes:
            cells.append(Cell(table=table, outcome=_worst(outcomes[table]), count=figures[table], unit=unit))
        elif table not in fed:
            cells.append(Cell(table=table, outcome=not_applicable(NO_COLLECTION)))
    return tuple(cells)


def figure_squares(context: Context, results: Iterable[AggregateResult]) -> tuple[tuple[Cell, ...], list[str]]:
    """Return the squares of figures that both databases computed, and why some could not be compared."""
    outcomes: dict[str, list[Outcome]] = {}
    figures: dict[str, int] = {}
    doubts = []
    for one in results:
        state = FAILED if one.differing_total else unverified(one.unverified) if one.unverified else PASSED
        outcomes.setdefault(one.table, []).append(state)
        figures[one.table] = figures.get(one.table, 0) + one.compared
        if one.unverified:
            doubts.append(f"{one.collection}: {one.unverified}")
    return squares(context, outcomes, figures, "figures"), doubts


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    return min(
        outcomes,
        key=lambda one: ("failed", "unverified", "not-applicable", "passed").index(one.status),
    )


def compared(context: Context) -> list[CollectionComparison]:
    """Return the collections of which at least a part was compared."""
    return [one for one in context.comparison.collections if one.documents or not one.unverified]


def unsure(context: Context) -> list[str]:
    """Return why collections were not compared."""
    return [f"{one.collection}: {one.unverified}" for one in context.comparison.collections if one.unverified]


def has_side(one: CollectionComparison, sides: tuple[Side, ...]) -> bool:
    """Tell whether something differs on one of the sides."""
    return any(cause.side in sides for cause in one.causes)
