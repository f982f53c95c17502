"""References between documents, resolved against what is stored.

``decode`` sees one document and computes the id that a reference would have; only the target can say whether such a row
exists. A reference to nothing becomes null, its text stays in the residue, and a note counts it. A reference into the
same table (``retry_of``) may point forward, so it is loaded as null with a pending link, and filled in a closing pass.
"""

from collections.abc import Iterable
from typing import Protocol
from uuid import UUID

import msgspec

from migrator.pipeline.transform import Prepared
from migrator.sources.profile import Collection, Note, Reference, ReferenceKey, Rejected, Rows
from migrator.store.postgres.connection import Connection

ORPHAN = "orphan"
CACHED_IDS = 200_000
"""Known ids kept per table; bounds the memory of a worker."""


class PendingLink(msgspec.Struct):
    """A reference into its own table that the closing pass fills when the row it names is stored."""

    row: int
    """Position of the row among the document's rows."""
    reference: Reference
    target: UUID


class Resolved(msgspec.Struct):
    """A document's rows with their references as they can be stored now."""

    rows: Rows
    notes: tuple[Note, ...]
    links: tuple[PendingLink, ...]
    orphans: tuple[ReferenceKey, ...] = ()
    """References into other tables that lead nowhere."""


class Orphaned(Rejected):
    """A row cannot be without a reference that leads nowhere: the document is set aside until the row is stored."""

    def __init__(self, reference: Reference, target: UUID) -> None:
        super().__init__(ORPHAN, reference.column, f"a stored row of {reference.target.table}")
        self.orphan: ReferenceKey = (reference.target.table, target)


class Lookup(Protocol):
    """What resolves the references of documents."""

    def learn(self, collection: Collection, prepared: Iterable[Prepared]) -> None:
        """Prepare for these documents."""

    def resolve(self, collection: Collection, prepared: Prepared) -> Resolved:
        """Return a document's rows with their references as they can be stored now."""


class Unlooked:
    """Takes every reference as it is, where there is no target to ask: the census, and a dry run."""

    def learn(self, collection: Collection, prepared: Iterable[Prepared]) -> None:
        """Do nothing."""

    def resolve(self, collection: Collection, prepared: Prepared) -> Resolved:  # noqa: ARG002 - the protocol's
        """Return the rows as they were decoded."""
        return Resolved(prepared.rows, prepared.notes, ())


class FirstLoad:
    """Resolves as ``resolver`` does, but takes a reference into the table that is being loaded as pending.

    Looking it up would find what happens to be loaded already, and cost a query for each piece of documents.
    """

    def __init__(self, resolver: "Resolver", collection: Collection) -> None:
        elsewhere = tuple(one for one in collection.references if one.target is not one.record)
        self._elsewhere = msgspec.structs.replace(collection, references=elsewhere)
        self._resolver = resolver

    def learn(self, collection: Collection, prepared: Iterable[Prepared]) -> None:  # noqa: ARG002 - the protocol's
        """Look up the references into other tables."""
        self._resolver.learn(self._elsewhere, prepared)

    def resolve(self, collection: Collection, prepared: Prepared) -> Resolved:
        """Return the rows; references into their own table are null, with a pending link."""
        return self._resolver.resolve(collection, prepared)


class Resolver:
    """Knows which referenced rows are stored; asks the target once per piece, for what it has not seen."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stored: dict[str, set[UUID]] = {}
        self._doomed: dict[str, set[UUID | int]] = {}

    def doom(self, table: str, ids: Iterable[UUID | int]) -> None:
        """Take rows that are still stored as gone: they are removed as soon as nothing refers to them any more."""
        self._doomed.setdefault(table, set()).update(ids)
        self._stored.get(table, set()).difference_update(ids)

    def spare(self, table: str, key: UUID | int) -> None:
        """Take a doomed row as stored after all."""
        self._doomed.get(table, set()).discard(key)

    def spare_all(self) -> None:
        """Take what is stored as stored again."""
        self._doomed.clear()

    def learn(self, collection: Collection, prepared: Iterable[Prepared]) -> None:
        """Look up every reference of these documents that is not known yet."""
        named: dict[str, set[UUID]] = {}
        for reference in collection.references:
            named.setdefault(reference.target.table, set()).update(_targets(reference, prepared))
        for table, ids in named.items():
            known = self._stored.setdefault(table, set())
            if len(known) > CACHED_IDS:
                known.clear()  # before asking: what these documents name must be known afterwards
            if unknown := ids - known:
                found = self._connection.execute(
                    f"SELECT id FROM scheduler.{table} WHERE id = ANY(%s)",  # noqa: S608 - a record's table name
                    (list(unknown),),
                )
                stored = {row[0] for row in found}
                known.update(one for one in unknown if one in stored)  # the objects that documents share: equal at once
            if table in self._doomed:
                known -= self._doomed[table]

    def resolve(self, collection: Collection, prepared: Prepared) -> Resolved:
        """Return the rows with references to nothing set to null; raise ``Rejected`` where a row cannot be without."""
        for reference in collection.references:
            for row in prepared.rows:
                target = getattr(row, reference.column) if type(row) is reference.record else None
                if target is not None and target not in self._stored.get(reference.target.table, ()):
                    return self._without(collection, prepared)
        return Resolved(prepared.rows, prepared.notes, ())

    def _without(self, collection: Collection, prepared: Prepared) -> Resolved:
        rows, notes, links = prepared.rows, prepared.notes, []
        orphans: tuple[ReferenceKey, ...] = ()
        for reference in collection.references:
            for position, row in enumerate(rows):
                if type(row) is not reference.record:
                    continue
                target = getattr(row, reference.column)
                if target is None or target in self._stored.get(reference.target.table, ()):
                    continue
                if reference.required:
                    raise Orphaned(reference, target)
                empty = msgspec.structs.replace(row, **{reference.column: None})
                rows = (*rows[:position], empty, *rows[position + 1 :])
                if reference.target is reference.record:
                    links.append(PendingLink(position, reference, target))
                else:
                    notes = (*notes, Note(ORPHAN, reference.column))
                    orphans = (*orphans, (reference.target.table, target))
        return Resolved(rows, notes, tuple(links), orphans)


def _targets(reference: Reference, prepared: Iterable[Prepared]) -> list[UUID]:
    """Return the ids that these documents name in one column."""
    record, column = reference.record, reference.column
    return [
        target
        for one in prepared
        for row in one.rows
        if type(row) is record and (target := getattr(row, column)) is not None
    ]
