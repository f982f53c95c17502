"""Exhibits and measurements as geometry: whole numbers that the templates write down as SVG.

Pure and deterministic. Every chart has its figures in words or in a table beside it: nothing is told by colour alone.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from migrator.report import words
from migrator.result import Exhibit, Measurement

LISTED_ROWS: Final = 200
"""Of one table."""
WIDE: Final = 1_000
HIGH: Final = 240
LEAST: Final = 6
"""What is there is never too thin to be seen."""
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
_PALETTE: Final = ("plain", "aside", "ask", "residue", "none")


class Bar(msgspec.Struct, frozen=True):
    """A part of a bar: what, how much, and its place in thousandths of the bar's length."""

    kind: str
    label: str
    count: int
    start: int
    width: int


class BarRow(msgspec.Struct, frozen=True):
    """A bar with its name and its figures in words."""

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
    """An exhibit, drawn: bars, lines or spans; a plain table has none of them."""

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


def chart(exhibit: Exhibit) -> Chart:
    """Draw an exhibit; what cannot be drawn (no figures in it) is shown as a table."""
    rows = exhibit.rows[:LISTED_ROWS]
    numeric = [
        index
        for index in range(1, len(exhibit.columns))
        if rows and all(isinstance(row[index], int | None) for row in rows)
    ]
    plain = Chart(
        kind="table",
        title=exhibit.title,
        columns=exhibit.columns,
        rows=rows,
        more=exhibit.rows_total - len(rows),
    )
    if exhibit.kind == "table" or not numeric:
        return plain
    if exhibit.kind == "bars":
        return _bars(plain, numeric)
    if exhibit.kind == "series":
        return _series(plain, numeric) if len(rows) > 1 else plain
    return _spans(plain) if len(exhibit.columns) > 2 and {1, 2} <= set(numeric) else plain  # noqa: PLR2004 - lane, first, last


def kinds_of(labels: Sequence[str]) -> list[str]:
    """Return the colour class of each column: of its meaning where it has one, else the next of the palette."""
    free = iter(_PALETTE * (len(labels) // len(_PALETTE) + 1))
    return [_KINDS.get(label) or next(free) for label in labels]


def _bars(plain: Chart, numeric: list[int]) -> Chart:
    labels = [plain.columns[index] for index in numeric]
    kinds = kinds_of(labels)
    longest = max(sum(_number(row[index]) for index in numeric) for row in plain.rows)
    drawn = []
    for row in plain.rows:
        parts = [(kind, label, _number(row[index])) for kind, label, index in zip(kinds, labels, numeric, strict=True)]
        # what is neither the name nor a figure is said after the figures
        said = [str(row[index]) for index in range(1, len(row)) if index not in numeric and row[index]]
        figures = [words.number(parts[0][2])] if len(parts) == 1 else [_said(parts)]
        text = "; ".join(words.visible_text(one) for one in [*figures, *said])
        drawn.append(BarRow(words.visible(str(row[0])), stacked(parts, longest), text))
    legend = tuple(zip(kinds, labels, strict=True)) if len(labels) > 1 else ()
    return msgspec.structs.replace(plain, kind="bars", bars=tuple(drawn), legend=legend)


def _said(parts: list[tuple[str, str, int]]) -> str:
    return ", ".join(f"{words.number(count)} {label}" for _, label, count in parts if count) or "0"


def stacked(parts: Sequence[tuple[str, str, int]], longest: int) -> tuple[Bar, ...]:
    """Cut a bar on a scale on which ``longest`` is the whole length."""
    cut, start = [], 0
    room = WIDE - LEAST * len(parts)
    for kind, label, count in parts:
        if count > 0:
            width = max(LEAST, count * room // max(longest, 1))
            cut.append(Bar(kind, label, count, start, width))
            start += width
    return tuple(cut)


def _series(plain: Chart, numeric: list[int]) -> Chart:
    top = max(max(_number(row[index]) for row in plain.rows) for index in numeric)
    step = WIDE / (len(plain.rows) - 1)
    kinds = kinds_of([plain.columns[index] for index in numeric])
    lines = []
    for kind, index in zip(kinds, numeric, strict=True):
        points = [
            f"{round(number * step)},{HIGH - _number(row[index]) * HIGH // max(top, 1)}"
            for number, row in enumerate(plain.rows)
            if row[index] is not None
        ]
        lines.append(Line(kind, plain.columns[index], " ".join(points), _number(plain.rows[-1][index])))
    return msgspec.structs.replace(
        plain,
        kind="series",
        lines=tuple(lines),
        legend=tuple((line.kind, line.label) for line in lines),
        first=words.visible(str(plain.rows[0][0])),
        last=words.visible(str(plain.rows[-1][0])),
        top=words.number(top),
    )


def _spans(plain: Chart) -> Chart:
    """Draw lanes on one axis: each row is a lane, the first and last instant, and what it was."""
    first = min(_number(row[1]) for row in plain.rows)
    last = max(_number(row[2]) for row in plain.rows)
    lanes = list(dict.fromkeys(str(row[0]) for row in plain.rows))
    drawn = []
    for lane in lanes:
        some = [row for row in plain.rows if str(row[0]) == lane]
        bars = []
        for row in some:
            start = (_number(row[1]) - first) * (WIDE - LEAST) // max(last - first, 1)
            width = max(LEAST, (_number(row[2]) - _number(row[1])) * (WIDE - LEAST) // max(last - first, 1))
            label = " ".join(str(cell) for cell in row[3:] if cell is not None)
            held = f"{words.number(_number(row[1]))} to {words.number(_number(row[2]))} {label}".strip()
            bars.append(Bar("plain", words.visible_text(held), 0, start, width))
        drawn.append(BarRow(words.visible(lane), tuple(bars), words.counted(len(some), "span")))
    return msgspec.structs.replace(
        plain,
        kind="spans",
        bars=tuple(drawn),
        first=words.number(first),
        last=words.number(last),
    )


def _number(cell: str | int | None) -> int:
    return cell if isinstance(cell, int) else 0


class Gauge(msgspec.Struct, frozen=True, kw_only=True):
    """A measurement beside its ceiling, both in thousandths of the length."""

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
        f"{number * WIDE // (len(readings) - 1)},{HIGH - round(value / most * HIGH)}"
        for number, value in enumerate(readings)
        if len(readings) > 1
    ]
    return Gauge(
        check=one.check,
        name=one.name,
        value=f"{words.decimal(one.value)} {one.unit}",
        ceiling="" if one.ceiling is None else f"{words.decimal(one.ceiling)} {one.unit}",
        over=one.is_over,
        width=max(LEAST, round(one.value / most * WIDE)),
        mark=None if one.ceiling is None else round(one.ceiling / most * WIDE),
        points=" ".join(line),
    )
