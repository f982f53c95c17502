"""Area parity, the tool's own tables: what a person decides by is what the tool wrote, and what the documents say."""

from migrator.parity.causes import CAUSES, CauseCode
from migrator.parity.model import KEYS_LISTED
from migrator.pipeline import checksums
from migrator.result import Finding, Tally
from migrator.sources import load_profile
from migrator.verify.check import CheckSpec, Found, judge
from migrator.verify.comparison import unsure
from migrator.verify.context import Context

CHANGED = "a row of the ledger that is not as the tool wrote it"
FIX = "find out who changed it; backfill --restart makes the ledger anew, and keeps the rows"
UNBALANCED = "a chunk whose documents are not the sum of rows, quarantine and what a rule left behind"
OF_THE_LEDGER: tuple[CauseCode, ...] = ("reference-unrecorded",)
"""Causes of the comparison that this check tells; those of the quarantine are ``parity.quarantine``'s."""


def ledger_sound(context: Context) -> Found:
    """Compute the ledger's checksums and sums again, and look for dangling references that are not on record."""
    owners = {one.name: one.tables[0].table for one in load_profile(context.settings.source.profile).collections}
    with context.target() as target:
        looked = checksums.look(target)
        unbalanced = target.execute(
            "SELECT chunk.collection, chunk.collection || ' chunk ' || chunk.ordinal FROM migration.chunks AS chunk"
            " JOIN unnest(%s::text[], %s::text[]) AS owner (collection, owner_table) USING (collection)"
            " WHERE state = 'done' AND documents <> skipped + quarantined + coalesce((rows ->> owner_table)::bigint, 0)"
            " ORDER BY 1, 2",
            (list(owners), list(owners.values())),
        ).fetchall()
    found = [("ledger-changed", CHANGED, FIX, table, row) for table, row in looked.changed]
    found += [("ledger-sum", UNBALANCED, FIX, "chunks", row[1]) for row in unbalanced]
    tallies, findings = of_comparison(context, OF_THE_LEDGER)
    tallies += [
        Tally(severity="difference", cause=cause, path=f"migration.{table}", title=title, fix=fix, count=1, keys=(row,))
        for cause, title, fix, table, row in found
    ]
    findings += [
        Finding(severity="difference", cause=cause, key=row, path=f"migration.{table}", side="ledger")
        for cause, _, _, table, row in found
    ]
    doubts = [f"{looked.without} rows of the ledger were written by an older version, without a checksum"]
    total = sum(one.count for one in tallies)
    return Found(
        outcome=judge(wrong=bool(total), unsure=[*unsure(context), *doubts[: looked.without]]),
        counts={"rows of the ledger": looked.rows, "differences": total},
        tallies=tuple(tallies),
        findings=tuple(sorted(findings)[: context.listed]),
        findings_total=total,
    )


def of_comparison(context: Context, causes: tuple[CauseCode, ...]) -> tuple[list[Tally], list[Finding]]:
    """Return what the comparison found of some causes on the side of the ledger, as tallies and findings."""
    tallies: list[Tally] = []
    findings: list[Finding] = []
    for one in context.comparison.collections:
        lines = [line for line in one.differences if line.side == "ledger" and line.cause in causes]
        tallies += [
            Tally(
                severity="difference",
                cause=cause.cause,
                collection=one.collection,
                title=CAUSES[cause.cause].title,
                fix=CAUSES[cause.cause].fix,
                count=cause.count,
                keys=tuple(dict.fromkeys(line.source_id for line in lines if line.cause == cause.cause))[:KEYS_LISTED],
            )
            for cause in one.causes
            if cause.side == "ledger" and cause.cause in causes
        ]
        findings += [
            Finding(
                severity="difference",
                cause=line.cause,
                collection=line.collection,
                key=line.source_id,
                side="ledger",
            )
            for line in lines
        ]
    return tallies, findings


CHECKS = (
    CheckSpec(
        id="parity.ledger",
        title="The ledger is as the tool wrote it, and has every dangling reference on record",
        requirements=("0-X1",),
        limits=(
            "Checksums tell of rows that were changed by hand; who also computes a new one is not seen.",
            "While a tail follows, dangling references are not looked for.",
        ),
        run=ledger_sound,
    ),
)
