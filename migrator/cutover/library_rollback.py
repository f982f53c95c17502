"""The rollback from a library's own tables: its application works on MongoDB again, with everything that was written.

The library's tables refuse writes, and what was written since the cutover goes to MongoDB. Each row that was written
is compared with its document. Two things are exported to files with digests before anything is removed: rows of which
no document can be made, and the documents of rows that the library has deleted. These documents are then removed, the
fence of MongoDB is lifted, and the tables are a copy again, which the tail follows. They refuse writes of others until
the next cutover, so that never both sides are open.

Each step is journaled and idempotent. Before MongoDB is opened, a failure is undone: the application continues on
PostgreSQL. An export never replaces another one: what a killed call has removed is in the files of that call.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import bson
import msgspec
from bson import json_util

from migrator.config import Settings
from migrator.connections.advisory_locks import advisory_lock
from migrator.connections.postgres import Connection, target_connection
from migrator.cutover import library_documents, outbox, reverse_sync, rollback
from migrator.cutover.backup import Export, ExportWriter
from migrator.cutover.journal import (
    EXPORT_KEY,
    LIBRARY_ROLLBACK_STEPS,
    REOPEN_STEP,
    Cutover,
    Journal,
    exclusive_sessions,
    latest,
)
from migrator.cutover.library_cutover import LibraryCutover
from migrator.cutover.library_tables import LibraryTables, library_tables
from migrator.cutover.procedure import backup_folder, lift_source_fence, point_holds, reconnect
from migrator.cutover.reverse_encoding import DocumentWrite, LostRow, ReverseSyncError
from migrator.cutover.server_gates import NOBODY_CONNECTED, RUNS_FIRST, Gate, sessions_of_others
from migrator.cutover.undo import UndoError, undo
from migrator.cutover.write_pause import WritePause, expected_rollback_pause
from migrator.durations import format_duration
from migrator.errors import MigratorError, RefusedError
from migrator.pipeline import hooks
from migrator.pipeline.ledger import latest_plan
from migrator.pipeline.locks import ROWS_KEY
from migrator.pipeline.plan import plan_context
from migrator.pipeline.sessions import Sessions, close_cached, open_sessions, retry_transient
from migrator.pipeline.tail.applier import Applier
from migrator.schema import decisions
from migrator.schema.decisions import UNNAMED, Approval
from migrator.telemetry import say
from migrator.values import identity

STEPS: Final = LIBRARY_ROLLBACK_STEPS
ONE_LEVEL: Final = "a rollback from a library's tables has the level 1 alone: its tables are the library's, and stay"
_EXPORTS: Final = "rollback_exports"
"""The member of the journal's detail that lists the folders of all exports of a rollback."""
_BATCH: Final = 1_000


class LibraryRollbackResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rollback from a library's tables."""

    documents: int = 0
    """Documents that this call has written to MongoDB."""
    removed: int = 0
    """Documents that were removed from MongoDB, because the library has deleted their rows."""
    lost: dict[str, int] = {}
    """``table`` → rows of which no document can be made; ``table.column`` → values without a place in a document."""
    folder: str = ""
    """Folder of the files with these rows and documents; empty: there are none."""
    digest: str = ""
    """SHA-256 of the manifest in the folder, which has those of its files."""


class _Written(msgspec.Struct, kw_only=True):
    """What was written to the library's tables since the cutover, compared with the documents."""

    documents: int = 0
    unequal: list[str] = []
    lost: list[LostRow] = []

    @property
    def counts(self) -> dict[str, int]:
        """Return the lost rows and values by place."""
        counts: dict[str, int] = {}
        for row in self.lost:
            for column in row.columns:
                place = row.table if column == "*" else f"{row.table}.{column}"
                counts[place] = counts.get(place, 0) + 1
        return counts


def plan_gates(settings: Settings) -> list[Gate]:
    """Return the gates of a rollback, evaluated now: how many documents change, are new, and are removed."""
    with target_connection(settings) as target:
        current = latest(target)
        why_not = rollback.refusal(target, current, 1)
        evaluated = [Gate(name="window", passed=not why_not, words=why_not or "open")]
        tables = library_tables(settings)
        if current is None or why_not or tables is None:
            return evaluated
        count, age = outbox.backlog(target)
        waiting = f"{count:,} outbox entries wait, the oldest for {age:,.0f} s"
        evaluated.append(Gate(name="outbox", passed=None if count else True, words=waiting))
        refused = tables.not_owned(target)
        evaluated.append(
            Gate(
                name="fence of the target",
                passed=not refused,
                words=f"the tool's user must own {', '.join(refused)}" if refused else "stops every user but the tool",
            )
        )
        evaluated.append(_application(target, tables))
    return [*evaluated, *_written_gates(settings)]


def _application(target: Connection, tables: LibraryTables) -> Gate:
    """Return who would still work on PostgreSQL at the fence: they are not told from those who only read."""
    connected = sessions_of_others(target)
    if not connected:
        return Gate(name="application", passed=True, words=NOBODY_CONNECTED)
    consequence = f"{RUNS_FIRST}: stop the application first" if tables.target.runs_first else _STOPPED
    return Gate(name="application", passed=None, words=f"connected now: {', '.join(connected)}; {consequence}")


_STOPPED: Final = "the fence stops what they write"


def _written_gates(settings: Settings) -> Iterator[Gate]:
    began = time.monotonic()
    try:
        with open_sessions(settings) as sessions:
            library_documents.require_written_back(sessions.profile)
            tables = LibraryTables(sessions.profile, settings.target)
            written = _compare(sessions, tables)
            removed = sum(len(found) for _, found in _deleted_documents(sessions, tables))
            made = tables.made(sessions.target)
    except MigratorError as error:
        yield Gate(name="written back", passed=False, words=str(error))
        return
    seconds, limit = expected_rollback_pause(time.monotonic() - began), settings.cutover.max_pause
    yield Gate(
        name="write pause",
        passed=timedelta(seconds=seconds) <= limit,
        words=f"about {seconds:,.1f} s are expected, to compare {written.documents:,} documents with their rows"
        f" (at most {format_duration(limit)})",
    )
    yield Gate(
        name="written back",
        passed=True,
        words=f"{written.documents:,} documents hold what was written since the cutover, {made:,} of them are new",
    )
    removal = "are exported and removed, because the library has deleted their rows"
    yield Gate(name="removed", passed=None if removed else True, words=f"{removed:,} documents {removal}")
    for place, count in written.counts.items():
        yield Gate(name="lost", passed=None, words=f"not in any document: {place}, {count:,}; they are exported")


def run(settings: Settings, by: Approval = UNNAMED) -> LibraryRollbackResult:
    """Roll back; raises ``RefusedError`` if there is no cutover, or its window is closed."""
    hooks.require_programs(settings)
    try:
        with exclusive_sessions(settings) as sessions:
            current = latest(sessions.target)
            why_not = "" if _is_end_unrecorded(sessions, current) else rollback.refusal(sessions.target, current, 1)
            if current is None or why_not:
                raise RefusedError(why_not)
            journal = Journal(sessions.target, current)
            if current.state == "running" and not point_holds(LibraryCutover(sessions), journal):
                raise RefusedError(rollback.BEFORE_POINT)
            if not why_not and not journal.begun(REOPEN_STEP):
                library_documents.require_written_back(sessions.profile)
            decisions.record(sessions.target, decisions.ROLLBACK, by, cutover=str(current.id), level=1)
            done = _run(sessions, journal)
            state = {"level": 1, "documents": done.documents, "removed": done.removed, "lost": done.lost}
            hooks.call(settings, hooks.ROLLBACK_ENDED, state, identity=current.id)
            return done
    finally:
        close_cached()


def _run(sessions: Sessions, journal: Journal) -> LibraryRollbackResult:
    settings = sessions.settings
    tables = LibraryTables(sessions.profile, settings.target)
    carried = reverse_sync.ReverseSyncResult()
    if journal.cutover.state in ("cut-over", "running"):
        # The tail writes no rows meanwhile. It would take rows that are given their documents here for rows of others.
        with advisory_lock(sessions.target, ROWS_KEY):
            if not journal.begun(REOPEN_STEP):
                carried = rollback.carry_before_fence(settings)
                pause = WritePause(settings.cutover.max_pause)
                try:
                    with pause.bounded():
                        carried += _run_steps_before(sessions, journal, tables, pause)
                except BaseException as error:
                    _undo(sessions, journal, tables, error)
                    raise
            _reopen(sessions, journal, tables)
    elif not journal.done("rollback-close"):
        with journal.step("rollback-close"):
            pass  # an earlier call did it, and was killed before it recorded that
    detail = journal.cutover.detail
    written = msgspec.convert(detail.get(EXPORT_KEY), Export | None)
    return LibraryRollbackResult(
        documents=carried.documents,
        removed=int(detail.get("removed", 0)),
        lost=dict(detail.get("lost", {})),
        folder="" if written is None else written.folder,
        digest="" if written is None else written.digest,
    )


def _run_steps_before(
    sessions: Sessions, journal: Journal, tables: LibraryTables, pause: WritePause
) -> reverse_sync.ReverseSyncResult:
    """Run the steps before MongoDB is opened again."""
    target = sessions.target
    with journal.step("rollback-fence"):
        pause.begin()
        target.execute("SELECT set_config('lock_timeout', %s, false)", (f"{int(pause.left() * 500)}ms",))
        tables.close(target)  # waits for those who write now, for half of the limit
    with journal.step("rollback-drain") as detail:
        carried = rollback.drain(sessions, pause)
        detail["documents"] = carried.documents
    with journal.step("rollback-check") as detail:
        count, _ = outbox.backlog(target)
        if count:
            raise RefusedError(f"{count:,} outbox entries were added under the fence: another program still writes")
        compared = _compare(sessions, tables)
        if compared.unequal:
            more = ", …" if len(compared.unequal) > _NAMED else ""
            raise ReverseSyncError(
                f"{len(compared.unequal):,} documents are not equal to their rows:"
                f" {', '.join(compared.unequal[:_NAMED])}{more}"
            )
        written = _export(sessions, journal.cutover, tables, compared.lost)
        detail["documents"] = compared.documents
        exports = journal.cutover.detail.get(_EXPORTS, [])
        journal.note(
            lost=compared.counts,
            **{EXPORT_KEY: msgspec.to_builtins(written), _EXPORTS: exports + ([written.folder] if written else [])},
        )
    with journal.step("rollback-remove") as detail:
        pause.check()
        detail["documents"] = _remove(sessions, tables)
        journal.note(removed=detail["documents"] + int(journal.cutover.detail.get("removed", 0)))
    return carried


_NAMED: Final = 5


def _reopen(sessions: Sessions, journal: Journal, tables: LibraryTables) -> None:
    """Open MongoDB, make the tables a copy again, and close the rollback window."""
    with journal.step(REOPEN_STEP):
        lift_source_fence(sessions, journal.cutover)
    with journal.step("rollback-close"):
        reverse_sync.drop_fence_collection(sessions)
        plan = latest_plan(sessions.target)
        assert plan is not None  # noqa: S101 - a gate of the cutover has seen to it
        with sessions.target.transaction():
            named = _documents_of_changes(sessions, tables)
            tables.take_over(sessions.target)
            tables.delete_unnamed(sessions.target)
            sessions.forget()
            # a row that the library made may have another key than its document gives it
            Applier(sessions, plan).apply(named)
            tables.close_outbox(sessions.target)
            journal.end("rolled-back")


def _undo(sessions: Sessions, journal: Journal, tables: LibraryTables, error: BaseException) -> None:
    """Let the application write to the library's tables again; raises ``UndoError`` if that fails."""

    def connected(act: Callable[[], object]) -> Callable[[], object]:
        def again() -> None:
            reconnect(sessions, journal)
            act()

        return lambda: retry_transient(sessions.settings, again)

    parts = {"the fence of PostgreSQL": connected(lambda: tables.lift(sessions.target))}
    failed = undo(parts, ("the journal", connected(lambda: journal.undo("rollback-"))))
    if failed:
        raise UndoError(failed, "migrator rollback run", error) from error
    say("rollback: undone: the fence is lifted, and PostgreSQL stays open", level="warning")


def _is_end_unrecorded(sessions: Sessions, current: Cutover | None) -> bool:
    """Return whether an earlier call was killed after its last step, before it recorded that."""
    rolled_back = current is not None and current.state == "rolled-back"
    return current is not None and rolled_back and not Journal(sessions.target, current).done("rollback-close")


def _compare(sessions: Sessions, tables: LibraryTables) -> _Written:
    """Compare each row that was carried since the cutover with its document, as both are now."""
    plan = latest_plan(sessions.target)
    if plan is None:
        raise RefusedError("nothing was ever copied, so nothing can be written back")
    written = _Written(unequal=[], lost=[])
    for part in tables.changed(sessions.target):
        writes = reverse_sync.encoded(sessions, plan_context(plan), part)
        written.documents += sum(not write.kept for write in writes)
        written.unequal += [
            f"{write.collection} {identity.source_id(write.key)}" for write in reverse_sync.unwritten(sessions, writes)
        ]
        written.lost += [row for write in writes for row in write.lost]
    return written


def unequal_documents(sessions: Sessions) -> list[str]:
    """Return the documents, with their collections, that are unlike the rows that the library wrote since the cutover.

    As both are now: an outbox entry that waits may be the reason. Raises ``RefusedError`` as ``require_written_back``.
    """
    library_documents.require_written_back(sessions.profile)
    return _compare(sessions, LibraryTables(sessions.profile, sessions.settings.target)).unequal


def _deleted_documents(sessions: Sessions, tables: LibraryTables) -> Iterator[tuple[str, dict[Any, bytes]]]:
    """Yield collection, and ``_id`` → document, of documents whose rows the library has deleted, in batches."""
    by_source = {sessions.profile.source_of(one.name): one.name for one in sessions.profile.collections}
    for table in tables.fed:
        for source, source_ids in tables.deleted(sessions.target, table).items():
            place = sessions.source[sessions.name_of(by_source[source])]
            for begin in range(0, len(source_ids), _BATCH):
                keys = [identity.parse_source_id(source_id) for source_id in source_ids[begin : begin + _BATCH]]
                found = list(place.find({"_id": {"$in": keys}}))
                if found:
                    yield by_source[source], {one["_id"]: bson.encode(one) for one in found}


def _export(sessions: Sessions, cutover: Cutover, tables: LibraryTables, lost: Sequence[LostRow]) -> Export | None:
    """Export the rows that make no document, and the documents that will be removed; None: there are none."""
    writer = ExportWriter(_new_folder(backup_folder(sessions.settings, cutover)))
    for table in tables.fed:
        columns = {row.row_id: row.columns for row in lost if row.table == table.full_name}
        rows = tables.export(sessions.target, table, sorted(columns))
        if rows:
            writer.add(f"lost.{table.name}.jsonl", (_line(columns[key], text) for key, text in rows))
    for name, found in _deleted_documents(sessions, tables):
        options = json_util.CANONICAL_JSON_OPTIONS
        lines = (json_util.dumps(bson.decode(raw), json_options=options) for raw in found.values())
        writer.add(f"removed.{name}.jsonl", lines)
    return writer.end()


def _line(columns: Sequence[str], row: str) -> str:
    return f'{{"columns":{msgspec.json.encode(columns).decode()},"row":{row}}}'


def _new_folder(backup: Path) -> Path:
    """Return the path of a folder that no export has yet."""
    number = 1
    while (folder := backup.with_suffix(f".rollback-1{f'-{number}' if number > 1 else ''}")).exists():
        number += 1
    return folder


def _remove(sessions: Sessions, tables: LibraryTables) -> int:
    """Remove the documents of rows that the library has deleted, which were exported; return their number."""
    writes = [DocumentWrite(name, key, None) for name, found in _deleted_documents(sessions, tables) for key in found]
    if writes:
        reverse_sync.write(sessions, writes)
    return len(writes)


def _documents_of_changes(sessions: Sessions, tables: LibraryTables) -> Mapping[str, set[str]]:
    """Return collection → source ids of the documents whose rows were written since the cutover."""
    by_source = {sessions.profile.source_of(one.name): one.name for one in sessions.profile.collections}
    by_table = {table.full_name: table for table in tables.fed}
    named: dict[str, set[str]] = {}
    for part in tables.changed(sessions.target):
        for full_name in {row.table for row in part}:
            keys = [row.row_id for row in part if row.table == full_name]
            for row in tables.noted_rows(sessions.target, by_table[full_name], keys):
                if row.source in by_source and row.source_id is not None:
                    named.setdefault(by_source[row.source], set()).add(row.source_id)
    return named
