"""Anomalies that a check finds in the target, and what the source says of the same rows.

A check that finds an anomaly reads the row's document again and decodes it. If the source has the same anomaly, the
copy is right, and the finding is the source's own. Only where the two differ is it a fault of the copy.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

import msgspec
from psycopg.abc import Query

from migrator.connections.mongo import translate_errors
from migrator.connections.postgres import Connection
from migrator.errors import MigratorError, RefusedError
from migrator.parity.model import KEYS_LISTED
from migrator.pipeline import ledger
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import SourceSessions
from migrator.pipeline.transform import decode_document
from migrator.records import Record
from migrator.result import Finding, Severity, Tally
from migrator.sources.profile import Collection, Rejected, Skipped
from migrator.values import jsonb
from migrator.values.document import split
from migrator.values.identity import source_id_of
from migrator.verify.check import CheckContext

RowId: TypeAlias = tuple[str, object]
"""Table and id of a row."""

BATCH = 500
"""Rows judged at a time; bounds the memory of a check."""
DOCUMENTS_PER_QUERY = 200
"""Documents asked for at a time; bounds the memory of a check."""


class RowKey(msgspec.Struct, frozen=True):
    """Where a row came from."""

    table: str
    id: object
    source: str | None
    """``<profile>/<collection>``; None for a row that was created in the target."""
    source_id: str | None

    @property
    def row_id(self) -> RowId:
        """Return table and id."""
        return self.table, self.id


class SourceRows:
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

    def documents(self, collection: str, ids: Iterable[str]) -> dict[str, bytes]:
        """Return the documents of a collection with these source ids, by source id."""
        with translate_errors("the source"):
            described = self.sessions.profile.by_name()[collection]
            batches = self.sessions.reader.of(described, self.context.history_before).by_ids(ids)
            return {source_id_of(raw): raw for batch in batches for raw in split(batch)}

    def quarantined(self, collection: str) -> set[str]:
        """Return the source ids of a collection's documents that are in quarantine now."""
        return ledger.quarantined_ids(self._target, self.sessions.profile.name, collection)

    def rows(self, keys: Iterable[RowKey]) -> Mapping[RowId, Record]:
        """Return the rows that the documents decode to today, references not looked up; absent: there is none."""
        wanted: dict[str, list[str]] = {}
        for key in keys:
            if key.source is not None and key.source_id is not None and key.source in self._collections:
                wanted.setdefault(key.source, []).append(key.source_id)
        rows: dict[RowId, Record] = {}
        for source, ids in sorted(wanted.items()):
            for begin in range(0, len(ids), DOCUMENTS_PER_QUERY):
                for row in self._decoded(self._collections[source], ids[begin : begin + DOCUMENTS_PER_QUERY]):
                    rows[row.table, cast("Any", row).id] = row
        return rows

    def _decoded(self, collection: Collection, ids: list[str]) -> Iterable[Record]:
        for raw in self.documents(collection.name, ids).values():
            try:
                yield from decode_document(collection, self.context, raw).rows
            except (Rejected, Skipped):
                continue


def batches(
    target: Connection, query: Query, params: tuple[object, ...] | None = None, size: int = BATCH
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows of a query in batches, read by a cursor of the server."""
    with target.transaction(), target.cursor("batches") as cursor:
        cursor.itersize = size
        cursor.execute(query, params)
        while batch := cursor.fetchmany(size):
            yield batch


def same_values(row: Record | None, columns: Iterable[str], stored: Iterable[object]) -> bool:
    """Whether the source's row holds in these columns what is stored; jsonb is stored as its text."""
    if row is None:
        return False
    return all(_same_value(getattr(row, name), value) for name, value in zip(columns, stored, strict=True))


def _same_value(said: object, stored: object) -> bool:
    if isinstance(said, bytes) and isinstance(stored, str):
        return jsonb.same(said, stored)
    return said == stored


NO_SOURCE = "rows that came from the source look odd, and the source cannot be asked whether it says the same"


@contextmanager
def source_rows(context: CheckContext, target: Connection) -> Iterator[SourceRows]:
    """Open the source as the latest plan reads it; what opening raises, it raises again without another wait."""
    if context.lent is not None:
        yield SourceRows(context.lent.source, target)
        return
    if context.source_failure is not None:
        raise context.source_failure
    try:
        sessions = SourceSessions(context.settings)
    except MigratorError as error:
        context.source_failure = error
        raise
    try:
        yield SourceRows(sessions, target)
    finally:
        sessions.close()


class Anomalies(msgspec.Struct):
    """The anomalies that a check has found so far: counts are complete, the list of findings is bounded."""

    listed: int
    side: str
    findings: list[Finding] = msgspec.field(default_factory=list)
    doubts: list[str] = msgspec.field(default_factory=list)
    """Why something could not be told."""
    _counts: Counter[Tally] = msgspec.field(default_factory=Counter)
    """By kind: a tally that counts nothing yet."""
    _keys: dict[Tally, list[str]] = msgspec.field(default_factory=dict)

    def add(
        self,
        severity: Severity,
        cause: str,
        title: str,
        fix: str,
        *,
        key: str,
        table: str = "",
        collection: str = "",
        path: str = "",
    ) -> None:
        """Count one; keep it while the lists are short."""
        kind = Tally(
            severity=severity, cause=cause, collection=collection, table=table, path=path, title=title, fix=fix, count=0
        )
        self._counts[kind] += 1
        keys = self._keys.setdefault(kind, [])
        if len(keys) < KEYS_LISTED:
            keys.append(key)
        if severity == "difference" and len(self.findings) < self.listed:
            finding = Finding(
                severity=severity, cause=cause, collection=collection, table=table, key=key, path=path, side=self.side
            )
            self.findings.append(finding)

    def add_doubt(self, reason: str) -> None:
        """Say once why something could not be told."""
        if reason not in self.doubts:
            self.doubts.append(reason)

    def count(self, severity: Severity) -> int:
        """Return how many were found of a severity."""
        return sum(count for kind, count in self._counts.items() if kind.severity == severity)

    def tables(self, severity: Severity) -> set[str]:
        """Return the tables in which some were found."""
        return {kind.table for kind in self._counts if kind.severity == severity}

    def tallies(self) -> tuple[Tally, ...]:
        """Return the complete counts."""
        return tuple(
            msgspec.structs.replace(kind, count=count, keys=tuple(sorted(self._keys[kind])))
            for kind, count in sorted(self._counts.items())
        )
