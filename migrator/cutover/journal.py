"""The journal of a cutover: which step was begun, which is done, and its result. It is in the schema ``migration``.

A step that is done is not repeated. A step that was running when the tool was killed is repeated. Each step is
idempotent.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final, Literal, LiteralString, TypeAlias
from uuid import UUID, uuid4

import msgspec
import psycopg
from psycopg.types.json import Jsonb

from migrator import __version__, fault_points
from migrator.config import Settings
from migrator.connections.advisory_locks import advisory_lock
from migrator.connections.postgres import Connection, fetch_structs, fetch_value
from migrator.errors import MigratorError, RefusedError
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.redaction import redact
from migrator.telemetry import say
from migrator.values.identity import stable_hash64

STEPS_BEFORE: Final = ("preflight", "catch-up", "fence", "drain", "parity", "outbox")
POINT_OF_NO_RETURN: Final = "point-of-no-return"
BACKUP_STEP: Final = "backup"
STEPS_AFTER: Final = ("open-target", "smoke", BACKUP_STEP, "reverse-sync")
CUTOVER_STEPS: Final = (*STEPS_BEFORE, POINT_OF_NO_RETURN, *STEPS_AFTER)
CONFIRM_STEP: Final = "confirm"
"""The step of a cutover to a library's tables by a command of its own: the application works on PostgreSQL."""
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
LIBRARY_ROLLBACK_STEPS: Final = (
    *("rollback-fence", "rollback-drain", "rollback-check", "rollback-remove"),
    *("rollback-open-source", "rollback-close"),
)
"""The steps of a rollback from a library's tables, which has one level."""
RESTORE_STEP: Final = "rollback-restore"
REOPEN_STEP: Final = "rollback-open-source"
"""The step from which on MongoDB may be written. The steps before it are not repeated."""

LOCK: Final = stable_hash64("*/migrator/cutover")
"""Key of the session lock that a cutover or a rollback holds: one at a time."""

FAILED: Final = "failed"
"""The member of a step's detail that holds why it failed."""

State: TypeAlias = Literal["running", "aborted", "cut-over", "rolled-back", "finished"]


class Cutover(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``migration.cutovers``."""

    id: UUID
    environment: str
    state: State
    config_path: str
    backup_path: str
    began_at: datetime
    ended_at: datetime | None
    fence: dict[str, Any]
    """``kind``, and ``revoked``: the roles that were revoked."""
    detail: dict[str, Any]
    """``epoch``, ``position``, ``pause_s``, counts."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A row of ``migration.cutover_steps``."""

    step: str
    state: Literal["running", "done", "undone"]
    began_at: datetime
    ended_at: datetime | None
    detail: dict[str, Any]


_COLUMNS: Final[LiteralString] = "id, environment, state, config_path, backup_path, began_at, ended_at, fence, detail"


def latest(connection: Connection) -> Cutover | None:
    """Return the cutover that began last."""
    rows = fetch_structs(
        connection,
        Cutover,
        f"SELECT {_COLUMNS} FROM migration.cutovers ORDER BY began_at DESC, id LIMIT 1",  # noqa: S608 - our own text
    )
    return rows[0] if rows else None


def steps(connection: Connection, cutover: UUID) -> list[Step]:
    """Return the steps of a cutover, in the order in which they began."""
    return fetch_structs(
        connection,
        Step,
        "SELECT step, state, began_at, ended_at, detail FROM migration.cutover_steps WHERE cutover_id = %s"
        " ORDER BY ordinal",
        (cutover,),
    )


def opened_at(connection: Connection, cutover: UUID) -> datetime | None:
    """Return when a cutover opened PostgreSQL to everybody; None if it did not."""
    return next((one.ended_at for one in steps(connection, cutover) if one.step == "open-target"), None)


def database_time(connection: Connection) -> datetime:
    """Return the time of the target's clock."""
    now: datetime = fetch_value(connection, "SELECT clock_timestamp()")
    return now


def require_no_cutover(connection: Connection) -> None:
    """Raise ``RefusedError`` while a cutover is under way: rows must come up to date for it to end."""
    found = latest(connection)
    if found is not None and found.state == "running":
        raise RefusedError("a cutover is under way, or was interrupted: migrator cutover status names what to call")


@contextmanager
def exclusive_sessions(settings: Settings) -> Iterator[Sessions]:
    """Open both sides and hold the lock of all cutovers of the target; ``RefusedError`` if another process holds it.

    Errors of the drivers are raised as errors of the tool, which name the side.
    """
    busy = "another cutover, or rollback, of this target is running"
    with open_sessions(settings) as sessions, advisory_lock(sessions.target, LOCK, busy=busy):
        yield sessions


class Journal:
    """Writes the journal of one cutover."""

    def __init__(self, connection: Connection, cutover: Cutover) -> None:
        self._connection = connection
        self.cutover = cutover

    @classmethod
    def begin(cls, connection: Connection, *, environment: str, config_path: str, backup_path: str) -> "Journal":
        """Begin the journal of a new cutover."""
        [begun] = fetch_structs(
            connection,
            Cutover,
            "INSERT INTO migration.cutovers (id, environment, state, config_path, backup_path, tool_version, began_at)"  # noqa: S608 - as above
            f" VALUES (%s, %s, 'running', %s, %s, %s, clock_timestamp()) RETURNING {_COLUMNS}",
            (uuid4(), environment, config_path, backup_path, __version__),
        )
        return cls(connection, begun)

    def reconnect(self, connection: Connection) -> None:
        """Continue on another connection, after the first one was lost."""
        self._connection = connection

    def note(self, **detail: Any) -> None:  # noqa: ANN401 - any JSON value
        """Add members to the detail of the cutover."""
        self._update("detail = detail || %s", Jsonb(detail))

    def fenced(self, kind: str, revoked: list[dict[str, Any]], collections: Sequence[str] = ()) -> None:
        """Record what the fence will revoke; a record that exists stays as it is.

        ``collections``: those that it holds; none: the whole database.
        """
        closed = Jsonb({"kind": kind, "revoked": revoked, "collections": list(collections)})
        self._update("fence = CASE WHEN fence = '{}' THEN %s ELSE fence END", closed)

    def end(self, state: State) -> None:
        """Record the state of the cutover."""
        self._update("state = %s, ended_at = clock_timestamp()", state)

    def steps(self) -> list[Step]:
        """Return the steps, in the order in which they began."""
        return steps(self._connection, self.cutover.id)

    def done(self, step: str) -> bool:
        """Return whether a step is done."""
        return any(one.step == step and one.state == "done" for one in self.steps())

    def begun(self, step: str) -> bool:
        """Return whether a step was begun, and not undone."""
        return any(one.step == step and one.state != "undone" for one in self.steps())

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Record that a step is running; after the body, that it is done, with the dictionary that the body filled."""
        self._connection.execute(
            "INSERT INTO migration.cutover_steps (cutover_id, ordinal, step, state, began_at) SELECT %(id)s,"
            " coalesce(max(ordinal), 0) + 1, %(step)s, 'running', clock_timestamp() FROM migration.cutover_steps"
            " WHERE cutover_id = %(id)s"
            " ON CONFLICT (cutover_id, step) DO UPDATE SET state = 'running', ended_at = NULL, detail = '{}'",
            {"id": self.cutover.id, "step": name},
        )
        say(f"cutover: {name}")
        fault_points.reach(f"{fault_points.CUTOVER_PREFIX}{name}.begun")
        detail: dict[str, Any] = {}
        try:
            yield detail
            fault_points.reach(f"{fault_points.CUTOVER_PREFIX}{name}.done")
        except BaseException as error:
            with suppress(psycopg.Error):  # the first error says more
                self._failed(name, error)
            raise
        self._connection.execute(
            "UPDATE migration.cutover_steps SET state = 'done', ended_at = clock_timestamp(), detail = %s"
            " WHERE cutover_id = %s AND step = %s",
            (Jsonb(detail), self.cutover.id, name),
        )

    def undo(self, prefix: str = "") -> None:
        """Record that the steps whose names begin with ``prefix`` are undone."""
        self._connection.execute(
            "UPDATE migration.cutover_steps SET state = 'undone', ended_at = clock_timestamp() WHERE cutover_id = %s"
            " AND starts_with(step, %s)",
            (self.cutover.id, prefix),
        )

    def abort(self) -> None:
        """Record that every step is undone, and that the cutover has ended with that."""
        with self._connection.transaction():
            self.undo()
            self.end("aborted")

    def _failed(self, step: str, error: BaseException) -> None:
        """Record why a step failed: the message of an error of the tool or of an alarm, the name of any other error."""
        told = isinstance(error, MigratorError | KeyboardInterrupt)
        why = (told and str(error)) or type(error).__name__
        self._connection.execute(
            "UPDATE migration.cutover_steps SET detail = detail || %s WHERE cutover_id = %s AND step = %s",
            (Jsonb({FAILED: redact(why)}), self.cutover.id, step),
        )

    def _update(self, change: LiteralString, value: object) -> None:
        [self.cutover] = fetch_structs(
            self._connection,
            Cutover,
            f"UPDATE migration.cutovers SET {change} WHERE id = %s RETURNING {_COLUMNS}",  # noqa: S608 - our own text
            (value, self.cutover.id),
        )


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
