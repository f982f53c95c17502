"""A batch of raw documents to rendered rows, and everything that has to be said about them.

The copy and the comparison both go through here, so that what is written and what is expected cannot drift apart.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias
from uuid import UUID

import msgspec

from migrator.pipeline.extract import pieces
from migrator.pipeline.load import Loadable
from migrator.pipeline.model import SetAside
from migrator.pipeline.references import Lookup, Resolved
from migrator.pipeline.transform import Prepared, prepare, render
from migrator.records.base import EMPTY
from migrator.sources.profile import Collection, Context, Rejected, Skipped
from migrator.values import identity, residue
from migrator.values.rawid import raw_id

Link: TypeAlias = tuple[str, UUID, str, str, UUID, bytes]
"""Table, row, column, target table, target row, and the residue that the row has once the column is filled."""


class Outcome(msgspec.Struct):
    """One document of a batch: rows to store, or why there are none."""

    raw: bytes
    source_id: str = ""
    loadable: Loadable | None = None
    prepared: Prepared | None = None
    residue: bytes = EMPTY
    links: tuple[Link, ...] = ()
    notes: tuple[tuple[str, str, str], ...] = ()
    """(class, kind, path) of everything to count about it."""
    rejected: Rejected | None = None
    skipped: str = ""


def outcomes(collection: Collection, context: Context, resolver: Lookup, batch: bytes) -> Iterator[list[Outcome]]:
    """Yield the outcomes of a batch, a piece of it at a time and in its order."""
    for piece in pieces(batch):
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
    outcome.loadable = Loadable(outcome.raw, rows)
    outcome.residue = left
    notes = prepared.notes if resolved is None else resolved.notes
    if notes:
        outcome.notes = tuple(("finding", note.kind, note.path) for note in notes)
    if left != EMPTY:
        outcome.notes += tuple({("residue", entry.kind, entry.field): None for entry in residue.entries(left)})
    if resolved is not None and resolved.links:
        outcome.links = tuple(_links(collection, prepared, resolved))


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


def is_clean(collection: Collection, outcome: Outcome) -> bool:
    """Tell whether the columns carry all of a document; the kept text of a reference does not count against it."""
    return outcome.residue == EMPTY or all(
        path in collection.reference_paths for group, _, path in outcome.notes if group == "residue"
    )


def aside(outcome: Outcome, reason: str, path: str, expected: str) -> SetAside:
    """Return a document as it goes into quarantine."""
    rows = outcome.loadable.rows if outcome.loadable else []
    return SetAside(
        source_id=source_id_of(outcome.raw),
        reason=reason,
        path=path,
        expected=expected,
        raw=outcome.raw,
        tenant=rows[0].record.tenant_id if rows else None,  # type: ignore[attr-defined] # as above
    )


def source_id_of(raw: bytes) -> str:
    """Return the source id of a raw document, also of one that cannot be decoded as a whole."""
    return identity.source_id(raw_id(raw))


def count_notes(notes: Counter[tuple[str, str, str]], outcome: Outcome) -> None:
    """Add a document's notes to a chunk's."""
    for note in outcome.notes:
        notes[note] += 1
