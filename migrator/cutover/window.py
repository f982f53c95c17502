"""Closing the window of the way back: not before its time, unless somebody decides so; and what is cleaned up then."""

from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from migrator.config import Settings
from migrator.cutover import outbox, reverse
from migrator.cutover.forward import RETURN, lift
from migrator.cutover.journal import Cutover, Journal, alone, database_time, decide, newest, opened_at
from migrator.cutover.rollback import under_way
from migrator.errors import RefusedError, UsageError
from migrator.pipeline.sessions import Sessions
from migrator.store.mongo.client import speaking_of as speaking_of_source
from migrator.store.postgres.connection import Connection, speaking_of

EARLY = "window closed early"
"""The kind of the decision (``migration.decisions``)."""


class Early(msgspec.Struct, frozen=True, kw_only=True):
    """The decision to close it before its time."""

    who: str
    reason: str


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What closing the window did, and what is left to people."""

    cutover: Cutover
    cleanup: tuple[str, ...]


def finish(settings: Settings, *, early: Early | None = None, now: datetime | None = None) -> Finished:
    """Close the window of the way back: no reverse stream, no fence, no outbox. Called again, it changes nothing.

    MongoDB's epoch stays, so that our own processes with an old configuration stay shut out of it. Raises
    ``RefusedError`` where there is no switch, or the window's hours are not over by ``now`` (none: the target's clock)
    and nobody decided to close it ``early``.
    """
    if early is not None and not (early.who.strip() and early.reason.strip()):
        raise UsageError("to close the window early is a person's decision: say who and why")
    sessions = Sessions(settings)
    try:
        with speaking_of("the target"), speaking_of_source("the source"), alone(sessions.target):
            found = newest(sessions.target)
            if found is None or found.state not in ("switched", "finished"):
                raise RefusedError(_nothing(sessions.target, found))
            journal = Journal(sessions.target, found)
            if found.state == "switched":
                level = under_way(journal)
                if level is not None:
                    raise RefusedError(
                        f"a rollback was begun and interrupted: call migrator rollback run --level {level} first"
                    )
                _require_over(sessions.target, found, settings, early, now)
            with journal.step("finish"):
                journal.end("finished")  # first: what follows cannot be gone back on
                outbox.close_outbox(sessions.target)
                reverse.forget(sessions)
                lift(sessions, found)
            return Finished(cutover=journal.cutover, cleanup=cleanup(journal.cutover))
    finally:
        sessions.close()


def _nothing(target: Connection, found: Cutover | None) -> str:
    """Return why there is no cutover to be finished, and what leads on."""
    if found is None or found.state != "running":
        return "there is no cutover to be finished: migrator cutover status tells"
    if Journal(target, found).done(RETURN):
        return (
            "the cutover was interrupted after its point of no return: call migrator cutover run, which finishes it,"
            " or migrator rollback run, which goes back"
        )
    return "the cutover was interrupted before its point of no return: call migrator cutover abort"


def open_until(target: Connection, cutover: Cutover, settings: Settings) -> datetime | None:
    """Return until when the way back is to stay open; none: PostgreSQL is not open by this cutover."""
    since = opened_at(target, cutover.id)
    return None if since is None else since + timedelta(hours=settings.cutover.window_hours)


def _require_over(
    target: Connection, cutover: Cutover, settings: Settings, early: Early | None, now: datetime | None
) -> None:
    until = open_until(target, cutover, settings)
    if until is None or (now or database_time(target)) >= until:
        return
    if early is None:
        raise RefusedError(
            f"the way back stays open until {until:%Y-%m-%d %H:%M:%S} UTC ({settings.cutover.window_hours} h): call"
            " again then, or decide to close it early (--now --who --reason)"
        )
    decide(target, EARLY, early.who.strip(), early.reason.strip(), cutover=str(cutover.id))


def cleanup(cutover: Cutover) -> tuple[str, ...]:
    """Return what people clean up when nobody goes back any more (source document 004 does so after 48 hours)."""
    kept = [cutover.backup_path, *([cutover.detail["backup"]] if "backup" in cutover.detail else [])]
    return (
        "the application: remove the old scheduler's file, its start and stop hooks, and their imports",
        "the application: remove the old scheduler's dependency, and MongoDB's driver where nothing else uses it",
        "processes: end migrator tail, and take it from its supervisor",
        f"{Path(cutover.config_path).name}: remove the section [mongo]",
        "MongoDB: take the tool's user, and its right to pass the fence, away; then the scheduler's collections",
        f"files: {' and '.join(kept)}, when your rules for backups allow it",
    )
