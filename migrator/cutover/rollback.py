"""The rollback, in three levels.

1. PostgreSQL is fenced. What was written since the cutover goes to MongoDB. Epoch and configuration are changed back,
   and the fence of MongoDB is lifted. Only values for which documents have no place are lost: they are counted, and
   written into a file.
2. Level 1. Then the schema is downgraded over all revisions, with its rows. All rows are exported before.
3. MongoDB is restored from the backup of the cutover. What was written since then is exported, and not carried.
   PostgreSQL keeps its rows. The tail gets an alarm, so that the next cutover needs a parity check with repair first.

Each step is journaled and idempotent. The last step of level 2 removes the journal. A call that was killed is repeated,
and continues.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import psycopg

from migrator.config import Settings, postgres_dsn
from migrator.connections.advisory_locks import advisory_lock
from migrator.connections.postgres import Connection, target_connection
from migrator.cutover import backup, cleanup, config_file, epoch, fence, outbox, reverse_sync
from migrator.cutover.cutover import backup_folder, lift_source_fence, point_holds
from migrator.cutover.journal import Cutover, Journal, exclusive_sessions, latest
from migrator.cutover.rollback_gaps import Gap, find_gaps, gap_lines
from migrator.cutover.server_gates import Gate
from migrator.cutover.steps import LEVEL_KEY, POINT_OF_NO_RETURN, REOPEN_STEP, RESTORE_STEP
from migrator.errors import MigratorError, RefusedError, UnreachableError
from migrator.pipeline import hooks
from migrator.pipeline.locks import ROWS_KEY
from migrator.pipeline.sessions import Sessions, close_cached, retry_transient
from migrator.pipeline.tail import positions
from migrator.schema import decisions, revisions
from migrator.schema.decisions import UNNAMED, Approval
from migrator.schema.security import Roles
from migrator.sources import profile_of
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
    """``table.column`` → documents that have no place for it; ``table``: rows in the files."""
    folder: str = ""
    """Folder of the files with what would be lost."""
    gaps: tuple[Gap, ...] = ()
    """Schedules written back that the old application does not fire, or cannot read."""
    left: tuple[str, ...] = ()
    """What is still on both servers and in files, and why."""


def gates(settings: Settings, config: Path, level: Level) -> list[Gate]:
    """Return the gates of a rollback, evaluated now."""
    with target_connection(settings) as target:
        found = latest(target)
        why_not = _refusal(target, found, level)
        gates = [Gate(name="window", passed=not why_not, words=why_not or "open")]
        if found is None:
            return gates
        other = _level_conflict(Journal(target, found), level)
        gates.append(Gate(name="level", passed=not other, words=other or f"level {level}"))
        count, age = outbox.backlog(target)
        gates.append(
            Gate(name="outbox", passed=None, words=f"{count:,} outbox entries wait, the oldest for {age:,.0f} s")
        )
        through = fence.unstopped_on_target(target, settings.postgres)
        words = f"does not stop {', '.join(through)}" if through else "stops every user but the tool"
        gates.append(Gate(name="fence of the target", passed=None if through else True, words=words))
        gates.append(_config_gate(config))
        if level != 3:  # noqa: PLR2004 - a level; it carries nothing
            profile = profile_of(settings.source)
            gap_texts = list(gap_lines(find_gaps(target, profile, settings.source)))
            gap_texts += _lost_lines(reverse_sync.lost_columns(target) | reverse_sync.lost_rows(target, profile))
            gates += [Gate(name="written back", passed=None, words=words) for words in gap_texts]
        if level == 3:  # noqa: PLR2004 - a level
            gates.append(_backup_gate(settings, found))
    return gates


def run(settings: Settings, config: Path, level: Level, by: Approval = UNNAMED) -> RollbackResult:
    """Roll back; raises ``RefusedError`` if the window is closed, or if a backup was changed."""
    hooks.require_programs(settings)
    try:
        with exclusive_sessions(settings) as sessions:
            found = latest(sessions.target)
            why_not = "" if _is_end_unrecorded(sessions, found) else _refusal(sessions.target, found, level)
            if found is None or why_not:
                raise RefusedError(why_not)
            if found.state == "running" and not point_holds(sessions, found):
                raise RefusedError(BEFORE_POINT)
            if other := _level_conflict(Journal(sessions.target, found), level):
                raise RefusedError(other)
            config_file.require_changeable(config, os.environ)
            if found.config_path != str(config.absolute()):
                raise RefusedError(f"the cutover was made with {found.config_path}: call again with that file")
            if level == 3:  # noqa: PLR2004 - a level
                backup.verified_manifest(backup_folder(settings, found))  # before anything is changed
            decisions.record(sessions.target, decisions.ROLLBACK, by, cutover=str(found.id), level=level)
            done = _run(sessions, Journal(sessions.target, found), level)
            state = {"level": level, "documents": done.documents, "lost": done.lost}
            hooks.call(settings, hooks.ROLLBACK_ENDED, state, identity=found.id)
            return msgspec.structs.replace(done, left=cleanup.after_rollback(sessions, found))
    finally:
        close_cached()


def _run(sessions: Sessions, journal: Journal, level: Level) -> RollbackResult:
    settings = sessions.settings
    folder = backup_folder(settings, journal.cutover).with_suffix(f".rollback-{level}")
    carried = reverse_sync.ReverseSyncResult()
    lost: dict[str, int] = {}
    journal.note(**{LEVEL_KEY: level})
    if journal.cutover.state in ("cut-over", "running"):
        if not journal.begun(REOPEN_STEP):
            try:
                carried, lost = _run_steps_before(sessions, journal, level, folder)
            except BaseException:
                with suppress(psycopg.Error, MigratorError):  # the first error says more; the next call continues
                    retry_transient(settings, lambda: _undo(sessions, journal.cutover))
                raise
        # The tail writes no rows meanwhile. It would take rows that are given their documents here for rows of others.
        with advisory_lock(sessions.target, ROWS_KEY):
            _reopen_source(sessions, journal, level)
    elif not journal.done("rollback-close"):
        with journal.step("rollback-close"):
            pass  # an earlier call did it, and was killed before it recorded that
    if level == 2:  # noqa: PLR2004 - a level
        with journal.step("rollback-export") as detail:
            lost = backup.export_target(sessions.target, folder)
            detail["rows"] = lost
        _downgrade(sessions)
    return RollbackResult(
        level=level,
        documents=carried.documents,
        lost=lost,
        folder=str(folder) if lost else "",
        gaps=msgspec.convert(journal.cutover.detail.get("gaps", ()), tuple[Gap, ...]),
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


def _undo(sessions: Sessions, cutover: Cutover) -> None:
    """Lift the fence of PostgreSQL, if MongoDB is unchanged; the connection is opened again if it was lost."""
    if sessions.target.closed:
        sessions.open_target()
    journal = Journal(sessions.target, cutover)
    if not journal.begun(RESTORE_STEP):
        fence.lift_target(sessions.target, sessions.settings.postgres)
        journal.undo("rollback-")
        say("rollback: undone: the fence is lifted, and PostgreSQL stays open", level="warning")


def _run_steps_before(
    sessions: Sessions, journal: Journal, level: Level, folder: Path
) -> tuple[reverse_sync.ReverseSyncResult, dict[str, int]]:
    """Run the steps before MongoDB is opened again."""
    settings = sessions.settings
    carried, lost = reverse_sync.ReverseSyncResult(), {}
    with journal.step("rollback-fence") as detail:
        detail["level"] = level
        fence.engage_target(sessions.target, settings.postgres, settings.cutover.max_pause)
    if level == 3:  # noqa: PLR2004 - a level
        with journal.step("rollback-export") as detail:
            lost = backup.export_since(sessions.target, folder, journal.cutover.began_at)
            detail["rows"] = lost
        with journal.step(RESTORE_STEP) as detail:
            # before anything is replaced: what the tail and the last parity check have read no longer exists
            positions.raise_alarm(sessions.target, sessions.profile.name, RESTORED_ALARM)
            detail["digest"] = backup.restore_source(sessions, backup_folder(settings, journal.cutover)).digest
        return carried, lost
    with journal.step("rollback-drain") as detail:
        carried = _drain(sessions)
        detail["documents"] = carried.documents
    with journal.step("rollback-check") as detail:
        detail["documents"] = _check(sessions, journal.cutover.began_at)
    # now: after the rollback, rows no longer say that they were created on PostgreSQL
    journal.note(gaps=msgspec.to_builtins(find_gaps(sessions.target, sessions.profile, settings.source)))
    columns, rows = (
        reverse_sync.lost_columns(sessions.target),
        reverse_sync.lost_rows(sessions.target, sessions.profile),
    )
    if columns:
        backup.export_columns(sessions.target, folder, columns)
    if rows:
        backup.export_created(sessions.target, folder, rows)
        journal.note(lost=columns | rows)
    return carried, columns | rows


def _lost_lines(lost: Mapping[str, int]) -> Iterator[str]:
    """Yield what no document holds, by table and column or by table alone."""
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


def _refusal(target: Connection, found: Cutover | None, level: Level) -> str:
    """Return why a rollback is not possible; empty if it is."""
    if found is None:
        return "there was no cutover, so there is nothing to roll back"
    if found.state == "cut-over":
        return ""
    if found.state == "finished":
        return (
            f"the window was closed by cutover finish at {found.ended_at:%Y-%m-%d %H:%M:%S} UTC: nothing was written to"
            " MongoDB since, so that it does not hold what was written"
        )
    if found.state == "rolled-back" and level == 2:  # noqa: PLR2004 - a level
        return ""
    if found.state == "running":
        return "" if Journal(target, found).done(POINT_OF_NO_RETURN) else BEFORE_POINT
    return f"the last cutover is {found.state}: the data is in MongoDB already"


def _is_end_unrecorded(sessions: Sessions, found: Cutover | None) -> bool:
    """Return whether an earlier call was killed after its last step, before it recorded that."""
    rolled_back = found is not None and found.state == "rolled-back"
    return found is not None and rolled_back and not Journal(sessions.target, found).done("rollback-close")


def _drain(sessions: Sessions) -> reverse_sync.ReverseSyncResult:
    """Carry all notes of the outbox; wait for the reverse sync of another process."""
    try:
        return reverse_sync.run(sessions.settings, noted_by_now=True)
    except RefusedError:
        if not outbox.is_open(sessions.target):
            raise
        if not outbox.wait_until_empty(sessions.target, sessions.settings.copy.patience.total_seconds()):
            raise UnreachableError("the reverse sync of another process does not end") from None
        return reverse_sync.ReverseSyncResult()


def _check(sessions: Sessions, since: datetime) -> int:
    """Compare each row created or changed since the cutover with its document; return the number of documents."""
    count, _ = outbox.backlog(sessions.target)
    if count:
        raise RefusedError(
            f"{count:,} outbox entries were added under the fence: another program still writes to the target"
        )
    return reverse_sync.check_written(sessions, since)


def _downgrade(sessions: Sessions) -> None:
    roles = Roles.of(sessions.settings.postgres)
    revisions.downgrade(postgres_dsn(sessions.settings), names=roles, discard_rows=True)


def _config_gate(config: Path) -> Gate:
    try:
        config_file.require_changeable(config, os.environ)
    except RefusedError as error:
        return Gate(name="configuration", passed=False, words=str(error))
    return Gate(name="configuration", passed=True, words=f"{config} can be changed back")


def _backup_gate(settings: Settings, found: Cutover) -> Gate:
    try:
        manifest = backup.verified_manifest(backup_folder(settings, found))
    except RefusedError as error:
        return Gate(name="backup", passed=False, words=str(error))
    return Gate(name="backup", passed=True, words=f"digest {manifest.digest[:16]} is unchanged")
