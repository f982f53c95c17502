"""The procedure of a cutover, whatever its target: the order of the steps, their undoing, what a new call continues.

If something fails or takes too long before the point of no return, the tool undoes everything: it lifts the fence, and
nothing has changed. After that point, the next call finishes the cutover. A call that was killed at any moment can be
repeated. What depends on the target is a ``CutoverTarget``.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
import psycopg
from bson.timestamp import Timestamp
from psycopg.pq import TransactionStatus

from migrator import fault_points
from migrator.config import Settings
from migrator.connections.mongo import committed_time
from migrator.connections.postgres import Connection
from migrator.cutover import backup, fence, gates, reverse_sync, server_gates
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
from migrator.cutover.server_gates import Gate, in_the_way
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

ABORT: Final = "migrator cutover abort"
NO_BACKUP: Final = "the reverse sync had begun, so MongoDB is not as it was at the fence"
INTERRUPTED: Final = "an earlier call was interrupted before the point of no return"

GROUP: Final = (
    "a cutover moves the whole source: one record says for all its collections and tenants which side is active; a"
    " group of collections has a configuration and a mapping of its own, with cutover.fence set to collections (the"
    " runbook says how); call it without {options}"
)

Result = TypeVar("Result")
Act: TypeAlias = Callable[[Journal, dict[str, Any]], None]
"""A step after the point of no return: fills what the journal keeps of it."""


class CutoverTarget(ABC, Generic[Result]):
    """What of a cutover depends on its target; ``Result`` is what ``run`` returns.

    Each method may be called again after an interruption.
    """

    MADE: ClassVar[str] = ""
    """Why ``abort`` is refused of a cutover that is made; empty: as if there were none."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions: Final = sessions

    @abstractmethod
    def begin(self, conditions: GateOptions) -> Journal:
        """Return the journal of a new cutover."""

    @abstractmethod
    def is_open(self, journal: Journal) -> bool:
        """Return whether the target accepts the writes of the application since this cutover."""

    @abstractmethod
    def open_outbox(self) -> None:
        """Record from now on what is written to the target, which stays closed to the application."""

    @abstractmethod
    def steps_after(self) -> Mapping[str, Act]:
        """Return the steps after the point of no return, in order, by name; the first is ``open-target``."""

    @abstractmethod
    def undo_parts(self, journal: Journal) -> Mapping[str, Callable[[], object]]:
        """Return the parts of the undoing of the steps before the point of no return, by name, in order."""

    @abstractmethod
    def ended(self, journal: Journal, *, resumed: bool) -> Result:
        """Return the result of a cutover whose steps are done."""

    def require_resumable(self, journal: Journal, conditions: GateOptions) -> None:
        """Raise ``RefusedError`` if a call with these conditions cannot finish the cutover of the journal."""

    def noted_before(self) -> Mapping[str, Any]:
        """Return the measurements of the time before the cutover, for the journal."""
        return {}

    def before_fence(self, journal: Journal) -> None:
        """Make the steps that only this target has, while writers continue."""

    def require_stopped(self) -> None:
        """Raise ``RefusedError`` while an application works that the fence would not stop."""

    def announce(self, journal: Journal) -> None:
        """Say in the target that no process begins there yet; the write pause has not begun."""

    def stop_own(self, journal: Journal) -> None:
        """Stop the tool's own processes, which the fence lets through; the write pause has begun."""

    def on_source(self, act: Callable[[], object]) -> Callable[[], object]:
        """Return a part of the undoing that waits for MongoDB: its writers would meet the fence when it comes back."""
        return lambda: retry_transient(self.sessions.settings, act)

    def on_target(self, journal: Journal, act: Callable[[], object]) -> Callable[[], object]:
        """Return a part of the undoing that connects to the target again, if it must."""

        def connected() -> None:
            reconnect(self.sessions, journal)
            act()

        return connected

    def lifted_fence(self, journal: Journal) -> Callable[[], object]:
        """Return the part of the undoing that lifts the fence of MongoDB."""
        return self.on_source(lambda: lift_source_fence(self.sessions, journal.cutover))


Make: TypeAlias = Callable[[Sessions], CutoverTarget[Result]]


def run(make: Make[Result], settings: Settings, conditions: GateOptions, by: Approval = UNNAMED) -> Result:
    """Make the cutover, or finish one that was interrupted after the point of no return.

    Raises ``RefusedError`` if a gate is not met, another cutover runs, or the write pause would be too long. Then
    everything is as it was before. A failure after the point of no return is raised, and the next call continues.
    """
    hooks.require_programs(settings)
    try:
        with exclusive_sessions(settings) as sessions:
            target = make(sessions)
            current = latest(sessions.target)
            resumed = False
            if current is not None and current.state == "running":
                journal = Journal(sessions.target, current)
                resumed = point_holds(target, journal)
                if not resumed:
                    say(f"cutover: {INTERRUPTED}, and is undone first")
                    _undo(target, journal)
            if resumed:
                target.require_resumable(journal, conditions)
                decisions.record(sessions.target, decisions.CUTOVER_AGAIN, by, cutover=str(journal.cutover.id))
            else:
                journal = _pass_point(target, conditions, by)
            try:
                _run_steps_after(target, journal)
            except BaseException as error:
                call_failed(settings, journal, error)
                raise
            return target.ended(journal, resumed=resumed)
    finally:
        close_cached()


def require_whole(only: Sequence[str], tenants: Sequence[str]) -> None:
    """Raise ``RefusedError`` if a cutover is asked for some collections, or some tenants, while the others stay.

    A role of MongoDB gives the rights on a collection, and none on the documents of one tenant. What the tool can take
    away are roles that a person made; those of an application nearly always reach all collections of the scheduler.
    """
    options = [name for name, given in (("--only", only), ("--tenant", tenants)) if given]
    if options:
        raise RefusedError(GROUP.format(options=" and ".join(options)))


def abort(make: Make[Any], settings: Settings) -> Cutover:
    """Undo a cutover that was interrupted before the point of no return; raises ``RefusedError`` if there is none."""
    with exclusive_sessions(settings) as sessions:
        target = make(sessions)
        journal = _abortable(target)
        _undo(target, journal)
        return journal.cutover


def steps_to_undo(make: Make[Any], settings: Settings) -> list[Step]:
    """Return the steps that ``abort`` would undo, the last first, and write nothing; raises as ``abort`` does."""
    with exclusive_sessions(settings) as sessions:
        return [one for one in reversed(_abortable(make(sessions)).steps()) if one.state != "undone"]


def _abortable(target: CutoverTarget[Any]) -> Journal:
    current = latest(target.sessions.target)
    if current is not None and current.state == "cut-over" and target.MADE:
        raise RefusedError(target.MADE)
    if current is None or current.state != "running":
        raise RefusedError("no cutover is under way: there is nothing to abort")
    journal = Journal(target.sessions.target, current)
    if point_holds(target, journal):
        raise RefusedError(
            "the point of no return is passed: call migrator cutover run, which finishes the cutover, or"
            " migrator rollback run, which rolls back"
        )
    return journal


def point_holds(target: CutoverTarget[Any], journal: Journal) -> bool:
    """Return whether the point of no return is passed, and nobody can have written to MongoDB since.

    It does not hold if the target was unreachable when the point was recorded, so that the cutover was undone.
    """
    fenced = journal.cutover.fence
    return journal.done(POINT_OF_NO_RETURN) and (
        target.is_open(journal)
        or (bool(fenced) and fence.is_source_fenced(target.sessions.source, fenced["kind"], fenced["revoked"]))
    )


def lift_source_fence(sessions: Sessions, cutover: Cutover) -> None:
    """Lift the fence of MongoDB as the journal describes it; do nothing if no fence was made."""
    if cutover.fence:
        fence.lift_source(sessions.source, cutover.fence["kind"], cutover.fence["revoked"])


def _pass_point(target: CutoverTarget[Any], conditions: GateOptions, by: Approval) -> Journal:
    """Run the steps up to the point of no return, or undo all of them."""
    sessions = target.sessions
    met = met_gates(sessions, conditions)
    while wait_while_postponed(sessions):
        met = met_gates(sessions, conditions)
    journal = target.begin(conditions)
    journal.note(who=by.who, reason=by.reason)
    try:
        _run_steps_before(target, journal, conditions, met)
        with journal.step(POINT_OF_NO_RETURN) as detail:
            detail["documents"] = journal.cutover.detail.get("compared")
    except BaseException as error:
        if is_point_passed(journal):
            call_failed(sessions.settings, journal, error)
            raise
        _undo(target, journal, error)
        say("cutover: undone: no fence is closed, and everything is as it was before", level="warning")
        raise
    return journal


def met_gates(sessions: Sessions, conditions: GateOptions) -> list[Gate]:
    """Evaluate the gates; raise ``RefusedError`` if one is not met."""
    evaluated = gates.evaluate(sessions, conditions)
    missing = in_the_way(evaluated)
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


def _run_steps_before(target: CutoverTarget[Any], journal: Journal, conditions: GateOptions, met: list[Gate]) -> None:
    sessions, settings = target.sessions, target.sessions.settings
    limit = settings.cutover.max_pause
    pause = WritePause(limit)
    with journal.step("preflight") as detail:
        detail["gates"] = {one.name: one.words for one in met}
        detail["unknown"] = [one.name for one in met if one.passed is None]
        planned = expected_pause(sessions).seconds
        state = positions.tail_state(sessions.target, sessions.profile.name)
        journal.note(
            pause_planned_s=planned,
            pause_limit_s=limit.total_seconds(),
            lag_s=None if state is None else gates.lag_s(sessions, state),
            **target.noted_before(),
        )
    patient = msgspec.structs.replace(settings.copy, patience=limit)
    with pause.bounded(), Tail(msgspec.structs.replace(settings, copy=patient)) as tail:
        with journal.step("catch-up") as detail:
            detail["events"] = keep_up(sessions, tail)
            while wait_while_postponed(sessions, lambda: keep_up(sessions, tail)):  # it was so meanwhile
                detail["events"] += keep_up(sessions, tail)
                met_gates(sessions, conditions)
        target.before_fence(journal)
        call_hook(settings, hooks.CUTOVER_BEFORE_FENCE, journal)
        with journal.step("fence") as detail:
            target.require_stopped()
            held = server_gates.held_collections(settings, sessions.profile)
            kind = server_gates.fence_survey(sessions.source, settings, held).kind
            assert kind is not None  # noqa: S101 - a gate has seen to it
            revoked = [] if kind == "write-block" else fence.revocable_roles(sessions.source, held)
            journal.fenced(kind, revoked, held)
            target.announce(journal)
            pause.begin()
            target.stop_own(journal)  # the fence waits for what they began before
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
            target.open_outbox()
        pause.check()


def _run_steps_after(target: CutoverTarget[Any], journal: Journal) -> None:
    """Run the steps after the point of no return that are not done."""
    for name, act in target.steps_after().items():
        if not journal.done(name):
            with journal.step(name) as detail:
                act(journal, detail)
            if name == "open-target":
                call_hook(target.sessions.settings, hooks.CUTOVER_OPENED, journal)
    journal.end("cut-over")


def record_opened(target: Connection, journal: Journal) -> None:
    """Record that the target is open: the write pause, and whose decision it was."""
    if "pause_s" not in journal.cutover.detail:
        began = next((one.began_at for one in journal.steps() if one.step == "fence"), None)
        pause = None if began is None else (database_time(target) - began).total_seconds()
        journal.note(pause_s=pause and round(pause, 3))
    told = journal.cutover.detail
    by = Approval(told.get("who", UNNAMED.who), told.get("reason", UNNAMED.reason))
    decisions.record(target, decisions.CUTOVER, by, cutover=str(journal.cutover.id))


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


def _undo(target: CutoverTarget[Any], journal: Journal, error: BaseException | None = None) -> None:
    """Undo all steps, and call the hook of a failed cutover; ``error``: what failed, None for an interrupted call.

    The fence comes first, so that writers can continue even if the target is unreachable. The journal says "aborted"
    only if everything is undone. Otherwise raises ``UndoError``, also after the hook was told.
    """
    parts = target.undo_parts(journal)
    failed: dict[str, str] | None = None
    try:
        failed = undo(parts, ("the journal", target.on_target(journal, journal.abort)))
    finally:  # also if it was interrupted
        not_undone = (*parts, "the journal") if failed is None else tuple(failed)
        call_failed(target.sessions.settings, journal, error or RefusedError(INTERRUPTED), not_undone)
    if failed:
        raise UndoError(failed, ABORT, error) from error


def reconnect(sessions: Sessions, journal: Journal) -> None:
    """Connect to the target again if the connection was lost, or left in the middle of a statement."""
    if not sessions.target.closed and sessions.target.info.transaction_status != TransactionStatus.IDLE:
        sessions.target.close()
    if sessions.target.closed:
        sessions.open_target()
        journal.reconnect(sessions.target)


def is_point_passed(journal: Journal) -> bool:
    """Return whether the point of no return was recorded; false if the target cannot be read."""
    try:
        return journal.done(POINT_OF_NO_RETURN)
    except psycopg.Error:
        return False
