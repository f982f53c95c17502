"""Scenarios: functions that drive the scheduler and state what they expect, run on each backend and compared.

Every expectation that does not hold is a finding, and so is every answer that differs between the backends.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from migrator.errors import DeniedError, MigratorError, UnreachableError
from migrator.parity.causes import describe_difference, shown
from migrator.result import FAILED, PASSED, Cell, Finding, Measurement, Panel, StateMachine, Tally, table_panel
from migrator.scratch import new_scratch_tenant, scratch_tenants
from migrator.values import jsonb
from migrator.verify.behaviour.harness import Harness
from migrator.verify.check import CheckContext, CheckFunction, CheckResult, outcome_of

_OF_THE_BACKEND: Final = frozenset({"source", "source_id", "extra", "store"})
"""Columns and members that say where a row lies."""

EXPECTED_AND_FOUND: Final = ("the expected answer", "the answer")


def plain(answer: Any) -> Any:  # noqa: ANN401 - answers of all calls
    """Return an answer as lists, mappings and plain values."""
    if isinstance(answer, bytes):
        return jsonb.decode(answer)
    if isinstance(answer, msgspec.Struct):
        names = (name for name in answer.__struct_fields__ if name not in _OF_THE_BACKEND)
        return {"": type(answer).__name__} | {name: plain(getattr(answer, name)) for name in names}
    if isinstance(answer, Mapping):
        return {plain(key): plain(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(each) for each in answer]
    return answer


def wording(one: Any, other: Any, sides: tuple[str, str]) -> tuple[str, ...]:  # noqa: ANN401 - as above
    """Say where two plain answers differ, with their values: the verification itself made all of them."""
    return describe_difference(one, other, sides=sides, values=True, lines=3)


def could_not_tell(error: MigratorError) -> bool:
    """Whether an error says nothing about the scheduler: a server is gone, or a right is missing."""
    gone = isinstance(error, UnreachableError) and not isinstance(error, DeniedError)  # denied in the service's role
    return gone or bool(error.grant)


class UnmetExpectation(msgspec.Struct, frozen=True):
    """An expectation that did not hold."""

    what: str
    words: tuple[str, ...]


class Observations:
    """What one scenario observed on one backend, in the order of its calls."""

    def __init__(self) -> None:
        """Begin with none."""
        self.expected = 0
        self.held: dict[str, bool] = {}
        """Each expectation in words, and whether it held every time. Pairs of states are in the state machines."""
        self.failures: list[UnmetExpectation] = []
        self.seen: list[tuple[str, Any]] = []
        """What every backend must answer alike."""
        self.state_machines: list[StateMachine] = []
        self.panels: list[Panel] = []
        self.varying: list[Panel] = []
        self.measurements: list[Measurement] = []

    def expect(self, what: str, wanted: Any, actual: Any, *, pair: bool = False) -> bool:  # noqa: ANN401 - answers of all calls
        """Expect an answer, compared by its meaning; tell whether it came. ``pair``: of the states of a machine."""
        self.expected += 1
        wanted, actual = plain(wanted), plain(actual)
        self.seen.append((what, actual))
        if not pair:
            self.held[what] = self.held.get(what, True) and wanted == actual
        if wanted == actual:
            return True
        self.failures.append(UnmetExpectation(what, wording(wanted, actual, EXPECTED_AND_FOUND)))
        return False

    def expect_true(self, what: str, found: Any) -> bool:  # noqa: ANN401 - as above
        """Expect the answer true."""
        return self.expect(what, wanted=True, actual=found)

    def expect_false(self, what: str, found: Any) -> bool:  # noqa: ANN401 - as above
        """Expect the answer false."""
        return self.expect(what, wanted=False, actual=found)

    def expect_refused(self, what: str, error: type[MigratorError], call: Callable[[], Any]) -> None:
        """Expect that a call is refused with this error."""
        try:
            answer = call()
        except MigratorError as raised:
            if could_not_tell(raised) and not isinstance(raised, error):
                raise
            name = error.__name__ if isinstance(raised, error) else type(raised).__name__
            self.expect(what, error.__name__, name)
        else:
            self.expect(what, error.__name__, f"answered {shown(plain(answer))}")

    def record(self, what: str, found: Any) -> None:  # noqa: ANN401 - as above
        """Note an answer that has no oracle here, but must be the same on every backend."""
        self.seen.append((what, plain(found)))

    def record_error(self, error: Exception) -> None:
        """Note that a call was refused, or ended in an error, where nobody expected it."""
        self.expected += 1
        self.held[_TO_ITS_END] = False
        self.failures.append(UnmetExpectation(_TO_ITS_END, (f"{type(error).__name__}: {error}",)))


_TO_ITS_END: Final = "goes through to its end"
BOTH: Final = "both backends"
HOLDS: Final = {True: "holds", False: "not met", None: "not tried"}


class Scenario(msgspec.Struct, frozen=True):
    """A function that drives the scheduler, and its name in a few words."""

    name: str
    run: Callable[[Harness, Observations], None]
    backends: tuple[str, ...] = ("postgres", "mongo")
    """The backends that have what it is about."""


ByBackend: TypeAlias = dict[str, Observations]
"""By backend."""


class ScenarioCheck(msgspec.Struct, frozen=True):
    """A check's function: runs scenarios, each in emptied scratch tenants. The tests run the same scenarios."""

    scenarios: tuple[Scenario, ...]
    tables: tuple[str, ...]
    """What the scenarios read and write: the squares of the coverage map."""

    def __call__(self, context: CheckContext) -> CheckResult:
        """Run the scenarios on the backends of the context."""
        return result_of(context, self.scenarios, run_scenarios(context, self.scenarios), self.tables)


def scenario_check(*scenarios: Scenario, tables: tuple[str, ...]) -> CheckFunction:
    """Return a check's function that runs scenarios, which read and write these tables."""
    return ScenarioCheck(scenarios, tables)


def run_scenarios(context: CheckContext, scenarios: tuple[Scenario, ...]) -> dict[str, ByBackend]:
    """Run scenarios on every backend; return the observations by scenario, then by backend."""
    observations: dict[str, ByBackend] = {scenario.name: {} for scenario in scenarios}
    name = new_scratch_tenant()  # the same on both, so that ids are the same
    for backend in context.request.backends:
        with scratch_tenants(context.settings, backend, context.components, name) as scratch:
            for number, scenario in enumerate(scenarios):
                if backend not in scenario.backends:
                    continue
                if number:
                    scratch.clear()
                observed = Observations()
                try:
                    scenario.run(Harness.of(scratch, scenario.name), observed)
                except MigratorError as error:
                    if could_not_tell(error):
                        raise
                    observed.record_error(error)
                observations[scenario.name][backend] = observed
    return observations


def result_of(
    context: CheckContext, scenarios: tuple[Scenario, ...], observations: dict[str, ByBackend], tables: tuple[str, ...]
) -> CheckResult:
    """Return the result of a check from the observations of its scenarios."""
    failures = [
        (scenario.name, backend, failure)
        for scenario in scenarios
        for backend, observed in observations[scenario.name].items()
        for failure in observed.failures
    ]
    failures += [
        (scenario.name, BOTH, one) for scenario in scenarios for one in _disagreements(observations[scenario.name])
    ]
    noted = [observed for each in observations.values() for observed in each.values()]
    expected = sum(observed.expected for observed in noted)
    outcome = outcome_of(wrong=bool(failures), unsure=() if expected else ("no expectation was looked at",))
    rows = tuple(
        (scenario.name, backend, observed.expected, len(observed.failures))
        for scenario in scenarios
        for backend, observed in observations[scenario.name].items()
    )
    return CheckResult(
        outcome=outcome,
        counts={
            "scenarios": len(scenarios),
            "backends": len(context.request.backends),
            "expectations": expected,
            "differences": len(failures),
        },
        cells=tuple(
            Cell(table=table, outcome=FAILED if failures else PASSED, count=expected, unit="expectations")
            for table in tables
        ),
        tallies=_tallies(failures),
        findings=tuple(
            Finding(
                severity="difference", cause="behaviour", key=f"{scenario}: {one.what}", side=side, details=one.words
            )
            for scenario, side, one in failures
        )[: context.listed],
        findings_total=len(failures),
        panels=(
            table_panel("What was tried", ("script", "backend", "expectations", "not met"), rows),
            *_expectations(scenarios, observations, context.request.backends),
            *(one for observed in noted for one in observed.panels),
        ),
        varying=tuple(one for observed in noted for one in observed.varying),
        state_machines=tuple(one for observed in noted for one in observed.state_machines),
        measurements=tuple(one for observed in noted for one in observed.measurements),
    )


def _expectations(
    scenarios: tuple[Scenario, ...], observations: dict[str, ByBackend], backends: tuple[str, ...]
) -> tuple[Panel, ...]:
    """Return the table of expectations by name: those that hold, too, and on which backend."""
    rows = []
    for scenario in scenarios:
        own = observations[scenario.name]
        for what in dict.fromkeys(what for observed in own.values() for what in observed.held):
            held = (own[one].held.get(what) if one in own else None for one in backends)
            rows.append((scenario.name, what, *(HOLDS[one] for one in held)))
    return (table_panel("Expectations by name", ("script", "expectation", *backends), rows),) if rows else ()


def _tallies(failures: list[tuple[str, str, UnmetExpectation]]) -> tuple[Tally, ...]:
    sides: dict[tuple[str, str], list[UnmetExpectation]] = {}
    for scenario, side, failure in failures:
        sides.setdefault((scenario, side), []).append(failure)
    return tuple(
        Tally(
            severity="difference",
            cause="behaviour",
            collection=side,
            path=scenario,
            title=f"not met on {side}: {scenario}",
            fix="the scheduler does not do what it must: look at the expectation, and at what was changed last",
            count=len(own),
            keys=tuple(dict.fromkeys(one.what for one in own))[:3],
        )
        for (scenario, side), own in sorted(sides.items())
    )


def _disagreements(observations: ByBackend) -> list[UnmetExpectation]:
    """Return where the backends answered differently; what came after the first such answer is not compared."""
    if len(observations) < 2:  # noqa: PLR2004 - one side agrees with itself
        return []
    (mine, first), (theirs, second) = sorted(observations.items())
    for (what, one), (_, other) in zip(first.seen, second.seen, strict=False):
        if one != other:
            return [UnmetExpectation(what, wording(one, other, (mine, theirs)))]
    if len(first.seen) != len(second.seen):
        return [UnmetExpectation("as many answers", (f"{len(first.seen)} against {len(second.seen)}",))]
    return []
