"""The result model: exit status, verdict, digest, and reading back."""

import hashlib
import itertools
import json

import msgspec
import pytest

from migrator.errors import UsageError
from migrator.exit_status import Allowance
from migrator.result import (
    FAILED,
    FORMAT,
    PASSED,
    Area,
    Cell,
    Check,
    Evidence,
    Outcome,
    Policy,
    Quarantined,
    Result,
    Run,
    Severity,
    Tally,
    build,
    decode,
    digest,
    encode,
    not_applicable,
    unverified,
)
from tests.fabricated_cutovers import record
from tests.fabricated_results import troubled


def check(name: str, outcome: Outcome, *, errored: bool = False, severity: Severity | None = None) -> Check:
    found = () if severity is None else (Tally(severity=severity, cause="c", title="t", count=1),)
    return Check(id=f"area.{name}", area="area", title=name, outcome=outcome, errored=errored, tallies=found)


def result(*checks: Check, quarantined: int = 0, **evidence: object) -> Result:
    found = (Quarantined(collection="runs", reason="bad-date", count=quarantined),) if quarantined else ()
    return build(Evidence(checks=checks, quarantine=found, **evidence), Run(name="r"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("failed", "unsure", "quarantined", "errored"), list(itertools.product((False, True), repeat=4)), ids=str
)
def test_exit_status_is_the_sum_of_its_bits(failed: bool, unsure: bool, quarantined: bool, errored: bool) -> None:  # noqa: FBT001 - a square of flags
    checks = [check("passed", PASSED), check("na", not_applicable("fresh start"))]
    if failed:
        checks.append(check("failed", FAILED))
    if unsure:
        checks.append(check("unsure", unverified("no server")))
    if errored:
        checks.append(check("errored", PASSED, errored=True))
    expected = 1 * failed + 4 * unsure + 8 * quarantined + 16 * errored
    assert result(*checks, quarantined=3 * quarantined).exit_status() == expected


@pytest.mark.parametrize(
    ("allowed", "status"), [(msgspec.UNSET, 8), (0, 8), (2, 8), (3, 0), (4, 0), ("all", 0)], ids=str
)
def test_what_is_allowed_in_quarantine_is_a_ceiling_and_the_verdict_still_names_it(
    allowed: Allowance | msgspec.UnsetType, status: int
) -> None:
    found = result(check("a", PASSED), quarantined=3)
    policy = msgspec.structs.replace(found.evidence.policy, allow_quarantined=allowed)
    found = build(msgspec.structs.replace(found.evidence, policy=policy), found.run)
    assert (found.exit_status(), found.verdict()) == (status, "equal-but-quarantine")


def test_a_check_that_broke_is_both_unverified_and_a_failure_of_the_tool() -> None:
    assert result(check("a", unverified("the target went away"), errored=True)).exit_status() == 20


@pytest.mark.parametrize("severity", ["explained", "warning"])
def test_settled_findings_and_warnings_set_no_bit(severity: Severity) -> None:
    assert result(check("a", PASSED, severity=severity)).exit_status() == 0


def test_a_warning_fails_only_in_the_areas_that_were_named() -> None:
    warned = check("a", PASSED, severity="warning")
    assert result(warned, policy=Policy(fail_on=("area",))).exit_status() == 1
    assert result(warned, policy=Policy(fail_on=("other",))).exit_status() == 0
    explained = check("a", PASSED, severity="explained")
    assert result(explained, policy=Policy(fail_on=("area",))).exit_status() == 0


def test_not_applicable_sets_no_bit() -> None:
    assert result(check("a", PASSED), check("b", not_applicable("fresh start"))).exit_status() == 0


def test_a_skipped_area_is_unverified_and_an_absent_one_is_not() -> None:
    passed = check("a", PASSED)
    assert result(passed, areas=(Area(name="x", title="X", status="skipped"),)).exit_status() == 4
    assert result(passed, areas=(Area(name="x", title="X", status="absent"),)).exit_status() == 0


def test_one_table_that_could_not_be_compared_is_unverified_although_others_failed() -> None:
    partly = Check(
        id="area.a",
        area="area",
        title="a",
        outcome=FAILED,
        cells=(Cell(table="runs", outcome=unverified("unfinished")),),
    )
    assert result(partly).exit_status() == 5


def test_no_check_at_all_is_never_a_success() -> None:
    assert result().exit_status() == 4


@pytest.mark.parametrize(
    ("checks", "quarantined", "verdict"),
    [
        ([PASSED], 0, "equal"),
        ([PASSED], 1, "equal-but-quarantine"),
        ([PASSED, unverified("x")], 1, "unverified"),
        ([FAILED, unverified("x")], 1, "different"),
    ],
)
def test_the_verdict_names_what_is_wrong_before_what_is_not_known(
    checks: list[Outcome], quarantined: int, verdict: str
) -> None:
    made = [check(str(number), outcome) for number, outcome in enumerate(checks)]
    assert result(*made, quarantined=quarantined).verdict() == verdict


def test_what_was_not_checked_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="needs a reason"):
        Outcome(status="unverified")


def test_reading_back_gives_the_same_result_and_the_same_bytes() -> None:
    troubled_result = troubled()
    again = decode(encode(troubled_result))
    assert again == troubled_result
    assert encode(again) == encode(troubled_result)


def test_the_digest_can_be_taken_without_this_tool() -> None:
    troubled_result = troubled()
    stored = json.loads(encode(troubled_result))
    plain = json.dumps(stored["evidence"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert "sha256:" + hashlib.sha256(plain.encode()).hexdigest() == troubled_result.digest


def test_the_digest_covers_every_part_of_the_evidence_and_nothing_of_the_run() -> None:
    troubled_result = troubled()
    run = troubled_result.run
    evidence = msgspec.structs.replace(troubled_result.evidence, cutover=record())
    for name in evidence.__struct_fields__:
        emptied = msgspec.structs.replace(evidence, **{name: getattr(Evidence(), name)})
        assert digest(emptied) != digest(evidence), name
    assert (
        build(troubled_result.evidence, msgspec.structs.replace(run, started_at="", durations_ms={})).digest
        == troubled_result.digest
    )


def test_evidence_holds_no_floats() -> None:
    troubled_result = troubled()

    # their spelling differs between languages, and the digest must not
    def floats(value: object) -> bool:
        if isinstance(value, dict):
            return any(map(floats, value.values()))
        return any(map(floats, value)) if isinstance(value, list) else isinstance(value, float)

    assert not floats(json.loads(encode(troubled_result))["evidence"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "not a result of this tool"),
        (b"{}", "not a result of this tool"),
        (b"\xff", "not a result of this tool"),
        (b'{"format": 99}', "a result of format 99"),
        (f'{{"format": {FORMAT}, "digest": 3}}'.encode(), "not a whole result"),
    ],
)
def test_what_is_no_result_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        decode(text)


def test_a_result_with_a_field_nobody_knows_is_refused() -> None:
    troubled_result = troubled()
    with pytest.raises(UsageError, match="unknown field"):
        decode(encode(troubled_result).replace(b'"left_out"', b'"leftout"'))
