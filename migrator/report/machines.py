"""State machines as squares of states: every pair, whether it was tried, and how that ended."""

import msgspec

from migrator.report import words
from migrator.result import Edge, Machine


class Step(msgspec.Struct, frozen=True):
    """A square of a state machine: what was tried there and how it ended."""

    status: str
    text: str
    tried: int


class Grid(msgspec.Struct, frozen=True):
    """A state machine as a square of states."""

    name: str
    states: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Step, ...]], ...]
    allowed: int
    forbidden: int
    untried: int
    failed: tuple[Edge, ...]
    in_order: bool
    """Every pair was tried and none failed."""


def grid(machine: Machine) -> Grid:
    """Lay out a state machine; a pair that no edge speaks of was not tried."""
    edges = {(edge.before, edge.after): edge for edge in machine.edges}
    names = dict.fromkeys([*machine.states, *(name for pair in edges for name in pair)])
    rows = tuple(
        (before, tuple(_step(edges.get((before, after)), before, after) for after in names)) for before in names
    )
    failed = tuple(edge for edge in machine.edges if edge.outcome.status == "failed")
    untried = sum(step.status == "absent" for _, steps in rows for step in steps)
    return Grid(
        machine.name,
        tuple(names),
        rows,
        sum(edge.allowed and edge.exercised > 0 for edge in machine.edges),
        sum(not edge.allowed and edge.exercised > 0 for edge in machine.edges),
        untried,
        failed,
        not untried and not failed,
    )


def _step(edge: Edge | None, before: str, after: str) -> Step:
    pair = f"{before} to {after}"
    if edge is None and before == after:
        return Step("itself", f"{pair}: no step", 0)
    if edge is None:
        return Step("absent", f"{pair}: not tried", 0)
    rule = "allowed" if edge.allowed else "forbidden"
    times = f"tried {words.counted(edge.exercised, 'time')}"
    if edge.outcome.status == "failed":
        went = "was refused" if edge.allowed else "was not refused"
        return Step("failed", f"{pair}: {rule}, and {edge.outcome.reason or went}; {times}", edge.exercised)
    if edge.outcome.status != "passed" or not edge.exercised:
        return Step("absent", f"{pair}: {rule}, not tried; {edge.outcome.reason}".rstrip("; "), edge.exercised)
    done = "done" if edge.allowed else "refused, as it must be"
    return Step("passed" if edge.allowed else "refused", f"{pair}: {done}; {times}", edge.exercised)
