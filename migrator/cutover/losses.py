"""What a rollback would take away: rows that no document gives back, and schedules that would fire otherwise.

It is computed from the documents that the reverse sync writes, by the same code, before anything is changed. So
`rollback plan`, `rollback run` and the report of a cutover have one answer. A rollback exports each of these rows as a
whole.

The rows are those that a rollback deletes (created in PostgreSQL), those of documents that it reads again (in the
backlog, since something of them has no place), those that wait in the outbox, and those changed since the cutover.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, Self, TypeAlias
from uuid import UUID

import msgspec
from psycopg import sql

from migrator.connections.postgres import Connection
from migrator.cutover import outbox, parallel_rows, reverse_sync, rollback_gaps
from migrator.cutover.outbox import TRACKED_RECORDS, ChangedRow, RowKey
from migrator.cutover.reverse_encoding import ALL_COLUMNS, DocumentWrite, LostRow, UnstatedSchedule
from migrator.cutover.rollback_gaps import Gap
from migrator.errors import RefusedError
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions
from migrator.records import Record, Run, RunSummary, SourcedRecord
from migrator.sources import write_back
from migrator.sources.profile import Context, Profile
from migrator.sources.store_documents import names
from migrator.store.queue import SCRATCH
from migrator.values import document as documents
from migrator.values import identity

Place: TypeAlias = tuple[str, str, str]
"""Collection and source id of a document, and the tenant of its rows."""
_MAX_NAMED: Final = 5
_MAX_BATCHES: Final = 10
"""Batches of rows that are kept for a second look."""
Sink: TypeAlias = Callable[[Sequence[LostRow]], None]
"""Takes the rows that no document gives back, batch by batch."""


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """What a rollback would take away, as PostgreSQL and MongoDB are now."""

    gaps: tuple[Gap, ...] = ()
    """Schedules that the old application would not fire as PostgreSQL does; each with all ids."""
    unstated: Mapping[Place, UnstatedSchedule] = {}
    """Document to what is said of its schedule."""
    named: tuple[UnstatedSchedule, ...] = ()
    """The schedules of ``gaps``, each with all reasons."""
    rows: dict[str, int] = {}
    """``table`` → rows that no document has; ``table.column`` → values for which documents have no place."""
    unwritten: tuple[str, ...] = ()
    """The first few documents that are not equal to their rows, and for which nothing waits; ``unwritten_total`` counts
    all. A rollback would be refused."""
    unwritten_total: int = 0
    documents: int = 0
    """Documents that were looked at."""


def unequal(survey: Losses) -> str:
    """Return in words that documents differ from their rows."""
    more = ", …" if survey.unwritten_total > len(survey.unwritten) else ""
    return f"{survey.unwritten_total:,} documents are not equal to their rows: {', '.join(survey.unwritten)}{more}"


def survey(sessions: Sessions, since: datetime, sink: Sink | None = None) -> Losses:
    """Return the losses of a rollback, among what was written since an instant; ``sink`` is given each lost row.

    Raises ``ReverseSyncError`` for a row that has no document at all, ``RefusedError`` if nothing was ever copied.
    """
    plan = latest_plan(sessions.target)
    if plan is None:
        raise RefusedError("nothing was ever copied, so nothing can be written back")
    with _Keys(sessions.target, "looked_at") as seen, _Keys(sessions.target, "held_rows") as held:
        survey_state = _Survey(sessions, plan_context(plan), sink, seen, held)
        for part in outbox.waiting(sessions.target, reverse_sync.BATCH_NOTES):
            survey_state.look(part, waits=True)
        for record in TRACKED_RECORDS:
            for part in reverse_sync.written_since(sessions.target, record, since):
                survey_state.look(part)
        for part in _backlog(sessions.target, sessions.profile):
            survey_state.look(part)
        return survey_state.end()


class _Keys:
    """A set of keys that the target holds, for as long as the block: there may be one for each row of a collection."""

    def __init__(self, target: Connection, name: str) -> None:
        self._target, self._table = target, sql.Identifier("pg_temp", name)
        self._name = sql.Identifier(name)
        self.count = 0

    def __enter__(self) -> Self:
        """Make it empty, also where a call that failed in this session has left one."""
        self._target.execute(sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} (key bytea PRIMARY KEY)").format(self._name))
        self._target.execute(sql.SQL("TRUNCATE {}").format(self._table))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Drop it; after an error the session, or the next call, does."""
        if kind is None:
            self._target.execute(sql.SQL("DROP TABLE {}").format(self._table))

    def add(self, keys: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Add keys; return those that were not among them."""
        by_digest = {_digest(key): key for key in keys}
        if not by_digest:
            return set()
        rows = self._target.execute(
            sql.SQL("INSERT INTO {} SELECT unnest(%s::bytea[]) ON CONFLICT DO NOTHING RETURNING key").format(
                self._table
            ),
            (list(by_digest),),
        ).fetchall()
        self.count += len(rows)
        return {by_digest[row[0]] for row in rows}

    def among(self, keys: Iterable[tuple[str, ...]]) -> set[tuple[str, ...]]:
        """Return those of these keys that are in the set."""
        by_digest = {_digest(key): key for key in keys}
        query = sql.SQL("SELECT key FROM {} WHERE key = ANY(%s)").format(self._table)
        return {by_digest[row[0]] for row in self._target.execute(query, (list(by_digest),)).fetchall()}


def _digest(key: tuple[str, ...]) -> bytes:
    return sha256(msgspec.json.encode(key)).digest()


class _Survey:
    """Counts, and passes on what is lost."""

    def __init__(self, sessions: Sessions, context: Context, sink: Sink | None, seen: _Keys, held: _Keys) -> None:
        self._sessions, self._context, self._sink = sessions, context, sink
        self._seen = seen
        """Documents that were looked at; of those for which an entry waits no document is compared."""
        self._held = held
        self._rows: Counter[str] = Counter()
        self._unstated: dict[Place, UnstatedSchedule] = {}
        self._unwritten: list[tuple[Sequence[ChangedRow], dict[Place, bytes]]] = []
        """Batches with the documents that MongoDB does not hold as it must, to be looked at again: a digest of each."""
        self._named: list[str] = []
        self._total = 0

    def look(self, part: Sequence[ChangedRow], *, waits: bool = False) -> None:
        """Look at the documents of rows; ``waits``: these are in the outbox, so that MongoDB need not hold them yet."""
        self._sessions.forget()
        writes: dict[Place, DocumentWrite] = {}
        for write in reverse_sync.encoded(self._sessions, self._context, part):
            writes.setdefault(_place_of(write), write)
        new = self._seen.add(writes)
        looked_at = {place: write for place, write in writes.items() if place in new}
        self._held.add(key for write in looked_at.values() for key in write.held)
        for place, write in looked_at.items():
            if write.unstated is not None:
                self._unstated[place] = write.unstated
        self._pass_on([row for write in looked_at.values() for row in write.lost])
        if waits:
            return
        differing = reverse_sync.unwritten(self._sessions, looked_at.values())
        if differing:
            self._unwritten.append((part, {_place_of(write): _content(write) for write in differing}))
            if len(self._unwritten) == _MAX_BATCHES:
                self._look_again()

    def end(self) -> Losses:
        """Add the rows of tables whose rows have no documents of their own, and return all."""
        profile, target = self._sessions.profile, self._sessions.target
        if profile.kept_by_store:
            for one, key in rollback_gaps.unstated_schedules(target, profile, self._sessions.settings.source):
                self._unstated.setdefault((names.SCHEDULES, key, one.tenant), one)
        else:
            self._add_rows_without_documents()
        self._look_again()
        named = [(one, str(identity.parse_source_id(place[1]))) for place, one in self._unstated.items()]
        return Losses(
            gaps=tuple(rollback_gaps.gaps_of(named)),
            named=tuple(one for one, _ in named),
            unstated=self._unstated,
            rows=dict(sorted(self._rows.items())),
            unwritten=tuple(self._named),
            unwritten_total=self._total,
            documents=self._seen.count,
        )

    def _add_rows_without_documents(self) -> None:
        """Pass on the rows that no document of an application has which keeps its own."""
        profile, target = self._sessions.profile, self._sessions.target
        for record in _without_documents(profile):
            for part in _created(target, record):
                held = self._held.among((row.row_id, row.tenant) for row in part)
                self._pass_on([row for row in part if (row.row_id, row.tenant) not in held])
        for record in parallel_rows.CONDITIONS.keys() - {*_without_documents(profile)}:
            made = parallel_rows.every_key(target, record)
            self._pass_on([LostRow(record.table, row_id, tenant, (ALL_COLUMNS,)) for row_id, tenant in made])
        if gone := [(one.schedule_id, one.tenant) for one in self._unstated.values() if one.document == "absent"]:
            for record in TRACKED_RECORDS:
                holder = write_back.holder(profile, record)
                if holder is not None and holder.tables[0] is record and "schedule_id" in record.__struct_fields__:
                    for part in _referring(target, record, gone):
                        self._pass_on(part)

    def _look_again(self) -> None:
        """Count the documents that differ from their rows also at a second look: others were being written.

        Of an entry that was added meanwhile the document need not be written yet, nor of a row that was changed
        meanwhile, so that another document must be written: its entry may have been added after these were read.
        """
        batches, self._unwritten = self._unwritten, []
        if not batches:
            return
        sessions, context = self._sessions, self._context
        expected: set[Place] = set()
        differing = set().union(*(places for _, places in batches))
        for part in outbox.waiting(sessions.target, reverse_sync.BATCH_NOTES):
            sessions.forget()
            expected.update(differing.intersection(map(_place_of, reverse_sync.encoded(sessions, context, part))))
        for rows, places in batches:
            sessions.forget()
            again = reverse_sync.encoded(sessions, context, rows)
            doubted = [
                write
                for write in again
                if (place := _place_of(write)) not in expected and places.get(place) == _content(write)
            ]
            for write in reverse_sync.unwritten(sessions, doubted):
                self._total += 1
                if len(self._named) < _MAX_NAMED:
                    self._named.append(" ".join(_place_of(write)[:2]))

    def _pass_on(self, lost: Sequence[LostRow]) -> None:
        for row in lost:
            self._rows.update(row.table if column == ALL_COLUMNS else f"{row.table}.{column}" for column in row.columns)
        if lost and self._sink is not None:
            self._sink(lost)


def _place_of(write: DocumentWrite) -> Place:
    return write.collection, identity.source_id(write.key), write.tenant


def _content(write: DocumentWrite) -> bytes:
    """Return a digest of what a document must be; empty: there must be none."""
    return b"" if write.document is None else sha256(documents.encode(write.document)).digest()


def _backlog(target: Connection, profile: Profile) -> Iterator[list[ChangedRow]]:
    """Yield the rows of documents that a rollback reads again, because something of them has no place there."""
    for collection in profile.collections:
        record = collection.tables[0]
        if issubclass(record, SourcedRecord):
            query = sql.SQL(
                "SELECT id::text, tenant_id, source, source_id FROM {} WHERE source = %s AND source_id IN"
                " (SELECT source_id FROM migration.pending_documents WHERE collection = %s)"
            ).format(sql.Identifier("scheduler", record.table))
            names_of_both = (profile.source_of(collection.name), collection.name)
            yield from reverse_sync.changed_rows(target, record, query, names_of_both)


def _without_documents(profile: Profile) -> Iterator[type[Record]]:
    """Yield the tables whose rows have no document of their own: of a schedule's runs, its document holds one."""
    for record in TRACKED_RECORDS:
        if not issubclass(record, SourcedRecord) or record is RunSummary:
            continue
        holder = write_back.holder(profile, record)
        if holder is None or (record is Run and holder.tables[0] is not Run):
            yield record


def _created(target: Connection, record: type[Record]) -> Iterator[list[LostRow]]:
    """Yield the rows of a table that were created in PostgreSQL, as rows that no document has."""
    last = (UUID(int=0), "")
    while True:
        rows = target.execute(
            sql.SQL(
                "SELECT id, tenant_id FROM {} WHERE source IS NULL AND NOT starts_with(tenant_id, %s)"
                " AND (id, tenant_id) > (%s, %s) ORDER BY id, tenant_id LIMIT %s"
            ).format(sql.Identifier("scheduler", record.table)),
            (SCRATCH, *last, reverse_sync.BATCH_NOTES),
        ).fetchall()
        if not rows:
            return
        last = rows[-1]
        yield [LostRow(record.table, str(row[0]), row[1], (ALL_COLUMNS,)) for row in rows]


def _referring(target: Connection, record: type[Record], schedules: Sequence[RowKey]) -> Iterator[list[LostRow]]:
    """Yield rows with documents of their own that name a schedule which has none: these lose that reference."""
    query = sql.SQL(
        "SELECT id::text, tenant_id, NULL, NULL FROM {} WHERE (schedule_id, tenant_id) IN"
        " (SELECT * FROM unnest(%s::uuid[], %s::text[]))"
    ).format(sql.Identifier("scheduler", record.table))
    keys = ([identifier for identifier, _ in schedules], [tenant for _, tenant in schedules])
    for part in reverse_sync.changed_rows(target, record, query, keys):
        yield [LostRow(record.table, row.row_id, row.tenant_id, ("schedule_id",)) for row in part]
