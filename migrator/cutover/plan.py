"""The plan of a cutover, computed now: steps, gates, the expected write pause, what is done about late triggers."""

from pathlib import Path
from typing import Final

from migrator.config import Settings
from migrator.connections.identity import environment_name
from migrator.cutover import gates, journal, overdue, rollback_gaps, server_gates
from migrator.cutover.first_fires import FirstFires, first_fires
from migrator.cutover.gates import GateOptions, PlannedCutover
from migrator.cutover.rehearsal_record import CountedRehearsals, counted
from migrator.cutover.server_gates import unmet
from migrator.cutover.write_pause import expected_pause
from migrator.exit_status import Allowance
from migrator.pipeline.sessions import open_sessions

STEP_TEXTS: Final = {
    "preflight": "the tool evaluates every gate again; one that is not met ends the cutover",
    "catch-up": "the tail catches up while writers continue",
    "fence": "MongoDB refuses the writes of every other user, also in transactions that stay open",
    "drain": "the tail catches up to a position taken under the fence",
    "parity": "a parity check of what changed since the last complete one; a difference ends the cutover",
    "outbox": "triggers in PostgreSQL record in the outbox what is written from now on, for the reverse sync",
    journal.POINT_OF_NO_RETURN: "recorded; a cutover that stops before it is undone, after it is finished",
    "open-target": "set the epoch, overdue triggers and the configuration file; PostgreSQL is open, writers continue",
    "smoke": "a new process opens the store that the file names, writes, reads, fires, claims and finishes",
    "backup": "export MongoDB as it was at the fence, with digests (rollback level 3); the reverse sync waits for it",
    "reverse-sync": "write the changes of PostgreSQL to MongoDB; migrator tail continues to do so",
}


class CutoverPlan(PlannedCutover, frozen=True, kw_only=True):
    """What ``cutover plan`` prints for the schema ``scheduler``."""

    config: str
    overdue: int
    overdue_words: str
    first_fires: FirstFires
    """Schedules that do not fire at once after the cutover."""
    rehearsals: CountedRehearsals
    """Those that count for the cutover, with what they measured."""
    rollback_words: str = ""
    """What a rollback could not give to the old application; empty if there is nothing."""


def cutover_plan(settings: Settings, config: Path, *, quarantined: Allowance) -> CutoverPlan:
    """Evaluate everything, and change nothing (a probe table is created and dropped again)."""
    with open_sessions(settings) as sessions:
        pause = expected_pause(sessions)
        conditions = GateOptions(config=config, quarantined=quarantined, pause=pause)
        evaluated = tuple(gates.evaluate(sessions, conditions))
        overdue_triggers = overdue.count_late(sessions.target)
        held = server_gates.held_collections(settings, sessions.profile)
        return CutoverPlan(
            environment=environment_name(settings),
            config=str(config),
            steps=server_gates.steps_of(STEP_TEXTS, held)
            | ({} if settings.cutover.backup else {"backup": "left out (cutover.backup): no level 3"}),
            gates=evaluated,
            pause_s=pause.seconds,
            pause_limit_s=settings.cutover.max_pause.total_seconds(),
            changed=pause.changed,
            overdue=overdue_triggers,
            overdue_words=overdue.describe(overdue_triggers, settings.cutover.overdue),
            ready=not unmet(evaluated),
            first_fires=first_fires(sessions.target),
            rehearsals=counted(sessions.target, settings, sessions.profile),
            rollback_words=rollback_gaps.plan_words(sessions.profile),
        )
