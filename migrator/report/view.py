"""A result arranged for reading: what HTML and Markdown show, in their order, cut to a readable length.

Pure and deterministic. The templates only write down what is computed here.
"""

import re
from itertools import groupby
from typing import Final, TypeAlias

import msgspec

from migrator.exit_status import QUARANTINE
from migrator.report import wording
from migrator.report.areas import AREAS, SECTIONS, Section
from migrator.report.charts import Bar, Chart, Gauge, Grid, chart, gauge, grid
from migrator.result import Area, Cell, Check, Finding, RequirementState, Result, Severity, Status, Tally

AreaChecks: TypeAlias = tuple[str, Area | None, list[Check]]
"""Name of an area, the area (None if the result does not have it), and its checks."""


def sections_of(result: Result) -> list[tuple[Section, list[AreaChecks]]]:
    """Return the sections with their areas and the checks of these; none of which no area applies to the target."""
    areas = {area.name: area for area in result.evidence.areas}
    checks = wording.applicable(result)
    sections = [
        (
            section,
            [
                (name, areas.get(name), [check for check in checks if check.area == name])
                for name, area in AREAS.items()
                if area.section == section.anchor
            ],
        )
        for section in SECTIONS
    ]
    return [
        (section, some)
        for section, some in sections
        if section.anchor == TIMINGS or not all(area and area.status == "not-applicable" for _, area, _ in some)
    ]


TIMINGS: Final = "timings"
"""The section that also holds the durations of the checks, so that it is always there."""
LISTED_FINDINGS: Final = 25
"""Per check, one by one."""
LISTED_PLACES: Final = 30
"""Of one cause."""

LISTED_STEPS: Final = 20
"""Of the times, the longest first."""


class CollectionLine(msgspec.Struct, frozen=True):
    """Where the documents of one collection are."""

    collection: str
    tables: str
    documents: int
    bars: tuple[Bar, ...]
    note: str


class Square(msgspec.Struct, frozen=True):
    """A square of the coverage map; ``uncovered`` when the check says nothing about the table."""

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


class UncheckedPart(msgspec.Struct, frozen=True):
    """Something that was not checked, and why."""

    what: str
    why: str
    kind: str
    anchor: str = ""


class StepTiming(msgspec.Struct, frozen=True):
    """How long one step took; ``width`` in thousandths of the longest."""

    name: str
    text: str
    width: int


class QuarantineLine(msgspec.Struct, frozen=True, kw_only=True):
    """Documents in quarantine, or dropped from it, for one reason: a line of the list of decisions."""

    collection: str
    reason: str
    path: str = ""
    expected: str = ""
    count: int
    keys: tuple[str, ...] = ()
    decision: str = ""
    """Empty: to be decided."""
    who: str = ""


class RequirementLine(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement with what is known of it."""

    id: str
    text: str
    words: str
    sign: str
    checks: tuple[tuple[str, bool], ...] = ()
    """Ids, and whether the run has them."""
    tests: tuple[str, ...] = ()
    note: str = ""


class View(msgspec.Struct, frozen=True):
    """Everything that the templates need in addition to the result and its wording."""

    places: list[CollectionLine]
    columns: list[Check]
    groups: list[tuple[str, int]]
    """Areas of the columns, and how many columns each has."""
    rows: list[MapRow]
    squares: int
    covered: int
    whole: list[Check]
    gaps: list[UncheckedPart]
    limits: list[tuple[Check, str]]
    causes: dict[Severity, list[Cause]]
    missed: list[Cause]
    """Mutations that no check detected. They are not differences of the data, and have a section of their own."""
    failed_otherwise: list[Check]
    """Checks that failed without a difference that could be put under a cause."""
    examples: list[tuple[Check, list[Finding], int]]
    timings: list[StepTiming]
    timings_more: str
    gauges: list[Gauge]
    areas: list[tuple[Area, list[Check]]]
    sections: list[tuple[Section, list[AreaChecks]]]
    charts: dict[str, list[Chart]]
    shown_above: set[str]
    """Checks whose charts are shown in the section of their area."""
    decide: list[QuarantineLine]
    requirements: list[RequirementLine]
    requirement_counts: str
    state_machines: list[Grid]
    statuses: list[str]
    """How checks ended in this result, for the filter."""


def arrange(result: Result) -> View:
    """Arrange ``result`` for the templates."""
    checks = list(result.evidence.checks)
    columns = [check for check in checks if check.cells]
    arranged = [check for check in checks if check.area != "sensitivity"]
    planted = [check for check in checks if check.area == "sensitivity"]
    rows = _map(result, columns)
    sections = sections_of(result)
    requirements = _requirements(result)
    return View(
        places=_places(result),
        columns=columns,
        groups=[(name, len(list(some))) for name, some in groupby(columns, key=lambda check: check.area)],
        rows=rows,
        squares=sum(len(row.squares) for row in rows),
        covered=sum(square.status != "uncovered" for row in rows for square in row.squares),
        whole=[check for check in checks if not check.cells and check.outcome.status != "not-applicable"],
        gaps=_gaps(result),
        limits=wording.limits_of_checks(result),
        causes={severity: _causes(arranged, severity) for severity in ("difference", "warning", "explained")},
        missed=[*_causes(planted, "difference"), *_causes(planted, "explained")],
        failed_otherwise=[
            check
            for check in checks
            if check.outcome.status == "failed"
            and (check not in arranged or not any(one.severity == "difference" for one in check.tallies))
        ],
        examples=_examples(arranged),
        timings=_timings(result),
        timings_more=_timings_more(result),
        gauges=[gauge(one) for one in result.run.measurements],
        areas=_areas(result),
        sections=sections,
        charts={
            check.id: [chart(one) for one in (*check.panels, *result.run.panels.get(check.id, ()))] for check in checks
        },
        shown_above={check.id for _, areas in sections for _, _, some in areas for check in some},
        decide=_decide(result),
        requirements=requirements,
        requirement_counts=_requirement_counts(requirements),
        state_machines=[grid(machine) for machine in result.evidence.state_machines],
        statuses=[status for status, count in result.statuses().items() if count],
    )


def _places(result: Result) -> list[CollectionLine]:
    places = []
    for collection in result.evidence.collections:
        skipped = sum(collection.skipped.values())
        rules = f" ({', '.join(collection.skipped)})" if skipped else ""
        parts = [
            ("clean", "equal", collection.without_remainder),
            ("remainder", "equal, with remainder", collection.matched - collection.without_remainder),
            ("quarantined", "in quarantine", collection.quarantined),
            ("skipped", f"not copied by rule{rules}", skipped),
            ("apart", "missing or not equal", collection.missing + collection.differing),
        ]
        note = [f"{wording.number(count)} {label}" for kind, label, count in parts if count and kind != "clean"]
        note += [f"{wording.counted(collection.extra, 'row')} without a document"] if collection.extra else []
        places.append(
            CollectionLine(
                collection.collection,
                ", ".join(collection.tables),
                collection.documents,
                share_bars(parts),
                "; ".join(note),
            )
        )
    return places


def share_bars(parts: list[tuple[str, str, int]]) -> tuple[Bar, ...]:
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
    parts = [f"{table}: {wording.STATUS_WORDS[cell.outcome.status]}"]
    if cell.count is not None:
        parts.append(f"{wording.number(cell.count)} {cell.unit}".strip())
    if cell.outcome.reason:
        parts.append(cell.outcome.reason)
    return Square(cell.outcome.status, "; ".join(parts))


def _gaps(result: Result) -> list[UncheckedPart]:
    """Return the unchecked parts, the worst first: could not, left out, does not apply, not in this version."""
    evidence = result.evidence
    could_not = _grouped_gaps(result, "unverified")
    could_not += [
        UncheckedPart(f"{cell.table}: {check.title}", cell.outcome.reason, "unverified", check.id)
        for check in evidence.checks
        if check.outcome.status != "unverified"
        for cell in check.cells
        if cell.outcome.status == "unverified"
    ]
    order = {"skipped": "unverified", "not-asked-for": "not-asked-for", "absent": "absent"}
    areas = [
        UncheckedPart(f"Area {area.name}: {area.title}", area.reason, order[status])
        for status in order
        for area in evidence.areas
        if area.status == status
    ]
    areas += [
        UncheckedPart(names[0].upper() + names[1:], why, "not-applicable")
        for names, why in wording.inapplicable_areas(result)
    ]
    not_due = [*_grouped_gaps(result, "not-asked-for"), *_grouped_gaps(result, "not-applicable")]
    return [*could_not, *areas, *not_due, *(UncheckedPart(text, "", "absent") for text in evidence.left_out)]


def _grouped_gaps(result: Result, status: Status) -> list[UncheckedPart]:
    """Return the checks that ended so, each reason once."""
    gaps = []
    for ended, why, some in wording.grouped(result):
        if ended == status:
            grant = some[0].outcome.grant
            reason = f"{why}: {grant}" if grant else why
            if len(some) == 1:
                gaps.append(UncheckedPart(some[0].title, reason, status, some[0].id))
            else:
                gaps.append(
                    UncheckedPart(
                        f"{wording.counted(len(some), 'check')}: {', '.join(one.id for one in some)}", reason, status
                    )
                )
    return gaps


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
        findings = [one for one in check.findings if one.severity != "explained"]
        if findings:
            shown = findings[:LISTED_FINDINGS]
            examples.append((check, shown, max(0, check.findings_total - len(shown))))
    return examples


def _timings(result: Result) -> list[StepTiming]:
    """Return the longest steps, the longest first."""
    durations = result.run.durations_ms
    longest = max(durations.values(), default=0)
    return [
        StepTiming(name, wording.milliseconds(took), max(4, took * 1_000 // longest) if longest else 0)
        for name, took in sorted(durations.items(), key=lambda one: (-one[1], one[0]))[:LISTED_STEPS]
    ]


def _timings_more(result: Result) -> str:
    durations = result.run.durations_ms
    shorter = sorted(durations.values(), reverse=True)[LISTED_STEPS:]
    together = wording.milliseconds(sum(shorter))
    said = [f"{wording.counted(len(shorter), 'shorter step')} took {together} in total"] if shorter else []
    return "; ".join([*said, f"{wording.milliseconds(sum(durations.values()))} in total"]) if durations else ""


def _decide(result: Result) -> list[QuarantineLine]:
    """Return the open lines first, then what people dropped, with who decided it."""
    allowed = result.evidence.policy.allow_quarantined
    accepted = bool(allowed) and not result.exit_status() & QUARANTINE
    lines = [
        QuarantineLine(
            collection=one.collection,
            reason=one.reason,
            path=one.path,
            expected=one.expected,
            count=one.count,
            keys=one.keys,
            decision="accepted" if accepted else "",
            who=f"--allow-quarantined {allowed}" if accepted else "",
        )
        for one in result.evidence.quarantine
    ]
    dropped: dict[tuple[str, str, str, str], list[str]] = {}
    for check in result.evidence.checks:
        for panel in check.panels if check.id == "parity.quarantine" else ():
            for row in panel.rows:
                collection, key, reason, path, who, why, _ = (str(one or "") for one in row)
                dropped.setdefault((collection, reason, path, f"{who}, because {why}" if why else who), []).append(key)
    lines += [
        QuarantineLine(
            collection=collection,
            reason=reason,
            path=path,
            count=len(keys),
            keys=tuple(keys[:KEYS_SHOWN]),
            decision="dropped",
            who=who,
        )
        for (collection, reason, path, who), keys in dropped.items()
    ]
    return lines


KEYS_SHOWN: Final = 2

_STATES: Final[dict[RequirementState, tuple[str, str]]] = {
    "passed": ("passed", "passed"),
    "failed": ("failed", "failed"),
    "unverified": ("not verified", "unverified"),
    "shown-by-tests": ("shown by the product's tests", "not-asked-for"),
    "not-exercised": ("not exercised in this run", "absent"),
}
"""Words and sign."""
_OUT_OF_SCOPE: Final = "out of scope"
_REHEARSED: Final = "rehearsed on scratch data"
_INCOMPLETE: Final = "all but"


def _requirements(result: Result) -> list[RequirementLine]:
    made = {check.id for check in result.evidence.checks}
    lines = []
    for requirement in result.evidence.requirements:
        state, sign = _STATES[result.requirement_state(requirement)]
        note = ""
        if sign == "passed" and wording.is_rehearsed(result, requirement.id):
            state = _REHEARSED
        elif sign == "passed" and (left := wording.documents_left(result, requirement.id)):
            state, sign = f"{_INCOMPLETE} {wording.number(left)}", "unverified"
            note = (
                f"; {wording.counted(left, 'document')} {'is' if left == 1 else 'are'} in quarantine or dropped from it"
            )
        tests = requirement.tests or () if sign in ("not-asked-for", "absent") else ()
        checks = tuple((name, name in made) for name in requirement.checks)
        lines.append(
            RequirementLine(
                id=requirement.id,
                text=requirement.text,
                words=state,
                sign=sign,
                checks=checks,
                tests=tests,
                note=note,
            )
        )
    lines += [
        RequirementLine(id=one.id, text=one.text, words=_OUT_OF_SCOPE, sign="not-applicable", note=one.note)
        for one in result.evidence.out_of_scope
    ]
    return sorted(lines, key=lambda each: _in_order(each.id))


def _requirement_counts(lines: list[RequirementLine]) -> str:
    """Return how many requirements ended in which way, as a sentence."""
    names = [*(words for words, _ in _STATES.values()), _REHEARSED, _OUT_OF_SCOPE]
    ends = {name: sum(one.words == name for one in lines) for name in names}
    ends["met for all documents but those in quarantine"] = sum(one.words.startswith(_INCOMPLETE) for one in lines)
    said = ", ".join(f"{wording.number(count)} {name}" for name, count in ends.items() if count)
    return f"{wording.counted(len(lines), 'requirement')}: {said}."


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """Sort ``0-T2.2.10`` after ``0-T2.2.9``."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def _areas(result: Result) -> list[tuple[Area, list[Check]]]:
    """Return every area that applies, with its checks; checks of an area that the result does not name come last."""
    areas = {area.name: area for area in result.evidence.areas}
    for check in result.evidence.checks:
        areas.setdefault(check.area, Area(name=check.area, title=check.area, status="checked"))
    checks = wording.applicable(result)
    return [(area, [one for one in checks if one.area == name]) for name, area in areas.items()]
