"""JUnit and SARIF: the shape their readers expect, the truth of the result, and nothing taken for more than it is."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from migrator.report import wording
from migrator.report.junit import junit
from migrator.report.sarif import FINGERPRINT, LISTED_RESULTS, sarif
from migrator.result import (
    FAILED,
    PASSED,
    Check,
    Evidence,
    Finding,
    Measurement,
    Policy,
    Result,
    Run,
    Tally,
    build,
    unverified,
)
from tests.fabricated_results import HOSTILE, clean, troubled
from tests.unit.test_exit_status import ACCEPTED, CIRCUMSTANCES, FLAGS, result_of

MAKERS = [clean, troubled]
Json = dict[str, Any]

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
}
ORDER = ["properties", "property", "testsuite", "testcase", "skipped", "error", "failure", "system-out"]
ATTRIBUTES = {
    "testsuites": ({"name"}, {"tests", "failures", "errors", "time"}),
    "testsuite": ({"name", "tests", "failures", "errors"}, {"skipped", "time", "timestamp", "hostname"}),
    "testcase": ({"name", "classname"}, {"time"}),
    "property": ({"name", "value"}, set()),
    "failure": ({"type", "message"}, set()),
    "error": ({"type", "message"}, set()),
    "skipped": ({"type", "message"}, set()),
    "properties": (set(), set()),
    "system-out": (set(), set()),
}
"""The common shape of JUnit's schema (that of Ant, Surefire and the readers of CI systems)."""


def read(result: Result) -> ET.Element:
    root = ET.fromstring(junit(result))
    check_junit(root)
    return root


def check_junit(element: ET.Element) -> None:
    must, may = ATTRIBUTES[element.tag]
    assert must <= set(element.attrib) <= must | may, (element.tag, element.attrib)
    assert {child.tag for child in element} <= CHILDREN.get(element.tag, set()), element.tag
    for name in {"tests", "failures", "errors", "skipped"} & set(element.attrib):
        tag = {"tests": "testcase", "failures": "failure", "errors": "error"}.get(name, name)
        assert int(element.attrib[name]) == len(list(element.iter(tag))), name
    if "time" in element.attrib:
        assert re.fullmatch(r"\d+\.\d{3}", element.attrib["time"])
    if "timestamp" in element.attrib:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", element.attrib["timestamp"])
    if element.tag == "testcase":
        assert len([child for child in element if child.tag in ("failure", "error", "skipped")]) <= 1
    order = [child.tag for child in element]
    assert order == sorted(order, key=ORDER.index)
    for child in element:
        check_junit(child)


def cases(result: Result) -> dict[str, ET.Element]:
    return {case.attrib["name"].partition(":")[0]: case for case in read(result).iter("testcase")}


@pytest.mark.proves("0-T2.11.6")
def test_every_check_is_a_test_case_of_its_area() -> None:
    found = cases(troubled())
    assert {check.id for check in troubled().evidence.checks} <= set(found)
    assert found["parity.round-trip"].attrib["classname"] == "migrator.parity"
    failure = found["parity.round-trip"].find("failure")
    assert failure is not None
    assert failure.attrib["type"] == "difference"
    assert "likely fix: compare the field with the profile" in (failure.text or "")
    assert found["schema.revision"].find("failure") is None


def test_what_could_not_be_told_is_an_error_and_not_skipped() -> None:
    found = cases(troubled())
    for name, kind in (("parity.aggregates", "unverified"), ("workers", "left-out")):
        error = found[name].find("error")
        assert error is not None
        assert error.attrib["type"] == kind
        assert error.attrib["message"]
    assert found["quarantine.empty"].find("failure") is not None


def test_there_is_a_case_for_each_check_and_another_only_for_a_fault() -> None:
    assert set(cases(clean())) == {check.id for check in clean().evidence.checks}
    beyond = set(cases(troubled())) - {check.id for check in troubled().evidence.checks}
    assert beyond == {"quarantine.empty", "transitions", "workers"}
    suites = {suite.attrib["name"]: suite for suite in read(troubled()).iter("testsuite")}
    reason = suites["execution"].find("properties/property[@name='not-made']")
    assert reason is not None
    assert reason.attrib["value"] == "not checked by this version of the tool"
    assert suites["execution"].attrib["tests"] == "0"


def test_a_measurement_above_its_ceiling_is_told_and_fails_where_warnings_do() -> None:
    check = Check(id="performance.claims", area="performance", title="claims are quick", outcome=PASSED)
    slow = Measurement(check=check.id, name="p95", unit="ms", value=12.5, ceiling=10)
    quick = Measurement(check=check.id, name="p50", unit="ms", value=1, ceiling=10)
    words = "p95: 12.5 ms, above its ceiling of 10.0 ms"
    for fail_on, failures in (((), 0), (("performance",), 1)):
        evidence = Evidence(checks=(check,), policy=Policy(fail_on=fail_on))
        result = build(evidence, Run(name="r", measurements=(slow, quick)))
        case = cases(result)[check.id]
        assert case.findtext("system-out") == words
        assert [failure.attrib["message"] for failure in case.iter("failure")] == [words] * failures
        (found,) = log_of(result)["runs"][0]["results"]
        assert (found["level"], found["properties"]["cause"]) == ("warning", "above-ceiling")
        assert words in found["message"]["text"]


def test_the_file_is_without_failure_exactly_when_the_exit_status_is_0() -> None:
    for chosen in itertools.product(FLAGS, repeat=len(CIRCUMSTANCES)):
        result, bits = result_of(chosen)
        root = ET.fromstring(junit(result))
        red = int(root.attrib["failures"]) + int(root.attrib["errors"])
        assert bool(red) == bool(bits), chosen
    nothing = build(Evidence(), Run(name="r"))
    assert nothing.exit_status() == 4
    assert read(nothing).attrib["errors"] == "1"


def test_what_was_accepted_is_skipped_with_its_reason() -> None:
    chosen = tuple(number == ACCEPTED for number in range(len(CIRCUMSTANCES)))
    skipped = cases(result_of(chosen)[0])["crud.crud"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "failed, and declared acceptable: --fail-on no-crud"


def test_hostile_keys_do_no_harm() -> None:
    tally = Tally(severity="difference", cause="c", title="t\x00\ud800", count=1, keys=(HOSTILE, "\x00]]>"))
    finding = Finding(severity="difference", cause="c", key=HOSTILE + "\x00", path="a\x1b[0m")
    check = Check(id="parity.rows", area="parity", title="t", outcome=FAILED, tallies=(tally,), findings=(finding,))
    tree = msgspec.structs.replace(clean(), evidence=Evidence(checks=(check,)))
    failure = cases(tree)["parity.rows"].find("failure")
    assert failure is not None
    assert "\\u{202e}<script>alert(1)</script>" in (failure.text or "")
    log = sarif(tree).decode()
    assert "\u202e" not in log
    assert "\\u{202e}" in msgspec.json.decode(log)["runs"][0]["results"][0]["message"]["text"]


# SARIF 2.1.0: what its schema demands of the parts that are written here.
LEVELS = {"none", "note", "warning", "error"}
KINDS = {"notApplicable", "pass", "fail", "review", "open", "informational"}


def log_of(result: Result) -> Json:
    log: Json = msgspec.json.decode(sarif(result))
    check_sarif(log)
    return log


def only(found: Json, must: set[str], may: set[str] = set()) -> None:  # noqa: B006 - it is not changed
    assert must <= set(found) <= must | may, set(found) ^ must


def check_sarif(log: Json) -> None:
    only(log, {"$schema", "version", "runs"})
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    only(
        run,
        {"tool", "results", "invocations", "artifacts", "automationDetails", "columnKind", "properties"},
    )
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    rules = run["tool"]["driver"]["rules"]
    only(run["tool"]["driver"], {"name", "rules"}, {"semanticVersion"})
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        only(rule, {"id", "name", "shortDescription", "defaultConfiguration", "properties"}, {"fullDescription"})
        assert rule["defaultConfiguration"]["level"] in LEVELS
        assert isinstance(rule["properties"]["tags"], list)
        assert len(set(rule["properties"]["tags"])) == len(rule["properties"]["tags"])
    for one in run["results"]:
        check_sarif_result(one, rules)
    prints = [one["partialFingerprints"][FINGERPRINT] for one in run["results"]]
    assert len(set(prints)) == len(prints)
    (invocation,) = run["invocations"]
    only(invocation, {"executionSuccessful", "exitCode", "toolExecutionNotifications"}, {"startTimeUtc", "endTimeUtc"})
    for note in invocation["toolExecutionNotifications"]:
        only(note, {"level", "message"})
        assert note["level"] in LEVELS
    for name in {"startTimeUtc", "endTimeUtc"} & set(invocation):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", invocation[name])


def check_sarif_result(one: Json, rules: list[Json]) -> None:
    only(
        one,
        {"ruleId", "ruleIndex", "kind", "level", "message", "locations", "partialFingerprints"},
        {"properties", "occurrenceCount"},
    )
    assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
    assert one["kind"] in KINDS
    assert one["level"] in LEVELS
    assert one["kind"] == "fail" or one["level"] == "none"  # section 3.27.10 of the standard
    assert one["message"]["text"]
    assert all(isinstance(value, str) for value in one["partialFingerprints"].values())
    assert one.get("occurrenceCount", 1) >= 1
    (location,) = one["locations"]
    only(location, {"physicalLocation", "logicalLocations"})
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "result.json", "index": 0}
    (logical,) = location["logicalLocations"]
    only(logical, {"name", "fullyQualifiedName", "kind"})
    assert logical["fullyQualifiedName"].endswith(logical["name"])


def results(result: Result) -> Iterator[Json]:
    yield from log_of(result)["runs"][0]["results"]


@pytest.mark.parametrize("make", MAKERS)
def test_the_log_has_the_shape_of_the_standard(make: Callable[[], Result]) -> None:
    log_of(make())


def test_findings_have_their_place_and_a_name_that_stays() -> None:
    found = [one for one in results(troubled()) if one["ruleId"] == "parity.round-trip" and one["kind"] == "fail"]
    second = found[1]
    assert second["level"] == "error"
    logical = second["locations"][0]["logicalLocations"][0]
    assert logical["fullyQualifiedName"] == "runs/runs/run_00000000000000000000000000000001/started_at"
    again = [one for one in results(troubled()) if one["ruleId"] == "parity.round-trip"]
    assert [one["partialFingerprints"] for one in again[: len(found)]] == [one["partialFingerprints"] for one in found]
    places = [one for one in found if one.get("occurrenceCount")]
    assert {one["properties"]["cause"] for one in places} == {"number-type"}, "a tally that no finding stands for"


def test_what_could_not_be_told_is_open_and_said_twice() -> None:
    log = log_of(troubled())["runs"][0]
    opened = {one["ruleId"] for one in log["results"] if one["kind"] == "open"}
    assert opened == {"parity.aggregates", "parity.round-trip", "cutover.downgrade", "cutover.configuration"}
    said = [one["message"]["text"] for one in log["invocations"][0]["toolExecutionNotifications"]]
    assert "area workers: left out by --skip" in said
    assert any(text.startswith("parity.aggregates: too many documents") for text in said)
    assert log["invocations"][0]["exitCode"] == troubled().exit_status() == 13


def test_failures_and_openings_stand_there_exactly_when_their_bits_do() -> None:
    for chosen in itertools.product(FLAGS, repeat=len(CIRCUMSTANCES)):
        result, bits = result_of(chosen)
        run = msgspec.json.decode(sarif(result))["runs"][0]
        failed = {one["ruleId"] for one in run["results"] if one["level"] == "error"}
        assert bool(failed) == chosen[0], chosen
        notes = run["invocations"][0]["toolExecutionNotifications"]
        assert bool(notes) == bool(bits & 28), chosen
        assert run["invocations"][0]["executionSuccessful"] == (not bits & 16)


def test_a_failure_that_was_accepted_is_for_review() -> None:
    failed = Check(id="crud.x", area="crud", title="t", outcome=FAILED)
    evidence = Evidence(checks=(failed,), policy=Policy(accepted=("crud",)))
    (one,) = results(build(evidence, Run(name="r")))
    assert (one["kind"], one["level"]) == ("review", "none")


def test_a_hundred_thousand_findings_are_cut_and_counted() -> None:
    findings = tuple(
        Finding(severity="difference", cause="time", collection="runs", key=f"run_{number}")
        for number in range(100_000)
    )
    tallies = tuple(
        Tally(severity="difference", cause="time", path=f"p{number}", title="a time", count=100)
        for number in range(1_000)
    )
    many = Check(
        id="parity.rows",
        area="parity",
        title="rows",
        outcome=FAILED,
        findings=findings,
        findings_total=100_000,
        tallies=tallies,
    )
    result = build(Evidence(checks=(many,)), Run(name="r"))
    assert len(sarif(result)) < 1_500_000
    assert len(junit(result)) < 20_000
    last = list(results(result))[-1]
    assert last["kind"] == "informational"
    assert last["message"]["text"].startswith(f"and {wording.number(100_000 - LISTED_RESULTS)} findings more")


def test_a_check_that_could_not_be_made_is_never_a_pass() -> None:
    unsure = Check(id="schema.a", area="schema", title="t", outcome=unverified("no server"))
    passed = Check(id="schema.b", area="schema", title="t", outcome=PASSED)
    (one,) = results(build(Evidence(checks=(unsure, passed)), Run(name="r")))
    assert (one["ruleId"], one["kind"]) == ("schema.a", "open")
