"""What the checks of one verification share: settings, the target, and the comparison, which is made once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from migrator.config import Settings, postgres_dsn
from migrator.errors import MigratorError, RefusedError
from migrator.parity.model import ParityOutcome
from migrator.result import Decision

if TYPE_CHECKING:
    from migrator.pipeline.sessions import SourceSessions
    from migrator.store.postgres.migrate import Position
    from migrator.verify.behaviour.craft import Craft


class Context:
    """Handed to every check. Nothing is opened, and nothing heavy imported, before a check asks for it."""

    def __init__(self, settings: Settings, *, values_shown: bool = False, fresh: Decision | None = None) -> None:
        """Hold what was asked for; ``fresh``: the decision that there is no source, which is not asked then."""
        self.settings = settings
        self.values_shown = values_shown
        self.fresh = fresh
        self.config: Path | None = None
        """The file that the settings come from, where they come from one."""
        self.listed = settings.report.max_differences
        self._comparison: ParityOutcome | MigratorError | None = None
        self.lent_source: SourceSessions | None = None
        """A connection to the source that somebody else opened and closes; none: each check opens its own."""
        self.source_failure: MigratorError | None = None if fresh is None else RefusedError("there is no source")
        """Why the source could not be opened, once somebody has tried."""
        self.backends: tuple[str, ...] = ("postgres",)
        """Where the scheduler is driven."""
        self.operations, self.seed = 0, 0
        """How many random calls are made on both backends, and what they follow from."""
        self.craft: Craft | None = None
        """What is driven instead of the tool's own store, facade and process: how a fault is planted."""
        self.on_record = False
        """Whether the comparison is put on record, so that the switch may rest on it."""
        self.scratch_on_source = False
        """Whether a check may write to the source's server; else nothing is written there."""
        self.steps: dict[str, int] = {}
        """Milliseconds of the steps that several checks share."""

    @cached_property
    def dsn(self) -> str:
        """Return the target's DSN; raises ``ConfigurationError`` where there is none."""
        return postgres_dsn(self.settings)

    @cached_property
    def positions(self) -> "list[Position]":
        """Return where the branches of the schema stand."""
        from migrator.store.postgres.migrate import current  # noqa: PLC0415 - see the class

        return current(self.dsn)

    @contextmanager
    def target(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Connect to the target as the owner of the tables; each statement on its own."""
        from migrator.store.postgres.connection import open_target, speaking_of  # noqa: PLC0415 - see the class

        with open_target(self.settings, autocommit=True) as connection, speaking_of("the target"):
            yield connection

    @property
    def comparison(self) -> ParityOutcome:
        """Return the comparison of every document, made when first asked for; what it raises, it raises again."""
        if isinstance(self._comparison, MigratorError):
            raise self._comparison
        if self._comparison is None:
            self._comparison = self._compare()
        return self._comparison

    def _compare(self) -> ParityOutcome:
        from migrator.parity.flow import compare  # noqa: PLC0415 - see the class
        from migrator.parity.recorded import compared  # noqa: PLC0415 - see the class
        from migrator.pipeline.plan import Scope  # noqa: PLC0415 - see the class

        with self.timed("comparison of every document"):
            try:
                if self.on_record:
                    return compared(self.settings, must=False)
                return compare(self.settings, Scope())
            except MigratorError as error:
                self._comparison = error
                raise

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Take the time of a step, whether it ends well or not."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.steps[step] = (time.monotonic_ns() - began) // 1_000_000
