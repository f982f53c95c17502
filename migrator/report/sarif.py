"""From a result to SARIF 2.1.0: a check is a rule, a finding a result with its logical location and a fingerprint.

Following the standard, what could not be told is ``kind: open``, never a pass; it stands among the notifications of the
invocation too, for readers that look at failures only, and ``executionSuccessful`` is false when the tool failed.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from migrator.report import wording
from migrator.result import Check, Finding, Result, Severity, Tally, is_unverified

LISTED_RESULTS: Final = 500
"""Findings per check; what is cut is said in the message of the last one."""
FINGERPRINT: Final = "migratorFinding/v1"
_LEVELS: Final[dict[Severity, str]] = {"difference": "error", "warning": "warning", "explained": "note"}
_EVIDENCE: Final = "result.json"


def sarif(result: Result) -> bytes:
    """Return the result as a SARIF log, its keys sorted."""
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [_run(result)],
    }
    return msgspec.json.format(msgspec.json.encode(log, order="sorted"), indent=2) + b"\n"


def _run(result: Result) -> dict[str, Any]:
    checks = result.evidence.checks
    rules = {check.id: number for number, check in enumerate(checks)}
    results = [one for check in checks for one in _results(result, check, rules[check.id])]
    return {
        "tool": {"driver": _driver(result)},
        "automationDetails": {"id": f"migrator/{'verify' if result.cutover is None else 'cutover'}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(result)],
        "artifacts": [{"location": {"uri": _EVIDENCE}, "roles": ["resultFile"]}],
        "results": _numbered(results),
        "properties": {
            "digest": result.digest,
            "exitStatus": result.exit_status(),
            "quarantined": result.evidence.quarantined,
            "verdict": result.verdict(),
        },
    }


def _driver(result: Result) -> dict[str, Any]:
    name, _, version = result.evidence.basis.get("tool", "migrator").partition(" ")
    return {
        "name": name,
        **({"semanticVersion": version} if version else {}),
        "rules": [_rule(result, check) for check in result.evidence.checks],
    }


def _rule(result: Result, check: Check) -> dict[str, Any]:
    level = "error" if check.area not in result.evidence.policy.accepted else "note"
    rule: dict[str, Any] = {
        "id": check.id,
        "name": _camel(check.id),
        "shortDescription": {"text": wording.visible_text(check.title)},
        "defaultConfiguration": {"level": level},
        "properties": {
            "counts": check.counts,
            "reason": wording.visible_text(check.outcome.reason),
            "status": check.outcome.status,
            "tags": [check.area, *wording.requirement_texts(result, check)],
        },
    }
    if check.limits:
        rule["fullDescription"] = {"text": wording.visible_text(" ".join(check.limits))}
    return rule


def _camel(text: str) -> str:
    return "".join(part.capitalize() for part in text.replace(".", "-").split("-"))


def _results(result: Result, check: Check, rule: int) -> Iterator[dict[str, Any]]:
    """Yield the results of a check: its findings, the tallies without a finding, and what is unverified."""
    base = {"ruleId": check.id, "ruleIndex": rule}
    accepted = check.area in result.evidence.policy.accepted
    findings = [one for one in check.findings if one.severity != "explained"]
    shown = findings[:LISTED_RESULTS]
    for one in shown:
        yield {**base, **_result(check, one, accepted=accepted)}
    told = {(one.severity, one.cause, one.collection, one.table, one.path) for one in shown}
    for tally in [one for one in check.tallies if one.severity != "explained"][:LISTED_RESULTS]:
        if (tally.severity, tally.cause, tally.collection, tally.table, tally.path) not in told:
            yield {**base, **_result(check, _of_tally(tally), accepted=accepted), "occurrenceCount": tally.count}
    if check.outcome.status == "failed" and not findings and not check.tallies:
        yield {**base, **_result(check, Finding(severity="difference", cause="failed"), accepted=accepted)}
    rest = check.findings_total - len(shown)
    if shown and rest > 0:
        text = f"and {wording.counted(rest, 'finding')} more, counted in the report and not listed"
        yield {**base, **_open("informational", text), **_place(check, Finding(severity="difference", cause="cut"))}
    for measured in result.run.measurements:
        if measured.check == check.id and measured.is_over:
            words = wording.above_ceiling(measured)
            above = Finding(severity="warning", cause="above-ceiling", path=measured.name, details=(words,))
            yield {**base, **_result(check, above, accepted=accepted)}
    if is_unverified(check) or check.errored:
        text = check.outcome.reason or "not verified for every table"
        yield {**base, **_open("open", text), **_place(check, Finding(severity="warning", cause="unverified"))}


def _of_tally(tally: Tally) -> Finding:
    """Return a finding that represents all of a tally."""
    return Finding(
        severity=tally.severity,
        cause=tally.cause,
        collection=tally.collection,
        table=tally.table,
        path=tally.path,
        details=(tally.title,),
    )


def _open(kind: str, text: str) -> dict[str, Any]:
    return {"kind": kind, "level": "none", "message": {"text": wording.visible_text(text)}}


def _result(check: Check, finding: Finding, *, accepted: bool) -> dict[str, Any]:
    message = "; ".join(finding.details) or check.title
    key = f"{wording.visible(finding.key)}: " if finding.key else ""
    judged = {"kind": "review", "level": "none"} if accepted else {"kind": "fail", "level": _LEVELS[finding.severity]}
    return {
        **judged,
        "message": {"text": wording.visible_text(f"{key}{message} ({finding.cause})")},
        **_place(check, finding),
        "properties": {"cause": finding.cause, "side": finding.side},
    }


def _place(check: Check, finding: Finding) -> dict[str, Any]:
    """Return where a finding is, and the fingerprint by which it is known again in the next run."""
    parts = (check.id, finding.cause, finding.collection, finding.table, finding.key, finding.path, finding.side)
    print_ = hashlib.sha256(msgspec.json.encode([part.encode("utf-8", "surrogatepass") for part in parts])).hexdigest()
    inner = wording.visible(finding.path or finding.key or check.id)
    outer = [wording.visible(part) for part in (finding.collection, finding.table) if part]
    logical = {
        "name": inner,
        "fullyQualifiedName": "/".join(
            [*outer, *(wording.visible(part) for part in (finding.key, finding.path) if part)]
        )
        or inner,
        "kind": "member" if finding.path else "object",
    }
    where = {"physicalLocation": {"artifactLocation": {"uri": _EVIDENCE, "index": 0}}, "logicalLocations": [logical]}
    return {"locations": [where], "partialFingerprints": {FINGERPRINT: print_}}


def _numbered(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tell results with the same fingerprint apart by their number."""
    seen: dict[str, int] = {}
    for one in results:
        prints = one["partialFingerprints"]
        seen[prints[FINGERPRINT]] = number = seen.get(prints[FINGERPRINT], 0) + 1
        if number > 1:
            prints[FINGERPRINT] += f":{number}"
    return results


def _invocation(result: Result) -> dict[str, Any]:
    evidence, run = result.evidence, result.run
    notes = [
        _note(
            "error" if check.errored else "warning", f"{check.id}: {check.outcome.reason or 'not verified everywhere'}"
        )
        for check in evidence.checks
        if check.errored or is_unverified(check)
    ]
    notes += [
        _note("warning", f"area {area.name}: {area.reason}") for area in evidence.areas if area.status == "skipped"
    ]
    if not evidence.checks:
        notes.append(_note("warning", "no check was made"))
    if evidence.quarantined:
        notes.append(_note("warning", f"{wording.counted(evidence.quarantined, 'document')} in quarantine"))
    times = {"startTimeUtc": run.started_at, "endTimeUtc": run.finished_at}
    return {
        "executionSuccessful": not any(check.errored for check in evidence.checks),
        "exitCode": result.exit_status(),
        "toolExecutionNotifications": notes,
        **{name: _utc(time) for name, time in times.items() if time},
    }


def _note(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": wording.visible_text(text)}}


def _utc(time: str) -> str:
    return time.removesuffix("+00:00") + "Z" if time.endswith("+00:00") else time
