"""The cutover to the schema ``scheduler``: persistence epoch, configuration file, late triggers, smoke test."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from migrator.config import Settings
from migrator.connections.identity import environment_name
from migrator.cutover import config_file, epoch, fence, metrics, outbox, overdue, procedure, processes, takeover
from migrator.cutover.first_fires import FirstFires, first_fires
from migrator.cutover.gates import GateOptions
from migrator.cutover.journal import Cutover, Journal
from migrator.cutover.procedure import Act, CutoverTarget
from migrator.cutover.smoke import smoke
from migrator.errors import RefusedError
from migrator.pipeline import hooks
from migrator.pipeline.sessions import Sessions
from migrator.schema.decisions import UNNAMED, Approval

_EPOCH: Final = "epoch"


class CutoverResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a cutover."""

    cutover: Cutover
    pause_s: float
    """Seconds from before the fence until PostgreSQL was open, by the target's clock."""
    overdue: int
    compared: int
    """Documents compared under the fence."""
    resumed: bool
    """An earlier call had passed the point of no return."""
    first_fires: FirstFires
    """Schedules that do not fire at once."""


class SchedulerCutover(CutoverTarget[CutoverResult]):
    """``CutoverTarget`` of the schema ``scheduler``."""

    def begin(self, conditions: GateOptions) -> Journal:
        config, number = conditions.config.absolute(), epoch.next_number(self.sessions)
        journal = Journal.begin(
            self.sessions.target,
            environment=environment_name(self.sessions.settings),
            config_path=str(config),
            backup_path=str(config_file.kept_path(config, "cutover", number)),
        )
        journal.note(**{_EPOCH: number})
        return journal

    def is_open(self, journal: Journal) -> bool:
        found = epoch.target_epoch(self.sessions)
        return found is not None and found.backend == "postgres" and found.number == journal.cutover.detail.get(_EPOCH)

    def require_resumable(self, journal: Journal, conditions: GateOptions) -> None:
        begun_for = journal.cutover.config_path
        if begun_for != str(conditions.config.absolute()):
            raise RefusedError(f"the cutover was begun for {begun_for}: call again with that file")

    def noted_before(self) -> Mapping[str, Any]:
        settings = self.sessions.settings
        return {
            "overdue": overdue.count_late(self.sessions.target),
            "metrics_before": metrics.journal_snapshot(settings, cut_over=False),
            processes.JOURNAL_KEY: processes.alive_before(settings),
        }

    def announce(self, journal: Journal) -> None:
        epoch.set_target(self.sessions, journal.cutover.detail[_EPOCH], "mongo")  # no process begins there too early

    def stop_own(self, journal: Journal) -> None:
        """Close the epoch of MongoDB: it stops processes of the tool that log in as the tool's user."""
        epoch.close_source(self.sessions, journal.cutover.detail[_EPOCH])

    def open_outbox(self) -> None:
        target, settings = self.sessions.target, self.sessions.settings
        if fence.is_target_fenced(target, settings.postgres):
            fence.lift_target(target, settings.postgres)  # an earlier rollback left it
        outbox.open_outbox(target)

    def steps_after(self) -> Mapping[str, Act]:
        return {
            "open-target": self._open,
            "smoke": self._smoke,
            "backup": partial(procedure.back_up, self.sessions),
            "reverse-sync": partial(procedure.carry_first, self.sessions),
        }

    def undo_parts(self, journal: Journal) -> Mapping[str, Callable[[], object]]:
        sessions, cutover = self.sessions, journal.cutover
        number = cutover.detail.get(_EPOCH, 0)
        return {
            "the epoch of MongoDB": self.on_source(lambda: _reopen_epoch(sessions, cutover)),
            "the fence of MongoDB": self.lifted_fence(journal),
            "the configuration file": lambda: _restore_file(cutover),
            "the outbox of PostgreSQL": self.on_target(journal, lambda: outbox.close_outbox(sessions.target)),
            "the epoch of PostgreSQL": self.on_target(journal, lambda: epoch.undo_target(sessions, number)),
        }

    def ended(self, journal: Journal, *, resumed: bool) -> CutoverResult:
        procedure.call_hook(self.sessions.settings, hooks.CUTOVER_ENDED, journal)
        detail = journal.cutover.detail
        return CutoverResult(
            cutover=journal.cutover,
            pause_s=float(detail.get("pause_s") or 0.0),
            overdue=int(detail.get("overdue") or 0),
            compared=int(detail.get("compared") or 0),
            resumed=resumed,
            first_fires=first_fires(self.sessions.target),
        )

    def _open(self, journal: Journal, detail: dict[str, Any]) -> None:
        """Close MongoDB, fire what is overdue, change the file, open PostgreSQL: in this order, each idempotent."""
        sessions, number = self.sessions, journal.cutover.detail[_EPOCH]
        epoch.close_source(sessions, number)
        # From now on every handler runs here. It comes first: what is overdue fires as in any cutover.
        ended = takeover.take_over(sessions.target, sessions.profile, sessions.settings.cutover.slot_tolerance)
        if ended is not None:
            detail |= {"runs_skipped": ended.skipped, "slots_freed": ended.freed}
        current_epoch = epoch.target_epoch(sessions)
        if current_epoch is None or current_epoch.backend != "postgres":
            detail["overdue"] = overdue.fire_late(sessions.settings, sessions.target, sessions.settings.cutover.overdue)
        config_file.set_backend(Path(journal.cutover.config_path), "postgres", Path(journal.cutover.backup_path))
        epoch.set_target(sessions, number, "postgres")
        procedure.record_opened(sessions.target, journal)

    def _smoke(self, journal: Journal, detail: dict[str, Any]) -> None:
        detail |= smoke(Path(journal.cutover.config_path))
        journal.note(metrics_at_cutover=metrics.journal_snapshot(self.sessions.settings, cut_over=True))


def run(settings: Settings, conditions: GateOptions, by: Approval = UNNAMED) -> CutoverResult:
    """Make the cutover as ``procedure.run`` does; raises as it does."""
    return procedure.run(SchedulerCutover, settings, conditions, by)


def _reopen_epoch(sessions: Sessions, cutover: Cutover) -> None:
    found = epoch.source_epoch(sessions)
    if found is not None and found.backend == "postgres" and found.number == cutover.detail.get(_EPOCH):
        epoch.open_source(sessions, found.number)


def _restore_file(cutover: Cutover) -> None:
    if Path(cutover.config_path).exists():  # without the file nothing can name PostgreSQL
        config_file.set_backend(Path(cutover.config_path), "mongo", Path(f"{cutover.config_path}.undone"))
