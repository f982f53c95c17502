"""What a check is: data, and a function from a context to a result; and the context, which all checks share."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import psycopg

from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import target_connection
from migrator.errors import MigratorError, RefusedError
from migrator.exit_status import Allowance
from migrator.parity.model import ParityOutcome
from migrator.result import (
    FAILED,
    PASSED,
    Cell,
    CollectionCounts,
    Decision,
    Finding,
    Loss,
    Measurement,
    Outcome,
    Panel,
    Quarantined,
    StateMachine,
    Tally,
    unverified,
)
from migrator.schema.revisions import Position, current
from migrator.scratch import Components

if TYPE_CHECKING:
    from migrator.pipeline.sessions import SourceSessions
    from migrator.verify.checks.load import LoadSize


class Context:
    """What every check is given. Nothing is opened before a check needs it, and no driver of MongoDB is imported."""

    def __init__(self, settings: Settings, *, fresh: Decision | None = None) -> None:
        """``fresh`` is the decision that there is no source; the source is not opened then."""
        self.settings = settings
        self.fresh = fresh
        self.config: Path | None = None
        """The file that the settings were read from, if there is one."""
        self.listed = settings.report.max_differences
        self._comparison: ParityOutcome | MigratorError | None = None
        self.lent_source: SourceSessions | None = None
        """A connection to the source that the caller opened and closes. If omitted, each check opens its own."""
        self.source_failure: MigratorError | None = None if fresh is None else RefusedError("there is no source")
        """Why the source could not be opened, after the first attempt."""
        self.backends: tuple[str, ...] = ("postgres",)
        """Where the scheduler is driven."""
        self.operations, self.seed = 0, 0
        """How many random calls are made on both backends, and their seed."""
        self.load: LoadSize | None = None
        """The load that processes work on; None: the load test is not made."""
        self.components = Components()
        """The store, client and process that are driven: a mutation replaces some of the tool's own."""
        self.on_record = False
        """Whether the parity check is recorded, so that the cutover may use it."""
        self.allow_quarantined: Allowance = 0
        """How many documents may be in quarantine: the gates are evaluated with it."""
        self.lock_source = False
        """Whether the tables of a source in PostgreSQL are locked during the parity check."""
        self.scratch_on_source = False
        """Whether a check may write to the source's server; else nothing is written there."""
        self.steps: dict[str, int] = {}
        """Milliseconds of the steps that several checks share."""

    @cached_property
    def dsn(self) -> str:
        """Return the target's DSN; raises ``ConfigurationError`` where there is none."""
        return postgres_dsn(self.settings)

    @cached_property
    def positions(self) -> list[Position]:
        """Return where the branches of the schema stand."""
        return current(self.dsn)

    @contextmanager
    def target(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        """Connect to the target as the owner of the tables; each statement on its own."""
        with target_connection(self.settings) as connection:
            yield connection

    @property
    def comparison(self) -> ParityOutcome:
        """Return the parity check of every document, made once; its error is raised for each caller."""
        if self._comparison is None:
            try:
                with self.timed("parity check of every document"):
                    self._comparison = self.compare()
            except MigratorError as error:
                self._comparison = error
        if isinstance(self._comparison, MigratorError):
            raise self._comparison
        return self._comparison

    def compare(self) -> ParityOutcome:
        """Compare every document with its rows. Here it cannot: the runner's context can, which needs both drivers."""
        raise NotImplementedError

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Measure the time of a step, also of one that fails."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            self.steps[step] = (time.monotonic_ns() - began) // 1_000_000


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. ``findings`` may be cut by the check; ``tallies`` and counts are complete."""

    outcome: Outcome
    counts: dict[str, int] = {}
    cells: tuple[Cell, ...] = ()
    tallies: tuple[Tally, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_total: int = 0
    panels: tuple[Panel, ...] = ()
    collections: tuple[CollectionCounts, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    losses: tuple[Loss, ...] = ()
    state_machines: tuple[StateMachine, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    """Measured values that vary; one above its ceiling is a warning of the check, without a tally."""
    varying: tuple[Panel, ...] = ()
    """Tables and charts that vary from run to run. The report shows them; they are not part of the digest."""
    left_out: tuple[str, ...] = ()


CheckFunction: TypeAlias = Callable[[Context], CheckResult]


class CheckSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One check, before it is run."""

    id: str
    title: str
    """What holds if the check passes, as a sentence without its full stop."""
    requirements: tuple[str, ...] = ()
    """Rows of the list of capabilities that it shows, by member; ``verify.requirements`` has their text."""
    can_fail: bool = True
    """Whether the check can fail. One that cannot only records, and names no requirement."""
    limits: tuple[str, ...] = ()
    """What the check cannot detect, each a sentence."""
    run: CheckFunction

    @property
    def area(self) -> str:
        """Return the part of the id before the dot."""
        return self.id.partition(".")[0]


def outcome_of(*, wrong: bool, unsure: Iterable[str] = ()) -> Outcome:
    """Return failed if something is wrong, else unverified if there are reasons for it, else passed."""
    if wrong:
        return FAILED
    reasons = list(dict.fromkeys(reason for reason in unsure if reason))
    return unverified("; ".join(reasons)) if reasons else PASSED


def result_of_faults(
    wrong: Sequence[str],
    *,
    cause: str,
    title: str,
    fix: str,
    counts: dict[str, int],
    panels: tuple[Panel, ...] = (),
    measurements: tuple[Measurement, ...] = (),
) -> CheckResult:
    """Return the result of a check that finds faults of one kind, each in words."""
    tally = Tally(severity="difference", cause=cause, title=title, fix=fix, count=1)
    return CheckResult(
        outcome=outcome_of(wrong=bool(wrong)),
        counts={**counts, "differences": len(wrong)},
        tallies=(tally,) * bool(wrong),
        findings=tuple(Finding(severity="difference", cause=cause, details=(one,)) for one in wrong),
        findings_total=len(wrong),
        panels=panels,
        measurements=measurements,
    )
