"""A check is declared in one place: the registry, the report, the matrix and the pages follow from it."""

import pytest

from migrator.config import MongoSettings, Settings
from migrator.report import renderer
from migrator.report.areas import AREAS
from migrator.result import PASSED
from migrator.schema.decisions import Approval
from migrator.testing.mutations import MUTATIONS
from migrator.testing.mutations.mutation import data
from migrator.verify.check import CheckResult, CheckSpec
from migrator.verify.checks import semantics
from migrator.verify.fresh_start import FreshStart
from migrator.verify.registry import EVERY_CHECK, every_check
from migrator.verify.request import Request
from migrator.verify.runner import verify
from tests.golden.docs import checks_page

ADDED = CheckSpec(
    id="semantics.added",
    title="What was added holds",
    fails_if="what was added does not hold",
    source=True,
    run=lambda _context: CheckResult(outcome=PASSED),
)
PLANTED = data("an added fault", lambda _copy: None, ADDED.id)
UNPLANTED = {"parity.round-trip", "crud.lockstep"}
"""docs/verifiers.md says how these are seen red."""


def test_a_check_that_is_added_to_its_module_is_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(semantics, "CHECKS", (*semantics.CHECKS, ADDED))
    specs = every_check()
    known = {one.id for one in EVERY_CHECK}
    assert [one.id for one in specs if one.id not in known] == [ADDED.id]
    assert PLANTED.runs_check(ADDED.id)
    page = checks_page.mutations_by_check(specs, [*MUTATIONS, PLANTED])
    assert "| `priorities` | `added` |\n" in page
    assert "| an added fault | no | no | no | no | no | no | yes |\n" in page
    assert f"| `{ADDED.id}` | {ADDED.fails_if} |\n" in checks_page.fails_if(specs)

    nowhere = Settings(mongo=MongoSettings())
    result = verify(nowhere, Request(run_name="r", only=("semantics",)), checks=[ADDED])
    page = renderer.html(result).decode()
    assert f'<a href="#check-{ADDED.id}">{ADDED.title}</a>' in page[page.index('<h2 id="semantics">') :]
    assert ADDED.title.encode() in renderer.markdown(result)
    alone = FreshStart(by=Approval("me", "it is new"))
    result = verify(nowhere, Request(run_name="r", fresh_start=alone), checks=[ADDED])
    assert [one.outcome.status for one in result.evidence.checks] == ["not-applicable"]


def test_every_check_that_mutations_are_planted_for_has_one() -> None:
    named = {check for one in MUTATIONS for check in one.caught_by}
    wanted = {one.id for one in EVERY_CHECK if AREAS[one.area].mutations is not None and one.can_fail}
    assert wanted - named == UNPLANTED


def test_every_check_says_what_makes_it_fail() -> None:
    for one in EVERY_CHECK:
        assert one.fails_if, one.id
        assert not one.fails_if.endswith("."), one.id
        assert one.can_fail or one.fails_if.startswith("never: "), one.id
