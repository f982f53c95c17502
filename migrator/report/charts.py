"""Panels, measurements and state machines as geometry: whole numbers that the templates write down as SVG.

Pure and deterministic. Every chart has its numbers in words or in a table next to it, so no
information is in the colour alone.
"""

from typing import Final, Literal

import msgspec

from migrator.report import wording
from migrator.result import Measurement, Panel, StateMachine, Transition

LISTED_ROWS: Final = 200
"""Of one table."""
CHART_WIDTH: Final = 1_000
CHART_HEIGHT: Final = 240
MIN_WIDTH: Final = 6
"""So that every part can be seen."""


class Bar(msgspec.Struct, frozen=True):
    """A part of a bar: what, how much, and its place in thousandths of the bar's length."""

    kind: str
    label: str
    count: int
    start: int
    width: int


class BarRow(msgspec.Struct, frozen=True):
    """A bar with its name and its numbers in words."""

    label: str
    bars: tuple[Bar, ...]
    text: str


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A panel, drawn: spans on lanes, or a plain table without any."""

    kind: Literal["table", "spans"]
    title: str
    bars: tuple[BarRow, ...] = ()
    first: str = ""
    last: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | None, ...], ...] = ()
    more: int = 0


def chart(panel: Panel) -> Chart:
    """Draw a panel; spans without two columns of numbers are shown as a table."""
    rows = panel.rows[:LISTED_ROWS]
    plain = Chart(
        kind="table",
        title=panel.title,
        columns=panel.columns,
        rows=rows,
        more=panel.rows_total - len(rows),
    )
    spans = [
        (str(row[0]), row[1], row[2], " ".join(str(cell) for cell in row[3:] if cell is not None))
        for row in rows
        if len(row) > 2 and isinstance(row[1], int) and isinstance(row[2], int)  # noqa: PLR2004 - lane, first, last
    ]
    if panel.kind == "table" or not spans or len(spans) < len(rows):
        return plain
    first, last = min(span[1] for span in spans), max(span[2] for span in spans)
    bars = tuple(
        _lane(lane, [span for span in spans if span[0] == lane], first, last)
        for lane in dict.fromkeys(span[0] for span in spans)
    )
    return msgspec.structs.replace(
        plain, kind="spans", bars=bars, first=wording.number(first), last=wording.number(last)
    )


def _lane(lane: str, spans: list[tuple[str, int, int, str]], first: int, last: int) -> BarRow:
    """Draw the spans of a lane on the axis from the first instant of all lanes to the last one."""

    def scaled(length: int) -> int:
        return length * (CHART_WIDTH - MIN_WIDTH) // max(last - first, 1)

    bars = []
    label_text = ""
    for _, begun, ended, label in spans:
        label_text = f"{wording.number(begun)} to {wording.number(ended)}"
        held = f"{wording.number(begun)} to {wording.number(ended)} {label}".strip()
        width = max(MIN_WIDTH, scaled(ended - begun))
        bars.append(Bar("plain", wording.visible_text(held), 0, scaled(begun - first), width))
    return BarRow(
        wording.visible(lane), tuple(bars), label_text if len(spans) == 1 else wording.counted(len(spans), "span")
    )


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement and its ceiling, both in thousandths of the length."""

    check: str
    name: str
    value: str
    ceiling: str
    over: bool
    width: int
    mark: int | None
    points: str = ""
    """Single readings as a line, or nothing."""


def gauge(measurement: Measurement) -> Gauge:
    """Draw a measurement."""
    most = max(measurement.value, measurement.ceiling or 0, *(value for _, value in measurement.points), 1e-9) * 1.1
    readings = [value for _, value in measurement.points][:LISTED_ROWS]
    line = [
        f"{number * CHART_WIDTH // (len(readings) - 1)},{CHART_HEIGHT - round(value / most * CHART_HEIGHT)}"
        for number, value in enumerate(readings)
        if len(readings) > 1
    ]
    return Gauge(
        check=measurement.check,
        name=measurement.name,
        value=wording.measured(measurement.value, measurement.unit),
        ceiling="" if measurement.ceiling is None else wording.measured(measurement.ceiling, measurement.unit),
        over=measurement.is_over,
        width=max(MIN_WIDTH, round(measurement.value / most * CHART_WIDTH)),
        mark=None if measurement.ceiling is None else round(measurement.ceiling / most * CHART_WIDTH),
        points=" ".join(line),
    )


class TransitionSquare(msgspec.Struct, frozen=True):
    """A square of a state machine: what was tried there and how it ended."""

    status: str
    text: str


class Grid(msgspec.Struct, frozen=True):
    """A state machine as a square of states."""

    name: str
    states: tuple[str, ...]
    rows: tuple[tuple[str, tuple[TransitionSquare, ...]], ...]
    allowed: int
    forbidden: int
    untried: int
    failed: tuple[Transition, ...]


def grid(machine: StateMachine) -> Grid:
    """Lay out a state machine; a pair without a transition was not tried."""
    edges = {(edge.before, edge.after): edge for edge in machine.transitions}
    names = dict.fromkeys([*machine.states, *(name for pair in edges for name in pair)])
    rows = tuple(
        (before, tuple(_step(edges.get((before, after)), before, after) for after in names)) for before in names
    )
    failed = tuple(edge for edge in machine.transitions if edge.outcome.status == "failed")
    untried = sum(step.status == "absent" for _, steps in rows for step in steps)
    return Grid(
        machine.name,
        tuple(names),
        rows,
        sum(edge.allowed and edge.exercised > 0 for edge in machine.transitions),
        sum(not edge.allowed and edge.exercised > 0 for edge in machine.transitions),
        untried,
        failed,
    )


def _step(edge: Transition | None, before: str, after: str) -> TransitionSquare:
    pair = f"{before} to {after}"
    if edge is None and before == after:
        return TransitionSquare("itself", f"{pair}: no step")
    if edge is None:
        return TransitionSquare("absent", f"{pair}: not tried")
    rule = "allowed" if edge.allowed else "forbidden"
    times = f"tried {wording.counted(edge.exercised, 'time')}"
    if edge.outcome.status == "failed":
        went = "was refused" if edge.allowed else "was not refused"
        return TransitionSquare("failed", f"{pair}: {rule}, and {edge.outcome.reason or went}; {times}")
    if edge.outcome.status != "passed" or not edge.exercised:
        return TransitionSquare("absent", f"{pair}: {rule}, not tried; {edge.outcome.reason}".rstrip("; "))
    done = "done" if edge.allowed else "refused, as it must be"
    return TransitionSquare("passed" if edge.allowed else "refused", f"{pair}: {done}; {times}")
