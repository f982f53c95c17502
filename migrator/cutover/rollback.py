"""The rollback, in three levels.

1. PostgreSQL is fenced. What was written since the cutover goes to MongoDB. Every row that a document does not give
   back is exported as a whole, and every schedule that none states. What fires by the documents is compared with what
   fires in PostgreSQL. Epoch and configuration are changed back, and the fence of MongoDB is lifted.
2. Level 1. Then the schema is downgraded over all revisions, with its rows. All rows are exported before.
3. MongoDB is restored from the backup of the cutover. What was written since then is exported, and not carried.
   PostgreSQL keeps its rows. The tail gets an alarm, so that the next cutover needs a parity check with repair first.

Each step is journaled and idempotent. The last step of level 2 removes the journal. A call that was killed is repeated,
and continues.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from migrator.config import Settings, postgres_dsn
from migrator.connections.advisory_locks import advisory_lock
from migrator.connections.postgres import Connection, target_connection
from migrator.cutover import backup, cleanup, config_file, epoch, fence, fires, losses, outbox, reverse_sync
from migrator.cutover.backup import Export, ExportWriter
from migrator.cutover.cutover import SchedulerCutover
from migrator.cutover.journal import (
    EXPORT_KEY,
    FIRES_STEP,
    LEVEL_KEY,
    POINT_OF_NO_RETURN,
    REOPEN_STEP,
    RESTORE_STEP,
    UNLIKE_KEY,
    Cutover,
    Journal,
    database_time,
    exclusive_sessions,
    latest,
)
from migrator.cutover.losses import Losses
from migrator.cutover.procedure import backup_folder, lift_source_fence, point_holds, reconnect
from migrator.cutover.reverse_encoding import LostRow, ReverseSyncError
from migrator.cutover.rollback_gaps import Gap, gap_lines, some_of
from migrator.cutover.server_gates import Answer, Gate, evaluate
from migrator.cutover.undo import UndoError, undo
from migrator.cutover.write_pause import WritePause, expected_restore_pause, expected_rollback_pause
from migrator.durations import format_duration
from migrator.errors import MigratorError, RefusedError, UnreachableError
from migrator.pipeline import hooks
from migrator.pipeline.locks import ROWS_KEY
from migrator.pipeline.sessions import Sessions, close_cached, open_sessions, retry_transient
from migrator.pipeline.tail import positions
from migrator.schema import decisions, revisions
from migrator.schema.decisions import UNNAMED, Approval
from migrator.schema.security import Roles
from migrator.telemetry import say

Level: TypeAlias = Literal[1, 2, 3]
RESTORED_ALARM: Final = "MongoDB was restored from the backup of the cutover"
"""The alarm of the tail after a rollback of level 3."""
BEFORE_POINT: Final = (
    "the cutover was interrupted before its point of no return, so there is nothing to roll back: call migrator"
    " cutover abort"
)


class RollbackResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rollback."""

    level: int
    documents: int = 0
    """Documents that this call has written to MongoDB."""
    lost: dict[str, int] = {}
    """``table.column`` → values for which documents have no place; ``table``: rows that no document has, or, at the
    levels 2 and 3, rows in the files."""
    folder: str = ""
    """Folder of the files with the rows, and with the schedules of ``gaps``."""
    digest: str = ""
    """SHA-256 of the manifest in the folder, which has those of its files."""
    tables: str = ""
    """Level 2: folder of the files with every row of the schema that was removed."""
    gaps: tuple[Gap, ...] = ()
    """Schedules that the old application does not fire as PostgreSQL did, as they were named before."""
    unlike: tuple[Gap, ...] = ()
    """Schedules that fire otherwise, and were not named: a fault."""
    left: tuple[str, ...] = ()
    """What is still on both servers and in files, and why."""


def gates(settings: Settings, config: Path, level: Level) -> list[Gate]:
    """Return the gates of a rollback, evaluated now."""
    with target_connection(settings) as target:
        current = latest(target)
        why_not = refusal(target, current, level)
        gates = [Gate(name="window", passed=not why_not, words=why_not or "open")]
        if current is None:
            return gates
        other = _level_conflict(Journal(target, current), level)
        gates.append(Gate(name="level", passed=not other, words=other or f"level {level}"))
        count, age = outbox.backlog(target)
        gates.append(
            Gate(name="outbox", passed=None, words=f"{count:,} outbox entries wait, the oldest for {age:,.0f} s")
        )
        through = fence.unstopped_on_target(target, settings.postgres)
        words = f"does not stop {', '.join(through)}" if through else "stops every user but the tool"
        gates.append(Gate(name="fence of the target", passed=None if through else True, words=words))
        gates.append(evaluate("configuration", lambda: _config(config)))
        if level == 3:  # noqa: PLR2004 - a level
            gates.append(_restore_pause_gate(settings, target, current))
            gates.append(evaluate("backup", lambda: _backup(settings, current)))
    if level != 3 and not why_not:  # noqa: PLR2004 - a level; it writes nothing back
        gates += _written_back(settings, current)
    return gates


def _written_back(settings: Settings, current: Cutover) -> Iterator[Gate]:
    """Yield the gates of the losses: computed as a rollback does, and whether it would be refused for them.

    The first gate is how long PostgreSQL refuses writes, which is what this took.
    """
    began = time.monotonic()
    try:
        with open_sessions(settings) as sessions:
            found_now = losses.survey(sessions, current.began_at)
    except MigratorError as error:
        yield Gate(name="written back", passed=False, words=str(error))
        return
    yield _pause_gate(settings, time.monotonic() - began, found_now.documents)
    if found_now.unwritten:
        yield Gate(name="written back", passed=False, words=losses.unequal(found_now))
    lost = tuple(_lost_lines(found_now.rows))
    for gap, words in zip(found_now.gaps, gap_lines(found_now.gaps), strict=True):
        yield Gate(name="written back", passed=None, words=words, ids=gap.ids)
    yield from (Gate(name="written back", passed=None, words=words) for words in lost)
    if not (found_now.gaps or lost or found_now.unwritten):
        yield Gate(
            name="written back", passed=True, words=f"nothing is lost: {found_now.documents:,} documents state it all"
        )


def run(settings: Settings, config: Path, level: Level, by: Approval = UNNAMED) -> RollbackResult:
    """Roll back; raises ``RefusedError`` if the window is closed, or if a backup was changed."""
    hooks.require_programs(settings)
    try:
        with exclusive_sessions(settings) as sessions:
            current = latest(sessions.target)
            why_not = "" if _is_end_unrecorded(sessions, current) else refusal(sessions.target, current, level)
            if current is None or why_not:
                raise RefusedError(why_not)
            journal = Journal(sessions.target, current)
            if current.state == "running" and not point_holds(SchedulerCutover(sessions), journal):
                raise RefusedError(BEFORE_POINT)
            if other := _level_conflict(journal, level):
                raise RefusedError(other)
            config_file.require_changeable(config, os.environ)
            if current.config_path != str(config.absolute()):
                raise RefusedError(f"the cutover was made with {current.config_path}: call again with that file")
            if level == 3:  # noqa: PLR2004 - a level
                backup.verified_manifest(backup_folder(settings, current))  # before anything is changed
            decisions.record(sessions.target, decisions.ROLLBACK, by, cutover=str(current.id), level=level)
            done = _run(sessions, journal, level)
            state = {"level": level, "documents": done.documents, "lost": done.lost}
            hooks.call(settings, hooks.ROLLBACK_ENDED, state, identity=current.id)
            return msgspec.structs.replace(done, left=cleanup.after_rollback(sessions, current))
    finally:
        close_cached()


def _run(sessions: Sessions, journal: Journal, level: Level) -> RollbackResult:
    settings = sessions.settings
    kept = backup_folder(settings, journal.cutover)
    folder = kept.with_suffix(".rollback-3" if level == 3 else ".rollback-1")  # noqa: PLR2004 - a level; 2 begins as 1
    carried = reverse_sync.ReverseSyncResult()
    tables: dict[str, int] = {}
    journal.note(**{LEVEL_KEY: level})
    if journal.cutover.state in ("cut-over", "running"):
        if not journal.begun(REOPEN_STEP):
            if level != 3:  # noqa: PLR2004 - a level
                carried = carry_before_fence(settings)
            pause = WritePause(settings.cutover.max_pause)
            try:
                with pause.bounded():
                    carried += _run_steps_before(sessions, journal, level, folder, pause)
            except BaseException as error:
                _undo(sessions, journal, level, error)
                raise
        # The tail writes no rows meanwhile. It would take rows that are given their documents here for rows of others.
        with advisory_lock(sessions.target, ROWS_KEY):
            _reopen_source(sessions, journal, level)
    elif not journal.done("rollback-close"):
        with journal.step("rollback-close"):
            pass  # an earlier call did it, and was killed before it recorded that
    detail = journal.cutover.detail
    written = msgspec.convert(detail.get(EXPORT_KEY), Export | None)
    whole = kept.with_suffix(".rollback-2")
    if level == 2:  # noqa: PLR2004 - a level
        with journal.step("rollback-export") as step:
            tables = backup.export_target(sessions.target, whole)
            step["rows"] = tables
        _downgrade(sessions)
    return RollbackResult(
        level=level,
        documents=carried.documents,
        lost=dict(detail.get("lost", {})) | tables,
        folder="" if written is None else written.folder,
        digest="" if written is None else written.digest,
        tables=str(whole) if tables else "",
        gaps=msgspec.convert(detail.get("gaps", ()), tuple[Gap, ...]),
        unlike=msgspec.convert(detail.get(UNLIKE_KEY, ()), tuple[Gap, ...]),
    )


def _reopen_source(sessions: Sessions, journal: Journal, level: Level) -> None:
    """Open MongoDB, and close the rollback window."""
    with journal.step(REOPEN_STEP):
        number = journal.cutover.detail["epoch"] + 1
        epoch.set_target(sessions, number, "mongo")
        epoch.open_source(sessions, number)
        path = Path(journal.cutover.config_path)
        config_file.set_backend(path, "mongo", config_file.kept_path(path, "rollback", number))
        lift_source_fence(sessions, journal.cutover)
    with journal.step("rollback-close"):
        reverse_sync.drop_fence_collection(sessions)
        with sessions.target.transaction():
            outbox.close_outbox(sessions.target)
            # after a restore they have no documents: the repair removes them as extra rows
            reverse_sync.assign_documents(sessions, restored=level == 3)  # noqa: PLR2004 - a level
            reverse_sync.delete_processes(sessions)
            journal.end("rolled-back")


def _undo(sessions: Sessions, journal: Journal, level: Level, error: BaseException) -> None:
    """Lift the fence of PostgreSQL, if MongoDB is unchanged; the connection is opened again if it was lost.

    Raises ``UndoError`` if that fails: the fence is then still closed, and the next call continues.
    """

    def connected(act: Callable[[], None]) -> Callable[[], bool]:
        def unless_restoring() -> bool:
            reconnect(sessions, journal)
            if journal.begun(RESTORE_STEP):
                return False
            act()
            return True

        return lambda: retry_transient(sessions.settings, unless_restoring)

    parts = {
        "the fence of PostgreSQL": connected(lambda: fence.lift_target(sessions.target, sessions.settings.postgres))
    }
    failed = undo(parts, ("the journal", connected(lambda: journal.undo("rollback-"))))
    if failed:
        raise UndoError(failed, f"migrator rollback run --level {level}", error) from error
    if not journal.begun(RESTORE_STEP):
        say("rollback: undone: the fence is lifted, and PostgreSQL stays open", level="warning")


def _run_steps_before(
    sessions: Sessions, journal: Journal, level: Level, folder: Path, pause: WritePause
) -> reverse_sync.ReverseSyncResult:
    """Run the steps before MongoDB is opened again. Only a restore is not bounded by the write pause."""
    settings = sessions.settings
    journal.note(**{"gaps": [], UNLIKE_KEY: [], EXPORT_KEY: None})  # of a call that was interrupted
    with journal.step("rollback-fence") as detail:
        detail["level"] = level
        pause.begin()
        # at half of the limit it ends transactions that stay open
        fence.engage_target(sessions.target, settings.postgres, timedelta(seconds=pause.left() / 2))
    if level == 3:  # noqa: PLR2004 - a level
        with journal.step("rollback-export") as detail:
            rows, written = backup.export_since(sessions.target, folder, journal.cutover.began_at)
            detail["rows"] = rows
            journal.note(**{"lost": rows, EXPORT_KEY: msgspec.to_builtins(written)})
        pause.end()  # a restore that has begun must be finished
        with journal.step(RESTORE_STEP) as detail:
            # before anything is replaced: what the tail and the last parity check have read no longer exists
            positions.raise_alarm(sessions.target, sessions.profile.name, RESTORED_ALARM)
            detail["digest"] = backup.restore_source(sessions, backup_folder(settings, journal.cutover)).digest
        return reverse_sync.ReverseSyncResult()
    with journal.step("rollback-drain") as detail:
        carried = drain(sessions, pause)
        detail["documents"] = carried.documents
    with journal.step("rollback-check") as detail:
        losses_found, written = _check(sessions, journal.cutover.began_at, folder)
        detail["documents"] = losses_found.documents
        # now: after the rollback, rows no longer say that they were created on PostgreSQL
        journal.note(
            **{
                "lost": losses_found.rows,
                "gaps": msgspec.to_builtins(some_of(losses_found.gaps)),
                EXPORT_KEY: msgspec.to_builtins(written),
            }
        )
    with journal.step(FIRES_STEP) as detail:
        compared = fires.compare(sessions, losses_found, database_time(sessions.target))
        detail |= {"schedules": compared.schedules, "documents": compared.documents}
        detail["unlike"] = sum(one.schedules for one in compared.unlike)
        journal.note(**{UNLIKE_KEY: msgspec.to_builtins(some_of(compared.unlike))})
    return carried


def _lost_lines(lost: Mapping[str, int]) -> Iterator[str]:
    """Yield the values and rows that no document holds, by table and column or by table alone."""
    for place, count in lost.items():
        noun = "values" if "." in place else "rows"
        yield f"not in any document: {place}, {count:,} {noun}"


def _level_conflict(journal: Journal, level: Level) -> str:
    """Return why a rollback begun at another level must be finished at that level; empty if it need not."""
    begun = journal.cutover.detail.get(LEVEL_KEY, level)
    bound = journal.cutover.state != "rolled-back" and (journal.begun(RESTORE_STEP) or journal.begun(REOPEN_STEP))
    if not bound or begun == level or {begun, level} <= {1, 2}:
        return ""
    return f"a rollback of level {begun} was begun: call migrator rollback run --level {begun}"


def refusal(target: Connection, current: Cutover | None, level: Level) -> str:
    """Return why a rollback is not possible; empty if it is."""
    if current is None:
        return "there was no cutover, so there is nothing to roll back"
    if current.state == "cut-over":
        return ""
    if current.state == "finished":
        return (
            f"the window was closed by cutover finish at {current.ended_at:%Y-%m-%d %H:%M:%S} UTC: nothing was"
            " written to"
            " MongoDB since, so that it does not hold what was written"
        )
    if current.state == "rolled-back" and level == 2:  # noqa: PLR2004 - a level
        return ""
    if current.state == "running":
        return "" if Journal(target, current).done(POINT_OF_NO_RETURN) else BEFORE_POINT
    return f"the last cutover is {current.state}: the data is in MongoDB already"


def _is_end_unrecorded(sessions: Sessions, found: Cutover | None) -> bool:
    """Return whether an earlier call was killed after its last step, before it recorded that."""
    rolled_back = found is not None and found.state == "rolled-back"
    return found is not None and rolled_back and not Journal(sessions.target, found).done("rollback-close")


def carry_before_fence(settings: Settings) -> reverse_sync.ReverseSyncResult:
    """Carry what is noted by now while PostgreSQL is still written to, so that little is left for the write pause."""
    try:
        return reverse_sync.run(settings, noted_by_now=True)
    except RefusedError:  # another process carries it, or the cutover has still to back MongoDB up
        return reverse_sync.ReverseSyncResult()


def drain(sessions: Sessions, pause: WritePause) -> reverse_sync.ReverseSyncResult:
    """Carry all notes of the outbox; wait for the reverse sync of another process."""
    try:
        return reverse_sync.run(sessions.settings, noted_by_now=True)
    except RefusedError:
        if not reverse_sync.is_outbox_open(sessions.settings, sessions.target):
            raise
        if not outbox.wait_until_empty(sessions.target, pause.left()):
            raise UnreachableError("the reverse sync of another process does not end") from None
        return reverse_sync.ReverseSyncResult()


def _check(sessions: Sessions, since: datetime, folder: Path) -> tuple[Losses, Export | None]:
    """Compare each row created or changed since the cutover with its document, and export what no document has."""
    count, _ = outbox.backlog(sessions.target)
    if count:
        raise RefusedError(
            f"{count:,} outbox entries were added under the fence: another program still writes to the target"
        )
    writer = ExportWriter(folder)

    def export(rows: Sequence[LostRow]) -> None:
        backup.export_lost(sessions.target, writer, rows)

    survey = losses.survey(sessions, since, export)
    if survey.unwritten:
        raise ReverseSyncError(losses.unequal(survey))
    backup.export_schedules(sessions.target, writer, survey.named)
    return survey, writer.end()


def _downgrade(sessions: Sessions) -> None:
    roles = Roles.of(sessions.settings.postgres)
    revisions.downgrade(postgres_dsn(sessions.settings), names=roles, discard_rows=True)


def _config(config: Path) -> Answer:
    config_file.require_changeable(config, os.environ)
    return True, f"{config} can be changed back"


def _pause_gate(settings: Settings, compared_s: float, compared: int) -> Gate:
    """How long PostgreSQL refuses writes; ``compared_s``: what comparing so many documents took now."""
    seconds, limit = expected_rollback_pause(compared_s), settings.cutover.max_pause
    detail = (
        f"about {seconds:,.1f} s are expected, to compare {compared:,} documents with their rows"
        f" (at most {format_duration(limit)})"
    )
    if timedelta(seconds=seconds) > limit:
        return Gate(name="write pause", passed=False, words=f"{detail}: raise cutover.max_pause")
    return Gate(name="write pause", passed=True, words=detail)


def _restore_pause_gate(settings: Settings, target: Connection, current: Cutover) -> Gate:
    """How long PostgreSQL refuses writes at level 3; the limit does not hold for a restore that has begun."""
    restored = 0
    with suppress(RefusedError):  # another gate says why there is no backup
        restored = sum(one.documents for one in backup.verified_manifest(backup_folder(settings, current)).parts)
    seconds, rows = expected_restore_pause(target, current.began_at, restored)
    about = "not known: no parity check was recorded" if seconds is None else f"about {seconds:,.1f} s are expected"
    detail = f"{about}, to export {rows:,} rows and restore {restored:,} documents; without a limit while it restores"
    return Gate(name="write pause", passed=None, words=detail)


def _backup(settings: Settings, found: Cutover) -> Answer:
    manifest = backup.verified_manifest(backup_folder(settings, found))
    return True, f"digest {manifest.digest[:16]} is unchanged"
