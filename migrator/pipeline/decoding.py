"""A batch of raw documents to rendered rows, and everything that has to be said about them.

The copy and the comparison both go through here, so that what is written and what is expected cannot drift apart.
"""

from collections.abc import Iterator, Sequence

import msgspec

from migrator.pipeline.transform import Link, Loadable, Lookup, Prepared, Resolved, SetAside, prepare, render
from migrator.records import EMPTY
from migrator.sources.profile import Collection, Context, Rejected, Skipped
from migrator.values import document as documents
from migrator.values import residue
from migrator.values.rawid import source_id_of

PIECE_DOCUMENTS = 50
"""Documents decoded together: few enough to stay in the processor's cache (facts/performance, decode and JSON)."""


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
        found = [Outcome(raw) for raw in piece]
        prepared: list[tuple[Outcome, Prepared]] = []
        for outcome, document in zip(found, documents.decode_all(piece), strict=True):
            try:
                outcome.prepared = prepare(collection, context, outcome.raw, document)
                prepared.append((outcome, outcome.prepared))
            except Rejected as reason:
                outcome.rejected = reason
            except Skipped as reason:
                outcome.skipped = reason.reason
        _finish(collection, resolver, prepared)
        yield found


def _finish(collection: Collection, resolver: Lookup, found: Sequence[tuple[Outcome, Prepared]]) -> None:
    """Look up what these documents refer to, prove that their rows carry them, and render the rows."""
    resolver.learn(collection, [prepared for _, prepared in found])
    resolved: list[tuple[Outcome, Prepared, Resolved]] = []
    for outcome, prepared in found:
        try:
            resolved.append((outcome, prepared, resolver.resolve(collection, prepared)))
        except Rejected as reason:
            outcome.rejected = reason
    rebuilt = [collection.encode(one.rows) for _, _, one in resolved]
    proved = documents.encode_to(rebuilt, [outcome.raw for outcome, _, _ in resolved])
    for (outcome, prepared, one), is_proved in zip(resolved, proved, strict=True):
        try:
            outcome.loadable = _loadable(collection, prepared, one, proved=is_proved)
        except Rejected as reason:
            outcome.rejected = reason


def _loadable(collection: Collection, prepared: Prepared, resolved: Resolved, *, proved: bool) -> Loadable:
    rows, left = render(collection, prepared, resolved.rows, proved=proved)
    loadable = Loadable(prepared.raw, rows, left, orphans=resolved.orphans, refers_to_global=resolved.refers_to_global)
    if resolved.notes:
        loadable.notes = tuple(("finding", note.kind, note.path) for note in resolved.notes)
    if left != EMPTY:
        kept = {("residue", entry.kind, entry.field): None for entry in residue.entries(left)}
        loadable.notes += tuple(kept)
        loadable.clean = all(path in collection.reference_paths for _, _, path in kept)
    if resolved.links:
        loadable.links = tuple(_links(collection, prepared, resolved))
    return loadable


def _links(collection: Collection, prepared: Prepared, resolved: Resolved) -> Iterator[Link]:
    """Yield what the closing pass needs to fill the references into the same table."""
    for link in resolved.links:
        row = resolved.rows[link.row]
        filled = msgspec.structs.replace(row, **{link.reference.column: link.target})
        rows = (*resolved.rows[: link.row], filled, *resolved.rows[link.row + 1 :])
        _, left = render(collection, prepared, rows)
        source: str | None = getattr(row, "source", None)
        named = link.named is not None and source is not None
        yield Link(
            table=link.reference.record.table,
            row_id=row.id,  # type: ignore[attr-defined] # every loaded record has an id and a tenant
            tenant=row.tenant_id,  # type: ignore[attr-defined] # as above
            column=link.reference.column,
            target_table=link.reference.target.table,
            target_id=link.target,
            target_source=f"{str(source).partition('/')[0]}/{link.reference.collection}" if named else None,
            target_source_id=link.named if named else None,
            extra=left,
        )


def aside(raw: bytes, why: Rejected) -> SetAside:
    """Return a document that cannot become rows as it goes into quarantine."""
    return SetAside(source_id=source_id_of(raw), reason=why.reason, path=why.path, expected=why.expected, raw=raw)


def pieces(batch: bytes, at_a_time: int = PIECE_DOCUMENTS) -> Iterator[list[bytes]]:
    """Cut a batch into lists of raw documents, so many at a time."""
    raws = list(documents.split(batch))
    for begin in range(0, len(raws), at_a_time):
        yield raws[begin : begin + at_a_time]
