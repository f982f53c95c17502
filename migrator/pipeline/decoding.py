"""A batch of raw documents to rendered rows, and everything that has to be said about them.

The copy and the comparison both go through here, so that what is written and what is expected cannot drift apart.
"""

from collections.abc import Iterator

import msgspec

from migrator.pipeline.extract import PIECE_DOCUMENTS, pieces
from migrator.pipeline.load import Link, Loadable, Loser, expected_of
from migrator.pipeline.model import SetAside
from migrator.pipeline.references import Lookup, Resolved
from migrator.pipeline.transform import Prepared, prepare, render
from migrator.records.base import EMPTY
from migrator.sources.profile import Collection, Context, Rejected, Skipped
from migrator.values import identity, residue
from migrator.values.rawid import raw_id


class Outcome(msgspec.Struct):
    """One document of a batch: rows to store, or why there are none."""

    raw: bytes
    prepared: Prepared | None = None
    loadable: Loadable | None = None
    rejected: Rejected | None = None
    skipped: str = ""


def outcomes(
    collection: Collection, context: Context, resolver: Lookup, batch: bytes, at_a_time: int = PIECE_DOCUMENTS
) -> Iterator[list[Outcome]]:
    """Yield the outcomes of a batch, a piece of it at a time and in its order.

    ``at_a_time`` is how many documents go together: the target is asked about references once for each piece.
    """
    for piece in pieces(batch, at_a_time):
        found: list[Outcome] = []
        prepared: list[Prepared] = []
        for raw in piece:
            outcome = Outcome(raw)
            found.append(outcome)
            try:
                outcome.prepared = prepare(collection, context, raw)
                prepared.append(outcome.prepared)
            except Rejected as reason:
                outcome.rejected = reason
            except Skipped as reason:
                outcome.skipped = reason.reason
        if collection.references:
            resolver.learn(collection, prepared)
        for outcome in found:
            if outcome.prepared is not None:
                _finish(collection, resolver, outcome, outcome.prepared)
        yield found


def _finish(collection: Collection, resolver: Lookup, outcome: Outcome, prepared: Prepared) -> None:
    try:
        resolved = resolver.resolve(collection, prepared) if collection.references else None
        rows, left = render(collection, prepared, prepared.rows if resolved is None else resolved.rows)
    except Rejected as reason:
        outcome.rejected = reason
        return
    outcome.loadable = loadable = Loadable(outcome.raw, rows, left)
    notes = prepared.notes if resolved is None else resolved.notes
    if notes:
        loadable.notes = tuple(("finding", note.kind, note.path) for note in notes)
    if left != EMPTY:
        kept = {("residue", entry.kind, entry.field): None for entry in residue.entries(left)}
        loadable.notes += tuple(kept)
        loadable.clean = all(path in collection.reference_paths for _, _, path in kept)
    if resolved is not None:
        loadable.orphans = resolved.orphans
    if resolved is not None and resolved.links:
        loadable.links = tuple(_links(collection, prepared, resolved))


def _links(collection: Collection, prepared: Prepared, resolved: Resolved) -> Iterator[Link]:
    """Yield what the closing pass needs to fill the references into the same table."""
    for link in resolved.links:
        row = resolved.rows[link.row]
        filled = msgspec.structs.replace(row, **{link.reference.column: link.target})
        rows = (*resolved.rows[: link.row], filled, *resolved.rows[link.row + 1 :])
        _, left = render(collection, prepared, rows)
        yield (
            link.reference.record.table,
            row.id,  # type: ignore[attr-defined] # every loaded record has an id
            link.reference.column,
            link.reference.target.table,
            link.target,
            left,
        )


def aside(raw: bytes, why: Rejected) -> SetAside:
    """Return a document that cannot become rows as it goes into quarantine."""
    return SetAside(source_id=source_id_of(raw), reason=why.reason, path=why.path, expected=why.expected, raw=raw)


def lost(loser: Loser) -> SetAside:
    """Return a document that lost a key to another one as it goes into quarantine."""
    document = loser.document
    return SetAside(
        source_id=source_id_of(document.raw),
        reason=loser.reason,
        path="",
        expected=expected_of(loser),
        raw=document.raw,
        tenant=document.rows[0].record.tenant_id,  # type: ignore[attr-defined] # as above
    )


def source_id_of(raw: bytes) -> str:
    """Return the source id of a raw document, also of one that cannot be decoded as a whole."""
    return identity.source_id(raw_id(raw))
