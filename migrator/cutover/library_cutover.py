"""The cutover to a library's own tables, and its confirmation.

The library knows neither a persistence epoch nor the configuration file of the tool: the journal alone says where the
application works. Up to the point of no return the steps are those of any cutover, and are undone together. After it
the tables note what is written to them, and the application may be started on PostgreSQL. Who operates it changes its
configuration, starts it, and confirms that (``confirm``). Until then, and after it until the cutover is finished, a
rollback leads back.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

import msgspec

from migrator.config import Settings, postgres_dsn
from migrator.connections.identity import environment_name
from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover import gates, late_writes, procedure, server_gates
from migrator.cutover.gates import GateOptions, PlannedCutover
from migrator.cutover.journal import (
    CONFIRM_STEP,
    POINT_OF_NO_RETURN,
    Cutover,
    Journal,
    exclusive_sessions,
    latest,
    unfinished_level,
)
from migrator.cutover.library_tables import LibraryTables
from migrator.cutover.procedure import Act, CutoverTarget
from migrator.cutover.write_pause import expected_pause
from migrator.errors import RefusedError
from migrator.pipeline import hooks
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.schema import decisions, native_target
from migrator.schema.decisions import UNNAMED, Approval
from migrator.targets import library, load_target

STEP_TEXTS: Final = {
    "preflight": "the tool evaluates every gate again; one that is not met ends the cutover",
    "catch-up": "the tail catches up while writers continue",
    "library": "the library reads its tables in PostgreSQL in a session that may only read",
    "fence": "MongoDB refuses the writes of every other user, also in transactions that stay open",
    "drain": "the tail catches up to a position taken under the fence",
    "parity": "a parity check of what changed since the last complete one; a difference ends the cutover",
    "outbox": "triggers on the library's tables record in the outbox what is written from now on",
    POINT_OF_NO_RETURN: "recorded; a cutover that stops before it is undone, after it is finished",
    "open-target": "the library's tables accept writes; the hook cutover_opened may start the application",
    "backup": "export MongoDB as it was at the fence, with digests; the reverse sync waits for it",
    "reverse-sync": "write the changes of PostgreSQL to MongoDB; migrator tail continues to do so",
    CONFIRM_STEP: "by migrator cutover confirm: the application was configured for PostgreSQL, and works there",
}
"""Step → what it does, for the plan."""
NOTHING_WRITTEN: Final = "nothing was written to the library's tables since the cutover"
NOTHING_SEEN: Final = (
    "nothing shows that the application works there: start it, and call migrator cutover confirm again"
)


class LibraryCutoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cutover to a library's tables."""

    cutover: Cutover
    pause_s: float
    """Seconds from before the fence until the library's tables accept writes, by the target's clock."""
    compared: int
    """Documents compared under the fence."""
    resumed: bool
    """An earlier call had passed the point of no return."""
    library: "LibraryReading"
    """What the library found in its tables."""


class LibraryReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a library found in its tables."""

    entries: int = 0
    failed: tuple[str, ...] = ()
    """Ids of entries that the library cannot restore, as it could not in MongoDB."""
    unverified: str = ""
    """Why the library was not asked; empty: it was."""

    @property
    def words(self) -> str:
        """Describe it."""
        if self.unverified:
            return f"not verified: {self.unverified}"
        if not self.failed:
            return f"the library reads {self.entries:,} entries"
        named = ", ".join(self.failed[:5])
        return f"the library reads {self.entries:,} entries, and cannot restore {len(self.failed):,} ({named})"


class ConfirmResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a confirmation."""

    cutover: Cutover
    library: LibraryReading
    written: int
    """Rows that were written to the library's tables since the cutover."""
    connected: tuple[str, ...] = ()
    """The sessions of others in the target's database, in words."""

    @property
    def seen(self) -> tuple[str, ...]:
        """Return the signs that the application works there, a line each."""
        rows = "1 row was" if self.written == 1 else f"{self.written:,} rows were"
        written = f"{rows} written to the library's tables since the cutover"
        connected = f"connected to the database now: {', '.join(self.connected)}"
        return (
            self.library.words,
            written if self.written else NOTHING_WRITTEN,
            connected if self.connected else server_gates.NOBODY_CONNECTED,
            *([] if self.written or self.connected else [NOTHING_SEEN]),
        )


class LibraryCutover(CutoverTarget[LibraryCutoverResult]):
    """``CutoverTarget`` of a library's own tables."""

    MADE: ClassVar[str] = "the cutover is made, and the application may work on PostgreSQL: call migrator rollback run"

    def __init__(self, sessions: Sessions) -> None:
        super().__init__(sessions)
        self._tables = LibraryTables(sessions.profile, sessions.settings.target)

    def begin(self, conditions: GateOptions) -> Journal:
        return Journal.begin(
            self.sessions.target,
            environment=environment_name(self.sessions.settings),
            config_path=str(conditions.config.absolute()),
            backup_path="",
        )

    def is_open(self, journal: Journal) -> bool:
        return journal.done("open-target")

    def before_fence(self, journal: Journal) -> None:
        """Let the library read its tables."""
        with journal.step("library") as detail:
            read = read_by_library(self.sessions.settings)
            detail["words"] = read.words
            journal.note(library=msgspec.to_builtins(read))

    def require_stopped(self) -> None:
        """Raise ``RefusedError`` while the application of a library that executes before it writes is connected."""
        sessions = self.sessions
        if not load_target(sessions.profile.target).runs_first:
            return
        held = server_gates.held_collections(sessions.settings, sessions.profile)
        users = late_writes.connected_users(sessions.source, (), sessions.settings.cutover.tolerated_writers, held)
        if users:
            raise RefusedError(
                f"connected to MongoDB: {', '.join(users)}; {server_gates.RUNS_FIRST}: stop the application"
            )

    def open_outbox(self) -> None:
        self._tables.open_outbox(self.sessions.target)

    def steps_after(self) -> Mapping[str, Act]:
        return {
            "open-target": self._open,
            "backup": partial(procedure.back_up, self.sessions),
            "reverse-sync": partial(procedure.carry_first, self.sessions),
        }

    def undo_parts(self, journal: Journal) -> Mapping[str, Callable[[], object]]:
        return {
            "the fence of MongoDB": self.lifted_fence(journal),
            "the outbox of PostgreSQL": self.on_target(
                journal, lambda: self._tables.close_outbox(self.sessions.target)
            ),
        }

    def ended(self, journal: Journal, *, resumed: bool) -> LibraryCutoverResult:
        detail = journal.cutover.detail
        return LibraryCutoverResult(
            cutover=journal.cutover,
            pause_s=float(detail.get("pause_s") or 0.0),
            compared=int(detail.get("compared") or 0),
            resumed=resumed,
            library=msgspec.convert(detail.get("library", {}), LibraryReading),
        )

    def _open(self, journal: Journal, detail: dict[str, Any]) -> None:
        """Lift the fence that an earlier rollback closed, and record the write pause."""
        target = self.sessions.target
        detail["was_closed"] = self._tables.is_closed(target)
        self._tables.lift(target)
        procedure.record_opened(target, journal)


def run(settings: Settings, conditions: GateOptions, by: Approval = UNNAMED) -> LibraryCutoverResult:
    """Make the cutover as ``procedure.run`` does; raises as it does."""
    return procedure.run(LibraryCutover, settings, conditions, by)


def confirm(settings: Settings, by: Approval = UNNAMED, *, dry_run: bool = False) -> ConfirmResult:
    """Record that the application works on PostgreSQL; called again, it changes nothing but the time.

    The library reads its tables again. Raises ``RefusedError`` if there is no open cutover, ``LibraryError`` if the
    library cannot read its tables.
    """
    with exclusive_sessions(settings) as sessions:
        current = latest(sessions.target)
        if current is None or current.state != "cut-over" or unfinished_level(Journal(sessions.target, current)):
            raise RefusedError("there is no cutover that waits to be confirmed: see migrator cutover status")
        connected = tuple(server_gates.sessions_of_others(sessions.target))  # before the library connects
        result = ConfirmResult(
            cutover=current,
            library=read_by_library(settings),
            written=written_rows(sessions.target, LibraryTables(sessions.profile, settings.target)),
            connected=connected,
        )
        if dry_run:
            return result
        journal = Journal(sessions.target, current)
        with journal.step(CONFIRM_STEP) as detail:
            decisions.record(sessions.target, decisions.CONFIRMED, by, cutover=str(current.id))
            detail |= {"library": result.library.words, "written": result.written, "connected": result.connected}
        procedure.call_hook(settings, hooks.CUTOVER_ENDED, journal)
        return msgspec.structs.replace(result, cutover=journal.cutover)


def written_rows(target: Connection, tables: LibraryTables) -> int:
    """Return the number of rows that were written to the library's tables since the cutover, carried or not."""
    return int(fetch_value(target, native_target.written_rows(tables.target)))


def read_by_library(settings: Settings) -> LibraryReading:
    """Return the entries that the library finds in its tables, without writing; raises ``LibraryError``."""
    target = load_target(settings.target.name)
    if target.name not in library.LIBRARIES:
        return LibraryReading(unverified=f"no library is known for the target {target.name}")
    store = library.PostgresStore(
        postgres_dsn(settings), settings.target.schema or target.schema, dict(settings.target.tables)
    )
    request = library.LibraryRequest(do="entries", store=store)
    entries, failed = 0, []
    try:
        with library.ask(target.name, request, interpreter=library.interpreter_of(settings.target)) as lines:
            for line in lines:
                entries += line["kind"] == "entry"
                if line["kind"] == "failed":
                    failed.append(str(line["id"]))
    except library.LibraryMissingError as error:
        return LibraryReading(unverified=str(error))
    return LibraryReading(entries=entries, failed=tuple(failed))


def plan(settings: Settings, conditions: GateOptions) -> PlannedCutover:
    """Evaluate everything, and change nothing (a probe table is created and dropped again)."""
    with open_sessions(settings) as sessions:
        pause = expected_pause(sessions)
        evaluated = tuple(gates.evaluate(sessions, msgspec.structs.replace(conditions, pause=pause)))
        held = server_gates.held_collections(settings, sessions.profile)
    left_out = {} if settings.cutover.backup else {"backup": "left out (cutover.backup)"}
    return PlannedCutover(
        environment=environment_name(settings),
        steps=server_gates.steps_of(STEP_TEXTS, held) | left_out,
        gates=evaluated,
        pause_s=pause.seconds,
        pause_limit_s=settings.cutover.max_pause.total_seconds(),
        changed=pause.changed,
        ready=not any(gate.passed is False for gate in evaluated),
    )
