"""From a result to JUnit XML: an area is a suite, a check a test case.

Readers of JUnit count *skipped* as harmless. So what is unverified is an *error* here, documents in quarantine a
*failure*, and only what does not apply, or was declared acceptable, is *skipped*: the file holds neither failure nor
error exactly when the exit status is 0.
"""

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

import msgspec

from migrator.report import wording
from migrator.result import NOT_DUE, Area, Check, Result, Tally, is_unverified

LISTED_TALLIES: Final = 30
"""In the text of one failure."""
_SECONDS: Final = "{:.3f}"

Kind: TypeAlias = Literal["failure", "error", "skipped"]


class Ending(msgspec.Struct, frozen=True):
    """How a test case ended; ``kind`` is None if it passed."""

    kind: Kind | None = None
    type: str = ""
    message: str = ""
    text: str = ""


class Case(msgspec.Struct, frozen=True):
    """A test case before it is written."""

    name: str
    ending: Ending
    took_ms: int = 0
    out: str = ""


def junit(result: Result) -> bytes:
    """Return the result as JUnit XML, in UTF-8."""
    suites = list(_suites(result))
    cases = [case for _, _, some in suites for case in some]
    counts = {name: value for name, value in _counts(cases).items() if name != "skipped"}  # readers know it of suites
    root = ET.Element("testsuites", {"name": "migrator verify", **counts})
    for name, title, some in suites:
        suite = ET.SubElement(root, "testsuite", {"name": name, **_counts(some), **_circumstances(result)})
        properties = ET.SubElement(suite, "properties")
        for key, value in (("title", title), ("evidence", result.digest)):
            ET.SubElement(properties, "property", {"name": key, "value": wording.visible_text(value)})
        for case in some:
            _write(suite, name, case)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suites(result: Result) -> Iterator[tuple[str, str, list[Case]]]:
    evidence = result.evidence
    for area in evidence.areas:
        checks = [check for check in evidence.checks if check.area == area.name]
        yield area.name, area.title, [_case(result, check) for check in checks] or [_area_case(area)]
    known = {area.name for area in evidence.areas}
    for name in dict.fromkeys(check.area for check in evidence.checks if check.area not in known):
        yield name, name, [_case(result, check) for check in evidence.checks if check.area == name]
    yield (
        "quarantine",
        "Documents in quarantine",
        [Case("quarantine.empty: No document is in quarantine", _quarantined(result))],
    )
    if not evidence.checks:
        yield "verify", "The verification", [Case("verify.checks: Checks were made", _no_check())]


def _no_check() -> Ending:
    return Ending("error", "unverified", "no check was made")


def _quarantined(result: Result) -> Ending:
    count = result.evidence.quarantined
    if not count:
        return Ending()
    lines = [f"{one.collection}: {one.count} x {one.reason}" for one in result.evidence.quarantine[:LISTED_TALLIES]]
    return Ending("failure", "quarantine", f"{count} documents are in quarantine", "\n".join(lines))


def _area_case(area: Area) -> Case:
    """Return the one case of an area of which no check was made."""
    name = f"{area.name}: the whole area"
    if area.status == "skipped":
        return Case(name, Ending("error", "left-out", area.reason))
    if area.status == "checked":
        return Case(name, Ending("error", "unverified", "no check was made"))
    return Case(name, Ending("skipped", area.status, area.reason))


def _case(result: Result, check: Check) -> Case:
    counts = ", ".join(f"{name} {count}" for name, count in check.counts.items())
    proves = f"proves {', '.join(check.requirements)}" if check.requirements else ""
    return Case(
        f"{check.id}: {check.title}",
        _ending(result, check),
        result.run.durations_ms.get(check.id, 0),
        "\n".join(part for part in (counts, proves) if part),
    )


def _ending(result: Result, check: Check) -> Ending:
    reason = check.outcome.reason
    if result.counts_as_failed(check):
        failed = check.outcome.status == "failed"
        kind = "difference" if failed else "warning"
        found = [one for one in check.tallies if one.severity == kind]
        said = wording.counted(sum(one.count for one in found) or check.findings_total, kind)
        return Ending("failure", kind, said, _listed(found))
    if check.errored:
        return Ending("error", "errored", reason or "it ended in an error")
    if is_unverified(check):
        tables = [cell.table for cell in check.cells if cell.outcome.status == "unverified"]
        return Ending("error", "unverified", reason or f"not verified for {wording.listed(tables)}")
    if check.outcome.status == "failed":
        return Ending("skipped", "accepted", f"failed, and declared acceptable: --fail-on no-{check.area}")
    if check.outcome.status in NOT_DUE:
        return Ending("skipped", check.outcome.status, reason)
    return Ending()


def _listed(tallies: list[Tally]) -> str:
    lines = []
    for one in tallies[:LISTED_TALLIES]:
        place = " ".join(part for part in (one.collection, one.table, one.path) if part)
        lines.append(f"{one.count} x {one.title} ({one.cause}) {place}".rstrip())
        if one.fix:
            lines.append(f"  likely fix: {one.fix}")
        if one.keys:
            lines.append(f"  for example: {', '.join(wording.visible(key) for key in one.keys)}")
    rest = len(tallies) - LISTED_TALLIES
    return "\n".join([*lines, *([f"and {rest} more places"] if rest > 0 else [])])


def _counts(cases: list[Case]) -> dict[str, str]:
    kinds = [case.ending.kind for case in cases]
    return {
        "tests": str(len(cases)),
        "failures": str(kinds.count("failure")),
        "errors": str(kinds.count("error")),
        "skipped": str(kinds.count("skipped")),
        "time": _SECONDS.format(sum(case.took_ms for case in cases) / 1000),
    }


def _circumstances(result: Result) -> dict[str, str]:
    run = result.run
    given = {"timestamp": run.started_at[:19], "hostname": run.environment.get("host", "")}
    return {name: value for name, value in given.items() if value}


def _write(suite: ET.Element, area: str, case: Case) -> None:
    element = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": f"migrator.{area}",
            "name": wording.visible_text(case.name),
            "time": _SECONDS.format(case.took_ms / 1000),
        },
    )
    ending = case.ending
    if ending.kind is not None:
        inner = ET.SubElement(
            element, ending.kind, {"type": ending.type, "message": wording.visible_text(ending.message)}
        )
        inner.text = _lines(ending.text) or None
    if case.out:
        ET.SubElement(element, "system-out").text = _lines(case.out)


def _lines(text: str) -> str:
    """Return a text of several lines without the characters that XML cannot hold."""
    return "\n".join(wording.visible_text(line) for line in text.split("\n"))
