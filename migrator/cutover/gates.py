"""What must hold before the switch, as it stands now: computed, never ticked by hand."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import psycopg
from pymongo.errors import PyMongoError

from migrator.cutover import clocks, configfile, epoch, fence, journal, parallel
from migrator.cutover.gate import Gate
from migrator.errors import MigratorError
from migrator.parity import recorded
from migrator.pipeline import deferred, ledger
from migrator.pipeline import plan as plans
from migrator.pipeline.history import history
from migrator.pipeline.sessions import Sessions
from migrator.pipeline.tail import positions, touched
from migrator.pipeline.tail.turn import guard
from migrator.store.mongo.client import committed_time, replica_set
from migrator.store.postgres.connection import translate

ROOM_MB: Final = 8
"""The target must take so much more: the notes of the outbox, what is fired for what is overdue, the journal."""


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decided."""

    config: Path
    quarantined: int = 0
    """Documents in quarantine that may stay behind."""
    clock: Callable[[], float] = time.time
    """This machine's, in seconds."""


Answer = tuple[bool | None, str]


def gates(sessions: Sessions, conditions: Conditions) -> list[Gate]:
    """Look at every condition; one that fails to be looked at is not met."""
    found = []
    for name, look in _GATES.items():
        try:
            passed, words = look(sessions, conditions)
        except (MigratorError, PyMongoError) as error:
            passed, words = False, str(error)
        except psycopg.Error as error:
            if sessions.target.closed:
                raise
            passed, words = False, str(translate("the target", error))
        found.append(Gate(name=name, passed=passed, words=words))
    return [*found, *parallel.checklist(sessions)]


def unmet(found: list[Gate]) -> list[Gate]:
    """Return the gates that hold up the switch."""
    return [one for one in found if one.passed is False]


def _copy(sessions: Sessions, _: Conditions) -> Answer:
    plan = ledger.latest_plan(sessions.target)
    if plan is None:
        return False, "nothing was copied yet: call migrator backfill"
    if plan.state != "complete":
        return False, "the copy is unfinished: call migrator backfill"
    scope = plans.plan_scope(plan)
    if scope.only or scope.tenants:
        return False, "only a part was copied: call migrator backfill without --only and --tenant"
    if deferred.owed(sessions.target):
        return False, "indexes are still to be built: call migrator backfill"
    guard(sessions, plan)
    return True, f"complete, as of {plan.as_of:%Y-%m-%d %H:%M:%S} UTC"


def _replica_set(sessions: Sessions, _: Conditions) -> Answer:
    name = replica_set(sessions.source)
    if name is None:
        return False, "the source is no replica set, so nobody can follow it: make it one (a single member is enough)"
    return True, f"replica set {name}"


def _tail(sessions: Sessions, _: Conditions) -> Answer:
    standing = positions.standing(sessions.target, sessions.profile.name)
    if standing is None:
        return False, "the source was never followed: call migrator tail"
    if standing.alarm is not None:
        return False, f"alarm: {standing.alarm}; call migrator parity --repair apply"
    behind = max(0, committed_time(sessions.source).time - standing.position.time.time)
    owed = touched.count(sessions.target)
    limit = sessions.settings.cutover.max_lag_s
    if behind > limit or owed:
        return False, f"{behind} s behind (at most {limit}), {owed:,} documents owed: let migrator tail catch up"
    return True, f"{behind} s behind, no alarm"


def _comparison(sessions: Sessions, _: Conditions) -> Answer:
    found = recorded.last(sessions.target)
    limit = sessions.settings.cutover.comparison_max_age_s
    if found is None:
        return False, "nothing was compared as a whole: call migrator cutover compare"
    if not found.clean:
        return False, "the last complete comparison found differences: call migrator parity --repair apply"
    if found.age_s > limit:
        return False, f"the last complete comparison is {found.age_s:,.0f} s old (at most {limit:,})"
    return True, f"clean, {found.documents:,} documents, {found.age_s:,.0f} s ago"


def _quarantine(sessions: Sessions, conditions: Conditions) -> Answer:
    count = ledger.quarantined(sessions.target, sessions.profile.name)
    if count != conditions.quarantined:
        return False, f"{count:,} documents are set aside: settle them, or say --quarantined {count}"
    return True, f"{count:,} documents are set aside, as was decided" if count else "empty"


def _fence(sessions: Sessions, _: Conditions) -> Answer:
    found = fence.survey(sessions.source)
    if found.kind is None:
        return False, found.why_not
    tolerated = set(sessions.settings.cutover.tolerated_writers)
    through = [name for name in found.unstopped if name not in tolerated]
    if through:
        return False, f"{found.kind} does not stop {', '.join(through)}"
    stopped = ", ".join(found.stopped) or "nobody"
    lacking = " and ".join(sorted(fence.ENDING))
    waits = "" if found.ends else f"; may not end a transaction that stays open, which needs {lacking}"
    return True, f"{found.kind}; stops {stopped}{waits}"


def _config(sessions: Sessions, conditions: Conditions) -> Answer:
    path = conditions.config
    backup = configfile.kept_as(path.absolute(), "cutover", epoch.following(sessions))
    configfile.require_switchable(path, os.environ, backup)
    named = configfile.backend_in(path)
    if named != "mongo":
        return False, f"{path} names {named} already"
    return True, f"{path} can be switched; the text before is kept as {backup.name}"


def _epoch(sessions: Sessions, _: Conditions) -> Answer:
    sides = {"the source": epoch.on_source(sessions), "the target": epoch.on_target(sessions)}
    moved = [side for side, found in sides.items() if found is not None and found.backend != "mongo"]
    if moved:
        return False, f"{' and '.join(moved)} say that the data is in PostgreSQL already"
    return True, f"the next switch is number {epoch.following(sessions)}"


def _clocks(sessions: Sessions, conditions: Conditions) -> Answer:
    found = clocks.compared(sessions.source, sessions.target, conditions.clock)
    limit = sessions.settings.cutover.max_clock_skew_ms
    return found.apart * 1000 <= limit, f"{found.words} (at most {limit / 1000:g} s apart)"


def _history(sessions: Sessions, _: Conditions) -> Answer:
    kept = history(sessions.source)
    if kept is None:
        return None, "cannot be told: the tool's user may not read local.oplog.rs (role read on local)"
    words = f"the source keeps {_length(kept.seconds)} of its history (oplog)"
    standing = positions.standing(sessions.target, sessions.profile.name)
    if standing is not None and kept.oldest > standing.position.time:
        return False, f"{words}, and the tail stands before that: call migrator parity --repair apply, then tail"
    limits = sessions.settings.cutover
    needed = limits.max_lag_s + limits.max_pause_s
    if kept.full and kept.seconds < needed:
        return False, f"{words}, and a switch may need {needed} s: enlarge the oplog"
    last = recorded.last(sessions.target)
    if last is None or kept.oldest <= last.position:
        return True, words if kept.full else f"{words}, and has dropped nothing yet"
    words += ", less than since the last comparison, so that everything is compared behind the fence"
    if last.seconds > limits.max_pause_s:
        return False, f"{words}, which took {last.seconds:,.0f} s: call migrator cutover compare, then switch at once"
    return True, words


def _length(seconds: int) -> str:
    return f"{seconds:,} s" if seconds < 2 * 3600 else f"{seconds / 3600:,.1f} h"


def _target(sessions: Sessions, _: Conditions) -> Answer:
    row = sessions.target.execute(
        "SELECT rolsuper OR pg_has_role(session_user, 'pg_read_all_stats', 'MEMBER'), pg_is_in_recovery(),"
        " current_setting('default_transaction_read_only') = 'on', pg_size_pretty(pg_database_size(current_database()))"
        " FROM pg_roles WHERE rolname = session_user"
    ).fetchone()
    assert row is not None  # noqa: S101 - the session's user exists
    if row[1]:
        return False, "the target is a standby, which takes no writes: postgres.dsn must lead to the primary"
    if row[2]:
        return False, "the target takes no writes: default_transaction_read_only is on"
    if not row[0]:
        return False, "the way back needs to see other sessions: grant pg_read_all_stats to the tool's user"
    _require_room(sessions)
    return True, f"takes writes; the database holds {row[3]}"


def _require_room(sessions: Sessions) -> None:
    """Write as much as a switch may, and take it back: raises ``DiskFull`` where there is no room for it."""
    with sessions.target.transaction(force_rollback=True):
        sessions.target.execute("CREATE TABLE migration.cutover_probe (filler bytea STORAGE EXTERNAL)")
        sessions.target.execute(
            "INSERT INTO migration.cutover_probe SELECT decode(repeat('00', 1048576), 'hex')"
            " FROM generate_series(1, %s)",
            (ROOM_MB,),
        )


def _alone(sessions: Sessions, _: Conditions) -> Answer:
    found = journal.newest(sessions.target)
    if found is not None and found.state == "switched":
        return False, "the switch was made already: finish it, or take it back"
    if found is not None and found.state == "running":
        return None, "a switch is under way, or was interrupted: migrator cutover status tells"
    return True, "no other switch is open"


_GATES: Final[dict[str, Callable[[Sessions, Conditions], Answer]]] = {
    "copy": _copy,
    "replica set": _replica_set,
    "tail": _tail,
    "comparison": _comparison,
    "quarantine": _quarantine,
    "fence": _fence,
    "configuration": _config,
    "epoch": _epoch,
    "clocks": _clocks,
    "history": _history,
    "target": _target,
    "alone": _alone,
}


def lines(found: list[Gate]) -> Iterator[str]:
    """Yield the gates for people."""
    marks = {True: "ok", False: "NO", None: "?"}
    for one in found:
        yield f"{marks[one.passed]:<3} {one.name}: {one.words}"
