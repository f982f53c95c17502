"""What a check is: data, and a function from a context to a result; and the context, which all checks share."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from migrator.config import Settings, postgres_dsn
from migrator.connections.postgres import Connection, target_connection, translate_errors
from migrator.errors import MigratorError, RefusedError
from migrator.records import ALL
from migrator.report.areas import AREAS, area_of
from migrator.result import (
    FAILED,
    PASSED,
    Cell,
    CollectionCounts,
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
from migrator.sources import profile_of
from migrator.verify.request import Request

if TYPE_CHECKING:
    from migrator.pipeline.sessions import SourceSessions

X = TypeVar("X")


class Lent(msgspec.Struct, frozen=True):
    """What the trial of a mutation lends to its checks: two connections, and what to compare."""

    source: "SourceSessions"
    target: Connection
    collections: tuple[str, ...]
    """Those that are compared, in this process; every one if there is none."""


class CheckContext:
    """What every check is given. Nothing is opened before a check needs it, and no driver of MongoDB is imported."""

    def __init__(
        self,
        settings: Settings,
        request: Request | None = None,
        *,
        components: Components | None = None,
        lent: Lent | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        """``components``: what is driven, some of it a mutation's. ``lent``: in place of what each check opens.

        ``say``: gets a line about what a check that takes long does now.
        """
        self.settings, self.request = settings, request or Request()
        self.components, self.lent, self.say = components or Components(), lent, say
        self.listed = settings.report.max_differences
        self.seed = secrets.randbelow(1_000_000) if self.request.seed is None else self.request.seed
        """Of the random calls."""
        self.source_failure: MigratorError | None = None
        if self.request.fresh_start is not None:
            self.source_failure = RefusedError("there is no source")
        """Why the source cannot be opened, after the first attempt."""
        self.steps: dict[str, int] = {}
        """Milliseconds of the steps that several checks share."""
        self._shared: dict[str, Any] = {}

    @cached_property
    def dsn(self) -> str:
        """Return the target's DSN; raises ``ConfigurationError`` where there is none."""
        return postgres_dsn(self.settings)

    @cached_property
    def positions(self) -> list[Position]:
        """Return where the branches of the schema stand."""
        return current(self.dsn)

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """Return the tables that the copy may fill: those of the schema ``scheduler``, or those of the library."""
        if not self.settings.target.is_native:
            return tuple(record.table for record in ALL)
        profile = profile_of(self.settings.source, self.settings.target)
        fed = (record.table for collection in profile.collections for record in collection.tables)
        return tuple(dict.fromkeys(fed))

    @contextmanager
    def target(self) -> Iterator[Connection]:
        """Connect to the target as the owner of the tables; each statement on its own."""
        if self.lent is None:
            with target_connection(self.settings) as connection:
                yield connection
        else:
            with translate_errors("the target"):
                yield self.lent.target

    def shared(self, step: str, compute: Callable[[], X]) -> X:
        """Return a value for several checks, computed once, and timed as ``step``; its error is raised for each."""
        if step not in self._shared:
            try:
                with self.timed(step):
                    self._shared[step] = compute()
            except MigratorError as error:
                self._shared[step] = error
        answer = self._shared[step]
        if isinstance(answer, MigratorError):
            raise answer
        return answer  # type: ignore[no-any-return]  # what compute returned

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Measure the time of a step, also of one that fails, without that of the steps within it."""
        began, others = time.monotonic_ns(), self._other_steps(step)
        try:
            yield
        finally:
            took = (time.monotonic_ns() - began) // 1_000_000
            self.steps[step] = max(took - (self._other_steps(step) - others), 0)

    def _other_steps(self, step: str) -> int:
        """Return the milliseconds of all other steps."""
        return sum(took for name, took in self.steps.items() if name != step)


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


CheckFunction: TypeAlias = Callable[[CheckContext], CheckResult]


class CheckSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One check, before it is run."""

    id: str
    title: str
    """What holds if the check passes, as a sentence without its full stop."""
    requirements: tuple[str, ...] = ()
    """Rows of the list of capabilities that it shows, by member; ``verify.requirements`` has their text."""
    can_fail: bool = True
    """Whether the check can fail. One that cannot only records, and names no requirement."""
    fails_if: str = ""
    """What makes it fail, for ``docs/report.md``."""
    limits: tuple[str, ...] = ()
    """What the check cannot detect, each a sentence."""
    scheduler_limits: tuple[str, ...] = ()
    """Further ones, in the schema ``scheduler`` alone."""
    source: bool = False
    """Whether the check compares with a source, in an area of which others do not."""
    of_scheduler: bool = False
    """Whether the check is about the tool's own scheduler, in an area that every target has."""
    run: CheckFunction

    @property
    def area(self) -> str:
        """Return the part of the id before the dot."""
        return area_of(self.id)

    @property
    def needs_source(self) -> bool:
        """Whether the check is not applicable if there is no source."""
        return self.source or AREAS[self.area].needs_source

    @property
    def needs_scheduler(self) -> bool:
        """Whether the check is not applicable to the tables of a library, which have no scheduler of the tool's."""
        return self.of_scheduler or AREAS[self.area].of == "scheduler"


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
