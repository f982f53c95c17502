"""From a result to JUnit XML: an area is a suite, a check a test case.

Readers of JUnit count *skipped* as harmless. So what is unverified is an *error* here, documents in quarantine a
*failure*, and only what does not apply, or was declared acceptable, is *skipped*: the file holds neither failure nor
error exactly when the exit status is 0.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

from migrator.report import wording
from migrator.result import NOT_DUE, Area, Check, Result, Tally, is_unverified

LISTED_TALLIES: Final = 30
"""In the text of one failure."""
_SECONDS: Final = "{:.3f}"

Ending: TypeAlias = tuple[Literal["failure", "error", "skipped"], str, str, str]
"""How a test case ended that did not pass: kind, type, message, and a text of several lines."""


def junit(result: Result) -> bytes:
    """Return the result as JUnit XML, in UTF-8."""
    suites = [_suite(result, *suite) for suite in _suites(result)]
    cases = [case for suite in suites for case in suite.iter("testcase")]
    counts = {name: value for name, value in _counts(cases).items() if name != "skipped"}  # readers know it of suites
    root = ET.Element("testsuites", {"name": f"migrator {_command(result)}", **counts})
    root.extend(suites)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _command(result: Result) -> str:
    return "verify" if result.cutover is None else "cutover"


def _suite(result: Result, name: str, title: str, cases: list[ET.Element], reason: str = "") -> ET.Element:
    """Return a suite; ``reason``: why no check of its area was made, where that is no fault."""
    suite = ET.Element("testsuite", {"name": name, **_counts(cases), **_circumstances(result)})
    properties = ET.SubElement(suite, "properties")
    for key, value in (("title", title), ("evidence", result.digest), *([("not-made", reason)] if reason else ())):
        ET.SubElement(properties, "property", {"name": key, "value": wording.visible_text(value)})
    for case in cases:
        case.set("classname", f"migrator.{name}")
    suite.extend(cases)
    return suite


def _suites(result: Result) -> Iterator[tuple[str, str, list[ET.Element], str]]:
    """Yield name, title, cases and reason of each suite: a case for each check that was made.

    Another case is there only for what makes the result fail and is no check: an area that was left out, documents in
    quarantine, no check at all.
    """
    evidence = result.evidence
    for area in evidence.areas:
        checks = [check for check in evidence.checks if check.area == area.name]
        left = [_left_out_case(area)] if not checks and area.status in ("checked", "skipped") else []
        yield (
            area.name,
            area.title,
            [_check_case(result, check) for check in checks] or left,
            "" if checks else area.reason,
        )
    known = {area.name for area in evidence.areas}
    for name in dict.fromkeys(check.area for check in evidence.checks if check.area not in known):
        yield name, name, [_check_case(result, check) for check in evidence.checks if check.area == name], ""
    quarantined = _quarantined(result)
    if result.cutover is None and quarantined is not None:
        case = _case("quarantine.empty: No document is in quarantine", quarantined)
        yield "quarantine", "Documents in quarantine", [case], ""
    if not evidence.checks:
        yield "verify", "The verification", [_case("verify.checks: Checks were made", _NO_CHECK)], ""


_NO_CHECK: Final[Ending] = ("error", "unverified", "no check was made", "")


def _quarantined(result: Result) -> Ending | None:
    count = result.evidence.quarantined
    if not count:
        return None
    lines = [f"{one.collection}: {one.count} x {one.reason}" for one in result.evidence.quarantine[:LISTED_TALLIES]]
    return "failure", "quarantine", f"{count} documents are in quarantine", "\n".join(lines)


def _left_out_case(area: Area) -> ET.Element:
    """Return the one case of an area of which no check was made, and should have been."""
    ending: Ending = ("error", "left-out", area.reason, "") if area.status == "skipped" else _NO_CHECK
    return _case(f"{area.name}: the whole area", ending)


def _check_case(result: Result, check: Check) -> ET.Element:
    counts = ", ".join(f"{name} {count}" for name, count in check.counts.items())
    shown = wording.shown_requirements(result, check)
    return _case(
        f"{check.id}: {check.title}",
        _ending(result, check),
        result.run.durations_ms.get(check.id, 0),
        "\n".join(part for part in (counts, *_above(result, check), shown and f"shows a part of {shown}") if part),
    )


def _above(result: Result, check: Check) -> list[str]:
    """Return a check's measurements that are above their ceiling, each as a line."""
    return [wording.above_ceiling(one) for one in result.run.measurements if one.check == check.id and one.is_over]


def _ending(result: Result, check: Check) -> Ending | None:
    reason = check.outcome.reason
    if result.counts_as_failed(check):
        failed = check.outcome.status == "failed"
        kind = "difference" if failed else "warning"
        tallies = [one for one in check.tallies if one.severity == kind]
        above = _above(result, check)
        count = sum(one.count for one in tallies) or check.findings_total
        said = "; ".join([*([wording.counted(count, kind)] if count or not above else ()), *above])
        return "failure", kind, said, _listed(tallies)
    if check.errored:
        return "error", "errored", reason or "it ended in an error", ""
    if is_unverified(check):
        tables = [cell.table for cell in check.cells if cell.outcome.status == "unverified"]
        return "error", "unverified", reason or f"not verified for {wording.listed(tables)}", ""
    if check.outcome.status == "failed":
        return "skipped", "accepted", f"failed, and declared acceptable: --fail-on no-{check.area}", ""
    return ("skipped", check.outcome.status, reason, "") if check.outcome.status in NOT_DUE else None


def _listed(tallies: list[Tally]) -> str:
    lines = []
    for tally in tallies[:LISTED_TALLIES]:
        place = " ".join(part for part in (tally.collection, tally.table, tally.path) if part)
        lines.append(f"{tally.count} x {tally.title} ({tally.cause}) {place}".rstrip())
        if tally.fix:
            lines.append(f"  likely fix: {tally.fix}")
        if tally.keys:
            lines.append(f"  for example: {', '.join(wording.visible(key) for key in tally.keys)}")
    rest = len(tallies) - LISTED_TALLIES
    return "\n".join([*lines, *([f"and {rest} more places"] if rest > 0 else [])])


def _counts(cases: list[ET.Element]) -> dict[str, str]:
    kinds = Counter(part.tag for case in cases for part in case)
    return {
        "tests": str(len(cases)),
        "failures": str(kinds["failure"]),
        "errors": str(kinds["error"]),
        "skipped": str(kinds["skipped"]),
        "time": _SECONDS.format(sum(float(case.attrib["time"]) for case in cases)),
    }


def _circumstances(result: Result) -> dict[str, str]:
    run = result.run
    given = {"timestamp": run.started_at[:19], "hostname": run.environment.get("host", "")}
    return {name: value for name, value in given.items() if value}


def _case(name: str, ending: Ending | None, took_ms: int = 0, out: str = "") -> ET.Element:
    """Return a test case; its suite completes it with the name of the class."""
    shown = {"name": wording.visible_text(name), "time": _SECONDS.format(took_ms / 1000)}
    element = ET.Element("testcase", {"classname": "", **shown})
    if ending is not None:
        kind, type_, message, text = ending
        inner = ET.SubElement(element, kind, {"type": type_, "message": wording.visible_text(message)})
        inner.text = _lines(text) or None
    if out:
        ET.SubElement(element, "system-out").text = _lines(out)
    return element


def _lines(text: str) -> str:
    """Return a text of several lines without the characters that XML cannot hold."""
    return "\n".join(wording.visible_text(line) for line in text.split("\n"))
