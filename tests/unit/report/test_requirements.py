"""What the list of requirements says of those that a verification can show in part, or rehearse only."""

import msgspec
import pytest

from migrator.report import renderer
from migrator.result import PASSED, Check, CollectionCounts, Evidence, Requirement, Result, Run, build
from tests.unit.report.test_html import page


def result(identity: str, text: str, *, quarantined: int = 0, dropped: int = 0) -> Result:
    """Return the result of a run in which the one check of a requirement passed."""
    check = Check(id="parity.rows", area="parity", title="t", requirements=(identity,), outcome=PASSED)
    documents = CollectionCounts(
        collection="schedules",
        tables=("schedules", "triggers"),
        documents=419,
        matched=419 - quarantined - dropped,
        quarantined=quarantined,
        skipped={"dropped": dropped} if dropped else {},
    )
    asked = Requirement(id=identity, text=text, checks=("parity.rows",))
    return build(Evidence(checks=(check,), requirements=(asked,), collections=(documents,)), Run(name="r"))


@pytest.mark.proves("4-Z1")
@pytest.mark.parametrize(("quarantined", "dropped", "left"), [(3, 0, 3), (2, 2, 4)])
def test_all_jobs_in_the_database_are_all_but_those_in_quarantine(quarantined: int, dropped: int, left: int) -> None:
    made = result("4-Z1", "success criterion: all jobs in DB", quarantined=quarantined, dropped=dropped)
    said = f"all but {left} parity.rows ; {left} documents are in quarantine or dropped from it"
    assert f"success criterion: all jobs in DB 4-Z1 {said}" in page(made).text.replace(" ;", " ;")
    assert f"all but {left} |" in renderer.markdown(made).decode()
    assert "1 met for all documents but those in quarantine" in page(made).text


@pytest.mark.proves("4-Z1", "4-Z3")
def test_without_a_document_in_quarantine_the_requirement_is_passed() -> None:
    assert (
        "success criterion: all jobs in DB 4-Z1 passed"
        in page(result("4-Z1", "success criterion: all jobs in DB")).text
    )
    other = result("4-Z3", "success criterion: history in DB", quarantined=3)  # of schedules, not of runs
    assert "success criterion: history in DB 4-Z3 passed" in page(other).text


@pytest.mark.parametrize("identity", ["0-T2.12.3", "4-B1", "4-B2", "4-V1", "4-V6"])
def test_what_follows_a_cutover_is_rehearsed_before_it(identity: str) -> None:
    made = result(identity, "switch back")
    assert f"switch back {identity} rehearsed on scratch data" in page(made).text
    assert "1 rehearsed on scratch data" in page(made).text


def test_the_id_of_a_requirement_never_stands_without_its_words() -> None:
    made = result("4-B1", "rollback level 1: switch back")
    check = msgspec.structs.replace(made.evidence.checks[0], requirements=("4-B1", "9-Z9"))
    made = build(msgspec.structs.replace(made.evidence, checks=(check,)), Run(name="r"))
    for render in renderer.RENDERINGS.values():
        text = render(made).decode()
        assert "9-Z9" not in text
        assert text.count("4-B1") == text.count("rollback level 1: switch back")
