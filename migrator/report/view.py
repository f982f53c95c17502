"""A result arranged for reading: what both renderings show, in their order, cut to a readable length.

Pure and deterministic; the templates only write down what stands here.
"""

from typing import Final

import msgspec

from migrator.report import words
from migrator.result import Area, Cell, Check, Finding, Result, Severity, Tally

LISTED_FINDINGS: Final = 25
"""Per check, one by one."""
LISTED_ROWS: Final = 200
"""Of any other table."""
LISTED_PLACES: Final = 30
"""Of one cause."""

AREA_SECTIONS: Final = (
    ("transitions", "State machines as exercised"),
    ("locking", "Locking under contention"),
    ("cutover", "Cutover readiness and the way back"),
)


class Bar(msgspec.Struct, frozen=True):
    """A part of a bar: what, how much, and its share in thousandths of the bar's length (at least 6 when not 0)."""

    kind: str
    label: str
    count: int
    start: int
    width: int


class Place(msgspec.Struct, frozen=True):
    """Where the documents of one collection are."""

    collection: str
    tables: str
    documents: int
    bars: tuple[Bar, ...]
    note: str


class Square(msgspec.Struct, frozen=True):
    """A square of the coverage map; ``covered`` is false when the check says nothing about the table."""

    status: str
    text: str


class MapRow(msgspec.Struct, frozen=True):
    """A row of the coverage map."""

    table: str
    squares: tuple[Square, ...]


class Cause(msgspec.Struct, frozen=True):
    """All that was found for one cause."""

    cause: str
    title: str
    fix: str
    count: int
    places: tuple[Tally, ...]
    more: int


class Gap(msgspec.Struct, frozen=True):
    """Something that was not checked, and why."""

    what: str
    why: str
    kind: str
    anchor: str = ""


class Timing(msgspec.Struct, frozen=True):
    """How long one step took; ``width`` in thousandths of the longest."""

    name: str
    text: str
    width: int


class View(msgspec.Struct, frozen=True):
    """Everything the templates need beside the result itself."""

    verdict: str
    word: str
    sentence: str
    rests_on: list[str]
    places: list[Place]
    columns: list[Check]
    rows: list[MapRow]
    whole: list[Check]
    gaps: list[Gap]
    limits: list[tuple[Check, str]]
    causes: dict[Severity, list[Cause]]
    examples: list[tuple[Check, list[Finding], int]]
    timings: list[Timing]
    areas: list[tuple[Area, list[Check]]]
    sections: list[tuple[str, Area | None, list[Check]]]
    complete: bool
    asked: str


def arrange(result: Result) -> View:
    """Arrange ``result`` for the templates."""
    checks = list(result.evidence.checks)
    columns = [check for check in checks if check.cells]
    return View(
        verdict=result.verdict(),
        word=words.VERDICT_WORDS[result.verdict()],
        sentence=words.sentence(result),
        rests_on=words.rests_on(result),
        places=_places(result),
        columns=columns,
        rows=_map(result, columns),
        whole=[check for check in checks if not check.cells],
        gaps=_gaps(result),
        limits=[(check, limit) for check in checks for limit in check.limits],
        causes={severity: _causes(checks, severity) for severity in ("difference", "warning", "settled")},
        examples=_examples(checks),
        timings=_timings(result),
        areas=[(area, [one for one in checks if one.area == area.name]) for area in result.evidence.areas],
        sections=_sections(result),
        complete=not any(check.outcome.status == "unverified" for check in checks),
        asked=words.asked(result.evidence.policy),
    )


def _places(result: Result) -> list[Place]:
    places = []
    for one in result.evidence.moved:
        skipped = sum(one.skipped.values())
        rules = f" ({', '.join(one.skipped)})" if skipped else ""
        parts = [
            ("clean", "equal", one.clean),
            ("residue", "equal, with residue", one.matched - one.clean),
            ("aside", "in quarantine", one.quarantined),
            ("skipped", f"left behind by rule{rules}", skipped),
            ("apart", "missing or not equal", one.missing + one.differing),
        ]
        note = [f"{words.number(count)} {label}" for kind, label, count in parts if count and kind != "clean"]
        note += [f"{words.counted(one.extra, 'row')} without a document"] if one.extra else []
        places.append(Place(one.collection, ", ".join(one.tables), one.documents, bars(parts), "; ".join(note)))
    return places


def bars(parts: list[tuple[str, str, int]]) -> tuple[Bar, ...]:
    """Cut a bar of 1 000 units by the counts; a part that is there is never too thin to be seen."""
    total = sum(count for _, _, count in parts)
    if not total:
        return ()
    widths = [max(6, count * 1_000 // total) if count else 0 for _, _, count in parts]
    widths[widths.index(max(widths))] += 1_000 - sum(widths)
    cut, start = [], 0
    for (kind, label, count), width in zip(parts, widths, strict=True):
        if width:
            cut.append(Bar(kind, label, count, start, width))
        start += width
    return tuple(cut)


def _map(result: Result, columns: list[Check]) -> list[MapRow]:
    cells = [{cell.table: cell for cell in check.cells} for check in columns]
    tables = dict.fromkeys([*result.evidence.tables, *(name for column in cells for name in column)])
    return [
        MapRow(
            table, tuple(_square(table, check, column.get(table)) for check, column in zip(columns, cells, strict=True))
        )
        for table in tables
    ]


def _square(table: str, check: Check, cell: Cell | None) -> Square:
    if cell is None:
        return Square("uncovered", f"{table}: not covered by {check.title}")
    parts = [f"{table}: {words.STATUS_WORDS[cell.outcome.status]}"]
    if cell.count is not None:
        parts.append(f"{words.number(cell.count)} {cell.unit}".strip())
    if cell.outcome.reason:
        parts.append(cell.outcome.reason)
    return Square(cell.outcome.status, "; ".join(parts))


def _gaps(result: Result) -> list[Gap]:
    """Return what was not checked, the worst first: could not, left out, does not apply, not in this version."""
    evidence = result.evidence
    could_not = [
        Gap(check.title, check.outcome.reason, "unverified", check.id)
        for check in evidence.checks
        if check.outcome.status == "unverified"
    ]
    could_not += [
        Gap(f"{cell.table}: {check.title}", cell.outcome.reason, "unverified", check.id)
        for check in evidence.checks
        if check.outcome.status != "unverified"
        for cell in check.cells
        if cell.outcome.status == "unverified"
    ]
    order = {"skipped": "unverified", "not-applicable": "not-applicable", "absent": "absent"}
    areas = [
        Gap(f"Area {area.name}: {area.title}", area.reason, order[standing])
        for standing in order
        for area in evidence.areas
        if area.standing == standing
    ]
    beside = [
        Gap(check.title, check.outcome.reason, "not-applicable", check.id)
        for check in evidence.checks
        if check.outcome.status == "not-applicable"
    ]
    return [*could_not, *areas, *beside, *(Gap(text, "", "absent") for text in evidence.left_out)]


def _causes(checks: list[Check], severity: Severity) -> list[Cause]:
    groups: dict[tuple[str, str, str], list[Tally]] = {}
    for check in checks:
        for tally in check.tallies:
            if tally.severity == severity:
                groups.setdefault((tally.cause, tally.title, tally.fix), []).append(tally)
    causes = []
    for (cause, title, fix), tallies in groups.items():
        places = sorted(tallies, key=lambda one: (-one.count, one))
        total = sum(one.count for one in tallies)
        listed, more = tuple(places[:LISTED_PLACES]), max(0, len(places) - LISTED_PLACES)
        causes.append(Cause(cause, title, fix, total, listed, more))
    return sorted(causes, key=lambda one: (-one.count, one.cause, one.title))


def _examples(checks: list[Check]) -> list[tuple[Check, list[Finding], int]]:
    """Return, per check, the first differences and warnings, and how many more there are."""
    examples = []
    for check in checks:
        findings = [one for one in check.findings if one.severity != "settled"]
        if findings:
            shown = findings[:LISTED_FINDINGS]
            examples.append((check, shown, max(0, check.findings_total - len(shown))))
    return examples


def _timings(result: Result) -> list[Timing]:
    durations = result.run.durations_ms
    longest = max(durations.values(), default=0)
    return [
        Timing(name, words.milliseconds(took), max(4, took * 1_000 // longest) if longest else 0)
        for name, took in durations.items()
    ]


def _sections(result: Result) -> list[tuple[str, Area | None, list[Check]]]:
    """Return the sections of design §7 that belong to one area each: title, the area, its checks."""
    areas = {area.name: area for area in result.evidence.areas}
    return [
        (title, areas.get(name), [check for check in result.evidence.checks if check.area == name])
        for name, title in AREA_SECTIONS
    ]
