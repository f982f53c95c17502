"""The steps of a cutover and of a rollback, as the journal names them, and what it tells of them."""

from datetime import datetime
from typing import Final

from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.cutover.journal import Cutover, Journal, opened_at

STEPS_BEFORE: Final = ("preflight", "catch-up", "fence", "drain", "parity", "outbox")
POINT_OF_NO_RETURN: Final = "point-of-no-return"
STEPS_AFTER: Final = ("open-target", "smoke", "backup", "reverse-sync")
CUTOVER_STEPS: Final = (*STEPS_BEFORE, POINT_OF_NO_RETURN, *STEPS_AFTER)
REVERSE_STOPPED: Final = "reverse_sync_stopped"
"""The member of the journal's detail that holds why the reverse sync stopped."""

_STEPS_LEVEL_1: Final = ("rollback-fence", "rollback-drain", "rollback-check", "rollback-open-source", "rollback-close")
ROLLBACK_STEPS: Final = {
    1: _STEPS_LEVEL_1,
    2: (*_STEPS_LEVEL_1, "rollback-export", "rollback-downgrade"),
    3: ("rollback-fence", "rollback-export", "rollback-restore", "rollback-open-source", "rollback-close"),
}
"""Level → steps."""
LEVEL_KEY: Final = "rollback_level"
"""The member of the journal's detail that holds the level of the last rollback."""
RESTORE_STEP: Final = "rollback-restore"
REOPEN_STEP: Final = "rollback-open-source"
"""The step from which on MongoDB may be written. The steps before it are not repeated."""


def unfinished_level(journal: Journal) -> int | None:
    """Return the level of a rollback that was begun, and neither undone nor finished; None if there is none."""
    level: int = journal.cutover.detail.get(LEVEL_KEY, 1)
    if journal.cutover.state in ("cut-over", "running"):
        return level if any(journal.begun(step) for step in ROLLBACK_STEPS[level]) else None
    if journal.cutover.state == "rolled-back" and (level == 2 or not journal.done("rollback-close")):  # noqa: PLR2004 - a level
        return level  # level 2 removes the journal with its last step
    return None


def window_end(target: Connection, cutover: Cutover, settings: Settings) -> datetime | None:
    """Return until when the rollback window stays open; None if this cutover did not open PostgreSQL."""
    since = opened_at(target, cutover.id)
    return None if since is None else since + settings.cutover.window
