"""Area parity, beside the comparison: what is set aside is kept whole, and nobody else writes into the target."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

from migrator.parity.causes import CauseCode
from migrator.pipeline.sessions import SourceSessions
from migrator.records import ALL
from migrator.result import FAILED, PASSED, Cell
from migrator.store.mongo.client import speaking_of
from migrator.store.postgres.connection import Connection
from migrator.store.work import SCRATCH
from migrator.values import document as documents
from migrator.values import identity
from migrator.values.rawid import among, raw_id
from migrator.verify.check import CheckSpec, Found, judge
from migrator.verify.checks.ledger import of_comparison
from migrator.verify.comparison import unsure
from migrator.verify.context import Context
from migrator.verify.meaning.opened import Odd, at_source

BATCH: Final = 100
"""Documents in quarantine compared at a time; one may have 16 MB."""

OF_THE_QUARANTINE: Final[tuple[CauseCode, ...]] = ("quarantine-entry", "quarantine-mended")
"""Causes of the comparison that tell of an entry whose bytes are the source's, or whose document can be loaded."""

THEIRS: Final = frozenset({"workers", "locks"})
"""Tables that a scheduler writes while it merely stands by; rows there are nobody's fault."""


def quarantine_kept(context: Context) -> Found:
    """Compare every document in quarantine with what the source still has, and its reason with what it says."""
    odd = Odd(context.listed, "quarantine")
    compared = 0
    with context.target() as target, at_source(context, target) as source:
        rows = _aside(target, source.sessions.profile.name)
        while batch := list(islice(rows, BATCH)):
            for name in sorted({row[0] for row in batch}):
                kept = {row[1]: bytes(row[2]) for row in batch if row[0] == name}
                there = _at_source(source.sessions, name, list(kept))
                for key, raw in sorted(kept.items()):
                    compared += 1
                    if key not in there:
                        title = "a document in quarantine that the source no longer has"
                        odd.add("warning", "aside-gone", title, "discard it, if it was deleted", key=key, **_in(name))
                    elif there[key] != raw:
                        title = "a document in quarantine whose bytes are not those of the source"
                        fix = "call quarantine retry, if the document was mended; else find out who changed the entry"
                        odd.add("difference", "aside-changed", title, fix, key=key, **_in(name))
    tallies, findings = of_comparison(context, OF_THE_QUARANTINE)
    wrong = odd.count("difference") + sum(one.count for one in tallies)
    return Found(
        outcome=judge(wrong=bool(wrong), unsure=unsure(context)),
        counts={"documents in quarantine": compared, "differences": wrong, "warnings": odd.count("warning")},
        tallies=(*odd.tallies(), *tallies),
        findings=tuple(sorted([*odd.findings, *findings])[: context.listed]),
        findings_total=wrong,
    )


def _in(collection: str) -> dict[str, str]:
    return {"table": "", "collection": collection}


def _aside(target: Connection, profile: str) -> Iterator[tuple[Any, ...]]:
    with target.transaction(), target.cursor("aside") as cursor:
        cursor.itersize = BATCH
        yield from cursor.execute(
            "SELECT collection, source_id, raw FROM migration.quarantine WHERE profile = %s AND state = 'open'"
            " ORDER BY collection, source_key",
            (profile,),
        )


def _at_source(sessions: SourceSessions, collection: str, ids: list[str]) -> dict[str, bytes]:
    with speaking_of("the source"):
        found = sessions.source[sessions.name_of(collection)].find_raw_batches({"_id": among(ids)})
        raws = [raw for batch in found for raw in documents.split(cast("bytes", batch))]
    return {identity.source_id(raw_id(raw)): raw for raw in raws}


def nobody_else_writes(context: Context) -> Found:
    """Look for rows that name no source, while the application still writes to MongoDB."""
    odd = Odd(context.listed, "foreign")
    switched = context.settings.persistence.scheduler == "postgres"
    cells = []
    born = 0
    with context.target() as target:
        for record in ALL:
            if "source" not in record.__struct_fields__:
                continue
            rows = target.execute(
                "SELECT id::text, count(*) OVER () FROM scheduler."  # noqa: S608 - a record's table name
                f"{record.table} WHERE source IS NULL AND NOT starts_with(tenant_id, %s) ORDER BY id LIMIT %s",
                (SCRATCH, context.listed),
            ).fetchall()
            count = rows[0][1] if rows else 0
            born += count
            wrong = bool(count) and not switched and record.table not in THEIRS
            for key, _ in rows if wrong else ():
                odd.add(
                    "difference",
                    "foreign-writer",
                    "a row that did not come from the source, while the application writes to MongoDB",
                    "stop the other writer, and remove the row; it would be overwritten, or be in the way",
                    key=key,
                    table=record.table,
                )
            cells.append(Cell(table=record.table, outcome=FAILED if wrong else PASSED, count=count, unit="rows"))
    return Found(
        outcome=judge(wrong=bool(odd.findings)),
        counts={"rows born in the target": born, "differences": odd.count("difference")},
        cells=tuple(cells),
        tallies=odd.tallies(),
        findings=tuple(sorted(odd.findings)),
        findings_total=odd.count("difference"),
    )


CHECKS = (
    CheckSpec(
        id="parity.quarantine",
        title="What is in quarantine is kept byte for byte, with the reason that it has",
        requirements=("0-X1",),
        run=quarantine_kept,
    ),
    CheckSpec(
        id="parity.foreign",
        title="Nobody but this tool writes into the target before the switch",
        requirements=("0-X1",),
        limits=(
            "graph_jobs and graph_job_events have no column for the source: there it is parity.extra that sees them.",
            "Workers and locks are left out: a scheduler that stands by writes there.",
        ),
        run=nobody_else_writes,
    ),
)
