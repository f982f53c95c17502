"""Requirements in the report: their words are those of the list, and only what can fail shows one."""

import re
from pathlib import Path

import msgspec
import pytest

from migrator.result import (
    FAILED,
    PASSED,
    Area,
    Check,
    Evidence,
    Outcome,
    Requirement,
    Result,
    Run,
    build,
    not_applicable,
    not_asked_for,
    unverified,
)
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.requirements import OUT_OF_SCOPE, WORDS, requirements
from tests.golden.docs.test_capabilities import expand, sections

NOBODY_ASKED = not_asked_for("made only with --more")
DECIDED = not_applicable("fresh start")
UNSURE = unverified("no server")
OF_CRITERIA = {"4-V7", "4-Z2", "4-Z6"}
"""Which the criteria of a cutover's report show, and no check of a verification."""


def test_every_requirement_of_a_check_stands_with_the_words_of_the_list() -> None:
    rows = {single: row for some in sections().values() for row in some for single in expand(row.id)}
    named = [one for one in requirements(EVERY_CHECK) if one.checks]
    for one in named:
        row = rows[one.id]
        whole = len(expand(row.id)) == 1
        assert one.text == WORDS[one.id]
        assert all(word in row.capability for word in _words(one.text)) if whole else one.text, one.id
    assert {*WORDS} == {one.id for one in named} | OF_CRITERIA, "words for what no check names"


def test_every_row_of_the_list_stands_once_with_its_words_and_tests() -> None:
    every = [row for some in sections().values() for row in some]
    found = {one.id: one for one in requirements(EVERY_CHECK)}
    outside = {one.id for one in OUT_OF_SCOPE}
    for row in every:
        members = expand(row.id)
        if row.id in found and not found[row.id].checks:
            assert found[row.id].text == row.capability
        else:
            assert members <= found.keys() | outside, row.id
    assert found["0-T2.8.4"].tests, "a row that no check names is shown by tests"
    assert not found["2-X11"].tests or found["2-X11"].checks


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def test_the_subjects_of_the_mission_rest_on_checks_that_every_run_makes() -> None:
    """Schedule CRUD, run states and trigger calculation do not wait for a random test that somebody asks for."""
    optional = {"crud.lockstep", "cutover.rollback", "sensitivity.mutations"}
    shown = {one.id: {*one.checks} for one in requirements(EVERY_CHECK)}
    for name in ("0-T2.11.1", "0-T2.11.2", "0-T2.4.2", "0-T2.11.3", "0-T2.11.4", "0-T2.11.5", "0-X1", "0-X2"):
        assert shown[name]
        assert not shown[name] & optional, name


def result(*outcomes: Outcome, can_fail: bool = True, left: Area | None = None) -> Result:
    checks = tuple(
        Check(id=f"crud.{number}", area="crud", title="t", outcome=one, can_fail=can_fail)
        for number, one in enumerate(outcomes)
    )
    named = tuple(one.id for one in checks) + (() if left is None else (f"{left.name}.more",))
    asked = Requirement(id="0-X1", text="parity", checks=named)
    return build(Evidence(checks=checks, requirements=(asked,), areas=(left,) if left else ()), Run(name="r"))


@pytest.mark.proves("5-R2")
@pytest.mark.parametrize(
    ("given", "status"),
    [
        (result(PASSED), "passed"),
        (result(PASSED, NOBODY_ASKED), "passed"),
        (result(PASSED, DECIDED), "passed"),
        (result(PASSED, FAILED), "failed"),
        (result(PASSED, UNSURE), "unverified"),
        (result(FAILED, UNSURE), "failed"),
        (result(NOBODY_ASKED), "not-asked-for"),
        (result(DECIDED), "not-applicable"),
        (result(PASSED, can_fail=False), "not-asked-for"),
        (result(PASSED, left=Area(name="locking", title="t", status="skipped", reason="--skip")), "unverified"),
        (result(PASSED, left=Area(name="sensitivity", title="t", status="not-asked-for", reason="x")), "passed"),
    ],
)
def test_what_a_run_shows_of_a_requirement(given: Result, status: str) -> None:
    (one,) = given.evidence.requirements
    assert given.requirement_status(one) == status


def test_a_check_that_cannot_fail_counts_as_recorded_and_not_as_passed() -> None:
    given = result(PASSED, can_fail=False)
    assert given.judged() == (0, 0)
    assert given.recorded() == 1


@pytest.mark.parametrize("outcome", [NOBODY_ASKED, DECIDED])
def test_what_nobody_asked_for_sets_no_bit(outcome: Outcome) -> None:
    assert result(PASSED, outcome).exit_status() == 0
    assert msgspec.structs.asdict(outcome)["status"] != "passed"


def test_the_page_says_of_each_check_that_only_records_that_it_is_never_red() -> None:
    page = (Path(__file__).parents[3] / "docs" / "report.md").read_text(encoding="utf-8")
    never = set(re.findall(r"^\| `([a-z.-]+)` \| never: ", page, re.MULTILINE))
    assert never == {one.id for one in EVERY_CHECK if not one.can_fail}


ROWS_OUT_OF_SCOPE = [row for some in sections().values() for row in some if row.own == "R"]
RECORDED = {one.id: one for one in OUT_OF_SCOPE}


def test_every_row_outside_of_the_tool_is_recorded_with_its_words() -> None:
    assert {*RECORDED} == {single for row in ROWS_OUT_OF_SCOPE for single in expand(row.id)}
    for row in ROWS_OUT_OF_SCOPE:
        for single in expand(row.id):
            assert all(word.strip(":,") in row.capability for word in RECORDED[single].text.split()[-1:]), single
