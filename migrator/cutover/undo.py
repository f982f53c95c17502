"""The undo of what a cutover or a rollback has begun: each part is tried, and what fails is named with its remedy."""

from collections.abc import Callable, Mapping

import psycopg
from pymongo.errors import PyMongoError

from migrator.errors import MigratorError
from migrator.pipeline.sessions import reason_of
from migrator.redaction import redact
from migrator.telemetry import say


class UndoError(MigratorError):
    """Parts of an undo failed; the message names them, and the command that undoes them."""

    def __init__(self, parts: Mapping[str, str], command: str, first: BaseException | None = None) -> None:
        """``parts``: name → why it failed; ``command``: the command; ``first``: what the undo was for."""
        named = "; ".join(f"{name} ({why})" for name, why in parts.items())
        before = "" if first is None else f"{reason(first)}; "
        super().__init__(f"{before}the undo is not complete: {named}: call {command}")
        self.parts = tuple(parts)
        self.reasons = dict(parts)


def undo(parts: Mapping[str, Callable[[], object]], last: tuple[str, Callable[[], object]]) -> dict[str, str]:
    """Undo each part, whatever became of those before it; return why parts failed, by name.

    A part that returns false had nothing to undo. ``last`` records that everything is undone. It is left out, and
    counts as failed, if a part failed.
    """
    failed: dict[str, str] = {}
    for name, act in parts.items():
        _attempt(name, act, failed)
    name, act = last
    if failed:
        failed[name] = "not every part is undone"
    else:
        _attempt(name, act, failed)
    return failed


def reason(error: BaseException) -> str:
    """Return an error as a sentence without credentials: its words if it is the tool's or a driver's, else its name."""
    if isinstance(error, MigratorError):
        return redact(str(error))
    if isinstance(error, psycopg.Error | PyMongoError):
        return reason_of(error)
    return type(error).__name__


def _attempt(name: str, act: Callable[[], object], failed: dict[str, str]) -> None:
    """Undo a part, and report it; note why it failed."""
    try:
        done = act()
    except Exception as error:  # noqa: BLE001 - whatever it was, the other parts are undone, and this one is named
        failed[name] = reason(error)
        say(f"NOT undone: {name}: {failed[name]}", level="warning")
    else:
        if done is not False:
            say(f"undone: {name}")
