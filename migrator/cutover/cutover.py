"""The steps of the cutover, from the first gate to the reverse sync.

If something fails or takes too long before the point of no return, the tool undoes everything: it lifts the fence, and
nothing has changed. After that point, the next call finishes the cutover. A call that was killed at any moment can be
repeated.
"""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from bson.timestamp import Timestamp
from psycopg.pq import TransactionStatus

from migrator import fault_points
from migrator.config import Settings
from migrator.connections.identity import environment_name
from migrator.connections.mongo import committed_time
from migrator.cutover import (
    backup,
    config_file,
    epoch,
    fence,
    gates,
    metrics,
    outbox,
    overdue,
    processes,
    reverse_sync,
    takeover,
)
from migrator.cutover.first_fires import FirstFires, first_fires
from migrator.cutover.gates import GateOptions
from migrator.cutover.journal import (
    POINT_OF_NO_RETURN,
    REVERSE_STOPPED,
    Cutover,
    Journal,
    Step,
    database_time,
    exclusive_sessions,
    latest,
)
from migrator.cutover.server_gates import Gate, unmet
from migrator.cutover.smoke import smoke
from migrator.cutover.undo import UndoError, reason, undo
from migrator.cutover.write_pause import WritePause, expected_pause
from migrator.errors import MigratorError, RefusedError
from migrator.parity import recheck, recorded_check
from migrator.parity.check import check_parity
from migrator.pipeline import control, hooks, locks
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import Sessions, close_cached, retry_transient
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.backlog import wait_for_tail
from migrator.pipeline.tail.loop import Tail
from migrator.schema import decisions
from migrator.schema.decisions import UNNAMED, Approval
from migrator.telemetry import say, waiting

_EPOCH: Final = "epoch"
ABORT: Final = "migrator cutover abort"
NO_BACKUP: Final = "the reverse sync had begun, so MongoDB is not as it was at the fence"
INTERRUPTED: Final = "an earlier call was interrupted before the point of no return"


class CutoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cutover."""

    cutover: Cutover
    pause_s: float
    """Seconds from before the fence until PostgreSQL was open, by the target's clock."""
    overdue: int
    compared: int
    """Documents compared under the fence."""
    resumed: bool
    """An earlier call had passed the point of no return."""
    first_fires: FirstFires
    """Schedules that do not fire at once."""


def run(settings: Settings, conditions: GateOptions, by: Approval = UNNAMED) -> CutoverResult:
    """Make the cutover, or finish one that was interrupted after the point of no return.

    Raises ``RefusedError`` if a gate is not met, another cutover runs, or the write pause would be too long. Then
    everything is as it was before. A failure after the point of no return is raised, and the next call continues.
    """
    hooks.require_programs(settings)
    try:
        with exclusive_sessions(settings) as sessions:
            current = latest(sessions.target)
            resumed = False
            if current is not None and current.state == "running":
                journal = Journal(sessions.target, current)
                resumed = journal.done(POINT_OF_NO_RETURN) and point_holds(sessions, current)
                if not resumed:
                    say(f"cutover: {INTERRUPTED}, and is undone first")
                    _undo(sessions, journal)
            if resumed and current is not None:
                if current.config_path != str(conditions.config.absolute()):
                    raise RefusedError(f"the cutover was begun for {current.config_path}: call again with that file")
                decisions.record(sessions.target, decisions.CUTOVER_AGAIN, by, cutover=str(current.id))
            else:
                journal = _pass_point(sessions, conditions, by)
            try:
                _run_steps_after(sessions, journal)
            except BaseException as error:
                call_failed(settings, journal, error)
                raise
            call_hook(settings, hooks.CUTOVER_ENDED, journal)
            return _result(journal, first_fires(sessions.target), resumed=resumed)
    finally:
        close_cached()


def abort(settings: Settings) -> Cutover:
    """Undo a cutover that was interrupted before the point of no return; raises ``RefusedError`` if there is none."""
    with exclusive_sessions(settings) as sessions:
        journal = _abortable(sessions)
        _undo(sessions, journal)
        return journal.cutover


def steps_to_undo(settings: Settings) -> list[Step]:
    """Return the steps that ``abort`` would undo, the last first, and write nothing; raises as ``abort`` does."""
    with exclusive_sessions(settings) as sessions:
        return [one for one in reversed(_abortable(sessions).steps()) if one.state != "undone"]


def _abortable(sessions: Sessions) -> Journal:
    current = latest(sessions.target)
    if current is None or current.state != "running":
        raise RefusedError("no cutover is under way: there is nothing to abort")
    journal = Journal(sessions.target, current)
    if journal.done(POINT_OF_NO_RETURN) and point_holds(sessions, current):
        raise RefusedError(
            "the point of no return is passed: call migrator cutover run, which finishes the cutover, or"
            " migrator rollback run, which rolls back"
        )
    return journal


def point_holds(sessions: Sessions, cutover: Cutover) -> bool:
    """Return whether nobody can have written since the point of no return: PostgreSQL is open, or the fence is closed.

    It is false if the target was unreachable when the point was recorded, so that the cutover was undone.
    """
    found = epoch.target_epoch(sessions)
    if found is not None and found.backend == "postgres" and found.number == cutover.detail.get(_EPOCH):
        return True
    return bool(cutover.fence) and fence.is_source_fenced(
        sessions.source, cutover.fence["kind"], cutover.fence["revoked"]
    )


def lift_source_fence(sessions: Sessions, cutover: Cutover) -> None:
    """Lift the fence of MongoDB as the journal describes it; do nothing if no fence was made."""
    if cutover.fence:
        fence.lift_source(sessions.source, cutover.fence["kind"], cutover.fence["revoked"])


def _pass_point(sessions: Sessions, conditions: GateOptions, by: Approval) -> Journal:
    """Run the steps up to the point of no return, or undo all of them."""
    met = met_gates(sessions, conditions)
    while wait_while_postponed(sessions):
        met = met_gates(sessions, conditions)
    config = conditions.config.absolute()
    number = epoch.next_number(sessions)
    journal = Journal.begin(
        sessions.target,
        environment=environment_name(sessions.settings),
        config_path=str(config),
        backup_path=str(config_file.kept_path(config, "cutover", number)),
    )
    journal.note(who=by.who, reason=by.reason)
    try:
        _run_steps_before(sessions, journal, conditions, met, number)
        with journal.step(POINT_OF_NO_RETURN) as detail:
            detail["documents"] = journal.cutover.detail.get("compared")
    except BaseException as error:
        if is_point_passed(journal):
            call_failed(sessions.settings, journal, error)
            raise
        _undo(sessions, journal, error)
        say("cutover: undone: no fence is closed, and everything is as it was before", level="warning")
        raise
    return journal


def met_gates(sessions: Sessions, conditions: GateOptions) -> list[Gate]:
    """Evaluate the gates; raise ``RefusedError`` if one is not met."""
    evaluated = gates.evaluate(sessions, conditions)
    missing = unmet(evaluated)
    if missing:
        raise RefusedError("the cutover is refused: " + "; ".join(f"{one.name}: {one.words}" for one in missing))
    return evaluated


def wait_while_postponed(sessions: Sessions, meanwhile: Callable[[], object] = lambda: None) -> bool:
    """Wait while the cutover is postponed, before any writer is stopped; return whether it was."""
    announced = ""
    while (postponed := control.read(sessions.target).postponed) is not None:
        if announced != postponed.words:
            announced = postponed.words
            waiting(f"the cutover is postponed {announced}; no writer is stopped until migrator control allow-cutover")
        fault_points.reach(fault_points.CUTOVER_POSTPONED)
        meanwhile()
        time.sleep(control.READ_EVERY_S)
    return bool(announced)


def _run_steps_before(
    sessions: Sessions, journal: Journal, conditions: GateOptions, met: list[Gate], number: int
) -> None:
    target, settings = sessions.target, sessions.settings
    limit = settings.cutover.max_pause
    pause = WritePause(limit)
    with journal.step("preflight") as detail:
        detail["gates"] = {one.name: one.words for one in met}
        detail["unknown"] = [one.name for one in met if one.passed is None]
        planned, _ = expected_pause(sessions)
        standing = positions.tail_state(target, sessions.profile.name)
        journal.note(
            epoch=number,
            pause_planned_s=planned,
            pause_limit_s=limit.total_seconds(),
            lag_s=None if standing is None else gates.lag_s(sessions, standing),
            overdue=overdue.count_late(target),
            metrics_before=metrics.journal_snapshot(settings, cut_over=False),
            **{processes.JOURNAL_KEY: processes.alive_before(settings)},
        )
    patient = msgspec.structs.replace(settings.copy, patience=limit)
    with pause.bounded(), Tail(msgspec.structs.replace(settings, copy=patient)) as tail:
        with journal.step("catch-up") as detail:
            detail["events"] = keep_up(sessions, tail)
            while wait_while_postponed(sessions, lambda: keep_up(sessions, tail)):  # it was so meanwhile
                detail["events"] += keep_up(sessions, tail)
                met_gates(sessions, conditions)
        call_hook(settings, hooks.CUTOVER_BEFORE_FENCE, journal)
        with journal.step("fence") as detail:
            kind = fence.survey_source(sessions.source).kind
            assert kind is not None  # noqa: S101 - a gate has seen to it
            revoked = fence.revocable_roles(sessions.source) if kind == "roles" else []
            journal.fenced(kind, revoked)
            epoch.set_target(sessions, number, "mongo")  # no process begins there too early
            pause.begin()
            # The epoch also stops the tool's own processes that log in as the tool's user, whom the fence lets through.
            # The fence waits for what they began before.
            epoch.close_source(sessions, number)
            fence.engage_source(sessions.source, kind, revoked, timedelta(seconds=max(0.0, pause.left())))
            detail["kind"] = kind
        position = committed_time(sessions.source)
        journal.note(position={"t": position.time, "i": position.inc})
        call_hook(settings, hooks.CUTOVER_FENCED, journal, at_most_s=pause.left())
        with journal.step("drain") as detail:
            pause.check()
            detail["events"] = catch_up(sessions, tail, position, pause)
        with journal.step("parity") as detail:
            pause.check()
            documents = compare(sessions, position, pause)
            detail["documents"] = documents
            journal.note(compared=documents)
        with journal.step("outbox"):
            pause.check()
            if fence.is_target_fenced(target, settings.postgres):
                fence.lift_target(target, settings.postgres)  # an earlier rollback left it
            outbox.open_outbox(target)
        pause.check()


def _run_steps_after(sessions: Sessions, journal: Journal) -> None:
    """Run the steps after the point of no return that are not done."""
    steps: dict[str, Callable[[Sessions, Journal, dict[str, Any]], None]] = {
        "open-target": _open_target,
        "smoke": _smoke,
        "backup": back_up,
        "reverse-sync": carry_first,
    }
    for name, act in steps.items():
        if not journal.done(name):
            with journal.step(name) as detail:
                act(sessions, journal, detail)
            if name == "open-target":
                call_hook(sessions.settings, hooks.CUTOVER_OPENED, journal)
    journal.end("cut-over")


def call_hook(settings: Settings, point: str, journal: Journal, *, at_most_s: float | None = None) -> None:
    """Call a hook with the state of the cutover; note in the journal that it failed."""
    if not hooks.commands(settings.hooks)[point]:
        return
    current = journal.cutover
    told = {
        name: current.detail.get(name) for name in ("epoch", "pause_s", "pause_limit_s", "lag_s", "compared", "who")
    }
    state = {"cutover": current.state, "steps": {one.step: one.state for one in journal.steps()}, **told}
    failed = hooks.call(settings, point, state, identity=current.id, at_most_s=at_most_s)
    if failed:
        journal.note(**{f"hook_{point}": failed})


def call_failed(settings: Settings, journal: Journal, error: BaseException, not_undone: tuple[str, ...] = ()) -> None:
    """Call the hook of a cutover that failed; the target may be unreachable. ``not_undone``: parts of a failed undo."""
    state = {"cutover": journal.cutover.state, "error": reason(error), "not_undone": list(not_undone)}
    hooks.call(settings, hooks.CUTOVER_FAILED, state, identity=journal.cutover.id)


def _open_target(sessions: Sessions, journal: Journal, detail: dict[str, Any]) -> None:
    """Close MongoDB, fire what is overdue, change the file, open PostgreSQL: in this order, each idempotent."""
    number = journal.cutover.detail[_EPOCH]
    epoch.close_source(sessions, number)
    # From now on every handler runs here. It comes first: what is overdue fires as in any cutover.
    ended = takeover.take_over(sessions.target, sessions.profile, sessions.settings.cutover.slot_tolerance)
    if ended is not None:
        detail |= {"runs_skipped": ended.skipped, "slots_freed": ended.freed}
    stands = epoch.target_epoch(sessions)
    if stands is None or stands.backend != "postgres":
        detail["overdue"] = overdue.fire_late(sessions.settings, sessions.target, sessions.settings.cutover.overdue)
    config_file.set_backend(Path(journal.cutover.config_path), "postgres", Path(journal.cutover.backup_path))
    epoch.set_target(sessions, number, "postgres")
    if "pause_s" not in journal.cutover.detail:
        began = next((one.began_at for one in journal.steps() if one.step == "fence"), None)
        pause = None if began is None else (database_time(sessions.target) - began).total_seconds()
        journal.note(pause_s=pause and round(pause, 3))
    told = journal.cutover.detail
    by = Approval(told.get("who", UNNAMED.who), told.get("reason", UNNAMED.reason))
    decisions.record(sessions.target, decisions.CUTOVER, by, cutover=str(journal.cutover.id))


def _smoke(sessions: Sessions, journal: Journal, detail: dict[str, Any]) -> None:
    detail |= smoke(Path(journal.cutover.config_path))
    journal.note(metrics_at_cutover=metrics.journal_snapshot(sessions.settings, cut_over=True))


def back_up(sessions: Sessions, journal: Journal, detail: dict[str, Any]) -> None:
    """Export MongoDB as it was at the fence, if the settings want it and the reverse sync has not begun."""
    if not sessions.settings.cutover.backup:
        detail["skipped"] = True
        return
    folder = backup_folder(sessions.settings, journal.cutover)
    if not folder.exists() and reverse_sync.has_begun(sessions):  # a rollback began, and was undone
        detail["skipped"] = NO_BACKUP
        say(f"cutover: no backup, so that a rollback of level 3 is not possible: {NO_BACKUP}", level="warning")
        return
    manifest = backup.export_source(sessions, folder)
    detail |= {
        "folder": str(folder),
        "digest": manifest.digest,
        "documents": sum(one.documents for one in manifest.parts),
    }
    journal.note(backup=str(folder), backup_digest=manifest.digest)


def backup_folder(settings: Settings, cutover: Cutover) -> Path:
    """Return the folder of a cutover's backup: next to the configuration, unless the setting is absolute."""
    return Path(cutover.config_path).parent / settings.cutover.backup_directory / f"cutover-{cutover.id}"


def carry_first(sessions: Sessions, journal: Journal, detail: dict[str, Any]) -> None:
    """Carry what was written since the point of no return, if possible; `migrator tail` continues it.

    A failure does not end the cutover, because PostgreSQL is open. It is recorded, and the operator is told.
    """
    detail["documents"] = None
    try:
        detail["documents"] = reverse_sync.run(sessions.settings, noted_by_now=True).documents
    except RefusedError:
        pass  # `migrator tail` does it already
    except MigratorError as error:
        say(f"cutover: the reverse sync stopped: {error}", level="warning")
        journal.note(**{REVERSE_STOPPED: str(error)})


def catch_up(sessions: Sessions, tail: Tail, goal: Timestamp, pause: WritePause | None) -> int:
    """Bring the target up to a position, by our own tail or by the one that runs; return the number of events."""
    if locks.is_tail_running(sessions.target) and not tail.following:
        _wait_for_other_tail(sessions, goal, pause)
        return 0
    stop = threading.Event()
    timer = threading.Timer(pause.left() if pause is not None else 3_600.0, stop.set)
    timer.start()
    try:
        done = tail.run(goal, stop)
    finally:
        timer.cancel()
    if not done.applied:
        raise RefusedError(f"rows are not up to date: {done.reason}")
    if not done.reached or done.owed:
        raise RefusedError(
            "the write pause would exceed its limit: the tail did not reach the position of the fence in time"
        )
    return done.events


def keep_up(sessions: Sessions, tail: Tail) -> int:
    """Bring the target up to what the source has committed by now; return the number of events."""
    return catch_up(sessions, tail, committed_time(sessions.source), None)


def _wait_for_other_tail(sessions: Sessions, goal: Timestamp, pause: WritePause | None) -> None:
    """Wait until the tail of another process has reached a position and has nothing pending."""
    seconds = pause.left() if pause is not None else sessions.settings.copy.patience.total_seconds()
    if not wait_for_tail(sessions, goal, seconds, derived=True):
        raise RefusedError(
            "the write pause would exceed its limit: the running tail did not reach the position of the fence"
        )


def compare(sessions: Sessions, position: Timestamp, pause: WritePause) -> int:
    """Compare what changed since the last clean parity check, or everything; return the number of documents."""
    last = recorded_check.last_check(sessions.target)
    if last is None or not last.clean:
        raise RefusedError("the last complete parity check found differences")
    changed = recheck.changed_since(sessions, last.position, position)
    if changed is not None:
        comparison = recorded_check.compare_changed(sessions, changed)
        if comparison.wrong:
            places = "; ".join(f"{name}: {', '.join(ids)}" for name, ids in comparison.wrong.items())
            raise RefusedError(f"the parity check under the fence found differences: {places}")
        return comparison.documents
    if last.seconds > pause.left():
        raise RefusedError(
            f"the write pause would exceed its limit: everything must be compared, which took {last.seconds:,.0f} s"
            " before; call migrator parity shortly before the cutover"
        )
    outcome = check_parity(sessions.settings, Scope(), throttled=False)
    if not recorded_check.is_complete(outcome) or not recorded_check.is_clean(outcome):
        raise RefusedError("the parity check under the fence found differences: call migrator parity")
    return sum(one.documents for one in outcome.collections)


def _undo(sessions: Sessions, journal: Journal, error: BaseException | None = None) -> None:
    """Undo all steps, and call the hook of a failed cutover; ``error``: what failed, None for an interrupted call.

    The fence comes first, so that writers can continue even if the target is unreachable. The source is waited for:
    otherwise its writers would meet the fence when it comes back. The journal says "aborted" only if everything is
    undone. Otherwise raises ``UndoError``, also after the hook was told.
    """
    settings, number = sessions.settings, journal.cutover.detail.get(_EPOCH, 0)

    def on_source(act: Callable[[], object]) -> Callable[[], object]:
        return lambda: retry_transient(settings, act)

    def on_target(act: Callable[[], object]) -> Callable[[], object]:
        def connected() -> None:
            reconnect(sessions, journal)
            act()

        return connected

    parts = {
        "the epoch of MongoDB": on_source(lambda: _reopen_epoch(sessions, journal.cutover)),
        "the fence of MongoDB": on_source(lambda: lift_source_fence(sessions, journal.cutover)),
        "the configuration file": lambda: _restore_file(journal.cutover),
        "the outbox of PostgreSQL": on_target(lambda: outbox.close_outbox(sessions.target)),
        "the epoch of PostgreSQL": on_target(lambda: epoch.undo_target(sessions, number)),
    }
    failed: dict[str, str] | None = None
    try:
        failed = undo(parts, ("the journal", on_target(journal.abort)))
    finally:  # also if it was interrupted
        not_undone = (*parts, "the journal") if failed is None else tuple(failed)
        call_failed(settings, journal, error or RefusedError(INTERRUPTED), not_undone)
    if failed:
        raise UndoError(failed, ABORT, error) from error


def reconnect(sessions: Sessions, journal: Journal) -> None:
    """Connect to the target again if the connection was lost, or left in the middle of a statement."""
    if not sessions.target.closed and sessions.target.info.transaction_status != TransactionStatus.IDLE:
        sessions.target.close()
    if sessions.target.closed:
        sessions.open_target()
        journal.reconnect(sessions.target)


def _reopen_epoch(sessions: Sessions, cutover: Cutover) -> None:
    found = epoch.source_epoch(sessions)
    if found is not None and found.backend == "postgres" and found.number == cutover.detail.get(_EPOCH):
        epoch.open_source(sessions, found.number)


def _restore_file(cutover: Cutover) -> None:
    if Path(cutover.config_path).exists():  # without the file nothing can name PostgreSQL
        config_file.set_backend(Path(cutover.config_path), "mongo", Path(f"{cutover.config_path}.undone"))


def is_point_passed(journal: Journal) -> bool:
    """Return whether the point of no return was recorded; false if the target cannot be read."""
    try:
        return journal.done(POINT_OF_NO_RETURN)
    except psycopg.Error:
        return False


def _result(journal: Journal, first: FirstFires, *, resumed: bool) -> CutoverResult:
    detail = journal.cutover.detail
    return CutoverResult(
        cutover=journal.cutover,
        pause_s=float(detail.get("pause_s") or 0.0),
        overdue=int(detail.get("overdue") or 0),
        compared=int(detail.get("compared") or 0),
        resumed=resumed,
        first_fires=first,
    )
