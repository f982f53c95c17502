"""What a check is: data, and a function from a context to what it found."""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec

from migrator.result import (
    FAILED,
    PASSED,
    Cell,
    Exhibit,
    Finding,
    Loss,
    Machine,
    Measurement,
    Moved,
    Outcome,
    Quarantined,
    Tally,
    unverified,
)
from migrator.verify.context import Context


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found. ``findings`` may be cut by the check; ``tallies`` and counts are complete."""

    outcome: Outcome
    counts: dict[str, int] = {}
    cells: tuple[Cell, ...] = ()
    tallies: tuple[Tally, ...] = ()
    findings: tuple[Finding, ...] = ()
    findings_total: int = 0
    exhibits: tuple[Exhibit, ...] = ()
    moved: tuple[Moved, ...] = ()
    quarantine: tuple[Quarantined, ...] = ()
    losses: tuple[Loss, ...] = ()
    machines: tuple[Machine, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    """Figures that vary; one above its ceiling is a warning of the check, without a tally."""
    varying: tuple[Exhibit, ...] = ()
    """Tables and charts that vary from run to run; they stand in the report, outside the digest."""
    left_out: tuple[str, ...] = ()


Run: TypeAlias = Callable[[Context], Found]


class CheckSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One check, before it is run."""

    id: str
    title: str
    """What holds when it passes, as a sentence without its full stop."""
    requirements: tuple[str, ...] = ()
    """Rows of the list of capabilities that it shows, by member: their words stand in ``verify.requirements``."""
    judges: bool = True
    """Whether it can fail. One that cannot records what it saw, and names no requirement."""
    limits: tuple[str, ...] = ()
    """What it cannot see, each a sentence."""
    run: Run

    @property
    def area(self) -> str:
        """Return the part of the id before the dot."""
        return self.id.partition(".")[0]


def judge(*, wrong: bool, unsure: Iterable[str] = ()) -> Outcome:
    """Return failed when something is wrong, else unverified with its reasons when something could not be told."""
    if wrong:
        return FAILED
    reasons = list(dict.fromkeys(reason for reason in unsure if reason))
    return unverified("; ".join(reasons)) if reasons else PASSED
