"""What each file of tests costs: seconds of the clock, and CPU seconds of the process of pytest and of all below it.

A plugin of pytest. With ``--costs=FILE``, which `make test` gives, a table is written there, the dearest file first.
Set-up and tear-down count for the file that asks for them: a server that all tests share is paid by the first, and its
work by whoever causes it, since the processes that live are counted too.
"""

import os
import time
from typing import Final, NamedTuple

import pytest

from benchmarks.harness.measure import cpu_below

COLLECTION: Final = "(start and collection)"
LEADER: Final = "(process that leads the others)"


class Moment(NamedTuple):
    """A reading of the clocks, in seconds."""

    wall: float
    own: float
    others: float
    """CPU time of all processes below this one, which live or have ended."""


class Cost(NamedTuple):
    """What the tests of a file took, in seconds."""

    tests: int
    wall: float
    own: float
    others: float

    def plus(self, other: "Cost") -> "Cost":
        """Return the sum of both."""
        wall, own, others = (mine + its for mine, its in zip(self[1:], other[1:], strict=True))
        return Cost(self.tests + other.tests, wall, own, others)


def reading() -> Moment:
    """Return the clocks as they are."""
    times = os.times()
    return Moment(time.monotonic(), times.user + times.system, cpu_below(os.getpid()))


class Costs:
    """Keeps an account of each file in the process that runs its tests, and adds up those of all processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._costs: dict[str, Cost] = {}
        self._last = Moment(time.monotonic(), 0.0, 0.0)  # the process begins with its collection
        self._name = COLLECTION
        self._tests = 0

    def _begin(self, name: str) -> None:
        """Close the account of a file, and open that of another one."""
        now = reading()
        wall, own, others = (max(0.0, new - old) for new, old in zip(now, self._last, strict=True))
        self._add(self._name, Cost(self._tests, wall, own, others))
        self._last, self._name, self._tests = now, name, 0

    def _add(self, name: str, cost: Cost) -> None:
        self._costs[name] = self._costs.get(name, Cost(0, 0.0, 0.0, 0.0)).plus(cost)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Count a test for its file, and let others run it."""
        name = item.path.relative_to(self._root).as_posix()
        if name != self._name:
            self._begin(name)
        self._tests += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that leads what this one has spent; if it leads, count its own CPU time alone."""
        output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
        if output is None and session.config.getoption("numprocesses", None):
            times = os.times()
            self._costs[LEADER] = Cost(0, 0.0, times.user + times.system, 0.0)
            return
        self._begin("")
        if output is not None:
            output["costs"] = {name: tuple(cost) for name, cost in self._costs.items()}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the accounts of a process that has ended. One that was killed has left none."""
        output: dict[str, dict[str, tuple[int, float, float, float]]] = getattr(node, "workeroutput", {})
        for name, cost in output.get("costs", {}).items():
            self._add(name, Cost(*cost))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the table, and say where it is; the process that leads has all of it."""
        if hasattr(terminalreporter.config, "workeroutput"):
            return
        path = self._root / terminalreporter.config.getoption("costs")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(table(self._costs), encoding="utf-8")
        terminalreporter.write_line(f"what each file of tests cost: {path}")


def table(costs: dict[str, Cost]) -> str:
    """Return the costs as text, those with most CPU time first."""
    total = Cost(0, 0.0, 0.0, 0.0)
    for cost in costs.values():
        total = total.plus(cost)
    dearest = sorted(costs.items(), key=lambda entry: entry[1].own + entry[1].others, reverse=True)
    lines = [f"{'CPU s':>8} {'of it pytest':>12} {'wall s':>8} {'tests':>6}  file"]
    for name, cost in [("all", total), *dearest]:
        lines.append(f"{cost.own + cost.others:8.1f} {cost.own:12.1f} {cost.wall:8.1f} {cost.tests:6}  {name}")
    return "\n".join(lines) + "\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", metavar="FILE", help="write what each file of tests cost, in seconds, into this file")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("costs"):
        config.pluginmanager.register(Costs(config))
