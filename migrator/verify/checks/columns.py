"""Area parity, column by column: how much was compared, and whether both databases hold as much of it."""

from migrator.parity.columns import column_of, states_columns
from migrator.parity.model import KEYS_LISTED, AggregateResult
from migrator.result import Exhibit, Finding, Tally, not_applicable
from migrator.verify.check import CheckSpec, Found, judge
from migrator.verify.comparison import compared, figure_squares
from migrator.verify.context import Context

DERIVED = (
    "the profile {} derives every column, from fields that each version of the source spells in its own way: the round"
    " trip and the other figures compare them"
)

Row = tuple[str | int | None, ...]
HEAD = (
    "table",
    "column",
    "compared",
    "differing",
    "filled, by MongoDB",
    "filled, by PostgreSQL",
    "characters or members, by MongoDB",
    "characters or members, by PostgreSQL",
)


def columns_agree(context: Context) -> Found:
    """Compare, for every column that a field states directly, how many values and characters both sides hold."""
    results = context.comparison.columns
    wrong = [one for one in results if one.differing_total]
    rows = _rows(context, results)
    cells, doubts = figure_squares(context, results)
    profile = context.comparison.profile.partition("/")[0]
    outcome = judge(wrong=bool(wrong), unsure=doubts or ([] if results else ["no figures were computed"]))
    return Found(
        outcome=outcome if results or states_columns(profile) else not_applicable(DERIVED.format(profile)),
        counts={
            "columns": len(rows),
            "figures": sum(one.compared for one in results),
            "differing": sum(one.differing_total for one in wrong),
        },
        cells=cells,
        tallies=tuple(
            Tally(
                severity="difference",
                cause="column",
                collection=one.collection,
                table=one.table,
                path=column_of(one.measure)[0],
                title="a column of which the two databases do not hold as much",
                fix="look for columns that were mixed up, and for texts that were cut or trimmed",
                count=one.differing_total,
                keys=tuple(line.tenant for line in one.differing[:KEYS_LISTED]),
            )
            for one in wrong
        ),
        findings=tuple(
            Finding(
                severity="difference",
                cause="column",
                collection=one.collection,
                table=one.table,
                key=line.tenant,
                path=column_of(one.measure)[0],
                side="figure",
                words=(f"{line.source} {column_of(one.measure)[1]} by MongoDB, {line.target} by PostgreSQL",),
            )
            for one in wrong
            for line in one.differing
        )[: context.listed],
        findings_total=sum(one.differing_total for one in wrong),
        exhibits=(
            Exhibit(
                kind="table",
                title="Every column, and what was seen of it",
                columns=HEAD,
                rows=rows,
                rows_total=len(rows),
            ),
        ),
    )


def _rows(context: Context, results: tuple[AggregateResult, ...]) -> tuple[Row, ...]:
    """Return a row per column that was compared; figures that no field states directly are left empty."""
    seen: dict[tuple[str, str], list[int]] = {}
    for one in compared(context):
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


CHECKS = (
    CheckSpec(
        id="parity.columns",
        title="Every column holds as many values, and as much, as its field",
        requirements=("0-X1",),
        limits=("Columns that are derived (ids, references, durations, words) are compared by the round trip alone.",),
        run=columns_agree,
    ),
)
