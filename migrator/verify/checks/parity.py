"""Area parity: every document is accounted for, equal on both links, and nothing else is there.

One comparison (``parity.flow``) feeds all of these checks; each looks at one question, so that the report can say which
one failed.
"""

from migrator.parity.model import KEYS_LISTED, CollectionComparison
from migrator.result import Finding, Loss, Moved, Quarantined, Tally
from migrator.verify.check import CheckSpec, Found, judge
from migrator.verify.comparison import compared, figure_squares, has_side, sides_compared, unsure
from migrator.verify.context import Context
from migrator.verify.rulings import ruling


def accounted_for(context: Context) -> Found:
    """Every document read is matched, differing, quarantined or skipped by a rule; none is missing."""
    outcome = context.comparison
    collections = compared(context)
    missing = sum(one.missing for one in collections)
    unbalanced = [one.collection for one in collections if not one.balanced]
    unexplained = [
        one.collection
        for one in collections
        if one.differing and not has_side(one, ("row", "document", "missing", "rejected"))
    ]
    documents = sum(one.documents for one in collections)
    doubts = [*unsure(context), *(() if documents else ("the source holds no document of this profile",))]
    found = sides_compared(context, ("missing", "rejected"), lambda one: one.documents, "documents")
    return Found(
        outcome=judge(wrong=bool(missing or unbalanced or unexplained or found.findings_total), unsure=doubts),
        counts={
            "documents": documents,
            "matched": sum(one.matched for one in collections),
            "differing": sum(one.differing for one in collections),
            "missing": missing,
            "quarantined": sum(one.quarantined for one in collections),
            "left behind by rule": sum(sum(one.skipped.values()) for one in collections),
        },
        cells=found.cells,
        tallies=found.tallies,
        findings=found.findings,
        findings_total=found.findings_total,
        moved=tuple(_moved(one) for one in collections),
        quarantine=tuple(
            Quarantined(
                collection=one.collection,
                reason=line.reason,
                path=line.path,
                expected=line.expected,
                count=line.count,
                keys=line.keys,
            )
            for one in collections
            for line in one.quarantine
        ),
        losses=tuple(
            Loss(collection=one.collection, path=line.path, kind=line.kind, count=line.count, kept=line.kept)
            for one in collections
            for line in one.losses
        ),
        left_out=tuple(
            f"collection {name} is in no profile: not copied, so not compared" for name in outcome.unknown_collections
        ),
    )


def rows_equal(context: Context) -> Found:
    """Link one: every stored row is, column by column and typed, the row its document decodes to."""
    return sides_compared(context, ("row",), lambda one: one.rows, "rows")


def documents_rebuilt(context: Context) -> Found:
    """Link two: the rows encode back to the document, canonical bytes."""
    return sides_compared(context, ("document",), lambda one: one.matched, "documents")


def nothing_extra(context: Context) -> Found:
    """No row of this source is without its document."""
    return sides_compared(context, ("extra",), lambda one: one.rows, "rows")


def losses_kept(context: Context) -> Found:
    """Whatever a column could not hold as it was is kept in the residue."""
    collections = compared(context)
    lost = [(one, line) for one in collections for line in one.losses if not line.kept]
    return Found(
        outcome=judge(wrong=bool(lost), unsure=unsure(context)),
        counts={
            "documents without residue": sum(one.clean for one in collections),
            "documents with residue": sum(one.residue for one in collections),
            "lossy values kept": sum(line.count for one in collections for line in one.losses if line.kept),
        },
        tallies=tuple(
            Tally(
                severity="difference",
                cause="lost",
                collection=one.collection,
                path=line.path,
                title=f"a value that its column cannot hold ({line.kind}), kept nowhere",
                fix="the profile must leave it to the residue",
                count=line.count,
            )
            for one, line in lost
        ),
    )


def rulings_applied(context: Context) -> Found:
    """Peculiarities of the source are decided by a written rule, counted, and listed."""
    collections = compared(context)
    tallies = [
        Tally(
            severity="settled",
            cause=note.kind,
            collection=one.collection,
            path=note.path,
            title=ruling(note.kind).title,
            fix=ruling(note.kind).policy,
            count=note.count,
            keys=note.keys,
        )
        for one in collections
        for note in one.notes
    ]
    return Found(
        outcome=judge(wrong=False, unsure=unsure(context)),
        counts={"findings": sum(tally.count for tally in tallies)},
        tallies=tuple(tallies),
    )


def figures_agree(context: Context) -> Found:
    """Both databases compute the same figures, by code that the transform has no part in."""
    results = context.comparison.aggregates
    tallies = [
        Tally(
            severity="difference",
            cause="aggregate",
            collection=one.collection,
            table=one.table,
            path=one.measure,
            title="a figure that the two databases do not agree on",
            fix="look for a fault that reading and writing share: round trips cannot see it",
            count=one.differing_total,
            keys=tuple(f"{line.tenant} {line.label}" for line in one.differing[:KEYS_LISTED]),
        )
        for one in results
        if one.differing_total
    ]
    findings = [
        Finding(
            severity="difference",
            cause="aggregate",
            collection=one.collection,
            table=one.table,
            key=f"{line.tenant} {line.label}",
            path=one.measure,
            side="figure",
            words=(f"{line.source} by MongoDB, {line.target} by PostgreSQL",),
        )
        for one in results
        for line in one.differing
    ]
    cells, doubts = figure_squares(context, results)
    if not results:
        doubts.append("no figures were computed")
    return Found(
        outcome=judge(wrong=bool(tallies), unsure=doubts),
        counts={"figures": sum(one.compared for one in results), "differing": sum(tally.count for tally in tallies)},
        cells=cells,
        tallies=tuple(tallies),
        findings=tuple(findings[: context.listed]),
        findings_total=sum(one.differing_total for one in results),
    )


def _moved(one: CollectionComparison) -> Moved:
    return Moved(
        collection=one.collection,
        tables=one.tables,
        documents=one.documents,
        matched=one.matched,
        differing=one.differing,
        missing=one.missing,
        quarantined=one.quarantined,
        skipped=one.skipped,
        rows=one.rows,
        extra=one.extra,
        clean=one.clean,
        residue=one.residue,
    )


CHECKS = (
    CheckSpec(
        id="parity.documents",
        title="Every document is accounted for",
        requirements=("0-X1", "0-O6", "4-Z1", "4-Z3"),
        run=accounted_for,
    ),
    CheckSpec(
        id="parity.rows",
        title="Every stored row is the row that its document decodes to",
        requirements=("0-X1",),
        limits=(
            "The comparison sees what MongoDB holds while it runs; a document written meanwhile may appear stale.",
        ),
        run=rows_equal,
    ),
    CheckSpec(
        id="parity.round-trip",
        title="Every document can be rebuilt from its rows",
        requirements=("0-X1",),
        limits=("The order of keys inside documents is not compared; the order of list members is.",),
        run=documents_rebuilt,
    ),
    CheckSpec(
        id="parity.extra",
        title="No row of this source is without its document",
        requirements=("0-X1",),
        limits=("Rows that name no source (born in the target) are not looked for here.",),
        run=nothing_extra,
    ),
    CheckSpec(
        id="parity.losses",
        title="What a column could not hold is kept in the residue",
        requirements=("0-X1",),
        run=losses_kept,
    ),
    CheckSpec(
        id="parity.rulings",
        title="Peculiarities of the source are settled by a written rule",
        judges=False,
        run=rulings_applied,
    ),
    CheckSpec(
        id="parity.aggregates",
        title="Both databases compute the same figures, independently of the transform",
        requirements=("0-X1",),
        limits=(
            "Figures are counts by state, sums, first and last times; errors that cancel out in a sum are not seen.",
            "Sums of fractions are compared to nine digits, times to the millisecond.",
        ),
        run=figures_agree,
    ),
)
