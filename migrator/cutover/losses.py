"""What a rollback would take away: rows that no document gives back, and schedules that would fire otherwise.

It is computed from the documents that the reverse sync writes, by the same code, before anything is changed. So
`rollback plan`, `rollback run` and the report of a cutover have one answer. A rollback exports each of these rows as a
whole.

The rows are those that a rollback deletes (created in PostgreSQL), those of documents that it reads again (in the
backlog, since something of them has no place), those that wait in the outbox, and those changed since the cutover.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias
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
from migrator.values import identity

Place: TypeAlias = tuple[str, str, str]
"""Collection and source id of a document, and the tenant of its rows."""
_MAX_NAMED: Final = 5
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
    """Documents that are not equal to their rows, and for which nothing waits: a rollback would be refused."""
    documents: int = 0
    """Documents that were looked at."""


def unequal(places: Sequence[str]) -> str:
    """Return in words that documents differ from their rows."""
    more = ", …" if len(places) > _MAX_NAMED else ""
    return f"{len(places):,} documents are not equal to their rows: {', '.join(places[:_MAX_NAMED])}{more}"


def survey(sessions: Sessions, since: datetime, sink: Sink | None = None) -> Losses:
    """Return the losses of a rollback, among what was written since an instant; ``sink`` is given each lost row.

    Raises ``ReverseSyncError`` for a row that has no document at all, ``RefusedError`` if nothing was ever copied.
    """
    plan = latest_plan(sessions.target)
    if plan is None:
        raise RefusedError("nothing was ever copied, so nothing can be written back")
    survey_state = _Survey(sessions, plan_context(plan), sink)
    survey_state.look(_waiting(sessions.target), waits=True)
    for record in TRACKED_RECORDS:
        survey_state.look(reverse_sync.written_since(sessions.target, record, since))
    survey_state.look(_backlog(sessions.target, sessions.profile))
    return survey_state.end()


class _Survey:
    """Counts, and passes on what is lost."""

    def __init__(self, sessions: Sessions, context: Context, sink: Sink | None) -> None:
        self._sessions, self._context, self._sink = sessions, context, sink
        self._seen: set[Place] = set()
        """Documents that were looked at; of those for which an entry waits no document is compared."""
        self._held: set[RowKey] = set()
        self._rows: Counter[str] = Counter()
        self._unstated: dict[Place, UnstatedSchedule] = {}
        self._unwritten: list[Sequence[ChangedRow]] = []
        """Batches with a document that MongoDB does not hold as it must."""

    def look(self, noted: Sequence[ChangedRow], *, waits: bool = False) -> None:
        """Look at the documents of rows; ``waits``: these are in the outbox, so that MongoDB need not hold them yet."""
        for first in range(0, len(noted), reverse_sync.BATCH_NOTES):
            part = noted[first : first + reverse_sync.BATCH_NOTES]
            self._sessions.forget()
            lost: list[LostRow] = []
            differs = False
            for write in reverse_sync.encoded(self._sessions, self._context, part):
                place = _place_of(write)
                if place in self._seen:
                    continue
                self._seen.add(place)
                self._held.update(write.held)
                if write.unstated is not None:
                    self._unstated[place] = write.unstated
                lost += write.lost
                differs = differs or not (waits or reverse_sync.is_written(self._sessions, write))
            if differs:
                self._unwritten.append(part)
            self._pass_on(lost)

    def end(self) -> Losses:
        """Add the rows of tables whose rows have no documents of their own, and return all."""
        profile, target = self._sessions.profile, self._sessions.target
        if not profile.kept_by_store:
            for record in _without_documents(profile):
                for part in _created(target, record):
                    self._pass_on([row for row in part if (row.row_id, row.tenant) not in self._held])
            for record in parallel_rows.CONDITIONS.keys() - {*_without_documents(profile)}:
                made = parallel_rows.every_key(target, record)
                self._pass_on([LostRow(record.table, row_id, tenant, (ALL_COLUMNS,)) for row_id, tenant in made])
            if gone := [(one.schedule_id, one.tenant) for one in self._unstated.values() if one.document == "absent"]:
                for record in TRACKED_RECORDS:
                    holder = write_back.holder(profile, record)
                    if holder is not None and holder.tables[0] is record and "schedule_id" in record.__struct_fields__:
                        self._pass_on(_referring(target, record, gone))
        if profile.kept_by_store:
            for one, key in rollback_gaps.unstated_schedules(target, profile, self._sessions.settings.source):
                self._unstated.setdefault((names.SCHEDULES, key, one.tenant), one)
        named = [(one, str(identity.parse_source_id(place[1]))) for place, one in self._unstated.items()]
        return Losses(
            gaps=tuple(rollback_gaps.gaps_of(named)),
            named=tuple(one for one, _ in named),
            unstated=self._unstated,
            rows=dict(sorted(self._rows.items())),
            unwritten=tuple(self._still_unwritten()),
            documents=len(self._seen),
        )

    def _still_unwritten(self) -> Iterator[str]:
        """Yield the documents that differ from their rows also at a second look: others were being written.

        Of an entry that was added meanwhile the document need not be written yet.
        """
        if not self._unwritten:
            return
        sessions, context = self._sessions, self._context
        waiting = _waiting(sessions.target)
        sessions.forget()
        expected = {
            _place_of(write)
            for first in range(0, len(waiting), reverse_sync.BATCH_NOTES)
            for write in reverse_sync.encoded(sessions, context, waiting[first : first + reverse_sync.BATCH_NOTES])
        }
        for part in self._unwritten:
            sessions.forget()
            for write in reverse_sync.encoded(sessions, context, part):
                place = _place_of(write)
                if place not in expected and not reverse_sync.is_written(sessions, write):
                    yield " ".join(place[:2])

    def _pass_on(self, lost: Sequence[LostRow]) -> None:
        for row in lost:
            self._rows.update(row.table if column == ALL_COLUMNS else f"{row.table}.{column}" for column in row.columns)
        if lost and self._sink is not None:
            self._sink(lost)


def _place_of(write: DocumentWrite) -> Place:
    return write.collection, identity.source_id(write.key), write.tenant


def _waiting(target: Connection) -> list[ChangedRow]:
    """Return the rows for which an entry of the outbox waits."""
    noted, _ = outbox.oldest(target, 2**31 - 1)
    return noted


def _backlog(target: Connection, profile: Profile) -> list[ChangedRow]:
    """Return the rows of documents that a rollback reads again, because something of them has no place there."""
    backlog = []
    for collection in profile.collections:
        record = collection.tables[0]
        if not issubclass(record, SourcedRecord):
            continue
        rows = target.execute(
            sql.SQL(
                "SELECT id::text, tenant_id, source, source_id FROM {} WHERE source = %s AND source_id IN"
                " (SELECT source_id FROM migration.pending_documents WHERE collection = %s)"
            ).format(sql.Identifier("scheduler", record.table)),
            (profile.source_of(collection.name), collection.name),
        )
        backlog += [ChangedRow(record.table, *row) for row in rows]
    return backlog


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


def _referring(target: Connection, record: type[Record], schedules: Sequence[RowKey]) -> list[LostRow]:
    """Return rows with documents of their own that name a schedule which has none: these lose that reference."""
    rows = target.execute(
        sql.SQL(
            "SELECT id::text, tenant_id FROM {} WHERE (schedule_id, tenant_id) IN"
            " (SELECT * FROM unnest(%s::uuid[], %s::text[]))"
        ).format(sql.Identifier("scheduler", record.table)),
        ([identifier for identifier, _ in schedules], [tenant for _, tenant in schedules]),
    )
    return [LostRow(record.table, row[0], row[1], ("schedule_id",)) for row in rows]
