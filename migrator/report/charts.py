"""Panels, measurements and state machines as geometry: whole numbers that the templates write down as SVG.

Pure and deterministic. Every chart has its numbers in words or in a table next to it, so no
information is in the colour alone.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from migrator.report import wording
from migrator.result import Measurement, Panel, StateMachine, Transition

LISTED_ROWS: Final = 200
"""Of one table."""
CHART_WIDTH: Final = 1_000
CHART_HEIGHT: Final = 240
MIN_WIDTH: Final = 6
"""So that every part can be seen."""
_KINDS: Final = {
    "caught": "clean",
    "passed": "clean",
    "equal": "clean",
    "missed": "apart",
    "failed": "apart",
    "different": "apart",
    "skipped": "skipped",
    "refused": "skipped",
    "unverified": "ask",
}
_PALETTE: Final = ("plain", "quarantined", "ask", "remainder", "none")


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


class Line(msgspec.Struct, frozen=True):
    """One line of a chart; ``points`` as SVG writes them."""

    kind: str
    label: str
    points: str
    last: int


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A panel, drawn: bars, lines or spans; a plain table has none of them."""

    kind: str
    title: str
    legend: tuple[tuple[str, str], ...] = ()
    """Kind and label."""
    bars: tuple[BarRow, ...] = ()
    lines: tuple[Line, ...] = ()
    first: str = ""
    last: str = ""
    top: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | None, ...], ...] = ()
    more: int = 0


def chart(panel: Panel) -> Chart:
    """Draw a panel; what cannot be drawn (no numbers in it) is shown as a table."""
    rows = panel.rows[:LISTED_ROWS]
    numeric = [
        index
        for index in range(1, len(panel.columns))
        if rows and all(isinstance(row[index], int | None) for row in rows)
    ]
    plain = Chart(
        kind="table",
        title=panel.title,
        columns=panel.columns,
        rows=rows,
        more=panel.rows_total - len(rows),
    )
    if panel.kind == "table" or not numeric:
        return plain
    if panel.kind == "bars":
        return _bars(plain, numeric)
    if panel.kind == "series":
        return _series(plain, numeric) if len(rows) > 1 else plain
    return _spans(plain) if len(panel.columns) > 2 and {1, 2} <= set(numeric) else plain  # noqa: PLR2004 - lane, first, last


def kinds_of(labels: Sequence[str]) -> list[str]:
    """Return the colour class of each column: of its meaning where it has one, else the next of the palette."""
    free = iter(_PALETTE * (len(labels) // len(_PALETTE) + 1))
    return [_KINDS.get(label) or next(free) for label in labels]


def _bars(plain: Chart, numeric: list[int]) -> Chart:
    labels = [plain.columns[index] for index in numeric]
    kinds = kinds_of(labels)
    longest = max(sum(_cell_number(row[index]) for index in numeric) for row in plain.rows)
    drawn = []
    for row in plain.rows:
        parts = [
            (kind, label, _cell_number(row[index])) for kind, label, index in zip(kinds, labels, numeric, strict=True)
        ]
        # cells that are neither the name nor a number follow the numbers
        said = [str(row[index]) for index in range(1, len(row)) if index not in numeric and row[index]]
        numbers = [wording.number(parts[0][2])] if len(parts) == 1 else [_said(parts)]
        text = "; ".join(wording.visible_text(one) for one in [*numbers, *said])
        drawn.append(BarRow(wording.visible(str(row[0])), stacked(parts, longest), text))
    legend = tuple(zip(kinds, labels, strict=True)) if len(labels) > 1 else ()
    return msgspec.structs.replace(plain, kind="bars", bars=tuple(drawn), legend=legend)


def _said(parts: list[tuple[str, str, int]]) -> str:
    return ", ".join(f"{wording.number(count)} {label}" for _, label, count in parts if count) or "0"


def stacked(parts: Sequence[tuple[str, str, int]], longest: int) -> tuple[Bar, ...]:
    """Cut a bar on a scale on which ``longest`` is the whole length."""
    cut, start = [], 0
    room = CHART_WIDTH - MIN_WIDTH * len(parts)
    for kind, label, count in parts:
        if count > 0:
            width = max(MIN_WIDTH, count * room // max(longest, 1))
            cut.append(Bar(kind, label, count, start, width))
            start += width
    return tuple(cut)


def _series(plain: Chart, numeric: list[int]) -> Chart:
    top = max(max(_cell_number(row[index]) for row in plain.rows) for index in numeric)
    step = CHART_WIDTH / (len(plain.rows) - 1)
    kinds = kinds_of([plain.columns[index] for index in numeric])
    lines = []
    for kind, index in zip(kinds, numeric, strict=True):
        points = [
            f"{round(number * step)},{CHART_HEIGHT - _cell_number(row[index]) * CHART_HEIGHT // max(top, 1)}"
            for number, row in enumerate(plain.rows)
            if row[index] is not None
        ]
        lines.append(Line(kind, plain.columns[index], " ".join(points), _cell_number(plain.rows[-1][index])))
    return msgspec.structs.replace(
        plain,
        kind="series",
        lines=tuple(lines),
        legend=tuple((line.kind, line.label) for line in lines),
        first=wording.visible(str(plain.rows[0][0])),
        last=wording.visible(str(plain.rows[-1][0])),
        top=wording.number(top),
    )


def _spans(plain: Chart) -> Chart:
    """Draw lanes on one axis: each row is a lane, the first and last instant, and what it was."""
    first = min(_cell_number(row[1]) for row in plain.rows)
    last = max(_cell_number(row[2]) for row in plain.rows)
    lanes = list(dict.fromkeys(str(row[0]) for row in plain.rows))
    drawn = []
    for lane in lanes:
        some = [row for row in plain.rows if str(row[0]) == lane]
        bars = []
        for row in some:
            start = (_cell_number(row[1]) - first) * (CHART_WIDTH - MIN_WIDTH) // max(last - first, 1)
            width = max(
                MIN_WIDTH,
                (_cell_number(row[2]) - _cell_number(row[1])) * (CHART_WIDTH - MIN_WIDTH) // max(last - first, 1),
            )
            label = " ".join(str(cell) for cell in row[3:] if cell is not None)
            held = f"{wording.number(_cell_number(row[1]))} to {wording.number(_cell_number(row[2]))} {label}".strip()
            bars.append(Bar("plain", wording.visible_text(held), 0, start, width))
        drawn.append(BarRow(wording.visible(lane), tuple(bars), wording.counted(len(some), "span")))
    return msgspec.structs.replace(
        plain,
        kind="spans",
        bars=tuple(drawn),
        first=wording.number(first),
        last=wording.number(last),
    )


def _cell_number(cell: str | int | None) -> int:
    return cell if isinstance(cell, int) else 0


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


def gauge(one: Measurement) -> Gauge:
    """Draw a measurement."""
    most = max(one.value, one.ceiling or 0, *(value for _, value in one.points), 1e-9) * 1.1
    readings = [value for _, value in one.points][:LISTED_ROWS]
    line = [
        f"{number * CHART_WIDTH // (len(readings) - 1)},{CHART_HEIGHT - round(value / most * CHART_HEIGHT)}"
        for number, value in enumerate(readings)
        if len(readings) > 1
    ]
    return Gauge(
        check=one.check,
        name=one.name,
        value=f"{wording.decimal(one.value)} {one.unit}",
        ceiling="" if one.ceiling is None else f"{wording.decimal(one.ceiling)} {one.unit}",
        over=one.is_over,
        width=max(MIN_WIDTH, round(one.value / most * CHART_WIDTH)),
        mark=None if one.ceiling is None else round(one.ceiling / most * CHART_WIDTH),
        points=" ".join(line),
    )


class Step(msgspec.Struct, frozen=True):
    """A square of a state machine: what was tried there and how it ended."""

    status: str
    text: str


class Grid(msgspec.Struct, frozen=True):
    """A state machine as a square of states."""

    name: str
    states: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Step, ...]], ...]
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


def _step(edge: Transition | None, before: str, after: str) -> Step:
    pair = f"{before} to {after}"
    if edge is None and before == after:
        return Step("itself", f"{pair}: no step")
    if edge is None:
        return Step("absent", f"{pair}: not tried")
    rule = "allowed" if edge.allowed else "forbidden"
    times = f"tried {wording.counted(edge.exercised, 'time')}"
    if edge.outcome.status == "failed":
        went = "was refused" if edge.allowed else "was not refused"
        return Step("failed", f"{pair}: {rule}, and {edge.outcome.reason or went}; {times}")
    if edge.outcome.status != "passed" or not edge.exercised:
        return Step("absent", f"{pair}: {rule}, not tried; {edge.outcome.reason}".rstrip("; "))
    done = "done" if edge.allowed else "refused, as it must be"
    return Step("passed" if edge.allowed else "refused", f"{pair}: {done}; {times}")
