"""What the source says about a row: its document, read and decoded again.

A check that finds something odd in the target asks here whether the source is odd in the same way. Then the copy is
true, and the finding is the source's own; only where the two differ is it a fault of the copy.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import msgspec

from migrator.errors import RefusedError
from migrator.pipeline import ledger
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.transform import prepare
from migrator.records.base import Record
from migrator.sources.profile import Collection, Rejected, Skipped
from migrator.store.mongo.client import speaking_of
from migrator.store.postgres.connection import Connection
from migrator.values import document as documents
from migrator.values import jsonb
from migrator.values.rawid import among

Place: TypeAlias = tuple[str, object]
"""Table and id of a row."""

DOCUMENTS_ASKED = 200
"""Documents asked for at a time; bounds the memory of a check."""


class RowKey(msgspec.Struct, frozen=True):
    """Where a row came from."""

    table: str
    id: object
    source: str | None
    """``<profile>/<collection>``; none for a row born in the target."""
    source_id: str | None

    @property
    def place(self) -> Place:
        """Return table and id."""
        return self.table, self.id


class AtSource:
    """The source as the latest plan reads it; opened by the first question. Close it after use."""

    def __init__(self, sessions: SourceSessions, target: Connection) -> None:
        plan = ledger.latest_plan(target)
        if plan is None:
            raise RefusedError("nothing was copied into this target yet: call backfill")
        self.sessions = sessions
        self._target = target
        self.plan = plan
        self.context = plan_context(plan)
        self._collections = {sessions.profile.source_of(one.name): one for one in sessions.profile.collections}

    def collection_of(self, source: str | None) -> Collection | None:
        """Return the collection whose documents carry this ``source``."""
        return None if source is None else self._collections.get(source)

    def quarantined(self, collection: str) -> set[str]:
        """Return the source ids of a collection's documents that are in quarantine now."""
        return ledger.quarantined_ids(self._target, self.sessions.profile.name, collection)

    def rows(self, keys: Iterable[RowKey]) -> Mapping[Place, Record]:
        """Return the rows that the documents decode to today, references not looked up; absent: there is none."""
        wanted: dict[str, list[str]] = {}
        for key in keys:
            if key.source is not None and key.source_id is not None and key.source in self._collections:
                wanted.setdefault(key.source, []).append(key.source_id)
        found: dict[Place, Record] = {}
        for source, ids in sorted(wanted.items()):
            for begin in range(0, len(ids), DOCUMENTS_ASKED):
                for row in self._decoded(self._collections[source], ids[begin : begin + DOCUMENTS_ASKED]):
                    found[row.table, cast("Any", row).id] = row
        return found

    def _decoded(self, collection: Collection, ids: list[str]) -> Iterable[Record]:
        name = self.sessions.name_of(collection.name)
        with speaking_of("the source"):
            raws = [
                raw
                for batch in self.sessions.source[name].find_raw_batches({"_id": among(ids)})
                for raw in documents.split(cast("bytes", batch))
            ]
        for raw in raws:
            try:
                yield from prepare(collection, self.context, raw).rows
            except (Rejected, Skipped):
                continue


def says_the_same(row: Record | None, columns: Iterable[str], stored: Iterable[object]) -> bool:
    """Tell whether the source's row holds in these columns what is stored; jsonb is stored as its text."""
    if row is None:
        return False
    return all(_same(getattr(row, name), value) for name, value in zip(columns, stored, strict=True))


def _same(said: object, stored: object) -> bool:
    if isinstance(said, bytes) and isinstance(stored, str):
        return jsonb.same(said, stored)
    return said == stored
