"""The end of a cutover: the rollback window is closed, after its hours or by a person's decision."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.cutover import cleanup, epoch, fence, late_writes, outbox, reverse_sync
from migrator.cutover.journal import (
    CONFIRM_STEP,
    FINISH_STEP,
    POINT_OF_NO_RETURN,
    RELEASE_STEP,
    Cutover,
    Journal,
    database_time,
    exclusive_sessions,
    latest,
    unfinished_level,
    window_end,
)
from migrator.cutover.library_tables import library_tables
from migrator.cutover.procedure import lift_source_fence
from migrator.cutover.server_gates import Gate
from migrator.durations import format_duration
from migrator.errors import LockedError, RefusedError, UnreachableError
from migrator.exit_status import Allowance
from migrator.pipeline.sessions import Sessions, lock_holders_named
from migrator.pipeline.tail.lookups import drop_indexes
from migrator.schema import decisions
from migrator.schema.decisions import Approval

LOCK_PATIENCE = "5s"
EARLY_DECISION = "rollback window closed early"
"""The kind of the decision (``migration.decisions``)."""
NOT_CONFIRMED = (
    "nobody has confirmed that the application works on PostgreSQL: call migrator cutover confirm, or migrator rollback"
    " run"
)


class FinishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of closing the window, and what is left to people."""

    cutover: Cutover
    cleanup: tuple[str, ...]
    gates: tuple[Gate, ...] = ()
    """Who wrote in MongoDB since the cutover; empty if an earlier call has closed the window."""


class ReleaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of opening MongoDB after the cutover."""

    cutover: Cutover
    writers: tuple[str, ...]
    """Users, besides the tool's own, who may write."""
    connected: tuple[str, ...] | None
    """Those of them who are connected, with their host; None: not known."""
    fenced: bool
    """Whether the fence was closed when the command was called."""


def finish(
    settings: Settings,
    *,
    early: Approval | None = None,
    now: datetime | None = None,
    allowed_writes: Allowance = 0,
    dry_run: bool = False,
) -> FinishResult:
    """Close the rollback window: end the reverse sync, and remove the outbox and the indexes of the tail.

    Called again, it repeats only what an earlier call could not do.

    MongoDB stays fenced until ``release_source``: what a forgotten program wrote there would be acknowledged, and
    lost. Its epoch stays too. Raises ``RefusedError`` if there is no cutover, if the hours of the window are not over
    by ``now`` (if omitted: the target's clock) and no person decided to close it ``early``, or if others than the
    reverse sync have written more than ``allowed_writes`` documents in MongoDB since the cutover. ``dry_run``: nothing
    is written, and the checklist is empty.
    """
    with exclusive_sessions(settings) as sessions:
        current = latest(sessions.target)
        if current is None or current.state not in ("cut-over", "finished"):
            raise RefusedError(_refusal(sessions.target, current))
        journal = Journal(sessions.target, current)
        library = library_tables(settings)
        gates: list[Gate] = []
        if current.state == "cut-over":
            level = unfinished_level(journal)
            if level is not None:
                raise RefusedError(
                    f"a rollback was begun and interrupted: call migrator rollback run --level {level} first"
                )
            if library is not None and not journal.done(CONFIRM_STEP):
                raise RefusedError(NOT_CONFIRMED)
            is_early = _is_early(sessions.target, current, settings, early, now)
            gates = late_writes.gates(sessions, current, allowed_writes)
            if missing := [one for one in gates if one.passed is False]:
                raise RefusedError("finish is refused: " + "; ".join(f"{one.name}: {one.words}" for one in missing))
            if is_early and early is not None and not dry_run:
                decisions.record(sessions.target, EARLY_DECISION, early, cutover=str(current.id))
        if dry_run:
            return FinishResult(cutover=current, cleanup=(), gates=tuple(gates))
        # the lock times out: sessions that come later would wait behind this one
        sessions.target.execute("SELECT set_config('lock_timeout', %s, false)", (LOCK_PATIENCE,))
        with journal.step(FINISH_STEP) as detail, _naming_holders(settings):
            detail |= {one.name: one.words for one in gates}
            journal.end("finished")  # first: what follows cannot be undone
            if library is None:
                epoch.close_rollback(sessions)
                outbox.close_outbox(sessions.target)
            else:
                library.close_outbox(sessions.target)
            reverse_sync.drop_fence_collection(sessions)
            drop_indexes(sessions.target)
        after = cleanup.after_completion if library is None else cleanup.after_library_completion
        left = after(sessions, journal.cutover)
        return FinishResult(cutover=journal.cutover, cleanup=left, gates=tuple(gates))


def release_source(settings: Settings, by: Approval, *, dry_run: bool = False) -> ReleaseResult:
    """Open MongoDB for writes after ``finish``: what is written there goes nowhere. Called again, it changes nothing.

    Raises ``RefusedError`` if the rollback window is not closed, ``UnreachableError`` if a user cannot be given its
    roles. ``dry_run``: nothing is written.
    """
    with exclusive_sessions(settings) as sessions:
        current = latest(sessions.target)
        if current is None or current.state != "finished" or not Journal(sessions.target, current).done(FINISH_STEP):
            raise RefusedError(_not_finished(current))
        fenced = is_source_fenced(sessions, current)
        if not dry_run:
            decisions.record(sessions.target, decisions.RELEASE, by, cutover=str(current.id))
            with Journal(sessions.target, current).step(RELEASE_STEP):
                lift_source_fence(sessions, current)
                if is_source_fenced(sessions, current):
                    raise UnreachableError("MongoDB still refuses writes after the fence was lifted")
        revoked, held = current.fence.get("revoked", ()), current.fence.get("collections", ())
        connected = late_writes.connected_users(sessions.source, revoked, collections=held)
        return ReleaseResult(
            cutover=current,
            writers=tuple(sorted(fence.writing_users(sessions.source, revoked, held))),
            connected=None if connected is None else tuple(connected),
            fenced=fenced,
        )


def is_source_fenced(sessions: Sessions, cutover: Cutover) -> bool:
    """Return whether the fence that a cutover closed is still closed."""
    return bool(cutover.fence) and fence.is_source_fenced(
        sessions.source, cutover.fence["kind"], cutover.fence["revoked"]
    )


def _not_finished(current: Cutover | None) -> str:
    """Return why MongoDB is not opened, and which command to call."""
    if current is not None and current.state == "cut-over":
        return (
            "the rollback window is open, and MongoDB stays fenced until it is closed: call migrator cutover finish, or"
            " migrator rollback run, which opens MongoDB with everything that was written since"
        )
    if current is not None and current.state == "finished":
        return "finishing was interrupted: call migrator cutover finish first"
    return "there is no finished cutover whose fence could be lifted: see migrator cutover status"


@contextmanager
def _naming_holders(settings: Settings) -> Iterator[None]:
    """Name the session that holds a table, and what to do; raises ``LockedError``."""
    try:
        with lock_holders_named(settings):
            yield
    except LockedError as error:
        raise LockedError(f"{error}; end it, then call migrator cutover finish again") from error


def _refusal(target: Connection, found: Cutover | None) -> str:
    """Return why there is no cutover to be finished, and which command to call."""
    if found is None or found.state != "running":
        return "there is no cutover to be finished: see migrator cutover status"
    if Journal(target, found).done(POINT_OF_NO_RETURN):
        return (
            "the cutover was interrupted after its point of no return: call migrator cutover run, which finishes it,"
            " or migrator rollback run, which rolls back"
        )
    return "the cutover was interrupted before its point of no return: call migrator cutover abort"


def _is_early(
    target: Connection, cutover: Cutover, settings: Settings, early: Approval | None, now: datetime | None
) -> bool:
    """Return whether the hours of the window are not over; raises ``RefusedError`` then if no person decided it."""
    until = window_end(target, cutover, settings)
    if until is None or (now or database_time(target)) >= until:
        return False
    if early is None:
        raise RefusedError(
            f"a rollback is possible until {until:%Y-%m-%d %H:%M:%S} UTC ({format_duration(settings.cutover.window)}):"
            " call again then, or decide to close it early (--now --who --reason)"
        )
    return True
