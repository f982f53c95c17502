"""The gates of the cutover: conditions that must hold before it. They are computed, never set by hand."""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from migrator.connections.mongo import committed_time
from migrator.cutover import (
    config_file,
    copied_database,
    epoch,
    fence,
    journal,
    late_writes,
    library_documents,
    overdue,
    parallel,
    rehearsal_record,
    server_gates,
)
from migrator.cutover.library_tables import LibraryTables
from migrator.cutover.server_gates import Answer, Gate
from migrator.cutover.write_pause import ExpectedPause, expected_pause
from migrator.durations import format_duration
from migrator.exit_status import Allowance, beyond
from migrator.parity import recorded_check
from migrator.parity.never_firing_schedules import find_never_firing_schedules
from migrator.pipeline import control, deferred_ddl, history, ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tables import NOT_FOLLOWED
from migrator.pipeline.tail import backlog, positions
from migrator.pipeline.tail.backlog import require_same_conditions
from migrator.pipeline.tail.positions import oplog_history
from migrator.targets import load_target


class GateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions of the operator."""

    config: Path
    quarantined: Allowance = 0
    """The most documents that may be in quarantine. Their number changes while the source is written to."""
    pause: ExpectedPause | None = None
    """The expected write pause, where it is known already (``write_pause.expected_pause``)."""
    clock: Callable[[], float] = time.time
    """Time of this machine, in seconds."""


class PlannedCutover(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cutover plan`` prints for any target."""

    environment: str
    steps: dict[str, str]
    gates: tuple[Gate, ...]
    pause_s: float | None
    """Expected seconds; None if they cannot be estimated yet."""
    pause_limit_s: float
    changed: int | None
    """Documents that changed since the last complete parity check; None: everything would be compared."""
    ready: bool


def evaluate(sessions: Sessions, conditions: GateOptions) -> list[Gate]:
    """Evaluate every gate; a gate that cannot be evaluated is not met."""
    chosen = _LIBRARY_GATES if sessions.settings.target.is_native else _GATES
    evaluated = [
        server_gates.evaluate(name, partial(look, sessions, conditions), sessions.target)
        for name, look in chosen.items()
    ]
    if sessions.settings.cutover.rehearsals:
        evaluated.append(server_gates.evaluate("rehearsals", partial(_rehearsals, sessions), sessions.target))
    return evaluated if chosen is _LIBRARY_GATES else [*evaluated, *parallel.gates(sessions)]


def _rehearsals(sessions: Sessions) -> Answer:
    return rehearsal_record.answer(sessions.target, sessions.settings, sessions.profile)


def _copy(sessions: Sessions, _: GateOptions) -> Answer:
    plan = ledger.latest_plan(sessions.target)
    if plan is None:
        return False, "nothing was copied yet: call migrator backfill"
    if plan.state != "complete":
        return False, "the copy is unfinished: call migrator backfill"
    scope = plans.plan_scope(plan)
    if scope.only or scope.tenants:
        return False, "only a part was copied: call migrator backfill without --only and --tenant"
    if deferred_ddl.outstanding(sessions.target):
        return False, "indexes are still to be built: call migrator backfill"
    require_same_conditions(sessions, plan)
    return True, f"complete, as of {plan.as_of:%Y-%m-%d %H:%M:%S} UTC"


def lag_s(sessions: Sessions, state: positions.TailState) -> int:
    """Return how many seconds the tail is behind the source, by the clock of the source."""
    return max(0, committed_time(sessions.source).time - state.position.time.time)


def _tail(sessions: Sessions, _: GateOptions) -> Answer:
    state = positions.tail_state(sessions.target, sessions.profile.name)
    if state is None:
        return False, "no tail has run for this source: call migrator tail"
    if state.alarm is not None:
        return False, f"alarm: {state.alarm}; call migrator parity --repair apply"
    behind = lag_s(sessions, state)
    owed = backlog.count(sessions.target)
    limit = sessions.settings.cutover.max_lag
    if timedelta(seconds=behind) > limit or owed:
        at_most = format_duration(limit)
        return (
            False,
            f"lag {behind} s (at most {at_most}), {owed:,} documents in the backlog: let migrator tail catch up",
        )
    return True, f"lag {behind} s, no alarm"


def _comparison(sessions: Sessions, _: GateOptions) -> Answer:
    check = recorded_check.last_check(sessions.target)
    limit = sessions.settings.cutover.parity_check_max_age
    if check is None:
        return False, "there is no complete parity check: call migrator parity"
    if not check.clean:
        why = "the last complete parity check found differences"
        return False, (
            f"{why}: if no application works on PostgreSQL yet, call migrator parity --repair apply, which repairs them"
            " and compares again"
        )
    if timedelta(seconds=check.age_s) > limit:
        age = f"the last complete parity check is {check.age_s:,.0f} s old (at most {format_duration(limit)})"
        return False, f"{age}: call migrator parity"
    return True, f"clean, {check.documents:,} documents, {check.age_s:,.0f} s ago"


def _quarantine(sessions: Sessions, conditions: GateOptions) -> Answer:
    count = ledger.quarantined_count(sessions.target, sessions.profile.name)
    allowed = conditions.quarantined
    limit = "any number is allowed" if allowed == "all" else f"at most {allowed:,}"
    if beyond(count, allowed):
        words = f"{count:,} documents are quarantined ({limit}): migrator quarantine list names them"
        return False, f"{words}; correct them, or allow so many with --allow-quarantined {count}"
    return True, f"{count:,} documents are quarantined ({limit})" if count else "empty"


def _quarantined_share(sessions: Sessions, _: GateOptions) -> Answer:
    """Check each collection: one that is in quarantine as a whole, or for the most part, is not a few odd documents.

    The number of documents is the estimate of the source.
    """
    limit = sessions.settings.cutover.max_quarantined_percent
    over = []
    plan = ledger.latest_plan(sessions.target)
    for name, count in ledger.quarantined_by_collection(sessions.target, sessions.profile.name).items():
        documents = sessions.source[sessions.name_of(name)].estimated_document_count()
        if plan is not None and (collection := sessions.profile.by_name().get(name)) is not None:
            documents -= history.left_out(sessions, collection, plans.plan_context(plan))
        documents = max(count, documents)
        if limit < 100 and (count == documents or count * 100 > limit * documents):  # noqa: PLR2004 - percent
            over.append(f"{count:,} of {documents:,} documents of {name}")
    if over:
        return False, (
            f"{', '.join(over)} are in quarantine (at most {limit} % of a collection): find out why with migrator"
            " quarantine list, or set cutover.max_quarantined_percent"
        )
    return True, f"no collection has more than {limit} % of its documents in quarantine"


def _schedules_fire(sessions: Sessions, _: GateOptions) -> Answer:
    plan = ledger.latest_plan(sessions.target)
    if plan is None:
        return False, "nothing was copied yet: call migrator backfill"
    schedules = find_never_firing_schedules(sessions, plans.plan_context(plan))
    if schedules:
        named = ", ".join(one.source_id for one in schedules[:5])
        return False, (
            f"{len(schedules):,} enabled schedules have a rule and no enabled trigger, and would never fire"
            f" ({named}): call"
            " migrator parity --repair apply, then migrator parity"
        )
    return True, "every enabled schedule with a rule has an enabled trigger"


def _overdue(sessions: Sessions, _: GateOptions) -> Answer:
    """Compute what the step ``open-target`` will compute, which is after the point of no return."""
    policy = sessions.settings.cutover.overdue
    refused = overdue.unplannable(sessions.target, policy)
    if refused:
        return False, (
            f"{len(refused):,} overdue triggers have a next fire that cannot be computed ({', '.join(refused[:5])}):"
            " correct the dates of their documents, then call migrator parity"
        )
    return True, overdue.describe(overdue.count_late(sessions.target), policy)


def _config(sessions: Sessions, conditions: GateOptions) -> Answer:
    path = conditions.config
    backup = config_file.kept_path(path.absolute(), "cutover", epoch.next_number(sessions))
    config_file.require_changeable(path, os.environ, backup)
    named = config_file.named_backend(path)
    if named != "mongo":
        return False, f"{path} names {named} already"
    return True, f"{path} can be changed; the present text is kept as {backup.name}"


def _epoch(sessions: Sessions, _: GateOptions) -> Answer:
    sides = {"the source": epoch.source_epoch(sessions), "the target": epoch.target_epoch(sessions)}
    moved = [side for side, found in sides.items() if found is not None and found.backend != "mongo"]
    if moved:
        return False, f"{' and '.join(moved)} say that the data is in PostgreSQL already"
    return True, f"the next epoch is {epoch.next_number(sessions)}"


def _history(sessions: Sessions, _: GateOptions) -> Answer:
    history = oplog_history(sessions.source)
    passed, detail = server_gates.oplog(history)
    if history is None:
        return passed, detail
    state = positions.tail_state(sessions.target, sessions.profile.name)
    if state is not None and history.oldest > state.position.time:
        return (
            False,
            f"{detail}, and the position of the tail is before that: call migrator parity --repair apply, then tail",
        )
    limits = sessions.settings.cutover
    needed = limits.max_lag + limits.max_pause
    if history.full and timedelta(seconds=history.seconds) < needed:
        return False, f"{detail}, and a cutover may need {format_duration(needed)}: enlarge the oplog"
    last = recorded_check.last_check(sessions.target)
    if last is None or history.oldest <= last.position:
        return True, detail
    detail += ", less than since the last parity check, so everything is compared under the fence"
    if timedelta(seconds=last.seconds) > limits.max_pause:
        return (
            False,
            f"{detail}, which took {last.seconds:,.0f} s: call migrator parity, then cutover run at once",
        )
    return True, detail


def _write_pause(sessions: Sessions, conditions: GateOptions) -> Answer:
    pause = expected_pause(sessions) if conditions.pause is None else conditions.pause
    seconds, changed, limit = pause.seconds, pause.changed, sessions.settings.cutover.max_pause
    if seconds is None:
        return None, "not known before a complete parity check, and before a tail has run"
    what = "everything is compared" if changed is None else f"{changed:,} documents that changed are compared"
    what += f" {pause.assumed}" if pause.assumed and changed else ""
    expected = f"about {seconds:,.1f} s are expected, in which {what} (at most {format_duration(limit)})"
    if timedelta(seconds=seconds) > limit:
        remedy = "call migrator parity shortly before the cutover, or raise cutover.max_pause"
        return False, f"{expected}: {remedy}"
    return True, expected


def _control(sessions: Sessions, _: GateOptions) -> Answer:
    state = control.read(sessions.target)
    if state.pause is not None:
        return False, f"paused {state.pause.words}: call migrator control resume"
    if state.postponed is not None:
        return None, (
            f"postponed {state.postponed.words}: cutover run waits before the fence until migrator control"
            " allow-cutover"
        )
    return True, "neither paused nor postponed"


WITHOUT_A_CUTOVER: Final = (
    "change over without a cutover: stop the application, call migrator tail --until-caught-up and migrator parity, and"
    " start it on PostgreSQL"
)


def _library_reverse_sync(sessions: Sessions, _: GateOptions) -> Answer:
    if sessions.tables is not None:
        return False, NOT_FOLLOWED
    plan = ledger.latest_plan(sessions.target)
    reasons = library_documents.faults(sessions.profile)
    remedy = f"; {WITHOUT_A_CUTOVER}" if reasons else ""
    if not reasons and plan is not None:
        reasons = library_documents.unlike_ids(sessions, plans.plan_context(plan))
    if reasons:
        words = f"{library_documents.NOT_WRITTEN_BACK}, so a cutover could not be rolled back"
        return False, f"{words}: {'; '.join(reasons)}{remedy}"
    return True, "each row of the library becomes the document that the library reads in MongoDB"


def _library_tables(sessions: Sessions, _: GateOptions) -> Answer:
    """Whether the tool may put triggers on the tables, and they hold nothing that did not come from the source."""
    tables = LibraryTables(sessions.profile, sessions.settings.target)
    refused = tables.not_owned(sessions.target)
    if refused:
        return False, f"the tool's user must own {', '.join(refused)}, or be a member of the role that does"
    sessions.target_tables.guard_foreign(sessions.target, sessions.profile)
    sessions.target_tables.guard_changed(sessions.target, sessions.profile.collections)
    return True, "triggers can be made on them, every row came from the source, and no other program has changed one"


def _application(sessions: Sessions, _: GateOptions) -> Answer:
    """Who would still work on MongoDB at the fence: a library that executes before it writes must be stopped."""
    stops = load_target(sessions.profile.target).runs_first
    held = server_gates.held_collections(sessions.settings, sessions.profile)
    users = late_writes.connected_users(sessions.source, (), sessions.settings.cutover.tolerated_writers, held)
    if users is None:
        return None, "who is connected to MongoDB is not known: the tool's user may not see connections (inprog)"
    if not users:
        return True, "nobody who could write is connected to MongoDB"
    if stops:
        can_be_stopped = bool(sessions.settings.hooks.cutover_before_fence)
        return None if can_be_stopped else False, (
            f"connected now: {', '.join(users)}; {server_gates.RUNS_FIRST}: cutover run is refused while its"
            " application is connected: stop it, or let the hook cutover_before_fence stop it"
        )
    return None, f"connected now, and stopped by the fence: {', '.join(users)}"


def _alone(sessions: Sessions, _: GateOptions) -> Answer:
    current = journal.latest(sessions.target)
    if current is not None and current.state == "cut-over":
        return False, "there was a cutover already: finish it, or roll it back"
    if current is not None and current.state == "running":
        return (
            None,
            "a cutover is under way, or was interrupted: migrator cutover status names the command to call",
        )
    return True, "no other cutover is open"


def _library_alone(sessions: Sessions, conditions: GateOptions) -> Answer:
    """Whether no cutover is open, and none has finished: a library knows no epoch that says so."""
    current = journal.latest(sessions.target)
    if current is not None and current.state == "finished":
        return False, "the cutover is finished: the application works on PostgreSQL, and MongoDB is not current"
    return _alone(sessions, conditions)


def _fence(sessions: Sessions, _: GateOptions) -> Answer:
    """Whether the fence would stop every writer, and nobody has blocked writes already.

    A cutover that is undone would lift the write block of another one.
    """
    passed, detail = server_gates.writers(sessions.source, sessions.settings, sessions.profile)
    current = journal.latest(sessions.target)
    if not passed or (current is not None and current.state in ("running", "cut-over")):
        return passed, detail  # the gate "alone" says what becomes of that cutover
    held = server_gates.held_collections(sessions.settings, sessions.profile)
    kind = server_gates.fence_survey(sessions.source, sessions.settings, held).kind
    if kind == "write-block" and fence.is_source_fenced(sessions.source, kind, ()):
        return False, (
            "MongoDB refuses writes already, because of a cutover that is open or finished, or of somebody else: call"
            " migrator cutover release-source with the configuration of that cutover, or let them end their block"
        )
    return passed, detail


_GATES: Final[dict[str, Callable[[Sessions, GateOptions], Answer]]] = {
    server_gates.REVERSE_SYNC: lambda sessions, _: (
        server_gates.reverse_sync(sessions.profile) if sessions.tables is None else (False, NOT_FOLLOWED)
    ),
    "copy": _copy,
    "replica set": lambda sessions, _: server_gates.replica_set(sessions.source),
    "tail": _tail,
    "parity check": _comparison,
    "quarantine": _quarantine,
    "quarantined share": _quarantined_share,
    "schedules fire": _schedules_fire,
    "overdue triggers": _overdue,
    "fence": _fence,
    "configuration": _config,
    "epoch": _epoch,
    "clocks": lambda sessions, conditions: server_gates.clocks(
        sessions.source, sessions.target, sessions.settings, conditions.clock
    ),
    "history": _history,
    "write pause": _write_pause,
    "target": lambda sessions, _: server_gates.target_writes(sessions.target),
    "rows of the copy": lambda sessions, _: copied_database.answer(sessions),
    "alone": _alone,
    "control": _control,
}
_LIBRARY_GATES: Final[dict[str, Callable[[Sessions, GateOptions], Answer]]] = {
    server_gates.REVERSE_SYNC: _library_reverse_sync,
    **{
        name: _GATES[name]
        for name in (
            *("copy", "replica set", "tail", "parity check", "quarantine", "quarantined share", "fence", "clocks"),
            *("history", "write pause", "target"),
        )
    },
    "tables of the library": _library_tables,
    "application": _application,
    "alone": _library_alone,
    "control": _control,
}
"""Those of a native target: no epoch, no configuration file of the tool's, no triggers of a scheduler."""

GATE_NAMES: Final = tuple(_GATES)
"""In the order of the plan."""
