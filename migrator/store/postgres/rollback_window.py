"""What is made on PostgreSQL while a rollback is open, and that the documents of the source could not state.

The row of the persistence epoch names the source to which a rollback would go, from the cutover until ``cutover
finish``. How the source is configured, each process reads in its own ``[source]``.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

from migrator.config import Settings
from migrator.connections.postgres import Connection
from migrator.errors import MigratorError, RefusedError
from migrator.log import logger
from migrator.records import Schedule, Trigger
from migrator.store.postgres import epoch
from migrator.store.queue import SCRATCH


class RollbackWindow:
    """What a process knows of the source to which a rollback would go."""

    def __init__(self, settings: Settings) -> None:
        """Look at nothing yet: most sessions state no schedule, and most databases have no open rollback."""
        self._settings = settings
        self._told: set[str] = set()

    def require_stated(
        self, connection: Connection, tenant: str, definitions: Iterable[tuple[Schedule, Sequence[Trigger]]]
    ) -> None:
        """Log each schedule that the source cannot state; raises ``RefusedError`` instead if ``on_unwritable`` says so.

        Called before the commit of a session that wrote ``definitions``.
        """
        if tenant.startswith(SCRATCH):
            return
        source: str | None = None
        for number, (schedule, triggers) in enumerate(definitions):
            source = epoch.rollback_source(connection) if number == 0 else source
            if source is None or not self._knows(source):
                return
            reasons = self._unstated(schedule, triggers)
            if not reasons:
                continue
            if self._refuses:
                raise RefusedError(
                    f"schedule {schedule.id} {'; '.join(reasons)}; {source}, to which a rollback would go, states"
                    f" triggers of kind {', '.join(self._kinds)}: choose such a rule, or call migrator cutover finish"
                )
            logger().warning(
                "after a rollback the old application could not fire a schedule as it is stated now",
                tenant=tenant,
                schedule=str(schedule.id),
                source=source,
                why=list(reasons),
            )

    @property
    def _refuses(self) -> bool:
        return self._settings.cutover.on_unwritable == "refuse"

    @cached_property
    def _profile(self) -> Any:  # noqa: ANN401 - a Profile, or the error for which there is none
        try:
            return import_module("migrator.sources").profile_of(self._settings.source, self._settings.target)
        except MigratorError as error:
            return error

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        kinds: tuple[str, ...] = import_module("migrator.sources.write_back").stated_kinds(self._profile)
        return kinds

    def _knows(self, source: str) -> bool:
        """Whether the source is that of this process; raises ``RefusedError`` if it is not, and refuses."""
        if not isinstance(self._profile, MigratorError) and self._profile.name == source:
            return True
        named = self._profile if isinstance(self._profile, MigratorError) else f"names {self._profile.name}"
        message = (
            f"the cutover came from {source}, and [source] of this process {named}: set it as it was for the cutover"
        )
        if self._refuses:
            raise RefusedError(f"what {source} can state is not known here: {message}")
        if source not in self._told:
            self._told.add(source)
            logger().warning(f"what {source} cannot state is not told: {message}")
        return False

    def _unstated(self, schedule: Schedule, triggers: Sequence[Trigger]) -> Sequence[str]:
        sources, write_back = import_module("migrator.sources"), import_module("migrator.sources.write_back")
        context = sources.context_of(self._settings.source, schedule.updated_at or schedule.created_at)
        reasons: Sequence[str] = write_back.unstated(self._profile, context, schedule, triggers)
        return reasons
