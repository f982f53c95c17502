"""What a caller asks of a verification: valid, and complete, when it is made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from migrator.errors import UsageError
from migrator.exit_status import Allowance
from migrator.report.areas import AREAS, area_of, require_known, split_fail_on
from migrator.result import Policy
from migrator.verify.fresh_start import FreshStart

LOAD: Final = "performance.load"
"""The check of ``--load``."""


class LoadCeiling(msgspec.Struct, frozen=True):
    """The most that a measured value may be, and who states that."""

    words: str
    unit: str
    most: float
    stated_by: str


OWN: Final = "the tool"
CEILINGS: Final[dict[str, LoadCeiling]] = {
    "end-s": LoadCeiling("until the last run ended", "s", 300.0, OWN),
    "firing-p95-s": LoadCeiling("from due to queued, 95th percentile", "s", 300.0, OWN),
    "poll-p95-ms": LoadCeiling("poll, 95th percentile", "ms", 5_000.0, OWN),
    "claim-p95-ms": LoadCeiling("claim, 95th percentile", "ms", 1_000.0, OWN),
    "claim-p99-ms": LoadCeiling("claim, 99th percentile", "ms", 2_000.0, OWN),
}
"""Of PostgreSQL, in the order of the report. Values of MongoDB are measured beside them, without a ceiling.

No requirement states them: those of the list of capabilities are for calls of ten (``performance.queue``). They allow
two processors that ten processes and the server share, and other work on the machine.
"""


class LoadSize(msgspec.Struct, frozen=True, kw_only=True):
    """How large the load is, and what is allowed."""

    jobs: int = 10_000
    processes: int = 10
    ceilings: dict[str, float] = {}
    """Name of a ceiling to its value, where it is not that of ``CEILINGS``."""


def ceilings_of(given: Sequence[str]) -> dict[str, float]:
    """Return the ceilings that a caller states as ``NAME=NUMBER``; raises ``UsageError`` for any other text."""
    ceilings = {}
    for text in given:
        name, _, number = text.partition("=")
        if name not in CEILINGS:
            raise UsageError(f"--load-ceiling {text}: no such ceiling; known: {', '.join(CEILINGS)}")
        try:
            ceilings[name] = float(number)
        except ValueError:
            ceilings[name] = -1.0
        if not 0 < ceilings[name] < float("inf"):
            raise UsageError(f"--load-ceiling {text}: the ceiling is a number above 0")
    return ceilings


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller asked for.

    Raises ``UsageError`` if it contradicts itself, names an area that does not exist, or would write to the source's
    server without asking to. Names of checks are looked up when the checks are chosen (``runner.planned_checks``).
    """

    only: tuple[str, ...] = ()
    """Areas, and ids of single checks."""
    skip: tuple[str, ...] = ()
    fail_on: tuple[str, ...] = ()
    """``AREA``: its warnings fail too; ``no-AREA``: its failures are accepted (``areas.split_fail_on``)."""
    backend: Literal["postgres", "mongo", "both"] = "postgres"
    """Backend on which scenarios drive the scheduler, in scratch tenants. On MongoDB documents are written."""
    no_behaviour: bool = False
    """Leave out all areas that write; only the record of the verification is written."""
    behaviour: int = 0
    """Number of random calls on both backends in lockstep."""
    seed: int | None = None
    """Seed of the random calls. If omitted, each run takes another one, which the report names."""
    load: bool = False
    """Make the load test; a value above its ceiling fails."""
    load_jobs: int = LoadSize().jobs
    load_processes: int = LoadSize().processes
    load_ceiling: tuple[str, ...] = ()
    """``NAME=NUMBER``: another ceiling than that of ``CEILINGS``."""
    sensitivity: bool = False
    """Apply mutations in a scratch copy and count those detected. It needs the right to create databases."""
    scratch_on_source: bool = False
    """Allow scratch databases and tenants on the source's server, which are removed. Else nothing is written there."""
    show_values: bool = False
    """Write the values of the first differences into a local file next to the report."""
    lock_source: bool = False
    """Hold SHARE locks on the tables of a source in PostgreSQL during the parity check."""
    config: Path | None = None
    """The file that the settings come from: the cutover is rehearsed on a copy of it."""
    fresh_start: FreshStart | None = None
    """The decision that there is no source: checks that need a source are not applicable."""
    on_record: bool = False
    """Record the parity check, as ``parity`` does, so that the cutover may use it."""
    allow_quarantined: Allowance = 0
    """How many documents may be in quarantine before the exit status says so; the gates are evaluated with it."""
    run_name: str = ""
    """Name of the run. If empty, the time at which it starts."""

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, and what is not allowed."""
        require_known((name for name in self.only if "." not in name), "--only")
        require_known(self.skip, "--skip")
        split_fail_on(self.fail_on)
        if self.behaviour and self.no_behaviour:
            raise UsageError("--behaviour and --no-behaviour contradict each other")
        if self.fresh_start is not None and self.with_sensitivity:
            raise UsageError("--fresh-start has no source to take a sample from: leave --sensitivity out")
        options = {
            "--sensitivity": self.with_sensitivity,
            f"--backend {self.backend}": self.backend != "postgres",
            "--behaviour N": self.behaviour,
        }
        for option, given in options.items():
            if given and not self.scratch_on_source and self.fresh_start is None:
                raise UsageError(f"{option} writes to the source's server; allow that with --scratch-on-source")
        asked = (self.load_jobs, self.load_processes, self.load_ceiling)
        if not self.load and asked != (LoadSize().jobs, LoadSize().processes, ()):
            raise UsageError("--load-jobs, --load-processes and --load-ceiling belong to --load")
        if self.load and (self.no_behaviour or not self.wants(LOAD)):
            raise UsageError("--load is a test of the area performance, which the other options leave out")
        ceilings_of(self.load_ceiling)

    @property
    def with_sensitivity(self) -> bool:
        """Whether the areas that are checked on request are."""
        return self.sensitivity or any(area_of(name) in AREAS and AREAS[area_of(name)].on_request for name in self.only)

    @property
    def skipped(self) -> tuple[str, ...]:
        """The areas that are left out, by name or as those that write."""
        writing = (name for name, area in AREAS.items() if area.writes and self.no_behaviour)
        return tuple(dict.fromkeys((*self.skip, *writing)))

    def wants(self, name: str) -> bool:
        """Whether an area, or a check by its id, is asked for as a whole."""
        area = area_of(name)
        if AREAS[area].on_request and not self.with_sensitivity:
            return False
        return (not self.only or not {area, name}.isdisjoint(self.only)) and area not in self.skipped

    @property
    def backends(self) -> tuple[str, ...]:
        """Where the scheduler is driven; a fresh start has PostgreSQL only."""
        if self.fresh_start is not None:
            return ("postgres",)
        return ("postgres", "mongo") if self.backend == "both" else (self.backend,)

    @property
    def operations(self) -> int:
        """How many random calls are made on both backends."""
        return self.behaviour if self.fresh_start is None else 0

    @property
    def load_size(self) -> LoadSize | None:
        """The load that processes work on; None: the load test is not made."""
        if not self.load:
            return None
        ceilings = ceilings_of(self.load_ceiling)
        return LoadSize(jobs=self.load_jobs, processes=self.load_processes, ceilings=ceilings)

    def policy(self, checks: Sequence[str]) -> Policy:
        """Return the request for ``result.json``: the same however often, and in whichever order, an area was named.

        ``checks``: the ids of all checks, in their order.
        """
        widened, narrowed = split_fail_on(self.fail_on)
        only, skip, fail_on, accepted = (
            tuple(name for name in (*AREAS, *checks) if name in names)
            for names in (self.only, self.skipped, widened, narrowed)
        )
        return Policy(
            only=only,
            skip=skip,
            fail_on=fail_on,
            accepted=accepted,
            values_shown=self.show_values,
            scratch_on_source=self.scratch_on_source,
            allow_quarantined=self.allow_quarantined or msgspec.UNSET,
        )
