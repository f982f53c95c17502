"""The end of a cutover: the rollback window is closed, after its hours or by a person's decision."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.cutover import cleanup, outbox, reverse_sync
from migrator.cutover.cutover import lift_source_fence
from migrator.cutover.journal import (
    Cutover,
    Journal,
    database_time,
    exclusive_sessions,
    latest,
)
from migrator.cutover.steps import POINT_OF_NO_RETURN, unfinished_level, window_end
from migrator.durations import format_duration
from migrator.errors import LockedError, RefusedError
from migrator.pipeline.sessions import lock_holders_named
from migrator.pipeline.tail.lookups import drop_indexes
from migrator.schema import decisions
from migrator.schema.decisions import Approval

LOCK_PATIENCE = "5s"
EARLY_DECISION = "rollback window closed early"
"""The kind of the decision (``migration.decisions``)."""


class FinishResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of closing the window, and what is left to people."""

    cutover: Cutover
    cleanup: tuple[str, ...]


def finish(
    settings: Settings, *, early: Approval | None = None, now: datetime | None = None, dry_run: bool = False
) -> FinishResult:
    """Close the rollback window: end the reverse sync, and remove the fence, the outbox and the indexes of the tail.

    Called again, it repeats only what an earlier call could not do.

    The epoch of MongoDB stays, so that processes of ours with an old configuration cannot use it. Raises
    ``RefusedError`` if there is no cutover, or if the hours of the window are not over by ``now`` (if omitted: the
    target's clock) and no person decided to close it ``early``. ``dry_run``: nothing is written, and the checklist is
    empty.
    """
    with exclusive_sessions(settings) as sessions:
        found = latest(sessions.target)
        if found is None or found.state not in ("cut-over", "finished"):
            raise RefusedError(_refusal(sessions.target, found))
        journal = Journal(sessions.target, found)
        if found.state == "cut-over":
            level = unfinished_level(journal)
            if level is not None:
                raise RefusedError(
                    f"a rollback was begun and interrupted: call migrator rollback run --level {level} first"
                )
            if _is_early(sessions.target, found, settings, early, now) and early is not None and not dry_run:
                decisions.record(sessions.target, EARLY_DECISION, early, cutover=str(found.id))
        if dry_run:
            return FinishResult(cutover=found, cleanup=())
        # the lock times out: sessions that come later would wait behind this one
        sessions.target.execute("SELECT set_config('lock_timeout', %s, false)", (LOCK_PATIENCE,))
        with journal.step("finish"), _naming_holders(settings):
            journal.end("finished")  # first: what follows cannot be undone
            outbox.close_outbox(sessions.target)
            reverse_sync.drop_fence_collection(sessions)
            lift_source_fence(sessions, found)
            drop_indexes(sessions.target)
        return FinishResult(cutover=journal.cutover, cleanup=cleanup.after_completion(sessions, journal.cutover))


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
