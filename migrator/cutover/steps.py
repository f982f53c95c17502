"""The steps of a cutover and of a rollback, as the journal names them, and what it tells of them."""

from datetime import datetime
from typing import Final

from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.cutover.journal import Cutover, Journal, opened_at

STEPS_BEFORE: Final = ("preflight", "catch-up", "fence", "drain", "parity", "outbox")
POINT_OF_NO_RETURN: Final = "point-of-no-return"
BACKUP_STEP: Final = "backup"
STEPS_AFTER: Final = ("open-target", "smoke", BACKUP_STEP, "reverse-sync")
CUTOVER_STEPS: Final = (*STEPS_BEFORE, POINT_OF_NO_RETURN, *STEPS_AFTER)
FINISH_STEP: Final = "finish"
RELEASE_STEP: Final = "release-source"
"""The last step, by a command of its own: MongoDB is opened when the rollback window is closed."""
REVERSE_STOPPED: Final = "reverse_sync_stopped"
"""The member of the journal's detail that holds why the reverse sync stopped."""

FIRES_STEP: Final = "rollback-fires"
"""The step that compares what fires in PostgreSQL with what fires by the documents."""
_STEPS_LEVEL_1: Final = (
    *("rollback-fence", "rollback-drain", "rollback-check", FIRES_STEP),
    *("rollback-open-source", "rollback-close"),
)
ROLLBACK_STEPS: Final = {
    1: _STEPS_LEVEL_1,
    2: (*_STEPS_LEVEL_1, "rollback-export", "rollback-downgrade"),
    3: ("rollback-fence", "rollback-export", "rollback-restore", "rollback-open-source", "rollback-close"),
}
"""Level → steps."""
EXPORT_KEY: Final = "rollback_export"
"""The member of the journal's detail that names the files of a rollback, with their digests."""
UNLIKE_KEY: Final = "rollback_unlike"
"""The member of the journal's detail that names the schedules that fire otherwise, and were not named before."""
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
