"""The area parity: for each kind of trouble the one check that must turn red, and no other."""

import ast
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec
import pytest

import migrator
from migrator.config import Settings
from migrator.parity.model import (
    AggregateDifference,
    AggregateResult,
    CollectionComparison,
    ColumnCount,
    ParityOutcome,
    Side,
    tally_of,
)
from migrator.parity.policies import POLICIES, policy_of
from migrator.result import Finding, Loss, Outcome, Quarantined, Result, Status, Tally, build
from migrator.verify.check import CheckContext
from migrator.verify.checks import parity
from migrator.verify.checks.parity import CHECKS, coverage_cells
from migrator.verify.request import Request
from migrator.verify.runner import verify

RUNS = CollectionComparison(
    collection="runs",
    tables=("runs",),
    documents=10,
    matched=9,
    quarantined=1,
    rows=9,
    without_remainder=7,
    with_remainder=2,
    columns=(ColumnCount(table="runs", column="id", compared=9, differing=0),),
    quarantine=(
        Quarantined(collection="runs", reason="bad-date", path="createdAt", expected="a time", count=1, keys=("r1",)),
    ),
    notes=(
        Tally(
            severity="explained",
            cause="orphan",
            collection="runs",
            path="schedule_id",
            title=policy_of("orphan").title,
            count=2,
            keys=("r2",),
        ),
    ),
    losses=(Loss(collection="runs", path="createdAt", kind="precision", count=2, kept=True),),
)
FIGURES = AggregateResult(collection="runs", table="runs", measure="state", kind="group", tenants=1, compared=4)
EQUAL = ParityOutcome(profile="stellaops/1", collections=(RUNS,), aggregates=(FIGURES,))


def verified(outcome: ParityOutcome, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(parity, "compare", lambda _context: outcome)
    return verify(Settings(), Request(run_name="r"), checks=CHECKS)


def with_runs(**changes: object) -> ParityOutcome:
    return msgspec.structs.replace(EQUAL, collections=(msgspec.structs.replace(RUNS, **changes),))


def difference(side: Side, path: str = "state") -> dict[str, object]:
    return {
        "tallies": {side: (tally_of("runs", "text", 3, table="runs", path=path),)},
        "findings": (found("r3", side, path),),
    }


def found(key: str, side: Side, path: str) -> Finding:
    return Finding(severity="difference", collection="runs", key=key, side=side, table="runs", path=path, cause="text")


def statuses(result: Result) -> dict[str, Status]:
    return {check.id: check.outcome.status for check in result.evidence.checks}


def red(result: Result) -> set[str]:
    return {name for name, status in statuses(result).items() if status != "passed"}


def test_nothing_is_red_when_all_is_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = verified(EQUAL, monkeypatch)
    assert red(result) == set()
    assert result.exit_status() == 8
    assert result.verdict() == "equal-but-quarantine"


@pytest.mark.parametrize(
    ("kind", "label", "key"),
    [
        ("group", "x", "documents with x, tenant a"),
        ("group", "(none)", "documents without a value, tenant a"),
        ("group", "", "number of documents, tenant a"),
        ("sum", "sum", "sum, tenant a"),
        ("time", "last", "last time, tenant a"),
    ],
)
def test_a_finding_says_in_words_which_aggregate_differs(
    kind: Literal["group", "sum", "time"], label: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = AggregateDifference(tenant="a", label=label, source="1", target="2")
    figures = msgspec.structs.replace(FIGURES, kind=kind, differing=(line,), differing_total=1)
    result = verified(msgspec.structs.replace(EQUAL, aggregates=(figures,)), monkeypatch)
    check = next(one for one in result.evidence.checks if one.id == "parity.aggregates")
    assert [one.key for one in check.findings] == [*check.tallies[0].keys] == [key]


@pytest.mark.parametrize(
    ("trouble", "check"),
    [
        (with_runs(matched=8, differing=1, **difference("row")), "parity.rows"),
        (with_runs(matched=8, differing=1, **difference("document")), "parity.round-trip"),
        (with_runs(extra=3, **difference("extra", "")), "parity.extra"),
        (with_runs(matched=8, missing=1, **difference("missing", "")), "parity.documents"),
        (
            with_runs(losses=(Loss(collection="runs", path="name", kind="nul", count=1, kept=False),)),
            "parity.losses",
        ),
        (
            msgspec.structs.replace(
                EQUAL,
                aggregates=(
                    msgspec.structs.replace(
                        FIGURES,
                        differing=(AggregateDifference(tenant="a", label="x", source="1", target="2"),),
                        differing_total=1,
                    ),
                ),
            ),
            "parity.aggregates",
        ),
    ],
)
def test_each_trouble_turns_its_own_check_red(
    trouble: ParityOutcome, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = verified(trouble, monkeypatch)
    assert red(result) == {check}
    assert statuses(result)[check] == "failed"
    assert result.exit_status() & 1
    assert sum(one.findings_total for one in result.evidence.checks if one.id == check) or check == "parity.losses"
    named = next(one for one in result.evidence.checks if one.id == check)
    assert named.tallies
    assert all(tally.fix for tally in named.tallies)


@pytest.mark.parametrize(
    "trouble",
    [
        with_runs(documents=11),  # one document is nowhere
        with_runs(matched=8),  # one was forgotten
        with_runs(matched=8, differing=1),  # one differs, and nobody says where
    ],
)
def test_a_sum_that_does_not_come_out_even_is_a_failure(
    trouble: ParityOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert red(verified(trouble, monkeypatch)) == {"parity.documents"}


def test_what_was_not_compared_is_unverified_everywhere_and_in_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    other = CollectionComparison(collection="locks", tables=("locks",), unverified="its copy is unfinished")
    result = verified(msgspec.structs.replace(EQUAL, collections=(RUNS, other)), monkeypatch)
    assert statuses(result)["parity.rows"] == "unverified"
    rows = next(check for check in result.evidence.checks if check.id == "parity.rows")
    squares = {cell.table: cell.outcome for cell in rows.cells}
    assert squares["locks"].reason == "its copy is unfinished"
    assert squares["runs"].status == "passed"
    assert squares["handlers"].status == "not-applicable"
    assert result.exit_status() == 12


@pytest.mark.parametrize(
    ("worse", "better"), [*pairwise(("failed", "unverified", "not-asked-for", "not-applicable", "passed"))]
)
def test_of_several_collections_in_one_table_the_worst_outcome_counts(
    worse: Status, better: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "compare", lambda _context: EQUAL)
    outcomes = [Outcome(status=better, reason="better"), Outcome(status=worse, reason="worse")]
    cells = coverage_cells(CheckContext(Settings()), {"runs": outcomes}, {"runs": 9}, "rows")
    assert [cell.outcome.status for cell in cells if cell.table == "runs"] == [worse]


def test_an_empty_source_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = ParityOutcome(profile="stellaops/1", collections=())
    assert statuses(verified(empty, monkeypatch))["parity.documents"] == "unverified"


def test_figures_that_could_not_be_computed_are_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    unsure = msgspec.structs.replace(FIGURES, unverified="too many", compared=0)
    result = verified(msgspec.structs.replace(EQUAL, aggregates=(unsure,)), monkeypatch)
    assert red(result) == {"parity.aggregates"}
    assert statuses(result)["parity.aggregates"] == "unverified"


def test_unknown_collections_are_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    result = verified(msgspec.structs.replace(EQUAL, unknown_collections=("audit_old",)), monkeypatch)
    assert result.evidence.left_out == ("collection audit_old is in no profile: not copied, so not compared",)


def test_collections_that_a_mapping_leaves_out_are_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    result = verified(msgspec.structs.replace(EQUAL, left_out={"audit_old": "kept in the archive"}), monkeypatch)
    assert result.evidence.left_out == ("collection audit_old is not copied, on purpose: kept in the archive",)


def test_settled_findings_are_listed_with_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    result = verified(EQUAL, monkeypatch)
    explained = [tally for check in result.evidence.checks for tally in check.tallies]
    assert [(one.severity, one.cause, one.count, one.keys) for one in explained] == [
        ("explained", "orphan", 2, ("r2",))
    ]


def test_examples_are_cut_and_counts_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(found(f"r{n:04}", "row", "state") for n in range(1_500))
    tallies = {"row": (tally_of("runs", "text", 5_000, table="runs", path="state"),)}
    trouble = with_runs(documents=5_001, matched=0, differing=5_000, tallies=tallies, findings=many)
    check = next(one for one in verified(trouble, monkeypatch).evidence.checks if one.id == "parity.rows")
    assert (len(check.findings), check.findings_total, check.tallies[0].count) == (1_000, 5_000, 5_000)
    assert check.tallies[0].keys == ("r0000", "r0001", "r0002", "r0003", "r0004")


def test_the_result_is_the_same_when_it_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result = verified(EQUAL, monkeypatch)
    assert build(result.evidence, result.run) == result


ROW_SOURCES = {"orchestrator", "crawler", "support_center", "rows"}
"""Systems that were never on MongoDB: no copy reads them, so no report shows what they note (docs/sources-other.md)."""


def test_every_note_of_the_profiles_has_a_policy() -> None:
    """Kinds that are written out in the code; an unknown one is shown by its own name."""
    kinds = {
        node.args[0].value
        for file in (Path(migrator.__file__).parent / "sources").rglob("*.py")
        if not ROW_SOURCES & {file.stem, file.parent.name}
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Note"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert kinds
    assert kinds - set(POLICIES) == set()
    assert policy_of("never-heard-of").title == "never heard of"
