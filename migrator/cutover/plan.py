"""The plan of a cutover, computed now: steps, gates, the expected write pause, what is done about late triggers."""

from pathlib import Path
from typing import Final

import msgspec

from migrator.config import Settings
from migrator.connections.identity import environment_name
from migrator.connections.mongo import committed_time
from migrator.cutover import gates, overdue, rollback_gaps, steps
from migrator.cutover.gates import GateOptions
from migrator.cutover.server_gates import Gate
from migrator.errors import MigratorError
from migrator.exit_status import Allowance
from migrator.parity import recheck, recorded_check
from migrator.pipeline.sessions import Sessions, open_sessions
from migrator.pipeline.tail import positions

STEP_TEXTS: Final = {
    "preflight": "the tool evaluates every gate again; one that is not met ends the cutover",
    "catch-up": "the tail catches up while writers continue",
    "fence": "MongoDB refuses the writes of every other user, also in transactions that stay open",
    "drain": "the tail catches up to a position taken under the fence",
    "parity": "a parity check of what changed since the last complete one; a difference ends the cutover",
    "outbox": "triggers in PostgreSQL record in the outbox what is written from now on, for the reverse sync",
    steps.POINT_OF_NO_RETURN: "recorded; a cutover that stops before it is undone, after it is finished",
    "open-target": "set the epoch, overdue triggers and the configuration file; PostgreSQL is open, writers continue",
    "smoke": "a new process opens the store that the file names, writes, reads, fires, claims and finishes",
    "backup": "export MongoDB as it was at the fence, with digests (rollback level 3)",
    "reverse-sync": "write the changes of PostgreSQL to MongoDB; migrator tail continues to do so",
}
_FENCE_S: Final = 0.3
_STEPS_S: Final = 0.7
"""Seconds that the fence, and the steps that do not depend on the amount of data, take (measured on the small demo)."""


class CutoverPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``cutover plan`` prints."""

    environment: str
    config: str
    steps: dict[str, str]
    gates: tuple[Gate, ...]
    pause_s: float | None
    """Expected seconds; None if they cannot be estimated yet."""
    pause_limit_s: float
    changed: int | None
    """Documents that changed since the last complete parity check; None: everything would be compared."""
    overdue: int
    overdue_words: str
    ready: bool
    rollback_words: str = ""
    """What a rollback could not give to the old application; empty if there is nothing."""


def cutover_plan(settings: Settings, config: Path, *, quarantined: Allowance) -> CutoverPlan:
    """Evaluate everything, and change nothing (a probe table is created and dropped again)."""
    with open_sessions(settings) as sessions:
        found = tuple(gates.evaluate(sessions, GateOptions(config=config, quarantined=quarantined)))
        pause, changed = expected_pause(sessions)
        late = overdue.count_late(sessions.target)
        return CutoverPlan(
            environment=environment_name(settings),
            config=str(config),
            steps=STEP_TEXTS
            if settings.cutover.backup
            else STEP_TEXTS | {"backup": "left out (cutover.backup): no level 3"},
            gates=found,
            pause_s=pause,
            pause_limit_s=settings.cutover.max_pause.total_seconds(),
            changed=changed,
            overdue=late,
            overdue_words=overdue.describe(late, settings.cutover.overdue),
            ready=not gates.unmet(list(found)),
            rollback_words=rollback_gaps.plan_words(sessions.profile),
        )


def expected_pause(sessions: Sessions) -> tuple[float | None, int | None]:
    """Return the expected write pause in seconds, and the number of documents that are compared in it."""
    last = recorded_check.last_check(sessions.target)
    stands = positions.tail_state(sessions.target, sessions.profile.name)
    if last is None or stands is None:
        return None, None
    rate = max(last.documents / last.seconds, 1.0) if last.seconds else 1.0
    try:
        changed = recheck.changed_since(sessions, last.position, committed_time(sessions.source))
    except MigratorError:
        changed = None
    if changed is None:
        return _FENCE_S + _STEPS_S + last.seconds, None
    count = sum(map(len, changed.values()))
    return round(_FENCE_S + _STEPS_S + count / rate, 2), count
