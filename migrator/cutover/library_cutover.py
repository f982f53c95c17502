"""The steps of a cutover to a library's own tables: gates, fence, last changes, parity check, and what follows.

The library knows neither a persistence epoch nor the configuration file of the tool: the journal alone says where the
application works. Up to the point of no return the steps are those of any cutover, and are undone together. After it
the tables note what is written to them, and the application may be started on PostgreSQL. Who operates it changes its
configuration, starts it, and confirms that (``confirm``). Until then, and after it until the cutover is finished, a
rollback leads back.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec

from migrator.config import Settings, postgres_dsn
from migrator.connections.identity import environment_name
from migrator.connections.mongo import committed_time
from migrator.connections.postgres import Connection, fetch_value
from migrator.cutover import cutover as steps
from migrator.cutover import fence, gates, late_writes
from migrator.cutover.gates import GateOptions
from migrator.cutover.journal import (
    CONFIRM_STEP,
    POINT_OF_NO_RETURN,
    Cutover,
    Journal,
    database_time,
    exclusive_sessions,
    latest,
    unfinished_level,
)
from migrator.cutover.library_tables import LibraryTables
from migrator.cutover.server_gates import Gate
from migrator.cutover.undo import UndoError, undo
from migrator.cutover.write_pause import WritePause, expected_pause
from migrator.errors import RefusedError
from migrator.pipeline import hooks
from migrator.pipeline.sessions import Sessions, close_cached, open_sessions, retry_transient
from migrator.pipeline.tail import positions
from migrator.pipeline.tail.loop import Tail
from migrator.schema import decisions, native_target
from migrator.schema.decisions import UNNAMED, Approval
from migrator.targets import library, load_target
from migrator.telemetry import say

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


def run(settings: Settings, conditions: GateOptions, by: Approval = UNNAMED) -> LibraryCutoverResult:
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
                resumed = point_holds(sessions, journal)
                if not resumed:
                    say(f"cutover: {steps.INTERRUPTED}, and is undone first")
                    _undo(sessions, journal)
            if resumed:
                decisions.record(sessions.target, decisions.CUTOVER_AGAIN, by, cutover=str(journal.cutover.id))
            else:
                journal = _pass_point(sessions, conditions, by)
            try:
                _run_steps_after(sessions, journal)
            except BaseException as error:
                steps.call_failed(settings, journal, error)
                raise
            detail = journal.cutover.detail
            return LibraryCutoverResult(
                cutover=journal.cutover,
                pause_s=float(detail.get("pause_s") or 0.0),
                compared=int(detail.get("compared") or 0),
                resumed=resumed,
                library=msgspec.convert(detail.get("library", {}), LibraryReading),
            )
    finally:
        close_cached()


def abort(settings: Settings) -> Cutover:
    """Undo a cutover that was interrupted before the point of no return; raises ``RefusedError`` if there is none."""
    with exclusive_sessions(settings) as sessions:
        journal = _abortable(sessions)
        _undo(sessions, journal)
        return journal.cutover


def steps_to_undo(settings: Settings) -> list[str]:
    """Return the steps that ``abort`` would undo, the last first, and write nothing; raises as ``abort`` does."""
    with exclusive_sessions(settings) as sessions:
        return [one.step for one in reversed(_abortable(sessions).steps()) if one.state != "undone"]


def confirm(settings: Settings, by: Approval = UNNAMED, *, dry_run: bool = False) -> ConfirmResult:
    """Record that the application works on PostgreSQL; called again, it changes nothing but the time.

    The library reads its tables again. Raises ``RefusedError`` if there is no open cutover, ``LibraryError`` if the
    library cannot read its tables.
    """
    with exclusive_sessions(settings) as sessions:
        current = latest(sessions.target)
        if current is None or current.state != "cut-over" or unfinished_level(Journal(sessions.target, current)):
            raise RefusedError("there is no cutover that waits to be confirmed: see migrator cutover status")
        found_by_library = read_by_library(settings)
        written = written_rows(sessions.target, LibraryTables(sessions.profile, settings.target))
        if dry_run:
            return ConfirmResult(cutover=current, library=found_by_library, written=written)
        journal = Journal(sessions.target, current)
        with journal.step(CONFIRM_STEP) as detail:
            decisions.record(sessions.target, decisions.CONFIRMED, by, cutover=str(current.id))
            detail |= {"library": found_by_library.words, "written": written}
        steps.call_hook(settings, hooks.CUTOVER_ENDED, journal)
        return ConfirmResult(cutover=journal.cutover, library=found_by_library, written=written)


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


def point_holds(sessions: Sessions, journal: Journal) -> bool:
    """Return whether the point of no return is passed, and nobody can have written to MongoDB since.

    It does not hold if the target was unreachable when the point was recorded, so that the cutover was undone.
    """
    fenced = journal.cutover.fence
    return journal.done(POINT_OF_NO_RETURN) and (
        journal.done("open-target")
        or (bool(fenced) and fence.is_source_fenced(sessions.source, fenced["kind"], fenced["revoked"]))
    )


def _abortable(sessions: Sessions) -> Journal:
    current = latest(sessions.target)
    if current is not None and current.state == "cut-over":
        raise RefusedError(
            "the cutover is made, and the application may work on PostgreSQL: call migrator rollback run"
        )
    if current is None or current.state != "running":
        raise RefusedError("no cutover is under way: there is nothing to abort")
    journal = Journal(sessions.target, current)
    if point_holds(sessions, journal):
        raise RefusedError(
            "the point of no return is passed: call migrator cutover run, which finishes the cutover, or"
            " migrator rollback run, which rolls back"
        )
    return journal


def _pass_point(sessions: Sessions, conditions: GateOptions, by: Approval) -> Journal:
    """Run the steps up to the point of no return, or undo all of them."""
    met = steps.met_gates(sessions, conditions)
    while steps.wait_while_postponed(sessions):
        met = steps.met_gates(sessions, conditions)
    journal = Journal.begin(
        sessions.target,
        environment=environment_name(sessions.settings),
        config_path=str(conditions.config.absolute()),
        backup_path="",
    )
    journal.note(who=by.who, reason=by.reason)
    try:
        _run_steps_before(sessions, journal, conditions, met)
        with journal.step(POINT_OF_NO_RETURN) as detail:
            detail["documents"] = journal.cutover.detail.get("compared")
    except BaseException as error:
        if steps.is_point_passed(journal):
            steps.call_failed(sessions.settings, journal, error)
            raise
        _undo(sessions, journal, error)
        say("cutover: undone: no fence is closed, and everything is as it was before", level="warning")
        raise
    return journal


def _run_steps_before(sessions: Sessions, journal: Journal, conditions: GateOptions, met: list[Gate]) -> None:
    target, settings = sessions.target, sessions.settings
    limit = settings.cutover.max_pause
    pause = WritePause(limit)
    with journal.step("preflight") as detail:
        detail["gates"] = {one.name: one.words for one in met}
        detail["unknown"] = [one.name for one in met if one.passed is None]
        planned, _ = expected_pause(sessions)
        standing = positions.tail_state(target, sessions.profile.name)
        journal.note(
            pause_planned_s=planned,
            pause_limit_s=limit.total_seconds(),
            lag_s=None if standing is None else gates.lag_s(sessions, standing),
        )
    patient = msgspec.structs.replace(settings.copy, patience=limit)
    with pause.bounded(), Tail(msgspec.structs.replace(settings, copy=patient)) as tail:
        with journal.step("catch-up") as detail:
            detail["events"] = steps.keep_up(sessions, tail)
            while steps.wait_while_postponed(sessions, lambda: steps.keep_up(sessions, tail)):
                detail["events"] += steps.keep_up(sessions, tail)
                steps.met_gates(sessions, conditions)
        with journal.step("library") as detail:
            read = read_by_library(settings)
            detail["words"] = read.words
            journal.note(library=msgspec.to_builtins(read))
        steps.call_hook(settings, hooks.CUTOVER_BEFORE_FENCE, journal)
        with journal.step("fence") as detail:
            _require_stopped(sessions)
            kind = fence.survey_source(sessions.source).kind
            assert kind is not None  # noqa: S101 - a gate has seen to it
            revoked = fence.revocable_roles(sessions.source) if kind == "roles" else []
            journal.fenced(kind, revoked)
            pause.begin()
            fence.engage_source(sessions.source, kind, revoked, timedelta(seconds=max(0.0, pause.left())))
            detail["kind"] = kind
        position = committed_time(sessions.source)
        journal.note(position={"t": position.time, "i": position.inc})
        steps.call_hook(settings, hooks.CUTOVER_FENCED, journal, at_most_s=pause.left())
        with journal.step("drain") as detail:
            pause.check()
            detail["events"] = steps.catch_up(sessions, tail, position, pause)
        with journal.step("parity") as detail:
            pause.check()
            documents = steps.compare(sessions, position, pause)
            detail["documents"] = documents
            journal.note(compared=documents)
        with journal.step("outbox"):
            pause.check()
            LibraryTables(sessions.profile, settings.target).open_outbox(target)
        pause.check()


def _require_stopped(sessions: Sessions) -> None:
    """Raise ``RefusedError`` while the application of a library that executes before it writes is connected."""
    if not load_target(sessions.profile.target).runs_first:
        return
    users = late_writes.connected_users(sessions.source, (), sessions.settings.cutover.tolerated_writers)
    if users:
        raise RefusedError(
            f"connected to MongoDB: {', '.join(users)}; the library executes a job before it writes that down, so the"
            " fence would not keep it from executing a job that PostgreSQL executes too: stop the application"
        )


def _run_steps_after(sessions: Sessions, journal: Journal) -> None:
    """Run the steps after the point of no return that are not done."""
    after: dict[str, Callable[[Sessions, Journal, dict[str, Any]], None]] = {
        "open-target": _open_target,
        "backup": steps.back_up,
        "reverse-sync": steps.carry_first,
    }
    for name, act in after.items():
        if not journal.done(name):
            with journal.step(name) as detail:
                act(sessions, journal, detail)
            if name == "open-target":
                steps.call_hook(sessions.settings, hooks.CUTOVER_OPENED, journal)
    journal.end("cut-over")


def _open_target(sessions: Sessions, journal: Journal, detail: dict[str, Any]) -> None:
    """Lift the fence that an earlier rollback closed, and record the write pause."""
    tables = LibraryTables(sessions.profile, sessions.settings.target)
    detail["was_closed"] = tables.is_closed(sessions.target)
    tables.lift(sessions.target)
    if "pause_s" not in journal.cutover.detail:
        began = next((one.began_at for one in journal.steps() if one.step == "fence"), None)
        pause = None if began is None else (database_time(sessions.target) - began).total_seconds()
        journal.note(pause_s=pause and round(pause, 3))
    told = journal.cutover.detail
    by = Approval(told.get("who", UNNAMED.who), told.get("reason", UNNAMED.reason))
    decisions.record(sessions.target, decisions.CUTOVER, by, cutover=str(journal.cutover.id))


def _undo(sessions: Sessions, journal: Journal, error: BaseException | None = None) -> None:
    """Undo all steps, and call the hook of a failed cutover; the fence of MongoDB comes first.

    The journal says "aborted" only if everything is undone. Otherwise raises ``UndoError``.
    """
    settings = sessions.settings

    def on_target(act: Callable[[], object]) -> Callable[[], object]:
        def connected() -> None:
            steps.reconnect(sessions, journal)
            act()

        return connected

    tables = LibraryTables(sessions.profile, settings.target)
    parts = {
        "the fence of MongoDB": lambda: retry_transient(
            settings, lambda: steps.lift_source_fence(sessions, journal.cutover)
        ),
        "the outbox of PostgreSQL": on_target(lambda: tables.close_outbox(sessions.target)),
    }
    failed: dict[str, str] | None = None
    try:
        failed = undo(parts, ("the journal", on_target(journal.abort)))
    finally:  # also if it was interrupted
        not_undone = (*parts, "the journal") if failed is None else tuple(failed)
        steps.call_failed(settings, journal, error or RefusedError(steps.INTERRUPTED), not_undone)
    if failed:
        raise UndoError(failed, steps.ABORT, error) from error


class LibraryCutoverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cutover plan`` prints for a native target."""

    environment: str
    steps: dict[str, str]
    gates: tuple[Gate, ...]
    pause_s: float | None
    """Expected seconds; None if they cannot be estimated yet."""
    pause_limit_s: float
    changed: int | None
    """Documents that changed since the last complete parity check; None: everything would be compared."""
    ready: bool


def plan(settings: Settings, conditions: GateOptions) -> LibraryCutoverPlan:
    """Evaluate everything, and change nothing (a probe table is created and dropped again)."""
    with open_sessions(settings) as sessions:
        pause, changed = expected_pause(sessions)
        evaluated = tuple(gates.evaluate(sessions, msgspec.structs.replace(conditions, pause=(pause, changed))))
    left_out = {} if settings.cutover.backup else {"backup": "left out (cutover.backup)"}
    return LibraryCutoverPlan(
        environment=environment_name(settings),
        steps=STEP_TEXTS | left_out,
        gates=evaluated,
        pause_s=pause,
        pause_limit_s=settings.cutover.max_pause.total_seconds(),
        changed=changed,
        ready=not any(gate.passed is False for gate in evaluated),
    )
